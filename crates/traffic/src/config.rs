//! The configuration of a port's queues: the tree of schedulers, the queues with their limits and drop policies, and
//! the map from classes to queues.
//!
//! A [`Config`] is what a user wrote; it may be inconsistent until [`Config::check`] has passed. As JSON:
//!
//! ```text
//! { "queues": [ {}, { "limit": { "time": "5ms" } }, { "policy": { "red": { "min": "30KB", "max": "90KB", "ecn": "mark" } } } ],
//!   "root": { "shaper": { "rate": "1Gbit", "burst": "64KB" },
//!             "strict": [ { "queue": 2, "shaper": { "rate": "100Mbit" } },
//!                         { "weighted": [ { "queue": 1, "weight": 3 }, { "queue": 0, "min_rate": "10Mbit" } ] } ] },
//!   "classes": { "46": 2 } }
//! ```
//!
//! Tests: `tests/config.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Level, Rate, Size, Span};

/// Maximum queues of a port.
pub const QUEUES_MAX: usize = 64;
/// Number of classes: 0 to 63.
pub const CLASSES: usize = 64;
/// Maximum depth of the tree: schedulers and the queue.
pub const DEPTH_MAX: usize = 8;
/// Maximum schedulers and queues of a port.
pub const NODES_MAX: usize = 128;
/// Maximum packets of one queue, whatever its limits are.
pub const PACKETS_MAX: u32 = 1 << 20;
/// Maximum burst: what a token bucket in billionths of a bit can hold in 63 bits.
pub const BURST_MAX: Size = Size(1_000_000_000);
/// Maximum rate: above any link, and small enough that no computation overflows.
pub const RATE_MAX: Rate = Rate(10_000_000_000_000);
/// Maximum weight of a child of a round robin.
pub const WEIGHT_MAX: u32 = 65_535;
/// Maximum configurable frame length in bytes: a large frame that a guest left to be segmented, with its headers.
pub const MTU_MAX: u32 = 1 << 17;
/// Maximum length of a tenant's name in bytes.
pub const NAME_MAX: usize = 64;
/// Packet limit of a queue whose configuration sets no limit: 16 bursts of 64. Full frames then wait 1.2 ms at 10
/// Gbit/s, small ones 0.07 ms, and a queue holds at most 1.5 MB. bmv2's 64 is one burst of a worker, which a port at
/// line rate could not absorb.
pub const DEFAULT_PACKETS: u32 = 1024;

/// The queues of one port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The queues, by number.
    pub queues: Vec<Queue>,
    /// The tree of schedulers. Its root is the port: a shaper there shapes the port.
    pub root: Node,
    /// Queues of classes. With `n` queues, a class that is not listed goes to queue `min(class, n - 1)`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<u8, u8>,
    /// Bytes that each frame takes on the wire beyond those that are counted. Default 0: a rate then matches the port's
    /// byte counters, as with `tc`. 24 makes it the rate of an Ethernet link (preamble 8, FCS 4, gap 12).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overhead: u32,
    /// Frame length in bytes for quanta and checks. Longer frames are sent too.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// The tenant that all queues belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn default_mtu() -> u32 {
    1518
}

/// Checks the name of a tenant: letters, digits, `.`, `_` and `-`.
///
/// # Errors
/// A message, if the name is empty, too long, or has other characters.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_good) {
        return Err(format!("`{name}` is no name of a tenant: 1 to {NAME_MAX} letters, digits, `.`, `_`, `-`"));
    }
    Ok(())
}

/// One queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// The limits at which arriving frames are refused.
    #[serde(default)]
    pub limit: Limit,
    /// What happens to frames before the limit is reached.
    #[serde(default)]
    pub policy: Policy,
    /// The tenant of this queue, unless the port has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A queue's limits: it is full as soon as one of them is reached. Without any, [`DEFAULT_PACKETS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Maximum waiting packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Maximum waiting bytes; a frame that would exceed them is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Size>,
    /// Maximum time that the head of the queue has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
}

/// The drop policy: what happens to arriving frames before a queue's limit is reached.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Policy {
    /// Frames are dropped only at the limit.
    #[default]
    TailDrop,
    /// Random early detection.
    Red(Red),
}

/// Random early detection (Floyd and Jacobson 1993); see `red.rs`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Red {
    /// Average queue level (`min_th` in the paper) below which nothing is dropped.
    pub min: Level,
    /// Average queue level (`max_th`) at which the drop probability is `probability`; in the unit of `min`.
    pub max: Level,
    /// Drop probability at `max` (`max_p`), above 0 and at most 1. Drops are spaced uniformly: see `red.rs`.
    #[serde(default = "default_probability")]
    pub probability: f64,
    /// Weight of the newest sample in the moving average (`w_q`), above 0 and at most 1.
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// "Gentle" RED: above `max` the probability rises to 1 at twice `max`, instead of jumping to 1.
    #[serde(default = "yes")]
    pub gentle: bool,
    /// Whether ECN-capable frames are marked instead of dropped.
    #[serde(default)]
    pub ecn: Ecn,
    /// Time to send a packet, by which the average decays while the queue is
    /// empty. Default: a full frame's at 10 Gbit/s.
    #[serde(default = "default_packet_time")]
    pub packet_time: Span,
}

