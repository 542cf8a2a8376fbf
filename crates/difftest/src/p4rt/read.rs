//! Expected results of reads.

use super::model::{Beside, Model};
use control::Code;
use control::entity::*;
use p4info::{ObjectKind, P4Info};

/// The number of cells of an array that are written and read, since reading all of a large array would dominate the
/// time.
pub(super) const CELLS_MAX: i64 = 64;

/// Queries that together read everything that is written.
pub(super) fn everything(info: &P4Info) -> Vec<Entity> {
    let entries = TableEntry {
        counter_data: Some(Default::default()),
        meter_config: Some(Default::default()),
        meter_counter_data: Some(Default::default()),
        ..Default::default()
    };
    let defaults = TableEntry { is_default_action: true, ..entries.clone() };
    let all = |is_default_action| Some(TableEntry { is_default_action, ..Default::default() });
    let counters = |defaults| DirectCounterEntry { table_entry: all(defaults), data: None };
    let meters = |defaults| DirectMeterEntry {
        table_entry: all(defaults),
        config: None,
        counter_data: Some(Default::default()),
    };
    let mut queries = vec![
        Entity::Table(entries),
        Entity::Table(defaults),
        Entity::DirectCounter(counters(false)),
        Entity::DirectCounter(counters(true)),
        Entity::DirectMeter(meters(false)),
        Entity::DirectMeter(meters(true)),
        Entity::Member(Default::default()),
        Entity::Group(Default::default()),
        Entity::MulticastGroup(Default::default()),
        Entity::CloneSession(Default::default()),
        Entity::ValueSet(Default::default()),
        Entity::Digest(Default::default()),
    ];
    // All cells at once, or one by one.
    let cells = |size: i64| if size <= CELLS_MAX { vec![None] } else { (0..CELLS_MAX).map(Some).collect() };
    for counter in &info.counters {
        let counter_id = counter.preamble.id;
        let query = |index| Entity::Counter(CounterEntry { counter_id, index, data: None });
        queries.extend(cells(counter.size).into_iter().map(query));
    }
    for meter in &info.meters {
        let meter_id = meter.preamble.id;
        let query = |index| Entity::Meter(MeterEntry { meter_id, index, config: None, counter_data: None });
        queries.extend(cells(meter.size).into_iter().map(query));
    }
    for register in &info.registers {
        let register_id = register.preamble.id;
        let query = |index| Entity::Register(RegisterEntry { register_id, index, data: None });
        queries.extend(cells(i64::from(register.size)).into_iter().map(query));
    }
    queries
}

