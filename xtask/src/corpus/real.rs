//! `programs`: programs that people run. How long each takes to compile, phase by phase, beside its lines; and the scripts in
//! `tests/real/`, which send traffic through them.
//!
//! A time is the least of [`RUNS`], each in a process of its own that is pinned to one processor (`taskset`), and goes from
//! source to machine code without starting the process. The first lines of a script say what it runs:
//!
//! ```text
//! # program: fabric_20190420/fabric.p4      below p4_16_samples
//! # defines: WITH_IPV6 SIZE=3               as -D, may be absent
//! ```

use super::process::{self, End};
use super::report::{Bar, Case, Suite, Verdict};
use super::{Corpus, files, peer};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How often each is compiled; the least time counts, as the others were disturbed.
const RUNS: usize = 7;

/// Programs with a bar, in milliseconds.
const BARS: [(&str, f64); 3] = [("router.p4", 20.0), ("fabric_20190420/fabric.p4", 300.0), ("switch_p4_16.p4", 2000.0)];

/// Compile times, then scripts.
pub fn run(corpus: &Corpus) -> Result<Vec<Suite>> {
    Ok(vec![times(corpus)?, scripts(corpus)?])
}

fn programs(corpus: &Corpus) -> Result<Vec<(String, PathBuf)>> {
    let samples = &corpus.samples;
    let mut programs = vec![("router.p4".to_string(), PathBuf::from("examples/router/router.p4"))];
    let mut named = files::below(&samples.join("pins"), "p4")?;
    named.push(samples.join("dash/dash-pipeline-v1model-bmv2.p4"));
    named.push(samples.join("fabric_20190420/fabric.p4"));
    named.push(samples.join("switch_p4_16.p4"));
    for program in named {
        ensure!(program.exists(), "the checkout has no {}", program.display());
        let name = program.strip_prefix(samples).unwrap_or(&program).display().to_string();
        programs.push((name, program));
    }
    Ok(programs)
}

fn times(corpus: &Corpus) -> Result<Suite> {
    let mut suite = Suite { name: "programs".into(), cases: Vec::new(), bars: Vec::new(), remarks: Vec::new() };
    for (name, program) in programs(corpus)? {
        let mut best: Option<Times> = None;
        let mut case = None;
        for _ in 0..RUNS {
            let mut command = process::command("taskset");
            command.args(["-c", "0"]).arg(&corpus.sluice).args(["check", "--time", "--format", "json", "-I"]);
            command.arg(&corpus.samples).arg(&program);
            let output = process::limited(command)?;
            case = Some(Case::of_output(name.clone(), &output));
            if output.end != End::Code(0) {
                break;
            }
            let times = Times::read(&output.stdout)?;
            if best.as_ref().is_none_or(|b| times.total < b.total) {
                best = Some(times);
            }
        }
        let mut case = case.context("each program is compiled")?;
        if let Some(times) = &best {
            let phases: Vec<String> = times.phases.iter().map(|(phase, ms)| format!("{phase} {ms:.1}")).collect();
            suite.remarks.push(format!(
                "{name}: {} lines, {} with includes: {:.1} ms ({})",
                times.lines,
                times.lines_with_includes,
                times.total,
                phases.join(", ")
            ));
            case.set("lines", times.lines);
            case.set("lines_with_includes", times.lines_with_includes);
            case.set("ms", times.total);
            let phases: Map<String, Value> = times.phases.iter().map(|(p, ms)| (p.clone(), (*ms).into())).collect();
            case.set("phases_ms", phases);
        }
        if let Some((_, limit)) = BARS.iter().find(|(of, _)| *of == name) {
            let have = best.map(|b| b.total);
            suite.bars.push(Bar::AtMostMs { what: format!("{name} to machine code"), have, limit: *limit });
        }
        if let Some(p4test) = corpus.p4test.as_ref().filter(|_| case.verdict == Verdict::Passed) {
            let compared = peer::compare(corpus, p4test, &program)?;
            suite
                .remarks
                .push(format!("{name}: whole process {:.1} ms, p4test {:.1} ms", compared.ours, compared.p4test));
            case.set("process_ms", compared.ours);
            case.set("p4test_ms", compared.p4test);
            let what = format!("{name}, process beside p4test's");
            suite.bars.push(Bar::RatioBelowOne { what, have: compared.ratio() });
        }
        suite.cases.push(case);
    }
    let of = suite.cases.len();
    suite.bars.push(Bar::AtLeast { what: "compile".into(), have: suite.count(Verdict::Passed), of, need: of });
    Ok(suite)
}

