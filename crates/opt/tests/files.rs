//! Runs the cases in `tests/files/*.ir`.
//!
//! A file begins with `// passes: name, name`, then declarations that its cases share. A case is a line `// ====
//! title`, more declarations and stages, a line `// ---- after`, and the stages that the passes make of them (and slots
//! and entries, where those change). `UPDATE_EXPECT=1` writes what comes out into the files.
//!
//! Lines `// assumed of TABLE: misses; runs 0, 1; param 0.0 is 9w7; reads not 1` in a case say what is known of
//! lookups: then it is written into the program (`opt::assume`), which goes through the passes again.

use base::Bits;
use opt::{Assumed, Options};
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

/// What lines of a case say of lookups, by table; `None` if none does.
fn assumed(program: &ir::Program, text: &str) -> Option<Vec<Option<Assumed>>> {
    let number = |text: &str| text.trim().parse::<u32>().unwrap_or_else(|e| panic!("`{text}`: {e}"));
    let mut tables = vec![None; program.tables.len()];
    for line in text.lines().filter_map(|line| line.strip_prefix("// assumed of ")) {
        let (name, facts) = line.split_once(": ").expect("a table and what is known");
        let table = program.tables.iter().position(|t| t.name == name).expect("a table of the program");
        let assumed: &mut Assumed = tables[table].get_or_insert_default();
        for fact in facts.split("; ") {
            match fact.split_once(' ').unwrap_or((fact, "")) {
                ("hits", "") => assumed.hit = Some(true),
                ("misses", "") => assumed.hit = Some(false),
                ("runs", actions) => assumed.actions = Some(actions.split(',').map(number).collect()),
                ("reads", rest) => {
                    let fields = rest.strip_prefix("not ").expect("what is not read");
                    assumed.unread_keys = fields.split(',').map(|field| number(field) as usize).collect();
                }
                ("param", rest) => {
                    let (place, value) = rest.split_once(" is ").expect("a parameter and its value");
                    let (action, param) = place.split_once('.').expect("an action and a parameter");
                    let (width, value) = value.split_once('w').expect("a width and a value");
                    assumed
                        .args
                        .insert((number(action), number(param)), Bits::new(number(width), number(value).into()));
                }
                _ => panic!("`{fact}` is nothing that can be known"),
            }
        }
    }
    tables.iter().any(Option::is_some).then_some(tables)
}

/// What the passes make of a program's text.
fn run(passes: &[&str], text: &str, title: &str) -> String {
    let mut program = ir::parse(text, base::FileId(0)).unwrap_or_else(|d| panic!("{title}: {d:#?}"));
    let (slots, entries) = (program.slots.clone(), program.entries.clone());
    if let Some(assumed) = assumed(&program, text) {
        let others = opt::pass_names().filter(|name| !passes.contains(name));
        let options = Options { disabled: others.map(str::to_string).collect(), verify: true };
        program = opt::assume(&program, &assumed, &options);
        let complaints = ir::verify(&program);
        assert!(complaints.is_empty(), "{title}: {complaints:#?}");
    } else {
        for pass in passes {
            opt::run_pass(&mut program, pass).unwrap_or_else(|| panic!("there is no pass `{pass}`"));
        }
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
fn file_tests_match_their_expectations() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).expect("the directory").map(|f| f.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().for_each(|path| check(path));
}

#[test]
fn every_pass_has_a_file() {
    // What is written into programs for tables as they are is no pass, and has one all the same.
    for pass in opt::pass_names().chain(["specialise_actions"]) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/files/{pass}.ir"));
        assert!(path.exists(), "{path:?} is missing");
    }
}
