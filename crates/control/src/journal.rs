//! Persistence: journals what controllers write, so that it can be restored after the switch was killed.
//!
//! ```text
//!   Control::write ──▶ applied ──▶ changes, by key ──▶ Journal::append ──▶ ticket       under the caller's lock
//!   answer to the controller ◀── Journal::when_kept(ticket): durable ─────────┘         outside of it
//!                            ◀── failed: Control::roll_back undoes it ────────┘
//! ```
//!
//! A change is journalled after it was checked and applied, as the entity that would reproduce it: as the controller
//! sent it or, if the message does not describe the whole entity (a MODIFY that leaves parts unchanged, direct
//! resources), as it reads back. [`crate::restore`] writes those entities into the same program as a controller would.
//!
//! **Invariants.** A change that is not durable is neither acknowledged nor kept: if the journal fails, all changes
//! since its last durable ticket are undone in reverse order, and further writes are refused until it works again
//! ([`Control::revive`]); it is then rewritten from the current state. Keys are canonical: two messages that name the
//! same entity have the same key, and keys sort in the order in which entities must be restored (members, groups,
//! entries).
//!
//! Not journalled, because the data plane produces it: counts, meter buckets, and registers that programs write. What a
//! controller wrote into them is journalled. Tests: `crates/store/tests`, `tests/py/test_restart.py`.

use crate::bytes;
use crate::control::{Control, Device};
use crate::entity::{self, Entity, MatchValue, TableEntry, Update, UpdateKind, WriteRequest};
use crate::error::{Code, Error, Result};
use crate::forwarding::{Forwarding, ForwardingConfig};
use crate::reads::Everything;
use crate::schema::View;
use crate::tables::EntryExtras;
use abi::state::{Phase, ReadEntry};
use base::ids::TableId;
use std::collections::VecDeque;
use std::sync::Arc;

/// A position in the journal: everything up to it is durable once [`Journal::wait`] returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(pub u64);

/// Identifies an entity of a config; keys sort in the order in which entities are restored.
pub type Key = Vec<u8>;

/// One of a device's two configs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// The config that processes packets.
    Running,
    /// The config that is saved and not committed.
    Saved,
}

/// The new contents for a key.
#[derive(Clone, PartialEq, Debug)]
pub enum After {
    /// The entity of the update at this index of the request.
    Given(usize),
    /// This entity.
    Is(Box<Entity>),
    /// This value, in a config of [`Contents::Values`].
    Value(Vec<u8>),
    /// Deleted.
    Gone,
    /// Every key with this prefix is deleted.
    GoneBelow,
}

/// A change of one journalled entity.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The entity's key.
    pub key: Key,
    /// Its new contents.
    pub after: After,
}

/// The changes of one request, in order; either all of them become durable or none.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The device.
    pub device_id: u64,
    /// The config.
    pub slot: Slot,
    /// The request whose updates [`After::Given`] refers to.
    pub request: Arc<WriteRequest>,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// The new contents of a config slot.
pub enum Contents<'a> {
    /// Unchanged.
    Same,
    /// No config.
    Empty,
    /// This config with these entities.
    New(&'a ForwardingConfig, &'a mut dyn Iterator<Item = Result<(Key, Entity)>>),
    /// This program of an OpenFlow bridge, with values that only the bridge interprets.
    Values(&'a ForwardingConfig, &'a mut dyn Iterator<Item = (Key, Vec<u8>)>),
}

/// What is done once a ticket is durable, or the journal has failed.
pub type WhenKept = Box<dyn FnOnce(std::result::Result<(), String>) + Send>;

