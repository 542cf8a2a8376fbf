//! v1model's externs as IR operations.
//!
//! | extern | becomes |
//! | --- | --- |
//! | `counter`, `meter`, `register` | `Count`, `Meter`, `RegisterRead`, `RegisterWrite` |
//! | `direct_counter` | counts each hit of its table, as in bmv2; `count()` itself has no effect |
//! | `direct_meter` | runs at each hit of its table; `read` returns the colour (see also `direct_meter` below) |
//! | `hash`, `Checksum16`, `verify_checksum`, `update_checksum` (also `_with_payload`) | `Hash` |
//! | `clone*`, `resubmit*`, `recirculate*` | request slots that the glue and the replication engine read |
//! | `truncate` | a slot that the end of the deparser reads; the shortest length of several calls applies |
//! | `mark_to_drop` | `egress_spec = 511; mcast_grp = 0` |
//! | `random`, `digest`, `log_msg`, `assert`, `assume` | operations of these names |
//!
//! The old `clone3`, `resubmit` and `recirculate` with a list expression preserve the variables that it contains, as a
//! field list of their own.

use super::{BlockRole, LEARN_BITS, Shared};
use crate::arch::{Architecture, ExternCall, TableProperty};
use crate::codes;
use crate::context::Lowerer;
use crate::path::Place;
use crate::retained::Piece;
use crate::simple_switch::{ASSERT_DROP, NO_FIELD_LIST};
use crate::tree::Tree;
use crate::visit::{self, Node};
use base::Bits;
use base::diag::Diagnostic;
use ir::{BinOp, ExternKind, Fate, HashAlgorithm, Intrinsic, Mark, Op, Operand, SlotId, SlotKind};
use sema::Type;
use sema::Value;
use sema::consteval::is_signed;
use sema::typed::{
    BinaryOp, Call, Callee, Expr, ExprKind, Instance, InstanceId, InstanceOf, LocalId, Table, find_annotation,
};

/// Number of the first field list made from an old-style call; `@field_list` numbers are `bit<8>`.
const OLD_STYLE_LISTS: u64 = 256;

/// The architecture v1model.
pub(super) struct V1Model {
    pub state: Shared,
}

impl Lowerer<'_> {
    /// Declares all extern instances that have state.
    pub(crate) fn declare_externs(&mut self) {
        let mut arch = self.arch.take();
        if let Some(arch) = &mut arch {
            for i in 0..self.p.instances.len() {
                if matches!(self.p.instances[i].of, InstanceOf::Extern(_)) {
                    arch.declare(self, InstanceId::from_index(i));
                }
            }
        }
        self.arch = arch;
    }

    /// The name of a member of an enum without underlying type.
    pub(crate) fn member_name(&self, ty: &Type, value: Option<&Value>) -> Option<&str> {
        match (ty, value?) {
            (Type::Enum(id), Value::Enum(i)) => Some(&self.p.types.enums[id.index()].members.get(*i as usize)?.name),
            _ => None,
        }
    }

    /// The name of the enum member passed as a constructor argument.
    pub(crate) fn instance_enum(&self, instance: &Instance, arg: &str) -> Option<String> {
        let arg = instance.args.iter().find(|a| &*a.name == arg)?;
        self.member_name(&arg.ty, Some(&arg.value)).map(str::to_string)
    }
}

fn algorithm(name: &str) -> Option<HashAlgorithm> {
    Some(match name {
        "crc32" => HashAlgorithm::Crc32,
        "crc32_custom" => HashAlgorithm::Crc32Custom,
        "crc16" => HashAlgorithm::Crc16,
        "crc16_custom" => HashAlgorithm::Crc16Custom,
        "random" => HashAlgorithm::Random,
        "identity" => HashAlgorithm::Identity,
        "csum16" => HashAlgorithm::Csum16,
        "xor16" => HashAlgorithm::Xor16,
        _ => return None,
    })
}

