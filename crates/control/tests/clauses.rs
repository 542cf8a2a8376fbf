//! The table of clauses in `docs/p4runtime.md` is true: the tests that it names exist, and its counts are those of its rows.

use std::collections::BTreeMap;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Cells of the rows of the tables of clauses.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let clauses = page.split("## Clause by clause").nth(1).expect("the page has the section");
    let lines = clauses.lines().filter(|l| l.starts_with("| "));
    let rows = lines.map(|l| l.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    rows.filter(|row| row.len() == 5 && matches!(row[1], "required" | "optional")).collect()
}

#[test]
fn the_named_tests_exist() {
    let page = read("docs/p4runtime.md");
    let rows = rows(&page);
    assert!(rows.len() > 60, "{} rows", rows.len());
    let mut missing = Vec::new();
    for row in &rows {
        let mut file = String::new();
        for part in row[3].split([',', ';']).map(str::trim) {
            // `path`, «file: `test`», or one more test of the same file.
            let (place, name) = part.split_once(": ").unwrap_or(("", part));
            let name = name.trim_matches('`');
            if name.contains('/') {
                read(name);
                continue;
            }
            match place {
                "" => {}
                "arbitration" => file = read("crates/control/src/arbitration/tests.rs"),
                "load" => file = read("crates/grpc/tests/load.rs"),
                "loopback" => file = read("crates/grpc/tests/loopback.rs"),
                place => file = read(&format!("crates/control/tests/p4runtime/{place}.rs")),
            }
            if !file.contains(&format!("fn {name}()")) {
                missing.push(format!("{}: {part}", row[0]));
            }
        }
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

#[test]
fn the_counts_are_those_of_the_rows() {
    let page = read("docs/p4runtime.md");
    let mut counts = BTreeMap::new();
    for row in rows(&page) {
        *counts.entry((row[1], row[2])).or_insert(0) += 1;
    }
    for need in ["required", "optional"] {
        let count = |state| counts.get(&(need, state)).copied().unwrap_or(0);
        let line = format!("| {need} | {} | {} |", count("done"), count("refused"));
        assert!(page.contains(&line), "the page should say {line}");
    }
}
