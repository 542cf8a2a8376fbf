//! The pages' tables. Each is a selection of lines and columns of the results; nothing is computed but verdicts.

use super::Results;
use super::sheet::Row;
use anyhow::{Context, Result};

type Make = fn(&Results) -> Result<String>;

/// By the name in the page's marker.
const ALL: [(&str, Make); 10] = [
    ("memory", memory),
    ("compile", compile),
    ("updates", updates),
    ("ports", ports),
    ("swaps", swaps),
    ("control", control),
    ("short", short),
    ("scaling", scaling),
    ("predicted", predicted),
    ("contention", contention),
];

/// Rows of `memory`; the plot has all.
const MEMORY: [&str; 8] = [
    "l2l3acl-1k",
    "l2l3acl-100k",
    "l2l3acl-1m",
    "l2-100k",
    "l3router",
    "l3router-100k",
    "vxlan-100k",
    "stateful_firewall-100k",
];

/// One table as Markdown, with its origin.
pub fn make(name: &str, results: &Results) -> Result<String> {
    let (_, make) = ALL.into_iter().find(|(known, _)| *known == name).with_context(|| {
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        format!("there is no table `{name}`, only {}", names.join(", "))
    })?;
    make(results)
}

fn markdown(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!("\n| {} |\n|---|{}\n", header.join(" | "), "---:|".repeat(header.len() - 1));
    for row in rows {
        out.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    out
}

/// The table, and below it where its figures come from.
fn with_origins(table: String, results: &Results, names: &[&str]) -> Result<String> {
    let mut origins: Vec<(String, Vec<String>)> = Vec::new();
    for name in names {
        let (origin, file) = (results.sheet(name)?.origin(), format!("`{name}.csv`"));
        match origins.iter_mut().find(|(known, _)| *known == origin) {
            Some((_, files)) => files.push(file),
            None => origins.push((origin, vec![file])),
        }
    }
    let all: Vec<String> = origins.iter().map(|(origin, files)| format!("{}: {origin}.", files.join(", "))).collect();
    Ok(format!("{table}\n{}\n\n", all.join(" ")))
}

/// A value beside its bar; bold if it is missed.
fn held(value: &str, bar: &str, at_most: bool) -> Result<String> {
    if bar.is_empty() {
        return Ok(value.to_string());
    }
    let number = |text: &str| text.parse::<f64>().with_context(|| format!("`{text}` is no number"));
    let passes = if at_most { number(value)? <= number(bar)? } else { number(value)? >= number(bar)? };
    let sign = if at_most { "≤" } else { "≥" };
    Ok(if passes { format!("{value} ({sign}{bar})") } else { format!("**{value}** ({sign}{bar})") })
}

/// A whole number in groups of three digits.
fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn find<'a>(mut rows: impl Iterator<Item = Row<'a>>, what: [(&str, &str); 2]) -> Result<Row<'a>> {
    rows.find(|row| what.iter().all(|(column, value)| row.text(column).is_ok_and(|text| text == *value)))
        .with_context(|| format!("there is no line with {what:?}"))
}

fn memory(results: &Results) -> Result<String> {
    let (cycles, ratios) = (results.sheet("cycles")?, results.sheet("ratios")?);
    let mut rows = Vec::new();
    for name in MEMORY {
        let median = |subject| find(cycles.rows(), [("name", name), ("subject", subject)])?.text("median");
        let ratio = |to| {
            let row = find(ratios.rows(), [("name", name), ("ratio", to)])?;
            held(row.text("value")?, row.text("bar")?, true)
        };
        let title = find(cycles.rows(), [("name", name), ("subject", "Sluice")])?.text("row")?;
        rows.push(vec![
            title.to_string(),
            median("Sluice")?.to_string(),
            median("C, plain")?.to_string(),
            median("C, batched")?.to_string(),
            ratio("Sluice / C, plain")?,
            ratio("Sluice / C, batched")?,
        ]);
    }
    let header = ["cycles per packet", "Sluice", "C, plain", "C, batched", "/ plain", "/ batched"];
    with_origins(markdown(&header, &rows), results, &["cycles", "ratios"])
}

