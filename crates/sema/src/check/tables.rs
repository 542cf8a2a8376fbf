//! Tables: keys, actions, default action, entries, further properties.
//!
//! Specification: P4_16, "Tables". The directed arguments of an action are bound in the table's action list; its other
//! parameters, the action data, get their values from entries. In `default_action` and entries a call gives the action
//! data, optionally preceded by the directed arguments again.

use super::expr::constant;
use super::generics::Subst;
use super::instances::NewInstance;
use super::{Checker, Place, Sig};
use crate::codes;
use crate::scope::Symbol;
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Bits, Diagnostic, Span};
use std::collections::HashMap;
use syntax::ast;

impl<'a> Checker<'a> {
    /// Checks a table and declares its name.
    pub(super) fn table(&mut self, decl: &'a ast::Decl, table: &'a ast::TableDecl, owner: ControlId) -> TableId {
        let annotations = self.annotations(&decl.annotations);
        let control_name = self.control_name(&decl.name.text, &annotations);
        let id = TableId::from_index(self.prog.tables.len());
        self.prog.types.table_names.push(decl.name.text.clone());
        self.prog.tables.push(Table {
            name: decl.name.text.clone(),
            owner,
            control_name,
            keys: Vec::new(),
            actions: Vec::new(),
            default_action: None,
            empty_group_action: None,
            entries: Vec::new(),
            const_entries: false,
            has_entries: false,
            size: None,
            properties: Vec::new(),
            annotations,
            span: decl.name.span,
        });
        for (i, property) in table.properties.iter().enumerate() {
            if let Some(first) = table.properties[..i].iter().find(|p| p.name == property.name) {
                self.report(
                    Diagnostic::error(
                        codes::PROPERTY_TWICE,
                        property.span,
                        format!("`{}` is given twice", property.name),
                    )
                    .note(first.span, "the first one"),
                );
            }
        }
        self.check_property_order(table);
        // The name is already in scope in the table's own keys and arguments.
        self.declare(&decl.name, Symbol::Table(id));
        self.open_table = Some(id);
        self.listed.clear();
        let mut t = self.prog.tables[id.index()].clone();
        if let Some(keys) = table.key() {
            t.keys = keys.iter().map(|k| self.key(k)).collect();
        }
        self.table_actions(&mut t, decl, table);
        if table.property("default_action").is_none() {
            self.default_action(&mut t, table);
        }
        for property in &table.properties {
            match &property.kind {
                ast::TablePropertyKind::Value(_)
                    if &*property.name.text == "default_action" && t.default_action.is_none() =>
                {
                    self.default_action(&mut t, table);
                }
                ast::TablePropertyKind::Value(value) => self.property(&mut t, property, value),
                ast::TablePropertyKind::Entries(entries) => {
                    t.has_entries = true;
                    t.const_entries = property.is_const;
                    self.entries(&mut t, property, entries);
                }
                _ => {}
            }
        }
        self.check_size(&t);
        self.prog.tables[id.index()] = t;
        self.open_table = None;
        id
    }

    /// Warns about more entries than the table's `size`.
    fn check_size(&mut self, t: &Table) {
        let Some(size) = t.size.as_ref() else { return };
        let Some(room) = self.const_int(size).and_then(|v| num_traits::ToPrimitive::to_usize(&v)) else { return };
        if t.entries.len() > room {
            let message = format!("table `{}` has {} and a size of {room}", t.name, counted(t.entries.len(), "entry"));
            self.report(
                Diagnostic::warning(codes::MORE_ENTRIES_THAN_SIZE, size.span, message)
                    .note(t.entries[room].span, "the first one too many")
                    .help("the size is how many entries a controller can count on: make it larger"),
            );
        }
    }

    /// Reports properties that precede those that they refer to.
    fn check_property_order(&mut self, table: &ast::TableDecl) {
        let place = |name: &str| table.properties.iter().position(|p| &*p.name.text == name);
        for (late, early) in [("default_action", "actions"), ("entries", "key"), ("entries", "actions")] {
            if let (Some(l), Some(e)) = (place(late), place(early))
                && l < e
            {
                let (late_span, early_span) = (table.properties[l].name.span, table.properties[e].name.span);
                self.report(
                    Diagnostic::error(codes::PROPERTY_ORDER, late_span, format!("`{late}` must follow `{early}`"))
                        .note(early_span, "which is here"),
                );
                return;
            }
        }
    }