/// What `sluice check --time --format json` says.
#[derive(Default)]
struct Times {
    lines: u64,
    lines_with_includes: u64,
    phases: Vec<(String, f64)>,
    total: f64,
}

impl Times {
    fn read(json_lines: &str) -> Result<Times> {
        let mut times = Times::default();
        for value in json_lines.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
            if let (Some(stage), Some(ms)) = (value["stage"].as_str(), value["ms"].as_f64()) {
                match stage {
                    "total" => times.total = ms,
                    stage => times.phases.push((stage.to_string(), ms)),
                }
            }
            if let (Some(lines), Some(all)) = (value["lines"].as_u64(), value["lines_with_includes"].as_u64()) {
                (times.lines, times.lines_with_includes) = (lines, all);
            }
        }
        ensure!(times.total > 0.0, "`sluice check --time` gave no total");
        Ok(times)
    }
}

fn scripts(corpus: &Corpus) -> Result<Suite> {
    let scripts = files::below(Path::new("tests/real"), "stf")?;
    let cases = process::for_each(&scripts, |script| {
        let text = files::read(script);
        let program = header(&text, "program")
            .with_context(|| format!("{} does not begin with `# program: PATH`", script.display()))?;
        let mut command = process::command(&corpus.sluice);
        command.arg("stf").arg(corpus.samples.join(program)).arg(script).args(["--engine", "all", "-I"]);
        command.arg(&corpus.samples);
        for define in header(&text, "defines").unwrap_or_default().split_whitespace() {
            command.arg("-D").arg(define);
        }
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let output = process::limited(command)?;
        let mut case = Case::of_output(name, &output);
        case.set("program", program);
        case.set("result", output.stdout.lines().last().unwrap_or_default());
        Ok(case)
    })?;
    let line = |c: &Case| {
        let text = |field: &str| c.details.get(field).and_then(Value::as_str).unwrap_or_default();
        format!("{} on {}: {} {}", c.name, text("program"), text("result"), text("reason"))
    };
    let remarks = cases.iter().map(line).collect();
    let mut suite = Suite { name: "traffic".into(), cases, bars: Vec::new(), remarks };
    let of = suite.cases.len();
    let have = suite.count(Verdict::Passed);
    suite.bars.push(Bar::AtLeast { what: "scripts passed on all engines".into(), have, of, need: of });
    Ok(suite)
}

/// The value of `# NAME: VALUE` in the comments that a script begins with.
fn header<'a>(script: &'a str, name: &str) -> Option<&'a str> {
    let comments = script.lines().take_while(|l| l.starts_with('#')).map(|l| l[1..].trim_start());
    comments.filter_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_program() {
        let script = "# program: a/b.p4\n# defines: X Y=2\n# note\nadd t\n# late: 3\n";
        assert_eq!(header(script, "program"), Some("a/b.p4"));
        assert_eq!(header(script, "defines"), Some("X Y=2"));
        assert_eq!(header(script, "late"), None);
    }

    #[test]
    fn times_are_read_from_lines() {
        let lines = "{\"severity\":\"warning\"}\n{\"lines\":3,\"lines_with_includes\":9}\n\
                     {\"stage\":\"parse\",\"ms\":1.5}\n{\"stage\":\"total\",\"ms\":2.0}\n";
        let times = Times::read(lines).unwrap();
        assert_eq!((times.lines, times.lines_with_includes, times.total), (3, 9, 2.0));
        assert_eq!(times.phases, [("parse".to_string(), 1.5)]);
        assert!(Times::read("").is_err());
    }
}
