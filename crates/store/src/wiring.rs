//! Stored wiring: the devices of a switch besides the first, and the assignment of ports and links to them.
//!
//! It is one small record, rewritten completely with each change, since only operators make these.
//! The wiring of the command line is a second record, so that a restart can distinguish an edited
//! command line from changes made at run time.
//!
//! Tests: `tests/kept`, `tests/py/test_devices.py`.

use crate::error::OpenError;
use crate::writer::Store;
use messages::sluice::v1::KeptWiring;
use prost::Message;

/// Which of the two records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wiring {
    /// The current wiring.
    Now,
    /// The wiring that the command line of the last start specified.
    CommandLine,
}

impl Wiring {
    fn name(self) -> &'static str {
        match self {
            Wiring::Now => "wiring",
            Wiring::CommandLine => "wiring/command-line",
        }
    }
}

impl Store {
    /// Reads a record; `None` if it was never stored.
    ///
    /// # Errors
    /// The directory is closed after a failure, or the record is invalid.
    pub fn wiring(&self, which: Wiring) -> Result<Option<KeptWiring>, OpenError> {
        let layout = self.layout();
        let layout = layout.as_ref().ok_or_else(|| self.closed())?;
        let Some(bytes) = layout.record(which.name()) else { return Ok(None) };
        KeptWiring::decode(bytes).map(Some).map_err(|e| layout.broken("the record of devices", e))
    }

    /// Stores a record, which is on disk when this returns.
    ///
    /// # Errors
    /// The directory is closed after a failure, or cannot be written.
    pub fn set_wiring(&self, which: Wiring, wiring: &KeptWiring) -> Result<(), String> {
        let mut layout = self.layout();
        let layout = layout.as_mut().ok_or_else(|| self.closed().to_string())?;
        layout.set_record(which.name(), &wiring.encode_to_vec())
    }
}
