//! All entities of a device as one file, and the updates that bring a device to the state of a file.
//!
//! A file is declarative: it describes a state, not a sequence of commands. [`Wanted`] is a map of entities, and
//! [`plan`] compares it with the existing entities and returns the updates between the two, each with the updates that
//! undo it.
//!
//! ```text
//!   order of updates: table entries are deleted; then everything new or changed, in the order of KINDS, so that
//!   whatever is referred to exists; then members, groups and everything else are deleted, in the opposite order
//! ```
//!
//! The same entities give the same file, whatever order a switch returns them in. Counts are omitted unless requested.

use crate::arrays::{at_index, whole};
use crate::names::{Names, id_of, name_of};
use crate::text::name_text;
use crate::{Change, KINDS, Kind, Verb, encoded, kind_of, update};
use messages::p4::v1 as pb;
use pb::entity::Entity;
use pb::update::Type;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use stf::ScriptError;

/// The first line of a file.
const HEADER: &str = "# What a device was told, and its registers: `sluice config load FILE` or `sluice run X.p4 --entries FILE` brings it back.";

/// The queries that read everything that [`text`] writes.
pub fn queries(names: &Names, counters: bool) -> Vec<Entity> {
    let wanted = |kind: &&dyn Kind| counters || kind.noun() != "counter";
    // Without a name, no name can be wrong.
    let all = KINDS.into_iter().filter(wanted).flat_map(|kind| kind.queries(names, None).unwrap_or_default());
    let counted = |query| match query {
        Entity::TableEntry(entry) if counters => {
            Entity::TableEntry(pb::TableEntry { counter_data: Some(pb::CounterData::default()), ..entry })
        }
        query => query,
    };
    all.map(counted).collect()
}

/// The entities as a file.
pub fn text(names: &Names, entities: &[Entity], counters: bool) -> String {
    let mut out = format!("{HEADER}\n");
    for (at, kind) in KINDS.into_iter().enumerate() {
        let of_kind: Vec<&Entity> = entities.iter().filter(|entity| kind.key(entity).is_some()).collect();
        let mut sorted: Vec<(Vec<u8>, &Entity)> = of_kind.into_iter().map(|e| (kind.order(names, e), e)).collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let lines: Vec<String> = match kind.noun() {
            "register" => cells(names, kind, &sorted),
            "counter" if counters => cells(names, kind, &sorted),
            "counter" => vec![],
            "table entry" => entries(names, kind, &sorted, counters),
            _ => sorted
                .iter()
                .filter_map(|(_, entity)| with_counter(kind.line(names, entity)?, entity, counters))
                .collect(),
        };
        if !lines.is_empty() {
            let _ = writeln!(out, "\n# {}s", KINDS[at].noun().replace("entry", "entrie"));
        }
        lines.iter().for_each(|line| _ = writeln!(out, "{line}"));
    }
    out
}

fn with_counter(line: String, entity: &Entity, counters: bool) -> Option<String> {
    match entity {
        Entity::TableEntry(pb::TableEntry { counter_data: Some(data), .. })
            if counters && *data != pb::CounterData::default() =>
        {
            Some(format!("{line} counter={},{}", data.packet_count, data.byte_count))
        }
        _ => Some(line),
    }
}

/// Lines of the entries, table by table. A table with initial entries in the program is cleared first, so that deleted
/// initial entries do not return.
fn entries(names: &Names, kind: &dyn Kind, sorted: &[(Vec<u8>, &Entity)], counters: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = sorted.iter().peekable();
    for table in names.tables() {
        if table.has_initial_entries && !table.is_const_table {
            lines.push(format!("clear {}", name_text(name_of(&table.preamble))));
        }
        let id = id_of(&table.preamble);
        while let Some((_, entity)) =
            rest.next_if(|(_, e)| matches!(e, Entity::TableEntry(entry) if entry.table_id == id))
        {
            lines.extend(kind.line(names, entity).and_then(|line| with_counter(line, entity, counters)));
        }
    }
    lines
}

