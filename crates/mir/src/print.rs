//! The printer of the text form. [`crate::parse`] parses it; the grammar is in `parse.rs`.
//!
//! Values and blocks are numbered in textual order, so functions that differ only in ids have the same text.

use crate::function::{Function, Module, Runtime, Table};
use crate::op::{Access, Address, Atomic, Binary, Callee, Cast, Condition, Edge, Instruction, Op, Terminator, Unary};
use crate::types::{Block, ByteOrder, Effects, Region, Type, Value};
use std::fmt::{self, Display, Formatter, Write};

/// The text of a module.
pub fn print(module: &Module) -> String {
    module.to_string()
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for table in &self.tables {
            let Table { name, words, handle, lookup } = table;
            writeln!(f, "table {} words {words} handle {handle:#x} lookup {lookup:#x}", Name(name))?;
        }
        for runtime in &self.runtime {
            let Runtime { name, params, result, effects, address } = runtime;
            write!(f, "runtime {}(", Name(name))?;
            for (i, ty) in params.iter().enumerate() {
                write!(f, "{}{}", if i == 0 { "" } else { ", " }, TypeText(self, *ty))?;
            }
            f.write_char(')')?;
            writeln!(f, "{}{effects} at {address:#x}", ResultText(self, *result))?;
        }
        for (i, function) in self.functions.iter().enumerate() {
            if i > 0 || !self.tables.is_empty() || !self.runtime.is_empty() {
                f.write_char('\n')?;
            }
            function_text(f, self, function)?;
        }
        Ok(())
    }
}

/// The text of a function; the module holds what it refers to.
pub fn print_function(module: &Module, function: &Function) -> String {
    struct Text<'m>(&'m Module, &'m Function);
    impl Display for Text<'_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            function_text(f, self.0, self.1)
        }
    }
    Text(module, function).to_string()
}

/// The text of an instruction with the function's own ids, for messages.
pub fn print_instruction(module: &Module, function: &Function, inst: &Instruction) -> String {
    let names = Names::ids(function);
    Line { module, function, names: &names, inst }.to_string()
}

fn function_text(f: &mut Formatter<'_>, module: &Module, function: &Function) -> fmt::Result {
    let names = Names::in_order(function);
    let result = ResultText(module, function.result);
    writeln!(f, "function {}{result}{} {{", Name(&function.name), function.effects)?;
    for (i, slot) in function.slots.iter().enumerate() {
        writeln!(f, "  slot s{i} {} align {}", slot.bytes, slot.align)?;
    }
    for &block in &function.layout {
        let data = function.block(block);
        write!(f, "{}", names.block(block))?;
        if !data.params.is_empty() {
            f.write_char('(')?;
            for (i, param) in data.params.iter().enumerate() {
                let ty = TypeText(module, function.type_of(*param));
                write!(f, "{}{}: {ty}", if i == 0 { "" } else { ", " }, names.value(*param))?;
            }
            f.write_char(')')?;
        }
        f.write_str(":\n")?;
        for inst in &data.insts {
            writeln!(f, "  {}", Line { module, function, names: &names, inst })?;
        }
        f.write_str("  ")?;
        terminator(f, &names, &data.terminator)?;
        f.write_char('\n')?;
    }
    f.write_str("}\n")
}

/// The numbers under which values and blocks are printed.
struct Names {
    values: Vec<u32>,
    blocks: Vec<u32>,
}

impl Names {
    /// Their ids.
    fn ids(function: &Function) -> Names {
        Names {
            values: (0..function.values.len() as u32).collect(),
            blocks: (0..function.blocks.len() as u32).collect(),
        }
    }

    /// Consecutive numbers in textual order.
    fn in_order(function: &Function) -> Names {
        let mut names =
            Names { values: vec![u32::MAX; function.values.len()], blocks: vec![u32::MAX; function.blocks.len()] };
        let mut next = 0;
        for (i, block) in function.layout.iter().enumerate() {
            names.blocks[block.index()] = i as u32;
            let data = function.block(*block);
            for value in data.params.iter().copied().chain(data.insts.iter().filter_map(|inst| inst.result)) {
                names.values[value.index()] = next;
                next += 1;
            }
        }
        names
    }

