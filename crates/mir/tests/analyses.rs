//! Dominators, loops and liveness, checked against their definitions on generated functions and one written by hand.

mod support;

use mir::{Block, Cfg, Dominators, Function, Liveness, Loops, Value, parse};
use support::generated;

fn functions() -> impl Iterator<Item = (u64, Function)> {
    generated(0..200).flat_map(|(seed, module)| module.functions.into_iter().map(move |function| (seed, function)))
}

/// Blocks that are reachable without passing the block `without`.
fn reachable_without(function: &Function, without: Option<Block>) -> Vec<bool> {
    let mut seen = vec![false; function.blocks.len()];
    let mut waiting = vec![function.entry()];
    while let Some(block) = waiting.pop().filter(|_| without != Some(function.entry())) {
        if Some(block) != without && !std::mem::replace(&mut seen[block.index()], true) {
            waiting.extend(function.block(block).terminator.edges().map(|edge| edge.block));
        }
    }
    seen
}

#[test]
fn a_block_dominates_what_is_unreachable_without_it() {
    for (seed, function) in functions() {
        let cfg = Cfg::new(&function);
        let dominators = Dominators::new(&function, &cfg);
        let reachable = reachable_without(&function, None);
        for &a in &function.layout {
            assert_eq!(cfg.is_reachable(a), reachable[a.index()], "seed {seed}");
            let without = reachable_without(&function, Some(a));
            for &b in &function.layout {
                let expected = reachable[a.index()] && reachable[b.index()] && !without[b.index()];
                assert_eq!(dominators.dominates(a, b), expected, "seed {seed}: {a} {b}");
            }
            if let Some(parent) = dominators.parent(a) {
                let strict = |b: Block| b != a && dominators.dominates(b, a);
                assert!(
                    strict(parent) && function.layout.iter().all(|b| !strict(*b) || dominators.dominates(*b, parent))
                );
            }
        }
    }
}

/// Whether a value is read on some path from the start of a block.
fn is_read(function: &Function, value: Value, start: Block) -> bool {
    let mut seen = vec![false; function.blocks.len()];
    let mut waiting = vec![start];
    'blocks: while let Some(block) = waiting.pop() {
        if std::mem::replace(&mut seen[block.index()], true) {
            continue;
        }
        let data = function.block(block);
        if data.params.contains(&value) {
            continue;
        }
        for inst in &data.insts {
            let mut found = false;
            inst.op.operands(|operand| found |= operand == value);
            if found {
                return true;
            }
            if inst.result == Some(value) {
                continue 'blocks;
            }
        }
        let mut found = false;
        data.terminator.operands(|operand| found |= operand == value);
        if found {
            return true;
        }
        waiting.extend(data.terminator.edges().map(|edge| edge.block));
    }
    false
}

#[test]
fn a_value_is_live_where_it_is_read_later() {
    for (seed, function) in functions().take(60) {
        let cfg = Cfg::new(&function);
        let liveness = Liveness::new(&function, &cfg);
        for &block in cfg.reverse_postorder() {
            for value in (0..function.values.len() as u32).map(Value) {
                let expected = is_read(&function, value, block);
                assert_eq!(liveness.at_start(block).contains(value), expected, "seed {seed}: {value} {block}");
                let mut behind = function.block(block).terminator.edges();
                let expected = behind.any(|edge| is_read(&function, value, edge.block));
                assert_eq!(liveness.at_end(block).contains(value), expected, "seed {seed}: {value} {block}");
            }
        }
    }
}

#[test]
fn loops_nest() {
    let text = "function @f {
b0(v0: i1):
  jump b1
b1:
  branch v0, b2, b5
b2:
  branch v0, b3, b4
b3:
  branch v0, b2, b3
b4:
  jump b1
b5:
  return
}";
    let module = parse(text).unwrap_or_else(|e| panic!("{e}"));
    let function = &module.functions[0];
    let cfg = Cfg::new(function);
    let loops = Loops::new(function, &cfg, &Dominators::new(function, &cfg));
    let headers: Vec<(Block, Option<usize>)> = loops.all().iter().map(|l| (l.header, l.parent)).collect();
    assert_eq!(headers, [(Block(1), None), (Block(2), Some(0)), (Block(3), Some(1))]);
    assert_eq!(loops.all()[1].blocks, [Block(2), Block(3)]);
    assert_eq!((0..6).map(|b| loops.depth(Block(b))).collect::<Vec<_>>(), [0, 1, 2, 3, 1, 0]);
    assert_eq!(loops.of(Block(4)).map(|l| l.header), Some(Block(1)));
}
