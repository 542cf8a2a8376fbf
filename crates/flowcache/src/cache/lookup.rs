//! The batched lookup. Each step processes [`CHUNK`] frames before the next step and prefetches what that reads, so
//! that cache misses overlap.

use super::hash::Hash;
use super::masks::{Bits, Masks};
use super::table::First;
use super::{Body, CHUNK, Cache, Frame, Key, Keys, NONE, PAIRS, Row, SLOT_MASK, UNBOUNDED, handle, pair};
use crate::memory::prefetch;
use crate::path::WINDOW;

/// The frames of a chunk.
pub(super) struct Rows {
    /// Their first bytes, up to the last byte of the union of masks. Other bits are arbitrary.
    rows: [Aligned; CHUNK],
    ports: [u32; CHUNK],
    /// Their lengths, as keys store them.
    lens: [u32; CHUNK],
    /// Hashes under the union of masks; `mask_hashes` are those under the mask that is being searched.
    hashes: [u64; CHUNK],
    mask_hashes: [u64; CHUNK],
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Aligned(Row);

/// A length that no key matches.
const INVALID: u32 = UNBOUNDED as u32 + 1;

/// Number of megaflows from which on keys and bodies are prefetched; fewer fit the nearest caches.
const PREFETCH_MIN: usize = 256;

impl Rows {
    pub(super) fn new() -> Rows {
        Rows {
            rows: [Aligned([[0; 2]; PAIRS]); CHUNK],
            ports: [0; CHUNK],
            lens: [0; CHUNK],
            hashes: [0; CHUNK],
            mask_hashes: [0; CHUNK],
        }
    }
}

impl<T> Cache<T> {
    /// Looks up the megaflow of each frame: its handle, or [`NONE`]. A frame that is not within its buffer has
    /// none.
    ///
    /// A handle stays valid until the megaflow is removed; using it later is harmless.
    ///
    /// # Panics
    ///
    /// If `hits` is not as long as `frames`.
    pub fn lookup(&mut self, frames: &[Frame<'_>], hits: &mut [u32]) {
        assert_eq!(frames.len(), hits.len(), "one hit per frame");
        self.lookup_by(|i| frames[i], hits);
    }

    /// Sets whether lookups leave out masks that hardly ever hit, so that a sender who causes many masks does not
    /// slow down frames that the front does not have. A frame with a megaflow may then be a miss until
    /// [`Cache::find`] or a few lookups have found it.
    pub fn set_thrifty(&mut self, is_thrifty: bool) {
        self.masks.set_thrifty(is_thrifty);
    }

    /// The megaflow of a frame, searching all masks, or [`NONE`]. A hit is stored in the front.
    pub fn find(&mut self, frame: Frame<'_>) -> u32 {
        let searched = self.masks.search_all();
        let mut hits = [NONE];
        self.lookup(&[frame], &mut hits);
        self.masks.search_only(searched);
        hits[0]
    }

    /// Like [`Cache::lookup`], for frames that are not in a slice: `frame` returns the i-th of as many frames as
    /// there are hits.
    #[inline]
    pub fn lookup_by<'a>(&mut self, frame: impl Fn(usize) -> Frame<'a>, hits: &mut [u32]) {
        for (chunk, hits) in hits.chunks_mut(CHUNK).enumerate() {
            let frame = |i| frame(chunk * CHUNK + i);
            match self.masks.order() {
                [] => {
                    hits.fill(NONE);
                    self.statistics.misses += hits.len() as u64;
                }
                [only] => self.lookup_one(*only, frame, hits),
                _ => self.lookup_several(frame, hits),
            }
        }
    }

    /// With one mask: searches its table.
    #[inline]
    fn lookup_one<'a>(&mut self, mask: u8, frame: impl Fn(usize) -> Frame<'a>, hits: &mut [u32]) {
        let (bits, table) = (self.masks.get(mask), self.masks.table(mask));
        let rows = &mut *self.rows;
        let mut todo = Todo::NONE;
        for (i, hit) in hits.iter_mut().enumerate() {
            rows.mask_hashes[i] = rows.take(i, &frame(i), bits, &self.hash);
            table.prefetch(rows.mask_hashes[i]);
            *hit = NONE;
            todo.push(i, true);
        }
        self.compare(mask, &mut todo, hits);
        self.statistics.misses += todo.len as u64;
    }

