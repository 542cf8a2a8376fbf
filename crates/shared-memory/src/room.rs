//! Admission control: whether there is memory for a region that a peer wants to share, checked before it is mapped.
//!
//! An ordinary page of a shared file is allocated on first touch, charged to the control group of whoever touched it,
//! and stays allocated as long as anybody has the file open. So a peer can have the switch pay for a sparse file, keep
//! it, and share the next one. Memory that it really frees shows in the kernel's figures ([`Reading`]).
//!
//! A region of `bytes` is admitted if both hold:
//!
//! - **Every control group with a limit** has room for all not yet charged bytes of all mapped regions, and for the new
//!   region. All bytes count, not only holes: the owner of a file may punch holes into it after it was mapped, and
//!   pages that were charged to the peer are then charged to the switch when they are touched again.
//! - **The host** has memory for the holes of all mapped regions and of the new one. Punching a hole returns memory to
//!   the host, so allocated pages count once.
//!
//! The bytes of mapped regions that are already charged are estimated as the group's shared memory (`shmem`),
//! less what *former* regions may have cost, which are unmapped but may still exist. A former region counts with
//! all its bytes, as long as at least that much shared memory is charged. A region that is mapped again (same
//! file, same range) is no longer a former one.
//!
//! **A port's share:** after each admission, as much must be left as the port's own former regions may have cost. So
//! one port can use up at most half of the room by files that it has unmapped, and n ports all but 1/2^n of it.
//!
//! A reserve is kept ([`reserve`]), because figures are slightly out of date when they are used.
//!
//! Threads: any; one mutex, under which nothing waits. Tests: below, `tests/room.rs` (in a real control group).

use crate::file::{FileId, holes};
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

mod reading;
mod state;

pub use reading::{Group, Reading};
pub use state::{Place, Shortage};
use state::{Region, State};

/// Provides the memory figures.
type Source = Box<dyn Fn() -> Reading + Send + Sync>;

/// The memory from which the regions of several quotas are admitted.
pub struct Room {
    source: Source,
    state: Mutex<State>,
}

/// A quota's account in a room; its former regions stay counted when it ends.
pub(crate) struct Account {
    room: Arc<Room>,
    number: u64,
}

/// An admitted region; becomes a former one when this is dropped.
pub(crate) struct Admitted {
    room: Arc<Room>,
    number: u64,
}

impl Room {
    /// A room with figures from `source`; for tests.
    pub fn new(source: impl Fn() -> Reading + Send + Sync + 'static) -> Arc<Room> {
        Arc::new(Room { source: Box::new(source), state: Mutex::default() })
    }

    /// The room of this process.
    pub(crate) fn of_process() -> Arc<Room> {
        static ROOM: LazyLock<Arc<Room>> = LazyLock::new(|| Room::new(Reading::now));
        Arc::clone(&ROOM)
    }

    pub(crate) fn account(self: &Arc<Room>) -> Account {
        let number = self.lock().open();
        Account { room: Arc::clone(self), number }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Admits `bytes` bytes from `offset` of a file on ordinary pages.
    ///
    /// # Errors
    /// What memory is missing.
    pub(crate) fn admit(
        &self,
        file: std::os::fd::BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
    ) -> Result<Admitted, Shortage> {
        // Read outside the lock: the kernel may take a millisecond to sum up its figures.
        let reading = (self.room.source)();
        let region =
            Region { account: self.number, file: FileId::of(file), offset, bytes, holes: holes(file).min(bytes) };
        let mut state = self.room.lock();
        let number = state.admit(region, &reading)?;
        if state.wants_file(number) {
            state.keep_file(number, file.try_clone_to_owned().ok());
        }
        Ok(Admitted { room: Arc::clone(&self.room), number })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.room.lock().close(self.number);
    }
}

impl Admitted {
    /// Ends the admission. Returns the file if one was kept; it may be the last open descriptor.
    pub(crate) fn end(&self) -> Option<OwnedFd> {
        self.room.lock().end(self.number)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("number", &self.number).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admitted").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
