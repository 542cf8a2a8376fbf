//! An interpreter for a program's header actions, which runs them on records.
//!
//! Header actions (`push_vlan`, `dec_nw_ttl`) are actions of one table of the P4 program, in a stage of their own
//! (`ir::OpenFlow::actions`). Running one means running that stage as if the table had matched and selected it. For
//! each action, the stage's blocks are decoded once, specialised to that lookup result, so that only the action's
//! own code remains.
//!
//! Values of at most 64 bits are computed as words, wider ones as `base::Bits`. Operations whose result does not
//! depend on the record alone (state, random numbers, packet bytes) are refused when the bridge is made.
//!
//! [`depend`] computes the words that an action may write, and the words on which each of these then depends, for
//! the flow cache.
//!
//! Tests: `vm/tests.rs`, against `ir::Op::evaluate` on random operations.

mod decode;
mod depend;
#[cfg(test)]
mod tests;

use crate::key::low;
use base::Bits;
use ir::layout::RecordLayout;
use ir::{BinOp, CastKind, Op, Operand, Program, UnOp};
use std::collections::HashMap;

/// Maximum number of blocks that one run executes. Actions have no loops, except in some generated programs.
const BLOCKS_MAX: u32 = 1 << 16;

/// The header actions of a program.
#[derive(Debug)]
pub struct Vm {
    record: RecordLayout,
    actions: Vec<Code>,
    by_name: HashMap<String, u32>,
}

/// Words with the bits on which something depends.
pub type Sources = Box<[(u32, u64)]>;

/// Data dependences of an action, for the flow cache.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dependences {
    /// Words that it may write, in ascending order, each with the words and bits on which its new value depends.
    pub written: Vec<(u32, Sources)>,
}

/// A decoded action.
#[derive(Debug)]
struct Code {
    blocks: Vec<Block>,
    params: usize,
    dependences: Dependences,
}

#[derive(Debug, Default)]
struct Block {
    insts: Vec<Inst>,
    /// Steps that its loops charge.
    charge: u64,
    end: End,
}

#[derive(Debug, Default)]
enum End {
    #[default]
    Done,
    Jump(u32),
    Branch {
        cond: Value,
        then: u32,
        other: u32,
    },
    Switch {
        on: Value,
        cases: Vec<(u64, u32)>,
        default: u32,
    },
    WideSwitch {
        on: Operand,
        cases: Vec<(Bits, u32)>,
        default: u32,
    },
}

/// A value of at most 64 bits.
#[derive(Clone, Copy, Debug)]
enum Value {
    Word(u32),
    Const(u64),
}

#[derive(Debug)]
enum Inst {
    Mov {
        dst: u32,
        src: Value,
    },
    Bin {
        op: BinOp,
        dst: u32,
        a: Value,
        b: Value,
        width: u32,
    },
    Un {
        op: UnOp,
        dst: u32,
        a: Value,
        width: u32,
    },
    Sext {
        dst: u32,
        a: Value,
        from: u32,
        to: u32,
    },
    /// `a >> shift & mask`: truncations and slices.
    Extract {
        dst: u32,
        a: Value,
        shift: u32,
        mask: u64,
    },
    Concat {
        dst: u32,
        hi: Value,
        lo: Value,
        shift: u32,
    },
    SetSlice {
        dst: u32,
        a: Value,
        shift: u32,
        mask: u64,
    },
    Select {
        dst: u32,
        cond: Value,
        then: Value,
        other: Value,
    },
    Zero {
        from: u32,
        words: u32,
    },
    Param {
        dst: u32,
        words: u32,
        param: usize,
        width: u32,
    },
    /// An operation with a value of more than 64 bits. Boxed to keep the other variants small.
    Wide {
        op: Box<Op>,
        dst: ir::SlotId,
        width: u32,
    },
}

impl Vm {
    /// Decodes the header actions of a program; there are none if the program has no control for them.
    ///
    /// # Errors
    /// If an action contains an unsupported operation; the message names both.
    pub fn new(program: &Program) -> Result<Vm, String> {
        let record = RecordLayout::new(program);
        let mut vm = Vm { record, actions: Vec::new(), by_name: HashMap::new() };
        let Some((stage, table)) = program.openflow.as_ref().and_then(|openflow| openflow.actions) else {
            return Ok(vm);
        };
        let actions =
            program.tables.get(table.index()).ok_or("the program has no table of header actions")?.actions.iter();
        for (k, of) in actions.enumerate() {
            let action = &program.actions[of.action.index()];
            let name = action.name.rsplit_once('.').map_or(action.name.as_str(), |(_, last)| last);
            let part = decode::reachable(program, stage, table, k as u32)
                .map_err(|why| format!("header action `{name}` {why}"))?;
            let dependences = depend::dependences(program, &vm.record, &part);
            let blocks = part.blocks.iter().map(|block| decode::block(program, &vm.record, &part, block)).collect();
            vm.actions.push(Code { blocks, params: action.params.len(), dependences });
            vm.by_name.insert(name.to_string(), k as u32);
        }
        Ok(vm)
    }

