//! The glue between the blocks of a `PSA_Switch`: initial values, the fate of a packet after ingress and after egress,
//! and the entry points.
//!
//! ```text
//! Ingress             ip  begin  ig  id  ingress_end  id.emit  egress_start  ep  egress_begin  eg  ed  egress_end  ed.emit  end
//! Reingress    again  ip  begin  …
//! Egress       copy                                   id.emit  egress_start  ep  …
//! CloneIngress                                        clone    egress_start  ep  …
//! Deparse                                                                                                                  rest
//! ```
//!
//! - `again`: a recirculated packet has ingress port `PSA_PORT_RECIRCULATE`, also if it is resubmitted afterwards.
//! - `begin`: sets `drop = true`, and clears the metadata that deparsers pass to parsers.
//! - `ingress_end`: passes the packet to the replication engine if a clone, resubmission or multicast is requested.
//!   Otherwise drops it or continues with egress. In a program that assigns `class_of_service` the engine gets every
//!   packet: it enqueues the packet, and runs `Egress` when it is dequeued.
//! - `copy`: a copy for egress; `clone`: a clone of either kind, parsed from the frame as it is.
//! - `egress_end`: ends a packet that is dropped and not cloned, before it is assembled.
//! - `end`: replication for a clone; then the packet is dropped, recirculated or sent.
//!
//! Code for requests that the program cannot make, and unreachable entry points, are left out.
//!
//! Specification: PSA 6.1 to 6.8. Tests: `tests/psa.rs`, `tests/stf/psa` at the root.

use super::{Fields, PORT_RECIRCULATE};
use crate::context::Lowerer;
use crate::simple_switch::INGRESS_DROP;
use crate::tree::Tree;
use ir::{BinOp, EntryKind, Fate, Intrinsic, Op, Operand, ReplicationPoint, SlotId, StageId};
use std::collections::BTreeMap;

/// Drop reason of packets dropped after egress.
const EGRESS_DROP: &str = "egress drop";

/// Numbers of the field lists of packet paths with metadata.
const RESUBMITTED: u64 = 1;
const RECIRCULATED: u64 = 2;
const CLONED_I2E: u64 = 3;
const CLONED_E2E: u64 = 4;

/// The stages of the blocks; a deparser has one that computes and one that emits.
#[derive(Clone, Copy)]
pub(super) struct Stages {
    pub ip: StageId,
    pub ig: StageId,
    pub id: StageId,
    pub id_emit: StageId,
    pub ep: StageId,
    pub eg: StageId,
    pub ed: StageId,
    pub ed_emit: StageId,
}

/// Fields of the output metadata, in the order of `psa.p4`.
struct IngressOutput {
    class_of_service: SlotId,
    clone: SlotId,
    clone_session_id: SlotId,
    drop: SlotId,
    resubmit: SlotId,
    multicast_group: SlotId,
    egress_port: SlotId,
}

struct EgressOutput {
    clone: SlotId,
    clone_session_id: SlotId,
    drop: SlotId,
}

fn slots<const N: usize>(tree: &Tree) -> Option<[SlotId; N]> {
    tree.slots().try_into().ok()
}

pub(super) struct Glue<'g, 'c, 'p> {
    cx: &'c mut Lowerer<'p>,
    fields: &'g Fields,
    stages: Stages,
    ingress: IngressOutput,
    egress: EgressOutput,
    /// Which requests the program can make.
    clones: bool,
    clones_at_egress: bool,
    resubmits: bool,
    multicasts: bool,
    recirculates: bool,
    /// Whether packets wait in queues between ingress and egress, because the program assigns a class of service.
    queues: bool,
    /// Whether the packet was recirculated, if packets can be both recirculated and resubmitted.
    recirculated: Option<SlotId>,
    /// Number of bytes after those that the ingress parser consumed, if the egress parser needs the length.
    rest: Option<SlotId>,
    requests: BTreeMap<Intrinsic, SlotId>,
}

