//! The verifier: the rules that passes, the interpreter and the lowering rely on.
//!
//! - ids are in range; a value is defined once, and its definition dominates each use;
//! - operands and results have the types that the instruction requires; edges pass one argument per parameter, calls
//!   and lookups what the function or table takes, all of the right types;
//! - an access names a region, has a supported size, and does not write to an immutable region;
//! - a function's declared effects cover those of its instructions, except on its own stack.
//!
//! A violation names the function, block and instruction.

use crate::cfg::Cfg;
use crate::dominators::Dominators;
use crate::function::{Definition, Function, Module};
use crate::op::{Access, Address, Binary, Callee, Cast, Edge, Instruction, Op, Terminator, Unary};
use crate::print::print_instruction;
use crate::types::{Block, Effects, Region, Regions, Type, Value};
use std::collections::HashSet;
use std::fmt;

/// Limit of the size of a function's stack slots together, in bytes.
pub const STACK_BYTES_MAX: u32 = 1 << 20;
/// Largest number of parameters of a runtime function.
pub const RUNTIME_PARAMS_MAX: usize = 6;
/// Largest size of a table's key, in 64-bit words.
pub const KEY_WORDS_MAX: u32 = 4096;

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The function's name; empty if the violation is about the module.
    pub function: String,
    /// The block and the instruction's text; `None` if the violation is about the whole function.
    pub location: Option<(Block, String)>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.location, self.function.as_str()) {
            (Some((block, inst)), function) => write!(f, "{function}, {block}, `{inst}`: {}", self.message),
            (None, "") => f.write_str(&self.message),
            (None, function) => write!(f, "{function}: {}", self.message),
        }
    }
}

/// Checks a module. Returns no violations if it is well-formed.
pub fn verify(module: &Module) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut about = |message: String| violations.push(Violation { function: String::new(), location: None, message });
    fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
        let mut seen = HashSet::new();
        names.into_iter().find(|name| !seen.insert(*name))
    }
    let lists = [
        ("tables", twice(module.tables.iter().map(|table| &table.name))),
        ("runtime functions", twice(module.runtime.iter().map(|runtime| &runtime.name))),
        ("functions", twice(module.functions.iter().map(|function| &function.name))),
    ];
    for (kind, name) in lists {
        if let Some(name) = name {
            about(format!("two {kind} have the name `{name}`"));
        }
    }
    for table in module.tables.iter().filter(|table| !(1..=KEY_WORDS_MAX).contains(&table.words)) {
        about(format!("table `{}`: a key has 1 to {KEY_WORDS_MAX} words, not {}", table.name, table.words));
    }
    for runtime in &module.runtime {
        let is_passed = |ty: &Type| ty.is_integer() && ty.bits() <= 64;
        if !runtime.params.iter().chain(&runtime.result).all(is_passed) || runtime.params.len() > RUNTIME_PARAMS_MAX {
            let name = &runtime.name;
            about(format!(
                "runtime function `{name}`: takes up to {RUNTIME_PARAMS_MAX} integers of up to 64 bits and gives one"
            ));
        }
        if runtime.effects.writes.meets(Regions::CONSTANT) {
            about(format!("runtime function `{}`: writes to {}", runtime.name, Regions::CONSTANT));
        }
    }
    for function in &module.functions {
        violations.extend(verify_function(module, function));
    }
    violations
}

/// Checks a function of a module.
pub fn verify_function(module: &Module, function: &Function) -> Vec<Violation> {
    let mut verifier = Verifier { module, function, violations: Vec::new(), location: None };
    if verifier.shape() {
        verifier.definitions();
        verifier.blocks();
    }
    verifier.violations
}

struct Verifier<'m> {
    module: &'m Module,
    function: &'m Function,
    violations: Vec<Violation>,
    /// The current block, and the current position in it.
    location: Option<(Block, At<'m>)>,
}

