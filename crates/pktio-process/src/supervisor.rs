//! The thread of a port that starts its process, answers it, and starts it again when it has ended.
//!
//! ```text
//!   start ─▶ Process::start ─▶ Mapped: seal, Go ─▶ Opened: ring ends to the queues ─┐
//!     ▲                                              Failed: the port is not opened   │ Admit, End, Log
//!     └────────── delay ◀── link down, counters kept, memory given back ◀─────────────┘
//!                           when it has ended, broken its rings, or said nonsense
//! ```
//!
//! The thread waits for nobody but the process, and for its end at most [`CLOSE_MAX`]. One that a peer holds in the kernel
//! is left behind; while two are, no further one is started. If the process cannot open the port the first time, the port
//! is not opened; later it is tried again. The delay doubles from a tenth of a second to ten seconds, and is short again
//! after the process has lived for a minute.
//!
//! Threads: this one; `port::Running`'s drop stops it. Tests: `src/tests.rs`, `tests/isolated.rs`.

use crate::log::Log;
use crate::port::{CLOSE_MAX, Closed, Live, Port, Running, Shared, lock};
use crate::process::{Ended, Left, Process, describe};
use crate::protocol::{Received, Refused, Start, ToProcess, ToSwitch};
use crate::sockets::{Claim, SocketFile, make_room};
use heartbeat::Heartbeat;
use pktio::{Bell, Error, PoolRef, PortStats};
use shared_memory::{Closer, Guest, Limit, NotAdmitted, Notifier};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long opening a port may take; usually milliseconds.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// How long a process that is to end may take to close its port properly.
const GRACE: Duration = Duration::from_millis(30);
/// The last part of [`CLOSE_MAX`] is left for what comes after the process's end.
const PATIENCE: Duration = Duration::from_millis(CLOSE_MAX.as_millis() as u64 - 10);
/// Delays before a process is started again.
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(10);
/// A process that has lived for so long is started again after the shortest delay.
const LIFE_MIN: Duration = Duration::from_secs(60);
/// Maximum messages of a process per second: a front end with new memory needs some 130.
const MESSAGES_PER_SECOND: u32 = 4096;
/// How often old ring ends are collected, if nothing else happens.
const TEND_INTERVAL: Duration = Duration::from_millis(500);
/// A process whose main thread does nothing for so long hangs in the kernel, perhaps half dead.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A round that takes longer is reported.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes on ordinary pages that a process may have mapped at a time. The port itself allows `memory=` for the
/// regions of one peer; while a table of regions, or a dirty log, is replaced, the old one is still mapped. Regions are
/// mapped in whole pages: a megabyte is more than that adds.
fn mapped_bytes_max(memory_mb: u32) -> u64 {
    2 * ((u64::from(memory_mb) << 20) + pktio_vhost::LOG_BYTES_MAX) + (1 << 20)
}

/// Starts a port's supervisor, and waits until its process has opened the port.
///
/// # Errors
/// See [`crate::open`].
pub(crate) fn start(start: Start, listens: bool, claim: Option<Claim>, pool: PoolRef) -> Result<Running, Error> {
    let name = start.spec.clone();
    let refuse = |reason: String| Error::Device { device: name.clone(), reason };
    let system = |error: io::Error| refuse(format!("it cannot have a process of its own: {error}"));
    let queues = usize::from(start.queues);
    let calls = Notifier::new(&name, queues).map_err(system)?;
    let port = Arc::new(Port {
        name: name.clone(),
        pool,
        queues: (0..queues).map(|_| Shared::new()).collect::<io::Result<_>>().map_err(system)?,
        live: Mutex::new(Live::default()),
        caller: calls.caller(),
        bell: Bell::new().map_err(system)?,
        stops: AtomicBool::new(false),
    });
    let closer = Closer::default();
    let supervisor = Supervisor {
        port: Arc::clone(&port),
        calls,
        guest: Guest::new(mapped_bytes_max(start.memory_mb), &closer),
        closer,
        start,
        listens,
        log: Log::new(),
        messages: Limit::new(MESSAGES_PER_SECOND),
        left: Left::default(),
        _claim: claim,
    };
    let closed = Arc::new(Closed::default());
    let (sender, opened) = channel();
    let thread_name = format!("port {}", name.replace('\0', "?"));
    let heart = Heartbeat::not_vital(thread_name.as_str(), ROUND_MAX);
    let thread = thread::Builder::new().name(thread_name).spawn({
        let closed = Arc::clone(&closed);
        move || {
            supervisor.run(sender, &heart);
            closed.tell();
        }
    });
    let running = Running::new(port, thread.map_err(system)?, closed);
    match opened.recv() {
        Ok(Ok(())) => Ok(running),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(refuse("its supervisor has ended".to_owned())),
    }
}

