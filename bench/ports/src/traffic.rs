//! The loop: receive on all ports, then send on all ports, until the time is over.
//!
//! Receiving comes first and takes all there is, so that the switch never finds a full ring where it can be avoided. A
//! packet that a port does not take stays first in its line; a burst is filled up, never thrown away, so all frames of
//! an array are sent in turn.

use crate::frames::{Frames, Random, RandomSpan, set_ipv4_checksum};
use crate::histogram::Histogram;
use crate::pace::Pace;
use pktio::{Packet, PoolRef, Queue, free_bulk, ticks, ticks_per_second};
use serde_json::{Value, json};
use std::time::Duration;

/// Packets received at once.
pub const RX_BURST: usize = 256;

/// Most received packets that are kept to be sent again.
const SPARE_MAX: usize = 1024;

/// Latencies that are reported, as parts of all packets.
const QUANTILES: [(&str, f64); 7] =
    [("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999), ("max", 1.0)];

/// What to do for how long.
pub struct Plan {
    /// Time before the measurement.
    pub warmup: Duration,
    /// Time of the measurement.
    pub measured: Duration,
    /// Packets sent at once.
    pub burst: usize,
    /// How long a turn over all ports takes at least.
    pub turn: Duration,
    /// Packets a second over all sending ports.
    pub rate: Option<f64>,
    /// Whether frames carry the time of sending.
    pub latency: bool,
    /// Bytes drawn for each packet.
    pub random: Vec<RandomSpan>,
    /// Whether IPv4 checksums are made right after that.
    pub ipv4_checksum: bool,
}

/// A port with what it sends.
pub struct Port {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) frames: Option<Frames>,
    pub(crate) waiting: Vec<Packet>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    received_bytes: u64,
}

impl Port {
    /// Sends `frames`, or only receives.
    pub fn new(queue: Box<dyn Queue>, frames: Option<Frames>) -> Port {
        Port { queue, frames, waiting: Vec::new(), sent: 0, received: 0, received_bytes: 0 }
    }
}

/// What came of it.
pub struct Counted {
    seconds: f64,
    ticks_per_second: f64,
    /// Sent, received, bytes received, and the number of different frames, by port.
    ports: Vec<(u64, u64, u64, usize)>,
    latency: Histogram,
    /// Turns over all ports.
    turns: u64,
    /// Packets received in each tenth of the time, over all ports.
    tenths: Vec<u64>,
}

impl Counted {
    /// All of it, for programs.
    pub fn to_json(&self) -> Value {
        let received: u64 = self.ports.iter().map(|p| p.1).sum();
        let sent: u64 = self.ports.iter().map(|p| p.0).sum();
        let bytes: u64 = self.ports.iter().map(|p| p.2).sum();
        let port = |p: &(u64, u64, u64, usize)| json!({ "sent": p.0, "received": p.1, "bytes": p.2, "frames": p.3 });
        json!({
            "seconds": self.seconds,
            "mpps": received as f64 / self.seconds / 1e6,
            "sent_mpps": sent as f64 / self.seconds / 1e6,
            "gbps": bytes as f64 * 8.0 / self.seconds / 1e9,
            "ports": self.ports.iter().map(port).collect::<Vec<_>>(),
            "turns": self.turns,
            "mpps_by_tenth": self.tenths.iter().map(|n| *n as f64 / (self.seconds / 10.0) / 1e6).collect::<Vec<_>>(),
            "latency_ns": quantiles_ns(&self.latency, self.ticks_per_second),
            "latency_packets": self.latency.total(),
        })
    }
}

/// A histogram of ticks as nanoseconds.
pub fn quantiles_ns(latency: &Histogram, ticks_per_second: f64) -> Value {
    let ns = |ticks: u64| (ticks as f64 / ticks_per_second * 1e9).round();
    let quantile = |&(name, part): &(&str, f64)| Some((name.to_string(), json!(ns(latency.quantile(part)?))));
    QUANTILES.iter().filter_map(quantile).collect::<serde_json::Map<_, _>>().into()
}

/// Runs the plan.
pub fn run(mut ports: Vec<Port>, pool: &PoolRef, plan: &Plan) -> Counted {
    let per_second = ticks_per_second();
    let mut random = Random::new(0x5eed_0000_0000_0001 ^ u64::from(std::process::id()));
    let mut received: Vec<Packet> = Vec::with_capacity(RX_BURST);
    let mut spare: Vec<Packet> = Vec::with_capacity(SPARE_MAX + RX_BURST);
    let mut fresh: Vec<Packet> = Vec::with_capacity(plan.burst);
    let mut latency = Histogram::new();
    let senders = ports.iter().filter(|port| port.frames.is_some()).count().max(1);
    let start = ticks();
    let begin = start + (plan.warmup.as_secs_f64() * per_second) as u64;
    let length = (plan.measured.as_secs_f64() * per_second) as u64;
    let mut paces: Vec<_> =
        ports.iter().map(|_| plan.rate.map(|rate| Pace::new(rate / senders as f64, per_second, start))).collect();
    let mut measuring = false;
    let mut tenths = vec![0; 10];
    let mut begun = begin;
    let turn = (plan.turn.as_secs_f64() * per_second) as u64;
    let mut next_turn = start;
    let mut turns = 0;
    loop {
        let now = ticks();
        if !measuring && now >= begin {
            measuring = true;
            begun = now;
            latency.clear();
            for port in &mut ports {
                (port.sent, port.received, port.received_bytes) = (0, 0, 0);
            }
        }
        if measuring && now >= begun + length {
            break;
        }
        if now < next_turn {
            std::hint::spin_loop();
            continue;
        }
        next_turn = now + turn;
        turns += u64::from(measuring);
        for port in &mut ports {
            // More than one burst: a port may get what several send.
            loop {
                let count = port.queue.rx(&mut received, RX_BURST);
                if count == 0 {
                    break;
                }
                port.received += count as u64;
                port.received_bytes += received.iter().map(|packet| packet.len() as u64).sum::<u64>();
                if measuring {
                    tenths[((now - begun) * 10 / length).min(9) as usize] += count as u64;
                }
                if plan.latency {
                    let now = ticks();
                    for packet in &received {
                        if let Some(sent) = packet.data().last_chunk().map(|bytes| u64::from_le_bytes(*bytes))
                            && sent >= begun
                            && sent <= now
                        {
                            latency.add(now - sent);
                        }
                    }
                }
                // What came is what goes: the buffers nearest to the processor.
                spare.append(&mut received);
                if spare.len() > SPARE_MAX {
                    let mut rest = spare.split_off(SPARE_MAX / 2);
                    free_bulk(&mut rest);
                }
                if count < RX_BURST {
                    break;
                }
            }
        }
        for (port, pace) in ports.iter_mut().zip(&mut paces) {
            let Some(frames) = &mut port.frames else { continue };
            let room = plan.burst.saturating_sub(port.waiting.len());
            let wanted = pace.as_mut().map_or(room, |pace| pace.due(now, room));
            if wanted > 0 {
                let from_spare = spare.len().saturating_sub(wanted);
                fresh.extend(spare.drain(from_spare..));
                let missing = wanted - fresh.len();
                if missing > 0 {
                    pool.alloc_bulk(&mut fresh, missing);
                }
                let stamp = if plan.latency { Some(ticks().to_le_bytes()) } else { None };
                for packet in &mut fresh {
                    fill(packet, frames, plan, &mut random, stamp);
                }
                port.waiting.append(&mut fresh);
            }
            if !port.waiting.is_empty() {
                port.sent += port.queue.tx(&mut port.waiting) as u64;
            }
        }
    }
    let seconds = (ticks() - begun) as f64 / per_second;
    let count =
        |port: &Port| (port.sent, port.received, port.received_bytes, port.frames.as_ref().map_or(0, Frames::count));
    Counted { seconds, ticks_per_second: per_second, ports: ports.iter().map(count).collect(), latency, turns, tenths }
}

#[inline]
pub fn fill(packet: &mut Packet, frames: &mut Frames, plan: &Plan, random: &mut Random, stamp: Option<[u8; 8]>) {
    frames.fill(packet);
    if !plan.random.is_empty() {
        random.fill(packet.data_mut(), &plan.random);
        if plan.ipv4_checksum {
            set_ipv4_checksum(packet.data_mut());
        }
    }
    if let Some(stamp) = stamp
        && let Some(last) = packet.data_mut().last_chunk_mut()
    {
        *last = stamp;
    }
}
