//! The audit log: who changed what, when, and with which result. One JSON object per line.
//!
//! A record is made for each call except those that only read (`access::Kind::Reads` and `Counters`), for each claim to
//! be primary, and for each call that was refused for lack of rights. Records go to a file, if one is configured, and
//! to the log as events of the target `audit` (`SLUICE_LOG=info,audit=info` shows them). A record has at most
//! [`RECORD_BYTES_MAX`] bytes. Clients that change nothing must not be able to fill the disk, so records of failed
//! calls and of claims are limited to [`LIMITED_PER_PEER`] per second and peer and, except for granted claims, to
//! [`LIMITED_PER_SECOND`] in total; the peer's next record tells how many were suppressed.
//!
//! ```text
//!   calls ──record──▶ bounded channel ──▶ thread "audit" ──write──▶ file
//! ```
//!
//! A call that changed something waits until its record is in the channel, but not for the disk, and at most
//! [`HAND_OVER`]: the change is already made, and a hanging disk must not delay the answer. Lost records are counted
//! and logged, and the next record that is written tells how many (`lost`).
//!
//! Tests: below, `tests/rights.rs`, `tests/py/test_access.py`.

use crate::peer::{Origin, Peer, PeerKey};
use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Limit on the bytes of a record, its newline included.
pub const RECORD_BYTES_MAX: usize = 2048;
/// Limit on the records that wait for the disk.
const WAITING_MAX: usize = 1024;
/// Limit on the records of failed calls and of claims, per second and peer: enough for a person to read, and more than
/// a working client causes.
const LIMITED_PER_PEER: u32 = 10;
/// Limit on those of all peers together, per second.
const LIMITED_PER_SECOND: u32 = 100;
/// Limit on the peers that are counted separately; beyond it, all others are counted as one.
const PEERS_MAX: usize = 1024;
/// How long a call waits for room in the channel. While there is none, later calls do not wait.
const HAND_OVER: Duration = Duration::from_millis(200);
/// How long the shutdown waits for the disk.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Interval and total time of retries on a file that would block (a full pipe).
const TRY_EVERY: Duration = Duration::from_millis(10);
const TRY_FOR: Duration = Duration::from_millis(500);
/// `O_NONBLOCK` (open(2)): opening a pipe without a reader fails at once instead of blocking the start.
const NONBLOCK: i32 = 0o4000;
/// Limit on the bytes of each text in a record: four of them, fully escaped, and the rest fit into a record.
const TEXT_BYTES_MAX: usize = 200;

/// The outcome of a claim that made its client primary. The total limit does not apply to it.
pub(crate) const GRANTED: &str = "Granted";

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The method's path, such as `/p4.v1.P4Runtime/Write`.
    pub method: String,
    /// A description of the request.
    pub what: String,
    /// `Ok`, or the status code of the refusal.
    pub outcome: String,
    /// The refusal's message.
    pub message: String,
    /// Duration of the call.
    pub took: Duration,
    /// Whether the limits apply: a peer without the right to change anything could cause this record. True except for
    /// successful changes.
    pub limited: bool,
}

/// The destination of records; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    writer: Option<Arc<Writer>>,
    limits: Arc<Mutex<Limits>>,
}

/// Counts of limited records in the current second.
#[derive(Debug, Default)]
struct Limits {
    second: Option<Instant>,
    all: u32,
    /// By peer: records made in this second, and records suppressed since the last one.
    peers: HashMap<Option<PeerKey>, (u32, u64)>,
}

impl Limits {
    /// Counts a record of a peer. Returns how many were suppressed before it; `None` if this one is suppressed, too.
    fn take(&mut self, peer: PeerKey, now: Instant, of_all: bool) -> Option<u64> {
        if self.second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            (self.second, self.all) = (Some(now), 0);
            // Peers without suppressed records need not be remembered.
            self.peers.retain(|_, (made, missing)| {
                *made = 0;
                *missing > 0
            });
        }
        let room = self.peers.len() < PEERS_MAX;
        let peer = Some(peer).filter(|peer| room || self.peers.contains_key(&Some(peer.clone())));
        let (made, missing) = self.peers.entry(peer).or_default();
        if *made >= LIMITED_PER_PEER || of_all && self.all >= LIMITED_PER_SECOND {
            *missing += 1;
            return None;
        }
        *made += 1;
        self.all += u32::from(of_all);
        Some(std::mem::take(missing))
    }
}

#[derive(Debug)]
struct Writer {
    records: Option<mpsc::Sender<String>>,
    thread: Option<JoinHandle<()>>,
    /// Signalled by the thread when it ends.
    ended: Mutex<std::sync::mpsc::Receiver<()>>,
    path: PathBuf,
    reopen: Arc<Mutex<Option<Disk>>>,
    /// Whether the last record found no room in time.
    stuck: AtomicBool,
    losses: Arc<Losses>,
}

