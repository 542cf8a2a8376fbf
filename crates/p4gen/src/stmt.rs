//! Statements that are allowed in more than one kind of body.

use crate::declared::{Place, Var};
use crate::generator::Gen;
use crate::types::Type;

impl Gen {
    /// Statements in a new scope, without braces.
    pub fn body(&mut self, count: u32, depth: u32) {
        let mark = self.scope.len();
        let outer = std::mem::replace(&mut self.block, mark);
        for _ in 0..count {
            self.statement(depth);
        }
        self.block = outer;
        self.forget(mark);
    }

    fn nested(&mut self, depth: u32) {
        let count = self.dice.range(0, 3);
        self.body(count, depth);
    }

    /// One statement, or a few that belong together. `depth` bounds the nesting.
    pub fn statement(&mut self, depth: u32) {
        self.cost += 1;
        let in_parser = self.place.is_parser();
        match self.dice.index(44) {
            0..=9 => self.assignment(),
            10..=12 => self.local(),
            13..=16 if depth > 0 => self.if_statement(depth - 1),
            17 if depth > 0 && !in_parser => self.switch_statement(depth - 1),
            18 | 19 if depth > 0 && self.loops < 2 && !in_parser => self.loop_statement(depth - 1),
            20 => self.jump(),
            21 | 22 => self.validity(),
            23 | 24 => self.push_pop(),
            25..=27 => {
                if !self.call_statement() {
                    self.assignment();
                }
            }
            28..=30 => {
                if !self.apply_statement(depth) {
                    self.assignment();
                }
            }
            31..=33 => {
                if !self.extern_statement() {
                    self.assignment();
                }
            }
            34 if depth > 0 => {
                self.open("{");
                self.nested(depth - 1);
                self.close("}");
            }
            35 => self.canary(),
            36 => self.sub_apply(),
            37..=41 if depth > 0 => self.related(depth - 1),
            _ => self.assignment(),
        }
    }

    /// The type of some writable variable in scope.
    fn target_type(&mut self) -> Option<Type> {
        let fit: Vec<usize> = (0..self.scope.len())
            .filter(|&i| self.scope[i].writable && !matches!(self.scope[i].ty, Type::Varbit(_) | Type::Hidden))
            .collect();
        if fit.is_empty() {
            return None;
        }
        Some(self.scope[*self.dice.pick(&fit)].ty.clone())
    }

    /// An assignment `target = value;` in all its forms.
    pub fn assignment(&mut self) {
        let Some(ty) = self.target_type() else { return self.line(";") };
        let Some(target) = self.lvalue(&ty) else { return };
        if let Type::Bit(w) | Type::Int(w) = ty {
            match self.dice.index(10) {
                0 => {
                    let op = *self.dice.pick(&["+=", "-=", "*=", "&=", "|=", "^=", "|+|=", "|-|="]);
                    let value = self.expr(&ty, 2);
                    if !target.contains('(') && self.rewrites() {
                        return self.line(format!("{target} = ({target} {} {value});", op.trim_end_matches('=')));
                    }
                    return self.line(format!("{target} {op} {value};"));
                }
                1 => {
                    let op = *self.dice.pick(&["<<=", ">>="]);
                    let amount = self.expr(&Type::Bit(4), 1);
                    return self.line(format!("{target} {op} {amount};"));
                }
                2 | 3 => {
                    let low = self.dice.range(0, w - 1);
                    let width = self.dice.range(1, w - low);
                    let value = self.expr(&Type::Bit(width), 2);
                    let slice = match self.dice.index(4) {
                        0 => format!("{low}+:{width}"),
                        1 => format!("({})+:{width}", self.varying(7)),
                        _ => format!("{}:{low}", low + width - 1),
                    };
                    if matches!(ty, Type::Bit(_))
                        && !target.contains(['(', '['])
                        && !slice.contains('(')
                        && self.rewrites()
                    {
                        // The value is evaluated first, since it may change the rest of the target.
                        let rest = self.hex(w, |i| i < low || i >= low + width);
                        let value = format!("(((bit<{w}>){value}) << {low})");
                        return self.line(format!("{target} = ({value} | ({target} & {w}w{rest}));"));
                    }
                    return self.line(format!("{target}[{slice}] = {value};"));
                }
                _ => {}
            }
        }
        let value = self.expr(&ty, 3);
        if !target.contains('[')
            && let Some(name) = self.rewritten_name()
        {
            let text = self.types.name(&ty);
            self.open("{");
            self.line(format!("{text} {name} = {value};"));
            self.line(format!("{target} = {name};"));
            return self.close("}");
        }
        self.line(format!("{target} = {value};"));
    }

