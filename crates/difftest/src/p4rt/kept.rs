//! Restarts from a state directory: occasionally the control plane loses its memory and starts again from the
//! directory. The model does not change, and reads must still match it.

use super::Subject;
use control::Control;
use control::journal::{Journal, Slot};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;

/// A state directory.
pub(super) struct Kept {
    dir: PathBuf,
    store: Option<Arc<Store>>,
}

impl Subject {
    /// Persists state in a directory, which must be empty or absent, and restarts from it from now on.
    ///
    /// # Errors
    /// If the directory cannot be opened or the restart fails.
    pub fn keep_in(&mut self, dir: &Path) -> Result<(), String> {
        let store = Arc::new(Store::open(dir).map_err(|e| e.to_string())?);
        self.control.keep(super::DEVICE, Arc::clone(&store) as Arc<dyn Journal>, false).map_err(|e| e.to_string())?;
        self.kept = Some(Kept { dir: dir.to_path_buf(), store: Some(store) });
        Ok(())
    }

    /// Restarts from the directory, if there is one.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        // Waits for the last change, like a client that waits for its answer.
        if let Some((journal, ticket)) = self.control.last_change(super::DEVICE) {
            journal.wait(ticket)?;
        }
        self.control = Control::new();
        kept.store = None;
        let store = Arc::new(Store::open(&kept.dir).map_err(|e| e.to_string())?);
        let found = store.kept(super::DEVICE).map_err(|e| e.to_string())?;
        let running = found.running.ok_or("no config came back")?;
        let mut control = super::connected(&self.path, self.engine)?;
        let restored = control.restore(super::DEVICE, Slot::Running, running.config, running.entities);
        let restored = restored.map_err(|e| e.to_string())?;
        if !restored.refused.is_empty() {
            return Err(format!("kept, and refused after a restart: {:#?}", restored.refused));
        }
        control.keep(super::DEVICE, Arc::clone(&store) as Arc<dyn Journal>, true).map_err(|e| e.to_string())?;
        self.control = control;
        kept.store = Some(store);
        Ok(())
    }
}
