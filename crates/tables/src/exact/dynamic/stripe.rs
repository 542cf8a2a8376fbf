//! A stripe: some buckets of a table that packets write, with their own lock, timing wheel, and list of slots that wait
//! for readers.
//!
//! # Wheel
//!
//! A hierarchical timing wheel (Varghese and Lauck 1987, scheme 7) of two levels with 64 positions: one of a *step* of
//! [`STEP_TICKS`] ticks (131 ms), one of 64 steps (8.4 s). An entry lies where it is to be *looked at*, not after its time
//! is over: a hit only stores the clock in the entry, and an entry that is looked at too early is put where its time ends
//! then. So an entry is looked at about twice in its timeout, however often it is hit; one that may be idle for longer than
//! nine minutes is looked at as often as that.
//!
//! # Memory
//!
//! Slots are numbered within the stripe, so a link of a list takes two bytes, and each slot has two: 300 bytes a stripe,
//! which has eight kilobytes of buckets, and four a slot. Nothing is allocated.
//!
//! # Slots that wait
//!
//! A slot whose entry ended may be read until every worker has been quiescent. Two lists suffice: the one that
//! waits for an epoch, and the one that fills meanwhile.
#![allow(unsafe_code)]

use crate::reclaim::Domain;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Buckets of a stripe. More than a key's path is long, so that a path lies in two.
pub(super) const STRIPE_BUCKETS: u32 = 128;
/// Ticks of a step, as a power of two.
const STEP_SHIFT: u32 = 7;
/// Ticks of a step.
#[cfg(test)]
const STEP_TICKS: u64 = 1 << STEP_SHIFT;
/// Positions of a level.
const POSITIONS: u64 = 64;
/// Steps beyond which all lists are looked at, when the clock has jumped.
const JUMP: u64 = POSITIONS * POSITIONS;

/// How often a lock is tried before the thread lets others run.
const SPINS: u32 = 200;

/// The step that a tick is in.
pub(super) fn step_of(tick: u64) -> u64 {
    tick >> STEP_SHIFT
}

/// Neighbours of a slot in the list that it is in: numbers and one; 0 is none.
#[derive(Debug)]
pub(super) struct Links {
    next: AtomicU16,
    /// Of the first of a list, [`HEAD`] and the number of the list.
    previous: AtomicU16,
}

const HEAD: u16 = 0x8000;

/// A stripe with its lock. Whoever holds that may change the buckets' states, their links and what is here.
#[derive(Debug)]
pub(super) struct Stripe {
    held: AtomicU32,
    content: UnsafeCell<Content>,
}

// SAFETY: the content is used under the lock only.
unsafe impl Sync for Stripe {}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct Content {
    /// The first step that is not over, as far as entries were looked at.
    step: u64,
    /// The first slot of each list of the wheel.
    heads: [u16; 2 * POSITIONS as usize],
    /// Waits for an epoch: the first slot.
    old: (u64, u16),
    /// Fills meanwhile: the epoch of the latest.
    young: (u64, u16),
    /// Entries that ended away from their home: the marks that they left cost lookups.
    pub(super) stale: u32,
}

/// A held lock.
pub(super) struct Held<'a>(&'a Stripe);

