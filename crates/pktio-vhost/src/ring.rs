//! A virtqueue, split or packed: what both formats share.
//!
//! A ring is built from addresses that were checked against the memory table, and keeps that table mapped.
//! Its size, addresses and format never change: when the front end sets something new, another ring is built
//! that continues at the same index. All entries taken from a ring are given back in the same call, in
//! order, so one index describes its state.
//!
//! Notifications: whether the guest wants a call is read in the poll after its entries were given back. The guest sets
//! its flag and then reads the index; we write the index and then read its flag. The exchange that acquires the queue's
//! lock in between is the store-load barrier. A fence right after the stores would wait for all of them.
//!
//! Threads: the holder of the queue's lock. Tests: `ring/tests.rs`, `tests/hostile.rs`.

use crate::memory::Memory;
use crate::packed::Packed;
use crate::split::Split;
use crate::terms::{BURST_MAX, Burst, Fault, Parts, Terms};
use pktio::{Packet, Pool};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) struct Ring {
    kind: Kind,
    terms: Terms,
    /// Entries were given back, and the guest's notification flag was not read since.
    owes_call: bool,
    fault: Option<Fault>,
    /// The guest's index is invalid, which was reported. Nothing is taken until it
    /// is valid again; the ring then continues.
    counts_wrongly: bool,
}

enum Kind {
    Split(Split),
    Packed(Packed),
}

impl Ring {
    /// Builds a ring that continues at `base`, encoded as in the protocol: for packed rings the index of the next
    /// descriptor, with the wrap counter in bit 15. `None` if size or index is invalid for the ring.
    pub(crate) fn new(memory: Arc<Memory>, parts: Parts, is_packed: bool, base: u32, terms: Terms) -> Option<Ring> {
        let kind = if is_packed {
            Kind::Packed(Packed::new(memory, parts, base as u16)?)
        } else {
            Kind::Split(Split::new(memory, parts, base as u16)?)
        };
        Some(Ring { kind, terms, owes_call: false, fault: None, counts_wrongly: false })
    }

    /// The index at which a successor continues: see [`Ring::new`].
    pub(crate) fn base(&self) -> u32 {
        match &self.kind {
            Kind::Split(ring) => ring.base().into(),
            // The available and the used index, which are equal here.
            Kind::Packed(ring) => u32::from(ring.base()) | u32::from(ring.base()) << 16,
        }
    }

    #[inline]
    fn memory(&self) -> &Memory {
        match &self.kind {
            Kind::Split(ring) => ring.memory(),
            Kind::Packed(ring) => ring.memory(),
        }
    }

    /// Whether the guest must be called now; true at most once after entries were given back.
    #[inline]
    pub(crate) fn take_call(&mut self) -> bool {
        std::mem::take(&mut self.owes_call)
            && match &self.kind {
                Kind::Split(ring) => ring.wants_calls(),
                Kind::Packed(ring) => ring.wants_calls(),
            }
    }

    /// Enables or disables kicks from the guest.
    pub(crate) fn want_kicks(&mut self, wanted: bool) {
        match &self.kind {
            Kind::Split(ring) => ring.want_kicks(wanted),
            Kind::Packed(ring) => ring.want_kicks(wanted),
        }
    }

    /// Whether there is an entry. A full barrier orders this after a preceding [`Ring::want_kicks`].
    pub(crate) fn has_entries(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.fault.is_none()
            && match &self.kind {
                Kind::Split(ring) => ring.has_entries(),
                Kind::Packed(ring) => ring.has_entries(),
            }
    }

    /// Appends at most `max` packets that the guest sends to `out`.
    ///
    /// # Errors
    /// A fault of the ring, reported once; afterwards the ring takes nothing
    /// ([`Fault::Index`]: until the index is valid).
    #[inline]
    pub(crate) fn receive(
        &mut self,
        pool: &dyn Pool,
        out: &mut Vec<Packet>,
        max: usize,
        burst: &mut Burst,
    ) -> Result<(), Fault> {
        if self.fault.is_some() {
            return Ok(());
        }
        let max = max.min(BURST_MAX);
        let taken = match &mut self.kind {
            Kind::Split(ring) => ring.receive(&self.terms, pool, out, max, burst),
            Kind::Packed(ring) => ring.receive(&self.terms, pool, out, max, burst),
        };
        self.finish(taken)
    }

    /// Copies packets from the front of `packets` into the guest's buffers. Returns how many. Stops
    /// before a packet that cannot be sent as it is: empty, longer than `frame_max`, or large with
    /// offloads that this guest does not accept.
    ///
    /// # Errors
    /// As [`Ring::receive`].
    #[inline]
    pub(crate) fn send(&mut self, packets: &mut [Packet], frame_max: u32, burst: &mut Burst) -> Result<usize, Fault> {
        if self.fault.is_some() {
            return Ok(0);
        }
        let count = packets.len().min(BURST_MAX);
        let mut done = 0;
        let taken = match &mut self.kind {
            Kind::Split(ring) => ring.send(&self.terms, &mut packets[..count], frame_max, burst, &mut done),
            Kind::Packed(ring) => ring.send(&self.terms, &mut packets[..count], frame_max, burst, &mut done),
        };
        self.finish(taken)?;
        Ok(done)
    }

    #[inline]
    fn finish(&mut self, taken: Result<usize, Fault>) -> Result<(), Fault> {
        // Truncated memory reads as zeros, so what was taken may be meaningless.
        let is_damaged = self.memory().is_damaged() || self.terms.log.as_ref().is_some_and(|log| log.is_damaged());
        let result = match taken {
            _ if is_damaged => Err(Fault::Damaged),
            Ok(0) => return Ok(()),
            Ok(_) => Ok(()),
            Err(Fault::Index) => {
                let is_new = !std::mem::replace(&mut self.counts_wrongly, true);
                return if is_new { Err(Fault::Index) } else { Ok(()) };
            }
            Err(fault) => Err(fault),
        };
        self.owes_call = true;
        self.fault = result.err();
        result
    }
}

#[cfg(test)]
mod tests;