    /// A declaration of a variable with an initial value.
    fn initialised(&mut self, text: &str, name: &str, value: &str) {
        if self.rewrites() {
            self.line(format!("{text} {name};"));
            self.line(format!("{name} = {value};"));
        } else {
            self.line(format!("{text} {name} = {value};"));
        }
    }

    fn local(&mut self) {
        let ty = self.variable_type();
        let text = self.ty(&ty);
        let fresh = self.name("v");
        let name = if self.dice.one_in(5) { self.hide_one().unwrap_or(fresh) } else { fresh };
        match self.dice.index(6) {
            0 => self.line(format!("{text} {name};")),
            1 if self.types.has_literals(&ty) && !matches!(ty, Type::Header(_)) => {
                self.only_constants = true;
                let value = self.expr(&ty, 2);
                self.only_constants = false;
                self.line(format!("const {text} {name} = {value};"));
                self.scope.push(Var { path: name, ty, writable: false, constant: true });
                return;
            }
            _ => {
                let value = self.expr(&ty, 3);
                self.initialised(&text, &name, &value);
            }
        }
        self.declare(&name, &ty, true);
    }

    fn if_statement(&mut self, depth: u32) {
        let start = self.end();
        let cond = self.bool_expr(2);
        self.open(format!("if ({cond}) {{"));
        let then_from = self.end();
        self.nested(depth);
        let then_to = self.end();
        let mut chained = false;
        if self.dice.one_in(4) {
            chained = true;
            let cond = self.bool_expr(2);
            self.close_open(format!("}} else if ({cond}) {{"));
            self.nested(depth);
        }
        let mut else_from = None;
        if self.dice.one_in(2) {
            self.close_open("} else {");
            else_from = Some(self.end());
            self.nested(depth);
        }
        if !chained && self.rewrites() {
            let all = self.take_text(start);
            let then = &all[then_from - start..then_to - start];
            let otherwise = else_from.map_or("", |from| &all[from - start..]);
            self.close_silently();
            self.open(format!("if (!({cond})) {{"));
            self.put_text(otherwise);
            self.close_open("} else {");
            self.put_text(then);
        }
        self.close("}");
    }

    pub(crate) fn close_open(&mut self, text: impl AsRef<str>) {
        self.close(text);
        self.open_silently();
    }

