//! The delivered OpenFlow program, `crates/bridge/p4/openflow.p4`.

use frontend::{Input, Options, Until};
use std::path::Path;

#[test]
fn the_file_compiles_without_a_message_and_its_ir_goes_through_text() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bridge/p4/openflow.p4");
    let compiled = frontend::compile(Input::File(&path), &Options::default(), Until::Ir).expect("it can be read");
    assert_eq!(compiled.render(false), "");
    assert!(compiled.unloadable.is_empty());
    let architecture = compiled.typed.as_ref().and_then(lower::architecture);
    assert_eq!(architecture, Some("openflow_model"));
    for program in [compiled.raw, compiled.optimised] {
        let program = program.expect("it has a `main`");
        assert_eq!(ir::verify(&program), []);
        assert_eq!(ir::parse(&ir::print(&program), base::FileId(0)).expect("it was printed"), program);
        assert_eq!(program.openflow.expect("it is of the model").fields.len(), 84);
    }
}
