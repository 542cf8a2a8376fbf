//! IR to IR, one pass per file.
//!
//! [`optimise`] runs the passes that `pipeline` lists. Every pass keeps the program's behaviour: fate, frame, record,
//! counters, messages; only time and traces differ. Tables and externs are never renumbered, so state serves the
//! program before and after; slots are (by `compact_slots`), so records do not. [`assume`] makes of a program one for
//! tables as they are at a moment.

mod assume;
mod branch_facts;
mod coalesce;
mod compact_slots;
mod const_prop;
mod dead_code;
mod graph;
mod ingress_only;
mod length_checks;
mod liveness;
mod multicast_frames;
mod narrow_lookaheads;
mod passes;
mod peeks;
mod reingress;
mod simplify;
mod simplify_cfg;
mod small_charges;
mod ssa;
mod strip_marks;
mod unchanged_frames;
mod unroll_stacks;
mod updates;

pub use assume::{Assumed, assume};
pub use ingress_only::ingress_only;
pub use passes::{
    Options, PassReport, Report, optimise, optimise_watched, pass_names, passes, run_const_prop, run_pass, size,
};
pub use peeks::{NAME as PEEKS, peeks};
pub use updates::{NAME as UPDATES, updates};

/// The program for several workers: with updates, then with peeks; `None` if it has neither.
pub fn for_several_workers(program: &ir::Program, options: &Options) -> Option<ir::Program> {
    let updated = updates(program, options);
    let peeking = peeks(updated.as_ref().unwrap_or(program), options);
    peeking.or(updated)
}
