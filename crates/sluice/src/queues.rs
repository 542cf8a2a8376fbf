//! Queues of ports and links in the switch's messages: the config as text, and counters as messages, objects and rows.
//!
//! The command is in `qos.rs`; `devices.rs` changes queues; `stats.rs`, `top/view.rs` and `metrics.rs` show them.
//! Tests: below.

mod tenants;
mod text;

use crate::output::Rows;
use datapath::{QueuesOf, Switch};
use grpc::admin::AdminStats;
use messages::sluice::v1 as pb;
use serde_json::{Value, json};
#[cfg(test)]
pub use tenants::tests::tenant as tenant_of_tests;
pub use tenants::{collect_tenants, tenant_rows, tenants_to_json};
pub use text::{parse, parse_tenant, problems, tenant_to_text, to_text, tree};
use traffic::QueueStatistics;

/// Returns the queues of a port or link; `None` if it has none.
pub fn collect(switch: &Switch, of: QueuesOf) -> Option<pb::PortQueues> {
    // A port that was removed meanwhile has none.
    let info = switch.queues_of(of).ok()??;
    Some(pb::PortQueues {
        config: to_text(&info.config),
        configured: info.is_configured,
        queues: info.statistics.iter().map(counters).collect(),
    })
}

fn counters(of: &QueueStatistics) -> pb::QueueCounters {
    let count = |count: traffic::Count| Some(pb::Count { packets: count.packets, bytes: count.bytes });
    pb::QueueCounters {
        depth: count(of.depth),
        highest: count(of.highest),
        sent: count(of.sent),
        marked: count(of.marked),
        dropped_tail: count(of.dropped.tail),
        dropped_time: count(of.dropped.time),
        dropped_red: count(of.dropped.red),
        dropped_buffer: count(of.dropped.buffer),
        dropped_tenant: count(of.dropped.tenant),
        removed: count(of.removed),
        waited_ns: of.waited.sum_ns(),
        waited: of.waited.buckets().map(|(up_to_ns, packets)| pb::Waited { up_to_ns, packets }).collect(),
    }
}

/// Returns the dropped packets of a queue by cause.
pub fn dropped(queue: &pb::QueueCounters) -> [(&'static str, pb::Count); 5] {
    let count = |count: Option<pb::Count>| count.unwrap_or_default();
    [
        ("tail", count(queue.dropped_tail)),
        ("time", count(queue.dropped_time)),
        ("red", count(queue.dropped_red)),
        ("buffer", count(queue.dropped_buffer)),
        ("tenant", count(queue.dropped_tenant)),
    ]
}

/// Returns the `q`-quantile of queueing delays in ns, at most one eighth too high; `None` if no packet was sent.
pub fn quantile(waited: &[pb::Waited], q: f64) -> Option<u64> {
    let total: u64 = waited.iter().map(|bucket| bucket.packets).sum();
    let rank = ((q * total as f64).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0;
    let found = waited.iter().find(|bucket| {
        seen += bucket.packets;
        seen >= rank
    });
    found.map(|bucket| bucket.up_to_ns)
}

/// Returns the counts since an earlier reading; all of them, if counters were reset.
pub fn since(now: &[pb::Waited], before: &[pb::Waited]) -> Vec<pb::Waited> {
    let was = |up_to_ns| before.iter().find(|bucket| bucket.up_to_ns == up_to_ns).map_or(0, |bucket| bucket.packets);
    let total = |all: &[pb::Waited]| all.iter().map(|bucket| bucket.packets).sum::<u64>();
    if total(now) < total(before) {
        return now.to_vec();
    }
    let grown = |bucket: &pb::Waited| pb::Waited {
        up_to_ns: bucket.up_to_ns,
        packets: bucket.packets.saturating_sub(was(bucket.up_to_ns)),
    };
    now.iter().map(grown).filter(|bucket| bucket.packets > 0).collect()
}

/// Formats a time: `1.2 ms`; a dash for none.
pub fn spell(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "-".to_string() };
    let scaled = |unit: u64| ns as f64 / unit as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", scaled(1_000)),
        1_000_000..1_000_000_000 => format!("{:.1} ms", scaled(1_000_000)),
        _ => format!("{:.1} s", scaled(1_000_000_000)),
    }
}

