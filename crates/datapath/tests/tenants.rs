//! Tenants in the running switch: queues of several ports that share a limit and a reserve.

mod common;

use common::{by_first_bytes, frame, wait_for};
use datapath::{EngineKind, Idle, Pipeline, PortOf, QueuesOf, Switch, SwitchConfig, SwitchError};
use pktio::{Device, HeapPool, LinkState, MacAddress, MemoryDevice, MemoryHandle, PoolRef, PortStats};
use std::sync::Arc;
use traffic::{Config, Limit, Queue, Rate, Shaper, Size, TenantConfig, TenantLimit, TenantStatistics};

struct Bed {
    switch: Switch,
    pool: PoolRef,
    from: MemoryHandle,
    ports: Vec<MemoryHandle>,
}

/// A switch that sends packets from port 9 to ports 1 to 4.
fn bed(buffers: usize, workers: usize) -> Bed {
    let pool = HeapPool::shared(buffers);
    let config = SwitchConfig { workers, idle: Idle::Sleep, pool: Some(Arc::clone(&pool)), ..SwitchConfig::default() };
    let switch = Switch::new(config);
    run(&switch, 1);
    let open = |number: u32| {
        let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), workers as u16);
        switch.add_port(number, Box::new(device)).expect("a new number");
        handle
    };
    let ports = (1..5).map(open).collect();
    let from = open(9);
    Bed { switch, pool, from, ports }
}

fn run(switch: &Switch, device: u64) {
    let pipeline: Pipeline =
        datapath::load(Arc::new(by_first_bytes()), EngineKind::Machine, switch.workers()).expect("small");
    switch.set_pipeline_of(device, Some(Arc::new(pipeline))).expect("workers answer");
}

/// So slow that a frame takes 48 seconds, after an initial burst.
const SLOW: Shaper = Shaper { rate: Rate(10), burst: Some(Size(1518)) };
/// Number of 60-byte frames in a burst of 1,518 bytes.
const EARLY: u64 = 26;

fn slow(tenant: Option<&str>) -> Config {
    let mut config = Config::new(vec![Queue::with_limit(Limit::packets(100_000))], traffic::Node::queue(0));
    config.root.shaper = Some(SLOW);
    config.tenant = tenant.map(str::to_string);
    config
}

fn limit(packets: Option<u32>, bytes: Option<u64>) -> TenantConfig {
    TenantConfig { limit: TenantLimit { packets, bytes: bytes.map(Size) }, ..TenantConfig::default() }
}

impl Bed {
    fn send(&self, to: u16, count: u32) {
        for i in 0..count {
            wait_for("room in the ring", || self.from.inject(&frame(to, i)));
        }
        wait_for("all are taken", || self.from.pending() == 0);
    }

    fn waiting(&self, of: QueuesOf) -> u64 {
        let info = self.switch.queues_of(of).expect("it is there");
        info.map_or(0, |info| info.statistics.iter().map(|queue| queue.depth.packets).sum())
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.switch.drops().iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
    }

    fn tenant(&self, name: &str) -> TenantStatistics {
        self.switch.tenant_infos().into_iter().find(|info| info.name == name).expect("it is there").statistics
    }

    /// Removes all queues: waiting packets leave at once, and every buffer is returned.
    fn end(self) {
        for number in 1..5 {
            self.switch.set_queues(number, None).expect("it is there");
        }
        wait_for("all buffers", || {
            self.ports.iter().for_each(|port| drop(port.collect()));
            self.pool.available() == self.pool.limit()
        });
        for info in self.switch.tenant_infos() {
            assert_eq!((info.statistics.depth, info.members), (traffic::Count::default(), vec![]));
            self.switch.set_tenant(&info.name, None).expect("nobody belongs to it");
        }
    }
}

