//! PNA: the blocks of a `PNA_NIC` as stages. A pass through the main parser, pre control (version 0.5), main control
//! and main deparser is the same for both directions.
//!
//! ```text
//! Ingress              start  mp  begin  [pre]  mc  verdict  md  md.emit  end
//! Reingress     again  start  mp  begin  [pre]  mc  verdict  md  md.emit  end
//! CloneIngress                                                            copy
//! Deparse                                                                 end | rest
//! Egress                                                                  leave
//! ```
//!
//! - `start`: sets the direction, from `PNA_HOST_PORT` of the include file. `again`: increments `pass`, up to 7.
//! - `begin`: the packet is to be dropped unless the program chooses a destination.
//! - `verdict`: ends a packet that is to be dropped, unless copies or recirculation are requested.
//! - `end`: makes a copy for each mirror slot, of the deparsed packet, one after the other; then the packet is
//!   recirculated, dropped or sent. `copy`: sends a copy to its session's port.
//! - In a program that assigns `class_of_service`, deparsed packets wait in the queues of their ports: `end` hands over
//!   the frame, `rest` does the same as `end` and enqueues the packet, and `leave` sends it when it is dequeued. Copies
//!   have the class of their session.
//!
//! A recirculated packet keeps the user metadata, which the parser gets as `inout`. A parser error does not drop the
//! packet. The pre control reads the main parser's results: the same variables, if its types are those of the main
//! control.
//!
//! Specification: PNA 0.5 as p4c has it, and 0.7 (`PNA_VERSION`). Externs: `pna/externs.rs` and `portable/externs.rs`.
//! Tests: `tests/pna.rs`, `tests/stf/pna/` at the root.

mod externs;
mod toeplitz;

use crate::codes;
use crate::context::{Binding, Lowerer};
use crate::portable::{ControlBlock, ParserBlock};
use crate::storage::ENUM_WIDTH;
use crate::tree::Tree;
use crate::v1model::controller_headers;
use base::diag::Diagnostic;
use base::{Bits, Span};
use externs::{Pna, Role};
use ir::{BinOp, EntryKind, Fate, InstanceTypes, Intrinsic, Op, Operand, ReplicationPoint, SlotId, SlotKind, StageId};
use sema::typed::{Instance, InstanceOf, Param};
use sema::{Type, TypedProgram};
use std::collections::BTreeMap;

/// `PNA_PORT_CPU`
const PORT_CPU: u64 = 0xffff_fffd;
/// `PNA_MIRROR_SESSION_TO_CPU`
const SESSION_TO_CPU: u64 = 0;
/// Drop reason of packets for which no destination is chosen, or that `drop_packet` drops.
const MAIN_DROP: &str = "main drop";
/// The field list of recirculated packets.
const RECIRCULATED: u64 = 1;
/// The include file's function that tells whether a port is a host port.
const IS_HOST_PORT: &str = "__pna_is_host_port";

/// Widths of ports, passes and the like in bits, as in `pna.p4`.
const PORT_WIDTH: u32 = 32;
const PASS_WIDTH: u32 = 3;
const CLASS_WIDTH: u32 = 8;
const TIMESTAMP_WIDTH: u32 = 64;

/// Whether the package is PNA's, and not one that the program declares under the same name.
pub(crate) fn is_for(program: &TypedProgram, main: &Instance) -> bool {
    let InstanceOf::Package(id) = main.of else { return false };
    let declared = &program.types.block_types[id.index()];
    let has_metadata = program.types.structs.iter().any(|s| &*s.name == "pna_main_output_metadata_t");
    &*declared.name == "PNA_NIC" && matches!(declared.params.len(), 3 | 4) && has_metadata
}

