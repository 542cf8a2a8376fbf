//! The cost model of operations, and the limit on the cost of the loop iterations that a packet runs.
//!
//! The unit is a *step*: about half a nanosecond, the time of one operation on a 64-bit word. [`steps`] is the only
//! cost function; the size limit of programs ([`crate::Builder::set_budget`]) and the bound of loops use it. It depends
//! on the program alone. Where the time depends on packets or tables, it assumes the worst case that neither entries
//! nor frames make worse.
//!
//! **Loops.** [`charge_loops`] puts [`Op::Charge`] into a block of each loop, with the cost of one iteration. A packet
//! whose charges in one run of an entry point add up to more than [`STEPS_MAX`] is dropped, after the same charge on
//! every engine: passes move charges with the code around them and never change them. Loops are those of a loop nesting
//! forest (Bourdoncle, "Efficient chaotic iteration strategies with widenings", 1993, section 3; Steensgaard,
//! "Sequentializing program dependence graphs for irreducible programs", 1993): the head of a strongly connected
//! component is its first block in reverse post-order, and the strongly connected components that remain without the
//! head are inner loops. An iteration costs as much as the most expensive path from the head through its component;
//! inner loops are charged at their own heads.
//!
//! **Scale.** The factors of wide arithmetic and hashes follow measurements of machine code and the runtime's functions
//! on AMD Zen 3. The costs of cheap calls (cells, meters, messages, lookups) were too small to measure and are chosen
//! by hand. A loop that adds and compares runs about 200,000 iterations, one that multiplies values of 16,384 bits runs
//! 14.
//!
//! Tests: at the end of the file; `datapath`'s `tests/bounds.rs` compares the engines.

use crate::flow::{Cfg, for_each_header_slot};
use crate::layout::words_of;
use crate::op::{BinOp, HashAlgorithm, Inst, Op, Operand, Terminator, UnOp};
use crate::program::{Block, EntryPoint, ExternKind, Program, Stage};
use base::entry::MatchKind;
use base::ids::{BlockId, ExternId, HeaderId, SlotId, TableId};
use std::collections::{HashMap, HashSet};

/// Steps that one packet may spend in loops in one run of an entry point: about a millisecond.
pub const STEPS_MAX: u64 = 1 << 21;

/// Steps in loops that every run of an entry point has free: work is accounted only beyond them, so an entry point that
/// cannot spend more needs no accounting.
pub const FREE_STEPS: u64 = 1 << 13;

/// Largest size in words of values whose arithmetic is inline, in registers. Wider values are in memory and computed by
/// the runtime.
const INLINE_WORDS: u64 = 2;
/// Cost of each word of a value in memory that is read, written or combined with another.
const MEMORY_WORD: u64 = 3;
/// Cost of a call of the runtime's arithmetic, and of each word of its operands, which are converted.
const WIDE_CALL: u64 = 256;
const WIDE_WORD: u64 = 48;
/// Cost of an access to a register, counter or entry: a cache line that another processor may hold.
const CELL: u64 = 32;
/// Cost of a meter or a random number: a call.
const CALL: u64 = 128;
/// Cost of a lookup by exact keys or prefixes, and by other match kinds.
const LOOKUP: u64 = 256;
const TERNARY_LOOKUP: u64 = 1024;
/// Cost of adding an entry from a packet.
const ADDITION: u64 = 2048;
/// Cost of a message or a line of the log.
const MESSAGE: u64 = 512;
/// Size in words of the longest frame's payload.
const PAYLOAD_WORDS: u64 = 8192;

/// Maximum nesting depth of loops that are analysed. Deeper loops are charged in each of their blocks, which costs
/// instructions but is correct.
const DEPTH_MAX: u32 = 32;

