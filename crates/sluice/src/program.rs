//! `sluice program`: loads, shows, replaces and unloads BPF programs of a running OpenFlow bridge. The server's side is
//! in `openflow/admin.rs` and `openflow/programs.rs`.
//!
//! Exit code 1 when the program, a key or a value is refused, 2 when no switch answers. Tests: below,
//! `tests/py/test_programs.py`.

use crate::changes::refuse;
use crate::complete;
use crate::output::{JsonArgs, Rows, word};
use crate::stats::ServerArgs;
use anyhow::{Result, bail};
use clap_complete::ArgValueCompleter;
use grpc::client::ClientError;
use messages::sluice::v1 as pb;
use pb::program_request::{Command, Entry, Load, Map, Show, Unload, map::Access};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "Examples:
  clang -target bpf -O2 -g -c count.c -o count.o
  sluice program load 3 count.o           flows name it by its id, 3
  sluice program map 3 packets dump
  sluice program map 3 packets set 0 0    numbers are written as in C on this machine: little endian
  sluice program map 3 routes get hex:0a000001
  sluice program load 3 count.o --keep-maps
                                          a new version that goes on counting
  sluice program unload 3";

/// Arguments of `program`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: ProgramCommand,
}

#[derive(clap::Subcommand)]
enum ProgramCommand {
    /// Verify a program and give it an id. One that has the id is replaced: a packet meets the old one or the new one.
    Load(LoadArgs),
    /// Show all programs.
    List(ListArgs),
    /// Show a program with its maps and counters, or all.
    Show(ShowArgs),
    /// Take a program away. Refused while flows or groups name it, since their packets would be dropped.
    Unload(UnloadArgs),
    /// Read and write a map of a program. Keys and values are numbers, or bytes as hex:0a000001.
    Map(MapArgs),
}

#[derive(clap::Args)]
struct BridgeArgs {
    /// The device that is a bridge [default: the only one].
    #[arg(long, visible_alias = "device", value_name = "ID", global = true, add = ArgValueCompleter::new(complete::devices))]
    device_id: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(clap::Args)]
struct LoadArgs {
    /// What flows call it.
    #[arg(value_name = "ID")]
    id: u32,
    /// An object file of `clang -target bpf`.
    #[arg(value_name = "FILE.o")]
    file: PathBuf,
    /// The program's function, or its section; needed if the file has several.
    #[arg(long, value_name = "FUNCTION", default_value = "", hide_default_value = true)]
    name: String,
    /// Go on with the maps of the program that is replaced. Refused if they are not the same in both.
    #[arg(long)]
    keep_maps: bool,
    #[command(flatten)]
    bridge: BridgeArgs,
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    bridge: BridgeArgs,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Only this one.
    #[arg(value_name = "ID")]
    id: Option<u32>,
    /// Its instructions, too.
    #[arg(long, requires = "id")]
    listing: bool,
    /// What it has printed with bpf_trace_printk, too; that is forgotten then.
    #[arg(long, requires = "id")]
    log: bool,
    #[command(flatten)]
    bridge: BridgeArgs,
}

#[derive(clap::Args)]
struct UnloadArgs {
    /// The program's id.
    #[arg(value_name = "ID")]
    id: u32,
    /// Also while flows or groups name it: their packets are dropped.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    bridge: BridgeArgs,
}

#[derive(clap::Args)]
struct MapArgs {
    /// The program's id.
    #[arg(value_name = "ID")]
    id: u32,
    /// The map's name.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(subcommand)]
    command: Option<MapCommand>,
    #[command(flatten)]
    bridge: BridgeArgs,
}

#[derive(clap::Subcommand)]
enum MapCommand {
    /// Show the value of a key; of an LPM trie, that of the longest prefix.
    Get {
        /// A number, or bytes as hex:0a000001.
        key: String,
    },
    /// Make or change an entry.
    Set {
        /// A number, or bytes as hex:0a000001.
        key: String,
        /// The same.
        value: String,
    },
    /// Remove an entry.
    Delete {
        /// A number, or bytes as hex:0a000001.
        key: String,
    },
    /// Show all entries (what happens without a command, too).
    Dump,
}

