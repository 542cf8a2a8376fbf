//! Rules of table entries, keys and actions (P4Runtime specification, "TableEntry").

use super::model::{
    Entry, EntryId, Judgement, Model, canonical_watch, group_size, judge_colours, judge_count, judge_meter,
    judge_presence, one_shot_load, shortest, unknown_object,
};
use base::Bits;
use base::entry::{KeyMatch, MatchKind};
use constraints::Values;
use control::Code;
use control::entity::*;
use p4info::{
    ActionProfile, ActionRef, ActionScope, DataType, MatchField, MatchType, ObjectKind, P4Info, SdnType, SelectorSize,
    Table,
};

/// Whether a value fits in `width` bits.
pub(super) fn fits(width: u32, bytes: &[u8]) -> bool {
    let digits = shortest(bytes);
    let Some(first) = digits.first() else { return false };
    let bits = digits.len() as u32 * 8 - first.leading_zeros();
    bits <= width
}

/// The form of a value at the controller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Number(u32),
    /// Translated from more bits at the controller (the first) than in the data plane (the second): the data plane's
    /// value is not modelled.
    Wide(u32, u32),
    Text,
}

/// The form of a key field or parameter; for a translation, the narrower of both widths.
pub(super) fn value_of(info: &P4Info, bitwidth: u32, type_name: Option<&String>) -> Value {
    let Some(new_type) = type_name.and_then(|name| info.type_info.new_types.get(name)) else {
        return Value::Number(bitwidth);
    };
    let underlying = match new_type.underlying {
        DataType::Bit(width) | DataType::Int(width) => width,
        DataType::Bool => 1,
        _ => bitwidth,
    };
    match new_type.translation.as_ref().map(|t| t.sdn_type) {
        Some(SdnType::String) => Value::Text,
        Some(SdnType::Bits(width)) if width > underlying && matches!(new_type.underlying, DataType::Bit(_)) => {
            Value::Wide(width, underlying)
        }
        Some(SdnType::Bits(width)) => Value::Number(width.min(underlying)),
        None => Value::Number(underlying),
    }
}

fn judge_value(value: Value, bytes: &[u8], j: &mut Judgement) -> Option<Bits> {
    match value {
        Value::Number(width) if fits(width, bytes) => return Some(Bits::from_bytes_be(width, &shortest(bytes))),
        Value::Number(_) => j.fault(Code::OutOfRange),
        Value::Wide(width, _) => {
            j.fault_if(!fits(width, bytes), Code::OutOfRange);
            j.possible.push(Code::ResourceExhausted);
        }
        Value::Text => {
            j.fault_if(std::str::from_utf8(bytes).is_err(), Code::InvalidArgument);
            // A narrow data plane type has room for few names.
            j.possible.push(Code::ResourceExhausted);
        }
    }
    None
}

/// A value in the form in which it is read.
fn canonical_value(value: Value, bytes: &[u8]) -> Vec<u8> {
    if value == Value::Text { bytes.to_vec() } else { shortest(bytes) }
}

/// Matches in canonical form and order as bytes, equal for equal matches.
pub(super) fn key_bytes(matches: &[FieldMatch]) -> Vec<u8> {
    let mut key = Vec::new();
    let mut part = |bytes: &[u8]| {
        key.extend((bytes.len() as u32).to_le_bytes());
        key.extend(bytes);
    };
    for m in matches {
        part(&m.field_id.to_le_bytes());
        match &m.value {
            MatchValue::Exact(value) | MatchValue::Optional(value) => part(value),
            MatchValue::Ternary { value, mask } => [value, mask].into_iter().for_each(|bytes| part(bytes)),
            MatchValue::Lpm { value, prefix_len } => {
                part(value);
                part(&prefix_len.to_le_bytes());
            }
            MatchValue::Range { low, high } => [low, high].into_iter().for_each(|bytes| part(bytes)),
            MatchValue::Unset | MatchValue::Other(_) => {}
        }
    }
    key
}

