//! `sluice run --openflow --state DIR`: stores a bridge's state, in the same journal as that of P4 devices.
//!
//! ```text
//! bridge (flows, groups, meters, ports, tables) ─┐
//! programs, entries of their maps ───────────────┼─▶ Journaled ─▶ control::journal::Journal
//! the flow that `standalone` has replaced ───────┘
//! ```
//!
//! Values are `sluice.v1.KeptOpenFlow` messages. Their times are wall-clock times, because the switch's clock restarts.
//!
//! Tests: `tests/py/test_openflow_state.py`.

use super::programs::{Loaded, ProgramKeeper, Programs};
use anyhow::{Context, Result, bail};
use bridge::Bridge;
use bridge::keep::{Keeper, Kept, KeptChange, kind};
use control::entity::WriteRequest;
use control::forwarding::ForwardingConfig;
use control::journal::{After, Batch, Change, Contents, Journal, Slot, Ticket};
use grpc::Handle;
use messages::sluice::v1 as pb;
use openflow::message::FlowMod;
use pb::kept_open_flow::{BpfObject, MapEntry};
use prost::Message;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use store::Stored;

/// The most changes that may wait for the disk; beyond that, packets cause no more learned flows. Packets cannot be
/// made to wait, so this bounds memory.
const BEHIND_MAX: u64 = 1 << 16;
/// The message about changes that were lost when the journal was reopened.
const FAILED: &str = "the disk failed meanwhile";
/// The most refused entities that are logged one by one: a screenful.
const NAMED_MAX: usize = 20;

/// Stores the changes of a bridge in the journal.
pub struct Journaled {
    journal: Arc<dyn Journal>,
    /// The control plane of the other devices.
    handle: Weak<Handle>,
    device: u64,
    config: ForwardingConfig,
    /// Weak, because the programs own this as their keeper.
    programs: Weak<Programs>,
    /// The offset from the switch's clock to Unix time, in microseconds.
    to_unix_us: i64,
    /// The request that `append` takes with each batch; always empty.
    request: Arc<WriteRequest>,
    /// The ticket of the last change; 0 if everything is on disk.
    last: AtomicU64,
    /// The journal's count of reopenings when the whole state was last written.
    seen: AtomicU64,
    replaced: Mutex<Option<Kept>>,
}

/// The restored state of a bridge.
pub struct Begun {
    /// Stores changes from now on.
    pub journaled: Arc<Journaled>,
    /// Whether there was stored state.
    pub is_restored: bool,
    /// The controllers' flow that the switch's own flow has replaced.
    pub replaced: Option<FlowMod>,
}

/// Where a bridge's state is stored.
pub struct Place {
    /// The directory, for messages.
    pub dir: String,
    /// Its journal.
    pub journal: Arc<dyn Journal>,
    /// Its contents at the start.
    pub stored: Stored,
    /// The control plane of the other devices.
    pub handle: Arc<Handle>,
}