/// Parses a number into `size` bytes, little-endian, or `hex:` followed by exactly that many bytes.
fn parse_bytes(text: &str, size: u32, what: &str) -> Result<Vec<u8>, String> {
    let size = size as usize;
    if let Some(digits) = text.strip_prefix("hex:") {
        let digits: String = digits.chars().filter(|c| !matches!(c, ':' | ' ' | '.')).collect();
        let bytes = hex::decode(&digits).map_err(|why| format!("{what} `{text}`: {why}"))?;
        if bytes.len() != size {
            return Err(format!("{what} `{text}` has {} bytes; the map's have {size}", bytes.len()));
        }
        return Ok(bytes);
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let number = number.ok_or_else(|| format!("{what} `{text}` is neither a number nor bytes as hex:0a000001"))?;
    let bytes = number.to_le_bytes();
    let used = 16 - number.leading_zeros() as usize / 8;
    if used > size {
        return Err(format!("{what} `{text}` does not fit in the map's {size} bytes"));
    }
    let mut all = vec![0; size];
    let len = size.min(bytes.len());
    all[..len].copy_from_slice(&bytes[..len]);
    Ok(all)
}

/// Returns up to 8 bytes as a little-endian number.
fn number(bytes: &[u8]) -> Option<u64> {
    let mut all = [0; 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(all))
}

/// Sends a request. The inner error is a refusal by the switch, the outer one a failed connection.
fn ask(bridge: &BridgeArgs, command: Command) -> Result<Result<pb::ProgramResponse, String>> {
    let request = pb::ProgramRequest { device_id: bridge.device_id, command: Some(command) };
    match bridge.server.connect()?.program(request) {
        Ok(answer) => Ok(Ok(answer)),
        Err(ClientError::Refused(reason)) => Ok(Err(reason)),
        Err(error) => bail!(error),
    }
}

/// Runs `sluice program`.
///
/// # Errors
/// If no switch answers, or the object file cannot be read.
pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.command {
        ProgramCommand::Load(args) => load(args),
        ProgramCommand::List(args) => show(&args.bridge, Show::default()),
        ProgramCommand::Show(args) => show(&args.bridge, Show { id: args.id, listing: args.listing, log: args.log }),
        ProgramCommand::Unload(args) => {
            match ask(&args.bridge, Command::Unload(Unload { id: args.id, force: args.force }))? {
                Ok(answer) => {
                    let (id, note) = (args.id, answer.note);
                    args.bridge.output.print(
                        || json!({ "unloaded": id, "note": note }),
                        || if note.is_empty() { String::new() } else { format!("program {id}: {note}\n") },
                    );
                    Ok(ExitCode::SUCCESS)
                }
                Err(reason) => Ok(refuse([format!("program {}: {reason}", args.id)])),
            }
        }
        ProgramCommand::Map(args) => map(args),
    }
}

fn load(args: &LoadArgs) -> Result<ExitCode> {
    let file = args.file.display().to_string();
    let object = crate::files::bytes(&args.file)?;
    let load = Load { id: args.id, object, name: args.name.clone(), file: file.clone(), keep_maps: args.keep_maps };
    let answer = match ask(&args.bridge, Command::Load(load))? {
        Ok(answer) => answer,
        Err(reason) => return Ok(refuse([format!("{file}: {reason}")])),
    };
    let json = || json!({ "programs": answer.programs.iter().map(object_of).collect::<Vec<_>>(), "note": answer.note });
    args.bridge.output.print(json, || {
        let line = |program: &pb::BpfProgram| {
            let how = if program.compiled { "" } else { ", interpreted" };
            let note = if answer.note.is_empty() { String::new() } else { format!(", {}", answer.note) };
            format!("program {} is `{}` of {file}{how}{note}\n", program.id, word(&program.function))
        };
        answer.programs.iter().map(line).collect()
    });
    Ok(ExitCode::SUCCESS)
}