/// Counts of records that were not written.
#[derive(Debug, Default)]
struct Losses {
    all: AtomicU64,
    /// Those of them that no record has reported yet.
    unsaid: AtomicU64,
}

impl Losses {
    /// Counts a lost record. Logs the first one, then each time the number reaches a power of two.
    fn add(&self, path: &Path, why: impl fmt::Display) {
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        let all = self.all.fetch_add(1, Ordering::Relaxed) + 1;
        if all.is_power_of_two() {
            tracing::error!("a record of the audit log {} is lost: {why} ({all} records so far)", path.display());
        }
    }
}

/// The file, or whatever records are written to.
struct Disk(Box<dyn Write + Send>);

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).custom_flags(NONBLOCK).open(path)
}

/// Writes a record; retries for a while if a pipe is full.
fn write(file: &mut dyn Write, record: &str) -> std::io::Result<()> {
    let start = Instant::now();
    loop {
        // A record is shorter than PIPE_BUF (pipe(7)), so a pipe takes all of it or nothing.
        match file.write_all(record.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < TRY_FOR => {
                std::thread::sleep(TRY_EVERY);
            }
            done => return done,
        }
    }
}

impl Audit {
    /// Appends to a file, which is created if it does not exist (mode 0640).
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn to_file(path: &Path) -> std::io::Result<Audit> {
        let file = open(path)?;
        Audit::to(Disk(Box::new(file)), path)
    }

    fn to(mut file: Disk, path: &Path) -> std::io::Result<Audit> {
        let (records, mut waiting) = mpsc::channel::<String>(WAITING_MAX);
        let reopen: Arc<Mutex<Option<Disk>>> = Arc::default();
        let (end, ended) = std::sync::mpsc::channel();
        let losses: Arc<Losses> = Arc::default();
        let (shown, new, lost) = (path.to_path_buf(), Arc::clone(&reopen), Arc::clone(&losses));
        let body = move || {
            let _end: std::sync::mpsc::Sender<()> = end;
            while let Some(record) = waiting.blocking_recv() {
                if let Some(new) = new.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    file = new;
                }
                if let Err(error) = write(file.0.as_mut(), &record) {
                    lost.add(&shown, error);
                }
            }
        };
        let thread = std::thread::Builder::new().name("audit".to_string()).spawn(body)?;
        let writer = Writer {
            records: Some(records),
            thread: Some(thread),
            ended: Mutex::new(ended),
            path: path.to_path_buf(),
            reopen,
            stuck: AtomicBool::new(false),
            losses,
        };
        Ok(Audit { writer: Some(Arc::new(writer)), ..Audit::default() })
    }

    /// Opens the file again, after log rotation has moved it.
    ///
    /// # Errors
    ///
    /// The file cannot be opened; records continue to go to the old one.
    pub fn reopen(&self) -> std::io::Result<()> {
        if let Some(writer) = &self.writer {
            let file = open(&writer.path)?;
            *writer.reopen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Disk(Box::new(file)));
        }
        Ok(())
    }

    /// Number of records that were not written, or not in time.
    pub fn lost(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.losses.all.load(Ordering::Relaxed))
    }

    /// Makes a record. It waits only briefly for room in the channel, and not for the disk.
    pub async fn record(&self, peer: &Peer, entry: Entry) {
        if let Some((missing, writer)) = self.begin(peer, &entry).zip(self.writer.as_ref()) {
            writer.hand_over(peer, &entry, missing).await;
        }
    }

    /// As [`Audit::record`], for threads outside the async runtime.
    pub fn record_blocking(&self, peer: &Peer, entry: Entry) {
        if let Some((missing, writer)) = self.begin(peer, &entry).zip(self.writer.as_ref()) {
            writer.hand_over_blocking(peer, &entry, missing);
        }
    }

    /// Logs the record. Returns how many of the peer's records were suppressed before it; `None` if this one is, too.
    fn begin(&self, peer: &Peer, entry: &Entry) -> Option<u64> {
        let missing = match entry.limited {
            true => {
                let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
                limits.take(peer.origin.key(), Instant::now(), entry.outcome != GRANTED)?
            }
            false => 0,
        };
        let (method, what, outcome) = (entry.method.as_str(), cut(&entry.what), entry.outcome.as_str());
        tracing::info!(target: "audit", who = %peer, method, what, outcome, message = cut(&entry.message), took_us = entry.took.as_micros() as u64);
        Some(missing)
    }
}

