//! Linking: combines a program and the functions that it calls into one list of instructions.

use super::{Function, Object, Target};
use crate::error::Error;
use crate::instruction::{INSTRUCTION_BYTES, Instruction, code};
use std::collections::HashMap;

/// The maximum number of instructions of a linked program: jump offsets have 16 bits.
pub const INSTRUCTIONS_MAX: usize = 1 << 16;

/// A linked program. The first function is the entry.
#[derive(Clone, Debug)]
pub(crate) struct Linked {
    pub(crate) code: Vec<Instruction>,
    pub(crate) functions: Vec<LinkedFunction>,
}

/// A function of a linked program.
#[derive(Clone, Debug)]
pub(crate) struct LinkedFunction {
    pub(crate) name: String,
    pub(crate) section: String,
    /// The first instruction in the linked program.
    pub(crate) start: usize,
    /// The number of instructions.
    pub(crate) len: usize,
    /// The first instruction in the section.
    pub(crate) section_start: usize,
}

impl Linked {
    /// The index of the function that contains an instruction.
    pub(crate) fn function_of(&self, number: usize) -> usize {
        self.functions.partition_point(|f| f.start <= number).saturating_sub(1)
    }

    /// The location of an instruction as text.
    pub(crate) fn place(&self, number: usize) -> String {
        let function = &self.functions[self.function_of(number)];
        let within = number - function.start;
        let offset = (function.section_start + within) * INSTRUCTION_BYTES;
        format!("`{}`, instruction {within} (section `{}`, offset {offset:#x})", function.name, function.section)
    }
}

impl Object {
    /// Links the program with the name of a function or section.
    pub(crate) fn link(&self, name: &str) -> Result<Linked, Error> {
        let entry = self.find(name)?;
        let mut linked = Linked { code: Vec::new(), functions: Vec::new() };
        let mut placed: HashMap<usize, usize> = HashMap::new();
        let mut waiting = vec![entry];
        let mut calls = Vec::new();
        while let Some(number) = waiting.pop() {
            if placed.contains_key(&number) {
                continue;
            }
            let Function { name, section, start, len } = &self.functions[number];
            let source = &self.sections[*section];
            let base = linked.code.len();
            if base + len > INSTRUCTIONS_MAX {
                return Err(Error::new(format!(
                    "the program has more than {INSTRUCTIONS_MAX} instructions, called functions included"
                )));
            }
            placed.insert(number, base);
            linked.functions.push(LinkedFunction {
                name: name.clone(),
                section: source.name.clone(),
                start: base,
                len: *len,
                section_start: *start,
            });
            let mut second = false;
            for within in 0..*len {
                let place = start + within;
                let mut instruction = source.code[place];
                if second {
                    second = false;
                    // Was appended with the first half.
                    linked.code.push(instruction);
                    continue;
                }
                let callee = match source.relocations.get(&place) {
                    Some(Target::Map(map)) => {
                        (instruction.src, instruction.imm) = (code::PSEUDO_MAP, *map as i32);
                        None
                    }
                    Some(Target::MapValue { map, .. }) => {
                        (instruction.src, instruction.imm) = (code::PSEUDO_MAP_VALUE, *map as i32);
                        None
                    }
                    Some(Target::Function { section, instruction }) => Some((*section, *instruction as i64)),
                    None if instruction.code == code::CALL && instruction.src == code::PSEUDO_CALL => {
                        Some((*section, place as i64 + 1 + i64::from(instruction.imm)))
                    }
                    None => None,
                };
                if let Some((section, target)) = callee {
                    let is = |f: &Function| f.section == section && f.start as i64 == target;
                    let Some(callee) = self.functions.iter().position(is) else {
                        return Err(Error::new(format!(
                            "section `{}`, offset {:#x}: the call's target is not the start of a function",
                            source.name,
                            place * INSTRUCTION_BYTES
                        )));
                    };
                    instruction.src = code::PSEUDO_CALL;
                    calls.push((base + within, callee));
                    waiting.push(callee);
                }
                second = instruction.code == code::LD_IMM64;
                linked.code.push(instruction);
            }
            for within in 0..*len {
                if let Some(Target::MapValue { offset, .. }) = source.relocations.get(&(start + within))
                    && let Some(half) = linked.code.get_mut(base + within + 1)
                {
                    half.imm = *offset as i32;
                }
            }
        }
        for (number, callee) in calls {
            linked.code[number].imm = placed[&callee] as i32 - number as i32 - 1;
        }
        Ok(linked)
    }

    fn find(&self, name: &str) -> Result<usize, Error> {
        if let Some(found) = self.functions.iter().position(|f| f.name == name) {
            return Ok(found);
        }
        let section = self.sections.iter().position(|s| s.name == name);
        let within: Vec<usize> =
            (0..self.functions.len()).filter(|i| Some(self.functions[*i].section) == section).collect();
        let list = |names: Vec<String>| names.join(", ");
        match within[..] {
            [only] => Ok(only),
            [] => {
                let names = self.programs().into_iter().map(|p| format!("`{}` (section `{}`)", p.function, p.section));
                Err(Error::new(format!("there is no program `{name}`; there are {}", list(names.collect()))))
            }
            _ => {
                let names = within.iter().map(|i| format!("`{}`", self.functions[*i].name));
                let names = list(names.collect());
                Err(Error::new(format!("section `{name}` has several programs; name one of {names}")))
            }
        }
    }
}
