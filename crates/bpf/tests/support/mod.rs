//! What the tests share: an assembler, a writer of object files, packets.
#![allow(dead_code)]

pub mod assembler;
pub mod clang;
pub mod elf;
pub mod packets;

use assembler::Item;
use bpf::{Error, Object, Program, VerifyError};

/// A map of a test.
pub const HASH: u32 = 1;
/// A map of a test.
pub const ARRAY: u32 = 2;

/// An object with a program `main` in section `xdp`, functions in `.text`, and maps.
pub fn object(main: &[Item], functions: &[(&str, &[Item])], maps: &[(&str, [u32; 5])]) -> Result<Object, Error> {
    Object::read(&bytes(main, functions, maps))
}

/// The bytes of an object.
pub fn bytes(main: &[Item], functions: &[(&str, &[Item])], maps: &[(&str, [u32; 5])]) -> Vec<u8> {
    let mut file = elf::File::default();
    if !maps.is_empty() {
        let data = maps.iter().flat_map(|(_, map)| map.iter().flat_map(|n| n.to_le_bytes())).collect();
        let section = file.section("maps", elf::WRITE, data);
        for (i, (name, _)) in maps.iter().enumerate() {
            file.symbol(name, section, 20 * i as u64, 20, elf::OBJECT);
        }
    }
    let constants = file.section(".rodata", 0, (0..64u8).collect());
    file.symbol("constants", constants, 0, 64, elf::OBJECT);
    let globals = file.section(".bss", elf::WRITE, vec![0; 64]);
    file.symbol("globals", globals, 0, 64, elf::OBJECT);
    if !functions.is_empty() {
        let code: Vec<Item> = functions.iter().flat_map(|(_, code)| code.iter().cloned()).collect();
        let section = file.code(".text", &code);
        let mut start = 0;
        for (name, code) in functions {
            let size = 8 * assembler::len(code) as u64;
            file.symbol(name, section, start, size, elf::FUNCTION);
            start += size;
        }
    }
    let section = file.code("xdp", main);
    file.symbol("main", section, 0, 8 * assembler::len(main) as u64, elf::FUNCTION);
    file.write()
}

/// Loads a program that has the maps `hash` (keys of 4 bytes, values of 16) and `array` (values of 8 bytes).
pub fn load(main: &[Item], functions: &[(&str, &[Item])]) -> Result<Program, VerifyError> {
    let maps = [("hash", [HASH, 4, 16, 8, 0]), ("array", [ARRAY, 4, 8, 4, 0]), ("fixed", [ARRAY, 4, 8, 4, 128])];
    Program::load(&object(main, functions, &maps).expect("a good object"), "main")
}
