//! Restores a journalled config: its program, and everything that controllers had written into it.
//!
//! ```text
//!   Control::prepare ──▶ Preparation::restore ──▶ Control::install_restored
//!        lock               without the lock           lock
//!
//!   caller:    compiles the program ──▶ writes entities into the state, in order
//!   threads:   decode parts of entities ──▶ check them against the program, once it is compiled
//! ```
//!
//! Only the caller writes entities, in their order. Work that does not depend on the state is done for several parts in
//! parallel, and work that does not depend on the program is done while it is compiled. The caller helps instead of
//! waiting. The time of a restart is dominated by this, so nothing here is done twice.
//!
//! Memory: at most [`AHEAD`] parts are decoded and not yet written. Tests: `crates/store/tests`,
//! `tests/py/test_restart.py`.

use crate::calls::NewEntry;
use crate::control::Control;
use crate::entity::{Entity, TableEntry, Update, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::{Forwarding, ForwardingConfig};
use crate::journal::{Slot, default_resources};
use crate::objects::Objects;
use crate::preparation::{Preparation, Prepared};
use crate::schema::Schema;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Limit on the parts that are decoded before those in front of them are written.
const AHEAD: usize = 32;
/// Limit on the threads that decode and check, besides the caller's. Writing takes about as long as both, so more
/// threads would idle.
const THREADS_MAX: usize = 3;

/// Stored entities, split into parts in the order in which they must be written. Several threads fetch parts; each part
/// is fetched once.
pub trait Parts: Sync {
    /// The number of parts.
    fn count(&self) -> usize;
    /// Calls `each` with the entities of a part, in order. The error says what is wrong with the part.
    fn part(&self, at: usize, each: &mut dyn FnMut(Entity)) -> std::result::Result<(), String>;
}

/// The result of restoring a config.
#[derive(Debug, Default)]
pub struct Restored {
    /// Number of entities restored.
    pub entities: u64,
    /// Entities that the switch refuses now, with the reason; a port may no longer exist, for example.
    pub refused: Vec<String>,
}

/// A config with its entities, ready to become a device's.
pub struct RestoredConfig {
    forwarding: Forwarding,
    found: Restored,
}

impl Preparation {
    /// Compiles and builds the program, and writes the journalled entities into its state. It takes long and must be
    /// called without the control plane's lock.
    ///
    /// # Errors
    ///
    /// The program is refused, or a part cannot be decoded.
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
    /// Installs a restored config without a client. It must be called before [`Control::keep`].
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if the switch cannot run it.
    pub fn install_restored(&mut self, device_id: u64, slot: Slot, restored: RestoredConfig) -> Result<Restored> {
        let RestoredConfig { forwarding, found } = restored;
        let device = self.device(device_id)?;
        device.check_settled(|_| Objects::All)?;
        match slot {
            Slot::Running => device.commit(forwarding)?,
            Slot::Saved => device.saved = Some(forwarding),
        }
        Ok(found)
    }

    /// Restores a config and its entities in one call.
    ///
    /// # Errors
    ///
    /// The program is refused, or the switch cannot run it.
    pub fn restore(
        &mut self,
        device_id: u64,
        slot: Slot,
        config: ForwardingConfig,
        entities: Vec<Entity>,
    ) -> Result<Restored> {
        let restored = self.prepare(device_id, config, false)?.restore(&Whole(Mutex::new(entities)))?;
        self.install_restored(device_id, slot, restored)
    }
}

/// All entities as one part.
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

/// An entity, ready for the caller to write it.
enum Checked {
    /// Already checked against the program; with the entry as sent, if that has more parts.
    New(NewEntry, Option<Box<TableEntry>>),
    Other(Box<Entity>),
}

/// The queue of parts between the threads that decode them and the caller that writes them.
struct Line<'a> {
    parts: &'a dyn Parts,
    /// The program's schema, once it is compiled.
    schema: OnceLock<Arc<Schema>>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// The next part to be decoded.
    next: usize,
    /// Parts decoded before the program was compiled, and still to be checked.
    decoded: VecDeque<(usize, Vec<Entity>)>,
    /// Parts checked, and not yet written.
    ready: BTreeMap<usize, std::result::Result<Vec<Checked>, String>>,
    /// Number of parts written.
    written: usize,
    /// No thread may wait any longer: all parts are written, or the caller or a thread has given up.
    ended: bool,
}

