//! Shapers: long-run rate, bursts, nesting, oversized packets, late callers, clocks that jump.

mod common;

use common::{roomy, run, run_on_link};
use random::Random;
use traffic::{Config, Node, PortQueues, Rate, Size, Span};

const SECOND: u64 = 1_000_000_000;

fn shaped(rate: u64, burst: Option<u64>) -> Config {
    Config::new(roomy(1), Node::queue(0).with_shaper(Rate(rate), burst.map(Size)))
}

/// The rate in bit/s of `n` packets through a shaper that always has one waiting, from when its bucket is empty. `late` says when a
/// caller comes who was told to come at a time.
fn measure(config: &Config, mut size: impl FnMut() -> u32, n: u64, late: impl Fn(u64) -> u64) -> f64 {
    let mut port = PortQueues::new(config).unwrap();
    let (mut now, mut bytes, mut start) = (0, 0u64, None);
    for _ in 0..n {
        port.offer((), size(), 0, false, now).unwrap();
        let taken = loop {
            if let Some(taken) = port.take(now) {
                break taken;
            }
            start = start.or(Some(now));
            let next = port.next_at(now).unwrap();
            assert!(next > now);
            now = late(next);
        };
        if start.is_some() {
            bytes += u64::from(taken.bytes) + u64::from(config.overhead);
        }
    }
    bytes as f64 * 8.0 * SECOND as f64 / (now - start.unwrap()) as f64
}

#[test]
fn rates_are_exact_from_10_kbit_to_400_gbit() {
    let mut random = Random::new(22);
    for rate in [10_000, 99_999, 1_000_000, 12_345_678, 1_000_000_000, 9_999_999_999, 100_000_000_000, 400_000_000_000]
    {
        for size in [60, 61, 512, 1518, 9018, 65_535] {
            let config = shaped(rate, Some(65_535));
            let error = measure(&config, || size, 20_000, |t| t) / rate as f64 - 1.0;
            assert!(error.abs() < 1e-4, "{rate} bit/s, {size} bytes: {error}");
        }
        let config = shaped(rate, Some(65_535));
        let error = measure(&config, || random.range(60, 65_535), 20_000, |t| t) / rate as f64 - 1.0;
        assert!(error.abs() < 1e-3, "{rate} bit/s, mixed: {error}");
    }
}

#[test]
fn callers_that_come_late_lose_no_rate_within_the_burst() {
    // Called on a grid of 10 µs only; the burst covers it.
    for rate in [100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000] {
        let config = shaped(rate, None);
        let error = measure(&config, || 1518, 20_000, |t| t.next_multiple_of(10_000)) / rate as f64 - 1.0;
        assert!(error.abs() < 2e-3, "{rate}: {error}");
    }
}

#[test]
fn overhead_is_part_of_the_rate() {
    let mut config = shaped(1_000_000_000, Some(65_535));
    config.overhead = 24;
    let error = measure(&config, || 60, 20_000, |t| t) / 1e9 - 1.0;
    assert!(error.abs() < 1e-4, "{error}");
}

#[test]
fn no_interval_carries_more_than_rate_and_burst() {
    let mut random = Random::new(5);
    for burst in [1518, 4000, 15_180, 100_000] {
        let rate = 1_000_000_000;
        let mut port = PortQueues::new(&shaped(rate, Some(burst))).unwrap();
        let mut sent: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for _ in 0..400 {
            for _ in 0..random.below(60) {
                port.offer((), random.range(60, 1518), 0, false, now).unwrap();
            }
            let end = now + random.below(1_000_000);
            while let Some(next) = port.next_at(now).filter(|next| *next < end) {
                now = next;
                let taken = port.take(now);
                sent.extend(taken.map(|taken| (now, u64::from(taken.bytes))));
            }
            now = end;
        }
        assert!(sent.len() > 4000);
        let mut largest = 0;
        for from in 0..sent.len() {
            let mut bytes = 0;
            for &(at, size) in &sent[from..(from + 500).min(sent.len())] {
                bytes += size;
                // 1 Gbit/s: a byte in 8 ns. The fraction of one nanosecond is kept.
                let allowed = burst + (at - sent[from].0 + 1) / 8;
                assert!(bytes <= allowed, "{bytes} bytes in {} ns, burst {burst}", at - sent[from].0);
                if at == sent[from].0 {
                    largest = largest.max(bytes);
                }
            }
        }
        // A burst is not only allowed, it happens.
        assert!(largest + 1518 > burst.min(20_000), "{largest} of {burst}");
    }
}

#[test]
fn a_full_bucket_sends_exactly_its_burst() {
    let mut port = PortQueues::new(&shaped(8_000_000, Some(15_180))).unwrap();
    (0..30).for_each(|i| assert!(port.offer(i, 1518, 0, false, 7).is_ok()));
    assert_eq!(std::iter::from_fn(|| port.take(7)).count(), 10);
    // 1518 bytes at a byte in 1 µs.
    assert_eq!(port.next_at(7), Some(7 + 1_518_000));
    assert!(port.take(7 + 1_517_999).is_none());
    assert!(port.take(7 + 1_518_000).is_some());
}

