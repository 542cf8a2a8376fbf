//! Cases, bars, the table and the machine-readable report.

use super::process::{End, Output};
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::path::Path;

/// What became of one case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it must be.
    Passed,
    /// Not as it must be.
    Failed,
    /// Ended by a signal or a panic.
    Crashed,
    /// Did not end in time.
    TimedOut,
}

/// One case of a suite.
#[derive(Debug)]
pub struct Case {
    /// The program's path in its folder.
    pub name: String,
    /// What became of it.
    pub verdict: Verdict,
    /// More fields of the report.
    pub details: Map<String, Value>,
}

impl Case {
    /// A case whose process should end with code 0.
    pub fn of_output(name: String, output: &Output) -> Case {
        let verdict = match output.end {
            End::Code(0) => Verdict::Passed,
            End::Code(_) => Verdict::Failed,
            End::Crashed => Verdict::Crashed,
            End::TimedOut => Verdict::TimedOut,
        };
        let mut case = Case { name, verdict, details: Map::new() };
        if verdict != Verdict::Passed {
            case.set("reason", output.first_complaint());
        }
        case
    }

    /// Adds a field.
    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.details.insert(field.to_string(), value.into());
    }
}

/// A number that must reach another.
#[derive(Debug)]
pub struct Bar {
    /// What is counted.
    pub what: String,
    /// How many.
    pub have: usize,
    /// Of how many.
    pub of: usize,
    /// How many at least.
    pub need: usize,
}

impl Bar {
    /// A bar in percent.
    pub fn percent(what: &str, have: usize, of: usize, percent: usize) -> Bar {
        Bar { what: what.to_string(), have, of, need: (of * percent).div_ceil(100) }
    }

    /// Whether it is not reached. Nothing counted reaches nothing.
    pub fn missed(&self) -> bool {
        self.have < self.need || self.of == 0
    }
}

/// The result of one suite.
#[derive(Debug)]
pub struct Suite {
    /// Its name, with the engine if there are several.
    pub name: String,
    pub cases: Vec<Case>,
    pub bars: Vec<Bar>,
    /// Counts that explain, for the table.
    pub remarks: Vec<String>,
}

impl Suite {
    /// How many cases ended so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|c| c.verdict == verdict).count()
    }

    /// Whether a bar is not reached. A crash or a hang misses the bar that every suite has.
    pub fn missed(&self) -> bool {
        self.bars.iter().any(Bar::missed) || self.count(Verdict::Crashed) + self.count(Verdict::TimedOut) > 0
    }
}

/// The table.
pub fn print(suites: &[Suite]) {
    println!("{:12} {:>6} {:>7} {:>7} {:>8} {:>6}", "suite", "cases", "passed", "failed", "crashed", "hung");
    for suite in suites {
        println!(
            "{:12} {:6} {:7} {:7} {:8} {:6}",
            suite.name,
            suite.cases.len(),
            suite.count(Verdict::Passed),
            suite.count(Verdict::Failed),
            suite.count(Verdict::Crashed),
            suite.count(Verdict::TimedOut)
        );
    }
    for suite in suites {
        for bar in &suite.bars {
            let word = if bar.missed() { "MISSED" } else { "ok" };
            let percent = if bar.of == 0 { 0.0 } else { bar.have as f64 * 100.0 / bar.of as f64 };
            println!(
                "{:12} {:6} {}: {} of {} ({percent:.1} %), at least {}",
                suite.name, word, bar.what, bar.have, bar.of, bar.need
            );
        }
        for remark in &suite.remarks {
            println!("{:12} {remark}", suite.name);
        }
        for case in suite.cases.iter().filter(|c| matches!(c.verdict, Verdict::Crashed | Verdict::TimedOut)) {
            let reason = case.details.get("reason").and_then(Value::as_str).unwrap_or_default();
            println!("{:12} {:?}: {} {reason}", suite.name, case.verdict, case.name);
        }
    }
}

/// The report: suites with bars, and every case.
pub fn write(suites: &[Suite], path: &Path) -> Result<()> {
    let case = |c: &Case| {
        let mut fields = c.details.clone();
        fields.insert("name".into(), c.name.clone().into());
        fields.insert("verdict".into(), format!("{:?}", c.verdict).into());
        Value::Object(fields)
    };
    let bar = |b: &Bar| json!({"what": b.what, "have": b.have, "of": b.of, "need": b.need, "missed": b.missed()});
    let suites: Vec<Value> = suites
        .iter()
        .map(|s| {
            json!({
                "suite": s.name,
                "bars": s.bars.iter().map(bar).collect::<Vec<_>>(),
                "remarks": s.remarks,
                "cases": s.cases.iter().map(case).collect::<Vec<_>>(),
            })
        })
        .collect();
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(path, serde_json::to_string_pretty(&json!({ "suites": suites }))? + "\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_in_percent_rounds_up_and_nothing_is_missed() {
        assert!(Bar::percent("x", 98, 100, 99).missed());
        assert!(!Bar::percent("x", 99, 100, 99).missed());
        assert!(Bar::percent("x", 9, 11, 90).missed());
        assert!(Bar::percent("x", 0, 0, 90).missed());
    }
}
