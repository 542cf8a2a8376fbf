//! Resolved types, and the table of the named types of a program.
//!
//! A [`Type`] is small and cheap to clone. A type with fields, members or methods is an id into the [`TypeTable`]; ids
//! are allocated per *instantiation*: `S<bit<8>>` and `S<bit<9>>` of a generic struct are two [`StructId`]s. A
//! `typedef` is replaced by its target; a `type` is a [`Type::Newtype`].
//!
//! Invariants:
//! - structurally equal types are equal values (`==` is P4's type identity);
//! - [`Type::Var`] occurs only in the signatures of generic externs and of parser, control and package types, never in
//!   expressions or instantiated declarations; [`Type::Unknown`] occurs only in programs with errors, which the checker
//!   does not return.
//!
//! Specification: P4_16, chapter "P4 data types". Tests: with the checker, `crates/sema/tests`.

use crate::annotation::Annotation;
use crate::ids::{ExternId, ParserId, TableId};
use crate::value::Value;
use base::Span;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub use crate::ids::{BlockTypeId, EnumId, NewtypeId, StructId, TypeVar};

/// A type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// The type of an erroneous construct that has already been reported; compatible with every type.
    Unknown,
    /// `void`
    Void,
    /// `bool`
    Bool,
    /// `error`
    Error,
    /// `match_kind`
    MatchKind,
    /// `string`
    String,
    /// `int`: compile-time integers of arbitrary precision.
    Int,
    /// `bit<W>` and `int<W>`.
    Bits {
        /// W; may be 0.
        width: u32,
        /// Whether it is `int<W>`.
        signed: bool,
    },
    /// `varbit<W>`, where W is the maximum width in bits.
    Varbit(u32),
    /// A header.
    Header(StructId),
    /// A header union.
    HeaderUnion(StructId),
    /// A struct; also the anonymous type of `{ a = 1 }` where the context gives no type.
    Struct(StructId),
    /// `T[n]`: a header stack when T is a header or header union, else an array.
    Stack(Arc<Type>, u32),
    /// `tuple<T, U>`; also the type of `{ a, b }` where the context gives no type.
    Tuple(Arc<[Type]>),
    /// `list<T>`
    List(Arc<Type>),
    /// An enum without underlying type.
    Enum(EnumId),
    /// An enum with underlying type, see [`EnumInfo::repr`].
    SerEnum(EnumId),
    /// `type T name`.
    Newtype(NewtypeId),
    /// An extern object type with its type arguments.
    Extern(ExternId, Arc<[Type]>),
    /// A parser, control or package type, with its type arguments.
    Block(BlockTypeId, Arc<[Type]>),
    /// A declared parser: the type of its instances.
    Parser(ParserId),
    /// A declared control: the type of its instances.
    Control(crate::typed::ControlId),
    /// An action.
    Action,
    /// A function or extern function (only as a callee).
    Function,
    /// A table.
    Table(TableId),
    /// The result of `table.apply()`: fields `hit`, `miss`, `action_run`.
    ApplyResult(TableId),
    /// The type of `action_run`.
    ActionEnum(TableId),
    /// A keyset over a type (P4_16, "Set types": `set<T>`); also the type of a `value_set<T>`.
    Set(Arc<Type>),
    /// A type parameter; see the module documentation.
    Var(TypeVar),
}

impl Type {
    /// `bit<1>`
    pub const BIT1: Type = Type::Bits { width: 1, signed: false };

    /// `bit<width>`
    pub fn bit(width: u32) -> Type {
        Type::Bits { width, signed: false }
    }

    /// `int<width>`
    pub fn int(width: u32) -> Type {
        Type::Bits { width, signed: true }
    }

    /// The id of a struct, header or header union.
    pub fn fields_id(&self) -> Option<StructId> {
        match self {
            Type::Header(id) | Type::HeaderUnion(id) | Type::Struct(id) => Some(*id),
            _ => None,
        }
    }