    fn switch_statement(&mut self, depth: u32) {
        let ty = loop {
            let ty = self.scalar();
            if !matches!(ty, Type::New(_) | Type::Error) {
                break ty;
            }
        };
        // Random numbers of wide types would never match a case.
        let subject = match ty {
            Type::Bit(w) if w > 2 && self.dice.index(4) != 0 => {
                format!("({} & {})", self.expr(&ty, 2), self.dice.range(1, 3))
            }
            _ => self.expr(&ty, 2),
        };
        let start = self.end();
        self.open(format!("switch ({subject}) {{"));
        let mut labels: Vec<String> = match ty {
            Type::Enum(i) | Type::SerEnum(i) => {
                let decl = &self.types.enums[i];
                decl.members.iter().map(|m| format!("{}.{m}", decl.name)).collect()
            }
            Type::Bool => vec!["true".into(), "false".into()],
            Type::Bit(1) => vec!["0".into(), "1".into()],
            Type::Int(1) => vec!["0".into(), "-1".into()],
            Type::Bit(_) => vec!["0".into(), "1".into(), "2".into(), "3".into()],
            _ => vec!["0".into(), "1".into(), "-1".into(), "-2".into()],
        };
        self.dice.shuffle(&mut labels);
        let count = 1 + self.dice.index(labels.len());
        // The cases: labels, and the range of their bodies in the text; the default has no labels.
        let mut cases: Vec<(Vec<String>, usize, usize)> = Vec::new();
        let mut open: Vec<String> = Vec::new();
        for (i, label) in labels[..count].iter().enumerate() {
            open.push(label.clone());
            if i + 1 < count && self.dice.one_in(4) {
                self.line(format!("{label}:"));
                continue;
            }
            self.open(format!("{label}: {{"));
            let from = self.end();
            self.nested(depth);
            cases.push((std::mem::take(&mut open), from, self.end()));
            self.close("}");
        }
        if self.dice.one_in(2) {
            self.open("default: {");
            let from = self.end();
            self.nested(depth);
            cases.push((Vec::new(), from, self.end()));
            self.close("}");
        }
        if let Some(name) = self.rewritten_name() {
            let all = self.take_text(start);
            self.close_silently();
            self.open("{");
            let text = self.types.name(&ty);
            self.line(format!("{text} {name} = {subject};"));
            for (i, (labels, from, to)) in cases.iter().enumerate() {
                let equal: Vec<String> = labels.iter().map(|l| format!("({name} == {l})")).collect();
                let head = match (i, labels.is_empty()) {
                    (0, _) => format!("if ({}) {{", equal.join(" || ")),
                    (_, false) => format!("}} else if ({}) {{", equal.join(" || ")),
                    (_, true) => "} else {".to_string(),
                };
                if i > 0 {
                    self.close_silently();
                }
                self.open(head);
                self.put_text(&all[from - start..to - start]);
            }
            self.close("}");
        }
        self.close("}");
    }

    fn loop_statement(&mut self, depth: u32) {
        let mark = self.scope.len();
        let width = *self.dice.pick(&[3, 4, 5, 8, 8, 16, 33, 70]);
        let ty = if self.dice.one_in(5) { Type::Int(width) } else { Type::Bit(width) };
        let text = self.ty(&ty);
        let name = self.name("i");
        let rounds = self.dice.range(0, 3);
        let mut writable = false;
        let mut element = ty.clone();
        let head = match self.dice.index(6) {
            0 | 1 => {
                let extra = if self.dice.one_in(3) { format!(" && {}", self.bool_expr(1)) } else { String::new() };
                format!("for ({text} {name} = 0; ({name} < {rounds}){extra}; {name} = ({name} + 1)) {{")
            }
            2 => {
                let second = self.name("j");
                let start = self.expr(&ty, 1);
                let head = format!(
                    "for ({text} {name} = {rounds}, {text} {second} = {start}; {name} > 0; {name} = ({name} - 1), {second} = ({second} + {name})) {{"
                );
                self.scope.push(Var { path: second, ty: ty.clone(), writable: true, constant: false });
                head
            }
            3 => {
                // Up to the largest value: the counter must not wrap.
                let Type::Bit(w) = ty else {
                    return self.assignment();
                };
                let high = self.hex(w, |_| true);
                let low = self.hex(w, |i| i >= rounds.min(2));
                writable = true;
                format!("for ({text} {name} in {low} .. {high}) {{")
            }
            4 => {
                let stacks: Vec<(String, Type, u32)> = self
                    .stacks()
                    .into_iter()
                    .filter(|(p, e, _)| !p.contains('@') && matches!(e, Type::Header(_)))
                    .collect();
                if stacks.is_empty() {
                    return self.assignment();
                }
                let (path, header, _) = self.dice.pick(&stacks).clone();
                element = header;
                writable = true;
                let text = self.ty(&element);
                format!("for ({text} {name} in {path}) {{")
            }
            _ => {
                writable = true;
                let mask = self.dice.range(0, 3);
                let (a, b) = (self.expr(&ty, 1), self.expr(&ty, 1));
                format!("for ({text} {name} in ({a} & {mask}) .. ({b} & {mask})) {{")
            }
        };
        self.open(head);
        self.declare(&name, &element, writable);
        self.loops += 1;
        let before = self.cost;
        if self.dice.one_in(3) {
            let cond = self.bool_expr(1);
            self.open(format!("if ({cond}) {{"));
            let word = ["break;", "continue;"][self.dice.index(2)];
            self.line(word);
            self.close("}");
        }
        self.nested(depth);
        self.cost += (self.cost - before) * 3;
        self.loops -= 1;
        self.close("}");
        self.forget(mark);
    }

