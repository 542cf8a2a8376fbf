//! Writes lines of the set-up language to a running switch as a P4Runtime client: the common part of `sluice table
//! add`, `sluice group set` and the like.
//!
//! The lines of a command are one atomic batch: all are carried out, or none if one is refused. The exception is
//! clearing a table that has more entries than a batch may have; it takes several batches.
//!
//! Only the primary client may write. With `--election-id` the command becomes primary under that id and gives the role
//! up when done; a lower id is demoted. Without the flag it becomes primary only if no client is. Because commands that
//! run at the same time hold the role briefly, it retries for [`TURN_MAX`] while another client is primary.
//!
//! Exit codes: 1 a line or the change is refused, 2 no switch answers or the claim is refused.

use crate::complete;
use crate::output::JsonArgs;
use crate::stats::ServerArgs;
use anyhow::Result;
use clap_complete::ArgValueCompleter;
use entities::{Change, Names, Verb, config};
use grpc::client::{Client, ClientError, Primary};
use messages::p4::v1 as pb;
use pb::entity::Entity;
use prost::Message;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a command waits while another client is primary: other commands give the role up at once, controllers do
/// not.
const TURN_MAX: Duration = Duration::from_secs(2);
/// The unit of the pause between two attempts to become primary; a process waits 1 to 8 of them.
const RETRY_PAUSE: Duration = Duration::from_millis(3);

/// The most updates in one batch, as limited by the switch.
pub const UPDATES_MAX: usize = control::control::UPDATES_MAX;
/// The most bytes in one batch; the rest of a message is left for what surrounds the updates.
const BATCH_BYTES_MAX: usize = grpc::MESSAGE_BYTES_MAX - (1 << 20);

/// Which switch, and the right to write.
#[derive(clap::Args)]
pub struct WriterArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// The device id of P4Runtime.
    #[arg(long, value_name = "ID", default_value_t = 1, global = true, add = ArgValueCompleter::new(complete::devices))]
    pub device_id: u64,
    /// Claims the right to write with this id; the highest id has it. Without it the command writes if nobody is primary now.
    #[arg(long, value_name = "ID", global = true)]
    pub election_id: Option<u64>,
    #[command(flatten)]
    pub output: JsonArgs,
}

impl WriterArgs {
    /// Connects to the switch; also returns the names of its program's objects.
    ///
    /// # Errors
    /// If no switch answers, or the device has no program.
    pub fn connect(&self) -> Result<(Client, Names)> {
        let client = self.server.connect()?;
        let names = Names::new(client.p4info(self.device_id)?);
        Ok((client, names))
    }

    /// Reads the entities that the queries select.
    ///
    /// # Errors
    /// If the switch refuses or does not answer.
    pub fn read(&self, client: &Client, queries: Vec<Entity>) -> Result<Vec<Entity>, ClientError> {
        let mut found = Vec::new();
        if !queries.is_empty() {
            let queries = queries.into_iter().map(|entity| pb::Entity { entity: Some(entity) }).collect();
            client.read(self.device_id, queries, |entity| found.extend(entity.entity))?;
        }
        Ok(found)
    }

