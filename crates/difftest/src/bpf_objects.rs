//! Fuzz target for BPF objects and instructions: programs that the verifier accepts behave the same interpreted and
//! compiled.
//!
//! Input that begins as an ELF file is an object file. Other input is the instructions of a program with four maps
//! ([`MAPS`]); the first byte is the number of instructions of its entry, and the rest are a function that it may call.
//!
//! A panic is a finding: a refusal without a reason, a verified program with a memory fault in the interpreter, or a
//! difference between interpreter and machine code in verdict, packet, maps or log. Under AddressSanitizer, an access
//! of machine code outside its memory is also a finding if it hits an unmapped page.
//!
//! Tests: `tests/fuzz_regressions.rs`; `crates/bpf/tests/differential.rs` generates mostly accepted programs.

use bpf::encoding as code;
use bpf::{Abort, Frame, Instruction, MapKind, MapSpec, Maps, Object, Options, Program, Verdict};
use random::Random;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The maps that instructions may refer to, by number: name, type, key and value size in bytes, maximum entries.
const MAPS: [(&str, MapKind, u32, u32, u32); 4] = [
    ("hash", MapKind::Hash, 4, 16, 8),
    ("array", MapKind::Array, 4, 16, 4),
    ("recent", MapKind::LruHash, 4, 16, 2),
    ("prefixes", MapKind::LpmTrie, 8, 8, 4),
];
/// The maximum input length: longer inputs find nothing new.
const BYTES_MAX: usize = 64 * 1024;
/// The maximum number of entries of all maps of an object, which are allocated and compared here.
const ENTRIES_MAX: u64 = 4096;
/// The budget of a run in instructions: enough for loops, small enough for many runs.
const BUDGET: u32 = 4096;
/// The free space before and after a packet in bytes.
const ROOM: usize = 64;
/// The C programs that become seeds if clang is available.
const PROGRAMS: [&str; 5] = ["firewall", "mpls_ler", "nat", "rate_limiter", "vxlan"];

/// Reads, verifies and runs an input.
pub fn fuzz(bytes: &[u8]) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    let object = match bytes.starts_with(b"\x7fELF") {
        true => match Object::read(bytes) {
            Ok(object) => object,
            Err(error) => return has_a_reason(&error.to_string()),
        },
        false => assembled(bytes),
    };
    if object.maps().iter().map(|map| u64::from(map.max_entries)).sum::<u64>() > ENTRIES_MAX {
        return;
    }
    // The seed is a function of the input.
    let seed =
        bytes.iter().fold(bytes.len() as u64, |seed, byte| seed.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte));
    for program in object.programs() {
        run(&object, &program.function, seed);
    }
}

fn has_a_reason(reason: &str) {
    assert!((1..BYTES_MAX).contains(&reason.len()), "a refusal with {} bytes of reason", reason.len());
}

/// The object of an input of instructions.
fn assembled(bytes: &[u8]) -> Object {
    let Some((entry, rest)) = bytes.split_first() else { return Object::assembled(&[], Vec::new()) };
    let instructions: Vec<_> = rest.as_chunks().0.iter().map(|eight| Instruction::decode(*eight)).collect();
    let (main, function) = instructions.split_at(usize::from(*entry).min(instructions.len()));
    let spec = |(name, kind, key_size, value_size, max_entries): (&str, _, _, _, _)| MapSpec {
        name: name.to_string(),
        kind,
        key_size,
        value_size,
        max_entries,
        read_only: false,
        initial: None,
    };
    Object::assembled(&[("main", main), ("function", function)], MAPS.map(spec).to_vec())
}

