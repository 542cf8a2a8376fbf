//! `sluice restart`: replaces the switch's process by a new one, which runs the binary that is on disk now.
//!
//! The protocol between the two processes is in `successor.rs`. Exit code 1 when the switch refuses or the new process
//! does not start, 2 when no switch answers. Tests: `tests/py/test_takeover.py`.

use crate::output::JsonArgs;
use crate::stats::ServerArgs;
use anyhow::{Result, bail};
use grpc::client::ClientError;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the new process may take to listen once it has taken over.
const LISTENS_MAX: Duration = Duration::from_secs(60);
/// The same if the connection broke before the new process was named: the switch may instead be stopping.
const UNNAMED_MAX: Duration = Duration::from_secs(5);
/// How often the new process is tried.
const ASK: Duration = Duration::from_millis(2);

/// Arguments of `restart`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

/// Runs `sluice restart`.
///
/// # Errors
/// If no switch answers, or the new process has taken over and does not answer.
pub fn main(args: &Args) -> Result<ExitCode> {
    let begin = Instant::now();
    let client = args.server.connect()?;
    let is_local = client.is_local();
    let pid = match client.restart() {
        Ok(pid) => pid,
        Err(ClientError::Refused(reason)) => {
            eprintln!("sluice: the switch runs on as it is: {reason}");
            return Ok(ExitCode::from(1));
        }
        Err(error) => bail!(error),
    };
    let ready = Instant::now();
    loop {
        // The old process may still answer for a moment; it has been up for longer than this command.
        let answer = args.server.connect().and_then(|client| Ok(client.stats()?));
        if answer.is_ok_and(|stats| stats.is_some_and(|stats| Duration::from_micros(stats.uptime_us) < begin.elapsed()))
        {
            break;
        }
        // A zombie has no `exe` link any more.
        let is_gone =
            |pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_err_and(|e| e.kind() == ErrorKind::NotFound);
        let ended = is_local && pid.is_some_and(is_gone);
        if ended || ready.elapsed() > if pid.is_some() { LISTENS_MAX } else { UNNAMED_MAX } {
            let Some(pid) = pid else { bail!("the connection broke, and no switch answers; its log says why") };
            let state = if ended { "has ended" } else { "does not answer" };
            bail!("process {pid} has taken over and {state}; the switch's log says why");
        }
        std::thread::sleep(ASK);
    }
    let (took, away) = (begin.elapsed().as_millis() as u64, ready.elapsed().as_millis() as u64);
    let who = pid.map_or("a new process".to_string(), |pid| format!("process {pid}"));
    args.output.print_line(
        || serde_json::json!({ "pid": pid, "took_ms": took, "away_ms": away }),
        || format!("{who} has taken over after {took} ms; P4Runtime was away for {away} ms of these"),
    );
    Ok(ExitCode::SUCCESS)
}
