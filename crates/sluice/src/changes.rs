//! Lines of the set-up language, written to a running switch as a P4Runtime client: what `sluice table add`, `sluice group
//! set` and the like have in common.
//!
//! All lines of a command are written or, if one is refused, none; a table of more entries than a batch takes is cleared in
//! several batches. A change needs the switch's primary right: with
//! `--election-id` the command claims it and gives it up when done; without the flag it does so if no controller is primary now.
//! Commands that run at the same time take turns: a claim is made again for [`TURN_MAX`], as long as another client has the right.
//! A controller that is primary keeps it, unless the id given here is higher, which demotes it.
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

/// How long a command waits for another client to give the right to write back: other commands do at once, controllers do not.
const TURN_MAX: Duration = Duration::from_secs(2);
/// The pause between two claims, or some of it.
const AGAIN: Duration = Duration::from_millis(3);

/// Updates of one batch: what the switch takes.
pub const UPDATES_MAX: usize = control::control::UPDATES_MAX;
/// Bytes of one batch, with room for what is around the updates.
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
    /// The switch, and its program's names.
    pub fn connect(&self) -> Result<(Client, Names)> {
        let client = self.server.connect()?;
        let names = Names::new(client.p4info(self.device_id)?);
        Ok((client, names))
    }

    /// What entities select.
    pub fn read(&self, client: &Client, queries: Vec<Entity>) -> Result<Vec<Entity>, ClientError> {
        let mut found = Vec::new();
        if !queries.is_empty() {
            let queries = queries.into_iter().map(|entity| pb::Entity { entity: Some(entity) }).collect();
            client.read(self.device_id, queries, |entity| found.extend(entity.entity))?;
        }
        Ok(found)
    }

    /// The right to write: with an id, or without one if nobody has it now or another command gives it back soon.
    pub fn claim<'a>(&self, client: &'a Client) -> Result<Primary<'a>> {
        if let Some(id) = self.election_id {
            return client.become_primary(self.device_id, id.into()).map_err(claim_refused);
        }
        let (begin, mut pause) = (Instant::now(), AGAIN);
        loop {
            match client.become_primary_if_free(self.device_id) {
                Err(ClientError::NotPrimary(_)) if begin.elapsed() < TURN_MAX => std::thread::sleep(pause),
                claimed => return claimed.map_err(claim_refused),
            }
            // Commands that were started together do not meet again and again.
            pause = AGAIN * (1 + std::process::id() % 8);
        }
    }

    /// Reads what changes need to know and writes them; each refusal names its change by `name`.
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
        // Lines of a command fit into one batch; what they come to may not (`clear`).
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

/// Groups of updates that are one batch each.
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

/// Why this command may not write.
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

/// Says what is wrong; the exit code for that.
pub fn refuse(messages: impl IntoIterator<Item = String>) -> ExitCode {
    messages.into_iter().for_each(|message| eprintln!("sluice: {message}"));
    ExitCode::from(1)
}

/// What a command does with its lines.
#[derive(Clone, Copy)]
pub struct Doing<'a> {
    /// The word that begins such a line in a file: `add`, `multicast`.
    pub keyword: &'a str,
    /// What is done, if the keyword does not say it.
    pub verb: Option<Verb>,
    /// Words that a line may begin with and that mean the same.
    pub or: &'a [&'a str],
}

/// Carries lines out.
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

/// What a line of a command asks for.
pub fn change(names: &Names, doing: Doing<'_>, line: &str) -> Result<Change, String> {
    // A line of a file or a script says itself what it wants.
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
        // Members of a value set, or all of it.
        (Some(Verb::Delete), Verb::Extend, Entity::ValueSetEntry(set)) if !set.members.is_empty() => Verb::Shrink,
        (Some(verb), ..) => verb,
        (None, verb, _) => verb,
    };
    Ok(Change { verb, ..change })
}
