//! `sluice run --state DIR`: restores stored state at the start, and stores changes from then on.
//!
//! | on disk | program on the command line | the switch starts with |
//! | --- | --- | --- |
//! | nothing | any or none | that program and `--entries`, which are stored from then on |
//! | a config | none, or the same as at the last start | the stored config, also if a controller has set it |
//! | a config | different from the last start | that program, with the stored entities by name |
//!
//! If a different program cannot take over an entity, the start is refused.
//!
//! The program of the command line is stored beside the configs. So a restart after a crash never reverts a
//! controller's program to it, and an edited program takes effect. Tests: `tests/py/test_restart.py`.

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

/// The most refused entities that are logged one by one.
const NAMED_MAX: usize = 20;

/// Arguments of a switch that keeps its state.
#[derive(clap::Args, Clone)]
pub struct StateArgs {
    /// Keep program and entities in this directory, and begin with what it holds.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Delete what the directory holds, and start empty.
    #[arg(long, requires = "state")]
    forget: bool,
}

/// An open state directory.
pub struct State {
    store: Arc<Store>,
    dir: PathBuf,
}

impl StateArgs {
    /// Returns the arguments for a successor, without `--forget`: that was meant for the start of the first process.
    pub fn taking_over(&self) -> StateArgs {
        StateArgs { forget: false, ..self.clone() }
    }

    /// Whether opening the directory leaves it unchanged: there is none, or it holds state that is not to be dropped.
    pub fn only_reads(&self) -> bool {
        !self.forget && self.dir().is_none_or(|dir| dir.join(store::FORMAT_FILE).exists())
    }

    fn dir(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// Opens the directory of `--state`; `None` without the option.
    ///
    /// # Errors
    /// If it cannot be opened, is damaged, or is in use by another switch.
    pub fn open(&self) -> Result<Option<State>> {
        let Some(dir) = &self.state else { return Ok(None) };
        if self.forget {
            store::forget(dir).context("--forget")?;
        }
        State::open_at(dir).map(Some)
    }
}

/// An open state directory with its contents at the start.
pub struct StateAtStart {
    /// The directory.
    pub state: State,
    /// The contents, by device.
    pub devices: BTreeMap<u64, Stored>,
}

impl StateAtStart {
    /// Reads the contents of all devices.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn read(state: State) -> Result<StateAtStart> {
        let stored = |device| -> Result<(u64, Stored)> { Ok((device, state.store.stored(device)?)) };
        let devices = state.store.devices().into_iter().map(stored).collect::<Result<_>>()?;
        Ok(StateAtStart { state, devices })
    }
}

impl State {
    /// Opens a directory.
    ///
    /// # Errors
    /// As for [`StateArgs::open`].
    pub fn open_at(dir: &Path) -> Result<State> {
        let store = Store::open(dir).context("--state")?;
        for note in store.notes() {
            tracing::warn!("--state {}: {note}", dir.display());
        }
        Ok(State { store: Arc::new(store), dir: dir.to_path_buf() })
    }

    /// Returns the store behind the directory.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the directory's path, for messages.
    pub fn dir(&self) -> String {
        self.dir.display().to_string()
    }

    /// Returns the journal that stores changes.
    pub fn journal(&self) -> Arc<dyn control::journal::Journal> {
        Arc::clone(&self.store) as Arc<dyn control::journal::Journal>
    }

    /// Drops everything that is stored of a device.
    ///
    /// # Errors
    /// If the change cannot be written.
    pub fn forget_device(&self, device_id: u64) -> Result<(), String> {
        use control::journal::{Contents, Journal};
        self.store.replace(device_id, Contents::Empty, Contents::Empty)
    }

    /// Restores a device from `stored`, and replaces its program by that of the command line if this differs from the
    /// last start. False if nothing is stored; then `program` is still to be loaded. Messages do not name device
    /// `first`.
    ///
    /// # Errors
    /// If the stored config cannot be restored or belongs to an OpenFlow bridge, or the new program cannot take over
    /// the stored entities.
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
                format!("what {} holds cannot be brought back (--forget starts empty)", self.dir.display())
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
        // A different program than at the last start replaces the stored one, as if a controller had set it.
        let name = path.display().to_string();
        let config = ForwardingConfig { device_config: program.to_vec(), name, ..ForwardingConfig::default() };
        handle.replace(device_id, config, Losses::Refused).map_err(|error| {
            let (path, dir) = (path.display(), self.dir.display());
            anyhow::anyhow!(
                "{path} is not the program of the last start, and does not fit what {dir} holds: {}\n\
                 without a program on the command line the stored one runs; --forget starts empty",
                error.message
            )
        })?;
        announce!("{} takes over from the program of the last start", path.display());
        self.remember(device_id, program)?;
        Ok(true)
    }

    /// Starts storing a device's changes; first stores its current state, unless `has_all` says that it is stored
    /// already.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, handle: &Handle, device_id: u64, has_all: bool) -> Result<()> {
        handle
            .with(|control| control.keep(device_id, self.journal(), has_all))
            .map_err(|e| anyhow::anyhow!("{}", e.message))
    }

    /// Stores the program of the command line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn remember(&self, device_id: u64, program: &[u8]) -> Result<()> {
        let Err(why) = self.store.set_command_line(device_id, program) else { return Ok(()) };
        bail!("--state {}: {why}", self.dir.display())
    }

    fn report(&self, restored: &Restored) {
        for refused in restored.refused.iter().take(NAMED_MAX) {
            tracing::warn!("stored but not applied: {refused}");
        }
        if restored.refused.len() > NAMED_MAX {
            tracing::warn!("stored but not applied: {} more", restored.refused.len() - NAMED_MAX);
        }
    }
}
