//! Lines outside stages: slots, headers, actions, tables, externs, entries.

use super::lex::{Line, Tok};
use super::{Cursor, Reader, Result, Space};
use crate::print::{CALCULATED, CALCULATION, EXPIRIES, HASHES, STAGE_KINDS, UNITS};
use crate::program::{
    Action, Calculation, ControllerHeader, Dynamic, EntryKind, EntryPoint, Extern, ExternKind, Field, Header,
    InstanceTypes, Intrinsic, Key, Slot, SlotKind, Table, TableAction,
};
use base::diag::Diagnostic;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind, TableEntry};
use base::ids::{ActionId, CalculationId, ExternId, HeaderId, SlotId, StageId, TableId};

const MATCH_KINDS: [(MatchKind, &str); 5] = [
    (MatchKind::Exact, "exact"),
    (MatchKind::Lpm, "lpm"),
    (MatchKind::Ternary, "ternary"),
    (MatchKind::Range, "range"),
    (MatchKind::Optional, "optional"),
];

impl<'a> Reader<'a> {
    /// All lines outside braces.
    pub(super) fn items(&mut self) {
        while let Some(line) = self.next_line() {
            match &line.tokens[0].tok {
                Tok::Word(word) if word == "header" => self.header(line),
                Tok::Word(word) if word == "table" => self.table(line),
                Tok::Word(word) if word == "openflow" => self.openflow(line),
                Tok::Word(word) if word == "stage" => self.stage(line),
                Tok::Word(word) => self.one_line(word, line),
                _ => {
                    self.with_line(line, |c| c.expected::<()>("a declaration"));
                    self.skip_body(line);
                }
            }
        }
    }

    /// Skips the body that a malformed line opens.
    fn skip_body(&mut self, line: &'a Line) {
        if line.opens() {
            self.body(line, |_, _| {});
        }
    }

    fn one_line(&mut self, keyword: &str, line: &'a Line) {
        macro_rules! take {
            ($f:expr => $use:expr) => {
                if let Some(value) = self.with_line(line, |c| {
                    c.at = 1;
                    $f(c)
                }) {
                    #[allow(clippy::redundant_closure_call)]
                    $use(&mut self.program, value);
                }
            };
        }
        match keyword {
            "program" => take!(Cursor::quoted => |p: &mut crate::Program, v| p.name = v),
            "errors" => take!(names => |p: &mut crate::Program, v| p.errors = v),
            "drops" => take!(names => |p: &mut crate::Program, v| p.drops = v),
            "drop_port" => take!(Cursor::number => |p: &mut crate::Program, v| p.drop_port = Some(v)),
            "cpu_port" => take!(Cursor::number => |p: &mut crate::Program, v| p.cpu_port = Some(v)),
            "recirculation_port" => {
                take!(Cursor::number => |p: &mut crate::Program, v| p.recirculation_port = Some(v))
            }
            "cpu_session" => take!(Cursor::number => |p: &mut crate::Program, v| p.cpu_session = Some(v)),
            "cuts_clones_first" => self.program.cuts_clones_first = true,
            "queues" => self.program.queues = true,
            "instance_types" => take!(instance_types => |p: &mut crate::Program, v| p.instance_types = v),
            "controller_header" => {
                take!(controller_header => |p: &mut crate::Program, v| p.controller_headers.push(v))
            }
            "slot" => take!(slot => |p: &mut crate::Program, v| p.slots.push(v)),
            "action" => take!(action => |p: &mut crate::Program, v| p.actions.push(v)),
            "extern" => take!(instance => |p: &mut crate::Program, v| p.externs.push(v)),
            CALCULATION => take!(calculation => |p: &mut crate::Program, v| p.calculations.push(v)),
            "intrinsic" => take!(intrinsic => |p: &mut crate::Program, v| p.intrinsics.push(v)),
            "field_list" => take!(field_list => |p: &mut crate::Program, v| p.field_lists.push(v)),
            "entry" => take!(entry => |p: &mut crate::Program, v| p.entries.push(v)),
            _ => {
                let diag =
                    Diagnostic::error("E0702", line.tokens[0].span, format!("there is no declaration `{keyword}`"));
                self.diags.push(diag);
                self.skip_body(line);
            }
        }
    }

