//! The tree of schedulers: decides which queue sends next.
//!
//! Each scheduler keeps bit masks of its children: which are backlogged, which can send now, and which are below
//! their guaranteed rate. A choice walks from the root to a queue, a few operations per level; a change
//! propagates upwards until nothing changes.
//!
//! **Weights**: deficit round robin (Shreedhar and Varghese, "Efficient fair queuing using deficit round robin",
//! SIGCOMM 1995), in the variant that charges a packet after it was sent: a child sends while its deficit is positive,
//! and its last packet may make the deficit negative ("surplus round robin": Adiseshu, Parulkar and Varghese, "A
//! reliable and scalable striping protocol", SIGCOMM 1996). This needs no knowledge of the next packet, so schedulers
//! can be nested. The quantum of the smallest weight is one full frame per round. Deficits are in bytes times that
//! weight, so weights are exact.
//!
//! **Shapers**: one token bucket per shaped node. A packet is sent when all buckets on its path hold its cost. If one
//! does not, its node is *blocked* until it will, and the choice starts over without it; its siblings lose nothing.
//!
//! **Minimum rates**, as in HTB (Devera, "Hierarchical token bucket theory", 2002): a bucket of the guaranteed rate, to
//! which each packet of the node is charged. While it holds tokens the node is *urgent*, and so is every scheduler
//! above it. Urgent children go first, before strict priority and without being charged to the round robin. What a node
//! gets by its priority or weight counts towards its minimum, so it gets the larger of the two. Unlike in HTB, borrowed
//! bandwidth is not held against a node: the debt is bounded.
//!
//! Blocked nodes and nodes above their minimum wait in two heaps, ordered by the time at which that ends. Nothing is
//! allocated after construction. Tests: `tests/scheduling.rs`, `tests/shaping.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bucket::{self, Bucket, UNITS};
use crate::config::{Config, DEPTH_MAX, Kind, NODES_MAX, Node as NodeConfig};

/// A tree of schedulers, with queues as leaves.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The nodes; the root is first.
    nodes: Vec<Node>,
    /// The node number of each queue.
    leaves: Vec<u8>,
    /// Blocked nodes, by the time at which they may send.
    blocked: BinaryHeap<Reverse<(u64, u8)>>,
    /// Nodes above their minimum rate, by the time at which they fall to it.
    served: BinaryHeap<Reverse<(u64, u8)>>,
    /// The path of the last choice.
    path: Path,
}

#[derive(Clone, Debug)]
struct Node {
    /// The parent's node number; the root is its own parent.
    parent: u8,
    /// Index among the parent's children.
    place: u8,
    kind: NodeKind,
    shaper: Option<Bucket>,
    packet_shaper: Option<Bucket>,
    guarantee: Option<Bucket>,
    is_blocked: bool,
    /// Whether the node is below its minimum rate.
    is_below: bool,
    /// Bit mask of the backlogged children. For a queue: bit 0, if it has packets.
    backlog: u64,
    /// Bit mask of the children that can send, likewise.
    ready: u64,
    /// Bit mask of the children that can send and are urgent.
    urgent: u64,
    /// The urgent child that was served last.
    last_urgent: u8,
}

#[derive(Clone, Debug)]
enum NodeKind {
    Queue(u8),
    Strict(Box<[u8]>),
    Weighted(Box<[u8]>, Robin),
}

/// The state of a round robin.
#[derive(Clone, Debug)]
struct Robin {
    /// Cost of a byte: the smallest weight.
    unit: i64,
    quanta: Box<[i64]>,
    deficits: Box<[i64]>,
    current: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    node: u8,
    /// Whether the parent is a round robin that chose this node in its turn, and so charges its deficit.
    by_turn: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    len: usize,
    steps: [Step; DEPTH_MAX],
}

