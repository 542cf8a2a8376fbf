//! One ring, split or packed: what is common to both.
//!
//! A ring is made from addresses that were checked against the memory table, and keeps that table mapped. It never changes
//! its size, addresses or kind: whenever the front end says something new, another one is made, which goes on at the same
//! index. All that is taken from a ring is given back in the same call, in order, so one index says where it stands.
//!
//! Notifications: whether the guest wants to be called is asked at the poll after its entries were given back. The guest
//! writes its wish and then looks at the index; we have written the index and look at its wish; the exchange that takes
//! the queue's lock keeps these in order. A fence right behind the stores would wait for all of them.
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
    /// Entries were given back, and the guest was not asked whether it wants to be called.
    owes_call: bool,
    fault: Option<Fault>,
    /// That the guest counts wrongly was reported. Nothing is taken meanwhile, and the ring goes on when it is right again.
    counts_wrongly: bool,
}

enum Kind {
    Split(Split),
    Packed(Packed),
}

impl Ring {
    /// A ring that goes on at `base`, as the protocol has it: for packed rings the index of the next entry, and in bit 15
    /// its wrap counter. `None` if these do not fit the ring.
    pub(crate) fn new(memory: Arc<Memory>, parts: Parts, is_packed: bool, base: u32, terms: Terms) -> Option<Ring> {
        let kind = if is_packed {
            Kind::Packed(Packed::new(memory, parts, base as u16)?)
        } else {
            Kind::Split(Split::new(memory, parts, base as u16)?)
        };
        Some(Ring { kind, terms, owes_call: false, fault: None, counts_wrongly: false })
    }

    /// Where another ring goes on: see [`Ring::new`].
    pub(crate) fn base(&self) -> u32 {
        match &self.kind {
            Kind::Split(ring) => ring.base().into(),
            // Both indices, which are one here.
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

    /// Whether the guest is to be called now; asked once after entries were given back.
    #[inline]
    pub(crate) fn take_call(&mut self) -> bool {
        std::mem::take(&mut self.owes_call)
            && match &self.kind {
                Kind::Split(ring) => ring.wants_calls(),
                Kind::Packed(ring) => ring.wants_calls(),
            }
    }

    /// Says whether the guest is to kick.
    pub(crate) fn want_kicks(&mut self, wanted: bool) {
        match &self.kind {
            Kind::Split(ring) => ring.want_kicks(wanted),
            Kind::Packed(ring) => ring.want_kicks(wanted),
        }
    }

    /// Whether there is an entry. Behind a full barrier if it follows [`Ring::want_kicks`].
    pub(crate) fn has_entries(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.fault.is_none()
            && match &self.kind {
                Kind::Split(ring) => ring.has_entries(),
                Kind::Packed(ring) => ring.has_entries(),
            }
    }

    /// Appends at most `max` packets that the guest sends to `out`. An error is reported once; the ring is dead then.
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

    /// Copies packets from the front of `packets` into the guest's buffers; how many. Stops before one that it must not
    /// take as it is: empty, longer than `frame_max`, or large and not for this guest.
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
        // What reads as zeros since it was taken away may look like anything.
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
