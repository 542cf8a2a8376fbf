//! `sluice multicast`, `clone`, `member`, `group`, `value-set`, `digest`: show and change entities of a running switch
//! that have a number or a name. The commands share this code; the differences between the kinds are in the crate
//! `entities`.

use crate::changes::{Doing, WriterArgs, apply, refuse};
use crate::complete;
use anyhow::{Context, Result};
use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use entities::Verb;
use serde_json::json;
use std::process::ExitCode;
use stf::Command;

/// Arguments of all of them.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    writer: WriterArgs,
    #[command(subcommand)]
    command: EntityCommand,
}

#[derive(Subcommand)]
enum EntityCommand {
    /// Show them, as lines that `add` takes.
    #[command(alias = "list")]
    Show {
        /// Only of this name or number.
        #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::objects))]
        name: Option<String>,
    },
    /// Add one; it must not be there yet.
    Add {
        /// The words of the line. Several lines (`"$(cat FILE)"`) are carried out all or, if one is refused, none.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::objects))]
        line: Vec<String>,
    },
    /// Add one, or change the one that is there.
    Set {
        /// The words of the line.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::objects))]
        line: Vec<String>,
    },
    /// Change one that is there.
    Modify {
        /// The words of the line.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::objects))]
        line: Vec<String>,
    },
    /// Remove one: what identifies it.
    Delete {
        /// The words of the line; what stands behind the name and number does not matter.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::objects))]
        line: Vec<String>,
    },
}

/// A kind of entity on the command line.
pub struct Word {
    /// The noun, as of `entities::Kind::noun`.
    pub noun: &'static str,
    /// The keyword of its lines.
    pub keyword: &'static str,
}

/// Runs the command of a kind.
///
/// # Errors
/// If no switch answers, or it does not give the right to write.
pub fn main(args: &Args, word: &Word) -> Result<ExitCode> {
    let (verb, line) = match &args.command {
        EntityCommand::Show { name } => return show(args, word, name.as_deref()),
        EntityCommand::Add { line } => (Verb::Insert, line),
        EntityCommand::Set { line } => (Verb::Set, line),
        EntityCommand::Modify { line } => (Verb::Modify, line),
        EntityCommand::Delete { line } => (Verb::Delete, line),
    };
    let code = apply(&args.writer, Doing { keyword: word.keyword, verb: Some(verb), or: &[] }, line)?;
    if code == ExitCode::SUCCESS && verb != Verb::Delete {
        without_ports(word, line).iter().for_each(|what| eprintln!("sluice: {what}"));
    }
    Ok(code)
}

/// Returns the multicast groups and clone sessions of the lines that have no ports, for a warning: P4Runtime allows
/// them, and packets sent to them are dropped.
fn without_ports(word: &Word, words: &[String]) -> Vec<String> {
    let text = words.join(" ");
    let lines = text.lines().map(|line| match line.trim_start().split_once(char::is_whitespace) {
        Some((first, _)) if first == word.keyword => line.to_string(),
        _ => format!("{} {line}", word.keyword),
    });
    let commands = lines.filter_map(|line| stf::parse(&line).ok()).flatten();
    let what = |line: stf::Line| match line.command {
        Command::Clone { session, replicas, .. } if replicas.is_empty() => {
            Some(format!("clone session {session} has no ports, so what is cloned to it goes nowhere"))
        }
        Command::Multicast { group, replicas, .. } if replicas.is_empty() => {
            Some(format!("multicast group {group} has no ports, so what is sent to it goes nowhere"))
        }
        _ => None,
    };
    commands.filter_map(what).collect()
}

fn show(args: &Args, word: &Word, name: Option<&str>) -> Result<ExitCode> {
    let kind = entities::kind(word.noun).context("a command without a kind")?;
    let (client, names) = args.writer.connect()?;
    let queries = match kind.queries(&names, name) {
        Ok(queries) => queries,
        Err(message) => return Ok(refuse([message])),
    };
    let mut found = args.writer.read(&client, queries)?;
    found.sort_by_cached_key(|entity| kind.order(&names, entity));
    let plural = format!("{}s", word.noun);
    let all = || json!({ plural.replace(' ', "_"): found.iter().map(|e| kind.json(&names, e)).collect::<Vec<_>>() });
    args.writer.output.print(all, || {
        let lines: Vec<String> = found.iter().filter_map(|entity| kind.line(&names, entity)).collect();
        let mut text = String::new();
        for line in lines.iter().flat_map(|lines| lines.lines()) {
            text += line.strip_prefix(word.keyword).unwrap_or(line).trim_start();
            text.push('\n');
        }
        text + &format!("# {} {}\n", found.len(), if found.len() == 1 { word.noun } else { &plural })
    });
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_sessions_without_ports_are_noticed() {
        let told = |keyword, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            without_ports(&Word { noun: "", keyword }, &words)
        };
        let session = |n| format!("clone session {n} has no ports, so what is cloned to it goes nowhere");
        assert_eq!(told("clone", &["1"]), [session(1)]);
        assert_eq!(told("clone", &["1 2\n# no\nclone 3\n4 packet_length=64"]), [session(3), session(4)]);
        assert_eq!(told("multicast", &["7", "metadata=0x01"]).len(), 1);
        assert_eq!(told("multicast", &["7", "1|2"]), Vec::<String>::new());
        assert_eq!(told("member", &["p", "1", "f()"]), Vec::<String>::new());
    }
}
