//! Externs common to the portable architectures, as IR operations.
//!
//! | extern | becomes |
//! | --- | --- |
//! | `Counter`, `Meter`, `Register` | `Count`, `Meter`, `RegisterRead`, `RegisterWrite` |
//! | `DirectCounter`, `DirectMeter` | operations on the matched entry, where an action of the table calls them |
//! | `Hash`, `Random` | operations of these names |
//! | `Checksum`, `InternetChecksum` | `Hash`; see `checksums.rs` |
//! | `Digest` | a message for each call of `pack` |
//! | `ActionProfile`, `ActionSelector` | the implementation of tables |
//!
//! The architecture provides the prefix of its table properties and enums (such as `psa`).

use super::checksums::Checksums;
use crate::arch::{ExternCall, TableProperty};
use crate::codes;
use crate::context::Lowerer;
use crate::path::Place;
use crate::simple_switch::ASSERT_DROP;
use crate::tree::Tree;
use crate::v1model::externs::{hash_op, index_operand, leaf_names, register_type};
use base::Bits;
use ir::{BinOp, ExternId, ExternKind, Fate, HashAlgorithm, Op, Operand, SlotId, SlotKind};
use sema::consteval::is_signed;
use sema::typed::{Instance, InstanceId, InstanceOf};
use sema::{Type, Value};

/// The externs of a program for a portable architecture.
pub(crate) struct Externs {
    /// Prefix of the architecture's table properties.
    pub prefix: &'static str,
    pub checksums: Checksums,
}

/// The hash algorithm of an enum member.
fn algorithm(name: &str) -> Option<HashAlgorithm> {
    Some(match name {
        "IDENTITY" => HashAlgorithm::Identity,
        // `TARGET_DEFAULT` is CRC-32 here.
        "CRC32" | "TARGET_DEFAULT" => HashAlgorithm::Crc32,
        "CRC32_CUSTOM" => HashAlgorithm::Crc32Custom,
        "CRC16" => HashAlgorithm::Crc16,
        "CRC16_CUSTOM" => HashAlgorithm::Crc16Custom,
        "ONES_COMPLEMENT16" => HashAlgorithm::Csum16,
        _ => return None,
    })
}

/// Names of the meter colours, in the order of the runtime's numbers.
const COLOURS: [&str; 3] = ["GREEN", "YELLOW", "RED"];

impl Externs {
    pub fn new(prefix: &'static str) -> Externs {
        Externs { prefix, checksums: Checksums::default() }
    }

    /// Declares an extern instance, if it has state.
    pub fn declare(&mut self, cx: &mut Lowerer<'_>, id: InstanceId) {
        let p = cx.p;
        let instance = p.instance(id);
        let InstanceOf::Extern(extern_id) = instance.of else { return };
        let number = |name| instance.arg(name).and_then(Value::to_u64).unwrap_or(0);
        let unit =
            cx.instance_enum(instance, "type").map_or(ir::CounterUnit::Both, |n| Lowerer::unit(&n.to_lowercase()));
        let kind = match p.extern_name(extern_id) {
            "Counter" => ExternKind::Counter { size: number("n_counters"), unit, direct: None },
            "DirectCounter" => ExternKind::Counter { size: 0, unit, direct: None },
            "Meter" => ExternKind::Meter { size: number("n_meters"), unit, direct: None },
            "DirectMeter" => ExternKind::Meter { size: 0, unit, direct: None },
            "Register" => match register(cx, instance) {
                Some((width, initial)) => ExternKind::Register { size: number("size"), width, initial },
                None => {
                    let ty = register_type(instance).map_or("void".to_string(), |ty| cx.type_text(ty));
                    let message = format!("register `{}` cannot hold values of type `{ty}`", instance.path);
                    return cx.refuse(codes::UNSUPPORTED_TYPE, instance.span, message);
                }
            },
            "ActionProfile" => ExternKind::ActionProfile { size: number("size"), actions: Vec::new() },
            "ActionSelector" => match selector_hash(cx, instance, number("outputWidth")) {
                Some((algorithm, hash_width)) => ExternKind::ActionSelector {
                    size: number("size"),
                    actions: Vec::new(),
                    algorithm,
                    hash_width,
                    empty: None,
                },
                None => return,
            },
            "Digest" => match register_type(instance) {
                Some(ty) => ExternKind::Digest { fields: digest_fields(cx, ty) },
                None => return,
            },
            // The others have no state of their own; unknown externs are reported where they are used.
            _ => return,
        };
        let made = cx.b.extern_instance(ir::Extern { name: instance.path.clone(), span: instance.span, kind });
        cx.externs.insert(id, made);
    }

