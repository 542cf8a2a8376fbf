//! Shared by the integration tests: a reference table with linear search, keys as bytes, and random keys.
#![allow(dead_code, reason = "each test uses a part")]

use abi::KeyLayout;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
pub use random::Random;

/// The reference: a list of entries in insertion order, all of which are scanned.
#[derive(Default)]
pub struct Linear {
    pub entries: Vec<TableEntry>,
}

impl Linear {
    pub fn position(&self, key: &[KeyMatch], priority: i32) -> Option<usize> {
        self.entries.iter().position(|e| e.key == key && e.priority == priority)
    }

    /// The entry with the highest priority, then the longest prefix, then the lowest insertion number.
    pub fn lookup(&self, key: &[Bits]) -> Option<&TableEntry> {
        let mut best: Option<&TableEntry> = None;
        for entry in self.entries.iter().filter(|e| e.key.iter().zip(key).all(|(m, v)| accepts(m, v))) {
            let rank = |e: &TableEntry| (e.priority, if e.priority == 0 { prefix_len(e) } else { 0 });
            if best.is_none_or(|b| rank(entry) > rank(b)) {
                best = Some(entry);
            }
        }
        best
    }
}

fn prefix_len(entry: &TableEntry) -> u32 {
    entry.key.iter().map(|m| if let KeyMatch::Lpm { prefix_len, .. } = m { *prefix_len } else { 0 }).sum()
}

fn accepts(key: &KeyMatch, value: &Bits) -> bool {
    match key {
        KeyMatch::Exact(v) | KeyMatch::Optional(Some(v)) => v == value,
        KeyMatch::Optional(None) => true,
        KeyMatch::Lpm { value: v, prefix_len } => {
            let shift = u64::from(value.width() - prefix_len);
            v.lshr(shift) == value.lshr(shift)
        }
        KeyMatch::Ternary { value: v, mask } => v.and(mask) == value.and(mask),
        KeyMatch::Range { low, high } => low.ule(value) && value.ule(high),
    }
}

/// A key of a packet in the table's layout.
pub fn key_bytes(layout: &KeyLayout, values: &[Bits]) -> Vec<u8> {
    let mut bytes = vec![0; layout.bytes as usize];
    for (field, value) in layout.fields.iter().zip(values) {
        for (i, byte) in value.to_bytes_be().iter().rev().enumerate() {
            bytes[field.offset as usize + i] = *byte;
        }
    }
    bytes
}

/// Random values for table keys.
pub trait Draw {
    /// A value that collides often: few bits set, at either end of the field, or any value.
    fn bits(&mut self, width: u32) -> Bits;
    /// A random match for a key field.
    fn key(&mut self, width: u32, kind: MatchKind) -> KeyMatch;
    /// A value, often one that `key` matches.
    fn inline_entry(&mut self, key: &KeyMatch, width: u32) -> Bits;
}

impl Draw for Random {
    fn bits(&mut self, width: u32) -> Bits {
        let low = u128::from(self.below(4));
        let value = match self.below(4) {
            0 => Bits::new(width, low),
            1 => Bits::new(width, low).shl(u64::from(width.saturating_sub(2))),
            2 => Bits::new(width, low).shl(self.below(u64::from(width))),
            _ => {
                let words: Vec<u8> = (0..width.div_ceil(8)).map(|_| self.next_u64() as u8).collect();
                Bits::from_bytes_be(width, &words)
            }
        };
        if self.below(3) == 0 { value.not() } else { value }
    }

    fn key(&mut self, width: u32, kind: MatchKind) -> KeyMatch {
        match kind {
            MatchKind::Exact => KeyMatch::Exact(self.bits(width)),
            MatchKind::Lpm => {
                let prefix_len = self.below(u64::from(width) + 1) as u32;
                let mask = Bits::ones(width).shl(u64::from(width - prefix_len));
                KeyMatch::Lpm { value: self.bits(width).and(&mask), prefix_len }
            }
            MatchKind::Ternary => {
                let mask = match self.below(3) {
                    0 => Bits::ones(width),
                    1 => Bits::zero(width),
                    _ => self.bits(width),
                };
                KeyMatch::Ternary { value: self.bits(width).and(&mask), mask }
            }
            MatchKind::Range => {
                let (a, b) = (self.bits(width), self.bits(width));
                let (low, high) = if a.ule(&b) { (a, b) } else { (b, a) };
                if self.below(4) == 0 {
                    KeyMatch::Range { low: low.clone(), high: low }
                } else {
                    KeyMatch::Range { low, high }
                }
            }
            MatchKind::Optional => KeyMatch::Optional((self.below(3) > 0).then(|| self.bits(width))),
        }
    }

    fn inline_entry(&mut self, key: &KeyMatch, width: u32) -> Bits {
        let any = self.bits(width);
        match (self.below(4), key) {
            (0, _) => any,
            (_, KeyMatch::Exact(v) | KeyMatch::Optional(Some(v))) => v.clone(),
            (_, KeyMatch::Optional(None)) => any,
            (_, KeyMatch::Lpm { value, prefix_len }) => {
                let mask = Bits::ones(width).shl(u64::from(width - prefix_len));
                value.or(&any.and(&mask.not()))
            }
            (_, KeyMatch::Ternary { value, mask }) => value.or(&any.and(&mask.not())),
            (1, KeyMatch::Range { low, .. }) => low.clone(),
            (2, KeyMatch::Range { high, .. }) => high.clone(),
            (_, KeyMatch::Range { low, high }) => low.add(high).lshr(1),
        }
    }
}

/// An entry that runs action 0 with one 64-bit argument.
pub fn entry(key: Vec<KeyMatch>, priority: i32, argument: u64) -> TableEntry {
    TableEntry { key, priority, action: EntryAction::Call(call(argument)), idle_timeout_ns: 0 }
}

pub fn call(argument: u64) -> ActionCall {
    ActionCall { action: 0, args: vec![Bits::new(64, u128::from(argument))] }
}

pub fn call_of(entry: &TableEntry) -> &ActionCall {
    match &entry.action {
        EntryAction::Call(call) => call,
        other => panic!("these tests have only calls, not {other:?}"),
    }
}