    /// With several masks: tries the front, then searches for frames that it does not have.
    #[inline]
    fn lookup_several<'a>(&mut self, frame: impl Fn(usize) -> Frame<'a>, hits: &mut [u32]) {
        let bits = self.masks.union();
        let rows = &mut *self.rows;
        for i in 0..hits.len() {
            rows.hashes[i] = rows.take(i, &frame(i), bits, &self.hash);
            self.front.prefetch(rows.hashes[i]);
        }
        let is_far = self.len >= PREFETCH_MIN;
        for (hit, hash) in hits.iter_mut().zip(&rows.hashes) {
            *hit = self.front.find(*hash);
            if is_far {
                prefetch_megaflow(&self.keys.lines, &self.bodies, *hit);
            }
        }
        let mut todo = Todo::NONE;
        for (i, hit) in hits.iter_mut().enumerate() {
            *hit = take_hit(&mut self.keys, &self.masks, *hit, &self.rows, i);
            todo.push(i, *hit == NONE);
        }
        self.statistics.front_hits += (hits.len() - todo.len) as u64;
        if todo.len != 0 {
            self.search_all(todo, hits);
        }
    }

    #[cold]
    fn search_all(&mut self, mut todo: Todo, hits: &mut [u32]) {
        let before = todo.clone();
        let (searched, other) = self.masks.next_search(todo.len);
        for at in (0..searched).chain(other) {
            if todo.len == 0 {
                break;
            }
            self.statistics.probes += todo.len as u64;
            self.search(at, &mut todo, hits);
        }
        self.statistics.misses += todo.len as u64;
        for i in before.iter() {
            if hits[i] != NONE {
                self.front.insert(self.rows.hashes[i], hits[i] & SLOT_MASK, self.len);
            }
        }
        self.masks.sort();
    }

    /// Searches one of several masks, given by its position in the order, for the frames that have no hit yet.
    #[inline]
    fn search(&mut self, at: usize, todo: &mut Todo, hits: &mut [u32]) {
        let mask = self.masks.order()[at];
        let (bits, table) = (self.masks.get(mask), self.masks.table(mask));
        let rows = &mut *self.rows;
        let mut candidates = Todo::NONE;
        for i in todo.iter() {
            let hash = self.hash.of(rows.ports[i], bits, &rows.rows[i].0);
            rows.mask_hashes[i] = hash;
            candidates.push(i, table.may_have(hash));
        }
        if candidates.len != 0 {
            candidates.iter().for_each(|i| table.prefetch(rows.mask_hashes[i]));
            self.compare(mask, &mut candidates, hits);
            let before = std::mem::replace(todo, Todo::NONE);
            before.iter().for_each(|i| todo.push(i, hits[i] == NONE));
        }
    }

    /// Looks up the frames of `todo` in a mask's table. Those that are not found stay in `todo`.
    #[inline(always)]
    fn compare(&mut self, mask: u8, todo: &mut Todo, hits: &mut [u32]) {
        let table = self.masks.table(mask);
        let hashes = &self.rows.mask_hashes;
        let is_far = self.len >= PREFETCH_MIN;
        let mut first = [First::None; CHUNK];
        for i in todo.iter() {
            first[i] = table.first(hashes[i]);
            if let (true, First::Only(slot)) = (is_far, first[i]) {
                prefetch_megaflow(&self.keys.lines, &self.bodies, slot);
            }
        }
        let before = std::mem::replace(todo, Todo::NONE);
        for i in before.iter() {
            let slot = match first[i] {
                First::None => NONE,
                First::Only(slot) => slot,
                First::Search => {
                    let is_it = |slot: u32| {
                        let key = self.keys.lines.get(slot as usize);
                        key.is_some_and(|key| matches(key, &self.keys.wide, &self.masks, &self.rows, i))
                    };
                    table.find(hashes[i], is_it).unwrap_or(NONE)
                }
            };
            hits[i] = take_hit(&mut self.keys, &self.masks, slot, &self.rows, i);
            todo.push(i, hits[i] == NONE);
        }
        let found = (before.len - todo.len) as u32;
        if found != 0 {
            self.statistics.mask_hits += u64::from(found);
            self.masks.count_hits(mask, found);
        }
    }
}

