//! Random well-formed modules that terminate, for property tests of passes and code generators.
//!
//! A module's last function takes the address of an *arena* and two numbers, and returns a number. The arena has
//! [`REGION_BYTES`] of each region except the stack, [`REGION_STRIDE`] apart, in the order of [`Region::ALL`].
//! Functions call [`RUNTIME`] and look up one table; [`Reference`] is a host that implements both for the interpreter.
//! The order of effects, sizes, byte orders, control flow and regions are random. Results do not depend on addresses,
//! so runs at different addresses can be compared.

use crate::function::{Builder, Function, Module, Runtime, Table};
use crate::interpreter::Host;
use crate::memory::{Fault, Memory, Storage};
use crate::op::{Access, Address, Atomic, Binary, Callee, Cast, Condition, Edge, Op, Part, Terminator, Unary};
use crate::types::{
    Block, ByteOrder, Effects, FunctionId, Region, Regions, RuntimeId, Slot, TableId, Type, Value, low_bits,
};
use random::Random;

/// Size in bytes of each region of an arena.
pub const REGION_BYTES: u64 = 64;
/// Distance in bytes from one region of an arena to the next.
pub const REGION_STRIDE: u64 = 128;
/// Size of the table's key in 64-bit words.
pub const KEY_WORDS: u32 = 2;
/// Names of the runtime functions.
pub const RUNTIME: [&str; 2] = ["mix", "touch"];

/// Offset of a region in an arena.
pub fn region_offset(region: Region) -> u64 {
    REGION_STRIDE * region as u64
}

/// Regions that an arena has.
pub fn arena_regions() -> impl Iterator<Item = Region> {
    Region::ALL.into_iter().filter(|region| *region != Region::Stack)
}

/// The result of the runtime function `mix`.
pub fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Offset in an arena of the entry for a key, if there is one.
pub fn found(key: [u64; KEY_WORDS as usize]) -> Option<u64> {
    let hash = mix(key[0], key[1]);
    (!hash.is_multiple_of(4)).then_some(region_offset(Region::Entry) + hash / 4 % 4 * 8)
}

/// A host that implements [`RUNTIME`] and the table's lookup on an arena.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// The arena's address.
    pub arena: u64,
}

impl Host for Reference {
    fn call(&mut self, memory: &mut Memory, id: RuntimeId, args: &[u64]) -> Result<u64, Fault> {
        match (id.0, args) {
            (0, &[a, b]) => Ok(mix(a, b)),
            // `touch` changes a word of the state.
            (1, &[a]) => {
                let at = self.arena + region_offset(Region::State) + a % 8 * 8;
                let old = memory.load(Region::State.into(), at, 8)?;
                memory.store(Region::State.into(), at, 8, mix(old as u64, a).into())?;
                Ok(old as u64)
            }
            _ => Err(Fault::Host(format!("no runtime function {} with {} arguments", id.0, args.len()))),
        }
    }

    fn lookup(&mut self, _: &mut Memory, _: TableId, key: &[u64]) -> Result<u64, Fault> {
        let key = key.try_into().map_err(|_| Fault::Host("a key of another length".to_string()))?;
        Ok(found(key).map_or(0, |offset| self.arena + offset))
    }
}

/// Generates a module. Its addresses are 0; the caller sets them.
pub fn generate(random: &mut Random) -> Module {
    let mut module = Module::default();
    module.add_table(Table { name: "lookups".to_string(), words: KEY_WORDS, handle: 0, lookup: 0 });
    let state = Regions::from(Region::State);
    let runtime = |name: &str, params: usize, effects| Runtime {
        name: name.to_string(),
        params: vec![Type::I64; params],
        result: Some(Type::I64),
        effects,
        address: 0,
    };
    module.add_runtime(runtime(RUNTIME[0], 2, Effects::PURE));
    module.add_runtime(runtime(RUNTIME[1], 1, Effects { reads: state, writes: state, ends: random.one_in(2) }));
    let functions = 1 + random.index(2);
    for number in 0..functions {
        let function = Function::new(format!("f{number}"), &[Type::I64; 3], Some(Type::I64));
        let function = Generator::new(random, function, number).function();
        module.functions.push(function);
    }
    module
}

struct Generator<'r> {
    random: &'r mut Random,
    function: Function,
    block: Block,
    arena: Value,
    /// Values in scope, by position of their type in [`Type::INTEGERS`].
    pools: [Vec<Value>; 6],
    /// Stack slots of 16 bytes, all initialised.
    slots: Vec<Slot>,
    /// Earlier accesses, so that the same memory is often accessed again.
    accesses: Vec<(Type, Access, Address)>,
    /// Number of functions that may be called.
    callees: usize,
    /// Number of operations that may still be generated.
    left: u32,
}

