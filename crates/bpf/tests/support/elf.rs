//! Writes relocatable ELF64 files for BPF.

use super::assembler::Item;
use bpf::Instruction;
use bpf::encoding as code;

/// Section flag: writable.
pub const WRITE: u64 = 1;
/// Section flag: has instructions.
pub const EXECUTE: u64 = 4;
/// Symbol type: data.
pub const OBJECT: u8 = 1;
/// Symbol type: function.
pub const FUNCTION: u8 = 2;

/// A section.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: String,
    pub flags: u64,
    pub data: Vec<u8>,
    /// Offset, symbol, type.
    pub relocations: Vec<(u64, String, u32)>,
}

/// A symbol.
#[derive(Clone, Debug)]
pub struct Symbol {
    pub name: String,
    /// Index of the section; `None` for an undefined symbol.
    pub section: Option<usize>,
    pub value: u64,
    pub size: u64,
    pub kind: u8,
}

/// Name, type, flags, data, link, info and entry size of a section that is written.
type Header = (u32, u32, u64, Vec<u8>, u32, u32, u64);

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
    pub machine: u16,
    pub kind: u16,
}

impl Default for File {
    fn default() -> File {
        File { sections: Vec::new(), symbols: Vec::new(), machine: 247, kind: 1 }
    }
}

impl File {
    /// Adds a section and gives its index.
    pub fn section(&mut self, name: &str, flags: u64, data: Vec<u8>) -> usize {
        self.sections.push(Section { name: name.to_string(), flags: flags | 2, data, relocations: Vec::new() });
        self.sections.len() - 1
    }

    /// Adds a section of instructions.
    pub fn code(&mut self, name: &str, items: &[Item]) -> usize {
        let mut code = Vec::new();
        let mut relocations = Vec::new();
        for item in items {
            let at = 8 * code.len() as u64;
            match item {
                Item::One(instruction) => code.push(*instruction),
                Item::Wide(dst, imm) => code.extend(wide(*dst, *imm as i32, (*imm >> 32) as i32)),
                Item::Symbol(dst, name, off) => {
                    code.extend(wide(*dst, *off, 0));
                    relocations.push((at, name.to_string(), 1));
                }
                Item::Call(name) => {
                    code.push(Instruction { code: code::CALL, src: code::PSEUDO_CALL, imm: -1, ..Default::default() });
                    relocations.push((at, name.to_string(), 10));
                }
            }
        }
        let index = self.section(name, EXECUTE, code.iter().flat_map(|i| i.encode()).collect());
        self.sections[index].relocations = relocations;
        index
    }

    /// Adds a symbol.
    pub fn symbol(&mut self, name: &str, section: usize, value: u64, size: u64, kind: u8) {
        self.symbols.push(Symbol { name: name.to_string(), section: Some(section), value, size, kind });
    }

    /// The bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        // Sections: null, ours, a relocation section for each of ours, symbols, strings.
        let count = self.sections.len();
        let (symbols_at, strings_at) = (1 + 2 * count, 2 + 2 * count);
        let mut strings = vec![0];
        let mut string = |name: &str| {
            let at = strings.len() as u32;
            strings.extend(name.bytes());
            strings.push(0);
            at
        };
        let mut contents: Vec<Header> = Vec::new();
        for section in &self.sections {
            contents.push((string(&section.name), 1, section.flags, section.data.clone(), 0, 0, 0));
        }
        for (i, section) in self.sections.iter().enumerate() {
            let mut data = Vec::new();
            for (offset, symbol, kind) in &section.relocations {
                let symbol =
                    self.symbols.iter().position(|s| s.name == *symbol).expect("a symbol of the file") as u64 + 1;
                data.extend(offset.to_le_bytes());
                data.extend((symbol << 32 | u64::from(*kind)).to_le_bytes());
            }
            let name = string(&format!(".rel{}", section.name));
            contents.push((name, 9, 0, data, symbols_at as u32, i as u32 + 1, 16));
        }
        let mut data = vec![0; 24];
        for symbol in &self.symbols {
            data.extend(string(&symbol.name).to_le_bytes());
            // Global.
            data.extend([1 << 4 | symbol.kind, 0]);
            data.extend((symbol.section.map_or(0, |s| s as u16 + 1)).to_le_bytes());
            data.extend(symbol.value.to_le_bytes());
            data.extend(symbol.size.to_le_bytes());
        }
        contents.push((string(".symtab"), 2, 0, data, strings_at as u32, 1, 24));
        let name = string(".strtab");
        contents.push((name, 3, 0, strings, 0, 0, 0));
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend(self.kind.to_le_bytes());
        file.extend(self.machine.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        file.extend([0; 16]);
        let total: usize = contents.iter().map(|c| c.3.len()).sum();
        let table = (64 + total).next_multiple_of(8);
        file.extend((table as u64).to_le_bytes());
        file.extend(0u32.to_le_bytes());
        for half in [64u16, 0, 0, 64, contents.len() as u16 + 1, strings_at as u16] {
            file.extend(half.to_le_bytes());
        }
        let mut headers = vec![0; 64];
        for (name, kind, flags, data, link, info, entry) in contents {
            headers.extend(name.to_le_bytes());
            headers.extend(kind.to_le_bytes());
            headers.extend(flags.to_le_bytes());
            headers.extend(0u64.to_le_bytes());
            headers.extend((file.len() as u64).to_le_bytes());
            headers.extend((data.len() as u64).to_le_bytes());
            headers.extend(link.to_le_bytes());
            headers.extend(info.to_le_bytes());
            headers.extend(1u64.to_le_bytes());
            headers.extend(entry.to_le_bytes());
            file.extend(data);
        }
        file.resize(table, 0);
        file.extend(headers);
        file
    }
}

fn wide(dst: u8, low: i32, high: i32) -> [Instruction; 2] {
    [
        Instruction { code: code::LD_IMM64, dst, imm: low, ..Default::default() },
        Instruction { imm: high, ..Default::default() },
    ]
}
