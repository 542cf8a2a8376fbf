//! Copies of frames, in buffers that are taken from their pool many at a time.
#![allow(unsafe_code)]

use abi::packet::BATCH_MAX;
use pktio::{Packet, free_bulk};

/// What packets have in common whose buffers may stand for each other: the pool, and the buffers' size.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Kind {
    vtable: usize,
    pool: usize,
    capacity: u16,
}

impl Kind {
    #[inline(always)]
    fn of(packet: &Packet) -> Kind {
        let raw = packet.raw();
        // SAFETY: the handle is that of a live packet, and belongs to this vtable.
        let pool = unsafe { (raw.vtable.pool_of)(raw.handle) };
        Kind { vtable: std::ptr::from_ref(raw.vtable).addr(), pool, capacity: raw.capacity }
    }
}

/// Buffers for copies of one burst; none between bursts.
#[derive(Default)]
pub(super) struct Copies {
    spare: Vec<Packet>,
    /// Of all of them.
    kind: Kind,
    /// Copies made of this burst so far, or of the last one if those were more: as many as will be.
    usual: usize,
    made: usize,
}

impl Copies {
    /// Takes buffers like the packet's for `count` copies, and for those of `askers - 1` more packets if that many copies are usual.
    #[inline]
    pub(super) fn prepare(&mut self, packet: &Packet, count: usize, askers: usize) {
        self.made += count;
        let kind = Kind::of(packet);
        if self.spare.len() < count || self.kind != kind {
            self.take_more(packet, kind, count, askers);
        }
    }

    #[inline(never)]
    fn take_more(&mut self, packet: &Packet, kind: Kind, count: usize, askers: usize) {
        if self.kind != kind && !self.spare.is_empty() {
            free_bulk(&mut self.spare);
        }
        self.kind = kind;
        let usual = self.usual.max(self.made).min(count * askers);
        let wanted = usual.max(count).min(BATCH_MAX.max(count));
        let more = wanted.saturating_sub(self.spare.len());
        packet.alloc_like(&mut self.spare, more);
    }

    /// A copy of the packet for which buffers were taken; `None` when there was no other.
    #[inline(always)]
    pub(super) fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        packet.copy_into(self.spare.pop()?)
    }

    /// Gives back what is left, at the end of a burst.
    #[inline]
    pub(super) fn end(&mut self) {
        if !self.spare.is_empty() {
            free_bulk(&mut self.spare);
        }
        self.usual = std::mem::take(&mut self.made);
    }
}
