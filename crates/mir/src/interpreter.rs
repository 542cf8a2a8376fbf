//! The interpreter: the definition of a module's semantics, and the oracle for passes and compiled code.
//!
//! Memory is a [`Storage`]: either [`Memory`], which checks all accesses and has no other threads, or that of a
//! process. Runtime functions and tables, which are outside of the module, are provided by a [`Host`]. Modules must
//! have passed the verifier.

use crate::compute;
use crate::function::{Function, Module};
use crate::memory::{Fault, Memory, Storage};
use crate::op::{Access, Address, Callee, Edge, Op, Terminator};
use crate::types::{Block, ByteOrder, FunctionId, Region, RuntimeId, TableId, Type, Value, low_bits};

/// Largest number of active functions.
pub const DEPTH_MAX: usize = 64;

/// The runtime functions and tables of a module that runs on a memory of type `M`.
pub trait Host<M = Memory> {
    /// Calls a runtime function and returns its result, or any value if it has none.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] ends the run.
    fn call(&mut self, memory: &mut M, id: RuntimeId, args: &[u64]) -> Result<u64, Fault>;

    /// Looks up a key and returns the address of the entry, or 0.
    ///
    /// # Errors
    ///
    /// Any [`Fault`] ends the run.
    fn lookup(&mut self, memory: &mut M, table: TableId, key: &[u64]) -> Result<u64, Fault>;
}

/// A host without functions and tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn call(&mut self, _: &mut Memory, id: RuntimeId, _: &[u64]) -> Result<u64, Fault> {
        Err(Fault::Host(format!("there is no runtime function {}", id.0)))
    }

    fn lookup(&mut self, _: &mut Memory, table: TableId, _: &[u64]) -> Result<u64, Fault> {
        Err(Fault::Host(format!("there is no table {}", table.0)))
    }
}

/// A value at run time.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Datum {
    Integer(u128),
    /// A lookup in progress: its table and key.
    Probe(TableId, Vec<u64>),
}

impl Datum {
    fn integer(&self) -> u128 {
        match self {
            Datum::Integer(number) => *number,
            Datum::Probe(..) => 0,
        }
    }
}

/// An active function.
struct Frame<'m> {
    function: &'m Function,
    /// By value; zero before their definition.
    values: Vec<Datum>,
    /// Addresses of stack slots, by slot.
    slots: Vec<u64>,
    /// Number of stack slots of the callers.
    below: usize,
    block: Block,
    /// Index of the next instruction in the block.
    next: usize,
}

/// Runs a function of a module and returns its result. `fuel` is the largest number of instructions that the run may
/// take.
///
/// # Errors
///
/// The [`Fault`] that stopped the run.
pub fn run<M: Storage>(
    module: &Module,
    function: FunctionId,
    args: &[u128],
    memory: &mut M,
    host: &mut dyn Host<M>,
    fuel: u64,
) -> Result<Option<u128>, Fault> {
    let mut fuel = fuel;
    let args = args.iter().map(|arg| Datum::Integer(*arg)).collect();
    let mut frames = vec![Frame::new(&module.functions[function.index()], args, memory)?];
    loop {
        let frame = frames.last_mut().expect("one until the first returns");
        let data = frame.function.block(frame.block);
        fuel = fuel.checked_sub(1).ok_or(Fault::Fuel)?;
        let Some(inst) = data.insts.get(frame.next) else {
            if let Some(result) = frame.terminator(&data.terminator)? {
                memory.pop(frame.below);
                frames.pop();
                let Some(caller) = frames.last_mut() else { return Ok(result) };
                let call = &caller.function.block(caller.block).insts[caller.next];
                caller.next += 1;
                if let (Some(value), Some(result)) = (call.result, result) {
                    caller.values[value.index()] = Datum::Integer(result);
                }
            }
            continue;
        };
        if let Op::Call(Callee::Function(id), args) = &inst.op {
            let args = args.iter().map(|arg| frame.values[arg.index()].clone()).collect();
            if frames.len() == DEPTH_MAX {
                return Err(Fault::Depth(DEPTH_MAX));
            }
            // The caller continues after the call when this function returns.
            frames.push(Frame::new(&module.functions[id.index()], args, memory)?);
            continue;
        }
        let ty = inst.result.map_or(Type::I64, |result| frame.function.type_of(result));
        let datum = frame.operation(&inst.op, ty, memory, host)?;
        if let Some(result) = inst.result {
            frame.values[result.index()] = datum;
        }
        frame.next += 1;
    }
}

