//! Tables: keys of every match kind, actions with bound arguments, constant entries, direct externs, action profiles.

use crate::declared::{Callable, Dir, Place, Table};
use crate::generator::Gen;
use crate::types::Type;

/// An element of a table's action list: the action with its directed arguments.
struct Listed {
    action: Callable,
    bound: String,
}

impl Listed {
    /// The action call with its directed arguments and `data`.
    fn call(&self, data: &[String]) -> String {
        let mut args: Vec<&str> = Vec::new();
        if !self.bound.is_empty() {
            args.push(&self.bound);
        }
        args.extend(data.iter().map(String::as_str));
        format!("{}({})", self.action.name, args.join(", "))
    }
}

impl Gen {
    /// Declares a table in the current control. `names_are_unique`: the control has only one instance.
    pub fn table(&mut self, names_are_unique: bool) {
        let name = self.name("table_");
        let mut direct = Vec::new();
        let mut own = Vec::new();
        if self.dice.one_in(4) {
            let counter = self.name("dc");
            let unit = *self.dice.pick(&["packets", "bytes", "packets_and_bytes"]);
            self.line(format!("direct_counter(CounterType.{unit}) {counter};"));
            if self.dice.one_in(2) {
                own.push(format!("{counter}.count();"));
            }
            direct.push(format!("counters = {counter};"));
        }
        if self.dice.one_in(6)
            && let Some(target) = self.lvalue(&Type::Bit(8)).filter(|t| !t.contains('('))
        {
            let meter = self.name("dm");
            let unit = *self.dice.pick(&["packets", "bytes"]);
            self.line(format!("direct_meter<bit<8>>(MeterType.{unit}) {meter};"));
            own.push(format!("{meter}.read({target});"));
            direct.push(format!("meters = {meter};"));
        }
        if !own.is_empty() {
            self.action(&own, Some(name.clone()));
        }
        let implementation = if names_are_unique && self.dice.one_in(6) { self.profile() } else { None };
        let keys = self.keys(implementation.as_ref().is_some_and(|(_, selector)| *selector));
        let listed = self.listed_actions(&name);
        let cost = listed.iter().map(|l| l.action.cost).sum::<u64>() + 4;

        self.open(format!("table {name} {{"));
        if !keys.is_empty() {
            self.open("key = {");
            for (expr, _, kind, at) in &keys {
                self.line(format!("{expr} : {kind} @name(\"k{at}\");"));
            }
            self.close("}");
        }
        self.open("actions = {");
        for l in &listed {
            let line = if l.bound.is_empty() && self.dice.one_in(2) { l.action.name.clone() } else { l.call(&[]) };
            self.line(format!("{line};"));
        }
        self.line("NoAction;");
        self.close("}");
        if implementation.is_none() && !listed.is_empty() && self.dice.one_in(2) {
            let at = self.dice.index(listed.len());
            let data = self.action_data(&listed[at].action);
            let constant = if self.dice.one_in(3) { "const " } else { "" };
            let call = listed[at].call(&data);
            self.line(format!("{constant}default_action = {call};"));
        }
        let routes = keys.len() == 1 && keys[0].2 == "lpm";
        let may_list = !keys.is_empty() && implementation.is_none() && !listed.is_empty();
        if may_list && self.dice.one_in(if routes { 8 } else { 3 }) {
            self.entries(&keys, &listed);
        } else if self.dice.one_in(2) {
            let size = *self.dice.pick(&[1, 4, 64, 1024]);
            self.line(format!("size = {size};"));
        }
        for line in direct {
            self.line(line);
        }
        if let Some((profile, _)) = &implementation {
            self.line(format!("implementation = {profile};"));
        }
        self.close("}");
        if let Some((profile, selector)) = implementation {
            self.profile_setup(&name, &profile, selector, &keys, &listed);
        }
        let actions = listed.iter().map(|l| l.action.name.clone()).collect();
        self.tables.push(Table { name, actions, cost });
    }