/// Matches in the form in which they are read: in the key's order, with the shortest values.
pub(super) fn canonical_matches(fields: &[MatchField], matches: &[FieldMatch]) -> Vec<FieldMatch> {
    let one = |field: &MatchField| {
        let given = matches.iter().find(|m| m.field_id == field.id)?;
        let text = field.bitwidth == 0 && field.type_name.is_some();
        let bytes = |b: &[u8]| if text { b.to_vec() } else { shortest(b) };
        let value = match &given.value {
            MatchValue::Exact(v) => MatchValue::Exact(bytes(v)),
            MatchValue::Optional(v) => MatchValue::Optional(bytes(v)),
            MatchValue::Ternary { value, mask } => MatchValue::Ternary { value: bytes(value), mask: bytes(mask) },
            MatchValue::Lpm { value, prefix_len } => MatchValue::Lpm { value: bytes(value), prefix_len: *prefix_len },
            MatchValue::Range { low, high } => MatchValue::Range { low: bytes(low), high: bytes(high) },
            other => other.clone(),
        };
        Some(FieldMatch { field_id: field.id, value })
    };
    fields.iter().filter_map(one).collect()
}

impl Model {
    pub(super) fn table(&self, id: u32) -> Option<&Table> {
        self.info.tables.iter().find(|t| t.preamble.id == id)
    }

    pub(super) fn entry_mut(&mut self, entry: Option<&TableEntry>) -> Option<&mut Entry> {
        let entry = entry?;
        let id = self.entry_id(self.table(entry.table_id)?, entry);
        self.tables.get_mut(&entry.table_id)?.get_mut(&id)
    }

    fn entry_id(&self, table: &Table, entry: &TableEntry) -> EntryId {
        (key_bytes(&canonical_matches(&table.match_fields, &entry.matches)), entry.priority)
    }

    /// Judges matches; returns their canonical bytes if they have no faults.
    pub(super) fn judge_matches(
        &self,
        fields: &[MatchField],
        matches: &[FieldMatch],
        j: &mut Judgement,
    ) -> Option<Vec<u8>> {
        self.key(fields, matches, j).map(|_| key_bytes(&canonical_matches(fields, matches)))
    }

    /// The key in the data plane, or `Some(None)` if it is not modelled (strings); `None` if it has faults.
    fn key(&self, fields: &[MatchField], matches: &[FieldMatch], j: &mut Judgement) -> Option<Option<Vec<KeyMatch>>> {
        let before = j.faults.len();
        for (at, given) in matches.iter().enumerate() {
            j.fault_if(!fields.iter().any(|f| f.id == given.field_id), Code::InvalidArgument);
            let twice = matches[..at].iter().any(|earlier| earlier.field_id == given.field_id);
            j.fault_if(twice, Code::InvalidArgument);
        }
        let key: Option<Vec<KeyMatch>> = fields.iter().map(|field| self.field_match(field, matches, j)).collect();
        (j.faults.len() == before).then_some(key)
    }