    /// Becomes primary: under the given election id, or without one if no client is primary or another command soon
    /// gives the role up.
    ///
    /// # Errors
    /// If another client stays primary, or the switch does not answer.
    pub fn claim<'a>(&self, client: &'a Client) -> Result<Primary<'a>> {
        if let Some(id) = self.election_id {
            return client.become_primary(self.device_id, id.into()).map_err(claim_refused);
        }
        let (begin, mut pause) = (Instant::now(), RETRY_PAUSE);
        loop {
            match client.become_primary_if_free(self.device_id) {
                Err(ClientError::NotPrimary(_)) if begin.elapsed() < TURN_MAX => std::thread::sleep(pause),
                claimed => return claimed.map_err(claim_refused),
            }
            // The pauses differ, so commands that were started together do not collide again and again.
            pause = RETRY_PAUSE * (1 + std::process::id() % 8);
        }
    }

    /// Carries out changes: reads the current entities that they depend on, then writes. A refusal is printed with the
    /// change's `name` and is exit code 1.
    ///
    /// # Errors
    /// If the role of primary is not obtained, or the connection fails; the message says how many updates were carried
    /// out.
    pub fn write(&self, client: &Client, changes: &[Change], name: impl Fn(usize) -> String) -> Result<ExitCode> {
        let found = self.read(client, config::needed(changes))?;
        let updates = match config::resolve(changes, found) {
            Ok(updates) => updates,
            Err((at, why)) => return Ok(refuse([format!("{}: {why}", name(at))])),
        };
        let (of, updates): (Vec<usize>, Vec<pb::Update>) = updates.into_iter().unzip();
        if updates.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let mut primary = self.claim(client)?;
        let (mut done, all) = (0, updates.len());
        // The lines of a command fit into one batch; the updates that they expand to may not (`clear`).
        for batch in batches(&updates, |update| update) {
            let carried_out = |message: String| match done {
                0 => message,
                _ => format!("{message}\nthe first {done} of {all} updates were carried out"),
            };
            match primary.write(batch.to_vec()) {
                Ok(()) => done += batch.len(),
                Err(ClientError::Elements(errors)) => {
                    let name = |at: usize| of.get(done + at).map_or("a line".to_string(), |at| name(*at));
                    let messages: Vec<String> =
                        errors.iter().map(|(at, message)| format!("{}: {message}", name(*at))).collect();
                    return Ok(refuse([carried_out(messages.join("\nsluice: "))]));
                }
                Err(other) => anyhow::bail!(carried_out(other.to_string())),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Splits updates into batches of at most [`UPDATES_MAX`] updates and [`BATCH_BYTES_MAX`] bytes, in order.
pub fn batches<T>(all: &[T], update: impl Fn(&T) -> &pb::Update) -> Vec<&[T]> {
    let mut batches = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, one) in all.iter().enumerate() {
        let length = update(one).encoded_len() + 8;
        if at - from == UPDATES_MAX || (bytes + length > BATCH_BYTES_MAX && at > from) {
            batches.push(&all[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += length;
    }
    batches.extend((from < all.len()).then(|| &all[from..]));
    batches
}

/// Returns the error for a command that did not become primary.
fn claim_refused(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::NotPrimary(why) => {
            anyhow::anyhow!(
                "the switch does not let this command write: {why}\nthat client is a controller or `sluice listen`; a higher --election-id \
                 takes its place"
            )
        }
        other => other.into(),
    }
}

/// Prints messages on stderr and returns exit code 1.
pub fn refuse(messages: impl IntoIterator<Item = String>) -> ExitCode {
    messages.into_iter().for_each(|message| eprintln!("sluice: {message}"));
    ExitCode::from(1)
}

/// How a command interprets its lines.
#[derive(Clone, Copy)]
pub struct Doing<'a> {
    /// The keyword of such a line in a file: `add`, `multicast`.
    pub keyword: &'a str,
    /// The operation, if the keyword does not imply it.
    pub verb: Option<Verb>,
    /// Synonyms of the keyword that a line may begin with.
    pub or: &'a [&'a str],
}

/// Parses and carries out lines. If any line is wrong, all wrong lines are reported and nothing is written.
///
/// # Errors
/// As [`WriterArgs::connect`] and [`WriterArgs::write`].
pub fn apply(writer: &WriterArgs, doing: Doing<'_>, words: &[String]) -> Result<ExitCode> {
    let (client, names) = writer.connect()?;
    let text = words.join(" ");
    let lines: Vec<&str> = text.lines().filter(|line| !is_blank(line)).collect();
    if lines.is_empty() {
        return Ok(refuse(["there is no line to carry out".to_string()]));
    }
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    for line in &lines {
        match change(&names, doing, line) {
            Ok(change) => changes.push(change),
            Err(message) => refused.push(format!("{line}: {message}")),
        }
    }
    match refused.is_empty() {
        true => writer.write(&client, &changes, |at| lines.get(at).copied().unwrap_or("a line").to_string()),
        false => Ok(refuse(refused)),
    }
}

fn is_blank(line: &str) -> bool {
    line.split('#').next().unwrap_or_default().trim().is_empty()
}

/// Parses a line of a command into a change.
///
/// # Errors
/// If the line is not of the language, or names what the program does not have.
pub fn change(names: &Names, doing: Doing<'_>, line: &str) -> Result<Change, String> {
    // A line copied from a file begins with the keyword; drop it.
    let line = line.trim_start();
    let same = |word: &str| (word == doing.keyword || doing.or.contains(&word)) && names.table(word).is_err();
    let line = match line.split_once(char::is_whitespace) {
        Some((first, rest)) if same(first) => rest,
        _ => line,
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    if let ("setdefault", [table]) = (doing.keyword, words.as_slice()) {
        return names.reset_default(table);
    }
    let mut commands = stf::parse(&format!("{} {line}", doing.keyword))
        .map_err(|errors| errors.into_iter().map(|e| e.message).collect::<Vec<_>>().join("; "))?;
    let command = commands.pop().ok_or("the line says nothing")?;
    let change = names.change(&command.command).ok_or("only lines about entities can be carried out here")??;
    let verb = match (doing.verb, change.verb, &change.entity) {
        (Some(Verb::Insert), Verb::Extend, _) => Verb::Extend,
        // With members, only these are deleted; without, the whole value set.
        (Some(Verb::Delete), Verb::Extend, Entity::ValueSetEntry(set)) if !set.members.is_empty() => Verb::Shrink,
        (Some(verb), ..) => verb,
        (None, verb, _) => verb,
    };
    Ok(Change { verb, ..change })
}
