//! Nothing is lost, doubled or reordered; limits, numbers, reconfiguration.

mod common;

use std::collections::{BTreeMap, VecDeque};

use random::Random;
use traffic::{
    Buffer, BufferConfig, Config, Ecn, Level, Limit, Node, Policy, PortQueues, Queue, Reason, Red, Share, Size, Span,
};

/// A random policy and limit for each queue.
fn with_policies(random: &mut Random, mut config: Config) -> Config {
    for queue in &mut config.queues {
        queue.limit = match random.below(4) {
            0 => Limit::packets(random.range(1, 40)),
            1 => Limit::bytes(random.range(1518, 40_000).into()),
            2 => Limit::time(Span(random.range(1, 100_000).into())),
            _ => Limit { packets: Some(30), bytes: Some(Size(20_000)), time: Some(Span(50_000)) },
        };
        if random.one_in(2) {
            let level = |n: u32| match n % 3 {
                0 => (Level::Packets(3), Level::Packets(20)),
                1 => (Level::Bytes(Size(3000)), Level::Bytes(Size(20_000))),
                _ => (Level::Time(Span(1000)), Level::Time(Span(50_000))),
            };
            let (min, max) = level(random.range(0, 2));
            let ecn = *random.pick(&[Ecn::Off, Ecn::Mark, Ecn::MarkAlways]);
            queue.policy = Policy::Red(Red { weight: 0.1, ecn, ..Red::new(min, max) });
            queue.limit = Limit { time: None, ..Limit::packets(40) };
        }
    }
    match config.check(None) {
        Ok(()) => config,
        // A threshold beyond the limit.
        Err(_) => {
            config.queues.iter_mut().for_each(|queue| *queue = Queue::default());
            config
        }
    }
}

#[derive(Default)]
struct Tally {
    offered: u64,
    refused: BTreeMap<Reason, u64>,
    sent: u64,
    marked: u64,
}

#[test]
fn everything_is_taken_refused_or_there_once_and_in_order() {
    let mut seen = BTreeMap::<Reason, u64>::new();
    let mut marked = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let shaped = seed % 2 == 0;
        let config = common::random_config(&mut random, shaped);
        let config = with_policies(&mut random, config);
        let shares =
            BufferConfig { capacity: Size(30_000), cell: Size(1), alpha: 1.0, tenants: vec![Share::default()] };
        let tenant = Buffer::new(&shares).unwrap().tenant(0).unwrap();
        let mut port = match seed % 3 {
            0 => PortQueues::with_tenant(&config, tenant).unwrap(),
            _ => PortQueues::new(&config).unwrap(),
        };
        let mut waiting: Vec<VecDeque<(u64, u32, u64)>> = vec![VecDeque::new(); config.queues.len()];
        let mut tallies: Vec<Tally> = config.queues.iter().map(|_| Tally::default()).collect();
        let mut now = 0;
        for item in 0..3000u64 {
            now += random.below(4000);
            if random.below(5) < 3 {
                let (bytes, class) = (random.range(0, 2000), random.below(70) as u8);
                let number = usize::from(port.queue_of(class));
                let (queue, tally) = (&mut waiting[number], &mut tallies[number]);
                let before: u64 = queue.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum();
                tally.offered += 1;
                match port.offer(item, bytes, class, random.one_in(2), now) {
                    Ok(offered) => {
                        assert_eq!((offered.packets_before as usize, offered.bytes_before), (queue.len(), before));
                        assert_eq!(usize::from(offered.queue), number);
                        tally.marked += u64::from(offered.mark);
                        queue.push_back((item, bytes, now));
                    }
                    Err(refused) => {
                        assert_eq!((refused.item, usize::from(refused.queue)), (item, number));
                        *tally.refused.entry(refused.reason).or_default() += 1;
                        *seen.entry(refused.reason).or_default() += 1;
                    }
                }
            } else if let Some(taken) = port.take(now) {
                let queue = &mut waiting[usize::from(taken.queue)];
                let (item, bytes, at) = queue.pop_front().unwrap();
                assert_eq!((taken.item, taken.bytes, taken.enqueued_at, taken.waited_ns), (item, bytes, at, now - at));
                let rest: u64 = queue.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum();
                assert_eq!((taken.packets_behind as usize, taken.bytes_behind), (queue.len(), rest));
                tallies[usize::from(taken.queue)].sent += 1;
            }
            assert_eq!(port.len(), waiting.iter().map(VecDeque::len).sum::<usize>());
        }
        for (number, (statistics, tally)) in port.statistics().iter().zip(&tallies).enumerate() {
            assert_eq!(statistics.accepted.packets + statistics.dropped.total().packets, tally.offered);
            assert_eq!((statistics.sent.packets, statistics.marked.packets), (tally.sent, tally.marked));
            assert_eq!(statistics.waited.count(), tally.sent);
            assert_eq!(statistics.depth.packets as usize, waiting[number].len());
            assert!(statistics.highest.packets >= statistics.depth.packets);
            for reason in [Reason::TailDrop, Reason::Time, Reason::Red, Reason::Buffer] {
                let expected = tally.refused.get(&reason).copied().unwrap_or(0);
                assert_eq!(statistics.dropped.of(reason).packets, expected);
            }
            marked += tally.marked;
        }
        let rest: Vec<u64> = waiting.iter().flatten().map(|(item, ..)| *item).collect();
        assert_eq!(port.drain(now), rest);
        assert!(port.is_empty() && port.bytes() == 0 && port.next_at(now).is_none() && port.take(now).is_none());
    }
    assert!(seen.len() == 4 && seen.values().all(|n| *n > 500), "{seen:?}");
    assert!(marked > 500, "{marked}");
}