/// Lines of arrays: each as the value of most cells, and then the cells with other values.
fn cells(names: &Names, kind: &dyn Kind, sorted: &[(Vec<u8>, &Entity)]) -> Vec<String> {
    let mut arrays: Vec<(Entity, Vec<&Entity>)> = Vec::new();
    for (_, cell) in sorted {
        let Some(all) = kind.key(cell).and_then(|key| whole(&key)) else { continue };
        match arrays.last_mut() {
            Some((of, cells)) if *of == all => cells.push(cell),
            _ => arrays.push((all, vec![cell])),
        }
    }
    let mut lines = Vec::new();
    for (all, cells) in arrays {
        let everywhere: Vec<String> = cells.iter().filter_map(|cell| kind.line(names, &at_index(cell, &all))).collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        everywhere.iter().for_each(|line| *counts.entry(line).or_default() += 1);
        let Some(most) = counts.into_iter().max_by(|a, b| (a.1, b.0).cmp(&(b.1, a.0))).map(|(line, _)| line) else {
            continue;
        };
        lines.push(most.to_string());
        let others = cells.iter().zip(&everywhere).filter(|(_, line)| *line != most);
        lines.extend(others.filter_map(|(cell, _)| kind.line(names, cell)));
    }
    lines
}

/// The contents of a file.
#[derive(Default)]
pub struct Wanted {
    /// By encoded key: the line, the key, the entity.
    entities: HashMap<Vec<u8>, (usize, Entity, Entity)>,
    /// Tables whose other entries are deleted.
    cleared: BTreeSet<u32>,
    /// Keys of entities that must not exist.
    removed: HashMap<Vec<u8>, Entity>,
}

impl Wanted {
    /// Parses a file.
    ///
    /// # Errors
    ///
    /// All lines that are wrong.
    pub fn read(names: &Names, text: &str) -> Result<Wanted, Vec<ScriptError>> {
        let mut wanted = Wanted::default();
        let mut errors = Vec::new();
        for line in stf::parse(text)? {
            let done =
                match names.change(&line.command) {
                    Some(change) => change.and_then(|change| wanted.take(line.number, change)),
                    None => Err("a file of entities cannot say this; `sluice stf` and `sluice run --entries` take it"
                        .to_string()),
                };
            errors.extend(done.err().map(|message| ScriptError { line: line.number, message }));
        }
        if errors.is_empty() { Ok(wanted) } else { Err(errors) }
    }

    /// The number of entities in it.
    pub fn len(&self) -> usize {
        self.entities.len()
    }

    /// Whether it has no entities.
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    fn take(&mut self, line: usize, Change { verb, entity }: Change) -> Result<(), String> {
        let kind = kind_of(&entity).ok_or("an entity of an unknown kind")?;
        let key = kind.key(&entity).ok_or("an entity of an unknown kind")?;
        let place = encoded(&key);
        match verb {
            Verb::Insert => {
                if let Some((earlier, ..)) = self.entities.get(&place) {
                    return Err(format!("line {earlier} has that already"));
                }
                self.entities.insert(place, (line, key, entity));
            }
            Verb::Modify | Verb::Set => {
                // A value for all cells replaces those set before for single cells.
                if is_array(&key) && whole(&key).is_none() {
                    self.entities.retain(|_, (_, of, _)| whole(of).is_none_or(|all| all != key));
                }
                self.removed.remove(&place);
                self.entities.insert(place, (line, key, entity));
            }
            Verb::Extend => match self.entities.get_mut(&place) {
                Some((_, _, earlier)) => extend(earlier, entity)?,
                None => _ = self.entities.insert(place, (line, key, entity)),
            },
            Verb::Shrink => return Err("members of value sets are not removed by lines".to_string()),
            Verb::Delete => {
                self.entities.remove(&place);
                self.removed.insert(place, key);
            }
            Verb::Clear => {
                let Entity::TableEntry(of) = &entity else { return Err("only tables are cleared".to_string()) };
                let same = |key: &Entity| matches!(key, Entity::TableEntry(e) if e.table_id == of.table_id && !e.is_default_action);
                self.entities.retain(|_, (_, key, _)| !same(key));
                self.cleared.insert(of.table_id);
            }
        }
        Ok(())
    }
}

fn is_array(key: &Entity) -> bool {
    matches!(key, Entity::RegisterEntry(_) | Entity::CounterEntry(_) | Entity::MeterEntry(_))
}

/// Adds the members of a value set to those of another.
fn extend(into: &mut Entity, from: Entity) -> Result<(), String> {
    let (Entity::ValueSetEntry(into), Entity::ValueSetEntry(from)) = (into, from) else {
        return Err("only value sets are extended".to_string());
    };
    for member in from.members {
        if into.members.contains(&member) {
            return Err("the value set has that member already".to_string());
        }
        into.members.push(member);
    }
    Ok(())
}

/// An update, with the updates that undo it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line that it comes from; `None` for an entity that is removed because no line names it.
    pub line: Option<usize>,
    /// The update.
    pub update: pb::Update,
    /// The updates that undo it, in order.
    pub undo: Vec<pb::Update>,
}