impl Architecture for V1Model {
    fn declare(&mut self, cx: &mut Lowerer<'_>, id: InstanceId) {
        let p = cx.p;
        let instance = p.instance(id);
        let InstanceOf::Extern(extern_id) = instance.of else { return };
        let size = instance.arg("size").and_then(Value::to_u64).unwrap_or(0);
        let unit = cx.instance_enum(instance, "type").map_or(ir::CounterUnit::Both, |n| Lowerer::unit(&n));
        let kind = match p.extern_name(extern_id) {
            "counter" => ExternKind::Counter { size, unit, direct: None },
            "direct_counter" => ExternKind::Counter { size: 0, unit, direct: None },
            "meter" => ExternKind::Meter { size, unit, direct: None },
            "direct_meter" => ExternKind::Meter { size: 0, unit, direct: None },
            "register" => {
                let width = register_type(instance).and_then(|ty| cx.cell_width(ty));
                let Some(width) = width else {
                    let ty = register_type(instance).map_or("void".to_string(), |ty| cx.type_text(ty));
                    let message = format!("register `{}` cannot hold values of type `{ty}`", instance.path);
                    return cx.refuse(codes::UNSUPPORTED_TYPE, instance.span, message);
                };
                ExternKind::Register { size, width, initial: Bits::zero(width) }
            }
            "action_profile" => ExternKind::ActionProfile { size, actions: Vec::new() },
            "action_selector" => {
                let name = cx.instance_enum(instance, "algorithm");
                let Some(algorithm) = name.as_deref().and_then(algorithm).filter(|a| *a != HashAlgorithm::Random)
                else {
                    let message = format!("the algorithm of action selector `{}` is not supported", instance.path);
                    return cx.refuse(codes::UNSUPPORTED_EXTERN, instance.span, message);
                };
                let width = instance.arg("outputWidth").and_then(Value::to_u64).unwrap_or(0);
                let Some(hash_width) = u32::try_from(width).ok().filter(|w| (1..=64).contains(w)) else {
                    let message = format!("action selector `{}` wants {width} bits of a hash", instance.path);
                    return cx.refuse(codes::UNSUPPORTED_EXTERN, instance.span, message);
                };
                ExternKind::ActionSelector { size, actions: Vec::new(), algorithm, hash_width, empty: None }
            }
            // `Checksum16` has no state; unknown externs are reported where they are used.
            _ => return,
        };
        let made = cx.b.extern_instance(ir::Extern { name: instance.path.clone(), span: instance.span, kind });
        cx.externs.insert(id, made);
    }

    /// If all actions that read a direct meter write the colour to the same field, bmv2 writes it at each hit, before
    /// the action runs, also for the other actions.
    fn direct_meter(&mut self, cx: &mut Lowerer<'_>, table: &Table, meter: ir::ExternId, hit: SlotId, colour: SlotId) {
        let Some(result) = meter_result(cx, table, meter) else { return };
        let done = cx.split(hit.into());
        let place = cx.place(result);
        assign_colour(cx, &place, &result.ty, colour);
        cx.b.fall_through(done);
        cx.b.switch_to(done);
    }

    fn table_property(&self, name: &str) -> TableProperty {
        match name {
            "implementation" => TableProperty::Implementation,
            "counters" => TableProperty::Counters,
            "meters" => TableProperty::Meters,
            "support_timeout" => TableProperty::IdleTimeout,
            "largest_priority_wins" | "priority_delta" => TableProperty::Ignored,
            // See `add_on_miss.rs`.
            "add_on_miss" | "pna_idle_timeout" | "idle_timeout_with_auto_delete" => TableProperty::Ignored,
            _ => TableProperty::Unknown,
        }
    }

