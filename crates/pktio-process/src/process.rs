//! One process of a port, from its start to its end.
//!
//! Threads: the port's supervisor, which must live as long as the process: the kernel ends a process when the *thread* that
//! started it ends (`PR_SET_PDEATHSIG`). Tests: `tests/isolated.rs`.

use crate::channel::{Channel, seal};
use crate::port::Ends;
use crate::protocol::{Received, Start, ToProcess, ToSwitch, receive, send};
use crate::sockets::SocketFile;
use crate::words::Words;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shared_memory::{Closer, PeerFile, Watch};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The hidden subcommand of this executable that is a port's process.
pub const SUBCOMMAND: &str = "port-process";

/// How a port's process is started.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments. It must call [`crate::child::main`] before it does anything else.
    pub arguments: Vec<OsString>,
}

static LAUNCHER: Mutex<Option<Launcher>> = Mutex::new(None);

/// Sets how processes are started from now on. Without this it is the running executable with [`SUBCOMMAND`]; tests are
/// executables with other arguments.
pub fn set_launcher(launcher: Launcher) {
    *LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner) = Some(launcher);
}

fn launcher() -> Launcher {
    let set = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The running file, even after it has been replaced on disk.
    set.unwrap_or_else(|| Launcher { program: "/proc/self/exe".into(), arguments: vec![SUBCOMMAND.into()] })
}

/// A running process.
pub(crate) struct Process {
    child: Child,
    /// Readable when it has ended.
    pidfd: OwnedFd,
    /// The control socket. The closer's thread closes it, since files that are queued in it may block when closed.
    control: PeerFile,
    closer: Closer,
    memory: OwnedFd,
    pub channel: Channel,
    /// The eventfds on which its threads sleep, by queue.
    pub events: Vec<Arc<OwnedFd>>,
    /// The queues' ends of its rings, until they are taken.
    pub ends: Vec<Ends>,
    /// The socket that it listens on.
    pub socket: Option<SocketFile>,
    /// What it writes to stderr.
    pub words: Words,
}

/// What is left of a process that was ended.
pub(crate) struct Ended {
    /// How it has ended; `None` if a peer holds it in the kernel.
    pub status: Option<ExitStatus>,
    /// What it wrote to stderr and nobody has read yet.
    pub words: Words,
    /// The process, if it has not ended.
    pub left: Option<Child>,
}

