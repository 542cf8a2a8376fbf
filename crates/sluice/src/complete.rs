//! Shell completion from the running switch: tables, keys, actions, parameters, ports.
//!
//! The shell blocks while a user types, so the switch has [`PATIENCE`] to answer; without a switch or a program there
//! is no completion and no message. The switch is chosen as for commands: by `--grpc` and `--admin` on the line, else
//! by the environment.

use crate::stats::ServerArgs;
use clap::Parser;
use clap_complete::CompletionCandidate;
use entities::{Names, name_of};
use messages::p4::v1 as pb;
use pb::entity::Entity;
use pb::packet_replication_engine_entry::Type as Replication;
use std::ffi::OsStr;
use std::sync::mpsc;
use std::time::Duration;

/// How long a switch may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// The options of the line that choose the switch and device.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    server: ServerArgs,
    #[arg(long, default_value_t = 1)]
    device_id: u64,
}

/// Options that choose the switch and device; all have a value.
const OF_SWITCH: &[&str] = &["--grpc", "--admin", "--tls-ca", "--tls-client-cert", "--tls-client-key", "--device-id"];

/// Returns the line being completed: its options in [`OF_SWITCH`], and the other words before the one being completed.
fn line() -> Option<(Options, Vec<String>)> {
    // The shell passes the line after `--`, and the index of the word; without an index it is the last word.
    let all: Vec<String> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
    let at = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|at| at.parse().ok());
    let at = at.unwrap_or(all.len().saturating_sub(1));
    split(&all, at)
}

fn split(all: &[String], at: usize) -> Option<(Options, Vec<String>)> {
    let (before, rest) = all.split_at(at.min(all.len()));
    let (mut options, mut words) = (vec!["sluice".to_string()], Vec::new());
    for (part, is_before) in
        [(joined(before.get(1..).unwrap_or_default()), true), (joined(rest.get(1..).unwrap_or_default()), false)]
    {
        let mut part = part.into_iter();
        while let Some(word) = part.next() {
            match word.split_once('=') {
                Some((name, _)) if OF_SWITCH.contains(&name) => options.push(word),
                // The value may be missing: it may be the word being completed.
                _ if OF_SWITCH.contains(&word.as_str()) => {
                    options.extend(part.next().map(|value| format!("{word}={value}")))
                }
                _ if is_before => words.push(word),
                _ => {}
            }
        }
    }
    Some((Options::try_parse_from(options).ok()?, words))
}

/// Rejoins words that bash has split: it splits at `:` and `=`, so `127.0.0.1:9559` arrives as three words.
fn joined(words: &[String]) -> Vec<String> {
    let is_cut = |word: &str| !word.is_empty() && word.chars().all(|c| matches!(c, ':' | '='));
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for word in words {
        match all.last_mut() {
            Some(last) if goes_on || is_cut(word) => last.push_str(word),
            _ => all.push(word.clone()),
        }
        goes_on = is_cut(word);
    }
    all
}

/// Returns the switch's answer if it comes within [`PATIENCE`].
fn ask<T: Send + 'static>(
    question: impl FnOnce(&Options, grpc::client::Client) -> Option<T> + Send + 'static,
) -> Option<T> {
    let (send, answer) = mpsc::channel();
    // A thread that still waits ends with the process.
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
        // A suffix of a name is enough; complete that if it is what the user began.
        let word = match name.starts_with(begun) {
            true => name,
            false => name.rsplit('.').next().unwrap_or_default().to_string(),
        };
        // Parentheses are special to the shell.
        let word = if word.contains('(') { format!("'{word}'") } else { word };
        CompletionCandidate::new(word).help((!help.is_empty()).then(|| help.into()))
    };
    all.into_iter().filter(fits).map(candidate).collect()
}

/// Completes names of tables.
pub fn tables(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((_, names)) = names() else { return vec![] };
    candidates(current, names.tables().iter().map(|table| (name_of(&table.preamble).to_string(), String::new())))
}

