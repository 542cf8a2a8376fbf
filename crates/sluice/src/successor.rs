//! Hands a running switch over to a new process (`sluice restart`), so that packets wait only while ports change hands.
//!
//! ```text
//!   running switch                                    new process: same arguments, the binary now on disk
//!   starts it; a socket is its standard input ──────▶ compiles, starts DPDK
//!   closes the state directory          ◀── `state` ─
//!                                        ─── `yes` ─▶ reads it, makes machine code and tables
//!   stops workers, closes ports, sockets ◀─ `ports` ─
//!                                        ─── `yes` ─▶ opens ports, listens
//!   ends
//! ```
//!
//! **Invariants.** Until `ports` the running switch forwards packets. If the new process ends before that, the running
//! switch continues: it reopens the directory and writes its whole state there. From `state` on it refuses changes
//! (UNAVAILABLE), so the new process has every acknowledged change. If the running switch crashes during the handover,
//! the new process sees the end of its input and continues at once. If it is told to stop, it answers `no`, and no
//! switch is left.
//!
//! Tests: below; `tests/py/test_takeover.py`.

use crate::state::State;
use grpc::Handle;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The environment variable that is set for a successor.
const VARIABLE: &str = "SLUICE_TAKES_OVER";
/// How long a new process may take until it asks for the ports. A million entries take three seconds.
const READY_MAX: Duration = Duration::from_secs(120);
/// How often the parent checks whether it still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a failed successor may take to end by itself before it is killed.
const ENDS_MAX: Duration = Duration::from_secs(1);
/// The longest line of the protocol.
const LINE_BYTES_MAX: usize = 4096;
/// The refusal of writes during a handover.
const LENT: &str = "a new process of the switch takes over; try again in a moment";

const STATE: &str = "state";
const PORTS: &str = "ports";
const YES: &str = "yes";
const NO: &str = "no";
const ENDING: &str = "the switch is ending";

/// A successor that waits for the ports.
pub struct Takeover {
    /// Its process id.
    pub pid: u32,
    socket: UnixStream,
}

impl Takeover {
    /// Tells the successor that ports and sockets are closed.
    pub fn give_ports(mut self) {
        // An error means that it has ended meanwhile.
        let _ = writeln!(self.socket, "{YES}");
    }
}

/// Starts successors, one at a time.
pub struct Successors {
    state: Option<Arc<State>>,
    arguments: Vec<OsString>,
    /// Where ready successors are announced; `None` once one has taken over.
    ready: Mutex<Option<Sender<Takeover>>>,
    /// The successor that is being started.
    started: Mutex<Started>,
}