    fn field_match(&self, field: &MatchField, matches: &[FieldMatch], j: &mut Judgement) -> Option<KeyMatch> {
        let MatchType::Known(kind) = field.match_type else {
            j.fault(Code::Unimplemented);
            return None;
        };
        let value = value_of(&self.info, field.bitwidth, field.type_name.as_ref());
        let width = if let Value::Number(width) | Value::Wide(_, width) = value { width } else { 0 };
        let zero = || Bits::zero(width);
        let Some(given) = matches.iter().find(|m| m.field_id == field.id) else {
            return match kind {
                MatchKind::Exact => {
                    j.fault(Code::InvalidArgument);
                    None
                }
                MatchKind::Lpm => Some(KeyMatch::Lpm { value: zero(), prefix_len: 0 }),
                MatchKind::Ternary => Some(KeyMatch::Ternary { value: zero(), mask: zero() }),
                MatchKind::Range => Some(KeyMatch::Range { low: zero(), high: Bits::ones(width) }),
                MatchKind::Optional => Some(KeyMatch::Optional(None)),
            };
        };
        if value == Value::Text && !matches!(kind, MatchKind::Exact | MatchKind::Optional) {
            j.fault(Code::Unimplemented);
            j.fault(Code::InvalidArgument);
            return None;
        }
        // For a wide number, the significant bits are all bits or those of the data plane.
        let whole = value;
        let value = match (value, kind, &given.value) {
            (Value::Wide(wide, _), MatchKind::Ternary, MatchValue::Ternary { mask, .. })
                if fits(wide, mask) && Bits::from_bytes_be(wide, &shortest(mask)) == Bits::ones(wide) =>
            {
                whole
            }
            (Value::Wide(_, narrow), MatchKind::Ternary | MatchKind::Lpm | MatchKind::Range, _) => {
                Value::Number(narrow)
            }
            _ => value,
        };
        match (kind, &given.value) {
            (MatchKind::Exact, MatchValue::Exact(v)) => judge_value(value, v, j).map(KeyMatch::Exact),
            (MatchKind::Optional, MatchValue::Optional(v)) => {
                judge_value(value, v, j).map(|v| KeyMatch::Optional(Some(v)))
            }
            (MatchKind::Lpm, MatchValue::Lpm { value: v, prefix_len }) => {
                let bits = judge_value(value, v, j);
                let length = u32::try_from(*prefix_len).ok().filter(|len| (1..=width).contains(len));
                j.fault_if(length.is_none(), Code::InvalidArgument);
                let (bits, length) = (bits?, length?);
                let host = width - length;
                let outside = (0..host).any(|i| bits.bit(i));
                j.fault_if(outside, Code::InvalidArgument);
                Some(KeyMatch::Lpm { value: bits, prefix_len: length })
            }
            (MatchKind::Ternary, MatchValue::Ternary { value: v, mask }) => {
                let (bits, mask) = (judge_value(value, v, j), judge_value(value, mask, j));
                let (bits, mask) = (bits?, mask?);
                let outside = (0..width).any(|i| bits.bit(i) && !mask.bit(i));
                j.fault_if(outside || mask.is_zero(), Code::InvalidArgument);
                let all = whole != value && mask == Bits::ones(width);
                j.fault_if(all, Code::InvalidArgument);
                Some(KeyMatch::Ternary { value: bits, mask })
            }
            (MatchKind::Range, MatchValue::Range { low, high }) => {
                let (low, high) = (judge_value(value, low, j), judge_value(value, high, j));
                let (low, high) = (low?, high?);
                let whole = low.is_zero() && high == Bits::ones(width);
                j.fault_if(high.ult(&low) || whole, Code::InvalidArgument);
                Some(KeyMatch::Range { low, high })
            }
            _ => {
                j.fault(Code::InvalidArgument);
                None
            }
        }
    }

    /// Judges an entry's key and priority; returns its identity if it has no faults.
    pub(super) fn judge_key(&self, table: &Table, entry: &TableEntry, j: &mut Judgement) -> Option<EntryId> {
        let before = j.faults.len();
        self.key(&table.match_fields, &entry.matches, j);
        let needs = |f: &MatchField| matches!(f.match_type, MatchType::Known(kind) if kind.needs_priority());
        let right = match table.match_fields.iter().any(needs) {
            true => entry.priority > 0,
            false => entry.priority == 0,
        };
        j.fault_if(!right, Code::InvalidArgument);
        (j.faults.len() == before).then(|| self.entry_id(table, entry))
    }

