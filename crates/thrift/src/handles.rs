//! Handles of table entries: the numbers by which bmv2's clients refer to them.
//!
//! A table assigns the lowest free number, from 0, as bmv2 does; scripts rely on that. When a number is reused, the
//! upper bits hold another version, so that an old handle is recognised as expired. Entries written by other clients
//! get handles when their table is scanned. Only keys are stored here; the entries remain in the control plane.
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

/// Width of the number in a handle, in bits.
const NUMBER_BITS: u32 = 24;
/// Number of handle numbers of a table.
const NUMBERS_MAX: usize = 1 << NUMBER_BITS;
/// Number of versions of a handle number, after which they wrap around.
const VERSIONS: u32 = 1 << 7;

/// An encoding of key and priority that is unique within a table.
pub(crate) type Name = Arc<[u8]>;

/// Why a handle has no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoEntry {
    /// No entry has this number.
    Invalid,
    /// The entry was removed, and its number is in use again.
    Expired,
}

#[derive(Default)]
struct Slot {
    version: u32,
    name: Option<Name>,
    /// The prefix value that a client wrote, if it has bits beyond the prefix length: bmv2 shows it unchanged.
    given: Option<Box<[u8]>>,
}

/// The handles of a table.
#[derive(Default)]
pub(crate) struct Handles {
    numbers: HashMap<Name, u32>,
    slots: Vec<Slot>,
    free: BTreeSet<u32>,
    /// Whether the entries that existed before the first scan have handles.
    pub(crate) complete: bool,
}

impl Handles {
    /// The handle of an entry, assigned if it has none; `None` if all numbers are in use.
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

    /// Number of entries with handles.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The handle of an entry, if it has one.
    pub(crate) fn known(&self, name: &[u8]) -> Option<i32> {
        self.numbers.get(name).map(|number| self.handle(*number))
    }

    fn handle(&self, number: u32) -> i32 {
        (self.slots[number as usize].version << NUMBER_BITS | number) as i32
    }

    /// Stores the prefix value that a client wrote for an entry.
    pub(crate) fn give(&mut self, handle: i32, value: Option<Vec<u8>>) {
        if let Some(slot) = self.slots.get_mut(handle as usize & (NUMBERS_MAX - 1)) {
            slot.given = value.map(Vec::into_boxed_slice);
        }
    }

    /// The prefix value that a client wrote for an entry, if it has bits beyond the prefix length.
    pub(crate) fn given(&self, handle: i32) -> Option<&[u8]> {
        self.slots.get(handle as usize & (NUMBERS_MAX - 1))?.given.as_deref()
    }

    /// The entry to which a handle refers.
    ///
    /// # Errors
    /// [`NoEntry`] if there is none.
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

    /// Frees the handle of an entry that has been removed.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        let Some(number) = self.numbers.remove(name) else { return };
        let slot = &mut self.slots[number as usize];
        (slot.name, slot.given) = (None, None);
        slot.version = (slot.version + 1) % VERSIONS;
        self.free.insert(number);
    }

    /// Frees the handles of all entries except those for which `stays` is true.
    pub(crate) fn retain(&mut self, stays: impl Fn(&[u8]) -> bool) {
        let gone: Vec<Name> = self.numbers.keys().filter(|name| !stays(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
    }
}

/// Finds handles of entries for other parts of the switch, such as for entries that packets match.
pub struct HandleLookup {
    services: Arc<Services>,
}

impl HandleLookup {
    pub(crate) fn new(services: Arc<Services>) -> HandleLookup {
        HandleLookup { services }
    }

    /// The handle of the entry of a table with this key and priority. `None` if there is no such entry, and while a
    /// client's call is in progress, which can take long.
    pub fn handle_of(&self, table: &str, key: &[KeyMatch], priority: i32) -> Option<i32> {
        self.services.try_with(|on| tables::handle_of(on, table, key, priority))?
    }

    /// What a mirroring session mirrors to. `None` for sessions of other clients, and while a client's call is in
    /// progress.
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
