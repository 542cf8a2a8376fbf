//! `generated`: scripts that p4c's test generator (`p4testgen`, target bmv2, architecture v1model) wrote for programs of any origin.
//!
//! `SCRIPTS=ROOT` says where scripts and programs are: those of `ROOT/a/b.p4` lie in `SCRIPTS/a/b/`. `docs/p4-coverage.md` says how to make them.
//! Every script runs on all engines and must pass, but for programs in [`DIFFERS`].

use super::report::{Bar, Case, Suite, Verdict};
use super::{Corpus, files, process};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Why a program's scripts may fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Why {
    /// Sluice refuses the program, with a message that says what in it is not supported.
    Refused,
    /// The script expects what the generator's model of v1model does, and bmv2 and the specification do otherwise.
    Model,
    /// What the script expects is unspecified or undefined.
    Unspecified,
}

/// Programs whose scripts expect something else, by file name without extension, and what.
const DIFFERS: [(&str, Why, &str); 37] = [
    ("parser-unroll-test1", Why::Refused, "`(int)` of a value known at run time only"),
    ("parser-unroll-test3", Why::Refused, "a header of 17 bits is extracted"),
    ("parser-unroll-test4", Why::Refused, "a header of 17 bits is extracted"),
    ("parser-unroll-test5", Why::Refused, "a header of 17 bits is extracted"),
    ("issue3225", Why::Refused, "a header of 3 bits is extracted"),
    ("issue60", Why::Refused, "two `lpm` keys in a table"),
    ("issue3091", Why::Refused, "an extern of the program's own"),
    ("bit0b-bmv2", Why::Refused, "`bit<0>` for controllers"),
    ("bit0b-bmv2-FrontEnd_27_FrontEndDump", Why::Refused, "`bit<0>` for controllers"),
    ("bit0b-bmv2-FrontEnd_67_FrontEndLast", Why::Refused, "`bit<0>` for controllers"),
    ("bit0b-bmv2-MidEnd_43_MidEndLast", Why::Refused, "`bit<0>` for controllers"),
    ("bmv2_testgen_assert_2", Why::Refused, "`testgen.p4`, the generator's own externs"),
    ("bmv2_testgen_assert_assume_1", Why::Refused, "`testgen.p4`, the generator's own externs"),
    ("bmv2_testgen_assert_assume_2", Why::Refused, "`testgen.p4`, the generator's own externs"),
    ("link_monitor", Why::Model, "`next` in a state that loops stays at element 0"),
    ("metrics_test_2", Why::Model, "`egress_spec` that egress writes chooses the port"),
    ("v1model-multiple-resubmit-reasons-hand-edited", Why::Model, "preserved fields are lost by `resubmit`"),
    ("v1model-multiple-resubmit-reasons-auto-xlated", Why::Model, "preserved fields are lost by `resubmit`"),
    ("resubmit", Why::Model, "`egress_spec` outlives `resubmit`"),
    ("issue3068", Why::Model, "`egress_spec` outlives `resubmit`"),
    ("p414-special-ops", Why::Model, "a packet is recirculated once, and loses preserved fields"),
    ("p414-special-ops-2-bmv2", Why::Model, "a packet is recirculated once, and loses preserved fields"),
    ("p414-special-ops-3-bmv2", Why::Model, "a packet is recirculated once, and loses preserved fields"),
    ("packet_redirect", Why::Model, "a packet is recirculated or cloned once"),
    ("copy_to_cpu", Why::Model, "a packet whose clone is dropped is dropped"),
    ("union4-bmv2", Why::Model, "`setInvalid` of one header of a union leaves another one valid"),
    ("example1", Why::Model, "a table's `entries` that are not `const` are ignored"),
    ("bmv2_assert", Why::Model, "`assert` ends the trace"),
    ("bmv2_assume", Why::Model, "`assume` ends the trace"),
    ("v1model-copy-meta-to-packet", Why::Unspecified, "timestamps are 0"),
    ("queueing", Why::Unspecified, "times and lengths of queues are 0"),
    ("header-bmv2", Why::Unspecified, "fields of an invalid header keep what was written"),
    ("stack-bmv2", Why::Unspecified, "fields of an invalid header keep what was written"),
    ("stack-bvec-bmv2", Why::Unspecified, "fields of an invalid header keep what was written"),
    ("gauntlet_hdr_assign_1-bmv2", Why::Unspecified, "fields of an invalid header keep what was written"),
    ("issue1653-complex-bmv2", Why::Unspecified, "fields of an invalid header keep what was written"),
    ("parser-inline-test13", Why::Unspecified, "`out` arguments of a parser that was rejected"),
];

