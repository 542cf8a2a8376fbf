//! Object files: relocatable ELF64 files as `clang -target bpf -O2 -c` produces them.
//!
//! An executable section holds functions. Those outside `.text` are programs; those in `.text` are functions that
//! programs call, or the programs of an object without `SEC`. Maps are defined in section `maps` (`struct bpf_map_def`)
//! and in section `.maps` (described by BTF). Each section of constants or global variables (`.rodata*`, `.data*`,
//! `.bss*`) is an array map with one entry, as in libbpf.
//!
//! Relocations are resolved within the object: a 64-bit immediate refers to a map or to an address in a data section, a
//! call to a function. [`link`] combines a program and the functions that it calls into one list of instructions.

mod btf;
pub(crate) mod link;

use crate::error::Error;
use crate::instruction::{INSTRUCTION_BYTES, Instruction, code};
use crate::map::{MAP_BYTES_MAX, MapKind, MapSpec};
use btf::{Btf, MapDescription};
use object::elf;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _};
use object::{RelocationFlags, RelocationTarget, SectionFlags, SectionIndex, SymbolKind, SymbolSection};
use std::collections::{BTreeMap, HashMap};

/// The maximum size of an object file in bytes: programs of [`link::INSTRUCTIONS_MAX`] instructions with debug
/// information take a few megabytes.
pub const OBJECT_BYTES_MAX: usize = 16 << 20;
/// The maximum number of maps of an object, data sections included: a handle is an index, and even an empty map takes
/// memory.
pub const MAPS_MAX: usize = 256;
/// The size of the known part of `struct bpf_map_def` in bytes: type, key size, value size, maximum entries, flags.
const MAP_DEFINITION_BYTES: usize = 20;
/// The section of functions shared by all programs.
const SHARED_SECTION: &str = ".text";

/// An object file.
#[derive(Clone, Debug)]
pub struct Object {
    sections: Vec<Section>,
    functions: Vec<Function>,
    maps: Vec<MapSpec>,
}

/// An executable section.
#[derive(Clone, Debug)]
struct Section {
    name: String,
    code: Vec<Instruction>,
    /// The relocations by instruction number.
    relocations: BTreeMap<usize, Target>,
}

/// The target of a relocation.
#[derive(Clone, Copy, Debug)]
enum Target {
    Map(u32),
    MapValue { map: u32, offset: u32 },
    Function { section: usize, instruction: usize },
}

/// A function in a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    section: usize,
    start: usize,
    len: usize,
}

/// A program of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramName {
    /// Its function.
    pub function: String,
    /// Its section.
    pub section: String,
}

type File<'a> = ElfFile64<'a, LittleEndian>;

impl Object {
    /// Reads an object file.
    ///
    /// # Errors
    /// If the file is not a supported ELF64 object, or its sections, maps or relocations are malformed.
    pub fn read(bytes: &[u8]) -> Result<Object, Error> {
        const REMEDY: &str = "compile it with `clang -target bpf -O2 -g -c`";
        if bytes.len() > OBJECT_BYTES_MAX {
            let len = bytes.len();
            return Err(Error::new(format!("the object file has {len} bytes; at most {OBJECT_BYTES_MAX} are read")));
        }
        let bad = |e: object::Error| Error::new(format!("not a BPF object file: {e}; {REMEDY}"));
        let file = File::parse(bytes).map_err(bad)?;
        let header = file.elf_header();
        if header.e_machine.get(LittleEndian) != elf::EM_BPF {
            let machine = header.e_machine.get(LittleEndian);
            return Err(Error::new(format!("the object file is for machine {machine}, not for BPF (247); {REMEDY}")));
        }
        if header.e_type.get(LittleEndian) != elf::ET_REL {
            return Err(Error::new(format!("the object file is not relocatable (ET_REL); {REMEDY}")));
        }
        Reader::new(&file).read()
    }

    /// An object made without a file: functions by name, all in section `xdp`, and maps, which instructions refer to by
    /// [`encoding::PSEUDO_MAP`](crate::encoding::PSEUDO_MAP) and their number. The instructions are as untrusted as a
    /// file's.
    pub fn assembled(functions: &[(&str, &[Instruction])], maps: Vec<MapSpec>) -> Object {
        let (mut code, mut placed) = (Vec::new(), Vec::new());
        for (name, instructions) in functions.iter().filter(|(_, instructions)| !instructions.is_empty()) {
            placed.push(Function { name: name.to_string(), section: 0, start: code.len(), len: instructions.len() });
            code.extend_from_slice(instructions);
        }
        let section = Section { name: "xdp".to_string(), code, relocations: BTreeMap::new() };
        Object { sections: vec![section], functions: placed, maps }
    }

