//! Tenants with a name: queues of several ports against a model, between threads, and while their terms change.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use random::Random;
use traffic::{
    Buffer, BufferConfig, Config, Count, Limit, Node, PortQueues, Queue, Reason, Size, Tenant, TenantConfig,
    TenantLimit, Tenants,
};

const CELL: u64 = 2048;

fn buffer(packets: u64) -> Arc<Buffer> {
    let config = BufferConfig { capacity: Size(packets * CELL), cell: Size(CELL), alpha: 1.0, tenants: Vec::new() };
    Buffer::new(&config).unwrap()
}

fn terms(packets: Option<u32>, bytes: Option<u64>, reserved: u32, quarters: u32) -> TenantConfig {
    let limit = TenantLimit { packets, bytes: bytes.map(Size) };
    TenantConfig { limit, reserved, alpha: f64::from(quarters) / 4.0 }
}

fn two_queues() -> Config {
    let mut config = Config::new(vec![Queue::default(); 2], Node::strict(vec![Node::queue(1), Node::queue(0)]));
    config.queues.iter_mut().for_each(|queue| queue.limit = Limit::packets(1000));
    config
}

/// What is done, at a port or to a tenant.
#[derive(Clone, Debug)]
enum Step {
    Offer(usize, u8, u32),
    Take(usize),
    Drain(usize),
    /// A port's queues go over to these tenants.
    Move(usize, [usize; 2]),
    /// A tenant gets other terms.
    Change(usize, TenantConfig),
}

fn any_terms() -> impl Strategy<Value = TenantConfig> {
    let limits = (prop::option::of(0u32..30), prop::option::of(0u64..40_000));
    (limits, 0u32..12, 1u32..20).prop_map(|((packets, bytes), reserved, quarters)| {
        let bytes = bytes.map(|bytes| bytes + 60 * u64::from(reserved.max(1)));
        terms(packets.map(|packets| packets + reserved.max(1)), bytes, reserved, quarters)
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0usize..3, 0u8..2, 1u32..2049).prop_map(|(port, class, bytes)| Step::Offer(port, class, bytes)),
        5 => (0usize..3).prop_map(Step::Take),
        1 => (0usize..3).prop_map(Step::Drain),
        1 => (0usize..3, 0usize..4, 0usize..4).prop_map(|(port, a, b)| Step::Move(port, [a, b])),
        1 => (0usize..3, any_terms()).prop_map(|(tenant, terms)| Step::Change(tenant, terms)),
    ]
}

/// A tenant as the model has it; the last one of the model is a port's own, without a name.
#[derive(Clone, Default)]
struct Held {
    packets: u64,
    bytes: u64,
    over_limit: u64,
    no_room: u64,
}

impl Held {
    fn taken_of_pool(&self, terms: &TenantConfig) -> u64 {
        self.packets.saturating_sub(terms.reserved.into())
    }

