//! The verifier: accepts a program only if it is safe for every packet, map content and argument.
//!
//! It is an abstract interpreter. A path's [`State`] records of each register and stack byte whether it is initialised,
//! its pointer type, and the possible numbers. Branches fork the state; loops are unrolled, so that they terminate if
//! the verifier does. A path is pruned if a completed earlier path had a state at the same instruction that covers its
//! own ([`State::covers`]).
//!
//! Guarantees on which interpreter and compiler rely:
//! - every access is within the intended memory (context, packet, stack or map value), and aligned except in packets;
//! - only initialised bytes and registers are read; `r10` never changes;
//! - addresses are not stored in packets or maps, not returned, and not compared with numbers;
//! - arguments of helpers match their signatures ([`crate::helper`]); memory that helpers read is initialised;
//! - an instruction that reads a field of the context on one path reads the same field on all paths;
//! - a run terminates, after at most [`COMPLEXITY_MAX`] instructions, with at most [`DEPTH_MAX`] functions active.
//!
//! The design follows the Linux kernel's verifier (`Documentation/bpf/verifier.rst`), without its checks for
//! speculative execution.

mod arithmetic;
mod branch;
mod call;
mod liveness;
mod memory;
mod scalar;
mod state;
#[cfg(test)]
mod tests;
mod tnum;

pub use state::STACK_BYTES;

use crate::context::Field;
use crate::error::VerifyError;
use crate::instruction::{Constant, Op};
use crate::map::Map;
use crate::object::link::Linked;
pub(crate) use liveness::live;
use liveness::successors;
use state::{Frame, Kind, Register, State};
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum number of instructions analysed, over all paths.
pub const COMPLEXITY_MAX: u64 = 1_000_000;
/// The maximum depth of the call stack, in functions.
pub const DEPTH_MAX: usize = 8;
/// The maximum number of branches pending analysis.
const WAITING_MAX: usize = 4096;
/// The maximum number of states kept per instruction, and in total.
const STATES_MAX: usize = 64;
const ALL_STATES_MAX: usize = 16_384;
/// The minimum number of instructions between kept states, except at loop headers.
const STATE_DISTANCE: u32 = 8;

/// The verifier's result for an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Role {
    /// No path reaches it.
    #[default]
    Unreachable,
    /// Any other reachable instruction.
    Plain,
    /// Accesses memory of these kinds.
    Access(Touched),
    /// Loads a field of the context.
    Context(Field),
    /// Calls `trace_printk` with this many numbers to print.
    Trace(u8),
}

/// The kinds of memory that an instruction accesses, over all paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Touched {
    /// A function's stack.
    pub(crate) stack: bool,
    /// The packet.
    pub(crate) packet: bool,
    /// A map's value.
    pub(crate) value: bool,
}

impl Touched {
    /// The memory of an address of this kind.
    fn of(kind: Kind) -> Touched {
        Touched {
            stack: matches!(kind, Kind::Stack(_)),
            packet: kind == Kind::Packet,
            value: matches!(kind, Kind::MapValue(_)),
        }
    }

    fn or(self, other: Touched) -> Touched {
        Touched { stack: self.stack | other.stack, packet: self.packet | other.packet, value: self.value | other.value }
    }
}

/// The result of `verify`.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    /// The role of each instruction.
    pub(crate) roles: Vec<Role>,
}

/// Verifies a decoded program.
pub(crate) fn verify(linked: &Linked, ops: &[Op], maps: &[Arc<Map>]) -> Result<Verified, VerifyError> {
    let mut verifier = Verifier::new(linked, ops, maps);
    match verifier.structure().and_then(|()| verifier.explore()) {
        Ok(()) => Ok(Verified { roles: verifier.roles }),
        Err((number, reason)) => Err(refused(linked, ops, number, reason)),
    }
}

/// The error for a program that is refused because of an instruction.
pub(crate) fn refused(linked: &Linked, ops: &[Op], number: usize, reason: String) -> VerifyError {
    let instruction = match ops.get(number) {
        Some(op) => op.to_string(),
        None => format!("code {:#04x}", linked.code[number].code),
    };
    VerifyError::Refused { number, place: linked.place(number), instruction, reason }
}

/// Why a program is refused.
type Reason = String;

/// What follows an instruction on a path.
enum Step {
    Next,
    /// The path continues, and another begins with this state.
    Fork(Box<State>),
    End,
}

