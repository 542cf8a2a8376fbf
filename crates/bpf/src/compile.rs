//! Verified programs to machine code, by Cranelift.
//!
//! Each function of the program becomes one of machine code, `fn(run, r1, …, r5) -> r0`. BPF registers are Cranelift
//! variables, the stack is a slot of the frame, addresses are those of the machine. Nothing is checked again: the
//! verifier has shown that all accesses are within their memory. What is left to do at run time:
//!
//! - divisors may be zero;
//! - at the end of an iteration of a loop, and at a call of a function, the work is taken from the run's budget, as the
//!   interpreter does; a run that exceeds it returns through all functions at once.
//!
//! Instructions that no path leads to end the run as a fault.

use crate::code::{ABORTED_BUDGET, ABORTED_FAULT, Compiled, Run, helper_address};
use crate::context::Field;
use crate::helper::Helper;
use crate::instruction::{Alu, Atomic, Condition, Constant, FRAME_POINTER, Op, Operand, REGISTERS, Size};
use crate::verified::Verified;
use crate::verifier::{Role, STACK_BYTES};
use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64, Type};
use cranelift_codegen::ir::{
    AbiParam, AtomicRmwOp, Block, FuncRef, InstBuilder, MemFlagsData, SigRef, Signature, StackSlotData, StackSlotKind,
    UserFuncName, Value,
};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Instructions up to which code is optimised. Beyond, Cranelift compiles without optimisation, in time that is proportional to
/// their number: its optimiser takes seconds for the largest programs, and loading waits for it.
const THOROUGH_INSTRUCTIONS_MAX: usize = 16_384;

/// Compiles a program. `None` if Cranelift does not know this machine.
pub(crate) fn compile(program: &Verified) -> Result<Option<Compiled>, String> {
    let Ok(isa) = cranelift_native::builder() else { return Ok(None) };
    let thorough = program.ops.len() <= THOROUGH_INSTRUCTIONS_MAX;
    let (level, allocator) = if thorough { ("speed", "backtracking") } else { ("none", "single_pass") };
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", level),
        ("regalloc_algorithm", allocator),
        ("enable_verifier", verify),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("preserve_frame_pointers", "true"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let isa = isa.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, cranelift_module::default_libcall_names()));
    match define_all(program, &mut module) {
        Ok(entry) => Ok(Some(Compiled::new(module, entry))),
        Err(error) => {
            crate::code::discard(module);
            Err(error)
        }
    }
}

/// Defines all functions; the first is the entry.
fn define_all(program: &Verified, module: &mut JITModule) -> Result<FuncId, String> {
    let mut signature = Signature::new(module.isa().default_call_conv());
    signature.params = vec![AbiParam::new(I64); 6];
    signature.returns = vec![AbiParam::new(I64)];
    let mut ids = Vec::new();
    for (number, function) in program.linked.functions.iter().enumerate() {
        let name = format!("{number}:{}", function.name);
        ids.push(module.declare_function(&name, Linkage::Local, &signature).map_err(|e| e.to_string())?);
    }
    let mut context = module.make_context();
    let mut builder_context = FunctionBuilderContext::new();
    for number in 0..ids.len() {
        context.func.signature = signature.clone();
        context.func.name = UserFuncName::user(0, ids[number].as_u32());
        translate(program, number, &ids, module, &mut context, &mut builder_context, &signature);
        module.define_function(ids[number], &mut context).map_err(|e| format!("{e:?}"))?;
        module.clear_context(&mut context);
    }
    module.finalize_definitions().map_err(|e| e.to_string())?;
    Ok(ids[0])
}

