//! How much memory programs' state may take in this process.
//!
//! A program declares how many cells its counters, meters and registers have, and packets touch them one by one: a small program and small
//! packets could use up all memory long after both were accepted. So cells are refused when a program is loaded, by what all
//! programs' cells would take if every one were touched. Entries take memory when they are added; then the process itself is measured.
//!
//! Both bounds are the process's and are off until they are set. Tests: `tests/state_memory.rs`.

use super::process::{give_back, statm_bytes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that cells may take; [`u64::MAX`] for no bound.
static CELLS_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// Bytes of the cells that there are.
static CELLS: AtomicU64 = AtomicU64::new(0);
/// Bytes of the process up to which entries may be added; likewise.
static ENTRIES_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
/// Entries that were asked for.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// The process was over the bound when it was measured last.
static OVER: AtomicBool = AtomicBool::new(false);
/// When freed memory was given back last because of the bound.
static GAVE_BACK: Mutex<Option<Instant>> = Mutex::new(None);

/// The process is measured for one in so many entries: reading the figure takes as long as adding some ten entries.
const MEASURE_EVERY: u64 = 1024;
/// Giving freed memory back interrupts workers, so it is not done more often.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// Limits the bytes of all programs' cells. Cells that exist already are kept, even beyond the limit.
pub fn limit_cells(bytes: u64) {
    CELLS_MAX.store(bytes, Ordering::Relaxed);
}

/// Refuses entries while the process has more bytes of memory of its own than this.
pub fn limit_entries(bytes: u64) {
    ENTRIES_MAX.store(bytes, Ordering::Relaxed);
}

/// Half of the memory that the process may have: the machine's, or the least limit of the control groups that it is in. In bytes; no bound
/// where the system does not say.
pub fn half_of_memory() -> u64 {
    shared_memory::Reading::now().limit().map_or(u64::MAX, |bytes| bytes / 2)
}

/// Bytes of this process in memory that are its own: neither files nor memory that it shares; 0 where the system does not say.
fn own_bytes() -> u64 {
    let [resident, shared] = statm_bytes();
    resident.saturating_sub(shared)
}

/// The part of the bound on cells that some of them take, or memory of another kind that packets touch, for as long as they live.
#[derive(Debug)]
pub struct Reservation(u64);

impl Reservation {
    /// For so many bytes.
    ///
    /// # Errors
    /// The bound in bytes, if they are more than is left.
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

/// Whether an entry may be added; the bound in bytes if not.
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