    fn expected(&self, bytes: u32, terms: &TenantConfig, free: i64) -> Result<(), Reason> {
        if terms.limit.bytes.is_some_and(|max| self.bytes + u64::from(bytes) > max.0) {
            return Err(Reason::Tenant);
        }
        if self.packets < u64::from(terms.reserved) {
            return Ok(());
        }
        if terms.limit.packets.is_some_and(|max| self.packets + 1 > max.into()) {
            return Err(Reason::Tenant);
        }
        let threshold = free.max(0) as u64 * CELL * (terms.alpha * 256.0) as u64 / 256;
        let fits = free > 0 && (self.taken_of_pool(terms) + 1) * CELL <= threshold;
        if fits { Ok(()) } else { Err(Reason::Buffer) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever arrives, leaves, moves and changes: each answer is the model's. So no arrival takes a tenant beyond its limit, what
    /// is reserved is always granted, and each byte is some tenant's.
    #[test]
    fn answers_are_the_models(
        packets in 40u64..100,
        first in prop::collection::vec(any_terms(), 3),
        steps in prop::collection::vec(any_step(), 0..300),
    ) {
        let buffer = buffer(packets);
        let mut tenants = Tenants::new(buffer.clone());
        let names = ["a", "b", "c"];
        let mut config: Vec<TenantConfig> = first;
        for (name, terms) in names.iter().zip(&config) {
            tenants.set(name, terms).unwrap();
        }
        config.push(TenantConfig::default());
        let own = buffer.newcomer();
        let of = |tenants: &Tenants, tenant: usize| -> Tenant {
            names.get(tenant).map_or(own.clone(), |name| tenants.get(name).unwrap().1.clone())
        };
        let queues = two_queues();
        let mut belongs = [[0, 1], [1, 3], [2, 2]];
        let mut ports: Vec<PortQueues<u32>> = Vec::new();
        for port in &belongs {
            ports.push(PortQueues::with_tenants(&queues, &port.map(|tenant| of(&tenants, tenant))).unwrap());
        }
        let mut held = vec![Held::default(); 4];
        for (now, step) in steps.into_iter().enumerate() {
            let now = now as u64;
            match step {
                Step::Offer(port, class, bytes) => {
                    let tenant = belongs[port][usize::from(class)];
                    let reserved: u64 = config.iter().map(|terms| u64::from(terms.reserved)).sum();
                    let used: u64 = held.iter().zip(&config).map(|(held, terms)| held.taken_of_pool(terms)).sum();
                    let free = (packets - reserved) as i64 - used as i64;
                    let expected = held[tenant].expected(bytes, &config[tenant], free);
                    let answer = ports[port].offer(bytes, bytes, class, false, now);
                    prop_assert_eq!(answer.map(drop).map_err(|refused| refused.reason), expected);
                    match expected {
                        Ok(()) => {
                            held[tenant].packets += 1;
                            held[tenant].bytes += u64::from(bytes);
                        }
                        Err(Reason::Tenant) => held[tenant].over_limit += 1,
                        Err(_) => held[tenant].no_room += 1,
                    }
                }
                Step::Take(port) => {
                    if let Some(taken) = ports[port].take(now) {
                        let held = &mut held[belongs[port][usize::from(taken.queue)]];
                        held.packets -= 1;
                        held.bytes -= u64::from(taken.bytes);
                    }
                }
                Step::Drain(port) => {
                    for queue in 0..2u8 {
                        let (count, bytes) = ports[port].depth(queue);
                        let held = &mut held[belongs[port][usize::from(queue)]];
                        held.packets -= count as u64;
                        held.bytes -= bytes;
                    }
                    ports[port].drain(now);
                }
                Step::Move(port, to) => {
                    for queue in 0..2u8 {
                        let (count, bytes) = ports[port].depth(queue);
                        let at = usize::from(queue);
                        held[belongs[port][at]].packets -= count as u64;
                        held[belongs[port][at]].bytes -= bytes;
                        held[to[at]].packets += count as u64;
                        held[to[at]].bytes += bytes;
                    }
                    belongs[port] = to;
                    let refused = ports[port].reconfigure_with(&queues, &to.map(|tenant| of(&tenants, tenant)), now);
                    prop_assert_eq!(refused, Ok(vec![]));
                }
                Step::Change(tenant, terms) => {
                    tenants.set(names[tenant], &terms).unwrap();
                    config[tenant] = terms;
                }
            }
            for (number, held) in held.iter().enumerate() {
                let tenant = of(&tenants, number);
                prop_assert_eq!(tenant.used(), held.packets * CELL);
                if number < 3 {
                    let statistics = tenant.statistics();
                    prop_assert_eq!(statistics.depth, Count { packets: held.packets, bytes: held.bytes });
                    prop_assert_eq!(statistics.over_limit.packets, held.over_limit);
                    prop_assert_eq!(statistics.no_room.packets, held.no_room);
                }
            }
            let waiting: u64 = ports.iter().map(PortQueues::bytes).sum();
            prop_assert_eq!(held.iter().map(|held| held.bytes).sum::<u64>(), waiting);
        }
        drop(ports);
        prop_assert_eq!(buffer.free(), buffer.pool());
        prop_assert!(names.iter().all(|name| tenants.remove(name)));
        prop_assert_eq!((buffer.free(), buffer.pool()), (packets * CELL, packets * CELL));
    }
}

#[test]
fn threads_keep_the_limits_of_tenants_whose_terms_change() {
    let buffer = buffer(300);
    let mut tenants = Tenants::new(buffer.clone());
    let small = terms(Some(50), Some(30_000), 10, 4);
    let large = terms(Some(120), Some(90_000), 100, 4);
    tenants.set("a", &large).unwrap();
    tenants.set("b", &terms(Some(80), None, 0, 8)).unwrap();
    let of = |tenants: &Tenants, name: &str| tenants.get(name).unwrap().1.clone();
    let (a, b) = (of(&tenants, "a"), of(&tenants, "b"));
    let port = |_| Mutex::new(PortQueues::with_tenants(&two_queues(), &[a.clone(), b.clone()]).unwrap());
    let ports: Vec<Mutex<PortQueues<()>>> = (0..3).map(port).collect();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (ports, a, b) = (&ports, &a, &b);
            scope.spawn(move || {
                let mut random = Random::stream(11, thread);
                for now in 0..60_000 {
                    let mut port = ports[random.index(3)].lock().unwrap();
                    if random.below(5) < 3 {
                        let _ = port.offer((), random.range(60, 1519), random.below(2) as u8, false, now);
                    } else {
                        port.take(now);
                    }
                    drop(port);
                    let (a, b) = (a.statistics().depth, b.statistics().depth);
                    assert!(a.packets <= 120 && a.bytes <= 90_000 && b.packets <= 80, "{a:?} {b:?}");
                }
            });
        }
        for round in 0..300 {
            // Whoever changes terms has all queues of the tenant to itself.
            let all: Vec<_> = ports.iter().map(|port| port.lock().unwrap()).collect();
            let before = a.used();
            tenants.set("a", if round % 2 == 0 { &small } else { &large }).unwrap();
            assert_eq!(a.used(), before);
            drop(all);
            std::thread::yield_now();
        }
    });
    let statistics = a.statistics();
    assert!(statistics.over_limit.packets > 0 && statistics.highest.packets <= 120, "{statistics:?}");
    let waiting: u64 = ports.iter().map(|port| port.lock().unwrap().depth(0).1).sum();
    assert_eq!(waiting, statistics.depth.bytes);
    drop(ports);
    assert_eq!((a.used(), b.used(), buffer.free()), (0, 0, buffer.pool()));
}

