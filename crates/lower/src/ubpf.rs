//! ubpf_model: the parser, pipeline and deparser of `ubpf` as stages.
//!
//! ```text
//! Ingress   start  prs  parsed  p  clone  verdict  dprs  end
//! Deparse                                 verdict  dprs  end
//! Egress                                           dprs  clone_end
//! ```
//!
//! - `start`: sets `output_action` to `PASS`.
//! - `parsed`: passes a packet that the parser rejects, unchanged (`bpf.rs`).
//! - `clone`: replication if a copy is requested; the copy leaves by `clone_port`, whatever the fate of the packet.
//! - `verdict`: drops the packet after `mark_to_drop`; otherwise `output_action` decides whether it continues and its
//!   port.
//! - `end`: sends the packet.
//!
//! Stages that a program does not need are left out. Before version 20200515 there is no `standard_metadata`.
//!
//! **`truncate`** truncates the deparsed packet. As in the reference, a header at which the truncation point lies is
//! not written: its bytes remain those that the parser found ([`Cut`]).
//!
//! Specification: `ubpf_model.p4`. Tests: `tests/ubpf.rs`, `tests/stf/ubpf/` at the root.

use crate::bpf::{self, Blocks, FILTER_ABORT, FILTER_DROP, Model, Role};
use crate::context::{Binding, Lowerer};
use crate::storage::ENUM_WIDTH;
use crate::tree::Tree;
use base::Bits;
use ir::{BinOp, EntryKind, Fate, Intrinsic, Op, Operand, ReplicationPoint, SlotId, SlotKind, StageId};
use sema::TypedProgram;
use sema::typed::Instance;
use std::collections::HashMap;

/// Members of `ubpf_action`, in order.
const ACTIONS: [&str; 4] = ["ABORT", "DROP", "PASS", "REDIRECT"];
/// The index of `PASS`.
const PASS: u128 = 2;

/// The field list that copies preserve.
const COPIED: u64 = 0;

/// Whether the package is this model's.
pub(crate) fn is_for(program: &TypedProgram, main: &Instance) -> bool {
    let has_mark = program.extern_functions.iter().any(|f| &*f.name == "mark_to_pass");
    bpf::is_package(program, main, "ubpf", 3) && has_mark
}

/// Fields of `standard_metadata`.
struct Standard {
    action: SlotId,
    port: SlotId,
    /// Whether a copy is requested, and its port; the earliest include files do not have these fields.
    clone: Option<(SlotId, SlotId)>,
}

impl Standard {
    fn of(named: &HashMap<String, SlotId>) -> Option<Standard> {
        let slot = |name: &str| named.get(name).copied();
        Some(Standard {
            action: slot("output_action")?,
            port: slot("output_port")?,
            clone: slot("clone").zip(slot("clone_port")),
        })
    }
}

