//! Which devices a switch has besides the first, and how ports and links are dealt to them.
//!
//! One small record, written as a whole with each change: an operator makes those, not a controller. What the switch was started
//! with is a second record, so that a restart tells an edited command line from what was changed while it ran.
//!
//! Tests: `tests/kept`, `tests/py/test_devices.py`.

use crate::error::OpenError;
use crate::writer::Store;
use messages::sluice::v1::KeptWiring;
use prost::Message;

/// Which record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wiring {
    /// As it is.
    Now,
    /// As the command line of the last start said.
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
    /// A record, if it was ever kept.
    pub fn wiring(&self, which: Wiring) -> Result<Option<KeptWiring>, OpenError> {
        let layout = self.layout();
        let layout = layout.as_ref().ok_or_else(|| self.closed())?;
        let Some(bytes) = layout.record(which.name()) else { return Ok(None) };
        KeptWiring::decode(bytes).map(Some).map_err(|e| layout.broken("the record of devices", e))
    }

    /// Keeps a record; it is on disk when this returns.
    pub fn set_wiring(&self, which: Wiring, wiring: &KeptWiring) -> Result<(), String> {
        let mut layout = self.layout();
        let layout = layout.as_mut().ok_or_else(|| self.closed().to_string())?;
        layout.set_record(which.name(), &wiring.encode_to_vec())
    }
}
