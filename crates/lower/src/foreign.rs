//! Foreign code: externs that no architecture here implements, and the architecture itself if the program is for
//! another switch.
//!
//! A call of such code becomes `Op::Unresolved`. It takes the values of all arguments and returns arbitrary values, so
//! that no optimisation around it relies on a guess. The program can be checked and translated. Loading it is refused,
//! with a message that names the extern and the position of the call.
//!
//! Values returned by foreign code are made to satisfy the IR's invariants: fields of invalid headers are zero, at most
//! one member of a union is valid, a varbit is no longer than its type, and `nextIndex` does not exceed the stack's
//! size.
//!
//! Tests: `tests/foreign.rs`.

use crate::arch::{ExternArg, ExternCall};
use crate::codes;
use crate::context::Lowerer;
use crate::tree::{HeaderTree, Tree};
use base::Span;
use base::diag::Diagnostic;
use ir::{BinOp, Op, Operand, SlotKind, UnOp};
use sema::Type;
use sema::typed::{Direction, InstanceId, InstanceOf};
use std::rc::Rc;

impl Lowerer<'_> {
    /// A call of an extern function that the architecture does not have.
    pub fn foreign_function(&mut self, name: &str, call: &ExternCall<'_>) -> Tree {
        self.cannot_load(call.call.span, &format!("extern function `{name}`"));
        self.foreign_call(name.to_string(), &[], call)
    }

    /// A call of a method of an extern object that the architecture does not have. `object` is its control-plane name.
    pub fn foreign_method(&mut self, extern_name: &str, object: &str, method: &str, call: &ExternCall<'_>) -> Tree {
        self.cannot_load(call.call.span, &format!("extern `{extern_name}` (here its method `{method}`)"));
        self.foreign_call(format!("{extern_name}({object}).{method}"), &[], call)
    }

    /// A call of a method of an element of an array of externs; no supported architecture has such arrays.
    pub fn foreign_element(
        &mut self,
        extern_name: &str,
        object: &str,
        index: &Tree,
        method: &str,
        call: &ExternCall<'_>,
    ) -> Tree {
        self.cannot_load(call.call.span, &format!("an array of `{extern_name}`"));
        self.foreign_call(format!("{extern_name}({object}).{method}"), std::slice::from_ref(index), call)
    }

    /// Extracts or emits a header without a wire format; an extracted one has arbitrary contents. `done` is the verb
    /// for messages, such as "extracted".
    pub fn foreign_header(&mut self, reason: Diagnostic, done: &str, tree: &Tree, ty: &Type) {
        let span = reason.span;
        self.not_loadable(reason);
        let text = self.type_text(ty);
        let callee = format!("{done} `{text}`");
        if done == "extracted" {
            let value = self.call_unresolved(callee, &[], &[ty], span).pop().unwrap_or(Tree::Nothing);
            self.store(tree, &value, None);
        } else {
            self.call_unresolved(callee, std::slice::from_ref(tree), &[], span);
        }
    }

    /// The name of an instance's extern type, and the instance's control-plane name.
    pub fn extern_names(&self, instance: InstanceId) -> (&str, &str) {
        let info = self.p.instance(instance);
        match info.of {
            InstanceOf::Extern(id) => (self.p.extern_name(id), &info.path),
            _ => (&info.name, &info.path),
        }
    }

    fn cannot_load(&mut self, span: Span, what: &str) {
        let message = format!("{what} has no implementation in this switch");
        let file = self.architecture_file;
        let help = format!("the program can be checked, not loaded; what {file} and core.p4 declare can be used");
        self.not_loadable(Diagnostic::error(codes::UNSUPPORTED_EXTERN, span, message).help(help));
    }

    /// Records why the program cannot be loaded, once per position. Does nothing if the package itself is foreign.
    pub fn not_loadable(&mut self, reason: Diagnostic) {
        if !self.package_is_foreign && !self.unloadable.iter().any(|d| d.span == reason.span) {
            self.unloadable.push(reason);
        }
    }

    fn foreign_call(&mut self, callee: String, first: &[Tree], call: &ExternCall<'_>) -> Tree {
        let mut given = first.to_vec();
        let mut wanted = Vec::new();
        for (arg, info) in call.args.iter().zip(&call.call.args) {
            match arg {
                ExternArg::In(tree) => given.push(tree.clone()),
                ExternArg::Out(place) => {
                    if info.direction == Direction::InOut {
                        given.push(self.read(place));
                    }
                    wanted.push((place.clone(), &info.ty));
                }
                ExternArg::Absent => {}
            }
        }
        let mut types: Vec<&Type> = wanted.iter().map(|(_, ty)| *ty).collect();
        types.push(&call.call.result);
        let mut values = self.call_unresolved(callee, &given, &types, call.call.span);
        let result = values.pop().unwrap_or(Tree::Nothing);
        for ((place, _), value) in wanted.iter().zip(&values) {
            self.assign(place, value);
        }
        result
    }

    /// Calls foreign code with the values `given`; returns an arbitrary value of each type in `wanted`.
    pub fn call_unresolved(&mut self, callee: String, given: &[Tree], wanted: &[&Type], span: Span) -> Vec<Tree> {
        let mut args = Vec::new();
        for tree in given {
            tree.for_each_operand(&mut |o| args.push(o.clone()));
        }
        args.retain(|o| self.width(o) > 0);
        let values: Vec<Tree> = wanted.iter().map(|ty| self.allocate("%outside", ty, SlotKind::Temp, span)).collect();
        let results = values.iter().flat_map(Tree::slots).collect();
        self.b.emit(Op::Unresolved { callee, args, results });
        values.iter().map(|tree| self.well_formed(tree)).collect()
    }

    /// Makes a value from foreign code satisfy the IR's invariants.
    fn well_formed(&mut self, tree: &Tree) -> Tree {
        match tree {
            Tree::Nothing | Tree::Leaf(_) => tree.clone(),
            Tree::Varbit { value, length } => self.short_varbit(value, length),
            Tree::Header(h) => self.header_from_outside(h, h.valid.clone()),
            Tree::Union(members) => {
                let mut taken = Self::bit(false);
                let mut made = Vec::with_capacity(members.len());
                for member in members.iter() {
                    let Tree::Header(h) = member else {
                        made.push(member.clone());
                        continue;
                    };
                    let free = self.not(taken.clone());
                    let valid = self.and(h.valid.clone(), free);
                    taken = match &taken {
                        Operand::Const(_) => valid.clone(),
                        Operand::Slot(_) => self.b.bin(BinOp::Or, taken, valid.clone()).into(),
                    };
                    made.push(self.header_from_outside(h, valid));
                }
                Tree::Union(made.into())
            }
            Tree::Struct(children) => Tree::Struct(children.iter().map(|c| self.well_formed(c)).collect()),
            Tree::Stack { elements, next } => {
                let elements: Rc<[Tree]> = elements.iter().map(|c| self.well_formed(c)).collect();
                if let Some(next) = *next {
                    let size = Operand::new_const(32, elements.len() as u128);
                    let over = self.b.bin(BinOp::Ult, size.clone(), next);
                    self.b.emit(Op::Select { dst: next, cond: over.into(), then: size, other: next.into() });
                }
                Tree::Stack { elements, next: *next }
            }
        }
    }

    fn header_from_outside(&mut self, h: &HeaderTree, valid: Operand) -> Tree {
        let fields: Rc<[Tree]> = h.fields.iter().map(|f| self.well_formed(f)).collect();
        let fields = fields.iter().map(|f| {
            let zero = self.zero_like(f);
            self.select(&valid, f, &zero)
        });
        let fields = fields.collect();
        Tree::Header(HeaderTree { id: None, retained: false, valid, fields })
    }

    /// Limits a varbit's length to whole bytes within its type, and clears the bits above the length.
    fn short_varbit(&mut self, value: &Operand, length: &Operand) -> Tree {
        let max = self.width(value);
        let limit = Operand::new_const(32, u128::from(max - max % 8));
        let whole = self.b.bin(BinOp::And, length.clone(), Operand::new_const(32, 0xffff_fff8));
        let over = self.b.bin(BinOp::Ult, limit.clone(), whole);
        let length: Operand = self.b.select(over, limit, whole).into();
        let ones = Operand::Const(base::Bits::ones(max));
        let above = self.b.bin(BinOp::Shl, ones, length.clone());
        let mask = self.b.un(UnOp::Not, above);
        let value = self.b.bin(BinOp::And, value.clone(), mask);
        Tree::Varbit { value: value.into(), length }
    }
}
