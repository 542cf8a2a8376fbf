//! Bounds on the memory that a small program can make the compiler use: types, values and expressions whose size
//! doubles with each declaration, instances, and functions.
//!
//! Sizes are recorded as types grow, so that checking is cheap: each size is a sum of sizes that were within the bound.

use super::Checker;
use crate::codes;
use crate::typed::{Expr, ExprKind};
use crate::types::*;
use base::{Diagnostic, Span};

/// The maximum number of scalar leaves in a composite type.
const MAX_LEAVES: u64 = 1 << 18;

/// The maximum number of nodes in the expression of a constructor-dependent constant.
const MAX_CONST_NODES: usize = 10_000;

/// The maximum length of a string, in bytes.
pub(super) const MAX_STRING: usize = 1 << 20;

/// The maximum number of instantiations of generic functions.
pub(super) const MAX_FUNCTIONS: usize = 10_000;

impl Checker<'_> {
    /// The number of scalar leaves in a type.
    pub(super) fn leaves_of(&self, ty: &Type) -> u64 {
        match ty {
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                self.struct_leaves.get(id.index()).copied().unwrap_or(1)
            }
            Type::Stack(element, n) => self.leaves_of(element).saturating_mul(u64::from(*n)),
            Type::Tuple(types) => types.iter().fold(1, |sum, t| self.leaves_of(t).saturating_add(sum)),
            Type::List(element) | Type::Set(element) => self.leaves_of(element),
            Type::Extern(_, args) | Type::Block(_, args) => {
                args.iter().fold(1, |sum, t| self.leaves_of(t).saturating_add(sum))
            }
            _ => 1,
        }
    }

    /// The type, or [`Type::Unknown`] with an error if it is too large.
    pub(super) fn bounded(&mut self, ty: Type, span: Span) -> Type {
        if self.leaves_of(&ty) <= MAX_LEAVES {
            return ty;
        }
        self.report(
            Diagnostic::error(codes::TOO_LARGE, span, format!("the type has more than {MAX_LEAVES} values"))
                .help("make it smaller, or keep the values in registers"),
        );
        Type::Unknown
    }

    /// Records the size of a struct once its fields are known; a struct that is too large loses its fields.
    pub(super) fn measure_struct(&mut self, id: StructId, span: Span) {
        let fields = &self.prog.types.structs[id.index()].fields;
        let leaves = fields.iter().fold(1u64, |sum, f| self.leaves_of(&f.ty).saturating_add(sum));
        self.struct_leaves.resize(self.struct_leaves.len().max(id.index() + 1), 1);
        self.struct_leaves[id.index()] = leaves;
        if leaves > MAX_LEAVES {
            self.bounded(Type::Struct(id), span);
            self.prog.types.structs[id.index()].fields = Fields::default();
            self.struct_leaves[id.index()] = 1;
        }
    }
}

/// Whether the expression of a constant is small enough to replace its name.
pub(super) fn is_small(e: &Expr) -> bool {
    fn count(e: &Expr, left: &mut usize) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match &e.kind {
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Field(a, _) | ExprKind::TupleElement(a, _) => {
                count(a, left)
            }
            ExprKind::Slice { base, .. } => count(base, left),
            ExprKind::SliceFrom { base: a, low: b, .. }
            | ExprKind::Binary(_, a, b)
            | ExprKind::StackElement { stack: a, index: b } => count(a, left) && count(b, left),
            ExprKind::Ternary { cond, then, otherwise } => {
                count(cond, left) && count(then, left) && count(otherwise, left)
            }
            ExprKind::Aggregate(elements) => elements.iter().all(|e| count(e, left)),
            _ => true,
        }
    }
    count(e, &mut { MAX_CONST_NODES })
}