    /// The programs of the object.
    pub fn programs(&self) -> Vec<ProgramName> {
        let has_sections = self.sections.iter().any(|section| section.name != SHARED_SECTION);
        let is_program = |f: &&Function| !has_sections || self.sections[f.section].name != SHARED_SECTION;
        let name =
            |f: &Function| ProgramName { function: f.name.clone(), section: self.sections[f.section].name.clone() };
        self.functions.iter().filter(is_program).map(name).collect()
    }

    /// The maps of the object.
    pub fn maps(&self) -> &[MapSpec] {
        &self.maps
    }
}

/// An object while it is being read.
struct Reader<'f, 'a> {
    file: &'f File<'a>,
    maps: Vec<MapSpec>,
    /// The maps by section and offset.
    map_places: HashMap<(SectionIndex, u64), u32>,
    /// The data sections, which are maps, and their sizes in bytes.
    data: HashMap<SectionIndex, u32>,
    /// The executable sections.
    code: HashMap<SectionIndex, usize>,
}

impl<'f, 'a> Reader<'f, 'a> {
    fn new(file: &'f File<'a>) -> Self {
        Reader { file, maps: Vec::new(), map_places: HashMap::new(), data: HashMap::new(), code: HashMap::new() }
    }

    fn read(mut self) -> Result<Object, Error> {
        self.maps()?;
        self.data_sections()?;
        let (mut sections, indexes) = self.code_sections()?;
        let functions = self.functions(&sections)?;
        for (number, index) in indexes.into_iter().enumerate() {
            sections[number].relocations = self.relocations(&sections, number, index)?;
        }
        if functions.is_empty() {
            return Err(Error::new(
                "the object file has no program; put a function into a section with `SEC(\"xdp\")`",
            ));
        }
        Ok(Object { sections, functions, maps: self.maps })
    }

