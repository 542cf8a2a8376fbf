//! The order in which the parts of a program are generated.

use crate::declared::Var;
use crate::generator::Gen;
use crate::types::Type;
use std::ops::Range;

/// A generated program with its set-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generated {
    /// P4 source.
    pub source: String,
    /// The lines of an STF script that set up the switch.
    pub setup: Vec<String>,
}

/// The program of a seed. Useful sizes are 1 (a few statements) to 10.
pub fn program(seed: u64, size: u32) -> Generated {
    rewritten(seed, size, 0..0).0
}

/// The program of a seed with some constructs in an alternative form of the same meaning: those whose number, in the
/// order of the text, is in `sites`. Also returns the number of such constructs.
pub fn rewritten(seed: u64, size: u32, sites: Range<u64>) -> (Generated, u64) {
    let mut generator = Gen::new(seed, size, sites);
    generator.whole();
    let site = generator.site();
    (Generated { setup: std::mem::take(&mut generator.setup), source: generator.into_text() }, site)
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
        for _ in 0..1 + self.dice.index(4) {
            self.function();
        }
        self.parsers();
        for _ in 0..self.dice.index(3) {
            self.sub_control();
        }
        self.pipeline();
        let ingress = "V1Switch(P(), VC(), I(), E(), CC(), D()) main;";
        self.line(ingress);
    }

    fn declare_constants(&mut self) {
        self.only_constants = true;
        for _ in 0..1 + self.dice.index(4) {
            let ty = self.scalar();
            let name = self.name("C");
            let value = self.expr(&ty, 2);
            let text = self.ty(&ty);
            self.line(format!("const {text} {name} = {value};"));
            self.scope.push(Var { path: name, ty, writable: false, constant: true });
        }
        self.only_constants = false;
    }

    /// Declares `Headers` and `Meta`, which all blocks share.
    fn declare_packet_types(&mut self) {
        let mut fields: Vec<(String, Type)> = Vec::new();
        for _ in 0..2 + self.dice.index(4) {
            let header = Type::Header(self.dice.index(self.types.headers.len()));
            fields.push((self.name("h"), header));
        }
        for _ in 0..self.dice.index(3) {
            let header = Type::Header(self.dice.index(self.types.headers.len()));
            let n = self.dice.range(1, 4);
            fields.push((self.name("s"), Type::Stack(Box::new(header), n)));
        }
        if !self.types.unions.is_empty() {
            for _ in 0..self.dice.index(3) {
                let union = Type::Union(self.dice.index(self.types.unions.len()));
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
        for _ in 0..3 + self.dice.index(6) {
            let ty = if self.dice.one_in(5) { self.variable_type() } else { self.scalar() };
            fields.push((self.name("m"), ty));
        }
        self.open("struct Meta {");
        for (name, ty) in &fields {
            let kept = !matches!(ty, Type::Stack(..) | Type::Union(_) | Type::Tuple(_));
            if kept && self.dice.one_in(2) {
                let lists = ["1", "1", "2", "1, 2"][self.dice.index(4)];
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

    /// Adds `hdr`, `meta` and the comparable fields of `sm` to the scope.
    pub(crate) fn declare_packet(&mut self, writable: bool, standard: bool) {
        let headers = self.headers_type();
        let Type::Struct(at) = headers else { return };
        // Not as a whole: the declared struct has one more field.
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
}
