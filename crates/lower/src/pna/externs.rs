//! PNA's own extern functions; extern objects are in `portable/externs.rs`.
//!
//! | extern | becomes |
//! | --- | --- |
//! | `drop_packet`, `send_to_port` | slots that the glue reads; the last call wins |
//! | `mirror_packet` | a flag and a session for each mirror slot |
//! | `recirculate` | a flag |
//! | `is_host_port`, `is_net_port` | the function of the include file |
//! | `SelectByDirection` | a selection |
//! | `allocate_flow_id` | a register that is read and incremented |
//! | `Hash` with `TOEPLITZ` | operations (`toeplitz.rs`) |
//! | `add_entry`, `restart_expire_timer` and related functions | see `add_on_miss.rs` |

use super::{Fields, is_host_port};
use crate::arch::{Architecture, ExternArg, ExternCall, TableProperty};
use crate::codes;
use crate::context::Lowerer;
use crate::portable::externs::Externs;
use crate::tree::Tree;
use base::Bits;
use base::diag::Diagnostic;
use ir::{BinOp, ExternKind, Op, Operand, SlotId};
use sema::typed::{InstanceId, InstanceOf, Table};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Number of mirror slots if the slot is not known at compile time; PNA requires as many.
const MIRROR_SLOTS: u64 = 4;
/// Limit on mirror slots of a program: four times what PNA requires. Each adds a test and a replication to every path.
const MIRROR_SLOTS_MAX: usize = 16;
/// Name of the register for `allocate_flow_id`; no instance of a program can have it.
const FLOW_IDS: &str = "$flow_ids";
/// Width of a `FlowId_t`, in bits.
const FLOW_ID_WIDTH: u32 = 32;

/// The block that is being lowered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Parser,
    Pre,
    Main,
    Deparser,
}

/// State shared by the architecture and the lowering of the blocks.
pub(super) struct State {
    pub role: Role,
    pub externs: Externs,
    /// By mirror slot: the flag that requests a copy, and the session.
    pub mirrors: BTreeMap<u64, (SlotId, SlotId)>,
    /// The flag that requests recirculation.
    pub recirculate: Option<SlotId>,
    length: SlotId,
    drop: SlotId,
    to: SlotId,
}

pub(super) type Shared = Rc<RefCell<State>>;

pub(super) fn shared(fields: &Fields) -> Shared {
    Rc::new(RefCell::new(State {
        role: Role::Parser,
        externs: Externs::new("pna"),
        mirrors: BTreeMap::new(),
        recirculate: None,
        length: fields.packet_length,
        drop: fields.drop,
        to: fields.to,
    }))
}

/// The architecture PNA.
pub(super) struct Pna {
    state: Shared,
}

impl Pna {
    pub fn new(state: Shared) -> Pna {
        Pna { state }
    }

