//! Every script below `examples/` and `tests/stf/` on every engine: what it expects, and that the engines leave the same
//! frames, counters and registers behind.

use datapath::{EngineKind, Local};
use frontend::{Input, Options, Until};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All scripts with a program beside them.
fn scripts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut folders = vec![root.join("examples"), root.join("tests/stf")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "stf") && path.with_extension("p4").exists() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn scripts_pass_on_every_engine() {
    let scripts = scripts();
    assert!(scripts.len() >= 13, "found only {scripts:?}");
    let mut failures = Vec::new();
    for script in scripts {
        let text = std::fs::read_to_string(&script).expect("a readable script");
        let lines = stf::parse(&text).unwrap_or_else(|e| panic!("{}: {}", script.display(), e[0]));
        let program = script.with_extension("p4");
        let compiled =
            frontend::compile(Input::File(&program), &Options::default(), Until::Ir).expect("a readable program");
        let (Some(raw), Some(optimised)) = (compiled.raw.clone(), compiled.optimised.clone()) else {
            panic!("{}: {}", program.display(), compiled.render(false));
        };
        let (raw, optimised) = (Arc::new(raw), Arc::new(optimised));
        let engines = [
            ("raw", raw, EngineKind::Interpreter),
            ("optimised", Arc::clone(&optimised), EngineKind::Interpreter),
            ("machine code", optimised, EngineKind::Machine),
        ];
        let mut first = None;
        for (name, program, kind) in engines {
            let pipeline = datapath::load(program, kind, 1).expect("programs with scripts load");
            let outcome = stf::run_script(&lines, &mut Local::new(Arc::new(pipeline)));
            failures.extend(
                outcome.failures.iter().map(|(line, what)| format!("{}:{line} on {name}: {what}", script.display())),
            );
            let seen = (outcome.sent, outcome.state);
            match &first {
                None => first = Some(seen),
                Some(first) if *first != seen => {
                    failures.push(format!("{}: {name} differs from raw", script.display()));
                }
                Some(_) => {}
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