/// The updates that reach a wanted state.
#[derive(Default, Debug)]
pub struct Plan {
    /// The updates, in order.
    pub steps: Vec<Step>,
    /// Number of entities that already are as wanted.
    pub unchanged: usize,
    /// Registers of which the file does not name all cells: the other cells keep their values.
    pub untouched: Vec<String>,
}

impl Plan {
    /// The number of inserted, modified and deleted entities.
    pub fn counts(&self) -> [usize; 3] {
        [Type::Insert, Type::Modify, Type::Delete]
            .map(|kind| self.steps.iter().filter(|step| step.update.r#type == i32::from(kind)).count())
    }
}

/// The existing entities of a device, by encoded key.
struct There<'a> {
    names: &'a Names,
    entities: HashMap<Vec<u8>, Entity>,
    /// Keys of the cells of each array, by the encoded key of the whole array.
    cells: HashMap<Vec<u8>, Vec<Vec<u8>>>,
}

impl There<'_> {
    fn new(names: &Names, entities: Vec<Entity>) -> There<'_> {
        let mut there = There { names, entities: HashMap::with_capacity(entities.len()), cells: HashMap::new() };
        for entity in entities {
            let Some(key) = kind_of(&entity).and_then(|kind| kind.key(&entity)) else { continue };
            let place = encoded(&key);
            if let Some(all) = whole(&key) {
                there.cells.entry(encoded(&all)).or_default().push(place.clone());
            }
            there.entities.insert(place, entity);
        }
        there
    }

    /// The update that restores an entity to its present state.
    fn back(&self, key: &Entity, place: &[u8]) -> pb::Update {
        update(Type::Modify, self.entities.get(place).cloned().map_or_else(|| key.clone(), writable))
    }

    /// The update that brings one entity to the wanted state; `None` if it is there already.
    fn make(&self, kind: &dyn Kind, line: usize, key: &Entity, place: &[u8], wanted: &Entity) -> Option<Step> {
        let line = Some(line);
        match self.entities.get(place) {
            None if kind.comes_and_goes(wanted) => {
                let undo = vec![update(Type::Delete, key.clone())];
                Some(Step { line, update: update(Type::Insert, wanted.clone()), undo })
            }
            there => {
                let counts = matches!(wanted, Entity::TableEntry(entry) if entry.counter_data.is_some());
                let same = there.and_then(|there| kind.line(self.names, there)) == kind.line(self.names, wanted);
                let step =
                    || Step { line, update: update(Type::Modify, wanted.clone()), undo: vec![self.back(key, place)] };
                (counts || !same).then(step)
            }
        }
    }
}

/// An entity that was read, without the parts that cannot be written.
fn writable(entity: Entity) -> Entity {
    match entity {
        Entity::TableEntry(entry) => {
            let action = entry.action.filter(|_| !entry.is_const);
            Entity::TableEntry(pb::TableEntry {
                action,
                is_const: false,
                counter_data: None,
                time_since_last_hit: None,
                ..entry
            })
        }
        Entity::MeterEntry(cell) => Entity::MeterEntry(pb::MeterEntry { counter_data: None, ..cell }),
        other => other,
    }
}