    fn section_data(&self, section: &object::read::elf::ElfSection64<'a, '_, LittleEndian>) -> Result<&'a [u8], Error> {
        let name = section.name().unwrap_or("?");
        section.data().map_err(|e| Error::new(format!("section `{name}`: {e}; the file is cut or damaged")))
    }

    fn maps(&mut self) -> Result<(), Error> {
        let btf = match self.file.section_by_name(".BTF") {
            Some(section) => Some(Btf::read(self.section_data(&section)?)?),
            None => None,
        };
        for section in self.file.sections() {
            let legacy = match section.name() {
                Ok("maps") => true,
                Ok(".maps") => false,
                _ => continue,
            };
            let data = self.section_data(&section)?;
            let mut symbols: Vec<_> = self
                .file
                .symbols()
                .filter(|s| s.section_index() == Some(section.index()) && s.kind() != SymbolKind::Section)
                .filter(|s| s.name().is_ok_and(|name| !name.is_empty()))
                .collect();
            symbols.sort_by_key(|s| s.address());
            for symbol in symbols {
                let name = symbol.name().unwrap_or_default();
                let description = match legacy {
                    true => legacy_definition(name, data, symbol.address(), symbol.size())?,
                    false => match &btf {
                        Some(btf) => btf.map(name)?,
                        None => {
                            let why = "there is no section `.BTF` to describe it; compile with `clang -g`";
                            return Err(Error::new(format!("map `{name}` in section `.maps`: {why}")));
                        }
                    },
                };
                let number = self.add_map(map_spec(name, description)?)?;
                if self.map_places.insert((section.index(), symbol.address()), number).is_some() {
                    return Err(Error::new(format!("map `{name}`: another map is at the same place of its section")));
                }
            }
        }
        Ok(())
    }

    fn add_map(&mut self, spec: MapSpec) -> Result<u32, Error> {
        if self.maps.len() == MAPS_MAX {
            return Err(Error::new(format!("the object has more than {MAPS_MAX} maps, data sections included")));
        }
        if self.maps.iter().any(|map| map.name == spec.name) {
            return Err(Error::new(format!("the object has two maps `{}`; rename one", spec.name)));
        }
        let bytes = self.maps.iter().chain([&spec]).map(MapSpec::bytes).sum::<u64>();
        if bytes > MAP_BYTES_MAX {
            return Err(Error::new(format!(
                "map `{}`: the object's maps take {bytes} bytes; at most {MAP_BYTES_MAX} are allowed: lower `max_entries`",
                spec.name
            )));
        }
        self.maps.push(spec);
        Ok(self.maps.len() as u32 - 1)
    }

    fn data_sections(&mut self) -> Result<(), Error> {
        for section in self.file.sections() {
            let Ok(name) = section.name() else { continue };
            let is = |prefix: &str| name == prefix || name.strip_prefix(prefix).is_some_and(|r| r.starts_with('.'));
            if !(is(".rodata") || is(".data") || is(".bss")) || section.size() == 0 {
                continue;
            }
            let size = section.size();
            let value_size = u32::try_from(size).ok().filter(|size| *size <= crate::map::VALUE_BYTES_MAX);
            let Some(value_size) = value_size else {
                let max = crate::map::VALUE_BYTES_MAX;
                return Err(Error::new(format!("section `{name}` has {size} bytes; at most {max} are supported")));
            };
            let mut initial = self.section_data(&section)?.to_vec();
            // A section without bytes in the file is zero-initialised.
            initial.resize(value_size as usize, 0);
            let spec = MapSpec {
                name: name.to_string(),
                kind: MapKind::Array,
                key_size: 4,
                value_size,
                max_entries: 1,
                read_only: is(".rodata"),
                initial: Some(initial),
            };
            let number = self.add_map(spec)?;
            self.data.insert(section.index(), number);
        }
        Ok(())
    }

    fn code_sections(&mut self) -> Result<(Vec<Section>, Vec<SectionIndex>), Error> {
        let (mut sections, mut indexes) = (Vec::new(), Vec::new());
        for section in self.file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            if !sh_flags.contains(elf::SHF_EXECINSTR) || section.size() == 0 {
                continue;
            }
            let name = section.name().unwrap_or("?").to_string();
            let data = self.section_data(&section)?;
            if !data.len().is_multiple_of(INSTRUCTION_BYTES) {
                let len = data.len();
                return Err(Error::new(format!(
                    "section `{name}` has {len} bytes, not a multiple of {INSTRUCTION_BYTES}; the file is damaged"
                )));
            }
            let code = data.as_chunks().0.iter().map(|bytes| Instruction::decode(*bytes)).collect();
            self.code.insert(section.index(), sections.len());
            sections.push(Section { name, code, relocations: BTreeMap::new() });
            indexes.push(section.index());
        }
        Ok((sections, indexes))
    }

    fn functions(&self, sections: &[Section]) -> Result<Vec<Function>, Error> {
        let mut functions: Vec<Function> = Vec::new();
        for symbol in self.file.symbols().filter(|s| s.kind() == SymbolKind::Text) {
            let Some(section) = symbol.section_index().and_then(|index| self.code.get(&index)) else { continue };
            let name = symbol.name().unwrap_or("?").to_string();
            let (address, size) = (symbol.address(), symbol.size());
            let end = address.checked_add(size);
            let bytes = (sections[*section].code.len() * INSTRUCTION_BYTES) as u64;
            let unit = INSTRUCTION_BYTES as u64;
            if end.is_none_or(|end| end > bytes) || !address.is_multiple_of(unit) || !size.is_multiple_of(unit) {
                let section = &sections[*section].name;
                return Err(Error::new(format!(
                    "function `{name}`: offset {address} and size {size} do not fit section `{section}` of {bytes} bytes; the file is damaged"
                )));
            }
            functions.push(Function {
                name,
                section: *section,
                start: (address / unit) as usize,
                len: (size / unit) as usize,
            });
        }
        functions.sort_by_key(|f| (f.section, f.start));
        // A function of unknown size ends at the start of the next one.
        for i in 0..functions.len() {
            if functions[i].len == 0 {
                let section = functions[i].section;
                let next = functions.get(i + 1).filter(|next| next.section == section).map(|next| next.start);
                functions[i].len = next.unwrap_or(sections[section].code.len()) - functions[i].start;
            }
        }
        // In hand-written assembly, a section without symbols is one function.
        for (number, section) in sections.iter().enumerate() {
            if !functions.iter().any(|f| f.section == number) {
                let len = section.code.len();
                functions.push(Function { name: section.name.clone(), section: number, start: 0, len });
            }
        }
        functions.retain(|f| f.len > 0);
        Ok(functions)
    }

    fn relocations(
        &self,
        sections: &[Section],
        number: usize,
        index: SectionIndex,
    ) -> Result<BTreeMap<usize, Target>, Error> {
        let Section { name, code: instructions, .. } = &sections[number];
        let section = self.file.section_by_index(index).map_err(|e| Error::new(format!("section `{name}`: {e}")))?;
        let mut targets = BTreeMap::new();
        for (offset, relocation) in section.relocations() {
            let at = |what: String| Error::new(format!("section `{name}`, relocation at offset {offset}: {what}"));
            let place = (offset / INSTRUCTION_BYTES as u64) as usize;
            let (Some(instruction), true) = (instructions.get(place), offset.is_multiple_of(INSTRUCTION_BYTES as u64))
            else {
                return Err(at("no instruction is there; the file is damaged".to_string()));
            };
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return Err(at("it does not refer to a symbol; the file is damaged".to_string()));
            };
            let symbol = self.file.symbol_by_index(symbol).map_err(|e| at(e.to_string()))?;
            let symbol_name = symbol.name().ok().filter(|n| !n.is_empty()).unwrap_or("a section");
            let SymbolSection::Section(target) = symbol.section() else {
                return Err(at(format!(
                    "`{symbol_name}` is not defined in the object; define it, or link objects with `llvm-link` first"
                )));
            };
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let found = match r_type {
                elf::R_BPF_64_64 => {
                    if instruction.code != code::LD_IMM64 {
                        return Err(at("a 64-bit relocation is not on a 64-bit immediate load".to_string()));
                    }
                    let offset = symbol.address().wrapping_add(instruction.imm as i64 as u64);
                    self.data_target(target, offset).ok_or_else(|| {
                        at(format!(
                            "`{symbol_name}` is neither a map nor in a data section (`.rodata`, `.data`, `.bss`)"
                        ))
                    })?
                }
                elf::R_BPF_64_32 => {
                    if instruction.code != code::CALL {
                        return Err(at("a 32-bit relocation is not on a call".to_string()));
                    }
                    let relative = (i64::from(instruction.imm) + 1) * INSTRUCTION_BYTES as i64;
                    let offset = symbol.address().wrapping_add(relative as u64);
                    match self.code.get(&target) {
                        Some(section) if offset.is_multiple_of(INSTRUCTION_BYTES as u64) => Target::Function {
                            section: *section,
                            instruction: (offset / INSTRUCTION_BYTES as u64) as usize,
                        },
                        _ => return Err(at(format!("`{symbol_name}` is not a function"))),
                    }
                }
                other => return Err(at(format!("relocations of type {other} are not supported in programs"))),
            };
            targets.insert(place, found);
        }
        Ok(targets)
    }

    /// The map and offset for an address in a data section.
    fn data_target(&self, section: SectionIndex, offset: u64) -> Option<Target> {
        if let Some(map) = self.map_places.get(&(section, offset)) {
            return Some(Target::Map(*map));
        }
        let map = *self.data.get(&section)?;
        let offset = u32::try_from(offset).ok().filter(|o| *o <= self.maps[map as usize].value_size)?;
        Some(Target::MapValue { map, offset })
    }
}