    /// Called when a parser or control is applied: clears its checksum objects.
    pub fn enter(&mut self, cx: &mut Lowerer<'_>, block: InstanceId) {
        let p = cx.p;
        for &child in &p.instance(block).children {
            let InstanceOf::Extern(id) = p.instance(child).of else { continue };
            match p.extern_name(id) {
                "InternetChecksum" => self.checksums.clear(cx, child, true),
                "Checksum" => self.checksums.clear(cx, child, false),
                _ => {}
            }
        }
    }

    /// Emits a call of an extern function; `None` if it is not one of these.
    pub fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Option<Tree> {
        if !matches!(name, "assert" | "assume") {
            return None;
        }
        let cond = call.value(0).operand();
        if !Lowerer::is_true(&cond) {
            cx.b.emit(Op::Assert { cond: cond.clone(), text: name.to_string() });
            let reason = cx.b.drop_reason(ASSERT_DROP);
            let failed = cx.not(cond);
            cx.finish_if(failed, Fate::Drop(reason));
        }
        Some(Tree::Nothing)
    }

    /// Emits a call of an extern's method; `None` if there is no such extern or method.
    pub fn method(
        &mut self,
        cx: &mut Lowerer<'_>,
        id: InstanceId,
        method: &str,
        call: &ExternCall<'_>,
    ) -> Option<Tree> {
        let p = cx.p;
        let instance = p.instance(id);
        let InstanceOf::Extern(extern_id) = instance.of else { return None };
        let name = p.extern_name(extern_id);
        match (name, method) {
            ("InternetChecksum", _) => return self.checksums.internet(cx, id, method, call),
            ("Checksum", _) => {
                let algorithm = instance_algorithm(cx, instance, "hash")?;
                return self.checksums.any(cx, id, algorithm, method, call);
            }
            ("Hash", "get_hash") => return hash(cx, instance, call),
            ("Random", "read") => return random(cx, instance),
            _ => {}
        }
        let ext = cx.externs.get(&id).copied()?;
        // Optional arguments that DPDK's variant of the architecture adds, such as the packet's length.
        let told = |i: usize| (call.args.len() > i).then(|| call.value(i).operand());
        match (name, method, call.args.len()) {
            ("Counter", "count", 1 | 2) => {
                let index = index_operand(cx, call.value(0).operand());
                cx.b.emit(Op::Count { counter: ext, index, bytes: told(1) });
            }
            ("DirectCounter", "count", 0 | 1) => {
                let entry = self.entry(cx, ext, call)?;
                cx.b.emit(Op::CountDirect { counter: ext, hit: Lowerer::bit(true), entry, bytes: told(0) });
            }
            ("Meter", "execute", 1 | 2) => return Some(self.meter(cx, ext, call, told(1), None)),
            ("Meter", "dpdk_execute", 2) => return Some(self.meter(cx, ext, call, None, told(1))),
            ("Meter", "dpdk_execute", 3) => return Some(self.meter(cx, ext, call, told(1), told(2))),
            ("DirectMeter", "execute", 0 | 1) => return self.direct_meter(cx, ext, call, told(0), None),
            ("DirectMeter", "dpdk_execute", 1) => return self.direct_meter(cx, ext, call, None, told(0)),
            ("DirectMeter", "dpdk_execute", 2) => return self.direct_meter(cx, ext, call, told(0), told(1)),
            ("Register", "read", _) => {
                let index = index_operand(cx, call.value(0).operand());
                let ExternKind::Register { width, .. } = cx.b.program().externs[ext.index()].kind else { return None };
                let dst = cx.b.temp(width);
                cx.b.emit(Op::RegisterRead { register: ext, dst, index, peek: false });
                return register_type(instance).map(|ty| cx.unpack_cell(dst, ty));
            }
            ("Register", "write", _) => {
                let index = index_operand(cx, call.value(0).operand());
                let ty = register_type(instance)?;
                let src = cx.pack_cell(&call.value(1), ty);
                cx.b.emit(Op::RegisterWrite { register: ext, index, src });
            }
            ("Digest", "pack", _) => {
                let ty = register_type(instance)?;
                let value = of_type(cx, &call.value(0), ty);
                let mut data = Vec::new();
                value.for_each_reported_leaf(&mut |o| data.push(o.clone()));
                data.retain(|o| cx.width(o) > 0);
                cx.b.emit(Op::Digest { digest: ext, data });
            }
            _ => return None,
        }
        Some(Tree::Nothing)
    }