#[derive(Default)]
struct Started {
    socket: Option<UnixStream>,
    /// The switch is stopping, so no successor may take over.
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Successors {
    /// Returns the starter for a switch with these arguments. A successor that is ready is sent to `ready`, upon which
    /// the switch is to end.
    pub fn new(state: Option<Arc<State>>, arguments: Vec<OsString>, ready: Sender<Takeover>) -> Successors {
        Successors { state, arguments, ready: Mutex::new(Some(ready)), started: Mutex::default() }
    }

    /// Refuses takeovers from now on, because the switch is stopping.
    pub fn stop(&self) {
        let mut started = lock(&self.started);
        started.over = true;
        if let Some(socket) = &mut started.socket {
            // An error means that it has ended, which is just as well.
            let _ = writeln!(socket, "{NO} {ENDING}");
        }
    }

    /// Starts a successor and waits until it needs only the ports. Returns its process id.
    ///
    /// # Errors
    /// If there is no state directory, another successor is being started, or this one does not get ready in time. The
    /// switch then continues unchanged.
    pub fn start(&self, handle: &Handle) -> Result<u32, String> {
        let mut ready = match self.ready.try_lock() {
            Ok(ready) => ready,
            Err(TryLockError::WouldBlock) => return Err("a new process is being started already".to_string()),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let Some(to_main) = &*ready else { return Err("a new process has taken over already".to_string()) };
        let Some(state) = &self.state else {
            return Err(
                "a new process would begin with nothing: `sluice run --state DIR` keeps what it takes over".into()
            );
        };
        if std::process::id() == 1 {
            return Err("this is process 1, and with it the container would end: start a new container".to_string());
        }
        if self.arguments.iter().skip(1).any(|argument| argument == "-") {
            return Err(
                "an argument is `-`, and a new process has other standard files: name a file instead".to_string()
            );
        }
        let begin = Instant::now();
        let (mut child, socket) = self.spawn()?;
        let pid = child.id();
        {
            let mut started = lock(&self.started);
            started.socket = socket.try_clone().ok();
            if started.over {
                return Err(end(&mut child, ENDING.to_string()));
            }
        }
        tracing::info!(pid, "a new process is to take over");
        let mut lent = false;
        let prepared = prepare(
            &socket,
            begin,
            || child.try_wait().ok().flatten().is_some(),
            || {
                // Write changes that the disk has refused so far.
                handle.with(control::Control::revive).map_err(|e| e.message)?;
                state.store().lend(LENT, READY_MAX)?;
                lent = true;
                Ok(())
            },
        );
        let done = prepared.and_then(|()| {
            tracing::info!(pid, took_ms = begin.elapsed().as_millis() as u64, "the new process is ready");
            to_main.send(Takeover { pid, socket }).map_err(|_| ENDING.to_string())
        });
        if done.is_ok() {
            *ready = None;
        }
        done.map(|()| pid).map_err(|why| {
            let why = end(&mut child, why);
            lock(&self.started).socket = None;
            if lent {
                state.store().take_back();
                // An error here recurs with the next change, and is reported then.
                let _ = handle.with(control::Control::revive);
            }
            tracing::warn!("{why}; this process continues");
            why
        })
    }

    fn spawn(&self) -> Result<(Child, UnixStream), String> {
        let binary = std::env::current_exe().map_err(|e| format!("the binary's path is not known: {e}"))?;
        // Linux appends this to the name of a replaced file.
        let path = binary.to_string_lossy();
        let binary = path.strip_suffix(" (deleted)").map_or_else(|| binary.clone(), PathBuf::from);
        let (ours, theirs) = UnixStream::pair().map_err(|e| format!("no socket to the new process: {e}"))?;
        pktio_dpdk::close_on_exec();
        let (name, arguments) = self.arguments.split_first().ok_or("the switch's arguments are not known")?;
        let child = Command::new(&binary)
            .arg0(name)
            .args(arguments)
            .env(VARIABLE, "1")
            // systemd's watchdog applies to the process named here; without it, to the main process.
            .env_remove("WATCHDOG_PID")
            .stdin(OwnedFd::from(theirs))
            .spawn();
        child.map(|child| (child, ours)).map_err(|e| format!("{} cannot be started: {e}", binary.display()))
    }
}

/// Serves a successor's requests until it asks for the ports.
fn prepare(
    socket: &UnixStream,
    begin: Instant,
    mut has_ended: impl FnMut() -> bool,
    mut lend: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let io = |e: std::io::Error| format!("the new process cannot be heard: {e}");
    socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(io)?;
    let mut lines = BufReader::new(socket);
    let mut answers = socket;
    let mut line = Vec::new();
    loop {
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => {
                return Err("the new process has refused to start; its messages are in the switch's log".to_string());
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(e) => return Err(io(e)),
        }
        if let [text @ .., b'\n'] = &line[..] {
            match text {
                text if text == STATE.as_bytes() => {
                    lend()?;
                    writeln!(answers, "{YES}").map_err(io)?;
                }
                text if text == PORTS.as_bytes() => return Ok(()),
                text => return Err(format!("the new process says `{}`", String::from_utf8_lossy(text))),
            }
            line.clear();
        } else if line.len() > LINE_BYTES_MAX || begin.elapsed() > READY_MAX {
            return Err(format!("the new process is not ready after {READY_MAX:?}"));
        } else if has_ended() && line.is_empty() {
            // There is no end of file while the successor's children hold the socket.
            return Err("the new process has refused to start; its messages are in the switch's log".to_string());
        }
    }
}

/// Waits for a failed successor to end, or kills it; returns the reason with its exit status.
fn end(child: &mut Child, why: String) -> String {
    let begin = Instant::now();
    // A process that has closed its socket is about to end.
    let mut ended = child.try_wait().ok().flatten();
    while ended.is_none() && begin.elapsed() < ENDS_MAX {
        std::thread::sleep(POLL_INTERVAL / 10);
        ended = child.try_wait().ok().flatten();
    }
    if let Some(status) = ended {
        return format!("{why} ({status})");
    }
    match child.kill().and_then(|()| child.wait()) {
        Ok(_) => why,
        Err(e) => format!("{why}; and it cannot be ended: {e}"),
    }
}

/// The running switch, as its successor sees it.
pub struct Predecessor {
    socket: BufReader<UnixStream>,
}

impl Predecessor {
    /// Returns the switch that this process is to replace; `None` if it was not started for that.
    ///
    /// # Errors
    /// If the variable is set but standard input is not a socket.
    pub fn of_this_process() -> Result<Option<Predecessor>, String> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let wrong = |e: std::io::Error| {
            format!("{VARIABLE} is set by `sluice restart` only: standard input is not a socket ({e})")
        };
        let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(wrong)?;
        let socket = UnixStream::from(input);
        socket.peer_addr().map_err(wrong)?;
        Ok(Some(Predecessor { socket: BufReader::new(socket) }))
    }

    /// Waits until the state directory is free.
    ///
    /// # Errors
    /// If the running switch refuses. That it has crashed is no error.
    pub fn take_state(&mut self) -> Result<(), String> {
        self.ask(STATE)
    }

    /// Waits until ports and sockets are free. From then on this process is the switch.
    ///
    /// # Errors
    /// As [`Predecessor::take_state`].
    pub fn take_ports(&mut self) -> Result<(), String> {
        self.ask(PORTS)
    }

    fn ask(&mut self, for_what: &str) -> Result<(), String> {
        let mut answer = String::new();
        let said = writeln!(self.socket.get_mut(), "{for_what}").and_then(|()| self.socket.read_line(&mut answer));
        match said {
            Ok(0) => Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(()),
            Ok(_) if answer.trim_end() == YES => Ok(()),
            Ok(_) => Err(format!("the running switch says `{}`", answer.trim_end())),
            Err(e) => Err(format!("the running switch cannot be heard: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_new_process_says_is_answered_in_turn() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let asking = std::thread::spawn(move || {
            let mut predecessor = Predecessor { socket: BufReader::new(theirs) };
            predecessor.take_state().and_then(|()| predecessor.take_ports())
        });
        let mut lent = 0;
        let lend = || {
            lent += 1;
            Ok(())
        };
        prepare(&ours, Instant::now(), || false, lend).unwrap();
        assert_eq!(lent, 1);
        Takeover { pid: 1, socket: ours }.give_ports();
        assert_eq!(asking.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_new_process_that_ends_or_says_something_else_is_given_nothing() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(prepare(&ours, Instant::now(), || false, || Ok(())).unwrap_err().contains("refused to start"));

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        writeln!(theirs, "hello").unwrap();
        assert!(prepare(&ours, Instant::now(), || false, || Ok(())).unwrap_err().contains("`hello`"));

        // A child of the successor may hold the socket.
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(prepare(&ours, Instant::now(), || true, || Ok(())).unwrap_err().contains("refused to start"));

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[b'x'; LINE_BYTES_MAX + 1]).unwrap();
        assert!(prepare(&ours, Instant::now(), || false, || Ok(())).is_err());

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        writeln!(theirs, "{STATE}").unwrap();
        let refused = prepare(&ours, Instant::now(), || false, || Err("the disk is full".to_string()));
        assert_eq!(refused.unwrap_err(), "the disk is full");
    }

    #[test]
    fn without_the_running_switch_the_new_process_goes_on_alone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        let mut predecessor = Predecessor { socket: BufReader::new(theirs) };
        assert_eq!(predecessor.take_state(), Ok(()));
        assert_eq!(predecessor.take_ports(), Ok(()));
    }
}
