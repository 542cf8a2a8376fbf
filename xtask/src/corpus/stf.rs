//! `stf`: every sample with a script for an architecture of ours, on each engine.
//!
//! bmv2 passes all but `extern-funcs-bmv2`, whose extern functions live in a C++ module of its own: that one must be refused by
//! name, and so is not counted as passed, as are those that their architecture's document does not allow.

use super::report::{Bar, Case, Suite, Verdict};
use super::{Corpus, files, process};
use anyhow::Result;
use std::collections::BTreeMap;

/// Programs whose externs are code that we do not have.
const NEEDS_CODE: [&str; 1] = ["extern-funcs-bmv2"];

/// One suite per engine.
pub fn run(corpus: &Corpus) -> Result<Vec<Suite>> {
    let mut programs = files::programs(&corpus.samples)?;
    programs.retain(|p| p.with_extension("stf").exists() && files::architecture(p, &corpus.samples) != "none");
    let suite = |engine: &String| {
        let cases = process::for_each(&programs, |program| {
            let mut command = process::command(&corpus.sluice);
            command.arg("stf").arg(program).arg(program.with_extension("stf"));
            command.args(["--engine", engine, "-I"]).arg(&corpus.samples);
            let name =
                program.strip_prefix(&corpus.samples).unwrap_or(program).with_extension("").display().to_string();
            Ok(Case::of_output(name, &process::limited(command)?))
        })?;
        let mut suite = Suite { name: format!("stf {engine}"), cases, bars: Vec::new(), remarks: Vec::new() };
        let all = suite.cases.len();
        let need = all - suite.cases.iter().filter(|c| NEEDS_CODE.contains(&&*c.name)).count();
        suite.bars.push(Bar::AtLeast { what: "passed".into(), have: suite.count(Verdict::Passed), of: all, need });
        let top: Vec<_> = suite.cases.iter().filter(|c| !c.name.contains('/')).collect();
        let passed = top.iter().filter(|c| c.verdict == Verdict::Passed).count();
        suite.remarks.push(format!("without the folders below: {passed} of {}", top.len()));
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (program, case) in programs.iter().zip(&suite.cases) {
            let (passed, all) = counts.entry(files::architecture(program, &corpus.samples)).or_default();
            *passed += usize::from(case.verdict == Verdict::Passed);
            *all += 1;
        }
        for (architecture, (passed, all)) in counts {
            suite.remarks.push(format!("architecture {architecture}: {passed} of {all}"));
        }
        for case in suite.cases.iter().filter(|c| c.verdict != Verdict::Passed) {
            let reason = case.details.get("reason").and_then(|r| r.as_str()).unwrap_or_default();
            suite.remarks.push(format!("not passed: {}: {reason}", case.name));
        }
        Ok(suite)
    };
    corpus.engines.iter().map(suite).collect()
}
