//! Commands of scripts, as values.

use abi::state::HashParameters;
use std::fmt;

/// A command with its line number, from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Line number.
    pub number: usize,
    /// What to do.
    pub command: Command,
}

/// An action with named (or, ours, positional) arguments as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionText {
    /// Name or a suffix of it.
    pub name: String,
    /// `(parameter, value)`; an empty parameter name for positional arguments.
    pub args: Vec<(String, String)>,
    /// Of `one_of(...)`, the actions that one is selected of.
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

/// The name in place of an action's that begins a list of actions.
pub const ONE_OF: &str = "one_of";

/// What a line does with an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the language's words")]
pub enum EntryVerb {
    Add,
    Modify,
    Set,
}

/// What may stand behind an entry's action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryOptions {
    /// For the controller.
    pub metadata: Vec<u8>,
    /// Nanoseconds.
    pub idle_timeout_ns: u64,
    /// The direct meter's rates.
    pub meter: Option<MeterRates>,
    /// The direct counter's value: packets, bytes.
    pub counter: Option<(u64, u64)>,
    /// `one_of` selects at random, or by hash; else as the selector does.
    pub random: Option<bool>,
    /// The size of `one_of` is the sum of weights, or the number of members; else as the selector says.
    pub size_is_weights: Option<bool>,
}

/// A meter's rates in units per second, and bursts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the protocol's names")]
pub struct MeterRates {
    pub cir: u64,
    pub cburst: u64,
    pub pir: u64,
    pub pburst: u64,
    pub eburst: u64,
}

/// A member's part in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupPart {
    /// The member's id.
    pub member: u32,
    /// How many shares of the packets it gets; `None` where nothing is written, which is one.
    pub weight: Option<u32>,
    /// The port whose link must be up.
    pub watch: Option<u32>,
}

/// A copy of a packet: port and instance, and the backups of it in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaText {
    /// The first is the replica, those behind it are its backups: `(port, instance)`.
    pub alternatives: Vec<(u32, u32)>,
}

/// How a counter is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterCheck {
    /// Packets, else bytes.
    pub packets: bool,
    /// `==`, `!=`, `<`, `<=`, `>`, `>=`.
    pub comparison: String,
    /// With what.
    pub value: u64,
}

/// Which cell of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CounterCell {
    /// By its number.
    Index(u64),
    /// Of the table entry with this handle.
    Handle(String),
}

/// One command. Names and values are still text: [`crate::setup`] gives them meaning.
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
        /// Of which calculation; all without a name.
        calculation: Option<String>,
        parameters: HashParameters,
    },
}

/// What a frame must look like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// One per nibble: 0 to 15, or `None` for any.
    pub nibbles: Vec<Option<u8>>,
    /// Whether nothing may follow.
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

    /// The first hexadecimal digit at which a frame differs, its end if only the length does; `None` if it matches.
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

/// A line that cannot be read or carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}