    /// Whether it is a header.
    pub fn is_header(&self) -> bool {
        matches!(self, Type::Header(_))
    }

    /// Whether it is [`Type::Unknown`].
    pub fn is_unknown(&self) -> bool {
        matches!(self, Type::Unknown)
    }
}

/// All named types of a program.
#[derive(Clone, Debug, Default)]
pub struct TypeTable {
    /// Structs, headers and header unions; a generic one has one element per instantiation.
    pub structs: Vec<StructInfo>,
    /// Enums.
    pub enums: Vec<EnumInfo>,
    /// `type` declarations.
    pub newtypes: Vec<NewtypeInfo>,
    /// Parser, control and package types.
    pub block_types: Vec<BlockTypeInfo>,
    /// Names of type variables, for messages and signatures.
    pub vars: Vec<Arc<str>>,
    /// Names of extern types, parsers and controls and tables, for messages.
    pub(crate) extern_names: Vec<Arc<str>>,
    pub(crate) parser_names: Vec<Arc<str>>,
    pub(crate) control_names: Vec<Arc<str>>,
    pub(crate) table_names: Vec<Arc<str>>,
}

/// Which of the three a [`StructInfo`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StructKind {
    /// `struct`
    Struct,
    /// `header`
    Header,
    /// `header_union`
    HeaderUnion,
}

/// A struct, header or header union.
#[derive(Clone, Debug)]
pub struct StructInfo {
    /// The declared name; empty for the anonymous type of `{ a = 1 }`.
    pub name: Arc<str>,
    /// Which of the three it is.
    pub kind: StructKind,
    /// Type arguments of a generic declaration.
    pub args: Vec<Type>,
    /// Fields in declaration order.
    pub fields: Fields,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// Span of the declaration.
    pub span: Span,
}

impl StructInfo {
    /// The field with this name, and its index.
    pub fn field(&self, name: &str) -> Option<(usize, &FieldInfo)> {
        self.fields.find(name)
    }
}

/// The fields of a struct in declaration order, with an index by name once there are many.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    list: Vec<FieldInfo>,
    /// Index by name; filled only when there are more than [`SEARCHED_MAX`] fields.
    by_name: HashMap<Arc<str>, usize>,
}

/// Up to this many fields, linear search is faster than hashing.
const SEARCHED_MAX: usize = 16;

impl Fields {
    /// The field with this name, and its index.
    pub fn find(&self, name: &str) -> Option<(usize, &FieldInfo)> {
        match self.list.len() {
            ..=SEARCHED_MAX => self.list.iter().enumerate().find(|(_, f)| &*f.name == name),
            _ => self.by_name.get(name).map(|&i| (i, &self.list[i])),
        }
    }

    /// Appends a field; its name must differ from those of all other fields.
    pub fn push(&mut self, field: FieldInfo) {
        if self.list.len() == SEARCHED_MAX {
            self.by_name = self.list.iter().enumerate().map(|(i, f)| (f.name.clone(), i)).collect();
        }
        if self.list.len() >= SEARCHED_MAX {
            self.by_name.insert(field.name.clone(), self.list.len());
        }
        self.list.push(field);
    }
}

impl FromIterator<FieldInfo> for Fields {
    fn from_iter<I: IntoIterator<Item = FieldInfo>>(fields: I) -> Fields {
        let mut all = Fields::default();
        fields.into_iter().for_each(|f| all.push(f));
        all
    }
}

impl std::ops::Deref for Fields {
    type Target = [FieldInfo];

