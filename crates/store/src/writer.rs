//! The open store: a queue of batches, the thread that logs them and the one that folds the log.
//!
//! Group commit: the thread `state` takes all batches that wait, logs each as one record, and syncs once for all of
//! them. While it syncs the next ones queue up, so the number of syncs follows the disk and not the number of requests.
//! The thread `state-fold` folds the log when it has grown; if it cannot keep up, logging waits for it. Both have a heartbeat: a disk
//! that does not answer makes them stuck, and the service's watchdog is not fed.
//!
//! Locks: `queue` is held for moments; `layout` while the disk is written, by the threads or by [`Store::replace`]; `folding` during
//! a fold, and by who removes configs or closes the directory. They are taken in the order `folding`, `layout`, `queue`.

use crate::encode;
use crate::error::{OpenError, explain};
use crate::fold::Fold;
use crate::folder::Folder;
use crate::format::FORMAT_FILE;
use crate::image::{Kind, kind};
use crate::layout::{Kept, Layout, Records, Stored};
use crate::log;
use crate::manifest::{MANIFEST, MARK, is_numbered};
use crate::opening;
use control::journal::{Batch, Contents, Journal, Slot, Ticket};
use heartbeat::Heartbeat;
use messages::sluice::v1::KeptDevice;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a failed store is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// The log is folded when it is so large: it is read at start, so it must stay short.
const FOLD_BYTES: usize = 16 << 20;
/// What is logged and synced together at most: memory for it is taken, and requests wait for each other.
const GROUP_BYTES: usize = 32 << 20;
/// How often it is looked whether the directory is still there while nothing is written.
const CHECK: Duration = Duration::from_secs(1);
/// A round of the thread that logs: a group of requests written and synced. A disk that takes longer does not work.
const ROUND_MAX: Duration = Duration::from_secs(30);
/// A fold writes tables of up to all entities there are.
const FOLD_MAX: Duration = Duration::from_secs(300);
/// How many times that it grows while a fold is under way, before writes wait.
const AHEAD: usize = 4;

