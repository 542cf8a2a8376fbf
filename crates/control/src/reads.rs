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
//! **Bounds.** A read says what it wants as often as it likes: equal queries of a walk are one. A request has at most [`WALKS_MAX`]
//! walks (of a table or an array, as many as the program has in any case), all open readings of a device together at most
//! [`WALKS_OPEN_MAX`], and there are at most [`READS_MAX`] readings. Small things (members, groups, replication, value sets, digests, single
//! entries) are read when the reading is opened, [`FOUND_BYTES_MAX`] of them. Beyond any of that a query is refused with RESOURCE_EXHAUSTED.
//! [`Control::read_cost`] says what a reading takes, for whoever counts memory by client.
//!
//! All readings of a device together remember at most [`CHANGES_MAX`] changes, each of them a change once for each walk that it concerns. The
//! bound is kept before each copy: what would pass it cuts off the reading with most changes with ABORTED, as one is whose program is
//! replaced: what it saw until then must be dropped and read again. A write of all cells of an array is remembered by one copy of the cells
//! ([`Copied`]) that all walks of it share.
//!
//! P4Runtime specification, "Read RPC". Threads: the caller's, one at a time.
//! Tests: `crates/sluice/src/target/snapshots.rs` on real tables, `crates/grpc/tests/load.rs`, `crates/tables/tests/walks.rs`.
//!
//! [`PipelineState::walk`]: abi::state::PipelineState::walk

use crate::control::Control;
use crate::entity::{self, DirectCounterEntry, DirectMeterEntry, Entity, Role, TableEntry};
use crate::error::{Error, Result};
use crate::forwarding::{EntryKey, Forwarding};
use crate::roles::RoleConfig;
use base::ids::TableId;
use p4info::ObjectKind;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Changes that all open readings of a program remember: some hundred bytes each, so some tens of megabytes.
pub const CHANGES_MAX: usize = 1 << 17;
/// Readings that may be open at a time.
pub const READS_MAX: usize = 1024;
/// Walks of a request, or as many as the program has tables and arrays. Each write visits every open walk, so their number bounds its
/// latency.
pub const WALKS_MAX: usize = 256;
/// Walks of all open readings of a device: each costs a write a few nanoseconds, and one of its table a copy.
pub const WALKS_OPEN_MAX: usize = 4096;
/// Estimated bytes that a read request collects when it is opened; a request of one query may exceed it. As many as the memory of a few
/// requests (16 MiB each).
pub const FOUND_BYTES_MAX: u64 = 64 << 20;
/// What a reading takes besides what it has found: messages of its answer on the way.
const READING_BYTES: u64 = 256 << 10;
/// What a walk counts for: with the default limits of requests one client's part of all memory is half of all walks.
const WALK_BYTES: u64 = 128 << 10;

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
    /// What it takes: see [`Control::read_cost`].
    cost: u64,
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
#[derive(Clone, PartialEq)]
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
    /// All others, when all were changed at once.
    whole: Option<Arc<Copied>>,
}

/// Cells of an array as they were before all were written at once.
struct Copied {
    from: u64,
    cells: Vec<Option<Entity>>,
}

impl Copied {
    fn get(&self, cell: u64) -> Option<Entity> {
        self.cells.get(cell.checked_sub(self.from)? as usize)?.clone()
    }
}

/// What a write is about to change, as walks see it.
enum Change {
    Entry(TableId, EntryKey),
    /// An array by an entity of its kind, and one cell or all.
    Cells(Box<Entity>, Option<u64>),
}

