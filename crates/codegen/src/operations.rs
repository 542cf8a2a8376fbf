//! Lowering of instructions.

use crate::lower::{Lowered, Lowering};
use crate::type_of;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64, I128};
use cranelift_codegen::ir::{self as clif, AbiParam, InstBuilder, Signature, StackSlotData, StackSlotKind, Value};
use mir::{Binary, Callee, Cast, Condition, Op, Part, Region, RuntimeId, Type, Unary};

impl Lowering<'_, '_> {
    /// Lowers an instruction and returns its result.
    pub(crate) fn operation(&mut self, op: &Op, result: Option<mir::Value>) -> Option<Lowered> {
        let ty = result.map_or(Type::I64, |result| self.function.type_of(result));
        Some(Lowered::Integer(match op {
            Op::Const(number) => self.constant(ty, *number),
            Op::Unary(op, a) => self.unary(*op, ty, *a),
            Op::Binary(op, a, b) => self.binary(*op, ty, *a, *b),
            Op::Compare(condition, a, b) => self.compare(*condition, *a, *b),
            Op::Select(condition, a, b) => {
                let (condition, a, b) = (self.get(*condition), self.get(*a), self.get(*b));
                self.select(condition, a, b)
            }
            Op::Cast(op, a) => self.cast(*op, self.function.type_of(*a), ty, *a),
            Op::Pack(parts) => self.pack(parts, ty),
            Op::Hash(words) => {
                let [k0, k1, s0, s1] = words.map(|word| self.get(word));
                let (a, b) = (self.b.ins().bxor(k0, s0), self.b.ins().bxor(k1, s1));
                let (a, b) = (self.b.ins().uextend(I128, a), self.b.ins().uextend(I128, b));
                let product = self.b.ins().imul(a, b);
                let (low, high) = self.b.ins().isplit(product);
                self.b.ins().bxor(low, high)
            }
            Op::StackAddress(slot, offset) => {
                let slot = self.slots[slot.index()];
                self.b.ins().stack_addr(I64, slot, *offset)
            }
            Op::Load(access, address) => self.load(*access, *address, ty),
            Op::Store(access, address, value) => {
                let value = self.get(*value);
                self.store(*access, *address, value);
                return None;
            }
            Op::Atomic(op, regions, address, value) => self.atomic(*op, *regions, *address, *value, ty),
            Op::CompareExchange(regions, address, expected, new) => {
                self.compare_exchange(*regions, *address, *expected, *new)
            }
            Op::Release(regions, address, value) => {
                self.release(*regions, *address, *value);
                return None;
            }
            Op::Count(address, value) => {
                self.count(*address, *value);
                return None;
            }
            Op::Prefetch(address, write) => {
                self.prefetch(*address, *write);
                return None;
            }
            Op::ProbeIssue(_, words) => {
                return Some(Lowered::Probe(words.iter().map(|word| self.get(*word)).collect()));
            }
            Op::ProbeTake(probe) => self.take(*probe),
            Op::Call(callee, args) => return self.call(*callee, args).map(Lowered::Integer),
            Op::Phase(_) => return None,
        }))
    }

    /// An integer zero-extended or truncated to a type.
    pub(crate) fn resize(&mut self, value: Value, to: clif::Type) -> Value {
        let from = self.b.func.dfg.value_type(value);
        match from.bits().cmp(&to.bits()) {
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Less => self.b.ins().uextend(to, value),
            std::cmp::Ordering::Greater => self.b.ins().ireduce(to, value),
        }
    }

    fn constant(&mut self, ty: Type, number: u128) -> Value {
        match ty {
            Type::I128 => {
                let low = self.b.ins().iconst(I64, number as u64 as i64);
                let high = self.b.ins().iconst(I64, (number >> 64) as u64 as i64);
                self.b.ins().iconcat(low, high)
            }
            _ => {
                // Cranelift requires that bits above the type's width are zero.
                self.b.ins().iconst(type_of(ty), number as u64 as i64)
            }
        }
    }

