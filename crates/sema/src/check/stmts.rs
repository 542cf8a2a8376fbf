//! Statements. Specification: P4_16, chapter "Statements".

use super::case_fit::CaseFit;
use super::{Checker, Place};
use crate::codes;
use crate::scope::Symbol;
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Diagnostic, Span};
use std::collections::HashMap;
use syntax::ast;

impl<'a> Checker<'a> {
    /// Checks a block, in its own scope.
    pub(super) fn block(&mut self, block: &'a ast::Block) -> Block {
        let annotations = self.annotations(&block.annotations);
        self.scopes.push();
        let mut stmts = Vec::with_capacity(block.stmts.len());
        for stmt in &block.stmts {
            self.stmt(stmt, &mut stmts);
        }
        self.scopes.pop();
        Block { annotations, stmts, span: block.span }
    }

    /// Checks a statement and wraps it in a block.
    fn as_block(&mut self, stmt: &'a ast::Stmt) -> Block {
        if let ast::StmtKind::Block(block) = &stmt.kind {
            return self.block(block);
        }
        self.scopes.push();
        let mut stmts = Vec::new();
        self.stmt(stmt, &mut stmts);
        self.scopes.pop();
        Block { annotations: Vec::new(), stmts, span: stmt.span }
    }

    /// Checks one statement and appends it to `out`, unless it does nothing at run time.
    pub(super) fn stmt(&mut self, stmt: &'a ast::Stmt, out: &mut Vec<Stmt>) {
        let span = stmt.span;
        let kind = match &stmt.kind {
            ast::StmtKind::Empty => return,
            ast::StmtKind::Assign { target, op, value } => self.assign(target, *op, value, span),
            ast::StmtKind::Call(call) => self.call_stmt(call),
            ast::StmtKind::Decl(decl) => self.local_decl(decl),
            ast::StmtKind::Block(block) => Some(StmtKind::Block(self.block(block))),
            ast::StmtKind::If { cond, then, otherwise } => {
                let cond = self.condition(cond);
                let then = self.as_block(then);
                let otherwise = otherwise.as_ref().map(|s| self.as_block(s));
                Some(StmtKind::If { cond, then, otherwise })
            }
            ast::StmtKind::Return(value) => self.return_stmt(value.as_ref(), span),
            ast::StmtKind::Exit => {
                if !matches!(self.body.place, Place::Apply | Place::Action) {
                    self.error(codes::WRONG_PLACE_STATEMENT, span, "`exit` can only be used in controls and actions");
                }
                Some(StmtKind::Exit)
            }
            ast::StmtKind::Break | ast::StmtKind::Continue => {
                let is_break = matches!(stmt.kind, ast::StmtKind::Break);
                if self.body.loops == 0 {
                    let word = if is_break { "break" } else { "continue" };
                    self.error(codes::WRONG_PLACE_STATEMENT, span, format!("`{word}` outside of a loop"));
                }
                Some(if is_break { StmtKind::Break } else { StmtKind::Continue })
            }
            ast::StmtKind::Switch { subject, cases } => self.switch(subject, cases),
            ast::StmtKind::For(f) => Some(self.for_stmt(f)),
            ast::StmtKind::ForIn(f) => self.for_in(f),
        };
        if let Some(kind) = kind {
            out.push(Stmt { kind, span });
        }
    }

    fn condition(&mut self, e: &'a ast::Expr) -> Expr {
        self.expr_as(e, &Type::Bool)
    }

    fn assign(
        &mut self,
        target: &'a ast::Expr,
        op: Option<ast::BinaryOp>,
        value: &'a ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        let target = self.expr(target, None);
        if target.ty.is_unknown() {
            self.expr(value, Some(&Type::Unknown));
            return None;
        }
        let writable = self.check_lvalue(&target);
        let ty = target.ty.clone();
        let Some(op) = op else {
            let before = self.diags.len();
            let value = self.expr_as(value, &ty);
            self.note_origin(before, self.declared_at_place(&target), "it is assigned to this");
            return writable.then_some(StmtKind::Assign { target, op: None, value });
        };
        // Checked as `target op value`; only the converted right operand is kept.
        let hint = if matches!(op, BinaryOp::Shl | BinaryOp::Shr | BinaryOp::Concat) { None } else { Some(&ty) };
        let value = self.expr(value, hint);
        let result = self.binary_typed(op, target.clone(), value, span);
        if result.ty.is_unknown() || !writable {
            return None;
        }
        let result = self.coerce(result, &ty);
        match result.kind {
            ExprKind::Binary(_, left, right)
                if matches!(left.kind, ExprKind::Cast(_)) == matches!(target.kind, ExprKind::Cast(_)) =>
            {
                Some(StmtKind::Assign { target, op: Some(op), value: *right })
            }
            kind => Some(StmtKind::Assign { target, op: None, value: Expr { kind, ty, span } }),
        }
    }

