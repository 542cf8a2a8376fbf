//! Differential testing: machine code against the interpreter, with generated entries and packets, for any program.
//!
//! The seed is a program with a script of packets and set-up lines. From there:
//!
//! 1. The seed packets run through the interpreter with a trace, which shows the values of each table's keys
//!    ([`seed`]).
//! 2. Each round generates entries around those values, and packets by mutation of the seed packets ([`generate`]).
//! 3. The round runs on the raw IR, the optimised IR and machine code, with the same batches; frames, ports, drop
//!    counters, digests, counters and registers must be equal ([`round`]).
//!
//! Everything is determined by a seed, which reproduces a failure. Programs that use random numbers cannot be compared
//! in this way and are refused.
//!
//! [`source`] does the same with generated programs. [`fuzz`] has the bodies of the fuzz targets; [`mangle`] compiles
//! broken variants of programs; [`p4rt`] tests the control plane with P4Runtime requests, [`controller`] a bridge with
//! OpenFlow messages, [`bpf_objects`] the BPF verifier and engines. [`parallel`] runs cases on all processors.
//!
//! Tests: `tests/every_program.rs` (a million packets over all programs of the repository), `tests/generated.rs`
//! (generated programs).

pub mod bpf_objects;
pub mod controller;
pub mod fuzz;
pub mod generate;
pub mod mangle;
pub mod messages;
pub mod p4rt;
pub mod parallel;
pub mod round;
pub mod seed;
pub mod source;
pub mod state_files;

pub use round::{Difference, Totals, run_rounds};
pub use seed::Subject;
