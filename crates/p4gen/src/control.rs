//! Controls: sub-controls with constructor parameters, ingress, egress, checksum controls, the deparser.

use crate::declared::{Control, ExternInstance, ExternKind, Half, Place};
use crate::generator::Gen;
use crate::types::Type;

impl Gen {
    /// Generates constructor parameters and adds them to the scope: their declaration and types.
    pub fn ctor_params(&mut self) -> (String, Vec<Type>) {
        let mut list = Vec::new();
        let mut types = Vec::new();
        for _ in 0..self.dice.index(3) {
            let ty = match self.scalar() {
                ty @ (Type::Bit(_) | Type::Int(_) | Type::Bool | Type::Enum(_) | Type::SerEnum(_)) => ty,
                _ => Type::Bit(8),
            };
            let name = self.name("c");
            let text = self.ty(&ty);
            list.push(format!("{text} {name}"));
            self.declare_fixed(&name, &ty);
            types.push(ty);
        }
        (if list.is_empty() { String::new() } else { format!("({})", list.join(", ")) }, types)
    }

    /// Declares instances of earlier controls or parsers, some of them several times.
    pub fn declare_instances(&mut self, parser: bool) {
        let fit: Vec<usize> = (0..self.controls.len()).filter(|&i| self.controls[i].parser == parser).collect();
        if fit.is_empty() {
            return;
        }
        for _ in 0..self.dice.index(4) {
            let at = *self.dice.pick(&fit);
            let Control { name: block, ctor, cost, .. } = self.controls[at].clone();
            if !self.affords(cost) {
                continue;
            }
            let name = self.name("x");
            let args: Vec<String> = ctor.iter().map(|t| self.literal(t)).collect();
            self.line(format!("{block}({}) {name};", args.join(", ")));
            self.instances.push((name, at));
        }
    }

    /// Applies an instance; another statement if there is none.
    pub fn sub_apply(&mut self) {
        let parser = self.place.is_parser();
        let here = parser || self.place == Place::Apply;
        let fit: Vec<(String, usize)> = self
            .instances
            .iter()
            .filter(|(_, at)| here && self.controls[*at].parser == parser && self.affords(self.controls[*at].cost))
            .cloned()
            .collect();
        if fit.is_empty() {
            return self.assignment();
        }
        let (mut name, at) = self.dice.pick(&fit).clone();
        let control = self.controls[at].clone();
        if control.ctor.is_empty() && !self.unnamed.contains(&at) && self.dice.one_in(4) {
            // An unnamed instance; a second one would have the same control-plane names.
            name = control.name.clone();
            self.unnamed.push(at);
        }
        let Some(args) = self.positional(&control.params, false, 1) else {
            return self.assignment();
        };
        let first = if parser { "pkt, meta, sm" } else { "hdr, meta, sm" };
        let comma = if args.is_empty() { "" } else { ", " };
        self.cost += control.cost;
        self.line(format!("{name}.apply({first}{comma}{args});"));
    }

    /// Begins a control; [`Self::leave`] removes its declarations from the scope.
    fn enter(&mut self, place: Place, half: Half) -> Outer {
        Outer {
            scope: self.scope.len(),
            actions: std::mem::take(&mut self.actions),
            tables: std::mem::take(&mut self.tables),
            instances: std::mem::take(&mut self.instances),
            unnamed: std::mem::take(&mut self.unnamed),
            externs: std::mem::take(&mut self.externs),
            place: std::mem::replace(&mut self.place, place),
            half: std::mem::replace(&mut self.half, half),
            cost: std::mem::take(&mut self.cost),
            calls: std::mem::replace(&mut self.calls, true),
        }
    }

    fn leave(&mut self, outer: Outer) -> u64 {
        self.forget(outer.scope);
        self.actions = outer.actions;
        self.tables = outer.tables;
        self.instances = outer.instances;
        self.unnamed = outer.unnamed;
        self.externs = outer.externs;
        self.place = outer.place;
        self.half = outer.half;
        self.calls = outer.calls;
        std::mem::replace(&mut self.cost, outer.cost)
    }

