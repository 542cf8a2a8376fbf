//! The contents of `sluice top`: tables of text made from two readings of the counters.
//!
//! A counter that decreased (another switch, another program) counts from zero. Tests: at the end of the file.

use crate::queues::{Owner, dropped, owners, quantile, since, spell};
use crate::watched;
use grpc::admin::AdminStats;
use messages::sluice::v1 as pb;
use serde_json::{Value, json};

/// What tables are ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Sort {
    /// Hits a second, most first.
    #[default]
    Hits,
    /// Misses a second, most first.
    Misses,
    /// Entries, most first.
    Entries,
    /// The name.
    Name,
}

impl Sort {
    const ALL: [Sort; 4] = [Sort::Hits, Sort::Misses, Sort::Entries, Sort::Name];

    /// Returns the order's name.
    pub fn name(self) -> &'static str {
        ["hits", "misses", "entries", "name"][self as usize]
    }

    /// Returns the next order.
    pub fn next(self) -> Sort {
        Sort::ALL[(self as usize + 1) % Sort::ALL.len()]
    }
}

/// A table of text; the first column is left-aligned, the others right-aligned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// The title.
    pub title: String,
    /// Names of columns.
    pub header: Vec<String>,
    /// Rows of one cell per column.
    pub rows: Vec<Vec<String>>,
    /// The same rows as objects, with unrounded numbers.
    pub objects: Vec<Value>,
}

/// A row and its object.
type Both = (Vec<String>, Value);

impl Section {
    fn new(title: &str, header: &[&str], rows: impl Iterator<Item = Both>) -> Section {
        let words = |row: Vec<String>| row.iter().map(|cell| crate::output::word(cell)).collect();
        let (rows, objects) = rows.map(|(row, object)| (words(row), object)).unzip();
        Section { title: title.to_string(), header: header.iter().map(|h| h.to_string()).collect(), rows, objects }
    }

    /// Returns the width of each column, in characters.
    pub fn widths(&self) -> Vec<usize> {
        let width = |i: usize| self.rows.iter().chain([&self.header]).map(|row| row[i].chars().count()).max();
        (0..self.header.len()).map(|i| width(i).unwrap_or(0)).collect()
    }

    /// Returns a row's cells, padded to the width of their columns.
    pub fn padded(&self, row: &[String]) -> Vec<String> {
        let pad = |(i, (cell, width)): (usize, (&String, usize))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        };
        row.iter().zip(self.widths()).enumerate().map(pad).collect()
    }

    /// Returns the table as lines.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        if self.rows.is_empty() {
            return text + "  none\n";
        }
        for row in [&self.header].into_iter().chain(&self.rows) {
            text += &format!("  {}\n", self.padded(row).join("  ").trim_end());
        }
        text
    }
}

/// Everything that is shown.
pub struct View {
    /// A summary in one line.
    pub heading: String,
    /// The time between the readings, in seconds.
    pub seconds: f64,
    /// Ports, tables, actions, parts of the program, workers, drops, queues, tenants.
    pub sections: [Section; 8],
}

/// The sections' names in objects.
const NAMES: [&str; 8] = ["ports", "tables", "actions", "parts", "workers", "drops", "queues", "tenants"];

impl View {
    /// Returns the view of the time between `before` and `now`. Cycles are those since `old`, because they need many
    /// samples.
    pub fn new(old: &AdminStats, before: &AdminStats, now: &AdminStats, sort: Sort) -> View {
        let seconds = now.uptime_us.saturating_sub(before.uptime_us) as f64 / 1e6;
        let rate = Rate { seconds };
        let up = now.uptime_us / 1_000_000;
        let code = now.code.as_ref().map_or(String::new(), |code| {
            let what = if code.specialised { "for the tables as they are" } else { "for any tables" };
            format!(", code {what} ({})", code.strategy)
        });
        View {
            seconds,
            heading: format!(
                "up {}:{:02}:{:02}, program change {}{code}",
                up / 3600,
                up / 60 % 60,
                up % 60,
                now.program_changes
            ),
            sections: [
                ports(before, now, &rate),
                tables(before, now, &rate, sort),
                actions(before, now, &rate),
                parts(old, now),
                workers(before, now),
                drops(before, now, &rate),
                queues(before, now, &rate),
                tenants(before, now, &rate),
            ],
        }
    }