/// Prefetches the megaflow of a slot.
#[inline(always)]
fn prefetch_megaflow<T>(keys: &[Key], bodies: &[Option<Body<T>>], slot: u32) {
    if let (Some(key), Some(body)) = (keys.get(slot as usize), bodies.get(slot as usize)) {
        prefetch(key);
        prefetch(body);
    }
}

/// The frames of a chunk that are still to be found.
#[derive(Clone)]
struct Todo {
    frames: [u8; CHUNK],
    len: usize,
}

impl Todo {
    const NONE: Todo = Todo { frames: [0; CHUNK], len: 0 };

    /// Adds a frame if `is_wanted`; branch-free.
    #[inline(always)]
    fn push(&mut self, i: usize, is_wanted: bool) {
        self.frames[self.len & (CHUNK - 1)] = i as u8;
        self.len += usize::from(is_wanted);
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.frames[..self.len.min(CHUNK)].iter().map(|i| usize::from(*i) & (CHUNK - 1))
    }
}

impl Rows {
    /// Reads the bytes of a frame that `bits` covers; those after its end are 0. Returns the frame's hash.
    #[inline(always)]
    fn take(&mut self, i: usize, frame: &Frame<'_>, bits: &Bits, hash: &Hash) -> u64 {
        let behind = frame.buffer.get(frame.offset..);
        let bytes = behind.filter(|bytes| frame.len <= bytes.len());
        self.ports[i] = frame.port;
        self.lens[i] = if bytes.is_some() { frame.len.min(UNBOUNDED.into()) as u32 } else { INVALID };
        let (bytes, row) = (bytes.unwrap_or_default(), &mut self.rows[i].0);
        let pairs = bytes.as_chunks().0;
        if frame.len < bits.end() || pairs.len() < bits.pairs().len() {
            take_short(row, bits, bytes.get(..frame.len).unwrap_or_default());
            return hash.of(frame.port, bits, row);
        }
        let copied = row.iter_mut().zip(pairs).map(|(to, bytes)| {
            *to = pair(*bytes);
            *to
        });
        hash.of_pairs(frame.port, bits, copied)
    }
}

/// Like [`Rows::take`], for a frame that ends before the last byte of the mask, or whose buffer ends before the
/// last pair of words.
#[inline(never)]
fn take_short(row: &mut Row, bits: &Bits, frame: &[u8]) {
    let mut bytes = [0; WINDOW];
    let len = frame.len().min(bits.end());
    bytes[..len].copy_from_slice(&frame[..len]);
    for ((to, bytes), _) in row.iter_mut().zip(bytes.as_chunks().0).zip(bits.pairs()) {
        *to = pair(*bytes);
    }
}

/// The handle of a slot's megaflow if it matches a frame, which marks it as used; otherwise, and for [`NONE`],
/// [`NONE`].
#[inline(always)]
fn take_hit(keys: &mut Keys, masks: &Masks, slot: u32, rows: &Rows, i: usize) -> u32 {
    let Some(key) = keys.lines.get_mut(slot as usize) else { return NONE };
    if !matches(key, &keys.wide, masks, rows, i) {
        return NONE;
    }
    if !key.used {
        key.used = true;
    }
    handle(slot, key.generation)
}

/// Whether a megaflow matches a frame.
#[inline(always)]
fn matches(key: &Key, wide: &[Row], masks: &Masks, rows: &Rows, i: usize) -> bool {
    let (row, len, port) = (&rows.rows[i].0, rows.lens[i], rows.ports[i]);
    let bits = masks.get(key.mask);
    let is_long = len >= key.shortest.into() && u32::from(key.longest) >= len;
    let differs = bits.differs(row, &key.words) | u64::from(key.port ^ port) | u64::from(!is_long);
    differs == 0 && (!bits.is_wide() || matches_wide(wide, bits, key, row))
}

#[inline(never)]
fn matches_wide(wide: &[Row], bits: &Bits, key: &Key, row: &Row) -> bool {
    wide.get(key.wide as usize).is_some_and(|wide| bits.is_row(row, wide))
}
