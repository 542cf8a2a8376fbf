//! The SIGBUS handler: replaces a registered mapping whose file lost pages by zeros.
//!
//! The kernel raises SIGBUS on an access beyond the end of a mapped file (`mmap(2)`), if it has no huge page or no
//! space left for the page, and on memory with a hardware error. If the address is in a registered range, the handler
//! sets the range's `damaged` flag, maps anonymous memory over the whole range, and returns, so that the access is
//! repeated. A peer that truncates its file thus costs one signal and one system call per mapping, not per page, and no
//! further mappings (`vm.max_map_count`). Any other fault goes to the previous handler, or to the default action.
//!
//! The registry is an array of atomics that the handler reads without a lock; `mmap` and `madvise` are plain system
//! calls, and `errno` is preserved. Each slot has a sequence number, odd while the slot changes, so that the handler
//! never combines the start of one range with the end of the next (a seqlock: Boehm, MSPC 2012). A slot that changes
//! meanwhile cannot be that of the faulting thread: owners guarantee that nobody accesses a range while it is
//! unregistered ([`super::Mapping`] ensures this), and a slot is cleared before its range is unmapped.
//!
//! Another library may install its own SIGBUS handler over ours. So registering a range checks the handler
//! ([`verify`]), and installs ours again in front of the other.
//!
//! Threads: any; registering takes one mutex. Tests: below, `tests/damage.rs`.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// Maximum number of mappings at a time, over all quotas: as many as a process may have (`vm.max_map_count` is 65,530).
/// The handler scans only the slots that have ever been in use.
pub(crate) const SLOTS: usize = 65_536;

/// One registered range. `start` is 0 while the slot is free.
struct Slot {
    /// Odd while the other fields change.
    sequence: AtomicU32,
    damaged: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
}

/// A consistent copy of a slot's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: usize,
    end: usize,
    page: usize,
}

impl Slot {
    #[allow(clippy::declare_interior_mutable_const)]
    const FREE: Slot = Slot {
        sequence: AtomicU32::new(0),
        damaged: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
    };

    /// The range; `None` if the slot is free or is being changed.
    fn range(&self) -> Option<Range> {
        let before = self.sequence.load(Ordering::Acquire);
        let range = Range {
            start: self.start.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            page: self.page.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let is_one = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        (is_one && range.start != 0).then_some(range)
    }

    /// Sets the range. The caller holds `CHANGES`.
    fn set(&self, range: Range) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.damaged.store(false, Ordering::Relaxed);
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.page.store(range.page, Ordering::Relaxed);
        self.sequence.store(before.wrapping_add(2), Ordering::Release);
    }
}

static REGISTRY: [Slot; SLOTS] = [const { Slot::FREE }; SLOTS];

/// Index of the first slot that was never used.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Number of ranges that this thread has replaced. It has no destructor, so the handler may access it.
    static DAMAGES: Cell<u64> = const { Cell::new(0) };
}

/// Held while a slot is chosen and filled, while one is cleared, and while the handler is installed.
static CHANGES: Mutex<()> = Mutex::new(());

/// The previous SIGBUS action; set before our handler is installed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// A registered range. Must be dropped before the range is unmapped.
#[derive(Debug)]
pub(crate) struct Registration(usize);

/// Why a range was not registered.
#[derive(Debug)]
pub(crate) enum Refused {
    Full,
    Handler(i32),
}

impl Registration {
    /// Registers `len` bytes from `start`, which are mapped in pages of `page` bytes.
    pub(crate) fn new(start: usize, len: usize, page: usize) -> Result<Registration, Refused> {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        install().map_err(Refused::Handler)?;
        let index = REGISTRY.iter().position(|slot| slot.start.load(Ordering::Relaxed) == 0).ok_or(Refused::Full)?;
        USED.fetch_max(index + 1, Ordering::Relaxed);
        REGISTRY[index].set(Range { start, end: start + len, page });
        Ok(Registration(index))
    }

    /// Whether the range was replaced.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        REGISTRY[self.0].damaged.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        REGISTRY[self.0].set(Range { start: 0, end: 0, page: 0 });
    }
}

/// Returns how often the calling thread has found memory that a peer had taken away.
#[inline]
pub fn damages() -> u64 {
    DAMAGES.get()
}

/// Whether any range is registered.
pub fn is_guarding() -> bool {
    REGISTRY[..USED.load(Ordering::Relaxed).min(SLOTS)].iter().any(|slot| slot.start.load(Ordering::Relaxed) != 0)
}

