//! Reads of any size: the answer is produced piece by piece, and is a consistent snapshot.
//!
//! ```text
//!   open_read ──▶ Reading: a queue of parts, one or more for each entity of the request
//!   read_on, read_on, ... ──▶ the next entities       each call holds the caller's lock for about a thousand entities
//!   writes ──▶ Forwarding::remember: saves what they are about to change for the readings that have not reached it
//! ```
//!
//! **Snapshot.** A reading sees everything as it was when it was opened, regardless of later writes (but counts are
//! those of the time when they are read). Nothing is copied in advance: large objects are walked in place
//! ([`PipelineState::walk`]). A write that changes an entry which an open walk has not reached yet first saves the old
//! entry in the walk, as in copy-on-write, together with its key, so that the walk does not return the new version. So
//! the memory of a reading depends on how much is *written* while it is open, not on how much there is. Writers never
//! wait for readers, nor readers for each other.
//!
//! **Limits.** Equal walks of one request are merged. A request has at most [`WALKS_MAX`] walks (of a table or an
//! array; more if the program has more of these), all open readings of a device together have at most
//! [`WALKS_OPEN_MAX`], and there are at most [`READS_MAX`] readings. Small objects (members, groups, replication, value
//! sets, digests, single entries) are read when the reading is opened, up to [`FOUND_BYTES_MAX`]. A query beyond any of
//! these limits is refused with RESOURCE_EXHAUSTED. [`Control::read_cost`] tells the memory of a reading, for callers
//! that account for memory by client.
//!
//! All readings of a device together save at most [`CHANGES_MAX`] changes; a change is counted once for each walk that
//! saves it. The limit is checked before each copy: when it would be exceeded, the reading with the most changes is
//! ended with ABORTED, and its client must drop what it received and read again. The same happens when the program is
//! replaced. For a write of all cells of an array, all walks of it share one copy of the cells ([`Copied`]).
//!
//! P4Runtime specification, "Read RPC". Threads: the caller's, one at a time. Tests:
//! `crates/sluice/src/target/snapshots.rs` on real tables, `crates/grpc/tests/load.rs`, `crates/tables/tests/walks.rs`.
//!
//! [`PipelineState::walk`]: abi::state::PipelineState::walk

use crate::control::Control;
use crate::entity::{self, DirectCounterEntry, DirectMeterEntry, Entity, Role, TableEntry};
use crate::error::{Error, Result};
use crate::forwarding::{EntryKey, Forwarding};
use crate::objects::Objects;
use crate::roles::RoleConfig;
use base::ids::TableId;
use p4info::ObjectKind;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Limit on the changes that all open readings of a program save: some hundred bytes each, so some tens of megabytes.
pub const CHANGES_MAX: usize = 1 << 17;
/// Limit on the readings that are open at a time.
pub const READS_MAX: usize = 1024;
/// Limit on the walks of a request, unless the program has more tables and arrays. Each write visits every open walk,
/// so their number bounds its latency.
pub const WALKS_MAX: usize = 256;
/// Limit on the walks of all open readings of a device: each costs a write a few nanoseconds, and a copy if it is of
/// the same table.
pub const WALKS_OPEN_MAX: usize = 4096;
/// Limit on the estimated bytes that a read request collects when it is opened; a request of a single query may exceed
/// it. It is about the memory limit of a few requests (16 MiB each).
pub const FOUND_BYTES_MAX: u64 = 64 << 20;
/// Cost of a reading besides what it has found, in bytes: messages of its answer in flight.
const READING_BYTES: u64 = 256 << 10;
/// Cost of a walk in bytes, chosen so that with the default limits one client's share of memory allows half of all
/// walks.
const WALK_BYTES: u64 = 128 << 10;

/// Identifies an open reading.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadId {
    device_id: u64,
    number: u64,
}

/// The open readings of a config.
#[derive(Default)]
pub(crate) struct OpenReads {
    open: HashMap<u64, std::result::Result<Reading, Error>>,
}

/// The rest of an answer.
pub(crate) struct Reading {
    parts: VecDeque<Part>,
    /// Its memory in bytes: see [`Control::read_cost`].
    cost: u64,
    /// The configuration of the role that reads.
    config: Option<RoleConfig>,
}