    /// Declares variables, actions, tables and instances.
    fn locals(&mut self, unique: bool) {
        for _ in 0..self.dice.index(3) {
            let ty = self.variable_type();
            let name = self.name("v");
            let text = self.ty(&ty);
            if self.dice.one_in(2) {
                self.line(format!("{text} {name};"));
            } else {
                let calls = std::mem::replace(&mut self.calls, false);
                let value = self.expr(&ty, 2);
                self.calls = calls;
                self.line(format!("{text} {name} = {value};"));
            }
            self.declare(&name, &ty, true);
        }
        self.declare_externs();
        for _ in 0..1 + self.dice.index(4) {
            self.action(&[], None);
        }
        for _ in 0..self.dice.index(2 + self.size as usize / 2) {
            self.table(unique);
        }
        self.declare_instances(false);
    }

    /// Declares a control for others to instantiate.
    pub fn sub_control(&mut self) {
        let name = self.name("Sub");
        let outer = self.enter(Place::Apply, Half::Both);
        self.declare_packet(true, true);
        let count = self.dice.range(0, 2);
        let params = self.params(count, false);
        let list = self.param_list(&params);
        let (ctor_list, ctor) = self.ctor_params();
        let comma = if list.is_empty() { "" } else { ", " };
        self.open(format!(
            "control {name}(inout Headers hdr, inout Meta meta, inout standard_metadata_t sm{comma}{list}){ctor_list} {{"
        ));
        self.locals(false);
        self.cost = 0;
        self.open("apply {");
        let count = self.dice.range(1, 1 + self.size);
        self.body(count, 2);
        self.close("}");
        self.close("}");
        let cost = self.leave(outer);
        self.controls.push(Control { name, params, ctor, cost, parser: false });
    }

    /// Declares all blocks from checksum verification to the deparser.
    pub fn pipeline(&mut self) {
        self.checksums("VC", "verify_checksum");
        self.declare_sessions();
        for half in [Half::Ingress, Half::Egress] {
            self.main_control(half);
        }
        self.checksums("CC", "update_checksum");
        self.deparser();
    }

    fn main_control(&mut self, half: Half) {
        let name = if half == Half::Ingress { "I" } else { "E" };
        let outer = self.enter(Place::Apply, half);
        self.declare_packet(true, true);
        self.open(format!("control {name}(inout Headers hdr, inout Meta meta, inout standard_metadata_t sm) {{"));
        if half == Half::Ingress {
            self.line(format!(
                "counter{}(1, CounterType.packets) canary;",
                if self.typed_index { "<bit<8>>" } else { "" }
            ));
            self.externs.push(ExternInstance { name: "canary".into(), kind: ExternKind::Counter(8) });
        }
        self.locals(true);
        self.cost = 0;
        self.open("apply {");
        if half == Half::Ingress {
            let port = self.expr(&Type::Bit(3), 2);
            self.line(format!("sm.egress_spec = (bit<9>){port};"));
        }
        let mark = self.scope.len();
        self.block = mark;
        for _ in 0..self.dice.range(2, 3 + 2 * self.size) {
            self.statement(3);
        }
        self.sum(half);
        self.forget(mark);
        self.close("}");
        self.close("}");
        self.leave(outer);
    }

