//! Lowering of verified programs to machine-level IR.
//!
//! Each function of the program becomes a function of the module, `fn(run, r1, …, r5) -> r0`. The parameters of a block
//! are the registers that are live at its start; the pass `parameters` removes redundant ones. The stack is a stack
//! slot, and the verifier's result for an access becomes its region:
//!
//! | memory | region |
//! | --- | --- |
//! | the packet | `frame` |
//! | a function's stack, or a caller's | `stack` |
//! | values of maps | `value` |
//! | the run (`code::Run`): context, budget, results of helpers | `descriptor` |
//! | metadata of maps, the log, the random number generator | `state` |
//!
//! ```text
//! 3: r0 = *(u8 *)(r6 + 12)               v7 = load.i64 le1 frame v4+12 #3
//! 4: if r0 != 8 goto +5          =>      v8 = const.i64 8 #4
//!                                        v9 = ne v7, v8 #4
//!                                        branch v9, b3, b2
//! ```
//!
//! No access is checked at run time, since the verifier has proved all of them. What remains is the budget: backward
//! jumps and calls of functions are charged, as by the interpreter, and a run that exceeds its budget returns through
//! all functions at once. Instructions that the verifier found unreachable abort the run with a fault.

use crate::code::{ABORTED_BUDGET, ABORTED_FAULT, Run, helper_address};
use crate::context::Field;
use crate::helper::Helper;
use crate::instruction::{self as bpf, Alu, Constant, FRAME_POINTER, Operand, REGISTERS};
use crate::run::cost;
use crate::verified::Verified;
use crate::verifier::{Role, STACK_BYTES, live};
use mir::{
    Access, Address, Atomic, Binary, Block, Builder, Callee, Condition, Edge, Effects, Function, FunctionId, Module,
    Op, Region, Regions, Runtime, RuntimeId, Terminator, Type, Unary, Value,
};
use std::collections::BTreeMap;
use std::mem::offset_of;

/// The number of registers passed to functions and helpers, in addition to the run.
const ARGUMENTS: usize = 5;

/// Lowers a program to a module, whose first function is the program's entry.
pub(crate) fn lower(program: &Verified) -> Module {
    let mut module = Module::default();
    // Indexed by position in `Helper::ALL`.
    for helper in Helper::ALL {
        module.add_runtime(Runtime {
            name: helper.name().to_string(),
            params: vec![Type::I64; 1 + ARGUMENTS],
            result: Some(Type::I64),
            effects: effects(helper),
            address: helper_address(helper),
        });
    }
    let live = live(&program.ops);
    for (number, function) in program.linked.functions.iter().enumerate() {
        let name = format!("{number}:{}", function.name);
        let lowering = Lowering::new(program, &live, name, function.start..function.start + function.len);
        module.functions.push(lowering.function());
    }
    module
}

/// The regions that a helper reads and writes.
fn effects(helper: Helper) -> Effects {
    let memory = Region::Frame | Region::Stack | Region::Value;
    let (run, state) = (Regions::from(Region::Descriptor), Regions::from(Region::State));
    let (reads, writes) = match helper {
        // A lookup marks the entry as used.
        Helper::MapLookup => (memory | state, state),
        Helper::MapUpdate | Helper::MapDelete => (memory | state, state | Region::Value),
        Helper::Time => (Regions::NONE, Regions::NONE),
        Helper::Trace => (memory, state),
        Helper::Random => (state, state),
        Helper::Redirect => (Regions::NONE, Regions::NONE),
        Helper::ChecksumDifference => (memory, Regions::NONE),
        Helper::AdjustHead | Helper::AdjustTail => (Regions::NONE, Region::Frame.into()),
    };
    // All helpers charge their costs to the run's budget.
    Effects { reads: reads | run, writes: writes | run, ends: false }
}

