//! The operator's requests to a bridge: `sluice program`, `sluice cache` and, in `trace`, `sluice trace`.
//!
//! Threads: the blocking threads of the admin service, several at once.

use super::programs::{Loaded, Programs};
use bridge::Bridge;
use bridge::processor::{Megaflow, Pipeline, Wanted};
use bridge::trace;
use bridge::translate::Subject;
use datapath::Switch;
use messages::sluice::v1 as pb;
use openflow::Action;
use pb::program_request::{Command, Entry, Load, Show, Unload, map::Access};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long workers may take to drop or report their megaflows.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Megaflows shown per worker by default.
const SHOWN: usize = 100;
/// The most megaflows shown per worker, which keeps the answer below gRPC's default limit of 4 MB per message.
const SHOWN_MAX: usize = 4096;

/// The operator's interface to a bridge.
#[derive(Clone)]
pub struct Admin {
    /// The bridge's device id.
    pub(super) device: u64,
    pub(super) switch: Arc<Switch>,
    pub(super) bridge: Arc<Bridge>,
    pub(super) flows: Arc<Pipeline>,
    pub(super) programs: Arc<Programs>,
}

/// Adds the programs that actions run to `seen`, each once.
fn count(actions: &[Action], seen: &mut Vec<u32>) {
    for action in actions {
        match action {
            Action::Program { id, .. } if !seen.contains(id) => seen.push(*id),
            Action::Clone(inner) | Action::WriteActions(inner) => count(inner, seen),
            _ => {}
        }
    }
}

impl Admin {
    /// Returns the bridge's device id.
    pub fn device(&self) -> u64 {
        self.device
    }

    fn check(&self, device: Option<u64>) -> Result<(), String> {
        match device {
            Some(device) if device != self.device => {
                Err(format!("device {device} is no OpenFlow bridge; device {} is", self.device))
            }
            _ => Ok(()),
        }
    }

    /// Returns how many flows and groups refer to each program.
    fn users(&self) -> HashMap<u32, u64> {
        let mut users = HashMap::new();
        let mut add = |lists: &mut dyn Iterator<Item = &[Action]>| {
            let mut seen = Vec::new();
            lists.for_each(|actions| count(actions, &mut seen));
            seen.into_iter().for_each(|id| *users.entry(id).or_default() += 1);
        };
        let tables = self.bridge.tables();
        for flow in tables.iter().flat_map(|(_, table)| table.flows.iter()) {
            add(&mut [&flow.instructions.apply[..], &flow.instructions.write[..]].into_iter());
        }
        for group in tables.groups() {
            add(&mut group.buckets.iter().map(|(bucket, _)| &bucket.actions[..]));
        }
        users
    }

    /// Carries out a request about BPF programs.
    ///
    /// # Errors
    /// If the device is not this bridge, or the request is refused; the message says why.
    pub fn program(&self, request: pb::ProgramRequest) -> Result<pb::ProgramResponse, String> {
        self.check(request.device_id)?;
        let command = request.command.ok_or("it is not said what is to be done")?;
        let changes = match &command {
            Command::Load(_) | Command::Unload(_) => true,
            Command::Map(map) => matches!(map.access, Some(Access::Set(_) | Access::Delete(_))),
            Command::Show(_) => false,
        };
        if changes {
            self.bridge.check_keeper().map_err(|error| error.text)?;
        }
        let answer = match command {
            Command::Load(load) => self.load(&load),
            Command::Show(show) => self.show(&show),
            Command::Unload(unload) => self.unload(&unload),
            Command::Map(map) => self.map(map),
        }?;
        if changes {
            self.bridge.wait_kept().map_err(|error| error.text)?;
        }
        Ok(answer)
    }

