//! The results of a run: tables on the terminal; CSV files and plots in one folder.

use crate::csv_table::CsvTable;
use crate::measure::{Ratio, Series, quantile};
use crate::origin;
use crate::plot::{self, Legend};
use crate::rows::Row;
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Writes results to one folder. Files of earlier runs are kept, and those of their lines that this run does not
/// measure again, which are lines with other names or other options. Each line names the sources' commit and the time
/// of measurement.
pub struct Report {
    folder: PathBuf,
    run: Run,
}

/// What each line of a run's results states about the run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The options that change what is measured, as written; empty without any.
    pub options: String,
    /// Whether counts are so tiny that no bar is applied.
    pub quick: bool,
}

/// A point of a curve.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value of the variable that grows.
    pub x: f64,
    /// The curve's name.
    pub line: String,
    /// Cycles per packet.
    pub series: Series,
}

/// Curves over one variable.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Name of the files.
    pub name: String,
    /// Title of the plot.
    pub title: String,
    /// Name of the variable.
    pub x: String,
    /// Whether its axis is logarithmic.
    pub log: bool,
    /// The points of all curves.
    pub points: Vec<Point>,
}

/// A figure in a unit of its own, read several times, with a limit (bar).
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// The value of each round.
    pub values: Vec<f64>,
    /// The limit, if there is one.
    pub bar: Option<f64>,
    /// Whether the value must be at most the limit; otherwise at least.
    pub at_most: bool,
}

/// Figures of one measurement.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Name of the files.
    pub name: String,
    /// Title of the table.
    pub title: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// A table whose columns are right-aligned except the first.
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

/// A count in short form: in thousands or millions if that needs at most one decimal.
pub fn short(x: f64) -> String {
    for (unit, letter) in [(1e6, "M"), (1e3, "k")] {
        let tenths = x / unit * 10.0;
        if x >= unit && (tenths - tenths.round()).abs() < 1e-6 {
            return format!("{}{letter}", tenths.round() / 10.0);
        }
    }
    format!("{x}")
}

fn rounds(count: usize) -> String {
    if count == 1 { "1 round".to_string() } else { format!("{count} rounds") }
}

/// The last columns of each file.
const LAST: [&str; 3] = ["options", "sources", "measured"];

