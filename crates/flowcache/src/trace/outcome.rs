//! Results of a trace, and the reason if there is none.

use super::tables::{Counted, Looked};
use crate::path::{Pattern, Rewrite};

/// The reason why the processing of a frame cannot be cached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Untraceable(pub String);

/// The decision about a packet after the `Ingress` entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<T> {
    /// It is dropped.
    Drop(T),
    /// It is sent to a port.
    Send {
        /// The port, for `Intrinsic::EgressPort`.
        egress_port: u32,
        /// Maximum length of the frame in bytes.
        max_len: u32,
        /// Whether it passes the `Egress` entry and its deparser; otherwise the frame is sent as received.
        is_modified: bool,
        /// The caller's data, returned in [`Traced`].
        value: T,
    },
}

/// How a path ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The frame is sent to a port.
    Send(u32),
    /// It is dropped, with an index into `Program::drops` if the program names a reason.
    Drop(Option<u32>),
}

/// A traced path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced<T> {
    /// The frames that take it.
    pub pattern: Pattern,
    /// How they are rewritten; empty if they are dropped.
    pub rewrite: Rewrite,
    /// Where they go.
    pub fate: Fate,
    /// Counter updates, in order.
    pub counted: Vec<Counted>,
    /// Table lookups, in order: their entries are in use.
    pub lookups: Vec<Looked>,
    /// The value of the decision; `None` if the packet did not get there.
    pub value: Option<T>,
}

impl<T> Traced<T> {
    /// Whether the frames are dropped.
    pub fn is_dropped(&self) -> bool {
        matches!(self.fate, Fate::Drop(_))
    }
}