/// Size of a stack slot in bytes.
const SLOT_BYTES: u32 = 16;

impl<'r> Generator<'r> {
    fn new(random: &'r mut Random, function: Function, callees: usize) -> Generator<'r> {
        let params = function.params().to_vec();
        let block = function.entry();
        let left = 10 + random.below(70) as u32;
        let mut generator = Generator {
            random,
            function,
            block,
            arena: params[0],
            pools: Default::default(),
            slots: Vec::new(),
            accesses: Vec::new(),
            callees,
            left,
        };
        generator.pools[4].extend(&params[1..]);
        generator
    }

    fn build(&mut self) -> Builder<'_> {
        Builder::at(&mut self.function, self.block)
    }

    fn function(mut self) -> Function {
        for _ in 0..self.random.below(3) {
            let slot = self.function.add_slot(SLOT_BYTES, *self.random.pick(&[1, 8, 16]));
            self.slots.push(slot);
            for offset in [0, 8] {
                let value = self.value(Type::I64);
                let base = self.build().value(Type::I64, Op::StackAddress(slot, offset));
                let access = Access::little(Region::Stack, 8);
                self.build().effect(Op::Store(access, Address { base, offset: 0 }, value));
            }
        }
        self.body(0);
        // Combines many values, so that a wrong one rarely goes unnoticed.
        let mut value = self.value(Type::I64);
        for _ in 0..6 {
            let ty = self.ty();
            let other = self.value(ty);
            let mut build = self.build();
            let other = build.resize(other, Type::I64);
            let rotation = build.constant(Type::I64, 7);
            value = build.binary(Binary::Rotl, value, rotation);
            value = build.binary(Binary::Xor, value, other);
        }
        self.build().end(Terminator::Return(Some(value)));
        if self.random.one_in(8) {
            let block = self.function.add_block();
            let mut build = Builder::at(&mut self.function, block);
            let value = build.constant(Type::I64, 1);
            build.end(Terminator::Return(Some(value)));
        }
        self.function
    }

    fn ty(&mut self) -> Type {
        *self.random.pick(&Type::INTEGERS)
    }

    fn number(&mut self, ty: Type) -> u128 {
        let near = [0, 1, 2, 7, 8, 63, 0x7f, 0x80, 0xff, u128::MAX, u128::MAX - 1, 1 << 31, 1 << 63];
        let number = if self.random.one_in(3) { self.random.next_u128() } else { *self.random.pick(&near) };
        number & ty.mask()
    }

    /// A value of this type: one in scope, or a constant.
    fn value(&mut self, ty: Type) -> Value {
        let pool = &self.pools[Type::INTEGERS.iter().position(|other| *other == ty).expect("an integer")];
        if pool.is_empty() || self.random.one_in(10) {
            let number = self.number(ty);
            return self.define(ty, Op::Const(number));
        }
        // Prefers recent values.
        let recent = pool.len().saturating_sub(4);
        let i = if self.random.one_in(2) { recent } else { 0 };
        *self.random.pick(&pool[i..])
    }

    /// Defines a value that later operations may use.
    fn define(&mut self, ty: Type, op: Op) -> Value {
        let location = self.random.one_in(10).then(|| self.random.below(100) as u32);
        let mut build = self.build();
        build.location = location;
        let value = build.value(ty, op);
        self.pools[Type::INTEGERS.iter().position(|other| *other == ty).expect("an integer")].push(value);
        value
    }