    fn key(&mut self, key: &'a ast::KeyElement) -> Key {
        // Expressions in keys are evaluated when the table is applied.
        let place = std::mem::replace(&mut self.body.place, Place::Apply);
        let expr = self.expr(&key.expr, None);
        self.body.place = place;
        let ok = matches!(
            expr.ty,
            Type::Bits { .. }
                | Type::Bool
                | Type::Enum(_)
                | Type::SerEnum(_)
                | Type::Error
                | Type::Newtype(_)
                | Type::Varbit(_)
                | Type::Unknown
        );
        if !ok {
            let message = format!("a key cannot be of type `{}`", self.show(&expr.ty));
            let mut d = Diagnostic::error(codes::BAD_KEY, expr.span, message);
            d = d.help(match expr.ty {
                Type::Int => "give the number a width, as 8w3",
                _ => "keys are `bit<W>`, `int<W>`, `bool`, enums and errors; use single fields",
            });
            self.report(d);
        }
        let found = self.prog.match_kinds.iter().position(|m| *m == key.match_kind.text);
        if found.is_none() {
            let kinds = self.prog.match_kinds.clone();
            let message = format!("there is no match kind `{}`", key.match_kind);
            self.unknown_name(codes::NO_SUCH_MATCH_KIND, &key.match_kind, message, kinds.iter().map(|k| &**k));
        }
        let annotations = self.annotations(&key.annotations);
        let name = match find_annotation(&annotations, "name").and_then(Annotation::as_str) {
            Some(name) => name.to_string(),
            None => {
                if !expr.ty.is_unknown() && !has_key_name(&key.expr) {
                    let message = "a key that is not a simple field needs a `@name`";
                    self.report(
                        Diagnostic::error(codes::KEY_NEEDS_NAME, expr.span, message)
                            .help("give the control plane a name for it: … : exact @name(\"…\");"),
                    );
                }
                self.key_name(&key.expr, Some(&expr))
            }
        };
        Key {
            expr,
            match_kind: found.unwrap_or(0) as u32,
            match_kind_name: key.match_kind.text.clone(),
            name,
            annotations,
            span: key.span,
        }
    }

    /// The control-plane name of a key: the expression in P4 syntax, with the names that `@name` gives to fields, as in
    /// the reference compiler. A field name with a leading dot also replaces everything before it. `typed` is the
    /// checked expression, where available.
    fn key_name(&self, e: &ast::Expr, typed: Option<&Expr>) -> String {
        let kind = typed.map(|typed| &typed.kind);
        match &e.kind {
            ast::ExprKind::Path(path) => path.to_string(),
            ast::ExprKind::Member(base, name) => {
                let (owner, field) = match kind {
                    Some(ExprKind::Field(owner, index)) => {
                        let fields = self.prog.types.struct_info(&owner.ty).map(|info| &info.fields);
                        (Some(&**owner), fields.and_then(|fields| fields.get(*index as usize)))
                    }
                    _ => (None, None),
                };
                let renamed = field.and_then(|f| find_annotation(&f.annotations, "name")).and_then(Annotation::as_str);
                let name = renamed.unwrap_or(&name.text);
                match name.strip_prefix('.') {
                    Some(global) => global.to_string(),
                    None => format!("{}.{name}", self.key_name(base, owner)),
                }
            }
            ast::ExprKind::Index(base, index) => {
                let stack = match kind {
                    Some(ExprKind::StackElement { stack, .. }) => Some(&**stack),
                    _ => None,
                };
                format!("{}[{}]", self.key_name(base, stack), self.key_name(index, None))
            }
            ast::ExprKind::Slice { base, high, low } => {
                let whole = match kind {
                    Some(ExprKind::Slice { base, .. }) => Some(&**base),
                    _ => None,
                };
                let (high, low) = (self.key_name(high, None), self.key_name(low, None));
                format!("{}[{high}:{low}]", self.key_name(base, whole))
            }
            ast::ExprKind::SliceFrom { base, low, width } => {
                let whole = match kind {
                    Some(ExprKind::SliceFrom { base, .. }) => Some(&**base),
                    _ => None,
                };
                let (low, width) = (self.key_name(low, None), self.key_name(width, None));
                format!("{}[{low}+:{width}]", self.key_name(base, whole))
            }
            ast::ExprKind::Call { callee, args, .. } => {
                let args: Vec<String> = args.iter().map(|arg| self.key_name(&arg.value, None)).collect();
                let callee = match (&callee.kind, kind) {
                    (ast::ExprKind::Member(object, method), Some(ExprKind::Call(call))) => match &call.callee {
                        Callee::Builtin(_, of) => format!("{}.{method}", self.key_name(object, Some(of))),
                        _ => self.key_name(callee, None),
                    },
                    _ => self.key_name(callee, None),
                };
                format!("{callee}({})", args.join(", "))
            }
            ast::ExprKind::Int(literal) => number_name(literal),
            ast::ExprKind::Bool(b) => b.to_string(),
            ast::ExprKind::Unary(op, operand) => format!("{}{}", op.symbol(), self.key_name(operand, None)),
            ast::ExprKind::Binary(op, a, b) => {
                let (left, right) = match kind {
                    Some(ExprKind::Binary(_, left, right)) => (Some(&**left), Some(&**right)),
                    _ => (None, None),
                };
                format!("{} {} {}", self.key_name(a, left), op.symbol(), self.key_name(b, right))
            }
            ast::ExprKind::Cast(_, operand) => self.key_name(operand, None),
            ast::ExprKind::Ternary { cond, then, otherwise } => {
                let [cond, then, otherwise] = [cond, then, otherwise].map(|e| self.key_name(e, None));
                format!("{cond} ? {then} : {otherwise}")
            }
            _ => "key".to_string(),
        }
    }

