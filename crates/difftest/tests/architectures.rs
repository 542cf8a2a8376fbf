//! The same switch for several architectures: each example that is there for more than one gives the same frames for the same
//! script, on every engine.

use datapath::{EngineKind, Local, Without};
use frontend::{Input, Options, Until};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stf::{Command, Line, Outcome};

/// Folders of `examples/`, and what the programs in them are called besides the script's own.
const EXAMPLES: [(&str, &[&str]); 3] = [
    ("l2", &["l2_psa", "l2_pna"]),
    ("l3router", &["l3router_psa", "l3router_pna"]),
    ("firewall", &["firewall_psa", "firewall_pna"]),
];

fn run(program: &Path, lines: &[Line]) -> Vec<(String, Outcome)> {
    let compiled = frontend::compile(Input::File(program), &Options::default(), Until::Ir).expect("a readable program");
    assert!(!compiled.failed(), "{}", compiled.render(false));
    let raw = Arc::new(compiled.raw.expect("the program has a `main`"));
    let optimised = Arc::new(compiled.optimised.expect("raw IR is optimised"));
    let engines = [
        ("raw", &raw, EngineKind::Interpreter),
        ("interp", &optimised, EngineKind::Interpreter),
        ("jit", &optimised, EngineKind::Machine),
        ("staged", &optimised, EngineKind::Staged),
        ("mir", &optimised, EngineKind::Mir),
        ("mir-interp", &raw, EngineKind::MirInterpreter),
    ];
    let run = |(name, ir, kind): (&str, &Arc<ir::Program>, EngineKind)| {
        let pipeline = datapath::load_with(Arc::clone(ir), kind, 1, &Without::default().code()).expect("it loads");
        let outcome = stf::run_script(lines, &mut Local::new(Arc::new(pipeline)));
        (format!("{} [{name}]", program.display()), outcome)
    };
    engines.map(run).into()
}

#[test]
fn architectures_agree_on_what_a_switch_does() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (folder, others) in EXAMPLES {
        let file =
            |name: &str, extension: &str| -> PathBuf { examples.join(folder).join(name).with_extension(extension) };
        let text = std::fs::read_to_string(file(folder, "stf")).expect("a readable script");
        let lines = stf::parse(&text).unwrap_or_else(|errors| panic!("{folder}: {errors:?}"));
        let mut outcomes = run(&file(folder, "p4"), &lines);
        for name in others {
            // What only this architecture needs to be told, before the first packet.
            let own = std::fs::read_to_string(file(name, "setup")).unwrap_or_default();
            let own = stf::parse(&own).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
            let mut lines = lines.clone();
            let first_packet = lines.iter().position(|line| matches!(line.command, Command::Packet { .. }));
            let first_packet = first_packet.expect("the script has packets");
            lines.splice(first_packet..first_packet, own);
            outcomes.extend(run(&file(name, "p4"), &lines));
        }
        // Architectures may copy in another order; what a port sends has one.
        outcomes.iter_mut().for_each(|(_, outcome)| outcome.sent.sort_by_key(|(port, _)| *port));
        let (_, first) = &outcomes[0];
        assert!(!first.sent.is_empty(), "{folder}: the script sends something");
        for (name, outcome) in &outcomes {
            assert!(outcome.failures.is_empty(), "{name}: {:?}", outcome.failures);
            assert_eq!(outcome.sent, first.sent, "{name}");
        }
    }
}