/// A journal of changes. Its error messages are for the operator: what happened, and what to do.
pub trait Journal: Send + Sync {
    /// Queues changes; does not wait for the disk.
    fn append(&self, batch: Batch) -> Ticket;
    /// The last ticket that is durable.
    fn kept(&self) -> Ticket;
    /// Calls `then` once a ticket is durable, or with an error if the journal fails before it gets there: at once, or
    /// later on a thread of the journal. So `then` must be short and may not use the journal. Nobody has to wait in a
    /// thread meanwhile.
    fn when_kept(&self, ticket: Ticket, then: WhenKept);
    /// As [`Journal::when_kept`], for a thread, which waits.
    ///
    /// # Errors
    ///
    /// The journal failed before it got there.
    fn wait(&self, ticket: Ticket) -> std::result::Result<(), String> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.when_kept(ticket, Box::new(move |done| _ = sender.send(done)));
        receiver.recv().unwrap_or_else(|_| Err("the journal was closed".to_string()))
    }
    /// Why the journal has failed; `None` while it works.
    fn failure(&self) -> Option<String>;
    /// Replaces a device's configs atomically; they are durable when it returns.
    fn replace(&self, device_id: u64, running: Contents, saved: Contents) -> std::result::Result<(), String>;
    /// Starts again after a failure. The caller must then replace all contents.
    fn reopen(&self) -> std::result::Result<(), String>;
    /// How often [`Journal::reopen`] succeeded. A device that has not replaced its contents since then is incomplete.
    fn reopened(&self) -> u64 {
        0
    }
}

/// A device's access to its journal.
pub(crate) struct Keeper {
    pub(crate) journal: Arc<dyn Journal>,
    device_id: u64,
    /// Applied changes that may not be durable yet, with what undoes them.
    pending: VecDeque<(Ticket, Slot, Undo)>,
    /// Whether changes are still to be undone that the journal did not make durable.
    is_undo_due: bool,
}

/// Undoes updates of a request: the entities as they were before them.
pub(crate) struct Undo {
    pub(crate) request: Arc<WriteRequest>,
    /// By update, each just before it; `None` for one that failed.
    pub(crate) before: Vec<Option<Image>>,
}

/// An entity before an update.
pub(crate) enum Image {
    Entities(Vec<Entity>),
    /// A table entry in the data plane's form; the controller's form is made only when it is needed.
    Entry(Box<(TableId, ReadEntry, Option<EntryExtras>)>),
}

impl Control {
    /// Starts to journal a device's config and entities. The current state is journalled at once, unless the journal
    /// already has it (`has_all`).
    ///
    /// # Errors
    ///
    /// The journal cannot store the current state.
    pub fn keep(&mut self, device_id: u64, journal: Arc<dyn Journal>, has_all: bool) -> Result<()> {
        let device = self.device(device_id)?;
        device.keeper = Some(Keeper { journal, device_id, pending: VecDeque::new(), is_undo_due: false });
        if has_all {
            return Ok(());
        }
        device.running.iter_mut().for_each(Forwarding::adopt_replication);
        device.keep_all()
    }

    /// A device's journal, if its state is persistent.
    pub fn journal(&self, device_id: u64) -> Option<Arc<dyn Journal>> {
        Some(Arc::clone(&self.devices.get(&device_id)?.keeper.as_ref()?.journal))
    }

    /// A device's journal and the ticket of its last change. What a reader saw is durable once that ticket is.
    pub fn last_change(&self, device_id: u64) -> Option<(Arc<dyn Journal>, Ticket)> {
        let keeper = self.devices.get(&device_id)?.keeper.as_ref()?;
        Some((Arc::clone(&keeper.journal), keeper.pending.back()?.0))
    }

    /// Undoes what the journal did not make durable when it failed. Changes that cannot be undone yet, because a worker
    /// may still use what that would change or a batch of updates is being written, are tried again at the end of the
    /// batch, with every write and with the time ([`Control::tick`]); until then writes are refused. No client reads
    /// such a change: who reads waits for the last change to be durable ([`Control::last_change`]).
    ///
    /// # Errors
    ///
    /// Some changes cannot be undone yet.
    pub fn roll_back(&mut self) -> Result<()> {
        self.devices.values_mut().map(Device::roll_back).fold(Ok(()), Result::and)
    }

