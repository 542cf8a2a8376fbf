//! Runs the programs in `ok/` and `err/`.
//!
//! `ok/x.p4` must parse without diagnostics to the tree in `ok/x.dump` (`UPDATE_EXPECT=1` writes it). In `err/x.p4` the
//! diagnostics' codes stand in comments on their lines (`// ERROR E0201`, several in order of appearance), and there must be no others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Diagnostic, SourceMap};
use syntax::{FileLoader, Options, Parsed, SourceInput, dump, parse_program, preprocess};

struct Loader;

impl FileLoader for Loader {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        Ok(std::fs::read_to_string(path).ok().map(Into::into))
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        (name == "core.p4").then(|| "error { NoError }\n".into())
    }
}

fn programs(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(dir);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "p4"));
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn parse(path: &Path) -> (Parsed, SourceMap, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut sources = SourceMap::new();
    let source = SourceInput { name: path.display().to_string(), text: text.as_str().into() };
    let parsed = parse_program(source, &Options::default(), &Loader, &mut sources);
    (parsed, sources, text)
}

fn render(diagnostics: &[Diagnostic], sources: &SourceMap) -> String {
    diagnostics.iter().map(|d| d.render(sources, false)).collect()
}

#[test]
fn valid_programs_give_their_trees() {
    for path in programs("ok") {
        let (parsed, sources, _) = parse(&path);
        assert!(parsed.diagnostics.is_empty(), "{}", render(&parsed.diagnostics, &sources));
        expect_test::expect_file![path.with_extension("dump")].assert_eq(&dump::dump(&parsed.program));
    }
}

/// What a client sends to a switch: one text without directives.
#[test]
fn preprocessed_text_gives_the_same_tree() {
    for path in programs("ok") {
        let (parsed, _, text) = parse(&path);
        let name = path.display().to_string();
        let source = SourceInput { name: name.clone(), text: text.into() };
        let mut sources = SourceMap::new();
        let (tokens, _) = preprocess::preprocess(source, &Options::default(), &Loader, &mut sources);
        let flat = SourceInput { name, text: preprocess::to_text(&tokens, &sources).into() };
        let mut sources = SourceMap::new();
        let again = parse_program(flat, &Options::default(), &Loader, &mut sources);
        assert!(again.diagnostics.is_empty(), "{}", render(&again.diagnostics, &sources));
        assert_eq!(dump::dump(&again.program), dump::dump(&parsed.program));
    }
}

#[test]
fn invalid_programs_give_their_errors() {
    let mut failures = String::new();
    for path in programs("err") {
        let (parsed, sources, text) = parse(&path);
        let mut expected: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some((_, codes)) = line.split_once("// ERROR ") {
                expected.entry(number).or_default().extend(codes.split_whitespace().map(str::to_owned));
            }
        }
        assert!(!expected.is_empty(), "{} expects nothing", path.display());
        let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let mut ordered: Vec<&Diagnostic> = parsed.diagnostics.iter().collect();
        ordered.sort_by_key(|d| d.span);
        for diag in ordered {
            let line = sources.locate(diag.span).map_or(0, |l| l.1);
            found.entry(line).or_default().push(diag.code.to_owned());
        }
        if found != expected {
            let all = render(&parsed.diagnostics, &sources);
            failures += &format!("{}:\n found {found:?}\nexpect {expected:?}\n{all}\n", path.display());
        }
    }
    assert!(failures.is_empty(), "{failures}");
}