fn default_probability() -> f64 {
    0.1
}

fn default_weight() -> f64 {
    0.002
}

fn yes() -> bool {
    true
}

fn default_packet_time() -> Span {
    Span(1200)
}

impl Red {
    /// RED with the recommended parameters: probability 0.1, weight 0.002, gentle, no ECN.
    pub fn new(min: Level, max: Level) -> Red {
        Red {
            min,
            max,
            probability: default_probability(),
            weight: default_weight(),
            gentle: true,
            ecn: Ecn::Off,
            packet_time: default_packet_time(),
        }
    }
}

/// Explicit congestion notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecn {
    /// Frames are always dropped.
    #[default]
    Off,
    /// ECN-capable frames are marked while the probability is below 1, and dropped from there on (RFC 3168, section 7).
    Mark,
    /// ECN-capable frames are marked up to the queue's limit. With `min` = `max`
    /// and weight 1: DCTCP's marking (RFC 8257).
    MarkAlways,
}

/// A node of the tree: a scheduler or a queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "NodeText", into = "NodeText")]
pub struct Node {
    /// Queue or scheduler.
    pub kind: Kind,
    /// Weight under a weighted parent; 1 elsewhere.
    pub weight: u32,
    /// Maximum rate.
    pub shaper: Option<Shaper>,
    /// Maximum rate in packets. Both shapers may be set.
    pub packet_shaper: Option<PacketShaper>,
    /// Guaranteed rate: up to it, the node is served before its siblings.
    pub min_rate: Option<Rate>,
}

/// The kind of a node.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// The queue of this number.
    Queue(u8),
    /// Strict priority: the first child that can send does.
    Strict(Vec<Node>),
    /// Weighted deficit round robin over the children.
    Weighted(Vec<Node>),
}

/// A token bucket in bits and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shaper {
    /// Long-run rate.
    pub rate: Rate,
    /// Bytes that may be sent at once. Default: 1 ms at the rate, but at least two frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Size>,
}

/// A token bucket in packets, as bmv2's `set_queue_rate` counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketShaper {
    /// Long-run rate in packets per second.
    pub packets_per_s: u64,
    /// Packets that may be sent at once.
    #[serde(default = "one")]
    pub burst: u32,
}

fn one() -> u32 {
    1
}

impl Shaper {
    /// The burst in bytes, for frames of `frame` bytes.
    pub fn burst_bytes(&self, frame: u64) -> u64 {
        self.burst.map_or_else(|| (self.rate.0 / 8000).max(2 * frame).min(BURST_MAX.0), |burst| burst.0)
    }
}

/// A node in JSON: has exactly one of `queue`, `strict`, `weighted`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strict: Option<Vec<Node>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weighted: Option<Vec<Node>>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    weight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shaper: Option<Shaper>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    packet_shaper: Option<PacketShaper>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_rate: Option<Rate>,
}

fn is_one(weight: &u32) -> bool {
    *weight == 1
}

impl TryFrom<NodeText> for Node {
    type Error = String;

    fn try_from(text: NodeText) -> Result<Node, String> {
        let kind = match (text.queue, text.strict, text.weighted) {
            (Some(queue), None, None) => Kind::Queue(queue),
            (None, Some(children), None) => Kind::Strict(children),
            (None, None, Some(children)) => Kind::Weighted(children),
            (None, None, None) => return Err("a node needs one of `queue`, `strict` and `weighted`".into()),
            _ => return Err("a node has only one of `queue`, `strict` and `weighted`".into()),
        };
        let NodeText { weight, shaper, packet_shaper, min_rate, .. } = text;
        Ok(Node { kind, weight, shaper, packet_shaper, min_rate })
    }
}

impl From<Node> for NodeText {
    fn from(node: Node) -> NodeText {
        let Node { kind, weight, shaper, packet_shaper, min_rate } = node;
        let (mut queue, mut strict, mut weighted) = (None, None, None);
        match kind {
            Kind::Queue(number) => queue = Some(number),
            Kind::Strict(children) => strict = Some(children),
            Kind::Weighted(children) => weighted = Some(children),
        }
        NodeText { queue, strict, weighted, weight, shaper, packet_shaper, min_rate }
    }
}

impl Node {
    /// A node of this kind without shapers and minimum rate, of weight 1.
    pub fn new(kind: Kind) -> Node {
        Node { kind, weight: 1, shaper: None, packet_shaper: None, min_rate: None }
    }