    /// Declares an action profile or selector: its name, and whether it is a selector.
    fn profile(&mut self) -> Option<(String, bool)> {
        let name = self.name("ap");
        let selector = self.dice.one_in(2);
        if selector {
            let algorithm = *self.dice.pick(&["crc16", "crc32", "csum16", "xor16", "identity"]);
            let width = *self.dice.pick(&[4, 14, 16, 32]);
            self.line(format!("action_selector(HashAlgorithm.{algorithm}, 16, {width}) {name};"));
        } else {
            self.line(format!("action_profile(16) {name};"));
        }
        Some((name, selector))
    }

    /// The keys: expression, type, match kind, position.
    fn keys(&mut self, selector: bool) -> Vec<(String, Type, &'static str, usize)> {
        let mut keys: Vec<(String, Type, &'static str, usize)> = Vec::new();
        let count = [0, 1, 1, 1, 2, 2, 3, 4][self.dice.index(8)].max(usize::from(selector));
        let outer = std::mem::replace(&mut self.calls, false);
        // A table with a single prefix key has special implementations, in engines and in compiled code.
        let address = if count == 1 && !selector && self.dice.one_in(2) { Some(self.address_width()) } else { None };
        for at in 0..count {
            let asked = if address.is_none() && self.dice.one_in(3) { self.asked_before() } else { None };
            let ty = match (&asked, address) {
                (_, Some(width)) => Type::Bit(width),
                (Some((_, width)), None) => Type::Bit(*width),
                (None, None) => loop {
                    let ty = self.scalar();
                    if self.types.size(&ty) > 0 {
                        break ty;
                    }
                },
            };
            let plain = matches!(ty, Type::Bit(_));
            let has_lpm = keys.iter().any(|k| k.2 == "lpm");
            let kind = match self.dice.index(8) {
                _ if address.is_some() => "lpm",
                0..=2 => "exact",
                3 if plain && !has_lpm => "lpm",
                4 if matches!(ty, Type::Bit(_) | Type::Int(_)) => "ternary",
                5 if plain => "range",
                6 => "optional",
                _ if plain => "ternary",
                _ => "exact",
            };
            let depth = if self.dice.one_in(3) { 1 } else { 0 };
            let expr = match asked {
                Some((path, _)) => path,
                None => self.expr(&ty, depth),
            };
            keys.push((expr, ty, kind, at));
        }
        if selector {
            for at in count..count + 1 + self.dice.index(2) {
                let ty = Type::Bit(self.types.width(&mut self.dice));
                let expr = self.expr(&ty, 0);
                keys.push((expr, ty, "selector", at));
            }
        }
        self.calls = outer;
        keys
    }

    /// The width of a field for prefixes of up to 32 bits.
    fn address_width(&mut self) -> u32 {
        let fields = self.types.widths.iter().copied().filter(|w| (16..=32).contains(w));
        let widths: Vec<u32> = fields.chain([24, 32]).collect();
        *self.dice.pick(&widths)
    }

    fn listed_actions(&mut self, table: &str) -> Vec<Listed> {
        let mut candidates: Vec<Callable> =
            self.actions.iter().filter(|a| a.table.as_ref().is_none_or(|t| t == table)).cloned().collect();
        self.dice.shuffle(&mut candidates);
        let count = self.dice.index(4);
        let mut listed: Vec<Listed> = Vec::new();
        for action in candidates {
            let needed = action.table.is_some();
            if !needed && (listed.len() >= count || action.cost > 300) {
                continue;
            }
            let place = std::mem::replace(&mut self.place, Place::Apply);
            let calls = std::mem::replace(&mut self.calls, false);
            let bound = self.positional(&action.params, true, 1);
            self.place = place;
            self.calls = calls;
            if let Some(bound) = bound {
                listed.push(Listed { action, bound });
            }
        }
        listed
    }

    fn action_data(&mut self, action: &Callable) -> Vec<String> {
        let data: Vec<Type> = action.params.iter().filter(|p| p.dir == Dir::None).map(|p| p.ty.clone()).collect();
        data.iter().map(|t| self.literal(t)).collect()
    }

    fn entries(&mut self, keys: &[(String, Type, &'static str, usize)], listed: &[Listed]) {
        let prioritised = keys.iter().any(|k| matches!(k.2, "ternary" | "range" | "optional"));
        let constant = self.dice.one_in(2);
        let numbered = prioritised && !constant && self.dice.one_in(2);
        if prioritised && self.dice.one_in(3) {
            let which = self.dice.one_in(2);
            self.line(format!("largest_priority_wins = {which};"));
        }
        self.open(format!("{}entries = {{", if constant { "const " } else { "" }));
        let mut seen: Vec<String> = Vec::new();
        for i in 0..self.dice.range(1, 5) {
            let sets: Vec<String> = keys.iter().map(|k| self.keyset(&k.1, k.2)).collect();
            let set = if sets.len() == 1 { sets[0].clone() } else { format!("({})", sets.join(", ")) };
            if seen.contains(&set) {
                continue;
            }
            seen.push(set.clone());
            let at = self.dice.index(listed.len());
            let data = self.action_data(&listed[at].action);
            let call = listed[at].call(&data);
            let priority =
                if numbered { format!("priority = {}: ", 10 + i * self.dice.range(1, 3)) } else { String::new() };
            self.line(format!("{priority}{set} : {call};"));
        }
        self.close("}");
    }

    /// The match of an entry on one key. Exact keys get different small numbers, so that entries differ.
    fn keyset(&mut self, ty: &Type, kind: &str) -> String {
        let small = |g: &mut Gen| match ty {
            Type::Bit(w) | Type::Int(w) => {
                let bits = (*w).min(3).saturating_sub(u32::from(matches!(ty, Type::Int(_))));
                g.dice.index(1 << bits).to_string()
            }
            Type::New(i) => {
                let (name, width) = g.types.news[*i].clone();
                format!("({name}){}", g.dice.index(1 << width.min(3)))
            }
            _ => g.literal(ty),
        };
        match (kind, ty) {
            ("lpm", Type::Bit(w)) => {
                let length = self.dice.range(0, *w);
                if length == 0 {
                    return "_".into();
                }
                let bits: Vec<bool> = (0..*w).map(|i| i >= *w - length && self.dice.one_in(3)).collect();
                let (value, mask) = (self.hex(*w, |i| bits[i as usize]), self.hex(*w, |i| i >= *w - length));
                format!("{value} &&& {mask}")
            }
            ("ternary", Type::Bit(w)) => match self.dice.index(4) {
                0 => "_".into(),
                1 => small(self),
                _ => {
                    let mask: Vec<bool> = (0..*w).map(|_| self.dice.one_in(4)).collect();
                    let value: Vec<bool> = (0..*w).map(|i| mask[i as usize] && self.dice.one_in(3)).collect();
                    format!("{} &&& {}", self.hex(*w, |i| value[i as usize]), self.hex(*w, |i| mask[i as usize]))
                }
            },
            ("range", Type::Bit(w)) => {
                let high = self.dice.index(1 << (*w).min(6));
                let low = self.dice.index(high + 1);
                format!("{low} .. {high}")
            }
            ("ternary" | "optional", _) if self.dice.one_in(3) => "_".into(),
            _ => small(self),
        }
    }

    /// Set-up lines for members, groups and entries of a table with an action profile.
    fn profile_setup(
        &mut self,
        table: &str,
        profile: &str,
        selector: bool,
        keys: &[(String, Type, &'static str, usize)],
        listed: &[Listed],
    ) {
        for id in 1..=3 {
            let call = if listed.is_empty() {
                "NoAction()".to_string()
            } else {
                let at = self.dice.index(listed.len());
                let action = listed[at].action.clone();
                let data: Vec<String> = action
                    .params
                    .iter()
                    .filter(|p| p.dir == Dir::None)
                    .map(|p| {
                        let width = self.types.size(&p.ty).min(6);
                        format!("{}:{}", p.name, self.dice.index(1 << width))
                    })
                    .collect();
                format!("{}({})", action.name, data.join(", "))
            };
            self.setup.push(format!("member {profile} {id} {call}"));
        }
        if selector {
            let weight = self.dice.range(1, 3);
            self.setup.push(format!("group {profile} 1 1:{weight} 2:1 3:2"));
        }
        for i in 0..4 {
            let mut line = format!("add {table}");
            if keys.iter().any(|k| matches!(k.2, "ternary" | "range" | "optional")) {
                line += &format!(" {}", i + 1);
            }
            for (_, ty, kind, at) in keys.iter().filter(|k| k.2 != "selector") {
                let width = self.types.size(ty);
                let value = if *kind == "exact" { i % (1 << width.min(2)) } else { 0 };
                match *kind {
                    "exact" => line += &format!(" k{at}:{value}"),
                    "lpm" if i > 0 => line += &format!(" k{at}:0/{}", width.min(i)),
                    "optional" if i % 2 == 1 => line += &format!(" k{at}:{}", i % (1 << width.min(2))),
                    _ => {}
                }
            }
            let action = if selector && i % 2 == 0 { "group(1)".to_string() } else { format!("member({})", 1 + i % 3) };
            line += &format!(" {action}");
            self.setup.push(line);
        }
    }

    /// `table.apply().hit` or `.miss`, where a table can be applied.
    pub fn table_hit(&mut self) -> Option<String> {
        if self.place != Place::Apply || !self.calls || self.only_constants {
            return None;
        }
        let fit: Vec<usize> = (0..self.tables.len()).filter(|&i| self.affords(self.tables[i].cost)).collect();
        if fit.is_empty() {
            return None;
        }
        let table = self.tables[*self.dice.pick(&fit)].clone();
        self.cost += table.cost;
        let what = *self.dice.pick(&["hit", "miss"]);
        if self.rewrites() {
            let other = if what == "hit" { "miss" } else { "hit" };
            return Some(format!("(!{}.apply().{other})", table.name));
        }
        Some(format!("{}.apply().{what}", table.name))
    }

    /// Applies a table or a sub-control; false if there is none.
    pub fn apply_statement(&mut self, depth: u32) -> bool {
        if self.place != Place::Apply {
            return false;
        }
        let fit: Vec<usize> = (0..self.tables.len()).filter(|&i| self.affords(self.tables[i].cost)).collect();
        if fit.is_empty() {
            return false;
        }
        let table = self.tables[*self.dice.pick(&fit)].clone();
        self.cost += table.cost;
        if depth == 0 || table.actions.is_empty() || self.dice.one_in(2) {
            if self.rewrites() {
                self.line(format!("if ({}.apply().miss) {{ }}", table.name));
            } else {
                self.line(format!("{}.apply();", table.name));
            }
            return true;
        }
        self.open(format!("switch ({}.apply().action_run) {{", table.name));
        let mut actions = table.actions.clone();
        self.dice.shuffle(&mut actions);
        let count = 1 + self.dice.index(actions.len());
        for (i, action) in actions[..count].iter().enumerate() {
            if i + 1 < count && self.dice.one_in(4) {
                self.line(format!("{action}:"));
                continue;
            }
            self.open(format!("{action}: {{"));
            let statements = self.dice.range(0, 2);
            self.body(statements, depth - 1);
            self.close("}");
        }
        if self.dice.one_in(2) {
            self.open("default: {");
            let statements = self.dice.range(0, 2);
            self.body(statements, depth - 1);
            self.close("}");
        }
        self.close("}");
        true
    }
}