    /// Does nothing while the journal works. After a failure, undoes what is not durable and reopens the journal.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE, with the reason, while the journal cannot be reopened.
    pub fn revive(&mut self) -> Result<()> {
        let Some(journal) = self.devices.values().find_map(|d| d.keeper.as_ref()).map(|k| Arc::clone(&k.journal))
        else {
            return Ok(());
        };
        let Some(failure) = journal.failure() else { return Ok(()) };
        self.roll_back()?;
        let refused = |why: &str| Error::unavailable(format!("writes are refused, they could not be kept: {why}"));
        journal.reopen().map_err(|_| refused(&failure))?;
        for device in self.devices.values_mut() {
            device.keep_all()?;
        }
        Ok(())
    }
}

impl Device {
    /// Replaces the journalled contents by the current state.
    pub(crate) fn keep_all(&self) -> Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let mut running = self.running.as_ref().map(|f| Ok((f, f.kept_entities()?))).transpose()?;
        let mut saved = self.saved.as_ref().map(|f| Ok((f, f.kept_entities()?))).transpose()?;
        keeper.replace(contents(&mut running), contents(&mut saved))
    }

    /// Journals a config that is about to run, in place of all others.
    pub(crate) fn keep_running(&self, new: &Forwarding) -> Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let mut entities = Some((new, new.kept_entities()?));
        keeper.replace(contents(&mut entities), Contents::Empty)
    }

    /// Journals a config that is about to be saved.
    pub(crate) fn keep_saved(&self, new: &Forwarding) -> Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let mut entities = Some((new, new.kept_entities()?));
        keeper.replace(Contents::Same, contents(&mut entities))
    }

    fn roll_back(&mut self) -> Result<()> {
        let done = self.try_roll_back();
        if let Some(keeper) = &mut self.keeper {
            keeper.is_undo_due = done.is_err();
        }
        done
    }

    /// Tries again to undo what could not be undone when the journal had failed, if there is something.
    pub(crate) fn undo_what_is_due(&mut self) {
        if self.keeper.as_ref().is_some_and(|keeper| keeper.is_undo_due) {
            // What fails is tried again the next time.
            let _ = self.roll_back();
        }
    }

    fn try_roll_back(&mut self) -> Result<()> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        if keeper.journal.failure().is_none() {
            return Ok(());
        }
        // What the batch has done so far cannot be told from what it would be rolled back to. It ends with its turn.
        if self.batches.iter().any(|batch| batch.strong_count() > 0) {
            return Err(Error::unavailable(
                "what was not written to disk cannot be rolled back yet: a batch of updates is being written",
            ));
        }
        let kept = keeper.journal.kept();
        while let Some((ticket, slot, undo)) = keeper.pending.pop_back() {
            let forwarding = match slot {
                Slot::Running => self.running.as_mut(),
                Slot::Saved => self.saved.as_mut(),
            };
            if let (true, Some(forwarding)) = (ticket > kept, forwarding)
                && let Err(error) = forwarding.undo(&undo)
            {
                keeper.pending.push_back((ticket, slot, undo));
                return Err(Error::unavailable(format!(
                    "what was not written to disk cannot be rolled back yet: {error}"
                )));
            }
        }
        Ok(())
    }
}

impl Keeper {
    /// Journals changes that were made. Returns their ticket.
    pub(crate) fn append(&mut self, batch: Batch, undo: Undo) -> Ticket {
        let kept = self.journal.kept();
        while self.pending.front().is_some_and(|(ticket, ..)| *ticket <= kept) {
            self.pending.pop_front();
        }
        let slot = batch.slot;
        let ticket = self.journal.append(batch);
        self.pending.push_back((ticket, slot, undo));
        ticket
    }

    fn replace(&self, running: Contents, saved: Contents) -> Result<()> {
        let done = self.journal.replace(self.device_id, running, saved);
        done.map_err(|why| Error::unavailable(format!("the config cannot be kept, so it stays as it was: {why}")))
    }
}

