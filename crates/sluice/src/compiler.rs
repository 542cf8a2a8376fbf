//! The compiler in a child process, as a running switch uses it.
//!
//! ```text
//!   target, run, live ──▶ Compiler ══pipe: Request══▶ child: `sluice compile-child`
//!                            ▲                          limits on itself (`cage`), front end, optimiser
//!                            └════pipe: Response═══════ IR as text, P4Info, messages
//! ```
//!
//! Programs are untrusted: one may be written to exhaust memory or time, or to trigger a fault in the compiler. All of
//! that hits the child. The kernel limits its memory and processor time; the parent limits the size of its response and
//! its elapsed time. The interface is the text of the IR with its source positions; the parent parses it and verifies
//! it ([`Output::program`]). The child's memory returns to the system when it ends.
//!
//! A *spare* child is started in advance, which takes `exec` and dynamic linking off the path of a request. One program
//! is compiled at a time. Tests and `sluice bench` compile in their own process ([`Compiler::in_process`]).
//!
//! Threads: any; calls block. Tests: `compiler/tests.rs`; with a running switch, `crates/sluice/tests/compiler.rs`.

pub mod cage;
pub mod child;
mod limits;
pub mod protocol;

pub use limits::{LimitArgs, Limits};

use base::FileId;
use control::forwarding::Refusal;
use frontend::Options;
use p4info::P4Info;
use protocol::{Request, Response, Source, Wants};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes of a response. The IR of the largest program that may be loaded has some 30 MB.
const RESPONSE_BYTES_MAX: usize = 128 << 20;
/// How many bytes of a child's stderr are kept, counted from the end, for messages.
const LAST_WORDS_BYTES_MAX: usize = 4 << 10;
/// How often a wait checks whether the switch is stopping.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a child that has responded may take to exit before it is killed.
const END_TIME: Duration = Duration::from_secs(1);
/// The hidden subcommand that is the child.
pub const SUBCOMMAND: &str = "compile-child";

/// The result of a compilation. If the program was refused, `messages` says why.
#[derive(Debug, Default)]
pub struct Output {
    /// Whether `messages` contains an error.
    pub failed: bool,
    /// All diagnostics as text.
    pub messages: String,
    /// The code of the first error.
    pub first_error: Option<String>,
    /// Why the program cannot be loaded although it compiles, as text.
    pub unloadable: Option<String>,
    /// The optimised IR, or the IR as lowered if requested.
    pub program: Option<ir::Program>,
    /// The program's interface for controllers.
    pub p4info: Option<P4Info>,
    /// The program as one text that needs no other file.
    pub self_contained: Option<Vec<u8>>,
    /// Whether compiling `self_contained` gives the same program.
    pub same_as_text: bool,
    /// The source files, if requested.
    pub sources: base::SourceMap,
    /// The program's description in bmv2's JSON format, if requested.
    pub described: Option<String>,
}

/// A compiled program of the command line, by the self-contained text that the switch stores.
struct Known {
    text: String,
    options: Options,
    program: ir::Program,
    p4info: P4Info,
}

impl Known {
    /// Returns the record of a compilation, if compiling the self-contained text would give the same program.
    fn of(output: &Output, options: &Options) -> Option<Known> {
        let right = output.same_as_text && !output.failed && output.unloadable.is_none();
        let text = String::from_utf8(output.self_contained.clone().filter(|_| right)?).ok()?;
        let (program, p4info) = (output.program.clone()?, output.p4info.clone()?);
        Some(Known { text, options: options.clone(), program, p4info })
    }

    fn output(&self) -> Output {
        Output { program: Some(self.program.clone()), p4info: Some(self.p4info.clone()), ..Output::default() }
    }
}

/// Compiles programs one at a time.
pub struct Compiler {
    how: How,
    turn: Mutex<()>,
    spare: Arc<Mutex<Option<Child>>>,
    /// Compiled programs of the command line: the switch compiles each again, as text, while it starts.
    known: Mutex<Vec<Known>>,
    started: AtomicBool,
    stopping: Arc<AtomicBool>,
}

