//! Action selector groups: weighted members, and the selection of one by hash.
//!
//! **Selection**: let the available members of the group, in member order, have the weights `w0, w1, ...` with the sum
//! `W`. A packet with hash `h` gets the member `i` with `w0 + ... + w(i-1) <= h mod W < w0 + ... + wi`. Without an
//! available member there is no entry. (P4 leaves this function to the target; the reference interpreter uses the same
//! one.)
//!
//! A group may instead draw members at random (P4Runtime's `RANDOM` selection mode): then `h` is the next number of the
//! group's own sequence, [`draw`]. Workers share the sequence, so such groups cost an access to a shared cache line per
//! packet.
//!
//! A [`Group`] stays at one address, which entries store; its [`Slots`] are replaced as a whole, so a packet sees the
//! members before a change or after it. If the sum of weights is at most [`MAX_EXPANDED`] it is expanded to an array,
//! and the selection is one load; otherwise the cumulative weights are searched.
//!
//! Threads: one writer, any number of readers. Tests: `selector/tests.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use abi::EntryHeader;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Limit of the sum of weights that is expanded to an array (32 KB).
const MAX_EXPANDED: u64 = 4096;

/// A group, as readers see it.
#[derive(Debug)]
pub struct Group {
    slots: AtomicPtr<Slots>,
    random: AtomicBool,
    /// Numbers drawn so far.
    drawn: AtomicU64,
}

/// Number `n` of the sequence that every random group draws from: SplitMix64 (Steele, Lea, Flood: "Fast splittable
/// pseudorandom number generators").
pub fn draw(n: u64) -> u64 {
    let state = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The members that a group selects from, in the form for lookups. Immutable.
#[derive(Debug)]
struct Slots {
    /// The sum of the weights.
    total: u64,
    /// One pointer per unit of weight; empty if `sums` is used.
    expanded: Vec<*const EntryHeader>,
    /// Otherwise: the cumulative weight up to and including each member, ascending.
    sums: Vec<(u64, *const EntryHeader)>,
}

/// Replaced members of a group, to be dropped when no reader can see them any more.
#[derive(Debug)]
pub struct OldMembers(Box<Slots>);

impl OldMembers {
    /// Size in bytes of the pointers and weights.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0.expanded) + size_of_val(&*self.0.sums)
    }
}

// SAFETY: the entries are only referred to, not owned.
unsafe impl Send for OldMembers {}

impl Slots {
    fn new(members: &[(u32, *const EntryHeader)]) -> Slots {
        let mut total = 0;
        let mut sums = Vec::new();
        for (weight, entry) in members.iter().filter(|(weight, _)| *weight > 0) {
            total += u64::from(*weight);
            sums.push((total, *entry));
        }
        if total > MAX_EXPANDED {
            return Slots { total, expanded: Vec::new(), sums };
        }
        let copies = |(weight, entry): &(u32, _)| std::iter::repeat_n(*entry, *weight as usize);
        Slots { total, expanded: members.iter().flat_map(copies).collect(), sums: Vec::new() }
    }

    #[inline]
    fn choose(&self, hash: u64) -> *const EntryHeader {
        if self.total == 0 {
            return ptr::null();
        }
        let at = hash % self.total;
        match self.expanded.get(at as usize) {
            Some(entry) => *entry,
            None => self.sums[self.sums.partition_point(|(sum, _)| *sum <= at)].1,
        }
    }
}

impl Group {
    /// A group with these available members: weights and entries, in member order.
    pub fn new(members: &[(u32, *const EntryHeader)]) -> Group {
        Group {
            slots: AtomicPtr::new(Box::into_raw(Box::new(Slots::new(members)))),
            random: AtomicBool::new(false),
            drawn: AtomicU64::new(0),
        }
    }

    /// Makes the group draw members at random from now on.
    pub fn set_random(&self) {
        self.random.store(true, Ordering::Relaxed);
    }

    /// Whether members are drawn at random.
    pub fn is_random(&self) -> bool {
        self.random.load(Ordering::Relaxed)
    }

    /// Replaces the members. Returns the old ones, which the caller retires.
    #[must_use = "readers may still see the old members"]
    pub fn set(&self, members: &[(u32, *const EntryHeader)]) -> OldMembers {
        let old = self.slots.swap(Box::into_raw(Box::new(Slots::new(members))), Ordering::AcqRel);
        // SAFETY: the pointer came from `Box::into_raw`, and the swap made it ours.
        OldMembers(unsafe { Box::from_raw(old) })
    }

    /// The pointer that entries store.
    pub fn as_ptr(&self) -> *const c_void {
        ptr::from_ref(self).cast()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw`; there are no readers any more.
        drop(unsafe { Box::from_raw(self.slots.load(Ordering::Relaxed)) });
    }
}

/// Selects a member's entry; see [`abi::table::SelectFn`].
///
/// # Safety
/// `group` is a [`Group`] of a live entry; the caller is online.
pub unsafe extern "C" fn select(group: *const c_void, hash: u64) -> *const EntryHeader {
    // SAFETY: the caller's promise; slots live until the caller is quiescent.
    unsafe {
        let group = &*group.cast::<Group>();
        let hash = if group.is_random() { draw(group.drawn.fetch_add(1, Ordering::Relaxed)) } else { hash };
        (*group.slots.load(Ordering::Acquire)).choose(hash)
    }
}

#[cfg(test)]
mod tests;
