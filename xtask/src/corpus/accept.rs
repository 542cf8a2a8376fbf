//! `accept`: programs that p4c accepts must be accepted here, down to machine code where there is a `main`.
//!
//! Which programs: see `files::programs`, as far as they include no architecture but ours. A program that includes none and
//! declares its own counts too.

use super::report::{Bar, Case, Suite, Verdict};
use super::{Corpus, files, process};
use anyhow::Result;
use std::collections::BTreeMap;

/// Runs it.
pub fn run(corpus: &Corpus) -> Result<Suite> {
    let mut programs = files::programs(&corpus.samples)?;
    let all = programs.len();
    programs.retain(|p| files::needs_only_ours(p, &corpus.samples));
    let cases = process::for_each(&programs, |program| {
        let mut command = process::command(&corpus.sluice);
        command.args(["check", "--time", "-I"]).arg(&corpus.samples).arg(program);
        let name = program.strip_prefix(&corpus.samples).unwrap_or(program).display().to_string();
        Ok(Case::of_output(name, &process::limited(command)?))
    })?;
    let mut remarks = vec![format!("{} of {all} programs need another architecture and are out", all - programs.len())];
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (program, case) in programs.iter().zip(&cases) {
        let (passed, all) = counts.entry(files::architecture(program, &corpus.samples)).or_default();
        *passed += usize::from(case.verdict == Verdict::Passed);
        *all += 1;
    }
    for (architecture, (passed, all)) in &counts {
        remarks.push(format!("architecture {architecture}: {passed} of {all} accepted"));
    }
    let mut suite = Suite { name: "accept".into(), cases, bars: Vec::new(), remarks };
    suite.bars.push(Bar::percent("accepted", suite.count(Verdict::Passed), suite.cases.len(), 99));
    // All of the other architectures.
    for (architecture, (have, of)) in counts.into_iter().filter(|(name, _)| !matches!(*name, "none" | "v1model")) {
        suite.bars.push(Bar::AtLeast { what: architecture.to_string(), have, of, need: of });
    }
    Ok(suite)
}