fn one_queue(limit: Limit) -> PortQueues<u32> {
    PortQueues::new(&Config::new(vec![Queue::with_limit(limit)], Node::queue(0))).unwrap()
}

#[test]
fn limits_are_exact() {
    let mut port = one_queue(Limit::packets(3));
    let results: Vec<bool> = (0..5).map(|i| port.offer(i, 60, 0, false, 0).is_ok()).collect();
    assert_eq!(results, [true, true, true, false, false]);
    // 3000 bytes: a smaller frame still fits where a larger one does not.
    let mut port = one_queue(Limit::bytes(3000));
    let results: Vec<bool> = [1500, 1000, 501, 500, 1].iter().map(|b| port.offer(0, *b, 0, false, 0).is_ok()).collect();
    assert_eq!(results, [true, true, false, true, false]);
    // Refused once the head has waited 1 ms, until it has left.
    let mut port = one_queue(Limit::time(Span(1_000_000)));
    port.offer(0, 60, 0, false, 100).unwrap();
    port.offer(1, 60, 0, false, 600_000).unwrap();
    port.offer(2, 60, 0, false, 1_000_099).unwrap();
    assert_eq!(port.offer(3, 60, 0, false, 1_000_100).unwrap_err().reason, Reason::Time);
    port.take(1_000_200).unwrap();
    port.offer(4, 60, 0, false, 1_599_999).unwrap();
    assert_eq!(port.offer(5, 60, 0, false, 1_600_000).unwrap_err().reason, Reason::Time);
}

#[test]
fn waiting_times_have_quantiles() {
    let mut port = one_queue(Limit::packets(100));
    for i in 0..1000u64 {
        port.offer(0, 60, 0, false, i * 1_000_000).unwrap();
        // 99 of 100 wait 1 µs, the rest 500 µs.
        let waits = if i % 100 == 7 { 500_000 } else { 1000 };
        port.take(i * 1_000_000 + waits).unwrap();
    }
    let waited = &port.queue_statistics(0).unwrap().waited;
    assert!((1000..1125).contains(&waited.quantile(0.5)), "{}", waited.quantile(0.5));
    assert!((1000..1125).contains(&waited.quantile(0.99)));
    assert_eq!((waited.quantile(0.995), waited.max_ns()), (500_000, 500_000));
}

