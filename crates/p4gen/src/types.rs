//! Types of generated programs, their declarations and their spelling.

use crate::dice::Dice;
use crate::program::Gen;

/// A type of P4_16.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// `bool`
    Bool,
    /// `error`
    Error,
    /// `bit<W>`
    Bit(u32),
    /// `int<W>`
    Int(u32),
    /// `varbit<W>`: fields of headers only.
    Varbit(u32),
    /// `type bit<W> N;`
    New(usize),
    /// `enum E { A, B }`
    Enum(usize),
    /// `enum bit<W> E { A = 1 }`
    SerEnum(usize),
    /// `struct`
    Struct(usize),
    /// `header`
    Header(usize),
    /// `header_union`
    Union(usize),
    /// A stack of headers or header unions.
    Stack(Box<Type>, u32),
    /// `tuple<T, U>`
    Tuple(Vec<Type>),
    /// Of a variable whose name means another one here.
    Hidden,
}

/// Names with types: of a struct, header or union.
#[derive(Clone, Debug)]
pub struct Fields {
    /// The type's name.
    pub name: String,
    /// Its fields.
    pub fields: Vec<(String, Type)>,
}

/// An enum.
#[derive(Clone, Debug)]
pub struct EnumDecl {
    /// Its name.
    pub name: String,
    /// The width and sign of its representation, if it is serialisable.
    pub repr: Option<(u32, bool)>,
    /// Its members.
    pub members: Vec<String>,
    /// Their values, if it is serialisable.
    pub values: Vec<u32>,
}

/// All types a program declares.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// By number in [`Type::Struct`].
    pub structs: Vec<Fields>,
    /// By number in [`Type::Header`].
    pub headers: Vec<Fields>,
    /// By number in [`Type::Union`].
    pub unions: Vec<Fields>,
    /// By number in [`Type::Enum`] and [`Type::SerEnum`].
    pub enums: Vec<EnumDecl>,
    /// By number in [`Type::New`]: name and width.
    pub news: Vec<(String, u32)>,
    /// Other names of types.
    pub typedefs: Vec<(String, Type)>,
    /// Names of errors that the program declares.
    pub errors: Vec<String>,
    /// Structs that variables can have; behind them come `Headers` and `Meta`.
    pub plain_structs: usize,
    /// Widths that this program prefers, so that values meet.
    pub widths: Vec<u32>,
}

/// Widths with something special about them: machine words, bytes, one more and one less, and odd ones.
const WIDTHS: [u32; 34] = [
    1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 20, 23, 24, 31, 32, 33, 40, 47, 48, 63, 64, 65, 72, 96, 100, 127, 128,
    129, 160, 200, 257,
];

/// A width from all there are.
pub fn any_width(dice: &mut Dice) -> u32 {
    if dice.one_in(6) { dice.range(1, 140) } else { *dice.pick(&WIDTHS) }
}

impl Types {
    /// A width that this program prefers, or any.
    pub fn width(&self, dice: &mut Dice) -> u32 {
        if self.widths.is_empty() || dice.one_in(8) { any_width(dice) } else { *dice.pick(&self.widths) }
    }

    /// Bits that a value has on the wire; a varbit counts as none.
    pub fn size(&self, ty: &Type) -> u32 {
        match ty {
            Type::Bit(w) | Type::Int(w) => *w,
            Type::Bool => 1,
            Type::New(i) => self.news[*i].1,
            Type::SerEnum(i) => self.enums[*i].repr.map_or(0, |(w, _)| w),
            Type::Header(i) => self.headers[*i].fields.iter().map(|(_, t)| self.size(t)).sum(),
            Type::Struct(i) => self.structs[*i].fields.iter().map(|(_, t)| self.size(t)).sum(),
            Type::Union(i) => self.unions[*i].fields.iter().map(|(_, t)| self.size(t)).max().unwrap_or(0),
            Type::Stack(t, n) => self.size(t) * n,
            Type::Tuple(list) => list.iter().map(|t| self.size(t)).sum(),
            Type::Error | Type::Enum(_) | Type::Varbit(_) | Type::Hidden => 0,
        }
    }

    /// The varbit field of a header.
    pub fn varbit(&self, header: usize) -> Option<u32> {
        self.headers[header].fields.iter().find_map(|(_, t)| if let Type::Varbit(w) = t { Some(*w) } else { None })
    }

    /// Fields of a struct, header or union.
    pub fn fields(&self, ty: &Type) -> &[(String, Type)] {
        match ty {
            Type::Struct(i) => &self.structs[*i].fields,
            Type::Header(i) => &self.headers[*i].fields,
            Type::Union(i) => &self.unions[*i].fields,
            _ => &[],
        }
    }

