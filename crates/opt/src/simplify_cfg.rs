//! Fewer and longer blocks.
//!
//! Needs: a well-formed program. Guarantees: same behaviour; every block can be reached; no jump leads to an empty block
//! that only goes on elsewhere; a block whose only predecessor does nothing but lead to it is part of that one.
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
//! Also: branches and switches whose edges all lead to one block are jumps; cases that lead where the default leads are
//! left out; a branch to an empty block that asks the same question goes on behind it; controls without content are no
//! longer part of any entry.
//!
//! Tests: `tests/files/simplify_cfg.ir`, `tests/properties.rs`.

use base::ids::BlockId;
use ir::{Block, Cfg, Operand, Program, Stage, StageKind, Terminator};

/// Runs the pass; whether anything changed.
pub(crate) fn run(program: &mut Program) -> bool {
    let mut changed = false;
    for stage in &mut program.stages {
        changed |= collapse_edges(stage);
        changed |= thread_jumps(stage);
        // Threading may have made edges equal.
        changed |= collapse_edges(stage);
        changed |= merge_chains(stage);
        changed |= drop_unreachable(stage);
    }
    changed | skip_idle_stages(program)
}

/// Leaves stages out of entries that only go on with the next one. Parsers and deparsers stay: their begin or end means
/// something by itself.
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

/// Branches and switches whose edges all lead to one block become jumps.
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

/// Leads every edge past empty blocks; a jump to an empty block that ends the stage ends it itself.
fn thread_jumps(stage: &mut Stage) -> bool {
    let mut changed = false;
    let past = behind_empty(&stage.blocks);
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

/// By block: the one that is reached from it through empty blocks that only jump. An empty loop leads nowhere: its blocks
/// are their own.
fn behind_empty(blocks: &[Block]) -> Vec<BlockId> {
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

/// Where an empty block leads that branches on the same condition, which has this value.
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

/// Appends blocks to the one block that leads to them by a jump.
fn merge_chains(stage: &mut Stage) -> bool {
    let cfg = Cfg::new(stage);
    let mut changed = false;
    // The block whose end a merged block has become part of.
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
            // What is left behind cannot be reached any more.
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

/// Removes blocks that cannot be reached and numbers the others anew, in the old order.
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
