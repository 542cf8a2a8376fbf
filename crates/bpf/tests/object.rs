//! Reading object files: what they say, and what is refused with which words.

mod support;

use bpf::{Maps, Object, Program};
use random::Random;
use support::assembler::*;
use support::elf::{self, File};
use support::{ARRAY, HASH, bytes};

const MAPS: [(&str, [u32; 5]); 2] = [("hash", [HASH, 4, 16, 8, 0]), ("array", [ARRAY, 4, 8, 4, 0])];

fn main() -> Vec<Item> {
    vec![map(1, "hash"), data(2, "constants", 3), mov(1, 2), call_function("f"), mov(0, 2), exit()]
}

fn function() -> Vec<Item> {
    vec![mov(0, 0), exit()]
}

fn good() -> Vec<u8> {
    bytes(&main(), &[("f", &function())], &MAPS)
}

#[track_caller]
fn refused(file: &[u8], words: &str) {
    let error = Object::read(file).expect_err("refused").to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn programs_and_maps() {
    let object = Object::read(&good()).expect("good");
    let names: Vec<String> = object.programs().into_iter().map(|p| format!("{}:{}", p.section, p.function)).collect();
    assert_eq!(names, ["xdp:main"]);
    let maps: Vec<_> = object.maps().iter().map(|m| (m.name.as_str(), m.key_size, m.value_size, m.read_only)).collect();
    assert_eq!(
        maps,
        [("hash", 4, 16, false), ("array", 4, 8, false), (".rodata", 4, 64, true), (".bss", 4, 64, false)]
    );
    let program = Program::load(&object, "xdp").expect("verified");
    let listing = program.listing();
    assert!(listing.contains("r1 = map 0"), "{listing}");
    assert!(listing.contains("r2 = map 2 value + 3"), "{listing}");
    assert!(listing.contains("call 8"), "{listing}");
    assert!(Maps::new(&object).expect("made").get(".bss").is_ok());
    let unknown = Maps::new(&object).expect("made").get("other").expect_err("unknown").to_string();
    assert_eq!(unknown, "there is no map `other`; maps of this program: hash, array, .rodata, .bss");
}

#[test]
fn names_of_programs() {
    let object = Object::read(&good()).expect("good");
    let error = Program::load(&object, "egress").expect_err("unknown").to_string();
    assert_eq!(error, "there is no program `egress`; there are `main` (section `xdp`)");
    let mut file = File::default();
    let section = file.code("xdp", &[mov(0, 1), exit(), mov(0, 2), exit()]);
    file.symbol("first", section, 0, 16, elf::FUNCTION);
    file.symbol("second", section, 16, 0, elf::FUNCTION);
    let object = Object::read(&file.write()).expect("good");
    let error = Program::load(&object, "xdp").expect_err("ambiguous").to_string();
    assert_eq!(error, "section `xdp` has several programs; name one of `first`, `second`");
    assert!(Program::load(&object, "second").expect("verified").listing().contains("r0 = 2"));
}

#[test]
fn sections_without_symbols() {
    let mut file = File::default();
    file.code("filter", &[mov(0, 2), exit()]);
    let object = Object::read(&file.write()).expect("good");
    assert!(Program::load(&object, "filter").is_ok());
}

#[test]
fn other_files() {
    refused(b"", "not a BPF object file");
    refused(b"#!/bin/sh\nexit 0\n", "compile it with `clang -target bpf -O2 -g -c`");
    refused(&File { machine: 62, ..File::default() }.write(), "for machine 62, not for BPF (247)");
    refused(&File { kind: 2, ..File::default() }.write(), "not relocatable");
    refused(&File::default().write(), "the object file has no program");
}

#[test]
fn damaged_code() {
    let mut file = File::default();
    file.section("xdp", elf::EXECUTE, vec![0; 12]);
    refused(&file.write(), "section `xdp` has 12 bytes, not a multiple of 8");
    let mut file = File::default();
    let section = file.code("xdp", &[mov(0, 2), exit()]);
    file.symbol("main", section, 0, 24, elf::FUNCTION);
    refused(&file.write(), "function `main`: offset 0 and size 24 do not fit section `xdp` of 16 bytes");
}

#[test]
fn relocations() {
    let with = |items: &[Item], change: &dyn Fn(&mut File, usize)| {
        let mut file = File::default();
        let section = file.code("xdp", items);
        change(&mut file, section);
        file.write()
    };
    let undefined = |file: &mut File, _: usize| {
        file.symbols.push(elf::Symbol { name: "other".to_string(), section: None, value: 0, size: 0, kind: 0 });
    };
    refused(&with(&[call_function("other"), exit()], &undefined), "`other` is not defined in the object");
    let debug = |file: &mut File, _: usize| {
        let section = file.section("debug", 0, vec![0; 8]);
        file.symbol("place", section, 0, 8, elf::OBJECT);
    };
    refused(&with(&[map(1, "place"), exit()], &debug), "`place` is neither a map nor in a data section");
    refused(&with(&[call_function("place"), exit()], &debug), "`place` is not a function");
    let misplaced = |file: &mut File, section: usize| {
        debug(file, section);
        file.sections[section].relocations = vec![(0, "place".to_string(), 1)];
    };
    refused(&with(&[mov(0, 2), exit()], &misplaced), "a 64-bit relocation is not on a 64-bit immediate load");
    let outside = |file: &mut File, section: usize| {
        debug(file, section);
        file.sections[section].relocations = vec![(800, "place".to_string(), 1)];
    };
    refused(&with(&[mov(0, 2), exit()], &outside), "relocation at offset 800: no instruction is there");
    let into_the_middle = |file: &mut File, section: usize| {
        file.symbol("middle", section, 8, 0, 0);
        file.symbol("main", section, 0, 24, elf::FUNCTION);
    };
    let object = Object::read(&with(&[call_function("middle"), mov(0, 2), exit()], &into_the_middle)).expect("read");
    let error = Program::load(&object, "main").expect_err("refused").to_string();
    assert_eq!(error, "section `xdp`, offset 0x0: the call's target is not the start of a function");
}

#[test]
fn map_definitions() {
    let with = |map: [u32; 5]| bytes(&[mov(0, 2), exit()], &[], &[("m", map)]);
    refused(&with([3, 4, 4, 1, 0]), "map `m`: type 3 is not supported; there are hash (1), array (2)");
    refused(&with([HASH, 0, 4, 1, 0]), "a key has 0 bytes; 1 to 512 are supported");
    refused(&with([HASH, 4, 0, 1, 0]), "a value has 0 bytes");
    refused(&with([HASH, 4, 4, 0, 0]), "`max_entries` is 0");
    refused(&with([ARRAY, 8, 4, 1, 0]), "the key of an array has 4 bytes, not 8");
    refused(&with([11, 4, 4, 1, 0]), "the key of an LPM trie");
    refused(&with([HASH, 4, 4, 1, 4]), "flags 0x4");
    refused(&with([HASH, 4, 1 << 20, 1 << 20, 0]), "lower `max_entries`");
    let large = [HASH, 4, 64, 2_000_000, 0];
    refused(&bytes(&[mov(0, 2), exit()], &[], &[("m", large), ("n", large)]), "map `n`: the object's maps take");
    let mut file = File::default();
    let section = file.section("maps", elf::WRITE, vec![1; 12]);
    file.symbol("short", section, 0, 12, elf::OBJECT);
    refused(&file.write(), "map `short` in section `maps`: it is shorter than the five numbers");
    let mut file = File::default();
    let section = file.section(".maps", elf::WRITE, vec![0; 32]);
    file.symbol("bare", section, 0, 32, elf::OBJECT);
    refused(
        &file.write(),
        "map `bare` in section `.maps`: there is no section `.BTF` to describe it; compile with `clang -g`",
    );
}

#[test]
fn too_many_instructions() {
    let mut code = vec![mov(0, 2); (1 << 16) + 1];
    code.push(exit());
    let object = Object::read(&bytes(&code, &[], &[])).expect("read");
    let error = Program::load(&object, "main").expect_err("refused").to_string();
    assert_eq!(error, "the program has more than 65536 instructions, called functions included");
}

/// Reads what may be an object and loads all of its programs.
fn attempt(file: &[u8]) -> bool {
    let Ok(object) = Object::read(file) else { return false };
    for program in object.programs() {
        if let Ok(program) = Program::load(&object, &program.function) {
            let (_, _) = support::packets::run(&program, &[0x55; 64], 1, 2, 3);
        }
    }
    true
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let len = random.index(600);
        let mut file: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
        let header = &good()[..64.min(len)];
        if random.one_in(2) {
            file[..header.len()].copy_from_slice(header);
        }
        attempt(&file);
    }
}

#[test]
fn changed_objects_never_panic() {
    let mut random = Random::new(2);
    let mut files = vec![good()];
    for name in ["rate_limiter", "firewall", "vxlan"] {
        files.extend(support::clang::compile(name, &[]));
    }
    let mut read = 0;
    for _ in 0..6000 {
        let mut file = random.pick(&files).clone();
        for _ in 0..=random.below(8) {
            let at = random.index(file.len());
            match random.below(8) {
                0 => file.truncate(at.max(1)),
                1 => file[at] = 0xff,
                2 => file[at] = 0,
                3 => file[at] ^= 1 << random.below(8),
                4 if at + 4 <= file.len() => {
                    file[at..at + 4].copy_from_slice(&(random.next_u64() as u32).to_le_bytes())
                }
                5 => {
                    let from = random.index(file.len());
                    let len = random.index(16).min(file.len() - from.max(at));
                    file.copy_within(from..from + len, at);
                }
                _ => file[at] = random.next_u64() as u8,
            }
        }
        read += usize::from(attempt(&file));
    }
    assert!(read > 1000, "only {read} files were still objects");
}
