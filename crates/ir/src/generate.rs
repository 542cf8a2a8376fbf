//! Random well-formed programs, for property tests of everything that reads IR.
//!
//! A program is a function of a string of bytes, so a property-testing tool that shrinks the string shrinks the program
//! (missing bytes count as zero, and zero chooses the simplest alternative). Programs pass the verifier and keep the
//! rules that the verifier cannot check: fields of invalid headers are zero, action parameters are read after their
//! switch, varbits fit, loops end. They have parsers with loops, lookahead and varbits, controls with nested branches,
//! loops, tables and externs, deparsers, and packets that are replicated and sent back.
//!
//! Tests: `tests/text.rs` (every program is well-formed and survives printing and parsing), and those of its users.

use crate::builder::{Builder, FieldWidth};
use crate::op::{BinOp, CastKind, Fate, HashAlgorithm, Mark, Op, Operand, ReplicationPoint, UnOp};
use crate::program::{
    Action, CounterUnit, EntryKind, Extern, ExternKind, Intrinsic, Key, Program, SlotKind, StageKind, Table,
    TableAction,
};
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::{BlockId, ExternId, HeaderId, SlotId, StageId, TableId};
use base::{Bits, Span};

/// Generates a program from a string of bytes.
pub fn generate(choices: &[u8]) -> Program {
    let mut g = Generator::new(choices);
    g.declarations();
    let parser = g.parser();
    let ingress = g.control("ingress");
    if g.chance(2) {
        let hand_over = g.glue();
        let egress = g.control("egress");
        let deparser = g.deparser();
        g.b.entry(EntryKind::Ingress, &[parser, ingress, hand_over]);
        g.b.entry(EntryKind::Egress, &[egress, deparser]);
        if g.chance(2) {
            g.b.entry(EntryKind::Reingress, &[parser, ingress, hand_over]);
        }
        if g.chance(4) {
            g.b.entry(EntryKind::CloneIngress, &[parser, egress, deparser]);
        }
    } else {
        let deparser = g.deparser();
        g.b.entry(EntryKind::Ingress, &[parser, ingress, deparser]);
    }
    g.b.finish()
}

/// Widths on both sides of the limits at which engines change their representation.
const WIDTHS: [u32; 14] = [8, 1, 16, 32, 9, 48, 64, 4, 7, 33, 65, 128, 130, 200];

/// Largest number of statements in a program.
const STATEMENTS_MAX: u32 = 60;

struct Generator<'a> {
    choices: std::slice::Iter<'a, u8>,
    b: Builder,
    headers: Vec<HeaderId>,
    /// Headers whose last field is a varbit.
    with_varbit: Vec<HeaderId>,
    /// Metadata and locals that any statement may write.
    variables: Vec<SlotId>,
    /// Temporaries that are assigned on every path to the current block.
    scope: Vec<SlotId>,
    tables: Vec<TableId>,
    counter: ExternId,
    meter: ExternId,
    register: ExternId,
    digest: ExternId,
    statements_left: u32,
}

impl<'a> Generator<'a> {
    fn new(choices: &'a [u8]) -> Generator<'a> {
        let none = ExternId(0);
        Generator {
            choices: choices.iter(),
            b: Builder::new("generated"),
            headers: Vec::new(),
            with_varbit: Vec::new(),
            variables: Vec::new(),
            scope: Vec::new(),
            tables: Vec::new(),
            counter: none,
            meter: none,
            register: none,
            digest: none,
            statements_left: STATEMENTS_MAX,
        }
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.choices.next().copied().unwrap_or(0)) % n.max(1)
    }

