//! The state of the generator, scopes, the text that grows, and the order in which a program is put together.

use crate::call::Callable;
use crate::control::Control;
use crate::dice::Dice;
use crate::externs::ExternInstance;
use crate::table::Table;
use crate::types::{Type, Types};
use std::fmt::Write;
use std::ops::Range;

/// A program and what belongs to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generated {
    /// P4 source.
    pub source: String,
    /// Lines of an STF script that set the switch up.
    pub setup: Vec<String>,
}

/// Something that can be read, perhaps written.
#[derive(Clone, Debug)]
pub struct Var {
    /// How it is written; `@` stands for an index of a stack still to be chosen.
    pub path: String,
    /// Its type.
    pub ty: Type,
    /// Whether it can be assigned to.
    pub writable: bool,
    /// Whether its value is known at compile time.
    pub constant: bool,
}

/// Where statements stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Top level.
    Top,
    /// A function with its result.
    Function(Option<Type>),
    /// An action.
    Action,
    /// The apply block of a control of a pipeline.
    Apply,
    /// A state of a parser.
    State,
    /// The deparser, checksum controls.
    Plain,
}

impl Place {
    /// Whether packets can be read here.
    pub fn is_parser(&self) -> bool {
        *self == Place::State
    }
}

/// Which half of the pipeline is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Parser, functions, sub-controls: whatever may run in both.
    Both,
    /// Ingress.
    Ingress,
    /// Egress.
    Egress,
}

/// The generator.
pub struct Gen {
    pub(crate) dice: Dice,
    pub(crate) types: Types,
    pub(crate) scope: Vec<Var>,
    pub(crate) functions: Vec<Callable>,
    pub(crate) actions: Vec<Callable>,
    pub(crate) tables: Vec<Table>,
    pub(crate) controls: Vec<Control>,
    /// Instances in the control being written: name and control.
    pub(crate) instances: Vec<(String, usize)>,
    /// Controls and parsers that were applied without an instance here.
    pub(crate) unnamed: Vec<usize>,
    pub(crate) externs: Vec<ExternInstance>,
    pub(crate) setup: Vec<String>,
    pub(crate) place: Place,
    pub(crate) half: Half,
    /// Whether functions may be called here.
    pub(crate) calls: bool,
    /// Whether only what is known at compile time may be read.
    pub(crate) only_constants: bool,
    /// Loops around this place.
    pub(crate) loops: u32,
    /// What the body being written costs when all calls are inlined.
    pub(crate) cost: u64,
    /// How large bodies become.
    pub(crate) size: u32,
    /// Whether indexes of counters, meters and registers have a type of their own.
    pub(crate) typed_index: bool,
    text: String,
    indent: usize,
    names: u32,
    sites: Range<u64>,
    site: u64,
    /// Variables whose names mean others: place in the scope, type, where the scope ended when that began.
    hidden: Vec<(usize, Type, usize)>,
    /// Constructor parameters: known once they are instantiated.
    pub(crate) fixed: Vec<String>,
    /// Variables that conditions were about, and their widths.
    pub(crate) asked: Vec<(String, u32)>,
    /// Where in the scope the innermost block begins.
    pub(crate) block: usize,
}

/// Calls of what costs more than this are not made.
pub const CALL_COST_MAX: u64 = 400;
/// A body that costs more than this calls nothing any more.
pub const BODY_COST_MAX: u64 = 3000;

/// The program of a seed. Sizes from 1 (a few statements) to 10 are useful.
pub fn program(seed: u64, size: u32) -> Generated {
    rewritten(seed, size, 0..0).0
}

/// The program of a seed in which some constructs are written another way that means the same: those whose number, in
/// the order of the text, is in `sites`. Also says how many such constructs there are.
pub fn rewritten(seed: u64, size: u32, sites: Range<u64>) -> (Generated, u64) {
    let mut dice = Dice::new(seed);
    let typed_index = dice.one_in(2);
    let mut generator = Gen {
        dice,
        types: Types::default(),
        scope: Vec::new(),
        asked: Vec::new(),
        functions: Vec::new(),
        actions: Vec::new(),
        tables: Vec::new(),
        controls: Vec::new(),
        instances: Vec::new(),
        unnamed: Vec::new(),
        externs: Vec::new(),
        setup: Vec::new(),
        place: Place::Top,
        half: Half::Both,
        calls: false,
        only_constants: false,
        loops: 0,
        cost: 0,
        size,
        typed_index,
        text: String::new(),
        indent: 0,
        names: 0,
        sites,
        site: 0,
        hidden: Vec::new(),
        fixed: Vec::new(),
        block: 0,
    };
    generator.whole();
    (Generated { source: generator.text, setup: generator.setup }, generator.site)
}

