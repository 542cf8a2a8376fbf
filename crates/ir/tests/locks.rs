//! Where packets acquire and release locks (`ir::atomicity`), on random paths through generated programs: packets hold the lock
//! of each cell that they access, acquire none after they have released one, and hold none at the end.

use base::ids::{BlockId, ExternId};
use ir::{Acquire, Acquisitions, Atomicity, EntryPoint, ExternKind, Op, Program, Terminator};
use std::collections::BTreeSet;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}

/// Most blocks of a path: longer ones go round in loops.
const BLOCKS_MAX: usize = 200;

/// Takes a random path; the number of locks that it released.
fn walk(
    program: &Program,
    entry: &EntryPoint,
    atomicity: &Atomicity,
    locks: &Acquisitions,
    numbers: &mut Numbers,
) -> usize {
    let (mut held, mut shrinking, mut released) = (BTreeSet::new(), false, 0);
    let (mut position, mut block) = (0, BlockId(0));
    for _ in 0..BLOCKS_MAX {
        let code = &program.stages[entry.stages[position].index()].blocks[block.index()];
        let mut release = |held: &mut BTreeSet<ExternId>, registers: &[ExternId]| {
            for register in registers {
                let was_held = held.remove(register);
                shrinking |= was_held;
                released += usize::from(was_held);
            }
            shrinking
        };
        let mut over = release(&mut held, locks.released_at_start(position, block));
        for (i, inst) in code.insts.iter().enumerate() {
            let (Op::RegisterRead { register, peek: false, .. } | Op::RegisterWrite { register, .. }) = inst.op else {
                assert_eq!(locks.at(position, block, i), None);
                continue;
            };
            let acquire = locks.at(position, block, i);
            assert_eq!(acquire.is_some(), atomicity.rank(register).is_some());
            let is_new = match acquire {
                None => {
                    let is_change = matches!(inst.op, Op::RegisterWrite { .. });
                    assert!(!(is_change && over), "a register without locks is written before locks are released");
                    over = release(&mut held, locks.released_after(position, block, i));
                    continue;
                }
                Some(Acquire::Always) => {
                    assert!(!held.contains(&register), "it would wait for itself");
                    true
                }
                Some(Acquire::IfFree) => !held.contains(&register),
                Some(Acquire::Held) => {
                    assert!(held.contains(&register), "the lock is held until the last access");
                    false
                }
            };
            assert!(!(is_new && over), "no lock is acquired after a release");
            held.insert(register);
            assert!(held.iter().all(|held| locks.held_in(position, block).any(|register| register == *held)));
            over = release(&mut held, locks.released_after(position, block, i));
        }
        let mut targets = Vec::new();
        code.term.for_each_target(|to| targets.push(to));
        match targets[..] {
            [] if matches!(code.term, Terminator::Next) && position + 1 < entry.stages.len() => {
                (position, block) = (position + 1, BlockId(0));
            }
            [] => {
                assert!(held.is_empty(), "{held:?} are held at the end");
                return released;
            }
            _ => block = targets[numbers.below(targets.len())],
        }
    }
    released
}

#[test]
fn packets_hold_locks_from_the_first_to_the_last_access_and_acquire_none_after_a_release() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut releases = 0;
    for _ in 0..3000 {
        let choices: Vec<u8> = (0..600).map(|_| numbers.below(256) as u8).collect();
        let mut program = ir::generate::generate(&choices);
        for ext in &mut program.externs {
            if let ExternKind::Register { size, .. } = &mut ext.kind {
                *size = ir::atomicity::LOCKED_CELLS_MIN;
            }
        }
        // A second register, so that a packet may hold two locks.
        let registers: Vec<usize> = (0..program.externs.len())
            .filter(|i| matches!(program.externs[*i].kind, ExternKind::Register { .. }))
            .collect();
        for i in registers {
            let (first, second) = (ExternId::from_index(i), ExternId::from_index(program.externs.len()));
            let mut other = program.externs[i].clone();
            other.name += "_2";
            program.externs.push(other);
            for inst in program.stages.iter_mut().flat_map(|s| &mut s.blocks).flat_map(|b| &mut b.insts) {
                if let Op::RegisterRead { register, .. } | Op::RegisterWrite { register, .. } = &mut inst.op
                    && *register == first
                    && numbers.below(2) == 0
                {
                    *register = second;
                }
            }
        }
        let atomicity = Atomicity::new(&program);
        for entry in &program.entries {
            let locks = Acquisitions::new(&program, entry, &|register| atomicity.rank(register)).expect("an order");
            for _ in 0..if locks.is_empty() { 0 } else { 40 } {
                releases += walk(&program, entry, &atomicity, &locks, &mut numbers);
            }
        }
    }
    assert!(releases > 1000, "{releases} locks were released");
}
