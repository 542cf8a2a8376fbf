//! Random entries and packets derived from the seed packets and their keys.

use crate::seed::Subject;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, MeterConfig, TableEntry};
use base::ids::{ExternId, TableId};
use interp::SeededHost;
use ir::{ExternKind, Table};

/// A source of random choices, determined by its seed.
pub struct Dice(SeededHost);

impl Dice {
    /// A source with a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(SeededHost::new(seed))
    }

    /// A number below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    /// True with probability 1/`n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A random element of a non-empty list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// A random value of a width in bits; small values are more frequent.
    pub fn bits(&mut self, width: u32) -> Bits {
        match self.below(4) {
            0 => Bits::new(width.min(128), self.below(20) as u128).resize_u(width),
            1 => Bits::ones(width),
            _ => {
                let bytes: Vec<u8> = (0..width.div_ceil(8)).map(|_| self.0.next_u64() as u8).collect();
                Bits::from_bytes_be(width, &bytes)
            }
        }
    }
}

/// A change of a pipeline's state before packets run.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Adds an entry; it may be refused as a duplicate.
    Insert(TableId, TableEntry),
    /// Sets a default action.
    SetDefault(TableId, EntryAction),
    /// Configures a meter cell.
    Meter(ExternId, u64, MeterConfig),
    /// Sets a register cell.
    Register(ExternId, u64, Bits),
}

/// The changes for one round.
pub fn changes(subject: &Subject, dice: &mut Dice) -> Vec<Change> {
    let program = &subject.raw;
    let mut list = Vec::new();
    for (i, table) in program.tables.iter().enumerate() {
        let id = TableId::from_index(i);
        if !table.const_entries && !table.keys.is_empty() {
            // Many entries for a single prefix key, so that prefixes overlap.
            let prefixes = matches!(&table.keys[..], [key] if key.kind == MatchKind::Lpm);
            for _ in 0..dice.below(if prefixes { 48 } else { 12 }) {
                if let Some(entry) = entry(subject, table, dice) {
                    list.push(Change::Insert(id, entry));
                }
            }
        }
        let may_change = !table.const_default && !table.value_set && table.implementation.is_none();
        if may_change
            && dice.one_in(4)
            && let Some(call) = action(subject, table, false, dice)
        {
            list.push(Change::SetDefault(id, EntryAction::Call(call)));
        }
    }
    for (i, e) in program.externs.iter().enumerate() {
        let id = ExternId::from_index(i);
        match &e.kind {
            ExternKind::Meter { size, direct: None, .. } if *size > 0 => {
                for _ in 0..dice.below(4) {
                    let (cir, cburst) = (dice.below(2_000_000) as u64, dice.below(3000) as u64);
                    let config = MeterConfig {
                        cir,
                        cburst,
                        pir: cir + dice.below(1_000_000) as u64,
                        pburst: cburst + dice.below(3000) as u64,
                        eburst: if dice.one_in(3) { 1 + dice.below(3000) as u64 } else { 0 },
                    };
                    list.push(Change::Meter(id, dice.below((*size).min(64) as usize) as u64, config));
                }
            }
            ExternKind::Register { size, width, .. } if *size > 0 => {
                for _ in 0..dice.below(16) {
                    let index = dice.below((*size).min(1 << 20) as usize) as u64;
                    list.push(Change::Register(id, index, dice.bits(*width)));
                }
            }
            _ => {}
        }
    }
    list
}

