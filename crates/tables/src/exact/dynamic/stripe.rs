//! A stripe: a range of buckets of a packet-written table with their lock, their part of the timing wheel, and lists of
//! retired slots.
//!
//! # Time
//!
//! Time is divided into the table's *steps*. Each slot has one byte: the step at whose beginning it is *due*, that is,
//! its entry is to be checked. This is a hierarchical timing wheel (Varghese and Lauck 1987, scheme 7) without linked
//! lists: the slots that are due in a step are found by scanning the bytes of all slots in order, 64 at a time. Putting
//! a slot into the wheel or taking it out is one store. A linked list would be followed slot by slot, with a cache miss
//! for each link.
//!
//! | byte | due |
//! | --- | --- |
//! | 0 | never |
//! | 1 | now |
//! | 128 + step % 128 | in a step that is less than 128 steps ahead |
//! | 64 + chunk % 64 | when a later *chunk* of 128 steps begins, within 64 chunks; then it gets a nearer byte |
//!
//! A hit only stores the clock in the entry. A check that finds the entry not expired stores the byte of the step in
//! which it would expire now. So an entry is checked once or twice per timeout, however often it is hit; one with a
//! timeout of more than 64 chunks is also checked every 64 chunks.
//!
//! # Memory
//!
//! Slots are numbered within the stripe, so a link takes two bytes: three bytes per slot in all, and 128 per stripe,
//! which has eight kilobytes of buckets. Nothing is allocated later.
//!
//! # Retired slots
//!
//! The slot of a removed entry may be read until every worker has been quiescent. Two lists suffice: one waits for its
//! epoch to be past, and the other is filled meanwhile.
//!
//! A packet that replaces an entry retires a slot, and a batch may have more packets of one flow than a probe sequence has
//! slots. So the last slots that workers have retired are kept apart ([`Content::retire_by`]): a later packet of the same
//! worker may take one of them in the same batch, once the *other* workers have been quiescent. The worker itself no longer
//! uses it: packets use entries of such a table one after the other, each within its own run
//! ([`DynamicTable::set_retirements`](super::DynamicTable::set_retirements)).
#![allow(unsafe_code)]

use crate::reclaim::Domain;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Buckets of a stripe. More than the length of a probe sequence, so that one spans at most two stripes.
pub(super) const STRIPE_BUCKETS: u32 = 128;
/// Steps of a chunk.
const CHUNK: u64 = 128;
/// Number of chunks that the bytes can distinguish.
const CHUNKS: u64 = 64;
/// The byte of a slot that is never due.
const NEVER: u8 = 0;
/// The byte of a slot that is due now, or is being checked.
const NOW: u8 = 1;
/// Set in bytes that encode a step.
const STEP: u8 = 0x80;
/// Set, without [`STEP`], in bytes that encode a chunk.
const LATER: u8 = 0x40;
/// Bytes that are compared together.
const LINE: usize = 64;

/// Attempts to take a lock after which the thread yields.
const SPINS: u32 = 200;

/// A link of a list of retired slots: the next slot's number plus one; 0 ends the list.
type Link = u16;

/// A stripe's slots, accessed under its lock.
pub(super) struct Slots<'a> {
    /// The wheel byte of each slot.
    pub(super) times: &'a mut [u8],
    /// For each retired slot, the next one of its list.
    pub(super) links: &'a mut [Link],
}

/// A stripe with its lock, which protects the buckets' state words, the slots' wheel bytes and links, and the content.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Stripe {
    held: AtomicU32,
    content: UnsafeCell<Content>,
}

// SAFETY: the content is only accessed under the lock.
unsafe impl Sync for Stripe {}

/// Slots that are kept apart for the worker that retired them: as many as fit a second cache line of the stripe.
pub(super) const OWN_MAX: usize = 4;

/// A slot that a worker has retired.
#[derive(Clone, Copy, Default, Debug)]
struct Own {
    epoch: u64,
    worker: u32,
    slot: u16,
}

/// The data that the lock protects.
#[derive(Default, Debug)]
pub(super) struct Content {
    /// The last step for which due slots were searched.
    step: u64,
    /// Whether slots are due although no other step has begun.
    is_urgent: bool,
    /// The list that waits for an epoch: the epoch, and the first slot.
    old: (u64, Link),
    /// The list that is filled meanwhile: the latest epoch, and the first slot.
    young: (u64, Link),
    /// Removed entries that were not in their home bucket: the overflow marks that they left behind slow lookups down.
    pub(super) stale: u32,
    /// The last slots that workers have retired, the oldest first, and their number.
    own: [Own; OWN_MAX],
    owned: u8,
}

/// A lock that is held; dropping it releases the lock.
pub(super) struct StripeGuard<'a>(&'a Stripe);

impl Stripe {
    pub(super) fn new() -> Stripe {
        Stripe { held: AtomicU32::new(0), content: UnsafeCell::default() }
    }

    /// Takes the lock, waiting for it if necessary. Locks are held for some hundred nanoseconds; a holder that was
    /// preempted runs again when the waiters yield.
    pub(super) fn lock(&self) -> StripeGuard<'_> {
        let mut tries = 0;
        while self.held.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            tries += 1;
            if tries % SPINS == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        StripeGuard(self)
    }
}

impl Deref for StripeGuard<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        // SAFETY: the lock is held.
        unsafe { &*self.0.content.get() }
    }
}

impl DerefMut for StripeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Content {
        // SAFETY: the lock is held, by this value alone.
        unsafe { &mut *self.0.content.get() }
    }
}

impl Drop for StripeGuard<'_> {
    fn drop(&mut self) {
        self.0.held.store(0, Ordering::Release);
    }
}

