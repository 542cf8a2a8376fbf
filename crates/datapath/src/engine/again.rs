//! Packets that go back to ingress.
//!
//! Those of the received batch go through the program again in their descriptors, all that are left at a time, before anything else
//! is done with the batch: each is still the one packet of its family, so it leaves where it would have left. What their records
//! hold the program's code has written ([`FateCode::Again`]). Others wait for the next wave.

use super::waves::{Burst, Descent};
use super::{Engine, PASS_LIMIT, RuntimeDrop, Sink, apply, asks, ingress_intrinsics, owned, run_within, units};
use crate::drops::DropReason;
use crate::executor::Executor;
use abi::packet::{BATCH_MAX, FateCode};
use ir::{EntryKind, Intrinsic};
use pktio::{Packet, RawPacket};

fn goes_again(fate: u32) -> bool {
    fate == FateCode::Again as u32
}

impl Engine {
    /// Takes packets of the received batch through ingress again until none wants to go back any more, or may.
    #[inline(never)]
    pub(super) fn go_again(&mut self, exec: &mut dyn Executor, packets: &mut [Packet]) {
        let all = &self.batch.packets[..packets.len()];
        let asking = all.iter().filter(|desc| asks(desc)).count() as u32;
        let mut places = [0; BATCH_MAX];
        let mut count = 0;
        for (place, desc) in all.iter().enumerate() {
            places[count] = place as u8;
            count += usize::from(goes_again(desc.fate));
        }
        // Those that go back have gone back equally often, so they have taken as many units.
        let units = units(self.records.bytes());
        let passes_max = PASS_LIMIT.min(self.work_left / asking.max(1) / units);
        for passes in 1..=passes_max {
            if count == 0 {
                break;
            }
            self.work_left -= count as u32 * units;
            self.run_again(exec, packets.len(), &places[..count], passes as u8);
            let mut left = 0;
            for k in 0..count {
                places[left] = places[k];
                left += usize::from(goes_again(self.batch.packets[usize::from(places[k])].fate));
            }
            count = left;
        }
        for place in &places[..count] {
            self.batch.packets[usize::from(*place)].fate = FateCode::OverLimit as u32;
        }
        packets.iter_mut().zip(&self.batch.packets).for_each(|(packet, desc)| apply(desc, packet));
    }

    /// Runs the packets at these places, of so many received ones.
    fn run_again(&mut self, exec: &mut dyn Executor, received: usize, places: &[u8], passes: u8) {
        // Executors have left the rest of a descriptor as the next pass needs it.
        if places.len() == received {
            for (desc, passed) in self.batch.packets.iter_mut().zip(&mut self.passes).take(received) {
                (desc.consumed, *passed) = (0, passes);
            }
            return run_within(&mut self.steps_left, exec, EntryKind::Reingress, &mut self.batch);
        }
        self.further.count = places.len() as u32;
        self.further.now_us = self.batch.now_us;
        for (desc, place) in self.further.packets.iter_mut().zip(places) {
            *desc = self.batch.packets[usize::from(*place)];
            desc.consumed = 0;
            self.passes[usize::from(*place)] = passes;
        }
        self.run_further(exec, EntryKind::Reingress);
        for (desc, place) in self.further.packets.iter().zip(places) {
            self.batch.packets[usize::from(*place)] = *desc;
        }
    }

    /// Takes a unit of work and more for a packet that goes back; `None` if it may not, and it is dropped.
    fn pays_pass<S: Sink>(&mut self, raw: &RawPacket, from: Descent, sink: &mut S) -> Option<Descent> {
        // The packet itself goes on; only its record is made anew.
        let units = units(self.records.bytes());
        let share = &mut self.shares[usize::from(from.family)];
        if u32::from(from.passes) >= PASS_LIMIT || *share < units {
            sink.drop(DropReason::Runtime(RuntimeDrop::ReplicationLimit), owned(raw));
            return None;
        }
        *share -= units;
        Some(Descent { entry: EntryKind::Reingress, consumed: 0, passes: from.passes + 1, ..from })
    }

    /// Makes a packet whose record is ready wait for ingress.
    #[inline(never)]
    pub(super) fn reenter<S: Sink>(&mut self, raw: &RawPacket, from: Descent, sink: &mut S) {
        if let Some(descent) = self.pays_pass(raw, from, sink) {
            self.enqueue(raw, descent);
        }
    }

    /// Sends a packet back to ingress whose record is as it was at the end of the last pass.
    #[inline(never)]
    pub(super) fn again<S: Sink>(
        &mut self,
        raw: &RawPacket,
        from: Descent,
        list: u64,
        instance_type: u64,
        burst: Burst,
        sink: &mut S,
    ) {
        let Some(descent) = self.pays_pass(raw, from, sink) else { return };
        let origin = self.origin(burst, from.family);
        self.records.preserve(from.record, list);
        let to = self.records.of(from.record);
        to.set(Intrinsic::InstanceType, instance_type);
        ingress_intrinsics(to, raw.len.into(), origin, burst);
        self.enqueue(raw, descent);
    }
}