#[test]
fn a_packet_larger_than_the_burst_passes_at_the_rate() {
    let config = shaped(1_000_000_000, Some(2000));
    let error = measure(&config, || 65_535, 500, |t| t) / 1e9 - 1.0;
    assert!(error.abs() < 1e-3, "{error}");
}

#[test]
fn shapers_in_packets_count_packets() {
    // bmv2's `set_queue_rate`.
    let config = Config::new(roomy(1), Node::queue(0).with_packet_shaper(1000, 1));
    let mut port = PortQueues::new(&config).unwrap();
    (0..100u32).for_each(|i| assert!(port.offer(i, 60 + 100 * i, 0, false, 0).is_ok()));
    let mut times = Vec::new();
    run(&mut port, 0, SECOND, |_, now, _| times.push(now));
    assert!(times.iter().copied().eq((0..100).map(|i| i * 1_000_000)), "{times:?}");
}

#[test]
fn nested_shapers_all_hold() {
    // Port 1 Gbit/s; a class of two queues 300 Mbit/s, one of them 100 Mbit/s; the rest to queue 2.
    let class = Node::weighted(vec![Node::queue(0).with_shaper(Rate(100_000_000), None), Node::queue(1)]);
    let root = Node::strict(vec![class.with_shaper(Rate(300_000_000), None), Node::queue(2)]);
    let config = Config::new(roomy(3), root.with_shaper(Rate(1_000_000_000), None));
    let mut port = PortQueues::new(&config).unwrap();
    for class in 0..3 {
        (0..64).for_each(|_| assert!(port.offer((), 1000, class, false, 0).is_ok()));
    }
    let mut bytes = [0u64; 3];
    run(&mut port, 0, 2 * SECOND, |port, now, taken| {
        bytes[usize::from(taken.queue)] += 1000;
        port.offer((), 1000, taken.queue, false, now).unwrap();
    });
    for (bytes, expected) in bytes.iter().zip([100e6, 200e6, 700e6]) {
        let rate = *bytes as f64 * 8.0 / 2.0;
        assert!((rate / expected - 1.0).abs() < 0.005, "{rate} instead of {expected}");
    }
}

