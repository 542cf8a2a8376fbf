//! Machine-level IR: the form of a compiled program before register allocation.
//!
//! A [`Module`] has [`Function`]s in static single assignment form. Blocks have parameters, and the edges to a block
//! pass arguments for them, instead of φ functions. Values are integers of 1 to 128 bits. Everything else is memory.
//! Every access states its size, its byte order, and the [`Region`]s in which it may lie. Regions are disjoint, so
//! alias analysis is an intersection of two sets ([`Regions::meets`]).
//!
//! | region | contents |
//! | --- | --- |
//! | `frame`, `record`, `descriptor` | a packet's bytes; its slots in memory; its descriptor in the batch |
//! | `table`, `entry` | match engines; published entries, which are immutable |
//! | `state`, `counter`, `value` | registers and other state; counters; values of maps |
//! | `context`, `stack` | the worker's context, which is immutable; stack slots |
//!
//! # From P4 to machine code
//!
//! ```text
//! action send(bit<9> port) { std.egress_spec = port; hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
//! table routes { key = { hdr.ipv4.dst: lpm; } actions = { send; drop; } default_action = drop(); }
//! apply { if (hdr.ipv4.ttl > 1) routes.apply(); }
//! ```
//!
//! Crate `lowering` translates it block by block, without optimising. `v0` is the context; `v40`, `v41` and `v42` are
//! the time to live, the address and the header's validity. A lookup has two halves, so that a batch can do other work
//! while memory responds: `issue` hashes the key and prefetches, `take` returns the entry, or 0. An entry's parameter
//! is a load from the region `entry`.
//!
//! ```text
//! b10:
//!   v49 = const.i64 1
//!   v50 = ult v49, v40
//!   v51 = zext.i64 v50
//!   v52 = const.i64 0
//!   v53 = ne v51, v52
//!   branch v53, b12, b11
//! b11:
//!   jump b15(v43, v44, v42, v45, v40, v46, v41, v47, v48)
//! b12:
//!   v54 = const.i64 0x1000
//!   v55 = load.i64 le8 table v54+8
//!   v56 = const.i64 0
//!   v57 = pack.i64 v41:32 at 0
//!   v58 = issue @In.routes v57
//!   v59 = take v58
//!   v60 = ne v59, v56
//!   v61 = zext.i64 v60
//!   v62 = select.i64 v60, v59, v55
//!   v63 = load.i64 le8 context v0+8
//!   v64 = const.i64 1
//!   v65 = sub.i64 v64, v61
//!   count v63, v61
//!   count v63+8, v65
//!   v66 = load.i64 le1 entry v62
//!   switch v66, 0: b14, else b13
//! b13:
//!   v67 = const.i64 511
//!   jump b15(v67, v44, v42, v45, v40, v46, v41, v47, v48)
//! b14:
//!   v68 = load.i64 le2 entry v62+1
//!   v69 = const.i64 0
//!   v70 = const.i64 1
//!   v71 = sub.i64 v40, v70
//!   v72 = const.i64 255
//!   v73 = and.i64 v71, v72
//!   v74 = ne v42, v69
//!   v75 = select.i64 v74, v73, v40
//!   jump b15(v68, v44, v42, v45, v75, v46, v41, v47, v48)
//! ```
//!
//! After the passes it is this. Block parameters that always have one value are gone, constants are shared, and the
//! branch uses the comparison directly:
//!
//! ```text
//!   v28 = const.i64 1
//!   v29 = ugt v22, v28
//!   branch v29, b6, b9(v12, v22)
//! b6:
//!   v30 = const.i64 0x1000
//!   v31 = load.i64 le8 table v30+8
//!   v32 = pack.i64 v23:32 at 0
//!   v33 = issue @In.routes v32
//!   v34 = take v33
//!   v35 = ne v34, v12
//!   v36 = zext.i64 v35
//!   v37 = select.i64 v35, v34, v31
//!   v38 = load.i64 le8 context v0+8
//!   v39 = sub.i64 v28, v36
//!   count v38, v36
//!   count v38+8, v39
//!   v40 = load.i64 le1 entry v37
//!   switch v40, 0: b8, else b7
//! b7:
//!   v41 = const.i64 511
//!   jump b9(v41, v22)
//! b8:
//!   v42 = load.i64 le2 entry v37+1
//!   v43 = sub.i64 v22, v28
//!   v44 = const.i64 255
//!   v45 = and.i64 v43, v44
//!   v46 = ne v24, v12
//!   v47 = select.i64 v46, v45, v22
//!   jump b9(v42, v47)
//! ```
//!
//! Crate `codegen` translates it to machine code, instruction by instruction. That of the action is (x86-64):
//!
//! ```text
//!   movzwq 1(%r12), %rdx
//!   movq %rbx, %rax
//!   subq $0x1, %rax
//!   andq $0xff, %rax
//!   movq %r13, %r15
//!   testq %r15, %r15
//!   cmovneq %rax, %rbx
//! ```
//!
//! A pass that knows how the table is looked up replaces `issue` and `take` by its hash, prefetch and compares; without
//! one, `take` is a call. `crates/lowering/tests/page.rs` compares this page with what the compiler generates. This
//! form of any program is printed by `sluice check X.p4 --emit mir`.
//!
//! # Files
//!
//! - `types`, `op`, `function`: the IR; [`Builder`] appends instructions. `compute`: the results of operations.
//! - `print`, `parse`: the text form; its grammar is in `parse`. `verify`: the rules of well-formed modules.
//! - `interpreter` runs a module on `memory`, which checks that accesses lie in the regions that they name.
//! - `cfg`, `dominators`, `loops`, `liveness`: analyses.
//! - [`passes`]: optimisations, one per file; [`generate`]: random modules for property tests.

mod cfg;
mod compute;
mod dominators;
mod function;
pub mod generate;
mod interpreter;
mod lexer;
mod liveness;
mod loops;
mod memory;
mod op;
mod parse;
pub mod passes;
mod print;
mod types;
mod verify;

pub use cfg::Cfg;
pub use dominators::Dominators;
pub use function::*;
pub use interpreter::{DEPTH_MAX, Host, NoHost, run};
pub use lexer::ParseError;
pub use liveness::{Liveness, ValueSet};
pub use loops::{Loop, Loops};
pub use memory::{Fault, Memory, Storage};
pub use op::*;
pub use parse::parse;
pub use print::{print, print_function, print_instruction};
pub use types::*;
pub use verify::{KEY_WORDS_MAX, RUNTIME_PARAMS_MAX, STACK_BYTES_MAX, Violation, verify, verify_function};
