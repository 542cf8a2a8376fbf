//! Memory accesses: which are allowed, and the values of loads.

use super::scalar::Scalar;
use super::state::{Byte, Kind, Register, SLOT_BYTES, STACK_BYTES, Slot, State};
use super::{Reason, Role, Touched, Verifier};
use crate::context::Field;
use crate::instruction::{Atomic, Op, Operand, Size};
use std::sync::atomic::Ordering::Relaxed;

/// An access: the address register, the lowest and highest offset from the start of the memory, and the size in bytes.
struct Access {
    base: u8,
    register: Register,
    low: i64,
    high: i64,
    size: i64,
}

impl Access {
    fn new(base: u8, register: Register, off: i64, size: i64) -> Access {
        let off = register.off + off;
        // The variable part of an address is bounded; saturation is for numbers, which are refused later.
        let (low, high) = (off.saturating_add(register.var.smin), off.saturating_add(register.var.smax));
        Access { base, register, low, high, size }
    }

    fn known(&self) -> Option<i64> {
        (self.low == self.high).then_some(self.low)
    }

    /// The offsets as text.
    fn offsets(&self) -> String {
        match self.known() {
            Some(off) => format!("offset {off}"),
            None => format!("offsets {} to {}", self.low, self.high),
        }
    }

    fn check_aligned(&self, off: i64) -> Result<(), Reason> {
        let mask = self.size as u64 - 1;
        let constant = (self.register.off + off) as u64;
        let all = self.register.var.bits.add(super::tnum::Tnum::of(constant));
        match (all.value | all.mask) & mask {
            0 => Ok(()),
            _ => Err(format!(
                "r{}: {} bytes at {} of {} are not aligned",
                self.base,
                self.size,
                self.offsets(),
                self.register.describe()
            )),
        }
    }
}