struct Lowering<'p> {
    program: &'p Verified,
    /// The live registers before each instruction, as bit sets.
    live: &'p [u16],
    range: std::ops::Range<usize>,
    function: Function,
    /// The current block.
    block: Block,
    /// The current instruction.
    number: usize,
    /// The blocks by their first instruction.
    blocks: BTreeMap<usize, Block>,
    /// The block that ends an aborted run; its parameter is the reason.
    aborted: Block,
    run: Value,
    zero: Value,
    frame_pointer: Value,
    /// The current value of each register, if it has one.
    registers: [Option<Value>; REGISTERS],
}

impl<'p> Lowering<'p> {
    fn new(program: &'p Verified, live: &'p [u16], name: String, range: std::ops::Range<usize>) -> Lowering<'p> {
        let mut function = Function::new(name, &[Type::I64; 1 + ARGUMENTS], Some(Type::I64));
        let slot = function.add_slot(STACK_BYTES as u32, 8);
        let (entry, params) = (function.entry(), function.params().to_vec());
        let mut build = Builder::at(&mut function, entry);
        let frame_pointer = build.value(Type::I64, Op::StackAddress(slot, STACK_BYTES as i32));
        let zero = build.constant(Type::I64, 0);
        let mut blocks = BTreeMap::new();
        for number in range.clone() {
            if let bpf::Op::Jump { to } | bpf::Op::Branch { to, .. } = program.ops[number] {
                blocks.entry(to).or_insert_with(|| {
                    let block = function.add_block();
                    live_registers(live[to]).for_each(|_| _ = function.add_param(block, Type::I64));
                    block
                });
            }
        }
        let aborted = function.add_block();
        function.add_param(aborted, Type::I32);
        Lowering {
            program,
            live,
            number: range.start,
            range,
            function,
            block: entry,
            blocks,
            aborted,
            run: params[0],
            zero,
            frame_pointer,
            registers: std::array::from_fn(|i| params.get(i).copied().filter(|_| i > 0)),
        }
    }

    fn function(mut self) -> Function {
        // Whether the current block has no terminator yet.
        let mut open = true;
        for number in self.range.clone() {
            if let Some(&block) = self.blocks.get(&number) {
                if open {
                    let edge = self.edge(number, 1);
                    self.build().end(Terminator::Jump(edge));
                }
                self.block = block;
                self.registers = [None; REGISTERS];
                let params = self.function.block(block).params.clone();
                for (register, param) in live_registers(self.live[number]).zip(params) {
                    self.registers[register] = Some(param);
                }
                open = true;
            }
            if !open || self.program.ops[number] == bpf::Op::Second {
                continue;
            }
            self.number = number;
            open = match self.program.roles[number] {
                Role::Unreachable => {
                    self.abort(ABORTED_FAULT);
                    false
                }
                _ => self.instruction(),
            };
        }
        let aborted = self.aborted;
        let reason = self.function.block(aborted).params[0];
        self.block = aborted;
        self.store_run(offset_of!(Run<'static>, aborted), 4, reason);
        let zero = self.zero;
        self.build().end(Terminator::Return(Some(zero)));
        self.function
    }

    fn build(&mut self) -> Builder<'_> {
        let mut build = Builder::at(&mut self.function, self.block);
        build.location = Some(self.number as u32);
        build
    }

    fn value(&mut self, ty: Type, op: Op) -> Value {
        self.build().value(ty, op)
    }

    fn constant(&mut self, ty: Type, number: u64) -> Value {
        self.build().constant(ty, number)
    }

    /// The value of a register. A register without a value is live only on paths that are never taken; it reads as
    /// zero.
    fn get(&self, register: u8) -> Value {
        match usize::from(register) {
            FRAME_POINTER => self.frame_pointer,
            register => self.registers[register].unwrap_or(self.zero),
        }
    }

    fn set(&mut self, register: u8, value: Value) {
        let value = self.build().resize(value, Type::I64);
        self.registers[usize::from(register)] = Some(value);
    }

    fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Register(register) => self.get(register),
            Operand::Immediate(i) => self.constant(Type::I64, i64::from(i) as u64),
        }
    }

    /// The value, or its lower half for a 32-bit operation.
    fn narrow(&mut self, wide: bool, value: Value) -> Value {
        self.build().resize(value, if wide { Type::I64 } else { Type::I32 })
    }

    /// The edge to the block that begins with instruction `to`.
    fn edge(&self, to: usize, weight: u32) -> Edge {
        let args = live_registers(self.live[to]).map(|register| self.get(register as u8)).collect();
        Edge { block: self.blocks[&to], args, weight }
    }

    fn load_run(&mut self, ty: Type, offset: usize) -> Value {
        let address = Address { base: self.run, offset: offset as i32 };
        self.value(ty, Op::Load(Access::little(Region::Descriptor, (ty.bits() / 8) as u8), address))
    }

    fn store_run(&mut self, offset: usize, bytes: u8, value: Value) {
        let address = Address { base: self.run, offset: offset as i32 };
        self.build().effect(Op::Store(Access::little(Region::Descriptor, bytes), address, value));
    }

    fn abort(&mut self, reason: u32) {
        let reason = self.constant(Type::I32, reason.into());
        let aborted = self.aborted;
        self.build().jump(aborted, vec![reason]);
    }

    /// Aborts the run if a condition holds; otherwise continues in a new block.
    fn abort_if(&mut self, condition: Value, reason: Value) {
        let next = self.function.add_block();
        let aborted = Edge { block: self.aborted, args: vec![reason], weight: 0 };
        self.build().end(Terminator::Branch(condition, aborted, Edge::new(next, vec![])));
        self.block = next;
    }

    /// Charges instructions to the budget.
    fn charge(&mut self, instructions: i64) {
        let budget = self.load_run(Type::I64, offset_of!(Run<'static>, budget));
        let cost = self.constant(Type::I64, instructions as u64);
        let left = self.build().binary(Binary::Sub, budget, cost);
        self.store_run(offset_of!(Run<'static>, budget), 8, left);
        self.abort_if_exceeded(left);
    }

    /// Aborts the run if `left`, the rest of its budget, is negative.
    fn abort_if_exceeded(&mut self, left: Value) {
        let (zero, reason) = (self.zero, self.constant(Type::I32, ABORTED_BUDGET.into()));
        let exceeded = self.build().compare(Condition::Slt, left, zero);
        self.abort_if(exceeded, reason);
    }

    /// Jumps to an instruction. A backward jump charges the iteration that it ends.
    fn jump(&mut self, to: usize) {
        if to <= self.number {
            self.charge((self.number - to + 1) as i64);
        }
        let edge = self.edge(to, 1);
        self.build().end(Terminator::Jump(edge));
    }

    /// Lowers the current instruction; whether the next instruction continues the same block.
    fn instruction(&mut self) -> bool {
        match self.program.ops[self.number] {
            bpf::Op::Alu { wide, alu, dst, src } => self.alu(wide, alu, dst, src),
            bpf::Op::Neg { wide, dst } => {
                let value = self.narrow(wide, self.get(dst));
                let ty = self.function.type_of(value);
                let value = self.value(ty, Op::Unary(Unary::Neg, value));
                self.set(dst, value);
            }
            bpf::Op::Swap { big, bits, dst } => {
                let ty = Type::of_bits(bits.into()).expect("decoded as 16, 32 or 64");
                let value = self.get(dst);
                let value = self.build().resize(value, ty);
                // Code is only compiled for little-endian machines.
                let value = if big { self.value(ty, Op::Unary(Unary::ByteSwap, value)) } else { value };
                self.set(dst, value);
            }
            bpf::Op::LoadImmediate { dst, constant } => {
                let number = match constant {
                    Constant::Number(number) => number,
                    Constant::Map(map) => map.into(),
                    Constant::MapValue { map, offset } => {
                        self.program.maps[map as usize].value_words().as_ptr().addr() as u64 + u64::from(offset)
                    }
                };
                let value = self.constant(Type::I64, number);
                self.set(dst, value);
            }
            bpf::Op::Second => {}
            bpf::Op::Load { size, dst, base, off } => {
                let value = match self.program.roles[self.number] {
                    Role::Context(field) => self.load_context(field),
                    _ => {
                        let address = Address { base: self.get(base), offset: off.into() };
                        let access = Access::little(self.regions(), size.bytes() as u8);
                        self.value(Type::I64, Op::Load(access, address))
                    }
                };
                self.set(dst, value);
            }
            bpf::Op::Store { size, base, off, src } => {
                let address = Address { base: self.get(base), offset: off.into() };
                let value = self.operand(src);
                let access = Access::little(self.regions(), size.bytes() as u8);
                self.build().effect(Op::Store(access, address, value));
            }
            bpf::Op::Atomic { atomic, wide, fetch, base, off, src } => {
                self.atomic(atomic, wide, fetch, base, off, src);
            }
            bpf::Op::Jump { to } => {
                self.jump(to);
                return false;
            }
            bpf::Op::Branch { wide, condition, dst, src, to } => {
                let holds = self.condition(wide, condition, dst, src);
                let [taken, next] = [(); 2].map(|()| self.function.add_block());
                let (then, other) = (Edge::new(taken, vec![]), Edge::new(next, vec![]));
                self.build().end(Terminator::Branch(holds, then, other));
                self.block = taken;
                self.jump(to);
                self.block = next;
            }
            bpf::Op::Call { helper } => {
                let Some(helper) = Helper::of(helper) else {
                    self.abort(ABORTED_FAULT);
                    return false;
                };
                self.call(helper);
            }
            bpf::Op::CallLocal { to } => self.call_local(to),
            bpf::Op::Exit => {
                let result = self.get(0);
                self.build().end(Terminator::Return(Some(result)));
                return false;
            }
        }
        true
    }

    /// The regions that the current access may be in.
    fn regions(&self) -> Regions {
        let Role::Access(touched) = self.program.roles[self.number] else {
            return Regions::ALL.without(Regions::CONSTANT);
        };
        let places = [(touched.stack, Region::Stack), (touched.packet, Region::Frame), (touched.value, Region::Value)];
        let touched = places.into_iter().filter(|(touched, _)| *touched);
        touched.fold(Regions::NONE, |regions, (_, region)| regions | region)
    }

    fn alu(&mut self, wide: bool, alu: Alu, dst: u8, src: Operand) {
        let (a, b) = (self.get(dst), self.operand(src));
        let (a, b) = (self.narrow(wide, a), self.narrow(wide, b));
        // Division by zero and shift amounts follow BPF's semantics.
        let op = match alu {
            Alu::Mov => return self.set(dst, b),
            Alu::Add => Binary::Add,
            Alu::Sub => Binary::Sub,
            Alu::Mul => Binary::Mul,
            Alu::Div => Binary::Div,
            Alu::Mod => Binary::Rem,
            Alu::Or => Binary::Or,
            Alu::And => Binary::And,
            Alu::Xor => Binary::Xor,
            Alu::Lsh => Binary::Shl,
            Alu::Rsh => Binary::Shr,
            Alu::Arsh => Binary::Sar,
        };
        let result = self.build().binary(op, a, b);
        self.set(dst, result);
    }

    fn condition(&mut self, wide: bool, condition: bpf::Condition, dst: u8, src: Operand) -> Value {
        let (a, b) = (self.get(dst), self.operand(src));
        let (a, b) = (self.narrow(wide, a), self.narrow(wide, b));
        let code = match condition {
            bpf::Condition::Set => {
                let both = self.build().binary(Binary::And, a, b);
                let zero = self.narrow(wide, self.zero);
                return self.build().compare(Condition::Ne, both, zero);
            }
            bpf::Condition::Eq => Condition::Eq,
            bpf::Condition::Ne => Condition::Ne,
            bpf::Condition::Gt => Condition::Ugt,
            bpf::Condition::Ge => Condition::Uge,
            bpf::Condition::Lt => Condition::Ult,
            bpf::Condition::Le => Condition::Ule,
            bpf::Condition::SGt => Condition::Sgt,
            bpf::Condition::SGe => Condition::Sge,
            bpf::Condition::SLt => Condition::Slt,
            bpf::Condition::SLe => Condition::Sle,
        };
        self.build().compare(code, a, b)
    }

    fn load_context(&mut self, field: Field) -> Value {
        match field {
            Field::Data | Field::DataMeta => self.load_run(Type::I64, offset_of!(Run<'static>, data)),
            Field::DataEnd => self.load_run(Type::I64, offset_of!(Run<'static>, data_end)),
            Field::IngressPort => self.load_run(Type::I32, offset_of!(Run<'static>, port)),
            Field::Queue | Field::EgressPort => self.zero,
            Field::Argument => self.load_run(Type::I64, offset_of!(Run<'static>, argument)),
        }
    }

    fn atomic(&mut self, atomic: bpf::Atomic, wide: bool, fetch: bool, base: u8, off: i16, src: u8) {
        let (regions, address) = (self.regions(), Address { base: self.get(base), offset: off.into() });
        let operand = self.narrow(wide, self.get(src));
        let ty = self.function.type_of(operand);
        let op = match atomic {
            bpf::Atomic::Add => Atomic::Add,
            bpf::Atomic::Or => Atomic::Or,
            bpf::Atomic::And => Atomic::And,
            bpf::Atomic::Xor => Atomic::Xor,
            bpf::Atomic::Exchange => Atomic::Exchange,
            bpf::Atomic::CompareExchange => {
                let expected = self.narrow(wide, self.get(0));
                let old = self.value(ty, Op::CompareExchange(regions, address, expected, operand));
                return self.set(0, old);
            }
        };
        let old = self.value(ty, Op::Atomic(op, regions, address, operand));
        if fetch {
            self.set(src, old);
        }
    }

    /// Calls with the run and the registers from `r1` on; the remaining arguments are zero.
    fn call_with(&mut self, callee: Callee, arguments: usize) {
        let register = |i: usize| if i <= arguments { self.get(i as u8) } else { self.zero };
        let args = [self.run].into_iter().chain((1..=ARGUMENTS).map(register)).collect();
        let result = self.value(Type::I64, Op::Call(callee, args));
        self.set(0, result);
    }

    fn call(&mut self, helper: Helper) {
        let mut arguments = helper.arguments().len();
        if let Role::Trace(count) = self.program.roles[self.number] {
            let printed = self.constant(Type::I32, count.into());
            self.store_run(offset_of!(Run<'static>, traced), 4, printed);
            arguments += usize::from(count);
        }
        if helper == Helper::Time {
            self.charge(cost::OTHER);
            let now = self.load_run(Type::I64, offset_of!(Run<'static>, now_ns));
            return self.set(0, now);
        }
        let number = Helper::ALL.iter().position(|other| *other == helper).expect("one of all");
        self.call_with(Callee::Runtime(RuntimeId(number as u32)), arguments);
        let left = self.load_run(Type::I64, offset_of!(Run<'static>, budget));
        self.abort_if_exceeded(left);
    }

    fn call_local(&mut self, to: usize) {
        self.charge(self.program.len_of(to));
        let callee = FunctionId(self.program.linked.function_of(to) as u32);
        self.call_with(Callee::Function(callee), ARGUMENTS);
        let aborted = self.load_run(Type::I32, offset_of!(Run<'static>, aborted));
        let none = self.constant(Type::I32, 0);
        let is_over = self.build().compare(Condition::Ne, aborted, none);
        self.abort_if(is_over, aborted);
    }
}

/// The registers of a set except the frame pointer, which never changes.
fn live_registers(live: u16) -> impl Iterator<Item = usize> {
    (0..FRAME_POINTER).filter(move |register| live >> register & 1 == 1)
}