impl Gen {
    fn whole(&mut self) {
        if self.typed_index {
            self.line("#define V1MODEL_VERSION 20200408");
        }
        self.line("#include <core.p4>");
        self.line("#include <v1model.p4>");
        self.declare_types();
        self.declare_constants();
        self.declare_packet_types();
        self.line("T pick<T>(in T x, in T y, in bool first) { if (first) { return x; } return y; }");
        self.line("bool swap<T>(inout T x, inout T y) { T z = x; x = y; y = z; return false; }");
        for _ in 0..1 + self.dice.below(4) {
            self.function();
        }
        self.parsers();
        for _ in 0..self.dice.below(3) {
            self.sub_control();
        }
        self.pipeline();
        let ingress = "V1Switch(P(), VC(), I(), E(), CC(), D()) main;";
        self.line(ingress);
    }

    fn declare_constants(&mut self) {
        self.only_constants = true;
        for _ in 0..1 + self.dice.below(4) {
            let ty = self.scalar();
            let name = self.name("C");
            let value = self.expr(&ty, 2);
            let text = self.ty(&ty);
            self.line(format!("const {text} {name} = {value};"));
            self.scope.push(Var { path: name, ty, writable: false, constant: true });
        }
        self.only_constants = false;
    }

    /// `Headers` and `Meta`: what all blocks share.
    fn declare_packet_types(&mut self) {
        let mut fields: Vec<(String, Type)> = Vec::new();
        for _ in 0..2 + self.dice.below(4) {
            let header = Type::Header(self.dice.below(self.types.headers.len()));
            fields.push((self.name("h"), header));
        }
        for _ in 0..self.dice.below(3) {
            let header = Type::Header(self.dice.below(self.types.headers.len()));
            let n = self.dice.range(1, 4);
            fields.push((self.name("s"), Type::Stack(Box::new(header), n)));
        }
        if !self.types.unions.is_empty() {
            for _ in 0..self.dice.below(3) {
                let union = Type::Union(self.dice.below(self.types.unions.len()));
                if self.dice.one_in(4) {
                    fields.push((self.name("s"), Type::Stack(Box::new(union), 2)));
                } else {
                    fields.push((self.name("h"), union));
                }
            }
        }
        self.dice.shuffle(&mut fields);
        let trailer =
            vec![("a".to_string(), Type::Bit(64)), ("b".to_string(), Type::Bit(64)), ("c".to_string(), Type::Bit(32))];
        self.fields_decl("header", "Trailer", &trailer);
        self.types.headers.push(crate::types::Fields { name: "Trailer".into(), fields: trailer });
        let mut with_trailer = fields.clone();
        with_trailer.push(("trailer".into(), Type::Header(self.types.headers.len() - 1)));
        self.fields_decl("struct", "Headers", &with_trailer);
        self.types.structs.push(crate::types::Fields { name: "Headers".into(), fields });

        let mut fields: Vec<(String, Type)> = Vec::new();
        for _ in 0..3 + self.dice.below(6) {
            let ty = if self.dice.one_in(5) { self.variable_type() } else { self.scalar() };
            fields.push((self.name("m"), ty));
        }
        self.open("struct Meta {");
        for (name, ty) in &fields {
            let kept = !matches!(ty, Type::Stack(..) | Type::Union(_) | Type::Tuple(_));
            if kept && self.dice.one_in(2) {
                let lists = ["1", "1", "2", "1, 2"][self.dice.below(4)];
                self.line(format!("@field_list({lists})"));
            }
            let text = self.ty(ty);
            self.line(format!("{text} {name};"));
        }
        self.close("}");
        self.types.structs.push(crate::types::Fields { name: "Meta".into(), fields });
    }

    /// The type `Headers`, without the trailer.
    pub(crate) fn headers_type(&self) -> Type {
        Type::Struct(self.types.structs.iter().position(|s| s.name == "Headers").unwrap_or(0))
    }

    /// Puts `hdr`, `meta` and what of `sm` can be compared into scope.
    pub(crate) fn declare_packet(&mut self, writable: bool, standard: bool) {
        let headers = self.headers_type();
        let Type::Struct(at) = headers else { return };
        // Not as a whole: the declared struct has one field more.
        for (field, ty) in self.types.structs[at].fields.clone() {
            self.declare(&format!("hdr.{field}"), &ty, writable);
        }
        self.declare("meta", &Type::Struct(at + 1), writable);
        if standard {
            let fields = [
                ("ingress_port", Type::Bit(9)),
                ("egress_spec", Type::Bit(9)),
                ("egress_port", Type::Bit(9)),
                ("instance_type", Type::Bit(32)),
                ("packet_length", Type::Bit(32)),
                ("ingress_global_timestamp", Type::Bit(48)),
                ("egress_rid", Type::Bit(16)),
                ("checksum_error", Type::Bit(1)),
                ("parser_error", Type::Error),
            ];
            for (name, ty) in fields {
                self.scope.push(Var { path: format!("sm.{name}"), ty, writable: false, constant: false });
            }
            self.scope.push(Var { path: "sm.priority".into(), ty: Type::Bit(3), writable, constant: false });
        }
    }

