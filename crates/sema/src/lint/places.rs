//! Places: the units of storage that the data-flow analysis tracks in a frame.
//!
//! A place is a leaf of a variable or parameter: a scalar (a tuple or array counts as one), a header, a member of a
//! header union, or a whole header stack. The places of a frame are numbered in the order of the variables and, within
//! each, of the fields, so that a struct is a range of places and copying it copies a range.

use crate::typed::*;
use crate::types::*;
use base::Span;

/// The kind of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Initialised or not.
    Scalar,
    /// A header, or a member of a header union: valid or not.
    Header,
    /// A header stack: valid if some element may be.
    Stack,
}

/// Which part of a range of places an l-value denotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// All of them.
    Whole,
    /// A field of the range's single header.
    Field,
    /// An element of the range's single stack or array, or a part of one.
    Element,
    /// A slice, or an element of a tuple.
    Bits,
}

/// A range of places of a frame, or a part of one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ref {
    /// The first place.
    pub start: u32,
    /// The number of places.
    pub len: u32,
    /// Which part of them.
    pub part: Part,
}

/// Leaf offsets: the number of leaves before each field, and in total, for every struct of a program.
pub(super) struct Layouts {
    /// By struct: one offset per field and the total; empty for headers.
    offsets: Vec<Vec<u32>>,
}

impl Layouts {
    pub fn new(types: &TypeTable) -> Layouts {
        let mut layouts = Layouts { offsets: vec![Vec::new(); types.structs.len()] };
        for i in 0..types.structs.len() {
            layouts.fill(types, StructId::from_index(i));
        }
        layouts
    }

    /// Structs of fields that come later in the table are laid out first; the recursion ends because types are not
    /// recursive.
    fn fill(&mut self, types: &TypeTable, id: StructId) {
        if !self.offsets[id.index()].is_empty() {
            return;
        }
        let info = &types.structs[id.index()];
        let mut offsets = vec![0];
        let mut sum = 0u32;
        for field in &info.fields {
            if let Type::Struct(inner) | Type::HeaderUnion(inner) = &field.ty {
                self.fill(types, *inner);
            }
            sum = sum.saturating_add(self.leaves(&field.ty));
            offsets.push(sum);
        }
        self.offsets[id.index()] = offsets;
    }

    /// The number of leaves of a type; extern objects have none.
    pub fn leaves(&self, ty: &Type) -> u32 {
        match ty {
            Type::Struct(id) | Type::HeaderUnion(id) => self.offsets[id.index()].last().copied().unwrap_or(0),
            Type::Extern(..) | Type::Block(..) | Type::Parser(_) | Type::Control(_) | Type::Void => 0,
            _ => 1,
        }
    }

    /// The offset of a field's first leaf in its struct.
    pub fn offset(&self, id: StructId, field: u32) -> u32 {
        self.offsets[id.index()][field as usize]
    }

    /// The field that contains a leaf of a struct, and the leaf's index within the field.
    fn field_at(&self, id: StructId, leaf: u32) -> (usize, u32) {
        let offsets = &self.offsets[id.index()];
        let i = offsets.partition_point(|o| *o <= leaf) - 1;
        (i, leaf - offsets[i])
    }

    /// The kind of a leaf of a type.
    pub fn kind(&self, types: &TypeTable, ty: &Type, leaf: u32) -> Kind {
        match ty {
            Type::Struct(id) => {
                let (i, rest) = self.field_at(*id, leaf);
                self.kind(types, &types.structs[id.index()].fields[i].ty, rest)
            }
            Type::Header(_) | Type::HeaderUnion(_) => Kind::Header,
            Type::Stack(element, _) if matches!(**element, Type::Header(_) | Type::HeaderUnion(_)) => Kind::Stack,
            _ => Kind::Scalar,
        }
    }

    /// Appends a leaf's path (such as `.ipv4`) to `name`; returns the declaration of its field.
    pub fn describe<'p>(&self, types: &'p TypeTable, ty: &Type, leaf: u32, name: &mut String) -> Option<&'p FieldInfo> {
        let (Type::Struct(id) | Type::HeaderUnion(id)) = ty else { return None };
        let (i, rest) = self.field_at(*id, leaf);
        let field = types.structs[id.index()].fields.get(i)?;
        name.push('.');
        name.push_str(&field.name);
        Some(self.describe(types, &field.ty, rest, name).unwrap_or(field))
    }
}

/// The places of one frame.
pub(super) struct FramePlaces<'p> {
    pub frame: &'p Frame,
    /// The first place of each local, followed by the total number of places.
    pub starts: Vec<u32>,
    pub kinds: Vec<Kind>,
}

impl<'p> FramePlaces<'p> {
    pub fn new(types: &TypeTable, layouts: &Layouts, frame: &'p Frame) -> FramePlaces<'p> {
        let mut starts = vec![0];
        let mut kinds = Vec::new();
        for local in &frame.locals {
            let leaves = layouts.leaves(&local.ty);
            kinds.extend((0..leaves).map(|leaf| layouts.kind(types, &local.ty, leaf)));
            starts.push(kinds.len() as u32);
        }
        FramePlaces { frame, starts, kinds }
    }

    /// The places of a local.
    pub fn of_local(&self, local: LocalId) -> Ref {
        let start = self.starts[local.index()];
        Ref { start, len: self.starts[local.index() + 1] - start, part: Part::Whole }
    }

    /// The local that a place belongs to.
    pub fn local_of(&self, place: u32) -> LocalId {
        LocalId::from_index(self.starts.partition_point(|s| *s <= place) - 1)
    }

    /// The places that an expression in the form of an l-value denotes.
    pub fn resolve(&self, layouts: &Layouts, e: &Expr) -> Option<Ref> {
        match &e.kind {
            ExprKind::Local(id) => Some(self.of_local(*id)).filter(|r| r.len > 0),
            ExprKind::Field(base, i) => {
                let r = self.resolve(layouts, base)?;
                match (&base.ty, r.part) {
                    (Type::Struct(id) | Type::HeaderUnion(id), Part::Whole) => {
                        let len = layouts.leaves(&e.ty);
                        let start = r.start + layouts.offset(*id, *i);
                        Some(Ref { start, len, part: Part::Whole }).filter(|r| r.len > 0)
                    }
                    (Type::Header(_), Part::Whole) => Some(Ref { part: Part::Field, ..r }),
                    _ => Some(r),
                }
            }
            ExprKind::StackElement { stack: base, .. } | ExprKind::StackNext(base) | ExprKind::StackLast(base) => {
                let r = self.resolve(layouts, base)?;
                Some(if r.part == Part::Whole { Ref { part: Part::Element, ..r } } else { r })
            }
            ExprKind::TupleElement(base, _) | ExprKind::Slice { base, .. } | ExprKind::SliceFrom { base, .. } => {
                let r = self.resolve(layouts, base)?;
                Some(if r.part == Part::Whole { Ref { part: Part::Bits, ..r } } else { r })
            }
            _ => None,
        }
    }

    /// The name of a place in P4 syntax, and its declaration.
    pub fn describe(&self, types: &'p TypeTable, layouts: &Layouts, place: u32) -> Described<'p> {
        let id = self.local_of(place);
        let local = &self.frame.locals[id.index()];
        let mut name = local.name.to_string();
        let field = layouts.describe(types, &local.ty, place - self.starts[id.index()], &mut name);
        Described { name, local, field, span: field.map_or(local.span, |f| f.span) }
    }
}

/// A place as described in messages.
pub(super) struct Described<'p> {
    pub name: String,
    pub local: &'p Local,
    pub field: Option<&'p FieldInfo>,
    pub span: Span,
}