    fn deref(&self) -> &[FieldInfo] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a FieldInfo;
    type IntoIter = std::slice::Iter<'a, FieldInfo>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// A field.
#[derive(Clone, Debug)]
pub struct FieldInfo {
    /// The declared name.
    pub name: Arc<str>,
    /// Its type.
    pub ty: Type,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its span.
    pub span: Span,
}

/// An enum.
#[derive(Clone, Debug)]
pub struct EnumInfo {
    /// The declared name.
    pub name: Arc<str>,
    /// The underlying type of a serialisable enum.
    pub repr: Option<Type>,
    /// Members in declaration order; a value of an enum without underlying type is an index into this vector.
    pub members: Vec<EnumMember>,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// Span of the declaration.
    pub span: Span,
}

/// A member of an enum.
#[derive(Clone, Debug)]
pub struct EnumMember {
    /// The declared name.
    pub name: Arc<str>,
    /// Its value, in a serialisable enum.
    pub value: Option<Value>,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its span.
    pub span: Span,
}

/// A `type T name;`.
#[derive(Clone, Debug)]
pub struct NewtypeInfo {
    /// The declared name.
    pub name: Arc<str>,
    /// T; may be another newtype.
    pub underlying: Type,
    /// Annotations of the declaration (`@p4runtime_translation`).
    pub annotations: Vec<Annotation>,
    /// Span of the declaration.
    pub span: Span,
}

/// Which of the three a [`BlockTypeInfo`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockKind {
    /// `parser name<T>(...);`
    Parser,
    /// `control name<T>(...);`
    Control,
    /// `package name<T>(...);`
    Package,
}

impl BlockKind {
    /// The keyword that declares it.
    pub fn word(self) -> &'static str {
        match self {
            BlockKind::Parser => "parser",
            BlockKind::Control => "control",
            BlockKind::Package => "package",
        }
    }
}

/// A parser, control or package type.
#[derive(Clone, Debug)]
pub struct BlockTypeInfo {
    /// The declared name.
    pub name: Arc<str>,
    /// Which of the three it is.
    pub kind: BlockKind,
    /// `<T, U>`
    pub type_params: Vec<TypeVar>,
    /// Run-time parameters, or a package's constructor parameters; types may contain [`Type::Var`]s of `type_params`.
    pub params: Vec<crate::typed::SigParam>,
    /// Annotations of the declaration.
    pub annotations: Vec<Annotation>,
    /// Span of the declaration.
    pub span: Span,
}

impl TypeTable {
    /// The struct, header or header union with this id.
    pub fn fields_of(&self, id: StructId) -> &StructInfo {
        &self.structs[id.index()]
    }

    /// The declaration behind a struct, header or header union type; `None` for other types.
    pub fn struct_info(&self, ty: &Type) -> Option<&StructInfo> {
        ty.fields_id().map(|id| &self.structs[id.index()])
    }

    /// The representation type: resolves `type` and serialisable `enum` down to the type that holds the bits.
    pub fn underlying(&self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        loop {
            match &ty {
                Type::Newtype(id) => ty = self.newtypes[id.index()].underlying.clone(),
                Type::SerEnum(id) => match &self.enums[id.index()].repr {
                    Some(repr) => ty = repr.clone(),
                    None => return ty,
                },
                _ => return ty,
            }
        }
    }

    /// Size of a value on the wire, in bits. Headers (without the validity bit), structs, tuples and stacks are the sum
    /// of their parts; a header union is its largest member; `bool` is 1; a varbit is its maximum width if `max`, else
    /// 0. `None` for types without a wire format.
    pub fn width_bits(&self, ty: &Type, max: bool) -> Option<u64> {
        match self.underlying(ty) {
            Type::Bool => Some(1),
            Type::Bits { width, .. } => Some(u64::from(width)),
            Type::Varbit(width) => Some(if max { u64::from(width) } else { 0 }),
            Type::Header(id) | Type::Struct(id) => {
                self.structs[id.index()].fields.iter().try_fold(0u64, |n, f| Some(n + self.width_bits(&f.ty, max)?))
            }
            Type::HeaderUnion(id) => {
                self.structs[id.index()].fields.iter().try_fold(0u64, |n, f| Some(n.max(self.width_bits(&f.ty, max)?)))
            }
            Type::Tuple(types) => types.iter().try_fold(0u64, |n, t| Some(n + self.width_bits(t, max)?)),
            Type::Stack(element, n) => Some(self.width_bits(&element, max)?.saturating_mul(u64::from(n))),
            _ => None,
        }
    }