    // -------------------------------------------------------------------------------------------- actions

    fn find_action(&mut self, path: &ast::Path) -> Option<ActionId> {
        let entry = self.lookup(path)?;
        match entry.symbol {
            Symbol::Action(id) => Some(id),
            Symbol::Broken => None,
            _ => {
                self.report(
                    Diagnostic::error(codes::BAD_ACTION, path.span(), format!("`{path}` is not an action"))
                        .note(entry.span, "declared here"),
                );
                None
            }
        }
    }

    fn table_actions(&mut self, t: &mut Table, decl: &ast::Decl, table: &'a ast::TableDecl) {
        let Some(actions) = table.actions() else {
            self.report(
                Diagnostic::error(codes::BAD_PROPERTY, decl.name.span, format!("table `{}` has no actions", decl.name))
                    .help("add: actions = { … }"),
            );
            self.add_implicit_no_action(t, table);
            return;
        };
        for action in actions {
            if self.scopes.lookup(&action.path.name.text).is_none() {
                self.broken_tables.extend(self.open_table);
            }
            let Some(id) = self.find_action(&action.path) else { continue };
            if let Some(first) = self.listed.get(&id).map(|&i| &t.actions[i as usize]) {
                self.report(
                    Diagnostic::error(codes::ACTION_TWICE, action.span, format!("`{}` is listed twice", action.path))
                        .note(first.span, "the first one"),
                );
                continue;
            }
            let annotations = self.annotations(&action.annotations);
            let args = self.bound_args(id, action);
            self.listed.insert(id, t.actions.len() as u32);
            t.actions.push(TableAction {
                action: id,
                args,
                default_only: find_annotation(&annotations, "defaultonly").is_some(),
                table_only: find_annotation(&annotations, "tableonly").is_some(),
                group_only: find_annotation(&annotations, "groupaction").is_some(),
                implicit: false,
                annotations,
                span: action.span,
            });
        }
        self.add_implicit_no_action(t, table);
    }

    fn add_implicit_no_action(&mut self, t: &mut Table, table: &ast::TableDecl) {
        if table.property("default_action").is_some() {
            return;
        }
        let global = self.scopes.lookup_global("NoAction").map(|e| (e.symbol.clone(), e.span));
        let id = match global {
            Some((Symbol::Action(id), _)) => id,
            Some((Symbol::Broken, _)) => return,
            Some((_, span)) => {
                let message = "`NoAction` must be an action: tables without a `default_action` have it as theirs";
                self.report(
                    Diagnostic::error(codes::NEEDS_DEFAULT_ACTION, span, message)
                        .note(t.span, "such a table")
                        .help("give the table a `default_action`, or take the `NoAction` of core.p4"),
                );
                return;
            }
            // The list names an undeclared action, which has been reported; `NoAction` is probably missing for the same
            // reason.
            None if self.open_table.is_some_and(|t| self.broken_tables.contains(&t)) => return,
            None => {
                let message = format!("table `{}` needs a `default_action`", t.name);
                self.report(
                    Diagnostic::error(codes::NEEDS_DEFAULT_ACTION, t.span, message)
                        .help("without one it is `NoAction`, which core.p4 declares: #include <core.p4>"),
                );
                return;
            }
        };
        if !self.prog.actions[id.index()].params.is_empty() {
            let message = "`NoAction` cannot have parameters: tables without a `default_action` have it as theirs";
            self.report(
                Diagnostic::error(codes::NEEDS_DEFAULT_ACTION, self.prog.actions[id.index()].span, message)
                    .note(t.span, "such a table")
                    .help("give the table a `default_action`, or take the `NoAction` of core.p4"),
            );
            return;
        }
        if !t.actions.iter().any(|a| a.action == id) {
            t.actions.push(TableAction {
                action: id,
                args: Vec::new(),
                default_only: true,
                table_only: false,
                group_only: false,
                implicit: true,
                annotations: Vec::new(),
                span: t.span,
            });
        }
    }