    /// Whether a call is in the main control, as these functions require; `recirculate` is allowed in the pre control
    /// as well.
    fn is_in_main(&self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> bool {
        match self.state.borrow().role {
            Role::Main => return true,
            Role::Pre if name == "recirculate" => return true,
            Role::Parser | Role::Pre | Role::Deparser => {}
        }
        let message = format!("PNA has `{name}` in the main control only");
        let help = "set a field of the metadata here, and call the function in the main control";
        cx.report(Diagnostic::error(codes::EXTERN_MISUSE, call.call.span, message).help(help));
        false
    }

    fn send_to_port(&self, cx: &mut Lowerer<'_>, port: Operand) {
        let (drop, to) = (self.state.borrow().drop, self.state.borrow().to);
        cx.b.set(drop, 0);
        cx.b.mov(to, port);
    }

    fn mirror_packet(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>) {
        let session = cx.b.resize_u(16, call.value(1).operand());
        match call.value(0).operand() {
            Operand::Const(slot) => {
                let Some((flag, number)) = self.mirror(cx, slot.to_u64().unwrap_or(0), call) else { return };
                cx.b.set(flag, 1);
                cx.b.mov(number, session);
            }
            slot => {
                for i in 0..MIRROR_SLOTS {
                    let Some((flag, number)) = self.mirror(cx, i, call) else { return };
                    let width = cx.width(&slot);
                    let here = cx.b.bin(BinOp::Eq, slot.clone(), Bits::new(width, i.into()));
                    cx.b.emit(Op::Bin { op: BinOp::Or, dst: flag, a: flag.into(), b: here.into() });
                    let other = number.into();
                    cx.b.emit(Op::Select { dst: number, cond: here.into(), then: session.clone(), other });
                }
            }
        }
    }

    /// The flag and the session of a mirror slot.
    fn mirror(&self, cx: &mut Lowerer<'_>, slot: u64, call: &ExternCall<'_>) -> Option<(SlotId, SlotId)> {
        let mirrors = &mut self.state.borrow_mut().mirrors;
        if let Some(known) = mirrors.get(&slot) {
            return Some(*known);
        }
        if mirrors.len() == MIRROR_SLOTS_MAX {
            let message = format!("the program uses more than {MIRROR_SLOTS_MAX} mirror slots of PNA");
            cx.refuse(codes::EXTERN_MISUSE, call.call.span, message);
            return None;
        }
        let made = (cx.b.metadata(format!("$mirror{slot}"), 1), cx.b.metadata(format!("$mirror{slot}.session"), 16));
        mirrors.insert(slot, made);
        Some(made)
    }

    fn allocate_flow_id(&self, cx: &mut Lowerer<'_>, call: &ExternCall<'_>) -> Tree {
        let register = cx.b.program().extern_named(FLOW_IDS).unwrap_or_else(|| {
            let kind = ExternKind::Register { size: 1, width: FLOW_ID_WIDTH, initial: Bits::zero(FLOW_ID_WIDTH) };
            cx.b.extern_instance(ir::Extern { name: FLOW_IDS.to_string(), span: call.call.span, kind })
        });
        let (dst, index) = (cx.b.temp(FLOW_ID_WIDTH), Operand::new_const(32, 0));
        cx.b.emit(Op::RegisterRead { register, dst, index: index.clone(), peek: false });
        let next = cx.b.bin(BinOp::Add, dst, Bits::new(FLOW_ID_WIDTH, 1));
        cx.b.emit(Op::RegisterWrite { register, index, src: next.into() });
        dst.into()
    }

    /// Selects the second or third argument by the first: a direction (version 0.5), or whether the port is a network
    /// port.
    fn select_by_direction(cx: &mut Lowerer<'_>, call: &ExternCall<'_>) -> Tree {
        let given = call.value(0).operand();
        let from_net: Operand = match cx.width(&given) {
            1 => given,
            width => cx.b.bin(BinOp::Eq, given, Bits::zero(width)).into(),
        };
        cx.select(&from_net, &call.value(1), &call.value(2))
    }

    fn toeplitz(cx: &mut Lowerer<'_>, call: &ExternCall<'_>) -> Option<Tree> {
        let width = cx.scalar_width(&call.call.result).filter(|w| *w > 0)?;
        let (data, range) = match call.args.len() {
            1 => (call.value(0), None),
            _ => (call.value(1), Some((call.value(0).operand(), call.value(2).operand()))),
        };
        let (mut values, mut has_varbit) = (Vec::new(), false);
        data.for_each_wire_leaf(&mut |value, length| {
            has_varbit |= length.is_some();
            values.push(value.clone());
        });
        if has_varbit {
            let message = "the Toeplitz hash takes data of a fixed number of bits, and this has a varbit field";
            cx.refuse(codes::UNSUPPORTED_TYPE, call.call.span, message);
            return None;
        }
        let hash = cx.toeplitz(&values);
        let Some((base, max)) = range else { return Some(cx.b.resize_u(width, hash).into()) };
        let bits = cx.width(&max).max(32);
        let (hash, max) = (cx.b.resize_u(bits, hash), cx.b.resize_u(bits, max));
        let none = cx.b.bin(BinOp::Eq, max.clone(), Bits::zero(bits));
        let rest = cx.b.bin(BinOp::Mod, hash, max);
        let rest = cx.b.select(none, Bits::zero(bits), rest);
        let (base, rest) = (cx.b.resize_u(width, base), cx.b.resize_u(width, rest));
        Some(cx.b.bin(BinOp::Add, base, rest).into())
    }
}

impl Architecture for Pna {
    fn declare(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId) {
        self.state.borrow_mut().externs.declare(cx, instance);
    }

