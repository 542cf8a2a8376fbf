//! The open store: a queue of batches, the thread that logs them and the one that folds the log.
//!
//! Group commit: the thread `state` takes all batches that wait, logs each as one record, and syncs once for all of
//! them. While it syncs the next ones queue up, so the number of syncs follows the disk and not the number of requests.
//! The thread `state-fold` folds the log when it has grown; if it cannot keep up, logging waits for it.
//!
//! Locks: `queue` is held for moments; `layout` while the disk is written, by the threads or by [`Store::replace`]; `folding` during
//! a fold, and by who removes configs or closes the directory. They are taken in the order `folding`, `layout`, `queue`.

use crate::OpenError;
use crate::fold::Fold;
use crate::layout::{Kept, Layout, explain};
use crate::log;
use control::journal::{Batch, Contents, Journal, Slot, Ticket};
use fjall::PersistMode;
use grpc::proto::sluice::v1::KeptDevice;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a failed store is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// The log is folded when it is so large: it is read at start, so it must stay short.
const FOLD_BYTES: usize = 8 << 20;
/// How many times that it grows while a fold is under way, before writes wait.
const AHEAD: usize = 4;

/// Drops what a directory holds. Refused while another process has it, and if it is not ours.
pub fn forget(dir: &Path) -> Result<(), OpenError> {
    match Layout::open(dir) {
        Err(error @ (OpenError::InUse(_) | OpenError::Foreign(_) | OpenError::Format { .. })) => return Err(error),
        // What cannot be read can still be dropped.
        Ok(_) | Err(OpenError::Broken { .. } | OpenError::Damaged { .. } | OpenError::Io { .. }) => {}
    }
    let removed = std::fs::remove_dir_all(dir.join("db"));
    removed.map_err(|e| OpenError::Io { dir: dir.display().to_string(), why: e.to_string() })
}

