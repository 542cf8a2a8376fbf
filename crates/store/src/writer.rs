//! The open store: a queue of batches, a thread that logs them, and a thread that folds the log.
//!
//! Group commit: the thread `state` takes all waiting batches, logs each as one record, and syncs once for all of them.
//! During a sync the next batches queue up, so the number of syncs depends on the disk, not on the number of requests.
//! The thread `state-fold` folds the log when it has grown; if it cannot keep up, logging waits for it. Both have a
//! heartbeat: a disk that does not respond makes them stuck, and the service's watchdog is no longer fed.
//!
//! Who asks what becomes of a ticket is told by the thread that decides it, so nobody has to wait in a thread.
//!
//! Locks: `queue` is held briefly; `layout` during disk writes, by the threads or by [`Store::replace`];
//! `folding` during a fold, and while configs are removed or the directory is closed. They are acquired
//! in the order `folding`, `layout`, `queue`.

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
use control::journal::{Batch, Contents, Journal, Slot, Ticket, WhenKept};
use heartbeat::Heartbeat;
use messages::sluice::v1::KeptDevice;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Minimum time after a failure before the store is opened again.
const RETRY: Duration = Duration::from_millis(500);
/// Length in bytes at which the log is folded: it is read at start, so it must stay short.
const FOLD_BYTES: usize = 16 << 20;
/// Maximum bytes that are logged and synced together: they are buffered in memory, and requests wait for each other.
const GROUP_BYTES: usize = 32 << 20;
/// Interval of the check, while nothing is written, that the directory still exists.
const CHECK: Duration = Duration::from_secs(1);
/// Time limit of an iteration of the logging thread: one group written and synced. A disk that takes longer has failed.
const ROUND_MAX: Duration = Duration::from_secs(30);
/// Time limit of a fold, which may write tables of all entities.
const FOLD_MAX: Duration = Duration::from_secs(300);
/// Writes wait when the log has grown to this many times its limit during a fold.
const AHEAD: usize = 4;

/// Deletes the state in a directory.
///
/// # Errors
/// Another process uses it, it is not a state directory, or its files cannot be removed.
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
        Ok(Kind::Older(_)) => {
            crate::migration::check_unused(dir)?;
            std::fs::remove_dir_all(dir.join("db")).map_err(io)?;
        }
        // A damaged directory can still be deleted.
        Ok(Kind::New | Kind::Current) | Err(OpenError::Damaged { .. }) => {}
        Err(other) => return Err(other),
    }
    // `format` identifies the other files as ours, so it is removed last.
    for name in folder.names().map_err(io)? {
        if is_numbered(&name) || [MANIFEST, MARK].contains(&name.as_str()) || name.ends_with(".new") {
            folder.remove(&name).map_err(io)?;
        }
    }
    folder.sync().and_then(|()| folder.remove(FORMAT_FILE)).and_then(|()| folder.sync()).map_err(io)
}

/// An open state directory.
pub struct Store {
    shared: Arc<Shared>,
    dir: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Signalled when the log has grown, or the store is dropped.
    grown: Condvar,
    layout: Mutex<Option<Layout>>,
    /// Id and records of the last open directory, to be written again if it was lost.
    lost: Mutex<(u64, Records)>,
    folding: Mutex<()>,
    fold_bytes: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Ticket, Batch)>,
    last: Ticket,
    kept: Ticket,
    /// Ranges (inclusive) of tickets whose changes were lost, one per failure.
    lost: Vec<(Ticket, Ticket)>,
    /// The last failure, and the time of the last attempt to open the directory again.
    failure: Option<(String, Instant)>,
    /// Number of times that the directory was opened again.
    reopened: u64,
    /// The log's length after the last write.
    log_bytes: usize,
    stop: bool,
    /// Who is to be told what becomes of a ticket ([`Shared::answer`]).
    told: Vec<(Ticket, WhenKept)>,
}

