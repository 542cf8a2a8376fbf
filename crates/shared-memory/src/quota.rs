//! How many mappings an owner (a port) may have at a time.
//!
//! A quota is reserved in the registry of mappings when it is created, and refused if the registry is too small. So an
//! owner that uses up its quota takes nothing from others. Ordinary pages also need [`Room`].
//!
//! Threads: any. Tests: below.

use crate::error::MapError;
use crate::guard::SLOTS;
use crate::received::Closer;
use crate::room::{Account, Room};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sum of all quotas, in mappings.
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// An owner's quota; clones share it.
#[derive(Clone, Debug)]
pub struct Quota(Arc<Share>);

#[derive(Debug)]
struct Share {
    most: usize,
    used: AtomicUsize,
    /// Unmaps large mappings, and nothing else, so that no mapping waits behind a file whose `close` blocks.
    closer: Closer,
    account: Account,
}

/// One mapping of a quota, returned on drop.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Share>);

impl Quota {
    /// A quota of `most` mappings at a time, in this process's memory (or in that of the process that it [asks](crate::ask)).
    ///
    /// # Errors
    /// [`MapError::TooMany`] if the registry is too small.
    pub fn new(most: usize) -> Result<Quota, MapError> {
        Quota::with(most, Account::of_process)
    }

    /// A quota of `most` mappings at a time, with memory from `room`.
    ///
    /// # Errors
    /// [`MapError::TooMany`] if the registry is too small.
    pub fn in_room(most: usize, room: &Arc<Room>) -> Result<Quota, MapError> {
        Quota::with(most, || room.account())
    }

    fn with(most: usize, account: impl FnOnce() -> Account) -> Result<Quota, MapError> {
        let reserve = |reserved: usize| reserved.checked_add(most).filter(|sum| *sum <= SLOTS);
        RESERVED.fetch_update(Ordering::AcqRel, Ordering::Acquire, reserve).map_err(|_| MapError::TooMany)?;
        let (used, closer, account) = (AtomicUsize::new(0), Closer::default(), account());
        Ok(Quota(Arc::new(Share { most, used, closer, account })))
    }

    pub(crate) fn account(&self) -> &Account {
        &self.0.account
    }

    pub(crate) fn closer(&self) -> &Closer {
        &self.0.closer
    }

    pub(crate) fn take(&self) -> Result<Taken, MapError> {
        let Share { most, used, .. } = &*self.0;
        let one_more = |used: usize| (used < *most).then_some(used + 1);
        used.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .map_err(|_| MapError::Quota { most: *most })?;
        Ok(Taken(Arc::clone(&self.0)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.most, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: peers of one socket took all slots of the registry, and everybody else's mappings failed.
    #[test]
    fn who_uses_up_his_quota_takes_nothing_of_others() {
        let (greedy, other) = (Quota::new(3).expect("room"), Quota::new(1).expect("room"));
        let taken: Vec<_> = (0..3).map(|_| greedy.take().expect("within the quota")).collect();
        assert!(matches!(greedy.take(), Err(MapError::Quota { most: 3 })));
        assert!(other.take().is_ok());
        drop(taken);
        assert!(greedy.take().is_ok());
        assert!(matches!(Quota::new(SLOTS), Err(MapError::TooMany)), "what is reserved is not given twice");
        assert!(matches!(Quota::new(usize::MAX), Err(MapError::TooMany)));
    }
}
