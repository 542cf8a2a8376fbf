//! Which hits and misses can be derived from others.
//!
//! Every packet of a batch goes once round the loop, from the block where it begins to the one where the next packet
//! follows. So each block is left as often as it is entered. Where all packets but a few pass a table, its hits are the
//! packets of the batch less those few. It suffices to count on the edges of the control-flow graph that are not in a
//! spanning tree of all blocks (Knuth, Stevenson, "Optimal measurement points for program frequency counts", BIT 1973).
//! The tree takes the edges that are expected to be the most frequent: those with most tables, never those to cold code
//! (Ball, Larus, "Optimally profiling and tracing programs", TOPLAS 1994). Packets on the tree's edges count nothing.
//!
//! Each block has a *potential* for each counter: the counter's increase along the tree from the first block. For an
//! edge outside the tree, the potential of its beginning and what the tables add at its end sum up to more or less than
//! the potential of its end; packets on the edge are counted, times this difference. Where it is zero for all counters,
//! as around code without tables, nothing is counted. Edges whose differences are equal or opposite share a cell.
//!
//! Tests: below; `crates/jit/tests/state.rs`.

use cranelift_codegen::ir::{Block, Function};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The loop over the packets of a batch: the block where each begins, and the one where it has ended.
#[derive(Clone, Copy)]
pub(crate) struct PacketLoop {
    pub first: Block,
    pub last: Block,
}

/// An edge that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub from: Block,
    pub to: Block,
    pub cell: usize,
    /// What a packet adds to the cell: 1 or -1.
    pub amount: i64,
}

/// The edges to count, and how counters follow from the cells.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Derived {
    pub counted: Vec<Counted>,
    /// By counter: the coefficient of the number of packets.
    pub packets: Vec<i64>,
    /// By cell and counter: the coefficient of the cell.
    pub cells: Vec<Vec<i64>>,
}

/// The blocks of the loop in topological order, except for back edges of inner loops.
struct Blocks {
    blocks: Vec<Block>,
    numbers: HashMap<Block, usize>,
    /// By block: its successors.
    next: Vec<Vec<usize>>,
}

impl Blocks {
    /// The blocks of a loop; `None` if control can leave it.
    fn new(func: &Function, packet_loop: PacketLoop) -> Option<Blocks> {
        let after = |block: Block| -> Option<Vec<Block>> {
            if block == packet_loop.last {
                return Some(Vec::new());
            }
            let end = func.layout.last_inst(block)?;
            if func.dfg.insts[end].opcode().is_return() {
                return None;
            }
            let calls = func.dfg.insts[end].branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
            let mut known = HashSet::new();
            let next = calls.iter().map(|call| call.block(&func.dfg.value_lists));
            Some(next.filter(|block| known.insert(*block)).collect())
        };
        let mut seen: HashMap<Block, Vec<Block>> = HashMap::from([(packet_loop.first, after(packet_loop.first)?)]);
        let mut blocks = Vec::new();
        let mut open = vec![(packet_loop.first, 0)];
        while let Some((block, i)) = open.last_mut() {
            match seen[block].get(*i).copied() {
                Some(next) => {
                    *i += 1;
                    if let Entry::Vacant(unseen) = seen.entry(next) {
                        unseen.insert(after(next)?);
                        open.push((next, 0));
                    }
                }
                None => {
                    blocks.push(*block);
                    open.pop();
                }
            }
        }
        blocks.reverse();
        let numbers: HashMap<Block, usize> = blocks.iter().enumerate().map(|(i, b)| (*b, i)).collect();
        let next = blocks.iter().map(|b| seen[b].iter().map(|next| numbers[next]).collect()).collect();
        Some(Blocks { blocks, numbers, next })
    }

    /// All edges, those expected to be most frequent first. `tables`: how many tables a block counts; `cold`: which
    /// blocks are cold.
    fn edges(&self, tables: &[i64], cold: &[bool], last: usize) -> Vec<(usize, usize)> {
        let warm = |from: usize| self.next[from].iter().copied().filter(move |to| *to > from && !cold[*to]);
        // By block: the most tables on a path to the end, and the next block on it.
        let mut behind: Vec<Option<(i64, usize)>> = vec![None; self.blocks.len()];
        behind[last] = Some((0, last));
        for from in (0..self.blocks.len()).rev().filter(|b| *b != last && !cold[*b]) {
            let edges = warm(from).filter_map(|to| Some((tables[to] + behind[to]?.0, to)));
            // Of two equal successors the first, which is that of a hit.
            behind[from] = edges.reduce(|a, b| if b.0 > a.0 { b } else { a });
        }
        let mut before: Vec<i64> = tables.to_vec();
        for from in (0..self.blocks.len()).filter(|b| !cold[*b]) {
            for to in warm(from) {
                before[to] = before[to].max(before[from] + tables[to]);
            }
        }
        let mut edges: Vec<_> = (0..self.blocks.len())
            .flat_map(|from| self.next[from].iter().map(move |to| (from, *to)))
            .map(|(from, to)| {
                let likely = behind[from].is_some_and(|(_, next)| next == to);
                let is_warm = !cold[from] && !cold[to] && to > from;
                let most = behind[to].filter(|_| is_warm).map(|(count, _)| before[from] + tables[to] + count);
                (Reverse((likely, most)), from, to)
            })
            .collect();
        edges.sort_unstable();
        edges.into_iter().map(|(_, from, to)| (from, to)).collect()
    }
}

