//! Arithmetic on numbers, and on addresses as long as the result is an address.

use super::scalar::Scalar;
use super::state::{Kind, Register, State};
use super::{Reason, Verifier};
use crate::instruction::{Alu, Constant, Operand};

/// The maximum distance of an address from the start of its memory, so that it never wraps around.
const DISTANCE_MAX: i64 = 1 << 29;

impl Verifier<'_> {
    /// The value of an operand, which may be a stale address.
    pub(super) fn any_operand(&self, state: &State, src: Operand) -> Result<Register, Reason> {
        match src {
            Operand::Register(number) if state.register(number).kind == Kind::Stale => Ok(*state.register(number)),
            _ => self.operand(state, src),
        }
    }

    /// The value of an operand, which must not be a stale address.
    pub(super) fn operand(&self, state: &State, src: Operand) -> Result<Register, Reason> {
        match src {
            Operand::Register(number) => self.read(state, number).copied(),
            Operand::Immediate(i) => Ok(Register::number(Scalar::of(i as i64 as u64))),
        }
    }

    pub(super) fn load_immediate(&mut self, state: &mut State, dst: u8, constant: Constant) -> Result<(), Reason> {
        let register = match constant {
            Constant::Number(number) => Register::number(Scalar::of(number)),
            Constant::Map(map) => Register::address(Kind::Map(map), 0),
            Constant::MapValue { map, offset } => {
                let spec = self.maps[map as usize].spec();
                if spec.kind != crate::map::MapKind::Array || spec.max_entries != 1 {
                    return Err(format!("map `{}` is not an array with one entry", spec.name));
                }
                if offset > spec.value_size {
                    return Err(format!("offset {offset} is behind the {} bytes of `{}`", spec.value_size, spec.name));
                }
                Register::address(Kind::MapValue(map), offset.into())
            }
        };
        state.set(dst, register);
        Ok(())
    }

    pub(super) fn negate(&mut self, state: &mut State, wide: bool, dst: u8) -> Result<(), Reason> {
        let register = self.number(state, dst)?;
        state.set(dst, Register::number(Scalar::negated(wide, register)));
        Ok(())
    }

    pub(super) fn swap(&mut self, state: &mut State, big: bool, bits: u8, dst: u8) -> Result<(), Reason> {
        let register = self.number(state, dst)?;
        state.set(dst, Register::number(Scalar::swapped(big, bits, register)));
        Ok(())
    }

    /// A register that must hold a number.
    pub(super) fn number(&self, state: &State, number: u8) -> Result<Scalar, Reason> {
        let register = self.read(state, number)?;
        match register.kind {
            Kind::Number => Ok(register.var),
            _ => Err(format!("r{number} must be a number, but is {}", register.describe())),
        }
    }

    pub(super) fn alu(&mut self, state: &mut State, wide: bool, alu: Alu, dst: u8, src: Operand) -> Result<(), Reason> {
        let b = self.any_operand(state, src)?;
        if alu == Alu::Mov {
            return self.copy(state, wide, dst, src, b);
        }
        if alu == Alu::Sub && wide && in_packet(&b) {
            let a = self.any_operand(state, Operand::Register(dst))?;
            if in_packet(&a) {
                state.set(dst, Register::number(Scalar::UNKNOWN));
                return Ok(());
            }
        }
        self.operand(state, src)?;
        if let Operand::Immediate(i) = src {
            let bits = if wide { 64 } else { 32 };
            match alu {
                Alu::Div | Alu::Mod if i == 0 => return Err(format!("r{dst} is divided by the constant 0")),
                Alu::Lsh | Alu::Rsh | Alu::Arsh if !(0..bits).contains(&i) => {
                    return Err(format!("r{dst} of {bits} bits is shifted by {i}"));
                }
                _ => {}
            }
        }
        let a = *self.read(state, dst)?;
        let result = match (a.is_address(), b.is_address()) {
            (false, false) => Register::number(Scalar::compute(alu, wide, a.var, b.var)),
            _ if !wide => return Err(format!("r{dst}: 32-bit arithmetic on {} loses the address", addressed(&a, &b))),
            (true, true) => {
                return Err(format!(
                    "r{dst}: {} and {} cannot be combined by `{alu:?}`; only addresses in the packet can be subtracted",
                    a.describe(),
                    b.describe()
                ));
            }
            (true, false) => match alu {
                Alu::Add => self.moved(dst, &a, b.var)?,
                Alu::Sub => self.moved(dst, &a, Scalar::negated(true, b.var))?,
                _ => return Err(format!("r{dst}: `{alu:?}` on {} is not an address", a.describe())),
            },
            (false, true) => match alu {
                Alu::Add => self.moved(dst, &b, a.var)?,
                _ => return Err(format!("r{dst}: `{alu:?}` of a number and {} is not an address", b.describe())),
            },
        };
        state.set(dst, result);
        Ok(())
    }

    fn copy(&mut self, state: &mut State, wide: bool, dst: u8, src: Operand, b: Register) -> Result<(), Reason> {
        let mut b = b;
        if !wide {
            if b.is_address() {
                return Err(format!("{src} is {}; copying 32 bits of it loses the address", b.describe()));
            }
            if b.var.umax > u64::from(u32::MAX) {
                b = Register::number(b.var.low_word());
            }
        }
        if let Operand::Register(number) = src
            && b.kind == Kind::Number
            && b.var.known().is_none()
            && b.id == 0
            && (wide || b.var == state.register(number).var)
        {
            // Both are known to be equal from here on.
            b.id = self.fresh_id();
            state.set(number, b);
        }
        state.set(dst, b);
        Ok(())
    }

    /// The sum of an address and a number.
    fn moved(&mut self, dst: u8, address: &Register, by: Scalar) -> Result<Register, Reason> {
        let what = address.describe();
        match address.kind {
            Kind::MapValueOrNull(_) => {
                return Err(format!("r{dst}: {what}; compare it with 0 before adding to it"));
            }
            Kind::Map(_) | Kind::PacketEnd => return Err(format!("r{dst}: nothing can be added to {what}")),
            _ => {}
        }
        let too_far = || {
            format!(
                "r{dst}: {what} plus a number from {} to {} can be out of any bounds; limit the number first",
                by.smin, by.smax
            )
        };
        let mut result = *address;
        if let Some(by) = by.known() {
            result.off = result.off.checked_add(by as i64).ok_or_else(too_far)?;
        } else {
            if address.kind == Kind::Context {
                return Err(format!("r{dst}: only constants can be added to the context"));
            }
            result.var = Scalar::compute(Alu::Add, true, address.var, by);
            if address.kind == Kind::Packet {
                result.id = self.fresh_id();
                result.range = 0;
            }
        }
        let near = -DISTANCE_MAX..DISTANCE_MAX;
        let ends = [result.off, by.smin, by.smax, result.var.smin, result.var.smax];
        match ends.iter().all(|end| near.contains(end)) {
            true => Ok(result),
            false => Err(too_far()),
        }
    }
}

fn in_packet(register: &Register) -> bool {
    matches!(register.kind, Kind::Packet | Kind::PacketEnd | Kind::Stale)
}

fn addressed(a: &Register, b: &Register) -> &'static str {
    if a.is_address() { a.describe() } else { b.describe() }
}