enum Part {
    /// Already read.
    Found(Vec<Entity>),
    Entries(EntryWalk),
    Cells(CellWalk),
}

/// The results of queries, read lazily; the borrow excludes writes meanwhile.
pub(crate) struct Everything<'a> {
    of: &'a Forwarding,
    parts: VecDeque<Part>,
    piece: std::vec::IntoIter<Entity>,
}

/// The approximate number of entities that it holds at a time.
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

/// A walk of all entries of a table, or of their direct resources.
struct EntryWalk {
    query: Query,
    table: TableId,
    /// Where the walk continues; `None` at the end of the table.
    place: Option<u64>,
    /// Entries that were changed since the reading was opened, and are not to be returned from the table.
    changed: HashSet<EntryKey>,
    /// Those entries as they were before, as far as the walk had not returned them.
    before: Vec<Entity>,
}

/// What a walk returns for an entry.
#[derive(Clone, PartialEq)]
enum Query {
    Entry(TableEntry),
    Counter(DirectCounterEntry),
    Meter(DirectMeterEntry),
}

/// A walk of all cells of an array.
struct CellWalk {
    /// The query for a cell, except for its index.
    query: Entity,
    next: u64,
    size: u64,
    /// Old values of the cells from `next` on that were changed since.
    before: BTreeMap<u64, Entity>,
    /// Old values of all other cells, if all were changed at once.
    whole: Option<Arc<Copied>>,
}

/// Cells of an array before all of them were written at once.
struct Copied {
    from: u64,
    cells: Vec<Option<Entity>>,
}

impl Copied {
    fn get(&self, cell: u64) -> Option<Entity> {
        self.cells.get(cell.checked_sub(self.from)? as usize)?.clone()
    }
}

/// The object of a write, as walks see it.
enum Change {
    Entry(TableId, EntryKey),
    /// An array, as an entity of its kind, and one cell or all.
    Cells(Box<Entity>, Option<u64>),
}

/// Error: there is no room to save this many changes.
struct Full(usize);
type Fits = std::result::Result<(), Full>;

impl Control {
    /// Opens a reading of what entities select. Returns for each entity whether it can be read; the results are fetched
    /// with [`Control::read_on`].
    ///
    /// # Errors
    ///
    /// NOT_FOUND for an unknown device, FAILED_PRECONDITION if it has no config, RESOURCE_EXHAUSTED if too many
    /// readings or walks are open, UNAVAILABLE while a batch is being written that it must wait for.
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
        let device = self.device(device_id)?;
        device.check_settled(|schema| Objects::of(schema, entities.iter().map(Option::as_ref)))?;
        let forwarding = device.current()?;
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

    /// The approximate memory of an open reading in bytes: what it has found, and what its walks may cause to be saved.
    pub fn read_cost(&mut self, id: ReadId) -> u64 {
        let open = self.reading(id).and_then(|forwarding| forwarding.reads.open.get(&id.number));
        open.and_then(|reading| reading.as_ref().ok()).map_or(0, |reading| reading.cost)
    }

    /// The next entities of an answer, approximately `about` of them. An empty result is the end; it closes the
    /// reading.
    ///
    /// # Errors
    ///
    /// ABORTED if the program was replaced, or if the reading was ended to limit memory.
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

    /// Closes a reading before its end.
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

    /// Reads everything at once, restricted to a role's scope.
    ///
    /// # Errors
    ///
    /// As for [`Control::open_read`] and [`Control::read_on`].
    pub fn read_as(
        &mut self,
        device_id: u64,
        role: &Role,
        entities: &[Option<Entity>],
    ) -> Result<(Vec<Entity>, Vec<Result<()>>)> {
        let (id, results) = self.open_read(device_id, role, entities)?;
        Ok((self.rest(id)?, results))
    }

    /// Reads what entities select at once. Returns the entities found, and one result per entity of the request.
    ///
    /// # Errors
    ///
    /// As for [`Control::open_read`] and [`Control::read_on`].
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

// Planning and producing answers.
impl Forwarding {
    /// The results of all queries, one after the other.
    pub(crate) fn everything(&self, queries: &[Entity]) -> Result<Everything<'_>> {
        let mut planned = Planned { walks_max: usize::MAX, bytes_max: u64::MAX, ..Planned::default() };
        queries.iter().try_for_each(|query| self.plan(query, &mut planned))?;
        Ok(Everything { of: self, parts: planned.parts, piece: Vec::new().into_iter() })
    }

