//! The interpreter of verified programs, and the oracle for compiled code.
//!
//! Addresses are virtual: their upper four bits select the memory. Every access is checked, so that an error of the
//! verifier ends the run with [`Abort::Fault`].

use crate::alu;
use crate::context::Field;
use crate::helper::Helper;
use crate::instruction::{Atomic, Constant, FRAME_POINTER, Op, Operand, REGISTERS, Size};
use crate::run::{self, Abort, Frame, Verdict, Window, cost, errno};
use crate::verified::Verified;
use crate::verifier::{DEPTH_MAX, Role, STACK_BYTES};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const MEMORY_SHIFT: u32 = 60;
const CONTEXT: u64 = 1;
const STACK: u64 = 2;
const PACKET: u64 = 3;
const VALUE: u64 = 4;
/// The number of address bits for the offset in a map's values.
const VALUE_BITS: u32 = 40;
/// The distance between the stacks of two functions, larger than a stack, so that an overflow faults.
const STACK_STRIDE: u64 = 1 << 20;

/// An access that the verifier should have excluded.
struct Fault;

/// A resolved address.
enum Place<'p> {
    Stack(usize),
    Packet(usize),
    Value { word: &'p AtomicU64, shift: u32 },
}

struct Interpreter<'p, 'f, 'b> {
    program: &'p Verified,
    frame: &'f mut Frame<'b>,
    window: Window,
    registers: [u64; REGISTERS],
    stack: [u8; DEPTH_MAX * STACK_BYTES as usize],
    /// The call stack: return addresses and the callers' `r6` to `r9`.
    callers: Vec<(usize, [u64; 4])>,
    redirect: Option<u32>,
    budget: i64,
    port: u32,
    argument: u64,
    now_ns: u64,
}

/// Runs a program on a packet. `budget` is the number of instructions allowed, and afterwards the number left.
pub(crate) fn run(
    program: &Verified,
    frame: &mut Frame<'_>,
    port: u32,
    argument: u64,
    now_ns: u64,
    budget: &mut i64,
) -> Verdict {
    let Some(window) = Window::of(frame) else { return Verdict::Aborted(Abort::Frame) };
    let mut interpreter = Interpreter {
        program,
        frame,
        window,
        registers: [0; REGISTERS],
        stack: [0; DEPTH_MAX * STACK_BYTES as usize],
        callers: Vec::new(),
        redirect: None,
        budget: *budget,
        port,
        argument,
        now_ns,
    };
    interpreter.registers[1] = CONTEXT << MEMORY_SHIFT;
    interpreter.registers[FRAME_POINTER] = frame_pointer(0);
    let verdict = interpreter.run().unwrap_or(Verdict::Aborted(Abort::Fault));
    let window = interpreter.window;
    *budget = interpreter.budget;
    (frame.offset, frame.len) = (window.offset, window.len);
    verdict
}

fn frame_pointer(depth: usize) -> u64 {
    (STACK << MEMORY_SHIFT) | (STACK_STRIDE * (depth as u64 + 1))
}

impl<'p> Interpreter<'p, '_, '_> {
    fn get(&self, register: u8) -> u64 {
        self.registers[register as usize]
    }

    fn set(&mut self, register: u8, value: u64) {
        self.registers[register as usize] = value;
    }

