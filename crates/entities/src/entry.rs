//! Table entries and default entries (P4Runtime specification, "TableEntry").
//!
//! Read-only parts (counts, the time since the last hit) follow a `#` in [`Names::entry_line`], and are not part of the
//! line that creates the entry.

use crate::names::{Names, find, id_of, name_of};
use crate::text::{bytes_text, name_text, port_bytes, port_text};
use crate::{Change, Kind, Verb};
use messages::p4::config::v1 as config;
use messages::p4::v1 as pb;
use pb::entity::Entity;
use pb::table_action::Type as ActionType;
use serde_json::{Value, json};
use std::fmt::Write;
use stf::script::{ActionText, Command, EntryOptions, EntryVerb, MeterRates, ONE_OF, time_text};

/// The kind of table entries, except default entries.
pub(crate) struct Entries;
/// The kind of default entries.
pub(crate) struct Defaults;

impl Kind for Entries {
    fn noun(&self) -> &'static str {
        "table entry"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        let table_id = name.map(|name| names.table(name).map(|t| id_of(&t.preamble))).transpose()?.unwrap_or(0);
        // Tables without a direct meter are read, too; a server leaves the meter out for them.
        let meter_config = Some(pb::MeterConfig::default());
        Ok(vec![Entity::TableEntry(pb::TableEntry { table_id, meter_config, ..Default::default() })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        match entity {
            Entity::TableEntry(entry) if !entry.is_default_action => Some(Entity::TableEntry(pb::TableEntry {
                table_id: entry.table_id,
                r#match: entry.r#match.clone(),
                priority: entry.priority,
                ..Default::default()
            })),
            _ => None,
        }
    }

    fn comes_and_goes(&self, entity: &Entity) -> bool {
        !matches!(entity, Entity::TableEntry(entry) if entry.is_const)
    }

    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        match entity {
            Entity::TableEntry(entry) if !entry.is_default_action && !entry.is_const => {
                Some(format!("set {}", names.entry_words(entry)))
            }
            _ => None,
        }
    }

    fn order(&self, names: &Names, entity: &Entity) -> Vec<u8> {
        let Entity::TableEntry(entry) = entity else { return vec![] };
        let mut order = table_order(names, entry.table_id);
        // The highest priority first, in the order in which packets match.
        order.extend((i32::MAX - entry.priority.max(0)).to_be_bytes());
        for given in &entry.r#match {
            order.extend(given.field_id.to_be_bytes());
            let field = names.table_of_id(entry.table_id);
            let field = field.and_then(|table| table.match_fields.iter().find(|field| field.id == given.field_id));
            order.extend(names.match_text(given, field).into_bytes());
        }
        order
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        match entity {
            Entity::TableEntry(entry) => names.entry_json(entry),
            _ => Value::Null,
        }
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        match command {
            Command::Entry { verb, table, priority, key, action, options, .. } => {
                let verb = match verb {
                    EntryVerb::Add => Verb::Insert,
                    EntryVerb::Modify => Verb::Modify,
                    EntryVerb::Set => Verb::Set,
                };
                let entry = names.keyed_entry(table, *priority, key).and_then(|(info, entry)| {
                    let action = names.table_action(info, action, options)?;
                    names.with_options(info, pb::TableEntry { action: Some(action), ..entry }, options)
                });
                Some(entry.map(|entry| Change { verb, entity: Entity::TableEntry(entry) }))
            }
            Command::Delete { table, priority, key } => {
                let entry = names.keyed_entry(table, *priority, key);
                Some(entry.map(|(_, entry)| Change { verb: Verb::Delete, entity: Entity::TableEntry(entry) }))
            }
            Command::Clear { table } => Some(names.table(table).map(|info| {
                let entry = pb::TableEntry { table_id: id_of(&info.preamble), ..Default::default() };
                Change { verb: Verb::Clear, entity: Entity::TableEntry(entry) }
            })),
            _ => None,
        }
    }
}

