//! `refuse`: p4c's wrong programs must be refused, with the first error on the line where p4c has its first.
//!
//! What p4c says is in `p4_16_errors_outputs/NAME-stderr`: `FILE(LINE): [--Werror=kind] error: MESSAGE`, and its syntax errors
//! as `FILE(LINE):syntax error, ...`. An error may have no place at all, and some outputs have only warnings; those programs
//! count as refused or not, but no line is asked of them. A type error names more places (`---- Actual
//! error:`, `---- Originating from:`), often better ones; our error on one of those is counted apart (`elsewhere in it`) and
//! does not reach the bar.

use super::process::End;
use super::report::{Bar, Case, Suite, Verdict};
use super::{Corpus, files, process};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What p4c says about a program.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Theirs {
    /// Its first error.
    Error { file: String, line: u64, message: String, more: Vec<u64> },
    /// Its first error, which says no place.
    NoPlace { message: String },
    /// It accepts the program, perhaps with warnings.
    Accepted,
}

/// Where our first error is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ours {
    file: String,
    line: u64,
    code: String,
    message: String,
}

/// Runs it.
pub fn run(corpus: &Corpus) -> Result<Suite> {
    let dir = corpus.testdata.join("p4_16_errors");
    let outputs = corpus.testdata.join("p4_16_errors_outputs");
    let programs = files::below(&dir, "p4")?;
    let cases = process::for_each(&programs, |program| {
        let name = program.strip_prefix(&dir).unwrap_or(program).display().to_string();
        let theirs = theirs(&files::read(&outputs.join(format!("{name}-stderr"))));
        let mut command = process::command(&corpus.sluice);
        command
            .args(["check", "--format", "json", "-I"])
            .arg(&corpus.samples)
            .arg("-I")
            .arg(&corpus.includes)
            .arg(program);
        let output = process::limited(command)?;
        let ours = errors(&output.stdout);
        let mut case = Case::of_output(name, &output);
        case.verdict = match output.end {
            End::Code(1) => Verdict::Passed,
            End::Code(_) => Verdict::Failed,
            End::Crashed => Verdict::Crashed,
            End::TimedOut => Verdict::TimedOut,
        };
        let kind = compare(&theirs, &ours, case.verdict);
        if case.verdict != Verdict::Crashed {
            case.details.remove("reason");
        }
        case.set("line", kind);
        match &theirs {
            Theirs::Error { file, line, message, more } => {
                case.set("theirs_more_lines", more.clone());
                case.set("theirs", format!("{}:{line}: {message}", file_name(file)));
            }
            Theirs::NoPlace { message } => case.set("theirs", message.clone()),
            Theirs::Accepted => case.set("theirs", "accepted"),
        }
        let line = |o: &Ours| format!("{}:{}: {} {}", file_name(&o.file), o.line, o.code, o.message);
        case.set("ours", ours.iter().map(line).map(Value::from).collect::<Vec<_>>());
        Ok(case)
    })?;
    Ok(judge(cases))
}

/// `same`, `elsewhere in it` (our first is on another line that p4c's first error names), `later` (another of our errors is on
/// the line), `other`, `accepted`, or why there is no line to compare.
fn compare(theirs: &Theirs, ours: &[Ours], verdict: Verdict) -> &'static str {
    let on = |o: &Ours, file: &str, line: u64| o.line == line && file_name(&o.file) == file_name(file);
    match theirs {
        Theirs::Accepted => "p4c accepts",
        Theirs::NoPlace { .. } => "p4c names no place",
        Theirs::Error { .. } if verdict != Verdict::Passed => "accepted",
        Theirs::Error { file, line, more, .. } => match ours.iter().position(|o| on(o, file, *line)) {
            Some(0) => "same",
            _ if ours.first().is_some_and(|o| more.iter().any(|more| on(o, file, *more))) => "elsewhere in it",
            Some(_) => "later",
            None => "other",
        },
    }
}