impl Process {
    /// Starts a process and tells it which port to open.
    ///
    /// # Errors
    /// What is missing, in words.
    pub(crate) fn start(start: &Start, closer: &Closer) -> Result<Process, String> {
        let fail = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let (memory, channel) = Channel::create(start.queues).map_err(fail("no memory for its rings"))?;
        let event = || -> io::Result<Arc<OwnedFd>> {
            Ok(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
        };
        let (mut events, mut worker_events, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for queue in 0..usize::from(start.queues) {
            events.push(event().map_err(fail("no eventfd"))?);
            let worker_event = event().map_err(fail("no eventfd"))?;
            let watch = Watch::new(Arc::clone(&worker_event)).map_err(fail("no epoll"))?;
            worker_events.push(worker_event);
            let (inward, outward) = channel.switch_ends(queue).ok_or("its rings are too small")?;
            ends.push(Ends { inward, outward, watch });
        }
        let flags = SocketFlags::CLOEXEC;
        let (control, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|error| format!("no socket: {error}"))?;
        let control = PeerFile::new(control, closer);
        let pairs = events.iter().zip(&worker_events).flat_map(|(process, worker)| [process.as_fd(), worker.as_fd()]);
        let files: Vec<BorrowedFd<'_>> = [memory.as_fd()].into_iter().chain(pairs).collect();
        send(&control, &ToProcess::Start(start.clone()), &files).map_err(fail("no message can be sent"))?;
        let (words, stderr) = Words::new().map_err(fail("no pipe"))?;
        let launcher = launcher();
        let mut command = Command::new(&launcher.program);
        command
            .arg0("sluice")
            .args(&launcher.arguments)
            .env_clear()
            // mimalloc reserves address space by the gigabyte.
            .env("MIMALLOC_ARENA_RESERVE", "65536")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null())
            .stderr(Stdio::from(stderr));
        let mut child = command.spawn().map_err(fail("it cannot be started"))?;
        // The child is not reaped before `pidfd` is there, so the number is still its own.
        let pid = Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("its end cannot be watched (Linux 5.3): {error}"));
            }
        };
        let closer = closer.clone();
        Ok(Process { child, pidfd, control, closer, memory, channel, events, ends, socket: None, words })
    }

    /// Forbids the process to take its memory away, and has it open its port.
    ///
    /// # Errors
    /// The kernel is too old, or the process is gone.
    pub(crate) fn go(&self) -> Result<(), String> {
        seal(&self.memory).map_err(|error| format!("its memory cannot be sealed (Linux 5.1): {error}"))?;
        self.tell(&ToProcess::Go)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The process is gone, or does not read.
    pub(crate) fn tell(&self, message: &ToProcess) -> Result<(), String> {
        send(&self.control, message, &[]).map_err(|error| format!("it takes no message: {error}"))
    }

    /// The next message.
    pub(crate) fn hear(&self) -> Received<ToSwitch> {
        receive(&self.control, &self.closer)
    }

    /// Whether so many files of it wait to be closed that there must not be more.
    pub(crate) fn is_behind(&self) -> bool {
        self.closer.is_behind()
    }

    /// Waits until the process says something (on the socket only if `listens`), ends, or `bell` rings. Returns whether it
    /// has ended.
    pub(crate) fn wait(&self, bell: &OwnedFd, listens: bool, time: Duration) -> bool {
        let mut files = vec![PollFd::new(&self.pidfd, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        if listens {
            files.push(PollFd::new(&self.control, PollFlags::IN));
        }
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        files.extend(self.words.file().map(|file| PollFd::new(file, PollFlags::IN)));
        let _ = poll(&mut files, Some(&time));
        !files[0].revents().is_empty()
    }

    fn has_ended_by(&self, by: Instant) -> bool {
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&time)) {
                Ok(0) if left.is_zero() => return false,
                Ok(0) => {}
                Ok(_) => return true,
                // A signal.
                Err(_) if left.is_zero() => return false,
                Err(_) => {}
            }
        }
    }

    /// Ends the process: asks it to close its port, within `grace`; kills it; and waits for its end, all together at most
    /// for `patience`. If a peer holds it in the kernel, it is left behind.
    pub(crate) fn end(mut self, grace: Duration, patience: Duration) -> Ended {
        let start = Instant::now();
        let _ = shutdown(&self.control, Shutdown::Both);
        if !self.has_ended_by(start + grace) {
            // It may have ended just now, which does no harm.
            let _ = self.child.kill();
        }
        // Now that it does nothing any more: it may have removed the file itself.
        if let Some(socket) = self.socket.take() {
            socket.remove();
        }
        let has_ended = self.has_ended_by(start + patience);
        let Process { mut child, words, .. } = self;
        if has_ended {
            return Ended { status: child.wait().ok(), words, left: None };
        }
        Ended { status: None, words, left: Some(child) }
    }
}

/// A port's processes that were killed and have not ended, since a peer holds them in the kernel. They have files and
/// memory, so there are only so many. When the port is closed, a thread waits for them.
#[derive(Default)]
pub(crate) struct Left(Vec<Child>);

impl Left {
    /// While so many are left behind, no further one is started.
    pub(crate) const MAX: usize = 2;

    pub(crate) fn add(&mut self, child: Option<Child>) {
        self.0.extend(child);
    }

    /// Reaps those that have ended.
    pub(crate) fn reap(&mut self) {
        self.0.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Whether there must not be more.
    pub(crate) fn is_full(&mut self) -> bool {
        self.reap();
        self.0.len() >= Left::MAX
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let children = std::mem::take(&mut self.0);
        if !children.is_empty() {
            let reap = move || children.into_iter().for_each(|mut child| _ = child.wait());
            // If no thread can be started, they stay zombies until the switch ends.
            let _ = std::thread::Builder::new().name("reap".into()).spawn(reap);
        }
    }
}

/// How a process ended, in words.
pub(crate) fn describe(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.signal(), status.code())) {
        Some((Some(signal), _)) => format!("it was ended by signal {signal}"),
        Some((None, Some(code))) => format!("it ended with code {code}"),
        Some((None, None)) => "it ended".to_owned(),
        None => "its peer holds it up in the kernel, so it was left behind".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().expect("every Linux has it")
    }

    #[test]
    fn processes_that_do_not_end_are_so_many_and_no_more_until_one_ends() {
        let mut left = Left::default();
        left.add(None);
        for _ in 0..Left::MAX {
            assert!(!left.is_full());
            left.add(Some(sleeper()));
        }
        assert!(left.is_full());
        left.0[0].kill().expect("it is ours");
        let by = Instant::now() + Duration::from_secs(60);
        while left.is_full() {
            assert!(Instant::now() < by, "it has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(left.0.len(), Left::MAX - 1, "the other one has not");
        // After `Left` is dropped, another thread waits for the processes that have not ended.
        let pid = left.0[0].id();
        left.0[0].kill().expect("it is ours");
        drop(left);
        while std::path::Path::new(&format!("/proc/{pid}")).exists() {
            assert!(Instant::now() < by, "it is reaped");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
