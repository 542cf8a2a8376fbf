//! Parsers: states with loops over stacks, `select` of every kind, lookahead, advance, verify, value sets, sub-parsers.
//!
//! Transitions lead forward, or backward after bytes have been extracted, so that every parser terminates.

use crate::declared::{Control, Half, Param, Place};
use crate::generator::Gen;
use crate::types::Type;

impl Gen {
    /// Declares sub-parsers and the parser.
    pub fn parsers(&mut self) {
        for _ in 0..self.dice.index(3) {
            self.sub_parser();
        }
        let outer = self.begin();
        self.declare_packet(true, true);
        self.open("parser P(packet_in pkt, out Headers hdr, inout Meta meta, inout standard_metadata_t sm) {");
        self.declare_instances(true);
        let sets = self.value_sets();
        let count = self.dice.range(2, 4 + self.size);
        self.states(count, &sets);
        self.close("}");
        self.finish(outer);
    }

    fn begin(&mut self) -> (usize, Half, u64) {
        self.place = Place::State;
        self.calls = true;
        (self.scope.len(), self.half, std::mem::take(&mut self.cost))
    }

    fn finish(&mut self, (scope, half, cost): (usize, Half, u64)) -> u64 {
        self.forget(scope);
        self.instances.clear();
        self.unnamed.clear();
        self.half = half;
        self.place = Place::Top;
        self.calls = false;
        std::mem::replace(&mut self.cost, cost)
    }

    fn sub_parser(&mut self) {
        let name = self.name("SubP");
        let outer = self.begin();
        let Type::Struct(headers) = self.headers_type() else { return };
        self.declare("meta", &Type::Struct(headers + 1), true);
        // Headers are passed as separate parameters.
        let mut params: Vec<Param> = Vec::new();
        for _ in 0..self.dice.index(2) {
            let ty = Type::Header(self.dice.index(self.types.headers.len() - 1));
            let name = self.name("p");
            let dir = *self.dice.pick(&[crate::declared::Dir::Out, crate::declared::Dir::InOut]);
            self.declare(&name, &ty, true);
            params.push(Param { dir, ty, name, default: false });
        }
        let more = self.dice.index(2) as u32;
        params.extend(self.params(more, false));
        let list = self.param_list(&params);
        let (ctor_list, ctor) = self.ctor_params();
        let comma = if list.is_empty() { "" } else { ", " };
        self.open(format!(
            "parser {name}(packet_in pkt, inout Meta meta, inout standard_metadata_t sm{comma}{list}){ctor_list} {{"
        ));
        let count = self.dice.range(1, 3);
        self.states(count, &[]);
        self.close("}");
        let cost = self.finish(outer);
        self.controls.push(Control { name, params, ctor, cost, parser: true });
    }

    /// Declares value sets: name and type.
    fn value_sets(&mut self) -> Vec<(String, Type)> {
        let mut sets = Vec::new();
        for _ in 0..self.dice.index(3) {
            let name = self.name("vs");
            let width = *self.dice.pick(&[1, 2, 3, 8, 16]);
            self.line(format!("value_set<bit<{width}>>(4) {name};"));
            for _ in 0..self.dice.index(3) {
                let value = self.dice.index(1 << width.min(4));
                self.setup.push(format!("value_set {name} {value}"));
            }
            sets.push((name, Type::Bit(width)));
        }
        sets
    }

    fn states(&mut self, count: u32, sets: &[(String, Type)]) {
        let names: Vec<String> =
            (0..count).map(|i| if i == 0 { "start".to_string() } else { self.name("st") }).collect();
        for i in 0..count as usize {
            let mark = self.scope.len();
            self.block = mark;
            self.open(format!("state {} {{", names[i]));
            if self.dice.one_in(2) {
                for (stack, element, _) in self.stacks() {
                    let writable = self.scope.iter().any(|v| v.path == stack && v.writable);
                    if !stack.contains('@') {
                        self.declare(&format!("{stack}.last"), &element, writable);
                    }
                }
            }
            let mut consumed = false;
            for _ in 0..self.dice.range(0, 2) {
                if self.dice.index(4) != 0 {
                    consumed |= self.extract();
                } else {
                    self.parser_statement();
                }
            }
            self.transition(&names, i, consumed, sets);
            self.close("}");
            self.forget(mark);
        }
    }

