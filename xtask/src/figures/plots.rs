//! The page's plots, as SVG by `plotters`: bars beside their names, and curves on logarithmic axes.

use super::Results;
use anyhow::{Context, Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;

type Draw = fn(&Results) -> Result<String>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// By the name of their file.
pub const ALL: [(&str, Draw); 7] = [
    ("memory", memory),
    ("engines", engines),
    ("optimisations", optimisations),
    ("entries", entries),
    ("flows", flows),
    ("ports", ports),
    ("workers", workers),
];

const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(127, 127, 127),
    RGBColor(255, 160, 60),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(214, 39, 40),
];
const WIDTH: i32 = 900;
const TOP: i32 = 66;
const FOOT: i32 = 48;
const RIGHT: i32 = 70;
const BAR: i32 = 13;
const GAP: i32 = 9;
/// Pixels of a letter, about.
const LETTER: i32 = 6;

/// Bars in groups; bars of one series have one colour.
struct Bars {
    title: &'static str,
    unit: &'static str,
    series: Vec<String>,
    /// A name of one or more lines, and a value for each series that has one.
    groups: Vec<Group>,
    /// Where a logarithmic axis begins; without it, it is linear from 0.
    log_from: Option<f64>,
}

type Group = (String, Vec<Option<f64>>);

impl Bars {
    fn svg(&self) -> Result<String> {
        ensure!(!self.groups.is_empty(), "there is nothing to draw");
        let bars = |g: &Group| g.1.iter().flatten().count() as i32;
        let height = TOP + FOOT + self.groups.iter().map(|g| GAP + BAR * bars(g)).sum::<i32>();
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        self.draw(&area, height).map_err(|e| anyhow::anyhow!("{}: {e}", self.title))?;
        drop(area);
        Ok(svg)
    }

    fn draw(&self, area: &Area<'_>, height: i32) -> Drawn {
        area.fill(&WHITE)?;
        let text = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
        area.draw(&Text::new(self.title, (16, 12), text(17)))?;
        let mut x = 16;
        for (name, colour) in self.series.iter().zip(COLOURS) {
            area.draw(&Rectangle::new([(x, 40), (x + 12, 52)], colour.filled()))?;
            area.draw(&Text::new(name.as_str(), (x + 18, 40), text(13)))?;
            x += 46 + LETTER * name.chars().count() as i32;
        }
        let letters = self.groups.iter().flat_map(|g| g.0.lines()).map(|l| l.chars().count()).max().unwrap_or(0) as i32;
        let left = 28 + letters * LETTER;
        let high = self.groups.iter().flat_map(|g| g.1.iter().flatten().copied()).fold(f64::MIN_POSITIVE, f64::max);
        let part = |value: f64| match self.log_from {
            Some(low) => (value.max(low) / low).log10() / (high / low).log10(),
            None => value / high,
        };
        let place = |value: f64| left + (part(value) * f64::from(WIDTH - RIGHT - left)).round() as i32;
        let bottom = height - FOOT + 4;
        for tick in ticks(self.log_from, high) {
            let x = place(tick);
            area.draw(&PathElement::new([(x, TOP), (x, bottom)], BLACK.mix(0.15)))?;
            let label = digits(tick);
            area.draw(&Text::new(label.clone(), (x - 3 * label.len() as i32, bottom + 5), text(12)))?;
        }
        area.draw(&Text::new(self.unit, (left, bottom + 22), text(12)))?;
        let mut y = TOP;
        for (name, values) in &self.groups {
            y += GAP;
            let middle = y + BAR * values.iter().flatten().count() as i32 / 2;
            let lines = name.lines().count() as i32;
            for (line, i) in name.lines().zip(0..) {
                area.draw(&Text::new(line, (16, middle - 7 * lines + 14 * i), text(12)))?;
            }
            for (value, colour) in values.iter().zip(COLOURS) {
                let Some(value) = *value else { continue };
                let end = place(value);
                area.draw(&Rectangle::new([(left, y), (end, y + BAR - 2)], colour.filled()))?;
                area.draw(&Text::new(value.to_string(), (end + 5, y - 1), text(11)))?;
                y += BAR;
            }
        }
        area.present()?;
        Ok(())
    }
}

