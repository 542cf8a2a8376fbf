//! ebpf_model: the parser and the filter of `ebpfFilter` as stages. An accepted packet leaves unchanged, byte for byte:
//! nothing is deparsed.
//!
//! ```text
//! Ingress   prs  parsed  filt  verdict
//! ```
//!
//! - `parsed`: drops packets that the parser rejects.
//! - `verdict`: passes accepted packets (`bpf.rs`) and drops others.
//!
//! Specification: `ebpf_model.p4`. Tests: `tests/ebpf.rs`, `tests/stf/ebpf/` at the root.

use crate::bpf::{self, Blocks, FILTER_DROP, Model, PARSER_REJECT, Role};
use crate::context::{Binding, Lowerer};
use ir::{EntryKind, Fate, SlotKind};
use sema::TypedProgram;
use sema::typed::Instance;
use std::collections::HashMap;

/// Whether the package is this model's.
pub(crate) fn is_for(program: &TypedProgram, main: &Instance) -> bool {
    let has_maps = program.externs.iter().any(|e| &*e.name == "hash_table");
    bpf::is_package(program, main, "ebpfFilter", 2) && has_maps
}

/// Lowers a program whose `main` is an `ebpfFilter`.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance) {
    let Some(blocks) = Blocks::find(cx, main, "ebpfFilter", &[2, 2]) else { return };
    let (parser, filter) = (blocks.parser(cx.p), blocks.control(cx.p, 0));
    let (headers, verdict) = (&filter.params[0], &filter.params[1]);
    let hdr = cx.allocate(&headers.name, &parser.params[1].ty, SlotKind::HeaderPart, headers.span);
    let accept = cx.allocate(&verdict.name, &verdict.ty, SlotKind::Metadata, verdict.span);
    let shared = bpf::begin(cx, Model::Ebpf, &HashMap::new());

    let values = vec![Binding::PacketIn, Binding::Tree(hdr.clone())];
    let prs = bpf::parser_stage(cx, &shared, &blocks, values);
    let values = vec![Binding::Tree(hdr), Binding::Tree(accept.clone())];
    let filt = bpf::control_stage(cx, &shared, &blocks, (0, Role::Pipeline), values, |_| {});
    let (accepted, input_port) = (shared.borrow().accepted, shared.borrow().input_port);
    let parsed = bpf::glue(cx, "parsed", |cx| {
        bpf::unless(cx, accepted.into(), |cx| bpf::drop(cx, PARSER_REJECT));
    });
    let verdict = bpf::glue(cx, "verdict", |cx| {
        bpf::unless(cx, accept.operand(), |cx| bpf::drop(cx, FILTER_DROP));
        let port = bpf::pass_port(cx, input_port);
        cx.b.fate(Fate::Send(port));
    });
    bpf::entry(cx, EntryKind::Ingress, &[prs, parsed, filt, verdict]);
}