/// A state kept for pruning, and the number of paths from it that are not yet complete.
struct Kept {
    state: Option<Box<State>>,
    parent: Option<usize>,
    open: usize,
}

struct Verifier<'p> {
    linked: &'p Linked,
    ops: &'p [Op],
    maps: &'p [Arc<Map>],
    live: Vec<u16>,
    /// The targets of jumps and the starts of functions; true for a loop header.
    joins: HashMap<usize, bool>,
    kept: Vec<Kept>,
    kept_at: HashMap<usize, Vec<usize>>,
    kept_now: usize,
    roles: Vec<Role>,
    last_id: u32,
}

impl<'p> Verifier<'p> {
    fn new(linked: &'p Linked, ops: &'p [Op], maps: &'p [Arc<Map>]) -> Self {
        let mut joins = HashMap::new();
        for (number, op) in ops.iter().enumerate() {
            if let Op::Jump { to } | Op::Branch { to, .. } = op {
                *joins.entry(*to).or_insert(false) |= *to <= number;
            }
        }
        for function in &linked.functions {
            joins.entry(function.start).or_insert(false);
        }
        Verifier {
            linked,
            ops,
            maps,
            live: live(ops),
            joins,
            kept: Vec::new(),
            kept_at: HashMap::new(),
            kept_now: 0,
            roles: vec![Role::Unreachable; ops.len()],
            last_id: 0,
        }
    }

    /// Checks that need no path: jumps stay in their function, control does not run off its end, maps exist.
    fn structure(&self) -> Result<(), (usize, Reason)> {
        for (number, op) in self.ops.iter().enumerate() {
            let function = &self.linked.functions[self.linked.function_of(number)];
            let inside = |to: &usize| (function.start..function.start + function.len).contains(to);
            if let Some(to) = successors(number, op).into_iter().flatten().find(|to| !inside(to)) {
                let reason = match op {
                    Op::Jump { .. } | Op::Branch { .. } if to != number + 1 => {
                        format!("jumps to {to}, outside its function")
                    }
                    _ => "the function does not end with `exit` or a jump".to_string(),
                };
                return Err((number, reason));
            }
            if let Op::LoadImmediate { constant: Constant::Map(map) | Constant::MapValue { map, .. }, .. } = op
                && *map as usize >= self.maps.len()
            {
                return Err((number, format!("there is no map {map}")));
            }
            if let Op::CallLocal { to } = op
                && !self.linked.functions.iter().any(|f| f.start == *to)
            {
                return Err((number, format!("instruction {to} is not the start of a function")));
            }
        }
        Ok(())
    }

