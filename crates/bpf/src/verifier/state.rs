//! The abstract state: what is known of registers and stack at an instruction of a path.

use super::scalar::Scalar;
use crate::instruction::{FRAME_POINTER, REGISTERS};

/// The size of a function's stack in bytes.
pub const STACK_BYTES: i64 = 512;
/// The size of a stack slot, which holds a whole register, in bytes.
pub(super) const SLOT_BYTES: i64 = 8;

/// The type of a register's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Not initialised.
    Unset,
    /// An address in the packet before a helper moved it. It can only be copied and subtracted: compilers move the
    /// subtraction that gives the packet's length after the call of that helper.
    Stale,
    /// A number.
    Number,
    /// The address of the context.
    Context,
    /// An address in the stack of a frame, relative to the frame's `r10`.
    Stack(usize),
    /// An address in the packet, relative to `data`.
    Packet,
    /// The end of the packet.
    PacketEnd,
    /// An address in a map's value, relative to its start.
    MapValue(u32),
    /// As `MapValue`, or null.
    MapValueOrNull(u32),
    /// The handle of a map.
    Map(u32),
}

/// The abstract value of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Register {
    pub(super) kind: Kind,
    /// Constant part of an address.
    pub(super) off: i64,
    /// The number, or the variable part of an address.
    pub(super) var: Scalar,
    /// Registers of one kind with the same id other than 0 have the same number, variable part or value.
    pub(super) id: u32,
    /// For an address in the packet: the number of bytes after its variable part that are known to be in the packet.
    pub(super) range: i64,
}

impl Register {
    pub(super) const UNSET: Register = Register::new(Kind::Unset);

    const fn new(kind: Kind) -> Register {
        Register { kind, off: 0, var: Scalar::UNKNOWN, id: 0, range: 0 }
    }

    pub(super) fn number(var: Scalar) -> Register {
        Register { var, ..Register::new(Kind::Number) }
    }

    /// An address without variable part.
    pub(super) fn address(kind: Kind, off: i64) -> Register {
        Register { off, var: Scalar::of(0), ..Register::new(kind) }
    }

    pub(super) fn is_set(&self) -> bool {
        self.kind != Kind::Unset
    }

    pub(super) fn is_address(&self) -> bool {
        !matches!(self.kind, Kind::Unset | Kind::Number)
    }

    /// Its name in messages.
    pub(super) fn describe(&self) -> &'static str {
        match self.kind {
            Kind::Unset => "not set",
            Kind::Stale => "an address in the packet before it was moved",
            Kind::Number => "a number",
            Kind::Context => "the context",
            Kind::Stack(_) => "an address in the stack",
            Kind::Packet => "an address in the packet",
            Kind::PacketEnd => "the end of the packet",
            Kind::MapValue(_) => "an address in a map's value",
            Kind::MapValueOrNull(_) => "the result of a map lookup, which may be null",
            Kind::Map(_) => "the handle of a map",
        }
    }

    /// Whether everything that is safe with `self` is safe with `other`.
    fn covers(&self, other: &Register, ids: &mut Identities) -> bool {
        match self.kind {
            // It was never read.
            Kind::Unset => true,
            _ if self.kind != other.kind => false,
            Kind::Number => {
                // After `clean`, an id belongs to several registers.
                self.var.contains(&other.var) && (self.id == 0 || other.id != 0 && ids.same(self.id, other.id))
            }
            Kind::Packet => {
                self.off == other.off
                    && self.range <= other.range
                    && self.var.contains(&other.var)
                    && ids.same(self.id, other.id)
            }
            Kind::MapValueOrNull(_) => self.off == other.off && ids.same(self.id, other.id),
            Kind::MapValue(_) | Kind::Stack(_) => self.off == other.off && self.var.contains(&other.var),
            Kind::Stale => true,
            Kind::Context | Kind::PacketEnd | Kind::Map(_) => self.off == other.off,
        }
    }
}

/// A correspondence between the ids of two states.
#[derive(Default)]
struct Identities(Vec<(u32, u32)>);

impl Identities {
    fn same(&mut self, ours: u32, theirs: u32) -> bool {
        match self.0.iter().find(|(found, _)| *found == ours) {
            Some((_, found)) => *found == theirs,
            None => {
                self.0.push((ours, theirs));
                true
            }
        }
    }
}

/// The content of a stack byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Byte {
    Unset,
    Zero,
    Any,
}

/// The content of a stack slot of eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    Bytes([Byte; SLOT_BYTES as usize]),
    Spilled(Register),
}

impl Slot {
    pub(super) const UNSET: Slot = Slot::Bytes([Byte::Unset; SLOT_BYTES as usize]);

    pub(super) fn holds_address(&self) -> bool {
        matches!(self, Slot::Spilled(register) if register.is_address())
    }

