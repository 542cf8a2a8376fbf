//! `sluice table`: shows and changes the tables of a running switch, as a P4Runtime client.
//!
//! Entries are lines as in STF scripts: `TABLE [PRIORITY] KEY:VALUE... ACTION(ARG:VALUE, ...)`; `add` accepts what
//! `show` prints. Names come from the running program's P4Info. The right to write and exit codes: see `changes`.

use crate::changes::{Doing, WriterArgs, apply, refuse};
use crate::complete;
use crate::output::{Rows, word};
use anyhow::{Context, Result};
use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use entities::{Names, Verb, name_of};
use grpc::client::Client;
use messages::p4::config::v1 as config;
use messages::p4::v1 as pb;
use pb::entity::Entity;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::ExitCode;

/// Arguments of `table`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sluice table show ipv4_lpm
  sluice table add ipv4_lpm dstAddr:10.0.1.0/24 'set_nexthop(nexthop:1)'
  sluice table set acl 10 src:10.0.0.0/8 'drop()' timeout=30s metadata=0x01
  sluice table set ecmp dst:10.0.0.1 'one_of(send(port:1) *3 @1; send(port:2) @2)'
  sluice table delete ipv4_lpm dstAddr:10.0.1.0/24")]
pub struct Args {
    #[command(flatten)]
    writer: WriterArgs,
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
        #[arg(add = ArgValueCompleter::new(complete::tables))]
        table: String,
    },
    /// Add an entry: TABLE [PRIORITY] KEY:VALUE... 'ACTION(ARG:VALUE, ...)' [metadata=0x..] [timeout=30s] [meter=CIR,CBURST,PIR,PBURST].
    Add {
        /// The words of the line. Several lines (`"$(cat FILE)"`) are added all or, if one is refused, none.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::entry))]
        line: Vec<String>,
    },
    /// Add an entry, or change the one that has this key and priority.
    Set {
        /// The words of the line, as of `add`.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::entry))]
        line: Vec<String>,
    },
    /// Change the entry that has this key and priority.
    Modify {
        /// The words of the line, as of `add`.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::entry))]
        line: Vec<String>,
    },
    /// Delete an entry: TABLE [PRIORITY] KEY:VALUE...
    Delete {
        /// The words of the line.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::entry))]
        line: Vec<String>,
    },
    /// Delete all entries of a table that are not constant.
    Clear {
        /// The table's name, or as much of its end as is unique.
        #[arg(add = ArgValueCompleter::new(complete::tables))]
        table: String,
    },
    /// Change what runs when no entry matches: TABLE 'ACTION(ARG:VALUE, ...)'; without an action, back to the program's.
    SetDefault {
        /// The words of the line.
        #[arg(required = true, value_name = "LINE", add = ArgValueCompleter::new(complete::entry))]
        line: Vec<String>,
    },
}

/// Keywords that a line copied from a file may begin with; the command's own verb takes precedence.
const ENTRY_WORDS: &[&str] = &["add", "set", "modify"];

/// Runs `sluice table`.
///
/// # Errors
/// If no switch answers, or it does not give the right to write.
pub fn main(args: &Args) -> Result<ExitCode> {
    let doing = |keyword, verb, or| Doing { keyword, verb: Some(verb), or };
    let (doing, line) = match &args.command {
        TableCommand::List => return list(args),
        TableCommand::Show { table } => return show(args, table),
        TableCommand::Add { line } => (doing("add", Verb::Insert, ENTRY_WORDS), line),
        TableCommand::Set { line } => (doing("set", Verb::Set, ENTRY_WORDS), line),
        TableCommand::Modify { line } => (doing("modify", Verb::Modify, ENTRY_WORDS), line),
        TableCommand::Delete { line } => (doing("delete", Verb::Delete, &[]), line),
        TableCommand::Clear { table } => {
            return apply(&args.writer, doing("clear", Verb::Clear, &[]), std::slice::from_ref(table));
        }
        TableCommand::SetDefault { line } => (doing("setdefault", Verb::Modify, &[]), line),
    };
    apply(&args.writer, doing, line)
}

