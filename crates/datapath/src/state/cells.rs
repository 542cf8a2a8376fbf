//! Arrays of cells that packets change. The system zeroes pages on demand, so a large array takes neither memory nor
//! time until it is used; arrays of two megabytes and more use huge pages. Sizes never change, because compiled code
//! contains the addresses.
//!
//! Counters have one array per worker, which only that worker writes, with plain adds; readers sum them. So a cell
//! cannot be cleared: the value is the sum minus a *baseline*, and setting a counter changes the baseline.
//!
//! Threads: cells are atomics for Rust and plain words for machine code, with one writer each (registers: any worker,
//! complete words). Tests: `state/tests.rs`, `tests/state_equivalence.rs`.
#![allow(unsafe_code)]

use crate::memory::Reservation;
use base::entry::CounterValue;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use tables::region::Region;

/// Two cache lines, so that no two workers' arrays share a line or a pair of lines that is prefetched together.
#[derive(Debug)]
#[repr(align(128))]
struct Lines {
    _words: [AtomicU64; 16],
}

/// There is not enough memory. Holds the limit in bytes on all cells together, if it was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoMemory(pub(super) Option<u64>);

/// Types for which all-zero bytes are a valid value, and which change only through shared references.
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
    _reserved: Reservation,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Zeroable> ZeroedArray<T> {
    pub(super) fn new(len: u64) -> Result<ZeroedArray<T>, NoMemory> {
        const { assert!(align_of::<T>() <= align_of::<Lines>()) };
        let len = usize::try_from(len).map_err(|_| NoMemory(None))?;
        let bytes = len.checked_mul(size_of::<T>()).ok_or(NoMemory(None))?;
        let reserved = Reservation::new(bytes as u64).map_err(|max| NoMemory(Some(max)))?;
        // SAFETY: integers, of which zero is one.
        let memory = unsafe { Region::try_zeroed(bytes.div_ceil(size_of::<Lines>()).max(1)) }.ok_or(NoMemory(None))?;
        Ok(ZeroedArray { memory, _reserved: reserved, len, of: PhantomData })
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
    /// One array per worker.
    cells: Vec<ZeroedArray<[AtomicU64; 2]>>,
    /// Subtracted from the sums; written by the control plane alone.
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

    /// Counts a packet of `bytes` bytes; to be called on `worker`'s own thread. Ignored if there is no such cell.
    pub(super) fn count(&self, worker: usize, index: u64, bytes: u64) {
        self.count_many(worker, index, 1, bytes);
    }

    /// As [`Counters::count`], for `count` packets with `bytes` bytes in total.
    pub(super) fn count_many(&self, worker: usize, index: u64, count: u64, bytes: u64) {
        let cell = usize::try_from(index).ok().and_then(|index| self.cells.get(worker)?.get(index));
        if let Some([packets, octets]) = cell {
            // This worker is the only writer.
            packets.store(packets.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
            octets.store(octets.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        }
    }

    /// Prefetches a worker's cell, if there is one.
    pub(super) fn prefetch(&self, worker: usize, index: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Some(cells) = self.cells.get(worker).filter(|cells| index < cells.len() as u64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect but on caches.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(cells.as_ptr().wrapping_add(index as usize).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (worker, index);
    }

    fn sum(&self, index: usize) -> [u64; 2] {
        self.cells.iter().fold([0; 2], |sum, cells| add(sum, load(&cells[index])))
    }

    pub(super) fn get(&self, index: u64) -> Option<CounterValue> {
        let index = usize::try_from(index).ok().filter(|i| *i < self.baseline.len())?;
        let [packets, bytes] = subtract(self.sum(index), load(&self.baseline[index]));
        Some(CounterValue { packets, bytes })
    }

    /// Sets a cell's value; `false` if there is no such cell.
    pub(super) fn set(&self, index: u64, value: CounterValue) -> bool {
        let Some(index) = usize::try_from(index).ok().filter(|i| *i < self.baseline.len()) else { return false };
        let baseline = subtract(self.sum(index), [value.packets, value.bytes]);
        // An untouched zero page stays untouched.
        if load(&self.baseline[index]) != baseline {
            self.baseline[index].iter().zip(baseline).for_each(|(cell, v)| cell.store(v, Ordering::Relaxed));
        }
        true
    }

    /// Adds to a cell without losing concurrent counts of packets; `false` if there is no such cell.
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

/// A register array; `abi::register_cell_bytes` and `abi::register_stride_bytes` define the layout of its cells.
#[derive(Debug)]
pub(super) struct Registers {
    memory: ZeroedArray<AtomicU64>,
    width: u32,
    size: u64,
    has_locks: bool,
    /// The repeating pattern of words in a fresh array, gaps between cells included.
    initial: Vec<u64>,
    /// See [`Registers::look`].
    footprint_bytes: AtomicU64,
    looks: AtomicU64,
}

/// Cache lines sampled to estimate how much of a register is in use.
const LINES_LOOKED_AT: u64 = 2048;
const LINE_WORDS: usize = 8;

impl Registers {
    pub(super) fn new(size: u64, width: u32, initial: &base::Bits, has_locks: bool) -> Result<Registers, NoMemory> {
        let stride = abi::register_stride_bytes(width, has_locks) as usize;
        let bytes = size.checked_mul(stride as u64).ok_or(NoMemory(None))?;
        let memory = ZeroedArray::new(bytes.div_ceil(8))?;
        let mut registers = Registers {
            memory,
            width,
            size,
            has_locks,
            initial: Vec::new(),
            footprint_bytes: 0.into(),
            looks: 0.into(),
        };
        let mut words = registers.words_of(initial);
        if let (1..8, [word]) = (stride, &mut words[..]) {
            *word = (0..8 / stride).fold(0, |all, i| all | *word << (8 * stride * i));
        }
        words.resize(stride.div_ceil(8), 0);
        registers.initial = words;
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
        self.memory.as_ptr().cast()
    }

    /// Whether each cell has a lock.
    pub(super) fn has_locks(&self) -> bool {
        self.has_locks
    }

    fn cell_bytes(&self) -> usize {
        abi::register_cell_bytes(self.width) as usize
    }

    /// Bytes from one cell to the next.
    fn stride_bytes(&self) -> usize {
        abi::register_stride_bytes(self.width, self.has_locks) as usize
    }

    /// Approximate number of bytes that packets have written to; 0 before the first [`look`](Registers::look).
    pub(super) fn footprint_bytes(&self) -> u64 {
        self.footprint_bytes.load(Ordering::Relaxed)
    }

    /// Estimates how much is in use: the fraction of sampled cache lines (different ones each time) with a cell that
    /// differs from its initial value. The previous estimate is kept unless it is off by a factor of two.
    pub(super) fn look(&self) {
        let lines = self.memory.len().div_ceil(LINE_WORDS) as u64;
        let looked_at = lines.min(LINES_LOOKED_AT);
        let first = self.looks.fetch_add(1, Ordering::Relaxed);
        let words = (self.size as usize * self.stride_bytes()) / 8;
        // Stratified sampling: one line at a varying position in each of `looked_at` equal parts.
        let is_used = |i: &u64| {
            let (start, end) = (i * lines / looked_at, (i + 1) * lines / looked_at);
            let line = start + (first.wrapping_add(*i)).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (end - start);
            let here = line as usize * LINE_WORDS..((line as usize + 1) * LINE_WORDS).min(words);
            let initial = |word: usize| self.initial[word % self.initial.len()];
            here.into_iter().any(|word| self.memory[word].load(Ordering::Relaxed) != initial(word))
        };
        let used = (0..looked_at).filter(is_used).count() as u64;
        let bytes = (used * lines).checked_div(looked_at).unwrap_or(0) * 8 * LINE_WORDS as u64;
        let before = self.footprint_bytes();
        if bytes < before / 2 || bytes / 2 > before {
            self.footprint_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// The number of 64-bit words of a cell's value.
    fn words(&self) -> usize {
        self.width.div_ceil(64) as usize
    }

    /// Reads a word of an existing cell.
    fn load(&self, index: u64, word: usize) -> u64 {
        let at = self.at(index, word);
        // SAFETY: the cell is in the array and aligned to its size; every writer writes a whole word.
        unsafe {
            match self.cell_bytes() {
                1 => AtomicU8::from_ptr(at).load(Ordering::Relaxed).into(),
                2 => AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed).into(),
                4 => AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed).into(),
                _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed),
            }
        }
    }

    /// Writes a word of an existing cell if it differs, so that an untouched zero page stays untouched.
    fn store(&self, index: u64, word: usize, value: u64) {
        if self.load(index, word) == value {
            return;
        }
        let at = self.at(index, word);
        // SAFETY: as above.
        unsafe {
            match self.cell_bytes() {
                1 => AtomicU8::from_ptr(at).store(value as u8, Ordering::Relaxed),
                2 => AtomicU16::from_ptr(at.cast()).store(value as u16, Ordering::Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Relaxed),
                _ => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Relaxed),
            }
        }
    }

    fn at(&self, index: u64, word: usize) -> *mut u8 {
        assert!(index < self.size);
        self.memory.as_ptr().cast::<u8>().wrapping_add(index as usize * self.stride_bytes() + 8 * word)
    }

    pub(super) fn get(&self, index: u64) -> Option<base::Bits> {
        if index >= self.size {
            return None;
        }
        let word = |word| u128::from(self.load(index, word));
        Some(match self.words() {
            0 => base::Bits::zero(0),
            1 => base::Bits::new(self.width, word(0)),
            2 => base::Bits::new(self.width, word(1) << 64 | word(0)),
            words => {
                let bytes: Vec<u8> = (0..words).rev().flat_map(|word| self.load(index, word).to_be_bytes()).collect();
                base::Bits::from_bytes_be(self.width, &bytes)
            }
        })
    }

    /// Sets a cell's value; `false` if there is no such cell.
    pub(super) fn set(&self, index: u64, value: &base::Bits) -> bool {
        if index >= self.size {
            return false;
        }
        self.words_of(value).into_iter().enumerate().for_each(|(i, word)| self.store(index, i, word));
        true
    }

    /// The 64-bit words of a value, least significant first.
    fn words_of(&self, value: &base::Bits) -> Vec<u64> {
        let bytes = value.resize_u(self.width).to_bytes_be();
        let words = bytes.rchunks(8).map(|chunk| chunk.iter().fold(0, |word, b| word << 8 | u64::from(*b)));
        words.chain(std::iter::repeat(0)).take(self.words()).collect()
    }

    /// Copies another array's cells. Cells that hold its initial value, `before`, get this array's, `after`. Does
    /// nothing if the widths differ.
    pub(super) fn take(&self, from: &Registers, before: &base::Bits, after: &base::Bits) {
        if self.width != from.width {
            return;
        }
        let (before, after) = (from.words_of(before), self.words_of(after));
        for index in 0..self.size.min(from.size) {
            let was: Vec<u64> = (0..self.words()).map(|word| from.load(index, word)).collect();
            let now = if was == before { &after } else { &was };
            now.iter().enumerate().for_each(|(i, word)| self.store(index, i, *word));
        }
    }
}