    /// Returns the view as lines; queues and tenants only if there are any.
    pub fn text(&self) -> String {
        let is_shown = |s: &&Section| !s.rows.is_empty() || !matches!(s.title.as_str(), "queues" | "tenants");
        let shown = self.sections.iter().filter(is_shown);
        let sections: Vec<String> = shown.map(|section| format!("\n{}", section.text())).collect();
        format!("{}\n{}", self.heading, sections.concat()).trim_end().to_string()
    }

    /// Returns the view as an object.
    pub fn json(&self) -> Value {
        let sections = NAMES.iter().zip(&self.sections);
        let mut all: serde_json::Map<String, Value> =
            sections.map(|(name, section)| (name.to_string(), section.objects.clone().into())).collect();
        all.insert("seconds".to_string(), self.seconds.into());
        all.into()
    }
}

struct Rate {
    seconds: f64,
}

impl Rate {
    /// Returns the increase of a counter per second.
    fn of(&self, before: u64, now: u64) -> f64 {
        let grown = if now >= before { now - before } else { now };
        if self.seconds > 0.0 { grown as f64 / self.seconds } else { 0.0 }
    }
}

/// Formats a number: `12.3 M`.
fn short(value: f64) -> String {
    let units = ["", " k", " M", " G", " T"];
    let mut unit = 0;
    let mut value = value;
    while value >= 9999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0}"),
        _ => format!("{value:.1}{}", units[unit]),
    }
}

/// Returns a name, prefixed with its device's id if there are several devices.
fn of_device(now: &AdminStats, device: u64, name: &str) -> String {
    if now.devices.len() > 1 { format!("{device}: {name}") } else { name.to_string() }
}

fn ports(before: &AdminStats, now: &AdminStats, rate: &Rate) -> Section {
    let row = |p: &pb::Port| {
        let was = before.ports.iter().find(|b| b.number == p.number).cloned().unwrap_or_default();
        let (rx, tx) = (p.rx.unwrap_or_default(), p.tx.unwrap_or_default());
        let (rx_was, tx_was) = (was.rx.unwrap_or_default(), was.tx.unwrap_or_default());
        let names = ["rx_packets", "rx_bits", "rx_lost", "tx_packets", "tx_bits", "tx_lost"];
        let rates = [
            rate.of(rx_was.packets, rx.packets),
            8.0 * rate.of(rx_was.bytes, rx.bytes),
            rate.of(rx_was.dropped + rx_was.errors, rx.dropped + rx.errors),
            rate.of(tx_was.packets, tx.packets),
            8.0 * rate.of(tx_was.bytes, tx.bytes),
            rate.of(tx_was.dropped, tx.dropped),
        ];
        let mut object = json!({ "device_id": p.device_id, "number": p.number, "name": p.name, "link_up": p.link_up });
        names.iter().zip(rates).for_each(|(name, rate)| object[format!("{name}_per_second")] = rate.into());
        let port = of_device(now, p.device_id, &format!("{} {}", p.number, p.name));
        let link = if p.link_up { "up" } else { "down" };
        ([port, link.to_string()].into_iter().chain(rates.map(short)).collect(), object)
    };
    let header = ["port", "link", "rx pkt/s", "rx bit/s", "rx lost/s", "tx pkt/s", "tx bit/s", "tx lost/s"];
    Section::new("ports", &header, now.ports.iter().map(row))
}

