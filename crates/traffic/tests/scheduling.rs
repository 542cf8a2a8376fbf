//! Strict priority, weights and their nesting, without shapers.

mod common;

use common::roomy;
use random::Random;
use traffic::{Config, Node, PortQueues};

/// Keeps all queues filled and takes `n` packets; what each queue sent.
fn saturate(config: &Config, n: usize, mut size: impl FnMut(u8) -> u32, mut check: impl FnMut(&[u64])) -> Vec<u64> {
    let mut port = PortQueues::new(config).unwrap();
    let queues = config.queues.len() as u8;
    for class in 0..queues {
        port.offer((), size(class), class, false, 0).unwrap();
        port.offer((), size(class), class, false, 0).unwrap();
    }
    let mut bytes = vec![0; usize::from(queues)];
    for _ in 0..n {
        let taken = port.take(0).unwrap();
        bytes[usize::from(taken.queue)] += u64::from(taken.bytes);
        port.offer((), size(taken.queue), taken.queue, false, 0).unwrap();
        check(&bytes);
    }
    bytes
}

fn with_room(mut config: Config) -> Config {
    config.queues = roomy(config.queues.len());
    config
}

#[test]
fn strict_priority_serves_the_most_urgent() {
    let mut random = Random::new(1);
    let mut port = PortQueues::new(&with_room(Config::strict(8))).unwrap();
    for _ in 0..20_000 {
        if random.below(9) < 4 {
            let class = random.below(64) as u8;
            assert_eq!(port.offer((), 100, class, false, 0).unwrap().queue, class.min(7));
        } else {
            let urgent = (0..8).rev().find(|queue| port.depth(*queue).0 > 0);
            assert_eq!(port.take(0).map(|taken| taken.queue), urgent);
        }
    }
}

#[test]
fn weights_hold_within_a_round_at_every_moment() {
    let mut random = Random::new(2);
    for round in 0..40 {
        let n = random.range(2, 12) as usize;
        let weights: Vec<u32> = (0..n).map(|_| random.range(1, if round % 2 == 0 { 8 } else { 1000 })).collect();
        let config = with_room(Config::weighted(&weights));
        let least = *weights.iter().min().unwrap();
        // Whoever has begun its turn is one quantum ahead at most, and a packet: in bytes for each unit of weight.
        let bound = 1518.0 / f64::from(least) + 1518.0 / f64::from(least);
        let mut sizes = Random::new(round);
        let largest = *sizes.pick(&[60, 700, 1518]);
        saturate(
            &config,
            30_000,
            |_| sizes.range(60, largest),
            |bytes| {
                let shares = bytes.iter().zip(&weights).map(|(bytes, weight)| *bytes as f64 / f64::from(*weight));
                let (low, high) =
                    shares.fold((f64::MAX, 0.0f64), |(low, high), share| (low.min(share), high.max(share)));
                assert!(high - low <= bound, "{weights:?} {bytes:?}");
            },
        );
    }
}

#[test]
fn weights_are_exact_in_the_long_run() {
    // Different sizes for different queues must not matter: within one packet and one quantum.
    let sizes = [60, 1518, 512, 9000, 65_535];
    let weights = [3, 5, 7, 2, 1];
    let config = with_room(Config::weighted(&weights));
    let bytes = saturate(&config, 2_000_000, |queue| sizes[usize::from(queue)], |_| {});
    let (total, sum) = (bytes.iter().sum::<u64>() as f64, 18.0);
    for (bytes, weight) in bytes.iter().zip(weights) {
        let expected = total * f64::from(weight) / sum;
        assert!((*bytes as f64 - expected).abs() < 80_000.0, "{bytes} {expected}");
        assert!((*bytes as f64 / expected - 1.0).abs() < 0.005, "{bytes} {expected}");
    }
}

#[test]
fn equal_packets_of_one_quantum_make_exact_rounds() {
    let config = with_room(Config::weighted(&[1, 2, 3]));
    let mut port = PortQueues::new(&config).unwrap();
    (0..600u32).for_each(|i| assert!(port.offer((), 1518, (i % 3) as u8, false, 0).is_ok()));
    let order: Vec<u8> = std::iter::from_fn(|| port.take(0)).map(|taken| taken.queue).collect();
    let first = &order[..6];
    assert_eq!([0, 1, 2].map(|queue| first.iter().filter(|q| **q == queue).count()), [1, 2, 3]);
    // Until queue 2 is empty.
    assert!(order[..66 * 6].chunks(6).all(|round| round == first), "{order:?}");
}

#[test]
fn weighted_in_strict_in_weighted() {
    // 4:1 between a pair and queue 4; the pair is strict: first 2:1 of queues 0 and 1 …
    let pair = Node::weighted(vec![Node::queue(0).with_weight(2), Node::queue(1)]);
    let strict = Node::strict(vec![pair, Node::queue(2)]).with_weight(4);
    let root = Node::weighted(vec![strict, Node::queue(3)]);
    let config = Config::new(roomy(4), root);
    let mut sizes = Random::new(3);
    let bytes = saturate(&config, 100_000, |_| sizes.range(60, 1518), |_| {});
    let total = bytes.iter().sum::<u64>() as f64;
    for (bytes, expected) in bytes.iter().zip([8.0 / 15.0, 4.0 / 15.0, 0.0, 0.2]) {
        // Queue 2 starves: it is behind a pair that always has packets.
        assert!((*bytes as f64 / total - expected).abs() < 0.001, "{bytes} {expected}");
    }
}

#[test]
fn an_idle_child_saves_nothing_up() {
    let config = with_room(Config::weighted(&[1, 1]));
    let mut port = PortQueues::new(&config).unwrap();
    (0..1000).for_each(|_| assert!(port.offer((), 1518, 0, false, 0).is_ok()));
    (0..500).for_each(|_| assert_eq!(port.take(0).unwrap().queue, 0));
    (0..500).for_each(|_| assert!(port.offer((), 1518, 1, false, 0).is_ok()));
    let mut ahead = 0i32;
    for _ in 0..800 {
        ahead += if port.take(0).unwrap().queue == 1 { 1 } else { -1 };
        assert!((-1..=2).contains(&ahead), "{ahead}");
    }
}

#[test]
fn classes_go_where_the_map_says() {
    let mut config = Config::strict(4);
    config.classes.extend([(46, 3), (0, 2), (63, 0)]);
    let port = PortQueues::<()>::new(&config).unwrap();
    let queues: Vec<u8> = [0, 1, 2, 3, 4, 46, 62, 63, 64, 255].iter().map(|class| port.queue_of(*class)).collect();
    assert_eq!(queues, [2, 1, 2, 3, 3, 3, 3, 0, 0, 0]);
}

#[test]
fn sixty_four_queues_eight_levels() {
    let mut nodes: Vec<Node> = (0..64).map(Node::queue).collect();
    for level in 0..6 {
        let pairs = nodes
            .chunks(2)
            .map(|pair| if level % 2 == 0 { Node::weighted(pair.to_vec()) } else { Node::strict(pair.to_vec()) });
        nodes = pairs.collect();
    }
    let config = Config::new(roomy(64), nodes.remove(0));
    let mut port = PortQueues::new(&config).unwrap();
    for class in 0..64 {
        port.offer(class, 100, class, false, 0).unwrap();
    }
    let mut seen: Vec<u8> = std::iter::from_fn(|| port.take(0)).map(|taken| taken.item).collect();
    assert_eq!(seen.len(), 64);
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..64));
}
