//! `docs/v1model.md` is complete and true as far as names go: every field of `standard_metadata`, every extern with its
//! methods, every function and every hash algorithm of v1model has a row, and every row names tests that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names that programs can use: `field`, `extern`, `extern.method`, `function`, `HashAlgorithm.member`.
fn interface() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("crates/sema/p4include/v1model.p4")).expect("the embedded file");
    let last_word = |line: &str| line.rsplit([' ', '.']).next().unwrap_or_default().to_string();
    // What is called: the word before the parameters, and before those of the type.
    let called = |line: &str| {
        let head = line.split('(').next().unwrap_or_default();
        let head = if head.ends_with('>') { head.rsplit_once('<').map_or(head, |(name, _)| name) } else { head };
        last_word(head)
    };
    let mut names = BTreeSet::new();
    let mut inside: Option<String> = None;
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with("//") && !l.starts_with('#')) {
        match &inside {
            Some(_) if line.starts_with('}') => inside = None,
            Some(owner) if owner == "standard_metadata_t" => {
                if let Some(field) = line.strip_suffix(';') {
                    names.insert(last_word(field));
                }
            }
            // Constructors have the extern's name.
            Some(owner) => {
                let method = called(line);
                if line.contains('(') && method != *owner {
                    names.insert(format!("{owner}.{method}"));
                }
            }
            None => {
                if line.starts_with("struct standard_metadata_t") {
                    inside = Some("standard_metadata_t".to_string());
                } else if let Some(members) = line.strip_prefix("enum HashAlgorithm {") {
                    let members = members.trim_end_matches(['}', ' ']).split(',');
                    names.extend(members.map(|m| format!("HashAlgorithm.{}", m.trim())));
                } else if line.starts_with("extern ") && line.ends_with('{') {
                    let name = line["extern ".len()..].split(['<', ' ']).next().unwrap_or_default().to_string();
                    names.insert(name.clone());
                    inside = Some(name);
                } else if line.starts_with("extern ") {
                    names.insert(called(line));
                }
            }
        }
    }
    names
}

/// The rows of the page's tables, as cells.
fn rows() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(root().join("docs/v1model.md")).expect("the page");
    let rows = page.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| ---"));
    rows.map(|l| l.trim_matches('|').split(" | ").map(|c| c.trim().to_string()).collect()).collect()
}

/// What stands in backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
fn every_name_of_the_interface_has_a_row() {
    let interface = interface();
    assert!(interface.len() > 55, "{interface:?}");
    let named: BTreeSet<String> = rows().iter().flat_map(|row| quoted(&row[0])).collect();
    let missing: Vec<&String> = interface.difference(&named).collect();
    assert!(missing.is_empty(), "docs/v1model.md says nothing about {missing:?}");
}

#[test]
fn every_row_names_tests_that_exist() {
    let mut count = 0;
    for row in rows().iter().filter(|row| !["field", "situation", "extern", "what"].contains(&row[0].as_str())) {
        let tests = quoted(row.last().expect("a row has cells"));
        assert!(!tests.is_empty(), "no test for {}", row[0]);
        for test in tests {
            let path = match test.contains('/') {
                true => root().join(&test),
                false => root().join("tests/stf/v1model").join(&test).with_extension("stf"),
            };
            assert!(path.exists(), "{} names `{test}`, which is not there", row[0]);
        }
        count += 1;
    }
    assert!(count > 55, "only {count} rows");
}