impl Writer {
    async fn hand_over(&self, peer: &Peer, entry: &Entry, missing: u64) {
        let Some(records) = &self.records else { return };
        // If the disk is known to be stuck, do not wait for it again.
        let room = match self.stuck.load(Ordering::Relaxed) {
            true => records.try_reserve().ok(),
            false => tokio::time::timeout(HAND_OVER, records.reserve()).await.ok().and_then(Result::ok),
        };
        self.put(room, peer, entry, missing);
    }

    fn hand_over_blocking(&self, peer: &Peer, entry: &Entry, missing: u64) {
        let Some(records) = &self.records else { return };
        let start = Instant::now();
        let room = loop {
            match records.try_reserve() {
                Ok(room) => break Some(room),
                Err(_) if self.stuck.load(Ordering::Relaxed) || start.elapsed() >= HAND_OVER => break None,
                Err(_) => std::thread::sleep(TRY_EVERY),
            }
        };
        self.put(room, peer, entry, missing);
    }

    fn put(&self, room: Option<mpsc::Permit<'_, String>>, peer: &Peer, entry: &Entry, missing: u64) {
        self.stuck.store(room.is_none(), Ordering::Relaxed);
        match room {
            Some(room) => {
                let lost = self.losses.unsaid.swap(0, Ordering::Relaxed);
                room.send(line(peer, entry, missing, lost));
            }
            None => self.losses.add(&self.path, format_args!("the disk takes none, and {WAITING_MAX} wait for it")),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.records = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The thread ends when everything is written; if it hangs on the disk, the shutdown does not wait for it.
        let hangs = ended.recv_timeout(LAST_WRITES) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        match self.thread.take() {
            Some(_) if hangs => {
                tracing::error!("the audit log {} takes no more; its last records are lost", self.path.display());
            }
            Some(thread) => _ = thread.join(),
            None => {}
        }
    }
}

/// The beginning of a text, as far as a record has room for it.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn line(peer: &Peer, entry: &Entry, missing: u64, lost: u64) -> String {
    // RFC 3339 in UTC, in whole milliseconds.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = now.subsec_millis() as i32 * 1_000_000;
    let now = prost_types::Timestamp { seconds: now.as_secs() as i64, nanos };
    let mut line = String::with_capacity(512);
    line += &format!("{{\"time\":\"{now}\"");
    let names: Vec<String> = peer.names.iter().map(ToString::to_string).collect();
    if !names.is_empty() {
        line += &format!(",\"certificate\":\"{}\"", escaped(cut(&names.join(" "))));
    }
    match peer.origin {
        Origin::Tcp(address) => line += &format!(",\"peer\":\"{address}\""),
        Origin::Unix { uid, gid, pid } => {
            line += &format!(",\"uid\":{uid},\"gid\":{gid}");
            if let Some(pid) = pid {
                line += &format!(",\"pid\":{pid}");
            }
        }
    }
    line += &format!(",\"method\":\"{}\"", escaped(cut(&entry.method)));
    line += &format!(",\"what\":\"{}\",\"outcome\":\"{}\"", escaped(cut(&entry.what)), escaped(cut(&entry.outcome)));
    if !entry.message.is_empty() {
        line += &format!(",\"message\":\"{}\"", escaped(cut(&entry.message)));
    }
    if missing > 0 {
        line += &format!(",\"not_recorded\":{missing}");
    }
    if lost > 0 {
        line += &format!(",\"lost\":{lost}");
    }
    line + &format!(",\"took_us\":{}}}\n", entry.took.as_micros())
}

