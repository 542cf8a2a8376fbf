//! Elaboration: builds the instance tree from the top-level declarations down.
//!
//! Runs only on a program without errors. Constructor arguments are evaluated in the instance that contains the
//! declaration; the name of a block passed to a package is not prefixed with the package's name (P4_16, "Computing
//! control-plane names"). Bounds: [`MAX_INSTANCES`], [`MAX_DEPTH`].

use super::Checker;
use crate::codes;
use crate::typed::*;
use crate::types::*;
use crate::value::Value;
use base::{Diagnostic, Span};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The maximum number of instances in a program.
const MAX_INSTANCES: usize = 100_000;

/// The maximum nesting depth of instances.
const MAX_DEPTH: usize = 100;

impl Checker<'_> {
    /// Creates all instances and finds `main`.
    pub(super) fn elaborate(&mut self) {
        for index in 0..self.prog.globals.len() {
            let decl = self.prog.globals[index].clone();
            let Some(id) = self.elaborate_decl(&decl, None, 0) else { return };
            self.prog.global_instances.push(id);
            if &*decl.name == "main" && !decl.anonymous {
                self.prog.main = Some(id);
            }
        }
    }

    /// Reports two tables, actions or extern instances with the same control-plane name. Actions may share a name if
    /// they have the same parameters and no table lists both, as in the reference compiler's translation of P4_14: a
    /// controller sees one action.
    pub(super) fn check_control_names(&mut self) {
        let mut tables: HashMap<String, Span> = HashMap::new();
        let mut actions: HashMap<String, (ActionId, Span)> = HashMap::new();
        let mut found = Vec::new();
        for (i, action) in self.prog.actions.iter().enumerate().filter(|(_, a)| a.owner.is_none()) {
            let id = ActionId::from_index(i);
            match actions.entry(action.control_name.name.clone()) {
                Entry::Occupied(first) if !self.have_same_parameters(first.get().0, id) => {
                    found.push((action.span, first.get().1, first.key().clone(), "actions"));
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(slot) => {
                    slot.insert((id, action.span));
                }
            }
        }
        for instance in &self.prog.instances {
            let InstanceOf::Control(control) = instance.of else { continue };
            let control = &self.prog.controls[control.index()];
            for id in &control.tables {
                let table = &self.prog.tables[id.index()];
                match tables.entry(table.control_name.qualified(&instance.path)) {
                    Entry::Occupied(first) => found.push((table.span, *first.get(), first.key().clone(), "tables")),
                    Entry::Vacant(slot) => {
                        slot.insert(table.span);
                    }
                }
                let mut listed: HashMap<String, (ActionId, Span)> = HashMap::new();
                for id in table.actions.iter().map(|a| a.action) {
                    let action = &self.prog.actions[id.index()];
                    match listed.entry(action.control_name.qualified(&instance.path)) {
                        Entry::Occupied(first)
                            if first.get().0 != id && self.have_same_parameters(first.get().0, id) =>
                        {
                            found.push((action.span, first.get().1, first.key().clone(), "actions of one table"));
                        }
                        Entry::Occupied(_) => {}
                        Entry::Vacant(slot) => {
                            slot.insert((id, action.span));
                        }
                    }
                }
            }
            for id in &control.actions {
                let action = &self.prog.actions[id.index()];
                match actions.entry(action.control_name.qualified(&instance.path)) {
                    Entry::Occupied(first) if !self.have_same_parameters(first.get().0, *id) => {
                        found.push((action.span, first.get().1, first.key().clone(), "actions"));
                    }
                    Entry::Occupied(_) => {}
                    Entry::Vacant(slot) => {
                        slot.insert((*id, action.span));
                    }
                }
            }
        }
        // Anonymous externs (named after their type) are not visible to the control plane.
        let mut externs: HashMap<(ExternId, &str), Span> = HashMap::new();
        for instance in self.prog.instances.iter().filter(|i| !i.hidden) {
            let InstanceOf::Extern(id) = instance.of else { continue };
            if instance.name == self.prog.externs[id.index()].name {
                continue;
            }
            match externs.entry((id, instance.path.as_str())) {
                Entry::Occupied(first) => {
                    found.push((instance.span, *first.get(), instance.path.clone(), "instances"));
                }
                Entry::Vacant(slot) => {
                    slot.insert(instance.span);
                }
            }
        }
        for (mut span, mut first, name, what) in found {
            // Instances are not visited in source order.
            if first.file == span.file && first.start > span.start {
                std::mem::swap(&mut span, &mut first);
            }
            self.report(
                Diagnostic::error(
                    codes::CONTROL_NAME_TWICE,
                    span,
                    format!("two {what} have the control-plane name `{name}`"),
                )
                .note(first, "the first one")
                .help("give one of them another name with @name(\"…\")"),
            );
        }
    }

    /// Whether two actions have the same parameters from a controller's point of view.
    fn have_same_parameters(&self, a: ActionId, b: ActionId) -> bool {
        let name = |param: &'_ Param| {
            let given = find_annotation(&param.annotations, "name").and_then(Annotation::as_str);
            given.unwrap_or(&param.name).to_string()
        };
        let params = |id: ActionId| self.prog.actions[id.index()].data_params().map(|param| (name(param), &param.ty));
        a == b || params(a).eq(params(b))
    }

    fn elaborate_decl(&mut self, decl: &InstanceDecl, parent: Option<InstanceId>, depth: usize) -> Option<InstanceId> {
        if depth > MAX_DEPTH {
            self.error(
                codes::TOO_MANY_INSTANCES,
                decl.span,
                format!("instances are nested more than {MAX_DEPTH} deep"),
            );
            return None;
        }
        if self.prog.instances.len() >= MAX_INSTANCES {
            self.error(
                codes::TOO_MANY_INSTANCES,
                decl.span,
                format!("the program has more than {MAX_INSTANCES} instances"),
            );
            return None;
        }
        let of = match &decl.ty {
            Type::Extern(id, _) => InstanceOf::Extern(*id),
            Type::Parser(id) => InstanceOf::Parser(*id),
            Type::Control(id) => InstanceOf::Control(*id),
            Type::Block(id, _) => InstanceOf::Package(*id),
            _ => return None,
        };
        let mut args = Vec::with_capacity(decl.args.len());
        for arg in &decl.args {
            let value = match &arg.value {
                ArgValue::Expr(e) => match self.prog.eval(e, parent) {
                    Some(value) => value,
                    None => {
                        self.not_evaluated(e.span, &arg.param);
                        return None;
                    }
                },
                _ => Value::Absent,
            };
            args.push(InstanceArg { name: arg.param.clone(), ty: arg.ty.clone(), value });
        }
        let (prefix, hidden) = match parent {
            Some(id) => (self.prog.instances[id.index()].path.clone(), self.prog.instances[id.index()].hidden),
            None => (String::new(), false),
        };
        let id = InstanceId::from_index(self.prog.instances.len());
        self.prog.instances.push(Instance {
            of,
            ty: decl.ty.clone(),
            name: decl.name.clone(),
            path: decl.control_name.qualified(&prefix),
            hidden: hidden || decl.control_name.hidden,
            parent,
            args,
            children: Vec::new(),
            methods: decl.methods.clone(),
            constructor: decl.constructor,
            count: decl.count,
            annotations: decl.annotations.clone(),
            span: decl.span,
        });
        let count = match of {
            InstanceOf::Parser(p) => self.prog.parsers[p.index()].instances.len(),
            InstanceOf::Control(c) => self.prog.controls[c.index()].instances.len(),
            _ => 0,
        };
        for index in 0..count {
            let nested = match of {
                InstanceOf::Parser(p) => self.prog.parsers[p.index()].instances[index].clone(),
                InstanceOf::Control(c) => self.prog.controls[c.index()].instances[index].clone(),
                _ => break,
            };
            let child = self.elaborate_decl(&nested, Some(id), depth + 1)?;
            self.prog.instances[id.index()].children.push(child);
        }
        Some(id)
    }

    fn not_evaluated(&mut self, span: Span, param: &str) {
        self.report(
            Diagnostic::error(
                codes::NO_VALUE,
                span,
                format!("the value for `{param}` cannot be computed in this instance"),
            )
            .help("look for a division by zero, an index out of range, or a call of an extern function"),
        );
    }
}