    fn enter(&mut self, cx: &mut Lowerer<'_>, block: InstanceId) {
        self.state.borrow_mut().externs.enter(cx, block);
    }

    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree {
        match name {
            "drop_packet" | "send_to_port" | "mirror_packet" | "recirculate" => {
                if self.is_in_main(cx, name, call) {
                    match name {
                        "drop_packet" => {
                            let drop = self.state.borrow().drop;
                            cx.b.set(drop, 1);
                        }
                        "send_to_port" => self.send_to_port(cx, call.value(0).operand()),
                        "mirror_packet" => self.mirror_packet(cx, call),
                        _ => {
                            let mut state = self.state.borrow_mut();
                            let flag = *state.recirculate.get_or_insert_with(|| cx.b.metadata("$recirculate", 1));
                            cx.b.set(flag, 1);
                        }
                    }
                }
                Tree::Nothing
            }
            "is_host_port" => is_host_port(cx, call.value(0).operand()).into(),
            "is_net_port" => {
                let is_host = is_host_port(cx, call.value(0).operand());
                cx.not(is_host).into()
            }
            "SelectByDirection" => Pna::select_by_direction(cx, call),
            "allocate_flow_id" => self.allocate_flow_id(cx, call),
            _ => {
                let done = self.state.borrow_mut().externs.function(cx, name, call);
                let done = done.or_else(|| cx.add_on_miss_function(name, call));
                done.unwrap_or_else(|| cx.foreign_function(name, call))
            }
        }
    }

    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree {
        let p = cx.p;
        let info = p.instance(instance);
        let name = match info.of {
            InstanceOf::Extern(id) => p.extern_name(id),
            _ => "",
        };
        if (name, method) == ("Hash", "get_hash") && cx.instance_enum(info, "algo").as_deref() == Some("TOEPLITZ") {
            return Pna::toeplitz(cx, call).unwrap_or_else(|| cx.zero(&call.call.result));
        }
        // Omitted optional arguments are dropped.
        let given = (0..call.args.len()).filter(|i| !matches!(call.args[*i], ExternArg::Absent));
        let args: Vec<ExternArg> = given.map(|i| ExternArg::In(call.value(i))).collect();
        let only_in = call.args.iter().all(|a| !matches!(a, ExternArg::Out(_)));
        let result = match only_in {
            true => {
                let given = ExternCall { call: call.call, args };
                self.state.borrow_mut().externs.method(cx, instance, method, &given)
            }
            false => self.state.borrow_mut().externs.method(cx, instance, method, call),
        };
        result.unwrap_or_else(|| cx.foreign_method(name, &info.path, method, call))
    }

    fn direct_meter(&mut self, _: &mut Lowerer<'_>, _: &Table, _: ir::ExternId, _: SlotId, _: SlotId) {
        // Actions run direct meters.
    }

    fn runs_direct_at_lookup(&self) -> bool {
        false
    }

    fn table_property(&self, name: &str) -> TableProperty {
        match name {
            // See `add_on_miss.rs`.
            "add_on_miss" | "idle_timeout_with_auto_delete" => TableProperty::Ignored,
            // Each added entry comes with an expire time.
            "default_idle_timeout_for_data_plane_added_entries" => TableProperty::Ignored,
            _ => self.state.borrow().externs.table_property(name),
        }
    }

    fn packet_length(&self) -> Option<SlotId> {
        Some(self.state.borrow().length)
    }
}
