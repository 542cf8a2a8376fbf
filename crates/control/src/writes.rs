//! Batches of updates, written in turns.
//!
//! A batch may take hundreds of milliseconds, and nobody else's request is to wait that long. So it can be written in
//! turns: [`Control::begin_write`], then [`Control::write_on`] until that says that all is done. Between two turns the
//! caller lets other requests use the control plane.
//!
//! - **CONTINUE_ON_ERROR**: others may use other objects of the device between two turns, not those that the batch is
//!   about ([`crate::objects`]): the result must be as if one request had been carried out after the other (P4Runtime
//!   specification, "Parallelism of Read and Write Requests").
//! - **ROLLBACK_ON_ERROR, DATAPLANE_ATOMIC**: others may use nothing of the device. Its state is in the phase of a batch
//!   that may be rolled back ([`Phase`]) until this is finished.
//!
//! The caller keeps out requests that must wait, also those that change who is primary or which program runs, until the
//! batch is finished ([`Control::is_busy`]). Those that are made nevertheless are refused, UNAVAILABLE. Other devices are
//! not concerned.
//!
//! The whole batch is one change of the journal. If the journal fails meanwhile, the batch ends with its turn (one that is
//! atomic, when it is undone, which takes turns as well), and what is not durable is undone.
//!
//! Tests: `tests/p4runtime/batches.rs`; `crates/grpc/src/handle/tests.rs`.

use crate::control::{Control, Device, UPDATES_MAX};
use crate::entity::{Atomicity, Entity, Update, WriteRequest};
use crate::error::{Error, Result};
use crate::forwarding::{Forwarding, InPhase};
use crate::journal::{Batch, Change, Image, Slot, Ticket, Undo};
use crate::objects::Objects;
use crate::roles::Scope;
use crate::schema::Schema;
use abi::state::Phase;
use std::any::Any;
use std::sync::{Arc, Weak};

/// Limit on the updates of a batch during which packets are stopped, those of other devices too. Derived from 20 ms,
/// chosen as the longest stop, and 10 to 20 us for the dearest update, a ternary entry (`tables/examples/masks.rs`).
pub const HELD_UPDATES_MAX: usize = 1024;

/// Limit on the cells that such a batch writes by updates without an index. Derived from the same 20 ms and 300 ns a cell:
/// `sluice register set REGISTER all` takes 70 to 130 ns for each of a million cells, and a batch that may be rolled
/// back also reads each before it and may write it twice.
pub const HELD_CELLS_MAX: u64 = 1 << 16;

/// A batch that is being written.
pub struct Writing {
    /// Each config has a schema of its own.
    schema: Arc<Schema>,
    /// What the sender may write, as it was when the batch began: who disconnects gets no other rights.
    scope: Scope,
    results: Vec<Result<()>>,
    atomic: Option<Atomic>,
    /// For the journal: the changes, and by update the entity before it.
    changes: Vec<Change>,
    before: Vec<Option<Image>>,
    ticket: Option<Ticket>,
    /// What would have undone a batch that is finished. To free it takes milliseconds, which is not a part of a turn.
    undo: Vec<Update>,
    /// While this exists, others may not use these objects.
    objects: Option<Arc<Objects>>,
}

/// The state of a batch of which all updates are done, or none.
struct Atomic {
    /// Of the batch that is being rolled back.
    undoing: Option<Undoing>,
    /// The updates that undo those done, in order.
    undo: Vec<Update>,
    _phase: InPhase,
    /// Packet processing is stopped while this exists.
    _held: Option<Hold>,
}

struct Hold {
    /// [`Forwarding::held`] refers to it, so that the config knows of this without an end of the batch that must not be missed.
    is_held: Arc<()>,
    _packets: Box<dyn Any>,
}

struct Undoing {
    error: Error,
    _phase: InPhase,
}

/// What became of a batch.
pub struct Written {
    /// One result per update.
    pub results: Vec<Result<()>>,
    /// The change of the journal that must be durable before the answer.
    pub ticket: Option<Ticket>,
}

impl Writing {
    /// What became of the batch, all of which has been written.
    pub fn finish(self) -> Written {
        Written { results: self.results, ticket: self.ticket }
    }
}

/// Whether all updates of a request take effect or none.
pub fn is_atomic(request: &WriteRequest) -> bool {
    match request.atomicity {
        Atomicity::ContinueOnError => false,
        Atomicity::RollbackOnError => true,
        // A single update is atomic in any case.
        Atomicity::DataplaneAtomic => request.updates.len() > 1,
    }
}

