//! What is wrong with a case, and how panics are found.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What kind of thing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The front end refuses a program that is correct.
    Refused,
    /// Something panicked.
    Panic,
    /// IR that the verifier refuses.
    IllFormed,
    /// Printed IR does not read as the same program.
    RoundTrip,
    /// The program cannot be loaded.
    Load,
    /// Two engines differ.
    Difference,
    /// A constant expression has another value at run time.
    Canary,
    /// The same program written differently does something else.
    Rewritten,
}

/// Something wrong with a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of thing.
    pub kind: Kind,
    /// Where: the engine, or the stage of compilation, or the code of a diagnostic.
    pub place: String,
    /// All that is known.
    pub what: String,
}

/// How much of a case is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Depth {
    /// It is compiled.
    Compile,
    /// Raw and optimised IR, and machine code.
    Main,
    /// Also every pass alone, and all but one.
    Passes,
}

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets that were received.
    pub packets: u64,
    /// Frames that were sent for them.
    pub sent: u64,
    /// Engines that were compared with the first one.
    pub engines: u64,
    /// Set-up lines and entries that were accepted.
    pub entries: u64,
}

/// No pass at all.
pub(super) fn no_passes() -> opt::Options {
    opt::Options { disabled: opt::pass_names().map(str::to_string).collect(), ..opt::Options::default() }
}

/// A message without the names and numbers in it, so that the same fault is known again.
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

/// Keeps panics quiet on this thread and remembers what they said. For programs, not for tests.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |l| format!("{}:{}", l.file(), l.line()));
        LAST_PANIC
            .with_borrow_mut(|last| *last = format!("{place}: {}", info.payload_as_str().unwrap_or("no message")));
    }));
}

/// Runs something that must not panic.
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
