//! The types of generated programs, their declarations and names.

use random::Random;

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
    /// `varbit<W>`, in header fields only.
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
    /// The type of a shadowed variable.
    Hidden,
}

/// The declaration of a struct, header or union.
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
    /// The width and signedness of its underlying type, if it is serialisable.
    pub repr: Option<(u32, bool)>,
    /// Its members.
    pub members: Vec<String>,
    /// Their values, if it is serialisable.
    pub values: Vec<u32>,
}

/// All types that a program declares.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// Structs, by number in [`Type::Struct`].
    pub structs: Vec<Fields>,
    /// Headers, by number in [`Type::Header`].
    pub headers: Vec<Fields>,
    /// Header unions, by number in [`Type::Union`].
    pub unions: Vec<Fields>,
    /// Enums, by number in [`Type::Enum`] and [`Type::SerEnum`].
    pub enums: Vec<EnumDecl>,
    /// `type` declarations, by number in [`Type::New`]: name and width.
    pub news: Vec<(String, u32)>,
    /// Typedefs: name and type.
    pub typedefs: Vec<(String, Type)>,
    /// The names of the errors that the program declares.
    pub errors: Vec<String>,
    /// The number of structs for variables; `Headers` and `Meta` follow them.
    pub plain_structs: usize,
    /// The preferred widths of this program, so that widths match more often.
    pub widths: Vec<u32>,
}

/// Interesting widths: machine words, bytes, one more and one less, and odd ones.
const WIDTHS: [u32; 34] = [
    1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 20, 23, 24, 31, 32, 33, 40, 47, 48, 63, 64, 65, 72, 96, 100, 127, 128,
    129, 160, 200, 257,
];

/// A random width of these.
pub fn any_width(dice: &mut Random) -> u32 {
    if dice.one_in(6) { dice.range(1, 140) } else { *dice.pick(&WIDTHS) }
}

impl Types {
    /// A preferred width of this program, or any.
    pub fn width(&self, dice: &mut Random) -> u32 {
        if self.widths.is_empty() || dice.one_in(8) { any_width(dice) } else { *dice.pick(&self.widths) }
    }

    /// The size of a value on the wire in bits; a varbit counts as zero.
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

    /// The maximum width of a header's varbit field, if it has one.
    pub fn varbit(&self, header: usize) -> Option<u32> {
        self.headers[header].fields.iter().find_map(|(_, t)| if let Type::Varbit(w) = t { Some(*w) } else { None })
    }

    /// The fields of a struct, header or union.
    pub fn fields(&self, ty: &Type) -> &[(String, Type)] {
        match ty {
            Type::Struct(i) => &self.structs[*i].fields,
            Type::Header(i) => &self.headers[*i].fields,
            Type::Union(i) => &self.unions[*i].fields,
            _ => &[],
        }
    }

    /// Whether an expression can construct values of the type.
    pub fn has_literals(&self, ty: &Type) -> bool {
        match ty {
            Type::Varbit(_) | Type::Union(_) | Type::Stack(..) | Type::Hidden => false,
            Type::Header(i) => self.varbit(*i).is_none(),
            Type::Struct(_) => self.fields(ty).iter().all(|(_, t)| self.has_literals(t)),
            Type::Tuple(list) => list.iter().all(|t| self.has_literals(t)),
            _ => true,
        }
    }

    /// The type's first name in the source.
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
