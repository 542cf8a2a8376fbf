//! Helpers: programs from IR text, and packets from hexadecimal digits.

#![allow(dead_code, reason = "each test file uses its part")]

use interp::{Interp, Outcome, SeededHost, Trace};
use ir::{EntryKind, Program};
use std::sync::Arc;

/// A well-formed program from IR text.
pub fn program(text: &str) -> Arc<Program> {
    let program = ir::parse(text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"));
    let diags = ir::verify(&program);
    assert!(diags.is_empty(), "{diags:#?}");
    Arc::new(program)
}

/// An interpreter for a program's text.
pub fn interp(text: &str) -> Interp {
    Interp::new(program(text))
}

/// Bytes from hexadecimal digits.
pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let value = |d: u8| (d as char).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

/// Hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Runs a packet received on a port.
pub fn ingress(interp: &Interp, packet: &str, port: u64) -> (Outcome, Vec<u64>) {
    traced(interp, packet, port, None)
}

/// Like [`ingress`], with a trace.
pub fn traced(interp: &Interp, packet: &str, port: u64, trace: Option<&mut Trace>) -> (Outcome, Vec<u64>) {
    let mut record = vec![0; interp.layout().words()];
    if let Some(slot) = interp.program().intrinsic(ir::Intrinsic::IngressPort) {
        interp.layout().set_word(&mut record, slot, port);
    }
    let mut host = SeededHost::new(1);
    let outcome = interp.run(EntryKind::Ingress, &bytes(packet), 0, &mut record, &mut host, trace);
    (outcome, record)
}
