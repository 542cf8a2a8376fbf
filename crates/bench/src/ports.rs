//! Plots of the benchmark through ports, from the CSV file of `bench/ports/run.py`, which has a line for each reading.
//!
//! One file for each workload and kind of ports, `ports-WORK-LINK.svg`, with a group of bars for each frame size and
//! direction; and another, `ports-WORK-LINK-latency.svg`, where something was measured at a part of its highest rate.

use crate::csv_table::CsvTable;
use crate::plot::{self, Bar, Group, Legend};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The indices of the columns.
struct Columns {
    work: usize,
    link: usize,
    size: usize,
    direction: usize,
    middle: usize,
    load: usize,
    mpps: usize,
    latencies: [usize; 3],
}

impl Columns {
    fn of(csv: &CsvTable) -> Result<Columns> {
        let at = |name: &str| csv.column(name);
        Ok(Columns {
            work: at("work")?,
            link: at("link")?,
            size: at("size")?,
            direction: at("direction")?,
            middle: at("middle")?,
            load: at("load")?,
            mpps: at("mpps")?,
            latencies: [at("latency_p50_us")?, at("latency_p99_us")?, at("latency_p999_us")?],
        })
    }

    /// A line's frame size and direction, in words.
    fn heading(&self, line: &[String]) -> String {
        let size = match line[self.size].as_str() {
            "imix" => "IMIX".to_string(),
            size => format!("{size} bytes"),
        };
        let direction = match line[self.direction].as_str() {
            "bi" => "both ways",
            "uni" => "one way",
            other => other,
        };
        let load = match line[self.load].parse::<f64>() {
            Ok(load) => format!(", at {:.0} % of the own highest rate", 100.0 * load),
            Err(_) => String::new(),
        };
        format!("{size}, {direction}{load}")
    }
}

/// The list's member that `is` selects; added at the end if there is none.
fn named<T>(all: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = all.iter().position(is).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    });
    &mut all[at]
}

/// The lines of one plot, as groups of bars.
fn groups(
    lines: &[&Vec<String>],
    columns: &Columns,
    values: &dyn Fn(&[String]) -> Result<Vec<f64>>,
) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for line in lines {
        let heading = columns.heading(line);
        let group =
            named(&mut groups, |g| g.heading == heading, || Group { heading: heading.clone(), bars: Vec::new() });
        let name = &line[columns.middle];
        let new = || Bar { name: name.clone(), values: Vec::new() };
        named(&mut group.bars, |b| b.name == *name, new).values.extend(values(line)?);
    }
    Ok(groups)
}

fn number(text: &str) -> Result<f64> {
    text.parse().with_context(|| format!("`{text}` is no number"))
}

/// Draws all plots of a file; returns their paths.
///
/// # Errors
/// If the file cannot be read or lacks a column, or a plot cannot be written.
pub fn plots(file: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let csv = CsvTable::read(file)?;
    let columns = Columns::of(&csv).with_context(|| file.display().to_string())?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for line in &csv.lines {
        let kind = (line[columns.work].as_str(), line[columns.link].as_str());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut paths = Vec::new();
    for (work, link) in kinds {
        let of = |loaded: bool| -> Vec<&Vec<String>> {
            let is = |l: &&Vec<String>| {
                (l[columns.work].as_str(), l[columns.link].as_str()) == (work, link)
                    && l[columns.load].is_empty() != loaded
            };
            csv.lines.iter().filter(is).collect()
        };
        let rates = of(false);
        if !rates.is_empty() {
            let title = format!("{work} through {link} ports");
            let path = folder.join(format!("ports-{work}-{link}.svg"));
            let groups = groups(&rates, &columns, &|l| Ok(vec![number(&l[columns.mpps])?]))?;
            let unit = "millions of packets a second: median; line: least to most";
            plot::bars(&path, Legend { title: &title, unit }, &groups)?;
            paths.push(path);
        }
        // The field is empty where no packet came back.
        let latency = |l: &[String]| -> Result<Vec<f64>> {
            columns.latencies.iter().map(|&c| &l[c]).filter(|t| !t.is_empty()).map(|t| number(t)).collect()
        };
        let loaded = groups(&of(true), &columns, &latency)?;
        if loaded.iter().flat_map(|g| &g.bars).any(|b| !b.values.is_empty()) {
            let title = format!("{work} through {link} ports: latency");
            let path = folder.join(format!("ports-{work}-{link}-latency.svg"));
            let unit = "microseconds until a packet is back: median / 99 % / 99.9 %";
            plot::points(&path, Legend { title: &title, unit }, &loaded)?;
            paths.push(path);
        }
    }
    Ok(paths)
}
