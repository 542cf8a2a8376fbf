//! Entries as lines and as P4Runtime messages, by the names of a P4Info.
//!
//! Reading uses the STF reader on a program that has nothing but the P4Info's tables and actions. Printing gives lines
//! that the reader takes: `read(print(entry)) == entry`, but for what a line has no form for (metadata, timeouts, meters,
//! one-shot groups), which stands behind a `#`. Ids and widths come from a server: nothing here panics on odd ones.
//!
//! Tests: in `tests.rs` beside this file.

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, MatchKind};
use base::ids::{ActionId, ExternId, TableId};
use control::bytes::canonical;
use grpc::proto::p4::config::v1 as config;
use grpc::proto::p4::v1 as pb;
use ir::Program;
use pb::field_match::FieldMatchType;
use pb::table_action::Type as ActionType;
use std::fmt::Write;
use stf::{Command, TableChange};

/// Wider fields than this are taken for nonsense.
const WIDTH_MAX: u32 = 1 << 16;

/// A P4Info, and its tables and actions as the reader of lines wants them: at the same positions.
pub struct Names {
    info: config::P4Info,
    program: Program,
}

impl Names {
    /// Of a program.
    pub fn new(info: config::P4Info) -> Names {
        let action = |a: &config::Action| ir::Action {
            name: name_of(&a.preamble).to_string(),
            params: a.params.iter().map(|p| (p.name.clone(), width(p.bitwidth))).collect(),
        };
        let actions = info.actions.iter().map(action).collect();
        let table = |t: &config::Table| ir::Table {
            name: name_of(&t.preamble).to_string(),
            span: base::Span::default(),
            keys: t.match_fields.iter().map(key).collect(),
            actions: t.action_refs.iter().filter_map(|r| listed_action(&info, r.id)).collect(),
            default_action: ActionCall { action: 0, args: vec![] },
            const_default: t.const_default_action_id != 0,
            entries: vec![],
            const_entries: t.is_const_table,
            size: u64::try_from(t.size).unwrap_or(0),
            implementation: (t.implementation_id != 0).then(|| ExternId::from_index(0)),
            direct: vec![],
            idle_timeout: false,
            value_set: false,
        };
        let tables = info.tables.iter().map(table).collect();
        Names { program: Program { actions, tables, ..Program::default() }, info }
    }

    /// All tables.
    pub fn tables(&self) -> &[config::Table] {
        &self.info.tables
    }

    /// A table by its name or a suffix.
    pub fn table(&self, name: &str) -> Result<&config::Table, String> {
        let (id, _) = stf::setup::find_table(&self.program, name)?;
        Ok(&self.info.tables[id.index()])
    }

    /// What entries of a table may run, with what else `list` shows about them.
    pub fn actions(&self, table: &config::Table) -> Vec<String> {
        let text = |r: &config::ActionRef| match config::action_ref::Scope::try_from(r.scope) {
            Ok(config::action_ref::Scope::TableOnly) => format!("{} (not default)", self.action_name(r.id)),
            Ok(config::action_ref::Scope::DefaultOnly) => format!("{} (default only)", self.action_name(r.id)),
            _ => self.action_name(r.id),
        };
        table.action_refs.iter().map(text).collect()
    }

    /// A read of all entries of a table, with the counters, meters and times that it has.
    pub fn query(&self, table: &config::Table) -> pb::TableEntry {
        let has = |ids: &mut dyn Iterator<Item = Option<u32>>| {
            ids.flatten().any(|id| table.direct_resource_ids.contains(&id))
        };
        let id = |preamble: &Option<config::Preamble>| preamble.as_ref().map(|p| p.id);
        let counted = has(&mut self.info.direct_counters.iter().map(|c| id(&c.preamble)));
        let metered = has(&mut self.info.direct_meters.iter().map(|m| id(&m.preamble)));
        let timed = table.idle_timeout_behavior == config::table::IdleTimeoutBehavior::NotifyControl as i32;
        pb::TableEntry {
            table_id: id(&table.preamble).unwrap_or_default(),
            counter_data: counted.then(pb::CounterData::default),
            meter_config: metered.then(pb::MeterConfig::default),
            time_since_last_hit: timed.then(pb::table_entry::IdleTimeout::default),
            ..Default::default()
        }
    }
}