    fn packet_length(&self) -> Option<SlotId> {
        self.state.borrow().switch.standard.get("packet_length").copied()
    }

    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree {
        match name {
            "hash" => self.hash(cx, call),
            "verify_checksum" => self.verify_checksum(cx, call, false),
            "verify_checksum_with_payload" => self.verify_checksum(cx, call, true),
            "update_checksum" => self.update_checksum(cx, call, false),
            "update_checksum_with_payload" => self.update_checksum(cx, call, true),
            "random" => self.random(cx, call),
            "digest" => self.digest(cx, call),
            "mark_to_drop" => self.mark_to_drop(cx, call),
            "clone" => self.clone_packet(cx, call, Operand::new_const(16, NO_FIELD_LIST)),
            "clone_preserving_field_list" => {
                let list = self.list_index(cx, call, 2);
                self.clone_packet(cx, call, list);
            }
            "clone3" => {
                let list = self.old_style_list(cx, &call.value(2));
                self.clone_packet(cx, call, list);
            }
            "resubmit_preserving_field_list" | "resubmit" => {
                if self.role() == BlockRole::Ingress {
                    let list = self.again_list(cx, name, call);
                    self.ask(cx, Intrinsic::ResubmitFlag, Intrinsic::ResubmitFieldList, list);
                } else {
                    no_effect(cx, call, "packets are resubmitted after ingress: this has no effect here");
                }
            }
            "recirculate_preserving_field_list" | "recirculate" => {
                if matches!(self.role(), BlockRole::Ingress | BlockRole::Egress) {
                    let list = self.again_list(cx, name, call);
                    self.ask(cx, Intrinsic::RecirculateFlag, Intrinsic::RecirculateFieldList, list);
                } else {
                    no_effect(cx, call, "packets are recirculated after egress: this has no effect here");
                }
            }
            "truncate" => {
                let bytes = call.value(0).operand();
                let slot = match self.state.borrow().truncate {
                    Some(slot) => slot,
                    None => cx.b.metadata("$truncate", 32),
                };
                self.state.borrow_mut().truncate = Some(slot);
                // Stored as complement: the initial value 0 truncates nothing, and the shortest length is the largest
                // value.
                let bytes = cx.b.resize_u(32, bytes);
                let cut = cx.not(bytes);
                let more = cx.b.bin(BinOp::Ult, slot, cut.clone());
                cx.b.emit(Op::Select { dst: slot, cond: more.into(), then: cut, other: slot.into() });
            }
            "assert" | "assume" => {
                let cond = call.value(0).operand();
                if !Lowerer::is_true(&cond) {
                    cx.b.emit(Op::Assert { cond: cond.clone(), text: name.to_string() });
                    let reason = cx.b.drop_reason(ASSERT_DROP);
                    let failed = cx.not(cond);
                    let go_on = cx.split(failed);
                    cx.b.fate(Fate::Drop(reason));
                    cx.b.switch_to(go_on);
                }
            }
            "log_msg" => {
                let format = call.call.args.first().and_then(|a| cx.constant(a.value.expr()?));
                let format = format.as_ref().and_then(Value::as_str).unwrap_or_default().to_string();
                let mut args = Vec::new();
                call.value(1).for_each_wire_leaf(&mut |o, _| args.push(o.clone()));
                cx.b.emit(Op::Log { format, args });
            }
            other => {
                let done = cx.add_on_miss_function(other, call);
                return done.unwrap_or_else(|| cx.foreign_function(other, call));
            }
        }
        Tree::Nothing
    }

    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree {
        let p = cx.p;
        let InstanceOf::Extern(extern_id) = p.instance(instance).of else { return Tree::Nothing };
        let name = p.extern_name(extern_id);
        if (name, method) == ("Checksum16", "get") {
            let result = cx.b.temp(16);
            let op = hash_op(cx, HashAlgorithm::Csum16, result, Operand::new_const(16, 0), None, &call.value(0), false);
            cx.b.emit(op);
            return result.into();
        }
        let Some(ext) = cx.externs.get(&instance).copied() else {
            return cx.foreign_method(name, &p.instance(instance).path, method, call);
        };
        match (name, method) {
            ("counter", "count") => {
                let index = index_operand(cx, call.value(0).operand());
                cx.b.emit(Op::Count { counter: ext, index, bytes: None });
            }
            ("direct_counter", "count") => {}
            ("meter", "execute_meter") => {
                let index = index_operand(cx, call.value(0).operand());
                let within = in_range(cx, ext, &index);
                self.colour(cx, call, 1, within, |dst| Op::Meter { meter: ext, dst, index, before: None, bytes: None });
            }
            ("direct_meter", "read") => match cx.direct.get(&ext).copied() {
                Some(colour) => {
                    if let Some(place) = call.place(0) {
                        assign_colour(cx, place, &call.call.args[0].ty, colour);
                    }
                }
                // If tables share an action, it reads the meter only for the table that has it.
                None if cx.in_table_action => {}
                None => {
                    let message = "a direct meter is read in an action of the table that has it as `meters`";
                    cx.refuse(codes::EXTERN_MISUSE, call.call.span, message);
                }
            },
            ("register", "read") => {
                let index = index_operand(cx, call.value(1).operand());
                let ExternKind::Register { width, .. } = cx.b.program().externs[ext.index()].kind else {
                    return Tree::Nothing;
                };
                let dst = cx.b.temp(width);
                let within = in_range(cx, ext, &index);
                cx.b.emit(Op::RegisterRead { register: ext, dst, index, peek: false });
                if let (Some(place), Some(ty)) = (call.place(0), register_type(p.instance(instance))) {
                    cx.if_else(
                        within,
                        |cx| {
                            let value = cx.unpack_cell(dst, ty);
                            cx.assign(place, &value);
                        },
                        |_| {},
                    );
                }
            }
            ("register", "write") => {
                let index = index_operand(cx, call.value(0).operand());
                let ty = call.call.args.get(1).map(|a| &a.ty);
                let src = ty.map_or(Lowerer::bit(false), |ty| cx.pack_cell(&call.value(1), ty));
                cx.b.emit(Op::RegisterWrite { register: ext, index, src });
            }
            _ => return cx.foreign_method(name, &p.instance(instance).path, method, call),
        }
        Tree::Nothing
    }
}

