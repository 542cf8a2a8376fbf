//! What the shell completes words with, asked of the running switch: tables, keys, actions, parameters, ports.
//!
//! The shell waits for the answer while somebody types, so the switch has [`PATIENCE`]; without one, or without a program, there is
//! no completion and no message. Which switch, as commands do: `--grpc` and `--admin` on the line, else the environment.

use crate::stats::ServerArgs;
use clap::Parser;
use clap_complete::CompletionCandidate;
use entities::{Names, name_of};
use std::ffi::OsStr;
use std::sync::mpsc;
use std::time::Duration;

/// How long a switch may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// What of the line matters here.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    server: ServerArgs,
    #[arg(long, default_value_t = 1)]
    device_id: u64,
}

/// Options that say which switch; all have a value.
const OF_SWITCH: &[&str] = &["--grpc", "--admin", "--tls-ca", "--tls-client-cert", "--tls-client-key", "--device-id"];

/// The line that is completed: its options about the switch, and its other words. The shell gives it behind `--`.
fn line() -> Option<(Options, Vec<String>)> {
    let mut all = std::env::args().skip_while(|word| word != "--").skip(2).peekable();
    let (mut options, mut words) = (vec!["sluice".to_string()], Vec::new());
    while let Some(word) = all.next() {
        match word.split_once('=') {
            Some((name, _)) if OF_SWITCH.contains(&name) => options.push(word),
            _ if OF_SWITCH.contains(&word.as_str()) => options.extend([Some(word), all.next()].into_iter().flatten()),
            _ => words.push(word),
        }
    }
    Some((Options::try_parse_from(options).ok()?, words))
}

/// What the switch answers in time.
fn ask<T: Send + 'static>(
    question: impl FnOnce(&Options, grpc::client::Client) -> Option<T> + Send + 'static,
) -> Option<T> {
    let (send, answer) = mpsc::channel();
    // A thread that waits for longer ends with the process.
    std::thread::spawn(move || {
        let answer = line().and_then(|(options, _)| question(&options, options.server.connect().ok()?));
        let _ = send.send(answer);
    });
    answer.recv_timeout(PATIENCE).ok().flatten()
}

fn names() -> Option<(Vec<String>, Names)> {
    let (_, words) = line()?;
    Some((words, ask(|options, client| Some(Names::new(client.p4info(options.device_id).ok()?)))?))
}

fn candidates(current: &OsStr, all: impl IntoIterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let written = current.to_string_lossy();
    let begun = written.trim_start_matches(['\'', '"']);
    let fits = |(name, _): &(String, String)| {
        name.starts_with(begun) || name.rsplit('.').next().is_some_and(|last| last.starts_with(begun))
    };
    let candidate = |(name, help): (String, String)| {
        // The end of a name is enough, and is what was begun.
        let word = match name.starts_with(begun) {
            true => name,
            false => name.rsplit('.').next().unwrap_or_default().to_string(),
        };
        // What has parentheses would mean something else to the shell.
        let word = if word.contains('(') { format!("'{word}'") } else { word };
        CompletionCandidate::new(word).help((!help.is_empty()).then(|| help.into()))
    };
    all.into_iter().filter(fits).map(candidate).collect()
}

/// Names of tables.
pub fn tables(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((_, names)) = names() else { return vec![] };
    candidates(current, names.tables().iter().map(|table| (name_of(&table.preamble).to_string(), String::new())))
}

/// Names of digests.
pub fn digests(current: &OsStr) -> Vec<CompletionCandidate> {
    objects_of(current, &["digest"])
}

/// Names of registers, counters, meters, by the command.
pub fn arrays(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args().collect();
    let kinds: Vec<&str> =
        ["register", "counter", "meter"].into_iter().filter(|kind| words.iter().any(|w| w == kind)).collect();
    objects_of(current, &kinds)
}

/// Names of profiles, value sets or digests, by the command.
pub fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args().collect();
    let all =
        [("member", "action profile"), ("group", "action profile"), ("value-set", "value set"), ("digest", "digest")];
    let kinds: Vec<&str> =
        all.iter().filter(|(word, _)| words.iter().any(|w| w == word)).map(|(_, kind)| *kind).collect();
    objects_of(current, &kinds)
}

fn objects_of(current: &OsStr, kinds: &[&str]) -> Vec<CompletionCandidate> {
    let Some((_, names)) = names() else { return vec![] };
    let of_kind = names.objects().into_iter().filter(|(kind, _)| kinds.contains(kind));
    candidates(current, of_kind.map(|(_, name)| (name.to_string(), String::new())).collect::<Vec<_>>())
}

/// Numbers of ports.
pub fn ports(current: &OsStr) -> Vec<CompletionCandidate> {
    let stats = ask(|_, client| client.stats().ok().flatten()).unwrap_or_default();
    candidates(current, stats.ports.iter().map(|port| (port.number.to_string(), port.name.clone())))
}

/// The next word of an entry's line: a table, its keys, its actions with their parameters.
pub fn entry(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((words, names)) = names() else { return vec![] };
    // `sluice table add TABLE ...`: what stands behind the command.
    let behind = words.iter().skip_while(|word| *word != "table").skip(2);
    let before: Vec<&String> = behind.take_while(|word| word.as_str() != current.to_string_lossy()).collect();
    let Some(table) = before.first().and_then(|name| names.table(name).ok()) else {
        return candidates(
            current,
            names.tables().iter().map(|table| (name_of(&table.preamble).to_string(), String::new())),
        );
    };
    let given = |name: &str| {
        before
            .iter()
            .any(|word| word.split(':').next().is_some_and(|key| name == key || name.ends_with(&format!(".{key}"))))
    };
    let keys = table.match_fields.iter().filter(|field| !given(&field.name));
    let keys = keys.map(|field| (format!("{}:", field.name), "key".to_string()));
    let actions = names.calls(table).into_iter().map(|call| (call, "action".to_string()));
    candidates(current, keys.chain(actions).collect::<Vec<_>>())
}
