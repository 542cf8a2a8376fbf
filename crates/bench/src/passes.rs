//! What each pass and each way to make code is worth: no pass, each alone, all but one, all (PISCES table 5, PVPP table 1).
//!
//! All variants of a program are held against each other packet by packet, like any two subjects, before they are timed.

use crate::measure::Ratio;
use crate::rows::{Bar, Row, Settings, timed};
use crate::subject::{self, Options};
use crate::workload::Workload;
use anyhow::{Context, Result};

/// All passes, or the chosen few.
fn with_passes(base: &Options, keep: impl Fn(&str) -> bool) -> Options {
    let mut options = base.clone();
    options.frontend.opt.disabled = opt::pass_names().filter(|p| !keep(p)).map(str::to_string).collect();
    options
}

fn variants(base: &Options) -> Vec<(String, Options)> {
    let mut all = vec![("all passes".to_string(), with_passes(base, |_| true))];
    all.push(("no pass".to_string(), with_passes(base, |_| false)));
    for pass in opt::pass_names() {
        all.push((format!("{pass} alone"), with_passes(base, |p| p == pass)));
    }
    for pass in opt::pass_names() {
        all.push((format!("all but {pass}"), with_passes(base, |p| p != pass)));
    }
    let plain = |level| {
        let mut options = with_passes(base, |_| true);
        options.jit.opt_level = level;
        options
    };
    all.push(("all passes, Cranelift without its own".to_string(), plain(jit::OptLevel::None)));
    all
}

/// Measures all variants of one program; ratios are to all passes.
pub fn run(title: &str, workload: &Workload, settings: &Settings) -> Result<Row> {
    let mut subjects = Vec::new();
    for (name, options) in variants(&settings.options) {
        subjects.push(subject::sluice(&name, workload, &options).with_context(|| format!("{title}: {name}"))?);
    }
    let context = || format!("{title}: two variants differ");
    crate::compare::all(&mut subjects, &workload.odd, settings.batch).with_context(context)?;
    let fates = crate::compare::all(&mut subjects, &workload.frames, settings.batch).with_context(context)?;
    let series = timed(&mut subjects, workload, settings)?;
    let bars = series[1..]
        .iter()
        .map(|s| Bar::without(&format!("{} / all passes", s.name), Ratio::new(s, &series[0])))
        .collect();
    Ok(Row { name: title.to_string(), series, bars, fates })
}