    /// Extracts something; returns whether that certainly consumes at least a byte.
    fn extract(&mut self) -> bool {
        let mut places: Vec<(String, usize)> = Vec::new();
        for v in &self.scope {
            match &v.ty {
                Type::Header(h) if v.writable && !v.path.contains('@') => places.push((v.path.clone(), *h)),
                Type::Stack(element, _) if v.writable && !v.path.contains('@') => {
                    match **element {
                        // More frequent than single elements.
                        Type::Header(h) => places.extend((0..4).map(|_| (format!("{}.next", v.path), h))),
                        Type::Union(_) => {
                            for (member, ty) in self.types.fields(element) {
                                if let Type::Header(h) = ty {
                                    places.push((format!("{}.next.{member}", v.path), *h));
                                }
                            }
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        if places.is_empty() {
            self.assignment();
            return false;
        }
        let (path, header) = self.dice.pick(&places).clone();
        if self.types.varbit(header).is_some() {
            let value = self.expr(&Type::Bit(8), 1);
            let length = match self.dice.index(6) {
                0 => format!("(bit<32>){value}"),
                1 => format!("((bit<32>)({value} & 3)) << 4"),
                _ => format!("((bit<32>)({value} & 3)) << 3"),
            };
            self.line(format!("pkt.extract({path}, {length});"));
        } else if self.dice.one_in(12) {
            let name = self.types.headers[header].name.clone();
            self.line(format!("pkt.extract<{name}>(_);"));
        } else {
            self.line(format!("pkt.extract({path});"));
        }
        self.types.size(&Type::Header(header)) > 0
    }

    fn parser_statement(&mut self) {
        match self.dice.index(10) {
            0 | 1 => {
                let (cond, error) = (self.bool_expr(2), self.literal(&Type::Error));
                // Mostly true: after an error nothing more is parsed.
                let cond = if self.dice.one_in(2) { format!("({cond} || {})", self.bool_expr(1)) } else { cond };
                self.line(format!("verify({cond}, {error});"));
            }
            2 => {
                let n = *self.dice.pick(&[0, 8, 8, 16, 24]);
                self.line(format!("pkt.advance({n});"));
            }
            3 => {
                let value = self.expr(&Type::Bit(2), 1);
                self.line(format!("pkt.advance(((bit<32>){value}) << 3);"));
            }
            4 => {
                let headers: Vec<usize> = self
                    .scope
                    .iter()
                    .filter_map(|v| match v.ty {
                        Type::Header(h) if v.writable => Some(h),
                        _ => None,
                    })
                    .filter(|h| self.types.varbit(*h).is_none())
                    .collect();
                if headers.is_empty() {
                    return self.assignment();
                }
                let ty = Type::Header(*self.dice.pick(&headers));
                let name = self.types.name(&ty);
                if let Some(target) = self.lvalue(&ty) {
                    self.line(format!("{target} = pkt.lookahead<{name}>();"));
                }
            }
            5 | 6 => self.sub_apply(),
            _ => self.statement(1),
        }
    }

    fn transition(&mut self, names: &[String], at: usize, consumed: bool, sets: &[(String, Type)]) {
        let mut targets: Vec<String> = names[at + 1..].to_vec();
        targets.extend(names[at + 1..].iter().cloned());
        targets.push("accept".into());
        if consumed {
            targets.extend(names[..=at].iter().cloned());
        }
        let forward = |g: &mut Gen| {
            if at + 1 < names.len() && g.dice.index(5) != 0 {
                let i = at + 1 + g.dice.index(names.len() - at - 1);
                names[i].clone()
            } else {
                "accept".to_string()
            }
        };
        if self.dice.one_in(5) {
            let next = forward(self);
            return self.line(format!("transition {next};"));
        }
        let mut keys: Vec<(String, Type)> = Vec::new();
        for _ in 0..[1, 1, 1, 2, 2, 3][self.dice.index(6)] {
            if self.dice.one_in(3)
                && let Some((path, width)) = self.asked_before()
            {
                keys.push((path, Type::Bit(width)));
                continue;
            }
            let ty = match self.dice.index(6) {
                0 => match self.scalar() {
                    Type::New(_) => Type::Bit(4),
                    ty => ty,
                },
                1 if !sets.is_empty() => self.dice.pick(sets).1.clone(),
                _ => Type::Bit(self.dice.range(1, 3)),
            };
            let depth = self.dice.range(1, 2);
            let expr = match ty {
                Type::Bit(w) if w <= 8 && self.dice.one_in(3) => format!("pkt.lookahead<bit<{w}>>()"),
                _ => self.expr(&ty, depth),
            };
            keys.push((expr, ty));
        }
        let list: Vec<&str> = keys.iter().map(|k| k.0.as_str()).collect();
        self.open(format!("transition select({}) {{", list.join(", ")));
        for _ in 0..self.dice.range(1, 4) {
            let values: Vec<String> = keys.iter().map(|(_, ty)| self.select_keyset(ty, sets)).collect();
            let set = if values.len() == 1 { values[0].clone() } else { format!("({})", values.join(", ")) };
            let next = self.dice.pick(&targets).clone();
            let next = if self.dice.one_in(20) { "reject".to_string() } else { next };
            self.line(format!("{set}: {next};"));
        }
        if consumed || self.dice.index(8) != 0 {
            let next = forward(self);
            let word = ["default", "_"][self.dice.index(2)];
            self.line(format!("{word}: {next};"));
        }
        self.close("}");
    }

    fn select_keyset(&mut self, ty: &Type, sets: &[(String, Type)]) -> String {
        let fit: Vec<&String> = sets.iter().filter(|(_, t)| t == ty).map(|(n, _)| n).collect();
        if !fit.is_empty() && self.dice.one_in(2) {
            return (*self.dice.pick(&fit)).clone();
        }
        match ty {
            Type::Bit(w) => match self.dice.index(6) {
                0 => {
                    let (value, mask) = (self.digits(*w), self.digits(*w));
                    format!("{value} &&& {mask}")
                }
                1 => {
                    let high = self.dice.index(1 << (*w).min(6));
                    let low = self.dice.index(high + 1);
                    format!("{low} .. {high}")
                }
                2 => "_".into(),
                3 => {
                    self.only_constants = true;
                    let value = self.expr(ty, 1);
                    self.only_constants = false;
                    value
                }
                _ => self.dice.index(1 << (*w).min(3)).to_string(),
            },
            _ if self.dice.one_in(4) => "_".into(),
            _ => self.literal(ty),
        }
    }
}
