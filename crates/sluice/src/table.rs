//! `sluice table`: shows and changes the tables of a running switch, as a P4Runtime client.
//!
//! Entries are lines as in STF scripts: `TABLE [PRIORITY] KEY:VALUE... ACTION(ARG:VALUE, ...)`; what `show` prints, `add`
//! takes. Names come from the program that runs there. A change needs the switch's primary right: with `--election-id`
//! this command claims it and gives it up when done. A controller that is primary keeps it, unless the id given here is
//! higher, which demotes it.
//!
//! Exit codes: 1 the line or the change is refused, 2 no switch answers or the claim is refused.

mod lines;

use crate::stats::{ServerArgs, align_right, new_table};
use anyhow::{Context, Result};
use clap::Subcommand;
use grpc::client::{Client, ClientError};
use grpc::proto::p4::config::v1 as config;
use grpc::proto::p4::v1 as pb;
use lines::Names;
pub use lines::name_of;
use std::collections::HashMap;
use std::process::ExitCode;

/// Arguments of `table`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// The device id of P4Runtime.
    #[arg(long, value_name = "ID", default_value_t = 1, global = true)]
    device_id: u64,
    /// Claims the right to write with this id; the highest id has it.
    #[arg(long, value_name = "ID", default_value_t = 1, global = true)]
    election_id: u64,
    #[command(subcommand)]
    command: TableCommand,
}

#[derive(Subcommand)]
enum TableCommand {
    /// All tables: keys, actions, entries.
    List,
    /// All entries of a table, as lines that `add` takes.
    Show {
        /// The table's name, or as much of its end as is unique.
        table: String,
    },
    /// Add an entry: TABLE [PRIORITY] KEY:VALUE... 'ACTION(ARG:VALUE, ...)'.
    Add {
        /// The words of the line. Several lines (`"$(cat FILE)"`) are added all or, if one is refused, none.
        #[arg(required = true, value_name = "LINE")]
        line: Vec<String>,
    },
    /// Delete an entry: TABLE [PRIORITY] KEY:VALUE...
    Delete {
        /// The words of the line.
        #[arg(required = true, value_name = "LINE")]
        line: Vec<String>,
    },
    /// Change what runs when no entry matches: TABLE 'ACTION(ARG:VALUE, ...)'; without an action, back to the program's.
    SetDefault {
        /// The words of the line.
        #[arg(required = true, value_name = "LINE")]
        line: Vec<String>,
    },
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    let client = args.server.connect()?;
    let names = Names::new(client.p4info(args.device_id)?);
    let (keyword, line) = match &args.command {
        TableCommand::List => return list(args, &client, &names),
        TableCommand::Show { table } => return show(args, &client, &names, table),
        TableCommand::Add { line } => ("add", line),
        TableCommand::Delete { line } => ("delete", line),
        TableCommand::SetDefault { line } => ("setdefault", line),
    };
    let lines: Vec<String> = line.join(" ").lines().map(str::to_string).filter(|l| !is_blank(l)).collect();
    let mut updates = Vec::new();
    let mut refused = Vec::new();
    for line in &lines {
        match update(&names, keyword, line) {
            Ok(update) => updates.push(update),
            Err(message) => refused.push(format!("{line}: {message}")),
        }
    }
    if updates.is_empty() && refused.is_empty() {
        refused.push("there is no line to carry out".to_string());
    }
    if refused.is_empty() {
        let mut primary = client.become_primary(args.device_id, args.election_id.into()).map_err(claim_refused)?;
        match primary.write(updates) {
            Ok(()) => return Ok(ExitCode::SUCCESS),
            Err(ClientError::Elements(errors)) => {
                let line = |at: usize| lines.get(at).map_or("a line", String::as_str);
                refused.extend(errors.iter().map(|(at, message)| format!("{}: {message}", line(*at))));
            }
            Err(other) => return Err(other.into()),
        }
    }
    refused.iter().for_each(|message| eprintln!("sluice: {message}"));
    Ok(ExitCode::from(1))
}

fn is_blank(line: &str) -> bool {
    line.split('#').next().unwrap_or_default().trim().is_empty()
}

