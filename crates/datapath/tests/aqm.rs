//! Active queue management in an egress program: the examples CoDel and PI2 on a simulated bottleneck link, with
//! machine code and in virtual time.
//!
//! ```text
//!   senders ─▶ ingress ─▶ queue (traffic::PortQueues) ─▶ egress: drop, mark or send ─▶ link of 10 Mbit/s ─▶ half a round trip ─▶ acks
//! ```
//!
//! Senders use Reno's additive increase and multiplicative decrease (RFC 5681 without timeouts), or a constant rate.
//! The tests check what the papers promise: the times at which CoDel drops (RFC 8289, section 5.4), delays near the
//! targets at high utilisation, and PI2's probability as the square of a linear one (CoNEXT 2016, section 4).

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use datapath::drops::DropReason;
use datapath::engine::{Arrival, Departure, Engine, Passage, Sink, WORK_MAX};
use datapath::executor::Executor;
use datapath::{EngineKind, Pipeline};
use frontend::{Input, Until};
use pktio::{HeapPool, Packet, Pool};
use random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;
use traffic::{Config, Limit, PortQueues, Queue, Taken};

const PORT: u32 = 1;
/// Size of a packet in bytes, and its transmission time on the link in microseconds.
const BYTES: usize = 1000;
const SERVICE_US: u64 = 800;
const SECOND: u64 = 1_000_000;

struct Waiting {
    packet: Packet,
    record: Box<[u64]>,
    passage: Passage,
    enqueued_us: u64,
}

/// The bottleneck's queue, and the fate of the last packet.
struct Bottleneck {
    queue: PortQueues<Waiting>,
    now_us: u64,
    sent: Option<Vec<u8>>,
    overflowed: bool,
}

impl Sink for Bottleneck {
    fn send(&mut self, port: u32, packet: Packet) {
        assert_eq!(port, PORT);
        self.sent = Some(packet.data().to_vec());
    }

    fn drop(&mut self, _: DropReason, _: Packet) {}

    fn lost_copies(&mut self, reason: DropReason, _: u64) {
        panic!("nothing is copied: {reason:?}");
    }

    fn queue(&mut self, port: u32, arrival: Arrival<'_>) -> Result<(), Packet> {
        assert_eq!(port, PORT);
        let Arrival { packet, class, record, passage } = arrival;
        let waiting = Waiting { packet, record: record.into(), passage, enqueued_us: self.now_us };
        self.overflowed = self.queue.offer(waiting, BYTES as u32, class, false, self.now_us * 1000).is_err();
        Ok(())
    }
}

/// An event of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The link is ready for a packet.
    Free,
    /// A sender learns that a packet arrived, marked or not, or that it was lost.
    Ack {
        flow: usize,
        marked: bool,
    },
    Loss {
        flow: usize,
    },
    /// A constant-rate sender sends.
    Send {
        flow: usize,
    },
}

#[derive(Clone, Copy)]
struct Flow {
    /// The round-trip time without queueing delay.
    rtt_us: u64,
    /// The congestion window, in packets.
    window: f64,
    /// Packets in flight.
    under_way: u32,
    /// No further congestion reaction before this time.
    recovers_us: u64,
    /// For constant-rate senders: time between two packets.
    every_us: Option<u64>,
}

impl Flow {
    fn reno(rtt_us: u64) -> Flow {
        Flow { rtt_us, window: 2.0, under_way: 0, recovers_us: 0, every_us: None }
    }

    fn constant(every_us: u64) -> Flow {
        Flow { every_us: Some(every_us), ..Flow::reno(1000) }
    }

    /// Reno: halves its window, once in a round trip.
    fn congested(&mut self, now_us: u64) {
        if now_us >= self.recovers_us {
            self.window = (self.window / 2.0).max(2.0);
            self.recovers_us = now_us + self.rtt_us;
        }
    }
}

/// The recorded observations.
#[derive(Default)]
struct Seen {
    /// Per packet: time of dequeue and waiting time in microseconds, whether egress let it through, and whether it
    /// was marked.
    left: Vec<(u64, u64, bool, bool)>,
}

impl Seen {
    fn after(&self, us: u64) -> impl Iterator<Item = &(u64, u64, bool, bool)> {
        self.left.iter().filter(move |(at, ..)| *at >= us)
    }

    /// A quantile of waiting times: the longest wait among the fastest `share` of packets, in milliseconds.
    fn waited_ms(&self, from_us: u64, share: f64) -> f64 {
        let mut all: Vec<u64> = self.after(from_us).map(|(_, waited, ..)| *waited).collect();
        all.sort_unstable();
        all[((all.len() - 1) as f64 * share) as usize] as f64 / 1e3
    }

    fn utilisation(&self, from_us: u64, to_us: u64) -> f64 {
        let sent = self.after(from_us).filter(|(_, _, sent, _)| *sent).count() as u64;
        (sent * SERVICE_US) as f64 / (to_us - from_us) as f64
    }

