//! Whether there is memory for a region that a peer wants to share: admission before it is mapped.
//!
//! An ordinary page of a shared file is allocated when somebody touches it first, charged to the control group of whoever did,
//! and stays for as long as anybody has the file. So a peer can have the switch pay for a sparse file, keep it, and bring the
//! next one. What it really frees shows up in the kernel's figures by itself ([`Reading`]).
//!
//! A region of `bytes` is mapped if both hold:
//!
//! - **Every control group with a limit** has room for all bytes of all mapped regions that are not charged yet, and for the new
//!   one. All bytes, and not only the holes: whoever shares a file may punch holes into it after it was mapped, and then
//!   pages that were charged to the peer are charged to the switch when they are touched again.
//! - **The host** has memory for the holes of all mapped regions and of the new one. Punching holes gives memory back to the
//!   host, so what is allocated counts once.
//!
//! How much of the mapped regions is charged already: the shared memory that is charged to the group (`shmem`), less what
//! *former* regions may have cost, which are unmapped but may still exist. A former region counts with all its bytes, until less
//! shared memory is charged than that. A region that is mapped again (same file, same range) is no longer a former one.
//!
//! **Share of one port:** after each admission, as much must be left as the port's own former regions may have cost. So one
//! port takes at most half of the room with files that it has let go, n ports together all but one part in 2^n.
//!
//! A reserve is left ([`reserve`]), because figures are a little old when they are used.
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

/// What gives the figures.
type Source = Box<dyn Fn() -> Reading + Send + Sync>;

/// The memory that regions of several quotas share.
pub struct Room {
    source: Source,
    state: Mutex<State>,
}

/// A quota's account in a room; what it had mapped stays counted when it ends.
pub(crate) struct Account {
    room: Arc<Room>,
    number: u64,
}

/// A region that was admitted; a former one when this is dropped.
pub(crate) struct Admitted {
    room: Arc<Room>,
    number: u64,
}

impl Room {
    /// A room that is measured by `source`; for tests.
    pub fn new(source: impl Fn() -> Reading + Send + Sync + 'static) -> Arc<Room> {
        Arc::new(Room { source: Box::new(source), state: Mutex::default() })
    }

    /// This process's.
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
    /// Admits `bytes` from `offset` of a file on ordinary pages, or says what is missing.
    pub(crate) fn admit(
        &self,
        file: std::os::fd::BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
    ) -> Result<Admitted, Shortage> {
        // Not under the lock: the kernel may take a millisecond to add its figures up.
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
    /// Ends the admission; the file, if one was kept, which may be the last one that is open.
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