impl<'g, 'c, 'p> Glue<'g, 'c, 'p> {
    /// Emits the stages between the blocks, and the entry points.
    pub fn write(cx: &'c mut Lowerer<'p>, fields: &'g Fields, stages: Stages) {
        let ingress = slots(&fields.ingress_out).map(|all| {
            let [class_of_service, clone, clone_session_id, drop, resubmit, multicast_group, egress_port] = all;
            IngressOutput { class_of_service, clone, clone_session_id, drop, resubmit, multicast_group, egress_port }
        });
        let egress = slots(&fields.egress_out).map(|[clone, clone_session_id, drop]| EgressOutput {
            clone,
            clone_session_id,
            drop,
        });
        // Missing fields have been reported already.
        let (Some(ingress), Some(egress)) = (ingress, egress) else { return };
        let all = [stages.ip, stages.ig, stages.id, stages.ep, stages.eg, stages.ed];
        let asks = |slot: SlotId| all.iter().any(|stage| cx.assigns_other_than(*stage, slot, 0));
        let clones = asks(ingress.clone);
        let clones_at_egress = asks(egress.clone);
        let resubmits = asks(ingress.resubmit);
        let multicasts = asks(ingress.multicast_group);
        let queues = asks(ingress.class_of_service);
        cx.b.program_mut().queues = queues;
        let leads_back = all.iter().any(|stage| may_assign(cx, *stage, ingress.egress_port, PORT_RECIRCULATE));
        let recirculates = leads_back || clones || clones_at_egress || multicasts;
        let measured = reads(cx, stages.ep, fields.egress_length);
        let rest = measured.then(|| cx.b.metadata("$rest", 32));
        let recirculated = (recirculates && resubmits).then(|| cx.b.metadata("$recirculated", 1));
        let mut glue = Glue {
            cx,
            fields,
            stages,
            ingress,
            egress,
            clones,
            clones_at_egress,
            resubmits,
            multicasts,
            recirculates,
            queues,
            recirculated,
            rest,
            requests: BTreeMap::new(),
        };
        glue.entries();
        glue.declare();
    }

    fn entries(&mut self) {
        let s = self.stages;
        let begin = self.begin();
        let ingress_end = self.ingress_end();
        let egress_start = self.egress_start();
        let egress_begin = self.egress_begin();
        let egress_end = self.egress_end();
        let end = self.end();
        let tail = [egress_start, s.ep, egress_begin, s.eg, s.ed, egress_end, s.ed_emit, end];
        let chain = |first: &[StageId]| -> Vec<StageId> { [first, &tail].concat() };
        let whole = match self.queues {
            false => chain(&[s.ip, begin, s.ig, s.id, ingress_end, s.id_emit]),
            // Packets continue when they leave their queues.
            true => vec![s.ip, begin, s.ig, s.id, ingress_end],
        };
        self.cx.b.entry(EntryKind::Ingress, &whole);
        if self.resubmits || self.recirculates {
            let again = self.again();
            self.cx.b.entry(EntryKind::Reingress, &[&[again], whole.as_slice()].concat());
        }
        if self.clones || self.clones_at_egress {
            let clone = self.clone_start();
            self.cx.b.entry(EntryKind::CloneIngress, &chain(&[clone]));
        }
        if self.clones || self.resubmits || self.multicasts || self.queues {
            let copy = self.copy_start();
            self.cx.b.entry(EntryKind::Egress, &chain(&[copy, s.id_emit]));
        }
        if self.clones_at_egress {
            let rest = self.cx.open_stage("rest", ir::StageKind::Control);
            self.leave();
            self.cx.close_stage();
            self.cx.b.entry(EntryKind::Deparse, &[rest]);
        }
    }

    /// Declares the slots that the runtime reads, and the field lists of the packet paths.
    fn declare(&mut self) {
        let (i, f) = (&self.ingress, self.fields);
        self.requests.insert(Intrinsic::EgressSpec, i.egress_port);
        if self.multicasts {
            self.requests.insert(Intrinsic::MulticastGroup, i.multicast_group);
        }
        if self.clones || self.resubmits || self.multicasts || self.queues {
            self.requests.insert(Intrinsic::DropFlag, i.drop);
        }
        for (which, slot) in &self.requests {
            self.cx.b.intrinsic(*which, *slot);
        }
        let mut lists = Vec::new();
        if self.resubmits {
            lists.push((RESUBMITTED, [f.resubmit.slots(), self.recirculated.into_iter().collect()].concat()));
        }
        if self.recirculates {
            lists.push((RECIRCULATED, f.recirculate.slots()));
        }
        if self.clones {
            lists.push((CLONED_I2E, f.clone_i2e.slots()));
        }
        if self.clones_at_egress {
            lists.push((CLONED_E2E, f.clone_e2e.slots()));
        }
        self.cx.b.program_mut().field_lists = lists;
        self.cx.b.drop_reason(INGRESS_DROP);
    }

    fn request(&mut self, which: Intrinsic, width: u32) -> SlotId {
        let b = &mut self.cx.b;
        *self.requests.entry(which).or_insert_with(|| b.metadata(format!("${}", which.name()), width))
    }

