//! The frame cache: megaflows over received frames (`flowcache`). A hit needs no parser.
//!
//! ```text
//! frame ─▶ frame cache ─┬─ hit ─▶ rewritten and sent
//!                       └─ parser ─▶ megaflows over records ─┬─ hit ─▶ effects ─▶ traced into the frame cache
//!                                    (crate::cache)          └─ miss ─▶ translation
//! ```
//!
//! An entry is derived from a megaflow's mask and effects by symbolic execution between the program's parser and
//! deparser. It is valid as long as that megaflow is, and its packets are counted there. Only megaflows whose
//! packets leave by at most one port, changed by writes and header actions, are traced; all others are left to
//! [`crate::effects`].
//!
//! **Cost.** A trace takes as long as thousands of lookups. So a megaflow is traced at its second hit, and the time
//! for traces is limited to a share (`cache::admission`; with [`abi::flows::CacheUse::Always`], a share of all
//! time). A frame cache that hits few packets is bypassed for a while, as in `cache::worth`.

use crate::cache::{Entry, Generation};
use crate::effects::Effect;
use crate::key::{Layout, Part};
use abi::flows::{Received, Verdict};
use abi::packet::BATCH_MAX;
use flowcache::cache::{Cache, Frame, NONE};
use flowcache::path::Pattern;
use flowcache::trace::shape::Shape;
use flowcache::trace::{Decision, Fate, Run, Tracer, Untraceable};
use ir::OpenFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Traces get one part in this number of the worker's time, so that a cold cache slows packets by at most an
/// eighth.
const TRACE_SHARE: u64 = 8;
/// Maximum unused trace time that is saved up: about twenty traces, so that a burst of new flows is traced at once.
const TRACE_TIME_MAX: Duration = Duration::from_millis(2);
/// Maximum number of entries: as many as there may be megaflows over records (`cache::ENTRIES`).
const LIMIT: usize = 1 << 18;
/// Number of packets over which the hit rate is measured.
const WINDOW: u32 = 4096;
/// The cache is used while at least one packet in this number hits. Chosen, not measured: a miss wastes a lookup, a
/// hit saves the parser.
const WORTH: u32 = 8;
/// How long the cache is bypassed otherwise, in microseconds: at first, and at most.
const OFF_US: (u64, u64) = (10_000, 1_280_000);

/// An entry of the frame cache.
#[derive(Debug)]
pub(crate) struct Known {
    /// The megaflow that it was derived from: number and [`Entry::serial`].
    pub entry: u32,
    pub serial: u64,
    /// The generation at which it was last known to be valid.
    pub generation: Generation,
    /// Packets that have not been added to that megaflow yet.
    pub packets: u64,
    pub bytes: u64,
    pub used_us: u64,
    verdict: Verdict,
}

/// Whether an entry is valid.
pub(crate) enum State {
    /// It is valid.
    Right,
    /// The megaflow that it was derived from is gone or has changed.
    Gone,
}

/// The frame cache of a worker.
pub(crate) struct Front {
    tracer: Tracer,
    openflow: OpenFlow,
    ttl_exceeded: Option<Part>,
    cache: Cache<Known>,
    /// Entries with counts that have not been added to their megaflows.
    dirty: Vec<u32>,
    /// Remaining time for traces; `counted_us` is when it was last increased.
    time: Duration,
    counted_us: u64,
    asked: u32,
    knew: u32,
    off_us: u64,
    off_until_us: u64,
    /// Number of hits.
    pub hits: u64,
    /// Number of traces, and of those that failed.
    pub traces: u64,
    pub failures: u64,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").field("len", &self.cache.len()).finish_non_exhaustive()
    }
}

impl Front {
    /// An empty cache for a program; `None` if that is not one of the OpenFlow model.
    pub(crate) fn new(program: &Arc<ir::Program>, layout: &Layout) -> Option<Front> {
        Some(Front {
            tracer: Tracer::new(Arc::clone(program)),
            openflow: program.openflow.clone()?,
            ttl_exceeded: layout.ttl_exceeded(),
            cache: Cache::new(layout.seed(), LIMIT),
            dirty: Vec::new(),
            time: Duration::ZERO,
            counted_us: 0,
            asked: 0,
            knew: 0,
            off_us: 0,
            off_until_us: 0,
            hits: 0,
            traces: 0,
            failures: 0,
        })
    }

