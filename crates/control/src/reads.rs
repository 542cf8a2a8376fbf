//! Reads of any size: the answer is made piece by piece, and is what a single look at everything would have seen.
//!
//! ```text
//!   open_read ──▶ Reading: a queue of parts, one or more for each entity asked for
//!   read_on, read_on, ... ──▶ the next entities         each call takes the caller's lock for about a thousand entities
//!   writes ──▶ Forwarding::remember: what they are about to change goes to the readings that have not come to it
//! ```
//!
//! **Snapshot.** A reading sees everything as it was when it was opened, against all writes (counts move on meanwhile, as
//! packets make them). Nothing is copied for that: what is large is walked where it lies ([`PipelineState::walk`]), and a
//! write that changes an entry while a walk is open first leaves the walk the entry as it is, if the walk has not given it
//! yet, and its key, so that the walk takes no later version of it. So a reading costs memory by what is *written* while it
//! is open, not by how much there is; writers never wait for a reader, and readers not for one another.
//!
//! **Bounds.** All readings of a device together remember at most [`CHANGES_MAX`] changes; beyond that the one with most is
//! cut off with ABORTED, as one is whose program is replaced: what it saw until then must be dropped and read again. There are
//! at most [`READS_MAX`] readings. Small things (members, groups, replication, value sets, digests, single entries) are read
//! when the reading is opened.
//!
//! P4Runtime specification, "Read RPC". Threads: the caller's, one at a time.
//! Tests: `crates/sluice/src/target/snapshots.rs` on real tables, `crates/grpc/tests/load.rs`, `crates/tables/tests/walks.rs`.
//!
//! [`PipelineState::walk`]: abi::state::PipelineState::walk

use crate::control::Control;
use crate::entity::{self, DirectCounterEntry, DirectMeterEntry, Entity, Role, TableEntry};
use crate::error::{Error, Result};
use crate::pipeline::{EntryKey, Forwarding};
use crate::roles::RoleConfig;
use base::ids::TableId;
use p4info::ObjectKind;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Changes that all open readings of a program remember: some hundred bytes each.
pub const CHANGES_MAX: usize = 1 << 18;
/// Readings that may be open at a time.
pub const READS_MAX: usize = 1024;

/// An open reading.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadId {
    device_id: u64,
    number: u64,
}

/// The readings of a config.
#[derive(Default)]
pub(crate) struct OpenReads {
    open: HashMap<u64, std::result::Result<Reading, Error>>,
}

/// What is left of an answer.
pub(crate) struct Reading {
    parts: VecDeque<Part>,
    /// Of the role that reads.
    config: Option<RoleConfig>,
}

enum Part {
    /// Read already.
    Found(Vec<Entity>),
    Entries(EntryWalk),
    Cells(CellWalk),
}

/// What queries select, read piece by piece while nothing is written.
pub(crate) struct Everything<'a> {
    of: &'a Forwarding,
    parts: VecDeque<Part>,
    piece: std::vec::IntoIter<Entity>,
}

/// Entities that it holds at a time, about.
const PIECE: usize = 1024;

impl Iterator for Everything<'_> {
    type Item = Result<Entity>;

    fn next(&mut self) -> Option<Result<Entity>> {
        loop {
            if let Some(entity) = self.piece.next() {
                return Some(Ok(entity));
            }
            if self.parts.is_empty() {
                return None;
            }
            let mut piece = Vec::new();
            if let Err(error) = self.of.step(&mut self.parts, PIECE, &mut piece) {
                self.parts.clear();
                return Some(Err(error));
            }
            self.piece = piece.into_iter();
        }
    }
}

/// All entries of a table, or what is beside them.
struct EntryWalk {
    query: Query,
    table: TableId,
    /// `None` when there is no more in the table.
    place: Option<u64>,
    /// Changed since the reading was opened, and not to be taken from the table.
    changed: HashSet<EntryKey>,
    /// As they were then.
    before: Vec<Entity>,
}

/// What of an entry is wanted.
#[derive(Clone)]
enum Query {
    Entry(TableEntry),
    Counter(DirectCounterEntry),
    Meter(DirectMeterEntry),
}

