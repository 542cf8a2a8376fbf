//! Putting a kept config back: its program, and everything that controllers had written into it.
//!
//! ```text
//!   Control::prepare ──▶ Preparation::restore ──▶ Control::put_back
//!        lock               without the lock           lock
//!
//!   caller:    compiles the program ──▶ writes entities into the state, in order
//!   threads:   decode parts of entities ──▶ check them against the program, when it is there
//! ```
//!
//! Entities are written in their order, and only by the caller; what does not depend on the state is done for several parts at a time, and
//! what does not depend on the program while that is compiled. The caller helps when it would wait. A restart is as long as this
//! takes, so nothing here is done twice.
//!
//! Memory: at most [`AHEAD`] parts are decoded and not yet written. Tests: `crates/store/tests`, `tests/py/test_restart.py`.

use crate::calls::NewEntry;
use crate::control::Control;
use crate::entity::{Entity, TableEntry, Update, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::{Forwarding, ForwardingConfig};
use crate::journal::{Slot, beside_default};
use crate::preparation::{Preparation, Prepared};
use crate::schema::Schema;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Parts that may be decoded before those in front of them are written.
const AHEAD: usize = 32;
/// Threads that decode and check, besides the caller's: writing takes about as long as both, so more would wait.
const THREADS_MAX: usize = 3;

/// Stored entities, split into parts in the order in which they must be written. Several threads fetch parts; each part is fetched once.
pub trait Parts: Sync {
    /// How many.
    fn count(&self) -> usize;
    /// Gives `each` the entities of one of them, in their order. The error says what is wrong with it.
    fn part(&self, at: usize, each: &mut dyn FnMut(Entity)) -> std::result::Result<(), String>;
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
        Line::new(parts).with_threads(|line| {
            let Prepared { config, built, .. } = self.run()?;
            let mut forwarding = Forwarding::new(target, built, config, None);
            forwarding.remove_initial_entries();
            line.begin_checks(Arc::clone(&forwarding.schema));
            let found = forwarding.restore(line)?;
            Ok(RestoredConfig { forwarding, found })
        })
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

    fn part(&self, _at: usize, each: &mut dyn FnMut(Entity)) -> std::result::Result<(), String> {
        std::mem::take(&mut *lock(&self.0)).into_iter().for_each(each);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entity as the caller writes it.
enum Checked {
    /// Checked against the program already; with what it was made of, if that is more.
    New(NewEntry, Option<Box<TableEntry>>),
    Other(Box<Entity>),
}

/// Parts on their way from who decodes them to who writes them.
struct Line<'a> {
    parts: &'a dyn Parts,
    /// Of the program, when it is there.
    schema: OnceLock<Arc<Schema>>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// The next part to be decoded.
    next: usize,
    /// Decoded before the program was there, and still to be checked.
    decoded: VecDeque<(usize, Vec<Entity>)>,
    /// Checked, and not yet written.
    ready: BTreeMap<usize, std::result::Result<Vec<Checked>, String>>,
    /// Parts that were written.
    written: usize,
    /// Nobody waits any more: all is written, or somebody has given up.
    ended: bool,
}

/// Ends the line when its owner goes, so that nobody waits for what does not come: the caller in any case, a thread by a panic.
struct Ends<'a, 'b> {
    line: &'b Line<'a>,
    is_caller: bool,
}

impl Drop for Ends<'_, '_> {
    fn drop(&mut self) {
        if self.is_caller || std::thread::panicking() {
            lock(&self.line.progress).ended = true;
            self.line.changed.notify_all();
        }
    }
}

impl<'a> Line<'a> {
    fn new(parts: &'a dyn Parts) -> Self {
        Line { parts, schema: OnceLock::new(), progress: Mutex::default(), changed: Condvar::new() }
    }

    /// Runs `f` while threads decode and check parts.
    fn with_threads<R>(&self, f: impl FnOnce(&Line<'a>) -> R) -> R {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = THREADS_MAX.min(cores - 1).min(self.parts.count());
        std::thread::scope(|scope| {
            let _end = Ends { line: self, is_caller: true };
            for _ in 0..threads {
                // Without it the caller does more.
                let _ = std::thread::Builder::new().name("restore".into()).spawn_scoped(scope, || self.run());
            }
            f(self)
        })
    }

    /// The program is there: parts can be checked.
    fn begin_checks(&self, schema: Arc<Schema>) {
        let _ = self.schema.set(schema);
        // Whoever has looked and found none waits by now.
        drop(lock(&self.progress));
        self.changed.notify_all();
    }

    fn wait<'b>(&'b self, progress: MutexGuard<'b, Progress>) -> MutexGuard<'b, Progress> {
        self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a part one step on, if there is one that may be; the lock is free meanwhile. Waits otherwise.
    fn step<'b>(&'b self, mut progress: MutexGuard<'b, Progress>) -> MutexGuard<'b, Progress> {
        let schema = self.schema.get();
        let earlier = schema.and_then(|_| progress.decoded.pop_front());
        let may_decode = progress.next < self.parts.count().min(progress.written + AHEAD);
        if earlier.is_none() && !may_decode {
            return self.wait(progress);
        }
        let at = earlier.as_ref().map_or(progress.next, |(at, _)| *at);
        progress.next += usize::from(earlier.is_none());
        drop(progress);
        let Some(schema) = schema else {
            let mut entities = Vec::new();
            let done = self.parts.part(at, &mut |entity| entities.push(entity));
            let mut progress = lock(&self.progress);
            match done {
                Ok(()) => progress.decoded.push_back((at, entities)),
                Err(why) => _ = progress.ready.insert(at, Err(why)),
            }
            self.changed.notify_all();
            return progress;
        };
        let mut checked = Vec::new();
        let mut check = |entity| checked.push(check(schema, entity));
        let mut done = Ok(());
        match earlier {
            Some((_, entities)) => entities.into_iter().for_each(check),
            None => done = self.parts.part(at, &mut check),
        }
        let mut progress = lock(&self.progress);
        progress.ready.insert(at, done.map(|()| checked));
        self.changed.notify_all();
        progress
    }

    /// What a thread does: steps while there is something to decode or check.
    fn run(&self) {
        let _end = Ends { line: self, is_caller: false };
        let mut progress = lock(&self.progress);
        while !progress.ended && (progress.next < self.parts.count() || !progress.decoded.is_empty()) {
            progress = self.step(progress);
        }
    }

    /// The part that is to be written next, once the program is there.
    fn take(&self, at: usize) -> Result<Vec<Checked>> {
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
            progress = self.step(progress);
        }
    }
}

/// Checks an entity as far as the program alone says.
fn check(schema: &Schema, entity: Entity) -> Checked {
    match entity {
        // Names get their numbers in the order in which they come up.
        Entity::Table(entry) if !schema.has_names() => match schema.new_entry(&entry) {
            // What `new` holds already is freed here, not by the caller.
            Some(new) => {
                let more = new.has_more.then(|| Box::new(TableEntry { matches: vec![], action: None, ..entry }));
                Checked::New(new, more)
            }
            None => Checked::Other(Box::new(Entity::Table(entry))),
        },
        other => Checked::Other(Box::new(other)),
    }
}

impl Forwarding {
    /// Writes kept entities.
    fn restore(&mut self, line: &Line<'_>) -> Result<Restored> {
        let mut restored = Restored::default();
        for at in 0..line.parts.count() {
            for entity in line.take(at)? {
                self.restore_checked(entity, &mut restored);
            }
        }
        Ok(restored)
    }

    fn restore_checked(&mut self, checked: Checked, restored: &mut Restored) {
        let ((what, id), done) = match checked {
            Checked::New(new, more) => (("an entry of table", new.table_id), self.insert_new(more.as_deref(), new)),
            Checked::Other(entity) => (owner(&entity), self.restore_one(*entity)),
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
        Entity::Calculation(_) => ("calculation", 0),
        Entity::DirectCounter(_) | Entity::DirectMeter(_) | Entity::Extern { .. } => ("entity", 0),
    }
}