/// Escapes a text for a JSON string (RFC 8259, 7). Control characters become spaces, since no text of a record needs
/// them.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Name;

    #[test]
    fn a_record_is_bounded_whatever_it_says() {
        let names = (0..100).map(|i| Name { kind: "DNS", value: format!("\"{}\\{i}", "n".repeat(200)) }).collect();
        let peer = Peer { origin: Origin::Tcp("[2001:db8::1]:65535".parse().unwrap()), names, private: true };
        let long = "\"\\\n\u{1f600}".repeat(1000);
        let entry = Entry {
            method: long.clone(),
            what: long.clone(),
            outcome: "Ok".into(),
            message: long,
            ..Default::default()
        };
        let line = line(&peer, &entry, u64::MAX, u64::MAX);
        // Every character is escaped.
        assert!(line.len() <= RECORD_BYTES_MAX && line.ends_with("}\n"), "{} {line}", line.len());
        assert_eq!(line.matches('\n').count(), 1);
    }

    fn user(uid: u32) -> Peer {
        Peer { origin: Origin::Unix { uid, gid: 8, pid: Some(9) }, names: Arc::new([]), private: true }
    }

    fn entry(outcome: &str, limited: bool) -> Entry {
        Entry { method: "/m".into(), what: "w".into(), outcome: outcome.into(), limited, ..Default::default() }
    }

    fn run(future: impl Future) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
    }

    #[test]
    fn records_are_on_disk_when_the_last_holder_is_gone_and_floods_are_cut() {
        let path = std::env::temp_dir().join(format!("sluice-audit-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let audit = Audit::to_file(&path).unwrap();
        run(async {
            audit.record(&user(7), entry("Ok", false)).await;
            for outcome in ["PermissionDenied", "NotFound", "Backup", GRANTED] {
                for _ in 0..300 {
                    audit.record(&user(7), entry(outcome, true)).await;
                }
            }
        });
        drop(audit);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let first = text.lines().next().unwrap();
        assert!(
            first.contains(r#""uid":7,"gid":8,"pid":9,"method":"/m","what":"w","outcome":"Ok","took_us":0}"#),
            "{first}"
        );
        // All within a second or two; on a busy machine somewhat more.
        assert!(text.lines().count() < 1 + 20 * LIMITED_PER_PEER as usize, "{}", text.lines().count());
    }

    #[test]
    fn a_flood_of_one_peer_displaces_no_record_of_another_and_is_counted() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let made = |limits: &mut Limits, uid, tries: u32, of_all| {
            (0..tries).filter(|_| limits.take(PeerKey::User(uid), start, of_all).is_some()).count()
        };
        assert_eq!(made(&mut limits, 1, 5000, true), LIMITED_PER_PEER as usize);
        assert_eq!(made(&mut limits, 2, 1, true), 1);
        // All peers together have a limit, too, except for granted claims.
        let all: usize = (10..1000).map(|uid| made(&mut limits, uid, 2, true)).sum();
        assert_eq!(all, (LIMITED_PER_SECOND - LIMITED_PER_PEER - 1) as usize);
        assert_eq!(made(&mut limits, 3, 1, false), 1);
        let later = start + Duration::from_secs(1);
        assert_eq!(limits.take(PeerKey::User(1), later, true), Some(u64::from(5000 - LIMITED_PER_PEER)));
        assert_eq!(limits.take(PeerKey::User(1), later, true), Some(0));
        // However many peers there are, only so many are counted separately.
        (0..5000).for_each(|uid| _ = limits.take(PeerKey::User(uid), later, true));
        assert!(limits.peers.len() <= PEERS_MAX + 1, "{}", limits.peers.len());
    }

    /// A disk that hangs until it is told to continue.
    struct Hanging(std::sync::mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Hanging {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_hangs_keeps_no_call_and_losses_are_counted_and_recorded() {
        let (go_on, hangs) = std::sync::mpsc::channel();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let audit = Audit::to(Disk(Box::new(Hanging(hangs, Arc::clone(&written)))), Path::new("audit")).unwrap();
        run(async {
            // More than fit, and one that is being written. Only the first one without room waits.
            for _ in 0..WAITING_MAX + 1 + 500 {
                audit.record(&user(7), entry("Ok", false)).await;
            }
            assert!(audit.lost() >= 499, "{}", audit.lost());
            drop(go_on);
            // The thread continues.
            let before = audit.lost();
            while audit.lost() == before && !String::from_utf8_lossy(&written.lock().unwrap()).contains("\"lost\":") {
                tokio::time::sleep(Duration::from_millis(10)).await;
                if audit.writer.as_ref().is_some_and(|w| w.records.as_ref().is_some_and(|r| r.capacity() > 0)) {
                    audit.record(&user(7), entry("Ok", false)).await;
                }
            }
        });
        drop(audit);
        assert!(String::from_utf8_lossy(&written.lock().unwrap()).contains("\"lost\":"));
    }

    #[test]
    fn records_of_threads_outside_the_runtime_wait_no_longer_than_others() {
        let (go_on, hangs) = std::sync::mpsc::channel();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let audit = Audit::to(Disk(Box::new(Hanging(hangs, Arc::clone(&written)))), Path::new("audit")).unwrap();
        for _ in 0..WAITING_MAX + 1 + 500 {
            audit.record_blocking(&user(7), entry("Ok", false));
        }
        assert!(audit.lost() >= 499, "{}", audit.lost());
        drop(go_on);
        drop(audit);
        assert!(written.lock().unwrap().starts_with(b"{\"time\":"));
    }

    #[test]
    fn a_hanging_disk_does_not_hold_up_the_end() {
        let (_go_on, hangs) = std::sync::mpsc::channel();
        let audit = Audit::to(Disk(Box::new(Hanging(hangs, Arc::default()))), Path::new("audit")).unwrap();
        run(audit.record(&user(7), entry("Ok", false)));
        // Must return; once it did not.
        drop(audit);
    }
}