/// The updates from the existing entities to those of a file. With `replace`, all other entities are removed, except
/// registers and counters that no line names: their values come from packets, and a P4Info does not tell a register's
/// initial value.
pub fn plan(names: &Names, there: Vec<Entity>, wanted: &Wanted, replace: bool) -> Plan {
    let there = There::new(names, there);
    let mut plan = Plan::default();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (at, kind) in KINDS.into_iter().enumerate() {
        let mut gone: Vec<(Vec<u8>, Step)> = Vec::new();
        for (place, entity) in &there.entities {
            let Some(key) = kind.key(entity).filter(|_| !wanted.entities.contains_key(place)) else { continue };
            let cleared =
                matches!(&key, Entity::TableEntry(e) if !e.is_default_action && wanted.cleared.contains(&e.table_id));
            if replace || cleared || wanted.removed.contains_key(place) {
                gone.extend(remove(names, kind, key, entity, wanted).map(|step| (kind.order(names, entity), step)));
            }
        }
        gone.sort_by(|(a, _), (b, _)| a.cmp(b));
        let of_entries = kind.noun() == "table entry";
        let gone = gone.into_iter().map(|(_, step)| step);
        if of_entries { first.extend(gone) } else { last.push((at, gone.collect::<Vec<_>>())) }
    }
    plan.steps = first;
    for kind in KINDS {
        let mut of_kind: Vec<_> = wanted
            .entities
            .iter()
            .filter(|(_, (_, key, _))| kind.key(key).is_some())
            .map(|(place, (line, key, entity))| (kind.order(names, entity), place, *line, key, entity))
            .collect();
        of_kind.sort_by(|a, b| a.0.cmp(&b.0));
        let mut rewritten: HashSet<Vec<u8>> = HashSet::new();
        for (_, place, line, key, entity) in of_kind {
            let step = match is_array(key) {
                true if whole(key).is_none() => {
                    let step = fill(&there, kind, line, place, entity, wanted);
                    if step.is_some() {
                        rewritten.insert(place.clone());
                    }
                    step
                }
                // All cells were just set to one value.
                true if whole(key).is_some_and(|all| rewritten.contains(&encoded(&all))) => {
                    Some(Step { line: Some(line), update: update(Type::Modify, entity.clone()), undo: vec![] })
                }
                _ => there.make(kind, line, key, place, entity),
            };
            match step {
                Some(step) => plan.steps.push(step),
                None => plan.unchanged += 1,
            }
        }
    }
    last.reverse();
    plan.steps.extend(last.into_iter().flat_map(|(_, steps)| steps));
    let named = |key: pb::RegisterEntry| wanted.entities.contains_key(&encoded(&Entity::RegisterEntry(key)));
    for register in &names.info().registers {
        let register_id = id_of(&register.preamble);
        let cell = |index| named(pb::RegisterEntry { register_id, index, ..Default::default() });
        // As many cells were read as the register has, so this costs no more than comparing them.
        let all = cell(None) || (0..i64::from(register.size)).all(|index| cell(Some(pb::Index { index })));
        plan.untouched.extend((!all).then(|| name_of(&register.preamble).to_string()));
    }
    plan
}

/// The update that removes an existing entity, or resets it if it cannot be deleted.
fn remove(names: &Names, kind: &dyn Kind, key: Entity, entity: &Entity, wanted: &Wanted) -> Option<Step> {
    let back = writable(entity.clone());
    if kind.comes_and_goes(entity) {
        let undo = vec![update(Type::Insert, back)];
        return Some(Step { line: None, update: update(Type::Delete, key), undo });
    }
    let has_to_go = match entity {
        // The program's own default entry stays; constant ones cannot be changed.
        Entity::TableEntry(entry) => entry.is_default_action && !entry.is_const && !is_initial(names, entry),
        Entity::ValueSetEntry(entry) => !entry.members.is_empty(),
        Entity::MeterEntry(cell) => {
            let all = whole(&key).is_some_and(|all| wanted.entities.contains_key(&encoded(&all)));
            cell.config.is_some() && !all
        }
        _ => false,
    };
    has_to_go.then(|| Step { line: None, update: update(Type::Modify, key), undo: vec![update(Type::Modify, back)] })
}

/// Whether a default entry is the program's own.
fn is_initial(names: &Names, entry: &pb::TableEntry) -> bool {
    let initial = names.table_of_id(entry.table_id).and_then(|table| table.initial_default_action.as_ref());
    let of_program = initial.map(|initial| pb::Action {
        action_id: initial.action_id,
        params: initial
            .arguments
            .iter()
            .map(|a| pb::action::Param { param_id: a.param_id, value: a.value.clone() })
            .collect(),
    });
    let now = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
    let same = matches!((now, &of_program), (Some(pb::table_action::Type::Action(now)), Some(of)) if now == of);
    same && entry.metadata.is_empty() && entry.meter_config.is_none()
}

/// The update that sets all cells of an array, except those with lines of their own; `None` if they have the value
/// already.
fn fill(
    there: &There<'_>,
    kind: &dyn Kind,
    line: usize,
    place: &[u8],
    value: &Entity,
    wanted: &Wanted,
) -> Option<Step> {
    let cells = there.cells.get(place).map_or(&[][..], Vec::as_slice);
    let text = kind.line(there.names, value);
    let others = cells.iter().filter(|cell| !wanted.entities.contains_key(*cell));
    let differs = |cell: &Vec<u8>| {
        let there_now = there.entities.get(cell).map(|now| at_index(now, value));
        there_now.and_then(|now| kind.line(there.names, &now)) != text
    };
    if !others.clone().any(differs) && !cells.is_empty() {
        return None;
    }
    let undo =
        cells.iter().filter_map(|cell| there.entities.get(cell)).map(|now| update(Type::Modify, writable(now.clone())));
    Some(Step { line: Some(line), update: update(Type::Modify, value.clone()), undo: undo.collect() })
}