/// Loads a program and, if it is accepted, runs it on packets.
fn run(object: &Object, name: &str, seed: u64) {
    let maps = || Maps::new(object);
    let (ours, theirs) = match (maps(), maps()) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(error), _) | (_, Err(error)) => return has_a_reason(&error.to_string()),
    };
    let options = Options { budget: BUDGET, seed: Some(seed), compile: false };
    let interpreted = match Program::load_with(object, name, &theirs, options) {
        Ok(program) => program,
        Err(error) => return has_a_reason(&error.to_string()),
    };
    let compiled = Program::load_with(object, name, &ours, Options { compile: true, ..options });
    let compiled = compiled.unwrap_or_else(|error| panic!("{error}\n{}", interpreted.listing()));
    let random = &mut Random::new(seed);
    for len in [14, 34, 60, 200] {
        let packet: Vec<u8> = (0..len).map(|_| *random.pick(&[0, 1, 6, 8, 0x45, 0x7f, 0x80, 0xff])).collect();
        let (port, argument, now) = (random.below(9) as u32, random.next_u64(), random.next_u64());
        // The interpreter runs first: machine code runs only what it has found harmless.
        let expected = on_copy(&packet, |frame| interpreted.run(frame, port, argument, now));
        assert_ne!(expected.0, Verdict::Aborted(Abort::Fault), "{}", interpreted.listing());
        let got = on_copy(&packet, |frame| compiled.run(frame, port, argument, now));
        assert_eq!(got, expected, "{}", interpreted.listing());
        assert_eq!(compiled.take_log(), interpreted.take_log(), "{}", interpreted.listing());
        for (ours, theirs) in ours.iter().zip(theirs.iter()) {
            let (mut ours, mut theirs) = (ours.dump(), theirs.dump());
            ours.sort();
            theirs.sort();
            assert_eq!(ours, theirs, "{}", interpreted.listing());
        }
    }
}