    pub(super) fn judge_table_entry(&self, kind: UpdateKind, entry: &TableEntry, j: &mut Judgement) {
        let Some(table) = self.table(entry.table_id) else { return unknown_object(false, j) };
        j.fault_if(entry.is_const, Code::InvalidArgument);
        if entry.is_default_action {
            return self.judge_default(kind, table, entry, j);
        }
        j.fault_if(table.match_fields.is_empty(), Code::InvalidArgument);
        let id = self.judge_key(table, entry, j);
        let entries = &self.tables[&entry.table_id];
        let old = id.as_ref().and_then(|id| entries.get(id));
        let immutable = table.is_const_table || old.is_some_and(|old| old.entry.is_const);
        let changes = kind != UpdateKind::Modify || entry.action.is_some();
        j.fault_if(immutable && changes, Code::PermissionDenied);
        if id.is_some() {
            judge_presence(kind, old.is_some(), j);
        }
        if kind == UpdateKind::Delete {
            return;
        }
        j.fault_if(kind == UpdateKind::Insert && entry.action.is_none(), Code::InvalidArgument);
        if let Some(action) = &entry.action {
            let leaving = old.and_then(|old| old.entry.action.as_ref()).map_or(0, one_shot_load);
            self.judge_entry_action(table, action, leaving, j);
        }
        let idle = entry.idle_timeout_ns != 0 && !table.idle_timeout && !self.timed.contains(&table.preamble.id);
        j.fault_if(idle || entry.idle_timeout_ns < 0, Code::InvalidArgument);
        j.fault_if(entry.time_since_last_hit.is_some(), Code::InvalidArgument);
        self.judge_resources(table, entry, j);
        if let (UpdateKind::Insert, Some(restriction)) = (kind, &table.restriction) {
            let key = self.key(&table.match_fields, &entry.matches, &mut Judgement::default());
            match key.flatten() {
                Some(key) => {
                    let kept = restriction.check(Values::Entry(&key, entry.priority)).is_ok();
                    j.fault_if(!kept, Code::InvalidArgument);
                }
                None => j.possible.push(Code::InvalidArgument),
            }
        }
        if kind == UpdateKind::Insert && entries.len() as i64 >= table.size {
            j.possible.push(Code::ResourceExhausted);
        }
    }

    fn judge_resources(&self, table: &Table, entry: &TableEntry, j: &mut Judgement) {
        let has = |kind| table.direct_resource_ids.iter().any(|id| ObjectKind::of(*id) == Some(kind));
        j.fault_if(entry.counter_data.is_some() && !has(ObjectKind::DirectCounter), Code::InvalidArgument);
        let of_meter = entry.meter_config.is_some() || entry.meter_counter_data.is_some();
        j.fault_if(of_meter && !has(ObjectKind::DirectMeter), Code::InvalidArgument);
        judge_count(entry.counter_data, j);
        judge_meter(entry.meter_config, self.direct_meter_type(entry.table_id), j);
        judge_colours(entry.meter_counter_data, j);
    }

    fn judge_default(&self, kind: UpdateKind, table: &Table, entry: &TableEntry, j: &mut Judgement) {
        let wrong = kind != UpdateKind::Modify || !entry.matches.is_empty() || entry.priority != 0;
        j.fault_if(wrong, Code::InvalidArgument);
        j.fault_if(entry.idle_timeout_ns != 0 || entry.time_since_last_hit.is_some(), Code::InvalidArgument);
        j.fault_if(table.const_default_action_id.is_some(), Code::PermissionDenied);
        self.judge_resources(table, entry, j);
        match &entry.action {
            None => {}
            Some(_) if table.implementation_id.is_some() => j.fault(Code::PermissionDenied),
            Some(TableAction::Action(action)) => self.judge_action(&table.action_refs, action, true, j),
            Some(_) => j.fault(Code::InvalidArgument),
        }
    }

    /// Judges an entry's action; `leaving` is the number of members that an earlier action set frees.
    fn judge_entry_action(&self, table: &Table, action: &TableAction, leaving: i64, j: &mut Judgement) {
        let profile = table.implementation_id.and_then(|id| self.profile(id));
        match (profile, action) {
            (None, TableAction::Action(action)) => self.judge_action(&table.action_refs, action, false, j),
            (None, _) | (Some(_), TableAction::Action(_)) => j.fault(Code::InvalidArgument),
            (Some(profile), TableAction::Member(id)) => {
                j.fault_if(*id == 0, Code::InvalidArgument);
                Self::judge_reference(self.members.contains_key(&(profile.preamble.id, *id)), j);
            }
            (Some(profile), TableAction::Group(id)) => {
                j.fault_if(*id == 0 || !profile.with_selector, Code::InvalidArgument);
                Self::judge_reference(self.groups.contains_key(&(profile.preamble.id, *id)), j);
            }
            (Some(profile), TableAction::OneShot(set)) => self.judge_one_shot(profile, set, leaving, j),
        }
    }

