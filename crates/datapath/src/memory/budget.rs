//! Limits on the memory of programs' state in this process.
//!
//! A program declares how many cells its counters, meters and registers have, and packets touch them one by one: a
//! small program and small packets could use up all memory long after both were accepted. So cells are refused when a
//! program is loaded, by the memory that all programs' cells take if every one is touched. Entries take memory when
//! they are added; for those the process itself is measured.
//!
//! Both limits are per process and off until set. Tests: `tests/state_memory.rs`.

use super::process::{give_back, statm_bytes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limit on the bytes of all cells; [`u64::MAX`] for none.
static CELLS_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// Bytes of all existing cells.
static CELLS: AtomicU64 = AtomicU64::new(0);
/// Limit on the bytes of the process up to which entries may be added; [`u64::MAX`] for none.
static ENTRIES_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// The number of calls of [`entry_fits`].
static ASKED: AtomicU64 = AtomicU64::new(0);
/// Whether the process was over the limit when last measured.
static OVER: AtomicBool = AtomicBool::new(false);
/// When freed memory was last returned because of the limit.
static GAVE_BACK: Mutex<Option<Instant>> = Mutex::new(None);

/// The process is measured once per this many entries: a measurement takes as long as adding some ten entries.
const MEASURE_EVERY: u64 = 1024;
/// Shortest time between two returns of freed memory, which interrupt workers.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// Limits the bytes of all programs' cells. Cells that exist already are kept, even beyond the limit.
pub fn limit_cells(bytes: u64) {
    CELLS_MAX.store(bytes, Ordering::Relaxed);
}

/// Refuses entries while the process has more than `bytes` bytes of private memory.
pub fn limit_entries(bytes: u64) {
    ENTRIES_MAX.store(bytes, Ordering::Relaxed);
}

/// Half of the memory available to the process, in bytes: the machine's, or the lowest limit of its control groups.
/// [`u64::MAX`] if unknown.
pub fn half_of_memory() -> u64 {
    shared_memory::Reading::now().limit().map_or(u64::MAX, |bytes| bytes / 2)
}

/// Resident private bytes of this process, without files and shared memory; 0 if unknown.
fn own_bytes() -> u64 {
    let [resident, shared] = statm_bytes();
    resident.saturating_sub(shared)
}

/// A share of the limit on cells, held by cells or other memory that packets touch for as long as that exists.
#[derive(Debug)]
pub struct Reservation(u64);

impl Reservation {
    /// Reserves `bytes` bytes.
    ///
    /// # Errors
    /// The limit in bytes, if less than `bytes` is left.
    pub fn new(bytes: u64) -> Result<Reservation, u64> {
        let max = CELLS_MAX.load(Ordering::Relaxed);
        let with = |cells: u64| cells.checked_add(bytes).filter(|sum| *sum <= max);
        CELLS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).map_err(|_| max)?;
        Ok(Reservation(bytes))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        CELLS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Checks whether an entry may be added.
///
/// # Errors
/// The limit in bytes, if the process is over it.
pub(crate) fn entry_fits() -> Result<(), u64> {
    let max = ENTRIES_MAX.load(Ordering::Relaxed);
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    if max == u64::MAX || !(asked.is_multiple_of(MEASURE_EVERY) || OVER.load(Ordering::Relaxed)) {
        return Ok(());
    }
    let mut is_over = own_bytes() > max;
    if is_over && may_give_back() {
        give_back();
        is_over = own_bytes() > max;
    }
    OVER.store(is_over, Ordering::Relaxed);
    if is_over { Err(max) } else { Ok(()) }
}

fn may_give_back() -> bool {
    let mut last = GAVE_BACK.lock().unwrap_or_else(PoisonError::into_inner);
    let may = last.is_none_or(|last| last.elapsed() >= GIVE_BACK_EVERY);
    if may {
        *last = Some(Instant::now());
    }
    may
}