    /// Whether values of the type can be made up by an expression.
    pub fn has_literals(&self, ty: &Type) -> bool {
        match ty {
            Type::Varbit(_) | Type::Union(_) | Type::Stack(..) | Type::Hidden => false,
            Type::Header(i) => self.varbit(*i).is_none(),
            Type::Struct(_) => self.fields(ty).iter().all(|(_, t)| self.has_literals(t)),
            Type::Tuple(list) => list.iter().all(|t| self.has_literals(t)),
            _ => true,
        }
    }

    /// The type as it is written, by its first name.
    pub fn name(&self, ty: &Type) -> String {
        match ty {
            Type::Hidden => String::new(),
            Type::Bool => "bool".into(),
            Type::Error => "error".into(),
            Type::Bit(w) => format!("bit<{w}>"),
            Type::Int(w) => format!("int<{w}>"),
            Type::Varbit(w) => format!("varbit<{w}>"),
            Type::New(i) => self.news[*i].0.clone(),
            Type::Enum(i) | Type::SerEnum(i) => self.enums[*i].name.clone(),
            Type::Struct(i) => self.structs[*i].name.clone(),
            Type::Header(i) => self.headers[*i].name.clone(),
            Type::Union(i) => self.unions[*i].name.clone(),
            Type::Stack(t, n) => format!("{}[{n}]", self.name(t)),
            Type::Tuple(list) => {
                format!("tuple<{}>", list.iter().map(|t| self.name(t)).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl Gen {
    /// The type as it is written, by any of its names.
    pub fn ty(&mut self, ty: &Type) -> String {
        let aliases: Vec<&String> = self.types.typedefs.iter().filter(|(_, t)| t == ty).map(|(n, _)| n).collect();
        if !aliases.is_empty() && self.dice.one_in(2) {
            return (*self.dice.pick(&aliases)).clone();
        }
        self.types.name(ty)
    }

    /// A type of one value that a variable can have.
    pub fn scalar(&mut self) -> Type {
        let width = self.types.width(&mut self.dice);
        match self.dice.below(16) {
            0 | 1 => Type::Bool,
            2..=4 => Type::Int(width),
            5 if !self.types.news.is_empty() => Type::New(self.dice.below(self.types.news.len())),
            6 | 7 if !self.types.enums.is_empty() => {
                let i = self.dice.below(self.types.enums.len());
                if self.types.enums[i].repr.is_some() { Type::SerEnum(i) } else { Type::Enum(i) }
            }
            8 if self.dice.one_in(3) => Type::Error,
            _ => Type::Bit(width),
        }
    }

    /// A type of a field of a header.
    fn wire_scalar(&mut self) -> Type {
        loop {
            let ty = self.scalar();
            if !matches!(ty, Type::Error | Type::Enum(_)) && self.types.size(&ty) > 0 {
                return ty;
            }
        }
    }

    /// A type that a local variable or parameter can have.
    pub fn variable_type(&mut self) -> Type {
        match self.dice.below(12) {
            0 if self.types.plain_structs > 0 => Type::Struct(self.dice.below(self.types.plain_structs)),
            1 if !self.types.headers.is_empty() => Type::Header(self.dice.below(self.types.headers.len())),
            2 if self.dice.one_in(2) => {
                let n = 1 + self.dice.below(3);
                Type::Tuple((0..n).map(|_| self.scalar()).collect())
            }
            3 if self.dice.one_in(4) && !self.types.headers.is_empty() => {
                let header = Type::Header(self.dice.below(self.types.headers.len()));
                Type::Stack(Box::new(header), self.dice.range(1, 3))
            }
            5 if self.dice.one_in(3) && self.types.structs.last().is_some_and(|s| s.name == "Meta") => {
                Type::Struct(self.types.structs.len() - 1)
            }
            4 if self.dice.one_in(4) && !self.types.unions.is_empty() => {
                Type::Union(self.dice.below(self.types.unions.len()))
            }
            _ => self.scalar(),
        }
    }

    /// Declares types of all kinds.
    pub fn declare_types(&mut self) {
        for _ in 0..3 + self.dice.below(4) {
            let width = any_width(&mut self.dice);
            self.types.widths.push(width);
        }
        self.types.widths.extend([8, 16]);
        self.declare_errors();
        for _ in 0..self.dice.below(3) {
            let name = self.name("t");
            let ty = self.scalar();
            let text = self.types.name(&ty);
            self.line(format!("typedef {text} {name};"));
            self.types.typedefs.push((name, ty));
        }
        for _ in 0..self.dice.below(3) {
            let name = self.name("n");
            let width = self.types.width(&mut self.dice);
            self.line(format!("type bit<{width}> {name};"));
            self.types.news.push((name, width));
        }
        for _ in 0..1 + self.dice.below(3) {
            self.declare_enum();
        }
        for _ in 0..2 + self.dice.below(4) {
            self.declare_header();
        }
        for _ in 0..self.dice.below(3) {
            self.declare_union();
        }
        for _ in 0..1 + self.dice.below(3) {
            self.declare_struct();
        }
        if self.dice.one_in(2) {
            self.declare_generic();
        }
        self.types.plain_structs = self.types.structs.len();
    }

    fn declare_errors(&mut self) {
        if self.dice.one_in(2) {
            let names: Vec<String> = (0..1 + self.dice.below(3)).map(|_| self.name("Error")).collect();
            self.line(format!("error {{ {} }}", names.join(", ")));
            self.types.errors = names;
        }
        for core in ["NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort", "ParserTimeout"] {
            self.types.errors.push(core.into());
        }
    }

    fn declare_enum(&mut self) {
        let name = self.name("E");
        let serialisable = self.dice.one_in(2);
        let count = 1 + self.dice.below(4);
        let members: Vec<String> = (0..count).map(|_| self.name("M")).collect();
        let mut decl = EnumDecl { name, repr: None, members, values: Vec::new() };
        if serialisable {
            let width = self.types.width(&mut self.dice).max(4);
            let signed = self.dice.one_in(4);
            decl.repr = Some((width, signed));
            let first = self.dice.range(0, 3);
            decl.values = (0..count as u32).map(|i| first + i).collect();
            let list: Vec<String> = decl.members.iter().zip(&decl.values).map(|(m, v)| format!("{m} = {v}")).collect();
            let repr = if signed { format!("int<{width}>") } else { format!("bit<{width}>") };
            self.line(format!("enum {repr} {} {{ {} }}", decl.name, list.join(", ")));
        } else {
            self.line(format!("enum {} {{ {} }}", decl.name, decl.members.join(", ")));
        }
        self.types.enums.push(decl);
    }

    fn declare_header(&mut self) {
        let name = self.name("H");
        let mut fields: Vec<(String, Type)> = Vec::new();
        let mut bits = 0;
        let count = [0, 1, 2, 3, 3, 4, 5, 6][self.dice.below(8)];
        for _ in 0..count {
            let ty = self.wire_scalar();
            bits += self.types.size(&ty);
            fields.push((self.name("f"), ty));
        }
        if !bits.is_multiple_of(8) {
            let rest = 8 - bits % 8;
            let at = self.dice.below(fields.len() + 1);
            fields.insert(at, (self.name("f"), Type::Bit(rest)));
        }
        if self.dice.one_in(5) {
            let max = *self.dice.pick(&[8, 16, 32, 40, 64, 120, 128, 256]);
            let at = self.dice.below(fields.len() + 1);
            fields.insert(at, (self.name("v"), Type::Varbit(max)));
        }
        self.fields_decl("header", &name, &fields);
        self.types.headers.push(Fields { name, fields });
    }

    fn declare_union(&mut self) {
        let mut fields: Vec<(String, Type)> = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            let header = self.dice.below(self.types.headers.len());
            fields.push((self.name("u"), Type::Header(header)));
        }
        let name = self.name("U");
        self.fields_decl("header_union", &name, &fields);
        self.types.unions.push(Fields { name, fields });
    }

    /// A generic struct and a generic header, each with one or two types filled in.
    fn declare_generic(&mut self) {
        let (name, a, b) = (self.name("G"), self.name("f"), self.name("f"));
        self.open(format!("struct {name}<T> {{"));
        self.line(format!("T {a};"));
        self.line(format!("bit<8> {b};"));
        self.close("}");
        for _ in 0..1 + self.dice.below(2) {
            let ty = self.scalar();
            let name = format!("{name}<{}>", self.types.name(&ty));
            self.types.structs.push(Fields { name, fields: vec![(a.clone(), ty), (b.clone(), Type::Bit(8))] });
        }
        let name = self.name("GH");
        self.open(format!("header {name}<T> {{"));
        self.line(format!("bit<16> {b};"));
        self.line(format!("T {a};"));
        self.close("}");
        for width in [8, 24] {
            let fields = vec![(b.clone(), Type::Bit(16)), (a.clone(), Type::Bit(width))];
            self.types.headers.push(Fields { name: format!("{name}<bit<{width}>>"), fields });
        }
    }

    fn declare_struct(&mut self) {
        let mut fields: Vec<(String, Type)> = Vec::new();
        for _ in 0..1 + self.dice.below(4) {
            let ty = match self.dice.below(8) {
                0 if !self.types.structs.is_empty() => Type::Struct(self.dice.below(self.types.structs.len())),
                1 => Type::Header(self.dice.below(self.types.headers.len())),
                2 => Type::Tuple(vec![self.scalar(), self.scalar()]),
                _ => self.scalar(),
            };
            fields.push((self.name("f"), ty));
        }
        let name = self.name("S");
        self.fields_decl("struct", &name, &fields);
        self.types.structs.push(Fields { name, fields });
    }

    /// Writes a declaration with fields, each on its line.
    pub fn fields_decl(&mut self, keyword: &str, name: &str, fields: &[(String, Type)]) {
        self.open(format!("{keyword} {name} {{"));
        for (field, ty) in fields {
            let text = self.ty(ty);
            self.line(format!("{text} {field};"));
        }
        self.close("}");
    }
}