#[test]
fn queues_of_a_tenant_share_its_limit_wherever_they_are() {
    for workers in [1, 2] {
        let bed = bed(16_384, workers);
        bed.switch.add_device(2).expect("a new id");
        run(&bed.switch, 2);
        let (from, to) = (PortOf { device: 1, port: 20 }, PortOf { device: 2, port: 1 });
        bed.switch.link(from, to).expect("free ends");
        bed.switch.set_tenant("red", Some(limit(Some(300), None))).expect("a good config");
        let all = [QueuesOf::Port(1), QueuesOf::Port(2), QueuesOf::Link(from)];
        for of in all {
            bed.switch.set_queues_of(of, Some(slow(Some("red")))).expect("a good config");
        }
        bed.switch.set_queues(3, Some(slow(None))).expect("a good config");
        for to in [20, 1, 2, 3] {
            bed.send(to, 200);
        }
        wait_for("packets of the port that is nobody's", || bed.waiting(QueuesOf::Port(3)) > 150);
        let waiting: Vec<u64> = all.iter().map(|of| bed.waiting(*of)).collect();
        assert!(waiting[2] > 150 && waiting[0] > 50 && waiting.iter().sum::<u64>() <= 300, "{waiting:?}");
        let red = bed.tenant("red");
        assert_eq!((red.highest.packets, red.highest.bytes), (300, 300 * 60));
        assert!(red.over_limit.packets > 600 - 300 - 3 * (EARLY + 20), "{red:?}");
        assert_eq!(bed.dropped("tenant limit"), red.over_limit.packets);
        assert_eq!(bed.dropped("shared buffer full") + bed.dropped("queue full"), 0);
        // A higher limit while packets wait; then a lower one, and they stay queued.
        bed.switch.set_tenant("red", Some(limit(Some(400), None))).expect("a good config");
        bed.send(1, 200);
        wait_for("the new limit", || bed.tenant("red").highest.packets == 400);
        bed.switch.set_tenant("red", Some(limit(None, Some(1518)))).expect("a good config");
        let before = bed.tenant("red");
        assert!(before.depth.packets > 350);
        bed.send(2, 50);
        wait_for("refusals", || bed.tenant("red").over_limit.packets == before.over_limit.packets + 50);
        // A queue that leaves the tenant takes its waiting packets along.
        bed.switch.set_queues(1, Some(slow(None))).expect("a good config");
        let waiting: u64 = all[1..].iter().map(|of| bed.waiting(*of)).sum();
        assert!(bed.tenant("red").depth.packets <= waiting + 3 && bed.waiting(all[0]) > 150);
        bed.switch.unlink(from).expect("it is there");
        // The other device has no port 20.
        wait_for("what waited for the link", || bed.dropped("no such port") == 200);
        bed.end();
    }
}

#[test]
fn what_is_reserved_is_granted_when_others_have_all_the_rest() {
    // 512 packets may wait.
    let bed = bed(1024, 1);
    assert_eq!(bed.switch.shared_packets(), 512);
    bed.switch
        .set_tenant("gold", Some(TenantConfig { reserved: 100, ..limit(Some(150), None) }))
        .expect("a good config");
    bed.switch.set_tenant("greedy", Some(TenantConfig { alpha: 256.0, ..limit(None, None) })).expect("a good config");
    bed.switch.set_queues(1, Some(slow(Some("gold")))).expect("a good config");
    bed.switch.set_queues(2, Some(slow(Some("greedy")))).expect("a good config");
    bed.send(2, 600);
    wait_for("a full buffer", || bed.tenant("greedy").no_room.packets > 0);
    let greedy = bed.tenant("greedy");
    assert!((400..=412).contains(&greedy.highest.packets), "{greedy:?}");
    bed.send(1, 200);
    wait_for("the reserve", || bed.tenant("gold").highest.packets >= 100);
    let gold = bed.tenant("gold");
    assert!(gold.highest.packets <= 150 && gold.no_room.packets + gold.over_limit.packets > 0, "{gold:?}");
    assert!(bed.dropped("shared buffer full") >= bed.tenant("greedy").no_room.packets);
    bed.end();
}

