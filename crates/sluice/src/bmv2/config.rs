//! A running program in bmv2's JSON format: the answer to `bm_get_config` of the thrift service, from which bmv2's
//! command lines learn tables, actions and their types.
//!
//! A program that arrived as JSON is returned unchanged. One that arrived as P4 source is compiled again, in the child
//! process and with its limits; a client asks once, when it starts.

use crate::compiler::Compiler;
use crate::compiler::protocol::Wants;
use control::forwarding::Refusal;
use frontend::Options;
use frontend::form::{self, Embedded, Form};

/// Returns the JSON of the program with this name and device config.
///
/// # Errors
/// If the device config is not a program, or compiling it fails.
pub fn json(compiler: &Compiler, options: &Options, name: &str, device_config: &[u8]) -> Result<String, Refusal> {
    let text = form::text(device_config)?;
    let carried = match form::of(text)? {
        // A file of `p4c-bm2-ss`: it carries the source and the description.
        Form::Embedded(_) if bmv2::is_program(text) => return Ok(text.to_string()),
        Form::Bmv2(_) => return Ok(text.to_string()),
        Form::P4(text) => Embedded { source: text.to_string(), ..Embedded::default() },
        Form::Embedded(carried) => carried,
    };
    let Embedded { source: text, bmv2, .. } = &carried;
    let options = &Options { bmv2: options.bmv2 || *bmv2, ..options.clone() };
    let name = if name.is_empty() { "program.p4" } else { name };
    let wants = Wants { described: true, ..Wants::default() };
    let output = compiler.compile_text(name, text, options, wants)?;
    output.described.ok_or(Refusal::Program(output.messages))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = include_str!("../../../../examples/l3router/l3router.p4");

    #[test]
    fn source_is_described_and_json_is_answered_as_it_came() {
        let compiler = Compiler::in_process();
        let json = |config: &[u8]| json(&compiler, &Options::default(), "l3router.p4", config);
        let described = json(PROGRAM.as_bytes()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&described).unwrap();
        assert_eq!(value["sluice"]["source"], PROGRAM);
        assert_eq!(value["pipelines"][0]["tables"][0]["name"], "MyIngress.ipv4_match");
        let as_in_bmv2 = Embedded { source: PROGRAM.into(), name: "l3router.p4".into(), bmv2: true }.to_json();
        let value: serde_json::Value = serde_json::from_str(&json(as_in_bmv2.as_bytes()).unwrap()).unwrap();
        assert_eq!((&value["sluice"]["source"], &value["sluice"]["bmv2"]), (&PROGRAM.into(), &true.into()));
        assert_eq!(value["pipelines"][0]["tables"][0]["name"], "MyIngress.ipv4_match");
        // The description is itself a program, and is returned unchanged.
        assert_eq!(json(described.as_bytes()).unwrap(), described);
        assert!(json(b"header h {").unwrap_err().message().contains("error"), "messages of the compiler");
        assert!(json(b"\xff").unwrap_err().message().contains("P4 source"));
    }
}
