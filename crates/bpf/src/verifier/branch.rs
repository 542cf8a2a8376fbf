//! Conditional jumps: the feasible successors, and the refined state in each.

use super::scalar::{Scalar, reversed};
use super::state::{Kind, Register, State};
use super::{Reason, Step, Verifier};
use crate::instruction::{Condition, Operand};

/// The maximum offset in a packet for which bounds are proved.
const PACKET_MAX: i64 = 0xffff;

impl Verifier<'_> {
    pub(super) fn branch(
        &mut self,
        state: &mut State,
        wide: bool,
        condition: Condition,
        dst: u8,
        src: Operand,
        to: usize,
    ) -> Result<Step, Reason> {
        let (a, b) = (*self.read(state, dst)?, self.operand(state, src)?);
        // The states in which the condition holds and does not hold.
        let (taken, not_taken) = match (a.kind, b.kind) {
            (Kind::Number, Kind::Number) => {
                let known = |refined: Option<(Scalar, Scalar)>| {
                    refined.map(|(x, y)| {
                        let mut state = state.clone();
                        learn(&mut state, dst, &a, x);
                        if let Operand::Register(src) = src
                            && src != dst
                        {
                            learn(&mut state, src, &b, y);
                        }
                        state
                    })
                };
                // A register compared with itself: nothing to refine.
                if src == Operand::Register(dst) {
                    (Some(state.clone()), Some(state.clone()))
                } else {
                    let holds = known(Scalar::refine(condition, wide, a.var, b.var));
                    (holds, known(Scalar::refine_not(condition, wide, a.var, b.var)))
                }
            }
            _ if !wide => {
                return Err(format!("r{dst}: 32-bit comparison with {}", addressed(&a, &b)));
            }
            (_, Kind::Number) if is_null_test(condition, &b) => {
                let (null, other) = self.null_test(state, dst, &a)?;
                match condition {
                    Condition::Eq => (null, other),
                    _ => (other, null),
                }
            }
            (Kind::Packet, Kind::PacketEnd) => packet_test(state, &a, condition),
            (Kind::PacketEnd, Kind::Packet) => packet_test(state, &b, reversed(condition)),
            (x, y) if x == y && comparable(x) && condition != Condition::Set => {
                (Some(state.clone()), Some(state.clone()))
            }
            _ => {
                return Err(format!("r{dst}: {} cannot be compared with {}", a.describe(), b.describe()));
            }
        };
        match (taken, not_taken) {
            (Some(taken), None) => {
                *state = State { number: to, ..taken };
                Ok(Step::Next)
            }
            (None, Some(not_taken)) => {
                *state = not_taken;
                Ok(Step::Next)
            }
            (Some(taken), Some(not_taken)) => {
                *state = not_taken;
                Ok(Step::Fork(Box::new(State { number: to, ..taken })))
            }
            // Neither successor is feasible.
            (None, None) => Ok(Step::End),
        }
    }

    /// The states in which an address is null and is not null.
    fn null_test(&self, state: &State, dst: u8, a: &Register) -> Result<(Option<State>, Option<State>), Reason> {
        if let Kind::Map(_) = a.kind {
            // At run time it is a number, which may be 0.
            return Err(format!("r{dst}: {} cannot be compared", a.describe()));
        }
        let Kind::MapValueOrNull(map) = a.kind else {
            // Subtraction from an address could make it appear null.
            return match a.off >= 0 && a.var.smin >= 0 || matches!(a.kind, Kind::Stack(_)) {
                true => Ok((None, Some(state.clone()))),
                false => Err(format!("r{dst}: {} is never null and cannot be compared with 0", a.describe())),
            };
        };
        let with = |register: Register| {
            let mut state = state.clone();
            for found in state.all().filter(|r| r.kind == a.kind && r.id == a.id) {
                *found = register;
            }
            state
        };
        let null = with(Register::number(Scalar::of(0)));
        Ok((Some(null), Some(with(Register::address(Kind::MapValue(map), 0)))))
    }
}

fn addressed(a: &Register, b: &Register) -> &'static str {
    if a.is_address() { a.describe() } else { b.describe() }
}

fn is_null_test(condition: Condition, b: &Register) -> bool {
    matches!(condition, Condition::Eq | Condition::Ne) && b.var.known() == Some(0)
}

/// Whether the order of two addresses of this kind is independent of where their memory is.
fn comparable(kind: Kind) -> bool {
    matches!(kind, Kind::Packet | Kind::PacketEnd | Kind::Stack(_) | Kind::MapValue(_))
}

/// Sets the range of a register, and of all registers known to be equal.
fn learn(state: &mut State, number: u8, before: &Register, var: Scalar) {
    if before.id != 0 {
        for register in state.all().filter(|r| r.kind == Kind::Number && r.id == before.id) {
            register.var = var;
        }
    }
    state.top().registers[number as usize].var = var;
}

/// The states in which `address condition end-of-packet` holds and does not hold.
fn packet_test(state: &State, address: &Register, condition: Condition) -> (Option<State>, Option<State>) {
    let (mut yes, mut no) = (state.clone(), state.clone());
    // `address <= end` proves the bytes before the address, `address < end` one more.
    match condition {
        Condition::Le => prove(&mut yes, address, 0),
        Condition::Lt => prove(&mut yes, address, 1),
        Condition::Gt => prove(&mut no, address, 0),
        Condition::Ge => prove(&mut no, address, 1),
        _ => {}
    }
    (Some(yes), Some(no))
}

fn prove(state: &mut State, address: &Register, more: i64) {
    let proven = address.off + more;
    // Only addresses that cannot have wrapped around prove anything.
    if address.off < 0 || address.var.smin < 0 || address.var.smax.saturating_add(proven) > PACKET_MAX {
        return;
    }
    for register in state.all().filter(|r| r.kind == Kind::Packet && r.id == address.id) {
        register.range = register.range.max(proven);
    }
}
