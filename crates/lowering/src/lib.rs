//! Optimised IR to machine-level IR.
//!
//! [`lower`] translates each entry point into one function `fn(ctx, batch)`, which takes all packets of a batch to
//! their fates. The contract with the runtime is crate `abi`, the same as that of `jit`. `ir::op` defines what an
//! operation means; its lowering here is straightforward: a header is loaded where it is extracted, a table lookup is
//! an `issue` followed by its `take`, a deparser writes everything that it emits, a record gets every slot. Every
//! improvement is a pass of `mir`.
//!
//! - `entry`: the packet loop, stages, terminators, fates, records; `ops`: the list of all operations.
//! - `ssa` constructs SSA values of slots; `build` appends instructions; `value` represents slots of any width as
//!   values.
//! - `arith`, `parse`, `deparse`, `tables`, `dynamic`, `externs`, `registers`, `locks`, `hashes`, `messages`:
//!   operations by kind; `header`, `emission` and `strings`: fields and bit strings in memory.
//! - `runtime`: the functions that compiled code calls, with their effects; `site`: log lines and assertions; `error`.
//!
//! The program must have passed `ir::verify`. Bounds of the packet are checked by the program itself, with `HasBits`.
//!
//! **Limits.** [`STACK_BYTES_MAX`] bounds a function's stack slots, [`INSTRUCTIONS_MAX`] its instructions. Slots are
//! SSA values as long as that takes at most [`DEFINITIONS_MAX`] definitions; an entry point that needs more keeps all
//! its slots in memory, so that the size of the function stays proportional to that of the entry point.
//!
//! Tests: `tests/`; `crates/difftest` and `crates/datapath` compare the engines `mir` and `mir-interp` with all others.

mod arith;
mod build;
mod deparse;
mod dynamic;
mod emission;
mod entry;
mod error;
mod externs;
mod hashes;
mod header;
mod locks;
mod messages;
mod ops;
mod parse;
mod registers;
mod runtime;
mod site;
mod ssa;
mod strings;
mod tables;
mod value;

pub use error::Error;
pub use runtime::Call;
pub use site::{Site, SiteKind};

use abi::{Bindings, RuntimeCalls};
use build::{Lowering, Shared};
use ir::{EntryKind, Program};
use mir::{FunctionId, Module};
use runtime::Calls;

/// Limit on a function's stack slots, in bytes: a quarter of the 2 MB stack of a thread.
pub const STACK_BYTES_MAX: u32 = 512 * 1024;
/// Limit on a function's instructions, which bounds the compiler's memory.
pub const INSTRUCTIONS_MAX: usize = 1 << 22;
/// Limit on the definitions of slots as SSA values; a definition is one (block, variable) pair with a value of its own.
pub const DEFINITIONS_MAX: usize = 1 << 20;
/// Limit on a slot's width, in bits.
pub const SLOT_WIDTH_MAX: u32 = 1 << 16;

/// Options of the lowering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Limit on definitions, [`DEFINITIONS_MAX`] by default; with 0 all slots are kept in memory.
    pub definitions_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { definitions_max: DEFINITIONS_MAX }
    }
}

/// A lowered program.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// One function for each entry point. The addresses in the bindings are constants in it.
    pub module: Module,
    /// What each [`mir::RuntimeId`] refers to, by id.
    pub calls: Vec<Call>,
    /// The functions of the entry points.
    pub entries: Vec<(EntryKind, FunctionId)>,
    /// Log and assertion sites.
    pub sites: Vec<Site>,
}

/// Lowers all entry points of a verified program. The addresses in `bindings` and `runtime` become constants of the
/// module; they must be those of the state with which it runs.
///
/// # Errors
///
/// [`Error::Unsupported`] names the operation, [`Error::Limit`] the bound, and [`Error::Binding`] the object whose
/// binding does not fit.
pub fn lower(
    program: &Program,
    bindings: &Bindings,
    runtime: &RuntimeCalls,
    options: &Options,
) -> Result<Lowered, Error> {
    if let Some(slot) = program.slots.iter().find(|slot| slot.width > SLOT_WIDTH_MAX) {
        let (what, found) = (format!("bits of `{}`", slot.name), slot.width.into());
        return Err(Error::Limit { what, found, max: SLOT_WIDTH_MAX.into() });
    }
    let headers = header::layouts(program)?;
    let mut calls = Calls::new(runtime);
    let mut module = Module { tables: tables::declare(program, bindings), ..Module::default() };
    if let Some(table) = module.tables.iter().find(|table| table.words > mir::KEY_WORDS_MAX) {
        let (what, found) = (format!("words of a key of table `{}`", table.name), table.words.into());
        return Err(Error::Limit { what, found, max: mir::KEY_WORDS_MAX.into() });
    }
    let (mut entries, mut sites) = (Vec::new(), Vec::new());
    for entry in &program.entries {
        let mut attempt = |definitions_max| {
            let shared = Shared { program, bindings, headers: &headers, calls: &mut calls, sites: &mut sites };
            let mut lowering = Lowering::new(shared, entry, definitions_max);
            lowering.entry()?;
            Ok(match lowering.ssa.is_over_budget() {
                true => None,
                false => Some(lowering.finish()?),
            })
        };
        let mut function = None;
        if options.definitions_max > 0 {
            function = attempt(Some(options.definitions_max))?;
        }
        let function = match function {
            Some(function) => Some(function),
            None => attempt(None)?,
        };
        module.functions.push(function.expect("with slots in memory there is no such budget"));
        entries.push((entry.kind, FunctionId(module.functions.len() as u32 - 1)));
    }
    let (runtime, calls) = calls.into_parts();
    module.runtime = runtime;
    Ok(Lowered { module, calls, entries, sites })
}
