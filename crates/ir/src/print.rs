//! The printer of the text form: one item per line, with names instead of ids.
//!
//! `parse(print(p)) == p` for every program that the verifier accepts, spans included (`@file:start-end`). A new
//! operation needs a line in [`op_text`] and one in `parse`. Printing never fails: an id out of range is printed as
//! `?12`, so that the verifier can show the operation that it reports.
//!
//! A name is printed without quotes if it consists of name characters (`hdr.ipv4.ttl`, `%3`, `hdr.stack[2].$valid`),
//! otherwise in quotes.
//!
//! Tests: `tests/text.rs`.

use crate::op::{BinOp, CastKind, Fate, HashAlgorithm, Inst, Mark, Op, Operand, ReplicationPoint, Terminator, UnOp};
use crate::program::{
    Calculated, CounterUnit, Dynamic, Expiry, Extern, ExternKind, FieldPart, InstanceTypes, OpenFlow, Program,
    SlotKind, Stage, StageKind, Table, TableAction,
};
use base::Span;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::{ActionId, BlockId, ExternId, HeaderId, SlotId, StageId, TableId};
use std::fmt::{Display, Write};

/// The text of a whole program.
pub fn print(program: &Program) -> String {
    let mut p = Printer { program, out: String::new() };
    p.declarations();
    for stage in &program.stages {
        p.stage(stage);
    }
    p.out
}

/// The text of one stage, as in that of the whole program.
pub fn print_stage(program: &Program, stage: StageId) -> String {
    let mut p = Printer { program, out: String::new() };
    p.stage(&program.stages[stage.index()]);
    p.out
}

/// A name, in quotes if need be.
pub fn name_text(name: &str) -> String {
    if is_bare_name(name) { name.to_string() } else { quote(name) }
}

/// Whether a name needs no quotes.
fn is_bare_name(name: &str) -> bool {
    name.starts_with(is_name_start) && name.chars().all(is_name_part)
}

/// Characters that a bare name may begin with.
pub(crate) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '%' | '$')
}

/// Characters of a bare name.
pub(crate) fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '$' | '#' | '.' | '[' | ']')
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => write!(out, "\\u{{{:x}}}", c as u32).expect("strings take everything"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn span_text(span: Span) -> String {
    if span.is_none() { String::new() } else { format!(" @{}:{}-{}", span.file.0, span.start, span.end) }
}

fn joined<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut out = String::new();
    for item in items {
        let comma = if out.is_empty() { "" } else { ", " };
        write!(out, "{comma}{item}").expect("strings take everything");
    }
    out
}

fn fields_text(fields: &[(String, u32)]) -> String {
    joined(fields.iter().map(|(name, width)| format!("{}: {width}", name_text(name))))
}

// Ids as names.

fn named(name: Option<&String>, index: u32) -> String {
    name.map_or_else(|| format!("?{index}"), |n| name_text(n))
}

/// A slot's name.
pub fn slot_text(program: &Program, slot: SlotId) -> String {
    named(program.slots.get(slot.index()).map(|s| &s.name), slot.0)
}

fn header_text(program: &Program, header: HeaderId) -> String {
    named(program.headers.get(header.index()).map(|h| &h.name), header.0)
}

fn table_text(program: &Program, table: TableId) -> String {
    named(program.tables.get(table.index()).map(|t| &t.name), table.0)
}

fn extern_text(program: &Program, instance: ExternId) -> String {
    named(program.externs.get(instance.index()).map(|e| &e.name), instance.0)
}

fn action_text(program: &Program, action: ActionId) -> String {
    named(program.actions.get(action.index()).map(|a| &a.name), action.0)
}

fn block_text(block: BlockId) -> String {
    format!("b{}", block.0)
}

fn operand_text(program: &Program, operand: &Operand) -> String {
    match operand {
        Operand::Slot(s) => slot_text(program, *s),
        Operand::Const(c) => c.to_string(),
    }
}

// Words of the text form, shared with the parser.