impl Kind for Defaults {
    fn noun(&self) -> &'static str {
        "default entry"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        let wanted = name.map(|name| names.table(name)).transpose()?;
        let all = || names.tables().iter().filter(|table| can_change_default(table));
        let query = |table: &config::Table| {
            let meter_config = names.is_metered(table).then(pb::MeterConfig::default);
            let table_id = id_of(&table.preamble);
            Entity::TableEntry(pb::TableEntry { table_id, is_default_action: true, meter_config, ..Default::default() })
        };
        Ok(wanted.map_or_else(|| all().map(query).collect(), |table| vec![query(table)]))
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        match entity {
            Entity::TableEntry(entry) if entry.is_default_action => {
                let table_id = entry.table_id;
                Some(Entity::TableEntry(pb::TableEntry { table_id, is_default_action: true, ..Default::default() }))
            }
            _ => None,
        }
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        false
    }

    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::TableEntry(entry) = entity else { return None };
        entry.action.as_ref()?;
        if entry.is_const {
            return None;
        }
        let table = name_text(&names.table_name(entry.table_id));
        Some(format!("setdefault {table} {}{}", names.action_text(entry.action.as_ref()), options_text(entry)))
    }

    fn order(&self, names: &Names, entity: &Entity) -> Vec<u8> {
        match entity {
            Entity::TableEntry(entry) => table_order(names, entry.table_id),
            _ => vec![],
        }
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        match entity {
            Entity::TableEntry(entry) => names.entry_json(entry),
            _ => Value::Null,
        }
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::SetDefault { table, action, options } = command else { return None };
        let entry = names.table(table).and_then(|info| {
            let action = Some(names.table_action(info, action, options)?);
            let table_id = id_of(&info.preamble);
            let entry = pb::TableEntry { table_id, is_default_action: true, action, ..Default::default() };
            names.with_options(info, entry, options)
        });
        Some(entry.map(|entry| Change { verb: Verb::Modify, entity: Entity::TableEntry(entry) }))
    }
}

/// Whether the default entry can be written.
fn can_change_default(table: &config::Table) -> bool {
    table.const_default_action_id == 0 && table.implementation_id == 0
}

/// Sort key of a table: entries and default entry of a table are adjacent in a file, tables in the order of the P4Info.
fn table_order(names: &Names, id: u32) -> Vec<u8> {
    let at = names.tables().iter().position(|table| id_of(&table.preamble) == id).unwrap_or(usize::MAX);
    (at as u64).to_be_bytes().to_vec()
}