/// Why a process is no longer served.
enum Over {
    /// The port is closed.
    Stopped,
    /// It could not open the port.
    Failed(Error),
    /// It has ended by itself.
    Ended,
    /// It is to be ended, for this reason.
    Wrong(String),
}

struct Supervisor {
    port: Arc<Port>,
    calls: Notifier,
    guest: Guest,
    closer: Closer,
    start: Start,
    /// Whether the process listens on its socket.
    listens: bool,
    log: Log,
    messages: Limit,
    left: Left,
    _claim: Option<Claim>,
}

impl Supervisor {
    fn run(mut self, opened: Sender<Result<(), Error>>, heart: &Heartbeat) {
        let mut opened = Some(opened);
        let mut delay = DELAY_MIN;
        while !self.stops() {
            heart.beat();
            if self.left.is_full() {
                self.wait_for_the_left(heart);
                continue;
            }
            if self.listens {
                make_room(&self.start.path);
            }
            let started = Instant::now();
            let reason = match Process::start(&self.start, &self.closer) {
                Ok(process) => match self.serve(process, &mut opened, heart) {
                    Some(reason) => reason,
                    None => break,
                },
                Err(reason) => format!("its process: {reason}"),
            };
            if let Some(opened) = opened.take() {
                let device = self.port.name.clone();
                let _ = opened.send(Err(Error::Device { device, reason }));
                break;
            }
            delay = if started.elapsed() >= LIFE_MIN { DELAY_MIN } else { delay };
            tracing::warn!(port = self.port.name, "{reason}; it is started again in {delay:?}");
            lock(&self.port.live).note = Some(format!("{reason}; it is started again"));
            self.rest(delay, heart);
            delay = (2 * delay).min(DELAY_MAX);
        }
        self.port.queues.iter().for_each(|queue| queue.hand_over(None));
    }

    fn stops(&self) -> bool {
        self.port.stops.load(Ordering::Acquire)
    }

    /// Waits before the next process, unless the port is closed.
    fn rest(&self, delay: Duration, heart: &Heartbeat) {
        let end = Instant::now() + delay;
        while !self.stops() && Instant::now() < end {
            heart.rest();
            pktio::wait(&[self.port.bell.file()], end.saturating_duration_since(Instant::now()));
            heart.beat();
            self.port.bell.silence();
            let _ = self.tend();
        }
    }

    /// Waits until fewer processes are left behind, unless the port is closed: each has memory and files.
    fn wait_for_the_left(&mut self, heart: &Heartbeat) {
        let reason = format!(
            "peers hold up {} of its processes in the kernel: the next one is started when one of these has ended",
            Left::MAX
        );
        tracing::error!(port = self.port.name, "{reason}");
        lock(&self.port.live).note = Some(reason);
        while !self.stops() && self.left.is_full() {
            self.rest(TEND_INTERVAL, heart);
        }
    }

    /// Serves a process until it is over. Returns why it is to be started again; `None` if it is not.
    fn serve(
        &mut self,
        mut process: Process,
        opened: &mut Option<Sender<Result<(), Error>>>,
        heart: &Heartbeat,
    ) -> Option<String> {
        let over = self.attend(&mut process, opened, heart);
        // Without link and rings from now on, though the process may run a little longer.
        let channel = lock(&self.port.live).stop();
        self.port.queues.iter().for_each(|queue| queue.hand_over(None));
        (0..self.port.queues.len()).for_each(|queue| self.calls.set(queue, None));
        let grace = if matches!(over, Over::Stopped) { GRACE } else { Duration::ZERO };
        let Ended { status, words, left } = process.end(grace, PATIENCE);
        words.finish(|text| self.log.last_words(&self.port.name, text));
        self.left.add(left);
        if let Some(channel) = channel {
            lock(&self.port.live).end(&channel);
        }
        self.guest.end_all();
        let _ = self.tend();
        match over {
            Over::Stopped => {
                if status.is_none() {
                    tracing::warn!(
                        port = self.port.name,
                        "its peer holds up its process, which is left behind: its memory and files are freed when the peer \
                         lets it go"
                    );
                }
                // Whoever opens the port is gone.
                None
            }
            Over::Failed(error) => match opened.take() {
                Some(opened) => {
                    let _ = opened.send(Err(error));
                    None
                }
                None => Some(format!("its process cannot open it: {error}")),
            },
            Over::Ended => Some(format!("its process is gone: {}", describe(status))),
            Over::Wrong(what) => Some(format!("its process is ended: {what}")),
        }
    }