    pub(super) fn bytes(&self) -> [Byte; SLOT_BYTES as usize] {
        match self {
            Slot::Bytes(bytes) => *bytes,
            Slot::Spilled(register) => {
                [match register {
                    Register { kind: Kind::Number, .. } if register.var.known() == Some(0) => Byte::Zero,
                    Register { kind: Kind::Unset, .. } => Byte::Unset,
                    _ => Byte::Any,
                }; SLOT_BYTES as usize]
            }
        }
    }

    fn covers(&self, other: &Slot, ids: &mut Identities) -> bool {
        match (self, other) {
            (Slot::Spilled(ours), Slot::Spilled(theirs)) => ours.covers(theirs, ids),
            (Slot::Spilled(ours), Slot::Bytes(bytes)) => {
                let theirs = match bytes.contains(&Byte::Unset) {
                    true => return !ours.is_set(),
                    false if bytes.iter().all(|b| *b == Byte::Zero) => Register::number(Scalar::of(0)),
                    false => Register::number(Scalar::UNKNOWN),
                };
                ours.covers(&theirs, ids)
            }
            (Slot::Bytes(ours), _) => {
                if other.holds_address() {
                    return ours.iter().all(|b| *b == Byte::Unset);
                }
                ours.iter().zip(other.bytes()).all(|(ours, theirs)| match ours {
                    Byte::Unset => true,
                    Byte::Zero => theirs == Byte::Zero,
                    Byte::Any => theirs != Byte::Unset,
                })
            }
        }
    }
}

/// The frame of a function that has not returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) registers: [Register; REGISTERS],
    /// The slots from `r10` downwards, up to the last one used.
    pub(super) slots: Vec<Slot>,
    /// The function's index.
    pub(super) function: usize,
    /// The return address, an instruction number.
    pub(super) return_to: usize,
}

impl Frame {
    pub(super) fn new(depth: usize, function: usize, return_to: usize) -> Frame {
        let mut registers = [Register::UNSET; REGISTERS];
        registers[FRAME_POINTER] = Register::address(Kind::Stack(depth), 0);
        Frame { registers, slots: Vec::new(), function, return_to }
    }

    /// The slot with an index, which is `(-1 - offset) / 8`.
    pub(super) fn slot(&self, number: usize) -> Slot {
        self.slots.get(number).copied().unwrap_or(Slot::UNSET)
    }

    pub(super) fn slot_mut(&mut self, number: usize) -> &mut Slot {
        if self.slots.len() <= number {
            self.slots.resize(number + 1, Slot::UNSET);
        }
        &mut self.slots[number]
    }

    fn covers(&self, other: &Frame, ids: &mut Identities) -> bool {
        self.function == other.function
            && self.return_to == other.return_to
            && self.registers.iter().zip(&other.registers).all(|(ours, theirs)| ours.covers(theirs, ids))
            && self.slots.iter().enumerate().all(|(i, slot)| slot.covers(&other.slot(i), ids))
    }

    fn held(&mut self) -> impl Iterator<Item = &mut Register> {
        let spilled = self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Spilled(register) => Some(register),
            Slot::Bytes(_) => None,
        });
        self.registers.iter_mut().chain(spilled)
    }
}

/// A path's next instruction, and what is known there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    /// The next instruction.
    pub(super) number: usize,
    /// The call stack; the last frame is the current function's.
    pub(super) frames: Vec<Frame>,
}

impl State {
    pub(super) fn top(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the entry's frame stays")
    }

    pub(super) fn register(&self, number: u8) -> &Register {
        &self.frames.last().expect("the entry's frame stays").registers[number as usize]
    }

    pub(super) fn set(&mut self, number: u8, register: Register) {
        self.top().registers[number as usize] = register;
    }

    /// All registers, including callers' and spilled ones.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Register> {
        self.frames.iter_mut().flat_map(Frame::held)
    }

    /// Drops dead registers, and ids that only one register has.
    pub(super) fn clean(&mut self, live: u16) {
        for (i, register) in self.top().registers.iter_mut().enumerate() {
            if live >> i & 1 == 0 {
                *register = Register::UNSET;
            }
        }
        let mut ids: Vec<u32> = self.all().filter(|r| r.kind == Kind::Number && r.id != 0).map(|r| r.id).collect();
        if ids.is_empty() {
            return;
        }
        ids.sort_unstable();
        let count = |id: u32| ids.partition_point(|i| *i <= id) - ids.partition_point(|i| *i < id);
        for register in self.all().filter(|r| r.kind == Kind::Number && r.id != 0) {
            if count(register.id) == 1 {
                register.id = 0;
            }
        }
    }

    /// Whether every continuation that is safe from `self` is safe from `other`.
    pub(super) fn covers(&self, other: &State) -> bool {
        let mut ids = Identities::default();
        self.number == other.number
            && self.frames.len() == other.frames.len()
            && self.frames.iter().zip(&other.frames).all(|(ours, theirs)| ours.covers(theirs, &mut ids))
    }
}
