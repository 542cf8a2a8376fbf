//! The externs of ebpf_model, ubpf_model and xdp_model as IR operations.
//!
//! | extern | becomes |
//! | --- | --- |
//! | `CounterArray` | a counter: each call counts one packet, and the number that it adds as bytes |
//! | `array_table`, `hash_table` | the table's size |
//! | `Register` | a register; an index that is not a number of up to 64 bits is hashed; indices wrap modulo the size |
//! | `csum_replace2`, `csum_replace4`, `ebpf_ipv4_checksum` | `Hash` with the Internet checksum (the first two: RFC 1624) |
//! | `hash` | operations (`lookup3.rs`) |
//! | `mark_to_drop`, `mark_to_pass`, `truncate` | slots that the glue and the deparser read |
//! | `ubpf_time_get_ns`, `BPF_KTIME_GET_NS` | the time when the packet was received |
//!
//! Functions that the program itself declares are either those of `modules.rs` or unresolved.

use super::{Model, Role, Shared};
use crate::arch::{Architecture, ExternCall, TableProperty};
use crate::codes;
use crate::context::Lowerer;
use crate::tree::Tree;
use crate::v1model::externs::register_type;
use base::Bits;
use base::diag::Diagnostic;
use ir::{BinOp, CounterUnit, ExternKind, HashAlgorithm, Intrinsic, Op, Operand, SlotId};
use sema::Type;
use sema::Value;
use sema::typed::{InstanceId, InstanceOf, Table};

/// The architecture of all three models.
pub(super) struct Bpf {
    state: Shared,
}

impl Bpf {
    pub fn new(state: Shared) -> Bpf {
        Bpf { state }
    }
}

impl Architecture for Bpf {
    fn declare(&mut self, cx: &mut Lowerer<'_>, id: InstanceId) {
        let p = cx.p;
        let instance = p.instance(id);
        let InstanceOf::Extern(extern_id) = instance.of else { return };
        let number = |name: &str| instance.arg(name).and_then(Value::to_u64).unwrap_or(0);
        let kind = match p.extern_name(extern_id) {
            "CounterArray" => {
                ExternKind::Counter { size: number("max_index") + 1, unit: CounterUnit::Both, direct: None }
            }
            "Register" => {
                let ty = register_type(instance);
                let Some(width) = ty.and_then(|ty| cx.cell_width(ty)) else {
                    let ty = ty.map_or("void".to_string(), |ty| cx.type_text(ty));
                    let message = format!("register `{}` cannot hold values of type `{ty}`", instance.path);
                    return cx.refuse(codes::UNSUPPORTED_TYPE, instance.span, message);
                };
                ExternKind::Register { size: number("size"), width, initial: Bits::zero(width) }
            }
            // Maps have no state of their own; other externs are reported where they are used.
            _ => return,
        };
        let made = cx.b.extern_instance(ir::Extern { name: instance.path.clone(), span: instance.span, kind });
        cx.externs.insert(id, made);
    }

    fn direct_meter(&mut self, _: &mut Lowerer<'_>, _: &Table, _: ir::ExternId, _: SlotId, _: SlotId) {
        // These models have no meters.
    }

    fn table_property(&self, name: &str) -> TableProperty {
        match name {
            "implementation" if self.state.borrow().model != Model::Ubpf => TableProperty::Capacity,
            _ => TableProperty::Unknown,
        }
    }

    fn packet_length(&self) -> Option<SlotId> {
        Some(self.state.borrow().packet_length)
    }

    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree {
        let is_ubpf = self.state.borrow().model == Model::Ubpf;
        match name {
            "csum_replace2" | "csum_replace4" => {
                let [sum, old, new] = [0, 1, 2].map(|i| call.value(i).operand());
                checksum_after(cx, sum, old, new)
            }
            "ebpf_ipv4_checksum" if !is_ubpf => {
                let data = (0..call.args.len()).map(|i| call.value(i).operand()).collect();
                internet_checksum(cx, data).into()
            }
            "BPF_KTIME_GET_NS" if !is_ubpf => self.time_ns(cx, 32),
            "ubpf_time_get_ns" if is_ubpf => self.time_ns(cx, 48),
            "hash" if is_ubpf => {
                self.hash(cx, call);
                Tree::Nothing
            }
            "mark_to_drop" | "mark_to_pass" if is_ubpf => {
                if self.is_in_pipeline(cx, name, call) {
                    let slot = *self.state.borrow_mut().drop.get_or_insert_with(|| cx.b.metadata("$drop", 1));
                    cx.b.set(slot, u128::from(name == "mark_to_drop"));
                }
                Tree::Nothing
            }
            "truncate" if is_ubpf => {
                if self.is_in_pipeline(cx, name, call) {
                    let slot = *self.state.borrow_mut().truncate.get_or_insert_with(|| cx.b.metadata("$truncate", 32));
                    cx.b.mov(slot, call.value(0).operand());
                }
                Tree::Nothing
            }
            other => match cx.module_function(other, call) {
                Some(result) => result,
                None => cx.foreign_function(other, call),
            },
        }
    }

    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree {
        let p = cx.p;
        let InstanceOf::Extern(extern_id) = p.instance(instance).of else { return Tree::Nothing };
        let name = p.extern_name(extern_id);
        let Some(object) = cx.externs.get(&instance).copied() else {
            return cx.foreign_method(name, &p.instance(instance).path, method, call);
        };
        if let ("CounterArray", "increment" | "add") = (name, method) {
            let more = if method == "add" { call.value(1).operand() } else { Operand::new_const(32, 1) };
            let index = call.value(0).operand();
            cx.b.emit(Op::Count { counter: object, index, bytes: Some(more) });
            return Tree::Nothing;
        }
        let ExternKind::Register { size, width, .. } = cx.b.program().externs[object.index()].kind else {
            return Tree::Nothing;
        };
        let (register, ty) = (object, register_type(p.instance(instance)));
        match (name, method) {
            ("Register", "read") => {
                let index = cell_index(cx, call, size);
                let cell = cx.b.temp(width);
                cx.b.emit(Op::RegisterRead { register, dst: cell, index, peek: false });
                return ty.map_or(Tree::Nothing, |ty| cx.unpack_cell(cell, ty));
            }
            ("Register", "write") => {
                let index = cell_index(cx, call, size);
                let src = ty.map_or(Lowerer::bit(false), |ty| cx.pack_cell(&call.value(1), ty));
                cx.b.emit(Op::RegisterWrite { register, index, src });
            }
            _ => return cx.foreign_method(name, &p.instance(instance).path, method, call),
        }
        Tree::Nothing
    }
}