fn translate(
    program: &Verified,
    number: usize,
    ids: &[FuncId],
    module: &mut JITModule,
    context: &mut Context,
    builder_context: &mut FunctionBuilderContext,
    signature: &Signature,
) {
    let mut builder = FunctionBuilder::new(&mut context.func, builder_context);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let registers = std::array::from_fn(|_| builder.declare_var(I64));
    let params = builder.block_params(entry).to_vec();
    let zero = builder.ins().iconst(I64, 0);
    for (number, register) in registers.iter().enumerate() {
        let value = match number {
            1..=5 => params[number],
            FRAME_POINTER => {
                let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, STACK_BYTES as u32, 3);
                let slot = builder.create_sized_stack_slot(slot);
                builder.ins().stack_addr(I64, slot, STACK_BYTES as i32)
            }
            _ => zero,
        };
        builder.def_var(*register, value);
    }
    let callees = program.linked.functions.iter().zip(ids);
    let called = |start: usize| program.ops.iter().any(|op| matches!(op, Op::CallLocal { to } if *to == start));
    let callees = callees
        .filter(|(function, _)| called(function.start))
        .map(|(function, id)| (function.start, module.declare_func_in_func(*id, builder.func)))
        .collect();
    let helpers = builder.import_signature(signature.clone());
    let function = &program.linked.functions[number];
    let range = function.start..function.start + function.len;
    let mut blocks = BTreeMap::new();
    for number in range.clone() {
        if let Op::Jump { to } | Op::Branch { to, .. } = program.ops[number] {
            blocks.entry(to).or_insert_with(|| builder.create_block());
        }
    }
    let aborted = builder.create_block();
    let reason = builder.append_block_param(aborted, I64);
    let mut translator = Translator { program, builder, registers, run: params[0], blocks, aborted, callees, helpers };
    translator.instructions(range);
    let mut builder = translator.builder;
    builder.switch_to_block(aborted);
    builder.set_cold_block(aborted);
    let reason = builder.ins().ireduce(I32, reason);
    builder.ins().store(MemFlagsData::trusted(), reason, params[0], offset_of!(Run<'static>, aborted) as i32);
    let zero = builder.ins().iconst(I64, 0);
    builder.ins().return_(&[zero]);
    builder.seal_all_blocks();
    builder.finalize(module.isa().frontend_config());
}

struct Translator<'p, 'b> {
    program: &'p Verified,
    builder: FunctionBuilder<'b>,
    registers: [Variable; REGISTERS],
    run: Value,
    /// Blocks by the instruction that they begin with.
    blocks: BTreeMap<usize, Block>,
    /// Takes the reason.
    aborted: Block,
    callees: BTreeMap<usize, FuncRef>,
    helpers: SigRef,
}

impl Translator<'_, '_> {
    fn instructions(&mut self, range: std::ops::Range<usize>) {
        // Whether the current block goes on.
        let mut open = true;
        for number in range {
            if let Some(block) = self.blocks.get(&number) {
                if open {
                    self.builder.ins().jump(*block, &[]);
                }
                self.builder.switch_to_block(*block);
                open = true;
            }
            if !open || self.program.ops[number] == Op::Second {
                continue;
            }
            if self.program.roles[number] == Role::Unreachable {
                self.abort(ABORTED_FAULT);
                open = false;
                continue;
            }
            open = self.instruction(number);
        }
    }

    fn get(&mut self, register: u8) -> Value {
        self.builder.use_var(self.registers[register as usize])
    }

    fn set(&mut self, register: u8, value: Value) {
        self.builder.def_var(self.registers[register as usize], value);
    }

    fn constant(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(I64, value as i64)
    }

    fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Register(register) => self.get(register),
            Operand::Immediate(i) => self.builder.ins().iconst(I64, i64::from(i)),
        }
    }

    /// The lower half, if an operation is not on 64 bits.
    fn narrow(&mut self, wide: bool, value: Value) -> Value {
        if wide { value } else { self.builder.ins().ireduce(I32, value) }
    }

    fn widen(&mut self, value: Value) -> Value {
        match self.builder.func.dfg.value_type(value) {
            I64 => value,
            _ => self.builder.ins().uextend(I64, value),
        }
    }

    fn abort(&mut self, reason: i64) {
        let reason = self.builder.ins().iconst(I64, reason);
        let aborted = self.aborted;
        self.builder.ins().jump(aborted, &[reason.into()]);
    }

    /// Goes on behind in a new block unless a condition holds.
    fn abort_if(&mut self, condition: Value, reason: i64) {
        let reason = self.builder.ins().iconst(I64, reason);
        let (aborted, next) = (self.aborted, self.builder.create_block());
        self.builder.ins().brif(condition, aborted, &[reason.into()], next, &[]);
        self.builder.switch_to_block(next);
    }

    /// Takes instructions from the budget.
    fn charge(&mut self, instructions: i64) {
        let (flags, offset) = (MemFlagsData::trusted(), offset_of!(Run<'static>, budget) as i32);
        let budget = self.builder.ins().load(I64, flags, self.run, offset);
        let left = self.builder.ins().iadd_imm_s(budget, -instructions);
        self.builder.ins().store(flags, left, self.run, offset);
        let exceeded = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        self.abort_if(exceeded, ABORTED_BUDGET);
    }

    /// Charges for an iteration that ends with a jump backwards.
    fn charge_jump(&mut self, number: usize, to: usize) {
        if to <= number {
            self.charge((number - to + 1) as i64);
        }
    }

    /// Translates an instruction; whether the next one follows in the same block.
    fn instruction(&mut self, number: usize) -> bool {
        match self.program.ops[number] {
            Op::Alu { wide, alu, dst, src } => {
                let result = self.alu(wide, alu, dst, src);
                let result = self.widen(result);
                self.set(dst, result);
            }
            Op::Neg { wide, dst } => {
                let value = self.get(dst);
                let value = self.narrow(wide, value);
                let value = self.builder.ins().ineg(value);
                let value = self.widen(value);
                self.set(dst, value);
            }
            Op::Swap { big, bits, dst } => {
                let value = self.get(dst);
                let kind = [I16, I32, I64][usize::from(bits).ilog2() as usize - 4];
                let value = if bits == 64 { value } else { self.builder.ins().ireduce(kind, value) };
                // Machines that code is compiled for are little endian.
                let value = if big { self.builder.ins().bswap(value) } else { value };
                let value = self.widen(value);
                self.set(dst, value);
            }
            Op::LoadImmediate { dst, constant } => {
                let value = match constant {
                    Constant::Number(number) => number,
                    Constant::Map(map) => map.into(),
                    Constant::MapValue { map, offset } => {
                        self.program.maps[map as usize].value_words().as_ptr().addr() as u64 + u64::from(offset)
                    }
                };
                let value = self.constant(value);
                self.set(dst, value);
            }
            Op::Second => {}
            Op::Load { size, dst, base, off } => {
                let value = match self.program.roles[number] {
                    Role::Context(field) => self.load_context(field),
                    _ => {
                        let base = self.get(base);
                        self.builder.ins().load(type_of(size), memory(), base, i32::from(off))
                    }
                };
                let value = self.widen(value);
                self.set(dst, value);
            }
            Op::Store { size, base, off, src } => {
                let (base, value) = (self.get(base), self.operand(src));
                let value = match size {
                    Size::B8 => value,
                    _ => self.builder.ins().ireduce(type_of(size), value),
                };
                self.builder.ins().store(memory(), value, base, i32::from(off));
            }
            Op::Atomic { atomic, wide, fetch, base, off, src } => {
                let old = self.atomic(atomic, wide, base, off, src);
                match (atomic, fetch) {
                    (Atomic::CompareExchange, _) => self.set(0, old),
                    (_, true) => self.set(src, old),
                    _ => {}
                }
            }
            Op::Jump { to } => {
                self.charge_jump(number, to);
                let block = self.blocks[&to];
                self.builder.ins().jump(block, &[]);
                return false;
            }
            Op::Branch { wide, condition, dst, src, to } => {
                let holds = self.condition(wide, condition, dst, src);
                let (taken, next) = (self.builder.create_block(), self.builder.create_block());
                self.builder.ins().brif(holds, taken, &[], next, &[]);
                self.builder.switch_to_block(taken);
                self.charge_jump(number, to);
                let block = self.blocks[&to];
                self.builder.ins().jump(block, &[]);
                self.builder.switch_to_block(next);
            }
            Op::Call { helper } => {
                let Some(helper) = Helper::of(helper) else {
                    self.abort(ABORTED_FAULT);
                    return false;
                };
                self.call(number, helper);
            }
            Op::CallLocal { to } => {
                self.charge(self.program.len_of(to));
                let arguments = self.arguments();
                let call = self.builder.ins().call(self.callees[&to], &arguments);
                let result = self.builder.inst_results(call)[0];
                let offset = offset_of!(Run<'static>, aborted) as i32;
                let aborted = self.builder.ins().load(I32, MemFlagsData::trusted(), self.run, offset);
                let reason = self.builder.ins().uextend(I64, aborted);
                let (end, next) = (self.aborted, self.builder.create_block());
                self.builder.ins().brif(aborted, end, &[reason.into()], next, &[]);
                self.builder.switch_to_block(next);
                self.set(0, result);
            }
            Op::Exit => {
                let result = self.get(0);
                self.builder.ins().return_(&[result]);
                return false;
            }
        }
        true
    }

    fn alu(&mut self, wide: bool, alu: Alu, dst: u8, src: Operand) -> Value {
        let (a, b) = (self.get(dst), self.operand(src));
        let (a, b) = (self.narrow(wide, a), self.narrow(wide, b));
        let ins = self.builder.ins();
        match alu {
            Alu::Add => ins.iadd(a, b),
            Alu::Sub => ins.isub(a, b),
            Alu::Mul => ins.imul(a, b),
            Alu::Or => ins.bor(a, b),
            Alu::And => ins.band(a, b),
            Alu::Xor => ins.bxor(a, b),
            Alu::Mov => b,
            // Amounts are taken modulo the width, as BPF has it.
            Alu::Lsh => ins.ishl(a, b),
            Alu::Rsh => ins.ushr(a, b),
            Alu::Arsh => ins.sshr(a, b),
            Alu::Div | Alu::Mod => self.divide(wide, alu, a, b, src),
        }
    }

    fn divide(&mut self, wide: bool, alu: Alu, a: Value, b: Value, src: Operand) -> Value {
        let kind = if wide { I64 } else { I32 };
        // The verifier refuses constants that are zero.
        if matches!(src, Operand::Immediate(_)) {
            return match alu {
                Alu::Div => self.builder.ins().udiv(a, b),
                _ => self.builder.ins().urem(a, b),
            };
        }
        let one = self.builder.ins().iconst(kind, 1);
        let is_zero = self.builder.ins().icmp_imm_u(IntCC::Equal, b, 0);
        let divisor = self.builder.ins().select(is_zero, one, b);
        match alu {
            Alu::Div => {
                let zero = self.builder.ins().iconst(kind, 0);
                let quotient = self.builder.ins().udiv(a, divisor);
                self.builder.ins().select(is_zero, zero, quotient)
            }
            _ => {
                let rest = self.builder.ins().urem(a, divisor);
                self.builder.ins().select(is_zero, a, rest)
            }
        }
    }

    fn condition(&mut self, wide: bool, condition: Condition, dst: u8, src: Operand) -> Value {
        let (a, b) = (self.get(dst), self.operand(src));
        let (a, b) = (self.narrow(wide, a), self.narrow(wide, b));
        let code = match condition {
            Condition::Set => return self.builder.ins().band(a, b),
            Condition::Eq => IntCC::Equal,
            Condition::Ne => IntCC::NotEqual,
            Condition::Gt => IntCC::UnsignedGreaterThan,
            Condition::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Condition::Lt => IntCC::UnsignedLessThan,
            Condition::Le => IntCC::UnsignedLessThanOrEqual,
            Condition::SGt => IntCC::SignedGreaterThan,
            Condition::SGe => IntCC::SignedGreaterThanOrEqual,
            Condition::SLt => IntCC::SignedLessThan,
            Condition::SLe => IntCC::SignedLessThanOrEqual,
        };
        self.builder.ins().icmp(code, a, b)
    }

    fn load_context(&mut self, field: Field) -> Value {
        let (kind, offset) = match field {
            Field::Data | Field::DataMeta => (I64, offset_of!(Run<'static>, data)),
            Field::DataEnd => (I64, offset_of!(Run<'static>, data_end)),
            Field::IngressPort => (I32, offset_of!(Run<'static>, port)),
            Field::Queue | Field::EgressPort => return self.constant(0),
            Field::Argument => (I64, offset_of!(Run<'static>, argument)),
        };
        self.builder.ins().load(kind, MemFlagsData::trusted(), self.run, offset as i32)
    }

    fn atomic(&mut self, atomic: Atomic, wide: bool, base: u8, off: i16, src: u8) -> Value {
        let kind = if wide { I64 } else { I32 };
        let base = self.get(base);
        let address = self.builder.ins().iadd_imm_s(base, i64::from(off));
        let operand = self.get(src);
        let operand = self.narrow(wide, operand);
        let operation = match atomic {
            Atomic::Add => AtomicRmwOp::Add,
            Atomic::Or => AtomicRmwOp::Or,
            Atomic::And => AtomicRmwOp::And,
            Atomic::Xor => AtomicRmwOp::Xor,
            Atomic::Exchange => AtomicRmwOp::Xchg,
            Atomic::CompareExchange => {
                let expected = self.get(0);
                let expected = self.narrow(wide, expected);
                let old = self.builder.ins().atomic_cas(MemFlagsData::trusted(), address, expected, operand);
                return self.widen(old);
            }
        };
        let old = self.builder.ins().atomic_rmw(kind, MemFlagsData::trusted(), operation, address, operand);
        self.widen(old)
    }

    /// The run and registers 1 to 5.
    fn arguments(&mut self) -> [Value; 6] {
        let run = self.run;
        std::array::from_fn(|i| if i == 0 { run } else { self.get(i as u8) })
    }

    fn call(&mut self, number: usize, helper: Helper) {
        if let Role::Trace(count) = self.program.roles[number] {
            let count = self.builder.ins().iconst(I32, i64::from(count));
            let offset = offset_of!(Run<'static>, traced) as i32;
            self.builder.ins().store(MemFlagsData::trusted(), count, self.run, offset);
        }
        if helper == Helper::Time {
            let offset = offset_of!(Run<'static>, now_ns) as i32;
            let now = self.builder.ins().load(I64, MemFlagsData::trusted(), self.run, offset);
            return self.set(0, now);
        }
        let arguments = self.arguments();
        let address = self.constant(helper_address(helper));
        let call = self.builder.ins().call_indirect(self.helpers, address, &arguments);
        let result = self.builder.inst_results(call)[0];
        self.set(0, result);
    }
}

fn type_of(size: Size) -> Type {
    match size {
        Size::B1 => I8,
        Size::B2 => I16,
        Size::B4 => I32,
        Size::B8 => I64,
    }
}

/// Accesses that the verifier has allowed: none traps, but packets are not aligned.
fn memory() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}
