//! `sluice run --metrics`: all counters of the switch as OpenMetrics text, for Prometheus. `grpc::metrics` converts it
//! to the older text format for clients that ask for that.
//!
//! Names and labels are a stable interface, listed in `docs/operations.md`: they may be added, never renamed. Counters
//! run from the start of the switch, those of a table from the first program that had it. Nothing is stored here; each
//! request reads the switch.
//!
//! Tests: at the end of the file.

use crate::queues::{Owner, dropped, owners};
use grpc::admin::AdminStats;
use messages::sluice::v1 as pb;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// The values to export.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The state of ports, tables, drops, workers, code.
    pub stats: AdminStats,
    /// RPC counters as `(method, code, calls)`.
    pub rpcs: Vec<(String, String, u64)>,
    /// Messages for controllers that were not read in time.
    pub lost_events: grpc::LostEvents,
}

/// Returns the OpenMetrics text.
pub fn text(observed: Observed) -> String {
    let mut registry = Registry::with_prefix("sluice");
    registry.register_collector(Box::new(Snapshot(observed)));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => text,
        // Writing to a string does not fail.
        Err(fmt::Error) => String::new(),
    }
}

#[derive(Debug)]
struct Snapshot(Observed);

type Labels = Vec<(&'static str, String)>;

/// Writes one metric family: its name, its help text, and a value for each set of labels, or one value without labels.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, M)>,
) -> fmt::Result {
    let mut values = values.into_iter().peekable();
    let Some(kind) = values.peek().map(|(_, metric)| metric.metric_type()) else { return Ok(()) };
    // The library appends the unit to the name.
    let units = [Unit::Seconds, Unit::Bytes];
    let named = units.iter().find_map(|unit| Some((name.strip_suffix(&format!("_{}", unit.as_str()))?, unit)));
    let (name, unit) = named.map_or((name, None), |(name, unit)| (name, Some(unit)));
    let mut metrics = encoder.encode_descriptor(name, &format!("{help}."), unit, kind)?;
    for (mut labels, metric) in values {
        if labels.is_empty() {
            return metric.encode(metrics);
        }
        labels.iter_mut().for_each(|(_, value)| *value = escaped(value));
        metric.encode(metrics.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Escapes a label's value, which the library does not do.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

fn counters(values: Vec<(Labels, u64)>) -> impl Iterator<Item = (Labels, ConstCounter<u64>)> {
    values.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)))
}

fn gauges(values: Vec<(Labels, u64)>) -> impl Iterator<Item = (Labels, ConstGauge<f64>)> {
    values.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value as f64)))
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Observed { stats, rpcs, lost_events } = &self.0;
        let e = &mut encoder;
        let uptime = ConstGauge::new(stats.uptime_us as f64 / 1e6);
        family(e, "uptime_seconds", "Time since the start of the switch", [(vec![], uptime)])?;
        ports(e, &stats.ports)?;
        queues(e, stats)?;
        tenants(e, &stats.tenants)?;
        tables(e, &stats.tables)?;
        if let Some(buffers) = &stats.buffers {
            family(e, "buffers", "Packet buffers that there are", gauges(vec![(vec![], buffers.total)]))?;
            let used = gauges(vec![(vec![], buffers.in_use)]);
            family(e, "buffers_in_use", "Packet buffers that packets or receive rings have", used)?;
        }
        let drop =
            |d: &pb::Drop| (vec![("device_id", d.device_id.to_string()), ("reason", d.reason.clone())], d.packets);
        let drops = stats.drops.iter().map(drop).collect();
        family(e, "dropped_packets", "Packets that the program or the switch dropped", counters(drops))?;
        workers(e, &stats.workers)?;
        stats.watched.iter().try_for_each(|w| watched(e, w))?;
        links(e, &stats.links)?;
        let device = |d: &pb::Device| vec![("device_id", d.id.to_string())];
        let changes = counters(stats.devices.iter().map(|d| (device(d), d.program_changes)).collect());
        family(e, "program_changes", "Programs that were made to run", changes)?;
        let code = |value: fn(&pb::Code) -> u64| {
            let of = |d: &pb::Device| Some((device(d), value(d.code.as_ref()?)));
            stats.devices.iter().filter_map(of).collect::<Vec<_>>()
        };
        let made = counters(code(|c| c.compiled));
        family(e, "code_compilations", "Code that was made for the tables as they were", made)?;
        let runs = gauges(code(|c| c.specialised.into()));
        family(e, "code_specialised", "Whether code for the tables as they are runs", runs)?;
        let calls =
            rpcs.iter().map(|(method, code, calls)| (vec![("method", method.clone()), ("code", code.clone())], *calls));
        family(e, "rpcs", "Calls of the P4Runtime and admin services", counters(calls.collect()))?;
        let grpc::LostEvents { packets, digests, idle_timeouts } = *lost_events;
        let lost = [("packet_in", packets), ("digest", digests), ("idle_timeout", idle_timeouts)];
        let lost = counters(lost.map(|(kind, lost)| (vec![("kind", kind.to_string())], lost)).to_vec());
        family(e, "lost_events", "Packets and notifications that controllers did not read in time", lost)
    }
}