    /// The arguments of an action in a table's list: directed ones are bound, action data are absent.
    fn bound_args(&mut self, id: ActionId, action: &'a ast::ActionRef) -> Vec<Arg> {
        let sig = self.action_sigs[id.index()].clone();
        let directed: Vec<SigParam> = sig.params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
        let what = format!("action `{}` in a table's list", action.path);
        let part = Sig {
            what,
            span: sig.span,
            type_params: Vec::new(),
            hidden_params: Vec::new(),
            params: directed,
            result: Type::Void,
        };
        let place = std::mem::replace(&mut self.body.place, Place::TableProperty);
        let given = action.args.as_deref().unwrap_or_default();
        let checked =
            self.check_args(&part, Subst::none(), &[], given, None, action.span, super::calls::CallMode::Free);
        self.body.place = place;
        let Some((mut args, _)) = checked else { return Vec::new() };
        for p in sig.params.iter().filter(|p| p.direction == Direction::None) {
            args.push(Arg { param: p.name.clone(), direction: p.direction, ty: p.ty.clone(), value: ArgValue::Absent });
        }
        args
    }

    /// An action of the table with values for its action data, as in `default_action` and entries.
    fn action_call(
        &mut self,
        t: &Table,
        path: &'a ast::Path,
        args: Option<&'a [ast::Argument]>,
        span: Span,
    ) -> Option<(u32, Vec<Expr>)> {
        let id = self.find_action(path)?;
        let Some(index) = self.listed.get(&id).map(|&i| i as usize) else {
            if self.open_table.is_some_and(|t| self.broken_tables.contains(&t)) {
                return None;
            }
            let names: Vec<String> = t
                .actions
                .iter()
                .filter(|a| !a.implicit)
                .map(|a| self.prog.actions[a.action.index()].name.to_string())
                .collect();
            let message = format!("`{path}` is not among the actions of table `{}`", t.name);
            // `.a` and `a` can be different actions.
            if let Some(other) = t.actions.iter().find(|a| self.prog.actions[a.action.index()].name == path.name.text) {
                let (listed, here) = (self.prog.actions[other.action.index()].span, self.prog.actions[id.index()].span);
                self.report(
                    Diagnostic::error(codes::NOT_IN_TABLE, path.span(), message)
                        .note(listed, "the table lists this action")
                        .note(here, "this one is named here")
                        .help("`.name` is the one at top level, `name` the innermost one"),
                );
                return None;
            }
            self.unknown_name(codes::NOT_IN_TABLE, &path.name, message, names.iter().map(|s| s.as_str()));
            return None;
        };
        let sig = self.action_sigs[id.index()].clone();
        let data: Vec<SigParam> = sig.params.iter().filter(|p| p.direction == Direction::None).cloned().collect();
        let directed = sig.params.len() - data.len();
        let given = args.unwrap_or_default();
        let named = given.iter().any(|a| a.name.is_some());
        // The directed arguments may be repeated before the action data.
        let skip = if !named && directed > 0 && given.len() == sig.params.len() { directed } else { 0 };
        for (arg, bound) in given[..skip].iter().zip(&t.actions[index].args) {
            let place = std::mem::replace(&mut self.body.place, Place::TableProperty);
            let repeated = self.expr(&arg.value, Some(&bound.ty));
            self.body.place = place;
            if let ArgValue::Expr(bound) = &bound.value {
                let repeated = if repeated.ty == bound.ty { repeated } else { self.coerce(repeated, &bound.ty) };
                if !same_expr(&repeated, bound) {
                    self.report(
                        Diagnostic::error(
                            codes::ARGUMENT_DIFFERS,
                            arg.span,
                            "this is not the argument in the table's list of actions",
                        )
                        .note(bound.span, "there"),
                    );
                }
            }
        }
        let part = Sig {
            what: sig.what.clone(),
            span: sig.span,
            type_params: Vec::new(),
            hidden_params: Vec::new(),
            params: data,
            result: Type::Void,
        };
        let (args, _) =
            self.check_args(&part, Subst::none(), &[], &given[skip..], None, span, super::calls::CallMode::Extern)?;
        let values = args.into_iter().filter_map(|a| match a.value {
            ArgValue::Expr(e) => Some(e),
            _ => None,
        });
        Some((index as u32, values.collect()))
    }