    fn operand(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Register(register) => self.get(register),
            Operand::Immediate(i) => i as i64 as u64,
        }
    }

    fn run(&mut self) -> Result<Verdict, Fault> {
        let mut number = 0;
        loop {
            let op = self.program.ops.get(number).ok_or(Fault)?;
            let mut next = number + 1;
            match *op {
                Op::Alu { wide, alu, dst, src } => {
                    self.set(dst, alu::compute(alu, wide, self.get(dst), self.operand(src)));
                }
                Op::Neg { wide, dst } => self.set(dst, alu::negate(wide, self.get(dst))),
                Op::Swap { big, bits, dst } => self.set(dst, alu::swap(big, bits, self.get(dst))),
                Op::LoadImmediate { dst, constant } => {
                    next += 1;
                    self.set(dst, constant_of(constant));
                }
                Op::Second => return Err(Fault),
                Op::Load { size, dst, base, off } => {
                    let address = self.get(base).wrapping_add(off as i64 as u64);
                    let loaded = match self.program.roles[number] {
                        Role::Context(_) => self.load_context(address, size)?,
                        _ => self.load(address, size)?,
                    };
                    self.set(dst, loaded);
                }
                Op::Store { size, base, off, src } => {
                    let address = self.get(base).wrapping_add(off as i64 as u64);
                    self.store(address, size, self.operand(src))?;
                }
                Op::Atomic { atomic, wide, fetch, base, off, src } => {
                    let address = self.get(base).wrapping_add(off as i64 as u64);
                    let old = self.atomic(atomic, wide, address, self.get(src))?;
                    match (atomic, fetch) {
                        (Atomic::CompareExchange, _) => self.set(0, old),
                        (_, true) => self.set(src, old),
                        _ => {}
                    }
                }
                Op::Jump { to } => next = to,
                Op::Branch { wide, condition, dst, src, to } => {
                    if alu::holds(condition, wide, self.get(dst), self.operand(src)) {
                        next = to;
                    }
                }
                Op::Call { helper } => {
                    let helper = Helper::of(helper).ok_or(Fault)?;
                    self.budget -= self.cost(helper)?;
                    if self.budget < 0 {
                        return Ok(Verdict::Aborted(Abort::Budget));
                    }
                    let result = self.call(number, helper)?;
                    self.set(0, result);
                }
                Op::CallLocal { to } => {
                    if self.callers.len() + 1 == DEPTH_MAX {
                        return Err(Fault);
                    }
                    // A call is charged for the whole function.
                    self.budget -= self.program.len_of(to);
                    if self.budget < 0 {
                        return Ok(Verdict::Aborted(Abort::Budget));
                    }
                    let saved = [self.get(6), self.get(7), self.get(8), self.get(9)];
                    self.callers.push((next, saved));
                    self.registers[FRAME_POINTER] = frame_pointer(self.callers.len());
                    number = to;
                    continue;
                }
                Op::Exit => {
                    let Some((back, saved)) = self.callers.pop() else {
                        return Ok(Verdict::of(self.get(0), self.redirect));
                    };
                    self.registers[6..10].copy_from_slice(&saved);
                    self.registers[FRAME_POINTER] = frame_pointer(self.callers.len());
                    number = back;
                    continue;
                }
            }
            // A backward jump is charged for the iteration that it ends.
            if next <= number {
                self.budget -= (number - next + 1) as i64;
                if self.budget < 0 {
                    return Ok(Verdict::Aborted(Abort::Budget));
                }
            }
            number = next;
        }
    }

    fn load_context(&self, address: u64, size: Size) -> Result<u64, Fault> {
        let field = Field::at((address.wrapping_sub(CONTEXT << MEMORY_SHIFT)) as i64, size.bytes()).ok_or(Fault)?;
        let at = |offset: usize| PACKET << MEMORY_SHIFT | offset as u64;
        Ok(match field {
            Field::Data | Field::DataMeta => at(self.window.offset),
            Field::DataEnd => at(self.window.offset + self.window.len),
            Field::IngressPort => self.port.into(),
            Field::Queue | Field::EgressPort => 0,
            Field::Argument => self.argument,
        })
    }

    /// Resolves an address for an access of `size` bytes.
    fn place(&self, address: u64, size: usize) -> Result<Place<'p>, Fault> {
        let offset = address & ((1 << MEMORY_SHIFT) - 1);
        match address >> MEMORY_SHIFT {
            STACK => {
                let depth = (offset + STACK_BYTES as u64) / STACK_STRIDE;
                let bottom = (depth * STACK_STRIDE).checked_sub(STACK_BYTES as u64).ok_or(Fault)?;
                let within = offset.checked_sub(bottom).ok_or(Fault)? as usize;
                let active = depth as usize <= self.callers.len() + 1;
                match active && within + size <= STACK_BYTES as usize {
                    true => Ok(Place::Stack((depth as usize - 1) * STACK_BYTES as usize + within)),
                    false => Err(Fault),
                }
            }
            PACKET => {
                let (start, end) = (self.window.offset, self.window.offset + self.window.len);
                let offset = offset as usize;
                match offset >= start && offset.checked_add(size).is_some_and(|last| last <= end) {
                    true => Ok(Place::Packet(offset)),
                    false => Err(Fault),
                }
            }
            VALUE => {
                let map = self.program.maps.get((offset >> VALUE_BITS) as usize).ok_or(Fault)?;
                let offset = (offset & ((1 << VALUE_BITS) - 1)) as usize;
                let word = map.value_words().get(offset / 8).ok_or(Fault)?;
                let in_value = offset % map.value_stride() + size <= map.spec().value_size as usize;
                match in_value && offset.is_multiple_of(size) {
                    true => Ok(Place::Value { word, shift: 8 * (offset as u32 % 8) }),
                    false => Err(Fault),
                }
            }
            _ => Err(Fault),
        }
    }

    fn load(&self, address: u64, size: Size) -> Result<u64, Fault> {
        let bytes = size.bytes();
        let of = |memory: &[u8]| {
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&memory[..bytes]);
            u64::from_le_bytes(value)
        };
        Ok(match self.place(address, bytes)? {
            Place::Stack(at) => of(&self.stack[at..]),
            Place::Packet(at) => of(&self.frame.buffer[at..]),
            Place::Value { word, shift } => word.load(SeqCst) >> shift & mask(bytes),
        })
    }

    fn store(&mut self, address: u64, size: Size, value: u64) -> Result<(), Fault> {
        let bytes = size.bytes();
        let place = self.place(address, bytes)?;
        self.change(place, bytes, |_| value);
        Ok(())
    }

    fn atomic(&mut self, atomic: Atomic, wide: bool, address: u64, operand: u64) -> Result<u64, Fault> {
        let bytes = if wide { 8 } else { 4 };
        let (place, expected) = (self.place(address, bytes)?, self.get(0) & mask(bytes));
        Ok(self.change(place, bytes, |old| match atomic {
            Atomic::Add => old.wrapping_add(operand),
            Atomic::Or => old | operand,
            Atomic::And => old & operand,
            Atomic::Xor => old ^ operand,
            Atomic::Exchange => operand,
            Atomic::CompareExchange if old == expected => operand,
            Atomic::CompareExchange => old,
        }))
    }

    /// Modifies memory and returns the old value.
    fn change(&mut self, place: Place<'_>, bytes: usize, change: impl Fn(u64) -> u64) -> u64 {
        let in_bytes = |memory: &mut [u8]| {
            let mut old = [0; 8];
            old[..bytes].copy_from_slice(&memory[..bytes]);
            let old = u64::from_le_bytes(old);
            memory[..bytes].copy_from_slice(&change(old).to_le_bytes()[..bytes]);
            old
        };
        match place {
            Place::Stack(at) => in_bytes(&mut self.stack[at..]),
            Place::Packet(at) => in_bytes(&mut self.frame.buffer[at..]),
            Place::Value { word, shift } => {
                let mask = mask(bytes);
                let new = |word: u64| word & !(mask << shift) | (change(word >> shift & mask) & mask) << shift;
                let old = word.fetch_update(SeqCst, SeqCst, |word| Some(new(word)));
                old.unwrap_or_else(|old| old) >> shift & mask
            }
        }
    }

    /// A copy of the memory that a helper reads.
    fn bytes(&self, address: u64, len: u64) -> Result<Vec<u8>, Fault> {
        let at = |i| self.load(address.wrapping_add(i), Size::B1).map(|byte| byte as u8);
        (0..len).map(at).collect()
    }

    /// The cost of a helper call in instructions.
    fn cost(&self, helper: Helper) -> Result<i64, Fault> {
        let [_, a, b, _, d, ..] = self.registers;
        let map = || self.program.maps.get(a as usize).map(|map| &**map).ok_or(Fault);
        Ok(match helper {
            Helper::MapLookup => cost::lookup(map()?),
            Helper::MapUpdate => cost::update(map()?),
            Helper::MapDelete => cost::delete(map()?),
            Helper::Trace => cost::trace(b),
            Helper::ChecksumDifference => cost::checksum(b, d),
            Helper::AdjustHead | Helper::AdjustTail => cost::adjust(b),
            Helper::Time | Helper::Random | Helper::Redirect => cost::OTHER,
        })
    }

    fn call(&mut self, number: usize, helper: Helper) -> Result<u64, Fault> {
        let program = self.program;
        let [_, a, b, c, d, e, ..] = self.registers;
        let map = || program.maps.get(a as usize).ok_or(Fault);
        Ok(match helper {
            Helper::MapLookup => {
                let map = map()?;
                match map.find(&self.bytes(b, map.spec().key_size.into())?) {
                    Some(slot) => value_address(a as u32, u64::from(slot) * map.value_stride() as u64),
                    None => 0,
                }
            }
            Helper::MapUpdate => {
                let map = map()?;
                let key = self.bytes(b, map.spec().key_size.into())?;
                let value = self.bytes(c, map.spec().value_size.into())?;
                run::map_update(map, &key, &value, d) as u64
            }
            Helper::MapDelete => {
                let map = map()?;
                run::map_delete(map, &self.bytes(b, map.spec().key_size.into())?) as u64
            }
            Helper::Time => self.now_ns,
            Helper::Trace => {
                let Role::Trace(count) = program.roles[number] else { return Err(Fault) };
                program.log.print(&self.bytes(a, b)?, &[c, d, e][..count as usize]) as u64
            }
            Helper::Random => program.random.next(),
            Helper::Redirect => run::redirect(a, b, &mut self.redirect),
            Helper::ChecksumDifference => run::checksum_difference(&self.bytes(a, b)?, &self.bytes(c, d)?, e) as u64,
            Helper::AdjustHead | Helper::AdjustTail => {
                let new = match helper {
                    Helper::AdjustHead => self.window.adjust_head(b),
                    _ => self.window.adjust_tail(b),
                };
                match new {
                    Some(new) => {
                        self.frame.buffer[new].fill(0);
                        0
                    }
                    None => errno::INVALID as u64,
                }
            }
        })
    }
}

fn mask(bytes: usize) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}

fn value_address(map: u32, offset: u64) -> u64 {
    VALUE << MEMORY_SHIFT | u64::from(map) << VALUE_BITS | offset
}

fn constant_of(constant: Constant) -> u64 {
    match constant {
        Constant::Number(number) => number,
        Constant::Map(map) => map.into(),
        Constant::MapValue { map, offset } => value_address(map, offset.into()),
    }
}