/// Returns a port's labels: its P4Runtime device, number, network device and kind.
fn port(p: &pb::Port) -> Labels {
    let id = ("device_id", p.device_id.to_string());
    vec![id, ("port", p.number.to_string()), ("device", p.name.clone()), ("kind", p.kind.clone())]
}

fn ports(e: &mut DescriptorEncoder<'_>, ports: &[pb::Port]) -> fmt::Result {
    let up = ports.iter().map(|p| (port(p), u64::from(p.link_up))).collect();
    family(e, "port_up", "Whether the link is up", gauges(up))?;
    let speed = ports.iter().filter_map(|p| Some((port(p), u64::from(p.speed_mbps?) * 1_000_000 / 8))).collect();
    family(e, "port_speed_bytes_per_second", "What the link can carry", gauges(speed))?;
    let both = |value: fn(&pb::Counters) -> u64| {
        let of = |p: &pb::Port, direction: &str, c: &Option<pb::Counters>| {
            let mut labels = port(p);
            labels.push(("direction", direction.to_string()));
            (labels, c.as_ref().map_or(0, value))
        };
        let both = ports.iter().flat_map(|p| [of(p, "receive", &p.rx), of(p, "send", &p.tx)]);
        counters(both.collect::<Vec<_>>())
    };
    family(e, "port_packets", "Packets received and sent", both(|c| c.packets))?;
    family(e, "port_bytes", "Bytes received and sent", both(|c| c.bytes))?;
    let lost = "Packets that came and no worker took in time, or that a full port did not take";
    family(e, "port_dropped_packets", lost, both(|c| c.dropped))?;
    family(e, "port_errors", "Packets that arrived broken", both(|c| c.errors))
}

fn tenants(e: &mut DescriptorEncoder<'_>, tenants: &[pb::Tenant]) -> fmt::Result {
    let of = |value: fn(&pb::Tenant) -> Option<pb::Count>, number: fn(&pb::Count) -> u64| {
        let each = |t: &pb::Tenant| (vec![("tenant", t.name.clone())], number(&value(t).unwrap_or_default()));
        gauges(tenants.iter().map(each).collect::<Vec<_>>())
    };
    let (packets, bytes) = (|count: &pb::Count| count.packets, |count: &pb::Count| count.bytes);
    family(e, "tenant_depth_packets", "Packets that wait in the tenant's queues", of(|t| t.depth, packets))?;
    family(e, "tenant_depth_bytes", "Bytes that wait in the tenant's queues", of(|t| t.depth, bytes))?;
    family(e, "tenant_highest_packets", "The most packets that ever waited there", of(|t| t.highest, packets))?;
    family(e, "tenant_highest_bytes", "The most bytes that ever waited there", of(|t| t.highest, bytes))?;
    let dropped = |number: fn(&pb::Count) -> u64| {
        let each = |t: &pb::Tenant| {
            [("limit", t.dropped_limit), ("buffer", t.dropped_buffer)].map(|(cause, count)| {
                let labels = vec![("tenant", t.name.clone()), ("cause", cause.to_string())];
                (labels, number(&count.unwrap_or_default()))
            })
        };
        counters(tenants.iter().flat_map(each).collect::<Vec<_>>())
    };
    let help = "Packets that were refused: the tenant's limit, the shared buffer";
    family(e, "tenant_dropped_packets", help, dropped(packets))?;
    family(e, "tenant_dropped_bytes", "Bytes that were refused", dropped(bytes))
}

