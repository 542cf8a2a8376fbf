//! The loop of `--window`: a bounded number of packets under way, every one of them accounted for.
//!
//! The window is what makes a lost packet the switch's: no ring overflows, however long somebody waits for a processor. A packet
//! that does not come back takes its place in the window with it; when nothing has come for [`PATIENCE`], what is under way is
//! lost. One thread, but for the one that waits for the end of standard input.

use crate::histogram::Histogram;
use crate::traffic::{Plan, Port, RX_BURST, fill, quantiles_ns};
use pktio::{Packet, PoolRef, free_bulk, ticks, ticks_per_second};
use serde_json::{Value, json};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long packets that are under way are waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is special about this loop.
pub struct Window {
    /// Packets under way at most.
    pub most: usize,
    /// Bytes that must be equal in what comes back.
    pub same: Option<(usize, usize)>,
    /// Whether to end.
    pub ended: Arc<AtomicBool>,
}

/// Becomes true when standard input ends.
pub fn end_of_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&ended);
    std::thread::spawn(move || {
        // An error ends it, too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        set.store(true, Ordering::Relaxed);
    });
    ended
}

/// Sends until the end of input or of the plan's time, then waits for what is under way.
pub fn run(mut ports: Vec<Port>, pool: &PoolRef, plan: &Plan, window: &Window) -> Value {
    let per_second = ticks_per_second();
    let ticks_of = |time: Duration| (time.as_secs_f64() * per_second) as u64;
    let (patience, turn, end) = (ticks_of(PATIENCE), ticks_of(plan.turn), ticks() + ticks_of(plan.measured));
    let mut random = crate::frames::Random::new(0x5eed_0000_0000_0001);
    let mut latency = Histogram::new();
    let (mut received, mut fresh): (Vec<Packet>, Vec<Packet>) = Default::default();
    let (mut sent, mut came, mut differ) = (0_u64, 0_u64, 0_u64);
    let (start, mut last, mut worst_gap) = (ticks(), ticks(), 0);
    let mut next_turn = start;
    let mut sending = true;
    loop {
        let now = ticks();
        if now < next_turn {
            std::hint::spin_loop();
            continue;
        }
        next_turn = now + turn;
        for port in &mut ports {
            let count = port.queue.rx(&mut received, RX_BURST);
            if count == 0 {
                continue;
            }
            let now = ticks();
            if came > 0 {
                worst_gap = worst_gap.max(now.saturating_sub(last));
            }
            last = now;
            came += count as u64;
            port.received += count as u64;
            for data in received.iter().map(Packet::data) {
                if let Some((a, b)) = window.same {
                    differ += u64::from(data.get(a).is_none() || data.get(a) != data.get(b));
                }
                if let Some(sent) = data.last_chunk().map(|bytes| u64::from_le_bytes(*bytes))
                    && plan.latency
                    && sent <= now
                {
                    latency.add(now - sent);
                }
            }
            free_bulk(&mut received);
        }
        let under_way = sent - came.min(sent);
        sending &= now < end && !window.ended.load(Ordering::Relaxed);
        if !sending && (under_way == 0 || now.saturating_sub(last) > patience) {
            break;
        }
        if now.saturating_sub(last) > patience && under_way >= window.most as u64 {
            break;
        }
        let senders = ports.iter().filter(|port| port.frames.is_some()).count().max(1);
        let mut room = (window.most as u64).saturating_sub(under_way) as usize;
        let each = room.div_ceil(senders);
        for port in &mut ports {
            let Some(frames) = &mut port.frames else { continue };
            let wanted = each.min(room).min(plan.burst).saturating_sub(port.waiting.len());
            if sending && wanted > 0 {
                pool.alloc_bulk(&mut fresh, wanted);
                let stamp = plan.latency.then(|| ticks().to_le_bytes());
                fresh.iter_mut().for_each(|packet| fill(packet, frames, plan, &mut random, stamp));
                port.waiting.append(&mut fresh);
            }
            if !port.waiting.is_empty() {
                let taken = port.queue.tx(&mut port.waiting);
                port.sent += taken as u64;
                sent += taken as u64;
                room = room.saturating_sub(taken);
            }
        }
    }
    let ms = |ticks: u64| ticks as f64 / per_second * 1e3;
    let seconds = (ticks() - start) as f64 / per_second;
    json!({
        "seconds": seconds,
        "sent": sent,
        "received": came,
        "lost": sent as i64 - came as i64,
        "differ": differ,
        "mpps": came as f64 / seconds / 1e6,
        "worst_gap_ms": ms(worst_gap),
        "latency_ns": quantiles_ns(&latency, per_second),
        "ports": ports.iter().map(|port| json!({ "sent": port.sent, "received": port.received })).collect::<Vec<_>>(),
    })
}