#[derive(Clone, Copy)]
enum At<'m> {
    Start,
    Inst(&'m Instruction),
    End,
}

impl<'m> Verifier<'m> {
    fn report(&mut self, message: impl Into<String>) {
        let location = self.location.map(|(block, at)| {
            let text = match at {
                At::Start => "parameters".to_string(),
                At::Inst(inst) => print_instruction(self.module, self.function, inst),
                At::End => "terminator".to_string(),
            };
            (block, text)
        });
        self.violations.push(Violation { function: self.function.name.clone(), location, message: message.into() });
    }

    fn check(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.report(message());
        }
    }

    /// Checks that all ids are in range, so that later checks may index with them.
    fn shape(&mut self) -> bool {
        let function = self.function;
        if function.layout.is_empty() {
            self.report("has no block");
            return false;
        }
        let mut is_placed = vec![false; function.blocks.len()];
        for block in &function.layout {
            match is_placed.get_mut(block.index()) {
                Some(placed) if !*placed => *placed = true,
                _ => self.report(format!("the layout has {block} twice, or there is no such block")),
            }
        }
        if !self.violations.is_empty() {
            return false;
        }
        let values = function.values.len();
        for &block in &function.layout {
            let data = function.block(block);
            self.location = Some((block, At::Start));
            self.check(data.params.iter().all(|param| param.index() < values), || "a value without a type".to_string());
            for inst in &data.insts {
                self.location = Some((block, At::Inst(inst)));
                let mut is_known = inst.result.is_none_or(|result| result.index() < values);
                inst.op.operands(|value| is_known &= value.index() < values);
                self.check(is_known, || "a value without a type".to_string());
            }
            self.location = Some((block, At::End));
            let mut is_known = true;
            data.terminator.operands(|value| is_known &= value.index() < values);
            self.check(is_known, || "a value without a type".to_string());
            for edge in data.terminator.edges() {
                let is_placed = is_placed.get(edge.block.index()) == Some(&true);
                self.check(is_placed, || format!("{} is not in the layout", edge.block));
            }
        }
        self.location = None;
        let is_table = |ty: &Type| !matches!(ty, Type::Probe(table) if table.index() >= self.module.tables.len());
        let known = function.values.iter().chain(&function.result).all(is_table);
        self.check(known, || "a probe of a table that does not exist".to_string());
        let bytes: u64 = function.slots.iter().map(|slot| u64::from(slot.bytes)).sum();
        self.check(bytes <= STACK_BYTES_MAX.into(), || {
            format!("{bytes} bytes of stack slots, above {STACK_BYTES_MAX}")
        });
        let aligned = function.slots.iter().all(|slot| slot.align.is_power_of_two() && slot.align <= 64);
        self.check(aligned, || "a slot's alignment is a power of two of up to 64".to_string());
        let constant = function.effects.writes.meets(Regions::CONSTANT);
        self.check(!constant, || format!("writes to {}", Regions::CONSTANT));
        self.violations.is_empty()
    }

    /// Checks that each value has one definition, which dominates its uses.
    fn definitions(&mut self) {
        let function = self.function;
        let mut is_defined = vec![false; function.values.len()];
        for &block in &function.layout {
            let data = function.block(block);
            self.location = Some((block, At::Start));
            let results = data.insts.iter().filter_map(|inst| inst.result);
            for value in data.params.iter().copied().chain(results) {
                let again = std::mem::replace(&mut is_defined[value.index()], true);
                self.check(!again, || format!("{value} is defined twice"));
            }
        }
        let definitions = function.definitions();
        let cfg = Cfg::new(function);
        let dominators = Dominators::new(function, &cfg);
        let (entry, module) = (function.entry(), self.module);
        self.location = Some((entry, At::Start));
        self.check(cfg.predecessors(entry).is_empty(), || "an edge leads to the entry".to_string());
        // Whether a value's definition dominates an instruction of a block.
        let is_there = |value: Value, block: Block, at: usize| match definitions[value.index()] {
            None => false,
            Some(Definition::Param(from, _)) => dominators.dominates(from, block),
            Some(Definition::Inst(from, i)) if from == block => i < at,
            Some(Definition::Inst(from, _)) => dominators.dominates(from, block),
        };
        let mut reads = Regions::NONE;
        let mut writes = Regions::NONE;
        let mut ends = false;
        for &block in cfg.reverse_postorder() {
            let data = function.block(block);
            for (i, inst) in data.insts.iter().enumerate() {
                self.location = Some((block, At::Inst(inst)));
                inst.op.operands(|value| {
                    self.check(is_there(value, block, i), || format!("{value} is not defined on all paths to here"));
                });
                let effects = inst.op.effects(|callee| module.effects_of(callee));
                (reads, writes, ends) = (reads | effects.reads, writes | effects.writes, ends | effects.ends);
            }
            self.location = Some((block, At::End));
            data.terminator.operands(|value| {
                let there = is_there(value, block, data.insts.len());
                self.check(there, || format!("{value} is not defined on all paths to here"));
            });
        }
        self.location = None;
        let own = Regions::from(Region::Stack) | Regions::CONSTANT;
        let Effects { reads: may_read, writes: may_write, ends: may_end } = function.effects;
        let (read, written) = (reads.without(own | may_read), writes.without(own | may_write));
        self.check(read.is_empty(), || format!("reads {read}, which its effects do not declare"));
        self.check(written.is_empty(), || format!("writes {written}, which its effects do not declare"));
        self.check(may_end || !ends, || "may end the packet, which its effects do not declare".to_string());
    }

    fn blocks(&mut self) {
        let function = self.function;
        for &block in &function.layout {
            let data = function.block(block);
            for inst in &data.insts {
                self.location = Some((block, At::Inst(inst)));
                self.instruction(inst);
            }
            self.location = Some((block, At::End));
            self.terminator(&data.terminator);
        }
        self.location = None;
    }

    fn ty(&self, value: Value) -> Type {
        self.function.type_of(value)
    }

    fn is(&mut self, value: Value, ty: Type) {
        let found = self.ty(value);
        self.check(found == ty, || format!("{value} is of type {found}, not {ty}"));
    }

    fn integer(&mut self, value: Value) {
        let found = self.ty(value);
        self.check(found.is_integer(), || format!("{value} is of type {found}, which is not an integer"));
    }

    fn address(&mut self, address: Address) {
        self.is(address.base, Type::I64);
    }

    fn regions(&mut self, regions: Regions, is_written: bool) {
        self.check(!regions.is_empty(), || "an access is in some region".to_string());
        let constant = regions & Regions::CONSTANT;
        self.check(!is_written || constant.is_empty(), || format!("{constant} never changes while the code runs"));
    }

    fn access(&mut self, access: Access, value: Value, is_written: bool) {
        self.regions(access.regions, is_written);
        let bytes = u32::from(access.bytes);
        self.check(matches!(bytes, 1..=8 | 16), || format!("an access has 1 to 8 or 16 bytes, not {bytes}"));
        let ty = self.ty(value);
        let fits = ty.bits() >= 8 * bytes && ty.bits() >= 8;
        self.check(fits, || format!("{bytes} bytes and a value of type {ty}"));
    }

    fn args(&mut self, found: &[Value], params: &[Type], what: &str) {
        self.check(found.len() == params.len(), || {
            format!("{what} takes {} values, and there are {}", params.len(), found.len())
        });
        for (value, ty) in found.iter().zip(params) {
            self.is(*value, *ty);
        }
    }

    fn instruction(&mut self, inst: &Instruction) {
        let result = inst.result.map(|result| self.ty(result));
        let expected = self.operation(&inst.op, result);
        match (result, expected) {
            (Some(found), Some(ty)) => self.check(found == ty, || format!("the result is of type {found}, not {ty}")),
            (None, Some(ty)) => self.report(format!("has no name for its result of type {ty}")),
            (Some(_), None) => self.report("has no result"),
            (None, None) => {}
        }
    }

    /// Checks operands and returns the type that the result must have.
    fn operation(&mut self, op: &Op, result: Option<Type>) -> Option<Type> {
        // The type that the instruction itself states.
        let own = result.filter(|ty| ty.is_integer()).unwrap_or(Type::I64);
        match op {
            Op::Const(number) => {
                self.check(number & !own.mask() == 0, || format!("{number:#x} has more bits than {own}"));
                Some(own)
            }
            Op::Unary(unary, a) => {
                self.is(*a, own);
                let exists = match unary {
                    Unary::Not => true,
                    Unary::ByteSwap => own.bits() >= 16,
                    Unary::Neg | Unary::LeadingZeros | Unary::TrailingZeros => own != Type::I1,
                };
                self.check(exists, || format!("there is no such operation on {own}"));
                Some(own)
            }
            Op::Binary(binary, a, b) => {
                self.is(*a, own);
                self.is(*b, own);
                let exists = match binary {
                    Binary::And | Binary::Or | Binary::Xor => true,
                    Binary::MulHigh => own == Type::I64,
                    Binary::Div | Binary::Rem => own != Type::I1 && own != Type::I128,
                    _ => own != Type::I1,
                };
                self.check(exists, || format!("there is no such operation on {own}"));
                Some(own)
            }
            Op::Compare(_, a, b) => {
                self.integer(*a);
                self.is(*b, self.ty(*a));
                Some(Type::I1)
            }
            Op::Select(condition, a, b) => {
                self.is(*condition, Type::I1);
                self.is(*a, own);
                self.is(*b, own);
                Some(own)
            }
            Op::Cast(cast, a) => {
                self.integer(*a);
                let from = self.ty(*a);
                let fits = match cast {
                    Cast::Trunc => own.bits() < from.bits(),
                    Cast::Zext | Cast::Sext => own.bits() > from.bits(),
                };
                self.check(fits, || format!("cannot make {own} of {from}"));
                Some(own)
            }
            Op::Pack(parts) => {
                self.check(!parts.is_empty(), || "packs nothing".to_string());
                let mut taken = 0u128;
                for part in parts {
                    self.integer(part.value);
                    let (width, offset) = (u32::from(part.width), u32::from(part.offset));
                    let (bits, room) = (self.ty(part.value).bits(), own.bits());
                    let fits = (1..=bits).contains(&width) && offset + width <= room;
                    self.check(fits, || format!("{}:{width} at {offset} does not fit", part.value));
                    if fits {
                        let bits = crate::types::low_bits(width) << offset;
                        self.check(taken & bits == 0, || format!("{} lies over another part", part.value));
                        taken |= bits;
                    }
                }
                Some(own)
            }
            Op::Hash(words) => {
                words.iter().for_each(|word| self.is(*word, Type::I64));
                Some(Type::I64)
            }
            Op::StackAddress(slot, offset) => {
                match self.function.slots.get(slot.index()) {
                    Some(slot) => {
                        let fits = (0..=i64::from(slot.bytes)).contains(&i64::from(*offset));
                        self.check(fits, || format!("{offset} is outside of the slot's {} bytes", slot.bytes));
                    }
                    None => self.report(format!("there is no slot {slot}")),
                }
                Some(Type::I64)
            }
            Op::Load(access, address) => {
                self.address(*address);
                if let Some(result) = self.result_value() {
                    self.access(*access, result, false);
                }
                Some(own)
            }
            Op::Store(access, address, value) => {
                self.address(*address);
                self.access(*access, *value, true);
                None
            }
            Op::Atomic(_, regions, address, value) => {
                self.atomic(*regions, *address, own);
                self.is(*value, own);
                Some(own)
            }
            Op::CompareExchange(regions, address, expected, new) => {
                self.atomic(*regions, *address, own);
                self.is(*expected, own);
                self.is(*new, own);
                Some(own)
            }
            Op::Release(regions, address, value) => {
                let ty = self.ty(*value);
                self.atomic(*regions, *address, ty);
                None
            }
            Op::Count(address, value) => {
                self.address(*address);
                self.is(*value, Type::I64);
                None
            }
            Op::Prefetch(address, _) => {
                self.address(*address);
                None
            }
            Op::ProbeIssue(table, words) => {
                match self.module.tables.get(table.index()) {
                    Some(found) => {
                        let params = vec![Type::I64; found.words as usize];
                        self.args(words, &params, &format!("a key of table `{}`", found.name));
                    }
                    None => self.report(format!("there is no table {}", table.0)),
                }
                Some(Type::Probe(*table))
            }
            Op::ProbeTake(probe) => {
                let found = self.ty(*probe);
                let is_probe = matches!(found, Type::Probe(_));
                self.check(is_probe, || format!("{probe} is of type {found}, which is not a probe"));
                Some(Type::I64)
            }
            Op::Call(callee, args) => self.call(*callee, args),
            Op::Phase(_) => None,
        }
    }

    /// The result of the current instruction.
    fn result_value(&self) -> Option<Value> {
        match self.location {
            Some((_, At::Inst(inst))) => inst.result,
            _ => None,
        }
    }

    fn atomic(&mut self, regions: Regions, address: Address, ty: Type) {
        self.address(address);
        self.regions(regions, true);
        let is_one_step = matches!(ty.bits(), 8..=64);
        self.check(is_one_step, || format!("{ty} is not changed in one step; i8, i16, i32 and i64 are"));
    }

    fn call(&mut self, callee: Callee, args: &[Value]) -> Option<Type> {
        match callee {
            Callee::Runtime(id) => match self.module.runtime.get(id.index()) {
                Some(runtime) => {
                    self.args(args, &runtime.params, &format!("runtime function `{}`", runtime.name));
                    runtime.result
                }
                None => {
                    self.report(format!("the runtime has no function {}", id.0));
                    None
                }
            },
            Callee::Function(id) => match self.module.functions.get(id.index()) {
                Some(function) if !function.layout.is_empty() => {
                    let params: Vec<Type> = function.params().iter().map(|param| function.type_of(*param)).collect();
                    self.args(args, &params, &format!("function `{}`", function.name));
                    function.result
                }
                _ => {
                    self.report(format!("there is no function {}", id.0));
                    None
                }
            },
        }
    }

    fn edge(&mut self, edge: &Edge) {
        let function = self.function;
        let params: Vec<Type> =
            function.block(edge.block).params.iter().map(|param| function.type_of(*param)).collect();
        self.args(&edge.args, &params, &edge.block.to_string());
    }

    fn terminator(&mut self, terminator: &Terminator) {
        terminator.edges().for_each(|edge| self.edge(edge));
        match terminator {
            Terminator::Jump(_) | Terminator::Unreachable => {}
            Terminator::Branch(value, ..) => self.is(*value, Type::I1),
            Terminator::Switch(value, cases, _) => {
                let ty = self.ty(*value);
                self.check(ty.is_integer() && ty.bits() <= 64, || format!("a switch on {ty}"));
                let mut seen = HashSet::new();
                for (number, _) in cases {
                    self.check(seen.insert(number), || format!("two cases of {number}"));
                    self.check(u128::from(*number) <= ty.mask(), || format!("{number} has more bits than {ty}"));
                }
            }
            Terminator::Return(value) => {
                let (found, expected) = (value.map(|value| self.ty(value)), self.function.result);
                let shown = |ty: Option<Type>| ty.map_or("nothing".to_string(), |ty| ty.to_string());
                self.check(found == expected, || format!("returns {}, not {}", shown(found), shown(expected)));
            }
        }
    }
}
