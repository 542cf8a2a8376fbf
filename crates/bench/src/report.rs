//! What a run leaves behind: tables on the terminal; CSV files and plots below one folder.

use crate::measure::{Ratio, Series, quantile};
use crate::rows::Row;
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use plotters::prelude::*;
use std::fmt::Write as _;
use std::path::PathBuf;

/// One folder's worth.
pub struct Report {
    folder: PathBuf,
    cycles: String,
    ratios: String,
}

/// A point of a curve: where, and the median, fastest round and spread there.
#[derive(Clone, Debug)]
pub struct Point {
    /// What grows.
    pub x: f64,
    /// Which curve.
    pub line: String,
    /// Cycles per packet.
    pub series: Series,
}

/// A measurement over something that grows.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Of files.
    pub name: String,
    /// For people.
    pub title: String,
    /// What grows.
    pub x: String,
    /// Whether it grows by factors.
    pub log: bool,
    /// All curves' points.
    pub points: Vec<Point>,
}

/// A number that is no ratio and no cycles: read some times, and held against a bar.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Of what.
    pub unit: &'static str,
    /// Each round's.
    pub values: Vec<f64>,
    /// The bar, if there is one.
    pub bar: Option<f64>,
    /// Whether it must not be above (else below) it.
    pub at_most: bool,
}

/// Some of them.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Of files.
    pub name: String,
    /// For people.
    pub title: String,
    /// They.
    pub figures: Vec<Figure>,
}

/// Aligned as numbers are, but for the first column.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    rows.into_iter().for_each(|r| _ = table.add_row(r));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// A count as people write it.
pub fn short(x: f64) -> String {
    match x {
        x if x >= 1e6 => format!("{}M", x / 1e6),
        x if x >= 1e3 => format!("{}k", x / 1e3),
        x => format!("{x}"),
    }
}

impl Report {
    /// Makes the folder.
    pub fn new(folder: PathBuf) -> Result<Report> {
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Report {
            folder,
            cycles: "row,subject,min,median,spread\n".to_string(),
            ratios: "row,ratio,value,low,high,bar,verdict\n".to_string(),
        })
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Prints a row and keeps it for the CSV files.
    pub fn row(&mut self, row: &Row) -> Result<()> {
        let [sent, dropped, replicated] = row.fates;
        println!("{} (compared: {sent} sent, {dropped} dropped, {replicated} replicated)", row.name);
        let lines = row.series.iter().map(|s| {
            let _ = writeln!(
                self.cycles,
                "\"{}\",\"{}\",{:.2},{:.2},{:.4}",
                row.name,
                s.name,
                s.min(),
                s.median(),
                s.spread()
            );
            vec![s.name.clone(), format!("{:.1}", s.min()), format!("{:.1}", s.median()), percent(s.spread())]
        });
        println!("{}", table(&["cycles per packet", "min", "median", "spread"], lines.collect()));
        let mut lines = Vec::new();
        for bar in &row.bars {
            let verdict = if bar.bar.is_nan() { "" } else { bar.ratio.verdict(bar.bar, bar.at_most) };
            let limit = match bar.bar {
                b if b.is_nan() => String::new(),
                b if bar.at_most => format!("≤ {}", bar.number(b)),
                b => format!("≥ {}", bar.number(b)),
            };
            lines.push(vec![
                bar.name.clone(),
                bar.number(bar.ratio.value),
                format!("{} to {}", bar.number(bar.ratio.low), bar.number(bar.ratio.high)),
                limit,
                verdict.to_string(),
            ]);
            let _ = writeln!(
                self.ratios,
                "\"{}\",\"{}\",{:.4},{:.4},{:.4},{},{verdict}",
                row.name, bar.name, bar.ratio.value, bar.ratio.low, bar.ratio.high, bar.bar
            );
        }
        println!("{}\n", table(&["", "value", "quartiles", "bar", ""], lines));
        self.write("cycles.csv", &self.cycles)?;
        self.write("ratios.csv", &self.ratios)
    }