/// There is no room to remember so many changes more.
struct Full(usize);
type Fits = std::result::Result<(), Full>;

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
        forwarding.settle_counts();
        let walks_open = forwarding.reads.walks();
        let most = WALKS_MAX.max(forwarding.schema.tables.len() + forwarding.schema.arrays.len());
        let mut planned = Planned { walks_max: most, bytes_max: FOUND_BYTES_MAX, ..Planned::default() };
        let missing = || Error::invalid("the entity's kind is missing; there is no read of everything");
        let plan = |entity: &Option<Entity>| forwarding.plan(entity.as_ref().ok_or_else(missing)?, &mut planned);
        let results: Vec<Result<()>> = entities.iter().map(plan).collect();
        if walks_open + planned.walks > WALKS_OPEN_MAX.max(most) {
            let why =
                format!("reads of {walks_open} tables and arrays are being answered, the limit is {WALKS_OPEN_MAX}");
            return Err(Error::exhausted(why));
        }
        let cost = READING_BYTES + planned.walks as u64 * WALK_BYTES + planned.bytes;
        forwarding.reads.open.insert(number, Ok(Reading { parts: planned.parts, cost, config }));
        Ok((ReadId { device_id, number }, results))
    }

    /// Bytes of memory that an open reading takes, about: what it has found and what its walks may make others remember.
    pub fn read_cost(&mut self, id: ReadId) -> u64 {
        let open = self.reading(id).and_then(|forwarding| forwarding.reads.open.get(&id.number));
        open.and_then(|reading| reading.as_ref().ok()).map_or(0, |reading| reading.cost)
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
        let mut planned = Planned { walks_max: usize::MAX, bytes_max: u64::MAX, ..Planned::default() };
        queries.iter().try_for_each(|query| self.plan(query, &mut planned))?;
        Ok(Everything { of: self, parts: planned.parts, piece: Vec::new().into_iter() })
    }

    /// The parts of an answer to one entity, unless another one has asked for them.
    fn plan(&self, entity: &Entity, into: &mut Planned) -> Result<()> {
        let normal = without_values(entity);
        let entity = normal.as_ref().unwrap_or(entity);
        if into.asked.contains(entity) {
            return Ok(());
        }
        let walks = into.walks;
        self.plan_new(entity, into)?;
        if into.walks > walks {
            into.asked.push(entity.clone());
        }
        Ok(())
    }

    fn plan_new(&self, entity: &Entity, into: &mut Planned) -> Result<()> {
        let is_all = |entry: &TableEntry| entry.matches.is_empty() && !entry.is_default_action;
        match entity {
            Entity::Table(query) if is_all(query) => {
                let found = self.tables_to_read(query)?.into_iter();
                return into.walk_tables(found.map(|(query, table)| (Query::Entry(query), table)));
            }
            Entity::DirectCounter(query) => {
                let entry = query.table_entry.as_ref().filter(|entry| is_all(entry));
                if let Some(tables) = entry.and_then(|e| self.tables_with(e, ObjectKind::DirectCounter)) {
                    let of = |(entry, table)| {
                        (Query::Counter(DirectCounterEntry { table_entry: Some(entry), ..query.clone() }), table)
                    };
                    return into.walk_tables(tables.into_iter().map(of));
                }
            }
            Entity::DirectMeter(query) => {
                let entry = query.table_entry.as_ref().filter(|entry| is_all(entry));
                if let Some(tables) = entry.and_then(|e| self.tables_with(e, ObjectKind::DirectMeter)) {
                    let of = |(entry, table)| {
                        (Query::Meter(DirectMeterEntry { table_entry: Some(entry), ..query.clone() }), table)
                    };
                    return into.walk_tables(tables.into_iter().map(of));
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
                into.walk_cells(query, size)?;
            }
            return Ok(());
        }
        let mut found = Vec::new();
        let done = self.read(entity, &mut found);
        into.found(found)?;
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
                    match walk.before.remove(&cell).or_else(|| walk.whole.as_ref()?.get(cell)) {
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
        let Some(change) = self.change_of(entity) else { return };
        let mut reads = std::mem::take(&mut self.reads);
        reads.remember(self, &change);
        self.reads = reads;
    }

    fn change_of(&self, entity: &Entity) -> Option<Change> {
        if let Some(entry) = entry_of(entity) {
            // What has no key cannot be written either.
            let (key, table) = self.schema.entry_key(entry).ok().filter(|_| !entry.is_default_action)?;
            return Some(Change::Entry(table, key));
        }
        let (id, index) = cell_of(entity)?;
        // A negative index selects nothing.
        let index = index.map(u64::try_from).transpose().ok()?;
        Some(Change::Cells(Box::new(of_array(entity, id)), index))
    }

    fn remember_entry(&self, walk: &mut EntryWalk, table: TableId, key: &EntryKey, room: &mut usize) -> Fits {
        let Some(place) = walk.place else { return Ok(()) };
        if table != walk.table || walk.changed.contains(key) {
            return Ok(());
        }
        *room = room.checked_sub(1).ok_or(Full(1))?;
        if let Ok(found) = self.state().entry(table, &key.0, key.1)
            && !self.state().is_before(table, place, &key.0, key.1)
        {
            walk.before.extend(self.of_query(&walk.query, table, &found).unwrap_or_default());
        }
        walk.changed.insert(key.clone());
        Ok(())
    }

    fn remember_cell(&self, walk: &mut CellWalk, cell: u64, room: &mut usize) -> Fits {
        let is_kept = walk.whole.is_some() || walk.before.contains_key(&cell);
        if is_kept || !(walk.next..walk.size).contains(&cell) {
            return Ok(());
        }
        *room = room.checked_sub(1).ok_or(Full(1))?;
        if let Some(now) = self.cell_now(&walk.query, cell) {
            walk.before.insert(cell, now);
        }
        Ok(())
    }

    fn remember_all_cells(
        &self,
        walk: &mut CellWalk,
        from: u64,
        copies: &mut Vec<(Entity, Arc<Copied>)>,
        room: &mut usize,
    ) -> Fits {
        if walk.whole.is_some() || walk.next >= walk.size {
            return Ok(());
        }
        if let Some((_, copy)) = copies.iter().find(|(query, _)| *query == walk.query) {
            walk.whole = Some(Arc::clone(copy));
            return Ok(());
        }
        let cells = usize::try_from(walk.size - from).unwrap_or(usize::MAX);
        *room = room.checked_sub(cells).ok_or(Full(cells))?;
        let cells = (from..walk.size).map(|cell| self.cell_now(&walk.query, cell)).collect();
        let copy = Arc::new(Copied { from, cells });
        copies.push((walk.query.clone(), Arc::clone(&copy)));
        walk.whole = Some(copy);
        Ok(())
    }

    fn cell_now(&self, query: &Entity, cell: u64) -> Option<Entity> {
        let mut now = Vec::new();
        self.read(&of_cell(query, cell), &mut now).ok()?;
        now.pop()
    }
}

impl OpenReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn walks(&self) -> usize {
        let walks = |reading: &Reading| reading.parts.iter().filter(|part| !matches!(part, Part::Found(_))).count();
        self.open.values().flatten().map(walks).sum()
    }

    fn changes(&self) -> usize {
        self.open.values().flatten().map(Reading::changes).sum()
    }

    /// Each reading remembers what is about to change, or is cut off.
    fn remember(&mut self, of: &Forwarding, change: &Change) {
        let mut room = CHANGES_MAX.saturating_sub(self.changes());
        // One copy does for all that walk the array, wherever they are.
        let mut copies = Vec::new();
        let walks = self.open.values().flatten().flat_map(|reading| &reading.parts);
        let from = walks.filter_map(|part| part.without_copy(change)).min().unwrap_or(0);
        let numbers: Vec<u64> = self.open.keys().copied().collect();
        for number in numbers {
            while let Some(Ok(reading)) = self.open.get_mut(&number) {
                let Err(Full(more)) = reading.remember(of, change, from, &mut copies, &mut room) else { break };
                let size = |reading: &std::result::Result<Reading, Error>| reading.as_ref().map_or(0, Reading::changes);
                let most = self.open.iter().map(|(number, reading)| (size(reading), *number)).max();
                // What is more than all may remember is nobody else's fault.
                let most = most.filter(|(changes, _)| *changes > 0 && more <= CHANGES_MAX);
                let why = format!(
                    "open reads of the device would remember more than {CHANGES_MAX} changes, and this one most of them; read again"
                );
                self.open.insert(most.map_or(number, |(_, most)| most), Err(Error::aborted(why)));
                room = CHANGES_MAX.saturating_sub(self.changes());
            }
        }
    }
}