    fn header(&mut self, line: &'a Line) {
        let head = self.with_line(line, |c| {
            c.at = 1;
            let name = c.name("the header's name")?;
            c.keyword("valid")?;
            let valid = c.slot()?;
            c.punct("{")?;
            Ok(Header { name, fields: Vec::new(), valid })
        });
        let mut fields = Vec::new();
        if line.opens() {
            self.body(line, |reader, line| fields.extend(reader.with_line(line, field)));
        }
        if let Some(head) = head {
            self.program.headers.push(Header { fields, ..head });
        }
    }

    fn table(&mut self, line: &'a Line) {
        let mut table = Table {
            name: String::new(),
            span: base::Span::NONE,
            keys: Vec::new(),
            actions: Vec::new(),
            default_action: ActionCall { action: 0, args: Vec::new() },
            const_default: false,
            entries: Vec::new(),
            const_entries: false,
            size: 0,
            implementation: None,
            direct: Vec::new(),
            idle_timeout: false,
            value_set: false,
            dynamic: None,
        };
        self.with_line(line, |c| {
            c.at = 1;
            table.name = c.name("the table's name")?;
            table.span = c.place()?;
            c.punct("{")
        });
        if line.opens() {
            self.body(line, |reader, line| {
                reader.with_line(line, |c| property(c, &mut table));
            });
        }
        self.program.tables.push(table);
    }

    fn stage(&mut self, line: &'a Line) {
        let head = self.with_line(line, |c| {
            c.at = 1;
            let kind = c.one_of(STAGE_KINDS, "`parser`, `control` or `deparser`")?;
            let name = c.name("the stage's name")?;
            c.punct("{")?;
            Ok((kind, name))
        });
        match head {
            Some((kind, name)) => self.blocks(line, kind, name),
            None => self.skip_body(line),
        }
    }
}

impl Cursor<'_> {
    pub(super) fn slot(&mut self) -> Result<SlotId> {
        self.known(Space::Slot).map(SlotId)
    }

    pub(super) fn header_id(&mut self) -> Result<HeaderId> {
        self.known(Space::Header).map(HeaderId)
    }

    pub(super) fn table_id(&mut self) -> Result<TableId> {
        self.known(Space::Table).map(TableId)
    }

    pub(super) fn extern_id(&mut self) -> Result<ExternId> {
        self.known(Space::Extern).map(ExternId)
    }

    pub(super) fn calculation_id(&mut self) -> Result<CalculationId> {
        self.known(Space::Calculation).map(CalculationId)
    }
}

fn names(c: &mut Cursor<'_>) -> Result<Vec<String>> {
    c.rest(|c| c.name("a name"))
}

fn calculation(c: &mut Cursor<'_>) -> Result<Calculation> {
    Ok(Calculation { name: c.name("the calculation's name")?, function: c.one_of(CALCULATED, "what is calculated")? })
}

fn named_widths(c: &mut Cursor<'_>) -> Result<Vec<(String, u32)>> {
    c.list(|c| {
        let name = c.name("a name")?;
        c.punct(":")?;
        Ok((name, c.number()?))
    })
}

fn instance_types(c: &mut Cursor<'_>) -> Result<InstanceTypes> {
    let mut values = [0; 6];
    for (i, value) in values.iter_mut().enumerate() {
        if i > 0 {
            c.comma()?;
        }
        *value = c.number()?;
    }
    let [normal, ingress_clone, egress_clone, recirculate, replication, resubmit] = values;
    Ok(InstanceTypes { normal, ingress_clone, egress_clone, recirculate, replication, resubmit })
}

fn controller_header(c: &mut Cursor<'_>) -> Result<ControllerHeader> {
    Ok(ControllerHeader { name: c.name("the header's name")?, fields: named_widths(c)? })
}