    /// The span of the declaration of the variable or field that an l-value denotes.
    fn declared_at_place(&self, e: &Expr) -> Span {
        match &e.kind {
            ExprKind::Local(id) => self.body.frame.locals[id.index()].span,
            ExprKind::Field(base, index) => match &base.ty {
                Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                    let fields = &self.prog.types.structs[id.index()].fields;
                    fields.get(*index as usize).map_or(Span::NONE, |f| f.span)
                }
                _ => Span::NONE,
            },
            _ => Span::NONE,
        }
    }

    fn call_stmt(&mut self, call: &'a ast::Expr) -> Option<StmtKind> {
        let e = self.expr(call, None);
        match e.kind {
            ExprKind::Call(call) => Some(StmtKind::Call(*call)),
            ExprKind::Instance(_) => {
                self.report(
                    Diagnostic::error(codes::UNUSED_INSTANCE, call.span, "this instance cannot be used")
                        .help("give it a name: T(arguments) name;"),
                );
                None
            }
            _ => None,
        }
    }

    /// Checks a variable declaration; the variable is in scope afterwards.
    pub(super) fn variable(&mut self, decl: &'a ast::Decl, v: &'a ast::VariableDecl) -> Stmt {
        let ty = self.resolve_type(&v.ty);
        self.check_variable_type(&ty, v.ty.span);
        let init = v.init.as_ref().map(|e| self.expr_as(e, &ty));
        let annotations = self.annotations(&decl.annotations);
        let local = self.new_local(&decl.name, ty, LocalKind::Variable, annotations);
        Stmt { kind: StmtKind::Var { local, init }, span: decl.span }
    }

    fn local_decl(&mut self, decl: &'a ast::Decl) -> Option<StmtKind> {
        match &decl.kind {
            ast::DeclKind::Const(c) => {
                self.const_decl(decl, c);
                None
            }
            ast::DeclKind::Variable(v) => Some(self.variable(decl, v).kind),
            ast::DeclKind::Instantiation(inst) => {
                if matches!(self.body.place, Place::Apply | Place::ParserState) {
                    self.report(
                        Diagnostic::error(
                            codes::INSTANCE_PLACE,
                            decl.name.span,
                            "instances cannot be declared among statements",
                        )
                        .help("declare it before `apply`, or before the parser's states"),
                    );
                    self.check_stray(&inst.args);
                    self.declare(&decl.name, Symbol::Broken);
                } else {
                    self.instantiation(decl, inst);
                }
                None
            }
            _ => {
                let message = format!("a {} cannot be declared in a block", decl.kind.noun());
                self.error(syntax::codes::MISPLACED, decl.span, message);
                None
            }
        }
    }

    fn return_stmt(&mut self, value: Option<&'a ast::Expr>, span: Span) -> Option<StmtKind> {
        if self.body.place == Place::ParserState {
            self.report(
                Diagnostic::error(codes::WRONG_PLACE_STATEMENT, span, "`return` cannot be used in a parser")
                    .help("use a transition"),
            );
            return None;
        }
        let result = self.body.result.clone().unwrap_or(Type::Void);
        let value = match (value, result) {
            (None, Type::Void | Type::Unknown) => None,
            (None, ty) => {
                let message = format!("a value of type `{}` must be returned", self.show(&ty));
                self.error(codes::BAD_RETURN, span, message);
                None
            }
            (Some(value), Type::Void) => {
                self.expr(value, None);
                self.error(codes::BAD_RETURN, value.span, "nothing is returned here: there is no result type");
                None
            }
            (Some(value), ty) => Some(self.expr_as(value, &ty)),
        };
        Some(StmtKind::Return(value))
    }

    // -------------------------------------------------------------------------------------------- switch

    fn switch(&mut self, subject: &'a ast::Expr, cases: &'a [ast::SwitchCase]) -> Option<StmtKind> {
        let subject = self.expr(subject, None);
        self.check_default_last(cases);
        if let Type::ActionEnum(table) = subject.ty {
            let ExprKind::Call(call) = subject.kind else { return None };
            return Some(self.switch_action(table, *call, cases));
        }
        let ok = matches!(
            subject.ty,
            Type::Bits { .. }
                | Type::Enum(_)
                | Type::SerEnum(_)
                | Type::Error
                | Type::Int
                | Type::Bool
                | Type::Newtype(_)
                | Type::Unknown
        );
        if !ok {
            let message = format!("`switch` does not accept values of type `{}`", self.show(&subject.ty));
            self.error(codes::BAD_SWITCH, subject.span, message);
            return None;
        }
        if subject.ty.is_unknown() {
            // The labels may be enum members or actions of the unknown subject, so only the bodies are checked.
            cases.iter().filter_map(|c| c.body.as_ref()).for_each(|body| _ = self.block(body));
            return None;
        }
        let ty = subject.ty.clone();
        let mut result: Vec<ValueCase> = Vec::new();
        let mut open: Option<ValueCase> = None;
        let mut seen: HashMap<Value, Span> = HashMap::new();
        let mut fit = CaseFit::default();
        for case in cases {
            let group = open.get_or_insert_with(|| ValueCase {
                values: Vec::new(),
                default: false,
                body: Block::default(),
                span: case.span,
            });
            match &case.label {
                ast::SwitchLabel::Default(_) => group.default = true,
                ast::SwitchLabel::Expr(label) => {
                    let before = self.diags.len();
                    let value = self.switch_value(label, &ty);
                    fit.add(&self.diags, before);
                    if let Some(value) = value {
                        if let Some(first) = seen.get(&value) {
                            self.report(
                                Diagnostic::error(codes::CASE_TWICE, label.span, "this value has a case already")
                                    .note(*first, "the first one"),
                            );
                        } else {
                            seen.insert(value.clone(), label.span);
                            group.values.push(value);
                        }
                    }
                }
            }
            if let Some(body) = &case.body {
                let body = self.block(body);
                if let Some(mut group) = open.take() {
                    group.body = body;
                    result.push(group);
                }
            }
        }
        result.extend(open);
        let message = format!("no case matches the type of the `switch` expression, `{}`", self.show(&ty));
        let one = fit.none_fits(&mut self.diags, subject.span, &message);
        self.diags.extend(one);
        Some(StmtKind::Switch { subject, cases: result })
    }

    fn switch_value(&mut self, label: &'a ast::Expr, ty: &Type) -> Option<Value> {
        // Members of the subject's enum may be written without the enum's name.
        if let (ast::ExprKind::Path(path), Type::Enum(id) | Type::SerEnum(id)) = (&label.kind, ty)
            && self.scopes.lookup(&path.name.text).is_none()
        {
            let info = &self.prog.types.enums[id.index()];
            if let Some(i) = info.members.iter().position(|m| m.name == path.name.text) {
                return Some(info.members[i].value.clone().unwrap_or(Value::Enum(i as u32)));
            }
        }
        let value = self.expr(label, Some(ty));
        let value = self.coerce(value, ty);
        if value.ty.is_unknown() {
            return None;
        }
        match value.kind {
            ExprKind::Const(value) => Some(value),
            _ => {
                self.error(codes::NOT_CONSTANT, label.span, "a case must be known at compile time");
                None
            }
        }
    }

    fn check_default_last(&mut self, cases: &[ast::SwitchCase]) {
        let mut first: Option<Span> = None;
        for (i, case) in cases.iter().enumerate() {
            let ast::SwitchLabel::Default(span) = case.label else { continue };
            match first {
                Some(first) => {
                    self.report(
                        Diagnostic::error(codes::DEFAULT_CASE, span, "there are two `default` cases")
                            .note(first, "the first one"),
                    );
                }
                None if i + 1 != cases.len() => {
                    self.report(
                        Diagnostic::error(codes::DEFAULT_CASE, span, "`default` must be the last case")
                            .help("move it to the end"),
                    );
                }
                None => {}
            }
            first.get_or_insert(span);
        }
    }

    fn switch_action(&mut self, table: TableId, apply: Call, cases: &'a [ast::SwitchCase]) -> StmtKind {
        let mut result: Vec<ActionCase> = Vec::new();
        let mut open: Option<ActionCase> = None;
        let mut seen: HashMap<u32, Span> = HashMap::new();
        for case in cases {
            let group = open.get_or_insert_with(|| ActionCase {
                actions: Vec::new(),
                default: false,
                body: Block::default(),
                span: case.span,
            });
            match &case.label {
                ast::SwitchLabel::Default(_) => group.default = true,
                ast::SwitchLabel::Expr(label) => {
                    if let Some(index) = self.action_label(table, label) {
                        if let Some(first) = seen.get(&index) {
                            self.report(
                                Diagnostic::error(codes::CASE_TWICE, label.span, "this action has a case already")
                                    .note(*first, "the first one"),
                            );
                        } else {
                            seen.insert(index, label.span);
                            group.actions.push(index);
                        }
                    }
                }
            }
            if let Some(body) = &case.body {
                let body = self.block(body);
                if let Some(mut group) = open.take() {
                    group.body = body;
                    result.push(group);
                }
            }
        }
        result.extend(open);
        StmtKind::SwitchAction { apply, table, cases: result }
    }

    /// The position of the labelled action in the table's action list.
    fn action_label(&mut self, table: TableId, label: &'a ast::Expr) -> Option<u32> {
        let ast::ExprKind::Path(path) = &label.kind else {
            self.error(codes::CASE_NOT_ACTION, label.span, "a case of `action_run` is the name of an action");
            return None;
        };
        let entry = self.lookup(path)?;
        let actions = &self.prog.tables[table.index()].actions;
        let index = match entry.symbol {
            Symbol::Action(id) => actions.iter().position(|a| a.action == id),
            Symbol::Broken => return None,
            _ => None,
        };
        if index.is_none() && !self.broken_tables.contains(&table) {
            let names: Vec<String> =
                actions.iter().map(|a| self.prog.actions[a.action.index()].name.to_string()).collect();
            let message = format!("`{path}` is not an action of table `{}`", self.prog.tables[table.index()].name);
            self.unknown_name(codes::CASE_NOT_ACTION, &path.name, message, names.iter().map(|s| s.as_str()));
        }
        index.map(|i| i as u32)
    }

    // -------------------------------------------------------------------------------------------- loops

    fn for_stmt(&mut self, f: &'a ast::ForStmt) -> StmtKind {
        let annotations = self.annotations(&f.annotations);
        self.scopes.push();
        let mut init = Vec::new();
        for stmt in &f.init {
            self.stmt(stmt, &mut init);
        }
        let cond = self.condition(&f.cond);
        let mut update = Vec::new();
        for stmt in &f.update {
            self.stmt(stmt, &mut update);
        }
        self.body.loops += 1;
        let body = self.as_block(&f.body);
        self.body.loops -= 1;
        self.scopes.pop();
        StmtKind::For { init, cond, update, body, annotations }
    }

    fn for_in(&mut self, f: &'a ast::ForInStmt) -> Option<StmtKind> {
        let annotations = self.annotations(&f.annotations);
        let ast::DeclKind::Variable(v) = &f.variable.kind else { return None };
        let ty = self.resolve_type(&v.ty);
        self.check_variable_type(&ty, v.ty.span);
        let collection = match &f.collection {
            ast::ForCollection::Range(low, high) => {
                let low = self.expr_as(low, &ty);
                let high = self.expr_as(high, &ty);
                if !matches!(self.prog.types.underlying(&ty), Type::Bits { .. } | Type::Unknown) {
                    let message = format!("a range counts with `bit<W>` or `int<W>`, not `{}`", self.show(&ty));
                    self.error(codes::BAD_LOOP, v.ty.span, message);
                }
                ForCollection::Range(low, high)
            }
            ast::ForCollection::Expr(e) => ForCollection::Elements(self.for_elements(e, &ty)),
        };
        self.scopes.push();
        let var_annotations = self.annotations(&f.variable.annotations);
        let variable = self.new_local(&f.variable.name, ty, LocalKind::Variable, var_annotations);
        self.body.loops += 1;
        let body = self.as_block(&f.body);
        self.body.loops -= 1;
        self.scopes.pop();
        Some(StmtKind::ForIn { variable, collection, body, annotations })
    }

    fn for_elements(&mut self, e: &'a ast::Expr, ty: &Type) -> Expr {
        let list = Type::List(std::sync::Arc::new(ty.clone()));
        let hint = matches!(e.kind, ast::ExprKind::List(_)).then_some(&list);
        let elements = self.expr(e, hint);
        let ok = match &elements.ty {
            Type::List(element) | Type::Stack(element, _) => **element == *ty || ty.is_unknown(),
            Type::Tuple(types) => types.iter().all(|t| t == ty),
            Type::Unknown => true,
            _ => false,
        };
        if !ok {
            let message = format!("`{}` is not a list or array of `{}`", self.show(&elements.ty), self.show(ty));
            self.error(codes::BAD_LOOP, elements.span, message);
        }
        elements
    }
}

/// Whether every path through a block returns.
pub(crate) fn always_returns(block: &Block) -> bool {
    block.stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Return(_) | StmtKind::Exit => true,
        StmtKind::Block(b) => always_returns(b),
        StmtKind::If { cond, then, otherwise } => match cond.as_const() {
            Some(Value::Bool(true)) => always_returns(then),
            _ => always_returns(then) && otherwise.as_ref().is_some_and(always_returns),
        },
        StmtKind::Switch { cases, .. } => {
            cases.iter().any(|c| c.default) && cases.iter().all(|c| always_returns(&c.body))
        }
        StmtKind::SwitchAction { cases, .. } => {
            cases.iter().any(|c| c.default) && cases.iter().all(|c| always_returns(&c.body))
        }
        _ => false,
    })
}