/// The expected result of a query, or the codes of which one must refuse it.
pub(super) fn expected(model: &Model, query: &Entity) -> Result<Vec<Entity>, Vec<Code>> {
    let unknown = || vec![Code::NotFound, Code::InvalidArgument];
    let known = |id: u32, known: bool| if id == 0 || known { Ok(()) } else { Err(unknown()) };
    Ok(match query {
        Entity::Table(query) => {
            known(query.table_id, model.table(query.table_id).is_some())?;
            entries(model, query)
        }
        Entity::Member(query) => {
            known(query.action_profile_id, model.profile(query.action_profile_id).is_some())?;
            let selected = |m: &&Member| {
                (query.action_profile_id == 0 || query.action_profile_id == m.action_profile_id)
                    && (query.member_id == 0 || query.member_id == m.member_id)
            };
            model.members.values().filter(selected).cloned().map(Entity::Member).collect()
        }
        Entity::Group(query) => {
            known(query.action_profile_id, model.profile(query.action_profile_id).is_some())?;
            let selected = |g: &&Group| {
                (query.action_profile_id == 0 || query.action_profile_id == g.action_profile_id)
                    && (query.group_id == 0 || query.group_id == g.group_id)
            };
            model.groups.values().filter(selected).cloned().map(Entity::Group).collect()
        }
        Entity::Counter(query) => {
            let cells = cells(model, ObjectKind::Counter, query.counter_id, query.index, &model.counters)?;
            let cell = |(counter_id, index, data)| CounterEntry { counter_id, index: Some(index), data: Some(data) };
            cells.into_iter().map(|found| Entity::Counter(cell(found))).collect()
        }
        Entity::Meter(query) => {
            let cells = cells(model, ObjectKind::Meter, query.meter_id, query.index, &model.meters)?;
            let counter_data = query.counter_data.map(|_| no_colours());
            let cell = |(meter_id, index, config)| MeterEntry { meter_id, index: Some(index), config, counter_data };
            cells.into_iter().map(|found| Entity::Meter(cell(found))).collect()
        }
        Entity::Register(query) => {
            let cells = cells(model, ObjectKind::Register, query.register_id, query.index, &model.registers)?;
            let cell = |(register_id, index, data)| RegisterEntry { register_id, index: Some(index), data: Some(data) };
            cells.into_iter().map(|found| Entity::Register(cell(found))).collect()
        }
        Entity::MulticastGroup(query) => {
            let selected = model.multicast.values().filter(|g| query.group_id == 0 || query.group_id == g.group_id);
            selected.cloned().map(Entity::MulticastGroup).collect()
        }
        Entity::CloneSession(query) => {
            let selected =
                model.sessions.values().filter(|s| query.session_id == 0 || query.session_id == s.session_id);
            selected.cloned().map(Entity::CloneSession).collect()
        }
        Entity::ValueSet(query) => {
            known(query.value_set_id, model.value_sets.contains_key(&query.value_set_id))?;
            let selected =
                model.value_sets.iter().filter(|(id, _)| query.value_set_id == 0 || query.value_set_id == **id);
            let entry = |(id, members): (&u32, &Vec<Vec<FieldMatch>>)| {
                Entity::ValueSet(ValueSetEntry { value_set_id: *id, members: members.clone() })
            };
            selected.map(entry).collect()
        }
        Entity::Digest(query) => {
            let info = &model.info.digests;
            known(query.digest_id, info.iter().any(|d| d.preamble.id == query.digest_id))?;
            let selected = model.digests.iter().filter(|(id, _)| query.digest_id == 0 || query.digest_id == **id);
            selected.map(|(id, config)| Entity::Digest(DigestEntry { digest_id: *id, config: Some(*config) })).collect()
        }
        Entity::DirectCounter(query) => {
            let found = beside(model, query.table_entry.as_ref(), ObjectKind::DirectCounter)?;
            let entry = |(of, beside): (TableEntry, Beside)| {
                Entity::DirectCounter(DirectCounterEntry { table_entry: Some(of), data: Some(beside.counter) })
            };
            found.into_iter().map(entry).collect()
        }
        Entity::DirectMeter(query) => {
            let found = beside(model, query.table_entry.as_ref(), ObjectKind::DirectMeter)?;
            let counter_data = query.counter_data.map(|_| no_colours());
            let entry = |(of, beside): (TableEntry, Beside)| {
                let (table_entry, config) = (Some(of), beside.meter);
                Entity::DirectMeter(DirectMeterEntry { table_entry, config, counter_data })
            };
            found.into_iter().map(entry).collect()
        }
        Entity::Extern { .. } | Entity::Calculation(_) => vec![],
    })
}

/// Counters for colours without packets.
fn no_colours() -> MeterCounterData {
    let none = Some(CounterData::default());
    MeterCounterData { green: none, yellow: none, red: none }
}

/// Entries with a direct resource of a kind: their identities, with their direct resources.
fn beside(model: &Model, query: Option<&TableEntry>, kind: ObjectKind) -> Result<Vec<(TableEntry, Beside)>, Vec<Code>> {
    let query = query.ok_or(vec![Code::InvalidArgument])?;
    let has = |table: &p4info::Table| table.direct_resource_ids.iter().any(|id| ObjectKind::of(*id) == Some(kind));
    if query.table_id != 0 {
        let table = model.table(query.table_id).ok_or(vec![Code::NotFound, Code::InvalidArgument])?;
        if !has(table) {
            return Err(vec![Code::InvalidArgument]);
        }
    }
    let mut found = Vec::new();
    for table in model.info.tables.iter().filter(|table| has(table)) {
        let table_id = table.preamble.id;
        if query.table_id != 0 && query.table_id != table_id {
            continue;
        }
        if query.is_default_action {
            let beside = model.beside_defaults.get(&table_id).copied().unwrap_or_default();
            found.push((TableEntry { table_id, is_default_action: true, ..Default::default() }, beside));
            continue;
        }
        let key = super::table_rules::key_bytes(&query.matches);
        for ((matches, priority), entry) in &model.tables[&table_id] {
            let wanted = query.matches.is_empty() || (*matches == key);
            if wanted && (query.priority == 0 || query.priority == *priority) {
                let (matches, priority) = (entry.entry.matches.clone(), *priority);
                let of = TableEntry { table_id, matches, priority, ..Default::default() };
                found.push((of, Beside { counter: entry.counter, meter: entry.meter }));
            }
        }
    }
    if found.is_empty() && !query.matches.is_empty() {
        return Err(vec![Code::NotFound]);
    }
    Ok(found)
}