#[test]
fn what_contradicts_itself_or_others_is_refused_and_changes_nothing() {
    let bed = bed(1024, 1);
    let set = |name: &str, config| bed.switch.set_tenant(name, config).unwrap_err().to_string();
    let error = set("red", Some(TenantConfig { reserved: 513, ..TenantConfig::default() }));
    assert_eq!(
        error,
        "tenant `red`: reserved: 513; the shared buffer holds 512 packets, of which 0 are reserved for other tenants"
    );
    assert_eq!(set("red", None), "there is no tenant `red`; there is none");
    let error = bed.switch.set_queues(1, Some(slow(Some("red")))).unwrap_err().to_string();
    assert_eq!(error, "queues of port 1: tenant: there is no tenant `red`; there is none");
    assert!(bed.switch.queues(1).expect("it is there").is_none());
    bed.switch
        .set_tenant("red", Some(TenantConfig { reserved: 500, ..TenantConfig::default() }))
        .expect("there is room");
    let error = set("blue", Some(TenantConfig { reserved: 13, ..TenantConfig::default() }));
    assert!(error.contains("of which 500 are reserved"), "{error}");
    assert_eq!(set("blue", None), "there is no tenant `blue`; there is red");
    bed.switch.set_queues(1, Some(slow(Some("red")))).expect("it is there now");
    let error = bed.switch.set_tenant("red", None).unwrap_err();
    let expected = SwitchError::TenantInUse { name: "red".into(), members: vec![QueuesOf::Port(1)] };
    assert_eq!((&error, error.to_string()), (&expected, "queues of port 1 belong to tenant `red`".to_string()));
    // Removing a port removes its queues.
    bed.switch.remove_port(1).expect("it is there");
    bed.switch.set_tenant("red", None).expect("nobody belongs to it");
    bed.switch
        .set_tenant("blue", Some(TenantConfig { reserved: 512, ..TenantConfig::default() }))
        .expect("all is free");
}

/// A port with a known link speed.
struct OfSpeed(MemoryDevice, u32);

impl Device for OfSpeed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn queue_count(&self) -> u16 {
        self.0.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn pktio::Queue>> {
        self.0.take_queues()
    }

    fn pool(&self) -> PoolRef {
        self.0.pool()
    }

    fn link(&self) -> LinkState {
        LinkState { speed_mbps: Some(self.1), ..self.0.link() }
    }

    fn stats(&self) -> PortStats {
        self.0.stats()
    }

    fn mac(&self) -> Option<MacAddress> {
        self.0.mac()
    }

    fn mtu(&self) -> u16 {
        self.0.mtu()
    }
}

#[test]
fn rates_beyond_the_ports_link_are_refused_by_name_and_change_nothing() {
    let bed = bed(1024, 1);
    let (device, _handle) = MemoryDevice::new("slow", Arc::clone(&bed.pool), 1);
    bed.switch.add_port(5, Box::new(OfSpeed(device, 100))).expect("a new number");
    let shaped = |mbit: u64| {
        let mut config = Config::fifo();
        config.root.shaper = Some(Shaper { rate: Rate(mbit * 1_000_000), burst: None });
        config
    };
    bed.switch.set_queues(5, Some(shaped(100))).expect("as fast as the link");
    let error = bed.switch.set_queues(5, Some(shaped(101))).unwrap_err().to_string();
    assert_eq!(error, "queues of port 5: root.shaper.rate: 101Mbit is more than the link's 100Mbit");
    let mut minimums = Config::strict(2);
    (0..2).for_each(|queue| minimums.node_mut(queue).expect("it is there").min_rate = Some(Rate(60_000_000)));
    let error = bed.switch.set_queues(5, Some(minimums)).unwrap_err().to_string();
    assert!(error.contains("root: the minimum rates sum to 120000000 bit/s, the link has 100Mbit"), "{error}");
    let info = bed.switch.queues(5).expect("it is there").expect("it has queues");
    assert_eq!(info.config, shaped(100));
    // A port of unknown speed accepts any rate.
    bed.switch.set_queues(1, Some(shaped(400_000))).expect("nobody knows");
}