impl Reading {
    fn remember(
        &mut self,
        of: &Forwarding,
        change: &Change,
        from: u64,
        copies: &mut Vec<(Entity, Arc<Copied>)>,
        room: &mut usize,
    ) -> Fits {
        self.parts.iter_mut().try_for_each(|part| match (part, change) {
            (Part::Entries(walk), Change::Entry(table, key)) => of.remember_entry(walk, *table, key, room),
            (Part::Cells(walk), Change::Cells(array, cell)) if walk.is_of(array) => match cell {
                Some(cell) => of.remember_cell(walk, *cell, room),
                None => of.remember_all_cells(walk, from, copies, room),
            },
            _ => Ok(()),
        })
    }

    fn changes(&self) -> usize {
        let of_part = |part: &Part| match part {
            Part::Found(_) => 0,
            Part::Entries(walk) => walk.changed.len(),
            Part::Cells(walk) => {
                let shared = walk.whole.as_ref().map_or(0, |copy| copy.cells.len().div_ceil(Arc::strong_count(copy)));
                walk.before.len() + shared
            }
        };
        self.parts.iter().map(of_part).sum()
    }
}

impl Part {
    /// Where a walk is that needs a copy of all cells for this change.
    fn without_copy(&self, change: &Change) -> Option<u64> {
        match (self, change) {
            (Part::Cells(walk), Change::Cells(array, None)) if walk.whole.is_none() && walk.is_of(array) => {
                Some(walk.next)
            }
            _ => None,
        }
    }
}

