//! Random configurations, and ports that are run by the clock.
#![allow(dead_code, reason = "each test file uses some of it")]

use random::Random;
use traffic::{Config, Kind, Limit, Node, PortQueues, Queue, Rate, Size, Taken};

/// Queues that hold everything a test offers.
pub fn roomy(n: usize) -> Vec<Queue> {
    vec![Queue::with_limit(Limit::packets(1 << 20)); n]
}

/// A random valid tree over all of `queues` queues.
pub fn random_config(random: &mut Random, shaped: bool) -> Config {
    loop {
        let queues = random.range(1, 9) as usize;
        let mut nodes: Vec<Node> = (0..queues as u8).map(Node::queue).collect();
        random.shuffle(&mut nodes);
        nodes = nodes.into_iter().map(|node| decorate(random, node, shaped)).collect();
        while nodes.len() > 1 {
            let n = random.range(1, nodes.len().min(4) as u32) as usize;
            let children: Vec<Node> = nodes.drain(..n).collect();
            let node = if random.one_in(2) {
                Node::strict(children)
            } else {
                let weigh = |node: Node| node.with_weight(*random.pick(&[1, 2, 3, 7, 100]));
                Node::weighted(children.into_iter().map(weigh).collect())
            };
            let node = decorate(random, node, shaped);
            nodes.push(node);
        }
        let mut root = nodes.remove(0);
        root.min_rate = None;
        let mut config = Config::new(vec![Queue::default(); queues], root);
        config.overhead = *random.pick(&[0, 24]);
        for queue in &mut config.queues {
            queue.limit = *random.pick(&[Limit::default(), Limit::packets(5), Limit::bytes(20_000)]);
        }
        if config.check(None).is_ok() {
            return config;
        }
    }
}

fn decorate(random: &mut Random, node: Node, shaped: bool) -> Node {
    if !shaped {
        return node;
    }
    let mut node = match random.below(4) {
        0 => node.with_shaper(
            Rate(random.range(1_000_000, 2_000_000_000).into()),
            Some(Size(random.range(1542, 20_000).into())),
        ),
        1 => node.with_packet_shaper(random.range(10_000, 2_000_000).into(), random.range(1, 10)),
        _ => node,
    };
    if random.one_in(4) && !matches!(node.kind, Kind::Strict(_)) {
        node = node.with_min_rate(Rate(random.range(1_000_000, 100_000_000).into()));
    }
    node
}

/// Takes packets whenever they may leave until `end`; `sink` gets the moment and the packet, and may offer more.
pub fn run<T>(port: &mut PortQueues<T>, start: u64, end: u64, mut sink: impl FnMut(&mut PortQueues<T>, u64, Taken<T>)) {
    let mut now = start;
    while now < end {
        match port.take(now) {
            Some(taken) => sink(port, now, taken),
            None => match port.next_at(now) {
                Some(next) => {
                    assert!(next > now, "next_at says now, take gives nothing");
                    now = next;
                }
                None => return,
            },
        }
    }
}

/// The same on a link of this rate: the next packet leaves when the last one's bits are out.
pub fn run_on_link<T>(
    port: &mut PortQueues<T>,
    bits_per_s: u64,
    end: u64,
    mut sink: impl FnMut(&mut PortQueues<T>, u64, Taken<T>),
) {
    let mut now = 0;
    while now < end {
        match port.take(now) {
            Some(taken) => {
                let bits = u64::from(taken.bytes) * 8;
                sink(port, now, taken);
                now += (bits * 1_000_000_000).div_ceil(bits_per_s);
            }
            None => match port.next_at(now) {
                Some(next) => now = next,
                None => return,
            },
        }
    }
}