    fn share(&self, from_us: u64, what: impl Fn(bool, bool) -> bool) -> f64 {
        let (mut all, mut such) = (0, 0);
        for (_, _, sent, marked) in self.after(from_us) {
            all += 1;
            such += u64::from(what(*sent, *marked));
        }
        such as f64 / f64::from(all)
    }
}

struct Simulation {
    exec: Box<dyn Executor>,
    engine: Engine,
    link: Bottleneck,
    pool: HeapPool,
    flows: Vec<Flow>,
    ecn: u8,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    is_busy: bool,
    seen: Seen,
    _pipeline: Arc<Pipeline>,
}

impl Simulation {
    /// A simulation of an example with a queue of `packets` packets; senders set the ECN field to `ecn`.
    fn new(example: &str, packets: u32, ecn: u8, flows: Vec<Flow>) -> Simulation {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{example}/{example}.p4"));
        let compiled =
            frontend::compile(Input::File(&path), &frontend::Options::default(), Until::Ir).expect("it is there");
        assert!(!compiled.failed(), "{}", compiled.render(false));
        let program = Arc::new(compiled.optimised.expect("it has a main"));
        let pipeline = Arc::new(datapath::load(Arc::clone(&program), EngineKind::Machine, 1).expect("it loads"));
        let table = program.tables.iter().position(|table| table.name.ends_with("forward")).expect("it has one");
        let action = program.tables[table]
            .actions
            .iter()
            .position(|a| program.actions[a.action.index()].name.ends_with("to_port"));
        let action = ActionCall { action: action.expect("it has one") as u32, args: vec![Bits::new(9, PORT.into())] };
        let entry = TableEntry {
            key: vec![KeyMatch::Exact(Bits::new(48, 1))],
            priority: 0,
            action: EntryAction::Call(action),
            idle_timeout_ns: 0,
        };
        pipeline.state().insert(base::ids::TableId::from_index(table), &entry).expect("a new entry");
        let mut config = Config::fifo();
        config.queues = vec![Queue::with_limit(Limit::packets(packets))];
        let queue = PortQueues::new(&config).expect("a good config");
        Simulation {
            exec: pipeline.executor(0),
            engine: Engine::new(program, Arc::clone(pipeline.replication())),
            link: Bottleneck { queue, now_us: 0, sent: None, overflowed: false },
            pool: HeapPool::new(1 << 15),
            flows,
            ecn,
            events: BinaryHeap::new(),
            number: 0,
            is_busy: false,
            seen: Seen::default(),
            _pipeline: pipeline,
        }
    }

    fn at(&mut self, us: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((us, self.number, event)));
    }

    fn run(mut self, until_us: u64) -> Seen {
        let mut random = Random::new(7);
        for flow in 0..self.flows.len() {
            // Staggered starts.
            let start = random.below(self.flows[flow].rtt_us) + 1;
            self.at(start, Event::Send { flow });
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > until_us {
                break;
            }
            self.link.now_us = now;
            match event {
                Event::Free => {
                    self.is_busy = false;
                    self.transmit(now);
                }
                Event::Send { flow } => {
                    if let Some(every) = self.flows[flow].every_us {
                        self.packet(flow, now);
                        self.at(now + every, Event::Send { flow });
                    } else {
                        self.send_on(flow, now);
                    }
                }
                Event::Ack { flow, marked } => {
                    let of = &mut self.flows[flow];
                    of.under_way -= 1;
                    of.window += 1.0 / of.window;
                    if marked {
                        of.congested(now);
                    }
                    self.send_on(flow, now);
                }
                Event::Loss { flow } => {
                    self.flows[flow].under_way -= 1;
                    self.flows[flow].congested(now);
                    self.send_on(flow, now);
                }
            }
        }
        self.seen
    }

    fn send_on(&mut self, flow: usize, now: u64) {
        let is_reno = self.flows[flow].every_us.is_none();
        while is_reno && f64::from(self.flows[flow].under_way) < self.flows[flow].window.floor() {
            self.packet(flow, now);
        }
    }

    fn packet(&mut self, flow: usize, now: u64) {
        let mut frame = vec![0; BYTES];
        (frame[5], frame[10], frame[11]) = (1, (flow >> 8) as u8, flow as u8);
        frame[12..16].copy_from_slice(&[0x08, 0, 0x45, self.ecn]);
        frame[16..18].copy_from_slice(&((BYTES - 14) as u16).to_be_bytes());
        self.flows[flow].under_way += 1;
        let mut burst = vec![self.pool.alloc_from(&frame).expect("a buffer")];
        self.engine.set_work(WORK_MAX);
        self.engine.receive(self.exec.as_mut(), &mut burst, 9, now, &mut self.link);
        if std::mem::take(&mut self.link.overflowed) {
            let rtt = self.flows[flow].rtt_us;
            self.at(now + rtt, Event::Loss { flow });
        }
        self.transmit(now);
    }

    /// Dequeues packets until one is let through.
    fn transmit(&mut self, now: u64) {
        while !self.is_busy {
            let Some(taken) = self.link.queue.take(now * 1000) else { return };
            let Taken { item, packets_at_enqueue, packets_behind, .. } = taken;
            let Waiting { packet, record, passage, enqueued_us } = item;
            let flow = usize::from(packet.data()[10]) << 8 | usize::from(packet.data()[11]);
            let depths = [packets_at_enqueue, packets_behind].map(u64::from);
            let mut departures = vec![Departure { packet, record, passage, enqueued_us, depths }];
            self.engine.set_work(WORK_MAX);
            self.engine.resume(self.exec.as_mut(), &mut departures, &mut Vec::new(), now, &mut self.link);
            let sent = self.link.sent.take();
            let marked = sent.as_ref().is_some_and(|frame| frame[15] & 3 == 3);
            self.seen.left.push((now, now - enqueued_us, sent.is_some(), marked));
            let rtt = self.flows[flow].rtt_us;
            match sent {
                Some(_) => {
                    self.is_busy = true;
                    self.at(now + SERVICE_US, Event::Free);
                    self.at(now + SERVICE_US + rtt, Event::Ack { flow, marked });
                }
                None => self.at(now + rtt, Event::Loss { flow }),
            }
        }
    }
}