/// The byte of a slot that is due when the step `due` begins; `now` is the current step.
fn byte_of(due: u64, now: u64) -> u8 {
    if due <= now {
        return NOW;
    }
    if due - now < CHUNK {
        return STEP | (due % CHUNK) as u8;
    }
    let chunk = (due / CHUNK).min(now / CHUNK + CHUNKS - 1);
    LATER | (chunk % CHUNKS) as u8
}

/// Appends to `found` the positions of the bytes that are `wanted`.
fn positions(bytes: &[u8], wanted: impl Fn(u8) -> bool, found: &mut Vec<u16>) {
    for (i, line) in bytes.chunks(LINE).enumerate() {
        // Without a branch per byte, so that the compiler vectorises the loop.
        if line.iter().fold(0u8, |any, byte| any | u8::from(wanted(*byte))) == 0 {
            continue;
        }
        let here = line.iter().enumerate().filter(|(_, byte)| wanted(**byte));
        found.extend(here.map(|(j, _)| (i * LINE + j) as u16));
    }
}

// The timing wheel.
impl Content {
    /// Makes a slot due when the step `due` begins, or earlier. Returns true if it is due now.
    pub(super) fn put(&mut self, times: &mut [u8], slot: u16, due: u64) -> bool {
        let byte = byte_of(due, self.step);
        times[usize::from(slot)] = byte;
        self.is_urgent |= byte == NOW;
        byte == NOW
    }

    /// Takes a slot out of the wheel.
    pub(super) fn take(times: &mut [u8], slot: u16) {
        times[usize::from(slot)] = NEVER;
    }

    /// Advances the wheel to the step `now`, and appends the slots that are due to `found`. Those that are still
    /// [found](Content::is_found) when they are checked must then be put or taken.
    pub(super) fn advance(&mut self, times: &mut [u8], now: u64, found: &mut Vec<u16>) {
        let before = self.step;
        self.step = now.max(before);
        let first = found.len();
        if std::mem::take(&mut self.is_urgent) {
            positions(times, |byte| byte == NOW, found);
        }
        if now.saturating_sub(before) >= CHUNK {
            // All bytes of steps, and those of chunks that have begun.
            let begun = (now / CHUNK - before / CHUNK).min(CHUNKS) as u8;
            let next = (before / CHUNK + 1) as u8;
            let is_later = |byte: u8| byte & (STEP | LATER) == LATER;
            let is_over =
                |byte: u8| byte & STEP > 0 || is_later(byte) && byte.wrapping_sub(next) % (CHUNKS as u8) < begun;
            positions(times, is_over, found);
        } else {
            for step in before + 1..=now {
                positions(times, |byte| byte == STEP | (step % CHUNK) as u8, found);
                if step.is_multiple_of(CHUNK) {
                    positions(times, |byte| byte == LATER | (step / CHUNK % CHUNKS) as u8, found);
                }
            }
        }
        found[first..].iter().for_each(|slot| times[usize::from(*slot)] = NOW);
    }

    /// Whether a slot that was found due has neither been put nor taken since.
    pub(super) fn is_found(times: &[u8], slot: u16) -> bool {
        times[usize::from(slot)] == NOW
    }
}

// Retired slots.
impl Content {
    /// Retires a slot that is not in the wheel and whose entry readers no longer find.
    pub(super) fn retire(&mut self, links: &mut [Link], slot: u16, domain: &Domain) {
        let epoch = domain.advance();
        links[usize::from(slot)] = self.young.1;
        self.young = (epoch, slot + 1);
        if self.old.1 == 0 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// As [`retire`](Content::retire), by a packet of a worker.
    pub(super) fn retire_by(&mut self, worker: u32, links: &mut [Link], slot: u16, domain: &Domain) {
        if usize::from(self.owned) == OWN_MAX {
            let oldest = self.take_own(0);
            self.retire(links, oldest.slot, domain);
        }
        self.own[usize::from(self.owned)] = Own { epoch: domain.advance(), worker, slot };
        self.owned += 1;
    }

    fn take_own(&mut self, at: usize) -> Own {
        let taken = self.own[at];
        self.own.copy_within(at + 1..usize::from(self.owned), at);
        self.owned -= 1;
        taken
    }

    /// A slot that a packet of the worker may fill in the batch in which an earlier one has retired it. Each of its packets
    /// retires at most `each` slots, so the last `each - 1` may be in use by the calling one.
    pub(super) fn reuse(&mut self, worker: u32, each: usize, domain: &Domain) -> Option<u16> {
        let all = &self.own[..usize::from(self.owned)];
        let of_worker = all.iter().filter(|own| own.worker == worker).count();
        let at = all.iter().position(|own| own.worker == worker)?;
        let may_reuse = of_worker >= each && domain.is_past_for_others(all[at].epoch, worker);
        may_reuse.then(|| self.take_own(at).slot)
    }

    /// Passes the slots that no reader can see any more to `release`.
    pub(super) fn collect(&mut self, links: &mut [Link], domain: &Domain, mut release: impl FnMut(u16)) {
        while self.owned > 0 && domain.is_past(self.own[0].epoch) {
            release(self.take_own(0).slot);
        }
        while self.old.1 > 0 && domain.is_past(self.old.0) {
            let (_, mut at) = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            while at > 0 {
                let slot = at - 1;
                at = std::mem::take(&mut links[usize::from(slot)]);
                release(slot);
            }
        }
    }

    /// Whether there are retired slots.
    pub(super) fn has_waiting(&self) -> bool {
        self.old.1 > 0 || self.owned > 0
    }
}

#[cfg(test)]
mod tests;
