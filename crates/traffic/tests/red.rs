//! RED's probabilities against the paper's formula, and what becomes of packets that are hit.

use traffic::{Config, Ecn, Level, Limit, Node, Policy, PortQueues, Queue, Reason, Red, Size, Span, red_probability};

/// One queue with this policy.
fn port(red: Red, limit: Limit) -> PortQueues<u32> {
    let queue = Queue { limit, policy: Policy::Red(red), ..Queue::default() };
    PortQueues::new(&Config::new(vec![queue], Node::queue(0))).unwrap()
}

fn packets(min: u32, max: u32) -> Red {
    Red::new(Level::Packets(min), Level::Packets(max))
}

/// What happens to `n` packets that arrive at a queue of constant length `depth`: for each, whether it was hit.
fn at_depth(mut red: Red, depth: u32, n: usize, capable: bool) -> (Vec<bool>, PortQueues<u32>) {
    // The average is the queue's length at once.
    red.weight = 1.0;
    let mut hits = Vec::new();
    // Filled before RED begins.
    let mut port = PortQueues::new(&Config::fifo()).unwrap();
    for i in 0..depth {
        port.offer(i, 1000, 0, capable, 0).unwrap();
    }
    let queue = Queue { limit: Limit::packets(100_000), policy: Policy::Red(red), ..Queue::default() };
    assert!(port.reconfigure(&Config::new(vec![queue], Node::queue(0)), 0).unwrap().is_empty());
    for _ in 0..n {
        match port.offer(0, 1000, 0, capable, 0) {
            Ok(offered) => {
                hits.push(offered.mark);
                port.take(0).unwrap();
            }
            Err(refused) => {
                assert_eq!(refused.reason, Reason::Red);
                hits.push(true);
            }
        }
    }
    (hits, port)
}

#[test]
fn the_formula() {
    let red = packets(10, 30);
    for (average, expected) in
        [(0.0, 0.0), (9.99, 0.0), (10.0, 0.0), (20.0, 0.05), (29.0, 0.095), (30.0, 0.1), (45.0, 0.55), (60.0, 1.0)]
    {
        assert!((red_probability(&red, average) - expected).abs() < 1e-12, "{average}");
    }
    let abrupt = Red { gentle: false, ..red };
    assert!(red_probability(&abrupt, 29.999_999) < 0.1);
    assert_eq!(red_probability(&abrupt, 30.0), 1.0);
}

#[test]
fn gaps_between_drops_are_uniform_and_follow_the_curve() {
    for depth in [12, 15, 20, 25, 29, 33, 40, 50] {
        let red = packets(10, 30);
        let (hits, _) = at_depth(red.clone(), depth, 200_000, false);
        let base = red_probability(&red, f64::from(depth));
        // Uniform on 1 to 1/p: never later, and on average half-way.
        let places: Vec<usize> = hits.iter().enumerate().filter(|(_, hit)| **hit).map(|(i, _)| i).collect();
        let gaps: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // A gap of n has probability p as long as n·p ≤ 1; the rest falls on the next n.
        let whole = (1.0 / base + 1e-9).floor();
        let mean = base * whole * (whole + 1.0) / 2.0 + (1.0 - base * whole) * (whole + 1.0);
        let measured = gaps.iter().sum::<usize>() as f64 / gaps.len() as f64;
        assert!((measured / mean - 1.0).abs() < 0.03, "{depth}: {measured} instead of {mean}");
        assert!(*gaps.iter().max().unwrap() as f64 <= whole + 1.0, "{depth}");
        for gap in 1..=(whole as usize).min(10) {
            let share = gaps.iter().filter(|g| **g == gap).count() as f64 / gaps.len() as f64;
            let error = 5.0 * (base / gaps.len() as f64).sqrt();
            assert!((share - base).abs() < error.max(1e-4), "{depth}, gap {gap}: {share} instead of {base}");
        }
    }
}

#[test]
fn nothing_is_hit_below_and_everything_above() {
    assert!(!at_depth(packets(10, 30), 9, 10_000, false).0.contains(&true));
    assert!(!at_depth(packets(10, 30), 60, 1000, false).0.contains(&false));
    let abrupt = Red { gentle: false, ..packets(10, 30) };
    assert!(!at_depth(abrupt, 30, 1000, false).0.contains(&false));
}

#[test]
fn capable_packets_are_marked_instead() {
    let marking = |ecn| Red { ecn, ..packets(10, 30) };
    let dropped = |port: &PortQueues<u32>| port.statistics()[0].dropped.red.packets;
    let marked = |port: &PortQueues<u32>| port.statistics()[0].marked.packets;
    let (hits, port) = at_depth(marking(Ecn::Mark), 20, 10_000, true);
    let n = hits.iter().filter(|hit| **hit).count() as u64;
    assert_eq!((marked(&port), dropped(&port)), (n, 0));
    assert!((900..1100).contains(&n), "{n}");
    // Not capable.
    let (_, port) = at_depth(marking(Ecn::Mark), 20, 10_000, false);
    assert!(marked(&port) == 0 && dropped(&port) > 900);
    // Beyond the thresholds.
    let (_, port) = at_depth(marking(Ecn::Mark), 60, 100, true);
    assert_eq!((marked(&port), dropped(&port)), (0, 100));
    let (_, port) = at_depth(marking(Ecn::MarkAlways), 60, 100, true);
    assert_eq!((marked(&port), dropped(&port)), (100, 0));
    let (_, port) = at_depth(marking(Ecn::Off), 60, 100, true);
    assert_eq!((marked(&port), dropped(&port)), (0, 100));
}