/// The representative of a block's component of the tree (union-find).
fn root(parents: &mut [usize], mut at: usize) -> usize {
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

impl Derived {
    /// The derivation for counters `0..counters`, to which the code adds in these blocks. `None` if it takes more than
    /// `cells_max` cells, or packets can leave the loop.
    pub fn new(
        func: &Function,
        packet_loop: PacketLoop,
        sites: &[(Block, usize)],
        counters: usize,
        cells_max: usize,
    ) -> Option<Derived> {
        let blocks = Blocks::new(func, packet_loop)?;
        let count = blocks.blocks.len();
        let last = *blocks.numbers.get(&packet_loop.last)?;
        let mut tables = vec![0; count];
        // By block: what it adds to the counters.
        let mut added: HashMap<usize, Vec<i64>> = HashMap::new();
        for (block, counter) in sites {
            let at = *blocks.numbers.get(block)?;
            tables[at] += 1;
            added.entry(at).or_insert_with(|| vec![0; counters])[*counter] += 1;
        }
        let cold: Vec<bool> = blocks.blocks.iter().map(|b| func.layout.is_cold(*b)).collect();
        let (mut parents, mut tree, mut others) = ((0..count).collect::<Vec<_>>(), vec![Vec::new(); count], Vec::new());
        for (from, to) in blocks.edges(&tables, &cold, last) {
            let (a, b) = (root(&mut parents, from), root(&mut parents, to));
            if a == b {
                others.push((from, to));
            } else {
                parents[a] = b;
                tree[from].push((to, true));
                tree[to].push((from, false));
            }
        }
        // The potentials include what the block itself adds.
        let mut potentials: Vec<Vec<i64>> = vec![Vec::new(); count];
        let change = |potential: &mut Vec<i64>, at: usize, sign: i64| {
            let added = added.get(&at).into_iter().flatten();
            potential.iter_mut().zip(added).for_each(|(p, a)| *p += sign * a);
        };
        potentials[0] = vec![0; counters];
        change(&mut potentials[0], 0, 1);
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            for (to, is_forward) in &tree[at] {
                if potentials[*to].is_empty() {
                    let mut potential = potentials[at].clone();
                    match is_forward {
                        true => change(&mut potential, *to, 1),
                        false => change(&mut potential, at, -1),
                    }
                    potentials[*to] = potential;
                    open.push(*to);
                }
            }
        }
        let mut cells: BTreeMap<Vec<i64>, usize> = BTreeMap::new();
        let mut counted = Vec::new();
        for (from, to) in others {
            let mut difference = potentials[from].clone();
            change(&mut difference, to, 1);
            difference.iter_mut().zip(&potentials[to]).for_each(|(d, p)| *d -= p);
            // Opposite changes share a cell.
            let Some(amount) = difference.iter().find(|d| **d != 0).map(|d| d.signum()) else { continue };
            difference.iter_mut().for_each(|d| *d *= amount);
            let next = cells.len();
            let cell = *cells.entry(difference).or_insert(next);
            counted.push(Counted { from: blocks.blocks[from], to: blocks.blocks[to], cell, amount });
        }
        if cells.len() > cells_max {
            return None;
        }
        let mut by_number = vec![Vec::new(); cells.len()];
        cells.into_iter().for_each(|(cell, number)| by_number[number] = cell);
        Some(Derived { counted, packets: potentials[last].clone(), cells: by_number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_codegen::cursor::{Cursor, FuncCursor};
    use cranelift_codegen::ir::InstBuilder;
    use cranelift_codegen::ir::types::I64;
    use random::Random;

    /// A function whose block `i` has the successors `next[i]`; the last one leads back to the first.
    fn function(next: &[Vec<usize>], cold: &[usize]) -> (Function, Vec<Block>) {
        let mut func = Function::new();
        let blocks: Vec<Block> = next.iter().map(|_| func.dfg.make_block()).collect();
        blocks.iter().for_each(|block| func.layout.append_block(*block));
        cold.iter().for_each(|block| func.layout.set_cold(blocks[*block]));
        for (block, next) in blocks.iter().zip(next) {
            let mut cursor = FuncCursor::new(&mut func).at_bottom(*block);
            match next[..] {
                [] => _ = cursor.ins().jump(blocks[0], &[]),
                [to] => _ = cursor.ins().jump(blocks[to], &[]),
                [one, other] => {
                    let cond = cursor.ins().iconst(I64, 1);
                    cursor.ins().brif(cond, blocks[one], &[], blocks[other], &[]);
                }
                _ => unreachable!("two edges at most"),
            }
        }
        (func, blocks)
    }

    fn packet_loop(blocks: &[Block]) -> PacketLoop {
        PacketLoop { first: blocks[0], last: *blocks.last().expect("there are blocks") }
    }

    #[test]
    fn counters_follow_from_what_is_counted_whatever_path_packets_take() {
        let mut random = Random::new(1);
        let mut saved = 0;
        for _ in 0..300 {
            let count = 4 + random.index(30);
            let last = count - 1;
            let mut next: Vec<Vec<usize>> = Vec::new();
            for i in 0..last {
                let one = i + 1 + random.index((last - i).min(4));
                // Some edges are back edges, as in a parser loop.
                let other = if random.index(12) == 0 { random.index(i + 1) } else { i + 1 + random.index(last - i) };
                next.push(if random.index(3) == 0 || other == 0 { vec![one] } else { vec![one, other] });
            }
            next.push(Vec::new());
            let cold: Vec<usize> = (1..last).filter(|_| random.index(4) == 0).collect();
            let (func, blocks) = function(&next, &cold);
            let reached = Blocks::new(&func, packet_loop(&blocks)).expect("nothing leaves").numbers;
            const COUNTERS: usize = 5;
            let sites: Vec<(usize, usize)> = (0..random.index(12))
                .map(|_| (random.index(count), random.index(COUNTERS)))
                .filter(|(block, _)| reached.contains_key(&blocks[*block]))
                .collect();
            let named: Vec<(Block, usize)> = sites.iter().map(|(block, counter)| (blocks[*block], *counter)).collect();
            let derived =
                Derived::new(&func, packet_loop(&blocks), &named, COUNTERS, usize::MAX).expect("nothing leaves");
            let (mut counters, mut cells) = ([0; COUNTERS], vec![0; derived.cells.len()]);
            let (mut packets, mut stores) = (0, 0);
            while packets < 40 {
                let mut at = 0;
                loop {
                    sites.iter().filter(|(block, _)| *block == at).for_each(|(_, counter)| counters[*counter] += 1);
                    if at == last {
                        break;
                    }
                    let to = next[at][random.index(next[at].len())];
                    for counted in derived.counted.iter().filter(|c| c.from == blocks[at] && c.to == blocks[to]) {
                        cells[counted.cell] += counted.amount;
                        stores += 1;
                    }
                    at = to;
                }
                packets += 1;
            }
            for (counter, expected) in counters.into_iter().enumerate() {
                let of_cells: i64 = derived.cells.iter().zip(&cells).map(|(cell, n)| cell[counter] * n).sum();
                assert_eq!(derived.packets[counter] * packets + of_cells, expected, "{next:?}, {sites:?}");
            }
            saved += counters.iter().sum::<i64>() - stores;
        }
        assert!(saved > 0, "counting costs {saved} more stores");
    }

    /// Three tables in a row; the first two can miss, and packets that miss both go to cold code.
    #[test]
    fn the_path_with_most_tables_counts_nothing() {
        let next =
            [vec![1, 2], vec![3], vec![5, 6], vec![4, 2], vec![7], vec![7], vec![7], vec![]].map(|next| next.to_vec());
        let (func, blocks) = function(&next, &[6]);
        let sites = [(1, 0), (2, 1), (3, 2), (4, 3)].map(|(block, counter)| (blocks[block], counter));
        let derived = Derived::new(&func, packet_loop(&blocks), &sites, 4, 8).expect("nothing leaves");
        let main = [0, 1, 3, 4, 7].map(|block| blocks[block]);
        assert!(derived.counted.iter().all(|c| !(main.contains(&c.from) && main.contains(&c.to))), "{derived:?}");
        assert_eq!(derived.packets, [1, 0, 1, 1]);
        assert_eq!(Derived::new(&func, packet_loop(&blocks), &sites, 4, derived.cells.len() - 1), None);
    }

    #[test]
    fn nothing_follows_where_packets_can_leave() {
        let (mut func, blocks) = function(&[vec![1, 2], vec![2], vec![]], &[]);
        let end = func.layout.last_inst(blocks[1]).expect("it ends");
        func.layout.remove_inst(end);
        FuncCursor::new(&mut func).at_bottom(blocks[1]).ins().return_(&[]);
        assert_eq!(Derived::new(&func, packet_loop(&blocks), &[(blocks[1], 0)], 1, 8), None);
    }
}