    /// The action with this name, without the name of its control.
    pub fn action(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// An action's name.
    pub fn name(&self, action: u32) -> &str {
        self.by_name.iter().find(|(_, other)| **other == action).map_or("?", |(name, _)| name)
    }

    /// The number of an action's parameters.
    pub fn params(&self, action: u32) -> usize {
        self.actions[action as usize].params
    }

    /// The data dependences of an action.
    pub fn dependences(&self, action: u32) -> &Dependences {
        &self.actions[action as usize].dependences
    }

    /// Runs an action. Missing arguments are 0. A run that exceeds [`BLOCKS_MAX`] or, in loops, [`ir::STEPS_MAX`] ends where it is.
    pub fn run(&self, action: u32, args: &[u128], record: &mut [u64]) {
        let code = &self.actions[action as usize];
        let (mut at, mut steps) = (0, 0);
        for _ in 0..BLOCKS_MAX {
            let Some(block) = code.blocks.get(at as usize) else { return };
            steps += block.charge;
            if steps > ir::STEPS_MAX {
                return;
            }
            for inst in &block.insts {
                self.step(inst, args, record);
            }
            at = match &block.end {
                End::Done => return,
                End::Jump(to) => *to,
                End::Branch { cond, then, other } => {
                    if cond.get(record) != 0 {
                        *then
                    } else {
                        *other
                    }
                }
                End::Switch { on, cases, default } => {
                    let on = on.get(record);
                    cases.iter().find(|(case, _)| *case == on).map_or(*default, |(_, to)| *to)
                }
                End::WideSwitch { on, cases, default } => {
                    let on = self.operand(on, record);
                    cases.iter().find(|(case, _)| *case == on).map_or(*default, |(_, to)| *to)
                }
            };
        }
    }

    fn operand(&self, operand: &Operand, record: &[u64]) -> Bits {
        match operand {
            Operand::Slot(slot) => self.record.get(record, *slot),
            Operand::Const(bits) => bits.clone(),
        }
    }

    fn step(&self, inst: &Inst, args: &[u128], record: &mut [u64]) {
        match inst {
            Inst::Mov { dst, src } => record[*dst as usize] = src.get(record),
            Inst::Bin { op, dst, a, b, width } => {
                record[*dst as usize] = binary(*op, a.get(record), b.get(record), *width);
            }
            Inst::Un { op, dst, a, width } => {
                let a = a.get(record);
                let value = match op {
                    UnOp::Not => !a,
                    UnOp::Neg => a.wrapping_neg(),
                };
                record[*dst as usize] = value & low(*width);
            }
            Inst::Sext { dst, a, from, to } => {
                record[*dst as usize] = signed(a.get(record), *from) as u64 & low(*to);
            }
            Inst::Extract { dst, a, shift, mask } => record[*dst as usize] = a.get(record) >> shift & mask,
            Inst::Concat { dst, hi, lo, shift } => {
                record[*dst as usize] = hi.get(record).checked_shl(*shift).unwrap_or(0) | lo.get(record);
            }
            Inst::SetSlice { dst, a, shift, mask } => {
                let value = a.get(record) << shift & mask;
                let at = &mut record[*dst as usize];
                *at = *at & !mask | value;
            }
            Inst::Select { dst, cond, then, other } => {
                record[*dst as usize] = if cond.get(record) != 0 { then.get(record) } else { other.get(record) };
            }
            Inst::Zero { from, words } => record[*from as usize..(*from + *words) as usize].fill(0),
            Inst::Param { dst, words, param, width } => {
                let mut value = args.get(*param).copied().unwrap_or(0) & crate::key::low128(*width);
                for word in &mut record[*dst as usize..(*dst + *words) as usize] {
                    *word = value as u64;
                    value >>= 64;
                }
            }
            Inst::Wide { op, dst, width } => {
                if let Some(value) = op.evaluate(*width, |operand| Some(self.operand(operand, record))) {
                    self.record.set(record, *dst, &value);
                }
            }
        }
    }
}

impl Value {
    #[inline]
    fn get(self, record: &[u64]) -> u64 {
        match self {
            Value::Word(word) => record[word as usize],
            Value::Const(value) => value,
        }
    }
}

/// The two's complement value of a number of `width` bits.
fn signed(value: u64, width: u32) -> i64 {
    let unused = 64 - width;
    (value << unused) as i64 >> unused
}

/// `a op b` for operands of `width` bits, at most 64; equal to `BinOp::apply`.
fn binary(op: BinOp, a: u64, b: u64, width: u32) -> u64 {
    let all = low(width);
    let (sa, sb) = (signed(a, width), signed(b, width));
    let saturated = |value: i128| {
        let max = i128::from(all >> 1);
        value.clamp(-max - 1, max) as u64 & all
    };
    let amount = b.min(u64::from(width)) as u32;
    match op {
        BinOp::Add => a.wrapping_add(b) & all,
        BinOp::Sub => a.wrapping_sub(b) & all,
        BinOp::Mul => a.wrapping_mul(b) & all,
        BinOp::Div => a.checked_div(b).unwrap_or(all),
        BinOp::Mod => a.checked_rem(b).unwrap_or(a),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => a.checked_shl(amount).unwrap_or(0) & all,
        BinOp::Lshr => a.checked_shr(amount).unwrap_or(0),
        BinOp::Ashr => (sa >> amount.min(63)) as u64 & all,
        BinOp::SatAddU => (u128::from(a) + u128::from(b)).min(u128::from(all)) as u64,
        BinOp::SatSubU => a.saturating_sub(b),
        BinOp::SatAddS => saturated(i128::from(sa) + i128::from(sb)),
        BinOp::SatSubS => saturated(i128::from(sa) - i128::from(sb)),
        BinOp::Eq => u64::from(a == b),
        BinOp::Ne => u64::from(a != b),
        BinOp::Ult => u64::from(a < b),
        BinOp::Ule => u64::from(a <= b),
        BinOp::Slt => u64::from(sa < sb),
        BinOp::Sle => u64::from(sa <= sb),
    }
}

/// Whether a cast is a truncation or a zero extension: both keep the low bits.
fn keeps_low_bits(kind: CastKind) -> bool {
    matches!(kind, CastKind::Zext | CastKind::Trunc)
}
