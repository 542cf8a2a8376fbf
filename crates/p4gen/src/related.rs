//! Correlated statements: a variable is tested in nested branches, with conditions of all forms, assigned in between,
//! and tested again afterwards; likewise for headers' validity and repeated table applications.
//!
//! Random conditions on random variables rarely concern the same facts, so that a compiler that infers too much from a
//! condition, or keeps a fact for too long, would be right on all of them.

use crate::declared::Place;
use crate::generator::Gen;
use crate::types::Type;

/// The tested variable, and the values that conditions compare it with.
struct Subject {
    path: String,
    width: u32,
    /// The bits of interest, from which masks and slices choose.
    bits: Vec<u32>,
    /// The values from which constants are chosen, as bits from the lowest.
    points: Vec<Vec<bool>>,
}

impl Gen {
    /// Generates nested branches that concern one variable or header.
    pub fn related(&mut self, depth: u32) {
        self.cost += 2;
        if self.dice.one_in(5) {
            return self.related_validity(depth);
        }
        let Some(subject) = self.subject() else { return self.assignment() };
        self.asked.push((subject.path.clone(), subject.width));
        for _ in 0..self.dice.range(1, 2) {
            self.ask(&subject, depth);
        }
        // Also makes the value of a local variable observable.
        self.note(&subject);
    }

    /// Whether a name still denotes the same variable: a block may have shadowed it.
    fn means(&self, path: &str, ty: &Type) -> bool {
        self.scope.iter().rev().find(|v| v.path == path).is_some_and(|v| v.ty == *ty)
    }

    /// A variable that was tested before and is in scope here.
    pub fn asked_before(&mut self) -> Option<(String, u32)> {
        let fit: Vec<(String, u32)> = self
            .asked
            .iter()
            .filter(|(path, w)| self.scope.iter().any(|v| v.path == *path && v.ty == Type::Bit(*w) && !v.constant))
            .cloned()
            .collect();
        if fit.is_empty() { None } else { Some(self.dice.pick(&fit).clone()) }
    }

    fn subject(&mut self) -> Option<Subject> {
        let writable = |g: &Gen, path: &str| g.scope.iter().any(|v| v.path == path && v.writable);
        let again = if self.dice.one_in(2) { self.asked_before() } else { None };
        let (path, width) = match again.filter(|(path, _)| writable(self, path)) {
            Some(again) => again,
            None => {
                let fit: Vec<(String, u32)> = self
                    .scope
                    .iter()
                    .filter(|v| v.writable && !v.path.contains(['@', '[']))
                    .filter_map(|v| match v.ty {
                        Type::Bit(w) if (2..=64).contains(&w) => Some((v.path.clone(), w)),
                        _ => None,
                    })
                    .collect();
                if fit.is_empty() {
                    return None;
                }
                self.dice.pick(&fit).clone()
            }
        };
        // Few bits, so that packets take every branch.
        let count = self.dice.range(1, width.min(3));
        let mut bits: Vec<u32> = (0..width).collect();
        if self.dice.one_in(3) {
            self.dice.shuffle(&mut bits);
        }
        bits.truncate(count as usize);
        let mut points: Vec<Vec<bool>> = Vec::new();
        for _ in 0..self.dice.range(1, 3) {
            let mut point = vec![false; width as usize];
            for &bit in &bits {
                point[bit as usize] = self.dice.one_in(2);
            }
            points.push(point);
        }
        let (narrowed, written) = match self.dice.index(4) {
            0 => (path.clone(), false),
            1 | 2 => (path.clone(), true),
            _ => {
                let name = self.name("v");
                let text = self.types.name(&Type::Bit(width));
                self.line(format!("{text} {name} = {path};"));
                self.declare(&name, &Type::Bit(width), true);
                (name, true)
            }
        };
        if written {
            let mask = self.hex(width, |i| bits.contains(&i));
            self.line(format!("{narrowed} = ({narrowed} & {width}w{mask});"));
        }
        Some(Subject { path: narrowed, width, bits, points })
    }

    /// A value near those of interest: one of them, sometimes with a bit changed or incremented.
    fn near(&mut self, s: &Subject) -> Vec<bool> {
        let mut point = self.dice.pick(&s.points).clone();
        match self.dice.index(8) {
            0 | 1 => {
                let at = *self.dice.pick(&s.bits) as usize;
                point[at] = !point[at];
            }
            2 => {
                // Increments.
                for bit in &mut point {
                    *bit = !*bit;
                    if *bit {
                        break;
                    }
                }
            }
            3 if self.dice.one_in(3) => {
                let at = self.dice.index(point.len());
                point[at] = !point[at];
            }
            _ => {}
        }
        point
    }

