//! Semantic analysis: resolves the names, types, constants and instances of a syntax tree into a typed program.
//!
//! [`check`] takes the tree of a whole program, with `core.p4` and the architecture file that it includes, and returns
//! a [`typed::Program`], the input of `lower` and `p4info`. The documentation of [`typed`] specifies its shape.
//! [`embedded`] provides the library files to the preprocessor.

mod annotation;
mod check;
pub mod codes;
pub mod consteval;
mod ids;
pub mod lint;
mod scope;
pub mod typed;
pub mod types;
pub mod value;
pub mod verify;

pub use typed::Program as TypedProgram;
pub use types::Type;
pub use value::Value;

use base::{Diagnostic, SourceMap};
use std::collections::HashSet;

/// The result of [`check`].
#[derive(Debug)]
pub struct Checked {
    /// The typed program; `None` if there was an error.
    pub program: Option<TypedProgram>,
    /// Errors and warnings in the order in which they were found, without duplicates.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a program. The tree may come from a source with syntax errors; broken parts are skipped.
pub fn check(program: &syntax::ast::Program, _sources: &SourceMap) -> Checked {
    let (typed, diagnostics) = check::run(program);
    // Generic bodies and signatures are checked more than once, so the same diagnostic can be reported twice.
    let mut seen = HashSet::new();
    let mut diagnostics: Vec<Diagnostic> =
        diagnostics.into_iter().filter(|d| seen.insert((d.code, d.span, d.message.clone()))).collect();
    if base::diag::has_errors(&diagnostics) {
        return Checked { program: None, diagnostics };
    }
    diagnostics.extend(lint::check(&typed, program));
    Checked { program: Some(typed), diagnostics }
}

/// The text of a library file embedded in the compiler, given the name in `#include <name>`; `None` if there is none.
pub fn embedded(name: &str) -> Option<&'static str> {
    match name {
        "core.p4" => Some(include_str!("../p4include/core.p4")),
        "v1model.p4" => Some(include_str!("../p4include/v1model.p4")),
        "add_on_miss.p4" => Some(include_str!("../p4include/add_on_miss.p4")),
        "psa.p4" => Some(include_str!("../p4include/psa.p4")),
        "bmv2/psa.p4" => Some(include_str!("../p4include/bmv2/psa.p4")),
        "dpdk/psa.p4" => Some(include_str!("../p4include/dpdk/psa.p4")),
        "pna.p4" => Some(include_str!("../p4include/pna.p4")),
        "bmv2/pna.p4" => Some(include_str!("../p4include/bmv2/pna.p4")),
        "dpdk/pna.p4" => Some(include_str!("../p4include/dpdk/pna.p4")),
        "ebpf_model.p4" => Some(include_str!("../p4include/ebpf_model.p4")),
        "ubpf_model.p4" => Some(include_str!("../p4include/ubpf_model.p4")),
        "xdp_model.p4" => Some(include_str!("../p4include/xdp_model.p4")),
        "openflow_model.p4" => Some(include_str!("../p4include/openflow_model.p4")),
        "p4lib/arp.p4" => Some(include_str!("../../../p4lib/arp.p4")),
        "p4lib/checksum.p4" => Some(include_str!("../../../p4lib/checksum.p4")),
        "p4lib/connection.p4" => Some(include_str!("../../../p4lib/connection.p4")),
        "p4lib/forwarding.p4" => Some(include_str!("../../../p4lib/forwarding.p4")),
        "p4lib/headers.p4" => Some(include_str!("../../../p4lib/headers.p4")),
        "p4lib/internet_checksum.p4" => Some(include_str!("../../../p4lib/internet_checksum.p4")),
        "p4lib/nat.p4" => Some(include_str!("../../../p4lib/nat.p4")),
        "p4lib/parsers.p4" => Some(include_str!("../../../p4lib/parsers.p4")),
        "p4lib/pna.p4" => Some(include_str!("../../../p4lib/pna.p4")),
        "p4lib/psa.p4" => Some(include_str!("../../../p4lib/psa.p4")),
        "p4lib/tunnels.p4" => Some(include_str!("../../../p4lib/tunnels.p4")),
        "p4lib/v1model.p4" => Some(include_str!("../../../p4lib/v1model.p4")),
        "p4lib/v1model_checksum.p4" => Some(include_str!("../../../p4lib/v1model_checksum.p4")),
        "p4lib/v1model_ipv4.p4" => Some(include_str!("../../../p4lib/v1model_ipv4.p4")),
        "p4lib/vlan.p4" => Some(include_str!("../../../p4lib/vlan.p4")),
        _ => None,
    }
}

/// The names that [`embedded`] knows.
pub const EMBEDDED: &[&str] = &[
    "core.p4",
    "v1model.p4",
    "add_on_miss.p4",
    "psa.p4",
    "bmv2/psa.p4",
    "dpdk/psa.p4",
    "pna.p4",
    "bmv2/pna.p4",
    "dpdk/pna.p4",
    "ebpf_model.p4",
    "ubpf_model.p4",
    "xdp_model.p4",
    "openflow_model.p4",
    "p4lib/arp.p4",
    "p4lib/checksum.p4",
    "p4lib/connection.p4",
    "p4lib/forwarding.p4",
    "p4lib/headers.p4",
    "p4lib/internet_checksum.p4",
    "p4lib/nat.p4",
    "p4lib/parsers.p4",
    "p4lib/pna.p4",
    "p4lib/psa.p4",
    "p4lib/tunnels.p4",
    "p4lib/v1model.p4",
    "p4lib/v1model_checksum.p4",
    "p4lib/v1model_ipv4.p4",
    "p4lib/vlan.p4",
];