impl Report {
    /// Creates the folder. Quick runs have a folder of their own, so that they do not overwrite measurements.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(folder: PathBuf, run: Run) -> Result<Report> {
        let folder = if run.quick { folder.join("quick") } else { folder };
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Report { folder, run })
    }

    /// The folder of all results.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes lines to a file; they replace those with the same name and options.
    fn merge(&self, file: &str, name: &str, columns: &[&str], lines: Vec<Vec<String>>) -> Result<()> {
        let path = self.folder.join(file);
        let header = [&["name"], columns, &LAST].concat();
        let mut csv = CsvTable::new(&header);
        if path.exists() {
            match CsvTable::read(&path) {
                Ok(old) if old.header == csv.header => csv.lines = old.lines,
                // Written by another version of this program.
                _ => {
                    let aside = path.with_extension("old.csv");
                    std::fs::rename(&path, &aside).with_context(|| format!("cannot move {}", path.display()))?;
                    println!("{} has other columns: it is {} now", path.display(), aside.display());
                }
            }
        }
        let options = header.len() - LAST.len();
        csv.lines.retain(|line| line[0] != name || line[options] != self.run.options);
        let last = [self.run.options.clone(), origin::SOURCES.to_string(), origin::now()];
        for line in lines {
            csv.push([&[name.to_string()], line.as_slice(), &last].concat())?;
        }
        csv.write(&path)
    }

    /// Writes a line for each round.
    fn rounds<'a>(&self, name: &str, all: impl Iterator<Item = (String, &'a [f64], &'a str)>) -> Result<()> {
        let line = |(what, values, unit): (String, &'a [f64], &'a str)| -> Vec<Vec<String>> {
            let one = |(i, v): (usize, &f64)| vec![what.clone(), i.to_string(), format!("{v:.4}"), unit.to_string()];
            values.iter().enumerate().map(one).collect()
        };
        self.merge("rounds.csv", name, &["what", "round", "value", "unit"], all.flat_map(line).collect())
    }

    fn verdict(&self, ratio: &Ratio, bar: Option<f64>, at_most: bool) -> &'static str {
        match bar {
            Some(bar) if !self.run.quick => ratio.verdict(bar, at_most),
            _ => "",
        }
    }

    /// Prints a row, writes it as CSV and plots its bars.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn row(&self, name: &str, row: &Row) -> Result<()> {
        let [sent, dropped, replicated] = row.fates;
        let count = row.series.first().map_or(0, |s| s.rounds.len());
        println!("{} ({}; compared: {sent} sent, {dropped} dropped, {replicated} replicated)", row.name, rounds(count));
        let (mut cycles, mut lines) = (Vec::new(), Vec::new());
        for s in &row.series {
            let [min, median] = [s.min(), s.median()].map(|x| format!("{x:.2}"));
            cycles.push(vec![row.name.clone(), s.name.clone(), min, median, format!("{:.4}", s.spread())]);
            lines.push(vec![
                s.name.clone(),
                format!("{:.1}", s.min()),
                format!("{:.1}", s.median()),
                percent(s.spread()),
            ]);
        }
        println!("{}", table(&["cycles per packet", "min", "median", "spread"], lines));
        let (mut ratios, mut lines) = (Vec::new(), Vec::new());
        for bar in &row.bars {
            let limit = (!bar.bar.is_nan()).then_some(bar.bar);
            let verdict = self.verdict(&bar.ratio, limit, bar.at_most);
            let sign = if bar.at_most { "≤" } else { "≥" };
            lines.push(vec![
                bar.name.clone(),
                bar.number(bar.ratio.value),
                format!("{} to {}", bar.number(bar.ratio.low), bar.number(bar.ratio.high)),
                limit.map_or(String::new(), |b| format!("{sign} {}", bar.number(b))),
                verdict.to_string(),
            ]);
            let [value, low, high] = [bar.ratio.value, bar.ratio.low, bar.ratio.high].map(|x| format!("{x:.4}"));
            let limit = limit.map_or(String::new(), |b| b.to_string());
            ratios.push(vec![row.name.clone(), bar.name.clone(), value, low, high, limit, verdict.to_string()]);
        }
        println!("{}\n", table(&["", "value", "quartiles", "bar", ""], lines));
        self.merge("cycles.csv", name, &["row", "subject", "min", "median", "spread"], cycles)?;
        self.merge("ratios.csv", name, &["row", "ratio", "value", "low", "high", "bar", "verdict"], ratios)?;
        self.rounds(name, row.series.iter().map(|s| (s.name.clone(), s.rounds.as_slice(), "cycles per packet")))?;
        self.bars(name, row)
    }

    /// A bar for each subject; points on a logarithmic axis where the interpreter is beside machine code.
    fn bars(&self, name: &str, row: &Row) -> Result<()> {
        let medians = || row.series.iter().map(Series::median);
        let far = medians().fold(0.0, f64::max) > 50.0 * medians().fold(f64::MAX, f64::min);
        let bar = |s: &Series| {
            let values = if far { vec![s.min(), s.median(), quantile(&s.rounds, 1.0)] } else { s.rounds.clone() };
            plot::Bar { name: s.name.clone(), values }
        };
        let group = plot::Group { heading: String::new(), bars: row.series.iter().map(bar).collect() };
        let path = self.folder.join(format!("{name}.svg"));
        let legend = |unit| Legend { title: &row.name, unit };
        if far {
            plot::points(&path, legend("cycles per packet: fastest round / median / slowest round"), &[group])
        } else {
            plot::bars(&path, legend("cycles per packet: median; line: fastest to slowest round"), &[group])
        }
    }

    /// Prints figures and writes them as CSV.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn figures(&self, figures: &Figures) -> Result<()> {
        let (mut csv, mut rows) = (Vec::new(), Vec::new());
        for f in &figures.figures {
            let at = |part| quantile(&f.values, part);
            let ratio = Ratio { value: at(0.5), low: at(0.25), high: at(0.75) };
            let verdict = self.verdict(&ratio, f.bar, f.at_most);
            let bar = f.bar.map_or(String::new(), |b| format!("{} {b}{}", if f.at_most { "≤" } else { "≥" }, f.unit));
            let [least, median, most] = [0.0, 0.5, 1.0].map(|part| format!("{:.3}", at(part)));
            let limit = f.bar.map_or(String::new(), |b| b.to_string());
            let unit = f.unit.trim().to_string();
            csv.push(vec![f.name.clone(), unit, least, median, most, limit, verdict.to_string()]);
            let number = |value: f64| format!("{value:.2}{}", f.unit);
            let range = format!("{} to {}", number(at(0.0)), number(at(1.0)));
            rows.push(vec![f.name.clone(), number(at(0.5)), range, bar, verdict.to_string()]);
        }
        let count = figures.figures.first().map_or(0, |f| f.values.len());
        println!("{} ({})", figures.title, rounds(count));
        println!("{}\n", table(&["", "median", "least to most", "bar", ""], rows));
        let columns = ["figure", "unit", "least", "median", "most", "bar", "verdict"];
        self.merge(&format!("{}.csv", figures.name), &figures.name, &columns, csv)?;
        let all = figures.figures.iter().map(|f| (f.name.clone(), f.values.as_slice(), f.unit.trim()));
        self.rounds(&figures.name, all)
    }

    /// Prints curves as a table, and writes them as CSV and as a plot.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn curves(&self, curves: &Curves) -> Result<()> {
        let mut names: Vec<&str> = Vec::new();
        let mut places: Vec<f64> = Vec::new();
        let mut csv = Vec::new();
        for Point { x, line, series } in &curves.points {
            if !names.contains(&line.as_str()) {
                names.push(line);
            }
            if !places.contains(x) {
                places.push(*x);
            }
            let [min, median] = [series.min(), series.median()].map(|c| format!("{c:.2}"));
            csv.push(vec![x.to_string(), line.clone(), min, median, format!("{:.4}", series.spread())]);
        }
        places.sort_by(f64::total_cmp);
        let cell = |x: f64, name: &str| {
            let point = curves.points.iter().find(|p| p.x == x && p.line == name);
            let text = |p: &Point| match p.series.spread() {
                // A spread that is large enough to be stated.
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
        let count = curves.points.first().map_or(0, |p| p.series.rounds.len());
        println!("{}: median cycles per packet of {}", curves.title, rounds(count));
        let header: Vec<&str> = std::iter::once(curves.x.as_str()).chain(names.iter().copied()).collect();
        println!("{}\n", table(&header, rows.collect()));
        let columns = [curves.x.as_str(), "curve", "min", "median", "spread"];
        self.merge(&format!("{}.csv", curves.name), &curves.name, &columns, csv)?;
        let what = |p: &Point| format!("{}, {} {}", p.line, short(p.x), curves.x);
        let all = curves.points.iter().map(|p| (what(p), p.series.rounds.as_slice(), "cycles per packet"));
        self.rounds(&curves.name, all)?;
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
        let label = |x: &f64| match *x {
            x if !curves.log => format!("{x}"),
            // Between decades there is a grid line and no label.
            x if (x - x.round()).abs() < 1e-6 => short(10f64.powi(x.round() as i32)),
            _ => String::new(),
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Bar;

    #[test]
    fn counts_are_short_where_that_can_be_read() {
        assert_eq!([1.0, 1e3, 1024.0, 1500.0, 3162.0, 1e7].map(short), ["1", "1k", "1024", "1.5k", "3162", "10M"]);
    }

    fn row(cycles: f64) -> Row {
        let series = vec![Series { name: "Sluice".to_string(), rounds: vec![cycles, cycles] }];
        let bars = vec![
            Bar::without("told", Ratio::new(&series[0], &series[0])),
            Bar::with("held", Ratio::new(&series[0], &series[0]), 2.0),
        ];
        Row { name: "a row, of two".to_string(), series, bars, fates: [0; 3] }
    }

    #[test]
    fn a_partial_run_keeps_the_other_rows() {
        let folder = std::env::temp_dir().join(format!("sluice-bench-report-{}", std::process::id()));
        let report = |options: &str, quick: bool| {
            let run = Run { options: options.to_string(), quick };
            Report::new(folder.clone(), run).expect("below the temporary folder")
        };
        report("", false).row("one", &row(10.0)).expect("it is written");
        report("", false).row("two", &row(20.0)).expect("it is written");
        report("--batch 16", false).row("one", &row(30.0)).expect("it is written");
        report("", false).row("one", &row(40.0)).expect("it is written");
        report("", true).row("one", &row(50.0)).expect("it is written");
        let csv = |file: &str| CsvTable::read(&folder.join(file)).expect("it was written");
        let cycles = csv("cycles.csv");
        let (median, options) = (cycles.column("median").expect("so"), cycles.column("options").expect("so"));
        let all: Vec<_> =
            cycles.lines.iter().map(|l| (l[0].as_str(), l[median].as_str(), l[options].as_str())).collect();
        assert_eq!(all, [("two", "20.00", ""), ("one", "30.00", "--batch 16"), ("one", "40.00", "")]);
        let ratios = csv("ratios.csv");
        let (bar, verdict) = (ratios.column("bar").expect("so"), ratios.column("verdict").expect("so"));
        let verdicts: Vec<_> = ratios.lines.iter().take(2).map(|l| (l[bar].as_str(), l[verdict].as_str())).collect();
        assert_eq!(verdicts, [("", ""), ("2", "PASS")]);
        assert!(csv("quick/ratios.csv").lines.iter().all(|l| l[verdict].is_empty()));
        assert_eq!(csv("rounds.csv").lines.len(), 6);
        assert!(folder.join("one.svg").exists());
        std::fs::remove_dir_all(folder).expect("it was made above");
    }
}
