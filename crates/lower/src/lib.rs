//! Lowers a typed program to IR, one file per architecture.
//!
//! Everything is inlined: sub-parsers, sub-controls, functions and directly called actions become basic blocks of a
//! stage, that of the architecture's block which calls them. Everything is flattened: headers, structs, stacks and
//! unions become slots ([`tree`]). The result consists of straight-line operations, branches and table applications.
//!
//! ```text
//! lower()            v1model.rs,          parser.rs, stmt.rs, expr.rs, call.rs, table.rs
//!   finds main  ──▶  standalone.rs:    ──▶ put each block's code into a stage
//!                    bind the blocks'
//!                    parameters, add glue
//! ```
//!
//! **Guarantees.** `lower` never panics on a checked program: it reports what it does not support with an `E06xx`
//! diagnostic that names the construct and its position. The result passes `ir::verify`. The fields of invalid headers
//! are zero: only `store.rs` and `header.rs` write header slots, and their writes are guarded. For bmv2
//! ([`Options::bmv2`]), headers that keep their fields while invalid have slots of their own (`retained.rs`).
//!
//! **No other crate knows architectures by name**, and here only the files behind [`arch::Architecture`] do.
//!
//! Specification: P4_16; v1model as implemented by bmv2's simple_switch. Tests: `tests/`; `examples/lower_corpus.rs`
//! counts the reference compiler's samples that can be lowered.

mod add_on_miss;
mod arch;
mod bpf;
mod call;
mod cleanup;
pub mod codes;
mod context;
pub mod dirty;
mod ebpf;
mod entries;
mod expr;
mod foreign;
mod header;
mod openflow;
mod parser;
mod path;
mod pna;
mod portable;
mod psa;
mod retained;
pub mod simple_switch;
mod standalone;
mod stmt;
mod storage;
mod store;
mod table;
mod tree;
mod ubpf;
mod v1model;
mod visit;
mod xdp;

pub use cleanup::drop_unreachable;
pub use context::{SIZE_LIMIT, WIDTH_LIMIT};

use base::Span;
use base::diag::{Diagnostic, has_errors};
use context::Lowerer;
use retained::Retained;
use sema::TypedProgram;
use sema::typed::Instance;

/// The architecture of bmv2's `simple_switch`.
const BMV2: &str = "v1model";

/// An architecture for which programs can be loaded.
struct Supported {
    /// Its name in P4Info.
    name: &'static str,
    /// The package type of `main`.
    package: &'static str,
    /// The include file that declares it.
    file: &'static str,
    /// Whether a package is this architecture's, and not one that the program declares under the same name.
    is_for: fn(&TypedProgram, &Instance) -> bool,
    /// Lowers a program of this architecture.
    lower: fn(&mut Lowerer<'_>, &Instance),
}

const SUPPORTED: &[Supported] = &[
    Supported {
        name: "v1model",
        package: "V1Switch",
        file: "v1model.p4",
        is_for: v1model::is_for,
        lower: v1model::lower,
    },
    Supported { name: "psa", package: "PSA_Switch", file: "psa.p4", is_for: psa::is_for, lower: psa::lower },
    Supported { name: "pna", package: "PNA_NIC", file: "pna.p4", is_for: pna::is_for, lower: pna::lower },
    Supported {
        name: "ebpf_model",
        package: "ebpfFilter",
        file: "ebpf_model.p4",
        is_for: ebpf::is_for,
        lower: ebpf::lower,
    },
    Supported { name: "ubpf_model", package: "ubpf", file: "ubpf_model.p4", is_for: ubpf::is_for, lower: ubpf::lower },
    Supported {
        name: "openflow_model",
        package: "OpenFlowBridge",
        file: "openflow_model.p4",
        is_for: openflow::is_for,
        lower: openflow::lower,
    },
    Supported { name: "xdp_model", package: "xdp", file: "xdp_model.p4", is_for: xdp::is_for, lower: xdp::lower },
];

/// The architectures for which programs can be loaded, for messages.
pub(crate) fn architectures() -> String {
    let all: Vec<String> = SUPPORTED.iter().map(|a| format!("{} (`{}` of {})", a.name, a.package, a.file)).collect();
    all.join(", ")
}

fn supported(program: &TypedProgram, main: &Instance) -> Option<&'static Supported> {
    SUPPORTED.iter().find(|architecture| (architecture.is_for)(program, main))
}

/// The result of lowering.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The program; `None` if the diagnostics contain an error.
    pub program: Option<ir::Program>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// Why the program can be checked and translated but not loaded, as errors to report when it is loaded. Empty if it
    /// can be loaded.
    pub unloadable: Vec<Diagnostic>,
}

/// Options of lowering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether v1model programs behave as in bmv2 where that differs from P4_16 and v1model's declarations; see
    /// `docs/bmv2.md`.
    pub bmv2: bool,
    /// The value of v1model's `egress_spec` that means drop, if it is not 511.
    pub drop_port: Option<u64>,
}

/// Lowers a checked program. `name` is the program's name in messages. Errors are in [`Lowered::diagnostics`].
pub fn lower(program: &TypedProgram, name: &str) -> Lowered {
    lower_with(program, name, Options::default())
}

/// Like [`lower`], with options.
pub fn lower_with(program: &TypedProgram, name: &str, options: Options) -> Lowered {
    if !options.bmv2 || architecture(program) != Some(BMV2) {
        return lower_once(program, name, None, options).0;
    }
    // The first time all headers are retained; the second time only those that must be.
    let (all, retained) = lower_once(program, name, Some(Retained::default()), options);
    let followed = all.program.as_ref().and_then(|ir| Some((ir, retained?.followed(ir)?)));
    let Some((ir, (stages, followed))) = followed else { return all };
    let retained = dirty::retained_headers(ir, &stages, &followed);
    lower_once(program, name, Some(Retained::new(retained)), options).0
}

fn lower_once(
    program: &TypedProgram,
    name: &str,
    retained: Option<Retained>,
    options: Options,
) -> (Lowered, Option<Retained>) {
    let mut cx = Lowerer::new(program, name);
    cx.retained = retained;
    cx.drop_port = options.drop_port;
    match program.main.map(|main| &program.instances[main.index()]) {
        None => cx.refuse(codes::NO_MAIN, Span::NONE, "the program has no `main` package instance"),
        Some(main) => match (supported(program, main), package_name(program, main)) {
            (Some(architecture), _) => {
                cx.architecture_file = architecture.file;
                (architecture.lower)(&mut cx, main);
            }
            (None, Some(other)) => standalone::lower(&mut cx, main, other),
            (None, None) => cx.refuse(codes::NO_MAIN, main.span, "`main` is not a package instance"),
        },
    }
    let retained = cx.retained.take();
    (cx.finish(), retained)
}

/// The name of the architecture that a program is written for, if it is a supported one.
pub fn architecture(program: &TypedProgram) -> Option<&'static str> {
    let main = program.instances.get(program.main?.index())?;
    supported(program, main).map(|architecture| architecture.name)
}

fn package_name<'p>(program: &'p TypedProgram, main: &Instance) -> Option<&'p str> {
    match main.of {
        sema::typed::InstanceOf::Package(id) => Some(&program.types.block_types[id.index()].name),
        _ => None,
    }
}

impl Lowered {
    fn new(program: ir::Program, diagnostics: Vec<Diagnostic>, unloadable: Vec<Diagnostic>) -> Lowered {
        let program = (!has_errors(&diagnostics)).then_some(program);
        Lowered { program, diagnostics, unloadable }
    }
}
