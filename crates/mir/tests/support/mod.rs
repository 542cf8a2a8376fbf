//! Generated modules and their runs.
#![allow(dead_code)]

use mir::generate::{REGION_BYTES, Reference, arena_regions, generate, region_offset};
use mir::{Fault, FunctionId, Memory, Module};
use random::Random;
use std::ops::Range;

/// Address of the arena.
pub const ARENA: u64 = 0x10_0000;
/// Largest number of instructions of a run.
pub const FUEL: u64 = 100_000;

/// The modules generated from these seeds.
pub fn generated(seeds: Range<u64>) -> impl Iterator<Item = (u64, Module)> {
    seeds.map(|seed| (seed, generate(&mut Random::stream(7, seed))))
}

/// An arena with random contents.
pub fn arena(seed: u64) -> Memory {
    let mut random = Random::stream(11, seed);
    let mut memory = Memory::default();
    for region in arena_regions() {
        let bytes = (0..REGION_BYTES).map(|_| random.next_u64() as u8).collect();
        memory.add(ARENA + region_offset(region), region, bytes);
    }
    memory
}

/// Runs the last function on an arena. Returns its result and the memory afterwards.
pub fn run(module: &Module, numbers: [u64; 2], mut memory: Memory) -> (Result<Option<u128>, Fault>, Memory) {
    let last = FunctionId(module.functions.len() as u32 - 1);
    let args = [ARENA, numbers[0], numbers[1]].map(u128::from);
    let result = mir::run(module, last, &args, &mut memory, &mut Reference { arena: ARENA }, FUEL);
    (result, memory)
}