impl Bpf {
    /// Whether a call is in the pipeline control, as the model requires; reports an error if not.
    fn is_in_pipeline(&self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> bool {
        let state = self.state.borrow();
        if state.role == Role::Pipeline {
            return true;
        }
        let message = format!("{} has `{name}` in the pipeline control only", state.model.name());
        let help = "decide in the pipeline: what the parser finds out is known there, and the deparser comes after it";
        cx.report(Diagnostic::error(codes::EXTERN_MISUSE, call.call.span, message).help(help));
        false
    }

    /// The time when the packet was received, in nanoseconds since the switch started.
    fn time_ns(&self, cx: &mut Lowerer<'_>, width: u32) -> Tree {
        let now = *self.state.borrow_mut().now.get_or_insert_with(|| {
            let now = cx.b.metadata("$now", 64);
            cx.b.intrinsic(Intrinsic::IngressTimestamp, now);
            now
        });
        let ns = cx.b.bin(BinOp::Mul, now, Operand::new_const(64, 1000));
        cx.b.resize_u(width, ns).into()
    }

    /// `hash(result, algorithm, data)`; there is only one algorithm.
    fn hash(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>) {
        let (mut parts, mut has_varbit) = (Vec::new(), false);
        call.value(2).for_each_wire_leaf(&mut |value, length| {
            has_varbit |= length.is_some();
            if cx.width(value) > 0 {
                parts.push(value.clone());
            }
        });
        if has_varbit {
            let message = "`hash` of ubpf_model takes data of a fixed number of bits, and this has a varbit field";
            return cx.refuse(codes::UNSUPPORTED_TYPE, call.call.span, message);
        }
        let data = joined(cx, parts);
        let result = cx.lookup3(data);
        if let Some(place) = call.place(0) {
            cx.assign(place, &result.into());
        }
    }
}

/// The index of a register's cell: the first argument modulo the size. Hashes can therefore be indices.
fn cell_index(cx: &mut Lowerer<'_>, call: &ExternCall<'_>, size: u64) -> Operand {
    let key = call.value(0);
    let ty = call.call.args.first().map_or(Type::Void, |arg| arg.ty.clone());
    let index = if key.is_leaf() { key.operand() } else { cx.pack_cell(&key, &ty) };
    let width = cx.width(&index);
    if width > 64 {
        let dst = cx.b.temp(64);
        let (base, max) = (Operand::new_const(64, 0), Some(Operand::new_const(64, u128::from(size))));
        let (algorithm, data) = (HashAlgorithm::Crc32, vec![index]);
        cx.b.emit(Op::Hash { algorithm, dst, base, max, data, varbits: Vec::new(), payload: false });
        return dst.into();
    }
    let fits = width < 64 && size >= 1 << width;
    match &index {
        _ if fits || size == 0 => index,
        Operand::Const(c) => Operand::Const(c.mod_u(&Bits::new(width, u128::from(size))).unwrap_or(c.clone())),
        Operand::Slot(_) => cx.b.bin(BinOp::Mod, index, Bits::new(width, u128::from(size))).into(),
    }
}

/// The Internet checksum (RFC 1071) of the concatenated values.
pub(super) fn internet_checksum(cx: &mut Lowerer<'_>, data: Vec<Operand>) -> SlotId {
    let dst = cx.b.temp(16);
    let base = Operand::new_const(16, 0);
    let algorithm = HashAlgorithm::Csum16;
    cx.b.emit(Op::Hash { algorithm, dst, base, max: None, data, varbits: Vec::new(), payload: false });
    dst
}

/// Incremental update of a checksum after a value of 16 or 32 bits has changed: `~(~sum + ~old + new)` (RFC 1624,
/// equation 3). For 32 bits the reference adds another word of ones, which matters only if all other words are zero.
pub(super) fn checksum_after(cx: &mut Lowerer<'_>, sum: Operand, old: Operand, new: Operand) -> Tree {
    let ones = (cx.width(&old) == 32).then(|| Operand::Const(Bits::ones(16)));
    let mut not = |o: Operand| match o {
        Operand::Const(c) => Operand::Const(c.not()),
        slot => cx.b.un(ir::UnOp::Not, slot).into(),
    };
    let data = [not(sum), not(old), new].into_iter().chain(ones).collect();
    internet_checksum(cx, data).into()
}

/// The values concatenated to one number; a single zero byte if there are none.
fn joined(cx: &mut Lowerer<'_>, parts: Vec<Operand>) -> Operand {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Operand::Const(Bits::zero(8)) };
    parts.fold(first, |all, part| cx.b.concat(all, part).into())
}