impl Tree {
    /// The tree of a checked configuration, with empty queues.
    pub fn new(config: &Config, now: u64) -> Tree {
        let mut tree = Tree {
            nodes: Vec::with_capacity(NODES_MAX),
            leaves: vec![0; config.queues.len()],
            blocked: BinaryHeap::with_capacity(NODES_MAX),
            served: BinaryHeap::with_capacity(NODES_MAX),
            path: Path::default(),
        };
        tree.add(&config.root, 0, 0, config, now);
        tree
    }

    fn add(&mut self, node: &NodeConfig, parent: u8, place: u8, config: &Config, now: u64) -> u8 {
        let number = self.nodes.len() as u8;
        let frame = config.frame_cost();
        let shaper = node.shaper.map(|s| Bucket::full(s.rate.0, bucket::bytes(s.burst_bytes(frame)), now));
        let packets = node.packet_shaper.map(|s| Bucket::full(s.packets_per_s, i64::from(s.burst) * UNITS, now));
        // Enough until the turns of others end: two frames, or 1 ms at the rate.
        let guarantee = |rate: u64| Bucket::full(rate, bucket::bytes((2 * frame).max(rate / 8000)), now);
        self.nodes.push(Node {
            parent,
            place,
            kind: NodeKind::Queue(0),
            shaper,
            packet_shaper: packets,
            guarantee: node.min_rate.map(|rate| guarantee(rate.0)),
            is_blocked: false,
            is_below: node.min_rate.is_some(),
            backlog: 0,
            ready: 0,
            urgent: 0,
            last_urgent: 63,
        });
        let children = node.children();
        let numbers =
            children.iter().zip(0..).map(|(child, place)| self.add(child, number, place, config, now)).collect();
        self.nodes[usize::from(number)].kind = match &node.kind {
            Kind::Queue(queue) => {
                self.leaves[usize::from(*queue)] = number;
                NodeKind::Queue(*queue)
            }
            Kind::Strict(_) => NodeKind::Strict(numbers),
            Kind::Weighted(_) => {
                let quantum = |child: &NodeConfig| i64::from(child.weight) * frame.max(1) as i64;
                let robin = Robin {
                    unit: children.iter().map(|child| i64::from(child.weight)).min().unwrap_or(1),
                    quanta: children.iter().map(quantum).collect(),
                    deficits: vec![0; children.len()].into(),
                    current: 0,
                };
                NodeKind::Weighted(numbers, robin)
            }
        };
        number
    }

    /// Records that an empty queue has received a packet.
    pub fn filled(&mut self, queue: u8) {
        let leaf = self.leaves[usize::from(queue)];
        self.nodes[usize::from(leaf)].backlog = 1;
        self.refresh(leaf);
    }

    /// Records that the queue's last packet has left.
    pub fn emptied(&mut self, queue: u8) {
        let leaf = self.leaves[usize::from(queue)];
        self.nodes[usize::from(leaf)].backlog = 0;
        self.refresh(leaf);
    }

    /// Propagates a node's state to its ancestors.
    fn refresh(&mut self, mut number: u8) {
        loop {
            let node = &mut self.nodes[usize::from(number)];
            if matches!(node.kind, NodeKind::Queue(_)) {
                node.ready = node.backlog;
            }
            let has_backlog = node.backlog != 0;
            let is_ready = node.ready != 0 && !node.is_blocked;
            let is_urgent = is_ready && (node.is_below || node.urgent != 0);
            if number == 0 {
                return;
            }
            let (parent, bit) = (node.parent, 1u64 << node.place);
            let up = &mut self.nodes[usize::from(parent)];
            let before = (up.backlog, up.ready, up.urgent);
            let set = |mask: u64, on: bool| if on { mask | bit } else { mask & !bit };
            if !has_backlog
                && up.backlog & bit != 0
                && let NodeKind::Weighted(_, robin) = &mut up.kind
            {
                // A child without backlog keeps no credit, as in DRR; a debt stays.
                let deficit = &mut robin.deficits[bit.trailing_zeros() as usize];
                *deficit = (*deficit).min(0);
            }
            up.backlog = set(up.backlog, has_backlog);
            up.ready = set(up.ready, is_ready);
            up.urgent = set(up.urgent, is_urgent);
            if before == (up.backlog, up.ready, up.urgent) {
                return;
            }
            number = parent;
        }
    }

