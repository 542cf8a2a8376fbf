//! Declarations of types, and the choice of types for variables.

use crate::generator::Gen;
use crate::types::{EnumDecl, Fields, Type, any_width};

impl Gen {
    /// The type's name in the source, chosen among all its names.
    pub fn ty(&mut self, ty: &Type) -> String {
        let aliases: Vec<&String> = self.types.typedefs.iter().filter(|(_, t)| t == ty).map(|(n, _)| n).collect();
        if !aliases.is_empty() && self.dice.one_in(2) {
            return (*self.dice.pick(&aliases)).clone();
        }
        self.types.name(ty)
    }

    /// A scalar type for a variable.
    pub fn scalar(&mut self) -> Type {
        let width = self.types.width(&mut self.dice);
        match self.dice.index(16) {
            0 | 1 => Type::Bool,
            2..=4 => Type::Int(width),
            5 if !self.types.news.is_empty() => Type::New(self.dice.index(self.types.news.len())),
            6 | 7 if !self.types.enums.is_empty() => {
                let i = self.dice.index(self.types.enums.len());
                if self.types.enums[i].repr.is_some() { Type::SerEnum(i) } else { Type::Enum(i) }
            }
            8 if self.dice.one_in(3) => Type::Error,
            _ => Type::Bit(width),
        }
    }

    /// A scalar type for a header field.
    fn wire_scalar(&mut self) -> Type {
        loop {
            let ty = self.scalar();
            if !matches!(ty, Type::Error | Type::Enum(_)) && self.types.size(&ty) > 0 {
                return ty;
            }
        }
    }

    /// A type for a local variable or a parameter.
    pub fn variable_type(&mut self) -> Type {
        match self.dice.index(12) {
            0 if self.types.plain_structs > 0 => Type::Struct(self.dice.index(self.types.plain_structs)),
            1 if !self.types.headers.is_empty() => Type::Header(self.dice.index(self.types.headers.len())),
            2 if self.dice.one_in(2) => {
                let n = 1 + self.dice.index(3);
                Type::Tuple((0..n).map(|_| self.scalar()).collect())
            }
            3 if self.dice.one_in(4) && !self.types.headers.is_empty() => {
                let header = Type::Header(self.dice.index(self.types.headers.len()));
                Type::Stack(Box::new(header), self.dice.range(1, 3))
            }
            5 if self.dice.one_in(3) && self.types.structs.last().is_some_and(|s| s.name == "Meta") => {
                Type::Struct(self.types.structs.len() - 1)
            }
            4 if self.dice.one_in(4) && !self.types.unions.is_empty() => {
                Type::Union(self.dice.index(self.types.unions.len()))
            }
            _ => self.scalar(),
        }
    }

    /// Declares types of all kinds.
    pub fn declare_types(&mut self) {
        for _ in 0..3 + self.dice.index(4) {
            let width = any_width(&mut self.dice);
            self.types.widths.push(width);
        }
        self.types.widths.extend([8, 16]);
        self.declare_errors();
        for _ in 0..self.dice.index(3) {
            let name = self.name("t");
            let ty = self.scalar();
            let text = self.types.name(&ty);
            self.line(format!("typedef {text} {name};"));
            self.types.typedefs.push((name, ty));
        }
        for _ in 0..self.dice.index(3) {
            let name = self.name("n");
            let width = self.types.width(&mut self.dice);
            self.line(format!("type bit<{width}> {name};"));
            self.types.news.push((name, width));
        }
        for _ in 0..1 + self.dice.index(3) {
            self.declare_enum();
        }
        for _ in 0..2 + self.dice.index(4) {
            self.declare_header();
        }
        for _ in 0..self.dice.index(3) {
            self.declare_union();
        }
        for _ in 0..1 + self.dice.index(3) {
            self.declare_struct();
        }
        if self.dice.one_in(2) {
            self.declare_generic();
        }
        self.types.plain_structs = self.types.structs.len();
    }

    fn declare_errors(&mut self) {
        if self.dice.one_in(2) {
            let names: Vec<String> = (0..1 + self.dice.index(3)).map(|_| self.name("Error")).collect();
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
        let count = 1 + self.dice.index(4);
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
        let count = [0, 1, 2, 3, 3, 4, 5, 6][self.dice.index(8)];
        for _ in 0..count {
            let ty = self.wire_scalar();
            bits += self.types.size(&ty);
            fields.push((self.name("f"), ty));
        }
        if !bits.is_multiple_of(8) {
            let rest = 8 - bits % 8;
            let at = self.dice.index(fields.len() + 1);
            fields.insert(at, (self.name("f"), Type::Bit(rest)));
        }
        if self.dice.one_in(5) {
            let max = *self.dice.pick(&[8, 16, 32, 40, 64, 120, 128, 256]);
            let at = self.dice.index(fields.len() + 1);
            fields.insert(at, (self.name("v"), Type::Varbit(max)));
        }
        self.fields_decl("header", &name, &fields);
        self.types.headers.push(Fields { name, fields });
    }

    fn declare_union(&mut self) {
        let mut fields: Vec<(String, Type)> = Vec::new();
        for _ in 0..1 + self.dice.index(3) {
            let header = self.dice.index(self.types.headers.len());
            fields.push((self.name("u"), Type::Header(header)));
        }
        let name = self.name("U");
        self.fields_decl("header_union", &name, &fields);
        self.types.unions.push(Fields { name, fields });
    }

    /// Declares a generic struct and a generic header, each with one or two specialisations.
    fn declare_generic(&mut self) {
        let (name, a, b) = (self.name("G"), self.name("f"), self.name("f"));
        self.open(format!("struct {name}<T> {{"));
        self.line(format!("T {a};"));
        self.line(format!("bit<8> {b};"));
        self.close("}");
        for _ in 0..1 + self.dice.index(2) {
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
        for _ in 0..1 + self.dice.index(4) {
            let ty = match self.dice.index(8) {
                0 if !self.types.structs.is_empty() => Type::Struct(self.dice.index(self.types.structs.len())),
                1 => Type::Header(self.dice.index(self.types.headers.len())),
                2 => Type::Tuple(vec![self.scalar(), self.scalar()]),
                _ => self.scalar(),
            };
            fields.push((self.name("f"), ty));
        }
        let name = self.name("S");
        self.fields_decl("struct", &name, &fields);
        self.types.structs.push(Fields { name, fields });
    }

    /// Writes a declaration with fields, one per line.
    pub fn fields_decl(&mut self, keyword: &str, name: &str, fields: &[(String, Type)]) {
        self.open(format!("{keyword} {name} {{"));
        for (field, ty) in fields {
            let text = self.ty(ty);
            self.line(format!("{text} {field};"));
        }
        self.close("}");
    }
}
