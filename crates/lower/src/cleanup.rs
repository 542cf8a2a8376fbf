//! Removes unreachable blocks, such as code behind `exit` and `return` and parser states that no transition names.

use ir::{BlockId, Cfg, Stage};

/// Removes the unreachable blocks of a stage; the others keep their order.
pub fn drop_unreachable(stage: &mut Stage) {
    let cfg = Cfg::new(stage);
    let mut next = 0;
    let new_ids: Vec<Option<BlockId>> = (0..stage.blocks.len())
        .map(|i| {
            cfg.is_reachable(BlockId::from_index(i)).then(|| {
                next += 1;
                BlockId::from_index(next - 1)
            })
        })
        .collect();
    if next == stage.blocks.len() {
        return;
    }
    let mut index = 0;
    stage.blocks.retain(|_| {
        index += 1;
        new_ids[index - 1].is_some()
    });
    for block in &mut stage.blocks {
        block.term.for_each_target_mut(|to| *to = new_ids[to.index()].unwrap_or(Stage::START));
    }
}