    /// Sets whether a lookup leaves out masks that are not worth searching.
    pub(crate) fn set_thrifty(&mut self, is_thrifty: bool) {
        self.cache.set_thrifty(is_thrifty);
    }

    /// Whether the cache should be used for the next packets.
    pub(crate) fn is_worth(&mut self, now_us: u64) -> bool {
        if now_us < self.off_until_us {
            return false;
        }
        if self.asked >= WINDOW {
            let is_worth = self.knew >= self.asked / WORTH || self.cache.is_empty();
            (self.asked, self.knew) = (0, 0);
            if !is_worth {
                self.off_us = (self.off_us * 2).clamp(OFF_US.0, OFF_US.1);
                self.off_until_us = now_us + self.off_us;
                return false;
            }
            self.off_us = 0;
        }
        !self.cache.is_empty()
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }

    /// Looks up frames, sets verdicts of those that hit, and rewrites those to be sent. `check` revalidates an
    /// entry of an older generation, and updates its generation if it is valid. Returns the number of hits.
    pub(crate) fn decide(
        &mut self,
        frames: &mut [Received<'_>],
        port: u32,
        now_us: u64,
        generation: Generation,
        check: &mut dyn FnMut(&mut Known) -> State,
    ) -> usize {
        let mut hits = [NONE; BATCH_MAX];
        let hits = &mut hits[..frames.len()];
        let (cache, shown) = (&mut self.cache, &*frames);
        let frame = |i: usize| {
            let frame = &shown[i].frame;
            Frame { buffer: frame.buffer, offset: frame.offset, len: frame.len, port }
        };
        cache.lookup_by(frame, hits);
        let mut knew = 0;
        for (received, at) in frames.iter_mut().zip(hits) {
            let Some((rewrite, known)) = self.cache.get_mut(*at) else { continue };
            if known.generation != generation
                && let State::Gone = check(known)
            {
                // A new entry is made when its packets have been translated again.
                self.cache.remove(*at);
                continue;
            }
            let frame = &mut received.frame;
            let len = frame.len;
            if let Verdict::Send { .. } = known.verdict {
                let Some((offset, len)) = rewrite.run(frame.buffer, frame.offset, frame.len) else { continue };
                (frame.offset, frame.len) = (offset, len);
            }
            received.verdict = known.verdict;
            if known.packets == 0 {
                self.dirty.push(*at);
            }
            known.packets += 1;
            known.bytes += len as u64;
            known.used_us = now_us;
            knew += 1;
        }
        self.hits += u64::from(knew);
        self.knew += knew;
        self.asked += frames.len() as u32;
        knew as usize
    }

    /// The shape of a frame, with its pattern; it gives these words of the record.
    pub(crate) fn shape(&self, frame: &[u8], port: u32, words: &[u32]) -> Result<(Pattern, Shape), Untraceable> {
        self.tracer.shape(frame, port, words)
    }

    /// Passes entries with counts to `add`, and resets their counts.
    pub(crate) fn fold(&mut self, mut add: impl FnMut(&Known)) {
        for at in self.dirty.drain(..) {
            if let Some((_, known)) = self.cache.get_mut(at) {
                add(known);
                (known.packets, known.bytes) = (0, 0);
            }
        }
    }

    /// Removes all entries. Their counts must have been folded.
    pub(crate) fn clear(&mut self) {
        self.cache.clear(|_| {});
        self.dirty.clear();
    }

    /// Whether there is time for a trace, if no other account limits it.
    pub(crate) fn has_time(&mut self, now_us: u64) -> bool {
        let passed = Duration::from_micros(now_us.saturating_sub(self.counted_us) / TRACE_SHARE);
        self.counted_us = now_us;
        self.time = (self.time + passed).min(TRACE_TIME_MAX);
        !self.time.is_zero()
    }

    /// Traces a frame of a megaflow with this mask and adds the entry. Returns the time that took. Evicted entries
    /// are passed to `gone`.
    pub(crate) fn learn(
        &mut self,
        (frame, port): (&[u8], u32),
        mask: &crate::cache::Mask,
        (at, entry): (u32, &mut Entry),
        generation: Generation,
        now_us: u64,
        gone: &mut dyn FnMut(Known),
    ) -> Duration {
        let begin = Instant::now();
        // The frame may have an entry under a mask that lookups leave out.
        let buffer = Frame { buffer: frame, offset: 0, len: frame.len(), port };
        if !entry.frames.is_empty() && self.cache.find(buffer) != NONE {
            return self.took(begin.elapsed());
        }
        self.traces += 1;
        let made = self.trace(frame, port, mask, &entry.effects.list);
        let Ok((pattern, rewrite, verdict)) = made else {
            self.failures += 1;
            entry.is_untraceable = true;
            return self.took(begin.elapsed());
        };
        let known =
            Known { entry: at, serial: entry.serial, generation, packets: 0, bytes: 0, used_us: now_us, verdict };
        // Refused if there are too many masks; such packets keep hitting megaflows over records.
        if let Ok(handle) = self.cache.insert(port, &pattern, rewrite, known, gone) {
            if entry.frames.len() == entry.frames.capacity() {
                entry.frames.retain(|handle| self.cache.get(*handle).is_some());
            }
            entry.frames.push(handle);
        }
        self.took(begin.elapsed())
    }

    fn took(&mut self, time: Duration) -> Duration {
        self.time = self.time.saturating_sub(time);
        time
    }

    /// Removes the entries derived from a megaflow that is removed or replaced. Their counts must have been folded.
    pub(crate) fn forget(&mut self, entry: &mut Entry) {
        for handle in entry.frames.drain(..) {
            let known = self.cache.remove(handle);
            debug_assert!(known.is_none_or(|known| known.packets == 0), "counts are lost");
        }
    }

    fn trace(
        &self,
        frame: &[u8],
        port: u32,
        mask: &crate::cache::Mask,
        effects: &[Effect],
    ) -> Result<(Pattern, flowcache::run::Prepared, Verdict), Untraceable> {
        let traced = self.tracer.trace(frame, port, &mut |run| {
            for (word, bits) in &mask.words {
                run.consult(*word, *bits);
            }
            self.take(run, effects)
        })?;
        let mut pattern = traced.pattern;
        if mask.length != 0 {
            (pattern.shortest, pattern.longest) = (frame.len() as u32, frame.len() as u32);
        }
        // The verdict follows from the effects, unless the program itself drops the packet, which is then counted
        // by its reason.
        let verdict = match (traced.fate, traced.value) {
            (Fate::Drop(reason), _) => Verdict::Drop { reason },
            (Fate::Send(_), Some(verdict)) => verdict,
            (Fate::Send(port), None) => Verdict::Send { port, queue: 0 },
        };
        let rewrite = flowcache::run::Prepared::new(&traced.rewrite).map_err(|error| Untraceable(error.to_string()))?;
        Ok((pattern, rewrite, verdict))
    }

    /// Applies effects to a symbolic record.
    fn take(&self, run: &mut Run<'_>, effects: &[Effect]) -> Result<Decision<Verdict>, Untraceable> {
        for effect in effects {
            match effect {
                Effect::Write { word, mask, value } => run.write(*word, *mask, *value),
                Effect::Move(places) => {
                    let bits = |place: &crate::key::Place| -> Vec<(u32, u32, u32)> {
                        let mut parts = place.parts.clone();
                        parts.sort_by_key(|part| part.at);
                        parts.iter().map(|part| (part.word, part.shift, part.width)).collect()
                    };
                    run.copy(&bits(&places.0), &bits(&places.1));
                }
                Effect::Run { action, args, checks_ttl } => {
                    let Some((stage, table)) = self.openflow.actions else {
                        return Err(refused("the program has no header actions"));
                    };
                    run.run_action(stage, table, *action, args)?;
                    if let (true, Some(flag)) = (*checks_ttl, self.ttl_exceeded)
                        && run.consult(flag.word, flag.mask()) != 0
                    {
                        return Err(refused("a TTL is over"));
                    }
                }
                Effect::Save(words) => run.save(words),
                Effect::Restore(_) => run.restore(),
                Effect::Output { port, queue, max_len, is_modified, is_last: true } => {
                    let value = Verdict::Send { port: *port, queue: *queue };
                    return Ok(Decision::Send {
                        egress_port: *port,
                        max_len: *max_len,
                        is_modified: *is_modified,
                        value,
                    });
                }
                Effect::Nothing => {}
                Effect::Output { .. } => return Err(refused("several outputs")),
                Effect::Capture { .. } => return Err(refused("a packet for a controller")),
                Effect::Meter { .. } => return Err(refused("a meter")),
                Effect::Again { .. } => return Err(refused("a further pass")),
            }
        }
        Ok(Decision::Drop(Verdict::Drop { reason: None }))
    }
}

fn refused(why: &str) -> Untraceable {
    Untraceable(why.to_string())
}