/// Cost of an operation in steps: at least one, except for marks and charges.
pub fn steps(program: &Program, op: &Op) -> u64 {
    let slot = |slot: SlotId| moved(program.width(slot));
    let operand = |operand: &Operand| moved(operand.width(program));
    let words = |operand: &Operand| u64::from(words_of(operand.width(program)));
    let all = |operands: &[Operand]| operands.iter().map(operand).sum::<u64>();
    match op {
        Op::Mov { dst, .. } | Op::Select { dst, .. } | Op::Lookahead { dst, .. } | Op::ActionParam { dst, .. } => {
            slot(*dst)
        }
        Op::Bin { op, a, .. } => binary(*op, words(a)),
        Op::Un { op: UnOp::Not, a, .. } => operand(a),
        Op::Un { op: UnOp::Neg, a, .. } => binary(BinOp::Sub, words(a)),
        Op::Cast { dst, a, .. } | Op::Slice { dst, a, .. } | Op::SetSlice { dst, a, .. } => slot(*dst).max(operand(a)),
        Op::Concat { dst, .. } => 2 * slot(*dst),
        Op::SetValid { .. } | Op::Advance { .. } | Op::HasBits { .. } | Op::Consumed { .. } | Op::Truncate { .. } => 1,
        // A failed assertion writes a line to the log.
        Op::Assert { .. } => MESSAGE,
        Op::SetInvalid { header } => header_steps(program, *header),
        Op::Extract { header, .. } | Op::Emit { header } => 2 * header_steps(program, *header),
        Op::Apply { table, keys, selector, .. } => lookup(program, *table) + 4 * (all(keys) + all(selector)),
        Op::AddEntry { keys, args, .. } => ADDITION + 4 * (all(keys) + all(args)),
        Op::Count { .. } | Op::CountDirect { .. } | Op::RestartTimer { .. } => CELL,
        Op::Meter { .. } | Op::MeterDirect { .. } | Op::Random { .. } => CALL,
        Op::RegisterRead { register, .. } | Op::RegisterWrite { register, .. } => CELL + cell(program, *register),
        // As a read and a write.
        Op::RegisterUpdate { register, .. } => 2 * (CELL + cell(program, *register)),
        Op::Hash { algorithm, data, payload, .. } => {
            let words = data.iter().map(words).sum::<u64>() + if *payload { PAYLOAD_WORDS } else { 0 };
            CELL + words * hash_word(*algorithm)
        }
        Op::Digest { data, .. } => MESSAGE + 4 * all(data),
        Op::Log { args, .. } => MESSAGE + args.iter().map(|arg| decimal(words(arg))).sum::<u64>(),
        Op::Unresolved { args, results, .. } => CALL + all(args) + results.iter().map(|s| slot(*s)).sum::<u64>(),
        Op::Charge { .. } | Op::Mark(_) => 0,
    }
}

/// Cost of copying a value of `width` bits.
fn moved(width: u32) -> u64 {
    let words = u64::from(words_of(width));
    if words <= INLINE_WORDS { words } else { MEMORY_WORD * words }
}

/// Cost of a binary operation on operands of `words` words.
fn binary(op: BinOp, words: u64) -> u64 {
    let is_linear = matches!(op, BinOp::And | BinOp::Or | BinOp::Xor | BinOp::Eq | BinOp::Ne);
    let is_quotient = matches!(op, BinOp::Div | BinOp::Mod);
    let call = WIDE_CALL + WIDE_WORD * words;
    match op {
        BinOp::Mul if words <= INLINE_WORDS => words * words,
        BinOp::Mul => call + 2 * words * words,
        _ if is_quotient && words == 1 => 16,
        _ if is_quotient => call + words * words,
        _ if words <= INLINE_WORDS => words,
        _ if is_linear => MEMORY_WORD * words,
        _ => call,
    }
}

/// Cost of printing a number of `words` words in decimal.
fn decimal(words: u64) -> u64 {
    8 * words * words
}

/// Cost of each word of a hash's input.
fn hash_word(algorithm: HashAlgorithm) -> u64 {
    match algorithm {
        HashAlgorithm::Csum16 | HashAlgorithm::Xor16 | HashAlgorithm::Xor32 | HashAlgorithm::Identity => 4,
        HashAlgorithm::Crc32 | HashAlgorithm::Crc32Custom | HashAlgorithm::Xxh64 => 16,
        _ => 64,
    }
}

fn header_steps(program: &Program, header: HeaderId) -> u64 {
    let mut steps = 0;
    for_each_header_slot(program, header, |slot| steps += moved(program.width(slot)));
    steps
}

fn lookup(program: &Program, table: TableId) -> u64 {
    let Some(table) = program.tables.get(table.index()) else { return LOOKUP };
    let is_simple = table.keys.iter().all(|key| matches!(key.kind, MatchKind::Exact | MatchKind::Lpm));
    if is_simple { LOOKUP } else { TERNARY_LOOKUP }
}