/// A directory of kept state.
pub struct Store {
    shared: Arc<Shared>,
    dir: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The log has grown, or the end has come.
    grown: Condvar,
    layout: Mutex<Option<Layout>>,
    folding: Mutex<()>,
    fold_bytes: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Ticket, Batch)>,
    last: Ticket,
    kept: Ticket,
    /// Tickets of changes that were lost, from and to, one range for each failure.
    lost: Vec<(Ticket, Ticket)>,
    /// What happened, and when it was last tried to open again.
    failure: Option<(String, Instant)>,
    /// The log's length after the last write.
    log_bytes: usize,
    stop: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens a directory, or makes one; no other process can until it is dropped.
    pub fn open(dir: &Path) -> Result<Store, OpenError> {
        Store::open_with(dir, FOLD_BYTES)
    }

    /// As `open`, for a log of another length.
    pub fn open_with(dir: &Path, fold_bytes: usize) -> Result<Store, OpenError> {
        let layout = Layout::open(dir)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            grown: Condvar::new(),
            layout: Mutex::new(Some(layout)),
            folding: Mutex::default(),
            fold_bytes,
        });
        let mut store = Store { shared, dir: dir.to_path_buf(), threads: vec![] };
        store.spawn("state", Shared::run)?;
        store.spawn("state-fold", Shared::run_folds)?;
        Ok(store)
    }

    fn spawn(&mut self, name: &str, run: fn(&Shared)) -> Result<(), OpenError> {
        let on = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(&on));
        let no_thread = |e| OpenError::Io { dir: self.dir.display().to_string(), why: format!("no thread: {e}") };
        self.threads.push(thread.map_err(no_thread)?);
        Ok(())
    }

    /// Everything that is kept of a device.
    pub fn kept(&self, device_id: u64) -> Result<Kept, OpenError> {
        match lock(&self.shared.layout).as_ref() {
            Some(layout) => layout.kept(device_id),
            None => Err(OpenError::Io { dir: self.dir.display().to_string(), why: "it is closed".into() }),
        }
    }

    /// Remembers the program that the switch was started with.
    pub fn set_command_line(&self, device_id: u64, program: &[u8]) -> Result<(), String> {
        match lock(&self.shared.layout).as_ref() {
            Some(layout) => layout.set_command_line(device_id, program).map_err(|e| explain(&e)),
            None => Err("the directory is closed".into()),
        }
    }

    /// Does something with the directory.
    pub(crate) fn with<R>(&self, f: impl FnOnce(Result<&Layout, OpenError>) -> R) -> R {
        let closed = || OpenError::Io { dir: self.dir.display().to_string(), why: "it is closed".into() };
        f(lock(&self.shared.layout).as_ref().ok_or_else(closed))
    }

    fn fail(&self, why: String) -> String {
        self.shared.fail(why.clone());
        why
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        lock(&self.shared.queue).stop = true;
        self.shared.changed.notify_all();
        self.shared.grown.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Journal for Store {
    fn append(&self, batch: Batch) -> Ticket {
        let mut queue = lock(&self.shared.queue);
        queue.last.0 += 1;
        let ticket = queue.last;
        // After a failure nothing is written any more; who waits for the ticket hears of it.
        if queue.failure.is_none() {
            queue.waiting.push_back((ticket, batch));
            self.shared.changed.notify_all();
        }
        ticket
    }

    fn kept(&self) -> Ticket {
        lock(&self.shared.queue).kept
    }

    fn wait(&self, ticket: Ticket) -> Result<(), String> {
        let mut queue = lock(&self.shared.queue);
        loop {
            // It may work again since then, but what was lost stays lost.
            if queue.lost.iter().any(|(from, to)| (*from..=*to).contains(&ticket)) {
                return Err("the disk failed meanwhile".into());
            }
            if queue.kept >= ticket {
                return Ok(());
            }
            if let Some((why, _)) = &queue.failure {
                return Err(why.clone());
            }
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn failure(&self) -> Option<String> {
        lock(&self.shared.queue).failure.as_ref().map(|(why, _)| why.clone())
    }

    fn replace(&self, device_id: u64, running: Contents, saved: Contents) -> Result<(), String> {
        self.shared.wait_for_all()?;
        let _folding = lock(&self.shared.folding);
        let mut layout = lock(&self.shared.layout);
        let Some(layout) = layout.as_mut() else { return Err("the directory is closed".into()) };
        let old = layout.device(device_id).map_err(|e| e.to_string())?;
        let mut write = |contents: Contents, old: Option<u64>| match contents {
            Contents::Same => Ok(old),
            Contents::Empty => Ok(None),
            Contents::New(config, entities) => layout.write_config(config, entities).map(Some),
        };
        let new = write(running, old.running)
            .and_then(|running| Ok(KeptDevice { running, saved: write(saved, old.saved)? }))
            .and_then(|new| layout.set_device(device_id, &new).map(|()| new).map_err(|e| explain(&e)));
        let new = new.map_err(|why| self.fail(why))?;
        for number in old.running.into_iter().chain(old.saved) {
            if ![new.running, new.saved].contains(&Some(number)) {
                // The new one is kept already; what is left of the old is removed at the next start.
                let _ = layout.remove(number);
            }
        }
        Ok(())
    }

    fn reopen(&self) -> Result<(), String> {
        {
            let mut queue = lock(&self.shared.queue);
            match &mut queue.failure {
                None => return Ok(()),
                Some((why, tried)) if tried.elapsed() < RETRY => return Err(why.clone()),
                Some((_, tried)) => *tried = Instant::now(),
            }
        }
        let _folding = lock(&self.shared.folding);
        let mut layout = lock(&self.shared.layout);
        // One process opens it once.
        *layout = None;
        match Layout::open(&self.dir) {
            Ok(opened) => {
                *layout = Some(opened);
                let mut queue = lock(&self.shared.queue);
                queue.failure = None;
                queue.log_bytes = 0;
                let lost = (Ticket(queue.kept.0 + 1), queue.last);
                queue.lost.push(lost);
                queue.kept = queue.last;
                tracing::info!(dir = %self.dir.display(), "the state can be kept again");
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let batches = {
                let mut queue = lock(&self.queue);
                while !queue.stop && (queue.waiting.is_empty() || queue.log_bytes >= AHEAD * self.fold_bytes) {
                    queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                if queue.waiting.is_empty() {
                    return;
                }
                std::mem::take(&mut queue.waiting)
            };
            let Some((last, _)) = batches.back() else { continue };
            let last = *last;
            match self.write(batches.iter().map(|(_, batch)| batch)) {
                Ok(log_bytes) => {
                    let mut queue = lock(&self.queue);
                    queue.kept = last;
                    queue.log_bytes = log_bytes;
                    drop(queue);
                    self.changed.notify_all();
                    if log_bytes >= self.fold_bytes {
                        self.grown.notify_one();
                    }
                }
                Err(why) => self.fail(why),
            }
        }
    }

    fn run_folds(&self) {
        loop {
            {
                let mut queue = lock(&self.queue);
                while !queue.stop && (queue.log_bytes < self.fold_bytes || queue.failure.is_some()) {
                    queue = self.grown.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                if queue.stop {
                    return;
                }
            }
            if let Err(why) = self.fold() {
                self.fail(why);
            }
        }
    }

    fn fold(&self) -> Result<(), String> {
        let _folding = lock(&self.folding);
        let begin = |layout: &Option<Layout>| layout.as_ref().map(Fold::begin).transpose();
        let Some(fold) = begin(&lock(&self.layout)).map_err(|e| explain(&e))? else { return Ok(()) };
        fold.run()?;
        let mut layout = lock(&self.layout);
        let Some(layout) = layout.as_mut() else { return Ok(()) };
        layout.folded(&fold).map_err(|e| explain(&e))?;
        lock(&self.queue).log_bytes = layout.logged_bytes();
        self.changed.notify_all();
        Ok(())
    }

    fn wait_for_all(&self) -> Result<(), String> {
        let mut queue = lock(&self.queue);
        while queue.kept < queue.last {
            if let Some((why, _)) = &queue.failure {
                return Err(why.clone());
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn fail(&self, why: String) {
        tracing::error!("the state can no longer be kept, so writes are refused: {why}");
        let mut queue = lock(&self.queue);
        queue.waiting.clear();
        queue.failure = Some((why, Instant::now()));
        self.changed.notify_all();
    }

    /// Logs batches; how long the log is then.
    fn write<'a>(&self, batches: impl Iterator<Item = &'a Batch>) -> Result<usize, String> {
        let mut layout = lock(&self.layout);
        let layout = layout.as_mut().ok_or("the directory is closed")?;
        let mut configs: HashMap<(u64, Slot), u64> = HashMap::new();
        let mut records = Vec::new();
        for batch in batches {
            let place = (batch.device_id, batch.slot);
            let config = match configs.get(&place) {
                Some(number) => *number,
                None => {
                    let device = layout.device(batch.device_id).map_err(|e| e.to_string())?;
                    let number = match batch.slot {
                        Slot::Running => device.running,
                        Slot::Saved => device.saved,
                    };
                    let number = number.ok_or_else(|| format!("device {} has no such config", batch.device_id))?;
                    configs.insert(place, number);
                    number
                }
            };
            records.push((config, log::record(config, batch)));
        }
        layout.log(records.into_iter()).map_err(|e| explain(&e))?;
        layout.db.persist(PersistMode::SyncData).map_err(|e| explain(&e))?;
        Ok(layout.logged_bytes())
    }
}
