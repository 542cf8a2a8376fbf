//! The complete rendered text of diagnostics: `golden/NAME.p4` gives `golden/NAME.txt`, and the wrong program of each
//! explained code gives `golden/explained/CODE.txt`. `UPDATE_EXPECT=1 cargo test -p frontend --test golden` records the
//! current texts. Read the difference before you commit it: it is what users see.

use frontend::explain;
use frontend::{Input, Options, Until, compile};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Minimum number of codes whose text is recorded here.
const KINDS_MIN: usize = 140;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The text that the command line would print (only for one code, if given), and the codes.
fn check(name: &str, text: &str, until: Until, only: Option<&str>) -> (String, BTreeSet<&'static str>) {
    let mut compiled = compile(Input::Text { name, text }, &Options::default(), until).unwrap();
    compiled.diagnostics.append(&mut compiled.unloadable);
    compiled.diagnostics.retain(|d| only.is_none_or(|code| code == d.code));
    (compiled.render(false), compiled.diagnostics.iter().map(|d| d.code).collect())
}

fn compare(expected: &Path, found: &str, failures: &mut String) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(expected.parent().unwrap()).unwrap();
        std::fs::write(expected, found).unwrap();
        return;
    }
    let text = std::fs::read_to_string(expected).unwrap_or_default();
    if text != found {
        *failures += &format!("{}:\n--- expected\n{text}\n--- found\n{found}\n", expected.display());
    }
}

#[test]
fn messages_are_as_recorded() {
    let mut failures = String::new();
    let mut kinds = BTreeSet::new();
    for entry in explain::entries() {
        let Some(example) = entry.examples().find(|e| e.wrong) else { continue };
        let until = if entry.code[1..].starts_with("06") { Until::Ir } else { Until::Types };
        let (text, codes) = check("example.p4", &example.program(), until, Some(entry.code));
        kinds.extend(codes);
        compare(&dir().join("explained").join(format!("{}.txt", entry.code)), &text, &mut failures);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir()).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "p4"));
    files.sort();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let (text, codes) = check(&name, &std::fs::read_to_string(&file).unwrap(), Until::Ir, None);
        assert!(!codes.is_empty(), "{name} is accepted without a word");
        kinds.extend(codes);
        compare(&file.with_extension("txt"), &text, &mut failures);
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(kinds.len() >= KINDS_MIN, "only {} kinds", kinds.len());
}

#[test]
fn no_expectation_is_left_over() {
    let explained: BTreeSet<String> =
        explain::entries().iter().filter(|e| e.examples().next().is_some()).map(|e| e.code.to_string()).collect();
    let stem = |f: &Path| f.file_stem().unwrap().to_string_lossy().into_owned();
    for file in std::fs::read_dir(dir().join("explained")).unwrap().map(|e| e.unwrap().path()) {
        assert!(explained.contains(&stem(&file)), "{} belongs to no code", file.display());
    }
    for file in std::fs::read_dir(dir()).unwrap().map(|e| e.unwrap().path()).filter(|f| f.is_file()) {
        assert!(file.with_extension("p4").exists(), "{} belongs to no program", file.display());
    }
}
