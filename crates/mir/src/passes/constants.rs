//! Conditional constant propagation and constant folding.
//!
//! Wegman, Zadeck: "Constant propagation with conditional branches", TOPLAS 1991. Values are assumed constant, and
//! edges never taken, until shown otherwise. So constants are found around loops, and across paths that are never
//! taken.
//!
//! Needs: a well-formed function. Guarantees: no instruction without effects, except `const`, has only constant integer
//! operands. Blocks to which only untaken edges lead are left for `branches` to remove.
//!
//! ```text
//! v1 = const.i32 6                          v1 = const.i32 6
//! v2 = const.i32 7                          v2 = const.i32 7
//! v3 = mul.i32 v1, v2              =>       v3 = const.i32 42
//! v4 = ult v3, v1                           v4 = const.i1 0
//! branch v4, b1, b2(v3)                     branch v4, b1, b2(v3)
//! ```
//!
//! Tests: `tests/passes/constants.mir`.

use crate::compute;
use crate::function::{Function, Module, Replacements};
use crate::op::{Instruction, Op, Terminator};
use crate::types::{Block, Type, Value};

/// The lattice value of an SSA value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Top: no definition was reached yet.
    Unreached,
    /// Always this constant.
    Constant(u128),
    /// Bottom: not a single known constant.
    Varies,
}

impl Known {
    fn join(self, other: Known) -> Known {
        match (self, other) {
            (Known::Unreached, known) | (known, Known::Unreached) => known,
            (Known::Constant(a), Known::Constant(b)) if a == b => self,
            _ => Known::Varies,
        }
    }
}

struct Analysis<'f> {
    function: &'f Function,
    known: Vec<Known>,
    /// By value: the blocks that use it.
    users: Vec<Vec<Block>>,
    is_reached: Vec<bool>,
    waiting: Vec<Block>,
    is_waiting: Vec<bool>,
}

/// Runs the pass.
pub(super) fn run(_: &Module, function: &mut Function) -> bool {
    let mut analysis = Analysis::new(function);
    analysis.solve();
    let Analysis { known, is_reached, .. } = analysis;
    let constant = |value: Value| match known[value.index()] {
        Known::Constant(number) => Some(number),
        _ => None,
    };
    let mut changed = false;
    let is_used = used(function);
    // Uses of constant parameters are replaced by constants, which are added below.
    let mut replacements = Replacements::new(function);
    for block in function.layout.clone().into_iter().filter(|block| is_reached[block.index()]) {
        for inst in &mut function.block_mut(block).insts {
            if let Some(number) = inst.result.and_then(constant)
                && is_foldable(&inst.op)
            {
                inst.op = Op::Const(number);
                changed = true;
            }
        }
        let mut insts = Vec::new();
        for param in function.block(block).params.clone().into_iter().filter(|param| is_used[param.index()]) {
            let Some(number) = constant(param) else { continue };
            let result = function.add_value(function.type_of(param));
            insts.push(Instruction { op: Op::Const(number), result: Some(result), location: None });
            replacements.grow(function);
            replacements.add(param, result);
            changed = true;
        }
        function.block_mut(block).insts.splice(0..0, insts);
    }
    function.replace(&replacements);
    changed
}

/// By value: whether it has uses.
fn used(function: &Function) -> Vec<bool> {
    let mut used = vec![false; function.values.len()];
    for block in &function.layout {
        let data = function.block(*block);
        data.insts.iter().for_each(|inst| inst.op.operands(|operand| used[operand.index()] = true));
        data.terminator.operands(|operand| used[operand.index()] = true);
    }
    used
}

/// Whether an operation is replaced by a constant if its result is one.
fn is_foldable(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Cast(..) | Op::Pack(_) | Op::Hash(_)
    )
}

