//! `sluice run --state DIR`: what the switch begins with, and that it keeps what it is told from then on.
//!
//! | on disk | program on the command line | the switch begins with |
//! | --- | --- | --- |
//! | nothing | any or none | that program and `--entries`, which are kept from then on |
//! | a config | none, or the same as at the last start | what is kept, also if a controller has set another program meanwhile |
//! | a config | another than at the last start | that program; kept entities go over by name, or the start is refused |
//!
//! The program that a switch is started with is remembered beside the configs, so that a restart after a crash never goes
//! back to it from what a controller has set, and an edited program takes effect. Tests: `tests/py/test_restart.py`.

use anyhow::{Context, Result, bail};
use control::control::Losses;
use control::forwarding::ForwardingConfig;
use control::journal::Slot;
use control::restore::Restored;
use grpc::Handle;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use store::{Store, Stored, StoredConfig};

/// Refused entities that are named one by one.
const NAMED_MAX: usize = 20;

/// Arguments of a switch that keeps its state.
#[derive(clap::Args, Clone)]
pub struct StateArgs {
    /// Keep program and entities in this directory, and begin with what it holds.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Drop what the directory holds, and begin anew.
    #[arg(long, requires = "state")]
    forget: bool,
}

/// A directory in use.
pub struct State {
    store: Arc<Store>,
    dir: PathBuf,
}

impl StateArgs {
    /// For a process that takes over with the arguments of the first one: `--forget` was about what that one found.
    pub fn taking_over(&self) -> StateArgs {
        StateArgs { forget: false, ..self.clone() }
    }

    /// Whether opening the directory, if one is named, changes nothing in it: it holds a state, which is not to be dropped.
    pub fn only_reads(&self) -> bool {
        !self.forget && self.dir().is_none_or(|dir| dir.join(store::FORMAT_FILE).exists())
    }

    fn dir(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// Opens the directory, if one is named.
    pub fn open(&self) -> Result<Option<State>> {
        let Some(dir) = &self.state else { return Ok(None) };
        if self.forget {
            store::forget(dir).context("--forget")?;
        }
        let store = Store::open(dir).context("--state")?;
        for note in store.notes() {
            tracing::warn!("--state {}: {note}", dir.display());
        }
        Ok(Some(State { store: Arc::new(store), dir: dir.clone() }))
    }
}

/// A directory in use with what it holds at the start.
pub struct Kept {
    /// The directory.
    pub state: State,
    /// By device.
    pub devices: BTreeMap<u64, Stored>,
}

impl Kept {
    /// Reads everything.
    pub fn read(state: State) -> Result<Kept> {
        let stored = |device| -> Result<(u64, Stored)> { Ok((device, state.store.stored(device)?)) };
        let devices = state.store.devices().into_iter().map(stored).collect::<Result<_>>()?;
        Ok(Kept { state, devices })
    }
}

impl State {
    /// The directory's records.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The directory's name, for messages.
    pub fn dir(&self) -> String {
        self.dir.display().to_string()
    }

    /// What keeps changes.
    pub fn journal(&self) -> Arc<dyn control::journal::Journal> {
        Arc::clone(&self.store) as Arc<dyn control::journal::Journal>
    }

    /// Drops all that is kept of a device.
    pub fn forget_device(&self, device_id: u64) -> Result<(), String> {
        use control::journal::{Contents, Journal};
        self.store.replace(device_id, Contents::Empty, Contents::Empty)
    }

    /// Brings back what is kept of a device, `stored`; false if nothing is, and then `program` is still to be loaded. `first` is the
    /// device that is not named in messages.
    pub fn restore(
        &self,
        handle: &Handle,
        device_id: u64,
        first: u64,
        stored: Stored,
        program: Option<(&Path, &[u8])>,
    ) -> Result<bool> {
        let start = Instant::now();
        let Stored { running, saved, command_line } = stored;
        if running.is_none() && saved.is_none() {
            return Ok(false);
        }
        let mut entities = 0;
        for (slot, kept) in [(Slot::Running, running), (Slot::Saved, saved)] {
            let Some(StoredConfig { config, entities: kept, openflow }) = kept else { continue };
            if openflow {
                bail!(
                    "{} holds an OpenFlow bridge's flows for device {device_id}: start it with --openflow, or --forget them",
                    self.dir.display()
                );
            }
            let restored = handle.restore(device_id, slot, config, &kept).with_context(|| {
                format!("what {} holds cannot be brought back (--forget begins anew)", self.dir.display())
            })?;
            self.report(&restored);
            entities += restored.entities;
        }
        let whose = if device_id == first { String::new() } else { format!("device {device_id}: ") };
        announce!(
            "{whose}{} entities back from {} in {:.1} ms",
            entities,
            self.dir.display(),
            start.elapsed().as_secs_f64() * 1e3
        );
        self.keep(handle, device_id, true)?;
        let Some((path, program)) = program.filter(|(_, program)| command_line.as_deref() != Some(program)) else {
            return Ok(true);
        };
        // Another program than at the last start: it takes over what fits, as if a controller had set it.
        let name = path.display().to_string();
        let config = ForwardingConfig { device_config: program.to_vec(), name, ..ForwardingConfig::default() };
        handle.replace(device_id, config, Losses::Refused).map_err(|error| {
            let (path, dir) = (path.display(), self.dir.display());
            anyhow::anyhow!(
                "{path} is not the program of the last start, and does not fit what {dir} holds: {}\n\
                 without a program on the command line the kept one runs on; --forget begins anew",
                error.message
            )
        })?;
        announce!("{} takes over from the program of the last start", path.display());
        self.remember(device_id, program)?;
        Ok(true)
    }

    /// Keeps what a device is told from now on, and what it has, unless it is kept already.
    pub fn keep(&self, handle: &Handle, device_id: u64, has_all: bool) -> Result<()> {
        handle
            .with(|control| control.keep(device_id, self.journal(), has_all))
            .map_err(|e| anyhow::anyhow!("{}", e.message))
    }

    /// Remembers the program of the command line.
    pub fn remember(&self, device_id: u64, program: &[u8]) -> Result<()> {
        let Err(why) = self.store.set_command_line(device_id, program) else { return Ok(()) };
        bail!("--state {}: {why}", self.dir.display())
    }

    fn report(&self, restored: &Restored) {
        for refused in restored.refused.iter().take(NAMED_MAX) {
            tracing::warn!("kept but not in force: {refused}");
        }
        if restored.refused.len() > NAMED_MAX {
            tracing::warn!("kept but not in force: {} more", restored.refused.len() - NAMED_MAX);
        }
    }
}