fn show(bridge: &BridgeArgs, show: Show) -> Result<ExitCode> {
    let single = show.id.is_some();
    match ask(bridge, Command::Show(show))? {
        Ok(answer) => {
            let programs = || answer.programs.iter().map(object_of).collect::<Vec<_>>();
            let json = || json!({ "programs": programs(), "without_program": answer.unknown });
            bridge.output.print(json, || text(&answer, single));
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => Ok(refuse([reason])),
    }
}

fn object_of(program: &pb::BpfProgram) -> Value {
    let map = |map: &pb::bpf_program::Map| {
        json!({
            "name": map.name, "kind": map.kind, "key_size": map.key_size, "value_size": map.value_size,
            "max_entries": map.max_entries, "entries": map.entries, "read_only": map.read_only,
        })
    };
    let mut object = json!({
        "id": program.id, "function": program.function, "section": program.section, "file": program.file,
        "compiled": program.compiled, "users": program.users, "passed": program.passed,
        "transmitted": program.transmitted, "dropped": program.dropped, "aborted": program.aborted,
        "redirected": program.redirected, "maps": program.maps.iter().map(map).collect::<Vec<_>>(),
    });
    if !program.listing.is_empty() {
        object["listing"] = program.listing.clone().into();
    }
    if !program.log.is_empty() || program.log_lost > 0 {
        object["log"] = program.log.clone().into();
        object["log_lost"] = program.log_lost.into();
    }
    object
}

fn text(answer: &pb::ProgramResponse, single: bool) -> String {
    if answer.programs.is_empty() && answer.unknown == 0 {
        return "no program is loaded; `sluice program load ID FILE.o` loads one\n".to_string();
    }
    let mut rows =
        Rows::new(&["id", "program", "section", "file", "flows", "passed", "dropped", "aborted", "redirected"]);
    rows.align_right(4);
    for program in &answer.programs {
        let names = [program.id.to_string(), program.function.clone(), program.section.clone(), program.file.clone()];
        let counts = [program.users, program.passed, program.dropped, program.aborted, program.redirected];
        rows.add_row(names.into_iter().chain(counts.map(|n| n.to_string())));
    }
    let mut text = rows.trim_fmt() + "\n";
    if answer.unknown > 0 {
        text += &format!("{} packets were dropped: no program had the id that their flow names\n", answer.unknown);
    }
    let Some(program) = answer.programs.first().filter(|_| single) else { return text };
    if program.transmitted > 0 {
        text += &format!("{} of those that passed were to be sent back (XDP_TX)\n", program.transmitted);
    }
    if !program.maps.is_empty() {
        let mut rows = Rows::new(&["map", "kind", "key", "value", "entries", "at most"]);
        rows.align_right(2);
        for map in &program.maps {
            let sizes = [map.key_size, map.value_size, map.entries, map.max_entries].map(|n| n.to_string());
            rows.add_row([map.name.clone(), map.kind.clone()].into_iter().chain(sizes));
        }
        text += &format!("\n{}\n", rows.trim_fmt());
    }
    if program.log_lost > 0 {
        text += &format!("\n{} lines were lost\n", program.log_lost);
    }
    program.log.iter().for_each(|line| text += &format!("log: {}\n", word(line)));
    if !program.listing.is_empty() {
        text += &format!("\n{}", program.listing);
    }
    text
}

fn map(args: &MapArgs) -> Result<ExitCode> {
    let refused = |reason: String| Ok(refuse([format!("program {}: {reason}", args.id)]));
    // Ask the switch for the sizes of keys and values.
    let show = Show { id: Some(args.id), ..Show::default() };
    let answer = match ask(&args.bridge, Command::Show(show))? {
        Ok(answer) => answer,
        Err(reason) => return Ok(refuse([reason])),
    };
    let maps = answer.programs.into_iter().flat_map(|program| program.maps);
    let sizes = maps.into_iter().find(|map| map.name == args.name).map(|map| (map.key_size, map.value_size));
    // An unknown map: send any request, and the switch's refusal is the message.
    let access = match sizes {
        None => Ok(Access::Dump(true)),
        Some(sizes) => access(args.command.as_ref(), sizes),
    };
    let access = match access {
        Ok(access) => access,
        Err(reason) => return refused(reason),
    };
    match ask(&args.bridge, Command::Map(Map { id: args.id, name: args.name.clone(), access: Some(access) }))? {
        Ok(answer) => {
            let entry = |Entry { key, value }: &Entry| {
                json!({
                    "key": hex::encode(key), "key_number": number(key),
                    "value": hex::encode(value), "value_number": number(value),
                })
            };
            args.bridge.output.print(
                || json!({ "entries": answer.entries.iter().map(entry).collect::<Vec<_>>() }),
                || entries(&answer.entries),
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => refused(reason),
    }
}

fn access(command: Option<&MapCommand>, (key_size, value_size): (u32, u32)) -> Result<Access, String> {
    let parse_key = |text: &str| parse_bytes(text, key_size, "the key");
    Ok(match command {
        None | Some(MapCommand::Dump) => Access::Dump(true),
        Some(MapCommand::Get { key }) => Access::Get(parse_key(key)?),
        Some(MapCommand::Delete { key }) => Access::Delete(parse_key(key)?),
        Some(MapCommand::Set { key, value }) => {
            let value = parse_bytes(value, value_size, "the value")?;
            Access::Set(Entry { key: parse_key(key)?, value })
        }
    })
}

/// Returns one line per entry, with keys and values in the form that `set` accepts.
fn entries(entries: &[Entry]) -> String {
    let shown = |bytes: &[u8]| match number(bytes) {
        Some(number) => format!("hex:{} ({number})", hex::encode(bytes)),
        None => format!("hex:{}", hex::encode(bytes)),
    };
    entries.iter().map(|Entry { key, value }| format!("{} = {}\n", shown(key), shown(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_numbers_or_bytes_of_the_maps_sizes() {
        for (text, size, bytes) in [
            ("0", 4, vec![0, 0, 0, 0]),
            ("258", 4, vec![2, 1, 0, 0]),
            ("0xff", 1, vec![255]),
            ("65535", 2, vec![255, 255]),
            ("1", 20, [vec![1], vec![0; 19]].concat()),
            ("hex:0a000001", 4, vec![10, 0, 0, 1]),
            ("hex:0a:00 00.01", 4, vec![10, 0, 0, 1]),
        ] {
            assert_eq!(parse_bytes(text, size, "the key"), Ok(bytes), "{text}");
        }
        for (text, size, message) in [
            ("256", 1, "does not fit in the map's 1 bytes"),
            ("hex:0a", 4, "has 1 bytes; the map's have 4"),
            ("hex:0", 4, "hex:0"),
            ("10.0.0.1", 4, "neither a number nor bytes"),
            ("-1", 4, "neither a number nor bytes"),
            ("", 4, "neither a number nor bytes"),
        ] {
            let wrong = parse_bytes(text, size, "the key").unwrap_err();
            assert!(wrong.contains(message), "{text}: {wrong}");
        }
        assert_eq!((number(&[2, 1, 0, 0]), number(&[0; 9])), (Some(258), None));
        let shown = entries(&[Entry { key: vec![2, 1], value: vec![0; 9] }]);
        assert_eq!(shown, "hex:0201 (258) = hex:000000000000000000\n");
    }
}