/// Restores a bridge from its stored state, and stores changes from then on. `config` is the program that it was
/// started with.
///
/// # Errors
/// If the stored state is not a bridge's, cannot be read or written, or does not fit a program that differs from the
/// last start.
pub fn begin(
    place: Place,
    device: u64,
    config: ForwardingConfig,
    bridge: &Arc<Bridge>,
    programs: &Arc<Programs>,
) -> Result<Begun> {
    let Place { dir, journal, stored, handle } = place;
    let start = Instant::now();
    let unix_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as i64);
    let to_unix_us = unix_us - bridge.host().now_us() as i64;
    if stored.saved.is_some() || stored.running.as_ref().is_some_and(|running| !running.openflow) {
        bail!(
            "{dir} holds a P4 program with its entities for device {device}: name another --device-id or --state, or --forget it"
        );
    }
    let mut replaced = None;
    let mut is_same_program = false;
    let is_restored = stored.running.is_some();
    if let Some(running) = stored.running {
        is_same_program = running.config.device_config == config.device_config;
        let mut refused = Vec::new();
        let mut messages = Vec::new();
        let mut loaded = 0;
        for value in running.entities.iter() {
            let kept = pb::KeptOpenFlow::decode(value).with_context(|| format!("{dir}: a part of device {device}"))?;
            match kept {
                pb::KeptOpenFlow { program: Some(BpfObject { id, object, name, file }), .. } => {
                    match programs.load(id, &object, &name, &file, false) {
                        Ok(_) => loaded += 1,
                        Err(why) => refused.push(format!("program {id}: {why}")),
                    }
                }
                pb::KeptOpenFlow { map_entry: Some(MapEntry { id, map, key, value }), .. } => {
                    if let Err(why) = programs.set(id, &map, &key, &value) {
                        refused.push(format!("program {id}, map {map}: {why}"));
                    }
                }
                kept if kept.is_replaced => replaced = Some(from_proto(kept, to_unix_us)),
                kept => messages.push(from_proto(kept, to_unix_us)),
            }
        }
        let restored = bridge.restore(messages.iter());
        refused.extend(restored.refused);
        if !is_same_program && !refused.is_empty() {
            bail!(
                "the program is not that of the last start, and does not fit what {dir} holds: {}\n--forget starts empty",
                refused.join("\n")
            );
        }
        refused.iter().take(NAMED_MAX).for_each(|why| tracing::warn!("stored but not applied: {why}"));
        if refused.len() > NAMED_MAX {
            tracing::warn!("stored but not applied: {} more", refused.len() - NAMED_MAX);
        }
        announce!(
            "{} flows, {} groups, {} meters and {loaded} programs back from {dir} in {:.1} ms",
            restored.flows,
            restored.groups,
            restored.meters,
            start.elapsed().as_secs_f64() * 1e3
        );
    }
    let journaled = Arc::new(Journaled {
        seen: AtomicU64::new(journal.reopened()),
        journal,
        handle: Arc::downgrade(&handle),
        device,
        config,
        programs: Arc::downgrade(programs),
        to_unix_us,
        request: Arc::default(),
        last: AtomicU64::new(0),
        replaced: Mutex::new(replaced.clone()),
    });
    programs.set_keeper(Arc::clone(&journaled) as Arc<dyn ProgramKeeper>);
    let keeper = Arc::clone(&journaled) as Arc<dyn Keeper>;
    bridge.set_keeper(keeper, is_restored && is_same_program).map_err(|why| anyhow::anyhow!("--state {dir}: {why}"))?;
    let replaced = replaced.and_then(|kept| match bridge::keep::decode_flow_mod(&kept, bridge.fields()) {
        Ok(flow) => Some(flow),
        Err(why) => {
            tracing::warn!("stored but not applied: the flow that the bridge's own one has replaced: {why}");
            None
        }
    });
    Ok(Begun { journaled, is_restored, replaced })
}

fn from_proto(kept: pb::KeptOpenFlow, to_unix_us: i64) -> Kept {
    let time = |unix_us: u64| i64::try_from(unix_us).unwrap_or(i64::MAX) - to_unix_us;
    Kept {
        created_us: time(kept.created_us),
        modified_us: time(kept.modified_us),
        flags: kept.flags as u16,
        importance: kept.importance as u16,
        message: kept.message,
    }
}

fn key(kind: u8, id: u32) -> Vec<u8> {
    [&[kind][..], &id.to_be_bytes()].concat()
}

/// Returns the key of a map's entry. Those of one program share the prefix [`key`], so that they can be deleted
/// together.
fn map_key(id: u32, map: &str, entry: &[u8]) -> Vec<u8> {
    let length = (map.len() as u32).to_be_bytes();
    [&key(kind::MAP_ENTRY, id)[..], &length, map.as_bytes(), entry].concat()
}

fn map_value(id: u32, map: &str, key: &[u8], value: &[u8]) -> Vec<u8> {
    let entry = MapEntry { id, map: map.to_string(), key: key.to_vec(), value: value.to_vec() };
    pb::KeptOpenFlow { map_entry: Some(entry), ..Default::default() }.encode_to_vec()
}

