//! Runs the cases in `tests/files/*.ir`.
//!
//! A file begins with `// passes: name, name`, then declarations that its cases share. A case is a line `// ==== title`,
//! more declarations and stages, a line `// ---- after`, and the stages that the passes make of them (and slots and
//! entries, where those change). `UPDATE_EXPECT=1` writes what comes out into the files.

use std::fmt::Write;
use std::path::Path;

struct Case {
    title: String,
    before: String,
    after: String,
}

/// The shared part of a file, and its cases.
fn cases(text: &str) -> (String, Vec<Case>) {
    let mut parts = text.split("// ==== ");
    let shared = parts.next().unwrap_or("").to_string();
    let case = |part: &str| {
        let (title, body) = part.split_once('\n').expect("a title and a body");
        let (before, after) = body.split_once("// ---- after\n").unwrap_or((body, ""));
        Case { title: title.to_string(), before: before.to_string(), after: after.trim().to_string() + "\n" }
    };
    (shared, parts.map(case).collect())
}

/// What the passes make of a program's text.
fn run(passes: &[&str], text: &str, title: &str) -> String {
    let mut program = ir::parse(text, base::FileId(0)).unwrap_or_else(|d| panic!("{title}: {d:#?}"));
    let (slots, entries) = (program.slots.clone(), program.entries.clone());
    for pass in passes {
        opt::run_pass(&mut program, pass).unwrap_or_else(|| panic!("there is no pass `{pass}`"));
    }
    let mut out = String::new();
    for (word, changed) in [("slot ", program.slots != slots), ("entry ", program.entries != entries)] {
        let printed = ir::print(&program);
        let lines = printed.lines().filter(|l| changed && l.starts_with(word));
        lines.for_each(|l| writeln!(out, "{l}").expect("a string"));
    }
    for stage in 0..program.stages.len() {
        out += &ir::print::print_stage(&program, ir::StageId::from_index(stage));
    }
    out
}

fn check(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let (shared, cases) = cases(&text);
    let first = shared.lines().next().unwrap_or("");
    let passes = first.strip_prefix("// passes: ").unwrap_or_else(|| panic!("{path:?} names no passes"));
    let passes: Vec<&str> = passes.split(", ").collect();
    assert!(!cases.is_empty(), "{path:?} has no cases");
    let mut new = shared.clone();
    let mut wrong = Vec::new();
    for case in &cases {
        let found = run(&passes, &format!("{shared}{}", case.before), &case.title);
        if found != case.after {
            wrong.push(format!("{}\nexpected:\n{}\nfound:\n{found}", case.title, case.after));
        }
        write!(new, "// ==== {}\n{}// ---- after\n{found}\n", case.title, case.before).expect("a string");
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, new.trim_end().to_string() + "\n").expect("a writable file");
    } else {
        assert!(wrong.is_empty(), "{path:?}: {}", wrong.join("\n"));
    }
}

#[test]
fn every_file_gives_what_it_says() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).expect("the directory").map(|f| f.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().for_each(|path| check(path));
}

#[test]
fn every_pass_has_a_file() {
    for pass in opt::pass_names() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/files/{pass}.ir"));
        assert!(path.exists(), "{path:?} is missing");
    }
}