    fn number(&self, bits: &[bool]) -> String {
        format!("{}w{}", bits.len(), self.hex(bits.len() as u32, |i| bits[i as usize]))
    }

    /// A mask of some bits of interest, or of all but a few bits.
    fn mask(&mut self, s: &Subject) -> Vec<bool> {
        let all = self.dice.one_in(3);
        let mut mask = vec![all; s.width as usize];
        for _ in 0..self.dice.range(1, 2) {
            let at = *self.dice.pick(&s.bits) as usize;
            mask[at] = !all;
        }
        mask
    }

    /// A condition on the subject.
    fn question(&mut self, s: &Subject, depth: u32) -> String {
        let c = self.near(s);
        let value = self.number(&c);
        let path = &s.path;
        let op = if self.dice.one_in(3) { "!=" } else { "==" };
        match self.dice.index(if depth > 0 { 17 } else { 12 }) {
            0..=2 => format!("({path} {op} {value})"),
            3 | 4 => {
                let mask = self.mask(s);
                // Sometimes with bits outside the mask: then the condition never holds.
                let exact = !self.dice.one_in(8);
                let seen: Vec<bool> = c.iter().zip(&mask).map(|(c, m)| *c && (*m || !exact)).collect();
                let (mask, seen) = (self.number(&mask), self.number(&seen));
                match self.dice.index(3) {
                    0 => format!("(({mask} & {path}) {op} {seen})"),
                    _ => format!("(({path} & {mask}) {op} {seen})"),
                }
            }
            5 => {
                let inverse: Vec<bool> = c.iter().map(|bit| !bit).collect();
                format!("((~{path}) {op} {})", self.number(&inverse))
            }
            6 => {
                let mask = self.mask(s);
                let joined: Vec<bool> = c.iter().zip(&mask).map(|(c, m)| *c || *m).collect();
                let (mask, joined) = (self.number(&mask), self.number(&joined));
                format!("(({path} | {mask}) {op} {joined})")
            }
            7 => {
                let mask = self.mask(s);
                let other: Vec<bool> = c.iter().zip(&mask).map(|(c, m)| c ^ m).collect();
                let (mask, other) = (self.number(&mask), self.number(&other));
                format!("(({path} ^ {mask}) {op} {other})")
            }
            8 => {
                let low = self.dice.range(0, s.width - 1);
                let low = if self.dice.one_in(2) { *self.dice.pick(&s.bits) } else { low };
                let high = self.dice.range(low, s.width - 1);
                let part = self.number(&c[low as usize..=high as usize]);
                format!("({path}[{high}:{low}] {op} {part})")
            }
            9 => {
                // Combined with another variable, or with a constant.
                let other = self.read(&Type::Bit(s.width)).filter(|other| !other.contains(['(', '[']));
                let near = self.near(s);
                let other = other.unwrap_or_else(|| self.number(&near));
                let mut first = c.clone();
                let (text, high) = match self.dice.index(2) {
                    0 => (format!("({path} ++ {other})"), false),
                    _ => (format!("({other} ++ {path})"), true),
                };
                // The second operand in the lower bits.
                let both = if high {
                    first.extend(near);
                    first
                } else {
                    let mut both = near;
                    both.extend(first);
                    both
                };
                format!("({text} {op} {})", self.number(&both))
            }
            10 => {
                let other = self.near(s);
                let other = self.number(&other);
                format!("({path} {} {other})", self.dice.pick(&["<", "<=", ">", ">="]))
            }
            11 => {
                let flag = self.read(&Type::Bool).unwrap_or_else(|| "true".into());
                format!("({flag} {op} ({path} == {value}))")
            }
            12 => format!("(!{})", self.question(s, depth - 1)),
            13 | 14 => format!("({} && {})", self.question(s, depth - 1), self.question(s, depth - 1)),
            15 => format!("({} || {})", self.question(s, depth - 1), self.question(s, depth - 1)),
            _ => {
                let other = self.bool_expr(1);
                let mine = self.question(s, depth - 1);
                let op = *self.dice.pick(&["&&", "||"]);
                format!("({mine} {op} {other})")
            }
        }
    }