    /// True with probability `1/n`; never when the bytes have run out.
    fn chance(&mut self, n: usize) -> bool {
        self.below(n.max(2)) == 1
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn width_of(&self, slot: SlotId) -> u32 {
        self.b.program().width(slot)
    }

    /// A value of this width; often a special one.
    fn bits(&mut self, width: u32) -> Bits {
        match self.below(5) {
            0 => Bits::zero(width),
            1 => Bits::ones(width),
            2 => Bits::new(width, self.below(4) as u128),
            _ => {
                let bytes: Vec<u8> = (0..width.div_ceil(8).min(24)).map(|_| self.below(256) as u8).collect();
                Bits::from_bytes_be(width, &bytes)
            }
        }
    }
}

// Declarations.
impl Generator<'_> {
    fn declarations(&mut self) {
        self.b.error("NoError");
        self.b.error("PacketTooShort");
        for name in ["short", "asked for", "end"] {
            self.b.drop_reason(name);
        }
        for i in 0..1 + self.below(3) {
            self.header(i);
        }
        for i in 0..2 + self.below(4) {
            let width = self.pick(&WIDTHS);
            let kind = if self.chance(2) { SlotKind::Local } else { SlotKind::Metadata };
            let slot = self.b.slot(format!("v{i}"), width, kind);
            self.variables.push(slot);
        }
        for which in [Intrinsic::IngressPort, Intrinsic::EgressSpec, Intrinsic::ParserError] {
            let slot = self.b.metadata(format!("std.{}", which.name()), 9);
            self.b.intrinsic(which, slot);
            self.variables.push(slot);
        }
        let kept = self.below(3);
        let kept = self.variables[..kept].to_vec();
        self.b.program_mut().field_lists.push((1, kept));
        self.externs();
        for i in 0..self.below(3) {
            self.table(i);
        }
    }

    fn header(&mut self, i: usize) {
        let names = ["a", "b", "c", "d"];
        let mut fields = Vec::new();
        let mut total = 0;
        for name in &names[..1 + self.below(3)] {
            let width = self.pick(&WIDTHS);
            total += width;
            fields.push((*name, FieldWidth::Fixed(width)));
        }
        if !total.is_multiple_of(8) {
            fields.push(("pad", FieldWidth::Fixed(8 - total % 8)));
        }
        let varbit = self.chance(4);
        if varbit {
            fields.push(("v", FieldWidth::Varbit(40)));
        }
        let header = self.b.header(format!("h{i}"), &fields);
        self.headers.push(header);
        if varbit {
            self.with_varbit.push(header);
        }
    }

    fn externs(&mut self) {
        let mut ext =
            |name: &str, kind| self.b.extern_instance(Extern { name: name.to_string(), span: Span::NONE, kind });
        self.counter = ext("counter", ExternKind::Counter { size: 8, unit: CounterUnit::Both, direct: None });
        self.meter = ext("meter", ExternKind::Meter { size: 8, unit: CounterUnit::Packets, direct: None });
        self.register = ext("register", ExternKind::Register { size: 8, width: 16, initial: Bits::new(16, 3) });
        self.digest = ext("digest", ExternKind::Digest { fields: vec![("x".into(), 16), ("y".into(), 65)] });
    }

    fn table(&mut self, i: usize) {
        let mut actions = Vec::new();
        for j in 0..1 + self.below(3) {
            let params = (0..self.below(3)).map(|k| (format!("p{k}"), self.pick(&WIDTHS))).collect();
            let action = self.b.action(Action { name: format!("t{i}.a{j}"), params });
            actions.push(TableAction { action, default_only: false, table_only: false });
        }
        let kinds = [MatchKind::Exact, MatchKind::Ternary, MatchKind::Range, MatchKind::Optional];
        let mut keys: Vec<Key> = Vec::new();
        for k in 0..self.below(4) {
            let kind = if k == 0 && self.chance(2) { MatchKind::Lpm } else { self.pick(&kinds) };
            keys.push(Key { name: format!("k{k}"), width: self.pick(&WIDTHS), kind });
        }
        let call = |g: &mut Self| {
            let action = g.below(actions.len());
            let params = g.b.program().actions[actions[action].action.index()].params.clone();
            ActionCall { action: action as u32, args: params.iter().map(|(_, w)| g.bits(*w)).collect() }
        };
        let default_action = call(self);
        let mut entries: Vec<TableEntry> = Vec::new();
        for priority in 1..=self.below(5) as i32 {
            let key: Vec<KeyMatch> = keys.iter().map(|k| self.key_match(k)).collect();
            // A second entry with the same key could not be inserted.
            if !keys.is_empty() && entries.iter().all(|e| e.key != key) {
                let action = EntryAction::Call(call(self));
                entries.push(TableEntry { key, priority, action, idle_timeout_ns: 0 });
            }
        }
        if !keys.iter().any(|k| k.kind.needs_priority()) {
            entries.iter_mut().for_each(|e| e.priority = 0);
        }
        let table = TableId::from_index(self.b.program().tables.len());
        let kind = ExternKind::Counter { size: 64, unit: CounterUnit::Both, direct: Some(table) };
        let direct = self.b.extern_instance(Extern { name: format!("t{i}.direct"), span: Span::NONE, kind });
        let table = Table {
            name: format!("t{i}"),
            span: Span::NONE,
            keys,
            actions,
            default_action,
            const_default: self.chance(2),
            entries,
            const_entries: self.chance(2),
            size: 64,
            implementation: None,
            direct: vec![direct],
            idle_timeout: self.chance(4),
            value_set: false,
            dynamic: None,
        };
        let table = self.b.table(table);
        self.tables.push(table);
    }

