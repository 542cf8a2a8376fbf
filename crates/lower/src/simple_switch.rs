//! The glue of bmv2's simple_switch: the stages between a program's blocks, and its entry points. It is shared by
//! programs from source (`v1model.rs`) and from bmv2's JSON (`crates/bmv2`), which differ only in the origin of the
//! blocks.
//!
//! ```text
//! Ingress, Reingress  parser  verify  ingress  ingress_end  egress_start  egress  egress_end  compute  deparser  deparse_end
//! CloneIngress        clone_begin  parser  clone_end        egress_start  egress  egress_end  compute  deparser  deparse_end
//! Egress                                                    egress_start  egress  egress_end  compute  deparser  deparse_end
//! Deparse                                                   deparse_begin                     compute  deparser  deparse_end
//! ```
//!
//! - `ingress_end`: replication if a clone, resubmission or multicast group is requested; drop if `egress_spec` is 511;
//!   otherwise `egress_port = egress_spec`. In a program that reads queue metadata or sets `priority`, `Ingress` ends
//!   here: packets wait in queues and continue at `Egress`.
//! - `egress_start`: `egress_spec = 0`. `egress_end`: replication for a clone; drop if `egress_spec` is 511.
//! - `length_start` (after the parser, and only if egress needs the length): see `simple_switch/length.rs`.
//! - `deparse_end`: replication for a recirculation; otherwise sends to the port that the packet had when egress began.
//! - `clone_begin`, `clone_end`: an ingress clone is parsed again, but the parser's writes to metadata are undone.
//!
//! A test is emitted only if the program can make it true, and an entry point only if it is reachable. In a plain
//! router, only the drop test remains.
//!
//! Reference for behaviour: docs/simple_switch.md of behavioral-model. Tests: `tests/v1model.rs`.

mod length;

use crate::codes;
use base::Diagnostic;
use ir::{
    BinOp, Builder, EntryKind, Fate, InstanceTypes, Intrinsic, Op, Operand, ReplicationPoint, SlotId, SlotKind,
    StageId, StageKind,
};
use length::Length;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The default value of the 9-bit `egress_spec` that means drop.
pub const DROP_PORT: u64 = 511;

/// Drop reason of packets dropped after ingress; the replication engine uses the same.
pub const INGRESS_DROP: &str = "ingress drop";
/// Drop reason of packets dropped after egress.
const EGRESS_DROP: &str = "egress drop";
/// Drop reason of packets for which an `assert` or `assume` failed.
pub const ASSERT_DROP: &str = "assertion failed";

/// A field list index that no list has: it preserves nothing.
pub const NO_FIELD_LIST: u128 = 0xffff;

/// Fields of v1model's `standard_metadata_t` that the runtime sets or reads.
pub const INTRINSICS: [(&str, Intrinsic); 15] = [
    ("ingress_port", Intrinsic::IngressPort),
    ("egress_spec", Intrinsic::EgressSpec),
    ("egress_port", Intrinsic::EgressPort),
    ("instance_type", Intrinsic::InstanceType),
    ("packet_length", Intrinsic::PacketLength),
    ("enq_timestamp", Intrinsic::EnqueueTimestamp),
    ("enq_qdepth", Intrinsic::EnqueueDepth),
    ("deq_timedelta", Intrinsic::DequeueDelta),
    ("deq_qdepth", Intrinsic::DequeueDepth),
    ("ingress_global_timestamp", Intrinsic::IngressTimestamp),
    ("egress_global_timestamp", Intrinsic::EgressTimestamp),
    ("mcast_grp", Intrinsic::MulticastGroup),
    ("egress_rid", Intrinsic::EgressRid),
    ("priority", Intrinsic::ClassOfService),
    ("parser_error", Intrinsic::ParserError),
];

/// Metadata about the queue in which a packet waited, for egress.
const QUEUE_METADATA: [&str; 4] = ["enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"];

/// What lowering the program's blocks has determined, for the glue.
pub struct Switch {
    /// Slots of the standard metadata, by v1model's field names ([`INTRINSICS`] and `checksum_error`).
    pub standard: HashMap<String, SlotId>,
    /// Slots of requests to the replication engine, created on first use.
    pub requests: HashMap<Intrinsic, SlotId>,
    /// Whether ingress requests clones.
    pub clones_at_ingress: bool,
    /// Whether egress requests clones.
    pub clones_at_egress: bool,
    /// The value of `egress_spec` that means drop.
    pub drop_port: u64,
}