    /// Puts a variable with everything in it into scope.
    pub(crate) fn declare(&mut self, path: &str, ty: &Type, writable: bool) {
        self.scope.push(Var { path: path.into(), ty: ty.clone(), writable, constant: false });
        match ty {
            Type::Struct(_) | Type::Header(_) | Type::Union(_) => {
                for (field, t) in self.types.fields(ty).to_vec() {
                    self.declare(&format!("{path}.{field}"), &t, writable);
                }
            }
            Type::Stack(element, n) => {
                for i in 0..*n {
                    self.declare(&format!("{path}[{i}]"), element, writable);
                }
                if !path.contains('@') {
                    self.declare(&format!("{path}[@]"), element, writable);
                }
            }
            Type::Tuple(list) => {
                for (i, t) in list.iter().enumerate() {
                    self.declare(&format!("{path}[{i}]"), t, false);
                }
            }
            _ => {}
        }
    }

    /// Ends the scope of what was declared behind a place.
    pub(crate) fn forget(&mut self, mark: usize) {
        while let Some((at, ty, _)) = self.hidden.pop_if(|(_, _, from)| *from >= mark) {
            if let Some(var) = self.scope.get_mut(at) {
                var.ty = ty;
            }
        }
        self.scope.truncate(mark);
    }

    /// The name of a variable of an outer block, which from now on is to mean another one.
    pub(crate) fn hide_one(&mut self) -> Option<String> {
        let local = |v: &Var| v.path.starts_with('v') && v.path[1..].bytes().all(|b| b.is_ascii_digit());
        let fit: Vec<usize> = (0..self.block.min(self.scope.len()))
            .filter(|&i| local(&self.scope[i]) && self.scope[i].ty != Type::Hidden)
            .collect();
        // A name that the innermost block has declared itself cannot be declared again.
        let taken = |name: &str| self.scope[self.block.min(self.scope.len())..].iter().any(|v| v.path == name);
        let fit: Vec<usize> = fit.into_iter().filter(|&i| !taken(&self.scope[i].path)).collect();
        if fit.is_empty() {
            return None;
        }
        let name = self.scope[*self.dice.pick(&fit)].path.clone();
        let end = self.scope.len();
        for (at, var) in self.scope.iter_mut().enumerate() {
            let rest = var.path.strip_prefix(&name);
            if var.ty != Type::Hidden && rest.is_some_and(|r| r.is_empty() || r.starts_with(['.', '['])) {
                self.hidden.push((at, std::mem::replace(&mut var.ty, Type::Hidden), end));
            }
        }
        Some(name)
    }

    /// All stacks in scope: path, element, size.
    pub(crate) fn stacks(&self) -> Vec<(String, Type, u32)> {
        self.scope
            .iter()
            .filter_map(|v| match &v.ty {
                Type::Stack(element, n) => Some((v.path.clone(), (**element).clone(), *n)),
                _ => None,
            })
            .collect()
    }

    /// A new name.
    pub(crate) fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.text, "{:width$}{}", "", text.as_ref(), width = self.indent * 4);
    }

    /// Writes a line that ends with a brace.
    pub(crate) fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.indent += 1;
    }

    /// Whether the construct that is written now is to be written another way. Draws nothing: all else stays as it is.
    pub(crate) fn rewrites(&mut self) -> bool {
        self.site += 1;
        self.sites.contains(&(self.site - 1))
    }

    /// The same for constructs that need a name; it is none that the program has.
    pub(crate) fn rewritten_name(&mut self) -> Option<String> {
        self.rewrites().then(|| format!("z{}", self.site))
    }

    /// Where the text ends.
    pub(crate) fn end(&self) -> usize {
        self.text.len()
    }

    /// Takes back what was written behind a place.
    pub(crate) fn take_text(&mut self, from: usize) -> String {
        self.text.split_off(from)
    }

    /// Writes lines that were taken back.
    pub(crate) fn put_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Ends a block whose closing brace is written elsewhere.
    pub(crate) fn close_silently(&mut self) {
        self.indent -= 1;
    }

    /// Begins a block whose brace is written already.
    pub(crate) fn open_silently(&mut self) {
        self.indent += 1;
    }

    /// Closes the innermost brace.
    pub(crate) fn close(&mut self, text: impl AsRef<str>) {
        self.indent -= 1;
        self.line(text);
    }

    /// Whether the body being written may still call something of this cost.
    pub(crate) fn affords(&self, cost: u64) -> bool {
        cost <= CALL_COST_MAX && self.cost + cost * (1 + u64::from(self.loops) * 3) < BODY_COST_MAX
    }
}