type Cells<V> = std::collections::BTreeMap<(u32, i64), V>;

fn cells<V: Clone>(
    model: &Model,
    kind: ObjectKind,
    id: u32,
    index: Option<i64>,
    cells: &Cells<V>,
) -> Result<Vec<(u32, i64, V)>, Vec<Code>> {
    if id != 0 {
        let size = model.array_size(kind, id).ok_or(vec![Code::NotFound, Code::InvalidArgument])?;
        match index {
            Some(index) if index < 0 => return Err(vec![Code::InvalidArgument]),
            Some(index) if index >= size => return Err(vec![Code::OutOfRange]),
            _ => {}
        }
    }
    let selected = |(array, cell): (u32, i64)| id == 0 || (array == id && index.is_none_or(|index| index == cell));
    Ok(cells.iter().filter(|(at, _)| selected(**at)).map(|((id, cell), value)| (*id, *cell, value.clone())).collect())
}

fn entries(model: &Model, query: &TableEntry) -> Vec<Entity> {
    let table = |id: &u32| query.table_id == 0 || query.table_id == *id;
    let key = super::table_rules::key_bytes(&query.matches);
    let action_id = |action: &Option<TableAction>| match action {
        Some(TableAction::Action(action)) => Some(action.action_id),
        _ => None,
    };
    let passes = |entry: &TableEntry| {
        (query.priority == 0 || query.priority == entry.priority)
            && (query.controller_metadata == 0 || query.controller_metadata == entry.controller_metadata)
            && (query.metadata.is_empty() || query.metadata == entry.metadata)
            && (query.action.is_none() || action_id(&query.action) == action_id(&entry.action))
    };
    if query.is_default_action {
        let defaults = model.defaults.iter().filter(|(id, entry)| table(id) && passes(entry));
        let with_resources = |(id, entry): (&u32, &TableEntry)| {
            let beside = model.beside_defaults.get(id).copied().unwrap_or_default();
            Entity::Table(with_resources(model, query, entry, beside))
        };
        return defaults.map(with_resources).collect();
    }
    let mut found = Vec::new();
    for (_, entries) in model.tables.iter().filter(|(id, _)| table(id)) {
        for ((matches, _), entry) in entries {
            if (query.matches.is_empty() || *matches == key) && passes(&entry.entry) {
                let beside = Beside { counter: entry.counter, meter: entry.meter };
                found.push(Entity::Table(with_resources(model, query, &entry.entry, beside)));
            }
        }
    }
    found
}

/// An entry with the direct resources that a query requests.
fn with_resources(model: &Model, query: &TableEntry, entry: &TableEntry, beside: Beside) -> TableEntry {
    let resources = model.table(entry.table_id).map_or(&[][..], |t| &t.direct_resource_ids);
    let has = |kind| resources.iter().any(|id| ObjectKind::of(*id) == Some(kind));
    TableEntry {
        counter_data: query.counter_data.filter(|_| has(ObjectKind::DirectCounter)).map(|_| beside.counter),
        meter_config: query.meter_config.filter(|_| has(ObjectKind::DirectMeter)).and(beside.meter),
        meter_counter_data: query.meter_counter_data.filter(|_| has(ObjectKind::DirectMeter)).map(|_| no_colours()),
        ..entry.clone()
    }
}

/// Compares two lists, ignoring order.
pub(super) fn same(found: Vec<Entity>, expected: Vec<Entity>) -> Result<(), String> {
    let sorted = |entities: Vec<Entity>| {
        let mut texts: Vec<String> = entities.into_iter().map(|e| format!("{:?}", without_order(e))).collect();
        texts.sort_unstable();
        texts
    };
    let (found, expected) = (sorted(found), sorted(expected));
    if found == expected {
        return Ok(());
    }
    let missing: Vec<&String> = expected.iter().filter(|e| !found.contains(e)).take(3).collect();
    let surplus: Vec<&String> = found.iter().filter(|e| !expected.contains(e)).take(3).collect();
    let counts = format!("{} found, {} expected", found.len(), expected.len());
    Err(format!("{counts}\nmissing: {missing:#?}\nnot expected: {surplus:#?}"))
}

/// An entity with sorted members of groups and value sets, which have no order.
fn without_order(mut entity: Entity) -> Entity {
    match &mut entity {
        Entity::Group(group) => group.members.sort_by_key(|m| m.member_id),
        Entity::ValueSet(set) => set.members.sort_by_key(|m| super::table_rules::key_bytes(m)),
        _ => {}
    }
    entity
}
