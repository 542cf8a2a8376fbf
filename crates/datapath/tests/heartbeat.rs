//! A stuck worker is noticed: its heartbeat stops, so the service's watchdog is no longer fed.

mod common;

use common::wait_for;
use datapath::{Idle, Switch, SwitchConfig};
use heartbeat::Monitor;
use pktio::{Device, HeapPool, Packet, PoolRef, Queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A device whose queue blocks for ever.
struct Stuck {
    pool: PoolRef,
    hold: Arc<AtomicBool>,
}

impl Device for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }
    fn kind(&self) -> &'static str {
        "stuck"
    }
    fn queue_count(&self) -> u16 {
        1
    }
    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        vec![Box::new(StuckQueue(Arc::clone(&self.hold)))]
    }
    fn pool(&self) -> PoolRef {
        Arc::clone(&self.pool)
    }
    fn link(&self) -> pktio::LinkState {
        pktio::LinkState::default()
    }
    fn stats(&self) -> pktio::PortStats {
        pktio::PortStats::default()
    }
    fn mac(&self) -> Option<pktio::MacAddress> {
        None
    }
    fn mtu(&self) -> u16 {
        1500
    }
}

struct StuckQueue(Arc<AtomicBool>);

impl Queue for StuckQueue {
    fn rx(&mut self, _: &mut Vec<Packet>, _: usize) -> usize {
        while self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        0
    }
    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        let count = packets.len();
        packets.clear();
        count
    }
}

/// The threads without a heartbeat in a short period that is pretended to be an hour.
fn stuck() -> Vec<String> {
    let (mut monitor, now) = (Monitor::default(), Instant::now());
    monitor.stuck_at(now);
    std::thread::sleep(Duration::from_millis(200));
    monitor.stuck_at(now + Duration::from_secs(3600)).into_iter().map(|stuck| stuck.thread).collect()
}

#[test]
fn a_stuck_worker_has_no_heartbeat_and_those_that_idle_have() {
    for idle in [Idle::Sleep, Idle::Interrupt] {
        let switch = Switch::new(SwitchConfig { workers: 2, idle, ..Default::default() });
        wait_for("idle workers beat", || stuck().is_empty());
        let hold = Arc::new(AtomicBool::new(false));
        let device = Stuck { pool: HeapPool::shared(64), hold: Arc::clone(&hold) };
        switch.add_port(1, Box::new(device)).expect("a new number");
        hold.store(true, Ordering::Relaxed);
        wait_for("the worker that polls it is stuck, and no other", || stuck() == ["worker-0"]);
        hold.store(false, Ordering::Relaxed);
        wait_for("it goes on", || stuck().is_empty());
    }
}
