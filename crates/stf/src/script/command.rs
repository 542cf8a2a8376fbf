//! Commands of scripts, as values.

use abi::state::HashParameters;
use std::fmt;

/// A command with its line number, from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The line's number.
    pub number: usize,
    /// The command.
    pub command: Command,
}

/// An action with named (or, as an extension, positional) arguments, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionText {
    /// The action's name or a suffix of it.
    pub name: String,
    /// `(parameter, value)`; an empty parameter name for positional arguments.
    pub args: Vec<(String, String)>,
    /// For `one_of(...)`: the actions from which one is selected.
    pub parts: Vec<ActionPart>,
}

/// An action of `one_of(...)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionPart {
    /// The action.
    pub action: ActionText,
    /// Its weight; `None` for the group action.
    pub weight: Option<u32>,
    /// The port whose link must be up.
    pub watch: Option<u32>,
}

/// The word in place of an action's name that starts a one-shot action set.
pub const ONE_OF: &str = "one_of";

/// What a line does with a table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the language's words")]
pub enum EntryVerb {
    Add,
    Modify,
    Set,
}

/// The options after an entry's action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryOptions {
    /// The controller's metadata.
    pub metadata: Vec<u8>,
    /// The idle timeout in nanoseconds.
    pub idle_timeout_ns: u64,
    /// The direct meter's rates.
    pub meter: Option<MeterRates>,
    /// The direct counter's initial packets and bytes.
    pub counter: Option<(u64, u64)>,
    /// Whether `one_of` selects at random (else by hash); `None` for the selector's default.
    pub random: Option<bool>,
    /// Whether the size of `one_of` is the sum of weights (else the number of members); `None` for the selector's
    /// default.
    pub size_is_weights: Option<bool>,
}

/// A meter's rates in units per second, and its burst sizes in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MeterRates {
    pub cir: u64,
    pub cburst: u64,
    pub pir: u64,
    pub pburst: u64,
    pub eburst: u64,
}

/// A member's entry in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupPart {
    /// The member's id.
    pub member: u32,
    /// Its weight; `None` if none is written.
    pub weight: Option<u32>,
    /// The port whose link must be up.
    pub watch: Option<u32>,
}

/// A replica with its backups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaText {
    /// `(port, instance)` of the replica and then of its backups, in order of preference.
    pub alternatives: Vec<(u32, u32)>,
}

/// A comparison of a counter with a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterCheck {
    /// Whether packets are compared, else bytes.
    pub packets: bool,
    /// `==`, `!=`, `<`, `<=`, `>`, `>=`.
    pub comparison: String,
    /// The number.
    pub value: u64,
}

/// A cell of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CounterCell {
    /// The cell with an index.
    Index(u64),
    /// The direct counter of the entry with a handle.
    Handle(String),
}

/// A command. Names and values are still text; [`crate::setup`] resolves them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named by the language in the module text")]
pub enum Command {
    Packet {
        port: u32,
        frame: Vec<u8>,
    },
    Expect {
        port: u32,
        frame: Option<Pattern>,
    },
    NoPacket,
    Wait {
        microseconds: u64,
    },
    Entry {
        verb: EntryVerb,
        table: String,
        priority: Option<i32>,
        key: Vec<(String, String)>,
        action: ActionText,
        options: EntryOptions,
        handle: Option<String>,
    },
    Delete {
        table: String,
        priority: Option<i32>,
        key: Vec<(String, String)>,
    },
    Clear {
        table: String,
    },
    SetDefault {
        table: String,
        action: ActionText,
        options: EntryOptions,
    },
    Member {
        profile: String,
        id: u32,
        action: Option<ActionText>,
    },
    Group {
        profile: String,
        id: u32,
        max_size: u32,
        members: Vec<GroupPart>,
    },
    Multicast {
        group: u32,
        replicas: Vec<ReplicaText>,
        metadata: Vec<u8>,
    },
    Clone {
        session: u32,
        replicas: Vec<ReplicaText>,
        class_of_service: u32,
        packet_length_bytes: u32,
    },
    ValueSet {
        name: String,
        values: Vec<String>,
    },
    Digest {
        name: String,
        max_timeout_ns: u64,
        max_list_size: u32,
        ack_timeout_ns: u64,
    },
    GroupCreate {
        group: u32,
    },
    NodeCreate {
        rid: u32,
        ports: Vec<u32>,
    },
    NodeUpdate {
        node: u32,
        ports: Vec<u32>,
    },
    NodeAssociate {
        group: u32,
        node: u32,
    },
    MirroringAdd {
        session: u32,
        port: u32,
    },
    MirroringAddGroup {
        session: u32,
        group: u32,
    },
    MirroringDelete {
        session: u32,
    },
    MirroringGet {
        session: u32,
    },
    RegisterWrite {
        name: String,
        index: Option<u64>,
        values: Vec<String>,
    },
    RegisterRead {
        name: String,
        index: u64,
    },
    RegisterReset {
        name: String,
    },
    CounterWrite {
        name: String,
        index: Option<u64>,
        packets: u64,
        bytes: u64,
    },
    CounterRead {
        name: String,
        index: u64,
    },
    MeterSetRates {
        name: String,
        index: Option<u64>,
        rates: Vec<(String, u64)>,
    },
    MeterWrite {
        name: String,
        index: Option<u64>,
        rates: MeterRates,
    },
    MeterGetRates {
        name: String,
        index: u64,
    },
    CheckCounter {
        name: String,
        cell: CounterCell,
        check: Option<CounterCheck>,
    },
    ExpectRegister {
        name: String,
        index: u64,
        value: String,
    },
    ExpectDigest {
        name: String,
        values: Vec<String>,
    },
    ExpectLog {
        text: String,
    },
    CheckDrops {
        reason: String,
        comparison: String,
        value: u64,
    },
    SetHash {
        /// The calculation; `None` for all.
        calculation: Option<String>,
        parameters: HashParameters,
    },
}

/// The pattern of an expected frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Its nibbles: 0 to 15, or `None` for any.
    pub nibbles: Vec<Option<u8>>,
    /// Whether the frame must end there.
    pub exact_length: bool,
}

impl Pattern {
    /// Whether a frame matches.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let got = frame.iter().flat_map(|b| [b >> 4, b & 15]);
        let long_enough = frame.len() * 2 >= self.nibbles.len();
        let same = self.nibbles.iter().zip(got).all(|(want, got)| want.is_none_or(|w| w == got));
        long_enough && same && (!self.exact_length || frame.len() * 2 == self.nibbles.len())
    }

    /// The index of the first nibble in which a frame differs, or the shorter end if only the lengths differ; `None` if
    /// the frame matches.
    pub fn first_difference(&self, frame: &[u8]) -> Option<usize> {
        let got: Vec<u8> = frame.iter().flat_map(|b| [b >> 4, b & 15]).collect();
        let differs = |(want, got): (&Option<u8>, &u8)| want.is_some_and(|w| w != *got);
        match self.nibbles.iter().zip(&got).position(differs) {
            _ if self.matches(frame) => None,
            Some(at) => Some(at),
            None => Some(self.nibbles.len().min(got.len())),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for nibble in &self.nibbles {
            match nibble {
                Some(n) => write!(f, "{n:x}")?,
                None => f.write_str("*")?,
            }
        }
        f.write_str(if self.exact_length { "$" } else { "" })
    }
}

/// A line that cannot be parsed or executed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}