    fn default_action(&mut self, t: &mut Table, table: &'a ast::TableDecl) {
        let Some((property, value)) = table.property("default_action") else {
            // `NoAction`: implicit, or the one in the list.
            let no_action = self.scopes.lookup_global("NoAction").map(|e| e.symbol.clone());
            if let Some(Symbol::Action(id)) = no_action
                && self.prog.actions[id.index()].params.is_empty()
                && let Some(index) = t.actions.iter().position(|a| a.action == id)
            {
                t.default_action =
                    Some(DefaultAction { action: index as u32, args: Vec::new(), is_const: false, span: t.span });
            }
            return;
        };
        let (path, args) = match &value.kind {
            ast::ExprKind::Path(path) => (path, None),
            ast::ExprKind::Call { callee, args, .. } => match &callee.kind {
                ast::ExprKind::Path(path) => (path, Some(args.as_slice())),
                _ => {
                    self.error(codes::BAD_ACTION, value.span, "`default_action` is an action");
                    return;
                }
            },
            ast::ExprKind::Missing => return,
            _ => {
                self.error(codes::BAD_ACTION, value.span, "`default_action` is an action");
                return;
            }
        };
        let Some((action, args)) = self.action_call(t, path, args, value.span) else { return };
        let listed = &t.actions[action as usize];
        let only = [(listed.table_only, "tableonly"), (listed.group_only, "groupaction")];
        if let Some((_, annotation)) = only.iter().find(|(only, _)| *only) {
            let message = format!("`{path}` is `@{annotation}` and cannot be the default action");
            self.error(codes::ACTION_SCOPE, value.span, message);
        }
        t.default_action = Some(DefaultAction { action, args, is_const: property.is_const, span: value.span });
    }

    // -------------------------------------------------------------------------------------------- entries

    fn entries(&mut self, t: &mut Table, property: &ast::TableProperty, entries: &'a [ast::Entry]) {
        if t.keys.is_empty() && !entries.is_empty() {
            let message = format!("table `{}` has entries but no key", t.name);
            self.report(
                Diagnostic::error(codes::ENTRIES_WITHOUT_KEYS, t.span, message).note(property.name.span, "the entries"),
            );
            return;
        }
        let prioritised = t.keys.iter().any(|k| !matches!(&*k.match_kind_name, "exact" | "lpm"));
        if let Some(first) = entries.iter().find_map(|e| e.priority.as_ref()) {
            if !prioritised {
                self.report(
                    Diagnostic::error(codes::ENTRY_PRIORITY, first.span, "entries of this table have no priorities")
                        .note(t.span, "all its keys are `exact` or `lpm`"),
                );
            } else if entries.first().is_some_and(|e| e.priority.is_none()) {
                self.report(
                    Diagnostic::error(codes::ENTRY_PRIORITY, entries[0].span, "the first entry needs a priority")
                        .note(first.span, "as others have one"),
                );
            }
        }
        let mut typed: Vec<(&ast::Entry, Vec<Keyset>)> = Vec::new();
        for entry in entries {
            let keysets = self.entry_keysets(t, &entry.keyset);
            if let Some(keysets) = &keysets {
                typed.push((entry, keysets.clone()));
            }
            let priority = entry.priority.as_ref().and_then(|e| {
                let value = self.expr(e, Some(&Type::Int));
                match self.const_int(&value) {
                    Some(v) => Some(Value::Int(v)),
                    None => {
                        if !value.ty.is_unknown() {
                            self.error(codes::NOT_CONSTANT, e.span, "a priority is an integer known at compile time");
                        }
                        None
                    }
                }
            });
            let action = &entry.action;
            let Some((index, args)) = self.action_call(t, &action.path, action.args.as_deref(), action.span) else {
                continue;
            };
            if t.actions[index as usize].default_only {
                let message = format!("`{}` is `@defaultonly` and is not allowed in an entry", action.path);
                self.error(codes::ACTION_SCOPE, action.span, message);
            }
            let annotations = self.annotations(&entry.annotations);
            let Some(keysets) = keysets else { continue };
            t.entries.push(Entry {
                is_const: entry.is_const || property.is_const,
                priority,
                keysets,
                action: index,
                args,
                annotations,
                span: entry.span,
            });
        }
        // Keysets not allowed for the match kind are reported after malformed entries.
        for (entry, keysets) in &typed {
            for (i, (key, set)) in t.keys.iter().zip(keysets).enumerate() {
                let span = entry.keyset.elements.get(i).map_or(entry.keyset.span, |e| e.span);
                self.check_entry_kind(key, set, span);
            }
        }
        self.check_entries_differ(t, &typed);
    }

