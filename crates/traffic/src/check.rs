//! Finds contradictions in configurations; each problem names its setting.
//!
//! All problems are reported, not only the first. A path is that of the JSON: `root.strict[1].shaper.burst`.
//!
//! Tests: `tests/config.rs`.

use std::fmt;

use crate::config::{
    BURST_MAX, CLASSES, Config, DEPTH_MAX, Kind, Limit, MTU_MAX, NODES_MAX, Node, PACKETS_MAX, Policy, QUEUES_MAX,
    RATE_MAX, Red, WEIGHT_MAX, check_name,
};
use crate::units::{Level, Rate, Size};

/// A problem of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Path of the setting.
    pub path: String,
    /// The problem.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Problem {}

struct Check<'a> {
    config: &'a Config,
    link: Option<u64>,
    /// How often each queue occurs in the tree.
    seen: Vec<u32>,
    nodes: usize,
    problems: Vec<Problem>,
}

impl Config {
    /// Checks the settings for consistency, also with the link rate in bit/s if that is known.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn check(&self, link_rate: Option<u64>) -> Result<(), Vec<Problem>> {
        let seen = vec![0; self.queues.len().min(QUEUES_MAX)];
        let mut check = Check { config: self, link: link_rate, seen, nodes: 0, problems: Vec::new() };
        check.queues();
        check.classes();
        if self.root.min_rate.is_some() {
            check.problem("root.min_rate", "a port has no siblings to go before; minimum rates belong to its children");
        }
        let minimum = check.node(&self.root, "root", 1, false);
        if let Some(link) = link_rate.filter(|&link| u128::from(link) < minimum) {
            check.problem("root", format!("the minimum rates sum to {minimum} bit/s, the link has {}", Rate(link)));
        }
        check.nodes_and_queues();
        if check.problems.is_empty() { Ok(()) } else { Err(check.problems) }
    }
}