/// All cells of an array.
struct CellWalk {
    /// Asks for one, once it has an index.
    query: Entity,
    next: u64,
    size: u64,
    /// Cells from `next` on that were changed since.
    before: BTreeMap<u64, Entity>,
}

impl Control {
    /// Begins to read what entities select, and says of each whether it can be read. What was found comes from
    /// [`Control::read_on`].
    pub fn open_read(
        &mut self,
        device_id: u64,
        role: &Role,
        entities: &[Option<Entity>],
    ) -> Result<(ReadId, Vec<Result<()>>)> {
        let config = self.device(device_id)?.roles.config(role).cloned();
        self.open(device_id, config, entities)
    }

    fn open(
        &mut self,
        device_id: u64,
        config: Option<RoleConfig>,
        entities: &[Option<Entity>],
    ) -> Result<(ReadId, Vec<Result<()>>)> {
        self.last_read += 1;
        let number = self.last_read;
        let forwarding = self.device(device_id)?.current()?;
        if forwarding.reads.open.len() >= READS_MAX {
            return Err(Error::exhausted(format!("{READS_MAX} reads are being answered already")));
        }
        let mut parts = VecDeque::new();
        let missing = || Error::invalid("the entity's kind is missing; there is no read of everything");
        let plan = |entity: &Option<Entity>| forwarding.plan(entity.as_ref().ok_or_else(missing)?, &mut parts);
        let results = entities.iter().map(plan).collect();
        forwarding.reads.open.insert(number, Ok(Reading { parts, config }));
        Ok((ReadId { device_id, number }, results))
    }

    /// The next entities of an answer, about so many; none when that was all, and then the reading is closed.
    pub fn read_on(&mut self, id: ReadId, about: usize) -> Result<Vec<Entity>> {
        let gone = || Error::aborted("the program was replaced while the read was answered; read again");
        let forwarding = self.reading(id).ok_or_else(gone)?;
        let mut reading = forwarding.reads.open.remove(&id.number).ok_or_else(gone)??;
        let mut found = Vec::new();
        while found.is_empty() && !reading.parts.is_empty() {
            forwarding.step(&mut reading.parts, about, &mut found)?;
            if let Some(config) = &reading.config {
                found.retain(|entity| config.has(entity));
            }
        }
        if !found.is_empty() {
            forwarding.reads.open.insert(id.number, Ok(reading));
        }
        Ok(found)
    }

    /// Nobody wants the rest.
    pub fn close_read(&mut self, id: ReadId) {
        if let Some(forwarding) = self.reading(id) {
            forwarding.reads.open.remove(&id.number);
        }
    }

    /// The config that a reading is of.
    fn reading(&mut self, id: ReadId) -> Option<&mut Forwarding> {
        let device = self.devices.get_mut(&id.device_id)?;
        let configs = [device.saved.as_mut(), device.running.as_mut()].into_iter().flatten();
        configs.into_iter().find(|forwarding| forwarding.reads.open.contains_key(&id.number))
    }

    /// All of it at once, without what is not in a role's scope.
    pub fn read_as(
        &mut self,
        device_id: u64,
        role: &Role,
        entities: &[Option<Entity>],
    ) -> Result<(Vec<Entity>, Vec<Result<()>>)> {
        let (id, results) = self.open_read(device_id, role, entities)?;
        Ok((self.rest(id)?, results))
    }

    /// Reads what entities select at once: what was found, and one result per entity.
    pub fn read(&mut self, device_id: u64, entities: &[Option<Entity>]) -> Result<(Vec<Entity>, Vec<Result<()>>)> {
        let (id, results) = self.open(device_id, None, entities)?;
        Ok((self.rest(id)?, results))
    }

    fn rest(&mut self, id: ReadId) -> Result<Vec<Entity>> {
        let mut all = Vec::new();
        loop {
            let some = self.read_on(id, usize::MAX)?;
            if some.is_empty() {
                return Ok(all);
            }
            all.extend(some);
        }
    }
}

