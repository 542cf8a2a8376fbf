//! Generated modules, compiled and interpreted, give the same result and the same memory.
#![allow(unsafe_code)]

use codegen::{Code, Options, compile};
use mir::generate::{
    KEY_WORDS, REGION_BYTES, REGION_STRIDE, Reference, arena_regions, found, generate, mix, region_offset,
};
use mir::{FunctionId, Memory, Module, Region, passes};
use random::Random;
use std::cell::Cell;

/// Size of an arena in bytes.
const ARENA_BYTES: usize = REGION_STRIDE as usize * Region::ALL.len();
const NUMBERS: [[u64; 2]; 3] = [[0, 0], [1, u64::MAX], [0x1234_5678_9abc_def0, 77]];

thread_local! {
    /// Address of the current run's arena.
    static ARENA: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn mixed(a: u64, b: u64) -> u64 {
    mix(a, b)
}

extern "C" fn touch(a: u64) -> u64 {
    let at = ARENA.get() + region_offset(Region::State) + a % 8 * 8;
    let word: *mut u64 = std::ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: `run` has set the arena, and `word` lies in it.
    unsafe {
        let old = word.read_unaligned();
        word.write_unaligned(mix(old, a));
        old
    }
}

extern "C" fn lookup(_: u64, key: u64) -> u64 {
    let key: *const [u64; KEY_WORDS as usize] = std::ptr::with_exposed_provenance(key as usize);
    // SAFETY: compiled code passes the address of a key of `KEY_WORDS` words.
    let key = unsafe { key.read() };
    found(key).map_or(0, |offset| ARENA.get() + offset)
}

/// Sets the addresses of a module's runtime functions and tables.
fn linked(mut module: Module) -> Module {
    module.runtime[0].address = mixed as *const () as u64;
    module.runtime[1].address = touch as *const () as u64;
    module.tables[0].lookup = lookup as *const () as u64;
    module
}

/// Memory that is aligned for every access.
#[repr(align(64))]
struct Arena([u8; ARENA_BYTES]);

fn arena(seed: u64) -> Box<Arena> {
    let mut random = Random::stream(11, seed);
    Box::new(Arena(std::array::from_fn(|_| random.next_u64() as u8)))
}

/// Runs compiled code on an arena.
fn run(code: &Code, function: FunctionId, numbers: [u64; 2], arena: &mut Arena) -> u64 {
    let address = arena.0.as_mut_ptr().expose_provenance() as u64;
    ARENA.set(address);
    // SAFETY: the last function of a generated module has this signature and accesses only the arena.
    let function =
        unsafe { std::mem::transmute::<*const u8, extern "C" fn(u64, u64, u64) -> u64>(code.function(function)) };
    function(address, numbers[0], numbers[1])
}

/// Interprets a module on a copy of an arena, at the same addresses. Returns the result and the bytes afterwards.
fn interpret(module: &Module, function: FunctionId, numbers: [u64; 2], arena: &Arena) -> (u64, Vec<Vec<u8>>) {
    let address = arena.0.as_ptr().expose_provenance() as u64;
    let mut memory = Memory::default();
    for region in arena_regions() {
        let at = region_offset(region) as usize;
        memory.add(address + at as u64, region, arena.0[at..at + REGION_BYTES as usize].to_vec());
    }
    let args = [address, numbers[0], numbers[1]].map(u128::from);
    let result = mir::run(module, function, &args, &mut memory, &mut Reference { arena: address }, 1_000_000);
    let result = result.unwrap_or_else(|e| panic!("{e}\n{module}")).expect("a result");
    let bytes = arena_regions().map(|region| memory.bytes(address + region_offset(region)).expect("a region").to_vec());
    (result as u64, bytes.collect())
}

#[track_caller]
fn check(seed: u64, module: &Module, options: &Options) {
    let code = compile(module, options).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{module}"));
    let last = FunctionId(module.functions.len() as u32 - 1);
    for (i, numbers) in NUMBERS.into_iter().enumerate() {
        let mut arena = arena(seed.wrapping_add(i as u64));
        let (expected, memory) = interpret(module, last, numbers, &arena);
        let result = run(&code, last, numbers, &mut arena);
        assert!(result == expected, "seed {seed}: {result:#x}, not {expected:#x}, for {numbers:?}\n{module}");
        for (region, bytes) in arena_regions().zip(memory) {
            let at = region_offset(region) as usize;
            let found = &arena.0[at..at + REGION_BYTES as usize];
            assert!(
                found == bytes,
                "seed {seed}: {} for {numbers:?}:\n{found:02x?}\n{bytes:02x?}\n{module}",
                region.name()
            );
        }
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let more = std::env::var("MIR_SEEDS").ok().and_then(|count| count.parse().ok());
    0..more.unwrap_or(default)
}

/// Cranelift turns a comparison and a selection of the same values into a minimum, which the back ends do not support
/// at 128 bits.
#[test]
fn the_smaller_of_two_integers_of_128_bits() {
    let text = "function @f -> i64 any {\nb0(v0: i64, v1: i64, v2: i64):\n  v3 = pack.i128 v1:64 at 64, v2:64 at 0\n  \
                v4 = pack.i128 v2:64 at 64, v1:64 at 0\n  v5 = ult v3, v4\n  v6 = select.i128 v5, v3, v4\n  \
                v7 = trunc.i64 v6\n  return v7\n}\n";
    let module = mir::parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(mir::verify(&module), []);
    let code = compile(&module, &Options::default()).expect("it compiles");
    for (numbers, low) in [([1, 2], 2), ([2, 1], 2), ([7, 7], 7)] {
        assert_eq!(run(&code, FunctionId(0), numbers, &mut arena(0)), low, "{numbers:?}");
    }
}

#[test]
fn as_generated() {
    for seed in seeds(400) {
        check(seed, &linked(generate(&mut Random::stream(7, seed))), &Options::default());
    }
}

#[test]
fn optimised() {
    for seed in seeds(400) {
        let mut module = linked(generate(&mut Random::stream(8, seed)));
        passes::optimise(&mut module, &[]);
        check(seed, &module, &Options::default());
    }
}

#[test]
fn in_linear_time() {
    for seed in seeds(200) {
        let options = Options { thorough_instructions_max: 0, ..Options::default() };
        check(seed, &linked(generate(&mut Random::stream(9, seed))), &options);
    }
}