fn queues(before: &AdminStats, now: &AdminStats, rate: &Rate) -> Section {
    let row = |(p, number, q): (&Owner<'_>, usize, &pb::QueueCounters)| {
        let of = |all: &AdminStats| {
            owners(all).find(|before| before.at == p.at).and_then(|before| before.queues.queues.get(number).cloned())
        };
        let was = of(before).unwrap_or_default();
        let count = |count: Option<pb::Count>| count.unwrap_or_default();
        let (depth, sent, sent_was) = (count(q.depth), count(q.sent), count(was.sent));
        let packets = rate.of(sent_was.packets, sent.packets);
        let bits = 8.0 * rate.of(sent_was.bytes, sent.bytes);
        let marked = rate.of(count(was.marked).packets, count(q.marked).packets);
        let dropped = dropped(&was).into_iter().zip(dropped(q));
        let dropped: Vec<(&str, f64)> =
            dropped.map(|((cause, was), (_, now))| (cause, rate.of(was.packets, now.packets))).collect();
        let waited = since(&q.waited, &was.waited);
        let waited = [0.5, 0.99].map(|fraction| quantile(&waited, fraction));
        let mut object = json!({
            "device_id": p.device_id, "port": p.port, "name": p.name, "kind": p.kind, "queue": number,
            "depth_packets": depth.packets, "depth_bytes": depth.bytes, "sent_packets_per_second": packets,
            "sent_bits_per_second": bits, "marked_per_second": marked, "waited_ns_p50": waited[0], "waited_ns_p99": waited[1],
        });
        for (cause, rate) in &dropped {
            object[format!("dropped_{cause}_per_second")] = (*rate).into();
        }
        let causes: Vec<String> = dropped
            .iter()
            .filter(|(_, rate)| *rate > 0.0)
            .map(|(cause, rate)| format!("{} {}", short(*rate), if *cause == "red" { "RED" } else { *cause }))
            .collect();
        let causes = if causes.is_empty() { "0".to_string() } else { causes.join(", ") };
        let queue = match p.kind {
            "link" => format!("{} to {}: {number}", p.at, p.name),
            _ => of_device(now, p.device_id, &format!("{} {}: {number}", p.at, p.name)),
        };
        let numbers = [depth.packets as f64, depth.bytes as f64, packets, bits].map(short);
        let mut cells = vec![queue];
        cells.extend(numbers);
        cells.extend([causes, short(marked)]);
        cells.extend(waited.map(spell));
        (cells, object)
    };
    let all: Vec<Owner<'_>> = owners(now).collect();
    let each = |p| Owner::queues(p).map(move |(number, queue)| (p, number, queue));
    let header = ["port: queue", "packets", "bytes", "pkt/s", "bit/s", "drops/s", "marked/s", "waited 50 %", "99 %"];
    Section::new("queues", &header, all.iter().flat_map(each).map(row))
}

fn tenants(before: &AdminStats, now: &AdminStats, rate: &Rate) -> Section {
    let row = |t: &pb::Tenant| {
        let was = before.tenants.iter().find(|b| b.name == t.name).cloned().unwrap_or_default();
        let packets = |count: Option<pb::Count>| count.unwrap_or_default().packets;
        let depth = t.depth.unwrap_or_default();
        let limit = rate.of(packets(was.dropped_limit), packets(t.dropped_limit));
        let buffer = rate.of(packets(was.dropped_buffer), packets(t.dropped_buffer));
        let object = json!({
            "name": t.name, "depth_packets": depth.packets, "depth_bytes": depth.bytes,
            "highest_packets": packets(t.highest), "dropped_limit_per_second": limit,
            "dropped_buffer_per_second": buffer,
        });
        let numbers = [depth.packets as f64, depth.bytes as f64, packets(t.highest) as f64, limit, buffer].map(short);
        ([t.name.clone()].into_iter().chain(numbers).collect(), object)
    };
    let header = ["tenant", "packets", "bytes", "highest", "limit drops/s", "buffer drops/s"];
    Section::new("tenants", &header, now.tenants.iter().map(row))
}

