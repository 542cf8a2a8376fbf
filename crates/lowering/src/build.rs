//! The function under construction, and helpers that append instructions to it.
//!
//! Numbers are `i64`, or `i128` if they have 65 to 128 bits; the bits above their width are zero.

use crate::emission::Deparser;
use crate::error::Error;
use crate::header::HeaderLayout;
use crate::locks::Locks;
use crate::runtime::Calls;
use crate::site::Site;
use crate::ssa::{Place, Ssa, Var};
use abi::Bindings;
use ir::layout::RecordLayout;
use ir::{EntryPoint, Program};
use mir::{
    Access, Address, Binary, Block, Builder, Callee, Cast, Condition, Edge, Function, Op, Part, Regions, Slot,
    Terminator, Type, Value,
};
use std::collections::HashMap;

/// Variables of the current packet besides its slots.
pub(crate) struct Vars {
    /// Address of the frame's first byte.
    pub data: Var,
    /// Length of the frame in bytes.
    pub len: Var,
    /// Number of bytes of the frame that have been consumed.
    pub cursor: Var,
    /// Maximum length of the outgoing frame in bytes; all ones if it is not truncated.
    pub truncate: Var,
    /// Number of bytes that the deparser has emitted into the buffer.
    pub emitted: Var,
    /// Steps charged in loops so far.
    pub spent: Var,
}

/// An address: `base` plus `offset` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub base: Value,
    pub offset: u32,
}

impl At {
    pub fn plus(self, bytes: u32) -> At {
        At { offset: self.offset + bytes, ..self }
    }
}

/// What the entry points of a program share.
pub(crate) struct Shared<'a> {
    pub program: &'a Program,
    pub bindings: &'a Bindings,
    pub headers: &'a [HeaderLayout],
    pub calls: &'a mut Calls,
    pub sites: &'a mut Vec<Site>,
}

/// An entry point that is being lowered.
pub(crate) struct Lowering<'a> {
    pub program: &'a Program,
    pub bindings: &'a Bindings,
    pub headers: &'a [HeaderLayout],
    pub entry: &'a EntryPoint,
    pub calls: &'a mut Calls,
    pub sites: &'a mut Vec<Site>,
    pub record: RecordLayout,
    /// Whether slots are kept in memory, not in variables.
    pub in_memory: bool,
    pub function: Function,
    pub ssa: Ssa,
    pub vars: Vars,
    /// By slot; `None` for slots that the entry point does not touch.
    pub places: Vec<Option<Place>>,
    /// The block to which instructions are appended.
    pub block: Block,
    /// Constants that the current block already has.
    pub constants: HashMap<(Type, u128), Value>,
    /// The worker's context, the batch's time in µs, and the descriptor's address. They dominate all blocks of a
    /// packet.
    pub ctx: Value,
    pub now_us: Value,
    pub packet: Value,
    /// Length of the frame in bytes at the entry point, for counters.
    pub entry_len: Value,
    /// The block that control reaches once a packet's fate is written.
    pub next_packet: Block,
    /// The current operation: its stage's position, its block, and its index in the block.
    pub current: (usize, ir::BlockId, usize),
    /// Source position of the current instruction, for messages.
    pub span: base::Span,
    /// The stack slot that holds the slots kept in memory.
    pub frame: Slot,
    /// Stack buffers, by [`Buffer`].
    pub buffers: [Option<Slot>; 5],
    pub locks: Locks,
    pub deparser: Deparser,
}

/// An index into [`Lowering::buffers`].
#[derive(Clone, Copy)]
pub(crate) enum Buffer {
    /// Arguments of a call: keys, hashed data, messages.
    Call = 0,
    /// Operands and result of wide operations.
    Left = 1,
    Right = 2,
    Result = 3,
    /// Emitted headers.
    Emitted = 4,
}