fn update(names: &Names, keyword: &str, line: &str) -> Result<pb::Update, String> {
    // A line of an `--entries` file or a script says itself what it wants.
    let line = line.trim_start();
    let line = match line.split_once(char::is_whitespace) {
        Some((first, rest)) if first == keyword && names.table(first).is_err() => rest,
        _ => line,
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    if let Some(first @ ("member" | "group")) = words.first().copied().filter(|first| names.table(first).is_err()) {
        return Err(format!(
            "`{first}` lines are for --entries; of a running switch, controllers write members and groups"
        ));
    }
    if let ("setdefault", [table]) = (keyword, words.as_slice()) {
        return names.reset_default(table);
    }
    let mut commands = stf::parse(&format!("{keyword} {line}"))
        .map_err(|errors| errors.into_iter().map(|e| e.message).collect::<Vec<_>>().join("; "))?;
    let command = commands.pop().ok_or("the line says nothing")?;
    names.update(&command.command)
}

/// Why this command may not write.
pub fn claim_refused(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::NotPrimary(why) => {
            anyhow::anyhow!("the switch does not let this command write: {why}\na higher --election-id takes over")
        }
        other => other.into(),
    }
}

fn list(args: &Args, client: &Client, names: &Names) -> Result<ExitCode> {
    let stats = client.stats()?.unwrap_or_default();
    let entries: HashMap<&str, u64> =
        stats.tables.iter().filter(|t| t.device_id == args.device_id).map(|t| (t.name.as_str(), t.entries)).collect();
    let mut rows = new_table(&["table", "key", "actions", "entries", "size"]);
    for table in names.tables() {
        let name = name_of(&table.preamble);
        let keys: Vec<String> = table.match_fields.iter().map(|f| format!("{}: {}", f.name, kind(f))).collect();
        let count = entries.get(name).map_or("-".to_string(), u64::to_string);
        let constant = if table.is_const_table { " (const)" } else { "" };
        rows.add_row([
            format!("{name}{constant}"),
            keys.join("\n"),
            names.actions(table).join("\n"),
            count,
            table.size.to_string(),
        ]);
    }
    align_right(&mut rows, 3);
    println!("{}", rows.trim_fmt());
    Ok(ExitCode::SUCCESS)
}

fn kind(field: &config::MatchField) -> String {
    match &field.r#match {
        Some(config::match_field::Match::MatchType(kind)) => {
            let kind = config::match_field::MatchType::try_from(*kind).map(|k| k.as_str_name().to_ascii_lowercase());
            kind.unwrap_or_else(|_| "unknown".to_string())
        }
        Some(config::match_field::Match::OtherMatchType(kind)) => kind.clone(),
        None => "unknown".to_string(),
    }
}

fn show(args: &Args, client: &Client, names: &Names, table: &str) -> Result<ExitCode> {
    let table = match names.table(table) {
        Ok(table) => table,
        Err(message) => {
            eprintln!("sluice: {message}");
            return Ok(ExitCode::from(1));
        }
    };
    let entity = |entry| vec![pb::Entity { entity: Some(pb::entity::Entity::TableEntry(entry)) }];
    let query = names.query(table);
    let default = pb::TableEntry { table_id: query.table_id, is_default_action: true, ..Default::default() };
    let mut action = None;
    let failed = || format!("cannot read `{}`", name_of(&table.preamble));
    client
        .read(args.device_id, entity(default), |found| {
            if let Some(pb::entity::Entity::TableEntry(entry)) = found.entity {
                action = entry.action;
            }
        })
        .with_context(failed)?;
    println!("# {}, default {}", name_of(&table.preamble), names.action_text(action.as_ref()));
    let mut count = 0u64;
    client
        .read(args.device_id, entity(query), |found| {
            if let Some(pb::entity::Entity::TableEntry(entry)) = found.entity {
                println!("{}", names.entry_line(table, &entry));
                count += 1;
            }
        })
        .with_context(failed)?;
    println!("# {count} of {} entries", table.size);
    Ok(ExitCode::SUCCESS)
}
