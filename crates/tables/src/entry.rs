//! Entry memory: where the [`EntryHeader`]s and parameters that readers see are made, laid out and recycled.
//!
//! Entries are small and many, and a packet touches one per table, so they are cut from chunks in sizes that do not
//! straddle cache lines: 32 bytes (no parameters), 64 (up to four words), then multiples of 64. Freed cells are kept
//! for the next entry of their size; chunks go back to the system with the [`EntryMemory`].
//!
//! An entry never changes once published, but for `last_hit_us`. Freeing is the owner's decision: only after every
//! worker has been quiescent ([`crate::reclaim`]).
//!
//! Threads: the writer's. Tests: `entry/tests.rs`.
#![allow(unsafe_code)]

use abi::EntryHeader;
use abi::table::param_offsets;
use base::Bits;
use base::entry::ActionCall;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The action of an entry that has none of its own because a group decides.
pub const NO_ACTION: u32 = u32::MAX;
/// The index of entries that have no direct resources: defaults and profile members.
pub const NO_INDEX: u32 = u32::MAX;

/// Cells of up to this size are cut from chunks; larger ones are allocated alone.
const LARGEST_CELL: usize = 512;
/// Bytes of a chunk of cells.
const CHUNK_BYTES: usize = 64 << 10;
const LINE: usize = 64;

/// The parameters of one action in an entry.
#[derive(Debug)]
struct ActionShape {
    widths: Vec<u32>,
    offsets: Vec<u32>,
    cell: usize,
}

/// What an entry runs.
#[derive(Clone, Copy, Debug)]
pub enum Runs<'a> {
    /// An action.
    Call(&'a ActionCall),
    /// The member that a group chooses; the pointer is a [`crate::selector::Group`]'s.
    Group(*const c_void),
    /// The member that a group chooses, and this action when it has none: a default action has nothing behind it.
    GroupOr(*const c_void, &'a ActionCall),
}

/// What an entry carries besides its action.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// The cell of its direct resources, or [`NO_INDEX`].
    pub index: u32,
    /// Whether readers note their hits.
    pub touch: bool,
    /// The first time of a hit, in microseconds.
    pub last_hit_us: u64,
}

impl Tag {
    /// Of defaults and members.
    pub const NONE: Tag = Tag { index: NO_INDEX, touch: false, last_hit_us: 0 };
}

/// The entries of one table or profile.
#[derive(Debug)]
pub struct EntryMemory {
    actions: Vec<ActionShape>,
    /// Free cells of 32, 64, 128, 192, ... bytes.
    free: Vec<FreeCells>,
    chunks: Vec<*mut u8>,
}

/// The free cells of one size.
#[derive(Debug)]
struct FreeCells {
    given_back: Vec<*mut EntryHeader>,
    /// Cells at the end of the latest chunk that were never handed out: the first one and their number.
    fresh: (*mut u8, usize),
}

// SAFETY: the pointers are to memory that this value owns; it is not shared with other writers.
unsafe impl Send for EntryMemory {}

fn cell_bytes(bytes: usize) -> usize {
    if bytes <= LINE / 2 { LINE / 2 } else { bytes.next_multiple_of(LINE) }
}

fn chunk_layout() -> Layout {
    Layout::from_size_align(CHUNK_BYTES, LINE).expect("a chunk is no larger than memory")
}

fn large_layout(cell: usize) -> Layout {
    Layout::from_size_align(cell, LINE).expect("an entry is no larger than memory")
}

impl EntryMemory {
    /// Memory for entries that run one of `actions`, given by the widths of their parameters.
    pub fn new(actions: &[Vec<u32>]) -> EntryMemory {
        let shape = |widths: &Vec<u32>| {
            let (offsets, bytes) = param_offsets(widths.iter().copied());
            ActionShape { widths: widths.clone(), offsets, cell: cell_bytes(bytes as usize) }
        };
        let classes = LARGEST_CELL / LINE + 1;
        EntryMemory {
            actions: actions.iter().map(shape).collect(),
            free: (0..classes).map(|_| FreeCells { given_back: Vec::new(), fresh: (ptr::null_mut(), 0) }).collect(),
            chunks: Vec::new(),
        }
    }

    /// Byte offset of each parameter behind an entry's start, by action and parameter.
    pub fn param_offsets(&self) -> Vec<Vec<u32>> {
        self.actions.iter().map(|a| a.offsets.clone()).collect()
    }

    /// Whether `call` names one of the actions and has a value of the right width for each parameter.
    pub fn accepts(&self, call: &ActionCall) -> bool {
        self.actions.get(call.action as usize).is_some_and(|a| {
            a.widths.len() == call.args.len() && a.widths.iter().zip(&call.args).all(|(w, v)| *w == v.width())
        })
    }