// What a reading consists of.
impl Forwarding {
    /// What all queries select, one after the other.
    pub(crate) fn everything(&self, queries: &[Entity]) -> Result<Everything<'_>> {
        let mut parts = VecDeque::new();
        queries.iter().try_for_each(|query| self.plan(query, &mut parts))?;
        Ok(Everything { of: self, parts, piece: Vec::new().into_iter() })
    }

    /// The parts of an answer to one entity.
    fn plan(&self, entity: &Entity, into: &mut VecDeque<Part>) -> Result<()> {
        let is_all = |entry: &TableEntry| entry.matches.is_empty() && !entry.is_default_action;
        match entity {
            Entity::Table(query) if is_all(query) => {
                for (query, table) in self.tables_to_read(query)? {
                    into.push_back(Part::Entries(EntryWalk::new(Query::Entry(query), table)));
                }
                return Ok(());
            }
            Entity::DirectCounter(query) => {
                let entry = query.table_entry.as_ref().filter(|entry| is_all(entry));
                if let Some(tables) = entry.and_then(|e| self.tables_with(e, ObjectKind::DirectCounter)) {
                    for (table_entry, table) in tables {
                        let query = DirectCounterEntry { table_entry: Some(table_entry), ..query.clone() };
                        into.push_back(Part::Entries(EntryWalk::new(Query::Counter(query), table)));
                    }
                    return Ok(());
                }
            }
            Entity::DirectMeter(query) => {
                let entry = query.table_entry.as_ref().filter(|entry| is_all(entry));
                if let Some(tables) = entry.and_then(|e| self.tables_with(e, ObjectKind::DirectMeter)) {
                    for (table_entry, table) in tables {
                        let query = DirectMeterEntry { table_entry: Some(table_entry), ..query.clone() };
                        into.push_back(Part::Entries(EntryWalk::new(Query::Meter(query), table)));
                    }
                    return Ok(());
                }
            }
            _ => {}
        }
        if let Some((id, kind)) = all_cells(entity) {
            for (id, size) in self.arrays_to_read(id, kind)? {
                let query = of_array(entity, id);
                // What is wrong with the query is wrong with each cell.
                if size > 0 {
                    self.read(&of_cell(&query, 0), &mut Vec::new())?;
                }
                into.push_back(Part::Cells(CellWalk { query, next: 0, size, before: BTreeMap::new() }));
            }
            return Ok(());
        }
        let mut found = Vec::new();
        let done = self.read(entity, &mut found);
        into.push_back(Part::Found(found));
        done
    }

    /// The tables that a read of direct resources of all entries is about; `None` if it is refused, by [`Forwarding::read`].
    fn tables_with(&self, query: &TableEntry, kind: ObjectKind) -> Option<Vec<(TableEntry, TableId)>> {
        let tables = self.schema.tables.iter().filter(|(id, _)| query.table_id == 0 || query.table_id == **id);
        let has = |table: &crate::schema::TableSchema| match kind {
            ObjectKind::DirectCounter => table.direct_counter.is_some(),
            _ => table.direct_meter.is_some(),
        };
        let found: Vec<_> = tables
            .filter(|(_, table)| has(table))
            .filter_map(|(id, table)| Some((TableEntry { table_id: *id, ..query.clone() }, table.target?)))
            .collect();
        (query.table_id == 0 || !found.is_empty()).then_some(found)
    }

    /// Arrays of a kind with their sizes: one by id, or all for 0.
    fn arrays_to_read(&self, id: u32, kind: ObjectKind) -> Result<Vec<(u32, u64)>> {
        if id != 0 {
            let array = self.schema.array_by_id(id, kind)?;
            crate::schema::present(array.target, kind, &array.name)?;
            return Ok(vec![(id, array.size)]);
        }
        let arrays = self.schema.arrays.iter().filter(|(_, array)| array.kind == kind && array.target.is_some());
        Ok(arrays.map(|(id, array)| (*id, array.size)).collect())
    }

    /// Takes about so many entities from the front of the queue.
    fn step(&self, parts: &mut VecDeque<Part>, about: usize, into: &mut Vec<Entity>) -> Result<()> {
        let at_end = match parts.front_mut() {
            None => return Ok(()),
            Some(Part::Found(found)) => {
                let rest = found.split_off(about.min(found.len()));
                into.append(&mut std::mem::replace(found, rest));
                found.is_empty()
            }
            Some(Part::Entries(walk)) => {
                into.append(&mut walk.before);
                if let Some(place) = walk.place {
                    let (entries, next) = self.state().walk(walk.table, place, about);
                    walk.place = next;
                    for found in entries {
                        if !walk.changed.is_empty() && walk.changed.contains(&key_of(&found)) {
                            continue;
                        }
                        into.extend(self.of_query(&walk.query, walk.table, &found)?);
                    }
                }
                walk.place.is_none()
            }
            Some(Part::Cells(walk)) => {
                let end = walk.size.min(walk.next.saturating_add(about as u64));
                for cell in walk.next..end {
                    match walk.before.remove(&cell) {
                        Some(before) => into.push(before),
                        None => self.read(&of_cell(&walk.query, cell), into)?,
                    }
                }
                walk.next = end;
                end == walk.size
            }
        };
        if at_end {
            parts.pop_front();
        }
        Ok(())
    }

    /// What a walk gives for an entry.
    fn of_query(&self, query: &Query, table: TableId, found: &abi::state::ReadEntry) -> Result<Vec<Entity>> {
        let entry = match query {
            Query::Entry(query) => query,
            Query::Counter(DirectCounterEntry { table_entry: Some(query), .. })
            | Query::Meter(DirectMeterEntry { table_entry: Some(query), .. }) => query,
            Query::Counter(_) | Query::Meter(_) => return Ok(vec![]),
        };
        let schema = self.schema.table_by_id(entry.table_id)?;
        let Some(selected) = self.selected(entry, table, schema, found) else { return Ok(vec![]) };
        let identity = || TableEntry {
            table_id: selected.table_id,
            matches: selected.matches.clone(),
            priority: selected.priority,
            ..Default::default()
        };
        // By the key as the data plane has it: an entry of don't cares alone cannot be asked for.
        let key = key_of(found);
        Ok(vec![match query {
            Query::Entry(_) => Entity::Table(selected),
            Query::Counter(_) => {
                let (_, counter) = schema.direct_counter.ok_or_else(|| Error::internal("the table has no counter"))?;
                self.direct_counter_of(identity(), &key, counter)?
            }
            Query::Meter(query) => {
                let (_, meter) = schema.direct_meter.ok_or_else(|| Error::internal("the table has no meter"))?;
                self.direct_meter_of(identity(), &key, meter, query.counter_data.is_some())?
            }
        }])
    }
}