    /// Answers a process.
    fn attend(
        &mut self,
        process: &mut Process,
        opened: &mut Option<Sender<Result<(), Error>>>,
        heart: &Heartbeat,
    ) -> Over {
        let by = Instant::now() + OPEN_MAX;
        let (mut is_mapped, mut is_open) = (false, false);
        let mut beats = (process.channel.beats(), Instant::now());
        loop {
            if self.stops() {
                return Over::Stopped;
            }
            if let Some(what) = self.tend() {
                return Over::Wrong(what);
            }
            self.left.reap();
            if !is_open && Instant::now() > by {
                return Over::Wrong(format!("it has not opened the port within {OPEN_MAX:?}"));
            }
            let now = process.channel.beats();
            if now != beats.0 {
                beats = (now, Instant::now());
            } else if is_open && beats.1.elapsed() > SILENCE_MAX {
                return Over::Wrong(format!("it makes no progress for {SILENCE_MAX:?}"));
            }
            heart.rest();
            let pause = self.messages.pause();
            let time = if pause.is_zero() { TEND_INTERVAL } else { pause.min(TEND_INTERVAL) };
            let has_ended = process.wait(&self.port.bell.file(), pause.is_zero(), time);
            heart.beat();
            self.port.bell.silence();
            process.words.read(|text| self.log.last_words(&self.port.name, text));
            // What it has said before its end is heard first.
            while self.messages.pause().is_zero() && !self.stops() {
                let (message, files) = match process.hear() {
                    Received::Message(message, files) => (message, files),
                    Received::Nothing if has_ended => return Over::Ended,
                    Received::Nothing => break,
                    Received::End => return Over::Ended,
                    Received::Wrong => return Over::Wrong("it has sent a message of no form".to_owned()),
                };
                self.messages.take();
                match message {
                    ToSwitch::Mapped if !is_mapped => {
                        is_mapped = true;
                        if let Err(reason) = process.go() {
                            return Over::Wrong(reason);
                        }
                    }
                    ToSwitch::Opened if is_mapped && !is_open => {
                        is_open = true;
                        self.attach(process);
                        if let Some(opened) = opened.take() {
                            let _ = opened.send(Ok(()));
                        } else {
                            tracing::info!(port = self.port.name, "its process runs again");
                        }
                    }
                    ToSwitch::Failed(failure) if !is_open => return Over::Failed(failure.into_error(&self.start)),
                    ToSwitch::Admit { offset, bytes } => {
                        let admitted = match files.first() {
                            Some(file) => self.guest.admit(file, offset, bytes),
                            None => Err(NotAdmitted::NotMemory),
                        };
                        if let Err(reason) = process.tell(&ToProcess::Answer(admitted.map_err(Refused::of))) {
                            return Over::Wrong(reason);
                        }
                    }
                    ToSwitch::End(number) => self.guest.end(number),
                    ToSwitch::Log(line) => self.log.line(&self.port.name, &line),
                    ToSwitch::Mapped | ToSwitch::Opened | ToSwitch::Failed(_) => {
                        return Over::Wrong("it has sent a message out of turn".to_owned());
                    }
                }
                drop(files);
                if process.is_behind() {
                    return Over::Wrong("it has sent files that cannot be closed".to_owned());
                }
            }
        }
    }

    /// Gives the queues their ends of the process's rings.
    fn attach(&self, process: &mut Process) {
        if self.listens {
            process.socket = SocketFile::at(&self.start.path);
        }
        for (queue, event) in process.events.iter().enumerate() {
            self.calls.set(queue, Some(Arc::clone(event)));
        }
        lock(&self.port.live).begin(process.channel.clone());
        for (queue, ends) in self.port.queues.iter().zip(std::mem::take(&mut process.ends)) {
            queue.hand_over(Some(ends));
        }
    }

    /// Takes back ring ends of former processes, and counts what is left in them. Returns what a worker has found wrong
    /// with the rings.
    fn tend(&self) -> Option<String> {
        let mut wrong = None;
        let mut lost = PortStats::default();
        for queue in &self.port.queues {
            let (old, fault) = queue.collect();
            wrong = wrong.or(fault);
            for mut ends in old {
                lost.rx_dropped += ends.inward.outstanding() as u64;
                lost.tx_dropped += ends.outward.outstanding() as u64;
            }
        }
        if lost != PortStats::default() {
            lock(&self.port.live).add(lost);
        }
        wrong.map(|fault| format!("it has broken a ring that it shares with the switch: {fault}"))
    }
}