/// Guard that ends the queue, so that no thread waits forever: when the caller drops it, or when a thread panics.
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
                // If no thread can be started, the caller does more of the work.
                let _ = std::thread::Builder::new().name("restore".into()).spawn_scoped(scope, || self.run());
            }
            f(self)
        })
    }

    /// Announces that the program is compiled, so that parts can be checked.
    fn begin_checks(&self, schema: Arc<Schema>) {
        let _ = self.schema.set(schema);
        // Taking the lock ensures that every thread that saw no schema is waiting by now.
        drop(lock(&self.progress));
        self.changed.notify_all();
    }

    fn wait<'b>(&'b self, progress: MutexGuard<'b, Progress>) -> MutexGuard<'b, Progress> {
        self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes or checks one part, if there is one that may be, without holding the lock. Waits otherwise.
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

    /// The body of a thread: decodes and checks parts while there are any.
    fn run(&self) {
        let _end = Ends { line: self, is_caller: false };
        let mut progress = lock(&self.progress);
        while !progress.ended && (progress.next < self.parts.count() || !progress.decoded.is_empty()) {
            progress = self.step(progress);
        }
    }

    /// The part at an index, once it is checked; helps or waits until then.
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

/// Checks an entity as far as that is possible with the program alone.
fn check(schema: &Schema, entity: Entity) -> Checked {
    match entity {
        // Mapped values get their numbers in the order in which they first occur, so these entries are checked in
        // order.
        Entity::Table(entry) if !schema.has_names() => match schema.new_entry(&entry) {
            // What `new` already holds is dropped here, in this thread, and not in the caller's.
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
    /// Writes the journalled entities.
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

    /// Removes the entries that the program starts with and controllers may delete; those that still existed are in the
    /// journal like any others.
    fn remove_initial_entries(&mut self) {
        let tables: Vec<_> = self.schema.tables.values().filter_map(|t| t.target).collect();
        for table in tables {
            for found in self.state().entries(table) {
                let key = (found.entry.key, found.entry.priority);
                if !self.is_const_entry(table, &key) {
                    // It existed a moment ago, and nothing else changes a config that is being built.
                    let _ = self.state().delete(table, &key.0, key.1);
                }
            }
        }
    }

    /// Writes one journalled entity.
    fn restore_one(&mut self, entity: Entity) -> Result<()> {
        if let Entity::Table(entry) = &entity
            && entry.is_default_action
            && self.schema.tables.get(&entry.table_id).is_some_and(|table| table.const_default)
        {
            return self.restore_default_resources(entry);
        }
        let (kind, entity) = match entity {
            Entity::Table(entry) if entry.is_default_action => {
                (UpdateKind::Modify, Entity::Table(TableEntry { is_const: false, ..entry }))
            }
            // Only the direct resources of a constant entry can have been written.
            Entity::Table(entry) if entry.is_const || entry.action.is_none() => {
                (UpdateKind::Modify, Entity::Table(TableEntry { is_const: false, action: None, ..entry }))
            }
            Entity::Table(_) | Entity::Member(_) | Entity::Group(_) => (UpdateKind::Insert, entity),
            Entity::MulticastGroup(_) | Entity::CloneSession(_) | Entity::Digest(_) => (UpdateKind::Insert, entity),
            other => (UpdateKind::Modify, other),
        };
        self.write(&Update { kind, entity: Some(entity) })
    }

    /// Writes the direct resources of a constant default entry; nothing else of it can have been written.
    fn restore_default_resources(&mut self, entry: &TableEntry) -> Result<()> {
        for entity in default_resources(entry) {
            self.write(&Update { kind: UpdateKind::Modify, entity: Some(entity) })?;
        }
        Ok(())
    }
}

/// Describes an entity that cannot be restored: noun and id of the object that it belongs to.
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