/// Completes names of digests.
pub fn digests(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((_, names)) = names() else { return vec![] };
    candidates(current, named(&names, &["digest"]))
}

/// Completes names of registers, counters or meters, by the command.
pub fn arrays(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((words, names)) = names() else { return vec![] };
    let kinds: Vec<&str> =
        ["register", "counter", "meter"].into_iter().filter(|kind| words.iter().any(|w| w == kind)).collect();
    candidates(current, named(&names, &kinds))
}

/// Completes the next word of a line about multicast groups, clone sessions, members, groups, value sets or digests, by
/// the command.
pub fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((words, names)) = names() else { return vec![] };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [kind, verb, line @ ..] = words.as_slice() else { return vec![] };
    let comes = matches!(*verb, "add" | "set" | "modify");
    let options = |all: &[&str]| all.iter().map(|option| (option.to_string(), String::new())).collect();
    let all: Vec<(String, String)> = match (*kind, line) {
        ("multicast" | "clone", []) if *verb != "add" => there(kind, None),
        ("multicast", [_, ..]) if comes => [port_numbers(), options(&["metadata="])].concat(),
        ("clone", [_, ..]) if comes => [port_numbers(), options(&["class_of_service=", "packet_length="])].concat(),
        ("member" | "group", []) => named(&names, &["action profile"]),
        ("member" | "group", [profile]) if !matches!(*verb, "add" | "show") => there(kind, Some(profile)),
        ("member", [profile, _]) if comes => {
            names.calls_of_profile(profile).into_iter().map(|call| (call, "action".to_string())).collect()
        }
        ("group", [profile, _, ..]) if comes => [there("member", Some(profile)), options(&["max_size="])].concat(),
        ("value-set", []) => named(&names, &["value set"]),
        ("digest", []) => named(&names, &["digest"]),
        ("digest", [_, ..]) if comes => options(&["max_timeout=", "max_list_size=", "ack_timeout="]),
        _ => vec![],
    };
    candidates(current, all)
}

/// Returns the ids of the existing entities of a kind, of one profile if given.
fn there(kind: &str, profile: Option<&str>) -> Vec<(String, String)> {
    let noun = match kind {
        "multicast" => "multicast group",
        "clone" => "clone session",
        kind => kind,
    };
    let (noun, profile) = (noun.to_string(), profile.map(str::to_string));
    let found = ask(move |options, client| {
        let names = Names::new(client.p4info(options.device_id).ok()?);
        let kind = entities::kind(&noun)?;
        let queries = kind.queries(&names, profile.as_deref()).ok()?;
        let queries = queries.into_iter().map(|entity| pb::Entity { entity: Some(entity) }).collect();
        let mut found = Vec::new();
        client.read(options.device_id, queries, |entity| found.extend(entity.entity)).ok()?;
        found.sort_by_cached_key(|entity| kind.order(&names, entity));
        Some(found)
    });
    let number = |entity: &Entity| match entity {
        Entity::ActionProfileMember(member) => Some(member.member_id),
        Entity::ActionProfileGroup(group) => Some(group.group_id),
        Entity::PacketReplicationEngineEntry(entry) => match entry.r#type.as_ref()? {
            Replication::MulticastGroupEntry(group) => Some(group.multicast_group_id),
            Replication::CloneSessionEntry(session) => Some(session.session_id),
        },
        _ => None,
    };
    let found = found.unwrap_or_default();
    found.iter().filter_map(number).map(|number| (number.to_string(), String::new())).collect()
}

fn named(names: &Names, kinds: &[&str]) -> Vec<(String, String)> {
    let of_kind = names.objects().into_iter().filter(|(kind, _)| kinds.contains(kind));
    of_kind.map(|(_, name)| (name.to_string(), String::new())).collect()
}

fn port_numbers() -> Vec<(String, String)> {
    let stats = ask(|_, client| client.stats().ok().flatten()).unwrap_or_default();
    stats.ports.into_iter().map(|port| (port.number.to_string(), port.name)).collect()
}