impl Default for Switch {
    fn default() -> Switch {
        Switch {
            standard: HashMap::new(),
            requests: HashMap::new(),
            clones_at_ingress: false,
            clones_at_egress: false,
            drop_port: DROP_PORT,
        }
    }
}

impl Switch {
    /// The slot of a request to the replication engine.
    pub fn request(&mut self, b: &mut Builder, which: Intrinsic, width: u32) -> SlotId {
        *self.requests.entry(which).or_insert_with(|| b.metadata(format!("${}", which.name()), width))
    }

    /// Emits a request: sets its flag and the field list to preserve.
    pub fn ask(&mut self, b: &mut Builder, flag: Intrinsic, field_list: Intrinsic, list: Operand) {
        let flag = self.request(b, flag, 1);
        let slot = self.request(b, field_list, 16);
        b.set(flag, 1);
        b.mov(slot, list);
    }

    /// Declares the slots that the runtime reads and sets, and the values of `instance_type`.
    pub fn declare(&self, b: &mut Builder) {
        for (name, which) in INTRINSICS {
            if let Some(slot) = self.standard.get(name) {
                b.intrinsic(which, *slot);
            }
        }
        let program = b.program_mut();
        program.drop_port = Some(self.drop_port);
        program.instance_types =
            InstanceTypes { normal: 0, ingress_clone: 1, egress_clone: 2, recirculate: 4, replication: 5, resubmit: 6 };
        b.drop_reason(INGRESS_DROP);
    }

    /// Declares the slots of the requests that are used.
    pub fn declare_requests(&self, b: &mut Builder) {
        let requests: BTreeMap<Intrinsic, SlotId> = self.requests.iter().map(|(i, s)| (*i, *s)).collect();
        for (which, slot) in requests {
            b.intrinsic(which, slot);
        }
    }
}

/// A header of the packet, for its contribution to the packet's length.
#[derive(Clone, Debug)]
pub struct PacketHeader {
    /// The slot with its validity.
    pub valid: SlotId,
    /// Length in bits without a varbit field.
    pub fixed_bits: u32,
    /// The slot with the length of a varbit field in bits.
    pub varbit_bits: Option<SlotId>,
}

impl PacketHeader {
    /// A header of the program, for its length.
    pub fn of(program: &ir::Program, header: ir::HeaderId) -> PacketHeader {
        let header = &program.headers[header.index()];
        let fixed = header.fields.iter().filter(|f| f.varbit_length.is_none());
        PacketHeader {
            valid: header.valid,
            fixed_bits: fixed.map(|f| program.width(f.slot)).sum(),
            varbit_bits: header.fields.iter().find_map(|f| f.varbit_length),
        }
    }
}

/// The stages of the six blocks.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// The parser.
    pub parser: StageId,
    /// Verification of checksums.
    pub verify: StageId,
    /// The ingress control.
    pub ingress: StageId,
    /// The egress control.
    pub egress: StageId,
    /// Computation of checksums.
    pub compute: StageId,
    /// The deparser.
    pub deparser: StageId,
}

/// Emits the stages between the blocks, and the entry points. Returns warnings about writes without effect.
pub fn glue(b: &mut Builder, switch: &Switch, stages: Stages, headers: &[PacketHeader]) -> Vec<Diagnostic> {
    let mut glue = Glue { b, state: switch, stages, headers, warnings: Vec::new() };
    glue.entries();
    glue.warnings
}

struct Glue<'g> {
    b: &'g mut Builder,
    state: &'g Switch,
    stages: Stages,
    /// The packet's headers.
    headers: &'g [PacketHeader],
    warnings: Vec<Diagnostic>,
}