/// Parses a `struct bpf_map_def`.
fn legacy_definition(name: &str, data: &[u8], address: u64, size: u64) -> Result<MapDescription, Error> {
    let bad = |what: &str| Error::new(format!("map `{name}` in section `maps`: {what}"));
    let start = usize::try_from(address).ok().filter(|start| *start <= data.len());
    let rest = start.map(|start| &data[start..]).ok_or_else(|| bad("it is outside the section"))?;
    let size = usize::try_from(size).ok().filter(|size| *size <= rest.len());
    let size = size.ok_or_else(|| bad("it is outside the section"))?;
    let definition = &rest[..size];
    if size < MAP_DEFINITION_BYTES {
        return Err(bad("it is shorter than the five numbers of `struct bpf_map_def`"));
    }
    if definition[MAP_DEFINITION_BYTES..].iter().any(|b| *b != 0) {
        return Err(bad("members after `map_flags` are not supported and must be 0"));
    }
    let number = |i: usize| {
        let bytes = &definition[4 * i..];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    };
    Ok(MapDescription {
        kind: Some(number(0)),
        key_size: Some(number(1).into()),
        value_size: Some(number(2).into()),
        max_entries: Some(number(3)),
        flags: number(4),
    })
}

fn map_spec(name: &str, map: MapDescription) -> Result<MapSpec, Error> {
    /// `BPF_F_NO_PREALLOC`: has no effect, since all maps are preallocated.
    const NO_PREALLOC: u32 = 1;
    /// `BPF_F_RDONLY_PROG`.
    const READ_ONLY: u32 = 1 << 7;
    let bad = |what: String| Error::new(format!("map `{name}`: {what}"));
    let number = map.kind.ok_or_else(|| bad("it has no `type`".to_string()))?;
    let kind = MapKind::of(number)
        .ok_or_else(|| bad(format!("type {number} is not supported; there are {}", MapKind::known())))?;
    if map.flags & !(NO_PREALLOC | READ_ONLY) != 0 {
        return Err(bad(format!("flags {:#x}: only BPF_F_NO_PREALLOC and BPF_F_RDONLY_PROG are supported", map.flags)));
    }
    let size = |what: &str, size: Option<u64>| {
        let size = size.ok_or_else(|| bad(format!("it has no `{what}`")))?;
        u32::try_from(size).map_err(|_| bad(format!("`{what}` {size} is too large")))
    };
    let spec = MapSpec {
        name: name.to_string(),
        kind,
        key_size: size("key_size", map.key_size)?,
        value_size: size("value_size", map.value_size)?,
        max_entries: map.max_entries.ok_or_else(|| bad("it has no `max_entries`".to_string()))?,
        read_only: map.flags & READ_ONLY != 0,
        initial: None,
    };
    spec.check().map_err(|e| Error::new(e.to_string()))?;
    Ok(spec)
}