/// Lowers a program whose `main` is a `ubpf`.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance) {
    let has_standard = cx.p.types.structs.iter().any(|s| &*s.name == "standard_metadata");
    let params = if has_standard { [4, 3, 2] } else { [3, 2, 2] };
    let Some(blocks) = Blocks::find(cx, main, "ubpf", &params) else { return };
    let (parser, pipeline) = (blocks.parser(cx.p), blocks.control(cx.p, 0));
    let (headers, meta) = (&pipeline.params[0], &pipeline.params[1]);
    let header_type = &parser.params[1].ty;
    let hdr = cx.allocate(&headers.name, header_type, SlotKind::HeaderPart, headers.span);
    let own = cx.allocate(&meta.name, &parser.params[2].ty, SlotKind::Metadata, meta.span);
    let std = pipeline.params.get(2).map(|std| cx.allocate("std", &std.ty, SlotKind::Metadata, std.span));
    let named = std.as_ref().zip(pipeline.params.get(2));
    let named = named.map(|(tree, param)| bpf::named_slots(cx, &param.ty, tree)).unwrap_or_default();
    let standard = Standard::of(&named);
    let shared = bpf::begin(cx, Model::Ubpf, &named);
    let to = cx.b.metadata("$to", 32);

    let binding = |tree: &Tree| Binding::Tree(tree.clone());
    let values = [Some(Binding::PacketIn), Some(binding(&hdr)), Some(binding(&own)), std.as_ref().map(binding)];
    let prs = bpf::parser_stage(cx, &shared, &blocks, values.into_iter().flatten().collect());
    let values = [Some(binding(&hdr)), Some(binding(&own)), std.as_ref().map(binding)];
    let values = values.into_iter().flatten().collect();
    let p = bpf::control_stage(cx, &shared, &blocks, (0, Role::Pipeline), values, |_| {});
    let truncate = shared.borrow().truncate;
    let values = vec![Binding::PacketOut, binding(&hdr)];
    let dprs = bpf::control_stage(cx, &shared, &blocks, (1, Role::Deparser), values, |cx| {
        if let Some(bytes) = truncate {
            cx.b.emit(Op::Truncate { bytes: bytes.into() });
        }
    });

    let cut = truncate.map(|bytes| Cut {
        bytes,
        hdr: hdr.clone(),
        parsed: cx.allocate("$parsed", header_type, SlotKind::HeaderPart, headers.span),
    });
    let (accepted, input_port, drop) = {
        let state = shared.borrow();
        (state.accepted, state.input_port, state.drop)
    };
    let writes = |cx: &Lowerer<'_>, slot: SlotId| [prs, p].iter().any(|s| bpf::writes(cx, *s, slot));
    let chosen = standard.as_ref().filter(|s| writes(cx, s.action));
    let cloned = standard.as_ref().and_then(|s| s.clone).filter(|(flag, _)| writes(cx, *flag));

    let start = chosen.map(|s| bpf::glue(cx, "start", |cx| cx.b.set(s.action, PASS)));
    let parsed = bpf::glue(cx, "parsed", |cx| {
        bpf::unless(cx, accepted.into(), |cx| {
            let port = bpf::pass_port(cx, input_port);
            cx.b.fate(Fate::Send(port));
        });
        if let Some(cut) = &cut {
            cx.store(&cut.parsed, &cut.hdr, None);
        }
    });
    let clone = cloned.map(|(flag, _)| {
        bpf::glue(cx, "clone", |cx| {
            let other = cx.split(flag.into());
            cx.b.fate(Fate::Replicate(ReplicationPoint::EgressEnd));
            cx.b.switch_to(other);
        })
    });
    let verdict = bpf::glue(cx, "verdict", |cx| {
        if let Some(drop) = drop {
            let other = cx.split(drop.into());
            bpf::drop(cx, FILTER_DROP);
            cx.b.switch_to(other);
        }
        match chosen {
            Some(s) => choose(cx, s, input_port, to),
            None => {
                let port = bpf::pass_port(cx, input_port);
                cx.b.mov(to, port);
            }
        }
    });
    let cut_stage = cut.as_ref().map(|cut| bpf::glue(cx, "cut", |cx| cut.restore(cx, dprs)));
    let end = bpf::glue(cx, "end", |cx| cx.b.fate(Fate::Send(to.into())));

    let chain = |stages: &[Option<StageId>]| -> Vec<StageId> { stages.iter().copied().flatten().collect() };
    let rest = [Some(verdict), cut_stage, Some(dprs), Some(end)];
    let ingress = [start, Some(prs), Some(parsed), Some(p), clone];
    bpf::entry(cx, EntryKind::Ingress, &chain(&[&ingress[..], &rest].concat()));
    if let Some((flag, port)) = cloned {
        let clone_to = cx.b.metadata("$clone_to", 32);
        cx.b.intrinsic(Intrinsic::CloneFlag, flag);
        cx.b.intrinsic(Intrinsic::ClonePort, port);
        cx.b.intrinsic(Intrinsic::EgressPort, clone_to);
        let clone_end = bpf::glue(cx, "clone_end", |cx| cx.b.fate(Fate::Send(clone_to.into())));
        bpf::entry(cx, EntryKind::Egress, &chain(&[cut_stage, Some(dprs), Some(clone_end)]));
        bpf::entry(cx, EntryKind::Deparse, &chain(&rest));
        // Besides its headers, the deparser needs these for a copy.
        let kept: Vec<SlotId> = truncate.into_iter().chain(cut.iter().flat_map(|cut| cut.parsed.slots())).collect();
        cx.b.program_mut().field_lists = vec![(COPIED, kept)];
    }
}