fn program_value(id: u32, loaded: &Loaded) -> Vec<u8> {
    let Loaded { object, name, file, .. } = loaded;
    let program = BpfObject { id, object: object.to_vec(), name: name.function.clone(), file: file.clone() };
    pb::KeptOpenFlow { program: Some(program), ..Default::default() }.encode_to_vec()
}

impl Journaled {
    fn value(&self, kept: Kept, is_replaced: bool) -> Vec<u8> {
        let time = |us: i64| u64::try_from(us + self.to_unix_us).unwrap_or(0);
        pb::KeptOpenFlow {
            created_us: if kept.created_us == 0 { 0 } else { time(kept.created_us) },
            modified_us: if kept.modified_us == 0 { 0 } else { time(kept.modified_us) },
            flags: kept.flags.into(),
            importance: kept.importance.into(),
            message: kept.message,
            is_replaced,
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn append_all(&self, changes: Vec<Change>) {
        let batch = Batch { device_id: self.device, slot: Slot::Running, request: Arc::clone(&self.request), changes };
        let ticket = self.journal.append(batch);
        self.last.fetch_max(ticket.0, Ordering::AcqRel);
    }

    /// Whether the journal was reopened after the whole state was last written: changes lost before are then still
    /// missing.
    fn is_older(&self) -> bool {
        self.seen.load(Ordering::Acquire) != self.journal.reopened()
    }

    /// Stores the controllers' flow that the switch's own flow is about to replace; `None` removes the record.
    pub fn keep_replaced(&self, flow: Option<&FlowMod>, bridge: &Bridge) {
        let kept = flow.and_then(|flow| match bridge::keep::encode_flow_mod(flow, bridge.fields()) {
            Ok(message) => Some(Kept { message, flags: flow.flags, importance: flow.importance, ..Kept::default() }),
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        });
        let after = kept.clone().map_or(After::Gone, |kept| After::Value(self.value(kept, true)));
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        *replaced = kept;
        // While holding the lock: see `renew`.
        self.append_all(vec![Change { key: vec![kind::REPLACED], after }]);
    }
}

impl ProgramKeeper for Journaled {
    fn keep_program(&self, id: u32, loaded: &Loaded, keeps_maps: bool) {
        let mut changes = Vec::new();
        if !keeps_maps {
            changes.push(Change { key: key(kind::MAP_ENTRY, id), after: After::GoneBelow });
        }
        changes.push(Change { key: key(kind::PROGRAM, id), after: After::Value(program_value(id, loaded)) });
        self.append_all(changes);
    }

    fn forget_program(&self, id: u32) {
        let gone = |kind, after| Change { key: key(kind, id), after };
        self.append_all(vec![gone(kind::MAP_ENTRY, After::GoneBelow), gone(kind::PROGRAM, After::Gone)]);
    }

    fn keep_entry(&self, id: u32, map: &str, entry: &[u8], value: Option<&[u8]>) {
        let after = value.map_or(After::Gone, |value| After::Value(map_value(id, map, entry, value)));
        self.append_all(vec![Change { key: map_key(id, map, entry), after }]);
    }
}

impl Keeper for Journaled {
    fn append(&self, changes: Vec<KeptChange>) {
        let change = |KeptChange { key, after }: KeptChange| {
            let after = after.map_or(After::Gone, |kept| After::Value(self.value(kept, false)));
            Change { key, after }
        };
        self.append_all(changes.into_iter().map(change).collect());
    }

    fn is_behind(&self) -> bool {
        self.last.load(Ordering::Acquire) > self.journal.kept().0 + BEHIND_MAX
    }

    fn wait(&self) -> Result<(), String> {
        match self.last.load(Ordering::Acquire) {
            0 => {}
            last => self.journal.wait(Ticket(last))?,
        }
        // If another device has reopened the journal, later changes are on disk, but earlier ones may be lost.
        match self.is_older() {
            true => Err(FAILED.to_string()),
            false => Ok(()),
        }
    }

    fn failure(&self) -> Option<String> {
        self.journal.failure().or_else(|| self.is_older().then(|| FAILED.to_string()))
    }

    fn renew(&self, all: &mut dyn Iterator<Item = (Vec<u8>, Kept)>) -> Result<(), String> {
        if self.journal.failure().is_some() {
            // P4 devices first: they undo their changes that are not on disk.
            if let Some(handle) = self.handle.upgrade() {
                handle.with(|control| control.revive()).map_err(|error| error.message)?;
            }
            self.journal.reopen()?;
        }
        let seen = self.journal.reopened();
        let owner = self.programs.upgrade();
        // No change may be appended until everything is written, because it would be lost with the old contents. The
        // caller holds the bridge's state; this holds that of the programs.
        let _turn = owner.as_ref().map(|programs| programs.hold());
        let programs = owner.as_ref().map_or_else(Arc::default, |programs| programs.all());
        let entries = programs.iter().flat_map(|(id, loaded)| {
            let entry = |((map, key), value): (&(String, Vec<u8>), &Vec<u8>)| {
                (map_key(*id, map, key), map_value(*id, map, key, value))
            };
            loaded.set().iter().map(entry).collect::<Vec<_>>()
        });
        let objects = programs.iter().map(|(id, loaded)| (key(kind::PROGRAM, *id), program_value(*id, loaded)));
        let held = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = held.clone().map(|kept| (vec![kind::REPLACED], self.value(kept, true)));
        let all = all.map(|(key, kept)| (key, self.value(kept, false)));
        let mut all = all.chain(objects).chain(entries).chain(replaced);
        self.journal.replace(self.device, Contents::Values(&self.config, &mut all), Contents::Empty)?;
        self.last.store(0, Ordering::Release);
        self.seen.store(seen, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn kept(priority: u8) -> Kept {
        Kept { message: vec![priority; 4], ..Kept::default() }
    }

    fn change(priority: u8) -> Vec<KeptChange> {
        vec![KeptChange { key: vec![kind::FLOW, priority], after: Some(kept(priority)) }]
    }

    #[test]
    fn what_was_lost_is_not_acknowledged_after_another_device_has_begun_the_journal_again() {
        let folder = tempfile::tempdir().unwrap();
        let (state, elsewhere) = (folder.path().join("state"), folder.path().join("elsewhere"));
        let journal: Arc<dyn Journal> = Arc::new(store::Store::open(&state).unwrap());
        let journaled = Journaled {
            journal: Arc::clone(&journal),
            handle: Weak::new(),
            device: 1,
            config: ForwardingConfig::default(),
            programs: Weak::new(),
            to_unix_us: 0,
            request: Arc::default(),
            last: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            replaced: Mutex::default(),
        };
        journaled.renew(&mut std::iter::empty()).unwrap();
        journaled.append(change(1));
        journaled.wait().unwrap();
        std::fs::rename(&state, &elsewhere).unwrap();
        journaled.append(change(2));
        journaled.wait().unwrap_err();
        std::fs::rename(&elsewhere, &state).unwrap();
        let begin = Instant::now();
        while journal.reopen().is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", journal.failure());
            std::thread::sleep(Duration::from_millis(20));
        }
        // This change is on disk; the previous one is not.
        journaled.append(change(3));
        journaled.wait().unwrap_err();
        assert!(journaled.failure().is_some());
        let mut all = (1..=3).map(|priority| (vec![kind::FLOW, priority], kept(priority)));
        journaled.renew(&mut all).unwrap();
        assert_eq!(journaled.failure(), None);
        journaled.append(change(4));
        journaled.wait().unwrap();
        drop(journaled);
        drop(journal);
        let stored = store::Store::open(&state).unwrap().stored(1).unwrap().running.unwrap();
        let messages = stored.entities.iter().map(|value| pb::KeptOpenFlow::decode(value).unwrap().message);
        assert_eq!(messages.collect::<Vec<_>>(), [1, 2, 3, 4].map(|priority| vec![priority; 4]));
    }
}
