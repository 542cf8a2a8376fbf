//! `bmv2-json`: JSON that the reference compiler (`p4c-bm2-ss`) made of its samples, with the samples' scripts.
//!
//! `--json DIR` says where the JSON is: `DIR/p4_14_samples/NAME.json` and `DIR/p4_16_samples/NAME.json`. `docs/bmv2.md`
//! says how to make it. Every file is checked; each that has a script runs it on each engine.

use super::process::End;
use super::report::{Bar, Case, Suite, Verdict};
use super::{Corpus, process};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// The folders of samples.
const FOLDERS: [&str; 2] = ["p4_14_samples", "p4_16_samples"];

/// Files and scripts that do not pass, and why.
const DIFFERS: [(&str, &str); 2] = [
    ("p4_16_samples/extract_for_header_union", "the JSON has headers of a type that it does not declare"),
    (
        "p4_14_samples/counter3",
        "the script counts the frame check sequence, which no switch sees; p4c's driver passes over its checks",
    ),
];

/// What a script's checks complain of when frames come that it does not mention.
const UNMENTIONED: &str = "a frame that nothing expects";

/// One suite for the files, one per engine for the scripts.
pub fn run(corpus: &Corpus, json: Option<&Path>) -> Result<Vec<Suite>> {
    let json = json.context("bmv2-json needs --json DIR, the JSON of the samples")?;
    let mut programs: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        let of = json.join(folder);
        ensure!(of.is_dir(), "{} is no folder", of.display());
        let entries = std::fs::read_dir(&of)?.collect::<std::io::Result<Vec<_>>>()?;
        programs.extend(entries.into_iter().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json")));
    }
    programs.sort();
    let name = |program: &Path| program.strip_prefix(json).unwrap_or(program).with_extension("").display().to_string();
    let check = |program: &PathBuf| {
        let mut command = process::command(&corpus.sluice);
        command.arg("check").arg(program);
        Ok(Case::of_output(name(program), &process::limited(command)?))
    };
    let mut suites = vec![suite("bmv2-json check".to_string(), process::for_each(&programs, check)?)];
    let script = |program: &PathBuf| corpus.testdata.join(name(program)).with_extension("stf");
    programs.retain(|p| script(p).exists());
    for engine in &corpus.engines {
        let cases = process::for_each(&programs, |program| {
            let script = script(program);
            let mut command = process::command(&corpus.sluice);
            command.arg("stf").arg(program).arg(&script).args(["--engine", engine]);
            let output = process::limited(command)?;
            let mut case = Case::of_output(name(program), &output);
            // bmv2's test driver looks only at ports that a script expects something from; these scripts count only.
            let text = std::fs::read_to_string(&script)?;
            let expects = text.lines().any(|l| l.trim_start().starts_with("expect"));
            let complaints = output.stderr.lines().filter(|l| l.contains(".stf"));
            if !expects && matches!(output.end, End::Code(1)) && complaints.clone().all(|l| l.contains(UNMENTIONED)) {
                case.verdict = Verdict::Passed;
            }
            Ok(case)
        })?;
        suites.push(suite(format!("bmv2-json {engine}"), cases));
    }
    Ok(suites)
}

fn suite(name: String, cases: Vec<Case>) -> Suite {
    let mut suite = Suite { name, cases, bars: Vec::new(), remarks: Vec::new() };
    let all = suite.cases.len();
    let known = |c: &&Case| DIFFERS.iter().any(|(name, _)| c.name == *name);
    let need = all - suite.cases.iter().filter(known).count();
    suite.bars.push(Bar::AtLeast { what: "passed".into(), have: suite.count(Verdict::Passed), of: all, need });
    for folder in FOLDERS {
        let of: Vec<&Case> = suite.cases.iter().filter(|c| c.name.starts_with(folder)).collect();
        let passed = of.iter().filter(|c| c.verdict == Verdict::Passed).count();
        suite.remarks.push(format!("{folder}: {passed} of {}", of.len()));
    }
    for case in suite.cases.iter().filter(|c| c.verdict != Verdict::Passed) {
        let known = DIFFERS.iter().find(|(name, _)| case.name == *name).map(|(_, why)| *why);
        let reason = case.details.get("reason").and_then(|r| r.as_str()).unwrap_or_default();
        suite.remarks.push(format!("not passed: {}: {}", case.name, known.unwrap_or(reason)));
    }
    suite
}
