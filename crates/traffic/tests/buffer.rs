//! The shared buffer: against a model, between threads, and with the queues of ports.

use std::sync::Arc;

use proptest::prelude::*;
use random::Random;
use traffic::{Buffer, BufferConfig, Config, Node, PortQueues, Queue, Reason, Share, Size};

fn share(reserved: u64, max: Option<u64>) -> Share {
    Share { reserved: Size(reserved), max: max.map(Size) }
}

fn buffer(capacity: u64, alpha: f64, tenants: &[Share]) -> Arc<Buffer> {
    Buffer::new(&BufferConfig { capacity: Size(capacity), cell: Size(1), alpha, tenants: tenants.to_vec() }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One thread: every answer is the model's.
    #[test]
    fn grants_are_the_models(
        shares in prop::collection::vec((0u64..500, prop::option::of(0u64..2000)), 1..5),
        extra in 1u64..3000,
        quarters in 1u64..20,
        steps in prop::collection::vec((0usize..5, 1u64..400, prop::bool::ANY), 0..400),
    ) {
        let shares: Vec<Share> = shares
            .into_iter()
            .map(|(reserved, max)| share(reserved, max.map(|max| max + reserved + 1)))
            .collect();
        let reserved: u64 = shares.iter().map(|share| share.reserved.0).sum();
        let buffer = buffer(reserved + extra, quarters as f64 / 4.0, &shares);
        let mut granted: Vec<Vec<u64>> = vec![Vec::new(); shares.len()];
        // Bytes of each tenant in its reserve and from the pool.
        let mut used = vec![(0u64, 0u64); shares.len()];
        for (tenant, bytes, give) in steps {
            let number = tenant % shares.len();
            let tenant = buffer.tenant(number).unwrap();
            let (own, pool) = used[number];
            if give {
                let Some(bytes) = granted[number].pop() else { continue };
                tenant.give_back(bytes);
                let from_pool = bytes.min(pool);
                used[number] = (own - (bytes - from_pool), pool - from_pool);
            } else {
                let free = extra - used.iter().map(|(_, pool)| pool).sum::<u64>();
                let from_own = bytes.min(shares[number].reserved.0 - own);
                let rest = bytes - from_own;
                let within = |limit: u64| pool + rest <= limit;
                let max = shares[number].max.map_or(u64::MAX, |max| max.0 - shares[number].reserved.0);
                let expected = rest == 0 || rest <= free && within(free * quarters / 4) && within(max);
                prop_assert_eq!(tenant.reserve(bytes), expected);
                if expected {
                    granted[number].push(bytes);
                    used[number] = (own + from_own, pool + rest);
                }
            }
            prop_assert_eq!(tenant.used(), used[number].0 + used[number].1);
            prop_assert_eq!(tenant.used(), granted[number].iter().sum::<u64>());
            prop_assert_eq!(buffer.free(), extra - used.iter().map(|(_, pool)| pool).sum::<u64>());
        }
        for (number, granted) in granted.iter().enumerate() {
            granted.iter().for_each(|bytes| buffer.tenant(number).unwrap().give_back(*bytes));
            prop_assert_eq!(buffer.tenant(number).unwrap().used(), 0);
        }
        prop_assert_eq!(buffer.free(), buffer.pool());
    }
}

#[test]
fn greedy_tenants_share_as_the_paper_says() {
    // Each of n gets alpha / (1 + n·alpha) of the pool (Choudhury and Hahne, equation 2).
    for alpha in [0.5, 1.0, 2.0, 8.0] {
        for n in [1usize, 2, 5] {
            let buffer = buffer(10_000_000, alpha, &vec![share(0, None); n]);
            let tenants: Vec<_> = (0..n).map(|i| buffer.tenant(i).unwrap()).collect();
            let mut refused = 0;
            while refused < n {
                refused = tenants.iter().filter(|tenant| !tenant.reserve(100)).count();
            }
            let expected = 1e7 * alpha / (1.0 + n as f64 * alpha);
            for tenant in &tenants {
                let used = tenant.used() as f64;
                assert!((used / expected - 1.0).abs() < 0.01, "alpha {alpha}, {n} tenants: {used} of {expected}");
            }
        }
    }
}

#[test]
fn reserved_bytes_are_there_when_the_pool_is_empty() {
    let buffer = buffer(10_000, 256.0, &[share(0, None), share(3000, Some(4000))]);
    let (greedy, modest) = (buffer.tenant(0).unwrap(), buffer.tenant(1).unwrap());
    while greedy.reserve(7) {}
    assert!(greedy.used() > 6900);
    assert!((0..30).all(|_| modest.reserve(100)));
    assert!(!modest.reserve(100) && greedy.refused() == 1 && modest.refused() == 1);
    greedy.give_back(greedy.used());
    assert!((0..10).all(|_| modest.reserve(100)));
    assert!(!modest.reserve(1), "beyond the maximum");
    assert!(buffer.tenant(2).is_none());
}

#[test]
fn threads_lose_and_invent_nothing() {
    let shares = [share(2000, Some(20_000)), share(0, None), share(500, Some(3000))];
    let buffer = buffer(40_000, 2.0, &shares);
    let (sender, receiver) = std::sync::mpsc::channel::<(usize, u64)>();
    let receiver = std::sync::Mutex::new(receiver);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (buffer, sender, receiver, shares) = (&buffer, sender.clone(), &receiver, &shares);
            scope.spawn(move || {
                let mut random = Random::stream(7, thread);
                for _ in 0..50_000 {
                    let number = random.index(3);
                    let tenant = buffer.tenant(number).unwrap();
                    let bytes = random.range(1, 1518).into();
                    if tenant.reserve(bytes) {
                        sender.send((number, bytes)).unwrap();
                    }
                    assert!(buffer.free() <= buffer.pool());
                    if let Some(max) = shares[number].max {
                        assert!(tenant.used() <= max.0);
                    }
                    // Given back by any thread.
                    let back = if random.one_in(2) { receiver.lock().unwrap().try_recv().ok() } else { None };
                    if let Some((number, bytes)) = back {
                        buffer.tenant(number).unwrap().give_back(bytes);
                    }
                }
            });
        }
    });
    let rest: Vec<(usize, u64)> = receiver.lock().unwrap().try_iter().collect();
    for (number, share) in shares.iter().enumerate() {
        let expected: u64 = rest.iter().filter(|(n, _)| *n == number).map(|(_, bytes)| bytes).sum();
        let tenant = buffer.tenant(number).unwrap();
        assert_eq!(tenant.used(), expected);
        assert!(share.max.is_none_or(|max| expected <= max.0));
        tenant.give_back(expected);
        assert_eq!(tenant.used(), 0);
    }
    assert_eq!(buffer.free(), buffer.pool());
}