/// Drops what a directory holds. Refused while another process has it, and if it is not ours.
pub fn forget(dir: &Path) -> Result<(), OpenError> {
    let io = |e: std::io::Error| OpenError::Io { dir: dir.display().to_string(), why: explain(&e) };
    let folder = match Folder::open(dir) {
        Ok(folder) => folder,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io(e)),
    };
    if !folder.lock(true).map_err(io)? {
        return Err(OpenError::InUse(dir.display().to_string()));
    }
    match kind(&folder) {
        Ok(Kind::Before(_)) => {
            crate::before::check_unused(dir)?;
            std::fs::remove_dir_all(dir.join("db")).map_err(io)?;
        }
        // What is damaged can still be dropped.
        Ok(Kind::New | Kind::Current) | Err(OpenError::Damaged { .. }) => {}
        Err(other) => return Err(other),
    }
    // `format` says whose the rest is, so it is the last.
    for name in folder.names().map_err(io)? {
        if is_numbered(&name) || [MANIFEST, MARK].contains(&name.as_str()) || name.ends_with(".new") {
            folder.remove(&name).map_err(io)?;
        }
    }
    folder.sync().and_then(|()| folder.remove(FORMAT_FILE)).and_then(|()| folder.sync()).map_err(io)
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
    /// Which directory it was, and what it held besides configs: what is written again if it was lost.
    lost: Mutex<(u64, Records)>,
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
    /// How often the directory was opened again.
    reopened: u64,
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
        let layout = opening::open(dir)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            grown: Condvar::new(),
            layout: Mutex::new(Some(layout)),
            lost: Mutex::default(),
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

    /// What a start should report: a record that a crash cut off, a directory that was migrated.
    pub fn notes(&self) -> Vec<String> {
        self.layout().as_ref().map_or(vec![], |layout| layout.notes().to_vec())
    }

    /// Devices of which something is kept.
    pub fn devices(&self) -> Vec<u64> {
        self.layout().as_ref().map_or(vec![], Layout::devices)
    }

    /// Everything that is kept of a device, its entities as they are on disk.
    pub fn stored(&self, device_id: u64) -> Result<Stored, OpenError> {
        self.layout().as_ref().ok_or_else(|| self.closed())?.stored(device_id)
    }

    /// The same, decoded.
    pub fn kept(&self, device_id: u64) -> Result<Kept, OpenError> {
        self.stored(device_id)?.decode()
    }

    /// Remembers the program that the switch was started with.
    pub fn set_command_line(&self, device_id: u64, program: &[u8]) -> Result<(), String> {
        let mut layout = self.layout();
        layout.as_mut().ok_or_else(|| self.closed().to_string())?.set_command_line(device_id, program)
    }

    /// Closes the directory, so that another process can open it. Changes are refused with `why` from then on, for `grace` in any case;
    /// afterwards the next change opens the directory again, unless another process has it.
    ///
    /// Errors: what keeps the state from being complete on disk, and the directory that is not where it was; then nothing changes.
    pub fn lend(&self, why: &str, grace: Duration) -> Result<(), String> {
        loop {
            self.shared.wait_for_all()?;
            let _folding = lock(&self.shared.folding);
            let mut layout = lock(&self.shared.layout);
            let mut queue = lock(&self.shared.queue);
            if let Some((failure, _)) = &queue.failure {
                return Err(failure.clone());
            }
            if queue.kept < queue.last {
                // Something came in between.
                continue;
            }
            let open = layout.as_mut().ok_or("the directory is closed")?;
            open.check()?;
            *lock(&self.shared.lost) = (open.manifest.id, open.records().clone());
            *layout = None;
            queue.failure = Some((why.to_string(), Instant::now() + grace));
            self.shared.changed.notify_all();
            return Ok(());
        }
    }

    /// Ends the grace of [`Store::lend`]: the next change opens the directory again.
    pub fn take_back(&self) {
        if let Some((_, tried)) = &mut lock(&self.shared.queue).failure {
            *tried = Instant::now().checked_sub(RETRY).unwrap_or(*tried);
        }
    }

    /// The directory, if it is open.
    pub(crate) fn layout(&self) -> MutexGuard<'_, Option<Layout>> {
        lock(&self.shared.layout)
    }

    pub(crate) fn closed(&self) -> OpenError {
        let why = self.failure().unwrap_or_else(|| "it is closed after an error".into());
        OpenError::Io { dir: self.dir.display().to_string(), why }
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
        let old = layout.device(device_id);
        let mut write = |contents: Contents, old: Option<u64>| match contents {
            Contents::Same => Ok(old),
            Contents::Empty => Ok(None),
            Contents::New(config, entities) => layout.write_config(config, entities).map(Some),
            Contents::Values(config, values) => {
                layout.write_values(&encode::config(config, true), &mut values.map(Ok)).map(Some)
            }
        };
        let new = write(running, old.running)
            .and_then(|running| Ok(KeptDevice { running, saved: write(saved, old.saved)? }))
            .and_then(|new| layout.set_device(device_id, &new).map(|()| new))
            .and_then(|new| layout.check().map(|()| new));
        let new = new.map_err(|why| self.fail(why))?;
        let old = old.running.into_iter().chain(old.saved);
        let unused: Vec<u64> = old.filter(|number| ![new.running, new.saved].contains(&Some(*number))).collect();
        if !unused.is_empty() {
            // The new one is kept already.
            if let Err(why) = layout.remove(&unused) {
                self.shared.fail(why);
            }
        }
        Ok(())
    }

    fn reopened(&self) -> u64 {
        lock(&self.shared.queue).reopened
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
        let mut lost = lock(&self.shared.lost);
        if let Some(layout) = layout.as_ref() {
            *lost = (layout.manifest.id, layout.records().clone());
        }
        // One process opens it once.
        *layout = None;
        match opening::reopen(&self.dir, lost.0, &lost.1) {
            Ok(opened) => {
                lost.0 = opened.manifest.id;
                *layout = Some(opened);
                let mut queue = lock(&self.shared.queue);
                queue.failure = None;
                queue.reopened += 1;
                queue.log_bytes = 0;
                let lost = (Ticket(queue.kept.0 + 1), queue.last);
                queue.lost.push(lost);
                queue.kept = queue.last;
                tracing::info!(dir = %self.dir.display(), "the state can be kept again");
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                if let Some((failure, _)) = &mut lock(&self.shared.queue).failure {
                    *failure = why.clone();
                }
                Err(why)
            }
        }
    }
}

