//! A discrete-event simulation of workers that share state: what happens with more of them than this machine has processors.
//!
//! | module | holds |
//! | --- | --- |
//! | [`lines`] | cache lines: who has them, and the time to get one from another worker |
//! | [`traffic`] | flows by Zipf's law, and which worker gets a packet |
//! | [`programs`] | what a packet of a program does to state, and where that lies |
//! | [`simulation`] | workers, locks, batches; the events |
//!
//! **Model.** Workers process batches. A packet takes its program's *pass*, the time with one worker, and what sharing adds:
//!
//! - A line that another worker has had last takes a *transfer*. Transfers of one line follow one another (the directory of a
//!   coherence protocol serves one request after the other); those of different lines overlap: all that a packet locks, and a
//!   limited number of those that a batch prefetches. To own a line takes it from all others; lines that are only read are shared.
//! - A lock is in the line of its cell. A worker that finds it taken polls it: it reads the line, which the holder must get back
//!   to release the lock. All who poll read the line again then, and compete for it. So a contended lock takes several
//!   transfers, and the more, the more workers wait; no constant says so.
//! - Stores do not wait for their line, but the next lock does (x86: locked instructions drain the store buffer).
//!
//! **Left out.** Lines that no worker's cache holds: their cost is part of the measured pass. Processors that share execution
//! units or slow down with more of them in use; bandwidth of memory and of the links between processors; ports.
//!
//! It is a function of its parameters and a seed, and knows nothing else of this crate. `crate::projection` measures parameters,
//! holds predictions against measured rows, and prints tables. Tests: `contention/tests.rs`, against closed forms.

pub mod lines;
pub mod programs;
pub mod simulation;
#[cfg(test)]
mod tests;
pub mod traffic;