    fn judge_reference(exists: bool, j: &mut Judgement) {
        j.fault_if(!exists, Code::NotFound);
        // While action sets are in use the profile has no members, and the answer may be about that instead.
        if !exists {
            j.possible.push(Code::InvalidArgument);
        }
    }

    fn judge_one_shot(&self, profile: &ActionProfile, set: &ActionSet, leaving: i64, j: &mut Judgement) {
        j.fault_if(!profile.with_selector || self.has_manual(profile.preamble.id), Code::InvalidArgument);
        if let Some(action) = &set.group_action {
            let table = profile.table_ids.first().and_then(|id| self.table(*id));
            let listed = table.and_then(|t| t.action_refs.iter().find(|a| a.id == action.action_id));
            match listed.filter(|listed| listed.scope == ActionScope::GroupAction) {
                None => j.fault(Code::InvalidArgument),
                Some(_) => self.judge_arguments(action, j),
            }
        }
        j.fault_if(!matches!(set.selection_mode, 0..=2), Code::InvalidArgument);
        let by = match (set.size_semantics, profile.selector_size) {
            (0, own) => own,
            (1, _) => Some(SelectorSize::SumOfWeights),
            (2, Some(own @ SelectorSize::SumOfMembers { .. })) => Some(own),
            (2, _) => Some(SelectorSize::SumOfMembers { max_member_weight: 0 }),
            _ => return j.fault(Code::InvalidArgument),
        };
        for part in &set.actions {
            self.judge_weight(profile, by, part.weight, &part.watch, j);
            match &part.action {
                None => j.fault(Code::InvalidArgument),
                Some(action) => self.judge_profile_action(profile, action, j),
            }
        }
        let size = group_size(by, set.actions.iter().map(|a| a.weight));
        let limit = i64::from(profile.max_group_size);
        j.fault_if(limit > 0 && size > limit, Code::InvalidArgument);
        if self.profile_load(profile) - leaving + set.actions.len().max(size as usize) as i64 > profile.size {
            j.possible.push(Code::ResourceExhausted);
        }
    }

    /// Judges a member's action, which all tables of the profile must list for entries.
    pub(super) fn judge_profile_action(&self, profile: &ActionProfile, action: &Action, j: &mut Judgement) {
        let mut tables = profile.table_ids.iter().filter_map(|id| self.table(*id));
        let first = tables.next().map_or(&[][..], |t| &t.action_refs);
        let is_for_entries = |list: &[ActionRef], id: u32| {
            list.iter().any(|listed| listed.id == id && listed.scope != ActionScope::DefaultOnly)
        };
        let others: Vec<&[ActionRef]> = tables.map(|t| t.action_refs.as_slice()).collect();
        let is_shared = |listed: &&ActionRef| {
            listed.scope == ActionScope::DefaultOnly || others.iter().all(|list| is_for_entries(list, listed.id))
        };
        let shared: Vec<ActionRef> = first.iter().filter(is_shared).cloned().collect();
        self.judge_action(&shared, action, false, j);
    }

    fn judge_action(&self, list: &[ActionRef], action: &Action, default: bool, j: &mut Judgement) {
        let listed = list.iter().find(|listed| listed.id == action.action_id);
        let Some(listed) = listed else { return j.fault(Code::InvalidArgument) };
        let scope = if default { ActionScope::TableOnly } else { ActionScope::DefaultOnly };
        j.fault_if(listed.scope == scope || listed.scope == ActionScope::GroupAction, Code::PermissionDenied);
        self.judge_arguments(action, j);
    }