    fn load(&self, load: &Load) -> Result<pb::ProgramResponse, String> {
        let Load { id, object, name, file, keep_maps } = load;
        let replaced = self.programs.load(*id, object, name, file, *keep_maps)?;
        let note = if replaced { "replaced the program that had the id" } else { "" };
        let program = self.described(*id, &*self.programs.get(*id)?, &self.users());
        let (function, what) = (&program.function, if replaced { "replaced" } else { "loaded" });
        tracing::info!(device = self.device, id, "BPF program {function} {what} by the operator");
        Ok(pb::ProgramResponse { programs: vec![program], note: note.to_string(), ..Default::default() })
    }

    fn show(&self, show: &Show) -> Result<pb::ProgramResponse, String> {
        let all = self.programs.all();
        if let Some(id) = show.id {
            self.programs.get(id)?;
        }
        let users = self.users();
        let mut programs = Vec::new();
        for (id, loaded) in all.iter().filter(|(id, _)| show.id.is_none_or(|wanted| wanted == **id)) {
            let mut program = self.described(*id, loaded, &users);
            if show.listing {
                program.listing = loaded.program.listing();
            }
            if show.log {
                (program.log, program.log_lost) = loaded.program.take_log();
            }
            programs.push(program);
        }
        Ok(pb::ProgramResponse { programs, unknown: self.programs.unknown(), ..Default::default() })
    }

    fn unload(&self, unload: &Unload) -> Result<pb::ProgramResponse, String> {
        let Unload { id, force } = *unload;
        self.programs.get(id)?;
        let users = self.users().get(&id).copied().unwrap_or(0);
        let (who, name, lose) = match users {
            1 => ("1 flow or group".to_string(), "names", "its"),
            _ => (format!("{users} flows and groups"), "name", "their"),
        };
        if users > 0 && !force {
            return Err(format!(
                "{who} {name} it, and {lose} packets would be dropped; --force unloads it all the same"
            ));
        }
        self.programs.unload(id)?;
        tracing::info!(device = self.device, id, users, "BPF program unloaded by the operator");
        let note = if users > 0 { format!("{who} {name} it: {lose} packets are dropped") } else { String::new() };
        Ok(pb::ProgramResponse { note, ..Default::default() })
    }

    fn map(&self, request: pb::program_request::Map) -> Result<pb::ProgramResponse, String> {
        let map = self.programs.map(request.id, &request.name)?;
        let no_key = || format!("map `{}` has no such key", request.name);
        let mut entries = Vec::new();
        match request.access.ok_or("it is not said what is to be done with the map")? {
            Access::Get(key) => {
                let value = map.lookup(&key).map_err(|error| error.to_string())?.ok_or_else(no_key)?;
                entries.push(Entry { key, value });
            }
            Access::Set(Entry { key, value }) => {
                self.programs.set(request.id, &request.name, &key, &value)?;
                tracing::info!(id = request.id, map = request.name, "map changed by the operator");
            }
            Access::Delete(key) => {
                if !self.programs.delete(request.id, &request.name, &key)? {
                    return Err(no_key());
                }
                tracing::info!(id = request.id, map = request.name, "map changed by the operator");
            }
            Access::Dump(_) => {
                let spec = map.spec();
                let bytes = u64::from(map.len()) * (u64::from(spec.key_size) + u64::from(spec.value_size) + 16);
                if bytes > grpc::MESSAGE_BYTES_MAX as u64 / 2 {
                    return Err(format!("map `{}` is too large to be shown as a whole: {bytes} bytes", request.name));
                }
                entries.extend(map.dump().into_iter().map(|(key, value)| Entry { key, value }));
                entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            }
        }
        Ok(pb::ProgramResponse { entries, ..Default::default() })
    }