#[test]
fn dctcp_is_a_step() {
    let red = Red { weight: 1.0, gentle: false, ecn: Ecn::MarkAlways, ..packets(20, 20) };
    let mut port = port(red, Limit::packets(100));
    for i in 0..150 {
        let offered = port.offer(i, 1000, 0, true, 0);
        match i {
            0..20 => assert!(!offered.unwrap().mark),
            20..100 => assert!(offered.unwrap().mark),
            _ => assert_eq!(offered.unwrap_err().reason, Reason::TailDrop),
        }
    }
    let marks = std::iter::from_fn(|| port.take(0)).filter(|taken| taken.mark).count();
    assert_eq!(marks, 80);
}

#[test]
fn thresholds_in_bytes_and_time() {
    let step = |level| Red { weight: 1.0, gentle: false, ..Red::new(level, level) };
    let mut bytes = port(step(Level::Bytes(Size(5000))), Limit::default());
    let accepted = (0..20).filter(|i| bytes.offer(*i, 1000, 0, false, 0).is_ok()).count();
    assert_eq!(accepted, 5);
    let mut time = port(step(Level::Time(Span(1_000_000))), Limit::default());
    for i in 0..12 {
        assert_eq!(time.offer(i, 1000, 0, false, u64::from(i) * 100_000).is_ok(), i < 10, "{i}");
    }
    // The head is younger once packets have left.
    (0..5).for_each(|_| assert!(time.take(1_200_000).is_some()));
    assert!(time.offer(0, 1000, 0, false, 500_000 + 999_999).is_ok());
}

#[test]
fn the_average_is_exponential_and_decays_when_idle() {
    let red = Red { weight: 0.25, packet_time: Span(1000), ..packets(500, 900) };
    let mut port = port(red, Limit::packets(1000));
    let mut expected = 0.0;
    for i in 0..100u32 {
        expected += 0.25 * (f64::from(i) - expected);
        port.offer(i, 100, 0, false, 0).unwrap();
        assert!((port.red_average(0).unwrap() - expected).abs() < 1e-9);
    }
    while port.take(0).is_some() {}
    // Ten packet times of an empty queue, and this arrival.
    port.offer(0, 100, 0, false, 10_000).unwrap();
    expected *= 0.75f64.powi(11);
    assert!((port.red_average(0).unwrap() - expected).abs() < 1e-9);
    while port.take(10_000).is_some() {}
    port.offer(0, 100, 0, false, u64::MAX).unwrap();
    assert_eq!(port.red_average(0), Some(0.0));
}

#[test]
fn a_tail_drop_begins_a_new_gap() {
    // Every third frame is too large for the queue; so no gap reaches the length at which a hit becomes likelier.
    let red = Red { weight: 1.0, ..packets(10, 30) };
    let mut port = PortQueues::new(&Config::fifo()).unwrap();
    (0..20).for_each(|i| assert!(port.offer(i, 1000, 0, false, 0).is_ok()));
    let queue = Queue { limit: Limit::bytes(22_000), policy: Policy::Red(red), ..Queue::default() };
    port.reconfigure(&Config::new(vec![queue], Node::queue(0)), 0).unwrap();
    let mut hits = 0;
    for i in 0..90_000 {
        let bytes = if i % 3 == 0 { 9000 } else { 1000 };
        match port.offer(i, bytes, 0, false, 0) {
            Ok(_) => assert!(port.take(0).is_some()),
            Err(refused) if i % 3 == 0 => assert_eq!(refused.reason, Reason::TailDrop),
            Err(_) => hits += 1,
        }
    }
    // Of 60,000 at 0.05, not at 0.095.
    assert!((2700..3500).contains(&hits), "{hits}");
}

#[test]
fn reconfiguring_does_not_restart_red() {
    let red = Red { weight: 0.2, ..packets(10, 30) };
    let config = Config::new(
        vec![Queue { limit: Limit::packets(100), policy: Policy::Red(red), ..Queue::default() }],
        Node::queue(0),
    );
    let hits = |reconfigures: bool| {
        let mut port = PortQueues::new(&config).unwrap();
        let mut hits = Vec::new();
        for i in 0..20_000 {
            if reconfigures {
                assert!(port.reconfigure(&config, i).unwrap().is_empty());
            }
            hits.push(port.offer(0, 1000, 0, false, i).is_err());
            if port.len() > 20 {
                port.take(i).unwrap();
            }
        }
        hits
    };
    let expected = hits(false);
    assert!(expected.iter().filter(|hit| **hit).count() > 1000);
    assert!(hits(true) == expected);
}
