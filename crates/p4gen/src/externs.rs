//! v1model's externs: instances, and statements that use them where that is allowed.

use crate::declared::{ExternInstance, ExternKind, Half, Place};
use crate::generator::Gen;
use crate::types::Type;

/// Clone sessions and multicast groups have numbers from 1 to this.
const SESSIONS: u32 = 3;

impl Gen {
    fn index_type(&mut self) -> (u32, String) {
        if !self.typed_index {
            return (32, String::new());
        }
        let width = *self.dice.pick(&[4, 8, 9, 32]);
        (width, format!("bit<{width}>"))
    }

    /// Declares counters, meters and registers in the current control.
    pub fn declare_externs(&mut self) {
        for _ in 0..self.dice.index(4) {
            let (width, index) = self.index_type();
            let args = |first: &str| match (first.is_empty(), index.is_empty()) {
                (true, true) => String::new(),
                (true, false) => format!("<{index}>"),
                (false, true) => format!("<{first}>"),
                (false, false) => format!("<{first}, {index}>"),
            };
            let size = self.dice.range(1, 16);
            let unit = *self.dice.pick(&["packets", "bytes", "packets_and_bytes"]);
            let kind = match self.dice.index(4) {
                0 => {
                    let name = self.name("counter_");
                    self.line(format!("counter{}({size}, CounterType.{unit}) {name};", args("")));
                    (name, ExternKind::Counter(width))
                }
                1 => {
                    let name = self.name("meter_");
                    let unit = if unit == "bytes" { unit } else { "packets" };
                    self.line(format!("meter{}({size}, MeterType.{unit}) {name};", args("")));
                    (name, ExternKind::Meter(width))
                }
                _ => {
                    let name = self.name("reg");
                    let ty = loop {
                        let ty = self.scalar();
                        if matches!(ty, Type::Bit(_) | Type::Int(_) | Type::Bool) {
                            break ty;
                        }
                    };
                    let ty = if ty == Type::Bool { Type::Bit(1) } else { ty };
                    let text = self.types.name(&ty);
                    self.line(format!("register{}({size}) {name};", args(&text)));
                    (name, ExternKind::Register(ty, width))
                }
            };
            self.externs.push(ExternInstance { name: kind.0, kind: kind.1 });
        }
    }

    /// Adds the set-up lines for clone sessions and multicast groups.
    pub fn declare_sessions(&mut self) {
        for id in 1..=SESSIONS {
            let port = self.dice.range(0, 7);
            self.setup.push(format!("mirroring_add {id} {port}"));
            self.setup.push(format!("mc_mgrp_create {id}"));
            let ports: Vec<String> = (0..self.dice.range(1, 3)).map(|_| self.dice.range(0, 7).to_string()).collect();
            self.setup.push(format!("mc_node_create {} {}", id * 7, ports.join(" ")));
            self.setup.push(format!("mc_node_associate {id} {}", id - 1));
        }
    }

    /// A statement that uses an extern; false if none is possible here.
    pub fn extern_statement(&mut self) -> bool {
        match self.place {
            Place::Action | Place::Apply => {}
            // Instances are out of scope here, and stateless functions behave the same everywhere.
            Place::State | Place::Plain | Place::Function(_) | Place::Top => return false,
        }
        match self.dice.index(12) {
            0..=4 => self.object_statement(),
            5 | 6 => self.hash_statement(),
            7 => self.fate_statement(),
            8 => {
                self.replication_statement();
                true
            }
            9 => {
                let a = self.scalar();
                let value = self.expr(&a, 1);
                self.line(format!("log_msg(\"value {{}}\", {{ {value} }});"));
                true
            }
            10 => {
                let bytes = *self.dice.pick(&[0, 1, 5, 14, 40, 100]);
                let cond = self.bool_expr(1);
                self.line(format!("if ({cond}) {{ truncate(32w{bytes}); }}"));
                true
            }
            _ => self.digest_statement(),
        }
    }