/// Runs a program on a copy of a packet; returns the verdict and the resulting packet.
fn on_copy(packet: &[u8], run: impl FnOnce(&mut Frame<'_>) -> Verdict) -> (Verdict, Vec<u8>) {
    let mut buffer = [&[0; ROOM], packet, &[0; ROOM]].concat();
    let mut frame = Frame { buffer: &mut buffer, offset: ROOM, len: packet.len() };
    let verdict = run(&mut frame);
    (verdict, frame.bytes().to_vec())
}

/// Seed inputs: short programs that together access everything a program may access, and compiled C programs if clang
/// is available.
pub fn seeds() -> Vec<Vec<u8>> {
    let one = |code, dst, src, off, imm| Instruction { code, dst, src, off, imm };
    let mov = |dst, imm| one(0xb7, dst, 0, 0, imm);
    let copy = |dst, src| one(0xbf, dst, src, 0, 0);
    let add = |dst, imm| one(0x07, dst, 0, 0, imm);
    let call = |helper| one(code::CALL, 0, 0, 0, helper);
    let map = |number| [one(code::LD_IMM64, 1, code::PSEUDO_MAP, 0, number), Instruction::default()];
    let exit = one(code::EXIT, 0, 0, 0, 0);
    // r7 is the packet, whose first 14 bytes are proved to exist.
    let packet = [
        copy(6, 1),
        one(0x61, 7, 1, 0, 0),
        one(0x61, 3, 1, 4, 0),
        copy(4, 7),
        add(4, 14),
        mov(0, 1),
        one(0xbd, 4, 3, 1, 0),
        exit,
    ];
    // A key on the stack, with its address in r2.
    let key = [one(0x7a, 10, 0, -8, 16), copy(2, 10), add(2, -8)];
    let value = [one(0x7a, 10, 0, -24, 5), one(0x7a, 10, 0, -16, 6), copy(3, 10), add(3, -24), mov(4, 0)];
    let found = |then: &[Instruction]| [&[one(0x15, 0, 0, then.len() as i16, 0)], then].concat();
    let end = [mov(0, 2), exit];
    let mut programs = vec![
        (end.to_vec(), vec![]),
        ([&packet[..], &[one(0x71, 0, 7, 12, 0), one(0x73, 7, 0, 0, 0)], &end].concat(), vec![]),
        ([&packet[..], &[mov(0, 3), exit]].concat(), vec![]),
        // A loop of ten iterations.
        (
            vec![mov(1, 10), mov(0, 0), add(0, 3), add(1, -1), one(0x55, 1, 0, -3, 0), one(0x57, 0, 0, 0, 3), exit],
            vec![],
        ),
        // A variable offset within bounds.
        (
            [
                &packet[..],
                &[one(0x7a, 10, 0, -8, 16), one(0x71, 1, 7, 0, 0), one(0x57, 1, 0, 0, 7)],
                &[copy(2, 10), one(0x0f, 2, 1, 0, 0), one(0x71, 0, 2, -8, 0)],
                &end,
            ]
            .concat(),
            vec![],
        ),
        // A function.
        (vec![mov(1, 4), one(code::CALL, 0, code::PSEUDO_CALL, 0, 1), exit], vec![copy(0, 1), add(0, -2), exit]),
        // Moves the packet's start and end; checksum, time, random number, redirection.
        (vec![mov(2, -4), call(44), mov(0, 2), exit], vec![]),
        ([&[copy(6, 1), mov(2, 8), call(65), copy(1, 6)], &packet[..], &end].concat(), vec![]),
        (
            [&key[..], &[copy(1, 10), add(1, -8), mov(2, 8), mov(3, 0), mov(4, 0), mov(5, 0), call(28)], &end].concat(),
            vec![],
        ),
        (vec![call(5), call(7), mov(1, 3), mov(2, 0), call(23), exit], vec![]),
    ];
    for number in 0..MAPS.len() as i32 {
        let then = [one(0x79, 1, 0, 0, 0), add(1, 1), one(0x7b, 0, 1, 0, 0), one(0xdb, 0, 1, 0, 0)];
        programs.push(([&key[..], &map(number), &[call(1)], &found(&then), &end].concat(), vec![]));
        programs.push(([&key[..], &value, &map(number), &[call(2)], &end].concat(), vec![]));
        // Entries of arrays cannot be deleted.
        if MAPS[number as usize].1 != MapKind::Array {
            let change = [&key[..], &value, &map(number), &[call(2)], &key[..], &map(number), &[call(3)]].concat();
            programs.push(([&change[..], &end].concat(), vec![]));
        }
    }
    let encode = |(main, function): (Vec<Instruction>, Vec<Instruction>)| {
        let instructions = [&main[..], &function].concat();
        let encoded = instructions.iter().flat_map(|instruction| instruction.encode());
        [main.len() as u8].into_iter().chain(encoded).collect()
    };
    let mut seeds: Vec<Vec<u8>> = programs.into_iter().map(encode).collect();
    seeds.extend(PROGRAMS.iter().filter_map(|name| compiled(name)));
    seeds
}

/// The object that clang compiles from a test program of `crates/bpf`; `None` without clang or its BPF target.
fn compiled(name: &str) -> Option<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
    let source: PathBuf = root.join("tests/programs").join(name).with_extension("c");
    let folder = tempfile::tempdir().ok()?;
    let output = folder.path().join("program.o");
    ["clang", "clang-14", "clang-16", "clang-19"].iter().find_map(|clang| {
        let mut command = Command::new(clang);
        command
            .args(["-target", "bpf", "-O2", "-g", "-I"])
            .arg(root.join("include"))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&output);
        command.output().ok().filter(|done| done.status.success())?;
        std::fs::read(&output).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the fuzzer would start from programs that are refused.
    #[test]
    fn seeds_are_accepted() {
        let accepted = |bytes: &Vec<u8>| {
            let object = match bytes.starts_with(b"\x7fELF") {
                true => Object::read(bytes).expect("clang's objects are read"),
                false => assembled(bytes),
            };
            Program::load(&object, &object.programs()[0].function).map_err(|error| error.to_string())
        };
        let refused: Vec<_> = seeds().iter().map(accepted).filter_map(Result::err).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}