    /// Reports two entries with the same values for `exact` keys: the second could never match.
    fn check_entries_differ(&mut self, t: &Table, entries: &[(&ast::Entry, Vec<Keyset>)]) {
        if t.keys.iter().any(|k| &*k.match_kind_name != "exact") {
            return;
        }
        let values = |sets: &[Keyset]| -> Option<Vec<Value>> {
            sets.iter()
                .map(|set| match set {
                    Keyset::Value(e) if !e.ty.is_unknown() => e.as_const().cloned(),
                    _ => None,
                })
                .collect()
        };
        let mut seen: HashMap<String, Span> = HashMap::new();
        for (entry, sets) in entries {
            let Some(values) = values(sets) else { continue };
            // [`Value`] does not implement `Hash`.
            match seen.entry(format!("{values:?}")) {
                std::collections::hash_map::Entry::Occupied(first) => {
                    let first = *first.get();
                    self.report(
                        Diagnostic::error(codes::ENTRY_TWICE, entry.span, "there is an entry with this key already")
                            .note(first, "the first one"),
                    );
                }
                std::collections::hash_map::Entry::Vacant(slot) => {
                    slot.insert(entry.span);
                }
            }
        }
    }

    fn entry_keysets(&mut self, t: &Table, keyset: &'a ast::Keyset) -> Option<Vec<Keyset>> {
        if let [ast::KeysetElement { kind: ast::KeysetKind::Default | ast::KeysetKind::DontCare, .. }] =
            keyset.elements.as_slice()
            && t.keys.len() != 1
        {
            return Some(t.keys.iter().map(|_| Keyset::DontCare).collect());
        }
        // The keysets of an entry may be in braces instead of parentheses.
        if let [ast::KeysetElement { kind: ast::KeysetKind::Expr(list), .. }] = keyset.elements.as_slice()
            && let ast::ExprKind::List(values) = &list.kind
            && values.len() == t.keys.len()
        {
            let sets = t
                .keys
                .iter()
                .zip(values)
                .map(|(key, value)| Keyset::Value(self.keyset_value(value, &key.expr.ty, "entries")));
            return Some(sets.collect());
        }
        if keyset.elements.len() != t.keys.len() {
            let message =
                format!("the table has {}, the entry {}", counted(t.keys.len(), "key"), keyset.elements.len());
            self.report(Diagnostic::error(codes::ENTRY_KEY_COUNT, keyset.span, message).note(t.span, "the table"));
            return None;
        }
        let mut result = Vec::with_capacity(t.keys.len());
        for (element, key) in keyset.elements.iter().zip(&t.keys) {
            result.push(self.keyset(element, &key.expr.ty, "entries"));
        }
        Some(result)
    }

    /// Reports a keyset that is not allowed for a match kind of `core.p4` or `v1model.p4`.
    fn check_entry_kind(&mut self, key: &Key, set: &Keyset, span: Span) {
        if let ("lpm", Keyset::Mask(_, mask)) = (&*key.match_kind_name, set)
            && let Some(bits) = mask.as_const().and_then(Value::as_bits)
            && !bits.not().add(&Bits::new(bits.width(), 1)).and(&bits.not()).is_zero()
        {
            self.report(
                Diagnostic::error(codes::NOT_A_PREFIX, mask.span, "the mask of an `lpm` key must be a prefix")
                    .help("ones on the left, zeros on the right, as 0xff00"),
            );
            return;
        }
        let (ok, allowed) = match &*key.match_kind_name {
            "exact" => (matches!(set, Keyset::Value(_)), "a value"),
            "lpm" | "ternary" => (!matches!(set, Keyset::Range(..)), "a value, value &&& mask, or _"),
            "range" => (!matches!(set, Keyset::Mask(..)), "a value, low .. high, or _"),
            "optional" => (matches!(set, Keyset::Value(_) | Keyset::DontCare), "a value, or _"),
            _ => return,
        };
        if !ok {
            self.report(
                Diagnostic::error(
                    codes::BAD_ENTRY,
                    span,
                    format!("this does not fit a key of kind `{}`", key.match_kind_name),
                )
                .note(key.span, "the key")
                .help(format!("write {allowed}")),
            );
        }
    }

    // -------------------------------------------------------------------------------------------- properties

