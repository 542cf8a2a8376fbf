//! A flow cache over frames as they are received.
//!
//! ```text
//! slow, once per path      frame ─▶ trace (symbolic run of the IR) ─▶ Pattern, Rewrite ─▶ insert
//! fast, every packet       frame ─▶ Cache::lookup (masked first bytes) ─▶ Rewrite::run ─▶ frame to be sent
//! ```
//!
//! A megaflow (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015, 4.2) says what a pipeline does with all packets
//! that agree in the bits that decided about one of them. Here its mask covers the frame as received, with what the parser looked at,
//! and its effects are changes of the frame. A hit therefore costs no parser, no record and no deparser.
//!
//! [`trace`] is sound by construction: what decides is consulted, and what it cannot express is consulted as well, which makes a
//! megaflow narrower and never wrong. What it cannot do at all is refused, and such packets take the pipeline.

#[cfg(test)]
extern crate self as flowcache;

pub mod cache;
mod memory;
pub mod path;
pub mod run;
pub mod tables;
pub mod trace;
