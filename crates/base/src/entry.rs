//! Table entries as plain values: written by controllers, listed in `entries` properties, and stored by every match
//! engine.
//!
//! Match semantics (P4_16, "Tables"; P4Runtime, "Match Format"): among the matching entries the one with the *highest*
//! `priority` wins. In tables without ternary, range or optional keys all priorities are 0 and the longest prefix wins.
//! At equal priority, the entry that was inserted first wins.

use crate::Bits;

/// How a key field is matched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum MatchKind {
    /// The key equals the value.
    Exact,
    /// Longest prefix.
    Lpm,
    /// Value and mask.
    Ternary,
    /// Inclusive range of unsigned values.
    Range,
    /// An exact value or don't care.
    Optional,
}

impl MatchKind {
    /// The P4 `match_kind` name.
    pub fn name(self) -> &'static str {
        match self {
            MatchKind::Exact => "exact",
            MatchKind::Lpm => "lpm",
            MatchKind::Ternary => "ternary",
            MatchKind::Range => "range",
            MatchKind::Optional => "optional",
        }
    }

    /// Whether entries of a table with such a key carry a priority.
    pub fn needs_priority(self) -> bool {
        matches!(self, MatchKind::Ternary | MatchKind::Range | MatchKind::Optional)
    }
}

/// The match of an entry on one key field. Values have the key's width; bits outside a mask or prefix are zero.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeyMatch {
    /// Equal to the value.
    Exact(Bits),
    /// The first `prefix_len` bits are equal.
    Lpm {
        /// The prefix, zero-extended on the right.
        value: Bits,
        /// Prefix length in bits, from 0 (matches all) to the width.
        prefix_len: u32,
    },
    /// Equal under the mask.
    Ternary {
        /// The value.
        value: Bits,
        /// The mask: bits that are one are compared.
        mask: Bits,
    },
    /// `low <= key <= high`, unsigned.
    Range {
        /// Smallest accepted value.
        low: Bits,
        /// Largest accepted value.
        high: Bits,
    },
    /// Equal, or anything when `None`.
    Optional(Option<Bits>),
}

/// An action with its control-plane arguments.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ActionCall {
    /// Position in the table's (or profile's) action list.
    pub action: u32,
    /// One value per control-plane parameter, of the parameter's width.
    pub args: Vec<Bits>,
}

/// The action of an entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EntryAction {
    /// Runs an action.
    Call(ActionCall),
    /// Runs the action of a member of the table's action profile.
    Member(u32),
    /// Runs the action of the member of a group that the selector chooses.
    Group(u32),
}

/// An entry of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableEntry {
    /// One match per key field, in key order.
    pub key: Vec<KeyMatch>,
    /// Higher wins; 0 in tables whose match kinds need no priority.
    pub priority: i32,
    /// Its action.
    pub action: EntryAction,
    /// Time without a hit, in nanoseconds, after which the controller is notified; 0 for never, and in tables without
    /// idle timeouts.
    pub idle_timeout_ns: u64,
}

/// A member of an action selector group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMember {
    /// Member id.
    pub member: u32,
    /// Weight: its share of the flows; at least 1.
    pub weight: u32,
    /// If set, the member takes flows only while this port is up.
    pub watch_port: Option<u32>,
}

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CounterValue {
    /// Packets.
    pub packets: u64,
    /// Bytes of whole frames as received by the stage.
    pub bytes: u64,
}

/// A meter's configuration, in units (bytes or packets) per second: two rates and three colours (RFC 2698) or, with an
/// excess burst, one rate and three colours (RFC 2697); both colour-blind. One rate and two colours is either of them
/// with equal rates, equal bursts and no excess burst.
///
/// The arithmetic is exact, so that all engines agree. Buckets count millionths of a unit in 128-bit integers; time is
/// in whole microseconds. A cell has `tc`, `tp` and `last_us`; configuring it fills the buckets (`tc = cburst * 10^6`,
/// `tp = pburst * 10^6`) and sets `last_us = 0`. A packet of `n` units (its bytes, or 1) at time `now_us`:
///
/// 1. `dt = now_us - last_us`, or 0 if that is negative; `last_us = max(last_us, now_us)`.
/// 2. `tc = min(cburst * 10^6, tc + dt * cir)`; `tp = min(pburst * 10^6, tp + dt * pir)`.
/// 3. If `tp < n * 10^6`: red. Else if `tc < n * 10^6`: yellow, `tp -= n * 10^6`. Else green, both `-= n * 10^6`.
///
/// With `eburst > 0`, `tp` is the excess bucket: it begins with `eburst * 10^6`, and
///
/// 2. `t = tc + dt * cir`; `tc = min(cburst * 10^6, t)`; `tp = min(eburst * 10^6, tp + (t - tc))`: what exceeds the
///    committed bucket goes to the excess bucket.
/// 3. If `tc >= n * 10^6`: green, `tc -= n * 10^6`. Else if `tp >= n * 10^6`: yellow, `tp -= n * 10^6`. Else red.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterConfig {
    /// Committed information rate, units per second.
    pub cir: u64,
    /// Committed burst size, units.
    pub cburst: u64,
    /// Peak information rate, units per second.
    pub pir: u64,
    /// Peak burst size, units.
    pub pburst: u64,
    /// Excess burst size, units; 0 for two-rate meters.
    pub eburst: u64,
}
