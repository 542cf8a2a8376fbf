//! `sluice register`, `sluice counter`, `sluice meter`: show and change the arrays of a running switch, as a P4Runtime
//! client, by their names in the P4Info.
//!
//! `set` accepts what `show` prints after an index. A register's value is a tree in the protocol (`P4Data`); on a line
//! it is written as its leaves in order (`entities::values`). The switch checks the widths. Cells that are zero are
//! printed only with `--all`.
//!
//! Direct counters and meters are shown by `sluice table show`. Exit codes are those of `table`.
//!
//! Tests: `tests/py/test_cells.py`, with a running switch.

use crate::changes::WriterArgs;
use crate::complete;
use crate::output::{JsonArgs, Rows};
use anyhow::{Context, Result};
use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use entities::values::{data_text, is_zero, parse, type_text};
use entities::{Names, name_of};
use grpc::client::{Client, ClientError};
use messages::p4::config::v1 as config;
use messages::p4::v1 as pb;
use pb::entity::Entity as Kind;
use serde_json::json;
use std::process::ExitCode;

/// Arguments of `register`.
#[derive(clap::Args)]
pub struct RegisterArgs {
    #[command(flatten)]
    writer: WriterArgs,
    #[command(subcommand)]
    command: RegisterCommand,
}

#[derive(Subcommand)]
enum RegisterCommand {
    /// All registers.
    List,
    /// Cells, one per line: those that are not zero, or the one that is named.
    Show(ShowArgs),
    /// Change a cell: NAME INDEX VALUE...; as many values as a cell has parts.
    Set {
        /// The register's name, or as much of its end as is unique.
        #[arg(add = ArgValueCompleter::new(complete::arrays))]
        name: String,
        /// Which cell, or `all`.
        index: String,
        /// Numbers (decimal or 0x...), `true` and `false`, names of members; a header is `valid` with its fields, or `invalid`.
        #[arg(required = true)]
        values: Vec<String>,
    },
}

/// Arguments of `counter`.
#[derive(clap::Args)]
pub struct CounterArgs {
    #[command(flatten)]
    writer: WriterArgs,
    #[command(subcommand)]
    command: CounterCommand,
}

#[derive(Subcommand)]
enum CounterCommand {
    /// All counters that are not beside entries.
    List,
    /// Cells, one per line: those that are not zero, or the one that is named.
    Show(ShowArgs),
    /// Change a cell: NAME INDEX PACKETS [BYTES].
    Set {
        /// The counter's name, or as much of its end as is unique.
        #[arg(add = ArgValueCompleter::new(complete::arrays))]
        name: String,
        /// Which cell, or `all`.
        index: String,
        /// Packets.
        packets: i64,
        /// Bytes.
        #[arg(default_value_t = 0)]
        bytes: i64,
    },
}

/// Arguments of `meter`.
#[derive(clap::Args)]
pub struct MeterArgs {
    #[command(flatten)]
    writer: WriterArgs,
    #[command(subcommand)]
    command: MeterCommand,
}

#[derive(Subcommand)]
enum MeterCommand {
    /// All meters that are not beside entries.
    List,
    /// Configured cells, one per line, or the one that is named.
    Show(ShowArgs),
    /// Configure a cell: NAME INDEX CIR CBURST PIR PBURST, in the meter's unit per second.
    Set {
        /// The meter's name, or as much of its end as is unique.
        #[arg(add = ArgValueCompleter::new(complete::arrays))]
        name: String,
        /// Which cell, or `all`.
        index: String,
        /// Committed rate.
        cir: i64,
        /// Committed burst.
        cburst: i64,
        /// Peak rate.
        pir: i64,
        /// Peak burst.
        pburst: i64,
    },
    /// Make a cell let everything through again: NAME INDEX.
    Reset {
        /// The meter's name, or as much of its end as is unique.
        #[arg(add = ArgValueCompleter::new(complete::arrays))]
        name: String,
        /// Which cell, or `all`.
        index: String,
    },
}