impl Glue<'_> {
    /// Opens a stage under a unique name.
    fn open_stage(&mut self, name: &str) -> StageId {
        let stages = &self.b.program().stages;
        let taken = |name: &String| stages.iter().any(|s| s.name == *name);
        let mut numbered = (2..).map(|n| format!("{name}#{n}"));
        let name = Some(name.to_string()).filter(|n| !taken(n)).or_else(|| numbered.find(|n| !taken(n)));
        self.b.set_span(base::Span::NONE);
        self.b.begin_stage(name.unwrap_or_default(), StageKind::Control)
    }

    fn close_stage(&mut self) {
        if !self.b.is_terminated() {
            self.b.next_stage();
        }
        self.b.set_span(base::Span::NONE);
        self.b.end_stage();
    }

    /// Branches on a condition; continues where it holds and returns the block where it does not.
    fn split(&mut self, cond: Operand) -> ir::BlockId {
        let (then, other) = (self.b.block(""), self.b.block(""));
        self.b.branch(cond, then, other);
        self.b.switch_to(then);
        other
    }

    fn entries(&mut self) {
        self.drop_idle_group_resets();
        self.warn_of_early_egress_port();
        let s = &self.stages;
        let (parser, verify, ingress, egress) = (s.parser, s.verify, s.ingress, s.egress);
        let (compute, deparser) = (s.compute, s.deparser);
        let asks = |which| self.state.requests.contains_key(&which);
        let again = asks(Intrinsic::ResubmitFlag) || asks(Intrinsic::RecirculateFlag);
        let multicast = self.is_multicast();
        let queues = self.uses_queues();
        self.b.program_mut().queues = queues;
        let replicates = self.state.clones_at_ingress || asks(Intrinsic::ResubmitFlag) || multicast;

        // The port to send to: `egress_port`, or a copy from the start of egress if egress writes it.
        let egress_port = self.standard("egress_port");
        let out_port = egress_port.map(|port| match self.writes(egress, port) {
            true => {
                let width = self.b.program().width(port);
                self.b.metadata("$output_port", width)
            }
            false => port,
        });
        let (after_parser, ingress_length) = self.length_through_ingress();
        let ingress_end = self.ingress_end(multicast, again, queues, ingress_length.as_ref());
        let egress_length = self.length_through_egress();
        let egress_start = self.egress_start(egress_port, out_port, egress_length.as_ref());
        let egress_end = self.egress_end(egress_length.as_ref());
        let deparse_end = self.deparse_end(out_port);
        let rest = [egress_start, Some(egress), egress_end, Some(compute), Some(deparser), Some(deparse_end)];
        let chain =
            |first: &[Option<StageId>]| -> Vec<StageId> { first.iter().chain(&rest).copied().flatten().collect() };
        let mut whole = chain(&[Some(parser), after_parser, Some(verify), Some(ingress), Some(ingress_end)]);
        if queues {
            // Packets continue when they leave their queues.
            whole.truncate(whole.len() - rest.iter().flatten().count());
        }
        self.b.entry(EntryKind::Ingress, &whole);
        if again {
            self.b.entry(EntryKind::Reingress, &whole);
        }
        if self.state.clones_at_ingress {
            let (begin, end) = self.clone_glue();
            let stages = chain(&[begin, Some(parser), end]);
            self.b.entry(EntryKind::CloneIngress, &stages);
        }
        if replicates || queues || self.state.clones_at_egress {
            let stages = chain(&[]);
            self.b.entry(EntryKind::Egress, &stages);
        }
        if self.state.clones_at_egress {
            let begin = self.deparse_begin();
            let stages: Vec<StageId> =
                [begin, Some(compute), Some(deparser), Some(deparse_end)].into_iter().flatten().collect();
            self.b.entry(EntryKind::Deparse, &stages);
        }
    }

    fn standard(&self, name: &str) -> Option<SlotId> {
        self.state.standard.get(name).copied()
    }

    /// Whether a stage writes to a slot anything but the constant `ignored`.
    fn writes_other_than(&self, stage: StageId, slot: SlotId, ignored: Option<u64>) -> bool {
        let program = self.b.program();
        let mut writes = false;
        for inst in program.stages[stage.index()].blocks.iter().flat_map(|b| &b.insts) {
            if let Op::Mov { dst, src: Operand::Const(c) } = &inst.op
                && *dst == slot
                && c.to_u64() == ignored
                && ignored.is_some()
            {
                continue;
            }
            inst.op.for_each_def(program, |s| writes |= s == slot);
        }
        writes
    }

    fn writes(&self, stage: StageId, slot: SlotId) -> bool {
        self.writes_other_than(stage, slot, None)
    }

    fn reads(&self, stage: StageId, slot: SlotId) -> bool {
        let program = self.b.program();
        let mut reads = false;
        for block in &program.stages[stage.index()].blocks {
            for inst in &block.insts {
                inst.op.for_each_use(program, |s| reads |= s == slot);
            }
            reads |= block.term.operand().and_then(Operand::slot) == Some(slot);
        }
        reads
    }

    /// Warns if ingress writes `egress_port`: the port is chosen by `egress_spec`. No warning if ingress also reads it,
    /// as a variable of its own.
    fn warn_of_early_egress_port(&mut self) {
        let Some(port) = self.standard("egress_port") else { return };
        let ingress = self.stages.ingress;
        if self.reads(ingress, port) {
            return;
        }
        let program = self.b.program();
        let mut places = Vec::new();
        for inst in program.stages[ingress.index()].blocks.iter().flat_map(|b| &b.insts) {
            inst.op.for_each_def(program, |s| {
                if s == port && !inst.span.is_none() {
                    places.push(inst.span)
                }
            });
        }
        for span in places {
            let message = "writing `egress_port` in ingress does not choose a port";
            let help = "write `egress_spec`: the port in it at the end of ingress is where the packet goes";
            self.warnings.push(Diagnostic::warning(codes::WRITTEN_IN_VAIN, span, message).help(help));
        }
    }

    /// Whether the program can request multicast. Clearing the group, as `mark_to_drop` does, is no request.
    fn is_multicast(&self) -> bool {
        let Some(group) = self.standard("mcast_grp") else { return false };
        [self.stages.parser, self.stages.ingress].iter().any(|s| self.writes_other_than(*s, group, Some(0)))
    }

    /// Whether packets wait in queues between ingress and egress: egress reads queue metadata, or a class is chosen.
    fn uses_queues(&self) -> bool {
        let reads = |name: &&str| self.standard(name).is_some_and(|slot| self.reads(self.stages.egress, slot));
        let chooses = |class| {
            let stages = [self.stages.parser, self.stages.ingress];
            stages.iter().any(|stage| self.writes_other_than(*stage, class, Some(0)))
        };
        QUEUE_METADATA.iter().any(reads) || self.standard("priority").is_some_and(chooses)
    }

    /// Removes `mark_to_drop`'s resets of the multicast group if no group is ever set.
    fn drop_idle_group_resets(&mut self) {
        let Some(group) = self.standard("mcast_grp") else { return };
        let all = [self.stages.parser, self.stages.ingress, self.stages.egress];
        if all.iter().any(|s| self.writes_other_than(*s, group, Some(0))) {
            return;
        }
        for stage in all {
            for block in &mut self.b.program_mut().stages[stage.index()].blocks {
                block.insts.retain(|i| !matches!(&i.op, Op::Mov { dst, .. } if *dst == group));
            }
        }
    }

    fn ingress_end(&mut self, multicast: bool, again: bool, queues: bool, length: Option<&Length>) -> StageId {
        let stage = self.open_stage("ingress_end");
        if let Some(length) = length {
            self.set_length(length);
        }
        let mut asked: Option<Operand> = None;
        let or = |b: &mut Builder, asked: &mut Option<Operand>, flag: SlotId| {
            *asked = Some(match asked.take() {
                None => flag.into(),
                Some(before) => b.bin(BinOp::Or, before, flag).into(),
            });
        };
        if let (true, Some(flag)) = (self.state.clones_at_ingress, self.request(Intrinsic::CloneFlag)) {
            or(self.b, &mut asked, flag);
        }
        if let Some(flag) = self.request(Intrinsic::ResubmitFlag) {
            or(self.b, &mut asked, flag);
        }
        if let (true, Some(group)) = (multicast, self.standard("mcast_grp")) {
            let width = self.b.program().width(group);
            let set = self.b.bin(BinOp::Ne, group, Operand::new_const(width, 0));
            or(self.b, &mut asked, set);
        }
        if let Some(asked) = asked {
            self.finish_if(asked, Fate::Replicate(ReplicationPoint::IngressEnd));
        }
        if let Some(spec) = self.standard("egress_spec") {
            let written = [self.stages.parser, self.stages.ingress].iter().any(|s| self.writes(*s, spec));
            if written {
                self.drop_check(spec, INGRESS_DROP);
            }
            if let Some(port) = self.standard("egress_port") {
                self.b.mov(port, spec);
            }
        }
        if queues {
            self.b.fate(Fate::Replicate(ReplicationPoint::IngressEnd));
            self.close_stage();
            return stage;
        }
        if let (true, Some(instance_type)) = (again, self.standard("instance_type")) {
            self.b.set(instance_type, 0);
        }
        // Values that the runtime sets for packets that go through a replication point.
        if let Some(now) = self.standard("ingress_global_timestamp") {
            for name in ["egress_global_timestamp", "enq_timestamp"] {
                if let Some(slot) = self.standard(name).filter(|s| self.reads(self.stages.egress, *s)) {
                    let width = self.b.program().width(slot);
                    let now = self.b.resize_u(width, now);
                    self.b.mov(slot, now);
                }
            }
        }
        self.close_stage();
        stage
    }

    fn egress_start(
        &mut self,
        egress_port: Option<SlotId>,
        out_port: Option<SlotId>,
        length: Option<&Length>,
    ) -> Option<StageId> {
        let egress = self.stages.egress;
        let spec = self.standard("egress_spec").filter(|s| self.writes(egress, *s) || self.reads(egress, *s));
        let copy = egress_port.zip(out_port).filter(|(port, out)| port != out);
        if spec.is_none() && copy.is_none() && length.is_none() {
            return None;
        }
        let stage = self.open_stage("egress_start");
        if let Some(length) = length {
            self.note_rest(length);
        }
        if let Some(spec) = spec {
            self.b.set(spec, 0);
        }
        if let Some((port, out)) = copy {
            self.b.mov(out, port);
        }
        self.close_stage();
        Some(stage)
    }

    fn egress_end(&mut self, length: Option<&Length>) -> Option<StageId> {
        let spec = self.egress_spec_of_egress();
        if spec.is_none() && !self.state.clones_at_egress {
            return None;
        }
        let stage = self.open_stage("egress_end");
        if let (true, Some(flag)) = (self.state.clones_at_egress, self.request(Intrinsic::CloneFlag)) {
            let go_on = self.split(flag.into());
            if let Some(length) = length {
                self.set_length(length);
            }
            self.b.fate(Fate::Replicate(ReplicationPoint::EgressEnd));
            self.b.switch_to(go_on);
        }
        if let Some(spec) = spec {
            self.drop_check(spec, EGRESS_DROP);
        }
        self.close_stage();
        Some(stage)
    }

    /// After a replication at the end of egress: performs the remainder of `egress_end`.
    fn deparse_begin(&mut self) -> Option<StageId> {
        let spec = self.egress_spec_of_egress()?;
        let stage = self.open_stage("deparse_begin");
        self.drop_check(spec, EGRESS_DROP);
        self.close_stage();
        Some(stage)
    }

    fn deparse_end(&mut self, out_port: Option<SlotId>) -> StageId {
        let stage = self.open_stage("deparse_end");
        if let Some(flag) = self.request(Intrinsic::RecirculateFlag) {
            self.finish_if(flag.into(), Fate::Replicate(ReplicationPoint::DeparseEnd));
        }
        let port = out_port.map_or(Operand::new_const(9, 0), Operand::Slot);
        self.b.fate(Fate::Send(port));
        self.close_stage();
        stage
    }

    /// Saves the metadata that the parser writes, and restores them after it.
    fn clone_glue(&mut self) -> (Option<StageId>, Option<StageId>) {
        let program = self.b.program();
        let mut written = BTreeSet::new();
        for inst in program.stages[self.stages.parser.index()].blocks.iter().flat_map(|b| &b.insts) {
            inst.op.for_each_def(program, |s| {
                if program.slots[s.index()].kind == SlotKind::Metadata {
                    written.insert(s);
                }
            });
        }
        if written.is_empty() {
            return (None, None);
        }
        let saved: Vec<(SlotId, SlotId)> = written
            .into_iter()
            .map(|slot| {
                let width = self.b.program().width(slot);
                let name = format!("$clone.{}", self.b.program().slots[slot.index()].name);
                (slot, self.b.local(name, width))
            })
            .collect();
        let begin = self.open_stage("clone_begin");
        saved.iter().for_each(|(slot, copy)| self.b.mov(*copy, *slot));
        self.close_stage();
        let end = self.open_stage("clone_end");
        saved.iter().for_each(|(slot, copy)| self.b.mov(*slot, *copy));
        self.close_stage();
        (Some(begin), Some(end))
    }

    fn egress_spec_of_egress(&self) -> Option<SlotId> {
        self.standard("egress_spec").filter(|s| self.writes(self.stages.egress, *s))
    }

    fn request(&self, which: Intrinsic) -> Option<SlotId> {
        self.state.requests.get(&which).copied()
    }

    fn drop_check(&mut self, spec: SlotId, reason: &str) {
        let width = self.b.program().width(spec);
        let drop = self.b.bin(BinOp::Eq, spec, Operand::new_const(width, u128::from(self.state.drop_port)));
        let reason = self.b.drop_reason(reason);
        self.finish_if(drop.into(), Fate::Drop(reason));
    }

    fn finish_if(&mut self, cond: Operand, fate: Fate) {
        let go_on = self.split(cond);
        self.b.fate(fate);
        self.b.switch_to(go_on);
    }
}
