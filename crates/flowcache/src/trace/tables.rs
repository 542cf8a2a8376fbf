//! What a trace asks of tables, and what it says about counters.

use base::Bits;
use base::ids::{ExternId, TableId};

/// What a lookup found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// Whether an entry matched.
    pub hit: bool,
    /// The position of the action in the table's list; the default one's on a miss.
    pub action: u32,
    /// Its arguments, of the parameters' widths.
    pub args: Vec<Bits>,
    /// The handle of the entry, for direct counters; what it means is the tables' own.
    pub entry: u64,
    /// For each key the bits that decided, of the key's width. Keys that are missing here decided wholly.
    pub consulted: Vec<Bits>,
    /// Whether the selector decided, too.
    pub by_selector: bool,
}

/// Tables that can say why they found what they found.
pub trait Tables {
    /// A pass of the trace begins: what was looked up before is looked up again.
    fn begin(&mut self) {}

    /// Looks a key up (`ir::Op::Apply`). `None` if that cannot be said for other packets.
    ///
    /// All keys that agree in the bits of `consulted` find the same.
    fn lookup(&mut self, table: TableId, keys: &[Bits], selector: &[Bits]) -> Option<Lookup>;
}

/// A counter that a packet of the path counts at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Which.
    pub counter: ExternId,
    /// Where.
    pub at: Place,
    /// The bytes that it counts.
    pub bytes: Bytes,
}

/// A cell of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Its index, which may be out of range.
    Index(u64),
    /// That of an entry ([`Lookup::entry`]).
    Entry(u64),
}

/// How many bytes a packet counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// Those that were received and so many more, at most `at_most`.
    Received {
        /// How many more.
        plus: i32,
        /// At most so many.
        at_most: u32,
    },
    /// So many.
    Exactly(u64),
}

impl Bytes {
    /// Those of a frame of which `received` bytes came.
    pub fn of(self, received: u32) -> u64 {
        match self {
            Bytes::Received { plus, at_most } => u64::from(received.saturating_add_signed(plus).min(at_most)),
            Bytes::Exactly(bytes) => bytes,
        }
    }
}