impl Lowering<'_> {
    fn builder(&mut self) -> Builder<'_> {
        Builder::at(&mut self.function, self.block)
    }

    /// Appends an instruction with a result.
    pub fn value(&mut self, ty: Type, op: Op) -> Value {
        self.builder().value(ty, op)
    }

    /// Appends an instruction without a result.
    pub fn effect(&mut self, op: Op) {
        self.builder().effect(op);
    }

    pub fn type_of(&self, value: Value) -> Type {
        self.function.type_of(value)
    }

    pub fn constant(&mut self, ty: Type, number: u128) -> Value {
        let number = number & ty.mask();
        if let Some(value) = self.constants.get(&(ty, number)) {
            return *value;
        }
        let value = self.value(ty, Op::Const(number));
        self.constants.insert((ty, number), value);
        value
    }

    pub fn word(&mut self, number: u64) -> Value {
        self.constant(Type::I64, number.into())
    }

    /// A constant of the same type as `other`.
    fn like(&mut self, other: Value, number: u128) -> Value {
        let ty = self.type_of(other);
        self.constant(ty, number)
    }

    pub fn bin(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let ty = self.type_of(a);
        self.value(ty, Op::Binary(op, a, b))
    }

    pub fn bin_imm(&mut self, op: Binary, a: Value, b: u128) -> Value {
        if b == 0 && !matches!(op, Binary::And | Binary::Mul) {
            return a;
        }
        let b = self.like(a, b);
        self.bin(op, a, b)
    }

    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.bin(Binary::Add, a, b)
    }

    pub fn add_imm(&mut self, a: Value, b: u64) -> Value {
        self.bin_imm(Binary::Add, a, b.into())
    }

    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        self.bin(Binary::Sub, a, b)
    }

    /// `a << by`, where `by` is less than the type's width.
    pub fn shl(&mut self, a: Value, by: u32) -> Value {
        self.bin_imm(Binary::Shl, a, by.into())
    }

    /// `a >> by` (logical), where `by` is less than the type's width.
    pub fn shr(&mut self, a: Value, by: u32) -> Value {
        self.bin_imm(Binary::Shr, a, by.into())
    }

    pub fn compare(&mut self, condition: Condition, a: Value, b: Value) -> Value {
        self.value(Type::I1, Op::Compare(condition, a, b))
    }

    pub fn compare_imm(&mut self, condition: Condition, a: Value, b: u64) -> Value {
        let b = self.like(a, b.into());
        self.compare(condition, a, b)
    }

    /// A truth value as a word: 0 or 1.
    pub fn flag(&mut self, truth: Value) -> Value {
        self.value(Type::I64, Op::Cast(Cast::Zext, truth))
    }

    /// Whether a word is not zero.
    pub fn truth(&mut self, word: Value) -> Value {
        self.compare_imm(Condition::Ne, word, 0)
    }

    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        let ty = self.type_of(a);
        self.value(ty, Op::Select(condition, a, b))
    }

    /// The smaller of two unsigned words.
    pub fn min(&mut self, a: Value, b: Value) -> Value {
        let less = self.compare(Condition::Ult, a, b);
        self.select(less, a, b)
    }

    /// A value zero-extended or truncated.
    pub fn resize(&mut self, value: Value, ty: Type) -> Value {
        self.builder().resize(value, ty)
    }

    /// Combines parts into a value of type `ty`; without parts it is zero.
    pub fn pack(&mut self, ty: Type, parts: Vec<Part>) -> Value {
        match parts.is_empty() {
            true => self.constant(ty, 0),
            false => self.value(ty, Op::Pack(parts)),
        }
    }

    /// Loads an integer of `access.bytes` bytes, zero-extended to a word (an `i128` for 16 bytes).
    pub fn load(&mut self, access: Access, at: At) -> Value {
        let ty = if access.bytes == 16 { Type::I128 } else { Type::I64 };
        self.value(ty, Op::Load(access, address(at)))
    }

    pub fn load_le(&mut self, regions: impl Into<Regions>, bytes: u8, base: Value, offset: u32) -> Value {
        self.load(Access::little(regions, bytes), At { base, offset })
    }

    pub fn store(&mut self, access: Access, at: At, value: Value) {
        self.effect(Op::Store(access, address(at), value));
    }

    pub fn store_le(&mut self, regions: impl Into<Regions>, bytes: u8, base: Value, offset: u32, value: Value) {
        self.store(Access::little(regions, bytes), At { base, offset }, value);
    }

    /// Loads at a signed byte offset from an entry's address.
    pub fn load_at(&mut self, regions: impl Into<Regions>, bytes: u8, base: Value, offset: i32) -> Value {
        self.value(Type::I64, Op::Load(Access::little(regions, bytes), Address { base, offset }))
    }

    /// The address of a buffer of at least `bytes` bytes. The contents are valid only until the buffer's next use.
    pub fn buffer(&mut self, which: Buffer, bytes: u32) -> Value {
        let slot = match self.buffers[which as usize] {
            Some(slot) => slot,
            None => {
                let slot = self.function.add_slot(8, 16);
                *self.buffers[which as usize].insert(slot)
            }
        };
        let size = &mut self.function.slots[slot.index()].bytes;
        *size = (*size).max(bytes.next_multiple_of(8));
        self.value(Type::I64, Op::StackAddress(slot, 0))
    }

    /// Calls a function of the runtime; returns its result if it has one.
    pub fn call(&mut self, id: mir::RuntimeId, args: Vec<Value>) -> Option<Value> {
        let call = Op::Call(Callee::Runtime(id), args);
        match self.calls.result(id) {
            Some(ty) => Some(self.value(ty, call)),
            None => {
                self.effect(call);
                None
            }
        }
    }
}

