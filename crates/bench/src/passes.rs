//! The effect of each optimisation of `datapath::optimisations`: none, each alone, all but one, all (PISCES table 5,
//! PVPP table 1).
//!
//! All variants of a program are compared with one another packet by packet, like any two subjects, before they are
//! timed.

use crate::measure::Ratio;
use crate::rows::{Bar, Row, Settings, compared, timed};
use crate::subject::{self, Options};
use crate::workload::Workload;
use anyhow::{Context, Result};
use datapath::{CodeOptions, Without};

/// The names and options of the variants; the first has all optimisations.
fn variants(base: &Options) -> Vec<(String, Options)> {
    let without = |w: Without| {
        let mut options = base.clone();
        options.frontend.opt = w.passes();
        let jit = jit::Options { without: w.code().jit.without, ..base.code.jit.clone() };
        options.code = CodeOptions { jit, ..w.code() };
        options
    };
    let mut all = vec![("everything".to_string(), without(Without::default()))];
    all.push(("nothing".to_string(), without(Without::all())));
    let names: Vec<&str> = datapath::optimisations().into_iter().map(|o| o.name).collect();
    all.extend(names.iter().map(|name| (format!("{name} alone"), without(Without::all_but(name)))));
    for (name, strategy) in
        [("run to completion", jit::Strategy::RunToCompletion), ("staged at every table", jit::Strategy::Staged)]
    {
        let mut options = without(Without::default());
        options.code.jit.strategy = strategy;
        all.push((format!("everything, {name}"), options));
    }
    let one = |name: &&str| Without::new([name]).expect("the name is in the list");
    all.extend(names.iter().map(|name| (format!("all but {name}"), without(one(name)))));
    let mut plain = without(Without::default());
    plain.code.jit.opt_level = jit::OptLevel::None;
    all.push(("everything, Cranelift without its own passes".to_string(), plain));
    all
}

/// Measures all variants of one program; ratios are to the variant with all optimisations.
///
/// # Errors
/// If a variant cannot be loaded, variants differ, or the lock cannot be taken.
pub fn run(title: &str, workload: &Workload, settings: &Settings) -> Result<Row> {
    let mut subjects = Vec::new();
    for (name, options) in variants(&settings.options) {
        subjects.push(subject::sluice(&name, workload, &options).with_context(|| format!("{title}: {name}"))?);
    }
    let fates = compared(title, &mut subjects, workload, settings)?;
    let series = timed(&mut subjects, workload, settings)?;
    let bars = series[1..]
        .iter()
        .map(|s| Bar::without(&format!("{} / everything", s.name), Ratio::new(s, &series[0])))
        .collect();
    Ok(Row { name: title.to_string(), series, bars, fates })
}