// Lines to messages.
impl Names {
    /// The update that an `add`, `delete` or `setdefault` line asks for.
    pub fn update(&self, command: &Command) -> Result<pb::Update, String> {
        let Some((table, change)) = stf::table_change(&self.program, command)? else {
            return Err("only lines about tables can be carried out here".to_string());
        };
        if let Command::Add { key, .. } | Command::Delete { key, .. } = command {
            self.check_exact_fields(table, key)?;
        }
        let info = &self.info.tables[table.index()];
        let entry = pb::TableEntry { table_id: preamble_id(&info.preamble), ..Default::default() };
        let (kind, entry) = match change {
            TableChange::Insert(new) => {
                let entry = pb::TableEntry {
                    r#match: self.matches(info, &new.key)?,
                    action: Some(self.action(table, &new.action)?),
                    priority: new.priority,
                    ..entry
                };
                (pb::update::Type::Insert, entry)
            }
            TableChange::Delete(key, priority) => {
                (pb::update::Type::Delete, pb::TableEntry { r#match: self.matches(info, &key)?, priority, ..entry })
            }
            TableChange::SetDefault(action) => {
                let action = Some(self.action(table, &action)?);
                (pb::update::Type::Modify, pb::TableEntry { is_default_action: true, action, ..entry })
            }
        };
        Ok(update(kind, entry))
    }

    /// The update that gives a table the default action of the program again.
    pub fn reset_default(&self, table: &str) -> Result<pb::Update, String> {
        let table_id = preamble_id(&self.table(table)?.preamble);
        let entry = pb::TableEntry { table_id, is_default_action: true, ..Default::default() };
        Ok(update(pb::update::Type::Modify, entry))
    }

    /// Scripts may leave exact fields out and mean 0; whoever types a line has forgotten one.
    fn check_exact_fields(&self, table: TableId, given: &[(String, String)]) -> Result<(), String> {
        let table = &self.program.tables[table.index()];
        let given: Vec<usize> =
            given.iter().map(|(field, _)| stf::setup::key_position(table, field)).collect::<Result<_, _>>()?;
        let missing = |(i, key): &(usize, &ir::Key)| key.kind == MatchKind::Exact && !given.contains(i);
        match table.keys.iter().enumerate().find(missing) {
            Some((_, key)) => Err(format!("key `{}` of table `{}` is exact and must be given", key.name, table.name)),
            None => Ok(()),
        }
    }

    fn matches(&self, table: &config::Table, key: &[KeyMatch]) -> Result<Vec<pb::FieldMatch>, String> {
        let mut matches = Vec::new();
        for (field, key) in table.match_fields.iter().zip(key) {
            if let Some(config::match_field::Match::OtherMatchType(kind)) = &field.r#match {
                return Err(format!("key `{}`: the match kind `{kind}` is not supported", field.name));
            }
            let value = match key {
                KeyMatch::Exact(value) => FieldMatchType::Exact(pb::field_match::Exact { value: canonical(value) }),
                KeyMatch::Lpm { value, prefix_len } if *prefix_len > 0 => {
                    let prefix_len = i32::try_from(*prefix_len).unwrap_or(i32::MAX);
                    FieldMatchType::Lpm(pb::field_match::Lpm { value: canonical(value), prefix_len })
                }
                KeyMatch::Ternary { value, mask } if mask.is_true() => {
                    FieldMatchType::Ternary(pb::field_match::Ternary { value: canonical(value), mask: canonical(mask) })
                }
                KeyMatch::Range { low, high } if low.is_true() || *high != Bits::ones(high.width()) => {
                    FieldMatchType::Range(pb::field_match::Range { low: canonical(low), high: canonical(high) })
                }
                KeyMatch::Optional(Some(value)) => {
                    FieldMatchType::Optional(pb::field_match::Optional { value: canonical(value) })
                }
                // The protocol leaves a field out that accepts everything.
                KeyMatch::Lpm { .. } | KeyMatch::Ternary { .. } | KeyMatch::Range { .. } | KeyMatch::Optional(None) => {
                    continue;
                }
            };
            matches.push(pb::FieldMatch { field_id: field.id, field_match_type: Some(value) });
        }
        Ok(matches)
    }

    fn action(&self, table: TableId, action: &EntryAction) -> Result<pb::TableAction, String> {
        let action = match action {
            EntryAction::Member(member) => ActionType::ActionProfileMemberId(*member),
            EntryAction::Group(group) => ActionType::ActionProfileGroupId(*group),
            EntryAction::Call(call) => {
                let table = &self.program.tables[table.index()];
                let listed = table.actions.get(call.action as usize);
                let info = listed.and_then(|listed| self.info.actions.get(listed.action.index()));
                let info = info.ok_or("the P4Info does not list the action")?;
                let param = |(param, value): (&config::action::Param, &Bits)| pb::action::Param {
                    param_id: param.id,
                    value: canonical(value),
                };
                ActionType::Action(pb::Action {
                    action_id: preamble_id(&info.preamble),
                    params: info.params.iter().zip(&call.args).map(param).collect(),
                })
            }
        };
        Ok(pb::TableAction { r#type: Some(action) })
    }
}

// Messages to lines.
impl Names {
    /// An entry as a line, with what has no form there in a comment.
    pub fn entry_line(&self, table: &config::Table, entry: &pb::TableEntry) -> String {
        let mut line = name_of(&table.preamble).to_string();
        if entry.priority != 0 {
            let _ = write!(line, " {}", entry.priority);
        }
        for given in &entry.r#match {
            let field = table.match_fields.iter().find(|field| field.id == given.field_id);
            let name = field.map_or_else(|| format!("field_{}", given.field_id), |field| quoted(&field.name));
            let _ = write!(line, " {name}:{}", match_text(given, field.map_or(0, |field| width(field.bitwidth))));
        }
        let _ = write!(line, " {}", self.action_text(entry.action.as_ref()));
        let notes = notes(entry);
        if !notes.is_empty() {
            let _ = write!(line, "  # {}", notes.join(", "));
        }
        line
    }

    /// `Ingress.send(port:0x1)`, `member(3)`, ...
    pub fn action_text(&self, action: Option<&pb::TableAction>) -> String {
        match action.and_then(|action| action.r#type.as_ref()) {
            None => "# no action".to_string(),
            Some(ActionType::Action(action)) => self.call_text(action),
            Some(ActionType::ActionProfileMemberId(member)) => format!("member({member})"),
            Some(ActionType::ActionProfileGroupId(group)) => format!("group({group})"),
            Some(ActionType::ActionProfileActionSet(set)) => {
                let member = |m: &pb::ActionProfileAction| {
                    let call = m.action.as_ref().map_or("no action".to_string(), |action| self.call_text(action));
                    format!("{call} weight {}", m.weight)
                };
                let members: Vec<String> = set.action_profile_actions.iter().map(member).collect();
                let before = set.group_action.as_ref().map(|call| format!("{}, then ", self.call_text(call)));
                format!("# {}one of: {}", before.unwrap_or_default(), members.join("; "))
            }
        }
    }

    fn call_text(&self, call: &pb::Action) -> String {
        let info = self.info.actions.iter().find(|a| preamble_id(&a.preamble) == call.action_id);
        let param = |given: &pb::action::Param| {
            let param = info.and_then(|info| info.params.iter().find(|param| param.id == given.param_id));
            let name = param.map_or_else(|| format!("param_{}", given.param_id), |param| param.name.clone());
            format!("{name}:{}", hex(&given.value, param.map_or(0, |param| width(param.bitwidth))))
        };
        let params: Vec<String> = call.params.iter().map(param).collect();
        format!("{}({})", self.action_name(call.action_id), params.join(", "))
    }

    fn action_name(&self, id: u32) -> String {
        let info = self.info.actions.iter().find(|a| preamble_id(&a.preamble) == id);
        info.map_or_else(|| format!("action_{id:#010x}"), |info| name_of(&info.preamble).to_string())
    }
}

fn update(kind: pb::update::Type, entry: pb::TableEntry) -> pb::Update {
    let entity = pb::Entity { entity: Some(pb::entity::Entity::TableEntry(entry)) };
    pb::Update { r#type: kind.into(), entity: Some(entity) }
}

fn notes(entry: &pb::TableEntry) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(data) = &entry.counter_data {
        notes.push(format!("{} packets, {} bytes", data.packet_count, data.byte_count));
    }
    if let Some(m) = &entry.meter_config {
        notes.push(format!("meter {}/s burst {}, peak {}/s burst {}", m.cir, m.cburst, m.pir, m.pburst));
    }
    let seconds = |ns: i64| ns as f64 / 1e9;
    if entry.idle_timeout_ns != 0 {
        notes.push(format!("times out after {} s", seconds(entry.idle_timeout_ns)));
    }
    if let Some(time) = &entry.time_since_last_hit {
        notes.push(format!("last hit {:.3} s ago", seconds(time.elapsed_ns)));
    }
    if entry.is_const {
        notes.push("const".to_string());
    }
    if !entry.metadata.is_empty() {
        notes.push(format!("metadata {}", hex(&entry.metadata, 0)));
    }
    notes
}

fn match_text(given: &pb::FieldMatch, width: u32) -> String {
    match &given.field_match_type {
        Some(FieldMatchType::Exact(m)) => hex(&m.value, width),
        Some(FieldMatchType::Optional(m)) => hex(&m.value, width),
        Some(FieldMatchType::Lpm(m)) => format!("{}/{}", hex(&m.value, width), m.prefix_len),
        Some(FieldMatchType::Ternary(m)) => format!("{}&&&{}", hex(&m.value, width), hex(&m.mask, width)),
        Some(FieldMatchType::Range(m)) => format!("{}..{}", hex(&m.low, width), hex(&m.high, width)),
        Some(FieldMatchType::Other(any)) => format!("({})", any.type_url),
        None => "*".to_string(),
    }
}

/// As many digits as the width has, or as the value needs.
fn hex(bytes: &[u8], width: u32) -> String {
    let digits = hex::encode(bytes);
    let digits = digits.trim_start_matches('0');
    let wanted = (width.div_ceil(4) as usize).max(1);
    format!("0x{digits:0>wanted$}")
}

/// A key's name as one word of a line.
fn quoted(name: &str) -> String {
    if name.is_empty() { "\"\"".to_string() } else { name.split_whitespace().collect() }
}

fn key(field: &config::MatchField) -> ir::Key {
    let kind = match field.r#match {
        Some(config::match_field::Match::MatchType(kind)) => match config::match_field::MatchType::try_from(kind) {
            Ok(config::match_field::MatchType::Lpm) => MatchKind::Lpm,
            Ok(config::match_field::MatchType::Ternary) => MatchKind::Ternary,
            Ok(config::match_field::MatchType::Range) => MatchKind::Range,
            Ok(config::match_field::MatchType::Optional) => MatchKind::Optional,
            _ => MatchKind::Exact,
        },
        // Refused where a line is about it.
        _ => MatchKind::Exact,
    };
    ir::Key { name: field.name.clone(), width: width(field.bitwidth), kind }
}

fn listed_action(info: &config::P4Info, id: u32) -> Option<ir::TableAction> {
    let at = info.actions.iter().position(|a| preamble_id(&a.preamble) == id)?;
    Some(ir::TableAction { action: ActionId::from_index(at), default_only: false, table_only: false })
}

fn width(bitwidth: i32) -> u32 {
    u32::try_from(bitwidth).ok().filter(|width| *width <= WIDTH_MAX).unwrap_or(0)
}

/// The fully qualified name of an object.
pub fn name_of(preamble: &Option<config::Preamble>) -> &str {
    preamble.as_ref().map_or("", |preamble| preamble.name.as_str())
}

fn preamble_id(preamble: &Option<config::Preamble>) -> u32 {
    preamble.as_ref().map_or(0, |preamble| preamble.id)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
