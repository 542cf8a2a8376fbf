//! Generated programs: everything that a program and a script must do the same way, whatever runs it.
//!
//! [`Case::generate`] makes a program (`p4gen`), and for it a script: set-up lines, entries around what its tables' keys
//! are, packets. [`Case::check`] compiles it and compares
//!
//! - raw IR on the interpreter, the truth here,
//! - the IR after each pass alone, after all passes but one, after all, on the interpreter,
//! - raw and optimised IR as machine code, also without some of the optimisations of code generation,
//! - raw IR that was printed and read again,
//! - raw IR of the same program written differently,
//!
//! in everything that can be seen: frames, answers to set-up lines, counters, registers, digests, drops. [`mutate`] edits
//! sources, which may then be refused but must not make the compiler panic. [`reduce`] makes a failing case small.
//!
//! Everything is text, so a reduced case is a file in `tests/stf/generated/`. Everything follows from a seed.
//!
//! Tests: `tests/generated.rs`.

mod engines;
pub mod mutate;
pub mod reduce;
mod script;
mod sweep;

pub use sweep::{Options, Report, size_of, sweep};

use crate::generate::Dice;
use frontend::{Input, Until};
use ir::Program;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A program with a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// P4 source.
    pub source: String,
    /// Lines of an STF script: set-up first, then packets.
    pub script: Vec<String>,
}

/// What kind of thing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The front end refuses a program that is correct.
    Refused,
    /// Something panicked.
    Panic,
    /// IR that the verifier refuses.
    IllFormed,
    /// Printed IR does not read as the same program.
    RoundTrip,
    /// The program cannot be loaded.
    Load,
    /// Two engines differ.
    Difference,
    /// A constant expression has another value at run time.
    Canary,
    /// The same program written differently does something else.
    Rewritten,
}

/// Something wrong with a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of thing.
    pub kind: Kind,
    /// Where: the engine, or the stage of compilation, or the code of a diagnostic.
    pub place: String,
    /// All that is known.
    pub what: String,
}

/// How much of a case is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Depth {
    /// It is compiled.
    Compile,
    /// Raw and optimised IR, and machine code.
    Main,
    /// Also every pass alone, and all but one.
    Passes,
}

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets that were received.
    pub packets: u64,
    /// Frames that were sent for them.
    pub sent: u64,
    /// Engines that were compared with the first one.
    pub engines: u64,
    /// Set-up lines and entries that were accepted.
    pub entries: u64,
}

impl Case {
    /// A program of a size with a script that suits it. The script is empty if the program does not compile.
    pub fn generate(seed: u64, size: u32, packets: usize) -> Case {
        let generated = p4gen::program(seed, size);
        let mut case = Case { source: generated.source, script: generated.setup };
        if let Ok(raw) = case.raw() {
            script::extend(&mut case.script, &raw, &mut Dice::new(seed), packets);
        }
        case
    }

    /// Whether another source does the same with this script.
    pub fn compare_with(&self, other: &Case, counts: &mut Counts) -> Result<(), Finding> {
        let (raw, written) = (self.raw()?, other.raw()?);
        engines::compare_raw(&self.script, &raw, &written, counts)
    }

    /// The raw IR.
    fn raw(&self) -> Result<Arc<Program>, Finding> {
        let input = Input::Text { name: "generated.p4", text: &self.source };
        let options = frontend::Options { opt: no_passes(), ..Default::default() };
        let compiled =
            guard("compiler", || frontend::compile(input, &options, Until::Ir).expect("a text needs no file"))?;
        // An edited source may compile and be for no switch: a header without its padding has no wire form.
        if compiled.failed() || !compiled.unloadable.is_empty() {
            let is_error = |d: &&base::Diagnostic| base::diag::has_errors(std::slice::from_ref(*d));
            let first = compiled.diagnostics.iter().chain(&compiled.unloadable).find(is_error);
            let place = first.map_or(String::new(), |d| format!("{} {}", d.code, plain(&d.message)));
            let what = first.map_or(String::new(), |d| d.render(&compiled.sources, false));
            return Err(Finding { kind: Kind::Refused, place, what });
        }
        match compiled.raw {
            Some(raw) => Ok(Arc::new(raw)),
            None => Err(Finding { kind: Kind::Refused, place: "no main".into(), what: "there is no `main`".into() }),
        }
    }

    /// Compiles and compares.
    pub fn check(&self, depth: Depth, counts: &mut Counts) -> Result<(), Finding> {
        let raw = self.raw()?;
        let problems = guard("verifier", || ir::verify(&raw))?;
        if let Some(first) = problems.first() {
            return Err(Finding { kind: Kind::IllFormed, place: "raw IR".into(), what: first.message.clone() });
        }
        let text = ir::print::print(&raw);
        let again =
            guard("IR reader", || ir::parse::parse(&text, base::span::FileId(0)))?.map_err(|problems| Finding {
                kind: Kind::RoundTrip,
                place: plain(&problems[0].message),
                what: format!("printed IR is refused: {}", problems[0].message),
            })?;
        if ir::print::print(&again) != text {
            let printed = ir::print::print(&again);
            let line = text.lines().zip(printed.lines()).find(|(a, b)| a != b);
            let what = format!("printed IR reads as another program: {line:?}");
            return Err(Finding { kind: Kind::RoundTrip, place: "printed IR".into(), what });
        }
        if depth == Depth::Compile {
            return Ok(());
        }
        engines::compare(&self.script, &raw, again, depth, counts)
    }
}

/// No pass at all.
fn no_passes() -> opt::Options {
    opt::Options { disabled: opt::pass_names().map(str::to_string).collect(), ..opt::Options::default() }
}

/// A message without the names and numbers in it, so that the same fault is known again.
fn plain(message: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    for c in message.chars() {
        match c {
            '`' => quoted = !quoted,
            c if quoted || c.is_ascii_digit() => {}
            c => out.push(c),
        }
    }
    out.truncate(out.char_indices().nth(100).map_or(out.len(), |(i, _)| i));
    out
}

thread_local! {
    static LAST_PANIC: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Keeps panics quiet on this thread and remembers what they said. For programs, not for tests.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |l| format!("{}:{}", l.file(), l.line()));
        LAST_PANIC
            .with_borrow_mut(|last| *last = format!("{place}: {}", info.payload_as_str().unwrap_or("no message")));
    }));
}

/// Runs something that must not panic.
fn guard<T>(stage: &str, run: impl FnOnce() -> T) -> Result<T, Finding> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let noted = LAST_PANIC.with_borrow(|last| last.clone());
        let said = payload.downcast_ref::<String>().cloned();
        let said = said.or(payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
        let what = if noted.is_empty() { said } else { noted };
        let place = format!("{stage}: {}", plain(what.lines().next().unwrap_or_default()));
        Finding { kind: Kind::Panic, place, what: format!("{stage}: {what}") }
    })
}
