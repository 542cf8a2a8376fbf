//! Putting a kept config back: its program, and everything that controllers had written into it.
//!
//! ```text
//!   Control::prepare ──▶ Preparation::restore ──▶ Control::put_back
//!        lock               without the lock           lock
//!
//!   parts of entities ──▶ threads: decode, check against the program ──▶ caller: write into the state, in order
//! ```
//!
//! Entities are written in their order, and only by the caller; what does not depend on the state is done for several parts at a time. The
//! caller helps when it would wait. A restart is as long as this takes, so nothing here is done twice.
//!
//! Memory: at most [`AHEAD`] parts are decoded and not yet written. Tests: `crates/store/tests`, `tests/py/test_restart.py`.

use crate::calls::NewEntry;
use crate::control::Control;
use crate::entity::{Entity, TableEntry, Update, UpdateKind};
use crate::error::{Error, Result};
use crate::journal::{Slot, beside_default};
use crate::pipeline::{Forwarding, ForwardingConfig};
use crate::preparation::{Preparation, Prepared};
use crate::schema::Schema;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Parts that may be decoded before those in front of them are written.
const AHEAD: usize = 32;
/// Threads that decode, besides the caller's: writing takes about as long as decoding, so more would wait.
const THREADS_MAX: usize = 3;

/// Stored entities, split into parts in the order in which they must be written. Several threads fetch parts; each part is fetched once.
pub trait Parts: Sync {
    /// How many.
    fn count(&self) -> usize;
    /// One of them. The error says what is wrong with it.
    fn part(&self, at: usize) -> std::result::Result<Vec<Entity>, String>;
}

/// What restoring a config found.
#[derive(Debug, Default)]
pub struct Restored {
    /// Entities that are back.
    pub entities: u64,
    /// Entities that the switch refuses now, and why: a port may be gone.
    pub refused: Vec<String>,
}

/// A config with its entities, ready to be a device's.
pub struct RestoredConfig {
    forwarding: Forwarding,
    found: Restored,
}

impl Preparation {
    /// Compiles and builds the program, and writes kept entities into it. Takes long; to be called without the control plane's lock.
    pub fn restore(self, parts: &dyn Parts) -> Result<RestoredConfig> {
        let target = Arc::clone(&self.target);
        let Prepared { config, built, .. } = self.run()?;
        let mut forwarding = Forwarding::new(target, built, config, None);
        forwarding.remove_initial_entries();
        let found = forwarding.restore(parts)?;
        Ok(RestoredConfig { forwarding, found })
    }
}

impl Control {
    /// Makes a restored config a device's, without a controller. Call it before [`Control::keep`].
    pub fn put_back(&mut self, device_id: u64, slot: Slot, restored: RestoredConfig) -> Result<Restored> {
        let RestoredConfig { forwarding, found } = restored;
        let device = self.device(device_id)?;
        match slot {
            Slot::Running => device.commit(forwarding)?,
            Slot::Saved => device.saved = Some(forwarding),
        }
        Ok(found)
    }

    /// Both steps at once: puts a config and its entities back.
    pub fn restore(
        &mut self,
        device_id: u64,
        slot: Slot,
        config: ForwardingConfig,
        entities: Vec<Entity>,
    ) -> Result<Restored> {
        let restored = self.prepare(device_id, config, false)?.restore(&Whole(Mutex::new(entities)))?;
        self.put_back(device_id, slot, restored)
    }
}

/// One part.
struct Whole(Mutex<Vec<Entity>>);

impl Parts for Whole {
    fn count(&self) -> usize {
        1
    }

