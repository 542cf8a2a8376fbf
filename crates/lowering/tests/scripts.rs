//! Runs every script of the repository on lowered programs: compiled after all passes of `mir`, and interpreted
//! without; with slots as values and in memory; from raw and from optimised IR. All must send what the interpreter of
//! the IR sends, and leave the same state and log lines. `crates/difftest` compares the two engines with all others.

use datapath::{CodeOptions, EngineKind, Local};
use frontend::{Input, Options, Until};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stf::{Line, Outcome};

/// All programs in `examples/` and `tests/stf/` that have a script of the same name.
fn programs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut found, mut folders) = (Vec::new(), vec![root.join("examples"), root.join("tests/stf")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "p4") && path.with_extension("stf").exists() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn in_memory() -> CodeOptions {
    jit::Options { memory_slots: jit::MemorySlots::EveryOther, ..jit::Options::default() }.into()
}

fn outcome(program: &Arc<ir::Program>, lines: &[Line], kind: EngineKind, options: &CodeOptions) -> Outcome {
    let pipeline = datapath::load_with(Arc::clone(program), kind, 1, options);
    let pipeline = pipeline.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    stf::run_script(lines, &mut Local::new(Arc::new(pipeline)))
}

/// The engines that differ from the interpreter on a program's script.
fn differing(path: &Path) -> Vec<String> {
    // Scripts for bmv2's behaviour are in a folder of their own.
    let bmv2 = path.parent().is_some_and(|folder| folder.ends_with("tests/stf/bmv2"));
    let options = Options { bmv2, ..Options::default() };
    let compiled = frontend::compile(Input::File(path), &options, Until::Ir).expect("a readable program");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    let text = std::fs::read_to_string(path.with_extension("stf")).expect("a readable script");
    let lines = stf::parse(&text).unwrap_or_else(|errors| panic!("{}: {errors:?}", path.display()));
    let raw = Arc::new(compiled.raw.expect("the program has a `main`"));
    let optimised = Arc::new(compiled.optimised.expect("raw IR is optimised"));
    let (values, memory) = (CodeOptions::default(), in_memory());
    let expected = outcome(&optimised, &lines, EngineKind::Interpreter, &values);
    let runs = [
        ("compiled", &optimised, EngineKind::Mir, &values),
        ("compiled, raw", &raw, EngineKind::Mir, &values),
        ("compiled, slots in memory", &optimised, EngineKind::Mir, &memory),
        ("interpreted", &optimised, EngineKind::MirInterpreter, &values),
        ("interpreted, raw, slots in memory", &raw, EngineKind::MirInterpreter, &memory),
    ];
    let differs = |(name, program, kind, options)| {
        let Outcome { sent, state, output, .. } = outcome(program, &lines, kind, options);
        let same = sent == expected.sent && state == expected.state && output == expected.output;
        (!same).then(|| format!("{}: {name}", path.display()))
    };
    runs.into_iter().filter_map(differs).collect()
}

#[test]
fn lowered_programs_do_what_their_ir_does() {
    let programs = programs();
    assert!(programs.len() > 20, "found only {programs:?}");
    let differing: Vec<String> = programs.iter().flat_map(|path| differing(path)).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