fn cell(program: &Program, register: ExternId) -> u64 {
    match program.externs.get(register.index()).map(|e| &e.kind) {
        Some(ExternKind::Register { width, .. }) => moved(*width),
        _ => 1,
    }
}

/// Cost of a block in steps.
fn block_steps(program: &Program, block: &Block) -> u64 {
    let term = match &block.term {
        Terminator::Switch { on, cases, .. } => {
            let words = u64::from(words_of(on.width(program)));
            match words <= INLINE_WORDS {
                true => u64::from(cases.len().checked_ilog2().unwrap_or(0)) + 1,
                // Compared one after the other.
                false => (cases.len() as u64).saturating_mul(words),
            }
        }
        _ => 1,
    };
    block.insts.iter().map(|inst| steps(program, &inst.op)).fold(term, u64::saturating_add)
}

fn has_charge(block: &Block) -> bool {
    block.insts.iter().any(|inst| matches!(inst.op, Op::Charge { .. }))
}

/// Adds charges to all loops that have none.
pub fn charge_loops(program: &mut Program) {
    for s in 0..program.stages.len() {
        let stage = &program.stages[s];
        let cfg = Cfg::new(stage);
        if !cfg.loop_heads().contains(&true) {
            continue;
        }
        let cost = |block: &Block| block_steps(program, block);
        let mut loops = Loops::new(&cfg, stage.blocks.iter().map(cost).collect());
        loops.run(&uncharged(stage, &cfg));
        let charges = loops.charges;
        for (block, steps) in program.stages[s].blocks.iter_mut().zip(charges) {
            if let Some(steps) = steps {
                let steps = steps.min(STEPS_MAX + 1) as u32;
                let span = block.insts.first().map_or(block.span, |inst| inst.span);
                block.insts.insert(0, Inst { op: Op::Charge { steps }, span });
            }
        }
    }
}

/// A block of a cycle without a charge, if there is one.
pub fn uncharged_cycle(stage: &Stage, cfg: &Cfg) -> Option<BlockId> {
    let mut loops = Loops::new(cfg, vec![0; stage.blocks.len()]);
    let components = loops.components(&uncharged(stage, cfg));
    components.into_iter().find(|c| loops.is_loop(c)).map(|component| component[0])
}

/// Whether a stage of the entry point has a charge.
pub fn is_charged(program: &Program, entry: &EntryPoint) -> bool {
    entry.stages.iter().flat_map(|stage| &program.stages[stage.index()].blocks).any(has_charge)
}

/// The largest sum of charges on any path through a stage, in steps; `None` if the stage has a loop.
pub fn charged_at_most(stage: &Stage) -> Option<u64> {
    let cfg = Cfg::new(stage);
    if cfg.loop_heads().contains(&true) {
        return None;
    }
    let mut most = vec![0u64; stage.blocks.len()];
    for block in cfg.rpo.iter().rev() {
        let own = stage.blocks[block.index()].insts.iter().map(|inst| match inst.op {
            Op::Charge { steps } => u64::from(steps),
            _ => 0,
        });
        let behind = cfg.succs[block.index()].iter().map(|to| most[to.index()]).max().unwrap_or(0);
        most[block.index()] = own.fold(behind, u64::saturating_add);
    }
    Some(most.first().copied().unwrap_or(0))
}

/// Reachable blocks without a charge, in reverse post-order.
fn uncharged(stage: &Stage, cfg: &Cfg) -> Vec<BlockId> {
    cfg.rpo.iter().copied().filter(|block| !has_charge(&stage.blocks[block.index()])).collect()
}

/// The loop analysis of a stage.
struct Loops<'a> {
    cfg: &'a Cfg,
    /// Cost in steps, by block.
    cost: Vec<u64>,
    charges: Vec<Option<u64>>,
    /// By block: the number of the last search that visited the block, and its index and low link there (Tarjan).
    part: Vec<u32>,
    parts: u32,
    index: Vec<u32>,
    low: Vec<u32>,
}

