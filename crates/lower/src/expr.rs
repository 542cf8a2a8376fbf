//! Expressions: operators, conversions, comparisons, conditions.
//!
//! **Order.** Operands are evaluated left to right. The value of an earlier operand is frozen (copied) if a later
//! operand has side effects. `&&`, `||` and `?:` become branches if the conditionally evaluated side has side effects,
//! and plain operations otherwise.
//!
//! **Comparison** of headers is a comparison of all bits, including validity: the fields of invalid headers are zero.
//! If they are kept, `retained.rs` compares.
//!
//! Specification: P4_16, chapter "Expressions".

use crate::codes;
use crate::context::{Facts, Join, Lowerer};
use crate::tree::{HeaderTree, Tree};
use crate::visit::is_pure;
use ir::{BinOp, CastKind, Operand, SlotId, UnOp};
use sema::Type;
use sema::consteval::is_signed;
use sema::typed::{BinaryOp, Builtin, Callee, Expr, ExprKind, UnaryOp};

impl Lowerer<'_> {
    /// Evaluates an expression. The result may refer to slots of variables: freeze it before these are written.
    pub fn eval(&mut self, e: &Expr) -> Tree {
        if self.step(e.span) {
            return Tree::Nothing;
        }
        if e.ty == Type::Int || matches!(e.kind, ExprKind::CtorParam(_)) {
            return match self.constant(e) {
                Some(value) => self.value_tree(&value, &e.ty),
                None => {
                    self.refuse(codes::NOT_CONSTANT, e.span, "the value is not known at compile time");
                    self.zero(&e.ty)
                }
            };
        }
        match &e.kind {
            ExprKind::Const(value) => self.value_tree(value, &e.ty),
            ExprKind::Local(_)
            | ExprKind::Field(..)
            | ExprKind::TupleElement(..)
            | ExprKind::StackElement { .. }
            | ExprKind::StackNext(_)
            | ExprKind::StackLast(_)
            | ExprKind::Slice { .. }
            | ExprKind::SliceFrom { .. } => {
                let place = self.place(e);
                self.read(&place)
            }
            ExprKind::CtorParam(_) | ExprKind::Instance(_) => Tree::Nothing,
            ExprKind::StackLastIndex(stack) => match self.parser_stack(stack, e.span) {
                Some((_, next)) => self.b.bin(BinOp::Sub, next, Operand::new_const(32, 1)).into(),
                None => self.zero(&e.ty),
            },
            ExprKind::Unary(op, a) => self.unary(*op, a),
            ExprKind::Binary(op, a, b) => self.binary_expr(*op, a, b),
            ExprKind::Ternary { cond, then, otherwise } => self.ternary(cond, then, otherwise, &e.ty),
            ExprKind::Cast(a) => self.cast(a, &e.ty),
            ExprKind::Aggregate(children) => {
                let children: Vec<&Expr> = children.iter().collect();
                let children = self.eval_all(&children);
                self.aggregate(children, &e.ty)
            }
            ExprKind::Call(call) => self.call(call),
            ExprKind::ApplyHit(call) => self.apply_hit(call).into(),
            ExprKind::ApplyMiss(call) => {
                let hit = self.apply_hit(call);
                self.not(hit).into()
            }
            ExprKind::This => {
                self.refuse(codes::UNSUPPORTED_EXPRESSION, e.span, "`this` is not supported");
                Tree::Nothing
            }
        }
    }

    /// Evaluates several expressions in order; values are frozen if a later expression has side effects.
    pub fn eval_all(&mut self, exprs: &[&Expr]) -> Vec<Tree> {
        let last_effect = exprs.iter().rposition(|e| !is_pure(e)).unwrap_or(0);
        let mut values = Vec::with_capacity(exprs.len());
        for (i, e) in exprs.iter().enumerate() {
            let value = self.eval(e);
            values.push(if i < last_effect { self.freeze(&value) } else { value });
        }
        values
    }

    fn aggregate(&mut self, children: Vec<Tree>, ty: &Type) -> Tree {
        match self.p.types.underlying(ty) {
            Type::Header(_) => Tree::Header(HeaderTree::of_values(children.into())),
            Type::HeaderUnion(_) => Tree::Union(children.into()),
            Type::Stack(..) => Tree::Stack { elements: children.into(), next: None },
            _ => Tree::Struct(children.into()),
        }
    }

    fn unary(&mut self, op: UnaryOp, a: &Expr) -> Tree {
        let value = self.eval(a).operand();
        match op {
            _ if self.width(&value) == 0 => value.into(),
            UnaryOp::Plus => value.into(),
            UnaryOp::Neg => self.b.un(UnOp::Neg, value).into(),
            UnaryOp::BitNot => self.b.un(UnOp::Not, value).into(),
            UnaryOp::Not => self.not(value).into(),
        }
    }

    fn binary_expr(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Tree {
        if matches!(op, BinaryOp::And | BinaryOp::Or) {
            return self.logical(op, a, b).into();
        }
        let values = self.eval_all(&[a, b]);
        match op {
            BinaryOp::Eq => self.equal(&values[0], &values[1]).into(),
            BinaryOp::Ne => {
                let (a, b) = (&values[0], &values[1]);
                if a.is_leaf() && b.is_leaf() && self.width(&a.operand()) > 0 {
                    return self.b.bin(BinOp::Ne, a.operand(), b.operand()).into();
                }
                let equal = self.equal(a, b);
                self.not(equal).into()
            }
            _ => {
                let signed = is_signed(&self.p.types, &a.ty);
                self.binary(op, signed, values[0].operand(), values[1].operand()).into()
            }
        }
    }

    /// A binary operation on two scalar values.
    pub fn binary(&mut self, op: BinaryOp, signed: bool, a: Operand, b: Operand) -> Operand {
        use BinaryOp as P4;
        let choose = |u: BinOp, s: BinOp| if signed { s } else { u };
        let (op, a, b) = match op {
            P4::Concat if self.width(&a) == 0 => return b,
            P4::Concat if self.width(&b) == 0 => return a,
            // `bit<0>` has one value.
            P4::Lt | P4::Gt | P4::Ne if self.width(&a) == 0 => return Self::bit(false),
            P4::Le | P4::Ge | P4::Eq if self.width(&a) == 0 => return Self::bit(true),
            _ if self.width(&a) == 0 => return a,
            P4::Mul => (BinOp::Mul, a, b),
            P4::Div => (BinOp::Div, a, b),
            P4::Mod => (BinOp::Mod, a, b),
            P4::Add => (BinOp::Add, a, b),
            P4::Sub => (BinOp::Sub, a, b),
            P4::AddSat => (choose(BinOp::SatAddU, BinOp::SatAddS), a, b),
            P4::SubSat => (choose(BinOp::SatSubU, BinOp::SatSubS), a, b),
            P4::Shl | P4::Shr if self.width(&b) == 0 => return a,
            P4::Concat => return self.b.concat(a, b).into(),
            P4::Shl => (BinOp::Shl, a, b),
            P4::Shr => (choose(BinOp::Lshr, BinOp::Ashr), a, b),
            P4::BitAnd | P4::And => (BinOp::And, a, b),
            P4::BitXor => (BinOp::Xor, a, b),
            P4::BitOr | P4::Or => (BinOp::Or, a, b),
            P4::Lt => (choose(BinOp::Ult, BinOp::Slt), a, b),
            P4::Le => (choose(BinOp::Ule, BinOp::Sle), a, b),
            P4::Gt => (choose(BinOp::Ult, BinOp::Slt), b, a),
            P4::Ge => (choose(BinOp::Ule, BinOp::Sle), b, a),
            P4::Eq => (BinOp::Eq, a, b),
            P4::Ne => (BinOp::Ne, a, b),
        };
        self.b.bin(op, a, b).into()
    }

    /// One bit: whether two values of the same shape are equal.
    pub fn equal(&mut self, a: &Tree, b: &Tree) -> Operand {
        if self.retained.is_some() {
            return self.equal_where_fields_are_kept(a, b);
        }
        let collect = |t: &Tree| {
            let mut operands = Vec::new();
            comparable(t, &mut operands);
            operands
        };
        let mut result = Self::bit(true);
        for (a, b) in collect(a).into_iter().zip(collect(b)) {
            if self.is_too_large() {
                break;
            }
            let equal = match (&a, &b) {
                (Operand::Const(x), Operand::Const(y)) => Self::bit(x == y),
                _ if a == b => continue,
                _ => self.b.bin(BinOp::Eq, a, b).into(),
            };
            result = self.and(result, equal);
        }
        result
    }

    fn logical(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Operand {
        if is_pure(b) {
            let values = self.eval_all(&[a, b]);
            return self.binary(op, false, values[0].operand(), values[1].operand());
        }
        // The result is that of the left side, unless the right side is evaluated.
        let left = self.eval(a).operand();
        let result = self.b.temp(1);
        self.b.mov(result, left);
        let (decide, done) = (self.new_join(""), self.new_join(""));
        let facts = self.facts.clone();
        let (decide_block, done_block) = (self.join_block(decide, &facts), self.join_block(done, &facts));
        match op {
            BinaryOp::And => self.b.branch(result, decide_block, done_block),
            _ => self.b.branch(result, done_block, decide_block),
        }
        self.enter(decide);
        let right = self.eval(b).operand();
        self.b.mov(result, right);
        self.continue_at(done);
        result.into()
    }

    fn ternary(&mut self, cond: &Expr, then: &Expr, otherwise: &Expr, ty: &Type) -> Tree {
        if is_pure(then) && is_pure(otherwise) {
            let values = self.eval_all(&[cond, then, otherwise]);
            return self.select(&values[0].operand(), &values[1], &values[2]);
        }
        let result = self.allocate("", ty, ir::SlotKind::Temp, cond.span);
        let (yes, no, done) = (self.new_join(""), self.new_join(""), self.new_join(""));
        self.condition(cond, yes, no);
        for (join, value) in [(yes, then), (no, otherwise)] {
            if self.is_used(join) {
                self.enter(join);
                let value = self.eval(value);
                self.store(&result, &value, None);
                self.to(done);
            }
        }
        self.continue_at(done);
        result
    }

    fn cast(&mut self, a: &Expr, ty: &Type) -> Tree {
        let value = self.eval(a);
        let Some(width) = self.scalar_width(ty) else { return self.reshape(value, ty) };
        let value = value.operand();
        let from = self.width(&value);
        let signed = a.ty == Type::Int || is_signed(&self.p.types, &a.ty);
        match &value {
            _ if from == width => value.into(),
            Operand::Const(c) => if signed { c.resize_s(width) } else { c.resize_u(width) }.into_tree(),
            _ if from == 0 || width == 0 => Tree::constant(width, 0),
            _ if from > width => self.b.cast(CastKind::Trunc, width, value).into(),
            _ => self.b.cast(if signed { CastKind::Sext } else { CastKind::Zext }, width, value).into(),
        }
    }

    /// Converts a value between compound types with the same fields, such as a tuple to a struct or header.
    fn reshape(&mut self, value: Tree, ty: &Type) -> Tree {
        match (&value, self.p.types.underlying(ty)) {
            (Tree::Struct(_), Type::Header(_) | Type::Stack(..)) => self.aggregate(value.children().to_vec(), ty),
            (Tree::Header(h), Type::Struct(_) | Type::Tuple(_)) => Tree::Struct(h.fields.clone()),
            _ => value,
        }
    }

    /// Evaluates a condition and jumps to `yes` or `no`.
    pub fn condition(&mut self, e: &Expr, yes: Join, no: Join) {
        match &e.kind {
            ExprKind::Unary(UnaryOp::Not, a) => self.condition(a, no, yes),
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) if !is_pure(b) => {
                let more = self.new_join("");
                match op {
                    BinaryOp::And => self.condition(a, more, no),
                    _ => self.condition(a, yes, more),
                }
                if self.is_used(more) {
                    self.enter(more);
                    self.condition(b, yes, no);
                }
            }
            _ => {
                let saved = self.b.set_span(e.span);
                let cond = self.eval(e).operand();
                match &cond {
                    Operand::Const(c) => self.to(if c.is_true() { yes } else { no }),
                    Operand::Slot(_) => {
                        let facts = |cx: &mut Self, truth| {
                            let mut facts = cx.facts.clone();
                            cx.valid_if(e, truth, &mut facts);
                            facts
                        };
                        let (facts_yes, facts_no) = (facts(self, true), facts(self, false));
                        let yes = self.join_block(yes, &facts_yes);
                        let no = self.join_block(no, &facts_no);
                        self.b.branch(cond, yes, no);
                    }
                }
                self.b.set_span(saved);
            }
        }
    }

    /// Adds the headers that must be valid if a condition evaluates to `truth`.
    pub fn valid_if(&mut self, e: &Expr, truth: bool, facts: &mut Facts) {
        match &e.kind {
            ExprKind::Unary(UnaryOp::Not, a) => self.valid_if(a, !truth, facts),
            ExprKind::Binary(op, a, b) if (*op == BinaryOp::And && truth) || (*op == BinaryOp::Or && !truth) => {
                self.valid_if(a, truth, facts);
                self.valid_if(b, truth, facts);
            }
            ExprKind::Call(call) if truth => {
                if let Callee::Builtin(Builtin::IsValid, object) = &call.callee
                    && let Some(Tree::Header(h)) = self.static_tree(object)
                {
                    facts.extend(h.valid.slot());
                }
            }
            _ => {}
        }
    }

    /// The storage of a path of fields and constant indices; `None` for other expressions.
    fn static_tree(&mut self, e: &Expr) -> Option<Tree> {
        match &e.kind {
            ExprKind::Local(local) => match self.local(*local) {
                crate::context::Binding::Tree(tree) => Some(tree),
                _ => None,
            },
            ExprKind::Field(base, i) | ExprKind::TupleElement(base, i) => {
                Some(self.static_tree(base)?.child(*i as usize))
            }
            ExprKind::StackElement { stack, index } => {
                let index = self.constant(index)?.to_u64()?;
                Some(self.static_tree(stack)?.child(usize::try_from(index).ok()?))
            }
            _ => None,
        }
    }

    /// The slot of an operand, for operations that need a slot; a constant is moved to a temporary.
    pub fn as_slot(&mut self, o: &Operand) -> SlotId {
        match o {
            Operand::Slot(slot) => *slot,
            Operand::Const(_) => {
                let temp = self.b.temp(self.width(o).max(1));
                self.b.mov(temp, o);
                temp
            }
        }
    }
}

/// Collects the operands that decide equality: all except `nextIndex`.
fn comparable(t: &Tree, out: &mut Vec<Operand>) {
    match t {
        Tree::Stack { elements, .. } => elements.iter().for_each(|e| comparable(e, out)),
        Tree::Struct(c) | Tree::Union(c) => c.iter().for_each(|e| comparable(e, out)),
        Tree::Header(h) => {
            out.push(h.valid.clone());
            h.fields.iter().for_each(|e| comparable(e, out));
        }
        Tree::Nothing | Tree::Leaf(_) | Tree::Varbit { .. } => t.for_each_operand(&mut |o| out.push(o.clone())),
    }
}

/// Conversion at the end of match arms.
trait IntoTree {
    fn into_tree(self) -> Tree;
}

impl IntoTree for base::Bits {
    fn into_tree(self) -> Tree {
        Tree::Leaf(self.into())
    }
}