/// Whether packets are stopped while a request is being written. It should be written in one turn then, so that they
/// are not stopped while others have theirs, nor stopped twice.
pub fn stops_packets(request: &WriteRequest) -> bool {
    request.atomicity == Atomicity::DataplaneAtomic && is_atomic(request)
}

impl Device {
    /// Whether a batch is being written that a request about some objects must wait for.
    fn is_busy(&self, objects: impl FnOnce(&Schema) -> Objects) -> bool {
        let mut batches = self.batches.iter().filter_map(Weak::upgrade).peekable();
        if batches.peek().is_none() {
            return false;
        }
        let current = self.saved.as_ref().or(self.running.as_ref());
        let objects = current.map_or(Objects::All, |forwarding| objects(&forwarding.schema));
        batches.any(|batch| batch.overlap(&objects))
    }

    /// Refuses a request about some objects while a batch is being written that it must wait for.
    pub(crate) fn check_settled(&self, objects: impl FnOnce(&Schema) -> Objects) -> Result<()> {
        match self.is_busy(objects) {
            false => Ok(()),
            true => Err(Error::unavailable("a batch of updates is being written to the device: try again")),
        }
    }
}

/// The cells that an update writes because it has no index; 0 for all other updates.
fn all_cells(schema: &Schema, update: &Update) -> u64 {
    let (id, index) = match &update.entity {
        Some(Entity::Counter(entry)) => (entry.counter_id, entry.index),
        Some(Entity::Meter(entry)) => (entry.meter_id, entry.index),
        Some(Entity::Register(entry)) => (entry.register_id, entry.index),
        _ => return 0,
    };
    let array = schema.arrays.get(&id).filter(|_| index.is_none());
    array.map_or(0, |array| array.size)
}

/// The objects that others may not use while a request is being written.
pub fn objects(schema: &Schema, request: &WriteRequest) -> Objects {
    match is_atomic(request) {
        true => Objects::All,
        false => Objects::of(schema, request.updates.iter().map(|update| update.entity.as_ref())),
    }
}

impl Control {
    /// Applies a batch of updates and returns one result per update.
    ///
    /// # Errors
    ///
    /// The whole request is refused and nothing was changed.
    pub fn write(&mut self, request: &WriteRequest) -> Result<Vec<Result<()>>> {
        let device = self.device(request.device_id)?;
        device.roles.check_primary(&request.role, request.election_id)?;
        match device.keeper {
            Some(_) => self.write_shared(&Arc::new(request.clone())),
            None => self.write_whole(request, None, false),
        }
    }

    /// As [`Control::write`], for a request that the journal shares.
    ///
    /// # Errors
    ///
    /// As for [`Control::write`]; UNAVAILABLE while the journal does not work.
    pub fn write_shared(&mut self, request: &Arc<WriteRequest>) -> Result<Vec<Result<()>>> {
        self.write_whole(request, Some(request), false)
    }

    /// Applies a batch for a local operator, who acts in the default role without a stream. It is journalled like a
    /// client's write.
    ///
    /// # Errors
    ///
    /// PERMISSION_DENIED while a client is primary of the default role; else as for [`Control::write`].
    pub fn write_as_operator(&mut self, request: &Arc<WriteRequest>) -> Result<Vec<Result<()>>> {
        self.write_whole(request, Some(request), true)
    }

    /// Whether a batch is being written to a device that a request about some objects must wait for.
    pub fn is_busy(&self, device_id: u64, objects: impl FnOnce(&Schema) -> Objects) -> bool {
        self.devices.get(&device_id).is_some_and(|device| device.is_busy(objects))
    }

    /// Begins to write a batch. Nothing is written yet.
    ///
    /// # Errors
    ///
    /// The whole request is refused: as for [`Control::write_shared`], and UNAVAILABLE while another batch is being
    /// written that this one must wait for.
    pub fn begin_write(&mut self, request: &Arc<WriteRequest>) -> Result<Writing> {
        self.begin(request, false)
    }

    /// Writes updates of a batch until all are done, or `enough` says that the turn is over; at least one. Returns
    /// whether all are done. `request` is the one that the batch was begun with.
    pub fn write_on(
        &mut self,
        request: &Arc<WriteRequest>,
        writing: &mut Writing,
        enough: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.turn(request, Some(request), writing, enough)
    }

    fn write_whole(
        &mut self,
        request: &WriteRequest,
        shared: Option<&Arc<WriteRequest>>,
        operator: bool,
    ) -> Result<Vec<Result<()>>> {
        let mut writing = self.begin(request, operator)?;
        while !self.turn(request, shared, &mut writing, &mut || false) {}
        Ok(writing.results)
    }

