//! Statistics that a switch collects only while it is watched (`sluice stats --profile`, `sluice top`, `--profile`):
//! how often actions ran, and how many cycles the parts of the program took.
//!
//! Action counts are exact; cycles are estimated by sampling the workers (`datapath::watch`). What is shown is the
//! difference between two readings. The workers' own counters also give the cycles spent in the program in total. The
//! part of these that the samples do not attribute to the program, shown as `the switch itself`, is spent in the
//! replication engine or in code compiled before the switch was watched.
//!
//! Tests: below; `tests/py/test_operations.py` with a running switch.

use datapath::Switch;
use grpc::admin::AdminStats;
use messages::sluice::v1 as pb;

/// Reads the statistics; `None` if the switch has not been watched so far.
pub fn collect(switch: &Switch) -> Option<pb::Watched> {
    let watched = switch.watched();
    if !watched.now && watched.samples == 0 {
        return None;
    }
    let actions = |device_id: u64| {
        let action = move |a: datapath::ActionInfo| pb::Action {
            device_id,
            table: a.table,
            action: a.action,
            packets: a.packets,
        };
        switch.actions(device_id).into_iter().map(action)
    };
    let part = |r: datapath::RegionCycles| {
        let (kind, name) = r.region.split_once(':').unwrap_or((&r.region, ""));
        pb::Part {
            device_id: r.device,
            kind: kind.to_string(),
            name: name.to_string(),
            samples: r.samples,
            cycles: r.cycles as u64,
        }
    };
    Some(pb::Watched {
        now: watched.now,
        actions: switch.devices().into_iter().flat_map(actions).collect(),
        parts: watched.regions.into_iter().map(part).collect(),
        samples: watched.samples,
    })
}

/// Returns the increase of a counter; one that decreased belongs to another program and counts from zero.
fn grown(before: u64, now: u64) -> u64 {
    if now >= before { now - before } else { now }
}

/// An action of a table and its runs between two readings.
#[derive(Clone, PartialEq, Debug)]
pub struct ActionRow {
    /// The device.
    pub device: u64,
    /// The table.
    pub table: String,
    /// The action.
    pub action: String,
    /// The packets that ran it.
    pub packets: u64,
    /// Their share of the packets that ran any action of the table, in per cent.
    pub share: f64,
}

/// Returns the actions that ran between two readings, most frequent first.
pub fn actions(before: &AdminStats, now: &AdminStats) -> Vec<ActionRow> {
    let none = pb::Watched::default();
    let (before, now) = (before.watched.as_ref().unwrap_or(&none), now.watched.as_ref().unwrap_or(&none));
    let ran = |a: &pb::Action| {
        let same = |b: &&pb::Action| (b.device_id, &b.table, &b.action) == (a.device_id, &a.table, &a.action);
        grown(before.actions.iter().find(same).map_or(0, |b| b.packets), a.packets)
    };
    let all: Vec<(&pb::Action, u64)> = now.actions.iter().map(|a| (a, ran(a))).collect();
    let of_table = |a: &pb::Action| {
        let same = |(b, _): &&(&pb::Action, u64)| (b.device_id, &b.table) == (a.device_id, &a.table);
        all.iter().filter(same).map(|(_, packets)| packets).sum::<u64>()
    };
    let row = |(a, packets): &(&pb::Action, u64)| ActionRow {
        device: a.device_id,
        table: a.table.clone(),
        action: a.action.clone(),
        packets: *packets,
        share: 100.0 * *packets as f64 / of_table(a) as f64,
    };
    let mut rows: Vec<ActionRow> = all.iter().filter(|(_, packets)| *packets > 0).map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
    rows
}

/// A part of the program or switch, and its cycles between two readings.
#[derive(Clone, PartialEq, Debug)]
pub struct StageRow {
    /// The device; `None` for parts of the switch itself.
    pub device: Option<u64>,
    /// `receive`, `state P.start`, `table I.dst`, ...
    pub part: String,
    /// Cycles per received packet.
    pub cycles_per_packet: f64,
    /// The share of all cycles but idle ones, in per cent.
    pub share: f64,
    /// The number of samples; `None` if the cycles were counted, not sampled.
    pub samples: Option<u64>,
}

impl StageRow {
    /// Returns the row as an object.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "device_id": self.device, "part": self.part, "cycles_per_packet": self.cycles_per_packet,
            "percent": self.share, "samples": self.samples,
        })
    }
}

/// Kinds of parts, in the order of a packet's path.
const ORDER: [&str; 7] = ["state", "parser", "table", "action", "control", "deparser", "loop"];

fn spelled(part: &pb::Part) -> String {
    match part.kind.as_str() {
        "loop" => "loop around packets".to_string(),
        kind => format!("{kind} {}", part.name),
    }
}