enum How {
    InProcess,
    Child { executable: PathBuf, limits: Limits },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Compiler {
    /// Returns a compiler that runs in the caller's process, with only the front end's own limits: for tests and
    /// measurements.
    pub fn in_process() -> Arc<Compiler> {
        Compiler::new(How::InProcess)
    }

    /// Returns a compiler that runs in child processes of this executable.
    pub fn in_children(limits: Limits) -> Arc<Compiler> {
        // The running file, even after it has been replaced on disk.
        Compiler::new(How::Child { executable: PathBuf::from("/proc/self/exe"), limits })
    }

    fn new(how: How) -> Arc<Compiler> {
        Arc::new(Compiler {
            how,
            turn: Mutex::default(),
            spare: Arc::default(),
            known: Mutex::default(),
            started: AtomicBool::new(false),
            stopping: Arc::default(),
        })
    }

    /// Aborts the compilation in progress and refuses later ones.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(spare) = lock(&self.spare).take() {
            end(spare);
        }
    }

    /// Compiles a text, which may include the embedded files and those of the include directories.
    ///
    /// # Errors
    /// `Limit` if the child exceeds its memory, time or size of response; `Unavailable` if it cannot be started or the
    /// switch is stopping; `Program` if the input cannot be read; `Internal` if the compiler fails. Diagnostics are in
    /// [`Output`].
    pub fn compile_text(&self, name: &str, text: &str, options: &Options, wants: Wants) -> Result<Output, Refusal> {
        self.compile(Source::Text { name: name.to_string(), text: text.to_string() }, options, wants)
    }

    /// Compiles a file and the files that it includes.
    ///
    /// # Errors
    /// As [`Compiler::compile_text`].
    pub fn compile_file(&self, path: &Path, options: &Options, wants: Wants) -> Result<Output, Refusal> {
        self.compile(Source::File(path.to_path_buf()), options, wants)
    }

    /// Notes that the switch has started: drops the programs of the command line and starts a spare child. Not earlier,
    /// because the child would take processor time from restoring entries.
    pub fn started(&self) {
        lock(&self.known).clear();
        self.started.store(true, Ordering::Release);
        if let How::Child { executable, .. } = &self.how {
            self.prepare_spare(executable);
        }
    }

    fn compile(&self, source: Source, options: &Options, wants: Wants) -> Result<Output, Refusal> {
        if let (Source::Text { text, .. }, true) = (&source, wants == Wants::default())
            && let Some(known) = lock(&self.known).iter().find(|known| known.text == *text && known.options == *options)
        {
            return Ok(known.output());
        }
        let output = self.compile_anew(source, options, wants)?;
        lock(&self.known).extend(Known::of(&output, options));
        Ok(output)
    }

    fn compile_anew(&self, source: Source, options: &Options, wants: Wants) -> Result<Output, Refusal> {
        let _turn = lock(&self.turn);
        let response = match &self.how {
            How::InProcess => child::run_on_a_thread(Request::new(source, options, wants, None))?,
            How::Child { executable, limits } => {
                let request = Request::new(source, options, wants, Some(*limits));
                let helper = match lock(&self.spare).take() {
                    Some(spare) => spare,
                    None => spawn(executable)?,
                };
                let answer = self.ask(helper, &request, limits);
                if self.started.load(Ordering::Acquire) {
                    self.prepare_spare(executable);
                }
                answer?
            }
        };
        Output::read(response)
    }

    /// Starts the spare child on a thread of its own.
    fn prepare_spare(&self, executable: &Path) {
        let (executable, spare, stopping) =
            (executable.to_path_buf(), Arc::clone(&self.spare), Arc::clone(&self.stopping));
        let start = move || {
            // An error here occurs again when the child is needed, and is reported then.
            let Ok(child) = spawn(&executable) else { return };
            let mut place = lock(&spare);
            if stopping.load(Ordering::Acquire) || place.is_some() {
                drop(place);
                return end(child);
            }
            *place = Some(child);
        };
        let _ = std::thread::Builder::new().name("compile-spare".into()).spawn(start);
    }

    /// Sends a request to a child, waits for its response, and reaps the child.
    fn ask(&self, mut child: Child, request: &Request, limits: &Limits) -> Result<Response, Refusal> {
        let deadline = Instant::now() + limits.time;
        let talk = Talk::new(&mut child).and_then(|talk| talk.hold(&request.encode(), deadline, &self.stopping));
        let answered = matches!(&talk, Ok((Said::All(_), _)));
        let status = reap(child, answered);
        let (said, last_words) = talk.map_err(|error| Refusal::Internal(format!("the compiler's process: {error}")))?;
        match said {
            Said::All(bytes) if !bytes.is_empty() => {
                Response::decode(&bytes).ok_or_else(|| died(status, &last_words, limits))
            }
            Said::All(_) => Err(died(status, &last_words, limits)),
            Said::TooMuch => Err(Refusal::Limit(format!(
                "what the compiler made of the program is longer than {RESPONSE_BYTES_MAX} bytes: make the program smaller"
            ))),
            Said::Late => Err(took_too_long(limits)),
            Said::Stopped => Err(Refusal::Unavailable("the switch is stopping".to_string())),
        }
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        self.stop();
    }
}

