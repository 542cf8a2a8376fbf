//! The sampler: a kernel timer interrupts a worker's thread a thousand times a second or more, and a signal handler
//! records the program counter and the position that watched code stored before its last call.
//!
//! Costs nothing while no timer runs. Invariants:
//!
//! - The handler makes no system call, takes no lock, allocates nothing and touches nothing but the [`Samples`] that
//!   the timer names. It ignores signals that were not sent by a timer of this process.
//! - The signal goes to the worker's thread alone (`SIGEV_THREAD_ID`). Interrupted system calls do no harm, thanks to
//!   `SA_RESTART` and callers that poll again.
//! - A worker's [`Samples`] outlive its thread (`Switch` owns both), so a late signal after the timer is deleted
//!   still finds them.
//!
//! Threads: the handler runs on the worker's, the only writer; [`Samples::drain`] on one other. Tests: below.
#![allow(unsafe_code)]

use crate::pipeline::Spot;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Samples that may wait: more than a second's; they are collected ten times a second.
const RING: usize = 8192;
/// Time between two samples. A signal costs about two microseconds, so a busy worker loses 0.2 % of its time. Not a
/// round number, to avoid aliasing with events that happen every millisecond.
pub(super) const PERIOD: Duration = Duration::from_nanos(1_003_009);
/// The same for a worker that is rarely in its program, where fewer than one sample in five would be useful: at most
/// 1 %.
pub(super) const SHORT_PERIOD: Duration = Duration::from_nanos(200_603);

#[derive(Default)]
struct Cell {
    pc: AtomicU64,
    place: AtomicU64,
}

/// The samples of one worker: a ring buffer.
pub(crate) struct Samples {
    /// Where watched code stores its position before it calls the runtime.
    place: Arc<AtomicU64>,
    ring: Box<[Cell]>,
    /// The number of samples so far.
    written: AtomicU64,
    /// The kernel thread id of the worker; 0 before it runs.
    thread: AtomicI32,
}

impl Default for Samples {
    fn default() -> Samples {
        let ring = (0..RING).map(|_| Cell::default()).collect();
        Samples { place: Arc::default(), ring, written: AtomicU64::new(0), thread: AtomicI32::new(0) }
    }
}

impl Samples {
    /// Registers the calling thread as the worker's. Must be called on it before anything else.
    pub(crate) fn begin(&self) {
        // SAFETY: it has no preconditions.
        self.thread.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// Whether the worker's thread has started.
    pub(super) fn has_begun(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0
    }

    /// Where executors of this worker store their position.
    pub(crate) fn place(&self) -> &Arc<AtomicU64> {
        &self.place
    }

    /// The number of samples so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The samples from number `from` on that are still in the ring, and the number of the next one.
    pub(super) fn drain(&self, from: u64) -> (Vec<Spot>, u64) {
        let to = self.written();
        // In a full ring the handler may be overwriting the oldest sample.
        let from = from.max(to.saturating_sub(RING as u64 - 1));
        let spot = |number: u64| {
            let cell = &self.ring[number as usize % RING];
            Spot { pc: cell.pc.load(Ordering::Relaxed) as usize, place: cell.place.load(Ordering::Relaxed) }
        };
        ((from..to).map(spot).collect(), to)
    }

    /// Records a sample. Runs in the signal handler, between any two instructions of the worker's thread.
    fn note(&self, pc: u64) {
        let number = self.written.load(Ordering::Relaxed);
        let cell = &self.ring[number as usize % RING];
        cell.pc.store(pc, Ordering::Relaxed);
        cell.place.store(self.place.load(Ordering::Relaxed), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.written.store(number + 1, Ordering::Release);
    }
}

/// The program counter of the interrupted thread.
///
/// # Safety
/// `context` is the third argument that the kernel passed to a signal handler.
unsafe fn interrupted_at(context: *const c_void) -> u64 {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the caller's promise.
    #[cfg(target_arch = "x86_64")]
    return unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as u64 };
    // SAFETY: the caller's promise.
    #[cfg(target_arch = "aarch64")]
    return unsafe { (*context).uc_mcontext.pc };
}

extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a handler with `SA_SIGINFO` both pointers; a timer's signal has a value, and only
    // `Timer::start` makes timers with this signal, whose value is a worker's samples: they outlive its thread, which
    // is this one.
    unsafe {
        if (*info).si_code != libc::SI_TIMER {
            return;
        }
        let samples = (*info).si_value().sival_ptr.cast::<Samples>();
        if let Some(samples) = samples.as_ref() {
            samples.note(interrupted_at(context));
        }
    }
}

