//! Findings: failures of a case, and the capture of panics.

use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The front end refuses a valid program.
    Refused,
    /// Something panicked.
    Panic,
    /// The verifier refuses IR.
    IllFormed,
    /// Printed IR does not parse as the same program.
    RoundTrip,
    /// The program cannot be loaded.
    Load,
    /// Two engines differ.
    Difference,
    /// A constant expression has a different value at run time.
    Canary,
    /// A rewritten program behaves differently.
    Rewritten,
}

/// A failure of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Its location: the engine, the stage of compilation, or the code of a diagnostic.
    pub place: String,
    /// Its full description.
    pub what: String,
}

/// How much of a case is checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Depth {
    /// Compilation only.
    Compile,
    /// Raw and optimised IR, and machine code.
    Main,
    /// Also every single pass, and all passes but one.
    Passes,
}

/// The work of comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets that were received.
    pub packets: u64,
    /// Frames sent in response.
    pub sent: u64,
    /// Engines compared with the first one.
    pub engines: u64,
    /// Accepted set-up lines and entries.
    pub entries: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.packets += other.packets;
        self.sent += other.sent;
        self.engines += other.engines;
        self.entries += other.entries;
    }
}

/// Options that disable all passes.
pub(super) fn no_passes() -> opt::Options {
    opt::Options { disabled: opt::pass_names().map(str::to_string).collect(), ..opt::Options::default() }
}

/// A message with names and numbers removed, so that equal failures have equal messages.
pub(super) fn plain(message: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    for c in message.chars() {
        match c {
            '`' => quoted = !quoted,
            c if quoted || c.is_ascii_digit() => {}
            c => out.push(c),
        }
    }
    out.truncate(out.char_indices().nth(100).map_or(out.len(), |(i, _)| i));
    out
}

thread_local! {
    static LAST_PANIC: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Silences panics on this thread and records their messages. For programs, not for tests.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |l| format!("{}:{}", l.file(), l.line()));
        LAST_PANIC
            .with_borrow_mut(|last| *last = format!("{place}: {}", info.payload_as_str().unwrap_or("no message")));
    }));
}

/// Runs a function that must not panic; a panic becomes a finding.
pub(super) fn guard<T>(stage: &str, run: impl FnOnce() -> T) -> Result<T, Finding> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let noted = LAST_PANIC.with_borrow(|last| last.clone());
        let said = payload.downcast_ref::<String>().cloned();
        let said = said.or(payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
        let what = if noted.is_empty() { said } else { noted };
        let place = format!("{stage}: {}", plain(what.lines().next().unwrap_or_default()));
        Finding { kind: Kind::Panic, place, what: format!("{stage}: {what}") }
    })
}