fn list(args: &Args) -> Result<ExitCode> {
    let (client, names) = args.writer.connect()?;
    // Tables are listed even if the client may not read counters.
    let stats = client.stats().ok().flatten().unwrap_or_default();
    let of_device = stats.tables.iter().filter(|t| t.device_id == args.writer.device_id);
    let entries: HashMap<&str, u64> = of_device.map(|t| (t.name.as_str(), t.entries)).collect();
    args.writer.output.print(|| list_json(&names, &entries), || list_text(&names, &entries));
    Ok(ExitCode::SUCCESS)
}

fn list_text(names: &Names, entries: &HashMap<&str, u64>) -> String {
    let mut rows = Rows::new(&["table", "key", "actions", "entries", "size"]);
    for table in names.tables() {
        let name = name_of(&table.preamble);
        let keys: Vec<String> = table.match_fields.iter().map(|f| format!("{}: {}", f.name, kind(f))).collect();
        let count = entries.get(name).map_or("-".to_string(), u64::to_string);
        let constant = if table.is_const_table { " (const)" } else { "" };
        rows.add_row_of_lines([
            vec![format!("{name}{constant}")],
            keys,
            names.actions(table).iter().map(ToString::to_string).collect(),
            vec![count],
            vec![table.size.to_string()],
        ]);
    }
    rows.align_right(3);
    rows.trim_fmt()
}

fn list_json(names: &Names, entries: &HashMap<&str, u64>) -> Value {
    let table = |table: &config::Table| {
        let key = |f: &config::MatchField| json!({ "name": f.name, "match": kind(f), "bits": f.bitwidth });
        let name = name_of(&table.preamble);
        json!({
            "table": name,
            "key": table.match_fields.iter().map(key).collect::<Vec<_>>(),
            "actions": table.action_refs.iter().map(|r| names.action_name(r.id)).collect::<Vec<_>>(),
            "const": table.is_const_table,
            "entries": entries.get(name),
            "size": table.size,
        })
    };
    json!({ "tables": names.tables().iter().map(table).collect::<Vec<_>>() })
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

fn show(args: &Args, table: &str) -> Result<ExitCode> {
    let (client, names) = args.writer.connect()?;
    let table = match names.table(table) {
        Ok(table) => table,
        Err(message) => return Ok(refuse([message])),
    };
    let failed = || format!("cannot read `{}`", name_of(&table.preamble));
    let query = names.query(table);
    let default = pb::TableEntry {
        table_id: query.table_id,
        is_default_action: true,
        counter_data: query.counter_data,
        meter_config: query.meter_config,
        ..Default::default()
    };
    let default = entries(args, &client, default).with_context(failed)?.pop().unwrap_or_default();
    if args.writer.output.json {
        let all = entries(args, &client, query).with_context(failed)?;
        let all: Vec<Value> = all.iter().map(|entry| names.entry_json(entry)).collect();
        let object = json!({
            "table": name_of(&table.preamble),
            "default": names.entry_json(&default),
            "entries": all,
            "size": table.size,
        });
        println!("{object:#}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("# {}, default {}", word(name_of(&table.preamble)), names.action_text(default.action.as_ref()));
    let mut count = 0u64;
    let query = vec![pb::Entity { entity: Some(Entity::TableEntry(query)) }];
    client
        .read(args.writer.device_id, query, |found| {
            if let Some(Entity::TableEntry(entry)) = found.entity {
                println!("{}", names.entry_line(&entry));
                count += 1;
            }
        })
        .with_context(failed)?;
    println!("# {count} of {} entries", table.size);
    Ok(ExitCode::SUCCESS)
}

fn entries(args: &Args, client: &Client, query: pb::TableEntry) -> Result<Vec<pb::TableEntry>> {
    let found = args.writer.read(client, vec![Entity::TableEntry(query)])?;
    let entry = |entity| match entity {
        Entity::TableEntry(entry) => Some(entry),
        _ => None,
    };
    Ok(found.into_iter().filter_map(entry).collect())
}