    /// Makes the branch taken observable.
    fn note(&mut self, s: &Subject) {
        let lasting: Vec<(String, u32)> = self
            .scope
            .iter()
            .filter(|v| v.writable && v.path != s.path && (v.path.starts_with("meta.") || v.path.starts_with("hdr.")))
            .filter(|v| !v.path.contains(['@', '[']))
            .filter_map(|v| if let Type::Bit(w) = v.ty { Some((v.path.clone(), w)) } else { None })
            .collect();
        if lasting.is_empty() {
            return self.assignment();
        }
        let (path, width) = self.dice.pick(&lasting).clone();
        let more = self.dice.range(1, 9);
        if self.dice.one_in(3) {
            self.line(format!("{path} = ({path} ^ ((bit<{width}>){}));", s.path));
        } else {
            self.line(format!("{path} = ({path} + ((bit<{width}>){more}));"));
        }
    }

    /// Modifies or copies the subject.
    fn touch(&mut self, s: &Subject) {
        let path = &s.path;
        let c = self.near(s);
        let value = self.number(&c);
        let mask = self.mask(s);
        let mask = self.number(&mask);
        match self.dice.index(8) {
            0 | 1 => self.line(format!("{path} = {value};")),
            2 => self.line(format!("{path} = ({path} + {value});")),
            3 => self.line(format!("{path} = ({path} & {mask});")),
            4 => self.line(format!("{path} = ({path} ^ {mask});")),
            5 => {
                let at = *self.dice.pick(&s.bits);
                let bit = u32::from(self.dice.one_in(2));
                self.line(format!("{path}[{at}:{at}] = {bit};"));
            }
            6 => match self.read(&Type::Bit(s.width)) {
                Some(other) => self.line(format!("{path} = {other};")),
                None => self.line(format!("{path} = (~{path});")),
            },
            _ => match self.lvalue(&Type::Bit(s.width)) {
                Some(other) => self.line(format!("{other} = {path};")),
                None => self.line(format!("{path} = {value};")),
            },
        }
    }

    /// A block of statements: in a branch, and before and after it.
    fn chapter(&mut self, s: &Subject, depth: u32) {
        let mark = self.scope.len();
        let outer = std::mem::replace(&mut self.block, mark);
        for _ in 0..self.dice.range(1, 3) {
            if !self.means(&s.path, &Type::Bit(s.width)) {
                self.assignment();
                continue;
            }
            match self.dice.index(9) {
                0 | 1 => self.touch(s),
                2..=4 if depth > 0 => self.ask(s, depth - 1),
                5 if depth > 0 => self.statement(depth - 1),
                6 if depth > 0 => self.related_apply(s, depth - 1),
                _ => self.note(s),
            }
        }
        self.block = outer;
        self.forget(mark);
    }

    /// Tests the subject, with dependent statements in the branches; sometimes tests again what is then known.
    fn ask(&mut self, s: &Subject, depth: u32) {
        self.cost += 2;
        if self.dice.one_in(6) && !self.place.is_parser() {
            self.ask_switch(s, depth);
        } else {
            let cond = self.question(s, 2);
            let cond = if self.dice.one_in(3) {
                // The condition is evaluated before the subject changes, and tested after that.
                let name = self.name("v");
                self.line(format!("bool {name} = {cond};"));
                self.declare(&name, &Type::Bool, true);
                if self.dice.one_in(2) {
                    self.touch(s);
                }
                name
            } else {
                cond
            };
            self.open(format!("if ({cond}) {{"));
            self.chapter(s, depth);
            if self.dice.one_in(3) {
                let cond = self.question(s, 1);
                self.close_open(format!("}} else if ({cond}) {{"));
                self.chapter(s, depth);
            }
            if self.dice.index(3) != 0 {
                self.close_open("} else {");
                self.chapter(s, depth);
            }
            self.close("}");
        }
        if self.dice.one_in(3) {
            self.touch(s);
        }
        if self.dice.one_in(2) {
            let cond = self.question(s, 1);
            self.open(format!("if ({cond}) {{"));
            self.note(s);
            self.close("}");
        }
    }