/// Installs the signal handler, once per process.
fn handle_signal() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let set = || {
        // SAFETY: zeros are a valid `sigaction`; the handler keeps to what handlers may do (see the head of this file).
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGPROF, &action, ptr::null_mut())
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
    };
    DONE.get_or_init(set).map_err(io::Error::from_raw_os_error)
}

/// A running timer.
pub(super) struct Timer {
    id: libc::timer_t,
    period: Duration,
    /// The signal handler's target.
    _samples: Arc<Samples>,
}

impl Timer {
    /// Starts a timer that samples a worker until it is dropped.
    ///
    /// # Errors
    /// If the worker's thread has not started, or the system refuses the handler or the timer.
    pub(super) fn start(samples: &Arc<Samples>) -> io::Result<Timer> {
        let thread = samples.thread.load(Ordering::Acquire);
        if thread == 0 {
            return Err(io::Error::other("the worker's thread has not begun"));
        }
        handle_signal()?;
        // SAFETY: zeros are a valid `sigevent`; the call gets pointers to values that live through it. The value that
        // the signal carries is valid as long as the thread: see `on_signal`.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_notify_thread_id = thread;
            event.sigev_value = libc::sigval { sival_ptr: Arc::as_ptr(samples).cast_mut().cast() };
            let mut id: libc::timer_t = ptr::null_mut();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut id) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut timer = Timer { id, period: Duration::ZERO, _samples: Arc::clone(samples) };
            timer.set_period(PERIOD).map(|()| timer)
        }
    }

    /// Sets the time between samples.
    pub(super) fn set_period(&mut self, period: Duration) -> io::Result<()> {
        if period == self.period {
            return Ok(());
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(period.subsec_nanos()) };
        let every = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: this `Timer` owns the timer; the value lives through the call.
        match unsafe { libc::timer_settime(self.id, 0, &every, ptr::null_mut()) } {
            0 => {
                self.period = period;
                Ok(())
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: this `Timer` owns the timer, and nothing uses it after this.
        unsafe { libc::timer_delete(self.id) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(120);

    fn until(mut condition: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        while !condition() {
            if start.elapsed() > LONG {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    #[test]
    fn a_busy_thread_is_sampled_with_what_it_says_until_the_timer_is_gone() {
        let samples = Arc::new(Samples::default());
        assert!(Timer::start(&samples).is_err(), "there is no thread yet");
        let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                samples.place().store(7, Ordering::Relaxed);
                samples.begin();
                while !stop.load(Ordering::Relaxed) {
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(until(|| samples.has_begun()), "the thread began");
            let timer = Timer::start(&samples).expect("the kernel has a timer");
            assert!(until(|| samples.written() >= 20), "samples come");
            drop(timer);
            // One signal may still be pending until the thread has run again.
            let have_passed = || {
                let now = turns.load(Ordering::Relaxed);
                until(|| turns.load(Ordering::Relaxed) > now + 1000)
            };
            assert!(have_passed());
            let (spots, next) = samples.drain(0);
            assert!(spots.len() >= 20 && spots.iter().all(|s| s.pc != 0 && s.place == 7), "{spots:?}");
            std::thread::sleep(Duration::from_millis(20));
            assert!(have_passed());
            assert_eq!(samples.drain(next), (Vec::new(), next), "none after the timer is gone");
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_thread_that_sleeps_sleeps_on() {
        let samples = Arc::new(Samples::default());
        let is_sampled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                samples.begin();
                assert!(until(|| is_sampled.load(Ordering::Relaxed)), "the timer runs");
                let start = Instant::now();
                std::thread::sleep(Duration::from_millis(100));
                start.elapsed()
            });
            assert!(until(|| samples.has_begun()), "the thread began");
            let timer = Timer::start(&samples).expect("the kernel has a timer");
            is_sampled.store(true, Ordering::Relaxed);
            let slept = sleeper.join().expect("it does not panic");
            assert!(slept >= Duration::from_millis(100), "{slept:?}");
            drop(timer);
        });
    }

    #[test]
    fn a_ring_that_nobody_reads_keeps_the_newest() {
        let samples = Samples::default();
        (0..2 * RING as u64 + 5).for_each(|pc| samples.note(pc));
        let (spots, next) = samples.drain(3);
        assert_eq!(next, 2 * RING as u64 + 5);
        assert_eq!(spots.len(), RING - 1);
        assert_eq!((spots[0].pc, spots[RING - 2].pc), (RING + 6, 2 * RING + 4));
    }
}