impl V1Model {
    fn role(&self) -> BlockRole {
        self.state.borrow().role
    }

    /// The slot of a request to the replication engine.
    fn request(&self, cx: &mut Lowerer<'_>, which: Intrinsic, width: u32) -> SlotId {
        self.state.borrow_mut().switch.request(&mut cx.b, which, width)
    }

    /// The constant hash algorithm that is argument `i`.
    fn algorithm(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>, i: usize) -> Option<HashAlgorithm> {
        let arg = call.call.args.get(i)?;
        let value = arg.value.expr().and_then(|e| cx.constant(e));
        let found = cx.member_name(&arg.ty, value.as_ref()).and_then(algorithm);
        if found.is_none() {
            cx.refuse(codes::NOT_CONSTANT, call.call.span, "the hash algorithm is not known at compile time");
        }
        match found {
            Some(HashAlgorithm::Crc16Custom | HashAlgorithm::Crc32Custom) => {
                let named = self.state.borrow().calculations.of(call.call, cx.env.instance);
                named.map(HashAlgorithm::Calculation).or(found)
            }
            _ => found,
        }
    }

    fn hash(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>) {
        let (Some(algorithm), Some(place)) = (self.algorithm(cx, call, 1), call.place(0)) else { return };
        let width = cx.scalar_width(&call.call.args[0].ty).unwrap_or(1).max(1);
        let base = cx.b.resize_u(width, call.value(2).operand());
        let max = call.value(4).operand();
        let dst = cx.b.temp(width);
        let op = hash_op(cx, algorithm, dst, base, Some(max), &call.value(3), false);
        cx.b.emit(op);
        assign(cx, Some(place), dst);
    }

    /// The checksum for a call with arguments `(condition, data, checksum, algorithm)`.
    fn checksum(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>, payload: bool) -> Option<SlotId> {
        let algorithm = self.algorithm(cx, call, 3)?;
        let width = cx.scalar_width(&call.call.args[2].ty).unwrap_or(1).max(1);
        let dst = cx.b.temp(width);
        let op = hash_op(cx, algorithm, dst, Operand::new_const(width, 0), None, &call.value(1), payload);
        cx.b.emit(op);
        Some(dst)
    }