/// What to show.
#[derive(clap::Args)]
struct ShowArgs {
    /// The array's name, or as much of its end as is unique.
    #[arg(add = ArgValueCompleter::new(complete::arrays))]
    name: String,
    /// Only this cell.
    index: Option<i64>,
    /// Also cells that are zero.
    #[arg(long)]
    all: bool,
}

/// A register, counter or meter array of the P4Info.
struct Array<'a> {
    name: &'a str,
    id: u32,
    size: i64,
    /// The type or unit of a cell.
    about: String,
}

fn array<'a>(preamble: &'a Option<config::Preamble>, size: i64, about: String) -> Array<'a> {
    Array { name: name_of(preamble), id: preamble.as_ref().map_or(0, |p| p.id), size, about }
}

fn registers(info: &config::P4Info) -> Vec<Array<'_>> {
    let about = |r: &config::Register| r.type_spec.as_ref().map_or(String::new(), type_text);
    info.registers.iter().map(|r| array(&r.preamble, r.size.into(), about(r))).collect()
}

fn counters(info: &config::P4Info) -> Vec<Array<'_>> {
    let about = |c: &config::Counter| {
        let unit = c.spec.as_ref().map_or(0, |spec| spec.unit);
        config::counter_spec::Unit::try_from(unit).map_or("", |unit| unit.as_str_name()).to_ascii_lowercase()
    };
    info.counters.iter().map(|c| array(&c.preamble, c.size, about(c))).collect()
}

fn meters(info: &config::P4Info) -> Vec<Array<'_>> {
    let about = |m: &config::Meter| {
        let unit = m.spec.as_ref().map_or(0, |spec| spec.unit);
        config::meter_spec::Unit::try_from(unit).map_or("", |unit| unit.as_str_name()).to_ascii_lowercase()
    };
    info.meters.iter().map(|m| array(&m.preamble, m.size, about(m))).collect()
}

/// Returns the array with this name, or with a unique suffix of its name.
///
/// # Errors
/// No array, or more than one, matches; the message lists the candidates.
fn find<'a, 'i>(word: &str, arrays: &'a [Array<'i>], name: &str) -> Result<&'a Array<'i>, String> {
    if let Some(exact) = arrays.iter().find(|a| a.name == name) {
        return Ok(exact);
    }
    let ends = |a: &&Array<'_>| a.name.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    let found: Vec<&Array<'_>> = arrays.iter().filter(ends).collect();
    let names = |list: &mut dyn Iterator<Item = &str>| list.collect::<Vec<_>>().join(", ");
    match found[..] {
        [one] => Ok(one),
        [] if arrays.is_empty() => Err(format!("the program has no {word}")),
        [] => Err(format!("there is no {word} `{name}`; there is {}", names(&mut arrays.iter().map(|a| a.name)))),
        _ => Err(format!("`{name}` is one of {}", names(&mut found.iter().map(|a| a.name)))),
    }
}

fn index_of(text: &str, array: &Array<'_>) -> Result<Option<pb::Index>, String> {
    if text == "all" {
        return Ok(None);
    }
    let index = text.parse().map_err(|_| format!("`{text}` is not an index: a number, or `all`"))?;
    match (0..array.size).contains(&index) {
        true => Ok(Some(pb::Index { index })),
        false => Err(format!("`{}` has {} cells, so there is no cell {index}", array.name, array.size)),
    }
}

// What differs between the kinds of arrays is passed in by the commands as functions.