fn entry(subject: &Subject, table: &Table, dice: &mut Dice) -> Option<TableEntry> {
    let seen = subject.keys.get(&table.name).map(Vec::as_slice).unwrap_or_default();
    let known = if seen.is_empty() || dice.one_in(5) { None } else { Some(dice.pick(seen).clone()) };
    let key = table
        .keys
        .iter()
        .enumerate()
        .map(|(i, k)| {
            let near = known.as_ref().and_then(|values| values.get(i)).filter(|v| v.width() == k.width);
            let value = match near {
                Some(value) if !dice.one_in(10) => value.clone(),
                _ => dice.bits(k.width),
            };
            key_match(k.kind, value, dice)
        })
        .collect();
    let needs_priority = table.keys.iter().any(|k| k.kind.needs_priority());
    let priority = if needs_priority { 1 + dice.below(1000) as i32 } else { 0 };
    let action = if table.value_set {
        EntryAction::Call(ActionCall { action: 0, args: vec![] })
    } else if table.implementation.is_some() {
        // The script defines members and groups, which generated entries would need.
        return None;
    } else {
        EntryAction::Call(action(subject, table, true, dice)?)
    };
    Some(TableEntry { key, priority, action, idle_timeout_ns: 0 })
}

fn key_match(kind: MatchKind, value: Bits, dice: &mut Dice) -> KeyMatch {
    let width = value.width();
    match kind {
        MatchKind::Exact => KeyMatch::Exact(value),
        MatchKind::Lpm => {
            let prefix_len = dice.below(width as usize + 1) as u32;
            let mask = Bits::ones(width).shl(u64::from(width - prefix_len));
            KeyMatch::Lpm { value: value.and(&mask), prefix_len }
        }
        MatchKind::Ternary => {
            let mask = dice.bits(width);
            KeyMatch::Ternary { value: value.and(&mask), mask }
        }
        MatchKind::Range => {
            let other = dice.bits(width);
            let (low, high) = if other.ult(&value) { (other, value) } else { (value, other) };
            KeyMatch::Range { low, high }
        }
        MatchKind::Optional => KeyMatch::Optional(if dice.one_in(3) { None } else { Some(value) }),
    }
}

fn action(subject: &Subject, table: &Table, for_entry: bool, dice: &mut Dice) -> Option<ActionCall> {
    let fit = |a: &ir::TableAction| if for_entry { !a.default_only } else { !a.table_only };
    let usable: Vec<usize> = (0..table.actions.len()).filter(|&i| fit(&table.actions[i])).collect();
    if usable.is_empty() {
        return None;
    }
    let at = *dice.pick(&usable);
    let params = &subject.raw.actions[table.actions[at].action.index()].params;
    Some(ActionCall { action: at as u32, args: params.iter().map(|(_, width)| dice.bits(*width)).collect() })
}

/// A packet with its port: a seed packet, usually mutated in a few places.
pub fn packet(subject: &Subject, dice: &mut Dice) -> (u32, Vec<u8>) {
    let (port, mut frame) = dice.pick(&subject.packets).clone();
    let port = if dice.one_in(4) { dice.below(16) as u32 } else { port };
    let changes = [0, 1, 1, 2, 3, 8][dice.below(6)];
    for _ in 0..changes {
        if frame.is_empty() {
            break;
        }
        // Headers are at the front, where mutations are more frequent than in the payload.
        let reach = if dice.one_in(4) { frame.len() } else { frame.len().min(64) };
        let at = dice.below(reach);
        match dice.below(8) {
            0..=2 => frame[at] ^= 1 << dice.below(8),
            3 | 4 => frame[at] = *dice.pick(&[0, 1, 2, 4, 5, 6, 8, 17, 0x45, 0x7f, 0x80, 0xfe, 0xff]),
            5 => frame[at] = dice.below(256) as u8,
            6 => {
                // Copies a field from the same place of another seed packet.
                let (_, other) = dice.pick(&subject.packets);
                let len = 1 + dice.below(6);
                let end = (at + len).min(frame.len()).min(other.len());
                if at < end {
                    frame[at..end].copy_from_slice(&other[at..end]);
                }
            }
            _ => {
                if dice.one_in(2) {
                    frame.truncate(at);
                } else {
                    let copy: Vec<u8> = frame[at..].iter().take(1 + dice.below(40)).copied().collect();
                    frame.splice(at..at, copy);
                }
            }
        }
    }
    frame.truncate(1500);
    (port, frame)
}