    /// Marks the beginning of a checksum, for the tracer.
    fn mark_checksum(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>, update: bool) {
        let state = self.state.borrow();
        if let Some(name) = state.calculations.checksum(call.call, cx.env.instance) {
            cx.mark(Mark::Checksum { name: name.to_string(), update });
        }
    }

    fn verify_checksum(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>, payload: bool) {
        self.mark_checksum(cx, call, false);
        let error = self.state.borrow().switch.standard.get("checksum_error").copied();
        when_there(cx, call, |cx| {
            if let (Some(sum), Some(error)) = (self.checksum(cx, call, payload), error) {
                let wrong = cx.b.bin(BinOp::Ne, sum, call.value(2).operand());
                cx.b.emit(Op::Bin { op: BinOp::Or, dst: error, a: error.into(), b: wrong.into() });
            }
        });
    }

    fn update_checksum(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>, payload: bool) {
        self.mark_checksum(cx, call, true);
        when_there(cx, call, |cx| {
            if let Some(sum) = self.checksum(cx, call, payload) {
                assign(cx, call.place(2), sum);
            }
        });
    }

    fn random(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>) {
        let ty = &call.call.args[0].ty;
        // `bit<0>` has only one value.
        if cx.scalar_width(ty).is_some_and(|w| w > 0) {
            let signed = is_signed(&cx.p.types, ty);
            let (low, high) = (call.value(1).operand(), call.value(2).operand());
            let some = match cx.retained {
                None => Lowerer::bit(true),
                Some(_) => cx.binary(BinaryOp::Le, signed, low.clone(), high.clone()),
            };
            cx.if_else(
                some,
                |cx| {
                    let value = cx.random_between(signed, low, high);
                    assign(cx, call.place(0), value);
                },
                |_| {},
            );
        }
    }

    /// Sends a digest. Field names are those of the data's type, as P4Runtime requires.
    fn digest(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>) {
        let Some(arg) = call.call.args.get(1) else { return };
        let ty = call.call.type_args.first().unwrap_or(&arg.ty);
        let mut data = Vec::new();
        call.value(1).for_each_reported_leaf(&mut |o| data.push(o.clone()));
        let known = self.state.borrow().digests.iter().find(|(t, _)| t == ty).map(|(_, digest)| *digest);
        let digest = match known {
            Some(digest) => digest,
            None => {
                let mut names = Vec::new();
                leaf_names(cx, "", ty, &mut names);
                let fields = names.into_iter().zip(data.iter().map(|o| cx.width(o))).collect();
                let name = self.digest_name(cx, ty);
                let kind = ExternKind::Digest { fields };
                let made = cx.b.extern_instance(ir::Extern { name, span: call.call.span, kind });
                self.state.borrow_mut().digests.push((ty.clone(), made));
                made
            }
        };
        if cx.retained.is_some() && self.role() == BlockRole::Ingress {
            return self.learn(cx, digest, data);
        }
        cx.b.emit(Op::Digest { digest, data });
    }

    /// Requests a digest to be sent at the end of ingress, unless another one is requested before.
    fn learn(&self, cx: &mut Lowerer<'_>, digest: ir::ExternId, data: Vec<Operand>) {
        // A value that is not a variable is saved here.
        let data = data.into_iter().map(|value| match &value {
            Operand::Slot(slot) if cx.b.program().slots[slot.index()].kind == SlotKind::Temp => {
                let width = cx.width(&value);
                let kept = cx.b.local("$learned", width);
                cx.b.mov(kept, value);
                kept.into()
            }
            _ => value,
        });
        let data = data.collect();
        let known = self.state.borrow().learn;
        let slot = known.unwrap_or_else(|| cx.b.metadata("$learn", LEARN_BITS));
        let mut state = self.state.borrow_mut();
        state.learn = Some(slot);
        state.learned.push((digest, data));
        cx.b.set(slot, state.learned.len() as u128);
    }