/// Returns a port's queues as an object; `null` if it has none.
pub fn to_json(queues: Option<&pb::PortQueues>) -> Value {
    let Some(queues) = queues else { return Value::Null };
    let count = |count: Option<pb::Count>| {
        let count = count.unwrap_or_default();
        json!({ "packets": count.packets, "bytes": count.bytes })
    };
    let queue = |(number, q): (usize, &pb::QueueCounters)| {
        let dropped = dropped(q).map(|(cause, dropped)| (cause.to_string(), count(Some(dropped))));
        json!({
            "queue": number, "depth": count(q.depth), "highest": count(q.highest), "sent": count(q.sent),
            "dropped": Value::Object(dropped.into_iter().collect()), "marked": count(q.marked), "removed": count(q.removed),
            "waited_ns": { "p50": quantile(&q.waited, 0.5), "p99": quantile(&q.waited, 0.99), "sum": q.waited_ns },
        })
    };
    json!({
        "configured": queues.configured,
        // A config of a newer switch, which this command does not know, is passed on as it is.
        "config": serde_json::from_str::<Value>(&queues.config).unwrap_or_else(|_| queues.config.as_str().into()),
        "queues": queues.queues.iter().enumerate().map(queue).collect::<Vec<_>>(),
    })
}

/// A port or link that has queues.
pub struct Owner<'a> {
    pub device_id: u64,
    pub port: u32,
    /// The port's number, `3`, or the link's source, `1:10`.
    pub at: String,
    /// The port's network device, or the link's destination.
    pub name: String,
    pub kind: &'a str,
    pub queues: &'a pb::PortQueues,
}

impl<'a> Owner<'a> {
    /// Returns the queues with their numbers.
    pub fn queues(&self) -> impl Iterator<Item = (usize, &'a pb::QueueCounters)> + use<'a> {
        self.queues.queues.iter().enumerate()
    }
}

/// Returns all ports and links that have queues.
pub fn owners(stats: &AdminStats) -> impl Iterator<Item = Owner<'_>> {
    let ports = stats.ports.iter().filter_map(|port| {
        let queues = port.queues.as_ref()?;
        let (at, name) = (port.number.to_string(), port.name.clone());
        Some(Owner { device_id: port.device_id, port: port.number, at, name, kind: &port.kind, queues })
    });
    let links = stats.links.iter().filter_map(|link| {
        let queues = link.queues.as_ref()?;
        let (from, to) = (link.from.unwrap_or_default(), link.to.unwrap_or_default());
        let at = format!("{}:{}", from.device_id, from.port);
        let name = format!("{}:{}", to.device_id, to.port);
        Some(Owner { device_id: from.device_id, port: from.port, at, name, kind: "link", queues })
    });
    ports.chain(links)
}

