//! STF scripts: reader and runner.
//!
//! A script sets a switch up (`add`, `setdefault`, `mc_*`, `mirroring_*`, `register_*`, ...), sends frames (`packet PORT
//! HEX`) and says what must come out (`expect PORT HEX`). The language is the one of the reference compiler's tests, with
//! the extensions that [`script`] lists. Commands and packets take effect in the order written.
//!
//! [`script`] reads, [`setup`] applies the commands that set a switch up (the same lines serve `sluice run --entries`),
//! [`run`] runs a whole script on one engine.

mod c_names;
pub mod run;
pub mod script;
pub mod setup;

pub use run::{Outcome, PacketFate, dump_state, run_script, run_watched};
pub use script::{Command, Line, ScriptError, parse};
pub use setup::{Setup, TableChange, Target, table_change};
