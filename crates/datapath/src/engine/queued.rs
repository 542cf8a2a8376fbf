//! Packets that wait in a queue of their port, between ingress and egress.
//!
//! A program that asks for queues (`ir::Program::queues`) has no way from ingress to egress of its own. The engine does what a
//! packet asks for at the end of ingress, and hands what is to go through egress to the sink, with its record: the slots of the
//! packet at that point. When its turn comes, [`Engine::resume`] takes it on. In between another worker, or another version of
//! the program's code, may have taken over: records of such programs hold the same in all versions (`tiers/code.rs`).
//!
//! A sink without queues gives the packet back, and it goes on in the same burst: it has waited for no time behind nobody.

use super::records::Record;
use super::waves::{Burst, Descent, State, owned};
use super::{Engine, Sink, egress_intrinsics, steps_for};
use crate::executor::Executor;
use crate::replication::Replica;
use abi::packet::BATCH_MAX;
use ir::{EntryKind, Intrinsic};
use pktio::{Packet, RawPacket};

/// What the engine has to know of a packet when it goes on, besides its frame and record.
#[derive(Clone, Copy, Debug)]
pub struct Passage {
    entry: EntryKind,
    consumed: u32,
    truncate: u32,
    passes: u8,
    /// The port by which its ancestor came.
    origin: u32,
}

/// A packet that is to wait in a queue.
pub struct Arrival<'r> {
    /// The frame as received, or as far as it has come.
    pub packet: Packet,
    /// Its class of service.
    pub class: u8,
    /// The words of its record.
    pub record: &'r [u64],
    /// For [`Departure::passage`].
    pub passage: Passage,
}

/// A packet whose turn has come.
pub struct Departure {
    /// The frame of its arrival.
    pub packet: Packet,
    /// The record of its arrival.
    pub record: Box<[u64]>,
    /// Of its arrival.
    pub passage: Passage,
    /// When it came, in microseconds since the switch started.
    pub enqueued_us: u64,
    /// Packets that waited in its queue when it came, and that wait there now.
    pub depths: [u64; 2],
}

impl Engine {
    /// A packet goes on to egress: from a queue of its port, or, where that has none, at once.
    #[inline(always)]
    pub(super) fn pass_to_egress<S: Sink>(
        &mut self,
        raw: &RawPacket,
        descent: Descent,
        replica: Replica,
        burst: Burst,
        sink: &mut S,
    ) {
        egress_intrinsics(self.records.of(descent.record), replica, burst.now_us);
        if self.queues {
            return self.wait(raw, descent, replica.port, burst, sink);
        }
        self.enqueue(raw, descent);
    }

    #[inline(never)]
    fn wait<S: Sink>(&mut self, raw: &RawPacket, descent: Descent, port: u32, burst: Burst, sink: &mut S) {
        let Descent { record, consumed, truncate, passes, entry, .. } = descent;
        let class = self.records.of(record).get(Intrinsic::ClassOfService) as u8;
        let passage = Passage { entry, consumed, truncate, passes, origin: self.origin(burst, descent.family) };
        let arrival = Arrival { packet: owned(raw), class, record: self.records.words(record), passage };
        if let Err(packet) = sink.queue(port, arrival) {
            self.enqueue(&packet.into_raw(), descent);
        }
    }

    /// The port by which the received packet of a family came.
    #[inline]
    pub(super) fn origin(&self, burst: Burst, family: u8) -> u32 {
        if self.is_resuming { self.origins[usize::from(family)] } else { burst.port }
    }

    /// Takes packets on that have waited, to their ends: at most [`BATCH_MAX`], which are taken out. They leave in this order. Their
    /// records, which may be used again, are left in `records`.
    pub fn resume<S: Sink>(
        &mut self,
        exec: &mut dyn Executor,
        packets: &mut Vec<Departure>,
        records: &mut Vec<Box<[u64]>>,
        now_us: u64,
        sink: &mut S,
    ) {
        let count = packets.len();
        debug_assert!(count <= BATCH_MAX);
        if count == 0 {
            return;
        }
        self.lookups.renew();
        let share = self.work_left / count as u32;
        self.steps_left = steps_for(count);
        self.is_resuming = true;
        for (i, departure) in packets.drain(..).enumerate() {
            let Departure { packet, record: words, passage, enqueued_us, depths } = departure;
            let record: Record = self.records.received(i);
            self.records.fill(record, &words);
            records.push(words);
            let slots = self.records.of(record);
            slots.set(Intrinsic::EnqueueTimestamp, enqueued_us);
            slots.set(Intrinsic::EnqueueDepth, depths[0]);
            slots.set(Intrinsic::DequeueDepth, depths[1]);
            slots.set(Intrinsic::DequeueDelta, now_us.saturating_sub(enqueued_us));
            slots.set(Intrinsic::EgressTimestamp, now_us);
            self.origins[i] = passage.origin;
            self.shares[i] = share;
            self.work_left -= share;
            let Passage { entry, consumed, truncate, passes, .. } = passage;
            let (place, family) = (i as u32, i as u8);
            let descent = Descent { record, consumed, truncate, place, family, passes, entry, state: State::Waits };
            self.enqueue(&packet.into_raw(), descent);
        }
        self.finish(exec, &mut Vec::new(), 0..count, Burst { port: 0, now_us }, sink);
        self.is_resuming = false;
        self.copies.end();
    }
}
