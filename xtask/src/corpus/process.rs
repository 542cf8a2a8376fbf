//! Runs one command with a limit on time and memory.
//!
//! The memory limit is the shell's `ulimit -v`, on the address space: `setrlimit` from here would be unsafe code.

use anyhow::{Context, Result};
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// No case may take longer.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);
/// No case may use more.
const MEMORY_LIMIT_KIB: u64 = 2 * 1024 * 1024;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With this code.
    Code(i32),
    /// By a signal or a panic.
    Crashed,
    /// By our limit.
    TimedOut,
}

/// What a process left.
#[derive(Clone, Debug)]
pub struct Output {
    pub end: End,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The first line that tells what is wrong.
    pub fn first_complaint(&self) -> String {
        let mut lines = self.stderr.lines().filter(|l| !l.trim().is_empty());
        let complaint = lines.clone().find(|l| l.starts_with("error") || l.contains("panicked"));
        complaint.or_else(|| lines.find(|l| !l.starts_with("warning"))).unwrap_or_default().to_string()
    }
}

/// A command under the memory limit.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_LIMIT_KIB}; exec \"$@\""), "sh"]).arg(program);
    command
}

/// Runs it to its end or to the time limit.
pub fn limited(mut command: Command) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a process")?;
    let stdout = collect(child.stdout.take().context("stdout is a pipe")?);
    let stderr = collect(child.stderr.take().context("stderr is a pipe")?);
    let status = wait(&mut child)?;
    let end = match status.map(|s| s.code()) {
        None => End::TimedOut,
        Some(None | Some(101)) => End::Crashed,
        Some(Some(code)) => End::Code(code),
    };
    Ok(Output { end, stdout: stdout.join().unwrap_or_default(), stderr: stderr.join().unwrap_or_default() })
}

fn collect(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Does the work for each item, on as many threads as there are processors; results in the order of the items.
pub fn for_each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, Result<R>)> = std::thread::scope(|scope| {
        let worker = || {
            let mut own = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(i) else { return own };
                own.push((i, work(item)));
            }
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        handles.into_iter().flat_map(|h| h.join().expect("a worker of the corpus runner panicked")).collect()
    });
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, r)| r).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_memory_ends_the_process() {
        let mut greedy = command("dd");
        greedy.args(["if=/dev/zero", "of=/dev/null", "bs=3G", "count=1"]);
        assert!(matches!(limited(greedy).unwrap().end, End::Code(1)));
    }
}
