//! Calls of helpers and of the program's functions.

use super::scalar::Scalar;
use super::state::{Frame, Kind, Register, State};
use super::{DEPTH_MAX, Reason, Role, Step, Verifier};
use crate::helper::{Argument, Helper, Returns};
use crate::map::MapKind;

/// The maximum number of bytes that a helper reads at once.
const MEMORY_MAX: u64 = 1 << 16;
/// The registers of the numbers that `trace_printk` prints.
const TRACED: std::ops::RangeInclusive<u8> = 3..=5;

impl Verifier<'_> {
    pub(super) fn call(&mut self, state: &mut State, number: usize, helper: i32) -> Result<(), Reason> {
        let Some(helper) = Helper::of(helper) else {
            return Err(format!("there is no helper {helper}; there are {}", Helper::known()));
        };
        let mut map = None;
        for (register, argument) in (1..).zip(helper.arguments()) {
            self.argument(state, register, *argument, &mut map)
                .map_err(|reason| format!("{reason} (argument {register} of {})", helper.name()))?;
        }
        if let (Some(map), true) = (map, matches!(helper, Helper::MapUpdate | Helper::MapDelete)) {
            let spec = self.maps[map as usize].spec();
            if spec.read_only {
                return Err(format!("r1: map `{}` cannot be written by programs", spec.name));
            }
            if helper == Helper::MapDelete && spec.kind == MapKind::Array {
                return Err(format!("r1: map `{}` is an array, whose entries cannot be deleted", spec.name));
            }
        }
        if helper == Helper::Trace {
            let printed = self.traced(state)?;
            self.play(number, Role::Trace(printed))?;
        } else {
            self.play(number, Role::Plain)?;
        }
        if helper.moves_packet() {
            for register in state.all().filter(|r| matches!(r.kind, Kind::Packet | Kind::PacketEnd)) {
                register.kind = Kind::Stale;
            }
        }
        for register in 1..=5 {
            state.set(register, Register::UNSET);
        }
        let result = match (helper.returns(), map) {
            (Returns::ValueOrNull, Some(map)) => {
                let id = self.fresh_id();
                Register { id, ..Register::address(Kind::MapValueOrNull(map), 0) }
            }
            (Returns::Word, _) => Register::number(Scalar::of_bytes(4)),
            _ => Register::number(Scalar::UNKNOWN),
        };
        state.set(0, result);
        Ok(())
    }

    /// The number of values that `trace_printk` prints: as many as are set.
    fn traced(&self, state: &State) -> Result<u8, Reason> {
        let mut count = 0;
        for number in TRACED {
            let register = state.register(number);
            if register.is_address() {
                return Err(format!("r{number} is {}; addresses are not printed", register.describe()));
            }
            if !register.is_set() {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    fn argument(&self, state: &State, number: u8, argument: Argument, map: &mut Option<u32>) -> Result<(), Reason> {
        let register = self.read(state, number)?;
        let expected = |what: &str| Err(format!("r{number} must be {what}, but is {}", register.describe()));
        let spec = map.map(|map| self.maps[map as usize].spec());
        match argument {
            Argument::Number => self.number(state, number).map(drop),
            Argument::Context => match register.kind {
                Kind::Context if register.off == 0 => Ok(()),
                _ => expected("the context"),
            },
            Argument::Map => match register.kind {
                Kind::Map(found) => {
                    *map = Some(found);
                    Ok(())
                }
                _ => expected("the handle of a map"),
            },
            Argument::Key => self.check_readable(state, number, spec.map_or(0, |s| s.key_size.into())),
            Argument::Value => self.check_readable(state, number, spec.map_or(0, |s| s.value_size.into())),
            // Checked together with the size.
            Argument::Memory | Argument::MemoryOrNull => Ok(()),
            Argument::MemorySize | Argument::MemorySizeOrZero => {
                let size = self.number(state, number)?;
                let or_zero = argument == Argument::MemorySizeOrZero;
                if size.umin == 0 && !or_zero {
                    return Err(format!("r{number} is a size and can be 0; check it first"));
                }
                if size.umax > MEMORY_MAX {
                    return Err(format!(
                        "r{number} is a size of up to {} bytes; limit it to {MEMORY_MAX} first",
                        size.umax
                    ));
                }
                let memory = self.read(state, number - 1)?;
                let null = memory.kind == Kind::Number && memory.var.known() == Some(0);
                match size.umax {
                    0 if null || memory.is_address() => Ok(()),
                    _ if null && or_zero => Err(format!("r{} is null, but r{number} can be above 0", number - 1)),
                    _ => self.check_readable(state, number - 1, size.umax as i64),
                }
            }
        }
    }

    pub(super) fn call_local(&mut self, state: &mut State, to: usize) -> Result<(), Reason> {
        if state.frames.len() == DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} functions would be active; recursion is not possible"));
        }
        let function = self.linked.function_of(to);
        let mut frame = Frame::new(state.frames.len(), function, state.number);
        frame.registers[1..=5].copy_from_slice(&state.top().registers[1..=5]);
        for register in 0..=5 {
            state.set(register, Register::UNSET);
        }
        state.frames.push(frame);
        state.number = to;
        Ok(())
    }

    pub(super) fn exit(&mut self, state: &mut State) -> Result<Step, Reason> {
        let result = *state.register(0);
        let depth = state.frames.len() - 1;
        if depth == 0 {
            self.number(state, 0).map_err(|reason| format!("{reason}; the program's result is in r0"))?;
            return Ok(Step::End);
        }
        if result.kind == Kind::Stack(depth) {
            return Err("r0 is an address in the stack of the function that returns".to_string());
        }
        let frame = state.frames.pop().expect("more than one");
        state.number = frame.return_to;
        state.set(0, result);
        Ok(Step::Next)
    }
}