fn queues(e: &mut DescriptorEncoder<'_>, stats: &AdminStats) -> fmt::Result {
    let labels = |number: usize, of: &Owner<'_>| {
        let [id, port] = [of.device_id.to_string(), of.port.to_string()];
        let [device, kind] = [of.name.clone(), of.kind.to_string()];
        vec![("device_id", id), ("port", port), ("device", device), ("kind", kind), ("queue", number.to_string())]
    };
    let mut all: Vec<(Labels, &pb::QueueCounters)> = Vec::new();
    for of in owners(stats) {
        all.extend(of.queues().map(|(number, queue)| (labels(number, &of), queue)));
    }
    let of = |value: fn(&pb::QueueCounters) -> Option<pb::Count>| {
        let count = |(labels, queue): &(Labels, &pb::QueueCounters)| (labels.clone(), value(queue).unwrap_or_default());
        let (packets, bytes): (Vec<_>, Vec<_>) = all
            .iter()
            .map(count)
            .map(|(labels, count)| ((labels.clone(), count.packets), (labels, count.bytes)))
            .unzip();
        (packets, bytes)
    };
    let (packets, bytes) = of(|q| q.depth);
    family(e, "queue_depth_packets", "Packets that wait in the queue", gauges(packets))?;
    family(e, "queue_depth_bytes", "Bytes that wait in the queue", gauges(bytes))?;
    let (packets, bytes) = of(|q| q.highest);
    family(e, "queue_highest_packets", "The most packets that ever waited in the queue", gauges(packets))?;
    family(e, "queue_highest_bytes", "The most bytes that ever waited in the queue", gauges(bytes))?;
    let (packets, bytes) = of(|q| q.sent);
    family(e, "queue_sent_packets", "Packets that left the queue to be sent", counters(packets))?;
    family(e, "queue_sent_bytes", "Bytes that left the queue to be sent", counters(bytes))?;
    let (packets, _) = of(|q| q.marked);
    family(e, "queue_marked_packets", "Packets that the queue marked with congestion experienced", counters(packets))?;
    let dropped = |value: fn(&pb::Count) -> u64| {
        let each = |(labels, queue): &(Labels, &pb::QueueCounters)| {
            let with = |cause: &str| [labels.clone(), vec![("cause", cause.to_string())]].concat();
            dropped(queue).map(|(cause, count)| (with(cause), value(&count)))
        };
        counters(all.iter().flat_map(each).collect::<Vec<_>>())
    };
    let help =
        "Packets that the queue refused: its limit (tail), its limit of time, RED, the shared buffer, its tenant";
    family(e, "queue_dropped_packets", help, dropped(|count| count.packets))?;
    family(e, "queue_dropped_bytes", "Bytes that the queue refused", dropped(|count| count.bytes))?;
    let waits = all.iter().map(|(labels, queue)| (labels.clone(), Waits::of(queue)));
    family(e, "queue_wait_seconds", "How long sent packets have waited in the queue", waits)
}

/// A histogram of queueing delays, in seconds.
struct Waits {
    sum: f64,
    count: u64,
    /// Upper bounds, each with the packets between it and the previous one.
    buckets: Vec<(f64, u64)>,
}

impl Waits {
    fn of(queue: &pb::QueueCounters) -> Waits {
        // Bounds at 1, 2, 5 per decade from 1 us to 5 s; longer delays are in the last bucket.
        let decades = (3..10).flat_map(|exponent| [1, 2, 5].map(|digit| digit * 10u64.pow(exponent)));
        let mut bounds: Vec<(u64, u64)> = decades.chain([u64::MAX]).map(|bound_ns| (bound_ns, 0)).collect();
        for waited in &queue.waited {
            if let Some((_, count)) = bounds.iter_mut().find(|(bound_ns, _)| waited.up_to_ns <= *bound_ns) {
                *count += waited.packets;
            }
        }
        let seconds = |bound_ns| if bound_ns == u64::MAX { f64::MAX } else { bound_ns as f64 / 1e9 };
        Waits {
            sum: queue.waited_ns as f64 / 1e9,
            count: queue.waited.iter().map(|waited| waited.packets).sum(),
            buckets: bounds.into_iter().map(|(bound_ns, count)| (seconds(bound_ns), count)).collect(),
        }
    }
}

