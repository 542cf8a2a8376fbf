//! `sluice config save|load FILE`: all entities of a device as one file, in the format of `sluice run --entries`.
//!
//! A load reads the current entities, computes the difference and writes only that. Up to [`UPDATES_MAX`] updates are
//! one atomic batch. More take several; if one is refused, the earlier ones are undone, and the command reports whether
//! that succeeded.
//!
//! Exit codes are those of `changes`. Tests: `tests/py/test_config.py`; the language, `crates/entities`.

use crate::changes::{UPDATES_MAX, WriterArgs, batches, refuse};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use entities::Names;
use entities::config::{Step, Wanted, plan, queries, text};
use grpc::client::{Client, ClientError, Primary};
use messages::p4::v1 as pb;
use pb::update::Type as UpdateType;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The interval of keep-alive requests during long local work; shorter than the switch's timeout.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// How often the end of that work is checked for.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Arguments of `config`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sluice config save backup.entries
  sluice config load backup.entries --dry-run
  sluice config load backup.entries --replace
  sluice run router.p4 --entries backup.entries -i 1@veth1")]
pub struct Args {
    #[command(flatten)]
    writer: WriterArgs,
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Write all entities of a device into a file: entries, default actions, members, groups, clone sessions, value sets, digests,
    /// registers, meters.
    Save {
        /// The file; `-` is standard output.
        file: PathBuf,
        /// Also what counters have counted.
        #[arg(long)]
        counters: bool,
    },
    /// Make a device have the entities of a file; what it has besides stays.
    ///
    /// With --replace what the file does not name goes: entries, members, groups, sessions and digests are removed; default actions,
    /// value sets and meters become what the program begins with. Registers and counters that it does not name stay as they are, as
    /// packets write them.
    Load {
        /// The file; `-` is standard input.
        file: PathBuf,
        /// Remove what the file does not name.
        #[arg(long)]
        replace: bool,
        /// Only say what would be written.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs `sluice config`.
///
/// # Errors
/// If no switch answers, it does not give the right to write, or the file cannot be read or written.
pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.command {
        ConfigCommand::Save { file, counters } => save(args, file, *counters),
        ConfigCommand::Load { file, replace, dry_run } => load(args, file, *replace, *dry_run),
    }
}

fn save(args: &Args, file: &Path, counters: bool) -> Result<ExitCode> {
    let (client, names) = args.writer.connect()?;
    let found = args.writer.read(&client, queries(&names, counters))?;
    if args.writer.output.json {
        let all: Vec<_> =
            found.iter().filter_map(|entity| Some((entities::kind_of(entity)?.noun(), names.json(entity)))).collect();
        let all: Vec<_> = all.into_iter().map(|(kind, entity)| json!({ "kind": kind, "entity": entity })).collect();
        write_file(file, format!("{:#}\n", json!({ "entities": all })).as_bytes())?;
    } else {
        write_file(file, text(&names, &found, counters).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces a file atomically, so that a full disk does not destroy an existing backup.
fn write_file(file: &Path, contents: &[u8]) -> Result<()> {
    if file == Path::new("-") {
        return std::io::stdout().write_all(contents).context("cannot write to standard output");
    }
    let failed = || format!("cannot write {}", file.display());
    if std::fs::metadata(file).is_ok_and(|meta| !meta.is_file()) {
        return std::fs::write(file, contents).with_context(failed);
    }
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written = std::fs::File::create(&part).and_then(|mut out| {
        out.write_all(contents)?;
        out.sync_all()
    });
    let done = written.and_then(|()| std::fs::rename(&part, file));
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    done.with_context(failed)
}

fn load(args: &Args, file: &Path, replace: bool, dry_run: bool) -> Result<ExitCode> {
    let (client, names) = args.writer.connect()?;
    let text = read_file(file)?;
    let wanted = match meanwhile(&client, || Wanted::read(&names, &text)) {
        Ok(wanted) => wanted,
        Err(errors) => {
            return Ok(refuse(errors.iter().map(|e| format!("{}:{}: {}", file.display(), e.line, e.message))));
        }
    };
    // Become primary first: what is read next must not change before the write.
    let primary = if dry_run { None } else { Some(args.writer.claim(&client)?) };
    // Counters are read too; the plan compares them only where the file has some.
    let there = args.writer.read(&client, queries(&names, true))?;
    let plan = meanwhile(&client, || plan(&names, there, &wanted, replace));
    if let Some(mut primary) = primary
        && let Err(failed) = write_all(&mut primary, &plan.steps)?
    {
        let name = |step: &Step| {
            step.line
                .map_or(format!("{}: what is not in it", file.display()), |line| format!("{}:{line}", file.display()))
        };
        refuse(failed.refused.iter().map(|(step, why)| format!("{}: {why}", name(step))));
        return Ok(refuse([failed.rest]));
    }
    let [inserted, modified, deleted] = plan.counts();
    let unchanged = plan.unchanged;
    let untouched: &[String] = if replace { &plan.untouched } else { &[] };
    args.writer.output.print(
        || {
            let mut object = json!({
                "inserted": inserted, "modified": modified, "deleted": deleted, "unchanged": unchanged, "written": !dry_run,
            });
            if replace {
                object["untouched_registers"] = untouched.into();
            }
            if dry_run {
                object["steps"] = plan.steps.iter().map(|step| step_json(&names, step)).collect();
            }
            object
        },
        || {
            let would = if dry_run { "would be " } else { "" };
            let mut text =
                format!("{would}inserted: {inserted}, modified: {modified}, deleted: {deleted}; as wanted: {unchanged}\n");
            if dry_run {
                plan.steps.iter().for_each(|step| text += &format!("{}\n", step_text(&names, step)));
            }
            if !untouched.is_empty() {
                text += &format!("cells of registers that the file does not name stay as they are: {}\n", untouched.join(", "));
            }
            text
        },
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs long work on another thread while keeping the connection alive: the switch drops a client that is silent too
/// long.
fn meanwhile<T: Send>(client: &Client, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut asked = Instant::now();
        while !working.is_finished() {
            std::thread::sleep(POLL_INTERVAL);
            if asked.elapsed() > SIGN_OF_LIFE {
                // Only the traffic matters, not the answer.
                let _ = client.stats();
                asked = Instant::now();
            }
        }
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Describes a step: the line that writes the entity, or what is deleted or reset.
fn step_text(names: &Names, step: &Step) -> String {
    let (sign, what) = match kind_of_step(step) {
        UpdateType::Insert => ('+', made(names, step)),
        UpdateType::Delete => ('-', None),
        _ => ('~', made(names, step)),
    };
    let of = || step.update.entity.as_ref().and_then(|e| e.entity.as_ref()).map(|entity| names.title(entity));
    let what = what.or_else(|| match sign {
        '-' => of(),
        _ => of().map(|title| format!("{title}: back to what the program begins with")),
    });
    format!("{sign} {}", what.unwrap_or_default())
}

fn step_json(names: &Names, step: &Step) -> serde_json::Value {
    let entity = step.update.entity.as_ref().and_then(|e| e.entity.as_ref());
    let change = match kind_of_step(step) {
        UpdateType::Insert => "insert",
        UpdateType::Delete => "delete",
        _ if made(names, step).is_none() => "reset",
        _ => "modify",
    };
    json!({
        "change": change,
        "entity": entity.map(|entity| names.title(entity)),
        "line": step.line,
    })
}

fn kind_of_step(step: &Step) -> UpdateType {
    UpdateType::try_from(step.update.r#type).unwrap_or(UpdateType::Unspecified)
}

/// Returns the line that writes a step's entity; `None` for a reset to the program's initial state.
fn made(names: &Names, step: &Step) -> Option<String> {
    names.line(step.update.entity.as_ref()?.entity.as_ref()?)
}

fn read_file(file: &Path) -> Result<String> {
    crate::files::text(file)
}

/// Why a load was refused.
struct Failed<'a> {
    refused: Vec<(&'a Step, String)>,
    /// What happened to the updates that were not refused.
    rest: String,
}

/// Writes steps in as few batches as possible. A refusal, after which earlier batches are undone, is the inner error;
/// the outer error means that the outcome is unknown (the connection failed).
fn write_all<'a>(primary: &mut Primary<'_>, steps: &'a [Step]) -> Result<Result<(), Failed<'a>>> {
    let mut done = 0;
    for batch in batches(steps, |step| &step.update) {
        let error = match primary.write(batch.iter().map(|step| step.update.clone()).collect()) {
            Ok(()) => {
                done += batch.len();
                continue;
            }
            Err(error) => error,
        };
        let refused = match error {
            ClientError::Elements(errors) => {
                errors.into_iter().filter_map(|(at, why)| Some((batch.get(at)?, why))).collect()
            }
            // Whether this batch was carried out is unknown.
            other if done > 0 => bail!("{other}\nthe first {done} of {} updates were carried out", steps.len()),
            other => bail!(other),
        };
        let undone = undo(primary, &steps[..done]);
        let rest = match undone {
            Ok(()) => "nothing is changed".to_string(),
            Err(why) => format!("{done} updates were carried out and could not be undone: {why}"),
        };
        return Ok(Err(Failed { refused, rest }));
    }
    Ok(Ok(()))
}

fn undo(primary: &mut Primary<'_>, steps: &[Step]) -> Result<(), ClientError> {
    let back: Vec<pb::Update> = steps.iter().rev().flat_map(|step| step.undo.iter().cloned()).collect();
    back.chunks(UPDATES_MAX).try_for_each(|batch| primary.write(batch.to_vec()))
}
