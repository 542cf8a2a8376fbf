//! Entries: writing and reading them in a memory cell ([`EntryWriter`]; `abi::entry` has their layout), and the memory
//! of those that readers reach through pointers ([`EntryMemory`]). Entries in the buckets of an exact table
//! ([`crate::exact`]) use the same writer.
//!
//! An entry does not change once it is published, except for the time of its last hit. Its owner frees it only after
//! every worker has been quiescent ([`crate::reclaim`]).
//!
//! Threads: writer only. Tests: `entry/tests.rs`.
#![allow(unsafe_code)]

use crate::bytes::{get_le, put_le_at};
use crate::cells::{Cells, Row};
use abi::entry::param_bytes;
use abi::{EntryHeader, EntryLayout, EntryParts, EntryShape};
use base::Bits;
use base::entry::{ActionCall, EntryAction};
use std::ffi::c_void;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a packet that matches an entry runs.
#[derive(Clone, Copy, Debug)]
pub enum Runs<'a> {
    /// An action.
    Call(&'a ActionCall),
    /// The member that a group selects; the pointer is to a [`crate::selector::Group`].
    Group(*const c_void),
    /// The member that a group selects, or this action if it has none; for default actions, which have no other
    /// fallback.
    GroupOr(*const c_void, &'a ActionCall),
}

/// What an entry stores besides what it runs. Parts that the table's layout does not have are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// The index of its direct resources, or [`EntryLayout::NO_INDEX`].
    pub index: u32,
    /// The initial time of the last hit, in microseconds.
    pub last_hit_us: u64,
    /// The idle timeout that the control plane set, in nanoseconds.
    pub idle_timeout_ns: u64,
    /// The source of its action.
    pub source: Source,
}

impl Tag {
    /// The tag of default entries and members: nothing.
    pub const NONE: Tag =
        Tag { index: EntryLayout::NO_INDEX, last_hit_us: 0, idle_timeout_ns: 0, source: Source::Call };
}

/// What an entry's action was given by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Source {
    /// The entry itself.
    #[default]
    Call,
    /// A member of the table's action profile.
    Member(u32),
    /// A group.
    Group(u32),
}

impl Source {
    /// The source that an entry's action names.
    pub fn of(action: &EntryAction) -> Source {
        match action {
            EntryAction::Call(_) => Source::Call,
            EntryAction::Member(member) => Source::Member(*member),
            EntryAction::Group(group) => Source::Group(*group),
        }
    }
}

/// Writes and reads the entries of one table or profile, wherever they lie.
#[derive(Clone, Debug)]
pub struct EntryWriter {
    layout: EntryLayout,
    /// Widths in bits of each action's parameters.
    widths: Vec<Vec<u32>>,
}

impl EntryWriter {
    /// An entry's address and action call, for specialised code. The call is `None` if a group selects the action.
    ///
    /// # Safety
    /// `entry` is a live entry of this writer.
    pub(crate) unsafe fn shape(&self, entry: *const EntryHeader) -> EntryShape {
        // SAFETY: the caller's promise.
        let call = unsafe {
            match self.group(entry).is_null() {
                true => self.call(entry),
                false => None,
            }
        };
        EntryShape { entry, call }
    }

    /// A writer for entries that run one of `actions`, given by the widths of their parameters in bits.
    pub fn new(actions: &[Vec<u32>], parts: EntryParts) -> EntryWriter {
        EntryWriter { layout: EntryLayout::new(actions, parts), widths: actions.to_vec() }
    }

    /// The entries' layout.
    pub fn layout(&self) -> &EntryLayout {
        &self.layout
    }

    /// Whether `call` names one of the actions and has an argument of the right width for each parameter.
    pub fn accepts(&self, call: &ActionCall) -> bool {
        self.widths.get(call.action as usize).is_some_and(|widths| {
            widths.len() == call.args.len() && widths.iter().zip(&call.args).all(|(w, v)| *w == v.width())
        })
    }

    /// Size in bytes of an entry that runs this.
    pub fn bytes(&self, runs: Runs<'_>) -> usize {
        self.layout.bytes(self.action_of(runs).0) as usize
    }