#[test]
fn a_reserve_that_grows_over_what_is_free_is_granted_and_the_pool_waits() {
    let buffer = buffer(100);
    let mut tenants = Tenants::new(buffer.clone());
    tenants.set("greedy", &terms(None, None, 0, 1024)).unwrap();
    tenants.set("modest", &terms(None, None, 0, 4)).unwrap();
    let of = |tenants: &Tenants, name: &str| tenants.get(name).unwrap().1.clone();
    let (greedy, modest) = (of(&tenants, "greedy"), of(&tenants, "modest"));
    while greedy.admit(60).is_ok() {}
    assert_eq!(greedy.statistics().depth.packets, 100);
    assert_eq!(modest.admit(60), Err(Reason::Buffer));
    tenants.set("modest", &terms(None, None, 30, 4)).unwrap();
    assert!((0..30).all(|_| modest.admit(60).is_ok()));
    assert_eq!(modest.admit(60), Err(Reason::Buffer));
    // 70 are the pool's now, 100 are in use.
    for _ in 0..30 {
        greedy.release(60);
        assert_eq!(greedy.admit(60), Err(Reason::Buffer));
    }
    greedy.release(60);
    assert_eq!(greedy.admit(60), Ok(()));
    // The other way round it is free at once.
    tenants.set("modest", &terms(None, None, 0, 4)).unwrap();
    assert_eq!((buffer.pool(), buffer.free()), (100 * CELL, 0));
    (0..30).for_each(|_| modest.release(60));
    assert_eq!(buffer.free(), 30 * CELL);
}

#[test]
fn packets_of_a_queue_that_goes_are_let_in_by_the_other_ones_tenant() {
    let buffer = buffer(100);
    let mut tenants = Tenants::new(buffer.clone());
    tenants.set("a", &terms(Some(10), None, 0, 40)).unwrap();
    tenants.set("b", &terms(Some(20), None, 0, 40)).unwrap();
    let of = |name: &str| tenants.get(name).unwrap().1.clone();
    let mut port = PortQueues::with_tenants(&two_queues(), &[of("a"), of("b")]).unwrap();
    for n in 0..6 {
        port.offer(n, 100, 0, false, 0).unwrap();
    }
    for n in 0..20 {
        port.offer(100 + n, 100, 1, false, 1).unwrap();
    }
    assert!(port.offer(0, 100, 1, false, 2).is_err_and(|refused| refused.reason == Reason::Tenant));
    let refused = port.reconfigure_with(&Config::fifo(), &[of("a")], 3).unwrap();
    assert_eq!(refused, (104..120).collect::<Vec<_>>());
    assert_eq!(port.statistics()[0].dropped.tenant.packets, 16);
    assert_eq!((of("a").statistics().depth.packets, of("b").statistics().depth.packets), (10, 0));
    // Of the same tenant all have room, also beyond its limit.
    let mut port = PortQueues::with_tenants(&two_queues(), &[of("b"), of("b")]).unwrap();
    for n in 0..20 {
        port.offer(n, 100, (n % 2) as u8, false, n).unwrap();
    }
    assert_eq!(port.reconfigure(&Config::fifo(), 30), Ok(vec![]));
    assert_eq!((port.len(), of("b").statistics().depth.packets), (20, 20));
}