    /// Prints figures and writes them as CSV.
    pub fn figures(&self, figures: &Figures) -> Result<()> {
        let mut csv = "figure,unit,least,median,most,bar,verdict\n".to_string();
        let rows = figures.figures.iter().map(|f| {
            let at = |part| quantile(&f.values, part);
            let ratio = Ratio { value: at(0.5), low: at(0.25), high: at(0.75) };
            let verdict = f.bar.map_or("", |bar| ratio.verdict(bar, f.at_most));
            let bar = f.bar.map_or(String::new(), |b| format!("{} {b}{}", if f.at_most { "≤" } else { "≥" }, f.unit));
            let _ = writeln!(
                csv,
                "\"{}\",\"{}\",{:.3},{:.3},{:.3},{},{verdict}",
                f.name,
                f.unit.trim(),
                at(0.0),
                at(0.5),
                at(1.0),
                f.bar.map_or(String::new(), |b| b.to_string())
            );
            let number = |value: f64| format!("{value:.2}{}", f.unit);
            let range = format!("{} to {}", number(at(0.0)), number(at(1.0)));
            vec![f.name.clone(), number(at(0.5)), range, bar, verdict.to_string()]
        });
        println!("{}", figures.title);
        println!("{}\n", table(&["", "median", "least to most", "bar", ""], rows.collect()));
        self.write(&format!("{}.csv", figures.name), &csv)
    }

    /// Prints curves as a table, and writes them as CSV and as a plot.
    pub fn curves(&self, curves: &Curves) -> Result<()> {
        let mut names: Vec<&str> = Vec::new();
        let mut places: Vec<f64> = Vec::new();
        let mut csv = format!("{},curve,min,median,spread\n", curves.x);
        for Point { x, line, series } in &curves.points {
            if !names.contains(&line.as_str()) {
                names.push(line);
            }
            if !places.contains(x) {
                places.push(*x);
            }
            let _ = writeln!(csv, "{x},\"{line}\",{:.2},{:.2},{:.4}", series.min(), series.median(), series.spread());
        }
        places.sort_by(f64::total_cmp);
        let cell = |x: f64, name: &str| {
            let point = curves.points.iter().find(|p| p.x == x && p.line == name);
            let text = |p: &Point| match p.series.spread() {
                // A spread that people should know of.
                s if s > 0.1 => format!("{:.1} (± {})", p.series.median(), percent(s)),
                _ => format!("{:.1}", p.series.median()),
            };
            point.map_or(String::new(), text)
        };
        let rows = places.iter().map(|&x| {
            let mut row = vec![short(x)];
            row.extend(names.iter().map(|n| cell(x, n)));
            row
        });
        println!("{}: median cycles per packet", curves.title);
        let header: Vec<&str> = std::iter::once(curves.x.as_str()).chain(names.iter().copied()).collect();
        println!("{}\n", table(&header, rows.collect()));
        self.write(&format!("{}.csv", curves.name), &csv)?;
        self.plot(curves, &names).map_err(|e| anyhow::anyhow!("cannot draw {}: {e}", curves.name))
    }

    fn plot(&self, curves: &Curves, names: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
        let path = self.folder.join(format!("{}.svg", curves.name));
        let area = SVGBackend::new(&path, (800, 500)).into_drawing_area();
        area.fill(&WHITE)?;
        // Whole decades on a logarithmic axis.
        let place = |x: f64| if curves.log { x.max(1.0).log10() } else { x };
        let xs: Vec<f64> = curves.points.iter().map(|p| place(p.x)).collect();
        let (low, high) = xs.iter().fold((f64::MAX, f64::MIN), |(l, h), &x| (l.min(x), h.max(x)));
        let top = curves.points.iter().map(|p| p.series.median()).fold(1.0, f64::max) * 1.1;
        let mut chart = ChartBuilder::on(&area)
            .caption(&curves.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(low..high.max(low + 1e-9), 0.0..top)?;
        let label = |x: &f64| if curves.log { short(10f64.powf(*x).round()) } else { format!("{x}") };
        chart.configure_mesh().x_desc(&curves.x).y_desc("cycles per packet").x_label_formatter(&label).draw()?;
        for (i, name) in names.iter().enumerate() {
            let colour = Palette99::pick(i).to_rgba();
            let mut line: Vec<(f64, f64)> = Vec::new();
            line.extend(curves.points.iter().filter(|p| p.line == *name).map(|p| (place(p.x), p.series.median())));
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart
                .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
            chart.draw_series(line.into_iter().map(|at| Circle::new(at, 3, colour.filled())))?;
        }
        let position = SeriesLabelPosition::UpperLeft;
        chart.configure_series_labels().position(position).border_style(BLACK).background_style(WHITE).draw()?;
        area.present()?;
        Ok(())
    }
}
