//! `sluice restart`: a new process of the switch, with the binary that is on disk now, takes over from the running one.
//!
//! What happens in the two processes is in `successor.rs`. Exit code 1 when the switch refuses or the new process does not start, 2 when no
//! switch answers. Tests: `tests/py/test_takeover.py`.

use crate::output::JsonArgs;
use crate::stats::ServerArgs;
use anyhow::{Result, bail};
use grpc::client::ClientError;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the new process may take to listen, once it has everything.
const LISTENS_MAX: Duration = Duration::from_secs(60);
/// How often it is asked.
const ASK: Duration = Duration::from_millis(2);

/// Arguments of `restart`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

/// Runs the command.
pub fn main(args: &Args) -> Result<ExitCode> {
    let begin = Instant::now();
    let pid = match args.server.connect()?.restart() {
        Ok(pid) => pid,
        Err(ClientError::Refused(reason)) => {
            eprintln!("sluice: the switch runs on as it is: {reason}");
            return Ok(ExitCode::from(1));
        }
        Err(error) => bail!(error),
    };
    let ready = Instant::now();
    loop {
        // The old process may answer for a moment: it has run for longer than this command.
        let answer = args.server.connect().and_then(|client| Ok(client.stats()?));
        if answer.is_ok_and(|stats| stats.is_some_and(|stats| Duration::from_micros(stats.uptime_us) < begin.elapsed()))
        {
            break;
        }
        if ready.elapsed() > LISTENS_MAX {
            bail!("process {pid} has taken over and does not answer after {LISTENS_MAX:?}; the switch's log says why");
        }
        std::thread::sleep(ASK);
    }
    let (took, away) = (begin.elapsed().as_millis() as u64, ready.elapsed().as_millis() as u64);
    args.output.print_line(
        || serde_json::json!({ "pid": pid, "took_ms": took, "away_ms": away }),
        || format!("process {pid} has taken over after {took} ms; P4Runtime was away for {away} ms of these"),
    );
    Ok(ExitCode::SUCCESS)
}