    fn described(&self, id: u32, loaded: &Loaded, users: &HashMap<u32, u64>) -> pb::BpfProgram {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &loaded.counts;
        let map = |map: &Arc<bpf::Map>| {
            let spec = map.spec();
            pb::bpf_program::Map {
                name: spec.name.clone(),
                kind: spec.kind.name().to_string(),
                key_size: spec.key_size,
                value_size: spec.value_size,
                max_entries: spec.max_entries,
                entries: map.len(),
                read_only: spec.read_only,
            }
        };
        pb::BpfProgram {
            id,
            function: loaded.name.function.clone(),
            section: loaded.name.section.clone(),
            file: loaded.file.clone(),
            compiled: loaded.program.is_compiled(),
            maps: loaded.program.maps().iter().map(map).collect(),
            passed: read(&counts.passed),
            transmitted: read(&counts.transmitted),
            dropped: read(&counts.dropped),
            aborted: read(&counts.aborted),
            redirected: read(&counts.redirected),
            users: users.get(&id).copied().unwrap_or(0),
            ..pb::BpfProgram::default()
        }
    }

    /// Shows or empties the flow caches.
    ///
    /// # Errors
    /// If the device is not this bridge, or a worker does not respond in time.
    pub fn cache(&self, request: pb::CacheRequest) -> Result<pb::CacheResponse, String> {
        self.check(request.device_id)?;
        if request.flush {
            let (wanted, begin) = (self.flows.request_flush(), Instant::now());
            while !self.flows.is_synced(wanted) {
                // Wakes workers that wait for packets.
                let _ = self.switch.settle();
                if begin.elapsed() >= FLUSH_MAX {
                    return Err(format!("a worker has not forgotten its megaflows within {FLUSH_MAX:?}; it will"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            tracing::info!(device = self.device, "flow caches emptied by the operator");
        } else {
            self.flows.sync_counts(FLUSH_MAX);
        }
        let worker = |(number, stats): (usize, bridge::processor::CacheStats)| pb::cache_response::Worker {
            number: number as u32,
            // The exact-match caches of frames and of records.
            exact_hits: stats.frame_hits + stats.exact_hits,
            megaflow_hits: stats.megaflow_hits,
            misses: stats.misses,
            bypassed: stats.bypassed,
            entries: stats.entries,
            masks: stats.masks,
            limit: stats.limit,
            evictions: stats.evictions,
            revalidations: stats.revalidations,
            ..pb::cache_response::Worker::default()
        };
        let use_ = self.flows.cache_use().name();
        let mut answer = pb::CacheResponse {
            r#use: use_.to_string(),
            workers: self.flows.stats().into_iter().map(worker).collect(),
            ..Default::default()
        };
        if let Some(show) = request.show {
            (answer.megaflows, answer.more) = self.show_cache(&show)?;
        }
        Ok(answer)
    }

    /// Reads megaflows from the workers; also returns whether there are more.
    pub(super) fn megaflows(&self, wanted: Wanted) -> (Vec<Megaflow>, bool) {
        self.flows.megaflows(wanted, FLUSH_MAX, &|| _ = self.switch.settle())
    }

    fn show_cache(&self, show: &pb::cache_request::Show) -> Result<(Vec<pb::cache_response::Megaflow>, bool), String> {
        let max = if show.limit == 0 { SHOWN } else { show.limit as usize };
        if max > SHOWN_MAX {
            return Err(format!("at most {SHOWN_MAX} megaflows are shown"));
        }
        let (found, more) = self.megaflows(Wanted { port: show.port, max, of: None });
        let (shared, now_us) = (self.flows.shared(), self.switch.now_us());
        let one = |megaflow: Megaflow| {
            let Megaflow { ref record, length, start, .. } = megaflow;
            let (translation, path) =
                trace::path(shared, Subject { record, bytes: length, start, now_us, work: u32::MAX });
            pb::cache_response::Megaflow {
                worker: megaflow.worker as u32,
                r#match: trace::megaflow(self.bridge.layout(), &megaflow),
                path,
                actions: trace::effects(shared, &translation),
                packets: megaflow.packets,
                bytes: megaflow.bytes,
                idle_ms: now_us.saturating_sub(megaflow.used_us) / 1000,
            }
        };
        Ok((found.into_iter().map(one).collect(), more))
    }
}