/// One suite per `SCRIPTS=ROOT`.
pub fn run(corpus: &Corpus, sets: &[String]) -> Result<Vec<Suite>> {
    ensure!(!sets.is_empty(), "the suite `generated` needs --generated SCRIPTS=ROOT");
    sets.iter().map(|set| of_set(corpus, set)).collect()
}

fn of_set(corpus: &Corpus, set: &str) -> Result<Suite> {
    let (scripts, root) =
        set.split_once('=').with_context(|| format!("--generated needs SCRIPTS=ROOT, not `{set}`"))?;
    let folder = |path: &str| Path::new(path).canonicalize().with_context(|| format!("there is no folder {path}"));
    let (scripts, root) = (folder(scripts)?, folder(root)?);
    let all = files::below(&scripts, "stf")?;
    let name = scripts.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let cases = process::for_each(&all, |script| {
        let of = script.parent().unwrap_or(script).strip_prefix(&scripts)?;
        let mut program = root.join(of).into_os_string();
        program.push(".p4");
        let mut command = process::command(&corpus.sluice);
        command.arg("stf").arg(PathBuf::from(program)).arg(script).args(["--engine", "all", "-I"]).arg(&root);
        let case = script.strip_prefix(&scripts)?.with_extension("").display().to_string();
        Ok(Case::of_output(case, &process::limited(command)?))
    })?;
    Ok(judged(name, cases))
}

/// The program of a case: its file name without extension.
fn program_of(case: &Case) -> &str {
    case.name.rsplit('/').nth(1).unwrap_or(&case.name)
}

fn judged(name: String, cases: Vec<Case>) -> Suite {
    let differs = |case: &Case| DIFFERS.iter().find(|(program, ..)| *program == program_of(case));
    let (known, others): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| differs(case).is_some());
    let passed = |cases: &[&Case]| cases.iter().filter(|c| c.verdict == Verdict::Passed).count();
    let (need, have) = (others.len(), passed(&others));
    let folders: BTreeSet<_> = cases.iter().filter_map(|case| case.name.rsplit_once('/')).map(|(of, _)| of).collect();
    let mut remarks = vec![format!("{} programs", folders.len())];
    let mut by_reason: BTreeMap<(Why, &str), (usize, BTreeSet<&str>)> = BTreeMap::new();
    for case in known.iter().filter(|case| case.verdict != Verdict::Passed) {
        if let Some((program, why, what)) = differs(case) {
            let of = by_reason.entry((*why, what)).or_default();
            of.0 += 1;
            of.1.insert(program);
        }
    }
    for ((why, what), (count, programs)) in by_reason {
        let programs: Vec<_> = programs.into_iter().collect();
        remarks.push(format!("{count} not passed ({why:?}: {what}): {}", programs.join(", ")));
    }
    for case in others.iter().filter(|case| case.verdict != Verdict::Passed) {
        let reason = case.details.get("reason").and_then(|r| r.as_str()).unwrap_or_default();
        remarks.push(format!("not passed: {}: {reason}", case.name));
    }
    let bars = vec![Bar::AtLeast { what: "passed, of programs that nothing is known of".into(), have, of: need, need }];
    Suite { name: format!("generated {name}"), cases, bars, remarks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, verdict: Verdict) -> Case {
        Case { name: name.into(), verdict, details: Default::default() }
    }

    #[test]
    fn only_programs_with_a_reason_may_fail() {
        let cases = |second| vec![case("a/b/b_1", Verdict::Passed), case("c/link_monitor/x_1", second)];
        assert!(!judged("x".into(), cases(Verdict::Failed)).missed());
        assert!(judged("x".into(), vec![case("a/b/b_1", Verdict::Failed)]).missed());
        assert!(judged("x".into(), cases(Verdict::Crashed)).missed());
        assert!(judged("x".into(), vec![]).missed());
    }
}