/// Installs the handler again if ranges were registered and other code has replaced it.
///
/// To be called after foreign code that sets handlers; registering a range does the same.
///
/// # Errors
/// A system call failed.
pub fn verify() -> io::Result<()> {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if BEFORE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    install().map_err(io::Error::from_raw_os_error)
}

/// Installs the handler unless it is installed. The caller holds `CHANGES`.
fn install() -> Result<(), i32> {
    let ours = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    // SAFETY: all zeros is a valid `sigaction`; the structures live during the calls. The former action is leaked on
    // purpose, since the handler reads it for the life of the process.
    unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 {
            return Err(last_error());
        }
        if before.sa_sigaction == ours {
            return Ok(());
        }
        // The action is leaked only if it is new: some libraries set their own handler repeatedly.
        let known = BEFORE.load(Ordering::Acquire);
        if known.is_null() || (*known).sa_sigaction != before.sa_sigaction {
            BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = ours;
        // Uses the alternative stack if there is one, as Rust's own handler for stack overflow needs.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) != 0 {
            return Err(last_error());
        }
    }
    Ok(())
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Runs on the thread that accessed the page. Uses only what is async-signal-safe: atomics and system calls.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` (SA_SIGINFO). Codes above 0 are faults, which carry an address.
    let fault = unsafe { if (*info).si_code > 0 { Some((*info).si_addr() as usize) } else { None } };
    match fault {
        Some(address) if replace(address) => {}
        Some(_) => pass_on(signal, info, context),
        // The signal was sent by a process. The previous handler is not called: Rust's would assume a fault that is
        // raised again, and remove this handler.
        None => end(signal),
    }
}

/// Replaces the registered range that contains `address`. Returns whether there is one.
fn replace(address: usize) -> bool {
    let slots = &REGISTRY[..USED.load(Ordering::Relaxed).min(SLOTS)];
    let found =
        slots.iter().find_map(|slot| Some((slot, slot.range()?)).filter(|(_, r)| (r.start..r.end).contains(&address)));
    let Some((slot, Range { start, end, page })) = found else { return false };
    // Set before the range is replaced: another thread that reads zeros must see it.
    slot.damaged.store(true, Ordering::SeqCst);
    DAMAGES.set(DAMAGES.get() + 1);
    // SAFETY: the owner has mapped and registered the range in whole pages, and keeps it mapped while this thread
    // accesses it. `errno` is thread-local.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let put_zeros = |at: usize, len: usize| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            libc::mmap(at as *mut libc::c_void, len, protection, flags, -1, 0) != libc::MAP_FAILED
        };
        let mut is_done = put_zeros(start, end - start);
        if is_done {
            // Otherwise one touch might clear two megabytes. This is only advice, so its errors are ignored.
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_NOHUGEPAGE);
        } else {
            // Without overcommit there may be no memory for the whole range; replaces only the page.
            is_done = put_zeros(address & !(page - 1), page);
        }
        *errno = saved;
        is_done
    }
}

/// Performs the default action. A fault is raised again when its instruction is repeated; a sent signal is raised again
/// here, and is blocked until the handler returns.
fn end(signal: i32) {
    // SAFETY: the default action is not a function pointer.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Handles a fault outside all registered ranges.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: set before the handler was installed, and never freed.
    let before = unsafe { &*BEFORE.load(Ordering::Acquire) };
    if before.sa_sigaction == libc::SIG_IGN || before.sa_sigaction == libc::SIG_DFL {
        return end(signal);
    }
    // SAFETY: the flags of the former action tell the signature of its function.
    unsafe {
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            let function: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(before.sa_sigaction);
            function(signal, info, context);
        } else {
            let function: extern "C" fn(i32) = std::mem::transmute(before.sa_sigaction);
            function(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the handler read `start` of a slot's former range, but `end` and `page` of the next one.
    #[test]
    fn a_slot_that_changes_hands_shows_no_mixture() {
        static SLOT: Slot = Slot::FREE;
        let range = |i: usize| Range { start: i << 12, end: i << 20, page: i };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in (1..=100).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                    SLOT.set(range(i));
                    SLOT.set(Range { start: 0, end: 0, page: 0 });
                }
            });
            let mut seen = 0;
            for _ in 0..2_000_000 {
                let Some(read) = SLOT.range() else { continue };
                seen += 1;
                if read != range(read.page) {
                    stop.store(true, Ordering::Relaxed);
                    panic!("{read:x?} after {seen}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        // A slot that is being changed has no range.
        SLOT.set(range(7));
        SLOT.sequence.fetch_add(1, Ordering::Relaxed);
        assert_eq!(SLOT.range(), None);
        SLOT.sequence.fetch_add(1, Ordering::Relaxed);
        assert_eq!(SLOT.range(), Some(range(7)));
    }
}