/// Completes port numbers.
pub fn ports(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, port_numbers())
}

/// Completes device ids.
pub fn devices(current: &OsStr) -> Vec<CompletionCandidate> {
    let stats = ask(|_, client| client.stats().ok().flatten()).unwrap_or_default();
    candidates(current, stats.devices.into_iter().map(|device| (device.id.to_string(), device.program)))
}

/// Completes log levels.
pub fn levels(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, crate::log::LEVELS.map(|level| (level.to_string(), String::new())))
}

/// Completes codes of diagnostics.
pub fn codes(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(
        current,
        frontend::explain::entries().iter().map(|entry| (entry.code.to_string(), entry.title.to_string())),
    )
}

/// Completes the next word of an entry's line: a table, its keys, its actions with their parameters.
pub fn entry(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((words, names)) = names() else { return vec![] };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["table", verb, line @ ..] = words.as_slice() else { return vec![] };
    candidates(current, words_of_entry(&names, verb, line))
}

/// Returns the words that may follow those of an entry's line.
fn words_of_entry(names: &Names, verb: &str, line: &[&str]) -> Vec<(String, String)> {
    let Some(table) = line.first().and_then(|name| names.table(name).ok()) else {
        return names.tables().iter().map(|table| (name_of(&table.preamble).to_string(), String::new())).collect();
    };
    let is = |name: &str, word: &str| name == word || name.ends_with(&format!(".{word}"));
    // In bash the colon after a key's name is the word being completed; a key's value cannot be completed.
    if line.len() > 1 && table.match_fields.iter().any(|field| line.last().is_some_and(|word| is(&field.name, word))) {
        return vec![];
    }
    let has_action = line.iter().any(|word| word.contains('('));
    let given = |name: &str| line.iter().any(|word| word.split_once(':').is_some_and(|(key, _)| is(name, key)));
    let mut all = Vec::new();
    if verb != "set-default" && !has_action {
        let keys = table.match_fields.iter().filter(|field| !given(&field.name));
        all.extend(keys.map(|field| (format!("{}:", field.name), "key".to_string())));
    }
    if verb != "delete" && !has_action {
        all.extend(names.calls(table).into_iter().map(|call| (call, "action".to_string())));
    }
    if verb != "delete" && has_action {
        let options = [
            ("metadata=", verb != "set-default"),
            ("timeout=", names.is_timed(table)),
            ("meter=", names.is_metered(table)),
        ];
        let begun = |option: &str| line.iter().any(|word| word.starts_with(option));
        let fits = options.into_iter().filter(|(option, fits)| *fits && !begun(option));
        all.extend(fits.map(|(option, _)| (option.to_string(), String::new())));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(line: &[&str], at: usize) -> (String, Vec<String>) {
        let line: Vec<String> = line.iter().map(|word| word.to_string()).collect();
        let (options, words) = split(&line, at).expect("options are whole");
        (options.server.address(), words)
    }

    #[test]
    fn addresses_that_bash_cuts_at_colons_are_whole_again() {
        for line in [
            &["sluice", "port", "down", "--grpc", "127.0.0.1:7", ""][..],
            &["sluice", "port", "down", "--grpc", "127.0.0.1", ":", "7", ""],
            &["sluice", "port", "down", "--grpc", "=", "127.0.0.1", ":", "7", ""],
            &["sluice", "--grpc=127.0.0.1:7", "port", "down", ""],
        ] {
            assert_eq!(
                before(line, line.len() - 1),
                ("127.0.0.1:7".into(), vec!["port".into(), "down".into()]),
                "{line:?}"
            );
        }
        let (address, words) = before(&["sluice", "table", "add", "t", "a", ":", "1", "", "--grpc", "h", ":", "7"], 7);
        assert_eq!((address.as_str(), words.join(" ")), ("h:7", "table add t a:1".to_string()));
    }
}