    fn property(&mut self, t: &mut Table, property: &'a ast::TableProperty, value: &'a ast::Expr) {
        match &*property.name.text {
            "default_action" => {}
            "size" => {
                let size = self.expr(value, Some(&Type::Int));
                let size = self.strip_enum(size);
                if !matches!(size.ty, Type::Int | Type::Bits { .. } | Type::Unknown) {
                    let message = format!("`size` is an integer, not `{}`", self.show(&size.ty));
                    self.error(codes::MISMATCH, value.span, message);
                } else if !self.is_compile_time(&size) {
                    self.error(codes::NOT_CONSTANT, value.span, "`size` must be known at compile time");
                } else if self.const_int(&size).is_some_and(|v| v.sign() == num_bigint::Sign::Minus) {
                    self.error(codes::OUT_OF_RANGE, value.span, "`size` cannot be negative");
                }
                t.size = Some(size);
            }
            "key" | "actions" | "entries" => {
                let message = format!("`{}` is a list in braces", property.name);
                self.error(syntax::codes::UNEXPECTED_TOKEN, value.span, message);
            }
            "psa_empty_group_action" | "pna_empty_group_action" => {
                let value = self.empty_group_action(t, &property.name, value);
                t.properties.push(Property {
                    name: property.name.text.clone(),
                    is_const: property.is_const,
                    value,
                    annotations: self.annotations(&property.annotations),
                    span: property.span,
                });
            }
            _ => {
                let annotations = self.annotations(&property.annotations);
                let value = self.property_value(t, property, value, &annotations);
                self.check_priority_property(&property.name, &value);
                t.properties.push(Property {
                    name: property.name.text.clone(),
                    is_const: property.is_const,
                    value,
                    annotations,
                    span: property.span,
                });
            }
        }
    }

    /// The action of an empty group, written as in `default_action`. The returned value says whether it is `NoAction`,
    /// which need not be in the table's action list.
    fn empty_group_action(&mut self, t: &mut Table, name: &ast::Name, value: &'a ast::Expr) -> Expr {
        let (path, args) = match &value.kind {
            ast::ExprKind::Path(path) => (path, None),
            ast::ExprKind::Call { callee, args, .. } if let ast::ExprKind::Path(path) = &callee.kind => {
                (path, Some(args.as_slice()))
            }
            _ => {
                self.error(codes::BAD_ACTION, value.span, format!("`{name}` is an action"));
                return self.poison(value.span);
            }
        };
        let is_nothing = &*path.name.text == "NoAction" && args.is_none_or(<[_]>::is_empty);
        if !is_nothing || self.find_action(path).is_some_and(|id| self.listed.contains_key(&id)) {
            match self.action_call(t, path, args, value.span) {
                Some((action, args)) => {
                    t.empty_group_action = Some(DefaultAction { action, args, is_const: true, span: value.span });
                }
                None => return self.poison(value.span),
            }
        }
        Expr { kind: ExprKind::Const(Value::Bool(is_nothing)), ty: Type::Bool, span: value.span }
    }

    /// Checks the properties that define the meaning of priorities.
    fn check_priority_property(&mut self, name: &ast::Name, value: &Expr) {
        if value.ty.is_unknown() {
            return;
        }
        match &*name.text {
            "largest_priority_wins" if value.ty != Type::Bool => {
                let message = format!("`{name}` is a `bool`, not `{}`", self.show(&value.ty));
                self.error(codes::MISMATCH, value.span, message);
            }
            "priority_delta" if self.const_int(value).is_none_or(|v| v.sign() != num_bigint::Sign::Plus) => {
                self.error(codes::OUT_OF_RANGE, value.span, format!("`{name}` is a positive integer"));
            }
            _ => {}
        }
    }

    /// A property's value; a constructor call creates an instance named by `@name` on the property, or by the property
    /// itself.
    fn property_value(
        &mut self,
        t: &Table,
        property: &'a ast::TableProperty,
        value: &'a ast::Expr,
        annotations: &[Annotation],
    ) -> Expr {
        if let ast::ExprKind::Call { callee, type_args, args } = &value.kind {
            let (path, type_args) = match &callee.kind {
                ast::ExprKind::Path(path) => (path, type_args),
                ast::ExprKind::Type(ast::TypeRef { kind: ast::TypeKind::Named { path, args }, .. }) => (path, args),
                _ => return self.expr(value, None),
            };
            if let Some(Symbol::Type(symbol)) = self.scopes.lookup(&path.name.text).map(|e| e.symbol.clone()) {
                let mut control_name =
                    self.control_name(&format!("{}.{}", t.control_name.name, property.name), annotations);
                // A `@name` on the property is absolute, as in the reference compiler's P4Info.
                let given = find_annotation(annotations, "name").is_some();
                control_name.global |= t.control_name.global || given;
                let new = NewInstance {
                    span: value.span,
                    annotations: annotations.to_vec(),
                    control_name: Some(control_name),
                    ..NewInstance::default()
                };
                return match self.instantiate(&symbol, type_args, args, new) {
                    Some((reference, ty)) => Expr { kind: ExprKind::Instance(reference), ty, span: value.span },
                    None => self.poison(value.span),
                };
            }
        }
        let e = self.expr(value, None);
        if !self.is_compile_time(&e) {
            let message = format!("`{}` must be known at compile time", property.name);
            self.error(codes::NOT_CONSTANT, value.span, message);
            return constant(Value::Absent, Type::Unknown, value.span);
        }
        e
    }
}