    /// Sums variables into the trailer, so that the results of computations are observable.
    fn sum(&mut self, half: Half) {
        self.line("hdr.trailer.setValid();");
        let field = if half == Half::Ingress { "hdr.trailer.a" } else { "hdr.trailer.b" };
        let all: Vec<(String, Type)> = self
            .scope
            .iter()
            .filter(|v| v.writable && !v.path.contains('@'))
            .map(|v| (v.path.clone(), v.ty.clone()))
            .collect();
        for (path, ty) in all {
            let value = match &ty {
                Type::Bit(_) => format!("(bit<64>){path}"),
                Type::Int(w) => format!("(bit<64>)((bit<{w}>){path})"),
                Type::Bool => format!("(bit<64>)((bit<1>){path})"),
                Type::New(i) => format!("(bit<64>)((bit<{}>){path})", self.types.news[*i].1),
                Type::SerEnum(i) => match self.types.enums[*i].repr {
                    Some((w, true)) => format!("(bit<64>)((bit<{w}>)((int<{w}>){path}))"),
                    _ => format!("(bit<64>)((bit<{}>){path})", self.types.size(&ty)),
                },
                Type::Enum(_) | Type::Error => {
                    let literal = self.literal(&ty);
                    format!("({path} == {literal} ? 64w1 : 64w2)")
                }
                Type::Header(_) | Type::Union(_) => format!("({path}.isValid() ? 64w3 : 64w5)"),
                _ => continue,
            };
            self.line(format!("{field} = (({field} << 7) |+| ({field} >> 5)) ^ ({value});"));
        }
    }

    fn checksums(&mut self, name: &str, function: &str) {
        let outer = self.enter(Place::Plain, Half::Both);
        self.declare_packet(true, false);
        self.calls = false;
        self.open(format!("control {name}(inout Headers hdr, inout Meta meta) {{"));
        self.open("apply {");
        for _ in 0..self.dice.index(3) {
            let algorithm = *self.dice.pick(&["csum16", "csum16", "crc16", "crc32", "xor16", "identity"]);
            let payload = if self.dice.one_in(4) { "_with_payload" } else { "" };
            let cond = self.bool_expr(1);
            let data = self.value_list();
            let width = *self.dice.pick(&[16, 16, 32, 8]);
            let Some(target) = self.lvalue(&Type::Bit(width)) else { continue };
            self.line(format!("{function}{payload}({cond}, {data}, {target}, HashAlgorithm.{algorithm});"));
        }
        self.close("}");
        self.close("}");
        self.leave(outer);
    }

    fn deparser(&mut self) {
        let outer = self.enter(Place::Plain, Half::Both);
        let headers = self.headers_type();
        let fields = self.types.fields(&headers).to_vec();
        for (field, ty) in &fields {
            self.declare(&format!("hdr.{field}"), ty, false);
        }
        self.open("control D(packet_out pkt, in Headers hdr) {");
        self.open("apply {");
        let mut order: Vec<String> = fields.into_iter().map(|(f, _)| f).collect();
        order.push("trailer".into());
        if self.dice.one_in(3) {
            self.dice.shuffle(&mut order);
        }
        if self.dice.one_in(6) {
            self.line("pkt.emit(hdr);");
            order.truncate(1);
        }
        for field in order {
            match self.dice.index(8) {
                0 => {
                    let cond = self.bool_expr(2);
                    self.open(format!("if ({cond}) {{"));
                    self.line(format!("pkt.emit(hdr.{field});"));
                    self.close("}");
                }
                1 => {
                    let paths: Vec<String> = self
                        .scope
                        .iter()
                        .filter(|v| {
                            matches!(v.ty, Type::Header(_)) && v.path.starts_with("hdr.") && !v.path.contains('@')
                        })
                        .map(|v| v.path.clone())
                        .collect();
                    if !paths.is_empty() {
                        let path = self.dice.pick(&paths).clone();
                        self.line(format!("pkt.emit({path});"));
                    }
                    self.line(format!("pkt.emit(hdr.{field});"));
                }
                2 if self.dice.one_in(4) => self.statement(1),
                _ => self.line(format!("pkt.emit(hdr.{field});")),
            }
        }
        self.close("}");
        self.close("}");
        self.leave(outer);
    }
}

/// The scope around a control.
struct Outer {
    scope: usize,
    actions: Vec<crate::declared::Callable>,
    tables: Vec<crate::declared::Table>,
    instances: Vec<(String, usize)>,
    unnamed: Vec<usize>,
    externs: Vec<ExternInstance>,
    place: Place,
    half: Half,
    cost: u64,
    calls: bool,
}
