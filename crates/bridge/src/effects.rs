//! Effects: the result of translating a packet, as a flat list of steps (Open vSwitch's datapath actions).
//!
//! The steps write bits, run header actions and output the packet. Running them does to a packet what the flow
//! tables would do, without consulting the tables. The list is the same for all packets that agree in the consulted
//! bits.
//!
//! **TTLs.** Whether a TTL expires depends on its value, but a translation that only decrements it does not consult
//! the value. So the steps check it, and a packet whose TTL has expired is translated individually. Nothing of it
//! may have been sent by then: if an output precedes the last check, the steps up to that check are tried first and
//! undone ([`TtlCheck`]).
//!
//! **Counters.** [`Effects::usages`] lists the counters of flows, buckets and groups. A caller that runs a list
//! many times adds to them once.

use crate::flow::{Meter, Usage};
use crate::key::{Layout, Part, Place};
use crate::normal::Station;
use crate::translate::frames::Frozen;
use crate::vm::Vm;
use abi::flows::{Arrival, Output, Outputs};
use openflow::message::{BandKind, FlowMod, meter_flag};
use openflow::{FieldId, Match};
use std::sync::{Arc, PoisonError};

/// Metadata of a packet-in, without that of the packet itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketInfo {
    /// Id of the controllers that receive it.
    pub controller: u16,
    /// Maximum number of bytes of the frame; `0xffff` for all.
    pub max_len: u16,
    /// The reason ([`crate::controllers::packet_in_reason`]).
    pub reason: u8,
    /// Whether it is a table miss of OpenFlow 1.0.
    pub is_miss: bool,
    /// The table that was searched.
    pub table: u8,
    /// The cookie of the flow that matched.
    pub cookie: u64,
    /// Userdata of the `controller` action.
    pub userdata: Vec<u8>,
    /// The continuation with which a controller resumes the packet, if it is paused.
    pub continuation: Option<Vec<u8>>,
}

/// One step of a list.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named by the variant's text")]
pub enum Effect {
    /// Writes bits.
    Write { word: u32, mask: u64, value: u64 },
    /// Copies bits.
    Move(Box<(Place, Place)>),
    /// Runs a header action. With `checks_ttl`, a TTL may have expired afterwards.
    Run { action: u32, args: Box<[u128]>, checks_ttl: bool },
    /// Pushes these words onto a stack.
    Save(Box<[u32]>),
    /// Pops the words of the last `Save` and restores them.
    Restore(Box<[u32]>),
    /// Outputs the packet to a port.
    Output { port: u32, queue: u8, max_len: u32, is_modified: bool, is_last: bool },
    /// Passes the frame to [`abi::flows::FlowProcessor::capture`], for a packet-in.
    Capture { what: Arc<PacketInfo>, is_modified: bool, is_last: bool, _held: Option<Arc<Frozen>> },
    /// Applies a meter. If that drops the packet, the next `skip` steps are skipped.
    Meter { meter: Arc<Meter>, skip: u32 },
    /// Recirculates the packet: deparses and parses it again, and resumes translation at `start`.
    Again { start: u64, _held: Arc<Frozen>, rewrites: bool, is_modified: bool, is_last: bool },
    /// No operation.
    Nothing,
}

/// How a list ensures that nothing is sent of a packet whose TTL expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TtlCheck {
    /// There is no TTL check.
    #[default]
    None,
    /// All checks precede the first output: the list is run, and undone if a TTL expires.
    First,
    /// An output precedes a check: the steps up to the last check are tried first.
    Dry,
}

/// A flow learned during a translation.
#[derive(Debug)]
pub struct Learned {
    /// The flow mod that adds it.
    pub request: FlowMod,
    /// The flow's usage: packets that run the list keep it from idling out.
    pub usage: Arc<Usage>,
}

/// The effects of a translation.
#[derive(Debug, Default)]
pub struct Effects {
    /// The steps.
    pub list: Box<[Effect]>,
    /// Counters, and how often a packet counts in each.
    pub usages: Box<[(Arc<Usage>, u32)]>,
    /// Tables with their numbers of lookups and matches.
    pub tables: Box<[(u8, u32, u32)]>,
    /// Entries of the MAC table that the packet refreshes.
    pub stations: Box<[Arc<Station>]>,
    /// Learned flows.
    pub learned: Box<[Learned]>,
    /// How TTL checks are handled.
    pub ttl: TtlCheck,
    /// The number of steps up to the last TTL check.
    pub tried_to: usize,
    /// The words that these steps write.
    pub tried: Box<[u32]>,
    /// Whether there is any output.
    pub has_outputs: bool,
    /// Work of running the list once, in steps, without copies of the packet.
    pub steps: u32,
}