impl<'f> Analysis<'f> {
    fn new(function: &'f Function) -> Analysis<'f> {
        let mut users = vec![Vec::new(); function.values.len()];
        for &block in &function.layout {
            let data = function.block(block);
            let mut uses = |value: Value| {
                let users: &mut Vec<Block> = &mut users[value.index()];
                if users.last() != Some(&block) {
                    users.push(block);
                }
            };
            data.insts.iter().for_each(|inst| inst.op.operands(&mut uses));
            data.terminator.operands(&mut uses);
        }
        Analysis {
            function,
            known: vec![Known::Unreached; function.values.len()],
            users,
            is_reached: vec![false; function.blocks.len()],
            waiting: Vec::new(),
            is_waiting: vec![false; function.blocks.len()],
        }
    }

    fn wait(&mut self, block: Block) {
        if !std::mem::replace(&mut self.is_waiting[block.index()], true) {
            self.waiting.push(block);
        }
    }

    fn learn(&mut self, value: Value, known: Known) {
        let known = self.known[value.index()].join(known);
        if known != self.known[value.index()] {
            self.known[value.index()] = known;
            for i in 0..self.users[value.index()].len() {
                let user = self.users[value.index()][i];
                if self.is_reached[user.index()] {
                    self.wait(user);
                }
            }
        }
    }

    fn solve(&mut self) {
        let entry = self.function.entry();
        for param in self.function.params() {
            self.learn(*param, Known::Varies);
        }
        self.is_reached[entry.index()] = true;
        self.wait(entry);
        while let Some(block) = self.waiting.pop() {
            self.is_waiting[block.index()] = false;
            let data = self.function.block(block);
            for inst in &data.insts {
                if let Some(result) = inst.result {
                    let known = self.evaluate(&inst.op, self.function.type_of(result));
                    self.learn(result, known);
                }
            }
            self.follow(&data.terminator);
        }
    }

    fn follow(&mut self, terminator: &Terminator) {
        let decides = match terminator {
            Terminator::Branch(value, ..) | Terminator::Switch(value, ..) => self.known[value.index()],
            _ => Known::Varies,
        };
        let taken = match (decides, terminator) {
            (Known::Unreached, _) => return,
            (Known::Constant(number), Terminator::Branch(..)) => Some(usize::from(number == 0)),
            (Known::Constant(number), Terminator::Switch(_, cases, _)) => {
                Some(cases.iter().position(|(case, _)| u128::from(*case) == number).unwrap_or(cases.len()))
            }
            _ => None,
        };
        for (_, edge) in terminator.edges().enumerate().filter(|(i, _)| taken.is_none_or(|taken| taken == *i)) {
            for (param, arg) in self.function.block(edge.block).params.iter().zip(&edge.args) {
                self.learn(*param, self.known[arg.index()]);
            }
            if !std::mem::replace(&mut self.is_reached[edge.block.index()], true) {
                self.wait(edge.block);
            }
        }
    }

    fn evaluate(&self, op: &Op, ty: Type) -> Known {
        if let Op::Const(number) = op {
            return Known::Constant(*number);
        }
        if !is_foldable(op) {
            return Known::Varies;
        }
        let known = |value: Value| self.known[value.index()];
        // Only the condition may be known.
        if let Op::Select(condition, a, b) = op {
            return match known(*condition) {
                Known::Unreached => Known::Unreached,
                Known::Constant(0) => known(*b),
                Known::Constant(_) => known(*a),
                Known::Varies => known(*a).join(known(*b)),
            };
        }
        let mut all = Known::Constant(0);
        op.operands(|value| match (all, known(value)) {
            (_, Known::Unreached) => all = Known::Unreached,
            (Known::Constant(_), Known::Varies) => all = Known::Varies,
            _ => {}
        });
        let Known::Constant(_) = all else { return all };
        let number = |value: Value| match known(value) {
            Known::Constant(number) => number,
            _ => 0,
        };
        let type_of = |value: Value| self.function.type_of(value);
        Known::Constant(match op {
            Op::Unary(op, a) => compute::unary(*op, ty, number(*a)),
            Op::Binary(op, a, b) => compute::binary(*op, ty, number(*a), number(*b)),
            Op::Compare(op, a, b) => compute::compare(*op, type_of(*a), number(*a), number(*b)).into(),
            Op::Cast(op, a) => compute::cast(*op, type_of(*a), ty, number(*a)),
            Op::Pack(parts) => compute::pack(parts, |part| number(part.value)),
            Op::Hash(words) => compute::hash(words.map(number)),
            _ => return Known::Varies,
        })
    }
}