    /// A new entry. `runs` must be [accepted](EntryMemory::accepts).
    pub fn make(&mut self, runs: Runs<'_>, tag: Tag) -> *mut EntryHeader {
        let (action, group) = match runs {
            Runs::Call(call) => (call.action, ptr::null()),
            Runs::Group(group) => (NO_ACTION, group),
            Runs::GroupOr(group, call) => (call.action, group),
        };
        let entry = self.cell(self.cell_of(action));
        let header = EntryHeader {
            action,
            index: tag.index,
            group,
            last_hit_us: AtomicU64::new(tag.last_hit_us),
            flags: if tag.touch { EntryHeader::TOUCH } else { 0 },
            reserved: 0,
        };
        // SAFETY: the cell is free, aligned and large enough for the header and the action's parameters.
        unsafe { entry.write(header) };
        if let Runs::Call(call) | Runs::GroupOr(_, call) = runs {
            let shape = &self.actions[call.action as usize];
            for ((offset, width), value) in shape.offsets.iter().zip(&shape.widths).zip(&call.args) {
                // SAFETY: the offset is inside the cell and a multiple of 8.
                let words = unsafe { entry.cast::<u8>().add(*offset as usize).cast::<u64>() };
                write_words(value, width.div_ceil(64) as usize, |i, word| {
                    // SAFETY: a parameter has `ceil(width / 64)` words.
                    unsafe { words.add(i).write(word) }
                });
            }
        }
        entry
    }

    /// Takes an entry back.
    ///
    /// # Safety
    /// `entry` came from [`make`](EntryMemory::make) of this memory, is freed once, and no reader can hold it.
    pub unsafe fn free(&mut self, entry: *mut EntryHeader) {
        // SAFETY: the caller's promise: the entry is still there.
        let cell = self.cell_of(unsafe { (*entry).action });
        if cell > LARGEST_CELL {
            // SAFETY: a cell of this size was allocated alone with this layout.
            unsafe { dealloc(entry.cast(), large_layout(cell)) };
        } else {
            self.free[cell / LINE].given_back.push(entry);
        }
    }

    /// The action that an entry runs by itself; `None` if a group decides.
    ///
    /// # Safety
    /// `entry` is a live entry of this memory.
    pub unsafe fn call(&self, entry: *const EntryHeader) -> Option<ActionCall> {
        // SAFETY: the caller's promise.
        let action = unsafe { (*entry).action };
        let shape = self.actions.get(action as usize)?;
        let arg = |(offset, width): (&u32, &u32)| {
            // SAFETY: the parameter lies inside the entry; its words were written before it was published.
            let word = |i: usize| unsafe { entry.cast::<u8>().add(*offset as usize).cast::<u64>().add(i).read() };
            read_words(*width, word)
        };
        Some(ActionCall { action, args: shape.offsets.iter().zip(&shape.widths).map(arg).collect() })
    }

    fn cell_of(&self, action: u32) -> usize {
        self.actions.get(action as usize).map_or(cell_bytes(EntryHeader::SIZE), |a| a.cell)
    }

    fn cell(&mut self, bytes: usize) -> *mut EntryHeader {
        if bytes > LARGEST_CELL {
            let layout = large_layout(bytes);
            // SAFETY: the layout is not empty.
            let cell = unsafe { alloc(layout) };
            if cell.is_null() {
                handle_alloc_error(layout);
            }
            return cell.cast();
        }
        let FreeCells { given_back, fresh: (fresh, left) } = &mut self.free[bytes / LINE];
        if let Some(cell) = given_back.pop() {
            return cell;
        }
        if *left == 0 {
            // SAFETY: the layout is not empty.
            *fresh = unsafe { alloc(chunk_layout()) };
            if fresh.is_null() {
                handle_alloc_error(chunk_layout());
            }
            self.chunks.push(*fresh);
            *left = CHUNK_BYTES / bytes;
        }
        let cell = *fresh;
        *left -= 1;
        // SAFETY: the cells that are left, `cell` among them, are inside the chunk.
        *fresh = unsafe { fresh.add(bytes) };
        cell.cast()
    }
}

impl Drop for EntryMemory {
    /// Frees the chunks. Entries above [`LARGEST_CELL`] are the owner's to free first.
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: allocated with this layout and freed once.
            unsafe { dealloc(chunk, chunk_layout()) };
        }
    }
}

/// Microseconds of the clock at the last hit.
///
/// # Safety
/// `entry` is a live entry.
pub unsafe fn last_hit_us(entry: *const EntryHeader) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (*entry).last_hit_us.load(Ordering::Relaxed) }
}

/// Hands the `count` little-endian words of a value to `put`.
pub(crate) fn write_words(value: &Bits, count: usize, mut put: impl FnMut(usize, u64)) {
    if let Some(value) = value.to_u128() {
        for i in 0..count {
            put(i, if i < 2 { (value >> (64 * i)) as u64 } else { 0 });
        }
        return;
    }
    let bytes = value.to_bytes_be();
    let mut words = bytes.rchunks(8).map(|chunk| chunk.iter().fold(0, |word, b| word << 8 | u64::from(*b)));
    for i in 0..count {
        put(i, words.next().unwrap_or(0));
    }
}

/// The value whose little-endian words `word` gives.
pub(crate) fn read_words(width: u32, word: impl Fn(usize) -> u64) -> Bits {
    match width {
        0..=64 => Bits::new(width, u128::from(word(0))),
        65..=128 => Bits::new(width, u128::from(word(0)) | u128::from(word(1)) << 64),
        _ => {
            let words = width.div_ceil(64) as usize;
            let bytes: Vec<u8> = (0..words).rev().flat_map(|i| word(i).to_be_bytes()).collect();
            Bits::from_bytes_be(width, &bytes)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
