//! `ok/*.p4` are accepted and keep the promises of the typed program; `err/*.p4` give exactly the diagnostics that they
//! name, at the lines where they name them: `// ERROR E0401` or `// WARN W0503` at the end of a line (several may stand
//! on one line).

use base::{Severity, SourceMap};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use syntax::{FileLoader, Options, SourceInput};

struct Disk;

impl FileLoader for Disk {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        Ok(std::fs::read_to_string(path).ok().map(Arc::from))
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        sema::embedded(name).map(Arc::from)
    }
}

fn programs(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(dir);
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "p4"));
    files.sort();
    assert!(!files.is_empty());
    files
}

fn check(path: &Path) -> (sema::Checked, SourceMap, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let input = SourceInput { name: path.to_string_lossy().into_owned(), text: text.as_str().into() };
    let mut sources = SourceMap::new();
    let parsed = syntax::parse_program(input, &Options::default(), &Disk, &mut sources);
    for d in &parsed.diagnostics {
        assert!(d.severity != Severity::Error, "{}", d.render(&sources, false));
    }
    (sema::check(&parsed.program, &sources), sources, text)
}

#[test]
fn correct_programs_are_accepted() {
    for path in programs("ok") {
        let (checked, sources, _) = check(&path);
        for d in &checked.diagnostics {
            assert!(d.severity != Severity::Error, "{}", d.render(&sources, false));
        }
        let program = checked.program.expect("no errors");
        assert_eq!(sema::verify::verify(&program), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn errors_are_reported_at_their_locations() {
    let mut failures = Vec::new();
    for path in programs("err") {
        let (checked, sources, text) = check(&path);
        let mut expected: BTreeSet<(u32, String)> = BTreeSet::new();
        for (i, line) in text.lines().enumerate() {
            let marks = line.split("// ").skip(1).filter_map(|m| m.strip_prefix("ERROR ").or(m.strip_prefix("WARN ")));
            for code in marks.flat_map(|m| m.split_whitespace()) {
                expected.insert((i as u32 + 1, code.to_string()));
            }
        }
        let found: BTreeSet<(u32, String)> = checked
            .diagnostics
            .iter()
            .map(|d| (sources.locate(d.span).map_or(0, |(_, line, _)| line), d.code.to_string()))
            .collect();
        for (line, code) in expected.difference(&found) {
            failures.push(format!("{}:{line}: {code} is expected", path.display()));
        }
        for (line, code) in found.difference(&expected) {
            let d = checked
                .diagnostics
                .iter()
                .find(|d| d.code == code && sources.locate(d.span).map_or(0, |(_, l, _)| l) == *line);
            let text = d.map(|d| d.render(&sources, false)).unwrap_or_default();
            failures.push(format!("{}:{line}: {code} is not expected\n{text}", path.display()));
        }
        let has_error = expected.iter().any(|(_, code)| code.starts_with('E'));
        assert_eq!(checked.program.is_none(), has_error, "{}", path.display());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
