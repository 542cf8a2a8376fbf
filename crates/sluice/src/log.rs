//! The log of `sluice run`, whose filter is set by SLUICE_LOG and changed at run time by `sluice log`; and that
//! command.
//!
//! A filter is a level for all of the switch's own crates, levels of single targets, or both: `info`,
//! `warn,control=debug`. Other crates log from `warn` up unless they are named, because the code generator logs every
//! function at `info`. A wrong filter is refused before the switch starts, with the valid form. Tests: below,
//! `tests/py/test_operations.py`.

use crate::stats::ServerArgs;
use anyhow::{Result, bail};
use clap_complete::ArgValueCompleter;
use grpc::client::ClientError;
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};

const VARIABLE: &str = "SLUICE_LOG";
const DEFAULT: &str = "info";
/// The levels of a filter, from least to most verbose.
pub const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The lock file, which lists all crates of this program; only those from elsewhere have a `source`.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// Returns all crates of this program, and for each whether it belongs to this workspace.
fn crates() -> impl Iterator<Item = (String, bool)> {
    LOCK.split("[[package]]").skip(1).filter_map(|package| {
        let name = package.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))?;
        Some((name.replace('-', "_"), !package.contains("\nsource = ")))
    })
}

static IN_FORCE: OnceLock<Handle<EnvFilter, Registry>> = OnceLock::new();
static NOW: Mutex<String> = Mutex::new(String::new());

/// Arguments of `log`.
#[derive(clap::Args)]
pub struct Args {
    /// off, error, warn, info, debug or trace; or as in warn,control=debug. Without it, say what is logged.
    #[arg(value_name = "LEVEL", add = ArgValueCompleter::new(crate::complete::levels))]
    filter: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: crate::output::JsonArgs,
}

/// Runs `sluice log`.
///
/// # Errors
/// If no switch answers.
pub fn main(args: &Args) -> Result<ExitCode> {
    let filter = args.filter.clone().unwrap_or_default();
    match args.server.connect()?.log(filter) {
        Ok(now) => args.output.print(|| serde_json::json!({ "log": now }), || now.clone()),
        Err(ClientError::Refused(reason)) => {
            eprintln!("sluice: the log is not changed: {reason}");
            return Ok(ExitCode::from(1));
        }
        Err(error) => bail!(error),
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts logging on stderr, as JSON or as text.
///
/// # Errors
/// If the filter in SLUICE_LOG is wrong.
pub fn init(json: bool) -> Result<()> {
    let filter = wanted();
    let directives = directives(&filter).map_err(|why| anyhow::anyhow!("{VARIABLE}: {why}"))?;
    let (layer, handle) = tracing_subscriber::reload::Layer::new(EnvFilter::new(directives));
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_ansi(colour).with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(layer);
    // This fails only if the process already logs, and then that log is used.
    let started = match json {
        true => registry.with(lines.json()).try_init(),
        false => registry.with(lines).try_init(),
    };
    if started.is_ok() {
        let _ = IN_FORCE.set(handle);
        *NOW.lock().unwrap_or_else(PoisonError::into_inner) = filter;
    }
    Ok(())
}

fn wanted() -> String {
    std::env::var(VARIABLE).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| DEFAULT.to_string())
}

/// Returns the current filter.
pub fn now() -> String {
    NOW.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Changes the filter.
///
/// # Errors
/// If it is wrong, or the process does not log.
pub fn set(filter: &str) -> Result<(), String> {
    let new = EnvFilter::new(directives(filter)?);
    let handle = IN_FORCE.get().ok_or("this process does not log")?;
    handle.reload(new).map_err(|error| error.to_string())?;
    *NOW.lock().unwrap_or_else(PoisonError::into_inner) = filter.to_string();
    Ok(())
}

/// Restores the filter of SLUICE_LOG.
///
/// # Errors
/// As [`set`].
pub fn reset() -> Result<(), String> {
    set(&wanted())
}

/// Translates a filter into the directives of `tracing_subscriber`.
fn directives(filter: &str) -> Result<String, String> {
    let wrong = |part: &str| {
        format!(
            "`{part}` is not what can be logged: it is a level ({}), TARGET=LEVEL, or several of these with commas between them, as \
             warn,control=debug",
            LEVELS.join(", ")
        )
    };
    let mut all = vec!["warn".to_string()];
    for part in filter.split(',').map(str::trim) {
        let level = |text: &str| LEVELS.iter().find(|level| text.eq_ignore_ascii_case(level)).copied();
        match part.split_once('=') {
            None => {
                let level = level(part).ok_or_else(|| wrong(part))?;
                if matches!(level, "off" | "error") {
                    all[0] = level.to_string();
                }
                all.extend(crates().filter(|(_, is_ours)| *is_ours).map(|(ours, _)| format!("{ours}={level}")));
            }
            Some((target, text)) => {
                let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
                let level = level(text).filter(|_| target.chars().all(name)).ok_or_else(|| wrong(part))?;
                let of = target.split("::").next().unwrap_or(target);
                if !crates().any(|(known, _)| known == of) {
                    return Err(format!("`{part}`: this program has no crate `{of}`; {}", wrong(part)));
                }
                all.push(format!("{target}={level}"));
            }
        }
    }
    Ok(all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_for_our_crates_and_others_warn() {
        let all = directives("info").unwrap();
        assert!(
            all.starts_with("warn,")
                && ["sluice", "jit", "bridge", "thrift_service"]
                    .iter()
                    .all(|ours| all.contains(&format!(",{ours}=info")))
                && !all.contains("cranelift"),
            "{all}"
        );
        assert!(directives("warn,control=debug").unwrap().ends_with(",control=debug"));
        assert!(directives("info,cranelift_jit=info").unwrap().ends_with(",cranelift_jit=info"));
        assert!(directives("off").unwrap().starts_with("off,"));
    }

    #[test]
    fn nonsense_is_refused_with_what_is_right() {
        for wrong in
            ["nonsense", "control=loud", "=info", "info,,warn", "a b=info", "[span]=info", "blah=debug", "info=info"]
        {
            let why = directives(wrong).unwrap_err();
            assert!(why.contains("is not what can be logged") && why.contains("warn,control=debug"), "{wrong}: {why}");
        }
    }
}