fn compile(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    for row in results.sheet("compile")?.rows() {
        rows.push(vec![
            format!("`{}`", row.text("program")?),
            row.text("total_ms")?.to_string(),
            row.text("cranelift_ms")?.to_string(),
        ]);
    }
    let header = ["program", "source to machine code, ms", "Cranelift's part, ms"];
    with_origins(markdown(&header, &rows), results, &["compile"])
}

/// Figures with a bar of the benchmark's files; of one size where there are two.
fn updates(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    for (name, at_most) in [("insert", false), ("memory", true), ("recompile", true)] {
        for row in results.sheet(name)?.rows() {
            let (figure, bar) = (row.text("figure")?, row.text("bar")?);
            if bar.is_empty() || figure.contains("100k") {
                continue;
            }
            let what = if name == "memory" { format!("memory of {figure}") } else { figure.to_string() };
            let unit = row.text("unit")?;
            let what = if unit.is_empty() { what } else { format!("{what}, {unit}") };
            rows.push(vec![what, held(row.text("median")?, bar, at_most)?]);
        }
    }
    with_origins(markdown(&["what", "median"], &rows), results, &["insert", "memory", "recompile"])
}

/// Comparisons that have a bar.
fn ports(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    for row in results.sheet("ports")?.rows() {
        let bar = row.text("bar")?;
        if !bar.is_empty() {
            rows.push(vec![
                row.text("work")?.to_string(),
                row.text("sluice")?.to_string(),
                row.text("other")?.to_string(),
                row.text("beside")?.to_string(),
                held(row.text("ratio")?, bar, false)?,
            ]);
        }
    }
    let header = ["Mpps", "Sluice", "other", "which", "ratio"];
    with_origins(markdown(&header, &rows), results, &["ports"])
}

fn swaps(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    for row in results.sheet("swaps")?.rows() {
        if row.text("by")? != "RECONCILE_AND_COMMIT" {
            continue;
        }
        rows.push(vec![
            row.text("link")?.to_string(),
            grouped(row.text("packets")?),
            row.text("lost")?.to_string(),
            row.text("met_two_programs")?.to_string(),
            row.text("swap_p50_ms")?.to_string(),
            row.text("swap_p99_ms")?.to_string(),
        ]);
    }
    let header = ["ports", "packets", "lost", "met two programs", "a change, ms", "99 %"];
    with_origins(markdown(&header, &rows), results, &["swaps"])
}

fn control(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    for row in results.sheet("control-load")?.rows() {
        let phase = row.text("phase")?;
        if ["no writes", "read back", "again"].iter().any(|other| phase.contains(other)) {
            continue;
        }
        rows.push(vec![
            phase.to_string(),
            grouped(row.text("updates_per_s_least")?),
            row.text("lost")?.to_string(),
            grouped(row.text("state_updates_per_s")?),
        ]);
    }
    let header = ["1M entries", "updates/s (least)", "packets lost", "with `--state`"];
    with_origins(markdown(&header, &rows), results, &["control-load"])
}

/// Where something else is faster: hand-written C, or another switch on the same ports (its worst ratio by kind of ports).
fn short(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    for row in results.sheet("ratios")?.rows() {
        let against = row.text("ratio")?.strip_prefix("Sluice / ");
        if let (Some(c), Some(value)) = (against, row.number("value")?.filter(|value| *value > 1.0)) {
            rows.push(vec![row.text("row")?.to_string(), c.to_string(), format!("{value:.2} × cycles")]);
        }
    }
    let mut worst: Vec<(String, f64, Vec<String>)> = Vec::new();
    for row in results.sheet("ports")?.rows() {
        let (link, beside) = (row.text("link")?, row.text("beside")?);
        let Some(ratio) = row.number("ratio")?.filter(|ratio| *ratio < 1.0) else { continue };
        // `io` does not look at packets: it shows what ports cost.
        if beside.starts_with("Sluice") || beside == "testpmd io" {
            continue;
        }
        let key = format!("{link} {beside}");
        let (work, _) = row.text("work")?.split_once(',').unwrap_or((row.text("work")?, ""));
        let line = vec![
            format!("{link}, {work}, {} bytes", row.text("size")?).replace("imix bytes", "IMIX"),
            beside.to_string(),
            format!("{ratio:.2} × packets"),
        ];
        match worst.iter_mut().find(|(known, ..)| *known == key) {
            Some(entry) if entry.1 <= ratio => {}
            Some(entry) => *entry = (key, ratio, line),
            None => worst.push((key, ratio, line)),
        }
    }
    rows.extend(worst.into_iter().map(|(_, _, line)| line));
    with_origins(markdown(&["work", "faster", "Sluice, relative"], &rows), results, &["ratios", "ports"])
}

