//! Arrays of cells that packets change: zeroed on demand by the system, so that a large array takes neither memory nor time
//! until it is used, and of a size that never changes, because compiled code holds their addresses.
//!
//! Counters have one array per worker, which only that worker writes, with plain adds; readers sum them. So a cell
//! cannot be cleared: what is read is the sum less a *baseline*, which setting a counter moves.
//!
//! Threads: cells are atomics for Rust and plain words for machine code, one writer each (registers: any worker, whole
//! words). Tests: `state/tests.rs`, `tests/state_equivalence.rs`.
#![allow(unsafe_code)]

use base::entry::CounterValue;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two cache lines, so that no two workers' arrays share one, nor the pair that is prefetched together.
const ALIGN: usize = 128;

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
    /// What the allocator gave; `first` is the first line in it.
    memory: NonNull<u8>,
    first: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its memory.
unsafe impl<T: Zeroable + Send> Send for ZeroedArray<T> {}
// SAFETY: `Zeroable` types are `Sync`.
unsafe impl<T: Zeroable> Sync for ZeroedArray<T> {}

impl<T: Zeroable> ZeroedArray<T> {
    pub(super) fn new(len: u64) -> Result<ZeroedArray<T>, NoMemory> {
        let len = usize::try_from(len).map_err(|_| NoMemory)?;
        let layout = Self::layout(len).ok_or(NoMemory)?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(NoMemory)?;
        let skipped = memory.addr().get().next_multiple_of(ALIGN) - memory.addr().get();
        // SAFETY: the layout has room for whole lines behind the skipped bytes.
        let first = unsafe { memory.add(skipped) }.cast();
        Ok(ZeroedArray { memory, first, len })
    }
}

impl<T> ZeroedArray<T> {
    /// Whole lines, and what is skipped before the first. The allocator is not asked for the alignment: it has zeroed
    /// pages only for what needs none, and would write the zeros itself.
    fn layout(len: usize) -> Option<Layout> {
        let bytes = Layout::array::<T>(len).ok()?.size().checked_next_multiple_of(ALIGN)?.checked_add(ALIGN)?;
        Layout::from_size_align(bytes, align_of::<T>()).ok()
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.first.as_ptr()
    }
}

impl<T> Deref for ZeroedArray<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie there; zeros are values.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for ZeroedArray<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.len).expect("it was allocated with this layout");
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.memory.as_ptr(), layout) };
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
        let bytes = value.resize_u(self.width).to_bytes_be();
        let mut words = bytes.rchunks(8).map(|chunk| chunk.iter().fold(0, |word, b| word << 8 | u64::from(*b)));
        cell.iter().for_each(|w| w.store(words.next().unwrap_or(0), Ordering::Relaxed));
        true
    }
}