// What writes do for open readings.
impl Forwarding {
    /// An entity is about to be written: readings that have not come to it keep it as it is.
    pub(crate) fn remember(&mut self, entity: &Entity) {
        let mut reads = std::mem::take(&mut self.reads);
        for reading in reads.open.values_mut().flatten() {
            for part in &mut reading.parts {
                match part {
                    Part::Found(_) => {}
                    Part::Entries(walk) => self.remember_entry(walk, entity),
                    Part::Cells(walk) => self.remember_cells(walk, entity),
                }
            }
        }
        reads.keep_bound();
        self.reads = reads;
    }

    fn remember_entry(&self, walk: &mut EntryWalk, entity: &Entity) {
        let (Some(place), Some(entry)) = (walk.place, entry_of(entity)) else { return };
        if entry.is_default_action {
            return;
        }
        // What has no key cannot be written either.
        let Ok((key, table)) = self.entry_key(entry) else { return };
        if table != walk.table || walk.changed.contains(&key) {
            return;
        }
        if let Ok(found) = self.state().entry(table, &key.0, key.1)
            && !self.state().is_before(table, place, &key.0, key.1)
        {
            walk.before.extend(self.of_query(&walk.query, table, &found).unwrap_or_default());
        }
        walk.changed.insert(key);
    }