    fn digest_name(&self, cx: &Lowerer<'_>, ty: &Type) -> String {
        if let Some(info) = cx.p.types.struct_info(ty).filter(|s| !s.name.is_empty()) {
            let written = find_annotation(&info.annotations, "name").and_then(|a| a.as_str());
            let name = written.unwrap_or(&info.name).trim_start_matches('.').to_string();
            // Instances of a generic struct have the same name; P4Info numbers them in the same manner.
            let externs = &cx.b.program().externs;
            let mut numbered = (1..).map(|n| format!("{name}_{n}"));
            let taken =
                |name: &String| externs.iter().any(|e| e.name == *name && matches!(e.kind, ExternKind::Digest { .. }));
            return Some(name.clone()).filter(|n| !taken(n)).or_else(|| numbered.find(|n| !taken(n))).unwrap_or(name);
        }
        let state = self.state.borrow();
        let unnamed = state.digests.iter().filter(|(t, _)| cx.p.types.struct_info(t).is_none_or(|s| s.name.is_empty()));
        format!("digest_{}", unnamed.count())
    }

    fn mark_to_drop(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>) {
        let drop_port = self.state.borrow().switch.drop_port;
        for (field, value) in [("egress_spec", drop_port), ("mcast_grp", 0)] {
            let given = call.call.args.first().and_then(|arg| {
                let (index, _) = cx.p.types.struct_info(&arg.ty)?.field(field)?;
                Some(call.place(0)?.plain()?.child(index))
            });
            let standard = self.state.borrow().switch.standard.get(field).copied();
            let Some(target) = given.or(standard.map(Tree::from)) else { continue };
            let width = cx.width(&target.operand());
            cx.assign(&Place::of(target), &Tree::constant(width, u128::from(value)));
        }
    }

    fn clone_packet(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>, list: Operand) {
        match self.role() {
            BlockRole::Ingress => self.state.borrow_mut().switch.clones_at_ingress = true,
            BlockRole::Egress => self.state.borrow_mut().switch.clones_at_egress = true,
            _ => return no_effect(cx, call, "packets are cloned after ingress and egress: this has no effect here"),
        }
        let session = self.request(cx, Intrinsic::CloneSession, 32);
        let value = cx.b.resize_u(32, call.value(1).operand());
        cx.b.mov(session, value);
        self.ask(cx, Intrinsic::CloneFlag, Intrinsic::CloneFieldList, list);
    }

    fn ask(&self, cx: &mut Lowerer<'_>, flag: Intrinsic, field_list: Intrinsic, list: Operand) {
        self.state.borrow_mut().switch.ask(&mut cx.b, flag, field_list, list);
    }