/// Lowers a program whose `main` is a `PNA_NIC`.
pub(crate) fn lower(cx: &mut Lowerer<'_>, main: &Instance) {
    let Some(blocks) = Blocks::find(cx, main) else { return };
    let fields = Fields::allocate(cx, &blocks);
    fields.declare(cx);
    cx.parser_error = Some(fields.parser_error);
    let shared = externs::shared(&fields);
    cx.arch = Some(Box::new(Pna::new(shared.clone())));
    cx.declare_externs();
    cx.declare_tables();
    controller_headers(cx);

    let finish = |cx: &mut Lowerer<'_>, stage: StageId| {
        shared.borrow_mut().externs.checksums.finish_stage(cx, stage);
        stage
    };
    let f = &fields;
    let value = |tree: &Tree| Binding::Tree(tree.clone());
    let p = cx.p;
    let role = |role: Role| shared.borrow_mut().role = role;

    role(Role::Parser);
    let params = &p.parsers[blocks.parser.0.index()].params;
    let values = vec![Binding::PacketIn, value(&f.hdr), value(&f.meta), f.input(cx, &params[3].ty)];
    let mp = cx.parser_stage(blocks.parser, values);
    let mp = finish(cx, mp);
    let pre = blocks.pre.map(|block| {
        role(Role::Pre);
        let params = &p.controls[block.0.index()].params;
        let values = [value(&f.pre_hdr), value(&f.pre_meta), f.input(cx, &params[2].ty), value(&f.pre_out)];
        let stage = cx.control_stage(block, values.to_vec());
        finish(cx, stage)
    });
    role(Role::Main);
    let params = &p.controls[blocks.control.0.index()].params;
    let values = vec![value(&f.hdr), value(&f.meta), f.input(cx, &params[2].ty), value(&f.out)];
    let mc = cx.control_stage(blocks.control, values);
    let mc = finish(cx, mc);
    role(Role::Deparser);
    let values = vec![Binding::PacketOut, value(&f.hdr), value(&f.meta), value(&f.out)];
    let (md, md_emit) = cx.split_deparser(|cx| {
        let stage = cx.control_stage(blocks.deparser, values);
        finish(cx, stage)
    });
    if let Some(pre) = pre {
        refuse_decryption(cx, f, &blocks, pre);
    }
    let stages = Stages { mp, pre, mc, md, md_emit };
    let class = f.out.slots().first().copied().filter(|class| cx.assigns_other_than(mc, *class, 0));
    let (mirrors, recirculate) = (shared.borrow().mirrors.clone(), shared.borrow().recirculate);
    Glue { fields: f, mirrors, recirculate, class }.write(cx, stages);
}

/// The constructor arguments of `main`.
struct Blocks {
    parser: ParserBlock,
    /// In version 0.5 only.
    pre: Option<ControlBlock>,
    control: ControlBlock,
    deparser: ControlBlock,
}

impl Blocks {
    fn find(cx: &mut Lowerer<'_>, main: &Instance) -> Option<Blocks> {
        let p = cx.p;
        let argument = |i: usize| main.args.get(i).and_then(|a| a.value.as_instance());
        let has_pre = main.args.len() == 4;
        let first = usize::from(has_pre) + 1;
        let found = (|| {
            Some(Blocks {
                parser: cx.parser_block(argument(0))?,
                pre: if has_pre { Some(cx.control_block(argument(1))?) } else { None },
                control: cx.control_block(argument(first))?,
                deparser: cx.control_block(argument(first + 1))?,
            })
        })();
        let Some(blocks) = found else {
            let message = "`PNA_NIC` needs a parser, then a pre control (version 0.5), a main control and a deparser";
            cx.refuse(codes::NO_MAIN, main.span, message);
            return None;
        };
        let control = |block: ControlBlock| p.controls[block.0.index()].params.len();
        let counts = [
            p.parsers[blocks.parser.0.index()].params.len(),
            blocks.pre.map_or(4, control),
            control(blocks.control),
            control(blocks.deparser),
        ];
        if counts.iter().any(|count| *count != 4) {
            cx.refuse(codes::BLOCK_PARAMETERS, main.span, "a block of `PNA_NIC` has the wrong number of parameters");
            return None;
        }
        Some(blocks)
    }
}

