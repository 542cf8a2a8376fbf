//! Handles of table entries: bmv2's numbers for them, which clients keep.
//!
//! A table gives the least number that is free, from 0, as bmv2 does: scripts count on it. When a number is used again, its upper bits
//! are another version, so that an old handle is known as expired. Entries that another client wrote get numbers when the table is looked
//! at: handles are made for keys here, and the entries themselves stay where they are.
//!
//! ```text
//!   handle = version << 24 | number        the sign bit stays clear
//! ```
//!
//! Tests: below.

use crate::multicast::Mirrored;
use crate::service::Services;
use crate::tables;
use base::entry::KeyMatch;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Bits of the number.
const NUMBER_BITS: u32 = 24;
/// Numbers of a table.
const NUMBERS_MAX: usize = 1 << NUMBER_BITS;
/// Versions of a number; then they begin again.
const VERSIONS: u32 = 1 << 7;

/// A key with its priority, in a form that no two entries of a table share.
pub(crate) type Name = Arc<[u8]>;

/// Why there is no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoEntry {
    /// None has the number.
    Invalid,
    /// It is gone, and the number has another one.
    Expired,
}

#[derive(Default)]
struct Slot {
    version: u32,
    name: Option<Name>,
    /// The value of the key's prefix as a client gave it, where it has bits behind the prefix: bmv2 shows it again.
    given: Option<Box<[u8]>>,
}

/// The handles of a table.
#[derive(Default)]
pub(crate) struct Handles {
    numbers: HashMap<Name, u32>,
    slots: Vec<Slot>,
    free: BTreeSet<u32>,
    /// Entries that were there before the first look have handles.
    pub(crate) complete: bool,
}

impl Handles {
    /// The handle of an entry, which gets one if it has none; `None` when all numbers are taken.
    pub(crate) fn of(&mut self, name: &[u8]) -> Option<i32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(self.handle(*number));
        }
        let number = match self.free.pop_first() {
            Some(number) => number,
            None if self.slots.len() < NUMBERS_MAX => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let name: Name = name.into();
        self.slots[number as usize].name = Some(Arc::clone(&name));
        self.numbers.insert(name, number);
        Some(self.handle(number))
    }

    /// How many entries have handles.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The handle of an entry that has one.
    pub(crate) fn known(&self, name: &[u8]) -> Option<i32> {
        self.numbers.get(name).map(|number| self.handle(*number))
    }

    fn handle(&self, number: u32) -> i32 {
        (self.slots[number as usize].version << NUMBER_BITS | number) as i32
    }

    /// Keeps the value that a client gave for the prefix of an entry that has a handle.
    pub(crate) fn give(&mut self, handle: i32, value: Option<Vec<u8>>) {
        if let Some(slot) = self.slots.get_mut(handle as usize & (NUMBERS_MAX - 1)) {
            slot.given = value.map(Vec::into_boxed_slice);
        }
    }

    /// The value that a client gave for the prefix of an entry, if it has bits that do not count.
    pub(crate) fn given(&self, handle: i32) -> Option<&[u8]> {
        self.slots.get(handle as usize & (NUMBERS_MAX - 1))?.given.as_deref()
    }

    /// The entry that a handle stands for.
    pub(crate) fn name(&self, handle: i32) -> Result<Name, NoEntry> {
        let handle = u32::try_from(handle).map_err(|_| NoEntry::Invalid)?;
        let (number, version) = (handle & (NUMBERS_MAX as u32 - 1), handle >> NUMBER_BITS);
        let slot = self.slots.get(number as usize).ok_or(NoEntry::Invalid)?;
        match &slot.name {
            Some(name) if slot.version == version => Ok(Arc::clone(name)),
            Some(_) => Err(NoEntry::Expired),
            None => Err(NoEntry::Invalid),
        }
    }

    /// An entry is gone.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        let Some(number) = self.numbers.remove(name) else { return };
        let slot = &mut self.slots[number as usize];
        (slot.name, slot.given) = (None, None);
        slot.version = (slot.version + 1) % VERSIONS;
        self.free.insert(number);
    }

    /// Removes all but those that `stays` lets stay.
    pub(crate) fn retain(&mut self, stays: impl Fn(&[u8]) -> bool) {
        let gone: Vec<Name> = self.numbers.keys().filter(|name| !stays(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
    }
}

/// The handles of entries that were found otherwise than by a client: by a packet.
pub struct HandleLookup {
    services: Arc<Services>,
}

impl HandleLookup {
    pub(crate) fn new(services: Arc<Services>) -> HandleLookup {
        HandleLookup { services }
    }

    /// The handle of the entry of a table that has this key and priority. `None` if there is no such entry, and while a client's call is
    /// answered, which may take long.
    pub fn handle_of(&self, table: &str, key: &[KeyMatch], priority: i32) -> Option<i32> {
        self.services.try_with(|on| tables::handle_of(on, table, key, priority))?
    }

    /// What a session mirrors to. `None` for those that other clients made, and while a client's call is answered.
    pub fn mirrored(&self, session: u32) -> Option<Mirrored> {
        self.services.try_with(|on| on.mirrored_here(session))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_with_another_version() {
        let mut handles = Handles::default();
        assert_eq!([b"a", b"b", b"c"].map(|name| handles.of(name)), [Some(0), Some(1), Some(2)]);
        assert_eq!(handles.of(b"b"), Some(1));
        handles.remove(b"b");
        assert_eq!(handles.name(1), Err(NoEntry::Invalid));
        assert_eq!(handles.of(b"d"), Some(1 << 24 | 1));
        assert_eq!(handles.name(1), Err(NoEntry::Expired));
        assert_eq!(handles.name(1 << 24 | 1).unwrap()[..], *b"d");
        assert_eq!(handles.known(b"b"), None);
        assert!([3, -1, i32::MAX].iter().all(|handle| handles.name(*handle) == Err(NoEntry::Invalid)));
        assert_eq!(handles.name(1 << 24), Err(NoEntry::Expired));
    }

    #[test]
    fn versions_begin_again_and_handles_never_are_negative() {
        let mut handles = Handles::default();
        for round in 0..300u32 {
            let handle = handles.of(b"x").unwrap();
            assert_eq!(handle as u32 >> 24, round % VERSIONS);
            assert!(handle >= 0);
            handles.remove(b"x");
        }
    }

    #[test]
    fn given_values_end_with_their_entries() {
        let mut handles = Handles::default();
        let handle = handles.of(b"a").unwrap();
        assert_eq!(handles.given(handle), None);
        handles.give(handle, Some(vec![10, 1]));
        assert_eq!(handles.given(handle), Some(&[10, 1][..]));
        handles.remove(b"a");
        let again = handles.of(b"a").unwrap();
        assert_eq!((handles.given(again), handles.given(77)), (None, None));
    }

    #[test]
    fn what_is_gone_gives_its_number_back() {
        let mut handles = Handles::default();
        (0..10u8).for_each(|i| assert_eq!(handles.of(&[i]), Some(i32::from(i))));
        assert_eq!(handles.len(), 10);
        handles.retain(|name| name[0] % 2 == 0);
        assert_eq!(handles.len(), 5);
        assert_eq!(handles.known(&[4]), Some(4));
        assert_eq!(handles.of(&[100]).map(|handle| handle & 0xff), Some(1));
        assert_eq!(handles.of(&[101]).map(|handle| handle & 0xff), Some(3));
    }
}
