//! Holds machine code against the interpreter with generated entries and packets, for any program.
//!
//! A program comes with a script whose packets and set-up lines are the seed. From there:
//!
//! 1. The seed packets run through the interpreter with a trace, which tells what values each table's keys take
//!    ([`seed`]).
//! 2. Each round draws entries around those values and packets that are mutations of the seed's ([`generate`]).
//! 3. The round runs on the raw IR, the optimised IR and machine code, with the same batches; frames, ports, drop
//!    counters, digests, counters and registers must be equal ([`round`]).
//!
//! Everything follows from a number, so a failure is repeated by its seed. Programs that draw random numbers cannot be
//! compared this way and are refused.
//!
//! [`source`] does it with generated programs too. [`fuzz`] holds what the fuzz targets run, [`mangle`] breaks any
//! program and has it compiled. [`p4rt`] asks the control plane what a controller might, [`controller`]
//! a bridge what an OpenFlow controller might, [`bpf_objects`] has BPF programs verified and run.
//!
//! Tests: `tests/every_program.rs` (a million packets over all programs of the tree), `tests/generated.rs` (generated
//! programs).

pub mod bpf_objects;
pub mod controller;
pub mod fuzz;
pub mod generate;
pub mod mangle;
pub mod messages;
pub mod p4rt;
pub mod round;
pub mod seed;
pub mod source;
pub mod state_files;

pub use round::{Difference, Totals, run_rounds};
pub use seed::Subject;