/// Steps that are free for each packet: they cost no more than its other processing does.
const FREE_STEPS: u32 = 64;

/// Packet-ins in flight: from the output step until the engine hands over the frame.
#[derive(Debug, Default)]
pub struct Captures {
    next: u64,
    waiting: std::collections::VecDeque<Captured>,
    /// Packet-ins whose frames never arrived.
    pub lost: u64,
}

/// Maximum number of packet-ins in flight.
const CAPTURES_MAX: usize = 8192;

/// A packet-in without its frame.
#[derive(Debug)]
pub struct Captured {
    token: u64,
    /// Metadata of the packet-in.
    pub what: Arc<PacketInfo>,
    /// Metadata fields of the packet.
    pub fields: Match,
    /// The port on which it was received.
    pub in_port: u32,
}

impl Captures {
    fn add(&mut self, what: &Arc<PacketInfo>, fields: Match, in_port: u32) -> u64 {
        if self.waiting.len() >= CAPTURES_MAX {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.next += 1;
        self.waiting.push_back(Captured { token: self.next, what: Arc::clone(what), fields, in_port });
        self.next
    }

    /// Takes the packet-in with this token. Frames arrive in order, so those with earlier tokens are counted as
    /// lost.
    pub fn take(&mut self, token: u64) -> Option<Captured> {
        while self.waiting.front()?.token < token {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.pop_front_if(|front| front.token == token)
    }
}

/// Runs effects on packets; one per worker.
#[derive(Debug)]
pub struct Runner {
    layout: Arc<Layout>,
    vm: Arc<Vm>,
    saved: Vec<u64>,
    /// Packet-ins in flight.
    pub captures: Captures,
    dscp: Option<Place>,
}

/// Error: a packet's TTL has expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TtlOver;

impl Runner {
    /// A runner for a program.
    pub fn new(layout: &Arc<Layout>, vm: &Arc<Vm>) -> Runner {
        // OXM number 8 is `ip_dscp` (OpenFlow 1.3.5, 7.2.3.7).
        let dscp = layout.fields().basic(8).map(|field| layout.place(field).clone());
        Runner {
            layout: Arc::clone(layout),
            vm: Arc::clone(vm),
            saved: Vec::new(),
            captures: Captures::default(),
            dscp,
        }
    }

    /// Runs a list on a packet, or refuses the packet if its burst has too little work left.
    ///
    /// # Errors
    /// If a TTL has expired. Nothing has been sent then, and the record is unchanged.
    pub fn run(
        &mut self,
        effects: &Effects,
        packet: usize,
        arrival: &mut Arrival<'_>,
        now_us: u64,
        outputs: &mut dyn Outputs,
    ) -> Result<(), TtlOver> {
        if effects.steps > FREE_STEPS {
            let steps = effects.steps - FREE_STEPS;
            if outputs.work_left(packet) < steps {
                outputs.refuse(packet);
                return Ok(());
            }
            outputs.spend(packet, steps);
        }
        self.saved.clear();
        match effects.ttl {
            TtlCheck::None => {}
            TtlCheck::First => self.saved.extend(effects.tried.iter().map(|word| arrival.record[*word as usize])),
            TtlCheck::Dry => self.try_ttl(effects, arrival.record)?,
        }
        let checked = self.layout.ttl_exceeded().filter(|_| effects.ttl == TtlCheck::First);
        let record = &mut *arrival.record;
        let output = |max_len: u32, is_modified: bool, is_last: bool| Output { packet, max_len, is_modified, is_last };
        let (mut at, mut has_ended, mut has_left) = (0, false, false);
        while let Some(effect) = effects.list.get(at) {
            at += 1;
            match effect {
                Effect::Output { port, queue, max_len, is_modified, is_last } => {
                    outputs.send(output(*max_len, *is_modified, *is_last), record, *port, *queue);
                    (has_left, has_ended) = (true, *is_last);
                }
                Effect::Capture { what, is_modified, is_last, .. } => {
                    let (fields, in_port) = metadata(&self.layout, record);
                    let token = self.captures.add(what, fields, in_port);
                    outputs.capture(output(u32::MAX, *is_modified, *is_last), record, token);
                    (has_left, has_ended) = (true, *is_last);
                }
                Effect::Again { start, rewrites, is_modified, is_last, .. } => {
                    outputs.again(output(u32::MAX, *is_modified, *is_last), record, *start, *rewrites);
                    (has_left, has_ended) = (true, *is_last);
                }
                Effect::Meter { meter, skip } => match apply_meter(meter, arrival.bytes, now_us) {
                    Metered::Pass => {}
                    Metered::Drop => at += *skip as usize,
                    Metered::Remark(by) => {
                        if let Some(place) = self.dscp.as_ref().filter(|_| !has_ended) {
                            let dscp = remarked(place.read(record) as u8, by);
                            place.write(record, u128::from(dscp), u128::MAX);
                        }
                    }
                },
                // After the last output, the record belongs to that output.
                _ if has_ended => {}
                other => {
                    change(&self.vm, &mut self.saved, other, record);
                    if let (Some(flag), Effect::Run { checks_ttl: true, .. }) = (checked, other)
                        && is_set(record, flag)
                    {
                        give_back(&effects.tried, &self.saved, record);
                        return Err(TtlOver);
                    }
                }
            }
        }
        if !has_ended {
            outputs.end(packet, !has_left);
        }
        Ok(())
    }

    /// Tries the steps up to the last TTL check on the record, and restores it. Fails if a TTL expires.
    fn try_ttl(&mut self, effects: &Effects, record: &mut [u64]) -> Result<(), TtlOver> {
        let Some(flag) = self.layout.ttl_exceeded() else { return Ok(()) };
        self.saved.extend(effects.tried.iter().map(|word| record[*word as usize]));
        let mut is_over = false;
        for effect in &effects.list[..effects.tried_to] {
            change(&self.vm, &mut self.saved, effect, record);
            if matches!(effect, Effect::Run { checks_ttl: true, .. }) && is_set(record, flag) {
                is_over = true;
                break;
            }
        }
        give_back(&effects.tried, &self.saved, record);
        self.saved.clear();
        if is_over { Err(TtlOver) } else { Ok(()) }
    }
}

pub(crate) fn is_set(record: &[u64], flag: Part) -> bool {
    record[flag.word as usize] >> flag.shift & 1 == 1
}

/// Restores words to the values that were saved first.
fn give_back(words: &[u32], saved: &[u64], record: &mut [u64]) {
    for (word, value) in words.iter().zip(saved) {
        record[*word as usize] = *value;
    }
}

/// Performs a step's changes to the record.
fn change(vm: &Vm, saved: &mut Vec<u64>, effect: &Effect, record: &mut [u64]) {
    match effect {
        Effect::Write { word, mask, value } => {
            let at = &mut record[*word as usize];
            *at = *at & !mask | value;
        }
        Effect::Move(places) => {
            let (from, to) = &**places;
            let value = from.read(record);
            to.write(record, value, u128::MAX);
        }
        Effect::Run { action, args, .. } => vm.run(*action, args, record),
        Effect::Save(words) => saved.extend(words.iter().map(|word| record[*word as usize])),
        Effect::Restore(words) => {
            let from = saved.len() - words.len();
            for (word, value) in words.iter().zip(&saved[from..]) {
                record[*word as usize] = *value;
            }
            saved.truncate(from);
        }
        _ => {}
    }
}

/// A packet's metadata fields that are not zero, and its input port.
pub(crate) fn metadata(layout: &Layout, record: &[u64]) -> (Match, u32) {
    let in_port = layout.in_port().read(record) as u32;
    let mut fields = Match::any();
    for id in layout.reported() {
        let value = layout.place(*id).read(record);
        if value != 0 {
            fields.add(*id, value, layout.fields().get(*id).full());
        }
    }
    if let Some(id) = layout.fields().basic(0) {
        fields.add(FieldId(id.0), u128::from(in_port), layout.fields().get(id).full());
    }
    (fields, in_port)
}

/// A meter's decision about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Metered {
    Pass,
    Drop,
    Remark(u8),
}

/// Applies a meter: token buckets, of which the exceeded band with the highest rate takes effect (OpenFlow 1.3.5,
/// 5.7.1). A band's bucket fills at its rate up to its burst size, which defaults to a second's worth.
pub(crate) fn apply_meter(meter: &Meter, bytes: u32, now_us: u64) -> Metered {
    meter.usage.add(1, u64::from(bytes), now_us);
    let is_packets = meter.flags & meter_flag::PKTPS != 0;
    // Amounts are in thousandths of a packet or of a bit. `scale` is the number of packets or bits in a unit of the
    // rate: a packet or a kilobit per second.
    let (cost, scale) = if is_packets { (1000, 1) } else { (u64::from(bytes) * 8 * 1000, 1000) };
    let mut chosen: Option<&crate::flow::MeterBand> = None;
    for band in &meter.bands {
        // Thousandths per second.
        let rate = u64::from(band.band.rate) * 1000 * scale;
        let burst =
            if meter.flags & meter_flag::BURST != 0 && band.band.burst > 0 { band.band.burst } else { band.band.rate };
        let full = (u64::from(burst) * 1000 * scale).max(cost);
        let mut bucket = band.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let passed_us = now_us.saturating_sub(bucket.1);
        let came = u128::from(rate) * u128::from(passed_us) / 1_000_000;
        let level = (u128::from(bucket.0) + came).min(u128::from(full)) as u64;
        // If less than a thousandth has accrued, the bucket's time stays, so that nothing is lost.
        if came > 0 || level == full {
            bucket.1 = bucket.1.max(now_us);
        }
        let is_exceeded = level < cost;
        bucket.0 = if is_exceeded { level } else { level - cost };
        drop(bucket);
        if is_exceeded && chosen.is_none_or(|other| band.band.rate > other.band.rate) {
            chosen = Some(band);
        }
    }
    let Some(band) = chosen else { return Metered::Pass };
    band.usage.add(1, u64::from(bytes), now_us);
    match band.band.kind {
        BandKind::Drop => Metered::Drop,
        BandKind::DscpRemark(by) => Metered::Remark(by),
    }
}

/// Raises a DSCP's drop precedence (RFC 2597: `aaadd0` with classes 1 to 4 and precedences 1 to 3). Others are
/// unchanged.
fn remarked(dscp: u8, by: u8) -> u8 {
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    if dscp & 1 != 0 || !(1..=4).contains(&class) || precedence == 0 {
        return dscp;
    }
    class << 3 | precedence.saturating_add(by).min(3) << 1
}

/// Adds packets to all counters of a list.
pub(crate) fn add_counts(effects: &Effects, packets: u64, bytes: u64, now_us: u64) {
    for (usage, times) in &effects.usages {
        usage.add(packets * u64::from(*times), bytes * u64::from(*times), now_us);
    }
    effects.stations.iter().for_each(|station| station.touch(now_us));
    effects.learned.iter().for_each(|learned| learned.usage.add(0, 0, now_us));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::MeterBand;
    use openflow::message::Band;

    fn meter(flags: u16, kind: BandKind, rate: u32, burst: u32) -> Meter {
        let usage = || Arc::new(Usage::new(0));
        let band = Band { kind, rate, burst };
        let bucket = std::sync::Mutex::new((0, 0));
        let bands = vec![MeterBand { band, bucket, usage: usage() }];
        Meter { id: 1, flags, bands, created_us: 0, usage: usage(), charge: Default::default() }
    }

    #[test]
    fn a_meter_lets_its_rate_through() {
        for (flags, rate, bytes, expected) in [(meter_flag::PKTPS, 500, 64, 500), (meter_flag::KBPS, 800, 1000, 100)] {
            let meter = meter(flags, BandKind::Drop, rate, 0);
            // Ten times the rate for ten seconds.
            let (step_us, mut passed) = (1_000_000 / (expected * 10), 0);
            for i in 0..expected * 100 {
                passed += u64::from(apply_meter(&meter, bytes, 1_000_000 + i * step_us) == Metered::Pass);
            }
            let wanted = expected * 11;
            assert!(passed.abs_diff(wanted) <= wanted / 50, "{passed} of {wanted} packets");
            assert_eq!(meter.bands[0].usage.counts().0 + passed, expected * 100);
        }
    }

    #[test]
    fn drop_precedence_is_raised_within_its_class() {
        assert_eq!([remarked(10, 1), remarked(10, 9), remarked(46, 1), remarked(0, 1)], [12, 14, 46, 0]);
    }

    #[test]
    fn captures_that_never_come_are_forgotten() {
        let mut captures = Captures::default();
        let what = Arc::new(PacketInfo {
            controller: 0,
            max_len: 0,
            reason: 0,
            is_miss: false,
            table: 0,
            cookie: 0,
            userdata: Vec::new(),
            continuation: None,
        });
        let tokens: Vec<u64> = (0..3).map(|port| captures.add(&what, Match::any(), port)).collect();
        assert_eq!(captures.take(tokens[1]).unwrap().in_port, 1);
        assert!(captures.take(tokens[1]).is_none());
        assert_eq!((captures.take(tokens[2]).unwrap().in_port, captures.lost), (2, 1));
        for port in 0..CAPTURES_MAX as u32 + 5 {
            captures.add(&what, Match::any(), port);
        }
        assert_eq!((captures.waiting.len(), captures.lost), (CAPTURES_MAX, 6));
    }
}
