//! Storage for types: one slot per scalar and an IR header per header, with names that tell their origin.
//!
//! A header whose fixed part is not a whole number of bytes, or that has several varbit fields, has no wire format. It
//! becomes plain slots and a validity bit (`HeaderTree::id` is `None`) and is used as a value only.

use crate::codes;
use crate::context::{Binding, Lowerer, WIDTH_LIMIT};
use crate::tree::{HeaderTree, Tree};
use base::{Bits, Span};
use ir::{FieldWidth, Operand, SlotKind};
use num_bigint::BigInt;
use sema::typed::LocalId;
use sema::types::StructId;
use sema::{Type, Value};
use std::rc::Rc;

/// Width in bits of a slot for `error`, or for an enum without underlying type.
pub(crate) const ENUM_WIDTH: u32 = 32;

/// Limit on the slots of one variable.
const VARIABLE_LIMIT: u64 = 1 << 18;

/// A field of a header's wire format: dotted name and width.
type FlatField = (String, FieldWidth);

impl Lowerer<'_> {
    /// Width of a scalar type in bits; `None` for other types.
    pub fn scalar_width(&self, ty: &Type) -> Option<u32> {
        match self.p.types.underlying(ty) {
            Type::Bool => Some(1),
            Type::Bits { width, .. } => Some(width),
            Type::Error | Type::Enum(_) | Type::MatchKind => Some(ENUM_WIDTH),
            _ => None,
        }
    }

    /// Allocates storage for a variable of a type.
    pub fn allocate(&mut self, name: &str, ty: &Type, kind: SlotKind, span: Span) -> Tree {
        if self.is_too_large() {
            return Tree::Nothing;
        }
        if self.slot_count(ty) > VARIABLE_LIMIT {
            let text = self.type_text(ty);
            self.refuse(codes::TOO_LARGE, span, format!("`{text}` has more than {VARIABLE_LIMIT} fields and elements"));
            return Tree::Nothing;
        }
        if let Some((field, width)) = self.too_wide(ty) {
            self.refuse_width(field.unwrap_or(span), width);
            return Tree::Nothing;
        }
        self.allocate_sized(name, ty, kind, span)
    }

    /// The first part of a type that exceeds the width limit: its field's position, if it is a field, and its width in
    /// bits.
    fn too_wide(&self, ty: &Type) -> Option<(Option<Span>, u32)> {
        let types = &self.p.types;
        match types.underlying(ty) {
            Type::Bits { width, .. } | Type::Varbit(width) => (width > WIDTH_LIMIT).then_some((None, width)),
            Type::Header(id) | Type::HeaderUnion(id) | Type::Struct(id) => {
                let mut fields = types.fields_of(id).fields.iter();
                fields.find_map(|f| self.too_wide(&f.ty).map(|(inner, width)| (inner.or(Some(f.span)), width)))
            }
            Type::Tuple(types) => types.iter().find_map(|ty| self.too_wide(ty)),
            Type::Stack(element, _) => self.too_wide(&element),
            _ => None,
        }
    }

    fn allocate_sized(&mut self, name: &str, ty: &Type, kind: SlotKind, span: Span) -> Tree {
        if let Some(width) = self.scalar_width(ty) {
            return self.scalar(name, width, kind);
        }
        match self.p.types.underlying(ty) {
            Type::Varbit(width) => Tree::Varbit {
                value: self.scalar(name, width, kind).operand(),
                length: self.b.slot(format!("{name}.$length"), 32, kind).into(),
            },
            Type::Header(id) => self.header(name, id, kind, span),
            Type::HeaderUnion(id) => {
                let members = self.fields(name, id, kind, span);
                for member in members.iter() {
                    if let Tree::Header(HeaderTree { valid: Operand::Slot(valid), .. }) = member {
                        self.union_members.insert(*valid, members.clone());
                    }
                }
                Tree::Union(members)
            }
            Type::Struct(id) => Tree::Struct(self.fields(name, id, kind, span)),
            Type::Tuple(types) => Tree::Struct(
                types
                    .iter()
                    .enumerate()
                    .map(|(i, t)| self.allocate_sized(&format!("{name}.{i}"), t, kind, span))
                    .collect(),
            ),
            Type::Stack(element, n) => {
                let elements =
                    (0..n).map(|i| self.allocate_sized(&format!("{name}[{i}]"), &element, kind, span)).collect();
                let of_headers = matches!(*element, Type::Header(_) | Type::HeaderUnion(_));
                let next_kind = if kind == SlotKind::Temp { SlotKind::Local } else { kind };
                let next = of_headers.then(|| self.b.slot(format!("{name}.$next"), 32, next_kind));
                Tree::Stack { elements, next }
            }
            _ => Tree::Nothing,
        }
    }

    fn scalar(&mut self, name: &str, width: u32, kind: SlotKind) -> Tree {
        if width == 0 {
            return Tree::constant(0, 0);
        }
        match kind {
            SlotKind::Temp => self.b.temp(width).into(),
            _ => self.b.slot(name, width, kind).into(),
        }
    }

    fn fields(&mut self, name: &str, id: StructId, kind: SlotKind, span: Span) -> Rc<[Tree]> {
        let p = self.p;
        let info = p.types.fields_of(id);
        info.fields.iter().map(|f| self.allocate_sized(&format!("{name}.{}", f.name), &f.ty, kind, span)).collect()
    }

    fn header(&mut self, name: &str, id: StructId, kind: SlotKind, span: Span) -> Tree {
        let mut flat = Vec::new();
        self.flatten_header("", id, &mut flat);
        let fixed: u64 = flat.iter().map(|(_, w)| if let FieldWidth::Fixed(w) = w { u64::from(*w) } else { 0 }).sum();
        let varbits = flat.iter().filter(|(_, w)| matches!(w, FieldWidth::Varbit(_))).count();
        let zero_width = flat.iter().any(|(_, w)| matches!(w, FieldWidth::Fixed(0) | FieldWidth::Varbit(0)));
        if kind == SlotKind::Temp || !fixed.is_multiple_of(8) || varbits > 1 || zero_width {
            let fields = self.fields(name, id, kind, span);
            let valid = self.scalar(&format!("{name}.$valid"), 1, kind).operand();
            let tree =
                HeaderTree { id: None, retained: kind != SlotKind::Temp && self.next_is_retained(), valid, fields };
            if kind != SlotKind::Temp {
                self.note_header(&tree);
            }
            return Tree::Header(tree);
        }
        let mut unique = name.to_string();
        let mut number = 1;
        while !self.header_names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}#{number}");
        }
        let widths: Vec<(&str, FieldWidth)> = flat.iter().map(|(n, w)| (n.as_str(), *w)).collect();
        if self.next_is_retained() {
            let wire = self.b.header(format!("{unique}.$wire"), &widths);
            let fields = self.fields(&unique, id, kind, span);
            let valid = self.scalar(&format!("{unique}.$valid"), 1, kind).operand();
            let tree = HeaderTree { id: Some(wire), retained: true, valid, fields };
            self.note_header(&tree);
            return Tree::Header(tree);
        }
        let header = self.b.header(unique, &widths);
        let made = &self.b.program().headers[header.index()];
        let valid = Operand::Slot(made.valid);
        let leaves: Vec<Tree> = made
            .fields
            .iter()
            .map(|f| match f.varbit_length {
                None => f.slot.into(),
                Some(length) => Tree::Varbit { value: f.slot.into(), length: length.into() },
            })
            .collect();
        let fields = self.regroup(id, &mut leaves.into_iter());
        let tree = HeaderTree { id: Some(header), retained: false, valid, fields };
        self.note_header(&tree);
        Tree::Header(tree)
    }

    fn flatten_header(&self, prefix: &str, id: StructId, out: &mut Vec<FlatField>) {
        for field in &self.p.types.fields_of(id).fields {
            self.flatten_field(format!("{prefix}{}", field.name), &field.ty, out);
        }
    }

    fn flatten_field(&self, name: String, ty: &Type, out: &mut Vec<FlatField>) {
        match self.p.types.underlying(ty) {
            Type::Struct(inner) => self.flatten_header(&format!("{name}."), inner, out),
            Type::Stack(element, n) => {
                (0..n).for_each(|i| self.flatten_field(format!("{name}[{i}]"), &element, out));
            }
            Type::Varbit(width) => out.push((name, FieldWidth::Varbit(width))),
            _ => out.push((name, FieldWidth::Fixed(self.scalar_width(ty).unwrap_or(0)))),
        }
    }

    /// Restores the structure of a header's fields from flat storage; the inverse of `flatten_header`.
    fn regroup(&self, id: StructId, leaves: &mut dyn Iterator<Item = Tree>) -> Rc<[Tree]> {
        self.p.types.fields_of(id).fields.iter().map(|f| self.regroup_field(&f.ty, leaves)).collect()
    }

    fn regroup_field(&self, ty: &Type, leaves: &mut dyn Iterator<Item = Tree>) -> Tree {
        match self.p.types.underlying(ty) {
            Type::Struct(inner) => Tree::Struct(self.regroup(inner, leaves)),
            Type::Stack(element, n) => {
                let elements = (0..n).map(|_| self.regroup_field(&element, leaves)).collect();
                Tree::Stack { elements, next: None }
            }
            _ => leaves.next().unwrap_or(Tree::Nothing),
        }
    }

    fn slot_count(&self, ty: &Type) -> u64 {
        match self.p.types.underlying(ty) {
            Type::Header(id) | Type::HeaderUnion(id) | Type::Struct(id) => {
                let fields = &self.p.types.fields_of(id).fields;
                fields.iter().fold(1, |n: u64, f| n.saturating_add(self.slot_count(&f.ty)))
            }
            Type::Tuple(types) => types.iter().fold(0, |n: u64, t| n.saturating_add(self.slot_count(t))),
            Type::Stack(element, n) => self.slot_count(&element).saturating_mul(u64::from(n)),
            _ => 1,
        }
    }

    /// The binding of a variable or parameter of the current body.
    pub fn local(&mut self, local: LocalId) -> Binding {
        if let Some(binding) = self.env.bindings.get(&local) {
            return binding.clone();
        }
        Binding::Tree(self.local_storage(local))
    }

    /// The storage of a variable of the current body. All inlined copies share it: P4 has no recursion, and a variable
    /// is initialised anew at its declaration.
    pub fn local_storage(&mut self, local: LocalId) -> Tree {
        let key = (self.env.frame, self.env.instance, local);
        if let Some(tree) = self.frames.get(&key) {
            return tree.clone();
        }
        let p = self.p;
        let info = &p.frames[self.env.frame.index()].locals[local.index()];
        let name = if self.env.prefix.is_empty() {
            info.name.to_string()
        } else {
            format!("{}.{}", self.env.prefix, info.name)
        };
        let tree = self.allocate(&name, &info.ty, SlotKind::Local, info.span);
        self.frames.insert(key, tree.clone());
        tree
    }

    /// The value of a type with all bits zero and all headers invalid.
    pub fn zero(&self, ty: &Type) -> Tree {
        if let Some(width) = self.scalar_width(ty) {
            return Tree::constant(width, 0);
        }
        match self.p.types.underlying(ty) {
            Type::Varbit(width) => {
                Tree::Varbit { value: Operand::new_const(width, 0), length: Operand::new_const(32, 0) }
            }
            Type::Header(id) => {
                let (valid, fields) = (Operand::new_const(1, 0), self.zero_fields(id));
                Tree::Header(HeaderTree { id: None, retained: false, valid, fields })
            }
            Type::HeaderUnion(id) => Tree::Union(self.zero_fields(id)),
            Type::Struct(id) => Tree::Struct(self.zero_fields(id)),
            Type::Tuple(types) => Tree::Struct(types.iter().map(|t| self.zero(t)).collect()),
            Type::Stack(element, n) => {
                Tree::Stack { elements: std::iter::repeat_n(self.zero(&element), n as usize).collect(), next: None }
            }
            _ => Tree::Nothing,
        }
    }

    fn zero_fields(&self, id: StructId) -> Rc<[Tree]> {
        self.p.types.fields_of(id).fields.iter().map(|f| self.zero(&f.ty)).collect()
    }

    /// Converts a compile-time value to a tree of a type.
    pub fn value_tree(&self, value: &Value, ty: &Type) -> Tree {
        let ty = self.p.types.underlying(ty);
        match value {
            Value::Bool(b) => Tree::Leaf(Self::bit(*b)),
            Value::Int(v) => match ty {
                Type::Bits { width, .. } => Tree::Leaf(Bits::from_bigint(width, v).into()),
                _ => Tree::Leaf(int_bits(v).into()),
            },
            Value::Bits(v) => Tree::Leaf(v.into()),
            Value::Varbit(v) => {
                let max = if let Type::Varbit(max) = ty { max } else { v.width() };
                Tree::Varbit { value: v.resize_u(max).into(), length: Operand::new_const(32, u128::from(v.width())) }
            }
            Value::Error(v) => {
                let number = self.errors.get(*v as usize).copied().unwrap_or(0);
                Tree::constant(ENUM_WIDTH, u128::from(number))
            }
            Value::Enum(v) | Value::MatchKind(v) => Tree::constant(ENUM_WIDTH, u128::from(*v)),
            Value::Invalid => self.zero(&ty),
            Value::Seq(values) => self.sequence_tree(values, &ty),
            Value::Str(_) | Value::Instance(_) | Value::Absent => Tree::Nothing,
        }
    }

    fn sequence_tree(&self, values: &[Value], ty: &Type) -> Tree {
        let children: Rc<[Tree]> = match ty {
            Type::Header(id) | Type::HeaderUnion(id) | Type::Struct(id) => {
                let fields = &self.p.types.fields_of(*id).fields;
                fields.iter().zip(values).map(|(f, v)| self.value_tree(v, &f.ty)).collect()
            }
            Type::Tuple(types) => types.iter().zip(values).map(|(t, v)| self.value_tree(v, t)).collect(),
            Type::Stack(element, _) | Type::List(element) => {
                values.iter().map(|v| self.value_tree(v, element)).collect()
            }
            _ => return Tree::Nothing,
        };
        match ty {
            Type::Header(_) => Tree::Header(HeaderTree::of_values(children)),
            Type::HeaderUnion(_) => Tree::Union(children),
            Type::Stack(..) => Tree::Stack { elements: children, next: None },
            _ => Tree::Struct(children),
        }
    }
}

/// An `int` in two's complement, with at least 32 bits.
fn int_bits(v: &BigInt) -> Bits {
    let width = u32::try_from(v.bits() + 1).unwrap_or(base::bits::MAX_WIDTH).clamp(32, base::bits::MAX_WIDTH);
    Bits::from_bigint(width, v)
}
