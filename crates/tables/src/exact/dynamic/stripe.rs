//! A stripe: some buckets of a table that packets write, with their own lock, the times at which entries are looked at, and a
//! list of slots that wait for readers.
//!
//! # Time
//!
//! Time goes in *steps* of the table, a power of two of ticks ([`step_shift`]). Each slot has one byte: the step at which its entry
//! is to be *looked at*. That is a timing wheel (Varghese and Lauck 1987, scheme 7) whose lists are not linked: who looks for
//! the slots of a step reads the bytes of all slots, 64 at a time, in order. Putting a slot into the wheel, or taking it out, is one
//! store. A linked list would be read slot by slot, and each slot's links would come from memory for themselves.
//!
//! | byte | looked at |
//! | --- | --- |
//! | 0 | never |
//! | 1 | now |
//! | 128 + step % 128 | at the end of a step that is less than 128 steps ahead |
//! | 64 + chunk % 64 | at the beginning of a later *chunk* of 128 steps, less than 64 chunks ahead; then it gets a nearer byte |
//!
//! A hit only stores the clock in the entry. An entry that is looked at too early gets the byte of the step at which its time ends
//! then. So an entry is looked at once or twice in its timeout, however often it is hit; one that may be idle for longer than 64
//! chunks is looked at as often as that.
//!
//! # Memory
//!
//! Slots are numbered within the stripe, so a link takes two bytes: three bytes a slot in all, and 64 a stripe, which has eight
//! kilobytes of buckets. Nothing is allocated.
//!
//! # Slots that wait
//!
//! A slot whose entry ended may be read until every worker has been quiescent. Two lists suffice: the one that
//! waits for an epoch, and the one that fills meanwhile.
#![allow(unsafe_code)]

use crate::reclaim::Domain;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Buckets of a stripe. More than a key's path is long, so that a path lies in two.
pub(super) const STRIPE_BUCKETS: u32 = 128;
/// Steps of a chunk.
const CHUNK: u64 = 128;
/// Chunks that bytes tell apart.
const CHUNKS: u64 = 64;
/// The byte of a slot that is never looked at.
const NEVER: u8 = 0;
/// The byte of a slot that is to be looked at now, or is being looked at.
const NOW: u8 = 1;
/// Set in bytes that name a step.
const STEP: u8 = 0x80;
/// Set, without [`STEP`], in bytes that name a chunk.
const LATER: u8 = 0x40;
/// Bytes that are compared at once.
const LINE: usize = 64;

/// How often a lock is tried before the thread lets others run.
const SPINS: u32 = 200;

/// Neighbours of slots in the lists that wait: numbers and one; 0 is none.
type Link = u16;

/// What belongs to a stripe's slots, and is used under its lock.
pub(super) struct Slots<'a> {
    /// When each slot is looked at.
    pub(super) times: &'a mut [u8],
    /// The next slot of the list that waits.
    pub(super) links: &'a mut [Link],
}

/// A stripe with its lock. Whoever holds that may change the buckets' states, their slots' times and links, and what is here.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Stripe {
    held: AtomicU32,
    content: UnsafeCell<Content>,
}

// SAFETY: the content is used under the lock only.
unsafe impl Sync for Stripe {}

/// What the lock guards.
#[derive(Default, Debug)]
pub(super) struct Content {
    /// The last step that had begun when entries were looked at.
    step: u64,
    /// Whether there are slots to be looked at although no other step has begun.
    is_urgent: bool,
    /// Waits for an epoch: the first slot.
    old: (u64, Link),
    /// Fills meanwhile: the epoch of the latest.
    young: (u64, Link),
    /// Entries that ended away from their home: the marks that they left cost lookups.
    pub(super) stale: u32,
}

/// A held lock.
pub(super) struct Held<'a>(&'a Stripe);

impl Stripe {
    pub(super) fn new() -> Stripe {
        Stripe { held: AtomicU32::new(0), content: UnsafeCell::default() }
    }

    /// Waits for the lock. It is held for some hundred nanoseconds; a holder that lost its processor gets it back when
    /// those that wait yield.
    pub(super) fn lock(&self) -> Held<'_> {
        let mut tries = 0;
        while self.held.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            tries += 1;
            if tries % SPINS == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Held(self)
    }
}

impl Deref for Held<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        // SAFETY: the lock is held.
        unsafe { &*self.0.content.get() }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Content {
        // SAFETY: the lock is held, by this value alone.
        unsafe { &mut *self.0.content.get() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.store(0, Ordering::Release);
    }
}

/// The byte of a slot to be looked at when the step `due` has begun.
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

/// Adds the numbers of bytes that are `wanted` to `found`.
fn positions(bytes: &[u8], wanted: impl Fn(u8) -> bool, found: &mut Vec<u16>) {
    for (i, line) in bytes.chunks(LINE).enumerate() {
        // Without a branch for each byte, so that the compiler compares many at once.
        if line.iter().fold(0u8, |any, byte| any | u8::from(wanted(*byte))) == 0 {
            continue;
        }
        let here = line.iter().enumerate().filter(|(_, byte)| wanted(**byte));
        found.extend(here.map(|(j, _)| (i * LINE + j) as u16));
    }
}

// When entries are looked at.
impl Content {
    /// Has a slot looked at when the step `due` has begun, or soon; whether that has begun already.
    pub(super) fn put(&mut self, times: &mut [u8], slot: u16, due: u64) -> bool {
        let byte = byte_of(due, self.step);
        times[usize::from(slot)] = byte;
        self.is_urgent |= byte == NOW;
        byte == NOW
    }

    /// Has a slot not looked at.
    pub(super) fn take(times: &mut [u8], slot: u16) {
        times[usize::from(slot)] = NEVER;
    }

    /// Finds the slots that are to be looked at now that the step `now` has begun. Those that [`Content::is_found`] when they are
    /// looked at must be put or taken.
    pub(super) fn advance(&mut self, times: &mut [u8], now: u64, found: &mut Vec<u16>) {
        let before = self.step;
        self.step = now.max(before);
        let first = found.len();
        if std::mem::take(&mut self.is_urgent) {
            positions(times, |byte| byte == NOW, found);
        }
        if now.saturating_sub(before) >= CHUNK {
            // Every byte of a step, and those of chunks that have begun.
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

    /// Whether a slot that was found has not been put or taken since.
    pub(super) fn is_found(times: &[u8], slot: u16) -> bool {
        times[usize::from(slot)] == NOW
    }
}

// Slots that wait for readers.
impl Content {
    /// Lets a slot wait that is not looked at and whose entry readers do not find any more.
    pub(super) fn retire(&mut self, links: &mut [Link], slot: u16, domain: &Domain) {
        let epoch = domain.advance();
        links[usize::from(slot)] = self.young.1;
        self.young = (epoch, slot + 1);
        if self.old.1 == 0 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// Hands slots to `release` that no reader can read any more.
    pub(super) fn collect(&mut self, links: &mut [Link], domain: &Domain, mut release: impl FnMut(u16)) {
        while self.old.1 > 0 && domain.is_past(self.old.0) {
            let (_, mut at) = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            while at > 0 {
                let slot = at - 1;
                at = std::mem::take(&mut links[usize::from(slot)]);
                release(slot);
            }
        }
    }

    /// Whether slots wait.
    pub(super) fn has_waiting(&self) -> bool {
        self.old.1 > 0
    }
}

#[cfg(test)]
mod tests;