#[test]
fn ports_reserve_and_give_back() {
    let buffer = buffer(1_000_000, 1.0, &[share(10_000, None), share(0, None)]);
    let config = Config::new(vec![Queue::default(); 2], Node::strict(vec![Node::queue(1), Node::queue(0)]));
    let mut random = Random::new(5);
    let port = |number| PortQueues::with_tenant(&config, buffer.tenant(number).unwrap()).unwrap();
    // Two ports of one tenant, one of the other.
    let mut ports = [port(0), port(0), port(1)];
    let mut refused = 0;
    for step in 0..100_000u64 {
        let at = random.index(3);
        let port = &mut ports[at];
        if random.below(5) < 3 {
            match port.offer(step, random.range(60, 9000), random.below(2) as u8, false, step) {
                Ok(_) => {}
                Err(error) => refused += u64::from(error.reason == Reason::Buffer),
            }
        } else {
            port.take(step);
        }
        if step % 20_000 == 7 {
            port.drain(step);
        }
        if step % 30_000 == 9 {
            port.reconfigure(&Config::fifo(), step).unwrap();
            port.reconfigure(&config, step).unwrap();
        }
        let bytes = |i: usize| ports[i].bytes();
        assert_eq!(buffer.tenant(0).unwrap().used(), bytes(0) + bytes(1));
        assert_eq!(buffer.tenant(1).unwrap().used(), bytes(2));
    }
    assert!(refused > 100, "{refused}");
    drop(ports);
    assert_eq!(buffer.free(), buffer.pool());
    assert_eq!(buffer.tenant(0).unwrap().used(), 0);
}

#[test]
fn contradictions_are_named() {
    let config = |capacity, alpha, tenants: &[Share]| BufferConfig {
        capacity: Size(capacity),
        cell: Size(1),
        alpha,
        tenants: tenants.to_vec(),
    };
    for (config, path) in [
        (config(0, 1.0, &[]), "capacity"),
        (config(u64::MAX, 1.0, &[]), "capacity"),
        (config(1000, f64::NAN, &[]), "alpha"),
        (config(1000, 0.0, &[]), "alpha"),
        (config(1000, 1.0, &[share(600, None), share(401, None)]), "tenants"),
        (config(1000, 1.0, &[share(u64::MAX, None), share(u64::MAX, None)]), "tenants"),
        (config(1000, 1.0, &[share(0, None), share(60, Some(50))]), "tenants[1].max"),
        (config(1000, 1.0, &[share(0, Some(0))]), "tenants[0].max"),
    ] {
        let problems = Buffer::new(&config).unwrap_err();
        assert!(problems.iter().all(|problem| problem.path == path), "{path}: {problems:?}");
    }
    let read: BufferConfig =
        serde_json::from_str(r#"{"capacity":"16MB","alpha":2,"tenants":[{"reserved":"1MB"},{"max":"2MB"}]}"#).unwrap();
    assert_eq!(read.tenants[1], share(0, Some(2_000_000)));
    assert!(serde_json::from_str::<BufferConfig>(r#"{"capacity":"16MB","tenants":[],"alfa":2}"#).is_err());
}

#[test]
fn packets_take_whole_cells() {
    let config =
        |cell| BufferConfig { capacity: Size(8 * 2048), cell: Size(cell), alpha: 1.0, tenants: vec![Share::default()] };
    let tenant = Buffer::new(&config(2048)).unwrap().tenant(0).unwrap();
    assert_eq!([0, 1, 60, 2048, 2049].map(|bytes| tenant.cost(bytes)), [0, 2048, 2048, 2048, 4096]);
    let mut port = PortQueues::with_tenant(&Config::fifo(), tenant.clone()).unwrap();
    let taken = (0..8).filter(|i| port.offer(*i, 60, 0, false, 0).is_ok()).count();
    // Half of the buffer is one tenant's.
    assert_eq!((taken, tenant.used()), (4, 4 * 2048));
    assert_eq!(port.statistics()[0].dropped.buffer.packets, 4);
    port.take(0).unwrap();
    assert_eq!(tenant.used(), 3 * 2048);
    drop(port);
    assert_eq!(tenant.used(), 0);
    for cell in [0, 8 * 2048 + 1] {
        let problems = Buffer::new(&config(cell)).unwrap_err();
        assert_eq!(problems.iter().map(|problem| &*problem.path).collect::<Vec<_>>(), ["cell"]);
    }
}