/// Variables that blocks share. The blocks' parameters are bound to them directly.
struct Fields {
    hdr: Tree,
    meta: Tree,
    /// The variables of the pre control: `hdr` and `meta` if the types are the same.
    pre_hdr: Tree,
    pre_meta: Tree,
    pre_out: Tree,
    /// `pna_main_output_metadata_t`
    out: Tree,
    /// Fields of the metadata structs that blocks read.
    input_port: SlotId,
    direction: SlotId,
    pass: SlotId,
    loopedback: SlotId,
    recirculated: SlotId,
    timestamp: SlotId,
    parser_error: SlotId,
    class_of_service: SlotId,
    packet_length: SlotId,
    /// Whether the packet is dropped, and otherwise its destination port.
    drop: SlotId,
    to: SlotId,
}

impl Fields {
    fn allocate(cx: &mut Lowerer<'_>, blocks: &Blocks) -> Fields {
        let p = cx.p;
        let parser: &[Param] = &p.parsers[blocks.parser.0.index()].params;
        let control: &[Param] = &p.controls[blocks.control.0.index()].params;
        let storage = |cx: &mut Lowerer<'_>, name: &str, param: &Param, kind: SlotKind| {
            cx.allocate(name, &param.ty, kind, param.span)
        };
        let hdr = storage(cx, &control[0].name, &parser[1], SlotKind::HeaderPart);
        let meta = storage(cx, &control[1].name, &parser[2], SlotKind::Metadata);
        let out = storage(cx, "main_output", &control[3], SlotKind::Metadata);
        let (mut pre_hdr, mut pre_meta, mut pre_out) = (hdr.clone(), meta.clone(), Tree::Nothing);
        if let Some((pre, _)) = blocks.pre {
            let params: &[Param] = &p.controls[pre.index()].params;
            if params[0].ty != parser[1].ty {
                pre_hdr = storage(cx, "pre_hdr", &params[0], SlotKind::HeaderPart);
            }
            if params[1].ty != parser[2].ty {
                pre_meta = storage(cx, "pre_meta", &params[1], SlotKind::Metadata);
            }
            pre_out = storage(cx, "pre_output", &params[3], SlotKind::Metadata);
        }
        Fields {
            hdr,
            meta,
            pre_hdr,
            pre_meta,
            pre_out,
            out,
            input_port: cx.b.metadata("input_port", PORT_WIDTH),
            direction: cx.b.metadata("direction", ENUM_WIDTH),
            pass: cx.b.metadata("pass", PASS_WIDTH),
            loopedback: cx.b.metadata("loopedback", 1),
            recirculated: cx.b.metadata("recirculated", 1),
            timestamp: cx.b.metadata("timestamp", TIMESTAMP_WIDTH),
            parser_error: cx.b.metadata("parser_error", ENUM_WIDTH),
            class_of_service: cx.b.metadata("class_of_service", CLASS_WIDTH),
            packet_length: cx.b.metadata("$packet_length", 32),
            drop: cx.b.metadata("$drop", 1),
            to: cx.b.metadata("$to", PORT_WIDTH),
        }
    }

    /// Declares the slots that the runtime reads and sets, and the constants of the architecture.
    fn declare(&self, cx: &mut Lowerer<'_>) {
        cx.b.intrinsic(Intrinsic::IngressPort, self.input_port);
        cx.b.intrinsic(Intrinsic::PacketLength, self.packet_length);
        cx.b.intrinsic(Intrinsic::IngressTimestamp, self.timestamp);
        cx.b.intrinsic(Intrinsic::ParserError, self.parser_error);
        let program = cx.b.program_mut();
        program.cpu_port = Some(PORT_CPU);
        program.cpu_session = Some(SESSION_TO_CPU);
        program.cuts_clones_first = true;
        program.instance_types = InstanceTypes::default();
    }

    /// A metadata struct that a block reads, field by field.
    fn input(&self, cx: &Lowerer<'_>, ty: &Type) -> Binding {
        let Some(info) = cx.p.types.struct_info(ty) else { return Binding::Tree(Tree::Nothing) };
        let field = |name: &str| match name {
            "input_port" => self.input_port,
            "direction" => self.direction,
            "pass" => self.pass,
            "loopedback" => self.loopedback,
            "recirculated" => self.recirculated,
            "timestamp" => self.timestamp,
            "parser_error" => self.parser_error,
            _ => self.class_of_service,
        };
        Binding::Tree(Tree::Struct(info.fields.iter().map(|f| Tree::from(field(&f.name))).collect()))
    }
}