fn list(arrays: &[Array<'_>], word: &str, output: JsonArgs) -> ExitCode {
    let plural = format!("{word}s");
    let object = |array: &Array<'_>| json!({ word: array.name, "cells": array.size, "of": array.about });
    output.print(|| json!({ plural: arrays.iter().map(object).collect::<Vec<_>>() }), || list_text(arrays, word));
    ExitCode::SUCCESS
}

fn list_text(arrays: &[Array<'_>], word: &str) -> String {
    let mut rows = Rows::new(&[word, "cells", "of"]);
    rows.align_right(1);
    for array in arrays {
        rows.add_row([array.name.to_string(), array.size.to_string(), array.about.clone()]);
    }
    match arrays.is_empty() {
        true => format!("the program has no {word}"),
        false => rows.trim_fmt(),
    }
}

/// Prints cells. `query` makes the entity to read; `line` returns a cell's index, its text and whether it is zero.
fn show(
    client: &Client,
    (writer, info): (&WriterArgs, &config::P4Info),
    array: &Array<'_>,
    args: &ShowArgs,
    query: &dyn Fn(Option<pb::Index>) -> Kind,
    line: &dyn Fn(Kind) -> Option<(i64, String, bool)>,
) -> Result<ExitCode> {
    let index = match args.index.map(|index| index_of(&index.to_string(), array)).transpose() {
        Ok(index) => index.flatten(),
        Err(message) => return Ok(refuse(&message)),
    };
    let (mut cells, mut zero) = (0u64, 0u64);
    let entity = pb::Entity { entity: Some(query(index)) };
    let names = Names::new(info.clone());
    let mut objects = Vec::new();
    let read = client.read(writer.device_id, vec![entity], |found| {
        let Some(found) = found.entity else { return };
        let object = writer.output.json.then(|| names.json(&found));
        let Some((index, text, is_zero)) = line(found) else { return };
        cells += 1;
        match (is_zero && !args.all && args.index.is_none(), object) {
            (true, _) => zero += 1,
            (false, Some(object)) => objects.push(object),
            (false, None) => println!("{} {index} {text}", crate::output::word(array.name)),
        }
    });
    read.with_context(|| format!("cannot read `{}`", array.name))?;
    if writer.output.json {
        println!("{:#}", json!({ "name": array.name, "size": array.size, "cells": objects }));
        return Ok(ExitCode::SUCCESS);
    }
    let rest = if zero > 0 { format!(", {zero} that are zero not shown (--all shows them)") } else { String::new() };
    println!("# {cells} of {} cells{rest}", array.size);
    Ok(ExitCode::SUCCESS)
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("sluice: {message}");
    ExitCode::from(1)
}

/// Writes an entity: one cell, or all cells of an array.
fn write(client: &Client, args: &WriterArgs, entity: Kind) -> Result<ExitCode> {
    let mut primary = args.claim(client)?;
    let entity = Some(pb::Entity { entity: Some(entity) });
    match primary.write(vec![pb::Update { r#type: pb::update::Type::Modify.into(), entity }]) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ClientError::Elements(errors)) => {
            errors.iter().for_each(|(_, message)| eprintln!("sluice: {message}"));
            Ok(ExitCode::from(1))
        }
        Err(other) => Err(other.into()),
    }
}

/// Runs `sluice register`.
///
/// # Errors
/// If no switch answers, or it does not give the right to write.
pub fn register(args: &RegisterArgs) -> Result<ExitCode> {
    let client = args.writer.server.connect()?;
    let info = client.p4info(args.writer.device_id)?;
    let arrays = registers(&info);
    let entry =
        |array: &Array<'_>, index, data| Kind::RegisterEntry(pb::RegisterEntry { register_id: array.id, index, data });
    match &args.command {
        RegisterCommand::List => Ok(list(&arrays, "register", args.writer.output)),
        RegisterCommand::Show(shown) => match find("register", &arrays, &shown.name) {
            Err(message) => Ok(refuse(&message)),
            Ok(array) => {
                show(&client, (&args.writer, &info), array, shown, &|index| entry(array, index, None), &|found| {
                    let Kind::RegisterEntry(cell) = found else { return None };
                    let data = cell.data?;
                    Some((cell.index?.index, data_text(&data), is_zero(&data)))
                })
            }
        },
        RegisterCommand::Set { name, index, values } => {
            let place = find("register", &arrays, name).and_then(|array| Ok((array, index_of(index, array)?)));
            let (array, index) = match place {
                Ok(place) => place,
                Err(message) => return Ok(refuse(&message)),
            };
            let spec = info.registers.iter().find(|r| r.preamble.as_ref().is_some_and(|p| p.id == array.id));
            match parse(&info, spec.and_then(|r| r.type_spec.as_ref()), values) {
                Ok(data) => write(&client, &args.writer, entry(array, index, Some(data))),
                Err(message) => Ok(refuse(&message)),
            }
        }
    }
}

/// Runs `sluice counter`.
///
/// # Errors
/// As [`register`].
pub fn counter(args: &CounterArgs) -> Result<ExitCode> {
    let client = args.writer.server.connect()?;
    let info = client.p4info(args.writer.device_id)?;
    let arrays = counters(&info);
    let entry =
        |array: &Array<'_>, index, data| Kind::CounterEntry(pb::CounterEntry { counter_id: array.id, index, data });
    match &args.command {
        CounterCommand::List => Ok(list(&arrays, "counter", args.writer.output)),
        CounterCommand::Show(shown) => match find("counter", &arrays, &shown.name) {
            Err(message) => Ok(refuse(&message)),
            Ok(array) => {
                show(&client, (&args.writer, &info), array, shown, &|index| entry(array, index, None), &|found| {
                    let Kind::CounterEntry(cell) = found else { return None };
                    let data = cell.data.unwrap_or_default();
                    let text = format!("{} {}  # packets, bytes", data.packet_count, data.byte_count);
                    Some((cell.index?.index, text, data == pb::CounterData::default()))
                })
            }
        },
        CounterCommand::Set { name, index, packets, bytes } => {
            let place = find("counter", &arrays, name).and_then(|array| Ok((array, index_of(index, array)?)));
            let data = pb::CounterData { packet_count: *packets, byte_count: *bytes };
            match place {
                Ok((array, index)) => write(&client, &args.writer, entry(array, index, Some(data))),
                Err(message) => Ok(refuse(&message)),
            }
        }
    }
}

/// Runs `sluice meter`.
///
/// # Errors
/// As [`register`].
pub fn meter(args: &MeterArgs) -> Result<ExitCode> {
    let client = args.writer.server.connect()?;
    let info = client.p4info(args.writer.device_id)?;
    let arrays = meters(&info);
    let entry = |array: &Array<'_>, index, config| {
        Kind::MeterEntry(pb::MeterEntry { meter_id: array.id, index, config, ..Default::default() })
    };
    let (name, index, config) = match &args.command {
        MeterCommand::List => return Ok(list(&arrays, "meter", args.writer.output)),
        MeterCommand::Show(shown) => {
            return match find("meter", &arrays, &shown.name) {
                Err(message) => Ok(refuse(&message)),
                Ok(array) => {
                    show(&client, (&args.writer, &info), array, shown, &|index| entry(array, index, None), &|found| {
                        let Kind::MeterEntry(cell) = found else { return None };
                        let text = cell.config.map_or("# lets everything through".to_string(), |m| {
                            format!("{} {} {} {}  # cir, cburst, pir, pburst", m.cir, m.cburst, m.pir, m.pburst)
                        });
                        Some((cell.index?.index, text, cell.config.is_none()))
                    })
                }
            };
        }
        MeterCommand::Set { name, index, cir, cburst, pir, pburst } => {
            let (cir, cburst, pir, pburst) = (*cir, *cburst, *pir, *pburst);
            (name, index, Some(pb::MeterConfig { cir, cburst, pir, pburst, ..Default::default() }))
        }
        MeterCommand::Reset { name, index } => (name, index, None),
    };
    match find("meter", &arrays, name).and_then(|array| Ok((array, index_of(index, array)?))) {
        Ok((array, index)) => write(&client, &args.writer, entry(array, index, config)),
        Err(message) => Ok(refuse(&message)),
    }
}