    fn action_of<'a>(&self, runs: Runs<'a>) -> (u32, Option<&'a ActionCall>, *const c_void) {
        match runs {
            Runs::Call(call) => (call.action, Some(call), ptr::null()),
            Runs::Group(group) => (self.layout.no_action(), None, group),
            Runs::GroupOr(group, call) => (call.action, Some(call), group),
        }
    }

    /// Writes an entry into a cell. Returns its address. `runs` must be [accepted](EntryWriter::accepts).
    ///
    /// # Safety
    /// The cell has [`bytes`](EntryWriter::bytes) bytes for `runs`, which no one else accesses. It is aligned to 8 if
    /// entries have a time of the last hit.
    pub unsafe fn write(&self, cell: *mut u8, runs: Runs<'_>, tag: Tag) -> *mut EntryHeader {
        let EntryLayout { action_bytes, params, last_hit, idle_timeout, group, index, source, before, .. } =
            &self.layout;
        let (action, call, pointer) = self.action_of(runs);
        // SAFETY: the entry begins `before` bytes after the start of the cell.
        let entry = unsafe { cell.add(*before as usize) };
        let put = |offset: &Option<i32>, word: u64, bytes: usize| {
            if let Some(offset) = offset {
                // SAFETY: the layout's parts are inside the cell, which no one else accesses.
                unsafe { put_le_at(entry.offset(*offset as isize), bytes, word) };
            }
        };
        put(last_hit, tag.last_hit_us, 8);
        put(idle_timeout, tag.idle_timeout_ns, 8);
        put(group, pointer as usize as u64, 8);
        put(index, tag.index.into(), 4);
        let (id, kind) = match tag.source {
            Source::Call => (0, 0),
            Source::Member(id) => (id, 1),
            Source::Group(id) => (id, 2),
        };
        put(source, u64::from(id) | kind << 32, 5);
        put(&Some(0), action.into(), *action_bytes as usize);
        if let Some(call) = call {
            let (offsets, widths) = (&params[action as usize], &self.widths[action as usize]);
            for ((offset, width), value) in offsets.iter().zip(widths).zip(&call.args) {
                let bytes = param_bytes(*width) as usize;
                write_words(value, width.div_ceil(64) as usize, |i, word| {
                    put(&Some((*offset as usize + 8 * i) as i32), word, (bytes - 8 * i).min(8));
                });
            }
        }
        entry.cast()
    }

    /// Reads up to eight bytes of an entry.
    ///
    /// # Safety
    /// The entry is live and has them.
    unsafe fn read(entry: *const EntryHeader, offset: i32, bytes: usize) -> u64 {
        // SAFETY: the caller's promise; entries do not change.
        get_le(unsafe { slice::from_raw_parts(entry.cast::<u8>().offset(offset as isize), bytes) })
    }

    /// A hash of what an entry runs; equal for entries that run the same.
    pub(crate) fn hash(&self, runs: Runs<'_>) -> u32 {
        let (action, call, group) = self.action_of(runs);
        let mut hash = WordHash::new(action, group);
        if let Some(call) = call {
            for (width, value) in self.widths[action as usize].iter().zip(&call.args) {
                write_words(value, width.div_ceil(64) as usize, |_, word| hash.add(word));
            }
        }
        hash.end()
    }

    /// The same hash, of an existing entry.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub(crate) unsafe fn hash_of(&self, entry: *const EntryHeader) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let mut hash = WordHash::new(self.action(entry), self.group(entry));
            self.words(entry, |word| hash.add(word));
            hash.end()
        }
    }

    /// Whether an entry runs `runs`.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub(crate) unsafe fn does_run(&self, entry: *const EntryHeader, runs: Runs<'_>) -> bool {
        let (action, call, group) = self.action_of(runs);
        // SAFETY: the caller's promise.
        unsafe {
            if self.action(entry) != action || self.group(entry) != group {
                return false;
            }
            let Some(call) = call else { return true };
            let (offsets, widths) = (&self.layout.params[action as usize], &self.widths[action as usize]);
            offsets.iter().zip(widths).zip(&call.args).all(|((offset, width), value)| {
                let mut same = true;
                write_words(value, width.div_ceil(64) as usize, |i, word| {
                    same &= self.param_word(entry, *offset, *width, i) == word;
                });
                same
            })
        }
    }

    /// Calls `f` with the 64-bit words of an entry's parameters.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    unsafe fn words(&self, entry: *const EntryHeader, mut f: impl FnMut(u64)) {
        // SAFETY: the caller's promise; the parameters lie inside the entry.
        unsafe {
            let action = self.action(entry) as usize;
            let Some(widths) = self.widths.get(action) else { return };
            for (offset, width) in self.layout.params[action].iter().zip(widths) {
                (0..width.div_ceil(64) as usize).for_each(|i| f(self.param_word(entry, *offset, *width, i)));
            }
        }
    }

    /// Word `i` of a parameter, from the lowest.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout and has the parameter.
    unsafe fn param_word(&self, entry: *const EntryHeader, offset: u32, width: u32, i: usize) -> u64 {
        let bytes = (param_bytes(width) as usize).saturating_sub(8 * i).min(8);
        // SAFETY: the caller's promise.
        unsafe { Self::read(entry, (offset as usize + 8 * i) as i32, bytes) }
    }

    /// The number of an entry's action.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn action(&self, entry: *const EntryHeader) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Self::read(entry, 0, self.layout.action_bytes as usize) as u32 }
    }

    /// The action call that an entry itself runs; `None` if only a group selects the action.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn call(&self, entry: *const EntryHeader) -> Option<ActionCall> {
        // SAFETY: the caller's promise.
        let action = unsafe { self.action(entry) };
        let widths = self.widths.get(action as usize)?;
        let arg = |(offset, width): (&u32, &u32)| {
            // SAFETY: the parameter lies inside the entry.
            read_words(*width, |i| unsafe { self.param_word(entry, *offset, *width, i) })
        };
        Some(ActionCall { action, args: self.layout.params[action as usize].iter().zip(widths).map(arg).collect() })
    }

    /// The index of an entry, or [`EntryLayout::NO_INDEX`] if the layout has none.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn index(&self, entry: *const EntryHeader) -> u32 {
        // SAFETY: the caller's promise.
        self.layout.index.map_or(EntryLayout::NO_INDEX, |at| unsafe { Self::read(entry, at, 4) as u32 })
    }

    /// The group of an entry, or null.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn group(&self, entry: *const EntryHeader) -> *const c_void {
        let Some(at) = self.layout.group else { return ptr::null() };
        // SAFETY: the caller's promise; a pointer lies there.
        unsafe { entry.cast::<u8>().offset(at as isize).cast::<*const c_void>().read_unaligned() }
    }

    /// The source of an entry's action; [`Source::Call`] if the layout does not record it.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn source(&self, entry: *const EntryHeader) -> Source {
        let Some(at) = self.layout.source else { return Source::Call };
        // SAFETY: the caller's promise.
        let word = unsafe { Self::read(entry, at, 5) };
        match word >> 32 {
            1 => Source::Member(word as u32),
            2 => Source::Group(word as u32),
            _ => Source::Call,
        }
    }

    /// The idle timeout of an entry in nanoseconds; 0 if the layout does not record it.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn idle_timeout_ns(&self, entry: *const EntryHeader) -> u64 {
        // SAFETY: the caller's promise.
        self.layout.idle_timeout.map_or(0, |at| unsafe { Self::read(entry, at, 8) })
    }

    /// The time of the last hit in microseconds; 0 if the layout does not record it.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn last_hit_us(&self, entry: *const EntryHeader) -> u64 {
        let Some(at) = self.layout.last_hit else { return 0 };
        // SAFETY: the caller's promise; such cells are aligned, and the time's offset from their start is a multiple of
        // 8.
        unsafe { AtomicU64::from_ptr(entry.cast_mut().cast::<u8>().offset(at as isize).cast()).load(Ordering::Relaxed) }
    }

    /// Records a hit, if the layout has its time; compiled code does the same.
    ///
    /// # Safety
    /// `entry` is a live entry of this layout.
    pub unsafe fn hit(&self, entry: *const EntryHeader, now_us: u64) {
        let Some(at) = self.layout.last_hit else { return };
        // SAFETY: as above.
        unsafe {
            let cell = entry.cast_mut().cast::<u8>().offset(at as isize).cast();
            AtomicU64::from_ptr(cell).store(now_us, Ordering::Relaxed);
        }
    }
}