    fn again_list(&self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Operand {
        match name.ends_with("_preserving_field_list") {
            true => self.list_index(cx, call, 0),
            false => self.old_style_list(cx, &call.value(0)),
        }
    }

    fn list_index(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>, i: usize) -> Operand {
        cx.b.resize_u(16, call.value(i).operand())
    }

    /// The field list of the variables in a list expression.
    fn old_style_list(&self, cx: &mut Lowerer<'_>, data: &Tree) -> Operand {
        let program = cx.b.program();
        let mut slots = data.slots();
        slots.retain(|s| program.slots[s.index()].kind != SlotKind::Temp);
        if slots.is_empty() {
            return Operand::new_const(16, NO_FIELD_LIST);
        }
        let mut state = self.state.borrow_mut();
        let known = state.field_lists.range(OLD_STYLE_LISTS..).find(|(_, l)| **l == slots).map(|(i, _)| *i);
        let index = known.unwrap_or_else(|| {
            let next = state.field_lists.range(OLD_STYLE_LISTS..).next_back().map_or(OLD_STYLE_LISTS, |(i, _)| i + 1);
            state.field_lists.insert(next, slots);
            next
        });
        Operand::new_const(16, u128::from(index))
    }

    /// Emits a meter operation, and writes its colour to argument `result` if `within` holds.
    fn colour(
        &self,
        cx: &mut Lowerer<'_>,
        call: &ExternCall<'_>,
        result: usize,
        within: Operand,
        op: impl FnOnce(SlotId) -> Op,
    ) {
        let dst = cx.b.temp(2);
        cx.b.emit(op(dst));
        if let (Some(place), Some(arg)) = (call.place(result), call.call.args.get(result)) {
            cx.if_else(within, |cx| assign_colour(cx, place, &arg.ty, dst), |_| {});
        }
    }
}

/// Assigns a colour to a place whose type may have fewer than 2 bits.
fn assign_colour(cx: &mut Lowerer<'_>, place: &Place, ty: &Type, colour: SlotId) {
    if let Some(width) = cx.scalar_width(ty).filter(|w| *w > 0) {
        let value = cx.b.resize_u(width, colour);
        cx.assign(place, &value.into());
    }
}

/// The field to which a table's actions read the colour of its direct meter, if they all use the same field of a
/// parameter of the control.
fn meter_result<'p>(cx: &Lowerer<'p>, table: &Table, meter: ir::ExternId) -> Option<&'p Expr> {
    let p = cx.p;
    let control = cx.env.instance.and_then(|i| match p.instance(i).of {
        InstanceOf::Control(control) => Some(&p.controls[control.index()]),
        _ => None,
    })?;
    let mut results: Vec<&'p Expr> = Vec::new();
    for action in &table.actions {
        visit::block(&p.actions[action.action.index()].body, &mut |node| {
            let Node::Call(Call { callee: Callee::ExternMethod { object, .. }, args, .. }) = node else { return };
            let ExprKind::Instance(reference) = &object.kind else { return };
            let instance = p.resolve(*reference, cx.env.instance);
            if instance.and_then(|i| cx.externs.get(&i)) == Some(&meter) {
                results.extend(args.first().and_then(|a| a.value.expr()));
            }
        });
    }
    let (first, others) = results.split_first()?;
    let is_field = |e: &Expr| field_path(e).is_some_and(|(root, _)| control.params.iter().any(|q| q.local == root));
    let same = |e: &&Expr| field_path(e) == field_path(first);
    (is_field(first) && others.iter().all(same)).then_some(first)
}

/// The variable and the field indices of a path of fields.
fn field_path(e: &Expr) -> Option<(LocalId, Vec<u32>)> {
    match &e.kind {
        ExprKind::Local(local) => Some((*local, Vec::new())),
        ExprKind::Field(base, index) => {
            let (root, mut fields) = field_path(base)?;
            fields.push(*index);
            Some((root, fields))
        }
        _ => None,
    }
}

fn assign(cx: &mut Lowerer<'_>, place: Option<&Place>, value: SlotId) {
    if let Some(place) = place {
        cx.assign(place, &value.into());
    }
}

/// The type of a register's cells.
pub(crate) fn register_type(instance: &Instance) -> Option<&Type> {
    match &instance.ty {
        Type::Extern(_, args) => args.first(),
        _ => None,
    }
}

pub(crate) fn no_effect(cx: &mut Lowerer<'_>, call: &ExternCall<'_>, message: &str) {
    cx.report(Diagnostic::warning(codes::NO_EFFECT, call.call.span, message));
}

/// Whether the result for an index is written to its target; in bmv2 only if the index is in range.
fn in_range(cx: &mut Lowerer<'_>, ext: ir::ExternId, index: &Operand) -> Operand {
    let (ExternKind::Register { size, .. } | ExternKind::Meter { size, .. }) = cx.b.program().externs[ext.index()].kind
    else {
        return Lowerer::bit(true);
    };
    let width = cx.width(index);
    let any = width < 64 && size >> width != 0;
    match (&cx.retained, index) {
        (None, _) => Lowerer::bit(true),
        _ if any => Lowerer::bit(true),
        (_, Operand::Const(c)) => Lowerer::bit(c.to_u64().is_some_and(|i| i < size)),
        _ => cx.b.bin(BinOp::Ult, index.clone(), Operand::new_const(width, u128::from(size))).into(),
    }
}