impl Stripe {
    pub(super) fn new() -> Stripe {
        let content = Content { step: 0, heads: [0; 128], old: (0, 0), young: (0, 0), stale: 0 };
        Stripe { held: AtomicU32::new(0), content: UnsafeCell::new(content) }
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

impl Links {
    fn set(&self, next: u16, previous: u16) {
        self.next.store(next, Ordering::Relaxed);
        self.previous.store(previous, Ordering::Relaxed);
    }

    fn next(&self) -> u16 {
        self.next.load(Ordering::Relaxed)
    }

    fn previous(&self) -> u16 {
        self.previous.load(Ordering::Relaxed)
    }
}

// The wheel. `links` are those of the stripe's slots.
impl Content {
    /// Puts a slot, which is in no list, where it is looked at before `due` is over, and as late as can be.
    pub(super) fn put(&mut self, links: &[Links], slot: u16, due: u64) {
        let due = step_of(due).max(self.step);
        let ahead = due / POSITIONS - self.step / POSITIONS;
        let list = match due - self.step {
            0..POSITIONS => due % POSITIONS,
            _ => POSITIONS + (self.step / POSITIONS + ahead.min(POSITIONS - 1)) % POSITIONS,
        };
        let head = &mut self.heads[list as usize];
        links[usize::from(slot)].set(*head, HEAD | list as u16);
        if *head > 0 {
            links[usize::from(*head - 1)].previous.store(slot + 1, Ordering::Relaxed);
        }
        *head = slot + 1;
    }

    /// Takes a slot out of the list that it is in, if it is in one.
    pub(super) fn take(&mut self, links: &[Links], slot: u16) {
        let here = &links[usize::from(slot)];
        let (next, previous) = (here.next(), here.previous());
        match previous {
            0 => return,
            HEAD.. => self.heads[usize::from(previous & !HEAD)] = next,
            _ => links[usize::from(previous - 1)].next.store(next, Ordering::Relaxed),
        }
        if next > 0 {
            links[usize::from(next - 1)].previous.store(previous, Ordering::Relaxed);
        }
        here.set(0, 0);
    }

    /// Calls `look` with each slot that is to be looked at by `now`, in no list any more; it says when to look again.
    pub(super) fn advance(&mut self, links: &[Links], now: u64, mut look: impl FnMut(u16) -> Option<u64>) {
        let to = step_of(now);
        if to.saturating_sub(self.step) > JUMP {
            let all: Vec<u16> = (0..self.heads.len()).flat_map(|list| self.drain(links, list)).collect();
            self.step = to;
            for slot in all {
                if let Some(due) = look(slot) {
                    self.put(links, slot, due);
                }
            }
            return;
        }
        loop {
            let mut here = Vec::new();
            if self.step.is_multiple_of(POSITIONS) {
                here = self.drain(links, (POSITIONS + self.step / POSITIONS % POSITIONS) as usize);
            }
            here.extend(self.drain(links, (self.step % POSITIONS) as usize));
            for slot in here {
                if let Some(due) = look(slot) {
                    self.put(links, slot, due);
                }
            }
            if self.step >= to {
                return;
            }
            self.step += 1;
        }
    }

    /// The slots of a list, which is empty then.
    fn drain(&mut self, links: &[Links], list: usize) -> Vec<u16> {
        let mut slots = Vec::new();
        let mut at = std::mem::take(&mut self.heads[list]);
        while at > 0 {
            let here = &links[usize::from(at - 1)];
            slots.push(at - 1);
            at = here.next();
            here.set(0, 0);
        }
        slots
    }

    /// A step before which nothing has to be looked at; `None` if nothing ever has to.
    pub(super) fn next_step(&self) -> Option<u64> {
        let steps = (0..POSITIONS).map(|ahead| self.step + ahead);
        let near = steps.clone().find(|step| self.heads[(step % POSITIONS) as usize] > 0);
        let first = self.step / POSITIONS;
        let chunks = (0..POSITIONS).map(|ahead| first + ahead);
        let far = chunks.clone().find(|chunk| self.heads[(POSITIONS + chunk % POSITIONS) as usize] > 0);
        let far = far.map(|chunk| (chunk * POSITIONS).max(self.step));
        near.into_iter().chain(far).min()
    }
}

// Slots that wait for readers.
impl Content {
    /// Lets a slot wait, which is in no list and whose entry readers do not find any more.
    pub(super) fn retire(&mut self, links: &[Links], slot: u16, domain: &Domain) {
        let epoch = domain.advance();
        links[usize::from(slot)].set(self.young.1, 0);
        self.young = (epoch, slot + 1);
        if self.old.1 == 0 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// Hands slots to `release` that no reader can read any more.
    pub(super) fn collect(&mut self, links: &[Links], domain: &Domain, mut release: impl FnMut(u16)) {
        while self.old.1 > 0 && domain.is_past(self.old.0) {
            let (_, mut at) = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            while at > 0 {
                let here = &links[usize::from(at - 1)];
                let slot = at - 1;
                at = here.next();
                here.set(0, 0);
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