/// Keys of the entities that must be read before [`resolve`].
pub fn needed(changes: &[Change]) -> Vec<Entity> {
    let asks = |change: &&Change| matches!(change.verb, Verb::Set | Verb::Extend | Verb::Shrink | Verb::Clear);
    let key = |change: &Change| match change.verb {
        Verb::Clear => Some(change.entity.clone()),
        _ => kind_of(&change.entity)?.key(&change.entity),
    };
    changes.iter().filter(asks).filter_map(key).collect()
}

/// The updates for a list of changes, in order, each with the index of its change; `found` are the entities read for
/// [`needed`].
///
/// # Errors
///
/// The index of a change that is not possible, and why.
pub fn resolve(changes: &[Change], found: Vec<Entity>) -> Result<Vec<(usize, pb::Update)>, (usize, String)> {
    let mut there: BTreeMap<Vec<u8>, Entity> = BTreeMap::new();
    for entity in found {
        let Some(key) = kind_of(&entity).and_then(|kind| kind.key(&entity)) else { continue };
        there.insert(encoded(&key), entity);
    }
    let (mut updates, mut sets) = (Vec::new(), HashSet::new());
    for (at, Change { verb, entity }) in changes.iter().enumerate() {
        let Some(kind) = kind_of(entity) else { continue };
        let Some(key) = kind.key(entity) else { continue };
        let place = encoded(&key);
        // Several lines that set the same value set give its members together, as `show` prints them.
        let goes_on = matches!((verb, entity), (Verb::Set, Entity::ValueSetEntry(_))) && !sets.insert(place.clone());
        match if goes_on { &Verb::Extend } else { verb } {
            Verb::Insert | Verb::Set if !kind.comes_and_goes(entity) => {
                updates.push((at, update(Type::Modify, entity.clone())))
            }
            Verb::Insert => updates.push((at, update(Type::Insert, entity.clone()))),
            Verb::Modify => updates.push((at, update(Type::Modify, entity.clone()))),
            Verb::Set => {
                let kind = if there.contains_key(&place) { Type::Modify } else { Type::Insert };
                updates.push((at, update(kind, entity.clone())));
            }
            Verb::Delete if kind.comes_and_goes(entity) => updates.push((at, update(Type::Delete, key))),
            Verb::Delete => updates.push((at, update(Type::Modify, key))),
            Verb::Extend => {
                if matches!(entity, Entity::ValueSetEntry(set) if set.members.is_empty()) {
                    return Err((
                        at,
                        "no member is given: NAME VALUE..., a value for each field of the member".to_string(),
                    ));
                }
                let mut now = there.get(&place).cloned().unwrap_or_else(|| key.clone());
                extend(&mut now, entity.clone()).map_err(|why| (at, why))?;
                updates.push((at, update(Type::Modify, now)));
            }
            Verb::Shrink => {
                let now = there.get(&place).cloned().unwrap_or_else(|| key.clone());
                let now = without_members(&now, entity).map_err(|why| (at, why))?;
                updates.push((at, update(Type::Modify, now)));
            }
            Verb::Clear => {
                let Entity::TableEntry(of) = entity else { continue };
                let gone = |e: &&Entity| matches!(e, Entity::TableEntry(e) if e.table_id == of.table_id && !e.is_default_action && !e.is_const);
                let keys: Vec<Entity> = there.values().filter(gone).filter_map(|entity| kind.key(entity)).collect();
                updates.extend(keys.into_iter().map(|key| (at, update(Type::Delete, key))));
                there.retain(|_, entity| !gone(&&*entity));
                continue;
            }
        }
        match verb {
            Verb::Delete => _ = there.remove(&place),
            _ => {
                let (_, written) = updates.last().expect("something was just pushed");
                let written = written.entity.as_ref().and_then(|e| e.entity.clone());
                there.extend(written.map(|entity| (place, entity)));
            }
        }
    }
    Ok(updates)
}

/// A value set without some of its members.
fn without_members(there: &Entity, gone: &Entity) -> Result<Entity, String> {
    let (Entity::ValueSetEntry(there), Entity::ValueSetEntry(gone)) = (there, gone) else {
        return Err("only value sets have members".to_string());
    };
    if gone.members.iter().any(|member| !there.members.contains(member)) {
        return Err("the value set has no such member".to_string());
    }
    let members = there.members.iter().filter(|member| !gone.members.contains(member)).cloned().collect();
    Ok(Entity::ValueSetEntry(pb::ValueSetEntry { value_set_id: there.value_set_id, members }))
}