fn tables(before: &AdminStats, now: &AdminStats, rate: &Rate, sort: Sort) -> Section {
    let mut all: Vec<(f64, f64, &pb::Table)> = now
        .tables
        .iter()
        .map(|t| {
            let same = |b: &&pb::Table| (b.device_id, &b.name) == (t.device_id, &t.name);
            let was = before.tables.iter().find(same).cloned().unwrap_or_default();
            let of = |before: Option<u64>, now: Option<u64>| rate.of(before.unwrap_or(0), now.unwrap_or(0));
            (of(was.hits, t.hits), of(was.misses, t.misses), t)
        })
        .collect();
    match sort {
        Sort::Hits => all.sort_by(|a, b| b.0.total_cmp(&a.0)),
        Sort::Misses => all.sort_by(|a, b| b.1.total_cmp(&a.1)),
        Sort::Entries => all.sort_by_key(|(.., t)| std::cmp::Reverse(t.entries)),
        Sort::Name => all.sort_by(|a, b| a.2.name.cmp(&b.2.name)),
    }
    let row = |(hits, misses, t): (f64, f64, &pb::Table)| {
        let share = 100.0 * hits / (hits + misses);
        let share = if share.is_nan() { "-".to_string() } else { format!("{share:.1} %") };
        let counted = t.hits.is_some();
        let cell = |value: f64| if counted { short(value) } else { "-".to_string() };
        let full = format!("{:.1} %", 100.0 * t.entries as f64 / t.size.max(1) as f64);
        let text =
            vec![of_device(now, t.device_id, &t.name), cell(hits), cell(misses), share, t.entries.to_string(), full];
        let value = |value: f64| counted.then_some(value);
        let object = json!({
            "device_id": t.device_id, "table": t.name, "hits_per_second": value(hits), "misses_per_second": value(misses),
            "entries": t.entries, "size": t.size,
        });
        (text, object)
    };
    let header = ["table", "hits/s", "misses/s", "hit", "entries", "full"];
    Section::new("tables", &header, all.into_iter().map(row))
}

fn actions(before: &AdminStats, now: &AdminStats, rate: &Rate) -> Section {
    let row = |row: watched::ActionRow| {
        let table = of_device(now, row.device, &row.table);
        let packets = rate.of(0, row.packets);
        let object = json!({
            "device_id": row.device, "table": row.table, "action": row.action, "packets_per_second": packets,
            "percent_of_table": row.share,
        });
        (vec![format!("{table}: {}", row.action), short(packets), format!("{:.1} %", row.share)], object)
    };
    let rows = watched::actions(before, now).into_iter().map(row);
    Section::new("actions", &["table: action", "pkt/s", "of the table's"], rows)
}

fn parts(old: &AdminStats, now: &AdminStats) -> Section {
    let row = |row: watched::StageRow| {
        let object = row.json();
        let part = row.device.map_or(row.part.clone(), |device| of_device(now, device, &row.part));
        let samples = row.samples.map_or("-".to_string(), |n| n.to_string());
        (vec![part, format!("{:.1}", row.cycles_per_packet), format!("{:.1} %", row.share), samples], object)
    };
    let rows: Vec<Both> = watched::stages(old, now).into_iter().map(row).collect();
    let seconds = now.uptime_us.saturating_sub(old.uptime_us) as f64 / 1e6;
    let title = if rows.is_empty() { "cycles".to_string() } else { format!("cycles, sampled for {seconds:.0} s") };
    Section::new(&title, &["part", "cycles/pkt", "of all", "samples"], rows.into_iter())
}