    fn begin(&mut self, request: &WriteRequest, operator: bool) -> Result<Writing> {
        self.check_sender(request, operator)?;
        let device = self.device(request.device_id)?;
        device.check_settled(|schema| objects(schema, request))?;
        let target = Arc::clone(&device.current()?.target);
        if request.updates.len() > UPDATES_MAX {
            let message = format!("{} updates in one request, the limit is {UPDATES_MAX}", request.updates.len());
            return Err(Error::exhausted(message));
        }
        if stops_packets(request) && request.updates.len() > HELD_UPDATES_MAX {
            return Err(Error::exhausted(format!(
                "{} updates in one request with DATAPLANE_ATOMIC, which stops all packets; the limit is {HELD_UPDATES_MAX}",
                request.updates.len()
            )));
        }
        let schema = &device.current()?.schema;
        let cells = request.updates.iter().fold(0u64, |sum, update| sum.saturating_add(all_cells(schema, update)));
        if stops_packets(request) && cells > HELD_CELLS_MAX {
            return Err(Error::exhausted(format!(
                "the updates without an index write more than {HELD_CELLS_MAX} cells, the limit with DATAPLANE_ATOMIC, \
                 which stops all packets"
            )));
        }
        if is_atomic(request) {
            device.look_for_idle();
        }
        let atomic = if is_atomic(request) {
            let stopped =
                |why| Error::unavailable(format!("nothing was changed, the packets could not be stopped: {why}"));
            let held = stops_packets(request).then(|| target.hold()).transpose().map_err(stopped)?;
            let forwarding = device.current()?;
            let held = held.map(|packets| Hold { is_held: Arc::new(()), _packets: packets });
            if let Some(hold) = &held {
                forwarding.held = Arc::downgrade(&hold.is_held);
            }
            let phase = forwarding.begin_phase(Phase::Atomic);
            Some(Atomic { undoing: None, undo: Vec::new(), _phase: phase, _held: held })
        } else {
            None
        };
        let scope = device.roles.scope(&request.role);
        let schema = Arc::clone(&device.current()?.schema);
        let objects = Arc::new(objects(&schema, request));
        device.batches.retain(|batch| batch.strong_count() > 0);
        device.batches.push(Arc::downgrade(&objects));
        Ok(Writing {
            schema,
            scope,
            results: Vec::with_capacity(request.updates.len()),
            atomic,
            changes: Vec::new(),
            before: Vec::new(),
            ticket: None,
            undo: Vec::new(),
            objects: Some(objects),
        })
    }

    /// Whether the sender may write now, and the journal works.
    fn check_sender(&mut self, request: &WriteRequest, operator: bool) -> Result<()> {
        let roles = &self.device(request.device_id)?.roles;
        match operator {
            true => roles.check_free()?,
            false => roles.check_primary(&request.role, request.election_id)?,
        }
        match self.device(request.device_id)?.keeper {
            Some(_) => self.revive(),
            None => Ok(()),
        }
    }

    /// Whether the config is the same as when the batch began. The sender need not be primary any more: a batch that has
    /// begun is finished, also if its sender disconnects.
    fn check_turn(&mut self, request: &WriteRequest, writing: &Writing) -> Result<()> {
        let now = self.device(request.device_id)?.current()?;
        match Arc::ptr_eq(&now.schema, &writing.schema) {
            true => Ok(()),
            false => Err(Error::aborted("another program was set while the batch was being written")),
        }
    }