fn address(at: At) -> Address {
    Address { base: at.base, offset: at.offset as i32 }
}

// Control flow.
impl Lowering<'_> {
    pub fn new_block(&mut self) -> Block {
        self.function.add_block()
    }

    /// Continues in a block whose predecessors are all known.
    pub fn switch_to(&mut self, block: Block) {
        self.ssa.seal(block);
        self.switch_to_open(block);
    }

    /// Continues in a block that will get further predecessors.
    pub fn switch_to_open(&mut self, block: Block) {
        self.block = block;
        self.constants.clear();
    }

    pub fn end(&mut self, terminator: Terminator) {
        for edge in terminator.edges() {
            self.ssa.edge(self.block, edge.block);
        }
        self.function.block_mut(self.block).terminator = terminator;
    }

    pub fn jump(&mut self, to: Block, args: Vec<Value>) {
        self.end(Terminator::Jump(Edge::new(to, args)));
    }

    pub fn branch(&mut self, truth: Value, then: Block, other: Block) {
        self.end(Terminator::Branch(truth, Edge::new(then, Vec::new()), Edge::new(other, Vec::new())));
    }

    /// Branches to `body`, which ends its own block, if a condition holds, and continues otherwise. The branch to
    /// `body` is marked cold.
    pub fn branch_cold_if(&mut self, truth: Value, body: impl FnOnce(&mut Self)) {
        let (leave, stay) = (self.new_block(), self.new_block());
        self.end(Terminator::Branch(truth, Edge::cold(leave), Edge::new(stay, Vec::new())));
        self.switch_to(leave);
        body(self);
        self.switch_to(stay);
    }

    /// Runs `body` if a condition holds.
    pub fn if_true(&mut self, truth: Value, body: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let (then, done) = (self.new_block(), self.new_block());
        self.branch(truth, then, done);
        self.switch_to(then);
        body(self)?;
        self.jump(done, Vec::new());
        self.switch_to(done);
        Ok(())
    }

    /// The values that `body` returns if a condition holds, else `others`.
    pub fn values_if(
        &mut self,
        truth: Value,
        others: Vec<Value>,
        body: impl FnOnce(&mut Self) -> Result<Vec<Value>, Error>,
    ) -> Result<Vec<Value>, Error> {
        let (then, done) = (self.new_block(), self.new_block());
        let types: Vec<Type> = others.iter().map(|value| self.type_of(*value)).collect();
        let params = types.into_iter().map(|ty| self.function.add_param(done, ty)).collect();
        self.end(Terminator::Branch(truth, Edge::new(then, Vec::new()), Edge::new(done, others)));
        self.switch_to(then);
        let values = body(self)?;
        self.jump(done, values);
        self.switch_to(done);
        Ok(params)
    }

    /// A loop: `for (i = from; i < to; i += step) body(i)`.
    pub fn count_up(&mut self, from: Value, to: Value, step: u64, body: impl FnOnce(&mut Self, Value)) {
        let (head, inside, done) = (self.new_block(), self.new_block(), self.new_block());
        let i = self.function.add_param(head, Type::I64);
        self.jump(head, vec![from]);
        self.switch_to_open(head);
        let more = self.compare(Condition::Ult, i, to);
        self.branch(more, inside, done);
        self.switch_to(inside);
        body(self, i);
        let next = self.add_imm(i, step);
        self.jump(head, vec![next]);
        self.ssa.seal(head);
        self.switch_to(done);
    }

    pub fn read_var(&mut self, var: Var) -> Value {
        self.ssa.read(&mut self.function, self.block, var)
    }

    pub fn write_var(&mut self, var: Var, value: Value) {
        self.ssa.write(self.block, var, value);
    }
}

/// A part of an [`Op::Pack`]: the low `width` bits of a value, placed at bit `offset`.
pub(crate) fn part(value: Value, width: u32, offset: u32) -> Part {
    Part { value, width: width as u8, offset: offset as u8 }
}
