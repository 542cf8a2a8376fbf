//! Arrays of cells that packets change: zeroed on demand by the system, so that a large array takes neither memory nor time
//! until it is used, in huge pages from two megabytes on, and of a size that never changes, because compiled code holds
//! their addresses.
//!
//! Counters have one array per worker, which only that worker writes, with plain adds; readers sum them. So a cell
//! cannot be cleared: what is read is the sum less a *baseline*, which setting a counter moves.
//!
//! Threads: cells are atomics for Rust and plain words for machine code, one writer each (registers: any worker, whole
//! words). Tests: `state/tests.rs`, `tests/state_equivalence.rs`.
#![allow(unsafe_code)]

use base::entry::CounterValue;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use tables::region::Region;

/// Two cache lines, so that no two workers' arrays share one, nor the pair that is prefetched together.
#[derive(Debug)]
#[repr(align(128))]
struct Lines {
    _words: [AtomicU64; 16],
}

/// There is not enough memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoMemory;

/// What all zero bytes are a value of, and what is changed only through shared references.
///
/// # Safety
/// All zero bytes are a valid value; dropping does nothing.
pub(super) unsafe trait Zeroable: Sync {}

// SAFETY: integers.
unsafe impl Zeroable for AtomicU64 {}
// SAFETY: integers.
unsafe impl Zeroable for [AtomicU64; 2] {}

/// An array of zeros that never moves.
#[derive(Debug)]
pub(super) struct ZeroedArray<T> {
    memory: Region<Lines>,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Zeroable> ZeroedArray<T> {
    pub(super) fn new(len: u64) -> Result<ZeroedArray<T>, NoMemory> {
        const { assert!(align_of::<T>() <= align_of::<Lines>()) };
        let len = usize::try_from(len).map_err(|_| NoMemory)?;
        let bytes = len.checked_mul(size_of::<T>()).ok_or(NoMemory)?;
        // SAFETY: integers, of which zero is one.
        let memory = unsafe { Region::try_zeroed(bytes.div_ceil(size_of::<Lines>()).max(1)) }.ok_or(NoMemory)?;
        Ok(ZeroedArray { memory, len, of: PhantomData })
    }
}

impl<T> ZeroedArray<T> {
    pub(super) fn as_ptr(&self) -> *mut T {
        self.memory.as_mut_ptr().cast()
    }
}

impl<T: Zeroable> Deref for ZeroedArray<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie there; zeros are values.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

/// A counter array: packets and bytes per cell.
#[derive(Debug)]
pub(super) struct Counters {
    /// By worker.
    cells: Vec<ZeroedArray<[AtomicU64; 2]>>,
    /// What is taken off the sums; the control plane's.
    baseline: ZeroedArray<[AtomicU64; 2]>,
}

impl Counters {
    pub(super) fn new(size: u64, workers: usize) -> Result<Counters, NoMemory> {
        let cells = (0..workers).map(|_| ZeroedArray::new(size)).collect::<Result<_, _>>()?;
        Ok(Counters { cells, baseline: ZeroedArray::new(size)? })
    }

    pub(super) fn size(&self) -> u64 {
        self.baseline.len() as u64
    }

    /// The first cell of a worker's array.
    pub(super) fn of_worker(&self, worker: usize) -> *mut [u64; 2] {
        self.cells[worker].as_ptr().cast()
    }