    fn meter(
        &self,
        cx: &mut Lowerer<'_>,
        meter: ExternId,
        call: &ExternCall<'_>,
        before: Option<Operand>,
        bytes: Option<Operand>,
    ) -> Tree {
        let index = index_operand(cx, call.value(0).operand());
        let ty = &call.call.result;
        let before = before.map(|before| earlier(cx, ty, before));
        let dst = cx.b.temp(2);
        cx.b.emit(Op::Meter { meter, dst, index, before, bytes });
        colour(cx, ty, dst)
    }

    fn direct_meter(
        &self,
        cx: &mut Lowerer<'_>,
        meter: ExternId,
        call: &ExternCall<'_>,
        before: Option<Operand>,
        bytes: Option<Operand>,
    ) -> Option<Tree> {
        let entry = self.entry(cx, meter, call)?;
        let ty = &call.call.result;
        let before = before.map(|before| earlier(cx, ty, before));
        let dst = cx.b.temp(2);
        cx.b.emit(Op::MeterDirect { meter, dst, hit: Lowerer::bit(true), entry, before, bytes });
        Some(colour(cx, ty, dst))
    }

    /// The slot with the matched entry of a direct counter's or meter's table. Reports an error outside of the table's
    /// actions.
    fn entry(&self, cx: &mut Lowerer<'_>, ext: ExternId, call: &ExternCall<'_>) -> Option<SlotId> {
        match cx.direct.get(&ext) {
            Some(entry) => Some(*entry),
            None => {
                let property = match cx.b.program().externs[ext.index()].kind {
                    ExternKind::Meter { .. } => "direct_meter",
                    _ => "direct_counter",
                };
                let message = format!(
                    "this may only be called in actions of the table that has the object as `{}_{property}`",
                    self.prefix
                );
                cx.refuse(codes::EXTERN_MISUSE, call.call.span, message);
                Some(cx.b.temp(64)).inspect(|entry| cx.b.set(*entry, 0))
            }
        }
    }

    /// The meaning of a table property.
    pub fn table_property(&self, name: &str) -> TableProperty {
        match name.strip_prefix(self.prefix).and_then(|n| n.strip_prefix('_')) {
            Some("implementation") => TableProperty::Implementation,
            Some("direct_counter") => TableProperty::Counters,
            Some("direct_meter") => TableProperty::Meters,
            Some("idle_timeout") => TableProperty::IdleTimeout,
            Some("empty_group_action") => TableProperty::EmptyGroupAction,
            _ => TableProperty::Unknown,
        }
    }
}

/// Width in bits of a register's cells, and their initial value.
fn register(cx: &Lowerer<'_>, instance: &Instance) -> Option<(u32, Bits)> {
    let ty = register_type(instance)?;
    let width = cx.cell_width(ty)?;
    let Some(value) = instance.arg("initial_value") else { return Some((width, Bits::zero(width))) };
    let mut initial = Bits::zero(0);
    let _ = cx.value_tree(value, ty).map(&mut |o| {
        if let Operand::Const(c) = o {
            initial = initial.concat(c);
        }
        o.clone()
    });
    (initial.width() == width).then_some((width, initial))
}

fn instance_algorithm(cx: &mut Lowerer<'_>, instance: &Instance, arg: &str) -> Option<HashAlgorithm> {
    let name = cx.instance_enum(instance, arg);
    let found = name.as_deref().and_then(algorithm);
    if found.is_none() {
        let message = format!("the algorithm of `{}` is not supported", instance.path);
        cx.refuse(codes::UNSUPPORTED_EXTERN, instance.span, message);
    }
    found
}

fn selector_hash(cx: &mut Lowerer<'_>, instance: &Instance, width: u64) -> Option<(HashAlgorithm, u32)> {
    let algorithm = instance_algorithm(cx, instance, "algo")?;
    let bits = u32::try_from(width).ok().filter(|w| (1..=64).contains(w));
    if bits.is_none() {
        let message = format!("action selector `{}` wants {width} bits of a hash", instance.path);
        cx.refuse(codes::UNSUPPORTED_EXTERN, instance.span, message);
    }
    Some((algorithm, bits?))
}

