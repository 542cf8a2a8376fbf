//! The process of a port. It opens the port as a switch does, and moves packets between the port's queues and the rings
//! that it shares with the switch.
//!
//! The main thread hears the switch, tells it the port's state, and ends the process when the switch is gone. It waits for
//! no peer and maps no memory, so it goes on when a peer holds up the others. Exit codes: 0 the switch has closed the
//! port or is gone; 1 the port could not be opened, and the switch knows why; 2 there was no switch. A queue's thread that
//! panics aborts the process, with the message on stderr, which the switch logs.
//!
//! Threads: this one, one for each queue (`serve`), and those of the port. Tests: `tests/isolated.rs`.

mod confine;
mod log;
mod room;
mod serve;

use crate::channel::Channel;
use crate::protocol::{Control, Failure, Received, Start, ToProcess, ToSwitch, receive, send};
use heartbeat::{Monitor, Stuck};
use pktio::{Device, DeviceSpec, Error, HeapPool, MTU_DEFAULT, PoolRef};
use room::SwitchRoom;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serve::{Serving, State};
use shared_memory::{Closer, PeerFile};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packet buffers, and more for each queue: as many as may be in its hands.
const BUFFERS: usize = 1024;
const BUFFERS_PER_QUEUE: usize = 256;
/// How often the port's state is told while nothing happens.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// How often threads are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the process. To be called before it has other threads; files other than the standard three must be closed.
pub fn main() -> ExitCode {
    // If the switch's thread has ended already, the socket says so.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // The name in `top` and `ps`; otherwise it would be `exe`, from the link that was executed.
    let _ = rustix::thread::set_name(c"sluice-port");
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(2) };
    let control: Control = Arc::new(control);
    let closer = Closer::default();
    let Some((start, channel, events)) = begin(&control, &closer) else { return ExitCode::from(2) };
    log::use_switch(&control);
    confine::enter(&start);
    let answers = room::use_switch(&control);
    let queues = start.queues;
    let device = match open(&start) {
        Ok(device) => device,
        Err(error) => {
            let _ = send(&*control, &ToSwitch::Failed(Failure::of(error)), &[]);
            return ExitCode::from(1);
        }
    };
    run(&control, &closer, device, &channel, events, &answers, queues)
}

/// The eventfds of a queue: the process's and the worker's.
pub(crate) type Events = (Arc<OwnedFd>, OwnedFd);

/// Takes over what the switch shares. `None` if there is no switch.
pub(crate) fn begin(control: &Control, closer: &Closer) -> Option<(Start, Channel, Vec<Events>)> {
    let Some((ToProcess::Start(start), files)) = hear(control, closer) else { return None };
    // These are the switch's.
    let mut files = files.into_iter();
    let memory = files.next()?;
    let channel = Channel::open(&memory, start.queues).ok()?;
    let mut events = Vec::new();
    for _ in 0..start.queues {
        let (own, worker) = (files.next()?.into_eventfd().ok()?, files.next()?.into_eventfd().ok()?);
        events.push((Arc::new(own), worker));
    }
    send(&**control, &ToSwitch::Mapped, &[]).ok()?;
    match hear(control, closer) {
        Some((ToProcess::Go, _)) => Some((start, channel, events)),
        _ => None,
    }
}

/// Waits for a message of the switch.
pub(crate) fn hear(control: &Control, closer: &Closer) -> Option<(ToProcess, Vec<PeerFile>)> {
    loop {
        match receive(&**control, closer) {
            Received::Message(message, files) => return Some((message, files)),
            Received::Nothing => wait(control, None),
            Received::End | Received::Wrong => return None,
        }
    }
}

fn wait(control: &Control, time: Option<Duration>) {
    let time = time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
    let _ = poll(&mut [PollFd::new(control, PollFlags::IN)], time.as_ref());
}

/// Opens the port, as `pktio-dpdk` does in the switch.
fn open(start: &Start) -> Result<Box<dyn Device>, Error> {
    let refuse = |reason: String| Error::Device { device: start.spec.clone(), reason };
    shared_memory::start_monitor().map_err(|error| refuse(format!("no thread is left to serve it: {error}")))?;
    let pool: PoolRef = HeapPool::shared(BUFFERS + BUFFERS_PER_QUEUE * usize::from(start.queues));
    let Start { queues, descriptors, mtu, .. } = *start;
    let memory_bytes = u64::from(start.memory_mb) << 20;
    let spec: DeviceSpec = start.spec.parse()?;
    match spec {
        DeviceSpec::Vhost { server, .. } => {
            let mtu = mtu.unwrap_or(MTU_DEFAULT);
            let options = pktio_vhost::Options { is_server: server, queues, mtu, memory_bytes };
            pktio_vhost::open(start.spec.clone(), &start.path, &options, pool)
        }
        _ => {
            let options = pktio_memif::Options { queues, descriptors, mtu, memory_bytes };
            pktio_memif::open(&spec, &options, pool)
        }
    }
}

/// Serves the port until the switch closes it.
fn run(
    control: &Control,
    closer: &Closer,
    mut device: Box<dyn Device>,
    channel: &Channel,
    events: Vec<Events>,
    answers: &SwitchRoom,
    queues: u16,
) -> ExitCode {
    let stops = Arc::new(AtomicBool::new(false));
    let taken = device.take_queues();
    let state = Arc::new(State::new(device, channel.clone(), queues));
    let mut threads = Vec::new();
    let mut bells = Vec::new();
    for (index, (queue, (own, worker))) in taken.into_iter().zip(events).enumerate() {
        bells.push(Arc::clone(&own));
        let serving = Serving::new(channel, index, own, worker, &state, &stops);
        let Some(thread) = serving.and_then(|serving| serving.start(queue)) else {
            let reason = "no thread is left to serve it".to_owned();
            let failure = Failure::Device { reason };
            let _ = send(&**control, &ToSwitch::Failed(failure), &[]);
            return ExitCode::from(1);
        };
        threads.push(thread);
    }
    state.tell();
    if send(&**control, &ToSwitch::Opened, &[]).is_err() {
        return ExitCode::from(2);
    }
    let (mut watched, mut beats) = (Watched::default(), 0);
    loop {
        match receive(&**control, closer) {
            Received::Message(ToProcess::Answer(answer), _) => answers.answer(answer),
            Received::Message(..) | Received::Wrong | Received::End => break,
            Received::Nothing => {
                beats += 1;
                channel.beat(beats);
                state.tell();
                watched.look();
                wait(control, Some(TELL_INTERVAL));
            }
        }
    }
    // The switch ends this process if any of this takes long.
    stops.store(true, Ordering::Release);
    bells.iter().for_each(|bell| serve::ring(bell));
    answers.close();
    threads.into_iter().for_each(|thread| _ = thread.join());
    drop(state);
    ExitCode::SUCCESS
}

/// Threads that make no progress are told in the log, as the switch does for its own.
#[derive(Default)]
struct Watched {
    monitor: Monitor,
    named: Vec<String>,
    last: Option<Instant>,
}

impl Watched {
    fn look(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() < LOOK_INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        let stuck = self.monitor.stuck();
        for Stuck { thread, since, .. } in stuck.iter().filter(|stuck| !self.named.contains(&stuck.thread)) {
            tracing::error!("{thread} makes no progress for {since:?}: the rest of the switch goes on");
        }
        for thread in self.named.iter().filter(|named| !stuck.iter().any(|stuck| stuck.thread == **named)) {
            tracing::info!("{thread} goes on");
        }
        self.named = stuck.into_iter().map(|stuck| stuck.thread).collect();
    }
}