// Parsing: lines to messages.
impl Names {
    /// The entry with a key, without an action.
    fn keyed_entry(
        &self,
        table: &str,
        priority: Option<i32>,
        given: &[(String, String)],
    ) -> Result<(&config::Table, pb::TableEntry), String> {
        let info = self.table(table)?;
        let name = name_of(&info.preamble);
        let mut values: Vec<Option<&str>> = vec![None; info.match_fields.len()];
        for (field, value) in given {
            let at = self.key_position(info, field)?;
            if values[at].replace(value).is_some() {
                return Err(format!("key `{}` of table `{name}` is given twice", info.match_fields[at].name));
            }
        }
        let exact = |field: &config::MatchField| crate::names::key(field).kind == base::entry::MatchKind::Exact;
        let missing = info.match_fields.iter().zip(&values).find(|(field, value)| exact(field) && value.is_none());
        if let (Some((field, _)), false) = (missing, self.is_lenient()) {
            return Err(format!("key `{}` of table `{name}` is exact and must be given", field.name));
        }
        let matches = info.match_fields.iter().zip(values).map(|(field, value)| self.field_match(field, value));
        let matches: Vec<Option<pb::FieldMatch>> = matches.collect::<Result<_, _>>()?;
        let needs = info.match_fields.iter().any(|field| crate::names::key(field).kind.needs_priority());
        if let (false, Some(given), false) = (needs, priority, self.is_lenient()) {
            return Err(format!(
                "table `{name}` has no ternary, range or optional key, so its entries have no priority; {given} is given"
            ));
        }
        // Scripts of the reference compiler give priorities for tables that take none, and omit them for tables that
        // need one.
        let priority = if needs { priority.unwrap_or(1) } else { 0 };
        let table_id = id_of(&info.preamble);
        let r#match = matches.into_iter().flatten().collect();
        Ok((info, pb::TableEntry { table_id, r#match, priority, ..Default::default() }))
    }

    /// The action of an entry.
    fn table_action(
        &self,
        table: &config::Table,
        text: &ActionText,
        options: &EntryOptions,
    ) -> Result<pb::TableAction, String> {
        let ids: Vec<u32> = table.action_refs.iter().map(|r| r.id).collect();
        let has_profile = table.implementation_id != 0;
        let id = || match text.args.as_slice() {
            [(_, value)] => stf::setup::value_of(value, 32).map(|id| id.to_u64().unwrap_or_default() as u32),
            _ => Err(format!("`{}` takes one number", text.name)),
        };
        let action = match text.name.as_str() {
            ONE_OF if has_profile => ActionType::ActionProfileActionSet(self.action_set(&ids, text, options)?),
            ONE_OF => {
                return Err(format!(
                    "table `{}` has no action selector, so an entry runs one action",
                    name_of(&table.preamble)
                ));
            }
            "member" if has_profile => ActionType::ActionProfileMemberId(id()?),
            "group" if has_profile => ActionType::ActionProfileGroupId(id()?),
            _ => ActionType::Action(self.call(&ids, text)?),
        };
        if !matches!(action, ActionType::ActionProfileActionSet(_))
            && (options.random.is_some() || options.size_is_weights.is_some())
        {
            return Err("`mode` and `size` are for `one_of(...)`".to_string());
        }
        Ok(pb::TableAction { r#type: Some(action) })
    }

    fn action_set(
        &self,
        ids: &[u32],
        text: &ActionText,
        options: &EntryOptions,
    ) -> Result<pb::ActionProfileActionSet, String> {
        use pb::action_profile_action_set::{ActionSelectionMode as Mode, SizeSemantics as Size};
        let mut set = pb::ActionProfileActionSet::default();
        for part in &text.parts {
            let action = self.call(ids, &part.action)?;
            match part.weight {
                None if set.group_action.is_some() => {
                    return Err("there is one group action (`first`) at most".to_string());
                }
                None => set.group_action = Some(action),
                Some(weight) => set.action_profile_actions.push(pb::ActionProfileAction {
                    action: Some(action),
                    weight: i32::try_from(weight).map_err(|_| format!("the weight {weight} is too large"))?,
                    watch_kind: part
                        .watch
                        .map(|port| pb::action_profile_action::WatchKind::WatchPort(port_bytes(port))),
                }),
            }
        }
        let mode = options.random.map(|random| if random { Mode::Random } else { Mode::Hash });
        let size = options.size_is_weights.map(|weights| if weights { Size::SumOfWeights } else { Size::SumOfMembers });
        set.action_selection_mode = mode.unwrap_or_default().into();
        set.size_semantics = size.unwrap_or_default().into();
        Ok(set)
    }

    fn with_options(
        &self,
        table: &config::Table,
        entry: pb::TableEntry,
        options: &EntryOptions,
    ) -> Result<pb::TableEntry, String> {
        let name = name_of(&table.preamble);
        // The switch refuses a timeout that the table does not have: P4Info does not tell of `pna_idle_timeout`.
        if options.meter.is_some() && !self.is_metered(table) {
            return Err(format!("table `{name}` has no meter"));
        }
        if options.counter.is_some() && !self.is_counted(table) {
            return Err(format!("table `{name}` has no counter"));
        }
        let counter_data = match options.counter {
            Some((packets, bytes)) => Some(counter_data(packets, bytes)?),
            None => None,
        };
        Ok(pb::TableEntry {
            metadata: options.metadata.clone(),
            idle_timeout_ns: i64::try_from(options.idle_timeout_ns).unwrap_or(i64::MAX),
            meter_config: options.meter.map(meter_config).transpose()?,
            counter_data,
            ..entry
        })
    }

    fn has_direct(&self, table: &config::Table, mut preambles: impl Iterator<Item = u32>) -> bool {
        preambles.any(|id| table.direct_resource_ids.contains(&id))
    }

    /// Whether entries of a table may have idle timeouts.
    pub fn is_timed(&self, table: &config::Table) -> bool {
        table.idle_timeout_behavior == config::table::IdleTimeoutBehavior::NotifyControl as i32
    }

    /// Whether a table has a direct counter.
    pub fn is_counted(&self, table: &config::Table) -> bool {
        self.has_direct(table, self.info.direct_counters.iter().map(|c| id_of(&c.preamble)))
    }

    /// Whether a table has a direct meter.
    pub fn is_metered(&self, table: &config::Table) -> bool {
        self.has_direct(table, self.info.direct_meters.iter().map(|m| id_of(&m.preamble)))
    }

    /// A query for all entries of a table, with the counters, meters and times that the table has.
    pub fn query(&self, table: &config::Table) -> pb::TableEntry {
        let timed = self.is_timed(table);
        pb::TableEntry {
            table_id: id_of(&table.preamble),
            counter_data: self.is_counted(table).then(pb::CounterData::default),
            meter_config: self.is_metered(table).then(pb::MeterConfig::default),
            time_since_last_hit: timed.then(pb::table_entry::IdleTimeout::default),
            ..Default::default()
        }
    }

    /// The change that resets a table's default action to the program's.
    ///
    /// # Errors
    ///
    /// There is no such table, or the name is ambiguous.
    pub fn reset_default(&self, table: &str) -> Result<Change, String> {
        let table_id = id_of(&self.table(table)?.preamble);
        let entry = pb::TableEntry { table_id, is_default_action: true, ..Default::default() };
        Ok(Change { verb: Verb::Modify, entity: Entity::TableEntry(entry) })
    }

    /// The names of a table's actions, with their scope as `list` shows it.
    pub fn actions(&self, table: &config::Table) -> Vec<String> {
        use config::action_ref::Scope;
        let text = |r: &config::ActionRef| match Scope::try_from(r.scope) {
            Ok(Scope::TableOnly) => format!("{} (not default)", self.action_name(r.id)),
            Ok(Scope::DefaultOnly) => format!("{} (default only)", self.action_name(r.id)),
            Ok(Scope::GroupAction) => format!("{} (group action)", self.action_name(r.id)),
            _ => self.action_name(r.id),
        };
        table.action_refs.iter().map(text).collect()
    }

    /// The actions of a table's entries, with their parameters: `send(port:, mac:)`.
    pub fn calls(&self, table: &config::Table) -> Vec<String> {
        let call = |r: &config::ActionRef| {
            let info = self.action_of_id(r.id)?;
            let params: Vec<String> = info.params.iter().map(|param| format!("{}:", name_text(&param.name))).collect();
            Some(format!("{}({})", name_text(name_of(&info.preamble)), params.join(", ")))
        };
        let default_only = config::action_ref::Scope::DefaultOnly as i32;
        table.action_refs.iter().filter(|r| r.scope != default_only).filter_map(call).collect()
    }

    /// As [`Names::calls`], for all tables that share an action profile.
    pub fn calls_of_profile(&self, name: &str) -> Vec<String> {
        let Ok(profile) = find("action profile", name, &self.info.action_profiles, |profile| &profile.preamble) else {
            return vec![];
        };
        let id = id_of(&profile.preamble);
        let tables = self.tables().iter().filter(|table| table.implementation_id == id);
        let mut calls: Vec<String> = tables.flat_map(|table| self.calls(table)).collect();
        calls.sort();
        calls.dedup();
        calls
    }

    pub(crate) fn table_name(&self, id: u32) -> String {
        let table = self.table_of_id(id);
        table.map_or_else(|| format!("table_{id:#010x}"), |table| name_of(&table.preamble).to_string())
    }
}

// Printing: messages to lines.
impl Names {
    /// An entry as `TABLE [PRIORITY] KEY:VALUE... ACTION [OPTION...]`, with its read-only parts after a `#`.
    pub fn entry_line(&self, entry: &pb::TableEntry) -> String {
        let mut line = self.entry_words(entry);
        let notes = notes(entry);
        if !notes.is_empty() {
            let _ = write!(line, "  # {}", notes.join(", "));
        }
        line
    }

    /// The key of an entry: `TABLE [PRIORITY] KEY:VALUE...`
    pub fn key_words(&self, entry: &pb::TableEntry) -> String {
        let table = self.table_of_id(entry.table_id);
        let mut line = name_text(&self.table_name(entry.table_id));
        if entry.priority != 0 {
            let _ = write!(line, " {}", entry.priority);
        }
        for given in &entry.r#match {
            let field = table.and_then(|table| table.match_fields.iter().find(|field| field.id == given.field_id));
            let name = field.map_or_else(|| format!("field_{}", given.field_id), |field| name_text(&field.name));
            let _ = write!(line, " {name}:{}", self.match_text(given, field));
        }
        line
    }

    fn entry_words(&self, entry: &pb::TableEntry) -> String {
        format!("{} {}{}", self.key_words(entry), self.action_text(entry.action.as_ref()), options_text(entry))
    }

    /// An entry's action: `Ingress.send(port:0x1)`, `member(3)`, ...
    pub fn action_text(&self, action: Option<&pb::TableAction>) -> String {
        match action.and_then(|action| action.r#type.as_ref()) {
            None => "# no action".to_string(),
            Some(ActionType::Action(action)) => self.call_text(action),
            Some(ActionType::ActionProfileMemberId(member)) => format!("member({member})"),
            Some(ActionType::ActionProfileGroupId(group)) => format!("group({group})"),
            Some(ActionType::ActionProfileActionSet(set)) => {
                use pb::action_profile_action_set::{ActionSelectionMode as Mode, SizeSemantics as Size};
                let member = |m: &pb::ActionProfileAction| {
                    let mut text = m.action.as_ref().map_or("# no action".to_string(), |action| self.call_text(action));
                    if m.weight != 1 {
                        let _ = write!(text, " *{}", m.weight);
                    }
                    if let Some(port) = watched(m.watch_kind.as_ref()) {
                        let _ = write!(text, " @{port}");
                    }
                    text
                };
                let first = set.group_action.as_ref().map(|call| format!("first {}", self.call_text(call)));
                let parts: Vec<String> =
                    first.into_iter().chain(set.action_profile_actions.iter().map(member)).collect();
                let mode = match Mode::try_from(set.action_selection_mode) {
                    Ok(Mode::Random) => " mode=random",
                    Ok(Mode::Hash) => " mode=hash",
                    _ => "",
                };
                let size = match Size::try_from(set.size_semantics) {
                    Ok(Size::SumOfWeights) => " size=weights",
                    Ok(Size::SumOfMembers) => " size=members",
                    _ => "",
                };
                format!("{ONE_OF}({}){mode}{size}", parts.join("; "))
            }
        }
    }

    fn action_json(&self, action: Option<&pb::TableAction>) -> Value {
        match action.and_then(|action| action.r#type.as_ref()) {
            None => Value::Null,
            Some(ActionType::Action(action)) => self.call_json(action),
            Some(ActionType::ActionProfileMemberId(member)) => json!({ "member": member }),
            Some(ActionType::ActionProfileGroupId(group)) => json!({ "group": group }),
            Some(ActionType::ActionProfileActionSet(set)) => {
                use pb::action_profile_action_set::{ActionSelectionMode as Mode, SizeSemantics as Size};
                let part = |m: &pb::ActionProfileAction| {
                    let action = m.action.as_ref().map(|action| self.call_json(action));
                    json!({ "action": action, "weight": m.weight, "watch_port": watched(m.watch_kind.as_ref()) })
                };
                let mode = Mode::try_from(set.action_selection_mode).unwrap_or_default();
                let size = Size::try_from(set.size_semantics).unwrap_or_default();
                json!({
                    "one_of": set.action_profile_actions.iter().map(part).collect::<Vec<_>>(),
                    "group_action": set.group_action.as_ref().map(|call| self.call_json(call)),
                    "mode": match mode { Mode::Random => "random", Mode::Hash => "hash", _ => "selector" },
                    "size": match size { Size::SumOfWeights => "weights", Size::SumOfMembers => "members", _ => "selector" },
                })
            }
        }
    }

    /// An entry as a JSON object, without what the table does not have or the read did not request.
    pub fn entry_json(&self, entry: &pb::TableEntry) -> Value {
        let table = self.table_of_id(entry.table_id);
        let field = |given: &pb::FieldMatch| {
            let field = table.and_then(|table| table.match_fields.iter().find(|field| field.id == given.field_id));
            let name = field.map_or_else(|| format!("field_{}", given.field_id), |field| field.name.clone());
            (name, self.match_json(given, field))
        };
        let matches: serde_json::Map<String, Value> = entry.r#match.iter().map(field).collect();
        let mut object = json!({
            "table": self.table_name(entry.table_id),
            "match": matches,
            "action": self.action_json(entry.action.as_ref()),
        });
        let mut put = |name: &str, value: Value| object[name] = value;
        if entry.is_default_action {
            put("default", true.into());
        }
        if entry.is_const {
            put("const", true.into());
        }
        if entry.priority != 0 {
            put("priority", entry.priority.into());
        }
        if !entry.metadata.is_empty() {
            put("metadata", bytes_text(&entry.metadata).into());
        }
        if entry.idle_timeout_ns != 0 {
            put("idle_timeout_ns", entry.idle_timeout_ns.into());
        }
        if let Some(time) = &entry.time_since_last_hit {
            put("time_since_last_hit_ns", time.elapsed_ns.into());
        }
        if let Some(data) = &entry.counter_data {
            put("counter", counter_json(data));
        }
        if let Some(config) = &entry.meter_config {
            put("meter", meter_json(config));
        }
        object
    }
}

/// A watch port as a word.
#[allow(deprecated, reason = "what older controllers wrote is printed, too")]
fn watched(watch: Option<&pb::action_profile_action::WatchKind>) -> Option<String> {
    match watch? {
        pb::action_profile_action::WatchKind::Watch(port) => Some(port.to_string()),
        pb::action_profile_action::WatchKind::WatchPort(port) if port.is_empty() => None,
        pb::action_profile_action::WatchKind::WatchPort(port) => Some(port_text(port)),
    }
}

/// The options after the action of a line.
fn options_text(entry: &pb::TableEntry) -> String {
    let mut text = String::new();
    if !entry.metadata.is_empty() {
        let _ = write!(text, " metadata={}", bytes_text(&entry.metadata));
    }
    if let Ok(time @ 1..) = u64::try_from(entry.idle_timeout_ns) {
        let _ = write!(text, " timeout={}", time_text(time));
    }
    if let Some(m) = &entry.meter_config {
        let _ = write!(text, " meter={}", meter_words(m, ","));
    }
    text
}

/// Notes on the read-only parts.
fn notes(entry: &pb::TableEntry) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(data) = &entry.counter_data {
        notes.push(format!("{} packets, {} bytes", data.packet_count, data.byte_count));
    }
    if let Some(time) = &entry.time_since_last_hit {
        notes.push(format!("last hit {:.3} s ago", time.elapsed_ns as f64 / 1e9));
    }
    if entry.is_const {
        notes.push("const".to_string());
    }
    notes
}

/// A meter's rates and burst sizes as words; the excess burst size only if it is not zero.
pub(crate) fn meter_words(m: &pb::MeterConfig, between: &str) -> String {
    let mut words = vec![m.cir, m.cburst, m.pir, m.pburst];
    words.extend((m.eburst != 0).then_some(m.eburst));
    words.iter().map(i64::to_string).collect::<Vec<_>>().join(between)
}

pub(crate) fn meter_config(rates: MeterRates) -> Result<pb::MeterConfig, String> {
    let signed = |n: u64| i64::try_from(n).map_err(|_| format!("{n} is too large for a rate or burst"));
    Ok(pb::MeterConfig {
        cir: signed(rates.cir)?,
        cburst: signed(rates.cburst)?,
        pir: signed(rates.pir)?,
        pburst: signed(rates.pburst)?,
        eburst: signed(rates.eburst)?,
    })
}

pub(crate) fn counter_data(packets: u64, bytes: u64) -> Result<pb::CounterData, String> {
    let signed = |n: u64| i64::try_from(n).map_err(|_| format!("{n} is too large for a count"));
    Ok(pb::CounterData { packet_count: signed(packets)?, byte_count: signed(bytes)? })
}

pub(crate) fn counter_json(data: &pb::CounterData) -> Value {
    json!({ "packets": data.packet_count, "bytes": data.byte_count })
}

pub(crate) fn meter_json(m: &pb::MeterConfig) -> Value {
    json!({ "cir": m.cir, "cburst": m.cburst, "pir": m.pir, "pburst": m.pburst, "eburst": m.eburst })
}