#[test]
fn codel_drops_an_unresponsive_flow_at_the_times_of_the_control_law() {
    // One and a half times the link's rate.
    let seen = Simulation::new("codel", 100_000, 0, vec![Flow::constant(SERVICE_US * 2 / 3)]).run(60 * SECOND);
    let drops: Vec<u64> = seen.left.iter().filter(|(_, _, sent, _)| !sent).map(|(at, ..)| *at).collect();
    assert!(drops.len() > 1500, "{}", drops.len());
    // One interval after the first packet that waited longer than the target.
    let above = seen.left.iter().find(|(_, waited, ..)| *waited >= 5000).expect("it queues").0;
    assert!(drops[0].abs_diff(above + 100_000) <= SERVICE_US, "{above} {}", drops[0]);
    let mut due = drops[0] as f64;
    // Later it drops more than the excess over the link's rate, and stops when the queue is short.
    for (k, at) in drops.iter().take(1500).enumerate() {
        // A packet is available for dropping at the latest when the previous one has left.
        let late = *at as f64 - due;
        // In addition, rounding to whole microseconds in the program accumulates as a random error.
        let rounded = 3.0 * (k as f64 / 12.0).sqrt();
        assert!((-rounded..=SERVICE_US as f64 + rounded).contains(&late), "drop {k}: {late} us");
        due += 100_000.0 / ((k + 1) as f64).sqrt();
    }
}

#[test]
fn codel_keeps_the_delay_of_reno_near_its_target() {
    for (flows, ecn) in [(1, 0), (8, 0), (8, 2)] {
        let until = 60 * SECOND;
        let codel = Simulation::new("codel", 2000, ecn, vec![Flow::reno(50_000); flows]).run(until);
        let (median, high) = (codel.waited_ms(10 * SECOND, 0.5), codel.waited_ms(10 * SECOND, 0.95));
        let used = codel.utilisation(10 * SECOND, until);
        println!("CoDel, {flows} flows, ECN {ecn}: {median:.1} ms, 95 % {high:.1} ms, utilisation {used:.3}");
        assert!(median < 15.0 && high < 60.0 && used > 0.8, "{flows} flows, ECN {ecn}: {median} {high} {used}");
        let lost = codel.share(10 * SECOND, |sent, _| !sent);
        let marked = codel.share(10 * SECOND, |_, marked| marked);
        assert!(if ecn == 0 { lost > 0.0 && marked == 0.0 } else { lost == 0.0 && marked > 0.0 }, "{lost} {marked}");
    }
}

#[test]
fn pi2_keeps_the_delay_at_its_target_and_squares_its_probability() {
    for flows in [5, 20, 40] {
        let (from, until) = (30 * SECOND, 120 * SECOND);
        let pi2 = Simulation::new("pi2", 2000, 0, vec![Flow::reno(100_000); flows]).run(until);
        let (median, used) = (pi2.waited_ms(from, 0.5), pi2.utilisation(from, until));
        let lost = pi2.share(from, |sent, _| !sent);
        // Reno's window is the square root of 3/2 over p (Mathis et al. 1997).
        let window = 1e6 / SERVICE_US as f64 / flows as f64 * (0.1 + median / 1e3);
        let expected = 1.5 / (window * window);
        println!("PI2, {flows} flows: {median:.1} ms, utilisation {used:.3}, p {lost:.4}, by the window {expected:.4}");
        assert!((10.0..32.0).contains(&median) && used > 0.9, "{flows} flows: {median} ms, {used}");
        assert!((0.4..2.5).contains(&(lost / expected)), "{flows} flows: {lost}, expected {expected}");
    }
}

#[test]
fn who_does_not_wait_is_not_dropped() {
    for example in ["codel", "pi2"] {
        let seen = Simulation::new(example, 1000, 0, vec![Flow::constant(SERVICE_US * 10)]).run(30 * SECOND);
        assert!(seen.left.iter().all(|(_, waited, sent, _)| *waited == 0 && *sent), "{example}");
    }
}