fn slot(c: &mut Cursor<'_>) -> Result<Slot> {
    let name = c.name("the slot's name")?;
    c.punct(":")?;
    let width = c.number()?;
    let kind = match c.word("the slot's kind") {
        Ok("field") => SlotKind::Field(c.header_id()?),
        Ok("varbit_length") => SlotKind::VarbitLength(c.header_id()?),
        Ok("valid") => SlotKind::Valid(c.header_id()?),
        Ok("header_part") => SlotKind::HeaderPart,
        Ok("metadata") => SlotKind::Metadata,
        Ok("local") => SlotKind::Local,
        Ok("temp") => SlotKind::Temp,
        Ok(_) => {
            c.at -= 1;
            return c.expected("`field`, `varbit_length`, `valid`, `header_part`, `metadata`, `local` or `temp`");
        }
        Err(diag) => return Err(diag),
    };
    Ok(Slot { name, width, kind })
}

fn field(c: &mut Cursor<'_>) -> Result<Field> {
    let name = c.name("the field's name")?;
    c.punct("=")?;
    let slot = c.slot()?;
    let varbit_length = if c.eat_word("varbit") { Some(c.slot()?) } else { None };
    Ok(Field { name, slot, varbit_length })
}

fn action(c: &mut Cursor<'_>) -> Result<Action> {
    Ok(Action { name: c.name("the action's name")?, params: named_widths(c)? })
}

fn table_action(c: &mut Cursor<'_>) -> Result<TableAction> {
    let action = ActionId(c.known(Space::Action)?);
    Ok(TableAction { action, default_only: c.eat_word("default_only"), table_only: c.eat_word("table_only") })
}

fn instance(c: &mut Cursor<'_>) -> Result<Extern> {
    let name = c.name("the extern's name")?;
    let what = "`counter`, `meter`, `register`, `action_profile`, `action_selector` or `digest`";
    let keyword = c.word(what)?;
    let kind = match keyword {
        "counter" | "meter" => {
            c.keyword("size")?;
            let size = c.number()?;
            c.keyword("unit")?;
            let unit = c.one_of(UNITS, "`packets`, `bytes` or `both`")?;
            let direct = if c.eat_word("direct") { Some(c.table_id()?) } else { None };
            match keyword {
                "counter" => ExternKind::Counter { size, unit, direct },
                _ => ExternKind::Meter { size, unit, direct },
            }
        }
        "register" => {
            c.keyword("size")?;
            let size = c.number()?;
            c.keyword("width")?;
            let width = c.number()?;
            c.keyword("initial")?;
            ExternKind::Register { size, width, initial: c.bits()? }
        }
        "action_profile" => {
            c.keyword("size")?;
            let size = c.number()?;
            c.keyword("actions")?;
            ExternKind::ActionProfile { size, actions: c.list(table_action)? }
        }
        "action_selector" => {
            c.keyword("size")?;
            let size = c.number()?;
            c.keyword("hash")?;
            let algorithm = c.one_of(HASHES, "a hash algorithm")?;
            c.keyword("width")?;
            let hash_width = c.number()?;
            c.keyword("actions")?;
            let actions = c.list(table_action)?;
            let empty = if c.eat_word("empty") { Some(action_call(c)?) } else { None };
            ExternKind::ActionSelector { size, actions, algorithm, hash_width, empty }
        }
        "digest" => ExternKind::Digest { fields: named_widths(c)? },
        _ => {
            c.at -= 1;
            return c.expected(what);
        }
    };
    Ok(Extern { name, kind, span: c.place()? })
}

fn intrinsic(c: &mut Cursor<'_>) -> Result<(Intrinsic, SlotId)> {
    let words: Vec<(Intrinsic, &str)> = Intrinsic::ALL.iter().map(|i| (*i, i.name())).collect();
    let which = c.one_of(&words, "an intrinsic")?;
    c.punct("=")?;
    Ok((which, c.slot()?))
}