fn took_too_long(limits: &Limits) -> Refusal {
    let seconds = limits.time.as_secs_f64();
    Refusal::Limit(format!(
        "compiling it takes longer than {seconds} s, the limit of this switch: make the program smaller, or start the switch with a \
         larger --compile-time"
    ))
}

/// Returns the refusal for a child that ended without a response.
fn died(status: Option<ExitStatus>, last_words: &str, limits: &Limits) -> Refusal {
    let signal = status.and_then(|s| s.signal());
    let out_of_memory = last_words.contains("memory allocation of") || last_words.contains(child::NO_MEMORY);
    if signal == Some(rustix::process::Signal::XCPU.as_raw()) {
        return took_too_long(limits);
    }
    // A SIGKILL from outside nearly always comes from the kernel's out-of-memory killer.
    if out_of_memory || signal == Some(rustix::process::Signal::KILL.as_raw()) {
        let mb = limits.memory_bytes >> 20;
        return Refusal::Limit(format!(
            "compiling it takes more than {mb} MB of memory, the limit of this switch: make the program smaller, or start the switch \
             with a larger --compile-memory"
        ));
    }
    let how = match (signal, status.and_then(|s| s.code())) {
        (Some(signal), _) => format!("by signal {signal}"),
        (None, Some(code)) => format!("with code {code}"),
        (None, None) => "in an unknown way".to_string(),
    };
    let said = last_words.trim();
    let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
    Refusal::Internal(format!("the compiler ended {how} on this program, which is a fault of the compiler{said}"))
}

/// Starts a child, which waits for its request.
fn spawn(executable: &Path) -> Result<Child, Refusal> {
    let mut command = Command::new(executable);
    command
        .arg0("sluice")
        .arg(SUBCOMMAND)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // mimalloc reserves address space by the gigabyte, and the child's is limited.
    command.env("MIMALLOC_ARENA_RESERVE", "65536");
    command.spawn().map_err(|error| Refusal::Unavailable(format!("the compiler's process cannot be started: {error}")))
}

/// Kills a child and waits for it.
fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits up to [`END_TIME`] for a child that has responded; kills it after that, or at once if it has not responded.
fn reap(mut child: Child, answered: bool) -> Option<ExitStatus> {
    let deadline = Instant::now() + END_TIME;
    while answered && Instant::now() < deadline {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_micros(200)),
            Ok(status) => return status,
            Err(_) => break,
        }
    }
    // Killing a child that has already exited does not change its status.
    let _ = child.kill();
    child.wait().ok()
}

/// How a conversation with a child ended.
enum Said {
    /// The child closed its output after these bytes.
    All(Vec<u8>),
    TooMuch,
    Late,
    Stopped,
}

/// The pipes of a child, non-blocking.
struct Talk {
    to: Option<std::process::ChildStdin>,
    from: std::process::ChildStdout,
    errors: Option<std::process::ChildStderr>,
}