/// Two workers beside one.
fn scaling(results: &Results) -> Result<String> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let sheet = results.sheet("scaling")?;
    for row in sheet.rows().filter(|row| row.text("options").is_ok_and(str::is_empty)) {
        if row.text("figure")? != "1 worker" {
            continue;
        }
        let title = row.text("row")?;
        let figure = |name| {
            let is_it = |row: &Row<'_>| row.text("options").is_ok_and(str::is_empty);
            let what = [("row", title), ("figure", name)];
            find(sheet.rows().filter(is_it), what)?.text("value")
        };
        let short = title.strip_prefix("two workers on ").unwrap_or(title);
        rows.push(vec![
            short.to_string(),
            row.text("value")?.to_string(),
            figure("1 worker, code for two")?.to_string(),
            figure("2 workers, together")?.to_string(),
            figure("rate of 2 workers / 1 worker")?.to_string(),
        ]);
    }
    let header = ["cycles per packet", "one worker", "one, code for two", "two, together", "times one"];
    with_origins(markdown(&header, &rows), results, &["scaling"])
}

/// The simulation beside measurements.
fn predicted(results: &Results) -> Result<String> {
    let mut rows = Vec::new();
    for row in results.sheet("contention-rows")?.rows() {
        let fields = ["row", "transfer_ns", "one_ns", "two_ns", "predicted_ns", "predicted_over_measured"];
        rows.push(fields.map(|name| row.text(name).map(str::to_string)).into_iter().collect::<Result<_>>()?);
    }
    let header = ["ns per packet", "a transfer", "one worker", "two, measured", "predicted", "predicted / measured"];
    with_origins(markdown(&header, &rows), results, &["contention-rows"])
}

/// Rates with 8 and 32 workers beside one, by the simulation: for flows of equal shares, and where few have most packets.
fn contention(results: &Results) -> Result<String> {
    let sheet = results.sheet("contention")?;
    let mut programs: Vec<&str> = Vec::new();
    for row in sheet.rows() {
        let program = row.text("program")?;
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    let mut rows = Vec::new();
    for program in programs {
        let mut cells = vec![program.to_string()];
        for (exponent, spread) in [("0", "any"), ("0", "by flow"), ("1.1", "any"), ("1.1", "by flow")] {
            let times = |workers| {
                let is_it = |row: &Row<'_>| row.text("flows").is_ok_and(|flows| flows == "100000");
                let such = sheet.rows().filter(is_it).filter(|row| row.text("workers").is_ok_and(|w| w == workers));
                let such = such.filter(|row| row.text("spread").is_ok_and(|s| s == spread));
                find(such, [("program", program), ("exponent", exponent)])?.text("times_one")
            };
            cells.push(format!("{} · {}", times("8")?, times("32")?));
        }
        rows.push(cells);
    }
    let header = [
        "8 · 32 workers, times one",
        "equal flows, any worker",
        "equal, by flow",
        "Zipf 1.1, any worker",
        "Zipf 1.1, by flow",
    ];
    with_origins(markdown(&header, &rows), results, &["contention"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_bar_is_bold() {
        assert_eq!(held("0.50", "0.90", true).expect("numbers"), "0.50 (≤0.90)");
        assert_eq!(held("0.95", "0.90", true).expect("numbers"), "**0.95** (≤0.90)");
        assert_eq!(held("1.07", "1.1", false).expect("numbers"), "**1.07** (≥1.1)");
        assert_eq!(held("1.07", "", false).expect("no bar"), "1.07");
    }

    #[test]
    fn digits_in_groups() {
        assert_eq!(["12", "123", "1234", "119284552"].map(grouped), ["12", "123", "1,234", "119,284,552"]);
    }
}