fn field_list(c: &mut Cursor<'_>) -> Result<(u64, Vec<SlotId>)> {
    Ok((c.number()?, c.list(Cursor::slot)?))
}

fn entry(c: &mut Cursor<'_>) -> Result<EntryPoint> {
    let kind = c.one_of(&EntryKind::ALL.map(|k| (k, k.name())), "a kind of entry")?;
    Ok(EntryPoint { kind, stages: c.list(|c| c.known(Space::Stage).map(StageId))? })
}

fn property(c: &mut Cursor<'_>, table: &mut Table) -> Result<()> {
    match c.word("a property of the table")? {
        "key" => {
            let name = c.name("the key's name")?;
            c.punct(":")?;
            let width = c.number()?;
            table.keys.push(Key { name, width, kind: c.one_of(&MATCH_KINDS, "a match kind")? });
        }
        "action" => table.actions.push(table_action(c)?),
        "default" => table.default_action = action_call(c)?,
        "size" => table.size = c.number()?,
        "implementation" => table.implementation = Some(c.extern_id()?),
        "direct" => table.direct.push(c.extern_id()?),
        "const_default" => table.const_default = true,
        "const_entries" => table.const_entries = true,
        "idle_timeout" => table.idle_timeout = true,
        "value_set" => table.value_set = true,
        "dynamic" => {
            let expiry = c.one_of(EXPIRIES, "what becomes of idle entries")?;
            let add_on_miss = c.eat_word("add_on_miss");
            let restart_on_hit = c.eat_word("restart_on_hit");
            let evicts = c.eat_word("evicts");
            let expire_ms = c.list(Cursor::number)?;
            table.dynamic = Some(Dynamic { add_on_miss, expiry, restart_on_hit, expire_ms, evicts });
        }
        "entry" => table.entries.push(table_entry(c)?),
        _ => {
            c.at -= 1;
            return c.expected("a property of the table");
        }
    }
    Ok(())
}

fn action_call(c: &mut Cursor<'_>) -> Result<ActionCall> {
    Ok(ActionCall { action: c.number()?, args: c.list(Cursor::bits)? })
}

fn table_entry(c: &mut Cursor<'_>) -> Result<TableEntry> {
    let key = c.list(key_match)?;
    c.keyword("priority")?;
    let sign = if c.eat_punct("-") { -1 } else { 1 };
    let span = c.span();
    let priority = c.number::<i64>()?.checked_mul(sign).and_then(|p| i32::try_from(p).ok());
    let priority = priority.ok_or_else(|| Diagnostic::error("E0705", span, "a priority has 32 bits"))?;
    c.punct("->")?;
    let action = match c.word("`call`, `member` or `group`")? {
        "call" => EntryAction::Call(action_call(c)?),
        "member" => EntryAction::Member(c.number()?),
        "group" => EntryAction::Group(c.number()?),
        _ => {
            c.at -= 1;
            return c.expected("`call`, `member` or `group`");
        }
    };
    let idle_timeout_ns = if c.eat_word("idle_timeout") { c.number()? } else { 0 };
    Ok(TableEntry { key, priority, action, idle_timeout_ns })
}

fn key_match(c: &mut Cursor<'_>) -> Result<KeyMatch> {
    Ok(match c.one_of(&MATCH_KINDS, "a match kind")? {
        MatchKind::Exact => KeyMatch::Exact(c.bits()?),
        MatchKind::Lpm => {
            let value = c.bits()?;
            c.punct("/")?;
            KeyMatch::Lpm { value, prefix_len: c.number()? }
        }
        MatchKind::Ternary => {
            let value = c.bits()?;
            c.punct("&&&")?;
            KeyMatch::Ternary { value, mask: c.bits()? }
        }
        MatchKind::Range => {
            let low = c.bits()?;
            c.punct("..")?;
            KeyMatch::Range { low, high: c.bits()? }
        }
        MatchKind::Optional if c.eat_word("_") => KeyMatch::Optional(None),
        MatchKind::Optional => KeyMatch::Optional(Some(c.bits()?)),
    })
}