    fn turn(
        &mut self,
        request: &WriteRequest,
        shared: Option<&Arc<WriteRequest>>,
        writing: &mut Writing,
        enough: &mut dyn FnMut() -> bool,
    ) -> bool {
        let same = self.check_turn(request, writing);
        let may_go_on = same.is_ok();
        if let Err(error) = same {
            writing.results.resize(request.updates.len(), Err(error));
        }
        let Ok(device) = self.device(request.device_id) else { return true };
        let kept = device.keeper.is_some();
        // Nothing that the batch does from here on would stay, and what others have done is undone only behind it.
        let failure = match writing.results.is_empty() {
            true => None,
            false => device.keeper.as_ref().and_then(|keeper| keeper.journal.failure()),
        };
        let slot = if device.saved.is_some() { Slot::Saved } else { Slot::Running };
        let Ok(forwarding) = device.current() else { return true };
        if let (true, Some(why)) = (may_go_on, &failure) {
            forwarding.cut_short(request, writing, why);
        }
        let done = match (may_go_on, writing.atomic.is_some()) {
            (false, _) => true,
            (true, false) => forwarding.write_some(request, writing, kept, enough),
            (true, true) => forwarding.write_all(request, writing, kept, enough),
        };
        if !done {
            return false;
        }
        if let Some(mut atomic) = writing.atomic.take() {
            writing.undo = std::mem::take(&mut atomic.undo);
        }
        writing.objects = None;
        let (changes, before) = (std::mem::take(&mut writing.changes), std::mem::take(&mut writing.before));
        if let (true, false, Some(shared), Some(keeper)) = (may_go_on, changes.is_empty(), shared, &mut device.keeper) {
            let batch = Batch { device_id: request.device_id, slot, request: Arc::clone(shared), changes };
            writing.ticket = Some(keeper.append(batch, Undo { request: Arc::clone(shared), before }));
        }
        device.undo_what_is_due();
        true
    }
}

impl Forwarding {
    /// Ends a batch after the journal has failed: the updates that are left are not carried out, and those of a batch of
    /// which all take effect or none are undone.
    fn cut_short(&mut self, request: &WriteRequest, writing: &mut Writing, why: &str) {
        let error = Error::unavailable(format!("not carried out, the changes could not be kept: {why}"));
        match &mut writing.atomic {
            None => writing.results.resize(request.updates.len(), Err(error)),
            Some(atomic) if atomic.undoing.is_none() && writing.results.len() < request.updates.len() => {
                atomic.undoing = Some(Undoing { error, _phase: self.begin_phase(Phase::Undo) });
            }
            Some(_) => {}
        }
    }

    /// Writes updates each of which succeeds or fails alone. Returns whether all are done.
    fn write_some(
        &mut self,
        request: &WriteRequest,
        writing: &mut Writing,
        kept: bool,
        enough: &mut dyn FnMut() -> bool,
    ) -> bool {
        for (at, update) in request.updates.iter().enumerate().skip(writing.results.len()) {
            let before = kept.then(|| self.image(update));
            let done = writing.scope.check(update.entity.as_ref()).and_then(|()| self.write(update));
            if kept {
                writing.before.push(before.filter(|_| done.is_ok()));
                if done.is_ok() {
                    self.change(update, at, &mut writing.changes);
                }
            }
            writing.results.push(done);
            if enough() {
                break;
            }
        }
        writing.results.len() == request.updates.len()
    }

    /// Writes all updates or none. After a failure the updates already done are undone in reverse order, and their
    /// results say so. Returns whether all is done.
    fn write_all(
        &mut self,
        request: &WriteRequest,
        writing: &mut Writing,
        kept: bool,
        enough: &mut dyn FnMut() -> bool,
    ) -> bool {
        let Some(atomic) = &mut writing.atomic else { return true };
        loop {
            let at = writing.results.len();
            if let Some(undoing) = &atomic.undoing {
                let undone = atomic.undo.pop().map(|update| self.write(&update));
                let (failed, of_others) = match undone {
                    Some(Ok(())) if enough() => return false,
                    Some(Ok(())) => continue,
                    None => {
                        let why = "rolled back: another update of the batch failed";
                        (undoing.error.clone(), Error::aborted(why))
                    }
                    Some(Err(error)) => {
                        let error = Error::internal(format!("the batch could not be rolled back: {error}"));
                        (error.clone(), error)
                    }
                };
                writing.results.clear();
                writing.results.resize(request.updates.len(), Err(of_others));
                writing.results[at] = Err(failed);
                (writing.changes, writing.before) = (Vec::new(), Vec::new());
                // Before the phase of the batch ends.
                atomic.undoing = None;
                return true;
            }
            let Some(update) = request.updates.get(at) else { return true };
            let (inverse, before) = (self.inverse(update), kept.then(|| self.image(update)));
            match writing.scope.check(update.entity.as_ref()).and_then(|()| self.write(update)) {
                Ok(()) => {
                    // Undone in reverse order.
                    atomic.undo.extend(inverse.into_iter().flatten());
                    writing.results.push(Ok(()));
                    if kept {
                        writing.before.push(before);
                        self.change(update, at, &mut writing.changes);
                    }
                }
                Err(error) => {
                    let phase = self.begin_phase(Phase::Undo);
                    atomic.undoing = Some(Undoing { error, _phase: phase });
                }
            }
            if enough() {
                return false;
            }
        }
    }
}
