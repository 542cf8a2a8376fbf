//! [`PortQueues`] against a model that is written for clarity: recursion over the tree, no masks, no heaps, tokens as exact
//! 128-bit sums from the beginning of time. Every choice, refusal and number has to be the same.

mod common;

use std::collections::VecDeque;

use random::Random;
use traffic::{Config, Kind, Node, PortQueues};

const SECOND: i128 = 1_000_000_000;

/// A token bucket: what has ever come in, less what overflowed, less what was spent.
struct Bucket {
    rate: i128,
    burst: i128,
    tokens: i128,
    at: u64,
}

impl Bucket {
    fn new(rate: u64, burst: i128) -> Bucket {
        Bucket { rate: rate.into(), burst, tokens: burst, at: 0 }
    }

    fn tokens(&mut self, now: u64) -> i128 {
        self.tokens = (self.tokens + self.rate * i128::from(now - self.at)).min(self.burst + self.rate - 1);
        self.at = now;
        self.tokens
    }

    /// The first nanosecond at which it holds that much.
    fn when(&self, tokens: i128) -> u64 {
        let missing = tokens - self.tokens;
        self.at + ((missing + self.rate - 1) / self.rate) as u64
    }
}

struct Tree {
    kind: Kind,
    children: Vec<Tree>,
    weight: i128,
    deficit: i128,
    current: usize,
    last_urgent: usize,
    shaper: Option<Bucket>,
    packet_shaper: Option<Bucket>,
    guarantee: Option<Bucket>,
    blocked_until: u64,
}

type Queues = [VecDeque<(u32, u32)>];

impl Tree {
    fn new(node: &Node, config: &Config) -> Tree {
        let frame = i128::from(config.mtu) + i128::from(config.overhead);
        let bits = |bytes: i128| bytes * 8 * SECOND;
        Tree {
            kind: node.kind.clone(),
            children: node.children().iter().map(|child| Tree::new(child, config)).collect(),
            weight: node.weight.into(),
            deficit: 0,
            current: 0,
            last_urgent: usize::MAX,
            shaper: node.shaper.map(|s| Bucket::new(s.rate.0, bits(s.burst.unwrap().0.into()))),
            packet_shaper: node.packet_shaper.map(|s| Bucket::new(s.packets_per_s, i128::from(s.burst) * SECOND)),
            guarantee: node.min_rate.map(|r| Bucket::new(r.0, bits((2 * frame).max(i128::from(r.0 / 8000))))),
            blocked_until: 0,
        }
    }

    fn has_packets(&self, queues: &Queues) -> bool {
        match self.kind {
            Kind::Queue(queue) => !queues[usize::from(queue)].is_empty(),
            _ => self.children.iter().any(|child| child.has_packets(queues)),
        }
    }

    fn can_send(&self, queues: &Queues, now: u64) -> bool {
        let inside = match self.kind {
            Kind::Queue(_) => self.has_packets(queues),
            _ => self.children.iter().any(|child| child.can_send(queues, now)),
        };
        inside && now >= self.blocked_until
    }

    fn is_urgent(&mut self, queues: &Queues, now: u64) -> bool {
        let below = self.guarantee.as_mut().is_some_and(|bucket| bucket.tokens(now) >= 0);
        let inside = self.children.iter_mut().any(|child| child.is_urgent(queues, now));
        self.can_send(queues, now) && (below || inside)
    }

    /// The places from here to the chosen queue, and whether each was chosen by the round robin.
    fn choose(&mut self, queues: &Queues, now: u64, quantum: i128) -> Vec<(usize, bool)> {
        let n = self.children.len();
        if n == 0 {
            return Vec::new();
        }
        let urgent: Vec<bool> = self.children.iter_mut().map(|child| child.is_urgent(queues, now)).collect();
        let ready: Vec<bool> = self.children.iter().map(|child| child.can_send(queues, now)).collect();
        let any_urgent = urgent.contains(&true);
        let (place, by_turn) = match self.kind {
            Kind::Strict(_) => ((0..n).find(|&i| if any_urgent { urgent[i] } else { ready[i] }).unwrap(), false),
            _ if any_urgent => {
                let later = (0..n).find(|&i| urgent[i] && self.last_urgent != usize::MAX && i > self.last_urgent);
                (later.or_else(|| (0..n).find(|&i| urgent[i])).unwrap(), false)
            }
            _ => loop {
                if ready[self.current] && self.children[self.current].deficit > 0 {
                    break (self.current, true);
                }
                self.current = (1..=n).map(|i| (self.current + i) % n).find(|&i| ready[i]).unwrap();
                let child = &mut self.children[self.current];
                if child.deficit <= 0 {
                    child.deficit += child.weight * quantum;
                }
            },
        };
        let mut path = vec![(place, by_turn)];
        path.extend(self.children[place].choose(queues, now, quantum));
        path
    }

    fn at(&mut self, path: &[(usize, bool)]) -> &mut Tree {
        path.iter().fold(self, |node, &(place, _)| &mut node.children[place])
    }

    fn settle(&mut self, queues: &Queues) {
        for child in &mut self.children {
            if !child.has_packets(queues) {
                child.deficit = child.deficit.min(0);
            }
            child.settle(queues);
        }
    }
}