/// Makes a program that requests decryption not loadable: there is no accelerator for it between the controls.
fn refuse_decryption(cx: &mut Lowerer<'_>, fields: &Fields, blocks: &Blocks, pre: StageId) {
    let Some(Operand::Slot(decrypt)) = fields.pre_out.children().first().map(Tree::operand) else { return };
    if cx.assigns_other_than(pre, decrypt, 0) {
        let span = blocks.pre.map_or(Span::NONE, |(pre, _)| cx.p.controls[pre.index()].span);
        let message = "the pre control asks for decryption, and PNA's accelerators are not in this switch";
        let help = "the program can be checked, not loaded; without `decrypt` it can";
        cx.not_loadable(Diagnostic::error(codes::UNSUPPORTED_EXTERN, span, message).help(help));
    }
}

/// The stages of the blocks; the deparser has one that computes and one that emits.
struct Stages {
    mp: StageId,
    pre: Option<StageId>,
    mc: StageId,
    md: StageId,
    md_emit: StageId,
}

/// The stages between the blocks, and the entry points.
struct Glue<'f> {
    fields: &'f Fields,
    /// By mirror slot: the flag that requests a copy, and the session.
    mirrors: BTreeMap<u64, (SlotId, SlotId)>,
    /// The flag that requests recirculation, if the program uses it.
    recirculate: Option<SlotId>,
    /// The class of service, if the program assigns it.
    class: Option<SlotId>,
}

/// What happens to a packet at the end.
#[derive(Clone, Copy)]
enum Leave {
    /// It is sent.
    Send,
    /// Its frame is finished; it continues at `rest`.
    Finish,
    /// It waits in a queue of its port.
    Wait,
}

