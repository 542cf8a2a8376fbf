//! The lookup of a batch. Each step is done for [`CHUNK`] frames before the next, so that cache misses overlap.

use std::hint::black_box;

use super::masks::{Bits, Masks};
use super::table::First;
use super::{CHUNK, Cache, Frame, INLINE, Key, Keys, NONE, UNBOUNDED, WORDS, handle};

/// Frames that are looked up together.
pub(super) struct Rows {
    /// Their words; those that no mask has are not set.
    words: [[u64; WORDS]; CHUNK],
    /// Their lengths, as keys have them.
    lens: [u32; CHUNK],
}

/// The length of a frame that no key matches.
const INVALID: u32 = UNBOUNDED as u32 + 1;

/// Megaflows from which on their memory is read ahead. Fewer are in the nearest cache anyway.
const TOUCH_MIN: usize = 256;

impl Rows {
    pub(super) fn new() -> Rows {
        Rows { words: [[0; WORDS]; CHUNK], lens: [0; CHUNK] }
    }
}

impl<T> Cache<T> {
    /// Finds the megaflow of each frame: its handle, or [`NONE`]. A frame that is not within its buffer has none.
    ///
    /// Handles stay valid until the megaflow leaves the cache; that of one which has left is harmless.
    ///
    /// # Panics
    ///
    /// If there are not as many hits as frames.
    pub fn lookup(&mut self, frames: &[Frame<'_>], hits: &mut [u32]) {
        assert_eq!(frames.len(), hits.len(), "one hit per frame");
        for (frames, hits) in frames.chunks(CHUNK).zip(hits.chunks_mut(CHUNK)) {
            match self.masks.order() {
                [] => {
                    hits.fill(NONE);
                    self.statistics.misses += frames.len() as u64;
                    continue;
                }
                [only] => {
                    let only = *only;
                    gather(&mut self.rows, self.masks.get(only), frames);
                    let mut todo = Todo::all(frames.len());
                    hits.fill(NONE);
                    self.search(only, frames, &mut todo, hits);
                    self.statistics.misses += todo.len as u64;
                }
                _ => self.lookup_several(frames, hits),
            }
            for hit in hits.iter_mut().filter(|hit| **hit != NONE) {
                if let Some(key) = self.keys.lines.get_mut(*hit as usize) {
                    if !key.used {
                        key.used = true;
                    }
                    *hit = handle(*hit, key.generation);
                }
            }
        }
    }

    /// With several masks: the front, then a search for what it does not have. Hits are slots.
    fn lookup_several(&mut self, frames: &[Frame<'_>], hits: &mut [u32]) {
        gather(&mut self.rows, self.masks.union(), frames);
        let mut hashes = [0; CHUNK];
        let mut read = 0;
        for (i, frame) in frames.iter().enumerate() {
            let (bits, row) = (self.masks.union(), &self.rows.words[i]);
            hashes[i] = self.hash.of(frame.port, bits.count(), |k| bits.of(row, k));
            read |= self.front.touch(hashes[i]);
        }
        black_box(read);
        for (hit, hash) in hits.iter_mut().zip(&hashes) {
            *hit = self.front.find(*hash);
        }
        self.touch(hits.iter().copied());
        let mut todo = Todo { frames: [0; CHUNK], len: 0 };
        for (i, hit) in hits.iter_mut().enumerate() {
            if !matches(&self.keys, &self.masks, *hit, &self.rows, i, frames[i].port) {
                *hit = NONE;
                todo.push(i);
            }
        }
        self.statistics.front_hits += (frames.len() - todo.len) as u64;
        if todo.len != 0 {
            self.search_all(frames, todo, &hashes, hits);
        }
    }

    /// Reads from the cache lines of megaflows, only so that they are near when they are needed. Nothing depends on one of these
    /// loads, so the processor does them all at once.
    #[inline(always)]
    fn touch(&self, slots: impl Iterator<Item = u32>) {
        if self.len < TOUCH_MIN {
            return;
        }
        let mut read = 0;
        for slot in slots {
            if let (Some(key), Some(body)) = (self.keys.lines.get(slot as usize), self.bodies.get(slot as usize)) {
                read |= key.port | u32::from(body.is_some());
            }
        }
        black_box(read);
    }

    #[cold]
    fn search_all(&mut self, frames: &[Frame<'_>], mut todo: Todo, hashes: &[u64; CHUNK], hits: &mut [u32]) {
        let before = todo.clone();
        for at in 0..self.masks.len() {
            if todo.len == 0 {
                break;
            }
            self.statistics.probes += todo.len as u64;
            self.search(self.masks.order()[at], frames, &mut todo, hits);
        }
        self.statistics.misses += todo.len as u64;
        for i in before.iter() {
            if hits[i] != NONE {
                self.front.insert(hashes[i], hits[i], self.len);
            }
        }
        self.masks.sort();
    }

    /// Searches one mask for the frames that have no hit yet.
    #[inline]
    fn search(&mut self, mask: u8, frames: &[Frame<'_>], todo: &mut Todo, hits: &mut [u32]) {
        let (bits, table) = (self.masks.get(mask), self.masks.table(mask));
        let (mut hashes, mut read) = ([0; CHUNK], 0);
        for i in todo.iter() {
            let row = &self.rows.words[i];
            hashes[i] = self.hash.of(frames[i].port, bits.count(), |k| bits.of(row, k));
            read |= table.touch(hashes[i]);
        }
        black_box(read);
        let mut first = [First::None; CHUNK];
        for i in todo.iter() {
            first[i] = table.first(hashes[i]);
        }
        self.touch(todo.iter().map(|i| if let First::Only(slot) = first[i] { slot } else { NONE }));
        let before = std::mem::replace(todo, Todo { frames: [0; CHUNK], len: 0 });
        for i in before.iter() {
            let is_it = |slot| matches(&self.keys, &self.masks, slot, &self.rows, i, frames[i].port);
            let found = match first[i] {
                First::None => None,
                First::Only(slot) => Some(slot).filter(|slot| is_it(*slot)),
                First::Search => table.find(hashes[i], is_it),
            };
            match found {
                Some(slot) => hits[i] = slot,
                None => todo.push(i),
            }
        }
        let found = (before.len - todo.len) as u32;
        if found != 0 {
            self.statistics.mask_hits += u64::from(found);
            self.masks.count_hits(mask, found);
        }
    }
}

/// Which frames of a chunk are still to be found.
#[derive(Clone)]
struct Todo {
    frames: [u8; CHUNK],
    len: usize,
}

impl Todo {
    fn all(len: usize) -> Todo {
        Todo { frames: std::array::from_fn(|i| i as u8), len: len.min(CHUNK) }
    }

    #[inline(always)]
    fn push(&mut self, i: usize) {
        self.frames[self.len & (CHUNK - 1)] = i as u8;
        self.len += 1;
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.frames[..self.len.min(CHUNK)].iter().map(|i| usize::from(*i) & (CHUNK - 1))
    }
}

/// Reads the words that `bits` has into the frames' rows; bytes behind a frame's end are 0.
#[inline(always)]
fn gather(rows: &mut Rows, bits: &Bits, frames: &[Frame<'_>]) {
    let end = match bits.count() {
        0 => 0,
        count => bits.index(count - 1) * 8 + 8,
    };
    for ((row, to_len), frame) in rows.words.iter_mut().zip(&mut rows.lens).zip(frames) {
        let bytes = frame.buffer.get(frame.offset..).and_then(|b| b.get(..frame.len));
        *to_len = if bytes.is_some() { frame.len.min(UNBOUNDED.into()) as u32 } else { INVALID };
        let bytes = bytes.unwrap_or_default();
        match bytes.get(..end) {
            Some(bytes) => {
                for k in 0..bits.count() {
                    let at = bits.index(k);
                    let mut word = [0; 8];
                    word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
                    row[at] = u64::from_le_bytes(word);
                }
            }
            None => gather_short(row, bits, bytes),
        }
    }
}

fn gather_short(row: &mut [u64; WORDS], bits: &Bits, bytes: &[u8]) {
    for k in 0..bits.count() {
        let at = bits.index(k);
        let rest = bytes.get(at * 8..).unwrap_or_default();
        let len = rest.len().min(8);
        let mut word = [0; 8];
        word[..len].copy_from_slice(&rest[..len]);
        row[at] = u64::from_le_bytes(word);
    }
}

/// Whether a frame is one of the megaflow in this slot ([`NONE`] is no megaflow).
#[inline(always)]
fn matches(keys: &Keys, masks: &Masks, slot: u32, rows: &Rows, i: usize, port: u32) -> bool {
    let Some(key) = keys.lines.get(slot as usize) else { return false };
    let (row, len) = (&rows.words[i], rows.lens[i]);
    let bits = masks.get(key.mask);
    let differs = bits.differs(row, &key.words) | u64::from(key.port ^ port);
    if differs != 0 || len < key.shortest.into() || u32::from(key.longest) < len {
        return false;
    }
    bits.count() <= INLINE || matches_wide(keys, bits, key, row)
}

#[inline(never)]
fn matches_wide(keys: &Keys, bits: &Bits, key: &Key, row: &[u64; WORDS]) -> bool {
    let Some(words) = keys.wide.get(key.wide as usize) else { return false };
    (INLINE..bits.count()).zip(words).all(|(k, word)| bits.of(row, k) == *word)
}