impl CellWalk {
    fn is_of(&self, array: &Entity) -> bool {
        same_kind(&self.query, array) && cell_of(&self.query).map(|(id, _)| id) == cell_of(array).map(|(id, _)| id)
    }
}

/// What a request will read, as it is found out query by query.
#[derive(Default)]
struct Planned {
    parts: VecDeque<Part>,
    /// Queries of the walks; as many as these at most.
    asked: Vec<Entity>,
    walks: usize,
    walks_max: usize,
    /// Estimated bytes of the entities found.
    bytes: u64,
    bytes_max: u64,
}

impl Planned {
    fn walk_tables(&mut self, tables: impl Iterator<Item = (Query, TableId)>) -> Result<()> {
        for (query, table) in tables {
            let same = |part: &Part| matches!(part, Part::Entries(walk) if walk.table == table && walk.query == query);
            if !self.parts_of_walks().any(same) {
                self.add(Part::Entries(EntryWalk::new(query, table)))?;
            }
        }
        Ok(())
    }

    fn walk_cells(&mut self, query: Entity, size: u64) -> Result<()> {
        let same = |part: &Part| matches!(part, Part::Cells(walk) if walk.query == query);
        if !self.parts_of_walks().any(same) {
            self.add(Part::Cells(CellWalk { query, next: 0, size, before: BTreeMap::new(), whole: None }))?;
        }
        Ok(())
    }

    /// Walks are looked through for equal ones; they come first, so that a request of many single entries costs no more.
    fn parts_of_walks(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().take(self.walks)
    }

    fn add(&mut self, walk: Part) -> Result<()> {
        if self.walks == self.walks_max {
            let max = self.walks_max;
            return Err(Error::exhausted(format!(
                "the read wants tables and arrays as a whole in more than {max} different queries; ask in several reads"
            )));
        }
        self.parts.insert(self.walks, walk);
        self.walks += 1;
        Ok(())
    }

    fn found(&mut self, found: Vec<Entity>) -> Result<()> {
        let bytes: u64 = found.iter().map(weight).sum();
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > self.bytes_max {
            let max = FOUND_BYTES_MAX >> 20;
            return Err(Error::exhausted(format!(
                "what the read selects takes more than {max} MiB; ask in several reads"
            )));
        }
        self.bytes += bytes;
        match self.parts.back_mut() {
            Some(Part::Found(before)) => before.extend(found),
            _ => self.parts.push_back(Part::Found(found)),
        }
        Ok(())
    }
}

/// Bytes that an entity takes in memory, about.
fn weight(entity: &Entity) -> u64 {
    const ALONE: u64 = 512;
    const PART: u64 = 96;
    let replicas = |of: &[entity::Replica]| of.iter().map(|replica| 1 + replica.backups.len()).sum::<usize>();
    let parts = match entity {
        Entity::Table(entry) => match &entry.action {
            Some(entity::TableAction::OneShot(set)) => 4 * set.actions.len(),
            _ => 0,
        },
        Entity::Group(group) => group.members.len(),
        Entity::MulticastGroup(group) => replicas(&group.replicas),
        Entity::CloneSession(session) => replicas(&session.replicas),
        Entity::ValueSet(set) => set.members.iter().map(|member| 1 + member.len()).sum(),
        _ => 0,
    };
    ALONE + PART * parts as u64
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

/// Asks for all cells of an array. What is said about a cell's value selects nothing, but for whether counts of a meter are wanted.
fn of_array(query: &Entity, id: u32) -> Entity {
    match query {
        Entity::Counter(_) => Entity::Counter(entity::CounterEntry { counter_id: id, ..Default::default() }),
        Entity::Meter(entry) => {
            let counter_data = entry.counter_data.map(|_| Default::default());
            Entity::Meter(entity::MeterEntry { meter_id: id, counter_data, ..Default::default() })
        }
        Entity::Register(_) => Entity::Register(entity::RegisterEntry { register_id: id, ..Default::default() }),
        other => other.clone(),
    }
}

/// The query without what selects nothing: what is said about a counter's or meter's value. `None` if there is none of that.
fn without_values(query: &Entity) -> Option<Entity> {
    match query {
        Entity::DirectCounter(entry) => {
            Some(Entity::DirectCounter(DirectCounterEntry { table_entry: entry.table_entry.clone(), data: None }))
        }
        Entity::DirectMeter(entry) => Some(Entity::DirectMeter(DirectMeterEntry {
            table_entry: entry.table_entry.clone(),
            config: None,
            counter_data: entry.counter_data.map(|_| Default::default()),
        })),
        _ => all_cells(query).map(|(id, _)| of_array(query, id)),
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