    fn key_match(&mut self, key: &Key) -> KeyMatch {
        let value = self.bits(key.width);
        match key.kind {
            MatchKind::Exact => KeyMatch::Exact(value),
            MatchKind::Lpm => {
                let prefix_len = self.below(key.width as usize + 1) as u32;
                let rest = u64::from(key.width - prefix_len);
                KeyMatch::Lpm { value: value.lshr(rest).shl(rest), prefix_len }
            }
            MatchKind::Ternary => {
                let mask = self.bits(key.width);
                KeyMatch::Ternary { value: value.and(&mask), mask }
            }
            MatchKind::Range => {
                let other = self.bits(key.width);
                let (low, high) = if value.ule(&other) { (value, other) } else { (other, value) };
                KeyMatch::Range { low, high }
            }
            MatchKind::Optional => KeyMatch::Optional(self.chance(2).then_some(value)),
        }
    }
}

// Parsers, deparsers, and the glue between them.
impl Generator<'_> {
    fn parser(&mut self) -> StageId {
        let stage = self.b.begin_stage("parser", StageKind::Parser);
        self.scope.clear();
        let states: Vec<BlockId> = (0..1 + self.below(4)).map(|i| self.b.block(format!("s{i}"))).collect();
        let accept = self.b.block("accept");
        let reject = self.b.block("reject");
        self.b.jump(states[0]);
        for (i, state) in states.iter().enumerate() {
            self.b.switch_to(*state);
            self.scope.clear();
            self.b.emit(Op::Mark(Mark::State(format!("s{i}"))));
            let header = self.state(reject);
            // To a later state or, if something was consumed, back.
            let mut ways: Vec<BlockId> = states[i + 1..].to_vec();
            ways.push(accept);
            if header.is_some() && self.chance(3) {
                ways.push(states[self.below(i + 1)]);
            }
            self.transition(header, &ways, reject);
        }
        self.b.switch_to(reject);
        let error = self.b.program().intrinsic(Intrinsic::ParserError).expect("declared");
        self.b.set(error, 1);
        if self.chance(2) {
            self.b.fate(Fate::Drop(0));
        } else {
            self.b.jump(accept);
        }
        self.b.switch_to(accept);
        self.b.next_stage();
        self.b.end_stage();
        stage
    }

    /// The header that a parser state extracts, if any: one of at least a byte.
    fn state(&mut self, reject: BlockId) -> Option<HeaderId> {
        match self.below(4) {
            0 => None,
            1 => {
                let width = self.pick(&WIDTHS);
                let offset = self.below(20) as u32;
                self.check_bits(Operand::new_const(32, (offset + width).into()), reject);
                let dst = self.b.temp(width);
                self.b.emit(Op::Lookahead { dst, offset });
                self.scope.push(dst);
                None
            }
            2 if self.chance(2) => {
                self.check_bits(Operand::new_const(32, 16), reject);
                self.b.emit(Op::Advance { bits: Operand::new_const(32, 16) });
                None
            }
            _ => {
                let header = self.pick(&self.headers.clone());
                self.extract(header, reject);
                Some(header)
            }
        }
    }

    /// Continues if `bits` bits are present, otherwise in `reject`.
    fn check_bits(&mut self, bits: Operand, reject: BlockId) {
        let there = self.b.temp(1);
        self.b.emit(Op::HasBits { dst: there, bits });
        let block = self.b.block("");
        self.b.branch(there, block, reject);
        self.b.switch_to(block);
    }

    fn extract(&mut self, header: HeaderId, reject: BlockId) {
        let program = self.b.program();
        let fields = &program.headers[header.index()].fields;
        let fixed: u32 = fields.iter().filter(|f| f.varbit_length.is_none()).map(|f| program.width(f.slot)).sum();
        if !self.with_varbit.contains(&header) {
            self.check_bits(Operand::new_const(32, fixed.into()), reject);
            return self.b.emit(Op::Extract { header, varbit_bits: None });
        }
        // 0, 8, 16 or 24 bits, depending on a parsed value.
        let amount = self.operand(2);
        let amount = self.b.cast(CastKind::Zext, 32, amount);
        let amount = self.b.bin(BinOp::Shl, amount, Bits::new(32, 3));
        let total = self.b.bin(BinOp::Add, amount, Bits::new(32, fixed.into()));
        self.check_bits(total.into(), reject);
        self.b.emit(Op::Extract { header, varbit_bits: Some(amount.into()) });
    }

    fn transition(&mut self, header: Option<HeaderId>, ways: &[BlockId], reject: BlockId) {
        let Some(header) = header.filter(|_| ways.len() > 1) else {
            let to = ways[0];
            return self.b.jump(to);
        };
        let field = self.b.program().headers[header.index()].fields[0].slot;
        let width = self.width_of(field);
        let mut cases: Vec<(Bits, BlockId)> = Vec::new();
        for to in ways {
            let value = self.bits(width);
            if cases.iter().all(|(v, _)| *v != value) {
                cases.push((value, *to));
            }
        }
        let default = if self.chance(3) { reject } else { ways[ways.len() / 2] };
        self.b.switch(field, cases, default);
    }

    fn deparser(&mut self) -> StageId {
        let stage = self.b.begin_stage("deparser", StageKind::Deparser);
        self.scope.clear();
        for header in self.headers.clone() {
            self.statement(1);
            self.b.emit(Op::Emit { header });
        }
        if self.chance(4) {
            let bytes = self.operand(8);
            self.b.emit(Op::Truncate { bytes });
        }
        self.end();
        self.b.end_stage();
        stage
    }

    /// A stage that ends ingress.
    fn glue(&mut self) -> StageId {
        let stage = self.b.begin_stage("glue", StageKind::Control);
        self.scope.clear();
        let cond = self.operand(1);
        let (over, drop) = (self.b.block("hand over"), self.b.block("drop"));
        self.b.branch(cond, drop, over);
        self.b.switch_to(drop);
        self.b.fate(Fate::Drop(2));
        self.b.switch_to(over);
        self.b.fate(Fate::Replicate(ReplicationPoint::IngressEnd));
        self.b.end_stage();
        stage
    }

    fn end(&mut self) {
        if self.chance(4) {
            self.b.fate(Fate::Drop(2));
        } else {
            let port = self.b.program().intrinsic(Intrinsic::EgressSpec).expect("declared");
            self.b.fate(Fate::Send(port.into()));
        }
    }

    fn control(&mut self, name: &str) -> StageId {
        let stage = self.b.begin_stage(name, StageKind::Control);
        self.scope.clear();
        self.b.emit(Op::Mark(Mark::Block(name.to_string())));
        let count = self.below(12);
        self.statements(count, 3);
        self.b.next_stage();
        self.b.end_stage();
        stage
    }
}