    /// Adds the parts of the answer to one entity, unless an equal entity was already added.
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
                // An error in the query occurs for each cell, so one cell is enough to find it.
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

    /// The tables selected by a read of direct resources of all entries; `None` if [`Forwarding::read`] refuses the
    /// query.
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

    /// Arrays of a kind and their sizes in cells: the one with an id, or all for 0.
    fn arrays_to_read(&self, id: u32, kind: ObjectKind) -> Result<Vec<(u32, u64)>> {
        if id != 0 {
            let array = self.schema.array_by_id(id, kind)?;
            crate::schema::present(array.target, kind, &array.name)?;
            return Ok(vec![(id, array.size)]);
        }
        let arrays = self.schema.arrays.iter().filter(|(_, array)| array.kind == kind && array.target.is_some());
        Ok(arrays.map(|(id, array)| (*id, array.size)).collect())
    }

    /// Moves approximately `about` entities from the front of the queue.
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

    /// The result of a query for one entry.
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
        // Identified by the data plane's key: a query cannot name an entry whose fields are all don't-care.
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

// Saving old values for open readings.
impl Forwarding {
    /// Called before an entity is written: saves its present value in the readings that have not reached it.
    pub(crate) fn remember(&mut self, entity: &Entity) {
        let Some(change) = self.change_of(entity) else { return };
        let mut reads = std::mem::take(&mut self.reads);
        reads.remember(self, &change);
        self.reads = reads;
    }

    fn change_of(&self, entity: &Entity) -> Option<Change> {
        if let Some(entry) = entry_of(entity) {
            // An entity without a valid key cannot be written either.
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
            && !self.state().walk_has_passed(table, place, &key.0, key.1)
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

    /// Saves what is about to change in each reading, or ends readings that have saved too much.
    fn remember(&mut self, of: &Forwarding, change: &Change) {
        let mut room = CHANGES_MAX.saturating_sub(self.changes());
        // All walks of the array share one copy, wherever they are.
        let mut copies = Vec::new();
        let walks = self.open.values().flatten().flat_map(|reading| &reading.parts);
        let from = walks.filter_map(|part| part.without_copy(change)).min().unwrap_or(0);
        let numbers: Vec<u64> = self.open.keys().copied().collect();
        for number in numbers {
            while let Some(Ok(reading)) = self.open.get_mut(&number) {
                let Err(Full(more)) = reading.remember(of, change, from, &mut copies, &mut room) else { break };
                let size = |reading: &std::result::Result<Reading, Error>| reading.as_ref().map_or(0, Reading::changes);
                let most = self.open.iter().map(|(number, reading)| (size(reading), *number)).max();
                // A write that exceeds the whole limit by itself must not end the other readings.
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
    /// The position of a walk that needs a copy of all cells for this change.
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

/// The plan of a read request, extended query by query.
#[derive(Default)]
struct Planned {
    parts: VecDeque<Part>,
    /// Distinct queries that are answered by walks; at most one per walk.
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

    /// The parts that are walks. They come first, so that a search for an equal walk does not visit the many single
    /// entries of a request.
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

/// The approximate memory of an entity in bytes.
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

/// The table entry that an update is about, if any.
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

/// The id and kind of the arrays of which an entity selects all cells.
fn all_cells(entity: &Entity) -> Option<(u32, ObjectKind)> {
    let kind = match entity {
        Entity::Counter(_) => ObjectKind::Counter,
        Entity::Meter(_) => ObjectKind::Meter,
        Entity::Register(_) => ObjectKind::Register,
        _ => return None,
    };
    // For id 0 (all arrays) the index is ignored.
    let (id, _) = cell_of(entity).filter(|(id, index)| *id == 0 || index.is_none())?;
    Some((id, kind))
}

/// The query for all cells of an array. Values in a query select nothing, except whether a meter's counts are returned.
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

/// The query without values of counters and meters, which select nothing. `None` if the query cannot have any.
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