fn workers(before: &AdminStats, now: &AdminStats) -> Section {
    let row = |(i, w): (usize, &pb::Worker)| {
        let was = before.workers.get(i).copied().unwrap_or_default();
        let grown = |before: u64, now: u64| if now >= before { now - before } else { now };
        let packets = grown(was.packets, w.packets);
        let parts = [
            grown(was.receive_cycles, w.receive_cycles),
            grown(was.pipeline_cycles, w.pipeline_cycles),
            grown(was.send_cycles, w.send_cycles),
        ];
        let busy: u64 = parts.iter().sum();
        let all = busy + grown(was.idle_cycles, w.idle_cycles);
        let load = 100.0 * busy as f64 / all.max(1) as f64;
        let bursts = grown(was.bursts, w.bursts);
        let each = |cycles: u64, of: u64| (of > 0).then(|| cycles as f64 / of as f64);
        let object = json!({
            "worker": i, "load_percent": load, "receive_cycles_per_packet": each(parts[0], packets),
            "program_cycles_per_packet": each(parts[1], packets), "send_cycles_per_packet": each(parts[2], packets),
            "packets_per_burst": each(packets, bursts),
        });
        let mut row = vec![i.to_string(), format!("{load:.1} %")];
        let per = |cycles, of| each(cycles, of).map_or("-".to_string(), |each| format!("{each:.0}"));
        row.extend(parts.iter().map(|cycles| per(*cycles, packets)));
        row.push(per(packets, bursts));
        (row, object)
    };
    let header = ["worker", "load", "cycles/pkt receive", "program", "send", "pkt/burst"];
    Section::new("workers", &header, now.workers.iter().enumerate().map(row))
}