impl Shared {
    fn run(&self) {
        let heart = Heartbeat::new("state", ROUND_MAX);
        loop {
            // It looks at the directory at least once a second.
            heart.beat();
            let batches = {
                let mut queue = lock(&self.queue);
                let mut idle = false;
                while !idle && !queue.stop && (queue.waiting.is_empty() || queue.log_bytes >= AHEAD * self.fold_bytes) {
                    let (locked, timeout) =
                        self.changed.wait_timeout(queue, CHECK).unwrap_or_else(PoisonError::into_inner);
                    queue = locked;
                    idle = timeout.timed_out() && queue.waiting.is_empty() && queue.failure.is_none();
                }
                if queue.stop && queue.waiting.is_empty() {
                    return;
                }
                if idle {
                    drop(queue);
                    self.look_for_directory();
                    continue;
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
        let heart = Heartbeat::new("state-fold", FOLD_MAX);
        loop {
            heart.rest();
            {
                let mut queue = lock(&self.queue);
                while !queue.stop && (queue.log_bytes < self.fold_bytes || queue.failure.is_some()) {
                    queue = self.grown.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                if queue.stop {
                    return;
                }
            }
            heart.beat();
            if let Err(why) = self.fold() {
                self.fail(why);
            }
        }
    }

    fn fold(&self) -> Result<(), String> {
        let _folding = lock(&self.folding);
        let small = self.fold_bytes as u64;
        let begin = |layout: &mut Option<Layout>| layout.as_mut().map(|layout| Fold::begin(layout, small)).transpose();
        let Some(fold) = begin(&mut lock(&self.layout))? else { return Ok(()) };
        let folded = fold.run()?;
        let mut layout = lock(&self.layout);
        let Some(layout) = layout.as_mut() else { return Ok(()) };
        folded.finish(layout)?;
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

    /// Fails if the directory is not there any more, though nothing is written: an operator hears of it before a controller does.
    fn look_for_directory(&self) {
        let checked = lock(&self.layout).as_mut().map_or(Ok(()), Layout::check);
        if let Err(why) = checked {
            self.fail(why);
        }
    }

    /// Logs batches; how long the log is then.
    fn write<'a>(&self, batches: impl Iterator<Item = &'a Batch>) -> Result<usize, String> {
        let mut layout = lock(&self.layout);
        let layout = layout.as_mut().ok_or("the directory is closed")?;
        let mut configs: HashMap<(u64, Slot), u64> = HashMap::new();
        let (mut records, mut bytes) = (Vec::new(), 0);
        for batch in batches {
            let place = (batch.device_id, batch.slot);
            let config = match configs.get(&place) {
                Some(number) => *number,
                None => {
                    let device = layout.device(batch.device_id);
                    let number = match batch.slot {
                        Slot::Running => device.running,
                        Slot::Saved => device.saved,
                    };
                    let number = number.ok_or_else(|| format!("device {} has no such config", batch.device_id))?;
                    configs.insert(place, number);
                    number
                }
            };
            let record = log::record(config, batch);
            bytes += record.len();
            records.push((config, record));
            // A crash may damage the last frame only, so each is synced before the next one is begun.
            if bytes >= GROUP_BYTES {
                layout.log(std::mem::take(&mut records))?;
                bytes = 0;
            }
        }
        if !records.is_empty() {
            layout.log(records)?;
        }
        Ok(layout.logged_bytes())
    }
}