    fn object_statement(&mut self) -> bool {
        if self.externs.is_empty() {
            return false;
        }
        let at = self.dice.index(self.externs.len());
        let ExternInstance { name, kind } = self.externs[at].clone();
        if name == "canary" {
            return false;
        }
        let index = |g: &mut Gen, width: u32| {
            let value = g.expr(&Type::Bit(width), 1);
            if width > 4 && g.dice.index(4) != 0 { format!("({value} & 7)") } else { value }
        };
        match kind {
            ExternKind::Counter(width) => {
                let index = index(self, width);
                self.line(format!("{name}.count({index});"));
            }
            ExternKind::Meter(width) => {
                let width_out = self.scope.iter().find_map(|v| match v.ty {
                    Type::Bit(w) if v.writable && w >= 2 => Some(w),
                    _ => None,
                });
                let Some(target) = width_out.and_then(|w| self.lvalue(&Type::Bit(w))) else { return false };
                let index = index(self, width);
                self.line(format!("{name}.execute_meter({index}, {target});"));
            }
            ExternKind::Register(ty, width) => {
                let index = index(self, width);
                if self.dice.one_in(2)
                    && let Some(target) = self.lvalue(&ty)
                {
                    self.line(format!("{name}.read({target}, {index});"));
                } else {
                    let value = self.expr(&ty, 2);
                    self.line(format!("{name}.write({index}, {value});"));
                }
            }
        }
        true
    }

    /// A list of values, each with a definite width.
    pub fn value_list(&mut self) -> String {
        let mut list = Vec::new();
        for _ in 0..self.dice.range(1, 4) {
            let ty = loop {
                let ty = self.scalar();
                if self.types.size(&ty) > 0 && ty != Type::Bool {
                    break ty;
                }
            };
            list.push(self.expr(&ty, 1));
        }
        format!("{{ {} }}", list.join(", "))
    }

    fn hash_statement(&mut self) -> bool {
        let widths: Vec<u32> = self
            .scope
            .iter()
            .filter_map(|v| if let Type::Bit(w) = v.ty { v.writable.then_some(w) } else { None })
            .collect();
        if widths.is_empty() {
            return false;
        }
        let width = *self.dice.pick(&widths);
        let Some(target) = self.lvalue(&Type::Bit(width)) else { return false };
        let algorithm = *self.dice.pick(&["crc16", "crc32", "csum16", "xor16", "identity"]);
        let data = self.value_list();
        let base = self.bit_literal(width);
        let max_width = *self.dice.pick(&[8, 16, 32, 64]);
        let max = self.dice.range(1, 255);
        self.line(format!("hash({target}, HashAlgorithm.{algorithm}, {base}, {data}, {max_width}w{max});"));
        true
    }

    fn fate_statement(&mut self) -> bool {
        if self.half != Half::Ingress {
            return false;
        }
        let cond = self.bool_expr(2);
        self.open(format!("if ({cond}) {{"));
        match self.dice.index(4) {
            0 => self.line("mark_to_drop(sm);"),
            1 => {
                let group = self.dice.range(1, SESSIONS);
                self.line(format!("sm.mcast_grp = {group};"));
            }
            2 => self.line("sm.mcast_grp = 0;"),
            _ => {
                let port = self.expr(&Type::Bit(3), 2);
                self.line(format!("sm.egress_spec = (bit<9>){port};"));
            }
        }
        self.close("}");
        true
    }

    fn replication_statement(&mut self) {
        let list = self.dice.range(1, 3);
        let session = self.dice.range(1, SESSIONS);
        let statement = match (self.half, self.dice.index(3)) {
            (Half::Ingress, 0) => format!("resubmit_preserving_field_list({list});"),
            (Half::Ingress, 1) => format!("clone(CloneType.I2E, {session});"),
            (Half::Ingress, _) => format!("clone_preserving_field_list(CloneType.I2E, {session}, {list});"),
            (Half::Egress, 0) => format!("recirculate_preserving_field_list({list});"),
            (Half::Egress, 1) => format!("clone(CloneType.E2E, {session});"),
            (Half::Egress, _) => format!("clone_preserving_field_list(CloneType.E2E, {session}, {list});"),
            (Half::Both, _) => return self.assignment(),
        };
        // Only for packets from ports: copying copies again would never end.
        let cond = self.bool_expr(2);
        self.open(format!("if (sm.instance_type == 0 && {cond}) {{"));
        self.line(statement);
        self.close("}");
    }

    fn digest_statement(&mut self) -> bool {
        if self.half != Half::Ingress || self.place == Place::Action {
            return false;
        }
        let flat: Vec<usize> = (0..self.types.structs.len())
            .filter(|&i| {
                let fields = &self.types.structs[i];
                !matches!(fields.name.as_str(), "Headers" | "Meta")
                    && fields.fields.iter().all(|(_, t)| matches!(t, Type::Bit(_) | Type::Int(_) | Type::New(_)))
            })
            .collect();
        if flat.is_empty() {
            return false;
        }
        let ty = Type::Struct(*self.dice.pick(&flat));
        let name = self.types.name(&ty);
        let value = self.expr(&ty, 1);
        self.line(format!("digest<{name}>(1, {value});"));
        true
    }
}
