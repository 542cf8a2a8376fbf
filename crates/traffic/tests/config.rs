//! Configurations as JSON, their defaults, and what is refused.

use traffic::{
    Config, DEFAULT_PACKETS, Ecn, Kind, Level, Limit, Node, PacketShaper, Policy, PortQueues, Queue, Rate, Red, Shaper,
    Size, Span,
};

const DOCUMENT: &str = r#"{
  "queues": [ {}, { "limit": { "time": "5ms" } },
              { "policy": { "red": { "min": "30KB", "max": "90KB", "ecn": "mark" } } } ],
  "root": { "shaper": { "rate": "1Gbit", "burst": "64KB" },
            "strict": [ { "queue": 2, "shaper": { "rate": "100Mbit" } },
                        { "weighted": [ { "queue": 1, "weight": 3 }, { "queue": 0, "min_rate": "10Mbit" } ] } ] },
  "classes": { "46": 2 } }"#;

#[test]
fn the_documented_form_is_read() {
    let config: Config = serde_json::from_str(DOCUMENT).unwrap();
    config.check(Some(1_000_000_000)).unwrap();
    let Kind::Strict(children) = &config.root.kind else { panic!() };
    assert_eq!(children[0].shaper, Some(Shaper { rate: Rate(100_000_000), burst: None }));
    let round_robin =
        Node::weighted(vec![Node::queue(1).with_weight(3), Node::queue(0).with_min_rate(Rate(10_000_000))]);
    assert_eq!(children[1], round_robin);
    assert_eq!(config.queues[1].limit, Limit::time(Span(5_000_000)));
    let red = Red { ecn: Ecn::Mark, ..Red::new(Level::Bytes(Size(30_000)), Level::Bytes(Size(90_000))) };
    assert_eq!(config.queues[2].policy, Policy::Red(red));
    let map = config.class_map();
    assert_eq!((map[0], map[1], map[5], map[46], map[63]), (0, 1, 2, 2, 2));
    assert_eq!((config.overhead, config.mtu), (0, 1518));
}

#[test]
fn what_is_written_is_read_back() {
    let mut all: Config = serde_json::from_str(DOCUMENT).unwrap();
    all.overhead = 24;
    all.node_mut(0).unwrap().packet_shaper = Some(PacketShaper { packets_per_s: 1000, burst: 1 });
    for config in [all, Config::fifo(), Config::strict(8), Config::weighted(&[1, 2, 3])] {
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config, "{text}");
        config.check(None).unwrap();
    }
}

#[test]
fn unknown_and_contradictory_fields_are_refused() {
    for (from, to, part) in [
        ("\"classes\"", "\"clases\"", "unknown field `clases`"),
        ("\"queue\": 2", "\"queu\": 2", "unknown field `queu`"),
        ("\"time\": \"5ms\"", "\"timeout\": \"5ms\"", "unknown field `timeout`"),
        ("\"red\"", "\"blue\"", "unknown variant `blue`"),
        ("\"ecn\": \"mark\"", "\"ecn\": \"always\"", "unknown variant `always`"),
        ("\"queue\": 2", "\"queue\": 2, \"strict\": []", "only one of"),
        ("\"queue\": 2,", "", "needs one of"),
        ("100Mbit", "100Mbps", "bits or bytes"),
        ("64KB", "64KX", "`KX` is unknown"),
        ("\"5ms\"", "\"5\"", "no unit"),
    ] {
        assert!(DOCUMENT.contains(from));
        let error = serde_json::from_str::<Config>(&DOCUMENT.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(part), "{to}: {error}");
    }
}

#[test]
fn defaults_bound_every_queue() {
    let mut port = PortQueues::new(&Config::fifo()).unwrap();
    let accepted = (0..5000).take_while(|i| port.offer(*i, 60, 0, false, 0).is_ok()).count();
    assert_eq!(accepted, DEFAULT_PACKETS as usize);
}