// Statements.
impl Generator<'_> {
    /// Generates `count` statements. Temporaries made in them go out of scope at the end.
    fn statements(&mut self, count: usize, depth: u32) {
        let scope = self.scope.len();
        for _ in 0..count {
            self.statement(depth);
        }
        self.scope.truncate(scope);
    }

    fn statement(&mut self, depth: u32) {
        let Some(left) = self.statements_left.checked_sub(1) else { return };
        self.statements_left = left;
        match self.below(16) {
            0 | 1 => self.assignment(),
            2 => self.field_assignment(),
            3 => self.keep_temporary(),
            4 => {
                let header = self.pick(&self.headers.clone());
                let op = if self.chance(2) { Op::SetInvalid { header } } else { Op::SetValid { header } };
                self.b.emit(op);
            }
            5 | 6 if depth > 0 => self.conditional(depth - 1),
            7 if depth > 0 => self.switch(depth - 1),
            8 if depth > 0 => self.bounded_loop(depth - 1),
            9 | 10 if depth > 1 => self.lookup(depth - 1),
            11 => self.register(),
            12 => self.hash(),
            13 => self.message(),
            14 => self.count(),
            15 if self.chance(3) => {
                let stop = self.b.block("stop");
                let on = self.b.block("");
                let cond = self.operand(1);
                self.b.branch(cond, stop, on);
                self.b.switch_to(stop);
                self.b.fate(Fate::Drop(1));
                self.b.switch_to(on);
            }
            _ => self.copy(),
        }
    }

    /// An operand of this width.
    fn operand(&mut self, width: u32) -> Operand {
        let fields = self.headers.iter().flat_map(|h| {
            let header = &self.b.program().headers[h.index()];
            header.fields.iter().map(|f| f.slot).chain([header.valid])
        });
        let readable: Vec<SlotId> =
            self.variables.iter().copied().chain(fields).chain(self.scope.iter().copied()).collect();
        let fitting: Vec<SlotId> = readable.iter().copied().filter(|s| self.width_of(*s) == width).collect();
        if !fitting.is_empty() && !self.chance(3) {
            return self.pick(&fitting).into();
        }
        if self.chance(2) {
            return self.bits(width).into();
        }
        let from = self.pick(&readable);
        let have = self.width_of(from);
        let cast = match have.cmp(&width) {
            std::cmp::Ordering::Less if self.chance(2) => self.b.cast(CastKind::Sext, width, from),
            std::cmp::Ordering::Less if width - have < 64 && self.chance(2) => {
                let high = self.bits(width - have);
                self.b.concat(high, from)
            }
            std::cmp::Ordering::Less => self.b.cast(CastKind::Zext, width, from),
            std::cmp::Ordering::Equal => return from.into(),
            std::cmp::Ordering::Greater if self.chance(2) => {
                let lo = self.below((have - width + 1) as usize) as u32;
                self.b.slice(from, lo + width - 1, lo)
            }
            std::cmp::Ordering::Greater => self.b.cast(CastKind::Trunc, width, from),
        };
        cast.into()
    }

    /// An operation whose result has this width.
    fn expression(&mut self, width: u32) -> Operand {
        use BinOp::*;
        match self.below(6) {
            0 if width == 1 => {
                let operands = self.pick(&WIDTHS);
                let op = self.pick(&[Eq, Ne, Ult, Ule, Slt, Sle]);
                let (a, b) = (self.operand(operands), self.operand(operands));
                self.b.bin(op, a, b).into()
            }
            1 => {
                let amount = self.pick(&WIDTHS);
                let op = self.pick(&[Shl, Lshr, Ashr]);
                let (a, b) = (self.operand(width), self.operand(amount));
                self.b.bin(op, a, b).into()
            }
            2 => {
                let op = self.pick(&[UnOp::Not, UnOp::Neg]);
                let a = self.operand(width);
                self.b.un(op, a).into()
            }
            3 => {
                let (cond, then, other) = (self.operand(1), self.operand(width), self.operand(width));
                self.b.select(cond, then, other).into()
            }
            4 => self.operand(width),
            _ => {
                let op = self.pick(&[Add, Sub, And, Or, Xor, Mul, Div, Mod, SatAddU, SatSubU, SatAddS, SatSubS]);
                let (a, b) = (self.operand(width), self.operand(width));
                self.b.bin(op, a, b).into()
            }
        }
    }

    fn assignment(&mut self) {
        let dst = self.pick(&self.variables.clone());
        let width = self.width_of(dst);
        if width > 1 && self.chance(4) {
            let lo = self.below(width as usize) as u32;
            let hi = lo + self.below((width - lo) as usize) as u32;
            let a = self.operand(hi - lo + 1);
            return self.b.emit(Op::SetSlice { dst, hi, lo, a });
        }
        let value = self.expression(width);
        self.b.mov(dst, value);
    }

    fn copy(&mut self) {
        let dst = self.pick(&self.variables.clone());
        let value = self.operand(self.width_of(dst));
        self.b.mov(dst, value);
    }

    /// Assigns to a field if its header is valid. Varbits are not written: their value must fit their length.
    fn field_assignment(&mut self) {
        let header = self.pick(&self.headers.clone());
        let header = self.b.program().headers[header.index()].clone();
        let fields: Vec<SlotId> = header.fields.iter().filter(|f| f.varbit_length.is_none()).map(|f| f.slot).collect();
        let dst = self.pick(&fields);
        let value = self.expression(self.width_of(dst));
        if self.chance(2) {
            let other = Bits::zero(self.width_of(dst));
            return self.b.emit(Op::Select { dst, cond: header.valid.into(), then: value, other: other.into() });
        }
        let (write, after) = (self.b.block(""), self.b.block(""));
        self.b.branch(header.valid, write, after);
        self.b.switch_to(write);
        self.b.mov(dst, value);
        self.b.jump(after);
        self.b.switch_to(after);
    }

    fn keep_temporary(&mut self) {
        let width = self.pick(&WIDTHS);
        if let Operand::Slot(slot) = self.expression(width)
            && self.b.program().slots[slot.index()].kind == SlotKind::Temp
        {
            self.scope.push(slot);
        }
    }

    fn conditional(&mut self, depth: u32) {
        let cond = self.expression(1);
        let (then, other, after) = (self.b.block(""), self.b.block(""), self.b.block(""));
        self.b.branch(cond, then, other);
        for block in [then, other] {
            self.b.switch_to(block);
            let count = self.below(4);
            self.statements(count, depth);
            self.b.jump(after);
        }
        self.b.switch_to(after);
    }

    fn switch(&mut self, depth: u32) {
        let width = self.pick(&WIDTHS);
        let on = self.operand(width);
        let after = self.b.block("");
        let mut cases: Vec<(Bits, BlockId)> = Vec::new();
        for _ in 0..1 + self.below(3) {
            let value = self.bits(width);
            if cases.iter().all(|(v, _)| *v != value) {
                let block = self.b.block("");
                cases.push((value, block));
            }
        }
        let default = if self.chance(2) { after } else { self.b.block("") };
        self.b.switch(on, cases.clone(), default);
        for block in cases.into_iter().map(|(_, to)| to).chain((default != after).then_some(default)) {
            self.b.switch_to(block);
            let count = self.below(3);
            self.statements(count, depth);
            self.b.jump(after);
        }
        self.b.switch_to(after);
    }

    fn bounded_loop(&mut self, depth: u32) {
        let round = self.b.local("round", 8);
        let rounds = self.below(4) as u128;
        let (head, body, after) = (self.b.block("loop"), self.b.block(""), self.b.block(""));
        self.b.set(round, 0);
        self.b.jump(head);
        self.b.switch_to(head);
        let goes_on = self.b.bin(BinOp::Ult, round, Bits::new(8, rounds));
        self.b.branch(goes_on, body, after);
        self.b.switch_to(body);
        let count = self.below(4);
        self.statements(count, depth);
        self.b.emit(Op::Bin { op: BinOp::Add, dst: round, a: round.into(), b: Operand::new_const(8, 1) });
        self.b.jump(head);
        self.b.switch_to(after);
    }

    fn lookup(&mut self, depth: u32) {
        let Some(stage) = self.b.program().stages.last() else { return };
        if self.tables.is_empty() || stage.kind != StageKind::Control {
            return;
        }
        let id = self.pick(&self.tables.clone());
        let table = self.b.program().tables[id.index()].clone();
        let keys: Vec<Operand> = table.keys.iter().map(|k| self.operand(k.width)).collect();
        let [hit, action, entry, data] = [1, 32, 64, 64].map(|width| self.b.temp(width));
        self.b.emit(Op::Apply { table: id, keys, selector: Vec::new(), hit, action, entry, data });
        self.scope.push(hit);
        if self.chance(2) {
            self.b.emit(Op::CountDirect { counter: table.direct[0], hit: hit.into(), entry, bytes: None });
        }
        if self.chance(4) {
            return;
        }
        let after = self.b.block("");
        let bodies: Vec<BlockId> = (0..table.actions.len()).map(|i| self.b.block(format!("a{i}"))).collect();
        let cases = bodies.iter().enumerate().map(|(i, to)| (Bits::new(32, i as u128), *to)).collect();
        self.b.switch(action, cases, after);
        for (i, body) in bodies.into_iter().enumerate() {
            self.b.switch_to(body);
            let scope = self.scope.len();
            let params = self.b.program().actions[table.actions[i].action.index()].params.clone();
            for (param, (_, width)) in params.iter().enumerate() {
                let dst = self.b.temp(*width);
                self.b.emit(Op::ActionParam { dst, table: id, action: i as u32, param: param as u32, data });
                self.scope.push(dst);
            }
            let count = self.below(3);
            self.statements(count, depth);
            self.scope.truncate(scope);
            self.b.jump(after);
        }
        self.b.switch_to(after);
    }

    fn register(&mut self) {
        let index = self.operand(4);
        if self.chance(2) {
            let src = self.operand(16);
            return self.b.emit(Op::RegisterWrite { register: self.register, index, src });
        }
        let dst = self.b.temp(16);
        self.b.emit(Op::RegisterRead { register: self.register, dst, index, peek: false });
        self.scope.push(dst);
    }

    fn hash(&mut self) {
        let dst = self.pick(&self.variables.clone());
        let base = self.operand(self.width_of(dst));
        let max = if self.chance(2) { Some(self.operand(16)) } else { None };
        let widths: Vec<u32> = (0..self.below(4)).map(|_| self.pick(&WIDTHS)).collect();
        let mut data: Vec<Operand> = widths.into_iter().map(|w| self.operand(w)).collect();
        let mut varbits = Vec::new();
        if let Some(header) = self.with_varbit.first().filter(|_| data.len() == 2) {
            let field = self.b.program().headers[header.index()].fields.last().expect("it has a varbit");
            varbits.extend(field.varbit_length.map(|length| (data.len() as u32, length)));
            data.push(field.slot.into());
        }
        use HashAlgorithm::*;
        let algorithm = self.pick(&[Crc16, Crc32, Csum16, Xor16, Identity, Random, Xor32, Crc8, Crc64, Xxh64]);
        let payload = self.chance(3);
        self.b.emit(Op::Hash { algorithm, dst, base, max, data, varbits, payload });
    }

    /// Digests, logs, assertions, random numbers.
    fn message(&mut self) {
        let op = match self.below(4) {
            0 => {
                let data = vec![self.operand(16), self.operand(65)];
                Op::Digest { digest: self.digest, data }
            }
            1 => Op::Log { format: "{} and {}".into(), args: vec![self.operand(8), self.operand(130)] },
            2 => Op::Assert { cond: self.operand(1), text: "holds".into() },
            _ => {
                let dst = self.b.temp(16);
                self.scope.push(dst);
                let (low, high) = (self.bits(16), self.bits(16));
                Op::Random { dst, low: low.into(), high: high.into() }
            }
        };
        self.b.emit(op);
    }

    fn count(&mut self) {
        let index = self.operand(4);
        if self.chance(2) {
            let dst = self.b.temp(8);
            self.b.emit(Op::Meter { meter: self.meter, dst, index, before: None, bytes: None });
            self.scope.push(dst);
        } else {
            self.b.emit(Op::Count { counter: self.counter, index, bytes: None });
        }
    }
}