impl Glue<'_> {
    fn write(self, cx: &mut Lowerer<'_>, s: Stages) {
        let f = self.fields;
        let start = cx.glue_stage("start", |cx| {
            let is_host = is_host_port(cx, f.input_port.into());
            let direction = cx.b.resize_u(ENUM_WIDTH, is_host);
            cx.b.mov(f.direction, direction);
        });
        let begin = cx.glue_stage("begin", |cx| cx.b.set(f.drop, 1));
        let verdict = cx.glue_stage("verdict", |cx| {
            let mut ends: Operand = f.drop.into();
            let asked: Vec<SlotId> = self.mirrors.values().map(|(flag, _)| *flag).chain(self.recirculate).collect();
            for flag in asked {
                let not = cx.not(flag.into());
                ends = cx.and(ends, not);
            }
            let reason = cx.b.drop_reason(MAIN_DROP);
            cx.finish_if(ends, Fate::Drop(reason));
        });
        let leave = if self.class.is_some() { Leave::Finish } else { Leave::Send };
        let end = cx.glue_stage("end", |cx| self.end(cx, leave));
        let tail = [Some(s.mp), Some(begin), s.pre, Some(s.mc), Some(verdict), Some(s.md), Some(s.md_emit), Some(end)];
        let chain = |first: &[StageId]| -> Vec<StageId> {
            first.iter().copied().chain(tail.iter().copied().flatten()).collect()
        };
        cx.b.entry(EntryKind::Ingress, &chain(&[start]));
        if let Some(flag) = self.recirculate {
            let again = cx.glue_stage("again", |cx| {
                let last = cx.b.bin(BinOp::Eq, f.pass, Bits::ones(PASS_WIDTH));
                let next = cx.b.bin(BinOp::Add, f.pass, Bits::new(PASS_WIDTH, 1));
                cx.b.emit(Op::Select { dst: f.pass, cond: last.into(), then: f.pass.into(), other: next.into() });
                cx.b.set(f.recirculated, 1);
            });
            cx.b.entry(EntryKind::Reingress, &chain(&[again, start]));
            cx.b.intrinsic(Intrinsic::RecirculateFlag, flag);
            let kept = [vec![f.pass], f.meta.slots()].concat();
            cx.b.program_mut().field_lists = vec![(RECIRCULATED, kept)];
        }
        if self.mirrors.is_empty() && self.class.is_none() {
            return;
        }
        let leave_by = cx.b.metadata("$copy_to", PORT_WIDTH);
        cx.b.intrinsic(Intrinsic::EgressPort, leave_by);
        let leave = |cx: &mut Lowerer<'_>| cx.b.fate(Fate::Send(leave_by.into()));
        if !self.mirrors.is_empty() {
            let copy = cx.glue_stage("copy", leave);
            cx.b.entry(EntryKind::CloneIngress, &[copy]);
        }
        let rest = match self.class {
            None => end,
            Some(class) => {
                cx.b.intrinsic(Intrinsic::ClassOfService, class);
                cx.b.intrinsic(Intrinsic::EgressSpec, f.to);
                cx.b.program_mut().queues = true;
                let leave = cx.glue_stage("leave", leave);
                cx.b.entry(EntryKind::Egress, &[leave]);
                cx.glue_stage("rest", |cx| self.end(cx, Leave::Wait))
            }
        };
        cx.b.entry(EntryKind::Deparse, &[rest]);
    }

    fn end(&self, cx: &mut Lowerer<'_>, leave: Leave) {
        let f = self.fields;
        if !self.mirrors.is_empty() {
            let flag = request(cx, Intrinsic::CloneFlag, "$clone_flag", 1);
            let session = request(cx, Intrinsic::CloneSession, "$clone_session", 32);
            for (asked, number) in self.mirrors.values() {
                let other = cx.split((*asked).into());
                cx.b.set(*asked, 0);
                cx.b.set(flag, 1);
                let number = cx.b.resize_u(32, *number);
                cx.b.mov(session, number);
                cx.b.fate(Fate::Replicate(ReplicationPoint::FrameEnd));
                cx.b.switch_to(other);
            }
        }
        if let Some(flag) = self.recirculate {
            let list = request(cx, Intrinsic::RecirculateFieldList, "$recirculate_list", 16);
            let other = cx.split(flag.into());
            cx.b.set(list, RECIRCULATED.into());
            cx.b.fate(Fate::Replicate(ReplicationPoint::DeparseEnd));
            cx.b.switch_to(other);
        }
        let reason = cx.b.drop_reason(MAIN_DROP);
        cx.finish_if(f.drop.into(), Fate::Drop(reason));
        cx.b.fate(match leave {
            Leave::Send => Fate::Send(f.to.into()),
            Leave::Finish => Fate::Replicate(ReplicationPoint::FrameEnd),
            Leave::Wait => Fate::Replicate(ReplicationPoint::IngressEnd),
        });
    }
}

/// The slot of a request to the runtime.
fn request(cx: &mut Lowerer<'_>, which: Intrinsic, name: &str, width: u32) -> SlotId {
    if let Some(slot) = cx.b.program().intrinsic(which) {
        return slot;
    }
    let slot = cx.b.metadata(name, width);
    cx.b.intrinsic(which, slot);
    slot
}

/// One bit: whether a port is a host port.
fn is_host_port(cx: &mut Lowerer<'_>, port: Operand) -> Operand {
    cx.library_function(IS_HOST_PORT, port).unwrap_or(Lowerer::bit(false))
}