#[test]
fn a_blocked_sibling_costs_nothing() {
    let root = Node::strict(vec![Node::queue(1).with_shaper(Rate(1_000_000), Some(Size(1518))), Node::queue(0)]);
    let mut port = PortQueues::new(&Config::new(roomy(2), root)).unwrap();
    for i in 0..10 {
        port.offer(i, 1518, 1, false, 0).unwrap();
        port.offer(i, 1518, 0, false, 0).unwrap();
    }
    let order: Vec<u8> = std::iter::from_fn(|| port.take(0)).map(|taken| taken.queue).collect();
    assert_eq!(order, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(port.next_at(0), Some(12_144_000));
}

#[test]
fn minimum_rates_hold_under_competition() {
    // 100 Mbit/s; queue 0 would starve behind queue 1, but has 30 Mbit/s.
    let root = Node::strict(vec![Node::queue(1), Node::queue(0).with_min_rate(Rate(30_000_000))]);
    let config = Config::new(roomy(2), root);
    for size in [60, 1518, 9000] {
        let mut port = PortQueues::new(&config).unwrap();
        for class in 0..2 {
            (0..4).for_each(|_| assert!(port.offer((), size, class, false, 0).is_ok()));
        }
        let mut bytes = [0u64; 2];
        run_on_link(&mut port, 100_000_000, 5 * SECOND, |port, now, taken| {
            bytes[usize::from(taken.queue)] += u64::from(size);
            port.offer((), size, taken.queue, false, now).unwrap();
        });
        let share = bytes[0] as f64 * 8.0 / 5.0;
        assert!((share / 30e6 - 1.0).abs() < 0.005, "{size}: {share}");
    }
}

#[test]
fn a_minimum_includes_the_fair_share() {
    // Shares of 1:1:1 on 90 Mbit/s; queue 0 is guaranteed 60, the others share the rest. Deep in the tree, too.
    for nested in [false, true] {
        let guaranteed = Node::queue(0).with_min_rate(Rate(60_000_000));
        let first = if nested { Node::strict(vec![guaranteed]) } else { guaranteed };
        let root = Node::weighted(vec![first, Node::queue(1), Node::queue(2)]);
        let mut port = PortQueues::new(&Config::new(roomy(3), root)).unwrap();
        for class in 0..3 {
            (0..4).for_each(|_| assert!(port.offer((), 1518, class, false, 0).is_ok()));
        }
        let mut bytes = [0u64; 3];
        run_on_link(&mut port, 90_000_000, 5 * SECOND, |port, now, taken| {
            bytes[usize::from(taken.queue)] += 1518;
            port.offer((), 1518, taken.queue, false, now).unwrap();
        });
        for (bytes, expected) in bytes.iter().zip([60e6, 15e6, 15e6]) {
            let rate = *bytes as f64 * 8.0 / 5.0;
            assert!((rate / expected - 1.0).abs() < 0.01, "{rate} instead of {expected}");
        }
    }
}

#[test]
fn spare_bandwidth_is_not_held_against_a_minimum() {
    // Queue 0 has the link alone for a second; then competition begins and its minimum holds at once.
    let root = Node::strict(vec![Node::queue(1), Node::queue(0).with_min_rate(Rate(30_000_000))]);
    let mut port = PortQueues::new(&Config::new(roomy(2), root)).unwrap();
    (0..4).for_each(|_| assert!(port.offer((), 1518, 0, false, 0).is_ok()));
    let (mut competes, mut bytes) = (false, 0u64);
    run_on_link(&mut port, 100_000_000, SECOND + SECOND / 50, |port, now, taken| {
        port.offer((), 1518, taken.queue, false, now).unwrap();
        if now >= SECOND && !competes {
            competes = true;
            (0..4).for_each(|_| assert!(port.offer((), 1518, 1, false, now).is_ok()));
        }
        bytes += if competes && taken.queue == 0 { 1518 } else { 0 };
    });
    // 20 ms at 30 Mbit/s are 75,000 bytes; the debt is bounded by 3750.
    assert!((70_000..80_000).contains(&bytes), "{bytes}");
}

#[test]
fn reconfiguring_does_not_renew_a_minimum() {
    let root = Node::strict(vec![Node::queue(1), Node::queue(0).with_min_rate(Rate(1_000_000))]);
    let config = Config::new(roomy(2), root);
    let mut port = PortQueues::new(&config).unwrap();
    for class in 0..2 {
        (0..20).for_each(|_| assert!(port.offer((), 1518, class, false, 0).is_ok()));
    }
    // Two frames and the one that makes a debt.
    let order: Vec<u8> = (0..5).filter_map(|_| port.take(0)).map(|taken| taken.queue).collect();
    assert_eq!(order, [0, 0, 0, 1, 1]);
    port.reconfigure(&config, 0).unwrap();
    assert_eq!(port.take(0).unwrap().queue, 1);
    // 12.144 ms bring the debt of one frame back to nothing.
    assert_eq!(port.take(12_143_999).unwrap().queue, 1);
    assert_eq!(port.take(12_144_000).unwrap().queue, 0);
}

#[test]
fn clocks_that_jump_give_no_more_than_a_burst() {
    let rate = 8_000_000;
    let burst = 15_180;
    let mut random = Random::new(9);
    let mut port = PortQueues::new(&shaped(rate, Some(burst))).unwrap();
    let (mut now, mut last, mut elapsed, mut jumps, mut bytes) = (SECOND, SECOND, 0u64, 0u64, 0u64);
    for _ in 0..20_000 {
        match random.below(200) {
            0 => now = random.next_u64(),
            1 => now = 0,
            2 => now = u64::MAX,
            // Another thread's clock, a little behind.
            3..60 => now = now.saturating_sub(random.below(9_000_000)),
            _ => now = now.saturating_add(random.below(2_000_000)),
        }
        // Time as it can have passed at most: what lies beyond the latest reading; each setback is a new start.
        if last.saturating_sub(now) > 10_000_000 {
            last = now;
        } else if now > last {
            if now - last > SECOND {
                jumps += 1;
            } else {
                elapsed += now - last;
            }
            last = now;
        }
        while port.len() < 20 {
            port.offer((), 1518, 0, false, now).unwrap();
        }
        port.next_at(now);
        while let Some(taken) = port.take(now) {
            bytes += u64::from(taken.bytes);
            assert!(taken.enqueued_at <= now);
        }
    }
    let allowed = burst * (1 + jumps) + elapsed / 1000;
    assert!(jumps > 50 && bytes <= allowed, "{bytes} of {allowed}");
    assert!(bytes * 100 > (elapsed / 1000) * 99, "{bytes}, {elapsed}");
}

#[test]
fn a_clock_set_back_does_not_stop_a_shaped_port() {
    let mut port = PortQueues::new(&shaped(8_000_000, Some(1518))).unwrap();
    let start = 1_000_000 * SECOND;
    (0..3).for_each(|i| assert!(port.offer(i, 1518, 0, false, start).is_ok()));
    assert!(port.take(start).is_some());
    assert!(port.take(5).is_none());
    assert_eq!(port.next_at(5), Some(5 + 1_518_000));
    let taken = port.take(5 + 1_518_000).unwrap();
    assert_eq!((taken.waited_ns, taken.enqueued_at), (1_518_000, 5));
}

#[test]
fn times_are_on_the_callers_clock() {
    let mut port = PortQueues::new(&Config::fifo()).unwrap();
    port.offer('a', 60, 0, false, 1000).unwrap();
    let taken = port.take(1000 + Span(700).0).unwrap();
    assert_eq!((taken.enqueued_at, taken.waited_ns), (1000, 700));
}