/// The memory of the entries of one table or profile, each in a cell of its own.
#[derive(Debug)]
pub struct EntryMemory {
    writer: EntryWriter,
    cells: Cells,
    /// A row of adjacent cells, which are used first.
    row: Option<Row>,
}

impl EntryMemory {
    /// Memory for entries that run one of `actions`, given by the widths of their parameters.
    pub fn new(actions: &[Vec<u32>], parts: EntryParts) -> EntryMemory {
        EntryMemory { writer: EntryWriter::new(actions, parts), cells: Cells::default(), row: None }
    }

    /// Memory whose first `count` entries lie in a row, at multiples of a fixed distance.
    pub(crate) fn in_a_row(actions: &[Vec<u32>], parts: EntryParts, count: usize) -> EntryMemory {
        let memory = EntryMemory::new(actions, parts);
        let row = Row::new(memory.writer.layout().bytes_max() as usize, count);
        EntryMemory { row: Some(row), ..memory }
    }

    /// The row, if all of these entries lie in it.
    pub(crate) fn row_of(&self, mut entries: impl Iterator<Item = *mut EntryHeader>) -> Option<&Row> {
        let before = self.writer.layout().before as usize;
        let is_in = |row: &&Row| entries.all(|entry| row.has(entry.cast::<u8>().wrapping_sub(before)));
        self.row.as_ref().filter(is_in)
    }