fn drops(before: &AdminStats, now: &AdminStats, rate: &Rate) -> Section {
    let was = |d: &pb::Drop| {
        let same = |b: &&pb::Drop| (b.device_id, &b.reason) == (d.device_id, &d.reason);
        before.drops.iter().find(same).map_or(0, |d| d.packets)
    };
    let mut all: Vec<(f64, &pb::Drop)> =
        now.drops.iter().filter(|d| d.packets > 0).map(|d| (rate.of(was(d), d.packets), d)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.packets.cmp(&a.1.packets)));
    let row = |(rate, d): (f64, &pb::Drop)| {
        let object =
            json!({ "device_id": d.device_id, "reason": d.reason, "packets_per_second": rate, "packets": d.packets });
        (vec![of_device(now, d.device_id, &d.reason), short(rate), d.packets.to_string()], object)
    };
    Section::new("drops", &["reason", "pkt/s", "packets"], all.into_iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn what_grew_between_two_readings() {
        let counters = |packets| Some(pb::Counters { packets, bytes: packets * 100, dropped: 0, errors: 0 });
        let table = |name: &str, hits, misses| pb::Table {
            name: name.into(),
            entries: 5,
            size: 10,
            hits: Some(hits),
            misses: Some(misses),
            device_id: 1,
            ..Default::default()
        };
        let port =
            |rx| pb::Port { number: 1, name: "veth0".into(), link_up: true, rx: counters(rx), ..Default::default() };
        let worker = |n| pb::Worker {
            packets: n,
            bursts: n / 32,
            pipeline_cycles: 50 * n,
            idle_cycles: 150 * n,
            ..Default::default()
        };
        let drop = |packets| pb::Drop { reason: "no such port".into(), packets, device_id: 1 };
        let reading = |seconds: u64, n: u64| AdminStats {
            uptime_us: seconds * 1_000_000,
            ports: vec![port(n)],
            tables: vec![table("I.rare", n / 100, 0), table("I.often", n, n / 2)],
            drops: vec![drop(n / 10), pb::Drop { reason: "never".into(), packets: 0, device_id: 1 }],
            workers: vec![worker(n)],
            code: None,
            program_changes: 1,
            ..AdminStats::default()
        };
        let view = View::new(&reading(3600, 1000), &reading(3600, 1000), &reading(3602, 65_000), Sort::Hits);
        let text: String = view.sections[..6].iter().map(Section::text).collect();
        expect![[r#"
            ports
              port     link  rx pkt/s  rx bit/s  rx lost/s  tx pkt/s  tx bit/s  tx lost/s
              1 veth0    up    32.0 k    25.6 M          0         0         0          0
            tables
              table    hits/s  misses/s      hit  entries    full
              I.often  32.0 k    16.0 k   66.7 %        5  50.0 %
              I.rare      320         0  100.0 %        5  50.0 %
            actions
              none
            cycles
              none
            workers
              worker    load  cycles/pkt receive  program  send  pkt/burst
              0       25.0 %                   0       50     0         32
            drops
              reason        pkt/s  packets
              no such port   3200     6500
        "#]]
        .assert_eq(&text);
        assert_eq!(view.heading, "up 1:00:02, program change 1");
        let json = view.json();
        assert_eq!(json["seconds"], 2.0);
        assert_eq!(json["ports"][0]["rx_packets_per_second"], 32_000.0);
        assert_eq!(
            (&json["tables"][0]["table"], &json["tables"][0]["hits_per_second"]),
            (&"I.often".into(), &32_000.0.into())
        );
        assert_eq!((&json["drops"][0]["packets"], &json["parts"]), (&6500.into(), &json!([])));
        let by_name = View::new(&reading(1, 1000), &reading(1, 1000), &reading(2, 0), Sort::Name);
        assert_eq!(
            by_name.sections[1].rows[0][..2],
            ["I.often".to_string(), "0".to_string()],
            "a counter that went back"
        );
        let mut watched = [0, 100, 300].map(crate::watched::tests::reading);
        watched.iter_mut().zip([0, 8, 10]).for_each(|(reading, s)| reading.uptime_us = s * 1_000_000);
        let [old, before, now] = &watched;
        let view = View::new(old, before, now, Sort::Hits);
        let text: String = view.sections[2..4].iter().map(Section::text).collect();
        expect![[r#"
            actions
              table: action    pkt/s  of the table's
              I.acl: I.permit     75          75.0 %
              I.acl: I.deny       25          25.0 %
            cycles, sampled for 10 s
              part                 cycles/pkt  of all  samples
              receive                    20.0  20.0 %        -
              state P.start               8.0   8.0 %       30
              table I.acl                40.0  40.0 %       30
              action I.permit             5.0   5.0 %       30
              loop around packets         2.0   2.0 %       30
              the switch itself          15.0  15.0 %        -
              send                       10.0  10.0 %        -
        "#]]
        .assert_eq(&text);
        assert_eq!((Sort::Name.next(), Sort::Hits.next()), (Sort::Hits, Sort::Misses));
    }

    #[test]
    fn queues_are_shown_with_what_happened_between_two_readings_and_only_where_there_are_some() {
        let reading = |seconds: u64, packets| AdminStats {
            uptime_us: seconds * 1_000_000,
            ports: vec![crate::queues::tests::port(packets)],
            tenants: vec![crate::queues::tenant_of_tests(packets)],
            ..AdminStats::default()
        };
        let view = View::new(&reading(1, 0), &reading(1, 1000), &reading(3, 3000), Sort::Hits);
        expect![[r#"
            queues
              port: queue  packets  bytes  pkt/s    bit/s            drops/s  marked/s  waited 50 %    99 %
              3 veth3: 0         7    700   1000  800.0 k  200 tail, 500 RED       100       1.0 us  1.2 ms
              3 veth3: 1         0      0      0        0                  0         0            -       -
        "#]]
        .assert_eq(&view.sections[6].text());
        expect![[r#"
            tenants
              tenant  packets  bytes  highest  limit drops/s  buffer drops/s
              red           7    700       90           1000             500
        "#]]
        .assert_eq(&view.sections[7].text());
        assert_eq!(view.json()["tenants"][0]["dropped_limit_per_second"], 1000.0);
        let object = &view.json()["queues"][0];
        assert_eq!((&object["dropped_red_per_second"], &object["waited_ns_p50"]), (&500.0.into(), &1023.into()));
        assert!(view.text().contains("port: queue"));
        let without = View::new(&AdminStats::default(), &AdminStats::default(), &AdminStats::default(), Sort::Hits);
        assert!(!without.text().contains("queue") && !without.text().contains("tenant"));
        assert_eq!(without.json()["queues"], json!([]));
    }
}