macro_rules! words {
    ($(#[$doc:meta])* $all:ident: $ty:ty = $($value:path => $word:literal),* $(,)?) => {
        $(#[$doc])*
        pub(crate) const $all: &[($ty, &str)] = &[$(($value, $word)),*];
    };
}

words! {
    /// Names of two-operand operations.
    BIN_OPS: BinOp =
        BinOp::Add => "add", BinOp::Sub => "sub", BinOp::Mul => "mul", BinOp::Div => "div", BinOp::Mod => "mod",
        BinOp::And => "and", BinOp::Or => "or", BinOp::Xor => "xor", BinOp::Shl => "shl", BinOp::Lshr => "lshr",
        BinOp::Ashr => "ashr", BinOp::SatAddU => "sat_add_u", BinOp::SatSubU => "sat_sub_u",
        BinOp::SatAddS => "sat_add_s", BinOp::SatSubS => "sat_sub_s", BinOp::Eq => "eq", BinOp::Ne => "ne",
        BinOp::Ult => "ult", BinOp::Ule => "ule", BinOp::Slt => "slt", BinOp::Sle => "sle",
}

words! {
    /// Words of one-operand operations.
    UN_OPS: UnOp = UnOp::Not => "not", UnOp::Neg => "neg",
}

words! {
    /// Words of casts.
    CASTS: CastKind = CastKind::Zext => "zext", CastKind::Sext => "sext", CastKind::Trunc => "trunc",
}

words! {
    /// Words of hash algorithms.
    HASHES: HashAlgorithm =
        HashAlgorithm::Crc32 => "crc32", HashAlgorithm::Crc32Custom => "crc32_custom",
        HashAlgorithm::Crc16 => "crc16", HashAlgorithm::Crc16Custom => "crc16_custom",
        HashAlgorithm::Random => "random", HashAlgorithm::Identity => "identity",
        HashAlgorithm::Csum16 => "csum16", HashAlgorithm::Xor16 => "xor16",
        HashAlgorithm::CrcCcitt => "crc_ccitt", HashAlgorithm::Xor32 => "xor32",
        HashAlgorithm::Crc8 => "crc8", HashAlgorithm::Crc64 => "crc64", HashAlgorithm::Xxh64 => "xxh64",
        HashAlgorithm::HashEx => "hash_ex",
}

words! {
    /// Words of calculations' functions.
    CALCULATED: Calculated =
        Calculated::Crc16 => "crc16", Calculated::Crc32 => "crc32", Calculated::Toeplitz => "toeplitz",
}

/// The keyword of hash algorithms that are calculations.
pub(crate) const CALCULATION: &str = "calculation";

words! {
    /// Words of replication points.
    POINTS: ReplicationPoint =
        ReplicationPoint::IngressEnd => "ingress_end", ReplicationPoint::EgressEnd => "egress_end",
        ReplicationPoint::DeparseEnd => "deparse_end", ReplicationPoint::FrameEnd => "frame_end",
}

words! {
    /// Words of counter and meter units.
    UNITS: CounterUnit =
        CounterUnit::Packets => "packets", CounterUnit::Bytes => "bytes", CounterUnit::Both => "both",
}

words! {
    /// Words of stage kinds.
    STAGE_KINDS: StageKind =
        StageKind::Parser => "parser", StageKind::Control => "control", StageKind::Deparser => "deparser",
}

words! {
    /// How a table treats idle entries, in the text form.
    EXPIRIES: Expiry =
        Expiry::Never => "never", Expiry::Notify => "notify", Expiry::Delete => "delete",
        Expiry::DeleteAndNotify => "delete_and_notify",
}

/// The word of a value in one of these lists.
pub(crate) fn word<T: PartialEq>(words: &[(T, &'static str)], value: &T) -> &'static str {
    words.iter().find(|(v, _)| v == value).map_or("?", |(_, w)| *w)
}

impl BinOp {
    /// The word of the text form.
    pub fn name(self) -> &'static str {
        word(BIN_OPS, &self)
    }
}

impl HashAlgorithm {
    /// The word of the text form; that of a calculation is followed by its name.
    pub fn name(self) -> &'static str {
        match self {
            HashAlgorithm::Calculation(_) => CALCULATION,
            plain => word(HASHES, &plain),
        }
    }
}

impl ReplicationPoint {
    /// The word of the text form.
    pub fn name(self) -> &'static str {
        word(POINTS, &self)
    }
}

impl StageKind {
    /// The word of the text form.
    pub fn name(self) -> &'static str {
        word(STAGE_KINDS, &self)
    }
}

/// An operation without its span.
pub fn op_text(program: &Program, op: &Op) -> String {
    let slot = |s: &SlotId| slot_text(program, *s);
    let arg = |o: &Operand| operand_text(program, o);
    let optional =
        |word: &str, o: &Option<Operand>| o.as_ref().map_or(String::new(), |o| format!(" {word} {}", arg(o)));
    let args = |list: &[Operand]| joined(list.iter().map(arg));
    let header = |h: &HeaderId| header_text(program, *h);
    let ext = |e: &ExternId| extern_text(program, *e);
    match op {
        Op::Mov { dst, src } => format!("{} = mov {}", slot(dst), arg(src)),
        Op::Bin { op, dst, a, b } => format!("{} = {} {}, {}", slot(dst), op.name(), arg(a), arg(b)),
        Op::Un { op, dst, a } => format!("{} = {} {}", slot(dst), word(UN_OPS, op), arg(a)),
        Op::Cast { kind, dst, a } => format!("{} = {} {}", slot(dst), word(CASTS, kind), arg(a)),
        Op::Concat { dst, hi, lo } => format!("{} = concat {}, {}", slot(dst), arg(hi), arg(lo)),
        Op::Slice { dst, a, hi, lo } => format!("{} = slice {}, {hi}, {lo}", slot(dst), arg(a)),
        Op::SetSlice { dst, hi, lo, a } => format!("{} = set_slice {hi}, {lo}, {}", slot(dst), arg(a)),
        Op::Select { dst, cond, then, other } => {
            format!("{} = select {}, {}, {}", slot(dst), arg(cond), arg(then), arg(other))
        }
        Op::SetValid { header: h } => format!("set_valid {}", header(h)),
        Op::SetInvalid { header: h } => format!("set_invalid {}", header(h)),
        Op::HasBits { dst, bits } => format!("{} = has_bits {}", slot(dst), arg(bits)),
        Op::Extract { header: h, varbit_bits: None } => format!("extract {}", header(h)),
        Op::Extract { header: h, varbit_bits: Some(bits) } => format!("extract {}, {}", header(h), arg(bits)),
        Op::Advance { bits } => format!("advance {}", arg(bits)),
        Op::Lookahead { dst, offset } => format!("{} = lookahead {offset}", slot(dst)),
        Op::Consumed { dst } => format!("{} = consumed", slot(dst)),
        Op::Emit { header: h } => format!("emit {}", header(h)),
        Op::Truncate { bytes } => format!("truncate {}", arg(bytes)),
        Op::Apply { table, keys, selector, hit, action, entry, data } => {
            let dsts = joined([hit, action, entry, data].map(slot));
            let select = if selector.is_empty() { String::new() } else { format!(" select ({})", args(selector)) };
            format!("{dsts} = apply {} ({}){select}", table_text(program, *table), args(keys))
        }
        Op::ActionParam { dst, table, action, param, data } => {
            format!("{} = param {}, {action}, {param}, {}", slot(dst), table_text(program, *table), slot(data))
        }
        Op::AddEntry { table, keys, action, args: given, expire, replace, dst } => {
            let word = if *replace { "replace_entry" } else { "add_entry" };
            let (table, keys) = (table_text(program, *table), args(keys));
            format!("{} = {word} {table} ({keys}), {action} ({}), {}", slot(dst), args(given), arg(expire))
        }
        Op::RestartTimer { table, hit, entry, expire } => {
            let expire = expire.as_ref().map_or(String::new(), |expire| format!(", {}", arg(expire)));
            format!("restart_timer {}, {}, {}{expire}", table_text(program, *table), arg(hit), slot(entry))
        }
        Op::Count { counter, index, bytes } => {
            format!("count {}, {}{}", ext(counter), arg(index), optional("bytes", bytes))
        }
        Op::CountDirect { counter, hit, entry, bytes } => {
            format!("count_direct {}, {}, {}{}", ext(counter), arg(hit), slot(entry), optional("bytes", bytes))
        }
        Op::Meter { meter, dst, index, before, bytes } => {
            let given = optional("before", before) + &optional("bytes", bytes);
            format!("{} = meter {}, {}{given}", slot(dst), ext(meter), arg(index))
        }
        Op::MeterDirect { meter, dst, hit, entry, before, bytes } => {
            let given = optional("before", before) + &optional("bytes", bytes);
            format!("{} = meter_direct {}, {}, {}{given}", slot(dst), ext(meter), arg(hit), slot(entry))
        }
        Op::RegisterRead { register, dst, index, peek } => {
            let name = if *peek { "peek" } else { "read" };
            format!("{} = {name} {}, {}", slot(dst), ext(register), arg(index))
        }
        Op::RegisterUpdate { register, dst, index, update, src } => {
            format!("{} = update {}, {}, {}, {}", slot(dst), ext(register), arg(index), update.name(), arg(src))
        }
        Op::RegisterWrite { register, index, src } => format!("write {}, {}, {}", ext(register), arg(index), arg(src)),
        Op::Hash { algorithm, dst, base, max, data, varbits, payload } => {
            let calculation = match algorithm {
                HashAlgorithm::Calculation(id) => {
                    format!(" {}", named(program.calculations.get(id.index()).map(|c| &c.name), id.0))
                }
                _ => String::new(),
            };
            let mut text = format!("{} = hash {}{calculation} base {}", slot(dst), algorithm.name(), arg(base));
            if let Some(max) = max {
                text += &format!(" max {}", arg(max));
            }
            text += &format!(" data ({})", args(data));
            if !varbits.is_empty() {
                text += &format!(" varbits ({})", joined(varbits.iter().map(|(i, s)| format!("{i}: {}", slot(s)))));
            }
            if *payload {
                text += " payload";
            }
            text
        }
        Op::Random { dst, low, high } => format!("{} = random {}, {}", slot(dst), arg(low), arg(high)),
        Op::Digest { digest, data } => format!("digest {} ({})", ext(digest), args(data)),
        Op::Log { format, args: list } => format!("log {} ({})", quote(format), args(list)),
        Op::Assert { cond, text } => format!("assert {}, {}", arg(cond), quote(text)),
        Op::Unresolved { callee, args: given, results } => {
            let results = joined(results.iter().map(slot));
            format!("unresolved {} ({}) -> ({results})", quote(callee), args(given))
        }
        Op::Charge { steps } => format!("charge {steps}"),
        Op::Mark(Mark::State(name)) => format!("mark state {}", quote(name)),
        Op::Mark(Mark::Block(name)) => format!("mark block {}", quote(name)),
        Op::Mark(Mark::Action(name)) => format!("mark action {}", quote(name)),
        Op::Mark(Mark::Decision { name, holds }) => format!("mark {holds} {}", quote(name)),
        Op::Mark(Mark::Checksum { name, update: true }) => format!("mark update {}", quote(name)),
        Op::Mark(Mark::Checksum { name, update: false }) => format!("mark verify {}", quote(name)),
        Op::Mark(Mark::Statement) => "mark statement".to_string(),
        Op::Mark(Mark::Direct { table, action }) => format!("mark direct {} {}", quote(table), quote(action)),
        Op::Mark(Mark::Exit) => "mark exit".to_string(),
        Op::Mark(Mark::OutOfRange { stack, size }) => format!("mark out_of_range {} {size}", quote(stack)),
    }
}

/// A terminator without its span.
pub fn terminator_text(program: &Program, term: &Terminator) -> String {
    let arg = |o: &Operand| operand_text(program, o);
    match term {
        Terminator::Jump(to) => format!("jump {}", block_text(*to)),
        Terminator::Branch { cond, then, other } => {
            format!("branch {}, {}, {}", arg(cond), block_text(*then), block_text(*other))
        }
        Terminator::Switch { on, cases, default } => {
            let cases: String = cases.iter().map(|(value, to)| format!("{value} -> {}, ", block_text(*to))).collect();
            format!("switch {}, {cases}default -> {}", arg(on), block_text(*default))
        }
        Terminator::Next => "next".to_string(),
        Terminator::Finish(Fate::Drop(reason)) => {
            format!("drop {}", named(program.drops.get(*reason as usize), *reason))
        }
        Terminator::Finish(Fate::Send(port)) => format!("send {}", arg(port)),
        Terminator::Finish(Fate::Multicast(group)) => format!("multicast {}", arg(group)),
        Terminator::Finish(Fate::Replicate(point)) => format!("replicate {}", point.name()),
        Terminator::Finish(Fate::Again { why, list: None }) => format!("again {}", why.name()),
        Terminator::Finish(Fate::Again { why, list: Some(list) }) => format!("again {}, {list}", why.name()),
    }
}

struct Printer<'a> {
    program: &'a Program,
    out: String,
}