fn judge(cases: Vec<Case>) -> Suite {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for case in &cases {
        let kind = case.details.get("line").and_then(Value::as_str).unwrap_or_default();
        *kinds.entry(kind.to_string()).or_default() += 1;
    }
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    let with_line = cases.len() - count("p4c accepts") - count("p4c names no place");
    let accepted = cases.len() - cases.iter().filter(|c| c.verdict == Verdict::Passed).count();
    let bars = vec![
        Bar::percent("refused", cases.len() - accepted, cases.len(), 95),
        Bar::percent("first error on p4c's line, of those with one", count("same"), with_line, 90),
    ];
    let words: Vec<String> = kinds.iter().map(|(k, n)| format!("{k} {n}")).collect();
    let mut remarks = vec![format!("line: {}", words.join(", "))];
    for case in cases.iter().filter(|c| c.verdict == Verdict::Passed) {
        let first = case.details.get("ours").and_then(|o| o[0].as_str()).unwrap_or_default();
        if first.contains(" E0001 ") {
            remarks.push(format!("refused only because it includes what we do not have: {}", case.name));
        }
    }
    Suite { name: "refuse".into(), cases, bars, remarks }
}

/// Reads what p4c printed.
fn theirs(text: &str) -> Theirs {
    let mut lines = text.lines();
    // The next error may have a place, but the first is the one to compare with.
    let Some((place, message)) = lines.by_ref().find_map(error_line) else { return Theirs::Accepted };
    let Some((file, line)) = place else { return Theirs::NoPlace { message } };
    let own = lines.take_while(|l| error_line(l).is_none());
    let more = own.filter_map(|l| line_number(l, &file)).filter(|more| *more != line).collect();
    Theirs::Error { file, line, message, more }
}

/// `FILE(LINE)...`
fn line_number(line: &str, file: &str) -> Option<u64> {
    line.strip_prefix(file)?.strip_prefix('(')?.split_once(')')?.0.parse().ok()
}

/// Place and message of a line that begins an error.
fn error_line(line: &str) -> Option<(Option<(String, u64)>, String)> {
    let (place, rest) = match line.split_once("):").and_then(|(head, rest)| Some((head.rsplit_once('(')?, rest))) {
        Some(((file, number), rest)) if number.parse::<u64>().is_ok() => {
            (Some((file.to_string(), number.parse().ok()?)), rest.trim_start())
        }
        _ => (None, line),
    };
    let kind = rest.strip_prefix("[--Werror=").and_then(|r| r.split_once("] error: ")).map(|(_, message)| message);
    let message = kind.or_else(|| rest.strip_prefix("error: ")).or_else(|| {
        let bare = place.is_some() && rest.to_lowercase().contains("error") && !rest.starts_with("[--W");
        bare.then_some(rest)
    })?;
    Some((place, message.to_string()))
}

/// Our errors, in the order they are reported.
fn errors(json_lines: &str) -> Vec<Ours> {
    let text = |v: &Value, field: &str| v[field].as_str().unwrap_or_default().to_string();
    json_lines
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .filter(|v| v["severity"] == "error")
        .map(|v| Ours {
            file: text(&v, "file"),
            line: v["line"].as_u64().unwrap_or_default(),
            code: text(&v, "code"),
            message: text(&v, "message"),
        })
        .collect()
}

fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name().map_or_else(|| path.to_string(), |n| n.to_string_lossy().into_owned());
    name.trim_matches(['<', '>']).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_found_among_warnings() {
        let text =
            "a.p4(3): [--Wwarn=unused] warning: 'x' is unused\n    x\na.p4(7): [--Werror=type-error] error: no\n";
        let error = |line, message: &str| Theirs::Error {
            file: "a.p4".into(),
            line,
            message: message.into(),
            more: Vec::new(),
        };
        assert_eq!(theirs(text), error(7, "no"));
        assert_eq!(theirs("a.p4(8):syntax error, unexpected _\n"), error(8, "syntax error, unexpected _"));
        assert_eq!(theirs("a.p4(8): error: no\n"), error(8, "no"));
        let bare = "[--Werror=invalid] error: first\na.p4(9): [--Werror=x] error: second\n";
        assert_eq!(theirs(bare), Theirs::NoPlace { message: "first".into() });
        assert_eq!(theirs("a.p4(3): [--Wwarn=x] warning: Error: odd\n"), Theirs::Accepted);
    }

    #[test]
    fn a_type_error_names_more_places() {
        let more = |text: &str| match theirs(text) {
            Theirs::Error { line: 8, more, .. } => more,
            other => panic!("{other:?}"),
        };
        let first = "a.p4(8): [--Werror=type-error] error: 'package P'\n  ^\n  ---- Actual error:\n";
        assert_eq!(more(&format!("{first}a.p4(9): Cannot unify\na.p4(8)\na.p4(4)\nb.p4(3)\n")), [9, 4]);
        assert_eq!(more(&format!("{first}a.p4(9): [--Werror=x] error: y\na.p4(10)\n")), [0u64; 0]);
    }
}