    /// Runs `f` in a scope of its own: values defined in it cannot be used after it.
    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let (lens, accesses) = (self.pools.each_ref().map(Vec::len), self.accesses.len());
        let result = f(self);
        self.accesses.truncate(accesses);
        self.pools.iter_mut().zip(lens).for_each(|(pool, len)| pool.truncate(len));
        result
    }

    fn body(&mut self, depth: u32) {
        for _ in 0..2 + self.random.below(12) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            match self.random.below(20) {
                0..=8 => self.arithmetic(),
                9..=15 => self.memory(),
                16 if depth < 3 => self.branch(depth),
                17 if depth < 2 => self.repeat(depth),
                18 if depth < 3 => self.switch(depth),
                _ => self.call(),
            }
        }
    }

    fn arithmetic(&mut self) {
        let ty = self.ty();
        let (op, ty) = match self.random.below(9) {
            0..=2 => {
                let (mut op, _) = *self.random.pick(&Binary::ALL);
                let exists = match op {
                    Binary::And | Binary::Or | Binary::Xor => true,
                    Binary::MulHigh => ty == Type::I64,
                    Binary::Div | Binary::Rem => ty != Type::I1 && ty != Type::I128,
                    _ => ty != Type::I1,
                };
                if !exists {
                    op = Binary::Xor;
                }
                (Op::Binary(op, self.value(ty), self.value(ty)), ty)
            }
            3 => {
                let (mut op, _) = *self.random.pick(&Unary::ALL);
                if ty.bits() < 16 && (op == Unary::ByteSwap || ty == Type::I1) {
                    op = Unary::Not;
                }
                (Op::Unary(op, self.value(ty)), ty)
            }
            4 | 5 => {
                let (op, _) = *self.random.pick(&Condition::ALL);
                (Op::Compare(op, self.value(ty), self.value(ty)), Type::I1)
            }
            6 => (Op::Select(self.value(Type::I1), self.value(ty), self.value(ty)), ty),
            7 => {
                let from = self.ty();
                let op = match from.bits().cmp(&ty.bits()) {
                    std::cmp::Ordering::Equal => Op::Unary(Unary::Not, self.value(ty)),
                    std::cmp::Ordering::Greater => Op::Cast(Cast::Trunc, self.value(from)),
                    std::cmp::Ordering::Less if self.random.one_in(2) => Op::Cast(Cast::Sext, self.value(from)),
                    std::cmp::Ordering::Less => Op::Cast(Cast::Zext, self.value(from)),
                };
                (op, ty)
            }
            _ if self.random.one_in(3) => (Op::Hash([(); 4].map(|()| self.value(Type::I64))), Type::I64),
            _ => {
                let mut parts = Vec::new();
                let mut at = (self.random.below(4) as u32).min(ty.bits() - 1);
                while at < ty.bits() && parts.len() < 4 {
                    let from = self.ty();
                    let width = (1 + self.random.below(from.bits().into()) as u32).min(ty.bits() - at);
                    parts.push(Part { value: self.value(from), width: width as u8, offset: at as u8 });
                    at += width + self.random.below(3) as u32;
                }
                (Op::Pack(parts), ty)
            }
        };
        self.define(ty, op);
    }

    /// An address in a region with `bytes` bytes after it, and the regions that the access names. Aligned if `aligned`.
    fn address(&mut self, bytes: u64, aligned: bool, is_written: bool) -> (Address, Regions) {
        let offset_of = |random: &mut Random, room: u64| {
            let offset = random.below(room - bytes + 1);
            if aligned { offset / bytes * bytes } else { offset }
        };
        if !self.slots.is_empty() && bytes <= SLOT_BYTES.into() && self.random.one_in(3) && !aligned {
            let slot = *self.random.pick(&self.slots);
            let offset = offset_of(self.random, SLOT_BYTES.into()) as i32;
            let base = self.build().value(Type::I64, Op::StackAddress(slot, 0));
            return (Address { base, offset }, Region::Stack.into());
        }
        let regions: Vec<Region> = arena_regions()
            .filter(|region| !is_written || !Regions::CONSTANT.contains(*region))
            .filter(|region| *region != Region::Counter && *region != Region::Table)
            .collect();
        let region = *self.random.pick(&regions);
        let mut named = Regions::from(region);
        // Also names a region that is not accessed.
        if self.random.one_in(5) {
            named = named | *self.random.pick(&regions);
        }
        let arena = self.arena;
        let start = region_offset(region) as i64;
        if self.random.one_in(4) && bytes <= 8 && !aligned {
            // A variable offset.
            let value = self.value(Type::I64);
            let mut build = self.build();
            let mask = build.constant(Type::I64, 31);
            let variable = build.binary(Binary::And, value, mask);
            let base = build.binary(Binary::Add, arena, variable);
            return (Address { base, offset: start as i32 + self.random.below(24) as i32 }, named);
        }
        let offset = offset_of(self.random, REGION_BYTES) as i32 + start as i32;
        if self.random.one_in(3) {
            let mut build = self.build();
            let more = build.constant(Type::I64, offset as u64);
            let base = build.binary(Binary::Add, arena, more);
            return (Address { base, offset: 0 }, named);
        }
        (Address { base: arena, offset }, named)
    }

    /// The same address or one near it in the same region.
    fn beside(&mut self, address: Address, bytes: u8) -> Address {
        if address.base != self.arena || self.random.one_in(2) {
            return address;
        }
        let (stride, last) = (REGION_STRIDE as i32, REGION_BYTES as i32 - i32::from(bytes));
        let within = (address.offset % stride + self.random.below(7) as i32 - 3).clamp(0, last);
        Address { offset: address.offset / stride * stride + within, ..address }
    }

    fn access(&mut self, regions: Regions, bytes: u8) -> Access {
        let order = if self.random.one_in(2) { ByteOrder::Big } else { ByteOrder::Little };
        Access { regions, bytes, order }
    }

    fn memory(&mut self) {
        let ty = *self.random.pick(&Type::INTEGERS[1..]);
        let bytes = match ty {
            Type::I128 if self.random.one_in(2) => 16,
            _ => 1 + self.random.below(u64::from(ty.bits() / 8).min(8)) as u8,
        };
        match self.random.below(11) {
            0..=4 => {
                let again = !self.accesses.is_empty() && self.random.one_in(2);
                let (ty, access, address) = match again {
                    true => *self.random.pick(&self.accesses),
                    false => {
                        let (address, regions) = self.address(bytes.into(), false, false);
                        (ty, self.access(regions, bytes), address)
                    }
                };
                self.accesses.push((ty, access, address));
                self.define(ty, Op::Load(access, address));
            }
            5..=7 => {
                let writable: Vec<(Type, Access, Address)> =
                    self.accesses.iter().copied().filter(is_writable).collect();
                let (ty, access, address) = match !writable.is_empty() && self.random.one_in(2) {
                    true => {
                        // The same bytes, or fewer of them.
                        let (ty, access, address) = *self.random.pick(&writable);
                        let fewer = 1 + self.random.below(access.bytes.into()) as u8;
                        let bytes = if self.random.one_in(3) && fewer <= 8 { fewer } else { access.bytes };
                        (ty, Access { bytes, ..access }, self.beside(address, bytes))
                    }
                    false => {
                        let (address, regions) = self.address(bytes.into(), false, true);
                        (ty, self.access(regions, bytes), address)
                    }
                };
                self.accesses.push((ty, access, address));
                let value = self.value(ty);
                self.build().effect(Op::Store(access, address, value));
            }
            8 => {
                let ty = *self.random.pick(&Type::INTEGERS[1..5]);
                let (address, regions) = self.address(u64::from(ty.bits()) / 8, true, true);
                if self.random.one_in(4) {
                    let value = self.value(ty);
                    self.build().effect(Op::Release(regions, address, value));
                    return;
                }
                let op = match self.random.one_in(3) {
                    true => Op::CompareExchange(regions, address, self.value(ty), self.value(ty)),
                    false => {
                        let (op, _) = *self.random.pick(&Atomic::ALL);
                        Op::Atomic(op, regions, address, self.value(ty))
                    }
                };
                self.define(ty, op);
            }
            9 => {
                let offset = region_offset(Region::Counter) as i32 + 8 * self.random.below(8) as i32;
                let (base, value) = (self.arena, self.value(Type::I64));
                self.build().effect(Op::Count(Address { base, offset }, value));
            }
            _ => {
                let (address, _) = self.address(1, false, false);
                let write = self.random.one_in(2);
                self.build().effect(Op::Prefetch(address, write));
            }
        }
    }

    fn call(&mut self) {
        match self.random.below(4) {
            0 => {
                let op = Op::Call(Callee::Runtime(RuntimeId(0)), vec![self.value(Type::I64), self.value(Type::I64)]);
                self.define(Type::I64, op);
            }
            1 => {
                let op = Op::Call(Callee::Runtime(RuntimeId(1)), vec![self.value(Type::I64)]);
                self.define(Type::I64, op);
            }
            2 if self.callees > 0 => {
                let id = FunctionId(self.random.index(self.callees) as u32);
                let args = vec![self.arena, self.value(Type::I64), self.value(Type::I64)];
                self.define(Type::I64, Op::Call(Callee::Function(id), args));
            }
            _ => self.lookup(),
        }
    }

    /// A lookup, and a load from the entry if there is one.
    fn lookup(&mut self) {
        let words = vec![self.value(Type::I64), self.value(Type::I64)];
        let table = TableId(0);
        let probe = self.build().value(Type::Probe(table), Op::ProbeIssue(table, words));
        if self.random.one_in(3) {
            let number = self.random.below(4) as u32;
            self.build().effect(Op::Phase(number));
        }
        let entry = self.build().value(Type::I64, Op::ProbeTake(probe));
        let [hit, done] = [(); 2].map(|()| self.function.add_block());
        let mut build = self.build();
        let null = build.constant(Type::I64, 0);
        let is_hit = build.compare(Condition::Ne, entry, null);
        build.end(Terminator::Branch(is_hit, Edge::new(hit, vec![]), Edge::new(done, vec![null])));
        let loaded = self.function.add_param(done, Type::I64);
        self.block = hit;
        let access = Access::little(Region::Entry, 8);
        let parameter = self.build().value(Type::I64, Op::Load(access, Address { base: entry, offset: 8 }));
        self.build().jump(done, vec![parameter]);
        self.block = done;
        self.pools[4].push(loaded);
    }

    fn weighted(&mut self, block: Block) -> Edge {
        let weight = if self.random.one_in(3) { self.random.below(10) as u32 } else { 1 };
        Edge { block, args: Vec::new(), weight }
    }

    /// Parameters for a block where paths join, and their types.
    fn join(&mut self) -> (Block, Vec<Type>) {
        let types: Vec<Type> = (0..self.random.below(3)).map(|_| self.ty()).collect();
        let block = self.function.add_block();
        for ty in &types {
            self.function.add_param(block, *ty);
        }
        (block, types)
    }

    /// Generates the code of a path and jumps to the join; occasionally returns instead.
    fn path(&mut self, start: Block, join: Block, types: &[Type], depth: u32) {
        self.scoped(|g| {
            g.block = start;
            g.body(depth + 1);
            if g.random.one_in(8) {
                let value = g.value(Type::I64);
                g.build().end(Terminator::Return(Some(value)));
                return;
            }
            let args = types.iter().map(|ty| g.value(*ty)).collect();
            g.build().jump(join, args);
        });
    }

    fn go_on(&mut self, join: Block, types: &[Type]) {
        self.block = join;
        for (ty, param) in types.iter().zip(self.function.block(join).params.clone()) {
            self.pools[Type::INTEGERS.iter().position(|other| other == ty).expect("an integer")].push(param);
        }
    }

    fn branch(&mut self, depth: u32) {
        let condition = self.value(Type::I1);
        let (join, types) = self.join();
        let then = self.function.add_block();
        let edge = self.weighted(then);
        // With or without a separate block for the other case.
        let other = match self.random.one_in(2) {
            true => {
                let block = self.function.add_block();
                let other = self.weighted(block);
                self.build().end(Terminator::Branch(condition, edge, other));
                Some(block)
            }
            false => {
                let args = types.iter().map(|ty| self.value(*ty)).collect();
                let other = Edge { args, ..self.weighted(join) };
                self.build().end(Terminator::Branch(condition, edge, other));
                None
            }
        };
        self.path(then, join, &types, depth);
        if let Some(other) = other {
            self.path(other, join, &types, depth);
        }
        self.go_on(join, &types);
    }

    fn switch(&mut self, depth: u32) {
        let ty = *self.random.pick(&Type::INTEGERS[..5]);
        let value = self.value(ty);
        let (join, types) = self.join();
        let mut cases: Vec<(u64, Edge)> = Vec::new();
        for _ in 0..self.random.below(4) {
            let number = self.number(ty) as u64 & low_bits(6) as u64;
            if cases.iter().all(|(other, _)| *other != number) {
                let block = self.function.add_block();
                cases.push((number, self.weighted(block)));
            }
        }
        let block = self.function.add_block();
        let default = self.weighted(block);
        let starts: Vec<Block> = cases.iter().map(|(_, edge)| edge.block).chain([block]).collect();
        self.build().end(Terminator::Switch(value, cases, default));
        for start in starts {
            self.path(start, join, &types, depth);
        }
        self.go_on(join, &types);
    }

    /// A loop that ends after a few iterations.
    fn repeat(&mut self, depth: u32) {
        let (head, types) = self.join();
        let counter = self.function.add_param(head, Type::I8);
        let args: Vec<Value> = types.iter().map(|ty| self.value(*ty)).collect();
        let rounds = self.random.below(6);
        let mut build = self.build();
        let rounds = build.constant(Type::I8, rounds);
        build.jump(head, args.into_iter().chain([rounds]).collect());
        self.go_on(head, &types);
        let [inside, behind] = [(); 2].map(|()| self.function.add_block());
        let mut build = self.build();
        let zero = build.constant(Type::I8, 0);
        let is_over = build.compare(Condition::Eq, counter, zero);
        build.end(Terminator::Branch(is_over, Edge::new(behind, vec![]), Edge::new(inside, vec![])));
        self.scoped(|g| {
            g.block = inside;
            g.body(depth + 1);
            let mut args: Vec<Value> = types.iter().map(|ty| g.value(*ty)).collect();
            let mut build = g.build();
            let one = build.constant(Type::I8, 1);
            args.push(build.binary(Binary::Sub, counter, one));
            build.jump(head, args);
        });
        self.block = behind;
    }
}

fn is_writable((_, access, _): &(Type, Access, Address)) -> bool {
    !access.regions.meets(Regions::CONSTANT)
}