/// The paths of the problems after a change of a valid configuration.
fn problems(change: impl FnOnce(&mut Config)) -> Vec<String> {
    let mut config = Config::new(
        vec![Queue::default(); 3],
        Node::strict(vec![Node::weighted(vec![Node::queue(2), Node::queue(1)]), Node::queue(0)]),
    );
    config.check(Some(1_000_000_000)).unwrap();
    change(&mut config);
    let problems = config.check(Some(1_000_000_000)).err().unwrap_or_default();
    assert!(problems.iter().all(|problem| !problem.message.is_empty()));
    problems.into_iter().map(|problem| problem.path).collect()
}

fn leaf(config: &mut Config, queue: u8) -> &mut Node {
    config.node_mut(queue).unwrap()
}

fn children(node: &mut Node) -> &mut Vec<Node> {
    match &mut node.kind {
        Kind::Strict(children) | Kind::Weighted(children) => children,
        Kind::Queue(_) => panic!("a queue has no children"),
    }
}

#[test]
fn shapers_and_minimums_that_contradict() {
    let shaper = |rate, burst: Option<u64>| Some(Shaper { rate: Rate(rate), burst: burst.map(Size) });
    let cases: Vec<(Vec<String>, &[&str])> = vec![
        (problems(|c| c.root.shaper = shaper(0, None)), &["root.shaper.rate"]),
        (problems(|c| c.root.shaper = shaper(2_000_000_000, None)), &["root.shaper.rate"]),
        (problems(|c| c.root.shaper = shaper(1_000_000, Some(1517))), &["root.shaper.burst"]),
        (problems(|c| c.root.shaper = shaper(1_000_000, Some(2_000_000_000))), &["root.shaper.burst"]),
        (problems(|c| leaf(c, 1).shaper = shaper(u64::MAX, None)), &["root.strict[0].weighted[1].shaper.rate"]),
        (problems(|c| c.root.min_rate = Some(Rate(1000))), &["root.min_rate"]),
        (problems(|c| leaf(c, 0).min_rate = Some(Rate(0))), &["root.strict[1].min_rate"]),
        (
            problems(|c| {
                leaf(c, 0).shaper = shaper(1_000_000, None);
                leaf(c, 0).min_rate = Some(Rate(1_000_001));
            }),
            &["root.strict[1].min_rate"],
        ),
        // Sums: beyond the link, beyond the port's shaper, beyond the parent's minimum.
        (problems(|c| (0..3).for_each(|q| leaf(c, q).min_rate = Some(Rate(400_000_000)))), &["root"]),
        (
            problems(|c| {
                c.root.shaper = shaper(100_000_000, None);
                (0..3).for_each(|q| leaf(c, q).min_rate = Some(Rate(40_000_000)));
            }),
            &["root.shaper.rate"],
        ),
        (
            problems(|c| {
                children(&mut c.root)[0].min_rate = Some(Rate(70_000_000));
                (1..3).for_each(|q| leaf(c, q).min_rate = Some(Rate(40_000_000)));
            }),
            &["root.strict[0].min_rate"],
        ),
        (
            problems(|c| leaf(c, 0).packet_shaper = Some(PacketShaper { packets_per_s: 0, burst: 0 })),
            &["root.strict[1].packet_shaper.packets_per_s", "root.strict[1].packet_shaper.burst"],
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
    assert!(problems(|c| (0..3).for_each(|q| leaf(c, q).min_rate = Some(Rate(333_333_333)))).is_empty());
}

#[test]
fn trees_that_are_none() {
    let deep = (0..8).fold(Node::queue(0), |node, _| Node::strict(vec![node]));
    let wide = Node::strict(vec![Node::queue(0); 65]);
    let many = Node::strict((0..43).map(|_| Node::strict(vec![Node::queue(0), Node::queue(1)])).collect());
    let cases: Vec<(Vec<String>, &str)> = vec![
        (problems(|c| children(&mut c.root)[0].weight = 2), "root.strict[0].weight"),
        (problems(|c| leaf(c, 1).weight = 0), "root.strict[0].weighted[1].weight"),
        (problems(|c| leaf(c, 1).weight = 65_536), "root.strict[0].weighted[1].weight"),
        (problems(|c| c.queues.push(Queue::default())), "queues[3]"),
        (problems(|c| leaf(c, 0).kind = Kind::Queue(1)), "queues[0]"),
        (problems(|c| leaf(c, 0).kind = Kind::Queue(1)), "queues[1]"),
        (problems(|c| leaf(c, 0).kind = Kind::Queue(7)), "root.strict[1].queue"),
        (problems(|c| children(&mut c.root).push(Node::strict(vec![]))), "root.strict[2].strict"),
        (
            problems(|c| c.root = deep),
            "root.strict[0].strict[0].strict[0].strict[0].strict[0].strict[0].strict[0].strict[0]",
        ),
        (problems(|c| c.root = wide), "root.strict"),
        (problems(|c| c.root = many), "root"),
        (problems(|c| c.queues.clear()), "queues"),
        (problems(|c| *c = Config::new(vec![Queue::default(); 65], c.root.clone())), "queues"),
        (problems(|c| c.classes.extend([(5, 3)])), "classes.5"),
        (problems(|c| c.classes.extend([(64, 0)])), "classes.64"),
        (problems(|c| c.mtu = 0), "mtu"),
        (problems(|c| c.overhead = 5000), "overhead"),
    ];
    for (found, expected) in cases {
        assert!(found.iter().any(|path| path == expected), "{expected}: {found:?}");
    }
    // Every constructor's tree is valid, up to the most queues.
    for n in 1..=64 {
        Config::strict(n).check(None).unwrap();
    }
    assert!(Config::strict(0).check(None).is_err() && Config::strict(65).check(None).is_err());
    assert!(PortQueues::<()>::new(&Config::weighted(&[])).is_err());
}

#[test]
fn queues_that_pass_nothing() {
    let red = |change: fn(&mut Red)| {
        problems(|c| {
            let mut red = Red::new(Level::Packets(10), Level::Packets(30));
            change(&mut red);
            c.queues[1].policy = Policy::Red(red);
        })
    };
    let limit = |limit| problems(|c| c.queues[0].limit = limit);
    let cases: Vec<(Vec<String>, &str)> = vec![
        (limit(Limit::packets(0)), "queues[0].limit.packets"),
        (limit(Limit::packets(u32::MAX)), "queues[0].limit.packets"),
        (limit(Limit::bytes(1517)), "queues[0].limit.bytes"),
        (limit(Limit::time(Span(0))), "queues[0].limit.time"),
        (red(|r| r.min = Level::Packets(31)), "queues[1].policy.red.min"),
        (red(|r| r.max = Level::Bytes(Size(1000))), "queues[1].policy.red.max"),
        (red(|r| (r.min, r.max) = (Level::Packets(0), Level::Packets(0))), "queues[1].policy.red.max"),
        (red(|r| r.probability = 0.0), "queues[1].policy.red.probability"),
        (red(|r| r.probability = 1.01), "queues[1].policy.red.probability"),
        (red(|r| r.probability = f64::NAN), "queues[1].policy.red.probability"),
        (red(|r| r.weight = -1.0), "queues[1].policy.red.weight"),
        (red(|r| r.packet_time = Span(0)), "queues[1].policy.red.packet_time"),
        (
            problems(|c| {
                c.queues[0].limit = Limit::packets(20);
                c.queues[0].policy = Policy::Red(Red::new(Level::Packets(10), Level::Packets(21)));
            }),
            "queues[0].policy.red.max",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, [expected]);
    }
}

#[test]
fn a_bad_configuration_changes_nothing() {
    let mut port = PortQueues::new(&Config::strict(2)).unwrap();
    port.offer('a', 60, 1, false, 0).unwrap();
    assert!(port.reconfigure(&Config::strict(0), 1).is_err());
    assert_eq!(port.config(), &Config::strict(2));
    assert_eq!(port.take(2).map(|taken| taken.item), Some('a'));
}