/// Returns the cycles of each part, from receiving to sending; empty if no packet was received or the switch was not
/// watched.
pub fn stages(before: &AdminStats, now: &AdminStats) -> Vec<StageRow> {
    let sum = |value: fn(&pb::Worker) -> u64| {
        let of = |(i, w): (usize, &pb::Worker)| grown(before.workers.get(i).map_or(0, value), value(w));
        now.workers.iter().enumerate().map(of).sum::<u64>() as f64
    };
    let packets = sum(|w| w.packets);
    let (receive, program, send) = (sum(|w| w.receive_cycles), sum(|w| w.pipeline_cycles), sum(|w| w.send_cycles));
    let Some(watched) = now.watched.as_ref().filter(|_| packets > 0.0) else { return Vec::new() };
    let none = pb::Watched::default();
    let was = before.watched.as_ref().unwrap_or(&none);
    let row = |device, part: String, cycles: f64, samples| StageRow {
        device,
        part,
        cycles_per_packet: cycles / packets,
        share: 100.0 * cycles / (receive + program + send).max(1.0),
        samples,
    };
    let mut parts: Vec<(usize, StageRow)> = Vec::new();
    let mut found = 0.0;
    for part in &watched.parts {
        let same = |b: &&pb::Part| (b.device_id, &b.kind, &b.name) == (part.device_id, &part.kind, &part.name);
        let old = was.parts.iter().find(same);
        let cycles = grown(old.map_or(0, |b| b.cycles), part.cycles) as f64;
        let samples = grown(old.map_or(0, |b| b.samples), part.samples);
        if samples > 0 {
            found += cycles;
            let order = ORDER.iter().position(|kind| *kind == part.kind).unwrap_or(ORDER.len());
            parts.push((order, row(Some(part.device_id), spelled(part), cycles, Some(samples))));
        }
    }
    if parts.is_empty() {
        return Vec::new();
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cycles_per_packet.total_cmp(&a.1.cycles_per_packet)));
    let mut rows = vec![row(None, "receive".to_string(), receive, None)];
    rows.extend(parts.into_iter().map(|(_, row)| row));
    rows.push(row(None, "the switch itself".to_string(), (program - found).max(0.0), None));
    rows.push(row(None, "send".to_string(), send, None));
    rows
}

/// Returns the statistics as JSON: the counters, not differences.
pub fn to_json(watched: &pb::Watched) -> serde_json::Value {
    use serde_json::json;
    let action = |a: &pb::Action| json!({ "device_id": a.device_id, "table": a.table, "action": a.action, "packets": a.packets });
    let part = |p: &pb::Part| {
        json!({
            "device_id": p.device_id, "kind": p.kind, "name": p.name, "samples": p.samples, "cycles": p.cycles,
        })
    };
    json!({
        "now": watched.now,
        "samples": watched.samples,
        "actions": watched.actions.iter().map(action).collect::<Vec<_>>(),
        "parts": watched.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a reading after `n` packets: a quarter run `deny` of `I.acl`, and each costs 100 cycles.
    pub fn reading(n: u64) -> AdminStats {
        let action =
            |action: &str, packets| pb::Action { device_id: 1, table: "I.acl".into(), action: action.into(), packets };
        let part = |kind: &str, name: &str, each: u64| pb::Part {
            device_id: 1,
            kind: kind.into(),
            name: name.into(),
            samples: n / 10,
            cycles: each * n,
        };
        AdminStats {
            workers: vec![pb::Worker {
                packets: n,
                bursts: n / 10,
                receive_cycles: 20 * n,
                pipeline_cycles: 70 * n,
                send_cycles: 10 * n,
                idle_cycles: 1000,
            }],
            watched: Some(pb::Watched {
                now: true,
                samples: n,
                actions: vec![action("I.deny", n / 4), action("I.permit", n - n / 4), action("NoAction", 0)],
                parts: vec![
                    part("action", "I.permit", 5),
                    part("loop", "", 2),
                    part("state", "P.start", 8),
                    part("table", "I.acl", 40),
                ],
            }),
            ..AdminStats::default()
        }
    }

    #[test]
    fn actions_have_their_shares_of_their_table() {
        let rows = actions(&reading(100), &reading(500));
        let short: Vec<_> = rows.iter().map(|r| (r.action.as_str(), r.packets, r.share)).collect();
        assert_eq!(short, [("I.permit", 300, 75.0), ("I.deny", 100, 25.0)]);
        assert_eq!(actions(&reading(0), &AdminStats::default()), [], "nobody watches");
    }

    #[test]
    fn cycles_add_up_to_what_the_workers_say() {
        let rows = stages(&reading(100), &reading(500));
        let short: Vec<_> = rows.iter().map(|r| (r.part.as_str(), r.cycles_per_packet, r.samples)).collect();
        let expected = [
            ("receive", 20.0, None),
            ("state P.start", 8.0, Some(40)),
            ("table I.acl", 40.0, Some(40)),
            ("action I.permit", 5.0, Some(40)),
            ("loop around packets", 2.0, Some(40)),
            ("the switch itself", 15.0, None),
            ("send", 10.0, None),
        ];
        assert_eq!(short, expected);
        let shares: f64 = rows.iter().map(|r| r.share).sum();
        assert!((shares - 100.0).abs() < 1e-9, "{shares}");
        assert_eq!(stages(&reading(500), &reading(500)), [], "no packets came");
    }
}
