//! Lowers the bodies of actions: primitives in order, with forward jumps.

use super::{Cx, Role};
use crate::model::{Action, Call, Expr, Primitive, Target};
use base::Bits;
use ir::{BinOp, BlockId, Fate, Intrinsic, Mark, Op, Operand, SlotId};
use lower::simple_switch::ASSERT_DROP;

/// Where a packet continues after `exit`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub to: BlockId,
    /// Whether nodes follow the action, which `exit` skips.
    pub interrupts: bool,
}

impl Cx<'_> {
    /// Lowers an action's body.
    pub(super) fn body(&mut self, action: &Action, exit: Exit) {
        let calls = &action.calls;
        let jumps = calls.iter().any(|c| matches!(c.primitive, Primitive::Jump(_) | Primitive::JumpIfZero(..)));
        let exits = calls.iter().any(|c| matches!(c.primitive, Primitive::Exit));
        // Whether the action exits is known statically, or held in a variable if only some paths do.
        let flag = (exits && jumps).then(|| self.b.local("exit", 1));
        if let Some(flag) = flag {
            self.b.set(flag, 0);
        }
        let mut blocks: Vec<Option<BlockId>> = vec![None; calls.len() + 1];
        for call in calls {
            if let Primitive::Jump(to) | Primitive::JumpIfZero(_, to) = call.primitive
                && blocks[to].is_none()
            {
                blocks[to] = Some(self.b.block(""));
            }
        }
        for (i, call) in calls.iter().enumerate() {
            if let Some(block) = blocks[i] {
                self.join_at(block);
            }
            if self.is_over_limit() {
                continue;
            }
            self.set_location(call.location);
            self.b.emit(Op::Mark(Mark::Statement));
            match &call.primitive {
                Primitive::Jump(to) => {
                    if let Some(block) = blocks[*to] {
                        self.b.jump(block);
                        let next = self.b.block("");
                        self.b.switch_to(next);
                    }
                }
                Primitive::JumpIfZero(cond, to) => {
                    if let Some(block) = blocks[*to] {
                        let next = self.b.block("");
                        self.branch_on(cond, next, block);
                        self.b.switch_to(next);
                    }
                }
                Primitive::Exit => {
                    if let Some(flag) = flag {
                        self.b.set(flag, 1);
                    }
                }
                _ => self.call(call),
            }
        }
        if let Some(Some(block)) = blocks.last() {
            self.join_at(*block);
        }
        if !exits {
            return;
        }
        let go_on = flag.map(|flag| {
            let (leave, go_on) = (self.b.block(""), self.b.block(""));
            self.b.branch(flag, leave, go_on);
            self.b.switch_to(leave);
            go_on
        });
        if exit.interrupts {
            self.b.emit(Op::Mark(Mark::Exit));
        }
        self.b.jump(exit.to);
        if let Some(go_on) = go_on {
            self.b.switch_to(go_on);
        }
    }

    /// Lowers one primitive other than a jump.
    pub(super) fn call(&mut self, call: &Call) {
        if self.is_over_limit() {
            return;
        }
        self.set_location(call.location);
        match &call.primitive {
            Primitive::Assign(to, value) => self.assign(to, value),
            Primitive::AssignVarbit(to, from) => self.assign_varbit(*to, *from),
            Primitive::AssignHeader(to, from) => {
                let (to, from) = (self.header_ref(to), self.header_ref(from));
                self.for_header(&to, |cx, to| cx.for_header(&from, |cx, from| cx.copy(to, from)));
            }
            Primitive::AssignUnion(to, from) => {
                let m = self.m;
                let members = match to {
                    Expr::Union(union) => m.unions[*union].members.len(),
                    Expr::UnionElement(stack, _) => m.unions[m.union_stacks[*stack].elements[0]].members.len(),
                    _ => 0,
                };
                for member in 0..members {
                    let of = |e: &Expr| Expr::MemberOf(Box::new(e.clone()), member);
                    let (to, from) = (self.header_ref(&of(to)), self.header_ref(&of(from)));
                    self.for_header(&to, |cx, to| cx.for_header(&from, |cx, from| cx.copy(to, from)));
                }
            }
            Primitive::AssignStack(to, from) => {
                let m = self.m;
                self.b.mov(self.next_of_stack[*to], self.next_of_stack[*from]);
                for (a, b) in m.stacks[*to].elements.iter().zip(&m.stacks[*from].elements) {
                    self.copy(*a, *b);
                }
            }
            Primitive::AssignUnionStack(to, from) => {
                let m = self.m;
                self.b.mov(self.next_of_union_stack[*to], self.next_of_union_stack[*from]);
                for (a, b) in m.union_stacks[*to].elements.iter().zip(&m.union_stacks[*from].elements) {
                    self.copy_union(*a, *b);
                }
            }
            Primitive::Push(stack, by) => self.shift(*stack, *by, true),
            Primitive::Pop(stack, by) => self.shift(*stack, *by, false),
            Primitive::AddHeader(header, reset) => {
                let header = self.header_ref(header);
                self.for_header(&header, |cx, header| cx.add(header, *reset));
            }
            Primitive::RemoveHeader(header) => {
                let header = self.header_ref(header);
                self.for_header(&header, |cx, header| cx.remove(header));
            }
            Primitive::MarkToDrop(header) => {
                for (name, value) in [("egress_spec", self.switch.drop_port), ("mcast_grp", 0)] {
                    let slot = match header {
                        None => self.standard(name),
                        Some(header) => {
                            let fields = &self.m.header_type(*header).fields;
                            let at = fields.iter().position(|f| f.name == name);
                            at.map(|at| self.headers[*header].fields[at].slot)
                        }
                    };
                    if let Some(slot) = slot {
                        self.b.set(slot, u128::from(value));
                    }
                }
            }
            Primitive::Count(counter, index) => {
                let index = self.index(index);
                self.b.emit(Op::Count { counter: self.counters[*counter], index, bytes: None });
            }
            Primitive::ExecuteMeter(meter, index, to) => {
                let size = self.m.meters[*meter].size;
                let index = self.index(index);
                let dst = self.b.temp(2);
                let meter = self.meters[*meter];
                self.b.emit(Op::Meter { meter, dst, index: index.clone(), before: None, bytes: None });
                self.assign_in_range(to, dst, &index, size);
            }
            Primitive::RegisterRead(to, register, index) => {
                let (size, width) = (self.m.registers[*register].size, self.m.registers[*register].width);
                let index = self.index(index);
                let dst = self.b.temp(width);
                self.b.emit(Op::RegisterRead {
                    register: self.registers[*register],
                    dst,
                    index: index.clone(),
                    peek: false,
                });
                self.assign_in_range(to, dst, &index, size);
            }
            Primitive::RegisterWrite(register, index, value) => {
                let width = self.m.registers[*register].width;
                let index = self.index(index);
                let src = self.modulo(value, width);
                self.b.emit(Op::RegisterWrite { register: self.registers[*register], index, src });
            }
            Primitive::Hash(to, base, calculation, size) => {
                let (base, size) = (self.modulo(base, 64), self.modulo(size, 64));
                let value = self.calculate(*calculation, 64, base, Some(size));
                self.assign_value(to, value);
            }
            Primitive::Random(to, low, high) => {
                let (low, high) = (self.modulo(low, 64), self.modulo(high, 64));
                let dst = self.b.temp(64);
                self.b.emit(Op::Random { dst, low: low.clone(), high: high.clone() });
                // An empty range leaves the field unchanged.
                let ordered: Operand = match (&low, &high) {
                    (Operand::Const(a), Operand::Const(b)) => Bits::from_bool(a.ule(b)).into(),
                    _ => self.b.bin(BinOp::Ule, low, high).into(),
                };
                self.when(ordered, |cx| cx.assign_value(to, dst.into()));
            }
            Primitive::Digest(list) => {
                let slot = match self.learn {
                    Some(slot) => slot,
                    None => self.b.metadata("$learn", 16),
                };
                self.learn = Some(slot);
                let list = self.modulo(list, 16);
                self.b.mov(slot, list);
            }
            Primitive::Clone(session, list) => {
                match self.role {
                    Role::Ingress | Role::Parser => self.switch.clones_at_ingress = true,
                    Role::Egress => self.switch.clones_at_egress = true,
                    // After egress the request has no effect.
                    Role::Checksums | Role::Deparser => return,
                }
                // bmv2 uses 15 bits of the session.
                let session = self.modulo(session, 15);
                let list = self.modulo(list, 16);
                let slot = self.switch.request(&mut self.b, Intrinsic::CloneSession, 32);
                let session = self.b.resize_u(32, session);
                self.b.mov(slot, session);
                let (flag, lists) = (Intrinsic::CloneFlag, Intrinsic::CloneFieldList);
                self.switch.ask(&mut self.b, flag, lists, list);
            }
            Primitive::Resubmit(list) => {
                if matches!(self.role, Role::Ingress | Role::Parser) {
                    self.request_again(Intrinsic::ResubmitFlag, Intrinsic::ResubmitFieldList, list);
                }
            }
            Primitive::Recirculate(list) => {
                if self.role != Role::Deparser {
                    self.request_again(Intrinsic::RecirculateFlag, Intrinsic::RecirculateFieldList, list);
                }
            }
            Primitive::Truncate(bytes) => {
                let slot = match self.truncate {
                    Some(slot) => slot,
                    None => self.b.metadata("$truncate", 32),
                };
                self.truncate = Some(slot);
                // Stored as complement: the initial value 0 truncates nothing, and the smallest length is the largest
                // complement.
                let bytes = self.modulo(bytes, 32);
                let cut = self.not(bytes);
                let more = self.b.bin(BinOp::Ult, slot, cut.clone());
                self.b.emit(Op::Select { dst: slot, cond: more.into(), then: cut, other: slot.into() });
            }
            Primitive::Log(format, values) => {
                let args = values.iter().map(|v| self.exact(v).operand).collect();
                self.b.emit(Op::Log { format: format.clone(), args });
            }
            Primitive::Assert(condition, text) => {
                let cond = self.boolean(condition);
                if matches!(&cond, Operand::Const(c) if c.is_true()) {
                    return;
                }
                self.b.emit(Op::Assert { cond: cond.clone(), text: text.to_string() });
                let reason = self.b.drop_reason(ASSERT_DROP);
                let failed = self.not(cond);
                let go_on = self.split(failed);
                self.b.fate(Fate::Drop(reason));
                self.b.switch_to(go_on);
            }
            Primitive::Nothing | Primitive::Exit | Primitive::Jump(_) | Primitive::JumpIfZero(..) => {}
        }
    }

    /// Requests resubmission or recirculation; a list of id 0 requests nothing.
    fn request_again(&mut self, flag: Intrinsic, lists: Intrinsic, list: &Expr) {
        let list = self.modulo(list, 16);
        let is_requested: Operand = match &list {
            Operand::Const(c) => Bits::from_bool(!c.is_zero()).into(),
            Operand::Slot(_) => self.b.bin(BinOp::Ne, list.clone(), Operand::new_const(16, 0)).into(),
        };
        self.when(is_requested, |cx| cx.switch.ask(&mut cx.b, flag, lists, list));
    }

    fn assign(&mut self, to: &Target, value: &Expr) {
        match to {
            Target::Nowhere => {}
            Target::Field(field) => self.assign_field(*field, value),
            Target::Register(register, index) => {
                let width = self.m.registers[*register].width;
                let index = self.index(index);
                let src = self.modulo(value, width);
                self.b.emit(Op::RegisterWrite { register: self.registers[*register], index, src });
            }
            Target::FieldOf(header, field) => {
                let header = self.header_ref(header);
                // The value is the same for every element: the fields have one type.
                let Some(first) = (match &header {
                    super::headers::HeaderRef::Known(h) => Some(*h),
                    super::headers::HeaderRef::Indexed(headers, _) => headers.first().copied(),
                }) else {
                    return;
                };
                let field = *field;
                let value = self.fitted(crate::model::Field { header: first, field }, value);
                self.for_header(&header, |cx, header| cx.write(crate::model::Field { header, field }, value.clone()));
            }
            Target::LastField(stack, field) => {
                let m = self.m;
                let elements = &m.stacks[*stack].elements;
                let field = *field;
                let value = self.fitted(crate::model::Field { header: elements[0], field }, value);
                let one = Operand::new_const(32, 1);
                let index = self.b.bin(BinOp::Sub, self.next_of_stack[*stack], one).into();
                let header = super::headers::HeaderRef::Indexed(elements.clone(), index);
                self.for_header(&header, |cx, header| cx.write(crate::model::Field { header, field }, value.clone()));
            }
        }
    }

    /// Assigns an unsigned value.
    fn assign_value(&mut self, to: &Target, value: Operand) {
        let outer = std::mem::replace(&mut self.locals, vec![value]);
        // Expressions in the target refer to the action's data, so the value is appended to these.
        match to.field() {
            Some(field) => self.assign_field(field, &Expr::Local(0)),
            None => {
                let value = std::mem::replace(&mut self.locals, outer.clone());
                let at = self.locals.len();
                self.locals.extend(value);
                self.assign(to, &Expr::Local(at));
            }
        }
        self.locals = outer;
    }

    /// Assigns a value that was read at an index; if the index is out of range, the target keeps its value.
    fn assign_in_range(&mut self, to: &Target, value: SlotId, index: &Operand, size: u64) {
        let width = index.width(self.b.program());
        let in_range: Operand = match index {
            Operand::Const(c) => Bits::from_bool(c.to_u64().is_some_and(|i| i < size)).into(),
            Operand::Slot(_) if width < 64 && size >= 1 << width => Bits::from_bool(true).into(),
            Operand::Slot(_) => {
                let limit = Operand::new_const(width, u128::from(size));
                self.b.bin(BinOp::Ult, index.clone(), limit).into()
            }
        };
        self.when(in_range, |cx| cx.assign_value(to, value.into()));
    }
}