    /// A node for the queue with this number.
    pub fn queue(number: u8) -> Node {
        Node::new(Kind::Queue(number))
    }

    /// A strict priority scheduler; the most urgent child comes first.
    pub fn strict(children: Vec<Node>) -> Node {
        Node::new(Kind::Strict(children))
    }

    /// A weighted deficit round robin scheduler.
    pub fn weighted(children: Vec<Node>) -> Node {
        Node::new(Kind::Weighted(children))
    }

    /// Sets the weight.
    pub fn with_weight(mut self, weight: u32) -> Node {
        self.weight = weight;
        self
    }

    /// Sets the shaper.
    pub fn with_shaper(mut self, rate: Rate, burst: Option<Size>) -> Node {
        self.shaper = Some(Shaper { rate, burst });
        self
    }

    /// Sets the shaper in packets.
    pub fn with_packet_shaper(mut self, packets_per_s: u64, burst: u32) -> Node {
        self.packet_shaper = Some(PacketShaper { packets_per_s, burst });
        self
    }

    /// Sets the minimum rate.
    pub fn with_min_rate(mut self, rate: Rate) -> Node {
        self.min_rate = Some(rate);
        self
    }

    /// The children; none for a queue.
    pub fn children(&self) -> &[Node] {
        match &self.kind {
            Kind::Queue(_) => &[],
            Kind::Strict(children) | Kind::Weighted(children) => children,
        }
    }

    fn find_mut(&mut self, queue: u8) -> Option<&mut Node> {
        match self.kind {
            Kind::Queue(number) => (number == queue).then_some(self),
            Kind::Strict(ref mut children) | Kind::Weighted(ref mut children) => {
                children.iter_mut().find_map(|child| child.find_mut(queue))
            }
        }
    }
}

impl Config {
    /// These queues under this root, with the default class map.
    pub fn new(queues: Vec<Queue>, root: Node) -> Config {
        Config { queues, root, classes: BTreeMap::new(), overhead: 0, mtu: default_mtu(), tenant: None }
    }

    /// One queue for all classes.
    pub fn fifo() -> Config {
        Config::new(vec![Queue::default()], Node::queue(0))
    }

    /// `n` queues in strict priority, queue `n - 1` the most urgent.
    pub fn strict(n: u8) -> Config {
        let queues = vec![Queue::default(); usize::from(n)];
        Config::new(queues, Node::strict((0..n).rev().map(Node::queue).collect()))
    }

    /// One queue per weight, served round robin.
    pub fn weighted(weights: &[u32]) -> Config {
        let queues = vec![Queue::default(); weights.len()];
        let children = weights.iter().zip(0..).map(|(&weight, queue)| Node::queue(queue).with_weight(weight));
        Config::new(queues, Node::weighted(children.collect()))
    }

    /// The names of the tenants that own queues.
    pub fn tenants(&self) -> impl Iterator<Item = &str> {
        let queues = self.queues.iter().filter_map(|queue| queue.tenant.as_deref());
        self.tenant.as_deref().into_iter().chain(queues)
    }

    /// The node of a queue, to change its shaper, weight or minimum rate.
    pub fn node_mut(&mut self, queue: u8) -> Option<&mut Node> {
        self.root.find_mut(queue)
    }

    /// The queue of each class, by class.
    pub fn class_map(&self) -> [u8; CLASSES] {
        let last = self.queues.len().clamp(1, QUEUES_MAX) - 1;
        std::array::from_fn(|class| {
            let default = class.min(last) as u8;
            self.classes.get(&(class as u8)).copied().unwrap_or(default)
        })
    }

    /// Cost of a full frame in bytes, as shapers and schedulers count it.
    pub fn frame_cost(&self) -> u64 {
        u64::from(self.mtu) + u64::from(self.overhead)
    }
}

impl Queue {
    /// A queue with this limit.
    pub fn with_limit(limit: Limit) -> Queue {
        Queue { limit, ..Queue::default() }
    }
}

impl Limit {
    /// A limit in packets.
    pub fn packets(packets: u32) -> Limit {
        Limit { packets: Some(packets), ..Limit::default() }
    }

    /// A limit in bytes.
    pub fn bytes(bytes: u64) -> Limit {
        Limit { bytes: Some(Size(bytes)), ..Limit::default() }
    }

    /// A limit on waiting time.
    pub fn time(span: Span) -> Limit {
        Limit { time: Some(span), ..Limit::default() }
    }

    /// Maximum waiting packets, whichever limits are configured.
    pub fn packets_max(&self) -> u32 {
        let none = self.bytes.is_none() && self.time.is_none();
        self.packets.unwrap_or(if none { DEFAULT_PACKETS } else { PACKETS_MAX }).min(PACKETS_MAX)
    }
}