    /// Formats a type for messages.
    pub fn display<'a>(&'a self, ty: &'a Type) -> TypeDisplay<'a> {
        TypeDisplay { table: self, ty }
    }
}

/// Writes a type as P4 does; made by [`TypeTable::display`].
pub struct TypeDisplay<'a> {
    table: &'a TypeTable,
    ty: &'a Type,
}

impl TypeDisplay<'_> {
    fn args(&self, f: &mut fmt::Formatter<'_>, args: &[Type]) -> fmt::Result {
        if args.is_empty() {
            return Ok(());
        }
        f.write_str("<")?;
        self.list(f, args)?;
        f.write_str(">")
    }

    fn list(&self, f: &mut fmt::Formatter<'_>, types: &[Type]) -> fmt::Result {
        for (i, ty) in types.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}", self.table.display(ty))?;
        }
        Ok(())
    }
}

impl fmt::Display for TypeDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.table;
        match self.ty {
            Type::Unknown => f.write_str("?"),
            Type::Void => f.write_str("void"),
            Type::Bool => f.write_str("bool"),
            Type::Error => f.write_str("error"),
            Type::MatchKind => f.write_str("match_kind"),
            Type::String => f.write_str("string"),
            Type::Int => f.write_str("int"),
            Type::Bits { width, signed } => write!(f, "{}<{width}>", if *signed { "int" } else { "bit" }),
            Type::Varbit(max) => write!(f, "varbit<{max}>"),
            Type::Header(id) | Type::HeaderUnion(id) | Type::Struct(id) => {
                let info = &t.structs[id.index()];
                if !info.name.is_empty() {
                    f.write_str(&info.name)?;
                    return self.args(f, &info.args);
                }
                f.write_str("{ ")?;
                for (i, field) in info.fields.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    write!(f, "{comma}{} {}", t.display(&field.ty), field.name)?;
                }
                f.write_str(" }")
            }
            Type::Stack(element, n) => write!(f, "{}[{n}]", t.display(element)),
            Type::Tuple(types) => {
                f.write_str("tuple")?;
                if types.is_empty() { f.write_str("<>") } else { self.args(f, types) }
            }
            Type::List(element) => write!(f, "list<{}>", t.display(element)),
            Type::Enum(id) | Type::SerEnum(id) => f.write_str(&t.enums[id.index()].name),
            Type::Newtype(id) => f.write_str(&t.newtypes[id.index()].name),
            Type::Extern(id, args) => {
                f.write_str(t.extern_names.get(id.index()).map_or("extern", |n| n))?;
                self.args(f, args)
            }
            Type::Block(id, args) => {
                f.write_str(&t.block_types[id.index()].name)?;
                self.args(f, args)
            }
            Type::Parser(id) => f.write_str(t.parser_names.get(id.index()).map_or("parser", |n| n)),
            Type::Control(id) => f.write_str(t.control_names.get(id.index()).map_or("control", |n| n)),
            Type::Action => f.write_str("action"),
            Type::Function => f.write_str("function"),
            Type::Table(id) => write!(f, "table {}", t.table_names.get(id.index()).map_or("", |n| n)),
            Type::ApplyResult(id) => {
                write!(f, "apply result of {}", t.table_names.get(id.index()).map_or("", |n| n))
            }
            Type::ActionEnum(id) => write!(f, "action_run of {}", t.table_names.get(id.index()).map_or("", |n| n)),
            Type::Set(element) => write!(f, "set<{}>", t.display(element)),
            Type::Var(var) => f.write_str(t.vars.get(var.index()).map_or("_", |n| n)),
        }
    }
}
