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

/// A number that is held against another.
#[derive(Debug)]
pub enum Bar {
    /// A count that must be reached.
    AtLeast { what: String, have: usize, of: usize, need: usize },
    /// A time that must not be passed; none when there was nothing to time.
    AtMostMs { what: String, have: Option<f64>, limit: f64 },
    /// Our time over a peer's, which must be less than 1.
    RatioBelowOne { what: String, have: f64 },
}

impl Bar {
    /// A count in percent.
    pub fn percent(what: &str, have: usize, of: usize, percent: usize) -> Bar {
        Bar::AtLeast { what: what.to_string(), have, of, need: (of * percent).div_ceil(100) }
    }

    /// Whether it is not held. Nothing counted reaches nothing.
    pub fn missed(&self) -> bool {
        match self {
            Bar::AtLeast { have, of, need, .. } => have < need || *of == 0,
            Bar::AtMostMs { have, limit, .. } => have.is_none_or(|have| have > *limit),
            Bar::RatioBelowOne { have, .. } => *have >= 1.0,
        }
    }

    fn text(&self) -> String {
        match self {
            Bar::AtLeast { what, have, of, need } => {
                let percent = if *of == 0 { 0.0 } else { *have as f64 * 100.0 / *of as f64 };
                format!("{what}: {have} of {of} ({percent:.1} %), at least {need}")
            }
            Bar::AtMostMs { what, have: Some(ms), limit } => format!("{what}: {ms:.1} ms, at most {limit}"),
            Bar::AtMostMs { what, have: None, limit } => format!("{what}: not timed, at most {limit} ms"),
            Bar::RatioBelowOne { what, have } => format!("{what}: {have:.3} of it, less than 1"),
        }
    }

    fn json(&self) -> Value {
        let missed = self.missed();
        match self {
            Bar::AtLeast { what, have, of, need } => {
                json!({"what": what, "have": have, "of": of, "need": need, "missed": missed})
            }
            Bar::AtMostMs { what, have, limit } => {
                json!({"what": what, "ms": have, "ms_max": limit, "missed": missed})
            }
            Bar::RatioBelowOne { what, have } => json!({"what": what, "ratio": have, "missed": missed}),
        }
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
            println!("{:12} {word:6} {}", suite.name, bar.text());
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
    let suites: Vec<Value> = suites
        .iter()
        .map(|s| {
            json!({
                "suite": s.name,
                "bars": s.bars.iter().map(Bar::json).collect::<Vec<_>>(),
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