    /// A `break`, `continue`, `return` or `exit` under a condition, so that the following statements are reachable.
    fn jump(&mut self) {
        let mut words: Vec<String> = Vec::new();
        if self.loops > 0 {
            words.extend(["break;".to_string(), "continue;".to_string()]);
        }
        match self.place.clone() {
            Place::Function(Some(ty)) => {
                let value = self.expr(&ty, 1);
                words.push(format!("return {value};"));
            }
            Place::Function(None) => words.push("return;".into()),
            Place::Action | Place::Apply => words.extend(["return;".to_string(), "exit;".to_string()]),
            Place::Plain => words.push("return;".into()),
            Place::State | Place::Top => {}
        }
        if words.is_empty() {
            return self.assignment();
        }
        let cond = self.bool_expr(2);
        self.open(format!("if ({cond}) {{"));
        let word = self.dice.pick(&words).clone();
        self.line(word);
        self.close("}");
    }

    fn validity(&mut self) {
        let headers: Vec<usize> = (0..self.scope.len())
            .filter(|&i| self.scope[i].writable && matches!(self.scope[i].ty, Type::Header(_)))
            .collect();
        if headers.is_empty() {
            return self.assignment();
        }
        let path = self.scope[*self.dice.pick(&headers)].path.clone();
        let path = self.with_index(path);
        let method = *self.dice.pick(&["setValid", "setValid", "setInvalid"]);
        self.line(format!("{path}.{method}();"));
    }

    fn push_pop(&mut self) {
        let stacks: Vec<String> = self
            .scope
            .iter()
            .filter(|v| v.writable && matches!(v.ty, Type::Stack(..)))
            .map(|v| v.path.clone())
            .collect();
        if stacks.is_empty() {
            return self.assignment();
        }
        let path = self.dice.pick(&stacks).clone();
        let path = self.with_index(path);
        let method = *self.dice.pick(&["push_front", "pop_front"]);
        let n = self.dice.range(1, 3);
        self.line(format!("{path}.{method}({n});"));
    }

    /// A canary: evaluates a constant expression again at run time, with variables, and counts if the results differ.
    fn canary(&mut self) {
        if !matches!(self.place, Place::Apply | Place::Action) || !self.externs.iter().any(|e| e.name == "canary") {
            return self.assignment();
        }
        let mark = self.scope.len();
        let mut vars = Vec::new();
        for _ in 0..self.dice.range(1, 3) {
            let ty = match self.scalar() {
                ty @ (Type::Bit(_) | Type::Int(_) | Type::Bool) => ty,
                _ => Type::Bit(9),
            };
            let name = self.name("k");
            let value = self.literal(&ty);
            let text = self.ty(&ty);
            self.line(format!("const {text} K{name} = {value};"));
            self.line(format!("{text} {name} = K{name};"));
            self.scope.push(Var { path: format!("K{name}"), ty, writable: false, constant: true });
            vars.push(name);
        }
        let shown: Vec<Var> = self.scope.drain(..mark).collect();
        self.only_constants = true;
        let ty = match self.scalar() {
            ty @ (Type::Bit(_) | Type::Int(_) | Type::Bool) => ty,
            _ => Type::Bit(9),
        };
        let known = self.expr(&ty, 4);
        self.only_constants = false;
        self.scope.splice(0..0, shown);
        self.forget(mark);
        let mut computed = known.clone();
        for name in &vars {
            computed = computed.replace(&format!("K{name}"), name);
        }
        if known != computed {
            let width = if self.typed_index { "(bit<8>)" } else { "" };
            self.open(format!("if ({known} != {computed}) {{"));
            self.line(format!("canary.count({width}0);"));
            self.close("}");
        }
    }
}
