//! STF scripts (the packet tests of p4c): parser and runner.
//!
//! A script configures a switch (`add`, `setdefault`, `mc_*`, `mirroring_*`, `register_*`, ...), sends frames (`packet
//! PORT HEX`) and states the expected output (`expect PORT HEX`). The language is that of the reference compiler's
//! tests, with the extensions that [`script`] lists. Commands and packets take effect in the order written.
//!
//! [`script`] parses, [`setup`] applies the commands that configure a switch (`sluice run --entries` accepts the same
//! lines), and [`run`] runs a whole script on one engine.

mod c_names;
pub mod run;
pub mod script;
pub mod setup;

pub use run::{Outcome, PacketFate, dump_state, run_script, run_watched};
pub use script::{Command, Line, ScriptError, parse};
pub use setup::{Setup, TableChange, Target, table_change};