#[test]
fn contradictions_are_named() {
    let mut tenants = Tenants::new(buffer(1000));
    tenants.set("other", &terms(None, None, 400, 4)).unwrap();
    for (name, config, path, words) in [
        ("red", terms(Some(0), None, 0, 4), "limit.packets", "nothing would pass"),
        ("red", terms(Some(50), None, 51, 4), "limit.packets", "less than the 51 that are reserved"),
        ("red", terms(None, Some(59), 0, 4), "limit.bytes", "no frame"),
        ("red", terms(None, Some(5999), 100, 4), "limit.bytes", "less than 100 reserved frames of 60 bytes take"),
        ("red", terms(None, None, 0, 0), "alpha", "between 1/256 and 256"),
        ("red", TenantConfig { alpha: f64::NAN, ..TenantConfig::default() }, "alpha", "NaN"),
        (
            "red",
            terms(None, None, 601, 4),
            "reserved",
            "holds 1000 packets, of which 400 are reserved for other tenants",
        ),
        ("red", terms(None, None, u32::MAX, 4), "reserved", "holds 1000 packets"),
        ("a b", TenantConfig::default(), "name", "`a b` is no name of a tenant"),
        ("", TenantConfig::default(), "name", "is no name of a tenant"),
        (&"x".repeat(65), TenantConfig::default(), "name", "1 to 64 letters"),
    ] {
        let problems = tenants.set(name, &config).unwrap_err();
        assert!(problems.iter().all(|problem| problem.path == path), "{path}: {problems:?}");
        assert!(problems[0].message.contains(words), "{words}: {problems:?}");
    }
    assert!(tenants.get("red").is_none() && !tenants.remove("red"));
    // Its own old reserve does not count.
    tenants.set("other", &terms(None, None, 1000, 4)).unwrap();
    let read: TenantConfig =
        serde_json::from_str(r#"{"limit":{"packets":2000,"bytes":"1MB"},"reserved":100,"alpha":0.5}"#).unwrap();
    assert_eq!(read, terms(Some(2000), Some(1_000_000), 100, 2));
    assert_eq!(serde_json::from_str::<TenantConfig>("{}").unwrap(), TenantConfig::default());
    assert!(serde_json::from_str::<TenantConfig>(r#"{"limit":{"time":"5ms"}}"#).is_err());
}

#[test]
fn queues_belong_to_one_tenant_that_is_there() {
    let buffer = buffer(1000);
    let mut tenants = Tenants::new(buffer.clone());
    let own = buffer.newcomer();
    let mut config = two_queues();
    config.queues[1].tenant = Some("red".into());
    assert_eq!(config.check(None), Ok(()));
    let problems = tenants.of_queues(&config, &own).unwrap_err();
    assert_eq!(problems[0].to_string(), "queues[1].tenant: there is no tenant `red`; there is none");
    tenants.set("red", &TenantConfig::default()).unwrap();
    let found = tenants.of_queues(&config, &own).unwrap();
    assert!(found[0].is(&own) && found[1].is(tenants.get("red").unwrap().1) && !found[1].is(&own));
    assert_eq!(config.tenants().collect::<Vec<_>>(), ["red"]);
    config.tenant = Some("blue".into());
    let problems = config.check(None).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "queues[1].tenant: `red`, but the port belongs to `blue`: a queue has one tenant"
    );
    config.queues[1].tenant = None;
    let problems = tenants.of_queues(&config, &own).unwrap_err();
    assert_eq!(problems[0].to_string(), "tenant: there is no tenant `blue`; there is red");
    config.tenant = Some("no name".into());
    assert_eq!(config.check(None).unwrap_err()[0].path, "tenant");
}
