//! Names in statements, tables and parser states.

use super::Resolver;
use super::properties::PROPERTIES;
use crate::index::{DefKind, Site, Ty};
use syntax::ast::{
    ActionRef, Block, ExprKind, ForCollection, Keyset, KeysetKind, Name, State, Stmt, StmtKind, SwitchLabel, TableDecl,
    TablePropertyKind, TransitionKind,
};

impl Resolver<'_> {
    pub(super) fn block(&mut self, block: &Block) {
        self.annotations(&block.annotations);
        self.open_scope();
        self.stmts(&block.stmts);
        self.close_scope();
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        stmts.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Empty | StmtKind::Exit | StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
            StmtKind::Assign { target, value, .. } => {
                let target = self.expr(target);
                self.expr_as(value, &target);
            }
            StmtKind::Call(expr) | StmtKind::Return(Some(expr)) => {
                self.expr(expr);
            }
            StmtKind::Decl(decl) => self.decl(decl),
            StmtKind::Block(block) => self.block(block),
            StmtKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.stmt(then);
                if let Some(otherwise) = otherwise {
                    self.stmt(otherwise);
                }
            }
            StmtKind::Switch { subject, cases } => {
                let subject = self.expr(subject);
                for case in cases {
                    match &case.label {
                        SwitchLabel::Default(_) => {}
                        SwitchLabel::Expr(label) => {
                            let is_action = matches!(subject, Ty::ActionRun(_));
                            let scope = self.scope();
                            match &label.kind {
                                ExprKind::Path(path)
                                    if is_action && self.note_site(&path.name, |_| Site::Action(scope)) => {}
                                _ => {
                                    self.expr(label);
                                }
                            }
                        }
                    }
                    if let Some(body) = &case.body {
                        self.block(body);
                    }
                }
            }
            StmtKind::For(f) => {
                self.annotations(&f.annotations);
                self.open_scope();
                self.stmts(&f.init);
                self.expr(&f.cond);
                self.stmts(&f.update);
                self.stmt(&f.body);
                self.close_scope();
            }
            StmtKind::ForIn(f) => {
                self.annotations(&f.annotations);
                match &f.collection {
                    ForCollection::Expr(expr) => {
                        self.expr(expr);
                    }
                    ForCollection::Range(low, high) => {
                        self.expr(low);
                        self.expr(high);
                    }
                }
                self.open_scope();
                self.decl(&f.variable);
                self.stmt(&f.body);
                self.close_scope();
            }
        }
    }

    // ---------------------------------------------------------------------------------------------------- tables

    pub(super) fn table(&mut self, table: &TableDecl) {
        for property in &table.properties {
            self.annotations(&property.annotations);
            if self.note_site(&property.name, |_| Site::Property) {
                continue;
            }
            if let Some((_, text, about)) = PROPERTIES.iter().find(|(name, ..)| property.name == **name) {
                self.index.builtins.push((property.name.span, text, about));
            }
            match &property.kind {
                TablePropertyKind::Key(elements) => {
                    for element in elements {
                        self.expr(&element.expr);
                        self.annotations(&element.annotations);
                        self.match_kind(&element.match_kind);
                    }
                }
                TablePropertyKind::Actions(actions) => actions.iter().for_each(|a| self.action_ref(a)),
                TablePropertyKind::Entries(entries) => {
                    for entry in entries {
                        if let Some(priority) = &entry.priority {
                            self.expr(priority);
                        }
                        self.keyset(&entry.keyset);
                        self.action_ref(&entry.action);
                        self.annotations(&entry.annotations);
                    }
                }
                TablePropertyKind::Value(value) => {
                    let scope = self.scope();
                    match &value.kind {
                        ExprKind::Path(path)
                            if property.name == "default_action"
                                && self.note_site(&path.name, |_| Site::Action(scope)) => {}
                        _ => {
                            self.expr(value);
                        }
                    }
                }
            }
        }
    }

    fn match_kind(&mut self, name: &Name) {
        if self.note_site(name, |_| Site::MatchKind) {
            return;
        }
        let known = self.index.match_kinds.iter().copied().find(|id| self.index.def(*id).name == name.text);
        if let Some(id) = known {
            self.note_use(name.span, id);
        }
    }

    fn action_ref(&mut self, action: &ActionRef) {
        self.annotations(&action.annotations);
        let scope = self.scope();
        if self.note_site(&action.path.name, |_| Site::Action(scope)) {
            return;
        }
        let found = self.find(&action.path.name.text, action.path.global);
        if let Some(id) = found.first() {
            self.note_use(action.path.name.span, *id);
        }
        self.arguments(action.args.as_deref().unwrap_or_default(), &found);
    }

    pub(super) fn keyset(&mut self, keyset: &Keyset) {
        for element in &keyset.elements {
            match &element.kind {
                KeysetKind::Default | KeysetKind::DontCare => {}
                KeysetKind::Expr(expr) => {
                    self.expr(expr);
                }
                KeysetKind::Mask(left, right) | KeysetKind::Range(left, right) => {
                    self.expr(left);
                    self.expr(right);
                }
            }
        }
    }

    // ---------------------------------------------------------------------------------------------------- states

    /// Parser states: all are declared before their bodies are resolved, since states can refer to later ones.
    pub(super) fn states(&mut self, states: &[State]) {
        for state in states {
            let id = self.add(&state.name, DefKind::State, state.span, &state.annotations);
            self.show(id);
        }
        for state in states {
            let Some(id) = self.state(&state.name) else { continue };
            self.within(id, |this| {
                this.stmts(&state.body);
                match state.transition.as_ref().map(|t| &t.kind) {
                    None => {}
                    Some(TransitionKind::Direct(next)) => this.next_state(next),
                    Some(TransitionKind::Select(select)) => {
                        for arg in &select.args {
                            this.expr(arg);
                        }
                        for case in &select.cases {
                            this.keyset(&case.keyset);
                            this.next_state(&case.next);
                        }
                    }
                }
            });
        }
    }

    fn state(&self, name: &Name) -> Option<crate::index::DefId> {
        self.find(&name.text, false).into_iter().find(|id| self.index.def(*id).kind == DefKind::State)
    }

    fn next_state(&mut self, name: &Name) {
        let scope = self.scope();
        if self.note_site(name, |_| Site::State(scope)) {
            return;
        }
        if let Some(id) = self.state(name) {
            self.note_use(name.span, id);
        } else if let Some(about) = match &*name.text {
            "accept" => Some("Ends parsing; the packet goes on to the next block."),
            "reject" => Some("Ends parsing with an error."),
            _ => None,
        } {
            let text = if &*name.text == "accept" { "state accept" } else { "state reject" };
            self.index.builtins.push((name.span, text, about));
        }
    }
}
