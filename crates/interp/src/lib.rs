//! The oracle: an IR interpreter that runs one packet at a time, written for clarity, with a trace of every step.
//!
//! [`Interp::run`] takes a packet through the stages of an entry point to its fate. Its [`State`] has tables that are
//! scanned linearly, and externs in maps. Its results are correct by definition; compiled code and the match engines
//! are compared with it. It also runs programs that cannot be compiled, and `sluice trace`, with [`filter`] to select
//! packets.

pub mod filter;
pub mod hash;
pub mod host;
pub mod interpreter;
pub mod meter;
pub mod state;
pub mod trace;

pub use host::{Host, SeededHost};
pub use interpreter::{Fate, Interp, Outcome};
pub use meter::{Colour, MeterCell};
pub use state::State;
pub use trace::{Event, Trace, TraceStep};