impl<'m> Frame<'m> {
    fn new(function: &'m Function, args: Vec<Datum>, memory: &mut impl Storage) -> Result<Frame<'m>, Fault> {
        let below = memory.slots();
        let slots = function.slots.iter().map(|slot| memory.push(slot.bytes, slot.align)).collect::<Result<_, _>>()?;
        let mut values = vec![Datum::Integer(0); function.values.len()];
        for (param, arg) in function.params().iter().zip(args) {
            values[param.index()] = arg;
        }
        Ok(Frame { function, values, slots, below, block: function.entry(), next: 0 })
    }

    fn get(&self, value: Value) -> u128 {
        self.values[value.index()].integer()
    }

    fn word(&self, value: Value) -> u64 {
        self.get(value) as u64
    }

    fn address(&self, address: &Address) -> u64 {
        self.word(address.base).wrapping_add_signed(address.offset.into())
    }

    fn type_of(&self, value: Value) -> Type {
        self.function.type_of(value)
    }

    fn operation<M: Storage>(
        &mut self,
        op: &Op,
        ty: Type,
        memory: &mut M,
        host: &mut dyn Host<M>,
    ) -> Result<Datum, Fault> {
        Ok(Datum::Integer(match op {
            Op::Const(number) => *number,
            Op::Unary(op, a) => compute::unary(*op, ty, self.get(*a)),
            Op::Binary(op, a, b) => compute::binary(*op, ty, self.get(*a), self.get(*b)),
            Op::Compare(op, a, b) => compute::compare(*op, self.type_of(*a), self.get(*a), self.get(*b)).into(),
            Op::Select(condition, a, b) => self.get(if self.get(*condition) != 0 { *a } else { *b }),
            Op::Cast(op, a) => compute::cast(*op, self.type_of(*a), ty, self.get(*a)),
            Op::Pack(parts) => compute::pack(parts, |part| self.get(part.value)),
            Op::Hash(words) => compute::hash(words.map(|word| self.get(word))),
            Op::StackAddress(slot, offset) => self.slots[slot.index()].wrapping_add_signed((*offset).into()).into(),
            Op::Load(access, address) => {
                let bytes = access.bytes.into();
                ordered(access, memory.load(access.regions, self.address(address), bytes)?)
            }
            Op::Store(access, address, value) => {
                let number = self.get(*value) & low_bits(8 * u32::from(access.bytes));
                let bytes = access.bytes.into();
                memory.store(access.regions, self.address(address), bytes, ordered(access, number))?;
                0
            }
            Op::Atomic(op, regions, address, value) => {
                let operand = self.get(*value);
                let change = |old| compute::atomic(*op, ty, old, operand);
                memory.change(*regions, self.address(address), ty.bits() / 8, &change)?
            }
            Op::CompareExchange(regions, address, expected, new) => {
                let (expected, new) = (self.get(*expected), self.get(*new));
                let change = |old| if old == expected { new } else { old };
                memory.change(*regions, self.address(address), ty.bits() / 8, &change)?
            }
            Op::Release(regions, address, value) => {
                let (bytes, number) = (self.type_of(*value).bits() / 8, self.get(*value));
                memory.change(*regions, self.address(address), bytes, &|_| number)?;
                0
            }
            Op::Count(address, value) => {
                let operand = self.get(*value);
                let add = |old| compute::binary(crate::op::Binary::Add, Type::I64, old, operand);
                memory.change(Region::Counter.into(), self.address(address), 8, &add)?
            }
            Op::ProbeIssue(table, words) => {
                return Ok(Datum::Probe(*table, words.iter().map(|word| self.word(*word)).collect()));
            }
            Op::ProbeTake(probe) => match &self.values[probe.index()] {
                Datum::Probe(table, key) => host.lookup(memory, *table, key)?.into(),
                Datum::Integer(_) => 0,
            },
            Op::Call(Callee::Runtime(id), args) => {
                let args: Vec<u64> = args.iter().map(|arg| self.word(*arg)).collect();
                u128::from(host.call(memory, *id, &args)?) & ty.mask()
            }
            // `run` handles calls of functions.
            Op::Call(Callee::Function(_), _) | Op::Prefetch(..) | Op::Phase(_) => 0,
        }))
    }

    fn follow(&mut self, edge: &Edge) {
        // All arguments are read before a parameter is written (parallel assignment).
        let args: Vec<Datum> = edge.args.iter().map(|arg| self.values[arg.index()].clone()).collect();
        for (param, arg) in self.function.block(edge.block).params.iter().zip(args) {
            self.values[param.index()] = arg;
        }
        (self.block, self.next) = (edge.block, 0);
    }

    /// Executes a terminator; the function's result if it returns.
    fn terminator(&mut self, terminator: &Terminator) -> Result<Option<Option<u128>>, Fault> {
        match terminator {
            Terminator::Jump(edge) => self.follow(edge),
            Terminator::Branch(value, then, other) => {
                self.follow(if self.get(*value) != 0 { then } else { other });
            }
            Terminator::Switch(value, cases, default) => {
                let number = self.word(*value);
                let case = cases.iter().find(|(case, _)| *case == number);
                self.follow(case.map_or(default, |(_, edge)| edge));
            }
            Terminator::Return(value) => return Ok(Some(value.map(|value| self.get(value)))),
            Terminator::Unreachable => return Err(Fault::Unreachable(self.function.name.clone())),
        }
        Ok(None)
    }
}

/// Converts an integer between little endian and the access's byte order, in either direction.
fn ordered(access: &Access, number: u128) -> u128 {
    match access.order {
        ByteOrder::Little => number,
        ByteOrder::Big => number.swap_bytes() >> (128 - 8 * u32::from(access.bytes)),
    }
}