    fn judge_arguments(&self, action: &Action, j: &mut Judgement) {
        let info = self.info.actions.iter().find(|a| a.preamble.id == action.action_id);
        let Some(info) = info else { return j.fault(Code::InvalidArgument) };
        for (at, (id, _)) in action.params.iter().enumerate() {
            let twice = action.params[..at].iter().any(|(earlier, _)| earlier == id);
            j.fault_if(twice || !info.params.iter().any(|p| p.id == *id), Code::InvalidArgument);
        }
        let mut args = Vec::new();
        for param in &info.params {
            let given = action.params.iter().find(|(id, _)| *id == param.id);
            j.fault_if(given.is_none(), Code::InvalidArgument);
            let value = value_of(&self.info, param.bitwidth, param.type_name.as_ref());
            args.extend(given.and_then(|(_, bytes)| judge_value(value, bytes, j)));
        }
        if let Some(restriction) = &info.restriction {
            match args.len() == info.params.len() {
                true => j.fault_if(restriction.check(Values::Call(&args)).is_err(), Code::InvalidArgument),
                false => j.possible.push(Code::InvalidArgument),
            }
        }
    }

    /// An action in the form in which it is read.
    pub(super) fn canonical_action(&self, action: &Action) -> Action {
        let info = self.info.actions.iter().find(|a| a.preamble.id == action.action_id);
        let params = info.map_or(&[][..], |info| &info.params).iter().filter_map(|param| {
            let (id, bytes) = action.params.iter().find(|(id, _)| *id == param.id)?;
            let value = value_of(&self.info, param.bitwidth, param.type_name.as_ref());
            Some((*id, canonical_value(value, bytes)))
        });
        Action { action_id: action.action_id, params: params.collect() }
    }

    fn canonical_table_action(&self, action: &TableAction) -> TableAction {
        match action {
            TableAction::Action(action) => TableAction::Action(self.canonical_action(action)),
            TableAction::OneShot(set) => {
                let part = |part: &WeightedAction| WeightedAction {
                    action: part.action.as_ref().map(|action| self.canonical_action(action)),
                    watch: canonical_watch(&part.watch),
                    ..part.clone()
                };
                let actions = set.actions.iter().map(part).collect();
                TableAction::OneShot(ActionSet { actions, ..set.clone() })
            }
            other => other.clone(),
        }
    }

    pub(super) fn apply_table_entry(&mut self, kind: UpdateKind, entry: &TableEntry) {
        let Some(table) = self.table(entry.table_id) else { return };
        let action = entry.action.as_ref().map(|action| self.canonical_table_action(action));
        if entry.is_default_action {
            let beside = self.beside_defaults.entry(entry.table_id).or_default();
            beside.counter = entry.counter_data.unwrap_or(beside.counter);
            beside.meter = entry.meter_config;
            match action {
                None => self.reset_default(entry.table_id),
                action => {
                    let (metadata, controller_metadata) = (entry.metadata.clone(), entry.controller_metadata);
                    let (table_id, is_default_action) = (entry.table_id, true);
                    let new = TableEntry {
                        table_id,
                        action,
                        metadata,
                        controller_metadata,
                        is_default_action,
                        ..Default::default()
                    };
                    self.defaults.insert(entry.table_id, new);
                }
            }
            return;
        }
        let matches = canonical_matches(&table.match_fields, &entry.matches);
        let is_const_table = table.is_const_table;
        let id = (key_bytes(&matches), entry.priority);
        let entries = self.tables.entry(entry.table_id).or_default();
        if kind == UpdateKind::Delete {
            entries.remove(&id);
            return;
        }
        let (counter_data, meter_config, meter_counter_data) = (None, None, None);
        let plain = TableEntry { matches, action, counter_data, meter_config, meter_counter_data, ..entry.clone() };
        match entries.get_mut(&id) {
            None => {
                let counter = entry.counter_data.unwrap_or_default();
                entries.insert(id, Entry { entry: plain, counter, meter: entry.meter_config });
            }
            Some(old) => {
                let immutable = is_const_table || old.entry.is_const;
                if !immutable {
                    let action = plain.action.or_else(|| old.entry.action.clone());
                    old.entry = TableEntry { action, ..plain };
                }
                if let Some(data) = entry.counter_data {
                    old.counter = data;
                }
                old.meter = entry.meter_config;
            }
        }
    }
}
