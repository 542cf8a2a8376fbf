//! Values and storage as trees of operands.
//!
//! One type represents both. A *storage* tree has a slot at every leaf, and the IR header of each header. A *value*
//! tree has slots, constants or both. Reading a variable returns its storage tree, so nothing is copied until something
//! is written. Code that evaluates anything with side effects in between must copy the value first (`Lowerer::freeze`).
//!
//! Children are shared (`Rc`), so accessing a field of a large struct takes constant time.

use base::Bits;
use ir::{HeaderId, Operand, SlotId};
use std::rc::Rc;

/// A value, or the storage of a variable.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// No bits: extern objects, strings, `void`.
    Nothing,
    /// `bit`, `int`, `bool`, `error`, enums.
    Leaf(Operand),
    /// A varbit: its value, right-aligned, and its length in bits (32 bits wide).
    Varbit { value: Operand, length: Operand },
    /// A header.
    Header(HeaderTree),
    /// A header union's members.
    Union(Rc<[Tree]>),
    /// The fields of a struct, or the elements of a tuple or list.
    Struct(Rc<[Tree]>),
    /// A header stack or array; header stacks in storage have a `nextIndex`.
    Stack { elements: Rc<[Tree]>, next: Option<SlotId> },
}

/// A header's validity and fields.
#[derive(Clone, Debug)]
pub(crate) struct HeaderTree {
    /// The IR header, if the storage has one.
    pub id: Option<HeaderId>,
    /// Whether it is storage that keeps its fields while the header is invalid. The slots are then separate from those
    /// of `id`, which is used for extraction and emission only (`retained.rs`).
    pub retained: bool,
    /// The validity bit.
    pub valid: Operand,
    /// By P4 field; a field of struct type is a subtree.
    pub fields: Rc<[Tree]>,
}

impl HeaderTree {
    /// A valid header with these values in its fields.
    pub fn of_values(fields: Rc<[Tree]>) -> HeaderTree {
        HeaderTree { id: None, retained: false, valid: Operand::Const(Bits::from_bool(true)), fields }
    }
}

impl Tree {
    /// A constant leaf.
    pub fn constant(width: u32, value: u128) -> Tree {
        Tree::Leaf(Operand::new_const(width, value))
    }

    /// Child `index` of a struct, header, union, tuple or stack.
    pub fn child(&self, index: usize) -> Tree {
        self.children().get(index).cloned().unwrap_or(Tree::Nothing)
    }

    /// The children; validity and `nextIndex` are not included.
    pub fn children(&self) -> &[Tree] {
        match self {
            Tree::Struct(c) | Tree::Union(c) | Tree::Stack { elements: c, .. } => c,
            Tree::Header(h) => &h.fields,
            Tree::Nothing | Tree::Leaf(_) | Tree::Varbit { .. } => &[],
        }
    }

    /// The operand of a scalar; for anything else, which only occurs after an error, a zero bit.
    pub fn operand(&self) -> Operand {
        match self {
            Tree::Leaf(o) => o.clone(),
            Tree::Varbit { value, .. } => value.clone(),
            _ => Operand::Const(Bits::zero(1)),
        }
    }

    /// Calls `f` for every operand: values, lengths, validities, and the `nextIndex` of stacks.
    pub fn for_each_operand(&self, f: &mut impl FnMut(&Operand)) {
        match self {
            Tree::Nothing => {}
            Tree::Leaf(o) => f(o),
            Tree::Varbit { value, length } => {
                f(value);
                f(length);
            }
            Tree::Header(h) => {
                f(&h.valid);
                h.fields.iter().for_each(|t| t.for_each_operand(f));
            }
            Tree::Union(c) | Tree::Struct(c) => c.iter().for_each(|t| t.for_each_operand(f)),
            Tree::Stack { elements, next } => {
                elements.iter().for_each(|t| t.for_each_operand(f));
                next.iter().for_each(|n| f(&Operand::Slot(*n)));
            }
        }
    }

    /// All slots in the tree.
    pub fn slots(&self) -> Vec<SlotId> {
        let mut slots = Vec::new();
        self.for_each_operand(&mut |o| slots.extend(o.slot()));
        slots
    }

    /// Calls `f` for each value of the wire format, in order: fields without validities. Varbits come with their
    /// length.
    pub fn for_each_wire_leaf(&self, f: &mut impl FnMut(&Operand, Option<&Operand>)) {
        match self {
            Tree::Leaf(o) => f(o, None),
            Tree::Varbit { value, length } => f(value, Some(length)),
            _ => self.children().iter().for_each(|t| t.for_each_wire_leaf(f)),
        }
    }

    /// Calls `f` for each value that a controller sees, in order: those of the wire format, with each header's validity
    /// before its fields and each varbit's length after its value.
    pub fn for_each_reported_leaf(&self, f: &mut impl FnMut(&Operand)) {
        match self {
            Tree::Leaf(o) => f(o),
            Tree::Varbit { value, length } => {
                f(value);
                f(length);
            }
            _ => {
                if let Tree::Header(h) = self {
                    f(&h.valid);
                }
                self.children().iter().for_each(|t| t.for_each_reported_leaf(f));
            }
        }
    }

    /// A tree of the same shape, as a value, with every operand replaced.
    pub fn map(&self, f: &mut impl FnMut(&Operand) -> Operand) -> Tree {
        match self {
            Tree::Nothing => Tree::Nothing,
            Tree::Leaf(o) => Tree::Leaf(f(o)),
            Tree::Varbit { value, length } => Tree::Varbit { value: f(value), length: f(length) },
            Tree::Header(h) => {
                let valid = f(&h.valid);
                let fields = h.fields.iter().map(|t| t.map(f)).collect();
                Tree::Header(HeaderTree { id: None, retained: false, valid, fields })
            }
            Tree::Union(c) => Tree::Union(c.iter().map(|t| t.map(f)).collect()),
            Tree::Struct(c) => Tree::Struct(c.iter().map(|t| t.map(f)).collect()),
            Tree::Stack { elements, .. } => {
                Tree::Stack { elements: elements.iter().map(|t| t.map(f)).collect(), next: None }
            }
        }
    }

    /// Calls `f` for all headers in the tree, in order.
    pub fn for_each_header(&self, f: &mut impl FnMut(&HeaderTree)) {
        match self {
            Tree::Header(h) => f(h),
            _ => self.children().iter().for_each(|t| t.for_each_header(f)),
        }
    }

    /// Whether it is a single operand.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Tree::Leaf(_))
    }
}

impl From<Operand> for Tree {
    fn from(o: Operand) -> Tree {
        Tree::Leaf(o)
    }
}

impl From<SlotId> for Tree {
    fn from(s: SlotId) -> Tree {
        Tree::Leaf(Operand::Slot(s))
    }
}