    /// Bytes of all chunks that cells are cut from; entries above half a kilobyte are not included.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.cells.chunk_bytes()
    }

    /// The writer, which also reads the entries.
    pub fn writer(&self) -> &EntryWriter {
        &self.writer
    }

    /// Makes a new entry. `runs` must be [accepted](EntryWriter::accepts).
    pub fn make(&mut self, runs: Runs<'_>, tag: Tag) -> *mut EntryHeader {
        let in_row = self.row.as_mut().and_then(Row::take);
        let cell = in_row.unwrap_or_else(|| self.cells.take(self.writer.bytes(runs)));
        // SAFETY: the cell is large enough, aligned, and no one else accesses it.
        unsafe { self.writer.write(cell, runs, tag) }
    }

    /// Frees an entry.
    ///
    /// # Safety
    /// `entry` came from [`make`](EntryMemory::make) of this memory, is freed once, and no reader can hold it.
    pub unsafe fn free(&mut self, entry: *mut EntryHeader) {
        // SAFETY: the caller's promise: the entry is still intact, and its cell begins `before` bytes before it.
        unsafe {
            let layout = self.writer.layout();
            let bytes = layout.bytes(self.writer.action(entry)) as usize;
            let cell = entry.cast::<u8>().sub(layout.before as usize);
            match &mut self.row {
                Some(row) if row.has(cell) => row.given_back.push(cell),
                _ => self.cells.release(cell, bytes),
            }
        }
    }
}

/// The state of a multiplicative hash over words.
struct WordHash(u64);

impl WordHash {
    fn new(action: u32, group: *const c_void) -> WordHash {
        let mut hash = WordHash(u64::from(action));
        hash.add(group.addr() as u64);
        hash
    }

    fn add(&mut self, word: u64) {
        const K: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ word ^ K) * u128::from(K);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn end(self) -> u32 {
        (self.0 ^ self.0 >> 32) as u32
    }
}

/// Calls `put` with the index and value of each of the `count` little-endian words of a value.
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

/// The value of `width` bits whose little-endian word `i` is `word(i)`.
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