impl<'a> Loops<'a> {
    fn new(cfg: &'a Cfg, cost: Vec<u64>) -> Loops<'a> {
        let n = cost.len();
        Loops { cfg, cost, charges: vec![None; n], part: vec![0; n], parts: 0, index: vec![0; n], low: vec![0; n] }
    }

    /// Computes the charges of all loops among these blocks.
    fn run(&mut self, blocks: &[BlockId]) {
        let outermost = self.components(blocks).into_iter().filter(|c| self.is_loop(c));
        let mut waiting: Vec<(Vec<BlockId>, u32)> = outermost.map(|c| (c, 0)).collect();
        while let Some((component, depth)) = waiting.pop() {
            if depth == DEPTH_MAX {
                component.iter().for_each(|b| self.charges[b.index()] = Some(self.cost[b.index()].max(1)));
                continue;
            }
            waiting.extend(self.charge(component).into_iter().map(|c| (c, depth + 1)));
        }
    }

    /// Charges the head of a loop and returns the inner loops.
    fn charge(&mut self, mut body: Vec<BlockId>) -> Vec<Vec<BlockId>> {
        let head = self.head(&body);
        body.retain(|block| *block != head);
        let mut inner = Vec::new();
        // The cost of the most expensive path from each block. Components come after those that they lead to.
        let mut dearest: HashMap<BlockId, u64> = HashMap::new();
        let behind = |cfg: &Cfg, dearest: &HashMap<BlockId, u64>, block: BlockId| {
            let succs = &cfg.succs[block.index()];
            succs.iter().filter_map(|to| dearest.get(to)).copied().max().unwrap_or(0)
        };
        let cfg = self.cfg;
        for component in self.components(&body) {
            let is_loop = self.is_loop(&component);
            let own = if is_loop { self.outside_head(&component) } else { self.cost[component[0].index()] };
            let total = component.iter().map(|b| behind(cfg, &dearest, *b)).max().unwrap_or(0).saturating_add(own);
            dearest.extend(component.iter().map(|b| (*b, total)));
            inner.extend(is_loop.then_some(component));
        }
        let round = self.cost[head.index()].saturating_add(behind(cfg, &dearest, head));
        self.charges[head.index()] = Some(round.max(1));
        inner
    }

    /// The first block of a component, in reverse post-order.
    fn head(&self, component: &[BlockId]) -> BlockId {
        let order = |block: &BlockId| self.cfg.rpo_index[block.index()];
        component.iter().copied().min_by_key(order).expect("a component has blocks")
    }

    /// The cost of what an inner loop may execute before its head: 0, unless an edge enters it at another block (an
    /// irreducible loop).
    fn outside_head(&self, component: &[BlockId]) -> u64 {
        let head = self.head(component);
        let inside: HashSet<BlockId> = component.iter().copied().collect();
        let is_entered = |b: &BlockId| self.cfg.preds[b.index()].iter().any(|from| !inside.contains(from));
        if component.iter().any(|b| *b != head && is_entered(b)) {
            return component.iter().map(|b| self.cost[b.index()]).fold(0, u64::saturating_add);
        }
        0
    }

    fn is_loop(&self, component: &[BlockId]) -> bool {
        component.len() > 1 || self.cfg.succs[component[0].index()].contains(&component[0])
    }

    /// The strongly connected components of a part of the stage, each after its successors (Tarjan, "Depth-first search
    /// and linear graph algorithms", 1972).
    fn components(&mut self, blocks: &[BlockId]) -> Vec<Vec<BlockId>> {
        self.parts += 1;
        for block in blocks {
            self.part[block.index()] = self.parts;
            self.index[block.index()] = 0;
        }
        let (mut all, mut open, mut numbers) = (Vec::new(), Vec::new(), 0);
        for root in blocks {
            if self.index[root.index()] == 0 {
                self.search(*root, &mut numbers, &mut open, &mut all);
            }
        }
        all
    }

    fn search(&mut self, root: BlockId, numbers: &mut u32, open: &mut Vec<BlockId>, all: &mut Vec<Vec<BlockId>>) {
        let mut path = vec![(root, 0)];
        while let Some(&mut (block, ref mut next)) = path.last_mut() {
            let b = block.index();
            if *next == 0 {
                *numbers += 1;
                (self.index[b], self.low[b]) = (*numbers, *numbers);
                open.push(block);
            }
            if let Some(&to) = self.cfg.succs[b].get(*next) {
                *next += 1;
                let t = to.index();
                match self.index[t] {
                    _ if self.part[t] != self.parts => {}
                    0 => path.push((to, 0)),
                    seen => self.low[b] = self.low[b].min(seen),
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                self.low[before.index()] = self.low[before.index()].min(self.low[b]);
            }
            if self.low[b] == self.index[b] {
                let from = open.iter().rposition(|other| *other == block).expect("it is open");
                let component = open.split_off(from);
                component.iter().for_each(|done| self.index[done.index()] = u32::MAX);
                all.push(component);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The charges of a control's blocks; block `i` has the successors `edges[i]` and `moves[i]` moves.
    fn charges(edges: &[&[u32]], moves: &[usize]) -> Vec<Option<u32>> {
        let mut text = String::from(
            "program \"t\"\nslot x: 8 metadata\nslot c: 1 metadata\nslot w: 8 metadata\nentry ingress (s)\nstage control s {\n",
        );
        for (b, (to, moves)) in edges.iter().zip(moves).enumerate() {
            text += &format!("b{b}:\n{}", "  x = mov 8w1\n".repeat(*moves));
            text += &match to {
                [] => "  send 8w1\n".to_string(),
                [to] => format!("  jump b{to}\n"),
                [then, other] => format!("  branch c, b{then}, b{other}\n"),
                more => panic!("{more:?}"),
            };
        }
        let mut program = crate::parse(&(text + "}\n"), base::FileId(0)).expect("it is well-formed");
        let stage = &program.stages[0];
        assert_eq!(uncharged_cycle(stage, &Cfg::new(stage)).is_some(), Cfg::new(stage).loop_heads().contains(&true));
        charge_loops(&mut program);
        assert_eq!(crate::verify(&program), []);
        let once = program.clone();
        charge_loops(&mut program);
        assert_eq!(program, once, "loops are charged once");
        let charge = |block: &Block| match block.insts.first().map(|inst| &inst.op) {
            Some(Op::Charge { steps }) => Some(*steps),
            _ => None,
        };
        program.stages[0].blocks.iter().map(charge).collect()
    }

    #[test]
    fn a_round_costs_as_much_as_its_most_expensive_path() {
        // The head costs two, the more expensive arm eleven, the join one; what follows the loop costs nothing.
        let edges: [&[u32]; 6] = [&[1], &[2, 5], &[3, 4], &[1], &[1], &[]];
        assert_eq!(charges(&edges, &[50, 1, 0, 10, 3, 100]), [None, Some(2 + 1 + 11), None, None, None, None]);
        assert_eq!(charges(&[&[0, 1], &[]], &[7, 7]), [Some(8), None]);
        assert_eq!(charges(&[&[1], &[]], &[7, 7]), [None, None]);
    }

    #[test]
    fn inner_loops_are_charged_at_their_own_heads() {
        // b1 is the outer head, b2 the inner one, b3 its body, b4 what follows it in the outer loop.
        let edges: [&[u32]; 6] = [&[1], &[2, 5], &[3, 4], &[2], &[1], &[]];
        assert_eq!(charges(&edges, &[0, 1, 2, 100, 10, 0]), [None, Some(2 + 11), Some(3 + 101), None, None, None]);
    }

    #[test]
    fn a_loop_that_is_entered_in_its_middle_costs_what_is_done_before_its_head() {
        // Two blocks form a cycle, and both are entered from the loop around them.
        let edges: [&[u32]; 5] = [&[1], &[2, 3], &[3, 4], &[2, 4], &[1]];
        let charged = charges(&edges, &[0, 0, 10, 20, 0]);
        assert_eq!(charged[1], Some(1 + 11 + 21 + 1));
        assert_eq!(charged[2..4].iter().flatten().count(), 1);
    }

    #[test]
    fn every_cycle_is_charged_however_deep_loops_are() {
        // Each block has edges to the next block and to the previous one.
        let n = 200u32;
        let edges: Vec<Vec<u32>> = (0..n).map(|b| if b == 0 { vec![1] } else { vec![b - 1, (b + 1).min(n)] }).collect();
        let mut edges: Vec<&[u32]> = edges.iter().map(Vec::as_slice).collect();
        edges.push(&[]);
        let charged = charges(&edges, &vec![1; edges.len()]);
        assert!(charged.iter().flatten().count() >= edges.len() / 2 - 1);
    }

    #[test]
    fn wide_multiplication_is_quadratic_and_wide_addition_linear() {
        assert_eq!([1, 2].map(|words| binary(BinOp::Mul, words)), [1, 4]);
        assert!(binary(BinOp::Mul, 256) > 100_000);
        assert!(binary(BinOp::Add, 256) < 15_000);
        assert_eq!(binary(BinOp::Xor, 256), 3 * 256);
    }
}