/// Ends the packet or chooses its port, by `output_action`.
fn choose(cx: &mut Lowerer<'_>, standard: &Standard, input_port: SlotId, to: SlotId) {
    let blocks = ACTIONS.map(|name| cx.b.block(name));
    let cases = (1..ACTIONS.len()).map(|i| (Bits::new(ENUM_WIDTH, i as u128), blocks[i])).collect();
    cx.b.switch(standard.action, cases, blocks[0]);
    for (name, block) in ACTIONS.into_iter().zip(blocks) {
        cx.b.switch_to(block);
        let port: Operand = match name {
            "ABORT" => {
                bpf::drop(cx, FILTER_ABORT);
                continue;
            }
            "DROP" => {
                bpf::drop(cx, FILTER_DROP);
                continue;
            }
            "PASS" => bpf::pass_port(cx, input_port),
            _ => standard.port.into(),
        };
        cx.b.mov(to, port);
        cx.b.next_stage();
    }
}

/// State for truncating a packet.
struct Cut {
    /// Length after truncation in bytes.
    bytes: SlotId,
    hdr: Tree,
    parsed: Tree,
}

impl Cut {
    /// Restores the parsed fields of a header at which the truncation point lies. If the deparser has branches, so that
    /// emitted headers or their order vary, all headers are written.
    fn restore(&self, cx: &mut Lowerer<'_>, deparser: StageId) {
        let emits_all = cx.b.program().stages[deparser.index()].blocks.len() == 1;
        // 0 and negative lengths do not truncate.
        let zero = cx.b.bin(BinOp::Eq, self.bytes, Bits::zero(32));
        let whole = cx.b.select(zero, Bits::ones(32), self.bytes);
        cx.b.mov(self.bytes, whole);
        if !emits_all {
            return;
        }
        let mut emitted = Vec::new();
        for inst in &cx.b.program().stages[deparser.index()].blocks[0].insts {
            if let Op::Emit { header } = &inst.op {
                emitted.push(*header);
            }
        }
        let (mut now, mut before) = (Vec::new(), Vec::new());
        self.hdr.for_each_header(&mut |h| now.push(h.clone()));
        self.parsed.for_each_header(&mut |h| before.push(h.clone()));
        let mut end: Operand = Operand::new_const(32, 0);
        for header in emitted {
            let Some(at) = now.iter().position(|h| h.id == Some(header)) else { continue };
            let program = cx.b.program();
            let bits: u32 = program.headers[header.index()].fields.iter().map(|f| program.width(f.slot)).sum();
            let size = Operand::new_const(32, u128::from(bits / 8));
            let size = cx.b.select(now[at].valid.clone(), size, Bits::zero(32));
            end = cx.b.bin(BinOp::Add, end, size).into();
            let is_cut = cx.b.bin(BinOp::Ult, self.bytes, end.clone());
            let old = cx.b.bin(BinOp::And, is_cut, before[at].valid.clone());
            let old = cx.b.bin(BinOp::And, old, now[at].valid.clone());
            let fields = now[at].fields.iter().zip(before[at].fields.iter());
            for (to, from) in fields.map(|(to, from)| (to.operand(), from.operand())) {
                if let Operand::Slot(dst) = to {
                    cx.b.emit(Op::Select { dst, cond: old.into(), then: from, other: dst.into() });
                }
            }
        }
    }
}
