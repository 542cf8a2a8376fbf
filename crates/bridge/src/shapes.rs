//! Plain translations of frames that the frame cache does not know, without a run of the parser.
//!
//! ```text
//! frame ─▶ shape (flowcache::trace::shape::Shape) ─▶ the words that tables match ─▶ plain translation ─▶ verdict
//! ```
//!
//! Most frames of a port have one of a few sequences of headers. A *shape* gives the words of the record that lookups
//! read, by a few loads from such a frame. A packet that need not get a megaflow, and that its flows drop or send
//! unchanged, so costs little more than its lookups: neither parser nor record nor engine is needed. This is
//! what hostile packets cost, of which no cache knows anything ("tuple space explosion").
//!
//! Shapes are made for the words that flows of any table have matched on ([`crate::classifier::Classifier::words`]),
//! and all are made anew when there are more of these.

use crate::front::Front;
use crate::key::Layout;
use crate::tables::Tables;
use abi::flows::{Received, Verdict};
use abi::packet::BATCH_MAX;
use flowcache::cache::{Cache, Frame, NONE};
use flowcache::path::Rewrite;
use flowcache::run::Prepared;
use flowcache::trace::shape::Shape;

/// Maximum number of shapes, chosen: a shape stands for a sequence of headers, of which a port has few. Of more, the
/// least used ones are evicted, and their packets take the parser.
const LIMIT: usize = 512;
/// One in so many packets that take the parser gets a shape, at first and if shapes cannot be made or are of no use.
const INTERVAL: (u32, u32) = (8, 4096);
/// Number of frames over which the use of shapes is measured.
const WINDOW: u32 = 1024;
/// How long shapes rest if less than half of the frames are decided by them, in microseconds.
const REST_US: (u64, u64) = (10_000, 1_280_000);

/// Decides about a frame. It gets the record, of which the words that tables match are valid, a hash of these, and the
/// length of the frame.
type Decide<'a> = &'a mut dyn FnMut(&mut [u64], u64, u32) -> Option<Verdict>;

/// The shapes of a worker.
pub(crate) struct Shapes {
    cache: Cache<Box<Shape>>,
    seed: u64,
    /// The words that they give, in ascending order.
    words: Vec<u32>,
    /// Words that are always among them: those that tell which fields there are, and whether it is a fragment.
    always: Vec<u32>,
    /// The generation of the tables from which `words` was made, and how many words the tables had.
    followed: (u64, usize),
    /// Packets until the next attempt to make a shape, and between attempts.
    until_made: u32,
    interval: u32,
    asked: u32,
    decided: u32,
    rest_us: u64,
    rests_until_us: u64,
}

impl std::fmt::Debug for Shapes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shapes").field("len", &self.cache.len()).field("words", &self.words).finish_non_exhaustive()
    }
}

impl Shapes {
    /// No shapes.
    pub(crate) fn new(layout: &Layout) -> Shapes {
        let prerequisites = layout.fields().iter().flat_map(|(_, field)| &field.prerequisites);
        let places = prerequisites.map(|needs| layout.place(needs.field)).chain([layout.in_port()]);
        let places = places.chain(layout.fragment());
        let mut always: Vec<u32> = places.flat_map(|place| &place.parts).map(|part| part.word).collect();
        always.sort_unstable();
        always.dedup();
        Shapes {
            cache: Cache::new(layout.seed(), LIMIT),
            seed: layout.seed(),
            words: always.clone(),
            always,
            followed: (0, 0),
            until_made: 0,
            interval: INTERVAL.0,
            asked: 0,
            decided: 0,
            rest_us: 0,
            rests_until_us: 0,
        }
    }

    /// Whether frames should be shown to [`Shapes::decide`].
    pub(crate) fn is_used(&self, now_us: u64) -> bool {
        !self.cache.is_empty() && now_us >= self.rests_until_us
    }

    /// Removes all shapes if flows match on words that they do not give.
    pub(crate) fn follow(&mut self, tables: &Tables, generation: u64) {
        if self.followed.0 == generation {
            return;
        }
        let count = tables.iter().map(|(_, table)| table.flows.words().len()).sum();
        if self.followed.1 != count {
            let words = tables.iter().flat_map(|(_, table)| table.flows.words());
            self.words = self.always.iter().chain(words).copied().collect();
            self.words.sort_unstable();
            self.words.dedup();
            self.cache.clear(|_| {});
            (self.until_made, self.interval) = (0, INTERVAL.0);
        }
        self.followed = (generation, count);
    }

    /// Decides about frames without a verdict that have a shape.
    pub(crate) fn decide(&mut self, frames: &mut [Received<'_>], port: u32, now_us: u64, decide: Decide<'_>) {
        let (mut unknown, mut count) = ([0u8; BATCH_MAX], 0);
        for (i, received) in frames.iter().enumerate() {
            unknown[count % BATCH_MAX] = i as u8;
            count += usize::from(received.verdict == Verdict::Unknown);
        }
        let unknown = &unknown[..count];
        let mut hits = [NONE; BATCH_MAX];
        let hits = &mut hits[..count];
        let shown = &*frames;
        let frame = |i: usize| {
            let frame = &shown[usize::from(unknown[i])].frame;
            Frame { buffer: frame.buffer, offset: frame.offset, len: frame.len, port }
        };
        self.cache.lookup_by(frame, hits);
        for (i, hit) in unknown.iter().zip(hits) {
            let Some((_, shape)) = self.cache.get_mut(*hit) else { continue };
            let received = &mut frames[usize::from(*i)];
            let Some(bytes) = received.frame.buffer.get(received.frame.offset..) else { continue };
            let (record, hash) = shape.read(bytes, self.seed ^ u64::from(*hit));
            if let Some(verdict) = decide(record, hash, received.frame.len as u32) {
                received.verdict = verdict;
                self.decided += 1;
            }
        }
        self.asked += count as u32;
        if self.asked >= WINDOW {
            let is_worth = self.decided * 2 >= self.asked;
            self.rest_us = if is_worth { 0 } else { (self.rest_us * 2).clamp(REST_US.0, REST_US.1) };
            self.rests_until_us = now_us + self.rest_us;
            (self.asked, self.decided) = (0, 0);
        }
    }

    /// Whether it is time to make a shape of a packet that has taken the parser.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.until_made == 0;
        self.until_made = if is_due { self.interval } else { self.until_made - 1 };
        is_due
    }

    /// Makes the shape of a frame, if it has none.
    pub(crate) fn make(&mut self, front: &Front, frame: &[u8], port: u32) {
        let is_known = self.cache.find(Frame { buffer: frame, offset: 0, len: frame.len(), port }) != NONE;
        let made = !is_known
            && front.shape(frame, port, &self.words).is_ok_and(|(pattern, shape)| {
                let unchanged = Prepared::new(&Rewrite::default());
                unchanged.is_ok_and(|same| self.cache.insert(port, &pattern, same, Box::new(shape), |_| {}).is_ok())
            });
        self.interval = if made { INTERVAL.0 } else { (self.interval * 2).min(INTERVAL.1) };
    }
}