    fn value(&self, value: Value) -> Value {
        self.values.get(value.index()).map_or(value, |number| Value(*number))
    }

    fn block(&self, block: Block) -> Block {
        self.blocks.get(block.index()).map_or(block, |number| Block(*number))
    }
}

/// A name: without quotes if it is a plain word, otherwise in quotes.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        match !self.0.is_empty() && self.0.chars().all(is_plain) {
            true => write!(f, "@{}", self.0),
            false => write!(f, "@{:?}", self.0),
        }
    }
}

struct TypeText<'m>(&'m Module, Type);

impl Display for TypeText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Type::Probe(table) => match self.0.tables.get(table.index()) {
                Some(table) => write!(f, "probe {}", Name(&table.name)),
                None => write!(f, "probe {table}"),
            },
            integer => write!(f, "{integer}"),
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Type::Probe(table) => write!(f, "probe {table}"),
            integer => write!(f, "i{}", integer.bits()),
        }
    }
}

struct ResultText<'m>(&'m Module, Option<Type>);

impl Display for ResultText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(ty) => write!(f, " -> {}", TypeText(self.0, ty)),
            None => Ok(()),
        }
    }
}

impl Display for Effects {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if *self == Effects::ANY {
            return f.write_str(" any");
        }
        if !self.reads.is_empty() {
            write!(f, " reads {}", self.reads)?;
        }
        if !self.writes.is_empty() {
            write!(f, " writes {}", self.writes)?;
        }
        if self.ends { f.write_str(" ends") } else { Ok(()) }
    }
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            ByteOrder::Little => "le",
            ByteOrder::Big => "be",
        };
        write!(f, "{order}{} {}", self.bytes, self.regions)
    }
}

/// An instruction in its function.
struct Line<'a> {
    module: &'a Module,
    function: &'a Function,
    names: &'a Names,
    inst: &'a Instruction,
}

