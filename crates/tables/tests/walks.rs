//! Iterations over all entries while these change. With the changed entries taken from before their change, as a reader
//! of the control plane does, an iteration yields the table as it was at the start, also while the table grows and
//! positions are reused.
#![cfg(not(loom))]

mod common;

use base::entry::MatchKind::{self, Exact, Lpm, Ternary};
use base::entry::{KeyMatch, TableEntry};
use common::{Draw, Random, call, call_of, entry};
use std::collections::HashSet;
use tables::{Domain, Runs, Table, TableSpec};

/// An iteration, with the entries that it has yielded and those that were taken before they changed.
struct Walk {
    place: Option<u64>,
    expected: Vec<TableEntry>,
    changed: HashSet<Vec<KeyMatch>>,
    given: Vec<TableEntry>,
}

impl Walk {
    fn before_change(&mut self, table: &mut Table, key: &[KeyMatch], priority: i32) {
        let (Some(place), true) = (self.place, self.changed.insert(key.to_vec())) else { return };
        if let Ok(now) = table.entry(key, priority, 0)
            && !table.is_before(place, key, priority)
        {
            self.given.push(now.entry);
        }
    }

    fn step(&mut self, table: &Table, about: usize) {
        let Some(place) = self.place else { return };
        let (entries, next) = table.walk(place, about, 0);
        assert!(next.is_none_or(|next| next > place));
        let unchanged = entries.into_iter().map(|read| read.entry).filter(|e| !self.changed.contains(&e.key));
        self.given.extend(unchanged);
        self.place = next;
    }

    fn check(mut self, what: &str) {
        let key = |e: &TableEntry| format!("{e:?}");
        self.expected.sort_by_key(key);
        self.given.sort_by_key(key);
        assert!(self.given == self.expected, "{what}: {} given, {} expected", self.given.len(), self.expected.len());
    }
}

fn check(keys: &[(u32, MatchKind)], direct: bool, idle_timeout: bool, seed: u64) {
    let what = format!("keys {keys:?}, direct {direct}, seed {seed}");
    let actions = vec![vec![64]];
    let (members, selector, size) = (false, false, 20_000);
    let spec = TableSpec { keys: keys.to_vec(), size, actions, members, selector, idle_timeout, direct };
    let mut table = Table::new(spec, Runs::Call(&call(0)), Domain::new(1)).expect("a table of this shape");
    let mut random = Random::new(seed);
    let mut there: Vec<TableEntry> = Vec::new();
    let mut walk: Option<Walk> = None;
    let priority = i32::from(keys.iter().any(|(_, kind)| kind.needs_priority()));
    for step in 0..12_000u64 {
        if step % 3000 == 10 {
            let all = || table.entries(0).into_iter().map(|read| read.entry).collect();
            walk = Some(Walk { place: Some(0), expected: all(), changed: HashSet::new(), given: vec![] });
        }
        // At first the table grows, then insertions and deletions balance.
        let known = !there.is_empty() && random.below(if step < 6000 { 8 } else { 2 }) == 0;
        let at = known.then(|| random.below(there.len() as u64) as usize);
        let key = match at {
            Some(at) => there[at].key.clone(),
            None => keys.iter().map(|(width, kind)| random.key(*width, *kind)).collect(),
        };
        if let Some(walk) = &mut walk {
            walk.before_change(&mut table, &key, priority);
        }
        let new = entry(key, priority, random.below(1 << 40));
        match at {
            Some(at) if random.below(2) == 0 => {
                table.delete(&there.swap_remove(at).key, priority).unwrap();
            }
            Some(at) => {
                table.modify(&new, Runs::Call(call_of(&new))).unwrap();
                there[at] = new;
            }
            None => {
                if table.insert(&new, Runs::Call(call_of(&new)), 0).is_ok() {
                    there.push(new);
                }
            }
        }
        if random.below(20) == 0
            && let Some(open) = &mut walk
        {
            open.step(&table, 40);
            if open.place.is_none() {
                walk.take().expect("it is open").check(&what);
            }
        }
    }
    if let Some(mut open) = walk {
        while open.place.is_some() {
            open.step(&table, 100);
        }
        open.check(&what);
    }
}

#[test]
fn a_walk_returns_a_consistent_snapshot() {
    for (seed, direct) in [(1, false), (2, true)] {
        check(&[(48, Exact)], direct, false, seed);
        check(&[(12, Exact), (48, Exact)], direct, false, seed);
        check(&[(128, Exact), (64, Exact)], direct, false, seed);
        check(&[(32, Exact)], direct, true, seed);
        check(&[(16, Exact)], direct, false, seed);
        check(&[(32, Lpm)], direct, false, seed);
        check(&[(12, Exact), (128, Lpm)], direct, false, seed);
        check(&[(32, Ternary), (16, Exact)], direct, false, seed);
    }
}

/// A part of a large table, written in the order in which it was read, takes no more memory than the same entries in
/// any other order.
#[test]
fn entries_read_back_can_be_written_to_another_table() {
    let spec = || TableSpec {
        keys: vec![(48, Exact)],
        size: 1 << 20,
        actions: vec![vec![64]],
        members: false,
        selector: false,
        idle_timeout: false,
        direct: false,
    };
    let domain = Domain::new(1);
    let table = || Table::new(spec(), Runs::Call(&call(0)), std::sync::Arc::clone(&domain)).expect("a possible table");
    let mut random = Random::new(5);
    let mut first = table();
    for i in 0..200_000 {
        let new = entry(vec![KeyMatch::Exact(base::Bits::new(48, u128::from(random.next_u64() >> 16)))], 0, i);
        first.insert(&new, Runs::Call(call_of(&new)), 0).expect("a new key");
    }
    domain.renew_seeds();
    let (mut in_order, mut shuffled) = (table(), table());
    let (mut part, _) = first.walk(0, 10_000, 0);
    for read in &part {
        in_order.insert(&read.entry, Runs::Call(call_of(&read.entry)), 0).expect("a new key");
    }
    while !part.is_empty() {
        let read = part.swap_remove(random.below(part.len() as u64) as usize);
        shuffled.insert(&read.entry, Runs::Call(call_of(&read.entry)), 0).expect("a new key");
    }
    let (in_order, shuffled) = (in_order.footprint_bytes(), shuffled.footprint_bytes());
    assert!(in_order < 2 * shuffled, "{in_order} bytes, in another order {shuffled}");
}
