//! The oracle: executes IR on one packet, written for clarity, with a trace of every step.
//!
//! [`Interp::run`] takes a packet through one entry's stages to its fate, on [`State`]: tables that are scanned, and
//! externs in maps. What it says is right by definition; compiled code and the fast tables are compared with it. It also
//! drives programs that cannot be compiled, and `sluice trace`, whose conditions on packets are [`filter`].

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