impl Printer<'_> {
    fn line(&mut self, text: impl Display) {
        writeln!(self.out, "{text}").expect("strings take everything");
    }

    fn declarations(&mut self) {
        let p = self.program;
        self.line(format_args!("program {}", quote(&p.name)));
        for (word, names) in [("errors", &p.errors), ("drops", &p.drops)] {
            if !names.is_empty() {
                self.line(format_args!("{word} {}", joined(names.iter().map(|n| name_text(n)))));
            }
        }
        if let Some(port) = p.drop_port {
            self.line(format_args!("drop_port {port}"));
        }
        if let Some(port) = p.cpu_port {
            self.line(format_args!("cpu_port {port}"));
        }
        if let Some(port) = p.recirculation_port {
            self.line(format_args!("recirculation_port {port}"));
        }
        if let Some(session) = p.cpu_session {
            self.line(format_args!("cpu_session {session}"));
        }
        if p.cuts_clones_first {
            self.line("cuts_clones_first");
        }
        if p.queues {
            self.line("queues");
        }
        if p.instance_types != InstanceTypes::default() {
            let InstanceTypes { normal, ingress_clone, egress_clone, recirculate, replication, resubmit } =
                p.instance_types;
            self.line(format_args!(
                "instance_types {normal}, {ingress_clone}, {egress_clone}, {recirculate}, {replication}, {resubmit}"
            ));
        }
        for header in &p.controller_headers {
            self.line(format_args!("controller_header {} ({})", name_text(&header.name), fields_text(&header.fields)));
        }
        self.slots_and_headers();
        for action in &p.actions {
            self.line(format_args!("action {} ({})", name_text(&action.name), fields_text(&action.params)));
        }
        for calculation in &p.calculations {
            self.line(format_args!(
                "{CALCULATION} {} {}",
                name_text(&calculation.name),
                word(CALCULATED, &calculation.function)
            ));
        }
        for instance in &p.externs {
            self.instance(instance);
        }
        for table in &p.tables {
            self.table(table);
        }
        for (which, slot) in &p.intrinsics {
            self.line(format_args!("intrinsic {} = {}", which.name(), slot_text(p, *slot)));
        }
        for (index, slots) in &p.field_lists {
            self.line(format_args!("field_list {index} ({})", joined(slots.iter().map(|s| slot_text(p, *s)))));
        }
        if let Some(openflow) = &p.openflow {
            self.openflow(openflow);
        }
        for entry in &p.entries {
            let stages = entry.stages.iter().map(|s| named(p.stages.get(s.index()).map(|s| &s.name), s.0));
            self.line(format_args!("entry {} ({})", entry.kind.name(), joined(stages)));
        }
    }

    fn openflow(&mut self, openflow: &OpenFlow) {
        let p = self.program;
        self.line("openflow {");
        if let Some((stage, table)) = openflow.actions {
            let stage = named(p.stages.get(stage.index()).map(|s| &s.name), stage.0);
            self.line(format_args!("  actions {stage}, {}", table_text(p, table)));
        }
        for (word, slot) in [("reparse", openflow.reparse), ("ttl_exceeded", openflow.ttl_exceeded)] {
            if let Some(slot) = slot {
                self.line(format_args!("  {word} {}", slot_text(p, slot)));
            }
        }
        for field in &openflow.fields {
            let part = |part: &FieldPart| format!("{} {} {}", slot_text(p, part.slot), part.lo, part.width);
            let mut text = format!("  field {} ({})", name_text(&field.name), joined(field.parts.iter().map(part)));
            let number = |(class, number, experimenter): &(u16, u8, u32)| format!("{class} {number} {experimenter}");
            write!(text, " numbers ({})", joined(field.numbers.iter().map(number))).expect("strings take everything");
            for (set, word) in
                [(field.maskable, "maskable"), (field.writable, "writable"), (field.is_metadata, "metadata")]
            {
                if set {
                    write!(text, " {word}").expect("strings take everything");
                }
            }
            let needs = |(other, mask, values): &(u32, u128, Vec<u128>)| {
                let other = named(openflow.fields.get(*other as usize).map(|f| &f.name), *other);
                format!("{other} {mask} ({})", joined(values))
            };
            if !field.prerequisites.is_empty() {
                write!(text, " needs ({})", joined(field.prerequisites.iter().map(needs)))
                    .expect("strings take everything");
            }
            self.line(text);
        }
        self.line("}");
    }

    fn slots_and_headers(&mut self) {
        let p = self.program;
        for slot in &p.slots {
            let kind = match slot.kind {
                SlotKind::Field(h) => format!("field {}", header_text(p, h)),
                SlotKind::VarbitLength(h) => format!("varbit_length {}", header_text(p, h)),
                SlotKind::Valid(h) => format!("valid {}", header_text(p, h)),
                SlotKind::HeaderPart => "header_part".to_string(),
                SlotKind::Metadata => "metadata".to_string(),
                SlotKind::Local => "local".to_string(),
                SlotKind::Temp => "temp".to_string(),
            };
            self.line(format_args!("slot {}: {} {kind}", name_text(&slot.name), slot.width));
        }
        for header in &p.headers {
            self.line(format_args!("header {} valid {} {{", name_text(&header.name), slot_text(p, header.valid)));
            for field in &header.fields {
                let varbit = field.varbit_length.map(|s| format!(" varbit {}", slot_text(p, s))).unwrap_or_default();
                self.line(format_args!("  {} = {}{varbit}", name_text(&field.name), slot_text(p, field.slot)));
            }
            self.line("}");
        }
    }

    fn instance(&mut self, instance: &Extern) {
        let p = self.program;
        let direct = |t: &Option<TableId>| t.map(|t| format!(" direct {}", table_text(p, t))).unwrap_or_default();
        let kind = match &instance.kind {
            ExternKind::Counter { size, unit, direct: d } => {
                format!("counter size {size} unit {}{}", word(UNITS, unit), direct(d))
            }
            ExternKind::Meter { size, unit, direct: d } => {
                format!("meter size {size} unit {}{}", word(UNITS, unit), direct(d))
            }
            ExternKind::Register { size, width, initial } => {
                format!("register size {size} width {width} initial {initial}")
            }
            ExternKind::ActionProfile { size, actions } => {
                format!("action_profile size {size} actions ({})", self.actions(actions))
            }
            ExternKind::ActionSelector { size, actions, algorithm, hash_width, empty } => {
                let empty = empty.as_ref().map(|call| format!(" empty {}", call_text(call))).unwrap_or_default();
                let actions = self.actions(actions);
                let algorithm = algorithm.name();
                format!("action_selector size {size} hash {algorithm} width {hash_width} actions ({actions}){empty}")
            }
            ExternKind::Digest { fields } => format!("digest ({})", fields_text(fields)),
        };
        self.line(format_args!("extern {} {kind}{}", name_text(&instance.name), span_text(instance.span)));
    }

    fn actions(&self, actions: &[TableAction]) -> String {
        joined(actions.iter().map(|a| self.table_action(a)))
    }

    fn table_action(&self, action: &TableAction) -> String {
        let default_only = if action.default_only { " default_only" } else { "" };
        let table_only = if action.table_only { " table_only" } else { "" };
        format!("{}{default_only}{table_only}", action_text(self.program, action.action))
    }

    fn table(&mut self, table: &Table) {
        self.line(format_args!("table {}{} {{", name_text(&table.name), span_text(table.span)));
        for key in &table.keys {
            self.line(format_args!("  key {}: {} {}", name_text(&key.name), key.width, key.kind.name()));
        }
        for action in &table.actions {
            let action = self.table_action(action);
            self.line(format_args!("  action {action}"));
        }
        self.line(format_args!("  default {}", call_text(&table.default_action)));
        self.line(format_args!("  size {}", table.size));
        if let Some(instance) = table.implementation {
            self.line(format_args!("  implementation {}", extern_text(self.program, instance)));
        }
        for instance in &table.direct {
            self.line(format_args!("  direct {}", extern_text(self.program, *instance)));
        }
        for (word, set) in [
            ("const_default", table.const_default),
            ("const_entries", table.const_entries),
            ("idle_timeout", table.idle_timeout),
            ("value_set", table.value_set),
        ] {
            if set {
                self.line(format_args!("  {word}"));
            }
        }
        if let Some(Dynamic { add_on_miss, expiry, restart_on_hit, expire_ms, evicts }) = &table.dynamic {
            let words = [(*add_on_miss, "add_on_miss"), (*restart_on_hit, "restart_on_hit"), (*evicts, "evicts")];
            let words: String = words.iter().filter(|(set, _)| *set).map(|(_, word)| format!(" {word}")).collect();
            let times = joined(expire_ms);
            self.line(format_args!("  dynamic {}{words} ({times})", word(EXPIRIES, expiry)));
        }
        for entry in &table.entries {
            self.line(format_args!("  entry {}", entry_text(entry)));
        }
        self.line("}");
    }

    fn stage(&mut self, stage: &Stage) {
        self.line(format_args!("stage {} {} {{", word(STAGE_KINDS, &stage.kind), name_text(&stage.name)));
        for (i, block) in stage.blocks.iter().enumerate() {
            let label = if block.label.is_empty() { String::new() } else { format!(" {}", name_text(&block.label)) };
            self.line(format_args!("b{i}{label}:"));
            for Inst { op, span } in &block.insts {
                self.line(format_args!("  {}{}", op_text(self.program, op), span_text(*span)));
            }
            self.line(format_args!("  {}{}", terminator_text(self.program, &block.term), span_text(block.span)));
        }
        self.line("}");
    }
}

