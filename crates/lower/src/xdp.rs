//! xdp_model: the parser, switch and deparser of `xdp` as stages. (Its include file also declares `ebpfFilter`, which
//! belongs to ebpf_model.)
//!
//! ```text
//! Ingress   p  parsed  s  verdict  d  end
//! ```
//!
//! - `parsed`: aborts packets that the parser rejects, as `XDP_ABORTED`.
//! - `verdict`: `output_action` decides whether the packet continues, and its port: `XDP_PASS` passes it (`bpf.rs`),
//!   `XDP_TX` sends it to the ingress port, `XDP_REDIRECT` to `output_port`.
//! - `end`: sends the packet.
//!
//! Specification: `xdp_model.p4`. Tests: `tests/xdp.rs`, `tests/stf/xdp/` at the root.

use crate::bpf::{self, Blocks, FILTER_ABORT, FILTER_DROP, Model, PARSER_REJECT, Role};
use crate::context::{Binding, Lowerer};
use crate::storage::ENUM_WIDTH;
use base::Bits;
use ir::{EntryKind, Fate, Operand, SlotKind};
use sema::TypedProgram;
use sema::typed::Instance;
use std::collections::HashMap;

/// Members of `xdp_action`, in order.
const ACTIONS: [&str; 5] = ["XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"];

/// Whether the package is this model's.
pub(crate) fn is_for(program: &TypedProgram, main: &Instance) -> bool {
    let has_output = program.types.structs.iter().any(|s| &*s.name == "xdp_output");
    bpf::is_package(program, main, "xdp", 3) && has_output
}

/// Lowers a program whose `main` is an `xdp`.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance) {
    let Some(blocks) = Blocks::find(cx, main, "xdp", &[2, 3, 2]) else { return };
    let (parser, switch) = (blocks.parser(cx.p), blocks.control(cx.p, 0));
    let [headers, input, output] = [0, 1, 2].map(|i| &switch.params[i]);
    let hdr = cx.allocate(&headers.name, &parser.params[1].ty, SlotKind::HeaderPart, headers.span);
    let imd = cx.allocate(&input.name, &input.ty, SlotKind::Metadata, input.span);
    let omd = cx.allocate(&output.name, &output.ty, SlotKind::Metadata, output.span);
    let (given, wanted) = (bpf::named_slots(cx, &input.ty, &imd), bpf::named_slots(cx, &output.ty, &omd));
    let (Some(&action), Some(&output_port)) = (wanted.get("output_action"), wanted.get("output_port")) else { return };
    let named: HashMap<_, _> = given.into_iter().filter(|(name, _)| name == "input_port").collect();
    let shared = bpf::begin(cx, Model::Xdp, &named);
    let to = cx.b.metadata("$to", 32);

    let values = vec![Binding::PacketIn, Binding::Tree(hdr.clone())];
    let p = bpf::parser_stage(cx, &shared, &blocks, values);
    let values = vec![Binding::Tree(hdr.clone()), Binding::Tree(imd), Binding::Tree(omd)];
    let s = bpf::control_stage(cx, &shared, &blocks, (0, Role::Pipeline), values, |_| {});
    let values = vec![Binding::Tree(hdr), Binding::PacketOut];
    let d = bpf::control_stage(cx, &shared, &blocks, (1, Role::Deparser), values, |_| {});
    let (accepted, input_port) = (shared.borrow().accepted, shared.borrow().input_port);
    let parsed = bpf::glue(cx, "parsed", |cx| {
        bpf::unless(cx, accepted.into(), |cx| bpf::drop(cx, PARSER_REJECT));
    });
    let verdict = bpf::glue(cx, "verdict", |cx| {
        let blocks = ACTIONS.map(|name| cx.b.block(name));
        let number = |i: usize| Bits::new(ENUM_WIDTH, i as u128);
        let cases = (1..ACTIONS.len()).map(|i| (number(i), blocks[i])).collect();
        cx.b.switch(action, cases, blocks[0]);
        for (name, block) in ACTIONS.into_iter().zip(blocks) {
            cx.b.switch_to(block);
            let port: Operand = match name {
                "XDP_ABORTED" => {
                    bpf::drop(cx, FILTER_ABORT);
                    continue;
                }
                "XDP_DROP" => {
                    bpf::drop(cx, FILTER_DROP);
                    continue;
                }
                "XDP_PASS" => bpf::pass_port(cx, input_port),
                "XDP_TX" => input_port.into(),
                _ => output_port.into(),
            };
            cx.b.mov(to, port);
            cx.b.next_stage();
        }
    });
    let end = bpf::glue(cx, "end", |cx| cx.b.fate(Fate::Send(to.into())));
    bpf::entry(cx, EntryKind::Ingress, &[p, parsed, s, verdict, d, end]);
}