    fn remember_cells(&self, walk: &mut CellWalk, entity: &Entity) {
        let Some((id, index)) = cell_of(entity) else { return };
        if cell_of(&walk.query).is_none_or(|(of, _)| of != id) || !same_kind(&walk.query, entity) {
            return;
        }
        let cells = match index {
            None => walk.next..walk.size,
            Some(index) => match u64::try_from(index) {
                Ok(cell) if (walk.next..walk.size).contains(&cell) => cell..cell + 1,
                _ => return,
            },
        };
        for cell in cells {
            if let std::collections::btree_map::Entry::Vacant(vacant) = walk.before.entry(cell) {
                let mut now = Vec::new();
                if self.read(&of_cell(&walk.query, cell), &mut now).is_ok()
                    && let Some(now) = now.pop()
                {
                    vacant.insert(now);
                }
            }
        }
    }
}

impl OpenReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Cuts off the readings that remember most, until all together remember no more than they may.
    fn keep_bound(&mut self) {
        let size = |reading: &std::result::Result<Reading, Error>| reading.as_ref().map_or(0, Reading::changes);
        while self.open.values().map(size).sum::<usize>() > CHANGES_MAX {
            let Some(most) = self.open.values_mut().max_by_key(|reading| size(reading)) else { return };
            let why = format!("more than {CHANGES_MAX} changes were made while reads were being answered; read again");
            *most = Err(Error::aborted(why));
        }
    }
}

impl Reading {
    fn changes(&self) -> usize {
        let of_part = |part: &Part| match part {
            Part::Found(_) => 0,
            Part::Entries(walk) => walk.changed.len(),
            Part::Cells(walk) => walk.before.len(),
        };
        self.parts.iter().map(of_part).sum()
    }
}

impl EntryWalk {
    fn new(query: Query, table: TableId) -> EntryWalk {
        EntryWalk { query, table, place: Some(0), changed: HashSet::new(), before: Vec::new() }
    }
}

fn key_of(found: &abi::state::ReadEntry) -> EntryKey {
    (found.entry.key.clone(), found.entry.priority)
}

/// The table entry that an update is about, if it is about one.
fn entry_of(entity: &Entity) -> Option<&TableEntry> {
    match entity {
        Entity::Table(entry) => Some(entry),
        Entity::DirectCounter(entry) => entry.table_entry.as_ref(),
        Entity::DirectMeter(entry) => entry.table_entry.as_ref(),
        _ => None,
    }
}

/// The array and the cell that an entity is about.
fn cell_of(entity: &Entity) -> Option<(u32, Option<i64>)> {
    match entity {
        Entity::Counter(entry) => Some((entry.counter_id, entry.index)),
        Entity::Meter(entry) => Some((entry.meter_id, entry.index)),
        Entity::Register(entry) => Some((entry.register_id, entry.index)),
        _ => None,
    }
}

fn same_kind(a: &Entity, b: &Entity) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// The id and kind of arrays of which an entity selects all cells.
fn all_cells(entity: &Entity) -> Option<(u32, ObjectKind)> {
    let kind = match entity {
        Entity::Counter(_) => ObjectKind::Counter,
        Entity::Meter(_) => ObjectKind::Meter,
        Entity::Register(_) => ObjectKind::Register,
        _ => return None,
    };
    // Of all arrays an index selects nothing in particular.
    let (id, _) = cell_of(entity).filter(|(id, index)| *id == 0 || index.is_none())?;
    Some((id, kind))
}

fn of_array(query: &Entity, id: u32) -> Entity {
    match query.clone() {
        Entity::Counter(entry) => Entity::Counter(entity::CounterEntry { counter_id: id, index: None, ..entry }),
        Entity::Meter(entry) => Entity::Meter(entity::MeterEntry { meter_id: id, index: None, ..entry }),
        Entity::Register(entry) => Entity::Register(entity::RegisterEntry { register_id: id, index: None, ..entry }),
        other => other,
    }
}

fn of_cell(query: &Entity, cell: u64) -> Entity {
    let index = Some(cell as i64);
    match query.clone() {
        Entity::Counter(entry) => Entity::Counter(entity::CounterEntry { index, ..entry }),
        Entity::Meter(entry) => Entity::Meter(entity::MeterEntry { index, ..entry }),
        Entity::Register(entry) => Entity::Register(entity::RegisterEntry { index, ..entry }),
        other => other,
    }
}