    /// Unblocks nodes and updates guarantees whose time has come.
    fn wake(&mut self, now: u64) {
        while let Some(&Reverse((time, number))) = self.blocked.peek()
            && time <= now
        {
            self.blocked.pop();
            self.nodes[usize::from(number)].is_blocked = false;
            self.refresh(number);
        }
        while let Some(&Reverse((time, number))) = self.served.peek()
            && time <= now
        {
            self.served.pop();
            let node = &mut self.nodes[usize::from(number)];
            let Some(guarantee) = &mut node.guarantee else { continue };
            guarantee.fill(now);
            if guarantee.tokens() < 0 {
                self.served.push(Reverse((guarantee.reaches_at(0), number)));
            } else {
                node.is_below = true;
                self.refresh(number);
            }
        }
    }

    /// Chooses the queue that sends next, if any may. `bytes` gives the cost of a queue's first packet. The choice has
    /// no effect until [`Tree::sent`]; while nothing changes, the same queue is chosen again.
    pub fn choose(&mut self, now: u64, bytes: impl Fn(u8) -> u64) -> Option<u8> {
        self.wake(now);
        loop {
            let root = &self.nodes[0];
            if root.is_blocked || root.ready == 0 {
                return None;
            }
            let queue = self.descend();
            let cost = bucket::bytes(bytes(queue));
            match self.obstacle(cost, now) {
                None => return Some(queue),
                Some((number, time)) => {
                    // Terminates: each iteration blocks one more node.
                    self.nodes[usize::from(number)].is_blocked = true;
                    self.blocked.push(Reverse((time, number)));
                    self.refresh(number);
                }
            }
        }
    }

    /// Walks down to the queue whose turn it is, and records the path in `self.path`.
    fn descend(&mut self) -> u8 {
        let mut step = Step { node: 0, by_turn: false };
        self.path.len = 0;
        loop {
            self.path.steps[self.path.len] = step;
            self.path.len += 1;
            let node = &mut self.nodes[usize::from(step.node)];
            step = match &mut node.kind {
                NodeKind::Queue(queue) => return *queue,
                NodeKind::Strict(children) => {
                    let mask = if node.urgent != 0 { node.urgent } else { node.ready };
                    Step { node: children[mask.trailing_zeros() as usize], by_turn: false }
                }
                NodeKind::Weighted(children, robin) => {
                    if node.urgent != 0 {
                        let place = after(node.urgent, node.last_urgent);
                        Step { node: children[usize::from(place)], by_turn: false }
                    } else {
                        Step { node: children[usize::from(robin.turn(node.ready))], by_turn: true }
                    }
                }
            };
        }
    }

    /// The first node on the path whose shaper delays a packet of this cost, and until when.
    fn obstacle(&mut self, cost: i64, now: u64) -> Option<(u8, u64)> {
        for step in &self.path.steps[..self.path.len] {
            let node = &mut self.nodes[usize::from(step.node)];
            for (bucket, cost) in [(&mut node.shaper, cost), (&mut node.packet_shaper, UNITS)] {
                let Some(bucket) = bucket else { continue };
                bucket.fill(now);
                if !bucket.fits(cost) {
                    return Some((step.node, bucket.fits_at(cost)));
                }
            }
        }
        None
    }