impl EncodeMetric for Waits {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_histogram::<NoLabelSet>(self.sum, self.count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn tables(e: &mut DescriptorEncoder<'_>, tables: &[pb::Table]) -> fmt::Result {
    let table = |t: &pb::Table| vec![("device_id", t.device_id.to_string()), ("table", t.name.clone())];
    let entries = tables.iter().map(|t| (table(t), t.entries)).collect();
    family(e, "table_entries", "Entries in the table", gauges(entries))?;
    let memory = tables.iter().filter_map(|t| Some((table(t), t.memory_bytes?))).collect();
    family(e, "table_memory_bytes", "About how much memory the table's entries take", gauges(memory))?;
    let sizes = tables.iter().map(|t| (table(t), t.size)).collect();
    family(e, "table_size", "Entries that the table can have", gauges(sizes))?;
    let lookups = tables.iter().flat_map(|t| {
        let of = |result: &str, value: Option<u64>| {
            let mut labels = table(t);
            labels.push(("result", result.to_string()));
            value.map(|value| (labels, value))
        };
        [of("hit", t.hits), of("miss", t.misses)].into_iter().flatten()
    });
    family(e, "table_lookups", "Lookups, by whether an entry matched", counters(lookups.collect()))
}

fn links(e: &mut DescriptorEncoder<'_>, links: &[pb::Link]) -> fmt::Result {
    let of = |value: fn(&pb::Link) -> u64| {
        let end = |end: Option<pb::DevicePort>| end.map_or(String::new(), |e| format!("{}:{}", e.device_id, e.port));
        let link = |l: &pb::Link| (vec![("from", end(l.from)), ("to", end(l.to))], value(l));
        counters(links.iter().map(link).collect::<Vec<_>>())
    };
    family(e, "link_packets", "Packets that went from one device to another", of(|l| l.packets))?;
    family(e, "link_bytes", "Bytes that went from one device to another", of(|l| l.bytes))
}

/// Writes the counters that exist only while the switch is watched.
fn watched(e: &mut DescriptorEncoder<'_>, watched: &pb::Watched) -> fmt::Result {
    let action = |a: &pb::Action| {
        let id = ("device_id", a.device_id.to_string());
        (vec![id, ("table", a.table.clone()), ("action", a.action.clone())], a.packets)
    };
    let actions = counters(watched.actions.iter().map(action).collect());
    family(e, "action_packets", "Packets that a table ran an action for while somebody watched", actions)?;
    let part = |p: &pb::Part| {
        (vec![("device_id", p.device_id.to_string()), ("kind", p.kind.clone()), ("name", p.name.clone())], p.cycles)
    };
    let parts = counters(watched.parts.iter().map(part).collect());
    family(e, "part_cycles", "Where cycles went while somebody watched, estimated from samples", parts)
}

/// A use of a worker's cycles: its name, and the function that reads it.
type Part = (&'static str, fn(&pb::Worker) -> u64);

fn workers(e: &mut DescriptorEncoder<'_>, workers: &[pb::Worker]) -> fmt::Result {
    let of = |value: fn(&pb::Worker) -> u64| {
        let worker = |(i, w): (usize, &pb::Worker)| (vec![("worker", i.to_string())], value(w));
        counters(workers.iter().enumerate().map(worker).collect::<Vec<_>>())
    };
    family(e, "worker_packets", "Packets received", of(|w| w.packets))?;
    family(e, "worker_bursts", "Groups of packets received together", of(|w| w.bursts))?;
    let parts: [Part; 4] = [
        ("receive", |w| w.receive_cycles),
        ("pipeline", |w| w.pipeline_cycles),
        ("send", |w| w.send_cycles),
        ("idle", |w| w.idle_cycles),
    ];
    let cycles = workers.iter().enumerate().flat_map(|(i, w)| {
        parts.map(|(part, value)| (vec![("worker", i.to_string()), ("part", part.to_string())], value(w)))
    });
    let help =
        "Where the time went, in ticks of the time stamp counter: per packet with worker_packets, load without idle";
    family(e, "worker_cycles", help, counters(cycles.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_line() {
        let counters = |n| Some(pb::Counters { packets: n, bytes: 64 * n, dropped: 1, errors: 0 });
        let stats = AdminStats {
            uptime_us: 2_500_000,
            ports: vec![pb::Port {
                number: 1,
                name: "veth \"0\"".into(),
                kind: "af_packet".into(),
                link_up: true,
                speed_mbps: Some(10_000),
                rx: counters(7),
                tx: counters(5),
                device_id: 1,
                queues: crate::queues::tests::port(100).queues,
                ..Default::default()
            }],
            tables: vec![pb::Table {
                name: "I.t".into(),
                entries: 3,
                size: 9,
                hits: Some(4),
                misses: Some(2),
                device_id: 1,
                memory_bytes: Some(4096),
            }],
            buffers: Some(pb::Buffers { in_use: 300, total: 4096 }),
            drops: vec![pb::Drop { reason: "no such port".into(), packets: 11, device_id: 2 }],
            workers: vec![pb::Worker { packets: 7, pipeline_cycles: 700, ..Default::default() }],
            code: None,
            program_changes: 3,
            devices: vec![
                pb::Device { id: 1, runs: true, program_changes: 2, ..Default::default() },
                pb::Device { id: 2, ..Default::default() },
            ],
            links: vec![pb::Link {
                from: Some(pb::DevicePort { device_id: 1, port: 10 }),
                to: Some(pb::DevicePort { device_id: 2, port: 3 }),
                packets: 8,
                bytes: 480,
                queues: crate::queues::tests::port(5).queues,
            }],
            tenants: vec![crate::queues::tenant_of_tests(40)],
            shared_packets: 0,
            watched: Some(pb::Watched {
                actions: vec![pb::Action { device_id: 1, table: "I.t".into(), action: "I.a".into(), packets: 4 }],
                parts: vec![pb::Part {
                    device_id: 1,
                    kind: "table".into(),
                    name: "I.t".into(),
                    samples: 2,
                    cycles: 70,
                }],
                ..Default::default()
            }),
        };
        let rpcs = vec![("Write".to_string(), "Ok".to_string(), 6)];
        let text = text(Observed { stats, rpcs, lost_events: Default::default() });
        for line in [
            "sluice_uptime_seconds 2.5",
            r#"sluice_action_packets_total{device_id="1",table="I.t",action="I.a"} 4"#,
            r#"sluice_part_cycles_total{device_id="1",kind="table",name="I.t"} 70"#,
            r#"sluice_port_up{device_id="1",port="1",device="veth \"0\"",kind="af_packet"} 1.0"#,
            r#"sluice_port_speed_bytes_per_second{device_id="1",port="1",device="veth \"0\"",kind="af_packet"} 1250000000.0"#,
            r#"sluice_port_packets_total{device_id="1",port="1",device="veth \"0\"",kind="af_packet",direction="receive"} 7"#,
            r#"sluice_port_bytes_total{device_id="1",port="1",device="veth \"0\"",kind="af_packet",direction="send"} 320"#,
            r#"sluice_queue_depth_packets{device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="0"} 7.0"#,
            r#"sluice_queue_depth_bytes{device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="0"} 700.0"#,
            r#"sluice_queue_sent_packets_total{device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="0"} 100"#,
            r#"sluice_queue_sent_bytes_total{device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="1"} 0"#,
            r#"sluice_queue_dropped_packets_total{device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="0",cause="red"} 50"#,
            r#"sluice_queue_wait_seconds_count{device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="0"} 100"#,
            r#"sluice_queue_wait_seconds_bucket{le="0.000002",device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="0"} 50"#,
            r#"sluice_queue_wait_seconds_bucket{le="+Inf",device_id="1",port="1",device="veth \"0\"",kind="af_packet",queue="0"} 100"#,
            r#"sluice_queue_sent_packets_total{device_id="1",port="10",device="2:3",kind="link",queue="0"} 5"#,
            r#"sluice_tenant_depth_packets{tenant="red"} 7.0"#,
            r#"sluice_tenant_dropped_packets_total{tenant="red",cause="limit"} 40"#,
            r#"sluice_tenant_dropped_bytes_total{tenant="red",cause="buffer"} 2000"#,
            r#"sluice_table_entries{device_id="1",table="I.t"} 3.0"#,
            r#"sluice_table_memory_bytes{device_id="1",table="I.t"} 4096.0"#,
            "sluice_buffers_in_use 300.0",
            r#"sluice_table_lookups_total{device_id="1",table="I.t",result="miss"} 2"#,
            r#"sluice_dropped_packets_total{device_id="2",reason="no such port"} 11"#,
            r#"sluice_worker_cycles_total{worker="0",part="pipeline"} 700"#,
            r#"sluice_program_changes_total{device_id="1"} 2"#,
            r#"sluice_link_packets_total{from="1:10",to="2:3"} 8"#,
            r#"sluice_rpcs_total{method="Write",code="Ok"} 6"#,
        ] {
            assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        lint(&grpc::metrics::plain(&text));
    }

    /// Checks what `promtool check metrics` checks: help for each family, `_total` on counters and nothing else, base
    /// units.
    fn lint(text: &str) {
        let families: Vec<(&str, &str)> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        assert!(families.len() > 15, "{text}");
        for (name, kind) in families {
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            let help = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
            assert_eq!(help.filter(|(of, help)| *of == name && help.len() > 8).count(), 1, "{name} has no help");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
            for word in name.split('_') {
                let wrong = ["bits", "minutes", "hours", "milliseconds", "ms", "us", "kb", "sec", "counter", "gauge"];
                assert!(!wrong.contains(&word), "{name} says `{word}`");
            }
        }
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }
}