impl Line<'_> {
    fn list(&self, f: &mut Formatter<'_>, values: &[Value]) -> fmt::Result {
        for (i, value) in values.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, self.names.value(*value))?;
        }
        Ok(())
    }

    fn address(&self, address: &Address) -> String {
        let base = self.names.value(address.base);
        match address.offset {
            0 => base.to_string(),
            offset => format!("{base}{offset:+}"),
        }
    }

    fn op(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let v = |value: &Value| self.names.value(*value);
        let ty = match self.inst.result {
            Some(result) => self.function.type_of(result),
            None => Type::I64,
        };
        match &self.inst.op {
            Op::Const(number) if *number < 1024 => write!(f, "const.{ty} {number}"),
            Op::Const(number) => write!(f, "const.{ty} {number:#x}"),
            Op::Unary(op, a) => write!(f, "{}.{ty} {}", name_of(&Unary::ALL, op), v(a)),
            Op::Binary(op, a, b) => write!(f, "{}.{ty} {}, {}", name_of(&Binary::ALL, op), v(a), v(b)),
            Op::Compare(op, a, b) => write!(f, "{} {}, {}", name_of(&Condition::ALL, op), v(a), v(b)),
            Op::Select(c, a, b) => write!(f, "select.{ty} {}, {}, {}", v(c), v(a), v(b)),
            Op::Cast(op, a) => write!(f, "{}.{ty} {}", name_of(&Cast::ALL, op), v(a)),
            Op::Pack(parts) => {
                write!(f, "pack.{ty}")?;
                for (i, part) in parts.iter().enumerate() {
                    let comma = if i == 0 { " " } else { ", " };
                    write!(f, "{comma}{}:{} at {}", v(&part.value), part.width, part.offset)?;
                }
                Ok(())
            }
            Op::Hash(words) => {
                f.write_str("hash ")?;
                self.list(f, words)
            }
            Op::StackAddress(slot, 0) => write!(f, "address {slot}"),
            Op::StackAddress(slot, offset) => write!(f, "address {slot}{offset:+}"),
            Op::Load(access, at) => write!(f, "load.{ty} {access} {}", self.address(at)),
            Op::Store(access, at, value) => write!(f, "store {access} {}, {}", self.address(at), v(value)),
            Op::Atomic(op, regions, at, value) => {
                let name = name_of(&Atomic::ALL, op);
                write!(f, "atomic.{name}.{ty} {regions} {}, {}", self.address(at), v(value))
            }
            Op::CompareExchange(regions, at, expected, new) => {
                write!(f, "atomic.cas.{ty} {regions} {}, {}, {}", self.address(at), v(expected), v(new))
            }
            Op::Release(regions, at, value) => write!(f, "atomic.store {regions} {}, {}", self.address(at), v(value)),
            Op::Count(at, value) => write!(f, "count {}, {}", self.address(at), v(value)),
            Op::Prefetch(at, false) => write!(f, "prefetch {}", self.address(at)),
            Op::Prefetch(at, true) => write!(f, "prefetch.write {}", self.address(at)),
            Op::ProbeIssue(table, words) => {
                match self.module.tables.get(table.index()) {
                    Some(table) => write!(f, "issue {} ", Name(&table.name))?,
                    None => write!(f, "issue {table} ")?,
                }
                self.list(f, words)
            }
            Op::ProbeTake(probe) => write!(f, "take {}", v(probe)),
            Op::Call(callee, args) => {
                let (kind, name) = match callee {
                    Callee::Runtime(id) => {
                        ("call.runtime", self.module.runtime.get(id.index()).map(|runtime| &runtime.name))
                    }
                    Callee::Function(id) => {
                        ("call", self.module.functions.get(id.index()).map(|function| &function.name))
                    }
                };
                write!(f, "{kind} {}(", Name(name.map_or("?", |name| name)))?;
                self.list(f, args)?;
                f.write_char(')')
            }
            Op::Phase(number) => write!(f, "phase {number}"),
        }
    }
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(result) = self.inst.result {
            write!(f, "{} = ", self.names.value(result))?;
        }
        self.op(f)?;
        match self.inst.location {
            Some(location) => write!(f, " #{location}"),
            None => Ok(()),
        }
    }
}

/// The name of an item in a list.
pub(crate) fn name_of<T: PartialEq>(list: &[(T, &'static str)], item: &T) -> &'static str {
    list.iter().find(|(other, _)| other == item).map_or("?", |(_, name)| name)
}

fn edge(f: &mut Formatter<'_>, names: &Names, edge: &Edge) -> fmt::Result {
    write!(f, "{}", names.block(edge.block))?;
    if !edge.args.is_empty() {
        f.write_char('(')?;
        for (i, value) in edge.args.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, names.value(*value))?;
        }
        f.write_char(')')?;
    }
    if edge.weight != 1 { write!(f, " weight {}", edge.weight) } else { Ok(()) }
}

fn terminator(f: &mut Formatter<'_>, names: &Names, terminator: &Terminator) -> fmt::Result {
    match terminator {
        Terminator::Jump(to) => {
            f.write_str("jump ")?;
            edge(f, names, to)
        }
        Terminator::Branch(value, then, other) => {
            write!(f, "branch {}, ", names.value(*value))?;
            edge(f, names, then)?;
            f.write_str(", ")?;
            edge(f, names, other)
        }
        Terminator::Switch(value, cases, default) => {
            write!(f, "switch {}", names.value(*value))?;
            for (number, to) in cases {
                write!(f, ", {number}: ")?;
                edge(f, names, to)?;
            }
            f.write_str(", else ")?;
            edge(f, names, default)
        }
        Terminator::Return(None) => f.write_str("return"),
        Terminator::Return(Some(value)) => write!(f, "return {}", names.value(*value)),
        Terminator::Unreachable => f.write_str("unreachable"),
    }
}

/// The region of this name.
pub(crate) fn region(name: &str) -> Option<Region> {
    Region::ALL.into_iter().find(|region| region.name() == name)
}