/// Returns a table with a row for each queue of each port and link.
pub fn rows(stats: &AdminStats) -> Rows {
    let mut table = Rows::new(&[
        "port",
        "queue",
        "packets",
        "bytes",
        "highest",
        "sent",
        "tail drops",
        "time drops",
        "RED drops",
        "buffer drops",
        "tenant drops",
        "marked",
        "waited 50 %",
        "99 %",
    ]);
    table.align_right(1);
    for owner in owners(stats) {
        for (number, q) in owner.queues() {
            let depth = q.depth.unwrap_or_default();
            let packets = |count: Option<pb::Count>| count.unwrap_or_default().packets.to_string();
            let mut row = vec![owner.at.clone(), number.to_string()];
            row.extend([depth.packets, depth.bytes].map(|n| n.to_string()));
            row.extend([packets(q.highest), packets(q.sent)]);
            row.extend(dropped(q).map(|(_, count)| count.packets.to_string()));
            row.push(packets(q.marked));
            row.extend([0.5, 0.99].map(|q_| spell(quantile(&q.waited, q_))));
            table.add_row(row);
        }
    }
    table
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use expect_test::expect;

    /// Returns a port with two queues that have counted `packets`.
    pub fn port(packets: u64) -> pb::Port {
        let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
        let waited = |up_to_ns, packets| pb::Waited { up_to_ns, packets };
        let busy = pb::QueueCounters {
            depth: count(7),
            highest: count(90),
            sent: count(packets),
            marked: count(packets / 10),
            dropped_tail: count(packets / 5),
            dropped_red: count(packets / 2),
            waited_ns: 5000 * packets,
            waited: vec![waited(1023, packets / 2), waited(1_200_000, packets - packets / 2)],
            ..Default::default()
        };
        let config = r#"{"queues":[{},{}],"root":{"strict":[{"queue":1},{"queue":0}]}}"#.to_string();
        let queues = pb::PortQueues { config, configured: true, queues: vec![busy, pb::QueueCounters::default()] };
        pb::Port { number: 3, name: "veth3".into(), queues: Some(queues), ..Default::default() }
    }

    #[test]
    fn each_queue_has_a_row_and_an_object_and_ports_without_have_none() {
        let end = |device_id, port| Some(pb::DevicePort { device_id, port });
        let (from, to, queues) = (end(1, 10), end(2, 1), port(8).queues);
        let links = vec![pb::Link { from, to, queues, ..Default::default() }, pb::Link::default()];
        let stats = AdminStats { ports: vec![port(100), pb::Port::default()], links, ..Default::default() };
        expect![[r#"
            port  queue  packets  bytes  highest  sent  tail drops  time drops  RED drops  buffer drops  tenant drops  marked  waited 50 %    99 %
            3         0        7    700       90   100          20           0         50             0             0      10       1.0 us  1.2 ms
            3         1        0      0        0     0           0           0          0             0             0       0            -       -
            1:10      0        7    700       90     8           1           0          4             0             0       0       1.0 us  1.2 ms
            1:10      1        0      0        0     0           0           0          0             0             0       0            -       -"#]]
        .assert_eq(&rows(&stats).trim_fmt());
        let object = to_json(stats.ports[0].queues.as_ref());
        assert_eq!(object["config"]["root"]["strict"][0]["queue"], 1);
        assert_eq!(object["queues"][0]["dropped"]["red"], json!({ "packets": 50, "bytes": 5000 }));
        assert_eq!(object["queues"][0]["waited_ns"], json!({ "p50": 1023, "p99": 1_200_000, "sum": 500_000 }));
        assert_eq!(object["queues"][1]["waited_ns"]["p50"], Value::Null);
        assert_eq!(to_json(stats.ports[1].queues.as_ref()), Value::Null);
    }

    #[test]
    fn quantiles_are_those_of_the_histogram_also_between_two_readings() {
        let mut statistics = QueueStatistics::default();
        for ns in [5, 100, 2_000, 2_000, 70_000, 1_000_000_000] {
            statistics.waited.record(ns);
        }
        let before = counters(&statistics);
        for q in [0.0, 0.5, 0.8] {
            assert_eq!(quantile(&before.waited, q), Some(statistics.waited.quantile(q)), "{q}");
        }
        (0..1000).for_each(|_| statistics.waited.record(7));
        let now = counters(&statistics);
        assert_eq!(quantile(&since(&now.waited, &before.waited), 0.99), Some(7));
        assert_eq!(since(&before.waited, &now.waited), before.waited, "counters that went back");
        assert_eq!(quantile(&[], 0.5), None);
        let spelled = [0, 999, 1_500, 2_500_000, 3_000_000_000].map(|ns| spell(Some(ns)));
        assert_eq!(spelled, ["0 ns", "999 ns", "1.5 us", "2.5 ms", "3.0 s"]);
    }
}