impl Check<'_> {
    fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        // Bounds the report: a configuration may have a problem in every setting.
        if self.problems.len() < 100 {
            self.problems.push(Problem { path: path.into(), message: message.into() });
        }
    }

    fn queues(&mut self) {
        let config = self.config;
        if config.queues.is_empty() {
            self.problem("queues", "a port needs at least one queue");
        }
        if config.queues.len() > QUEUES_MAX {
            self.problem("queues", format!("{} queues; a port has at most {QUEUES_MAX}", config.queues.len()));
        }
        if config.mtu == 0 || config.mtu > MTU_MAX {
            self.problem("mtu", format!("{} is not between 1 and {MTU_MAX}", config.mtu));
        }
        if config.overhead > 1000 {
            self.problem("overhead", format!("{} bytes for each frame; at most 1000", config.overhead));
        }
        if let Some(Err(message)) = config.tenant.as_deref().map(check_name) {
            self.problem("tenant", message);
        }
        for (number, queue) in config.queues.iter().enumerate().take(QUEUES_MAX) {
            if let Some(Err(message)) = queue.tenant.as_deref().map(check_name) {
                self.problem(format!("queues[{number}].tenant"), message);
            }
            self.limit(&queue.limit, &format!("queues[{number}].limit"));
            if let Policy::Red(red) = &queue.policy {
                self.red(red, &queue.limit, &format!("queues[{number}].policy.red"));
            }
            if let (Some(port), Some(own)) = (&config.tenant, &queue.tenant) {
                let message = format!("`{own}`, but the port belongs to `{port}`: a queue has one tenant");
                self.problem(format!("queues[{number}].tenant"), message);
            }
        }
    }

    fn limit(&mut self, limit: &Limit, path: &str) {
        let mtu = u64::from(self.config.mtu);
        match limit.packets {
            Some(0) => self.problem(format!("{path}.packets"), "0 packets: nothing would pass"),
            Some(n) if n > PACKETS_MAX => {
                self.problem(format!("{path}.packets"), format!("{n}; at most {PACKETS_MAX}"));
            }
            _ => {}
        }
        if let Some(bytes) = limit.bytes.filter(|bytes| bytes.0 < mtu) {
            self.problem(format!("{path}.bytes"), format!("{bytes} hold no frame of {mtu} bytes"));
        }
        if limit.time.is_some_and(|time| time.0 == 0) {
            self.problem(format!("{path}.time"), "0: nothing could wait");
        }
    }

    fn red(&mut self, red: &Red, limit: &Limit, path: &str) {
        let unit = |level: Level| match level {
            Level::Packets(n) => ("packets", u64::from(n)),
            Level::Bytes(size) => ("bytes", size.0),
            Level::Time(span) => ("time", span.0),
        };
        let ((min_unit, min), (max_unit, max)) = (unit(red.min), unit(red.max));
        if min_unit != max_unit {
            self.problem(format!("{path}.max"), format!("{} is in {max_unit}, `min` in {min_unit}", red.max));
        } else if min > max {
            self.problem(format!("{path}.min"), format!("{} is above `max`, which is {}", red.min, red.max));
        }
        if max == 0 {
            self.problem(format!("{path}.max"), "0: every packet would be dropped or marked");
        }
        let limit = match red.max {
            Level::Packets(_) => limit.packets.map(u64::from),
            Level::Bytes(_) => limit.bytes.map(|bytes| bytes.0),
            Level::Time(_) => limit.time.map(|time| time.0),
        };
        if limit.is_some_and(|limit| max > limit) {
            self.problem(format!("{path}.max"), format!("{} is above the queue's limit: never reached", red.max));
        }
        for (name, value) in [("probability", red.probability), ("weight", red.weight)] {
            if !(value > 0.0 && value <= 1.0) {
                self.problem(format!("{path}.{name}"), format!("{value} is not above 0 and at most 1"));
            }
        }
        if red.packet_time.0 == 0 {
            self.problem(format!("{path}.packet_time"), "0: no packet is sent in no time");
        }
    }

    fn classes(&mut self) {
        let config = self.config;
        for (&class, &queue) in &config.classes {
            let path = format!("classes.{class}");
            if usize::from(class) >= CLASSES {
                self.problem(path, format!("classes are 0 to {}", CLASSES - 1));
            } else if usize::from(queue) >= config.queues.len() {
                self.problem(path, format!("there is no queue {queue}: {} are configured", config.queues.len()));
            }
        }
    }

    /// Checks a node and its descendants. Returns the rate in bit/s that it needs for the minimum rates in it.
    fn node(&mut self, node: &Node, path: &str, depth: usize, weighted: bool) -> u128 {
        self.nodes += 1;
        if depth > DEPTH_MAX {
            self.problem(path, format!("deeper than {DEPTH_MAX} levels"));
            return 0;
        }
        if node.weight == 0 || node.weight > WEIGHT_MAX {
            self.problem(format!("{path}.weight"), format!("{} is not between 1 and {WEIGHT_MAX}", node.weight));
        } else if !weighted && node.weight != 1 {
            self.problem(format!("{path}.weight"), "has no effect: the parent is not `weighted`");
        }
        self.shapers(node, path);
        let (name, weighted) = match &node.kind {
            Kind::Queue(number) => {
                match self.seen.get_mut(usize::from(*number)) {
                    Some(count) => *count += 1,
                    None => self.problem(format!("{path}.queue"), format!("there is no queue {number}")),
                }
                ("queue", false)
            }
            Kind::Strict(_) => ("strict", false),
            Kind::Weighted(_) => ("weighted", true),
        };
        let children = node.children();
        if children.is_empty() && name != "queue" {
            self.problem(format!("{path}.{name}"), "a scheduler needs at least one child");
        }
        if children.len() > QUEUES_MAX {
            self.problem(format!("{path}.{name}"), format!("more than {QUEUES_MAX} children"));
        }
        let mut sum = 0;
        for (place, child) in children.iter().enumerate().take(QUEUES_MAX) {
            sum += self.node(child, &format!("{path}.{name}[{place}]"), depth + 1, weighted);
        }
        let own = u128::from(node.min_rate.map_or(0, |rate| rate.0));
        if node.min_rate.is_some() && own < sum {
            let message = format!("{own} bit/s is less than the sum of the minimum rates below it, {sum} bit/s");
            self.problem(format!("{path}.min_rate"), message);
        }
        if let Some(shaper) = node.shaper.filter(|shaper| u128::from(shaper.rate.0) < sum) {
            let message = format!("{} is less than the sum of the minimum rates below it, {sum} bit/s", shaper.rate);
            self.problem(format!("{path}.shaper.rate"), message);
        }
        own.max(sum)
    }

    fn shapers(&mut self, node: &Node, path: &str) {
        let frame = self.config.frame_cost();
        if let Some(shaper) = node.shaper {
            self.rate(shaper.rate, &format!("{path}.shaper.rate"));
            let burst_path = format!("{path}.shaper.burst");
            match shaper.burst {
                Some(burst) if burst.0 < frame => {
                    let message = format!("{burst} is less than one frame, {}", Size(frame));
                    self.problem(burst_path, message);
                }
                Some(burst) if burst > BURST_MAX => {
                    self.problem(burst_path, format!("{burst}; at most {BURST_MAX}"));
                }
                _ => {}
            }
        }
        if let Some(shaper) = node.packet_shaper {
            if shaper.packets_per_s == 0 || shaper.packets_per_s > 1_000_000_000 {
                let message = format!("{} is not between 1 and 1000000000", shaper.packets_per_s);
                self.problem(format!("{path}.packet_shaper.packets_per_s"), message);
            }
            if shaper.burst == 0 || shaper.burst > PACKETS_MAX {
                let message = format!("{} is not between 1 and {PACKETS_MAX}", shaper.burst);
                self.problem(format!("{path}.packet_shaper.burst"), message);
            }
        }
        if let Some(rate) = node.min_rate {
            self.rate(rate, &format!("{path}.min_rate"));
            if let Some(shaper) = node.shaper.filter(|shaper| shaper.rate < rate) {
                let message = format!("{rate} is more than the node's shaper lets pass, {}", shaper.rate);
                self.problem(format!("{path}.min_rate"), message);
            }
        }
    }

    fn rate(&mut self, rate: Rate, path: &str) {
        if rate.0 == 0 {
            self.problem(path, "0 bit/s: nothing would ever be sent");
        } else if rate > RATE_MAX {
            self.problem(path, format!("{rate}; at most {RATE_MAX}"));
        } else if let Some(link) = self.link.filter(|&link| rate.0 > link) {
            self.problem(path, format!("{rate} is more than the link's {}", Rate(link)));
        }
    }

    fn nodes_and_queues(&mut self) {
        if self.nodes > NODES_MAX {
            self.problem("root", format!("{} schedulers and queues; at most {NODES_MAX}", self.nodes));
        }
        for number in 0..self.seen.len() {
            match self.seen[number] {
                0 => self.problem(format!("queues[{number}]"), "is nowhere in the tree: it would never be served"),
                1 => {}
                n => self.problem(format!("queues[{number}]"), format!("is in the tree {n} times")),
            }
        }
    }
}