/// Runs `f` if the call's first argument holds; in bmv2 only if the header with the checksum, its third argument, is
/// valid.
fn when_there(cx: &mut Lowerer<'_>, call: &ExternCall<'_>, f: impl FnOnce(&mut Lowerer<'_>)) {
    when(cx, call, |cx| {
        let checksum = match call.place(2) {
            Some(place) => place.slots().first().copied().map(Operand::Slot),
            None => Some(call.value(2).operand()),
        };
        match checksum.and_then(|c| cx.header_of(&c)) {
            Some(valid) => cx.if_else(valid.into(), f, |_| {}),
            None => f(cx),
        }
    });
}

/// Runs `f` if the call's first argument holds.
fn when(cx: &mut Lowerer<'_>, call: &ExternCall<'_>, f: impl FnOnce(&mut Lowerer<'_>)) {
    let cond = call.value(0).operand();
    match &cond {
        Operand::Const(c) if !c.is_true() => {}
        Operand::Const(_) => f(cx),
        Operand::Slot(_) => {
            let (yes, done) = (cx.new_join(""), cx.new_join(""));
            let facts = cx.facts.clone();
            let done_block = cx.join_block(done, &facts);
            let mut facts = facts;
            if let Some(e) = call.call.args.first().and_then(|a| a.value.expr()) {
                cx.valid_if(e, true, &mut facts);
            }
            let yes_block = cx.join_block(yes, &facts);
            cx.b.branch(cond, yes_block, done_block);
            cx.enter(yes);
            f(cx);
            cx.continue_at(done);
        }
    }
}

/// Converts an index to at most 64 bits; one that does not fit becomes 2^64 - 1, which is always out of range.
pub(crate) fn index_operand(cx: &mut Lowerer<'_>, index: Operand) -> Operand {
    let width = cx.width(&index);
    if width <= 64 {
        return index;
    }
    let above = cx.slice(index.clone(), width - 1, 64);
    let beyond = cx.b.bin(BinOp::Ne, above, Bits::zero(width - 64));
    let low = cx.slice(index, 63, 0);
    cx.b.select(beyond, Bits::ones(64), low).into()
}

pub(crate) fn hash_op(
    cx: &mut Lowerer<'_>,
    algorithm: HashAlgorithm,
    dst: SlotId,
    base: Operand,
    max: Option<Operand>,
    data: &Tree,
    payload: bool,
) -> Op {
    let mut pieces = Vec::new();
    data.for_each_wire_leaf(&mut |value, length| {
        // `bit<0>` has nothing to hash.
        if cx.width(value) > 0 {
            pieces.push(Piece { value: value.clone(), length: length.cloned() });
        }
    });
    let is_sum = matches!(algorithm, HashAlgorithm::Csum16 | HashAlgorithm::Xor16);
    let pieces = cx.omit_invalid_fields(is_sum, pieces);
    let lengths = pieces.iter().enumerate().filter_map(|(i, piece)| Some((i as u32, piece.length.clone()?)));
    let varbits = lengths.map(|(i, length)| (i, cx.as_slot(&length))).collect();
    let operands = pieces.into_iter().map(|piece| piece.value).collect();
    Op::Hash { algorithm, dst, base, max, data: operands, varbits, payload }
}

/// The names of the values that `Tree::for_each_reported_leaf` visits.
pub(crate) fn leaf_names(cx: &Lowerer<'_>, prefix: &str, ty: &Type, names: &mut Vec<String>) {
    let join = |name: &str| if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
    match cx.p.types.underlying(ty) {
        ty @ (Type::Header(id) | Type::Struct(id) | Type::HeaderUnion(id)) => {
            if matches!(ty, Type::Header(_)) {
                names.push(join("$valid"));
            }
            for field in &cx.p.types.fields_of(id).fields {
                leaf_names(cx, &join(&field.name), &field.ty, names);
            }
        }
        Type::Tuple(types) => {
            types.iter().enumerate().for_each(|(i, t)| leaf_names(cx, &join(&format!("f{i}")), t, names));
        }
        Type::Stack(element, n) => {
            (0..n).for_each(|i| leaf_names(cx, &join(&i.to_string()), &element, names));
        }
        ty => {
            names.push(if prefix.is_empty() { "value".to_string() } else { prefix.to_string() });
            if matches!(ty, Type::Varbit(_)) {
                names.push(join("$length"));
            }
        }
    }
}
