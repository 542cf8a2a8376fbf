//! A flow cache over frames as received.
//!
//! ```text
//! slow, once per path      frame ─▶ trace (symbolic execution of the IR) ─▶ Pattern, Rewrite ─▶ insert
//! fast, every packet       frame ─▶ Cache::lookup (masked first bytes) ─▶ Prepared::run ─▶ frame to be sent
//! ```
//!
//! A megaflow (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015, 4.2) caches what a
//! pipeline does with all packets that agree in the bits that decided about one of them. Here its mask covers the
//! frame as received, including what the parser read, and its effects are changes of the frame. A hit therefore
//! runs no parser, needs no record and runs no deparser.
//!
//! [`trace`] is sound by construction: all bits on which the result depends are consulted. What a rewrite cannot
//! express is consulted as well, which makes a megaflow narrower but never wrong. What cannot be cached at all is
//! refused; such packets take the pipeline.

#[cfg(test)]
extern crate self as flowcache;

pub mod cache;
mod memory;
pub mod path;
pub mod run;
pub mod tables;
pub mod trace;