#[test]
fn reconfiguring_keeps_what_waits() {
    let mut port = PortQueues::new(&Config::strict(4)).unwrap();
    for i in 0..40u32 {
        port.offer(i, 100, (i % 4) as u8, false, u64::from(i)).unwrap();
    }
    // Queues 2 and 3 are gone: their classes now belong to queue 1, which holds 25.
    let mut config = Config::strict(2);
    config.queues[1].limit = Limit::packets(25);
    let refused = port.reconfigure(&config, 100).unwrap();
    let moved: Vec<u32> = (0..40).filter(|i| i % 4 >= 2).collect();
    assert_eq!(refused, moved[15..]);
    assert_eq!((port.len(), port.bytes()), (35, 3500));
    let order: Vec<u32> = std::iter::from_fn(|| port.take(200)).map(|taken| taken.item).collect();
    let expected: Vec<u32> = (1..40).step_by(4).chain(moved[..15].iter().copied()).chain((0..40).step_by(4)).collect();
    assert_eq!(order, expected);
}

#[test]
fn reconfiguring_under_load_loses_nothing() {
    let mut reconfigured = 0;
    for seed in 0..60 {
        let mut random = Random::stream(seed, 1);
        let config = common::random_config(&mut random, true);
        let mut port = PortQueues::new(&with_policies(&mut random, config)).unwrap();
        let mut waiting = std::collections::BTreeSet::new();
        let mut now = 0;
        for item in 0..5000u64 {
            now += random.below(3000);
            if random.below(5) < 3 {
                if port.offer(item, random.range(60, 9000), random.below(64) as u8, true, now).is_ok() {
                    waiting.insert(item);
                }
            } else if let Some(taken) = port.take(now) {
                assert!(waiting.remove(&taken.item), "seed {seed}: {} came twice", taken.item);
            }
            if random.one_in(100) {
                let config = common::random_config(&mut random, true);
                let config = with_policies(&mut random, config);
                for item in port.reconfigure(&config, now).unwrap() {
                    assert!(waiting.remove(&item));
                }
                reconfigured += 1;
            }
            assert_eq!(port.len(), waiting.len());
            let depths: usize = (0..64).map(|queue| port.depth(queue).0).sum();
            assert_eq!(depths, waiting.len());
        }
        // No packet is stuck.
        while let Some(next) = port.next_at(now) {
            now = next;
            if let Some(taken) = port.take(now) {
                assert!(waiting.remove(&taken.item));
            }
        }
        assert!(waiting.is_empty());
        for statistics in port.statistics() {
            let left = statistics.sent.packets + statistics.removed.packets;
            assert_eq!(statistics.accepted.packets, left);
        }
    }
    assert!(reconfigured > 1000);
}

#[test]
fn a_new_rate_is_no_new_burst() {
    let shaped = |rate: u64| {
        let queues = vec![Queue::with_limit(Limit::packets(1000))];
        Config::new(queues, Node::queue(0).with_shaper(traffic::Rate(rate), Some(Size(15_180))))
    };
    let mut port = PortQueues::new(&shaped(8_000_000)).unwrap();
    (0..500).for_each(|i| assert!(port.offer(i, 1518, 0, false, 0).is_ok()));
    assert_eq!(std::iter::from_fn(|| port.take(0)).count(), 10);
    for i in 0..100 {
        port.reconfigure(&shaped(8_000_000 + i), 0).unwrap();
        assert!(port.take(0).is_none());
    }
    // What came in before the change is kept.
    port.reconfigure(&shaped(16_000_000), 1_518_000).unwrap();
    assert_eq!(std::iter::from_fn(|| port.take(1_518_000)).count(), 1);
}

#[test]
fn extreme_sizes_and_times_are_harmless() {
    let mut random = Random::new(77);
    for seed in 0..20 {
        let mut random_tree = Random::stream(seed, 2);
        let mut port = PortQueues::new(&common::random_config(&mut random_tree, true)).unwrap();
        for _ in 0..2000 {
            let now = *random.pick(&[0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 12_345_678]);
            let bytes = *random.pick(&[0, 1, 60, u32::MAX, 1 << 31]);
            let (class, item) = (random.next_u64() as u8, ());
            let _ = port.offer(item, bytes, class, true, now);
            port.next_at(now);
            port.take(now);
        }
        assert_eq!(port.drain(0).len() as u64, port.statistics().iter().map(|s| s.removed.packets).sum::<u64>());
    }
}