fn call_text(call: &ActionCall) -> String {
    format!("{} ({})", call.action, joined(&call.args))
}

/// One field of an entry's key.
pub fn key_match_text(key: &KeyMatch) -> String {
    match key {
        KeyMatch::Exact(value) => format!("exact {value}"),
        KeyMatch::Lpm { value, prefix_len } => format!("lpm {value}/{prefix_len}"),
        KeyMatch::Ternary { value, mask } => format!("ternary {value} &&& {mask}"),
        KeyMatch::Range { low, high } => format!("range {low}..{high}"),
        KeyMatch::Optional(Some(value)) => format!("optional {value}"),
        KeyMatch::Optional(None) => "optional _".to_string(),
    }
}

fn entry_text(entry: &TableEntry) -> String {
    let key = joined(entry.key.iter().map(key_match_text));
    let action = match &entry.action {
        EntryAction::Call(call) => format!("call {}", call_text(call)),
        EntryAction::Member(id) => format!("member {id}"),
        EntryAction::Group(id) => format!("group {id}"),
    };
    let timeout =
        if entry.idle_timeout_ns == 0 { String::new() } else { format!(" idle_timeout {}", entry.idle_timeout_ns) };
    format!("({key}) priority {} -> {action}{timeout}", entry.priority)
}