/// Curves over something that grows by factors.
struct Curves {
    title: &'static str,
    x: &'static str,
    /// Whether cycles have a logarithmic axis, too.
    log: bool,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

impl Curves {
    fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, 460)).into_drawing_area();
        self.draw(&area).map_err(|e| anyhow::anyhow!("{}: {e}", self.title))?;
        drop(area);
        Ok(svg)
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        area.fill(&WHITE)?;
        let points = || self.curves.iter().flat_map(|c| c.1.iter().copied());
        let right = points().fold(0.0, |most: f64, (x, _)| most.max(x.log10()));
        let height = |y: f64| if self.log { y.log10() } else { y };
        let top = points().fold(0.0, |most: f64, (_, y)| most.max(height(y))) * 1.06;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        let decade = |x: &f64| if x.fract().abs() < 1e-6 { short(10f64.powf(*x)) } else { String::new() };
        let plain = |y: &f64| format!("{y:.0}");
        let y_label: &dyn Fn(&f64) -> String = if self.log { &decade } else { &plain };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(self.x)
            .y_desc("cycles per packet")
            .x_label_formatter(&decade)
            .y_label_formatter(y_label)
            .draw()?;
        for ((name, points), colour) in self.curves.iter().zip(COLOURS.into_iter().cycle()) {
            let line: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.log10(), height(*y))).collect();
            chart
                .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?
                .label(name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
            chart.draw_series(line.into_iter().map(|at| Circle::new(at, 3, colour.filled())))?;
        }
        let position = SeriesLabelPosition::UpperLeft;
        chart.configure_series_labels().position(position).border_style(BLACK).background_style(WHITE).draw()?;
        area.present()?;
        Ok(())
    }
}