impl Queue {
    /// What became of a ticket; `None` while it is not on disk.
    fn outcome(&self, ticket: Ticket) -> Option<Result<(), String>> {
        // The store may have recovered since then, but lost changes stay lost.
        if self.lost.iter().any(|(from, to)| (*from..=*to).contains(&ticket)) {
            return Some(Err("the disk failed meanwhile".into()));
        }
        if self.kept >= ticket {
            return Some(Ok(()));
        }
        self.failure.as_ref().map(|(why, _)| Err(why.clone()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens a directory, or creates one. Other processes cannot open it until the store is dropped.
    ///
    /// # Errors
    /// Another process uses it, it is not a state directory, damaged, of an
    /// unknown format, or cannot be read or written.
    pub fn open(dir: &Path) -> Result<Store, OpenError> {
        Store::open_with(dir, FOLD_BYTES)
    }

    /// Like [`Store::open`], with another log length in bytes at which it is folded.
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

    /// Messages that a start should report: a truncated torn write, a migration.
    pub fn notes(&self) -> Vec<String> {
        self.layout().as_ref().map_or(vec![], |layout| layout.notes().to_vec())
    }

    /// The devices that have stored state.
    pub fn devices(&self) -> Vec<u64> {
        self.layout().as_ref().map_or(vec![], Layout::devices)
    }

    /// Reads the stored state of a device, with entities not yet decoded.
    ///
    /// # Errors
    /// The directory is closed after a failure, or a file is damaged or cannot be read.
    pub fn stored(&self, device_id: u64) -> Result<Stored, OpenError> {
        self.layout().as_ref().ok_or_else(|| self.closed())?.stored(device_id)
    }

    /// Like [`Store::stored`], with decoded entities.
    ///
    /// # Errors
    /// As [`Store::stored`], or an entity is invalid.
    pub fn kept(&self, device_id: u64) -> Result<Kept, OpenError> {
        self.stored(device_id)?.decode()
    }

    /// Stores the program that the switch was started with.
    ///
    /// # Errors
    /// The directory is closed after a failure, or cannot be written.
    pub fn set_command_line(&self, device_id: u64, program: &[u8]) -> Result<(), String> {
        let mut layout = self.layout();
        layout.as_mut().ok_or_else(|| self.closed().to_string())?.set_command_line(device_id, program)
    }

    /// Closes the directory, so that another process can open it. From then on changes are
    /// refused with the reason `why`, at least for `grace`; afterwards the next change opens the
    /// directory again, unless another process has it.
    ///
    /// # Errors
    /// What prevents the state from being complete on disk, or that the directory has moved; nothing is changed then.
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
                // A change arrived meanwhile.
                continue;
            }
            let open = layout.as_mut().ok_or("the directory is closed")?;
            open.check()?;
            *lock(&self.shared.lost) = (open.manifest.id, open.records().clone());
            *layout = None;
            queue.failure = Some((why.to_string(), Instant::now() + grace));
            self.shared.changed.notify_all();
            drop(queue);
            self.shared.answer();
            return Ok(());
        }
    }

    /// Ends the grace period of [`Store::lend`]: the next change opens the directory again.
    pub fn take_back(&self) {
        if let Some((_, tried)) = &mut lock(&self.shared.queue).failure {
            *tried = Instant::now().checked_sub(RETRY).unwrap_or(*tried);
        }
    }

    /// The layout of the directory; `None` inside if it is closed.
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
            // A panic was reported where it occurred.
            let _ = thread.join();
        }
    }
}

impl Journal for Store {
    fn append(&self, batch: Batch) -> Ticket {
        let mut queue = lock(&self.shared.queue);
        queue.last.0 += 1;
        let ticket = queue.last;
        // After a failure nothing is queued; waiting for the ticket returns the failure.
        if queue.failure.is_none() {
            queue.waiting.push_back((ticket, batch));
            self.shared.changed.notify_all();
        }
        ticket
    }

    fn kept(&self) -> Ticket {
        lock(&self.shared.queue).kept
    }

    fn when_kept(&self, ticket: Ticket, then: WhenKept) {
        let mut queue = lock(&self.shared.queue);
        match queue.outcome(ticket) {
            None => queue.told.push((ticket, then)),
            Some(done) => {
                drop(queue);
                then(done);
            }
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
            // The new state is already on disk.
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
        // Closed first: a process can lock the directory only once.
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
                drop(queue);
                self.shared.answer();
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
            // Iterates at least once a second, to check the directory.
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
                    self.answer();
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
        drop(queue);
        self.answer();
    }

    /// Tells everybody whose ticket is decided.
    fn answer(&self) {
        let mut decided = Vec::new();
        {
            let mut queue = lock(&self.queue);
            for (ticket, then) in std::mem::take(&mut queue.told) {
                match queue.outcome(ticket) {
                    Some(outcome) => decided.push((outcome, then)),
                    None => queue.told.push((ticket, then)),
                }
            }
        }
        decided.into_iter().for_each(|(outcome, then)| then(outcome));
    }

    /// Fails if the directory is gone, even when nothing is written, so that an
    /// operator learns of it before a controller does.
    fn look_for_directory(&self) {
        let checked = lock(&self.layout).as_mut().map_or(Ok(()), Layout::check);
        if let Err(why) = checked {
            self.fail(why);
        }
    }

    /// Logs batches. Returns the length of the log in bytes.
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
            // A crash may damage only the last frame, so each frame is synced before the next one is started.
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