impl Verifier<'_> {
    /// The value of a load, and the instruction's role.
    pub(super) fn load(&mut self, state: &State, size: Size, base: u8, off: i16) -> Result<(Register, Role), Reason> {
        let register = *self.read(state, base)?;
        let access = Access::new(base, register, off.into(), size.bytes() as i64);
        let any = Register::number(Scalar::of_bytes(size.bytes()));
        let touched = Role::Access(Touched::of(register.kind));
        match register.kind {
            Kind::Context => {
                let Some(field) = Field::at(access.low, size.bytes()) else {
                    return Err(format!(
                        "r{base}: the context has no field of {} bytes at offset {}",
                        size.bytes(),
                        access.low
                    ));
                };
                let loaded = match field {
                    Field::Data | Field::DataMeta => Register::address(Kind::Packet, 0),
                    Field::DataEnd => Register::address(Kind::PacketEnd, 0),
                    _ => any,
                };
                Ok((loaded, Role::Context(field)))
            }
            Kind::Stack(frame) => {
                self.check_stack_bounds(&access)?;
                access.check_aligned(off.into())?;
                Ok((self.load_stack(state, frame, &access)?, touched))
            }
            Kind::Packet => {
                self.check_packet(&access)?;
                Ok((any, touched))
            }
            Kind::MapValue(map) => {
                self.check_value_bounds(map, &access)?;
                access.check_aligned(off.into())?;
                let constant = access.known().and_then(|off| self.constant(map, off as usize, size.bytes()));
                Ok((constant.map_or(any, |value| Register::number(Scalar::of(value))), touched))
            }
            _ => Err(no_memory(base, &register)),
        }
    }

    /// The value of a constant in a read-only section of the object.
    fn constant(&self, map: u32, off: usize, size: usize) -> Option<u64> {
        let map = &self.maps[map as usize];
        if !map.is_constant() {
            return None;
        }
        let word = map.value_words()[off / 8].load(Relaxed).to_ne_bytes();
        let mut value = [0; 8];
        value[..size].copy_from_slice(&word[off % 8..][..size]);
        Some(u64::from_le_bytes(value))
    }

    pub(super) fn store(
        &mut self,
        state: &mut State,
        size: Size,
        base: u8,
        off: i16,
        src: Operand,
    ) -> Result<(), Reason> {
        let register = *self.read(state, base)?;
        let mut value = self.any_operand(state, src)?;
        let access = Access::new(base, register, off.into(), size.bytes() as i64);
        match register.kind {
            Kind::Stack(frame) => {
                self.check_stack_bounds(&access)?;
                access.check_aligned(off.into())?;
                if value.is_address() {
                    if size != Size::B8 {
                        return Err(format!("{src} is {}; storing a part of it loses the address", value.describe()));
                    }
                    if matches!(value.kind, Kind::Stack(pointed) if pointed > frame) {
                        return Err(format!("{src} points into this function's stack and would outlive it"));
                    }
                }
                // The stored value remains equal to the register.
                if let Operand::Register(number) = src
                    && value.kind == Kind::Number
                    && value.id == 0
                    && value.var.known().is_none()
                    && size == Size::B8
                {
                    value.id = self.fresh_id();
                    state.set(number, value);
                }
                self.store_stack(state, frame, &access, value)
            }
            Kind::Packet | Kind::MapValue(_) => {
                if value.is_address() {
                    return Err(format!(
                        "{src} is {}; it cannot be written to {}",
                        value.describe(),
                        memory(&register)
                    ));
                }
                match register.kind {
                    Kind::MapValue(map) => {
                        self.check_value_bounds(map, &access)?;
                        access.check_aligned(off.into())?;
                        self.check_writable(base, map)
                    }
                    _ => self.check_packet(&access),
                }
            }
            Kind::Context => Err(format!("r{base}: the context cannot be written")),
            _ => Err(no_memory(base, &register)),
        }
    }

    pub(super) fn atomic(&mut self, state: &mut State, op: &Op) -> Result<(), Reason> {
        let Op::Atomic { atomic, wide, fetch, base, off, src } = *op else { return Ok(()) };
        let register = *self.read(state, base)?;
        let bytes = if wide { 8 } else { 4 };
        self.number(state, src)?;
        if atomic == Atomic::CompareExchange {
            self.number(state, 0)?;
        }
        let access = Access::new(base, register, off.into(), bytes);
        match register.kind {
            Kind::Stack(frame) => {
                self.check_stack_bounds(&access)?;
                access.check_aligned(off.into())?;
                if self.load_stack(state, frame, &access)?.is_address() {
                    return Err(format!("r{base}: an address is stored there"));
                }
                self.store_stack(state, frame, &access, Register::number(Scalar::UNKNOWN))?;
            }
            Kind::MapValue(map) => {
                self.check_value_bounds(map, &access)?;
                access.check_aligned(off.into())?;
                self.check_writable(base, map)?;
            }
            Kind::Packet | Kind::Context => {
                return Err(format!("r{base}: atomic operations are not possible on {}", register.describe()));
            }
            _ => return Err(no_memory(base, &register)),
        }
        if fetch {
            let to = if atomic == Atomic::CompareExchange { 0 } else { src };
            state.set(to, Register::number(Scalar::of_bytes(bytes as usize)));
        }
        Ok(())
    }

    /// Checks that a helper may read any length from one to `size` bytes, and that the bytes are initialised.
    pub(super) fn check_readable(&self, state: &State, base: u8, size: i64) -> Result<(), Reason> {
        let register = *self.read(state, base)?;
        let access = Access::new(base, register, 0, size);
        match register.kind {
            Kind::Stack(frame) => {
                self.check_stack_bounds(&access)?;
                for off in access.low..access.high + size {
                    let (slot, byte) = place(off);
                    let slot = state.frames[frame].slot(slot);
                    if slot.holds_address() {
                        return Err(format!(
                            "r{base}: the stack at offset {off} holds an address, which a helper must not see"
                        ));
                    }
                    if slot.bytes()[byte] == Byte::Unset {
                        return Err(format!("r{base}: the stack at offset {off} was not written"));
                    }
                }
                Ok(())
            }
            Kind::Packet => self.check_packet(&access),
            Kind::MapValue(map) => self.check_value_bounds(map, &access),
            _ => Err(no_memory(base, &register)),
        }
    }

    fn check_stack_bounds(&self, access: &Access) -> Result<(), Reason> {
        match access.low >= -STACK_BYTES && access.high + access.size <= 0 {
            true => Ok(()),
            false => Err(format!(
                "r{}: {} bytes at {} from the frame pointer are outside the stack of {STACK_BYTES} bytes",
                access.base,
                access.size,
                access.offsets()
            )),
        }
    }

    fn check_packet(&self, access: &Access) -> Result<(), Reason> {
        let Access { base, register, size, .. } = access;
        // The range is relative to the variable part.
        let off = access.low - register.var.smin;
        match off >= 0 && register.var.smin >= 0 && off + size <= register.range {
            true => Ok(()),
            false => Err(format!(
                "r{base}: {size} bytes at {} of the packet are not known to be in it (known: {}); compare the address behind them with `data_end` first",
                access.offsets(),
                register.range
            )),
        }
    }

    fn check_value_bounds(&self, map: u32, access: &Access) -> Result<(), Reason> {
        let spec = self.maps[map as usize].spec();
        match access.low >= 0 && access.high + access.size <= i64::from(spec.value_size) {
            true => Ok(()),
            false => Err(format!(
                "r{}: {} bytes at {} are outside the value of {} bytes of map `{}`",
                access.base,
                access.size,
                access.offsets(),
                spec.value_size,
                spec.name
            )),
        }
    }

    fn check_writable(&self, base: u8, map: u32) -> Result<(), Reason> {
        let spec = self.maps[map as usize].spec();
        match spec.read_only {
            false => Ok(()),
            true => Err(format!("r{base}: map `{}` cannot be written by programs", spec.name)),
        }
    }

    fn load_stack(&self, state: &State, frame: usize, access: &Access) -> Result<Register, Reason> {
        let frame = &state.frames[frame];
        let base = access.base;
        let any = Register::number(Scalar::of_bytes(access.size as usize));
        if let Some(off) = access.known() {
            let (number, byte) = place(off);
            if let Slot::Spilled(register) = frame.slot(number) {
                match register.kind {
                    Kind::Unset => return Err(format!("r{base}: the stack at offset {off} was not written")),
                    _ if access.size == SLOT_BYTES => return Ok(register),
                    Kind::Number => {
                        return Ok(match register.var.known() {
                            Some(value) => {
                                let part = value >> (8 * byte);
                                Register::number(Scalar::of(part & (u64::MAX >> (64 - 8 * access.size))))
                            }
                            None => any,
                        });
                    }
                    _ => {}
                }
            }
        }
        let mut zero = true;
        for off in access.low..access.high + access.size {
            let (number, byte) = place(off);
            let slot = frame.slot(number);
            if slot.holds_address() {
                return Err(format!(
                    "r{base}: the stack at offset {off} holds an address, which can only be read as a whole"
                ));
            }
            match slot.bytes()[byte] {
                Byte::Unset => return Err(format!("r{base}: the stack at offset {off} was not written")),
                Byte::Zero => {}
                Byte::Any => zero = false,
            }
        }
        Ok(if zero { Register::number(Scalar::of(0)) } else { any })
    }

    fn store_stack(&self, state: &mut State, frame: usize, access: &Access, value: Register) -> Result<(), Reason> {
        let frame = &mut state.frames[frame];
        let written = match value.kind == Kind::Number && value.var.known() == Some(0) {
            true => Byte::Zero,
            false => Byte::Any,
        };
        if let Some(off) = access.known() {
            let (number, byte) = place(off);
            let slot = frame.slot_mut(number);
            if access.size == SLOT_BYTES {
                *slot = Slot::Spilled(value);
                return Ok(());
            }
            // The rest of a partly overwritten address is not a number.
            let mut bytes = match slot.holds_address() {
                true => [Byte::Unset; SLOT_BYTES as usize],
                false => slot.bytes(),
            };
            bytes[byte..byte + access.size as usize].fill(written);
            *slot = Slot::Bytes(bytes);
            return Ok(());
        }
        if value.is_address() {
            return Err(format!("r{}: an address can be stored at a constant offset of the stack only", access.base));
        }
        // Any of these bytes may be written or keep its value.
        for off in access.low..access.high + access.size {
            let (number, byte) = place(off);
            let slot = frame.slot_mut(number);
            if slot.holds_address() {
                return Err(format!(
                    "r{}: the address that is stored at offset {off} of the stack could be overwritten",
                    access.base
                ));
            }
            let mut bytes = slot.bytes();
            if bytes[byte] == Byte::Zero {
                bytes[byte] = written;
            }
            *slot = Slot::Bytes(bytes);
        }
        Ok(())
    }
}

/// The slot of an offset from the frame pointer, and the byte within it.
fn place(off: i64) -> (usize, usize) {
    (((-1 - off) / SLOT_BYTES) as usize, off.rem_euclid(SLOT_BYTES) as usize)
}

fn memory(register: &Register) -> &'static str {
    match register.kind {
        Kind::Packet => "the packet",
        _ => "a map",
    }
}

fn no_memory(base: u8, register: &Register) -> Reason {
    match register.kind {
        Kind::MapValueOrNull(_) => format!("r{base} is {}; compare it with 0 first", register.describe()),
        _ => format!("r{base} is {}, which is no memory to access", register.describe()),
    }
}
