//! Scripts for generated programs, as lines: entries, default actions, registers, meters, packets.

use crate::generate::{self, Change, Dice};
use crate::seed::Subject;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch};
use datapath::oracle::Oracle;
use datapath::{Local, Pipeline};
use interp::Event;
use ir::Program;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stf::{Setup, Target};

/// The number of packets that are traced to learn tables' keys.
const LEARNED: usize = 48;
/// The maximum number of different keys kept per table.
const KEYS_MAX: usize = 64;

/// Appends entries and packets to set-up lines.
pub fn extend(lines: &mut Vec<String>, raw: &Arc<Program>, dice: &mut Dice, count: usize) {
    let packets: Vec<(u32, Vec<u8>)> = (0..count).map(|_| packet(dice)).collect();
    let keys = learn(lines, raw, &packets[..count.min(LEARNED)]);
    let subject = Subject {
        name: "generated".into(),
        raw: Arc::clone(raw),
        optimised: Arc::clone(raw),
        packets: Vec::new(),
        setup: Vec::new(),
        keys,
    };
    lines.extend(generate::changes(&subject, dice).iter().map(|change| line(raw, change)));
    for (port, frame) in &packets {
        if dice.one_in(20) {
            lines.push(format!("wait {}", 1 + dice.below(500)));
        }
        lines.push(format!("packet {port} {}", frame.iter().map(|b| format!("{b:02x}")).collect::<String>()));
    }
}

/// A packet with its port. Fields of generated headers may be anywhere, so that equal and small bytes must be frequent.
fn packet(dice: &mut Dice) -> (u32, Vec<u8>) {
    let length = match dice.below(8) {
        0 => dice.below(8),
        1 => dice.below(24),
        2..=5 => 16 + dice.below(64),
        6 => 64 + dice.below(100),
        _ => dice.below(400),
    };
    let mode = dice.below(5);
    let fill = dice.below(256) as u8;
    let frame = (0..length)
        .map(|_| match mode {
            0 => dice.below(256) as u8,
            1 => dice.below(4) as u8,
            2 => fill,
            3 => *dice.pick(&[0, 0xff, 0x80, 0x7f, 1, fill]),
            _ => {
                if dice.one_in(2) {
                    dice.below(8) as u8
                } else {
                    dice.below(256) as u8
                }
            }
        })
        .collect();
    (dice.below(8) as u32, frame)
}

/// The values of each table's keys, by table name.
fn learn(setup: &[String], raw: &Arc<Program>, packets: &[(u32, Vec<u8>)]) -> BTreeMap<String, Vec<Vec<Bits>>> {
    let mut found: BTreeMap<String, Vec<Vec<Bits>>> = BTreeMap::new();
    let oracle = Oracle::new(Arc::clone(raw), true);
    let output = oracle.output();
    let mut local = Local::new(Arc::new(Pipeline::new(Arc::clone(raw), Box::new(oracle), 1)));
    let mut commands = Setup::new();
    for line in stf::parse(&setup.join("\n")).unwrap_or_default() {
        let pipeline = Arc::clone(local.pipeline());
        let target = Target { program: raw, state: pipeline.state().as_ref(), replication: local.replication() };
        // Lines that fail get the same answer from all engines when these are compared.
        let _ = commands.apply(&line.command, target);
    }
    let mut seen: BTreeSet<(String, Vec<String>)> = BTreeSet::new();
    for (port, frame) in packets {
        local.receive(*port, frame);
        for (_, trace) in output.take_traces() {
            for step in trace.steps {
                let Event::Apply { table, keys, .. } = step.event else { continue };
                let values: Vec<Bits> = keys.into_iter().map(|(_, value)| value).collect();
                let list = found.entry(table.clone()).or_default();
                if list.len() < KEYS_MAX && seen.insert((table, values.iter().map(Bits::to_string).collect())) {
                    list.push(values);
                }
            }
        }
    }
    found
}

/// A change as a line of the script.
fn line(program: &Program, change: &Change) -> String {
    match change {
        Change::Insert(id, entry) => {
            let table = &program.tables[id.index()];
            if table.value_set {
                let values: Vec<String> = entry.key.iter().map(|k| key_text(k).unwrap_or("*".into())).collect();
                return format!("value_set {} {}", table.name, values.join(" "));
            }
            let mut text = format!("add {}", table.name);
            if table.keys.iter().any(|k| k.kind.needs_priority()) {
                text += &format!(" {}", entry.priority);
            }
            for (key, value) in table.keys.iter().zip(&entry.key) {
                if let Some(value) = key_text(value) {
                    text += &format!(" {}:{value}", key.name);
                }
            }
            text + &format!(" {}", action_text(program, table, &entry.action))
        }
        Change::SetDefault(id, action) => {
            let table = &program.tables[id.index()];
            format!("setdefault {} {}", table.name, action_text(program, table, action))
        }
        Change::Meter(id, index, config) => format!(
            "meter_set_rates {} {index} {}:{} {}:{}",
            program.externs[id.index()].name,
            config.cir as f64 / 1e6,
            config.cburst,
            config.pir as f64 / 1e6,
            config.pburst
        ),
        Change::Register(id, index, value) => {
            format!("register_write {} {index} {value:#}", program.externs[id.index()].name)
        }
    }
}

fn key_text(key: &KeyMatch) -> Option<String> {
    Some(match key {
        KeyMatch::Exact(value) | KeyMatch::Optional(Some(value)) => format!("{value:#}"),
        KeyMatch::Optional(None) => return None,
        KeyMatch::Lpm { value, prefix_len } => format!("{value:#}/{prefix_len}"),
        KeyMatch::Ternary { value, mask } => format!("{value:#}&&&{mask:#}"),
        KeyMatch::Range { low, high } => format!("{low:#}..{high:#}"),
    })
}

fn action_text(program: &Program, table: &ir::Table, action: &EntryAction) -> String {
    let call = |call: &ActionCall| {
        let action = &program.actions[table.actions[call.action as usize].action.index()];
        let args: Vec<String> =
            action.params.iter().zip(&call.args).map(|((name, _), value)| format!("{name}:{value:#}")).collect();
        format!("{}({})", action.name, args.join(", "))
    };
    match action {
        EntryAction::Call(c) => call(c),
        EntryAction::Member(id) => format!("member({id})"),
        EntryAction::Group(id) => format!("group({id})"),
    }
}