struct Model {
    config: Config,
    tree: Tree,
    /// Items and their bytes.
    queues: Vec<VecDeque<(u32, u32)>>,
}

impl Model {
    fn offer(&mut self, item: u32, bytes: u32, class: u8) -> Option<u8> {
        let number = class.min(self.queues.len() as u8 - 1);
        let queue = &mut self.queues[usize::from(number)];
        let limit = self.config.queues[usize::from(number)].limit;
        let waiting: u64 = queue.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        let full = match (limit.packets, limit.bytes) {
            (None, None) => queue.len() >= 1024,
            (packets, size) => {
                packets.is_some_and(|n| queue.len() >= n as usize)
                    || size.is_some_and(|size| waiting + u64::from(bytes) > size.0)
            }
        };
        if full {
            return None;
        }
        queue.push_back((item, bytes));
        Some(number)
    }

    fn take(&mut self, now: u64) -> Option<(u32, u8)> {
        let quantum = i128::from(self.config.mtu) + i128::from(self.config.overhead);
        loop {
            if !self.tree.can_send(&self.queues, now) {
                return None;
            }
            let path = self.tree.choose(&self.queues, now, quantum);
            let Kind::Queue(queue) = self.tree.at(&path).kind else { panic!("the path ends in a queue") };
            let (item, bytes) = self.queues[usize::from(queue)][0];
            let cost = i128::from(bytes) + i128::from(self.config.overhead);
            let bits = cost * 8 * SECOND;
            let mut blocked = false;
            for depth in 0..=path.len() {
                let node = self.tree.at(&path[..depth]);
                for (bucket, cost) in [(&mut node.shaper, bits), (&mut node.packet_shaper, SECOND)] {
                    if let Some(bucket) = bucket
                        && bucket.tokens(now) < cost.min(bucket.burst)
                        && !blocked
                    {
                        node.blocked_until = bucket.when(cost.min(bucket.burst));
                        blocked = true;
                    }
                }
            }
            if blocked {
                continue;
            }
            for depth in 0..=path.len() {
                if depth > 0 {
                    let node = self.tree.at(&path[..depth]);
                    let (was_urgent, place) = (node.is_urgent(&self.queues, now), path[depth - 1].0);
                    let up = self.tree.at(&path[..depth - 1]);
                    if was_urgent {
                        up.last_urgent = place;
                    }
                    let least = up.children.iter().map(|child| child.weight).min().unwrap();
                    // In bytes times the smallest weight, as an exact fraction of a round.
                    if path[depth - 1].1 {
                        up.children[place].deficit -= cost * least;
                    }
                }
                let node = self.tree.at(&path[..depth]);
                if let Some(bucket) = &mut node.shaper {
                    bucket.tokens -= bits;
                }
                if let Some(bucket) = &mut node.packet_shaper {
                    bucket.tokens -= SECOND;
                }
            }
            for depth in 0..=path.len() {
                if let Some(bucket) = &mut self.tree.at(&path[..depth]).guarantee {
                    let tokens = bucket.tokens(now);
                    let debt_max = bucket.burst.max(bits).max(-tokens);
                    bucket.tokens = (tokens - bits).max(-debt_max);
                }
            }
            self.queues[usize::from(queue)].pop_front();
            self.tree.settle(&self.queues);
            return Some((item, queue));
        }
    }
}

fn compare(seed: u64, shaped: bool) -> usize {
    let mut random = Random::stream(seed, u64::from(shaped));
    let config = common::random_config(&mut random, shaped);
    let mut port = PortQueues::new(&config).unwrap();
    let queues = vec![VecDeque::new(); config.queues.len()];
    let mut model = Model { tree: Tree::new(&config.root, &config), config: config.clone(), queues };
    let (mut now, mut sent) = (1u64, 0);
    for item in 0..3000u32 {
        let gap = *random.pick(&[2, 2_000, 20_000]);
        now += random.below(gap);
        if random.below(5) < 3 {
            let bytes = *random.pick(&[60, 64, 1000, 1518, 1518, 9000, 65_535]);
            let class = random.below(10) as u8;
            let real = port.offer(item, bytes, class, false, now).ok().map(|offered| offered.queue);
            assert_eq!(real, model.offer(item, bytes, class), "seed {seed}, item {item}, {config:?}");
        } else {
            for _ in 0..random.range(1, 4) {
                let expected = model.take(now);
                let next = port.next_at(now);
                let real = port.take(now).map(|taken| (taken.item, taken.queue));
                assert_eq!(real, expected, "seed {seed}, before item {item}, at {now}, {config:?}");
                match real {
                    Some(_) => assert_eq!(next, Some(now)),
                    None => assert!(next.is_none_or(|next| next > now)),
                }
                sent += usize::from(real.is_some());
            }
        }
    }
    sent
}

#[test]
fn schedulers_choose_as_the_model_does() {
    let sent: usize = (0..150).map(|seed| compare(seed, false)).sum();
    assert!(sent > 100_000, "{sent}");
}

#[test]
fn shapers_and_minimums_too() {
    let sent: usize = (0..300).map(|seed| compare(seed, true)).sum();
    assert!(sent > 100_000, "{sent}");
}