impl Talk {
    fn new(child: &mut Child) -> std::io::Result<Talk> {
        let missing = || std::io::Error::other("a pipe is missing");
        let to = child.stdin.take().ok_or_else(missing)?;
        let from = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        for pipe in [to.as_fd(), from.as_fd(), errors.as_fd()] {
            let flags = rustix::fs::fcntl_getfl(pipe)?;
            rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Talk { to: Some(to), from, errors: Some(errors) })
    }

    /// Writes the request and reads the response until `deadline`; also returns the end of what the child wrote to
    /// stderr.
    fn hold(mut self, request: &[u8], deadline: Instant, stopping: &AtomicBool) -> std::io::Result<(Said, String)> {
        let (mut answer, mut words) = (Vec::new(), Vec::new());
        let mut left = request;
        let said = loop {
            if stopping.load(Ordering::Acquire) {
                break Said::Stopped;
            }
            let Some(wait) = deadline.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero()) else {
                break Said::Late;
            };
            self.wait(wait.min(POLL_INTERVAL))?;
            if let Some(to) = &mut self.to {
                match to.write(left) {
                    Ok(written) => left = &left[written..],
                    Err(error) if would_block(&error) => {}
                    // The child has ended; its stderr says why.
                    Err(_) => left = &[],
                }
                if left.is_empty() {
                    self.to = None;
                }
            }
            if let Some(errors) = &mut self.errors
                && read_some(errors, &mut words)?
            {
                self.errors = None;
            }
            words.drain(..words.len().saturating_sub(LAST_WORDS_BYTES_MAX));
            let ended = read_some(&mut self.from, &mut answer)?;
            if answer.len() > RESPONSE_BYTES_MAX {
                break Said::TooMuch;
            }
            if ended {
                break Said::All(answer);
            }
        };
        if let Some(errors) = &mut self.errors {
            // Whatever the child wrote to stderr, it wrote before it closed its output.
            let _ = read_some(errors, &mut words);
        }
        Ok((said, String::from_utf8_lossy(&words).into_owned()))
    }

    fn wait(&self, time: Duration) -> std::io::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN)];
        fds.extend(self.to.as_ref().map(|to| PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)));
        fds.extend(self.errors.as_ref().map(|errors| PollFd::from_borrowed_fd(errors.as_fd(), PollFlags::IN)));
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn would_block(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Reads what is available, up to about a megabyte; returns whether the end was reached.
fn read_some(from: &mut impl Read, into: &mut Vec<u8>) -> std::io::Result<bool> {
    const PIECE: usize = 64 << 10;
    for _ in 0..16 {
        let before = into.len();
        into.resize(before + PIECE, 0);
        let read = from.read(&mut into[before..]);
        into.truncate(before + read.as_ref().map_or(0, |n| *n));
        match read {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if would_block(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

impl Output {
    /// Decodes a response. Its IR has passed the verifier.
    fn read(response: Response) -> Result<Output, Refusal> {
        let Response {
            failed,
            messages,
            first_error,
            unloadable,
            program,
            p4info,
            self_contained,
            same_as_text,
            sources,
            described,
            unreadable,
        } = response;
        if let Some(why) = unreadable {
            return Err(Refusal::Program(why));
        }
        let program = program.map(|text| read_program(&text)).transpose()?;
        let sources = protocol::source_map(sources);
        Ok(Output {
            failed,
            messages,
            first_error,
            unloadable,
            program,
            p4info,
            self_contained,
            same_as_text,
            sources,
            described,
        })
    }
}

/// Parses and verifies IR text from a child.
fn read_program(text: &str) -> Result<ir::Program, Refusal> {
    let wrong = |first: Option<&base::Diagnostic>| {
        let first = first.map_or("", |d| d.message.as_str());
        Refusal::Internal(format!(
            "the compiler made wrong IR of this program, which is a fault of the compiler: {first}"
        ))
    };
    let program = ir::parse(text, FileId(0)).map_err(|diags| wrong(diags.first()))?;
    let size = opt::size(&program);
    if size > lower::SIZE_LIMIT {
        return Err(Refusal::Limit(format!("the program has {size} operations, the limit is {}", lower::SIZE_LIMIT)));
    }
    match ir::verify(&program).first() {
        None => Ok(program),
        first => Err(wrong(first)),
    }
}

#[cfg(test)]
mod tests;