    fn part(&self, _at: usize) -> std::result::Result<Vec<Entity>, String> {
        Ok(std::mem::take(&mut *lock(&self.0)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entity as the caller writes it.
enum Decoded {
    /// Checked against the program already; what stands beside key and action.
    New(TableEntry, NewEntry),
    Other(Entity),
}

/// Parts on their way from who decodes them to who writes them.
struct Line<'a> {
    parts: &'a dyn Parts,
    schema: &'a Schema,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// The next part to be decoded.
    next: usize,
    /// Parts that were written.
    written: usize,
    /// Decoded, and not yet written.
    ready: BTreeMap<usize, std::result::Result<Vec<Decoded>, String>>,
    /// Somebody has given up.
    ended: bool,
}

/// Ends the line when one of those at it is gone, by an error or a panic: nobody waits for a part that does not come.
struct AtLine<'a, 'b>(&'b Line<'a>);

impl Drop for AtLine<'_, '_> {
    fn drop(&mut self) {
        let finished = lock(&self.0.progress).next >= self.0.parts.count();
        if std::thread::panicking() || !finished {
            lock(&self.0.progress).ended = true;
            self.0.changed.notify_all();
        }
    }
}

impl Line<'_> {
    fn wait<'b>(&'b self, progress: MutexGuard<'b, Progress>) -> MutexGuard<'b, Progress> {
        self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes a part that is nobody's yet; the lock is free meanwhile.
    fn decode_next<'b>(&'b self, mut progress: MutexGuard<'b, Progress>) -> MutexGuard<'b, Progress> {
        let at = progress.next;
        progress.next += 1;
        drop(progress);
        let part = self.parts.part(at).map(|entities| entities.into_iter().map(|e| self.decoded(e)).collect());
        let mut progress = lock(&self.progress);
        progress.ready.insert(at, part);
        self.changed.notify_all();
        progress
    }

    fn decoded(&self, entity: Entity) -> Decoded {
        match entity {
            // Names get their numbers in the order in which they come up.
            Entity::Table(entry) if !self.schema.has_names() => match self.schema.new_entry(&entry) {
                // What `new` holds already is freed here, not by the caller.
                Some(new) => Decoded::New(TableEntry { matches: vec![], action: None, ..entry }, new),
                None => Decoded::Other(Entity::Table(entry)),
            },
            other => Decoded::Other(other),
        }
    }

    /// What a thread does: decodes while there is something to decode.
    fn run(&self) {
        let _here = AtLine(self);
        let mut progress = lock(&self.progress);
        while progress.next < self.parts.count() && !progress.ended {
            progress = match progress.next < progress.written + AHEAD {
                true => self.decode_next(progress),
                false => self.wait(progress),
            };
        }
    }

    /// The part that is to be written next.
    fn take(&self, at: usize) -> Result<Vec<Decoded>> {
        let mut progress = lock(&self.progress);
        progress.written = at;
        self.changed.notify_all();
        loop {
            if let Some(part) = progress.ready.remove(&at) {
                return part.map_err(Error::internal);
            }
            if progress.ended {
                return Err(Error::internal("a thread that decoded kept entities has panicked"));
            }
            progress = match progress.next < self.parts.count() {
                true => self.decode_next(progress),
                false => self.wait(progress),
            };
        }
    }
}

impl Forwarding {
    /// Writes kept entities.
    fn restore(&mut self, parts: &dyn Parts) -> Result<Restored> {
        let schema = Arc::clone(&self.schema);
        let line = &Line { parts, schema: &schema, progress: Mutex::default(), changed: Condvar::new() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = THREADS_MAX.min(cores - 1).min(parts.count().saturating_sub(1));
        std::thread::scope(|scope| {
            let _here = AtLine(line);
            for _ in 0..threads {
                // Without it the caller decodes more.
                let _ = std::thread::Builder::new().name("restore".into()).spawn_scoped(scope, move || line.run());
            }
            let mut restored = Restored::default();
            for at in 0..parts.count() {
                for entity in line.take(at)? {
                    self.restore_decoded(entity, &mut restored);
                }
            }
            Ok(restored)
        })
    }

    fn restore_decoded(&mut self, decoded: Decoded, restored: &mut Restored) {
        let ((what, id), done) = match decoded {
            Decoded::New(sent, new) => (("an entry of table", sent.table_id), self.insert_new(&sent, new)),
            Decoded::Other(entity) => (owner(&entity), self.restore_one(entity)),
        };
        match done {
            Ok(()) => restored.entities += 1,
            Err(error) => restored.refused.push(format!("{what} {}: {error}", self.schema.name_for(id))),
        }
    }

    /// Entries that the program begins with and controllers may delete: those that are still there are kept as any others.
    fn remove_initial_entries(&mut self) {
        let tables: Vec<_> = self.schema.tables.values().filter_map(|t| t.target).collect();
        for table in tables {
            for found in self.state().entries(table) {
                let key = (found.entry.key, found.entry.priority);
                if !self.is_const_entry(table, &key) {
                    // It was there a moment ago, and nothing else changes a config that is being built.
                    let _ = self.state().delete(table, &key.0, key.1);
                }
            }
        }
    }

    /// Writes a kept entity.
    fn restore_one(&mut self, entity: Entity) -> Result<()> {
        if let Entity::Table(entry) = &entity
            && entry.is_default_action
            && self.schema.tables.get(&entry.table_id).is_some_and(|table| table.const_default)
        {
            return self.restore_beside_default(entry);
        }
        let (kind, entity) = match entity {
            Entity::Table(entry) if entry.is_default_action => {
                (UpdateKind::Modify, Entity::Table(TableEntry { is_const: false, ..entry }))
            }
            // Of a constant entry only what stands beside it can have been written.
            Entity::Table(entry) if entry.is_const || entry.action.is_none() => {
                (UpdateKind::Modify, Entity::Table(TableEntry { is_const: false, action: None, ..entry }))
            }
            Entity::Table(_) | Entity::Member(_) | Entity::Group(_) => (UpdateKind::Insert, entity),
            Entity::MulticastGroup(_) | Entity::CloneSession(_) | Entity::Digest(_) => (UpdateKind::Insert, entity),
            other => (UpdateKind::Modify, other),
        };
        self.write(&Update { kind, entity: Some(entity) })
    }

    /// Of a constant default entry only what stands beside it can have been written.
    fn restore_beside_default(&mut self, entry: &TableEntry) -> Result<()> {
        for entity in beside_default(entry) {
            self.write(&Update { kind: UpdateKind::Modify, entity: Some(entity) })?;
        }
        Ok(())
    }
}

/// What an entity belongs to: how to name it when it cannot be restored.
fn owner(entity: &Entity) -> (&'static str, u32) {
    match entity {
        Entity::Table(e) => ("an entry of table", e.table_id),
        Entity::Member(e) => ("a member of action profile", e.action_profile_id),
        Entity::Group(e) => ("a group of action profile", e.action_profile_id),
        Entity::Counter(e) => ("a cell of counter", e.counter_id),
        Entity::Meter(e) => ("a cell of meter", e.meter_id),
        Entity::Register(e) => ("a cell of register", e.register_id),
        Entity::ValueSet(e) => ("value set", e.value_set_id),
        Entity::Digest(e) => ("digest", e.digest_id),
        Entity::MulticastGroup(e) => ("multicast group", e.group_id),
        Entity::CloneSession(e) => ("clone session", e.session_id),
        Entity::DirectCounter(_) | Entity::DirectMeter(_) | Entity::Extern { .. } => ("entity", 0),
    }
}
