//! Runs the cases in `tests/passes/*.mir`.
//!
//! A file begins with `; passes: name, name`, then tables and runtime functions that its cases share. A case is a line
//! `; ==== title`, a module, a line `; ---- after`, and the module's functions after the passes. `UPDATE_EXPECT=1`
//! writes the actual results into the files.

use mir::passes::run_pass;
use std::path::Path;

/// Runs passes on a module's text and returns the text of its functions.
fn run(passes: &[&str], text: &str, title: &str) -> String {
    let mut module = mir::parse(text).unwrap_or_else(|e| panic!("{title}: {e}"));
    let violations = mir::verify(&module);
    assert!(violations.is_empty(), "{title}: {}", violations[0]);
    for pass in passes {
        assert!(run_pass(&mut module, pass), "there is no pass `{pass}`");
    }
    let functions = module.functions.iter().map(|function| mir::print_function(&module, function));
    functions.collect::<Vec<_>>().join("\n")
}

fn check(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let (passes, _) = text.strip_prefix("; passes: ").and_then(|rest| rest.split_once('\n')).expect("names of passes");
    let passes: Vec<&str> = passes.split(", ").collect();
    let mut parts = text.split("; ==== ");
    let shared = parts.next().expect("a first part");
    let mut out = shared.to_string();
    for part in parts {
        let (title, body) = part.split_once('\n').expect("a title and a module");
        let (before, _) = body.split_once("; ---- after\n").unwrap_or((body, ""));
        let after = run(&passes, &format!("{shared}{before}"), title);
        out.push_str(&format!("; ==== {title}\n{before}; ---- after\n{after}\n"));
    }
    let out = format!("{}\n", out.trim_end());
    if out != text {
        match std::env::var_os("UPDATE_EXPECT") {
            Some(_) => std::fs::write(path, out).expect("a writable file"),
            None => panic!("{}: expected\n{text}\nfound\n{out}", path.display()),
        }
    }
}

#[test]
fn files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= mir::passes::PASSES.len(), "{files:?}");
    for pass in mir::passes::PASSES {
        assert!(
            files.iter().any(|file| file.file_stem().is_some_and(|name| name == pass.name)),
            "no file for {pass:?}"
        );
    }
    files.iter().for_each(|file| check(file));
}