    fn explore(&mut self) -> Result<(), (usize, Reason)> {
        let mut entry = Frame::new(0, 0, 0);
        entry.registers[1] = Register::address(Kind::Context, 0);
        let mut waiting = vec![(Box::new(State { number: 0, frames: vec![entry] }), None)];
        let mut followed = 0;
        while let Some((mut state, mut parent)) = waiting.pop() {
            let mut since_kept = STATE_DISTANCE;
            loop {
                let number = state.number;
                if let Some(is_loop) = self.joins.get(&number).copied() {
                    state.clean(self.live[number]);
                    if self.is_covered(&state).map_err(|reason| (number, reason))? {
                        self.ended(parent);
                        break;
                    }
                    if is_loop || since_kept >= STATE_DISTANCE {
                        parent = self.keep(&state, parent);
                        since_kept = 0;
                    }
                }
                since_kept = since_kept.saturating_add(1);
                followed += 1;
                if followed > COMPLEXITY_MAX {
                    let reason = format!(
                        "more than {COMPLEXITY_MAX} instructions were followed over all paths; bound loops by smaller constants, or split the program"
                    );
                    return Err((number, reason));
                }
                let step = self.step(&mut state).map_err(|reason| (number, reason))?;
                if self.roles[number] == Role::Unreachable {
                    self.roles[number] = Role::Plain;
                }
                match step {
                    Step::Next => {}
                    Step::Fork(other) => {
                        if waiting.len() == WAITING_MAX {
                            return Err((
                                number,
                                format!(
                                    "more than {WAITING_MAX} branches of a path wait to be followed; bound loops by smaller constants"
                                ),
                            ));
                        }
                        if let Some(parent) = parent {
                            self.kept[parent].open += 1;
                        }
                        waiting.push((other, parent));
                    }
                    Step::End => {
                        self.ended(parent);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the path can be pruned. An equal state earlier on the same path means an infinite loop.
    fn is_covered(&self, state: &State) -> Result<bool, Reason> {
        for index in self.kept_at.get(&state.number).into_iter().flatten().rev() {
            let Kept { state: Some(earlier), open, .. } = &self.kept[*index] else { continue };
            match open {
                0 if earlier.covers(state) => return Ok(true),
                // The search is depth-first: a kept state with open paths is on the current path.
                1.. if **earlier == *state => {
                    return Err("this loop need not end: nothing that the program tests changes from one iteration \
                                to the next; bound it by a counter"
                        .to_string());
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Keeps a state for pruning, as a descendant of `parent`. Returns the new parent of the path.
    fn keep(&mut self, state: &State, parent: Option<usize>) -> Option<usize> {
        let at = self.kept_at.entry(state.number).or_default();
        if at.len() == STATES_MAX {
            let oldest = at.remove(0);
            self.kept[oldest].state = None;
            self.kept_now -= 1;
        }
        if self.kept_now == ALL_STATES_MAX {
            return parent;
        }
        let index = self.kept.len();
        at.push(index);
        self.kept.push(Kept { state: Some(Box::new(state.clone())), parent, open: 1 });
        self.kept_now += 1;
        Some(index)
    }

    /// Ends a path, and closes the kept states that have no other open path.
    fn ended(&mut self, mut parent: Option<usize>) {
        while let Some(index) = parent {
            let kept = &mut self.kept[index];
            kept.open -= 1;
            match kept.open {
                0 => parent = kept.parent,
                _ => return,
            }
        }
    }

    fn fresh_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Records the role of an instruction, which must be compatible on all paths.
    fn play(&mut self, number: usize, role: Role) -> Result<(), Reason> {
        let known = &mut self.roles[number];
        match (*known, role) {
            (Role::Unreachable, _) => *known = role,
            (Role::Trace(a), Role::Trace(b)) => *known = Role::Trace(a.min(b)),
            (Role::Access(a), Role::Access(b)) => *known = Role::Access(a.or(b)),
            (a, b) if a == b => {}
            (Role::Context(_), Role::Context(_)) => {
                return Err("reads different fields of the context on different paths".to_string());
            }
            _ => return Err("reads the context on one path and other memory on another".to_string()),
        }
        Ok(())
    }

    /// A register that may be read.
    fn read<'s>(&self, state: &'s State, number: u8) -> Result<&'s Register, Reason> {
        let register = state.register(number);
        match register.kind {
            Kind::Unset => Err(format!("r{number} is read before it is set")),
            Kind::Stale => Err(format!(
                "r{number} points into the packet as it was before a helper moved it; load `data` and `data_end` again"
            )),
            _ => Ok(register),
        }
    }

    /// Interprets one instruction.
    fn step(&mut self, state: &mut State) -> Result<Step, Reason> {
        let number = state.number;
        let ops = self.ops;
        let op = &ops[number];
        state.number = number + 1;
        match *op {
            Op::Alu { wide, alu, dst, src } => self.alu(state, wide, alu, dst, src)?,
            Op::Neg { wide, dst } => self.negate(state, wide, dst)?,
            Op::Swap { big, bits, dst } => self.swap(state, big, bits, dst)?,
            Op::LoadImmediate { dst, constant } => {
                state.number = number + 2;
                self.load_immediate(state, dst, constant)?;
            }
            Op::Second => return Err("the second half of a 64-bit immediate cannot be executed".to_string()),
            Op::Load { size, dst, base, off } => {
                let (register, role) = self.load(state, size, base, off)?;
                self.play(number, role)?;
                state.set(dst, register);
            }
            Op::Store { size, base, off, src } => {
                let touched = Touched::of(state.register(base).kind);
                self.store(state, size, base, off, src)?;
                self.play(number, Role::Access(touched))?;
            }
            Op::Atomic { base, .. } => {
                let touched = Touched::of(state.register(base).kind);
                self.atomic(state, op)?;
                self.play(number, Role::Access(touched))?;
            }
            Op::Jump { to } => state.number = to,
            Op::Branch { wide, condition, dst, src, to } => {
                return self.branch(state, wide, condition, dst, src, to);
            }
            Op::Call { helper } => self.call(state, number, helper)?,
            Op::CallLocal { to } => self.call_local(state, to)?,
            Op::Exit => return self.exit(state),
        }
        Ok(Step::Next)
    }
}