/// Whether two expressions are structurally equal, for the comparison of repeated arguments.
fn same_expr(a: &Expr, b: &Expr) -> bool {
    use ExprKind::*;
    match (&a.kind, &b.kind) {
        (Const(x), Const(y)) => x == y,
        (Local(x), Local(y)) => x == y,
        (CtorParam(x), CtorParam(y)) => x == y,
        (Instance(x), Instance(y)) => x == y,
        (Field(x, i), Field(y, j)) | (TupleElement(x, i), TupleElement(y, j)) => i == j && same_expr(x, y),
        (StackElement { stack: x, index: i }, StackElement { stack: y, index: j }) => {
            same_expr(x, y) && same_expr(i, j)
        }
        (Slice { base: x, high: h, low: l }, Slice { base: y, high: i, low: m }) => h == i && l == m && same_expr(x, y),
        (Unary(o, x), Unary(p, y)) => o == p && same_expr(x, y),
        (Binary(o, x, v), Binary(p, y, w)) => o == p && same_expr(x, y) && same_expr(v, w),
        (Cast(x), Cast(y)) => a.ty == b.ty && same_expr(x, y),
        (Aggregate(x), Aggregate(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same_expr(x, y)),
        (Call(x), Call(y)) => {
            let same_callee = match (&x.callee, &y.callee) {
                (Callee::Builtin(b, x), Callee::Builtin(c, y)) => b == c && same_expr(x, y),
                (
                    Callee::ExternMethod { object: x, extern_id: e, method: m },
                    Callee::ExternMethod { object: y, extern_id: f, method: n },
                ) => e == f && m == n && same_expr(x, y),
                (Callee::Function(f), Callee::Function(g)) => f == g,
                (Callee::ExternFunction(f), Callee::ExternFunction(g)) => f == g,
                _ => false,
            };
            let same_arg = |(x, y): (&Arg, &Arg)| match (&x.value, &y.value) {
                (ArgValue::Expr(x), ArgValue::Expr(y)) => same_expr(x, y),
                (ArgValue::Expr(_), _) | (_, ArgValue::Expr(_)) => false,
                _ => true,
            };
            same_callee && x.args.len() == y.args.len() && x.args.iter().zip(&y.args).all(same_arg)
        }
        (SliceFrom { base: x, low: l, width: w }, SliceFrom { base: y, low: m, width: v }) => {
            w == v && same_expr(x, y) && same_expr(l, m)
        }
        (StackLastIndex(x), StackLastIndex(y)) => same_expr(x, y),
        (Ternary { cond: c, then: x, otherwise: v }, Ternary { cond: d, then: y, otherwise: w }) => {
            same_expr(c, d) && same_expr(x, y) && same_expr(v, w)
        }
        _ => false,
    }
}

/// Whether a key expression has a control-plane name: P4_16, "Computing control-plane names", "Keys". Masks with `&`
/// are an extension of the reference compiler.
fn has_key_name(e: &ast::Expr) -> bool {
    use ast::ExprKind::*;
    match &e.kind {
        Path(_) | Int(_) => true,
        Member(base, _) => has_key_name(base),
        Index(base, index) | Binary(BinaryOp::BitAnd, base, index) => has_key_name(base) && has_key_name(index),
        Slice { base, high, low } => has_key_name(base) && has_key_name(high) && has_key_name(low),
        SliceFrom { base, low, width } => has_key_name(base) && has_key_name(low) && has_key_name(width),
        Call { callee, args, .. } => match &callee.kind {
            Member(base, name) => args.is_empty() && &*name.text == "isValid" && has_key_name(base),
            _ => false,
        },
        _ => false,
    }
}

/// An integer in the name of a key: in the base of the source, without width and leading zeros.
fn number_name(literal: &ast::IntLiteral) -> String {
    let prefix = match literal.radix {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    format!("{prefix}{}", literal.value.to_str_radix(literal.radix.into()))
}

/// A number with its noun.
pub(super) fn counted(n: usize, noun: &str) -> String {
    match (n, noun.strip_suffix("ry")) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{n} {stem}ries"),
        _ => format!("{n} {noun}s"),
    }
}
