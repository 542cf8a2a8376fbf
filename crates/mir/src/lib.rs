//! Machine-level IR: what a compiled program is, before it has registers.
//!
//! A [`Module`] has [`Function`]s in static single assignment form. A block has parameters, and the edges to it pass
//! values for them; that takes the place of φ. Values are integers of 1 to 128 bits. Everything else is memory, and every
//! access says three things: how many bytes, in which order, and in which [`Region`]s they may be. Regions are disjoint,
//! so whether two accesses can meet is a comparison of two sets ([`Regions::meets`]).
//!
//! | region | what it is |
//! | --- | --- |
//! | `frame`, `record`, `descriptor` | a packet's bytes, its slots in memory, what the batch says of it |
//! | `table`, `entry` | match engines; published entries, which never change |
//! | `state`, `counter`, `value` | registers and the like; counters; values of maps |
//! | `context`, `stack` | the worker's context, which never changes; stack slots |
//!
//! # From P4 to machine code
//!
//! ```text
//! action send(bit<16> port) { meta.egress = port; hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
//! apply { if (hdr.ipv4.ttl > 1) routes.apply(); }                  routes: key hdr.ipv4.dst, action send
//! ```
//!
//! The frame begins at `v0`, the descriptor at `v1`. A lookup has two halves, so that a batch can do something else while
//! memory answers: `issue` hashes the key and asks for the memory, `take` gives the entry. Where packets wait for one
//! another is a `phase`. An entry's parameter is a load from the region `entry`.
//!
//! ```text
//! b0(v0: i64, v1: i64):                                   b0(v0: i64, v1: i64):
//!   v2 = load.i8 be1 frame v0+22                            v2 = load.i8 be1 frame v0+22
//!   v3 = const.i8 1                                         v3 = const.i8 1
//!   v4 = ugt v2, v3                                         v4 = ugt v2, v3
//!   branch v4, b1, b4 weight 0                              branch v4, b1, b3 weight 0
//! b1:                                                     b1:
//!   v5 = load.i32 be4 frame v0+30                           v5 = load.i32 be4 frame v0+30
//!   v6 = pack.i64 v5:32 at 0                                v6 = zext.i64 v5
//!   v7 = issue @routes v6                                   v7 = issue @routes v6
//!   phase 1                                                 phase 1
//!   v8 = take v7                          optimise          v8 = take v7
//!   v9 = const.i64 0                         =>             v9 = const.i64 0
//!   v10 = ne v8, v9                                         v10 = ne v8, v9
//!   branch v10, b2, b3 weight 0                             branch v10, b2, b3 weight 0
//! b2:                                                     b2:
//!   v11 = load.i32 le2 entry v8+1                           v11 = load.i32 le2 entry v8+1
//!   store le4 descriptor v1+20, v11                         store le4 descriptor v1+20, v11
//!   v12 = load.i8 be1 frame v0+22                           v12 = sub.i8 v2, v3
//!   v13 = sub.i8 v12, v3                                    store be1 frame v0+22, v12
//!   store be1 frame v0+22, v13                              jump b3
//!   jump b3                                               b3:
//! b3: …                                                     return
//! ```
//!
//! The time to live is loaded once: what lies between the two loads writes to the descriptor, not to the frame. Crate
//! `codegen` makes machine code of the right side, instruction by instruction (x86-64, without what saves registers):
//!
//! ```text
//! movzx rbx, byte [rdi+0x16]        v2                call  rax                    v8: the table's engine
//! cmp   bl, 1                       v4                test  rax, rax               v10
//! jbe   b3                                            je    b3
//! mov   eax, [rdi+0x1e]             v5                movzx eax, word [rax+1]      v11
//! bswap eax                                           mov   [r15+0x14], eax
//! mov   [rsp], rax                  v7: the key       sub   bl, 1                  v12
//! movabs rdi, handle                                  mov   [r13+0x16], bl
//! movabs rax, lookup                                  b3: ret
//! ```
//!
//! A pass that knows how the table is looked up would have put its hash, its prefetch and its compares in the place of
//! `issue` and `take`; without one, `take` is a call.
//!
//! # Files
//!
//! - `types`, `op`, `function`: the IR; [`Builder`] appends instructions. `compute`: what operations give.
//! - `print`, `parse`: the text form, whose grammar `parse` has. `verify`: what well-formed means.
//! - `interpreter` runs a module on `memory`, which checks that accesses are in the regions that they name.
//! - `cfg`, `dominators`, `loops`, `liveness`: analyses.
//! - [`passes`]: optimisations, one a file; [`generate`]: random modules for property tests.

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
pub use verify::{Complaint, KEY_WORDS_MAX, RUNTIME_PARAMS_MAX, STACK_BYTES_MAX, verify, verify_function};