/// Three digits that count.
fn digits(x: f64) -> String {
    match x.abs() {
        _ if x.fract() == 0.0 => format!("{x:.0}"),
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// A power of ten.
fn short(x: f64) -> String {
    match x {
        _ if x >= 1e6 => format!("{:.0}M", x / 1e6),
        _ if x >= 1e3 => format!("{:.0}k", x / 1e3),
        _ => format!("{x:.0}"),
    }
}

/// Steps of 1, 2 or 5 times a power of ten; on a logarithmic axis all of these, or powers of ten if they are many.
fn ticks(log_from: Option<f64>, high: f64) -> Vec<f64> {
    if let Some(low) = log_from {
        let steps: &[f64] = if high / low < 100.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = low.log10().floor() as i32..=high.log10().floor() as i32;
        let all = decades.flat_map(|e| steps.iter().map(move |k| k * 10f64.powi(e)));
        return all.filter(|tick| (low..=high).contains(tick)).collect();
    }
    let base = 10f64.powf((high / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|k| k * base).into_iter().find(|s| high / s <= 6.0).unwrap_or(high);
    (0..=(high / step).floor() as u32).map(|i| step * f64::from(i)).collect()
}

/// Lines of `cycles` whose names pass: a group for each row, a bar for each subject that `subjects` maps to a series.
fn cycles(results: &Results, passes: fn(&str) -> bool, subjects: &[&str]) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in results.sheet("cycles")?.rows() {
        let (name, title) = (row.text("name")?, row.text("row")?);
        let Some(at) = subjects.iter().position(|s| row.text("subject").is_ok_and(|t| t == *s)) else { continue };
        if !passes(name) {
            continue;
        }
        let title = title.strip_prefix("engines: ").unwrap_or(title).to_string();
        if groups.last().is_none_or(|(known, _)| *known != title) {
            groups.push((title, vec![None; subjects.len()]));
        }
        let values = &mut groups.last_mut().context("it was pushed")?.1;
        values[at] = row.number("median")?;
    }
    Ok(groups)
}

fn memory(results: &Results) -> Result<String> {
    let subjects = ["Sluice", "C, plain", "C, batched"];
    let groups = cycles(results, |name| !name.contains("strategies-") && !name.contains("engines-"), &subjects)?;
    let (title, unit) = ("Compiled P4 beside hand-written C, from memory", "cycles per packet, median");
    Bars { title, unit, series: subjects.map(String::from).to_vec(), groups, log_from: None }.svg()
}

fn engines(results: &Results) -> Result<String> {
    let subjects = ["settled code", "settled code, staged", "code as loaded, for any tables", "interpreter"];
    let groups = cycles(results, |name| name.starts_with("engines-"), &subjects)?;
    let series = ["specialised code", "specialised, staged at every table", "baseline code", "interpreter"];
    let (title, unit) = ("The same program by each engine", "cycles per packet, median, logarithmic");
    Bars { title, unit, series: series.map(String::from).to_vec(), groups, log_from: Some(1.0) }.svg()
}

/// Optimisations without which some program takes a fifth more.
fn optimisations(results: &Results) -> Result<String> {
    const PROGRAMS: [&str; 4] = ["passes-l2l3acl", "passes-l2", "passes-l3router", "passes-vxlan"];
    let mut groups: Vec<Group> = Vec::new();
    for row in results.sheet("ratios")?.rows() {
        let Some(program) = PROGRAMS.iter().position(|p| row.text("name").is_ok_and(|name| name == *p)) else {
            continue;
        };
        let ratio = row.text("ratio")?.trim_end_matches(" / everything");
        let name = match ratio.strip_prefix("all but ") {
            Some(name) => name,
            None if ratio == "nothing" => "all of them",
            None => continue,
        };
        let at = match groups.iter().position(|(known, _)| known == name) {
            Some(at) => at,
            None => {
                groups.push((name.to_string(), vec![None; PROGRAMS.len()]));
                groups.len() - 1
            }
        };
        groups[at].1[program] = row.number("value")?;
    }
    groups.retain(|(_, values)| values.iter().flatten().any(|ratio| *ratio >= 1.2));
    let series = PROGRAMS.map(|p| p.trim_start_matches("passes-").to_string()).to_vec();
    let (title, unit) =
        ("What a program costs without one optimisation", "times the cycles with all of them, logarithmic");
    Bars { title, unit, series, groups, log_from: Some(1.0) }.svg()
}

/// Points of a curve, in the order of the file.
fn curve(results: &Results, file: &str, x: &str, curve: &str) -> Result<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for row in results.sheet(file)?.rows() {
        if row.text("curve")? == curve {
            let number = |column| row.number(column)?.with_context(|| format!("{file}: no {column}"));
            points.push((number(x)?, number("median")?));
        }
    }
    ensure!(!points.is_empty(), "{file} has no curve `{curve}`");
    Ok(points)
}

fn entries(results: &Results) -> Result<String> {
    let mut curves = vec![
        ("exact, 48-bit keys".to_string(), curve(results, "growth-exact", "entries", "Sluice")?),
        ("LPM, IPv4 prefixes".to_string(), curve(results, "growth-lpm", "prefixes", "Sluice")?),
    ];
    for masks in ["1 mask", "5 masks", "20 masks", "50 masks"] {
        curves.push((format!("ternary, {masks}"), curve(results, "growth-ternary", "rules", masks)?));
    }
    Curves { title: "A program of one table", x: "entries, all looked up", log: true, curves }.svg()
}

fn flows(results: &Results) -> Result<String> {
    let names = ["Sluice, uniform", "C, plain, uniform", "C, batched, uniform", "Sluice, all new", "Sluice, Zipf"];
    let mut curves = Vec::new();
    for name in names {
        curves.push((name.to_string(), curve(results, "growth-flows", "flows", name)?));
    }
    Curves { title: "l2l3acl with 100,000 entries", x: "flows", log: false, curves }.svg()
}

/// Where both rates are known.
fn ports(results: &Results) -> Result<String> {
    let mut groups = Vec::new();
    for row in results.sheet("ports")?.rows() {
        let (beside, other) = (row.text("beside")?, row.number("other")?);
        if other.is_some() && !beside.starts_with("Sluice") {
            groups.push((format!("{}\n{beside}", row.text("work")?), vec![row.number("sluice")?, other]));
        }
    }
    let series = vec!["Sluice".to_string(), "the other".to_string()];
    let (title, unit) = ("Through vhost-user ports, 64 bytes, both ways, one core", "million packets a second, median");
    Bars { title, unit, series, groups, log_from: None }.svg()
}

/// What the simulation predicts for traffic in which few flows have most packets.
fn workers(results: &Results) -> Result<String> {
    const NUMBERS: [&str; 3] = ["2", "8", "32"];
    let mut groups: Vec<Group> = Vec::new();
    for row in results.sheet("contention")?.rows() {
        let number = NUMBERS.iter().position(|n| row.text("workers").is_ok_and(|text| text == *n));
        let Some(number) = number.filter(|_| row.text("flows").is_ok_and(|text| text == "100000")) else { continue };
        if row.text("exponent")? != "1.1" {
            continue;
        }
        let name = match row.text("spread")? {
            "any" => format!("{}\nany worker gets a packet", row.text("program")?),
            _ => format!("{}\na flow to one worker", row.text("program")?),
        };
        let at = match groups.iter().position(|(known, _)| *known == name) {
            Some(at) => at,
            None => {
                groups.push((name, vec![None; NUMBERS.len()]));
                groups.len() - 1
            }
        };
        groups[at].1[number] = row.number("times_one")?;
    }
    let series = NUMBERS.map(|n| format!("{n} workers")).to_vec();
    let (title, unit) =
        ("Simulated: 100,000 flows, Zipf exponent 1.1", "times the rate of one worker, from memory, logarithmic");
    Bars { title, unit, series, groups, log_from: Some(0.05) }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_few_round_numbers() {
        assert_eq!(ticks(None, 17.1), [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(ticks(Some(1.0), 15.64), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(ticks(Some(1.0), 69034.0), [1.0, 10.0, 100.0, 1000.0, 10000.0]);
    }

    #[test]
    fn a_longer_bar_is_a_larger_value() {
        let bars = |value| Bars {
            title: "t",
            unit: "u",
            series: vec!["s".to_string()],
            groups: vec![("g".to_string(), vec![Some(100.0), Some(value)])],
            log_from: None,
        };
        let [a, b] = [50.0, 60.0].map(|value| bars(value).svg().expect("it is drawn"));
        assert_ne!(a, b);
        assert!(a.contains("<svg") && a.trim_end().ends_with("</svg>"));
        assert_eq!(a, bars(50.0).svg().expect("it is drawn"), "the same figures make the same picture");
    }
}