fn contents<'a>(of: &'a mut Option<(&'a Forwarding, impl Iterator<Item = Result<(Key, Entity)>>)>) -> Contents<'a> {
    match of {
        Some((forwarding, entities)) => Contents::New(&forwarding.config, entities),
        None => Contents::Empty,
    }
}

// Undoing.
impl Forwarding {
    /// Undoes the updates of a request. After an error it may be called again.
    fn undo(&mut self, undo: &Undo) -> Result<()> {
        let _phase = self.begin_phase(Phase::Undo);
        // The rest of the updates was not carried out.
        let updates = &undo.request.updates[..undo.before.len()];
        for (update, before) in updates.iter().zip(&undo.before).rev() {
            let (Some(entity), Some(before)) = (&update.entity, before) else { continue };
            let before = &self.image_as_sent(entity, before);
            let mut write = |kind, entity: &Entity| {
                let entity = Some(entity.clone());
                match self.write(&Update { kind, entity }) {
                    // An earlier update of the same request may already have done this.
                    Err(error) if matches!(error.code, Code::AlreadyExists | Code::NotFound) => Ok(()),
                    done => done,
                }
            };
            match update.kind {
                UpdateKind::Insert => write(UpdateKind::Delete, entity)?,
                UpdateKind::Delete => before.iter().try_for_each(|entity| write(UpdateKind::Insert, entity))?,
                UpdateKind::Modify => before.iter().try_for_each(|entity| write(UpdateKind::Modify, entity))?,
                UpdateKind::Unspecified => {}
            }
        }
        Ok(())
    }

    /// The entity that an update is about to change, as it is now.
    pub(crate) fn image(&self, update: &Update) -> Image {
        let changes = matches!(update.kind, UpdateKind::Modify | UpdateKind::Delete);
        let Some(entity) = update.entity.as_ref().filter(|_| changes) else { return Image::Entities(vec![]) };
        match entity {
            Entity::Table(entry) if self.is_plain(entry) => self.entry_image(entry),
            // An entity that cannot be read cannot be changed either.
            other => self.as_it_is(other).map(Image::Entities),
        }
        .unwrap_or(Image::Entities(vec![]))
    }

    /// Whether an entry has no direct resources.
    fn is_plain(&self, entry: &TableEntry) -> bool {
        let table = self.schema.tables.get(&entry.table_id);
        !entry.is_default_action && table.is_some_and(|t| t.direct_counter.is_none() && t.direct_meter.is_none())
    }

    fn entry_image(&self, entry: &TableEntry) -> Option<Image> {
        let (key, table) = self.schema.entry_key(entry).ok()?;
        let found = self.state().entry(table, &key.0, key.1).ok()?;
        let extras = self.extras(table, &key).cloned();
        Some(Image::Entry(Box::new((table, found, extras))))
    }

    /// The entities of an image, in the form of updates that would restore them.
    fn image_as_sent(&self, entity: &Entity, image: &Image) -> Vec<Entity> {
        match (image, entity) {
            (Image::Entities(entities), _) => entities.clone(),
            (Image::Entry(image), Entity::Table(entry)) => {
                let (table, found, extras) = &**image;
                let as_sent = self.entry_as_sent(entry.table_id, *table, found, extras.as_ref());
                as_sent.map(Entity::Table).into_iter().collect()
            }
            (Image::Entry(_), _) => vec![],
        }
    }
}

// From updates to changes.
impl Forwarding {
    /// The changes that an update, the one at this index of its request, has just made.
    pub(crate) fn change(&self, update: &Update, at: usize, into: &mut Vec<Change>) {
        let kind = update.kind;
        let Some(entity) = &update.entity else { return };
        let Ok(key) = self.key(entity) else { return };
        let after = match entity {
            _ if kind == UpdateKind::Delete => After::Gone,
            Entity::Table(entry) if kind == UpdateKind::Insert || self.replaces_whole(entry) => After::Given(at),
            Entity::Table(entry) => self.reads_back(entry),
            Entity::DirectCounter(entity::DirectCounterEntry { table_entry: Some(entry), .. })
            | Entity::DirectMeter(entity::DirectMeterEntry { table_entry: Some(entry), .. }) => self.reads_back(entry),
            // Such an update changes nothing.
            Entity::Counter(entity::CounterEntry { data: None, .. }) => return,
            Entity::Counter(entity::CounterEntry { index: None, .. })
            | Entity::Meter(entity::MeterEntry { index: None, .. })
            | Entity::Register(entity::RegisterEntry { index: None, .. }) => {
                into.push(Change { key: key.clone(), after: After::GoneBelow });
                After::Given(at)
            }
            _ => After::Given(at),
        };
        into.push(Change { key, after });
    }

    /// Whether a modification replaces the whole entry.
    fn replaces_whole(&self, entry: &TableEntry) -> bool {
        self.is_plain(entry) && entry.action.is_some()
    }

    fn reads_back(&self, entry: &TableEntry) -> After {
        let now = self.as_it_is(&Entity::Table(entry.clone())).and_then(|mut now| now.pop());
        now.filter(|now| self.is_kept(now)).map_or(After::Gone, |now| After::Is(Box::new(now)))
    }

    /// All entities of this config that must be journalled, with their keys; they are read lazily.
    pub(crate) fn kept_entities(&self) -> Result<impl Iterator<Item = Result<(Key, Entity)>>> {
        let all = self.all_entities()?.filter(|entity| entity.as_ref().map_or(true, |entity| self.is_kept(entity)));
        Ok(all.map(|entity| entity.and_then(|entity| Ok((self.key(&entity)?, without_time(entity))))))
    }

    /// All entities, in an order in which they can be written.
    fn all_entities(&self) -> Result<Everything<'_>> {
        let entries = TableEntry {
            counter_data: Some(Default::default()),
            meter_config: Some(Default::default()),
            ..Default::default()
        };
        let defaults = TableEntry { is_default_action: true, ..entries.clone() };
        self.everything(&[
            Entity::Member(Default::default()),
            Entity::Group(Default::default()),
            Entity::Table(entries),
            Entity::Table(defaults),
            Entity::Counter(Default::default()),
            Entity::Meter(Default::default()),
            Entity::Register(Default::default()),
            Entity::ValueSet(Default::default()),
            Entity::MulticastGroup(Default::default()),
            Entity::CloneSession(Default::default()),
            Entity::Digest(Default::default()),
            Entity::Calculation(Default::default()),
        ])
    }

    /// Whether an entity differs from what the program sets up by itself.
    fn is_kept(&self, entity: &Entity) -> bool {
        match entity {
            Entity::Table(entry) if entry.is_default_action => {
                !self.default_is_initial(entry.table_id)
                    || !entry.metadata.is_empty()
                    || entry.controller_metadata != 0
                    || entry.meter_config.is_some()
                    || entry.counter_data.is_some_and(|data| data != Default::default())
            }
            Entity::Table(entry) if entry.is_const || entry.action.is_none() => {
                entry.meter_config.is_some() || entry.counter_data.is_some_and(|data| data != Default::default())
            }
            Entity::Counter(entry) => entry.data.is_some_and(|data| data != Default::default()),
            Entity::Meter(entry) => entry.config.is_some(),
            Entity::Register(entry) => !self.is_initial(entry),
            Entity::ValueSet(entry) => !entry.members.is_empty(),
            Entity::Calculation(entry) => !self.calculation_is_initial(entry),
            _ => true,
        }
    }

    /// Whether a register's cell has its initial value.
    fn is_initial(&self, entry: &entity::RegisterEntry) -> bool {
        let target = self.schema.arrays.get(&entry.register_id).and_then(|array| array.target);
        let (Some(target), Some(index)) = (target, entry.index.and_then(|i| u64::try_from(i).ok())) else {
            return false;
        };
        match &self.schema.program.externs[target.index()].kind {
            ir::ExternKind::Register { initial, .. } => self.state().register(target, index).as_ref() == Ok(initial),
            _ => false,
        }
    }

    /// The key of an entity.
    fn key(&self, entity: &Entity) -> Result<Key> {
        let of = |kind: u8, numbers: &[u32]| {
            let mut key = vec![kind];
            numbers.iter().for_each(|n| key.extend(n.to_be_bytes()));
            key
        };
        let cell = |kind: u8, id: u32, index: Option<i64>| {
            let mut key = of(kind, &[id]);
            key.extend(index.iter().flat_map(|index| index.to_be_bytes()));
            key
        };
        Ok(match entity {
            Entity::Member(e) => of(1, &[e.action_profile_id, e.member_id]),
            Entity::Group(e) => of(2, &[e.action_profile_id, e.group_id]),
            Entity::Table(e) if e.is_default_action => of(3, &[e.table_id]),
            Entity::Table(e) => self.table_key(e)?,
            Entity::DirectCounter(entity::DirectCounterEntry { table_entry: Some(e), .. })
            | Entity::DirectMeter(entity::DirectMeterEntry { table_entry: Some(e), .. }) => {
                self.key(&Entity::Table(e.clone()))?
            }
            Entity::ValueSet(e) => of(5, &[e.value_set_id]),
            Entity::Counter(e) => cell(6, e.counter_id, e.index),
            Entity::Meter(e) => cell(7, e.meter_id, e.index),
            Entity::Register(e) => cell(8, e.register_id, e.index),
            Entity::MulticastGroup(e) => of(9, &[e.group_id]),
            Entity::CloneSession(e) => of(10, &[e.session_id]),
            Entity::Digest(e) => of(11, &[e.digest_id]),
            Entity::Calculation(e) => [&[12], e.name.as_bytes()].concat(),
            Entity::DirectCounter(_) | Entity::DirectMeter(_) | Entity::Extern { .. } => {
                return Err(Error::internal("such an entity has no identity"));
            }
        })
    }

    /// The key of a table entry: table, priority if the table's entries have one, and the match fields in key order,
    /// with their values in the shortest form. Short keys pay off: stores compare them often and hold the shortest ones
    /// inline.
    fn table_key(&self, entry: &TableEntry) -> Result<Key> {
        let table = self.schema.table_by_id(entry.table_id)?;
        let mut key = Vec::with_capacity(32);
        key.push(4);
        key.extend(entry.table_id.to_be_bytes());
        if table.needs_priority {
            key.extend(entry.priority.to_be_bytes());
        }
        for (place, field) in (0u32..).zip(&table.fields) {
            let Some(given) = entry.matches.iter().find(|m| m.field_id == field.id) else { continue };
            let is_number = matches!(field.value.view, View::Bits(_) | View::Wide(..));
            push_number(&mut key, place);
            let mut value = |value: &[u8]| {
                let value = if is_number { bytes::without_zeros(value) } else { value };
                push_number(&mut key, value.len() as u32);
                key.extend(value);
            };
            match &given.value {
                MatchValue::Exact(exact) | MatchValue::Optional(exact) => value(exact),
                MatchValue::Ternary { value: bits, mask } => [bits, mask].into_iter().for_each(|v| value(v)),
                MatchValue::Range { low, high } => [low, high].into_iter().for_each(|v| value(v)),
                MatchValue::Lpm { value: bits, prefix_len } => {
                    value(bits);
                    push_number(&mut key, *prefix_len as u32);
                }
                MatchValue::Unset | MatchValue::Other(_) => {}
            }
        }
        Ok(key)
    }
}

/// The direct resources of a default entry, as entities of their own.
pub(crate) fn default_resources(entry: &TableEntry) -> Vec<Entity> {
    let default = TableEntry { table_id: entry.table_id, is_default_action: true, ..Default::default() };
    let counter = entry.counter_data.filter(|data| *data != Default::default()).map(|data| {
        Entity::DirectCounter(entity::DirectCounterEntry { table_entry: Some(default.clone()), data: Some(data) })
    });
    let meter = entry.meter_config.map(|config| {
        let table_entry = Some(default.clone());
        Entity::DirectMeter(entity::DirectMeterEntry { table_entry, config: Some(config), counter_data: None })
    });
    counter.into_iter().chain(meter).collect()
}

/// Appends a number as LEB128: seven bits per byte, least significant first, with the top bit set in all but the last.
fn push_number(key: &mut Key, mut number: u32) {
    while number >= 0x80 {
        key.push(number as u8 | 0x80);
        number >>= 7;
    }
    key.push(number as u8);
}

fn without_time(entity: Entity) -> Entity {
    match entity {
        Entity::Table(entry) => Entity::Table(TableEntry { time_since_last_hit: None, ..entry }),
        other => other,
    }
}