    /// Charges the packet of the last choice, which was sent.
    pub fn sent(&mut self, now: u64, bytes: u64) {
        let cost = bucket::bytes(bytes);
        for i in 0..self.path.len {
            let Step { node: number, by_turn } = self.path.steps[i];
            let node = &mut self.nodes[usize::from(number)];
            let (parent, place) = (node.parent, node.place);
            if let Some(shaper) = &mut node.shaper {
                shaper.spend(cost);
            }
            if let Some(shaper) = &mut node.packet_shaper {
                shaper.spend(UNITS);
            }
            let was_urgent = node.is_below || node.urgent != 0;
            let mut is_served = false;
            if let Some(guarantee) = &mut node.guarantee {
                guarantee.fill(now);
                guarantee.spend_bounded(cost);
                is_served = node.is_below && guarantee.tokens() < 0;
                if is_served {
                    node.is_below = false;
                    self.served.push(Reverse((guarantee.reaches_at(0), number)));
                }
            }
            if i > 0 {
                let up = &mut self.nodes[usize::from(parent)];
                if was_urgent {
                    up.last_urgent = place;
                }
                if let NodeKind::Weighted(_, robin) = &mut up.kind
                    && by_turn
                {
                    robin.deficits[usize::from(place)] -= bytes.min(1 << 30) as i64 * robin.unit;
                }
            }
            if is_served {
                self.refresh(number);
            }
        }
    }

    /// The earliest time at which a queue may send, after [`Tree::choose`] found none. A lower bound.
    pub fn next_at(&self) -> Option<u64> {
        self.blocked.peek().map(|&Reverse((time, _))| time)
    }

    /// Takes over the buckets of nodes at the same position in an older tree.
    pub fn inherit(&mut self, old: &Tree) {
        let mut pairs = vec![(0u8, 0u8)];
        while let Some((number, old_number)) = pairs.pop() {
            let from = &old.nodes[usize::from(old_number)];
            let node = &mut self.nodes[usize::from(number)];
            let buckets = [
                (&mut node.shaper, &from.shaper),
                (&mut node.packet_shaper, &from.packet_shaper),
                (&mut node.guarantee, &from.guarantee),
            ];
            for (bucket, from) in buckets {
                if let (Some(bucket), Some(from)) = (bucket, from) {
                    bucket.inherit(from);
                }
            }
            if let Some(guarantee) = node.guarantee.filter(|guarantee| guarantee.tokens() < 0) {
                node.is_below = false;
                self.served.push(Reverse((guarantee.reaches_at(0), number)));
            }
            let (children, old_children) = (node.children(), from.children());
            pairs.extend(children.iter().copied().zip(old_children.iter().copied()));
        }
    }
}

impl Node {
    fn children(&self) -> &[u8] {
        match &self.kind {
            NodeKind::Queue(_) => &[],
            NodeKind::Strict(children) | NodeKind::Weighted(children, _) => children,
        }
    }
}

/// The first set bit after `place` in a nonempty mask, cyclically.
fn after(mask: u64, place: u8) -> u8 {
    let later = mask & (u64::MAX << place << 1);
    (if later != 0 { later } else { mask }).trailing_zeros() as u8
}

impl Robin {
    /// The child whose turn it is, among the ready ones (at least one).
    fn turn(&mut self, ready: u64) -> u8 {
        let current = self.current;
        if ready >> current & 1 != 0 && self.deficits[usize::from(current)] > 0 {
            return current;
        }
        for _ in 0..ready.count_ones() {
            if let Some(place) = self.advance(ready) {
                return place;
            }
        }
        // Packets far larger than a quantum have left every child in debt: skips
        // as many rounds as the first of them needs.
        let rounds = |place: u8| {
            let (deficit, quantum) = (self.deficits[usize::from(place)], self.quanta[usize::from(place)]);
            (-deficit) / quantum
        };
        let places = || (0..64u8).filter(|place| ready >> place & 1 != 0);
        let skipped = places().map(rounds).min().unwrap_or(0);
        for place in places() {
            self.deficits[usize::from(place)] += skipped * self.quanta[usize::from(place)];
        }
        loop {
            if let Some(place) = self.advance(ready) {
                return place;
            }
        }
    }

    /// Starts the next child's turn. Returns the child if it may send.
    fn advance(&mut self, ready: u64) -> Option<u8> {
        self.current = after(ready, self.current);
        let place = usize::from(self.current);
        // The remainder of a turn that a shaper cut short is used up first.
        if self.deficits[place] <= 0 {
            self.deficits[place] += self.quanta[place];
        }
        (self.deficits[place] > 0).then_some(self.current)
    }
}
