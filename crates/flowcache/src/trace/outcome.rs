//! What a trace comes to, or why it comes to nothing.

use super::tables::{Counted, Looked};
use crate::path::{Pattern, Rewrite};

/// Why a frame's way is no path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Untraceable(pub String);

/// Where a packet goes behind the `Ingress` entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<T> {
    /// Nowhere.
    Drop(T),
    /// To a port.
    Send {
        /// Which: `Intrinsic::EgressPort`.
        egress_port: u32,
        /// Bytes of the frame at most.
        max_len: u32,
        /// Whether it goes through the `Egress` entry and its deparser; else the frame goes as it was received.
        is_modified: bool,
        /// What the caller wants to know of the path.
        value: T,
    },
}

/// How a path ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The frame is sent to a port.
    Send(u32),
    /// It is dropped; for which of `Program::drops`, if the program says so.
    Drop(Option<u32>),
}

/// A path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced<T> {
    /// The frames that go it.
    pub pattern: Pattern,
    /// What they become; nothing if they are dropped.
    pub rewrite: Rewrite,
    /// Where they go.
    pub fate: Fate,
    /// Counters, in order.
    pub counted: Vec<Counted>,
    /// Lookups, in order: whose entries are in use.
    pub lookups: Vec<Looked>,
    /// What was decided; `None` if the packet did not come so far.
    pub value: Option<T>,
}

impl<T> Traced<T> {
    /// Whether frames of the path go nowhere.
    pub fn is_dropped(&self) -> bool {
        matches!(self.fate, Fate::Drop(_))
    }
}