    /// Counts a packet of `bytes` on `worker`'s own thread; nothing if there is no such cell.
    pub(super) fn count(&self, worker: usize, index: u64, bytes: u64) {
        let cell = usize::try_from(index).ok().and_then(|index| self.cells.get(worker)?.get(index));
        if let Some([packets, octets]) = cell {
            // Nobody else writes there.
            packets.store(packets.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            octets.store(octets.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        }
    }

    fn sum(&self, index: usize) -> [u64; 2] {
        self.cells.iter().fold([0; 2], |sum, cells| add(sum, load(&cells[index])))
    }

    pub(super) fn get(&self, index: u64) -> Option<CounterValue> {
        let index = usize::try_from(index).ok().filter(|i| *i < self.baseline.len())?;
        let [packets, bytes] = subtract(self.sum(index), load(&self.baseline[index]));
        Some(CounterValue { packets, bytes })
    }

    /// False if there is no such cell.
    pub(super) fn set(&self, index: u64, value: CounterValue) -> bool {
        let Some(index) = usize::try_from(index).ok().filter(|i| *i < self.baseline.len()) else { return false };
        let baseline = subtract(self.sum(index), [value.packets, value.bytes]);
        // An untouched page of zeros stays one.
        if load(&self.baseline[index]) != baseline {
            self.baseline[index].iter().zip(baseline).for_each(|(cell, v)| cell.store(v, Ordering::Relaxed));
        }
        true
    }

    /// Adds to a cell, without loss of what packets count meanwhile. False if there is no such cell.
    pub(super) fn add(&self, index: u64, value: CounterValue) -> bool {
        let Some(index) = usize::try_from(index).ok().filter(|i| *i < self.baseline.len()) else { return false };
        if value != CounterValue::default() {
            let baseline = subtract(load(&self.baseline[index]), [value.packets, value.bytes]);
            self.baseline[index].iter().zip(baseline).for_each(|(cell, v)| cell.store(v, Ordering::Relaxed));
        }
        true
    }
}

fn load(cell: &[AtomicU64; 2]) -> [u64; 2] {
    [cell[0].load(Ordering::Relaxed), cell[1].load(Ordering::Relaxed)]
}

fn add(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])]
}

fn subtract(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].wrapping_sub(b[0]), a[1].wrapping_sub(b[1])]
}

/// A register array: `ceil(width / 64)` little-endian words per cell.
#[derive(Debug)]
pub(super) struct Registers {
    words: ZeroedArray<AtomicU64>,
    width: u32,
    size: u64,
}

impl Registers {
    pub(super) fn new(size: u64, width: u32, initial: &base::Bits) -> Result<Registers, NoMemory> {
        let words = ZeroedArray::new(size.checked_mul(u64::from(width.div_ceil(64))).ok_or(NoMemory)?)?;
        let registers = Registers { words, width, size };
        if !initial.is_zero() {
            (0..size).for_each(|index| _ = registers.set(index, initial));
        }
        Ok(registers)
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn width(&self) -> u32 {
        self.width
    }

    pub(super) fn first(&self) -> *mut u64 {
        self.words.as_ptr().cast()
    }

    fn cell(&self, index: u64) -> Option<&[AtomicU64]> {
        let words = self.width.div_ceil(64) as usize;
        (index < self.size).then(|| &self.words[index as usize * words..][..words])
    }

    pub(super) fn get(&self, index: u64) -> Option<base::Bits> {
        let bytes: Vec<u8> =
            self.cell(index)?.iter().rev().flat_map(|w| w.load(Ordering::Relaxed).to_be_bytes()).collect();
        Some(base::Bits::from_bytes_be(self.width, &bytes))
    }

    /// False if there is no such cell.
    pub(super) fn set(&self, index: u64, value: &base::Bits) -> bool {
        let Some(cell) = self.cell(index) else { return false };
        cell.iter().zip(self.words_of(value)).for_each(|(w, word)| w.store(word, Ordering::Relaxed));
        true
    }

    /// A value as a cell holds it.
    fn words_of(&self, value: &base::Bits) -> Vec<u64> {
        let bytes = value.resize_u(self.width).to_bytes_be();
        let words = bytes.rchunks(8).map(|chunk| chunk.iter().fold(0, |word, b| word << 8 | u64::from(*b)));
        words.chain(std::iter::repeat(0)).take(self.width.div_ceil(64) as usize).collect()
    }

    /// Takes over another array's cells; those that hold its initial value, `before`, get ours, `after`. Nothing if their
    /// width is another.
    pub(super) fn take(&self, from: &Registers, before: &base::Bits, after: &base::Bits) {
        if self.width != from.width {
            return;
        }
        let (before, after) = (from.words_of(before), self.words_of(after));
        for index in 0..self.size.min(from.size) {
            let (Some(was), Some(now)) = (from.cell(index), self.cell(index)) else { return };
            let initial = was.iter().zip(&before).all(|(cell, word)| cell.load(Ordering::Relaxed) == *word);
            for (i, (was, now)) in was.iter().zip(now).enumerate() {
                let value = if initial { after[i] } else { was.load(Ordering::Relaxed) };
                // An untouched page of zeros stays one.
                if now.load(Ordering::Relaxed) != value {
                    now.store(value, Ordering::Relaxed);
                }
            }
        }
    }
}
