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
//! A process that maps peers' memory for another one (`pktio-process`) asks that one for each region ([`ask`]): the
//! figures are of both, and what one port takes the others lack. There a [`crate::Guest`] is the port's account.
//!
//! Threads: any; one mutex, under which nothing waits. Tests: below, `tests/room.rs` (in a real control group).

use crate::file::{FileId, holes};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// Why a region is not admitted.
#[derive(Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// There is not enough memory.
    #[error("{0}")]
    NoRoom(#[from] Shortage),
    /// Its file is not memory.
    #[error("its file is not in memory")]
    NotMemory,
    /// There are as many regions as this number already.
    #[error("{0} regions are mapped already")]
    TooMany(usize),
    /// It ends behind the end of its file.
    #[error("it ends at byte {end} of a file of {file} bytes")]
    BeyondFile {
        /// End of the region: an offset in the file, in bytes.
        end: u64,
        /// Length of the file in bytes, in whole pages.
        file: u64,
    },
    /// With it, more than this number of bytes would be mapped for one port.
    #[error("more than {} MB would be mapped for its port", .0 >> 20)]
    TooMuch(u64),
    /// Another process decides, and does not answer.
    #[error("{0}")]
    NoAnswer(io::Error),
}

/// Another process's room, as this one reaches it.
pub trait Landlord: Send + Sync {
    /// Has `bytes` bytes from `offset` of a file on ordinary pages admitted. Returns the region's number.
    ///
    /// # Errors
    /// That process's reason, or no answer.
    fn admit(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<u64, NotAdmitted>;

    /// Ends an admission.
    fn end(&self, number: u64);
}

static LANDLORD: OnceLock<Arc<dyn Landlord>> = OnceLock::new();

/// Has the regions of all quotas that this process creates from now on admitted by another process. Only the first call
/// has an effect.
pub fn ask(landlord: Arc<dyn Landlord>) {
    let _ = LANDLORD.set(landlord);
}

/// A quota's account; its former regions stay counted when it ends.
pub(crate) enum Account {
    /// In a room of this process.
    Here { room: Arc<Room>, number: u64 },
    /// In that of another process, which knows whose it is.
    There(Arc<dyn Landlord>),
}

/// An admitted region; becomes a former one when this is dropped.
pub(crate) struct Admitted {
    /// `None` once it has ended.
    by: Option<By>,
    number: u64,
}

/// Who has admitted a region.
enum By {
    Here(Arc<Room>),
    There(Arc<dyn Landlord>),
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
        Account::Here { room: Arc::clone(self), number }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// An account for memory of this process: in its room, or with the process that it asks ([`ask`]).
    pub(crate) fn of_process() -> Account {
        match LANDLORD.get() {
            Some(landlord) => Account::There(Arc::clone(landlord)),
            None => Room::of_process().account(),
        }
    }

    /// Admits `bytes` bytes from `offset` of a file on ordinary pages.
    ///
    /// # Errors
    /// What memory is missing, or that the other process does not answer.
    pub(crate) fn admit(&self, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Admitted, NotAdmitted> {
        let (room, account) = match self {
            Account::Here { room, number } => (room, *number),
            Account::There(landlord) => {
                let number = landlord.admit(file, offset, bytes)?;
                return Ok(Admitted { by: Some(By::There(Arc::clone(landlord))), number });
            }
        };
        // Read outside the lock: the kernel may take a millisecond to sum up its figures.
        let reading = (room.source)();
        let region = Region { account, file: FileId::of(file), offset, bytes, holes: holes(file).min(bytes) };
        let mut state = room.lock();
        let number = state.admit(region, &reading)?;
        if state.wants_file(number) {
            state.keep_file(number, file.try_clone_to_owned().ok());
        }
        Ok(Admitted { by: Some(By::Here(Arc::clone(room))), number })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Account::Here { room, number } = self {
            room.lock().close(*number);
        }
    }
}

impl Admitted {
    /// Ends the admission. Returns the file if one was kept; it may be the last open descriptor.
    pub(crate) fn end(&mut self) -> Option<OwnedFd> {
        match self.by.take()? {
            By::Here(room) => room.lock().end(self.number),
            By::There(landlord) => {
                landlord.end(self.number);
                None
            }
        }
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
        f.debug_struct("Account").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
