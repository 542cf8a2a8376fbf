//! The registry of codes is complete: every code that a crate emits is explained, every explained one is emitted, each
//! wrong program gives its code and no other error, and each right one is accepted.

use base::Severity;
use frontend::explain::{self, Part};
use frontend::{Input, Options, Until, compile};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Codes that no text can cause today, each with the reason. They guard against bugs in other stages.
const WITHOUT_EXAMPLES: &[(&str, &str)] =
    &[("E0010", "a program that is given as text includes no files of the machine")];

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            rust_files(&entry, out);
        } else if entry.extension().is_some_and(|e| e == "rs") && !entry.ends_with("tests.rs") {
            out.push(entry);
        }
    }
}

/// Codes in string literals of the sources, without tests, with their locations.
fn codes_in_sources() -> BTreeMap<String, Vec<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for dir in std::fs::read_dir(crates).unwrap().map(|e| e.unwrap().path().join("src")).filter(|d| d.is_dir()) {
        rust_files(&dir, &mut files);
    }
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            for literal in line.split('"').skip(1).step_by(2) {
                let is_code = literal.len() == 5
                    && literal.starts_with(['E', 'W'])
                    && literal[1..].bytes().all(|b| b.is_ascii_digit());
                if is_code && !line.trim_start().starts_with("//") {
                    found.entry(literal.into()).or_default().push(format!("{}:{}", file.display(), number + 1));
                }
            }
        }
    }
    found
}

#[test]
fn every_code_of_the_sources_is_explained_and_every_explained_one_exists() {
    let sources: BTreeSet<String> = codes_in_sources().into_keys().collect();
    let explained: BTreeSet<String> = explain::entries().iter().map(|e| e.code.to_string()).collect();
    let missing: Vec<_> = sources.difference(&explained).collect();
    assert!(missing.is_empty(), "write `## CODE: title` in crates/frontend/explain/ for {missing:?}");
    let stale: Vec<_> = explained.difference(&sources).collect();
    assert!(stale.is_empty(), "no source emits {stale:?}");
    assert_eq!(explained.len(), explain::entries().len(), "a code is explained twice");
}

#[test]
fn no_code_has_two_meanings() {
    // Codes for P4 authors are constants, each defined once; the IR's verifier uses literals.
    let twice: Vec<_> =
        codes_in_sources().into_iter().filter(|(code, places)| !code.starts_with("E07") && places.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
    let mut titles = BTreeSet::new();
    for entry in explain::entries() {
        assert!(titles.insert(entry.title), "two codes have the title «{}»", entry.title);
    }
}

#[test]
fn examples_give_their_code_or_are_accepted() {
    let mut failures = String::new();
    for entry in explain::entries() {
        let examples: Vec<_> = entry.examples().collect();
        let without = WITHOUT_EXAMPLES.iter().any(|(code, _)| *code == entry.code)
            || ["E07", "E08"].iter().any(|group| entry.code.starts_with(group));
        let complete = examples.iter().any(|e| e.wrong) && examples.iter().any(|e| !e.wrong);
        if complete == without {
            failures +=
                &format!("{}: examples {}\n", entry.code, if without { "of a code without" } else { "are missing" });
        }
        if !matches!(entry.parts.last(), Some(Part::Text(text)) if text.starts_with("Specification: ")) {
            failures += &format!("{}: the clause of the specification is missing at the end\n", entry.code);
        }
        for example in examples {
            let program = example.program();
            let input = Input::Text { name: "example.p4", text: &program };
            // Only the last group needs lowering.
            let until = if entry.code[1..].starts_with("06") { Until::Ir } else { Until::Types };
            let mut compiled = compile(input, &Options::default(), until).unwrap();
            // The errors that prevent loading have codes, too.
            compiled.diagnostics.append(&mut compiled.unloadable);
            let shown = compiled.render(false);
            let mut found: Vec<&str> = compiled.diagnostics.iter().map(|d| d.code).collect();
            if entry.code.starts_with('E') {
                found = compiled.diagnostics.iter().filter(|d| d.severity == Severity::Error).map(|d| d.code).collect();
            }
            let kind = if example.wrong { "wrong" } else { "right" };
            let several = ["E0208", "E0002"].contains(&entry.code);
            let good = match example.wrong {
                true if several => found.contains(&entry.code),
                true => found == [entry.code],
                false => !found.contains(&entry.code) && !compiled.failed(),
            };
            if !good {
                failures += &format!("{}: the {kind} example gives {found:?}\n{program}\n{shown}\n", entry.code);
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn codes_are_found_in_any_case_and_near_ones_are_suggested() {
    assert_eq!(explain::entry("e0301").unwrap().code, "E0301");
    assert!(explain::entry("E9999").is_none());
    assert_eq!(explain::similar("E0310").map(|c| c.len()), Some(5));
    let text = explain::entry("E0301").unwrap().render();
    assert!(text.starts_with("E0301: ") && text.contains("Wrong:") && text.contains("Right:"), "{text}");
    assert!(text.trim_end().lines().last().unwrap().starts_with("Specification: "), "{text}");
}
