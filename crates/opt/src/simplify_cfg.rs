//! Simplification of the control flow graph: fewer and longer blocks.
//!
//! Needs: a well-formed program. Guarantees: same behaviour; every block is reachable; no jump leads to an empty block
//! that only jumps; a block whose only predecessor jumps to it is merged into that predecessor.
//!
//! ```text
//! b0:                             b0:
//!   x = mov 8w1                     x = mov 8w1
//!   jump b1                         y = mov 8w2
//! b1:                     =>        next
//!   y = mov 8w2
//!   jump b2
//! b2:
//!   next
//! ```
//!
//! Also: branches and switches whose edges all have one target become jumps; cases with the default's target are
//! removed; a branch to an empty block that branches on the same condition skips it (jump threading); empty controls
//! are removed from all entries.
//!
//! Tests: `tests/files/simplify_cfg.ir`, `tests/properties.rs`.

use base::ids::BlockId;
use ir::{Block, Cfg, Operand, Program, Stage, StageKind, Terminator};

/// Runs the pass; returns whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut changed = false;
    for stage in &mut program.stages {
        changed |= collapse_edges(stage);
        changed |= thread_jumps(stage);
        // Jump threading may have made targets equal.
        changed |= collapse_edges(stage);
        changed |= merge_chains(stage);
        changed |= drop_unreachable(stage);
    }
    changed | skip_idle_stages(program)
}

/// Removes from entries the stages that only continue with the next one. Parsers and deparsers remain: their start or
/// end has a meaning of its own.
fn skip_idle_stages(program: &mut Program) -> bool {
    let idle: Vec<bool> = program
        .stages
        .iter()
        .map(|stage| match &stage.blocks[..] {
            [block] => stage.kind == StageKind::Control && block.insts.is_empty() && block.term == Terminator::Next,
            _ => false,
        })
        .collect();
    let mut changed = false;
    for entry in &mut program.entries {
        let before = entry.stages.len();
        entry.stages.retain(|stage| !idle[stage.index()]);
        changed |= entry.stages.len() != before;
    }
    changed
}

/// Replaces branches and switches whose edges all have one target by jumps.
fn collapse_edges(stage: &mut Stage) -> bool {
    let mut changed = false;
    for block in &mut stage.blocks {
        if let Terminator::Switch { cases, default, .. } = &mut block.term {
            let before = cases.len();
            cases.retain(|(_, to)| to != default);
            changed |= cases.len() != before;
        }
        let to = match &block.term {
            Terminator::Branch { then, other, .. } if then == other => *then,
            Terminator::Switch { cases, default, .. } if cases.is_empty() => *default,
            _ => continue,
        };
        block.term = Terminator::Jump(to);
        changed = true;
    }
    changed
}

/// Redirects every edge past empty blocks; a jump to an empty block that ends the stage is replaced by its end.
fn thread_jumps(stage: &mut Stage) -> bool {
    let mut changed = false;
    let past = skip_empty_blocks(&stage.blocks);
    for b in 0..stage.blocks.len() {
        let mut term = stage.blocks[b].term.clone();
        term.for_each_target_mut(|to| *to = past[to.index()]);
        match &mut term {
            Terminator::Jump(to) => {
                let target = &stage.blocks[to.index()];
                if target.insts.is_empty() && matches!(target.term, Terminator::Next | Terminator::Finish(_)) {
                    let span = target.span;
                    term = target.term.clone();
                    stage.blocks[b].span = span;
                }
            }
            Terminator::Branch { cond, then, other } => {
                *then = same_question(&stage.blocks, cond, *then, true).map_or(*then, |to| past[to.index()]);
                *other = same_question(&stage.blocks, cond, *other, false).map_or(*other, |to| past[to.index()]);
            }
            _ => {}
        }
        if term != stage.blocks[b].term {
            stage.blocks[b].term = term;
            changed = true;
        }
    }
    changed
}

/// For each block, the target of the chain of empty jumping blocks that starts with it. The blocks of an empty loop are
/// their own targets.
fn skip_empty_blocks(blocks: &[Block]) -> Vec<BlockId> {
    let next = |at: BlockId| match &blocks[at.index()] {
        Block { insts, term: Terminator::Jump(to), .. } if insts.is_empty() && *to != at => Some(*to),
        _ => None,
    };
    let mut past: Vec<Option<BlockId>> = vec![None; blocks.len()];
    let mut on_path = vec![false; blocks.len()];
    for from in (0..blocks.len()).map(BlockId::from_index) {
        let (mut path, mut at) = (Vec::new(), from);
        let end = loop {
            if let Some(end) = past[at.index()] {
                break Some(end);
            }
            if std::mem::replace(&mut on_path[at.index()], true) {
                break None;
            }
            path.push(at);
            match next(at) {
                Some(to) => at = to,
                None => break Some(at),
            }
        };
        for block in path {
            on_path[block.index()] = false;
            past[block.index()] = Some(end.unwrap_or(block));
        }
    }
    past.into_iter().zip(0..).map(|(end, b)| end.unwrap_or(BlockId::from_index(b))).collect()
}

/// The target of an empty block that branches on the same condition, which has this value.
fn same_question(blocks: &[Block], cond: &Operand, to: BlockId, value: bool) -> Option<BlockId> {
    match &blocks[to.index()] {
        Block { insts, term: Terminator::Branch { cond: again, then, other }, .. }
            if insts.is_empty() && again == cond && then != other =>
        {
            Some(if value { *then } else { *other })
        }
        _ => None,
    }
}

/// Merges blocks into their only predecessor if that jumps to them.
fn merge_chains(stage: &mut Stage) -> bool {
    let cfg = Cfg::new(stage);
    let mut changed = false;
    // Whether a block has been merged into another.
    let mut merged = vec![false; stage.blocks.len()];
    for &b in &cfg.rpo {
        if merged[b.index()] {
            continue;
        }
        while let Terminator::Jump(to) = stage.blocks[b.index()].term {
            let alone = cfg.preds[to.index()].len() == 1 && to != Stage::START && to != b && !merged[to.index()];
            if !alone {
                break;
            }
            merged[to.index()] = true;
            changed = true;
            let target = &mut stage.blocks[to.index()];
            let (mut insts, term, span) = (std::mem::take(&mut target.insts), target.term.clone(), target.span);
            // The emptied block is unreachable.
            target.term = Terminator::Jump(to);
            let label = std::mem::take(&mut target.label);
            let block = &mut stage.blocks[b.index()];
            block.insts.append(&mut insts);
            block.term = term;
            block.span = span;
            if block.label.is_empty() {
                block.label = label;
            }
        }
    }
    changed
}

/// Removes unreachable blocks and renumbers the others in the old order.
fn drop_unreachable(stage: &mut Stage) -> bool {
    let cfg = Cfg::new(stage);
    if cfg.rpo.len() == stage.blocks.len() {
        return false;
    }
    let mut new_id = vec![BlockId(0); stage.blocks.len()];
    let kept = (0..stage.blocks.len()).filter(|b| cfg.rpo_index[*b].is_some());
    for (new, old) in kept.enumerate() {
        new_id[old] = BlockId::from_index(new);
    }
    let blocks = std::mem::take(&mut stage.blocks);
    stage.blocks = blocks
        .into_iter()
        .enumerate()
        .filter(|(b, _)| cfg.rpo_index[*b].is_some())
        .map(|(_, mut block)| {
            block.term.for_each_target_mut(|to| *to = new_id[to.index()]);
            block
        })
        .collect();
    true
}