    fn ask_switch(&mut self, s: &Subject, depth: u32) {
        let mask = self.mask(s);
        let masked = self.number(&mask);
        let (subject, is_masked) = match self.dice.index(3) {
            0 => (format!("({} & {masked})", s.path), true),
            1 => (format!("(~{})", s.path), false),
            _ => (s.path.clone(), false),
        };
        let negated = subject.starts_with("(~");
        self.open(format!("switch ({subject}) {{"));
        let mut seen: Vec<String> = Vec::new();
        for _ in 0..self.dice.range(1, 3) {
            let c = self.near(s);
            let c: Vec<bool> = c.iter().zip(&mask).map(|(c, m)| (*c && (*m || !is_masked)) ^ negated).collect();
            let label = self.number(&c);
            if seen.contains(&label) {
                continue;
            }
            seen.push(label.clone());
            self.open(format!("{label}: {{"));
            self.chapter(s, depth);
            self.close("}");
        }
        if self.dice.one_in(2) {
            self.open("default: {");
            self.chapter(s, depth);
            self.close("}");
        }
        self.close("}");
    }

    /// Applies a table, tests the subject depending on the result, and sometimes applies the table again.
    fn related_apply(&mut self, s: &Subject, depth: u32) {
        let fit: Vec<usize> = (0..self.tables.len()).filter(|&i| self.affords(2 * self.tables[i].cost)).collect();
        if self.place != Place::Apply || fit.is_empty() {
            return self.touch(s);
        }
        let table = self.tables[*self.dice.pick(&fit)].clone();
        self.cost += 2 * table.cost;
        let name = &table.name;
        match self.dice.index(4) {
            0 if !table.actions.is_empty() => {
                let action = self.dice.pick(&table.actions).clone();
                self.open(format!("switch ({name}.apply().action_run) {{"));
                self.open(format!("{action}: {{"));
                self.chapter(s, depth);
                self.close("}");
                self.open("default: {");
                self.note(s);
                self.close("}");
                self.close("}");
            }
            1 | 2 => {
                let what = *self.dice.pick(&["hit", "miss"]);
                self.open(format!("if ({name}.apply().{what}) {{"));
                self.chapter(s, depth);
                self.close("}");
            }
            _ => self.line(format!("{name}.apply();")),
        }
        if self.dice.one_in(2) {
            if self.dice.one_in(2) {
                self.touch(s);
            }
            self.line(format!("{name}.apply();"));
        }
    }

    /// The same for a header: tests its validity in branches that imply it, with changes in between.
    fn related_validity(&mut self, depth: u32) {
        let headers: Vec<String> = self
            .scope
            .iter()
            .filter(|v| v.writable && matches!(v.ty, Type::Header(_)) && !v.path.contains('@'))
            .map(|v| v.path.clone())
            .collect();
        if headers.is_empty() {
            return self.assignment();
        }
        let header = self.dice.pick(&headers).clone();
        for _ in 0..self.dice.range(1, 2) {
            self.ask_validity(&header, depth.min(2));
        }
    }

    fn ask_validity(&mut self, header: &str, depth: u32) {
        self.cost += 2;
        let valid = format!("{header}.isValid()");
        let cond = match self.dice.index(4) {
            0 => format!("(!{valid})"),
            1 => {
                let other = self.bool_expr(1);
                format!("({valid} {} {other})", self.dice.pick(&["&&", "||"]))
            }
            _ => valid,
        };
        self.open(format!("if ({cond}) {{"));
        self.with_header(header, depth);
        if self.dice.one_in(2) {
            self.close_open("} else {");
            self.with_header(header, depth);
        }
        self.close("}");
        if self.dice.one_in(2) {
            self.change_validity(header);
        }
    }

    fn change_validity(&mut self, header: &str) {
        let method = *self.dice.pick(&["setValid", "setInvalid"]);
        self.line(format!("{header}.{method}();"));
    }

    /// A block of statements that concern a header.
    fn with_header(&mut self, header: &str, depth: u32) {
        let mark = self.scope.len();
        let outer = std::mem::replace(&mut self.block, mark);
        for _ in 0..self.dice.range(1, 2) {
            let ty = self.scope.iter().rev().find(|v| v.path == header).map(|v| v.ty.clone());
            if !matches!(ty, Some(Type::Header(_))) {
                self.assignment();
                continue;
            }
            match self.dice.index(5) {
                0 | 1 => self.change_validity(header),
                2 | 3 if depth > 0 => self.ask_validity(header, depth - 1),
                _ => self.statement(depth),
            }
        }
        self.block = outer;
        self.forget(mark);
    }
}