    fn set_request(&mut self, which: Intrinsic, width: u32, value: impl Into<Operand>) {
        let slot = self.request(which, width);
        self.cx.b.mov(slot, value);
    }

    fn open(&mut self, name: &str) -> StageId {
        self.cx.open_stage(name, ir::StageKind::Control)
    }

    fn again(&mut self) -> StageId {
        let stage = self.open("again");
        let f = self.fields;
        if self.recirculates {
            let port = Operand::new_const(super::PORT_WIDTH, PORT_RECIRCULATE.into());
            let path = Operand::new_const(crate::storage::ENUM_WIDTH, f.paths.recirculate);
            let came_back = self.cx.b.bin(BinOp::Eq, f.packet_path, path);
            let came_back = match self.recirculated {
                Some(before) => {
                    let either = self.cx.b.bin(BinOp::Or, came_back, before);
                    self.cx.b.mov(before, either);
                    either
                }
                None => came_back,
            };
            let (dst, other) = (f.ingress_port, f.ingress_port.into());
            self.cx.b.emit(Op::Select { dst, cond: came_back.into(), then: port, other });
        }
        self.cx.close_stage();
        stage
    }

    fn begin(&mut self) -> StageId {
        let stage = self.open("begin");
        let f = self.fields;
        self.cx.b.set(self.ingress.drop, 1);
        [&f.clone_i2e, &f.resubmit, &f.normal].into_iter().for_each(|tree| self.cx.reset(tree));
        self.cx.close_stage();
        stage
    }

    fn ingress_end(&mut self) -> StageId {
        let stage = self.open("ingress_end");
        let f = self.fields;
        if self.queues {
            self.cx.b.mov(f.class_of_service, self.ingress.class_of_service);
        }
        let mut asked: Vec<Operand> = Vec::new();
        if self.clones {
            asked.push(self.ingress.clone.into());
        }
        if self.resubmits {
            asked.push(self.ingress.resubmit.into());
        }
        if self.multicasts {
            let group = self.ingress.multicast_group;
            let width = self.cx.b.program().width(group);
            asked.push(self.cx.b.bin(BinOp::Ne, group, Operand::new_const(width, 0)).into());
        }
        let asked = asked.into_iter().reduce(|a, b| self.cx.b.bin(BinOp::Or, a, b).into());
        if let Some(asked) = asked {
            let go_on = self.cx.split(asked);
            if self.clones {
                self.ask_for_clone(self.ingress.clone, self.ingress.clone_session_id, CLONED_I2E);
            }
            if self.resubmits {
                self.set_request(Intrinsic::ResubmitFlag, 1, self.ingress.resubmit);
                self.set_request(Intrinsic::ResubmitFieldList, 16, Operand::new_const(16, RESUBMITTED.into()));
            }
            self.cx.b.fate(Fate::Replicate(ReplicationPoint::IngressEnd));
            self.cx.b.switch_to(go_on);
        }
        let reason = self.cx.b.drop_reason(INGRESS_DROP);
        self.cx.finish_if(self.ingress.drop.into(), Fate::Drop(reason));
        if self.queues {
            self.cx.b.fate(Fate::Replicate(ReplicationPoint::IngressEnd));
            self.cx.close_stage();
            return stage;
        }
        let b = &mut self.cx.b;
        b.mov(f.egress_port, self.ingress.egress_port);
        b.mov(f.class_of_service, self.ingress.class_of_service);
        b.mov(f.egress_timestamp, f.ingress_timestamp);
        b.set(f.packet_path, f.paths.unicast);
        self.measure();
        self.cx.close_stage();
        stage
    }

    fn ask_for_clone(&mut self, flag: SlotId, session: SlotId, list: u64) {
        self.set_request(Intrinsic::CloneFlag, 1, flag);
        let session = self.cx.b.resize_u(32, session);
        self.set_request(Intrinsic::CloneSession, 32, session);
        self.set_request(Intrinsic::CloneFieldList, 16, Operand::new_const(16, list.into()));
    }

    /// Records the length of the packet behind the parsed headers.
    fn measure(&mut self) {
        if let Some(rest) = self.rest {
            let consumed = self.cx.b.temp(32);
            self.cx.b.emit(Op::Consumed { dst: consumed });
            let (a, b) = (self.fields.packet_length.into(), consumed.into());
            self.cx.b.emit(Op::Bin { op: BinOp::Sub, dst: rest, a, b });
        }
    }