/// Names and widths in bits of the fields in a digest of a type.
fn digest_fields(cx: &Lowerer<'_>, ty: &Type) -> Vec<(String, u32)> {
    let mut names = Vec::new();
    leaf_names(cx, "", ty, &mut names);
    let mut widths = Vec::new();
    cx.zero(ty).for_each_reported_leaf(&mut |o| widths.push(cx.width(o)));
    names.into_iter().zip(widths).filter(|(_, width)| *width > 0).collect()
}

/// Converts a value to the shape of a type: a list expression for a header has no validity bit.
fn of_type(cx: &mut Lowerer<'_>, value: &Tree, ty: &Type) -> Tree {
    let count = |tree: &Tree| {
        let mut leaves = 0;
        tree.for_each_reported_leaf(&mut |_| leaves += 1);
        leaves
    };
    if count(value) == count(&cx.zero(ty)) {
        return value.clone();
    }
    let span = cx.b.span();
    let copy = cx.allocate("$value", ty, SlotKind::Temp, span);
    cx.assign(&Place::of(copy.clone()), value);
    copy
}

/// `get_hash(data)` and `get_hash(base, data, max)`
fn hash(cx: &mut Lowerer<'_>, instance: &Instance, call: &ExternCall<'_>) -> Option<Tree> {
    let algorithm = instance_algorithm(cx, instance, "algo")?;
    let width = cx.scalar_width(&call.call.result).filter(|w| *w > 0)?;
    let (base, data, max) = match call.args.len() {
        1 => (Operand::new_const(width, 0), call.value(0), None),
        _ => (cx.b.resize_u(width, call.value(0).operand()), call.value(1), Some(call.value(2).operand())),
    };
    let dst = cx.b.temp(width);
    let mut op = hash_op(cx, algorithm, dst, base, max, &data, false);
    if let Op::Hash { data, varbits, .. } = &mut op {
        // Pads to whole bytes with zeros in front, as bmv2's psa_switch does.
        let is_varbit = |i: &usize| varbits.iter().any(|(at, _)| *at as usize == *i);
        let bits: u32 = (0..data.len()).filter(|i| !is_varbit(i)).map(|i| cx.width(&data[i]) % 8).sum();
        if !bits.is_multiple_of(8) {
            data.insert(0, Operand::new_const(8 - bits % 8, 0));
            varbits.iter_mut().for_each(|(at, _)| *at += 1);
        }
    }
    cx.b.emit(op);
    Some(dst.into())
}

fn random(cx: &mut Lowerer<'_>, instance: &Instance) -> Option<Tree> {
    let ty = register_type(instance)?;
    let [low, high] = ["min", "max"].map(|name| Some(cx.value_tree(instance.arg(name)?, ty).operand()));
    let (low, high) = low.zip(high)?;
    if cx.width(&low) == 0 {
        return Some(low.into());
    }
    let signed = is_signed(&cx.p.types, ty);
    Some(cx.random_between(signed, low, high).into())
}

/// Converts a colour of the runtime to the architecture's enum.
fn colour(cx: &mut Lowerer<'_>, ty: &Type, colour: SlotId) -> Tree {
    let [green, yellow, red] = COLOURS.map(|name| Operand::new_const(crate::storage::ENUM_WIDTH, member(cx, ty, name)));
    let is_green = cx.b.bin(BinOp::Eq, colour, Operand::new_const(2, 0));
    let is_yellow = cx.b.bin(BinOp::Eq, colour, Operand::new_const(2, 1));
    let other = cx.b.select(is_yellow, yellow, red);
    cx.b.select(is_green, green, other).into()
}

/// Converts a colour of the architecture's enum to the runtime's number.
fn earlier(cx: &mut Lowerer<'_>, ty: &Type, colour: Operand) -> Operand {
    let [_, yellow, red] = COLOURS.map(|name| Operand::new_const(crate::storage::ENUM_WIDTH, member(cx, ty, name)));
    let is_yellow = cx.b.bin(BinOp::Eq, colour.clone(), yellow);
    let is_red = cx.b.bin(BinOp::Eq, colour, red);
    cx.b.concat(is_red, is_yellow).into()
}

/// The number of an enum member; 0 if there is no such member.
pub(crate) fn member(cx: &Lowerer<'_>, ty: &Type, name: &str) -> u128 {
    match ty {
        Type::Enum(id) => {
            let members = &cx.p.types.enums[id.index()].members;
            members.iter().position(|m| &*m.name == name).unwrap_or(0) as u128
        }
        _ => 0,
    }
}