    /// Selects one of two integers. 128-bit ones are selected by halves: Cranelift turns a comparison and a selection
    /// of the same values into a minimum or maximum, which the back ends do not support at 128 bits.
    fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        if self.b.func.dfg.value_type(a) != I128 {
            return self.b.ins().select(condition, a, b);
        }
        let ((a_low, a_high), (b_low, b_high)) = (self.b.ins().isplit(a), self.b.ins().isplit(b));
        let low = self.b.ins().select(condition, a_low, b_low);
        let high = self.b.ins().select(condition, a_high, b_high);
        self.b.ins().iconcat(low, high)
    }

    fn unary(&mut self, op: Unary, ty: Type, a: mir::Value) -> Value {
        let a = self.get(a);
        let narrow = ty.bits() < 32;
        match op {
            Unary::Neg => {
                let zero = self.constant(ty, 0);
                self.b.ins().isub(zero, a)
            }
            Unary::Not if ty == Type::I1 => self.b.ins().bxor_imm_u(a, 1),
            Unary::Not => self.b.ins().bnot(a),
            Unary::ByteSwap => self.b.ins().bswap(a),
            // Narrow integers are extended to 32 bits: the leading zeros above the width are subtracted, and a set bit
            // just above it bounds the trailing zeros.
            Unary::LeadingZeros if narrow => {
                let wide = self.b.ins().uextend(I32, a);
                let zeros = self.b.ins().clz(wide);
                let zeros = self.b.ins().iadd_imm_s(zeros, i64::from(ty.bits()) - 32);
                self.b.ins().ireduce(type_of(ty), zeros)
            }
            Unary::TrailingZeros if narrow => {
                let wide = self.b.ins().uextend(I32, a);
                let wide = self.b.ins().bor_imm_u(wide, 1 << ty.bits());
                let zeros = self.b.ins().ctz(wide);
                self.b.ins().ireduce(type_of(ty), zeros)
            }
            Unary::LeadingZeros => self.b.ins().clz(a),
            Unary::TrailingZeros => self.b.ins().ctz(a),
        }
    }

    fn binary(&mut self, op: Binary, ty: Type, a: mir::Value, b: mir::Value) -> Value {
        if matches!(op, Binary::Div | Binary::Rem) {
            return self.divide(op == Binary::Div, ty, a, b);
        }
        let (a, b) = (self.get(a), self.get(b));
        let ins = self.b.ins();
        match op {
            Binary::Add => ins.iadd(a, b),
            Binary::Sub => ins.isub(a, b),
            Binary::Mul => ins.imul(a, b),
            Binary::MulHigh => ins.umulhi(a, b),
            Binary::And => ins.band(a, b),
            Binary::Or => ins.bor(a, b),
            Binary::Xor => ins.bxor(a, b),
            // Cranelift takes shift amounts modulo the width, too.
            Binary::Shl => ins.ishl(a, b),
            Binary::Shr => ins.ushr(a, b),
            Binary::Sar => ins.sshr(a, b),
            Binary::Rotl => ins.rotl(a, b),
            Binary::Div | Binary::Rem => unreachable!("divided above"),
        }
    }

    /// A quotient or remainder; the divisor may be zero.
    fn divide(&mut self, quotient: bool, ty: Type, a: mir::Value, divisor: mir::Value) -> Value {
        let is_safe = self.constants[divisor.index()].is_some_and(|number| number != 0);
        let (a, divisor) = (self.get(a), self.get(divisor));
        if is_safe {
            return match quotient {
                true => self.b.ins().udiv(a, divisor),
                false => self.b.ins().urem(a, divisor),
            };
        }
        let one = self.constant(ty, 1);
        let is_zero = self.b.ins().icmp_imm_u(IntCC::Equal, divisor, 0);
        let divisor = self.b.ins().select(is_zero, one, divisor);
        match quotient {
            true => {
                let zero = self.constant(ty, 0);
                let quotient = self.b.ins().udiv(a, divisor);
                self.b.ins().select(is_zero, zero, quotient)
            }
            false => {
                let rest = self.b.ins().urem(a, divisor);
                self.b.ins().select(is_zero, a, rest)
            }
        }
    }

    fn compare(&mut self, condition: Condition, a: mir::Value, b: mir::Value) -> Value {
        let is_truth = self.function.type_of(a) == Type::I1;
        let (a, b) = (self.get(a), self.get(b));
        let code = match condition {
            Condition::Eq => IntCC::Equal,
            Condition::Ne => IntCC::NotEqual,
            Condition::Ult => IntCC::UnsignedLessThan,
            Condition::Ule => IntCC::UnsignedLessThanOrEqual,
            Condition::Ugt => IntCC::UnsignedGreaterThan,
            Condition::Uge => IntCC::UnsignedGreaterThanOrEqual,
            // The only bit of a truth value is its sign.
            Condition::Slt if is_truth => IntCC::UnsignedGreaterThan,
            Condition::Sle if is_truth => IntCC::UnsignedGreaterThanOrEqual,
            Condition::Sgt if is_truth => IntCC::UnsignedLessThan,
            Condition::Sge if is_truth => IntCC::UnsignedLessThanOrEqual,
            Condition::Slt => IntCC::SignedLessThan,
            Condition::Sle => IntCC::SignedLessThanOrEqual,
            Condition::Sgt => IntCC::SignedGreaterThan,
            Condition::Sge => IntCC::SignedGreaterThanOrEqual,
        };
        self.b.ins().icmp(code, a, b)
    }

    fn cast(&mut self, op: Cast, from: Type, to: Type, a: mir::Value) -> Value {
        let a = self.get(a);
        match (op, from, to) {
            (Cast::Trunc, _, Type::I1) => {
                let byte = self.resize(a, I8);
                self.b.ins().band_imm_u(byte, 1)
            }
            (Cast::Sext, Type::I1, _) => {
                let wide = self.resize(a, type_of(to));
                let zero = self.constant(to, 0);
                self.b.ins().isub(zero, wide)
            }
            (Cast::Sext, ..) => self.b.ins().sextend(type_of(to), a),
            (Cast::Trunc | Cast::Zext, ..) => self.resize(a, type_of(to)),
        }
    }

    fn pack(&mut self, parts: &[Part], ty: Type) -> Value {
        let mut whole = None;
        for part in parts {
            let (width, offset) = (u32::from(part.width), i64::from(part.offset));
            let bits = self.function.type_of(part.value).bits();
            let value = self.get(part.value);
            let mut value = self.resize(value, type_of(ty));
            // The shift drops the bits above.
            let is_dropped = width + u32::from(part.offset) == type_of(ty).bits();
            if width < bits && !is_dropped {
                let mask = self.constant(ty, mir::low_bits(width));
                value = self.b.ins().band(value, mask);
            }
            if offset > 0 {
                value = self.b.ins().ishl_imm_u(value, offset);
            }
            whole = Some(match whole {
                Some(whole) => self.b.ins().bor(whole, value),
                None => value,
            });
        }
        whole.expect("a verified function packs something")
    }

    /// The signature of a runtime function, or of lookups.
    fn signature(&mut self, id: Option<RuntimeId>) -> clif::SigRef {
        if let Some(signature) = self.signatures.get(&id) {
            return *signature;
        }
        let mut signature = Signature::new(self.call_conv());
        let (params, result) = match id {
            Some(id) => {
                let runtime = &self.module.runtime[id.index()];
                (runtime.params.iter().map(|ty| type_of(*ty)).collect(), runtime.result.map(type_of))
            }
            None => (vec![I64, I64], Some(I64)),
        };
        signature.params = params.into_iter().map(AbiParam::new).collect();
        signature.returns = result.into_iter().map(AbiParam::new).collect();
        let made = self.b.import_signature(signature);
        self.signatures.insert(id, made);
        made
    }

    /// Looks up a key by calling the table's engine.
    fn take(&mut self, probe: mir::Value) -> Value {
        let Type::Probe(table) = self.function.type_of(probe) else { unreachable!("a probe of a verified function") };
        let words = self.words(probe).to_vec();
        let most = self.module.tables.iter().map(|table| table.words).max().unwrap_or(1);
        let slot = *self.key.get_or_insert_with(|| {
            self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * most, 3))
        });
        let flags = self.flags.of(Region::Stack.into());
        let key = self.b.ins().stack_addr(I64, slot, 0);
        for (i, word) in words.into_iter().enumerate() {
            self.b.ins().store(flags, word, key, 8 * i as i32);
        }
        let table = &self.module.tables[table.index()];
        let signature = self.signature(None);
        let handle = self.b.ins().iconst(I64, table.handle as i64);
        let lookup = self.b.ins().iconst(I64, table.lookup as i64);
        let call = self.b.ins().call_indirect(signature, lookup, &[handle, key]);
        self.b.inst_results(call)[0]
    }

    fn call(&mut self, callee: Callee, args: &[mir::Value]) -> Option<Value> {
        let args: Vec<Value> = args.iter().map(|arg| self.get(*arg)).collect();
        let call = match callee {
            Callee::Function(id) => {
                let callee = self.callee(id);
                self.b.ins().call(callee, &args)
            }
            Callee::Runtime(id) => {
                let signature = self.signature(Some(id));
                let address = self.b.ins().iconst(I64, self.module.runtime[id.index()].address as i64);
                self.b.ins().call_indirect(signature, address, &args)
            }
        };
        self.b.inst_results(call).first().copied()
    }
}