    fn copy_start(&mut self) -> StageId {
        let stage = self.open("copy");
        let f = self.fields;
        let [unicast, multicast] =
            [f.paths.unicast, f.paths.multicast].map(|path| Operand::new_const(crate::storage::ENUM_WIDTH, path));
        let is_multicast = self.cx.b.bin(BinOp::Eq, f.packet_path, multicast.clone());
        let dst = f.packet_path;
        self.cx.b.emit(Op::Select { dst, cond: is_multicast.into(), then: multicast, other: unicast });
        self.cx.b.mov(f.class_of_service, self.ingress.class_of_service);
        self.measure();
        self.cx.close_stage();
        stage
    }

    fn clone_start(&mut self) -> StageId {
        let stage = self.open("clone");
        self.measure();
        self.cx.close_stage();
        stage
    }

    fn egress_start(&mut self) -> StageId {
        let stage = self.open("egress_start");
        self.cx.b.set(self.fields.parser_error, 0);
        if let Some(rest) = self.rest {
            let emitted = self.cx.b.temp(32);
            self.cx.b.emit(Op::Consumed { dst: emitted });
            let dst = self.fields.egress_length;
            self.cx.b.emit(Op::Bin { op: BinOp::Add, dst, a: rest.into(), b: emitted.into() });
        }
        self.cx.close_stage();
        stage
    }

    fn egress_begin(&mut self) -> StageId {
        let stage = self.open("egress_begin");
        [&self.fields.clone_e2e, &self.fields.recirculate].into_iter().for_each(|tree| self.cx.reset(tree));
        self.cx.close_stage();
        stage
    }

    fn egress_end(&mut self) -> StageId {
        let stage = self.open("egress_end");
        let mut drop: Operand = self.egress.drop.into();
        if self.clones_at_egress {
            let keep = self.cx.not(self.egress.clone.into());
            drop = self.cx.and(drop, keep);
        }
        let reason = self.cx.b.drop_reason(EGRESS_DROP);
        self.cx.finish_if(drop, Fate::Drop(reason));
        self.cx.close_stage();
        stage
    }

    fn end(&mut self) -> StageId {
        let stage = self.open("end");
        if self.clones_at_egress {
            let go_on = self.cx.split(self.egress.clone.into());
            self.ask_for_clone(self.egress.clone, self.egress.clone_session_id, CLONED_E2E);
            self.cx.b.fate(Fate::Replicate(ReplicationPoint::FrameEnd));
            self.cx.b.switch_to(go_on);
        }
        self.leave();
        self.cx.close_stage();
        stage
    }

    /// Ends the original packet, after its clones: it is dropped, recirculated or sent.
    fn leave(&mut self) {
        let f = self.fields;
        if self.clones_at_egress {
            let reason = self.cx.b.drop_reason(EGRESS_DROP);
            self.cx.finish_if(self.egress.drop.into(), Fate::Drop(reason));
        }
        if self.recirculates {
            let there = Operand::new_const(super::PORT_WIDTH, PORT_RECIRCULATE.into());
            let back = self.cx.b.bin(BinOp::Eq, f.egress_port, there);
            let go_on = self.cx.split(back.into());
            self.set_request(Intrinsic::RecirculateFlag, 1, Operand::new_const(1, 1));
            self.set_request(Intrinsic::RecirculateFieldList, 16, Operand::new_const(16, RECIRCULATED.into()));
            self.cx.b.fate(Fate::Replicate(ReplicationPoint::DeparseEnd));
            self.cx.b.switch_to(go_on);
        }
        self.cx.b.fate(Fate::Send(f.egress_port.into()));
    }
}

/// Whether a stage may set a slot to this value: it assigns the value, or anything that is not a constant.
fn may_assign(cx: &Lowerer<'_>, stage: StageId, slot: SlotId, value: u64) -> bool {
    let program = cx.b.program();
    let mut may = false;
    for inst in program.stages[stage.index()].blocks.iter().flat_map(|b| &b.insts) {
        match &inst.op {
            Op::Mov { dst, src: Operand::Const(c) } if *dst == slot => may |= c.to_u64() == Some(value),
            op => op.for_each_def(program, |s| may |= s == slot),
        }
    }
    may
}

fn reads(cx: &Lowerer<'_>, stage: StageId, slot: SlotId) -> bool {
    let program = cx.b.program();
    let mut reads = false;
    for block in &program.stages[stage.index()].blocks {
        block.insts.iter().for_each(|inst| inst.op.for_each_use(program, |s| reads |= s == slot));
        reads |= block.term.operand().and_then(Operand::slot) == Some(slot);
    }
    reads
}
