//! Describes a compiled program in bmv2's JSON format, for tools that read tables, actions and headers from it.
//!
//! The description contains what bmv2's command lines and controller libraries read, with the names, widths and id
//! order of p4c: header types and instances, stacks, unions, tables with their keys, actions with their parameters,
//! action profiles, counters, meters, registers, value sets, digests, errors. The program's behaviour (operations of
//! parser states, primitives of actions, conditions, checksums, the order of tables) is left out: Sluice compiles the
//! P4 source, which the file contains in the field [`FIELD`]. So that no other switch runs such a file as a program
//! that does nothing, each action and the parser's first state have the primitive [`PRIMITIVE`], which bmv2 refuses by
//! name.
//!
//! Differences from p4c: the tables and actions that p4c generates for statements outside actions are not listed, nor
//! are variables among the scalars; ids are assigned without them.
//!
//! `headers.rs` lays out headers and metadata. Format: `JSON_format.md` of behavioral-model. Tests:
//! `crates/bmv2/tests/describe.rs`; with unmodified tools, `tests/py/test_bmv2.py`.

mod applied;
mod headers;

use base::Bits;
use base::entry::{EntryAction, KeyMatch, MatchKind};
use headers::{Layout, Reference};
use ir::program::{Calculated, Extern, ExternKind, Table, TableAction};
use sema::TypedProgram;
use sema::typed::{self, ControlId, InstanceId, InstanceOf};
use sema::types::Type;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The version of the format that is written.
const VERSION: [u32; 2] = [2, 23];
/// The primitive of every action, which bmv2's switches do not have.
pub const PRIMITIVE: &str = "compile_p4_source_with_sluice";
/// The file's field that only Sluice reads: an object with `source` (P4 text without includes), `name` (its file) and
/// `bmv2` (whether the program behaves as in bmv2 where that differs from P4).
pub const FIELD: &str = "sluice";
/// The pipeline's name for programs without any.
const NO_PIPELINE: &str = "ingress";

/// A compiled program to be described.
pub struct Described<'a> {
    /// Its types, blocks and instances.
    pub typed: &'a TypedProgram,
    /// Its IR as lowered, before any pass: the optimiser removes what packets do not need.
    pub program: &'a ir::Program,
    /// The file's name.
    pub name: &'a str,
    /// The program's source as one text without includes.
    pub source: &'a str,
    /// Whether it behaves as in bmv2.
    pub bmv2: bool,
}

/// The description of a program.
pub fn describe(input: &Described) -> Value {
    let layout = Layout::new(input.typed);
    let instances = Instances::new(input.typed);
    let mut out = Describer { input, instances, actions: Vec::new(), layout };
    let pipelines = out.pipelines();
    let learn_lists = out.learn_lists();
    let Describer { actions, layout, .. } = out;
    let program = input.program;
    let array = |of: fn(&ir::Program, &Extern, usize) -> Option<Value>| -> Vec<Value> {
        let mut found = Vec::new();
        for item in &program.externs {
            found.extend(of(program, item, found.len()));
        }
        found
    };
    let errors = input.typed.errors.iter().enumerate().map(|(value, name)| json!([&**name, value]));
    let mut file = json!({
        "program": input.name,
        "__meta__": { "version": VERSION, "compiler": concat!("sluice ", env!("CARGO_PKG_VERSION")) },
        "errors": errors.collect::<Vec<_>>(),
        "enums": [],
        "parsers": parsers(input.typed),
        "parse_vsets": value_sets(program),
        "deparsers": [{ "name": "deparser", "id": 0, "order": [] }],
        "meter_arrays": array(meter),
        "counter_arrays": array(counter),
        "register_arrays": array(register),
        "calculations": calculations(program),
        "learn_lists": learn_lists,
        "actions": actions,
        "pipelines": pipelines,
        "checksums": [],
        "force_arith": [],
        "extern_instances": [],
        "field_aliases": layout.aliases(),
        (FIELD): { "source": input.source, "name": input.name, "bmv2": input.bmv2 },
    });
    if let Value::Object(file) = &mut file {
        file.extend(layout.json());
    }
    file
}

/// The instantiated controls, and the names of their tables and actions.
struct Instances<'a> {
    /// The format's names of the package's controls, in order.
    pipelines: Vec<String>,
    /// The tables that each of them applies, in order.
    applied: Vec<Vec<String>>,
    /// By control-plane name.
    tables: HashMap<String, &'a typed::Table>,
    /// By control-plane name: the order of declaration; actions outside controls come first.
    actions: HashMap<String, u32>,
}

impl<'a> Instances<'a> {
    fn new(typed: &'a TypedProgram) -> Instances<'a> {
        let mut found =
            Instances { pipelines: Vec::new(), applied: Vec::new(), tables: HashMap::new(), actions: HashMap::new() };
        for action in typed.actions.iter().filter(|action| action.owner.is_none()) {
            found.actions.insert(action.control_name.name.clone(), 0);
        }
        if let Some(main) = typed.main {
            found.package(typed, main, None);
        }
        found
    }

    /// Adds the controls of a package. `within` is its name if it is an argument of another package.
    fn package(&mut self, typed: &'a TypedProgram, id: InstanceId, within: Option<&str>) {
        for arg in &typed.instance(id).args {
            let Some(child) = arg.value.as_instance() else { continue };
            match typed.instance(child).of {
                InstanceOf::Package(_) => self.package(typed, child, Some(&arg.name)),
                InstanceOf::Control(control) => {
                    let name = match (&*arg.name, within) {
                        ("ig" | "eg", Some(package)) => package,
                        ("ig", None) => "ingress",
                        ("eg", None) => "egress",
                        (other, _) => other,
                    };
                    let applied = self.control(typed, child, control);
                    // Controls for checksums and deparsers are not pipelines.
                    if matches!(name, "ingress" | "egress") || !applied.is_empty() {
                        self.pipelines.push(name.to_string());
                        self.applied.push(applied);
                    }
                }
                InstanceOf::Extern(_) | InstanceOf::Parser(_) => {}
            }
        }
    }

    /// Records the names of a control's tables and actions; returns the names of its tables in order.
    fn control(&mut self, typed: &'a TypedProgram, id: InstanceId, control: ControlId) -> Vec<String> {
        self.actions_of(typed, id, control);
        let mut names = Vec::new();
        for (table, within) in applied::tables(typed, id) {
            let table = &typed.tables[table.index()];
            let name = table.control_name.qualified(&typed.instance(within).path);
            self.tables.insert(name.clone(), table);
            names.push(name);
        }
        names
    }

    fn actions_of(&mut self, typed: &TypedProgram, id: InstanceId, control: ControlId) {
        let (instance, control) = (typed.instance(id), &typed.controls[control.index()]);
        for (order, action) in (1..).zip(&control.actions) {
            let action = &typed.actions[action.index()];
            self.actions.entry(action.control_name.qualified(&instance.path)).or_insert(order);
        }
        for &child in &instance.children {
            if let InstanceOf::Control(control) = typed.instance(child).of {
                self.actions_of(typed, child, control);
            }
        }
    }
}

struct Describer<'a> {
    input: &'a Described<'a>,
    instances: Instances<'a>,
    actions: Vec<Value>,
    layout: Layout<'a>,
}

impl Describer<'_> {
    /// The pipelines. Assigns ids to actions, one for each table that lists the action, as p4c does.
    fn pipelines(&mut self) -> Vec<Value> {
        let names = match self.instances.pipelines.is_empty() {
            true => vec![NO_PIPELINE.to_string()],
            false => self.instances.pipelines.clone(),
        };
        let (mut pipelines, mut table_id, mut profile_id) = (Vec::new(), 0u32, 0u32);
        for (id, name) in names.iter().enumerate() {
            let program = self.input.program;
            let applied = self.instances.applied.get(id).map_or(&[][..], Vec::as_slice);
            let tables: Vec<&Table> =
                applied.iter().filter_map(|name| program.tables.iter().find(|table| table.name == *name)).collect();
            let ids = self.number_actions(&tables);
            let mut profiles: Vec<(&Extern, Value)> = Vec::new();
            let mut described = Vec::new();
            for (table, ids) in tables.iter().zip(&ids) {
                if let Some(profile) = table.implementation.map(|id| &program.externs[id.index()])
                    && profiles.iter().all(|(other, _)| !std::ptr::eq(*other, profile))
                {
                    let json = self.profile(profile, table, profile_id);
                    profile_id += 1;
                    profiles.push((profile, json));
                }
                described.push(self.table(table, table_id, ids));
                table_id += 1;
            }
            pipelines.push(json!({
                "name": name,
                "id": id,
                "init_table": null,
                "tables": described,
                "action_profiles": profiles.into_iter().map(|(_, json)| json).collect::<Vec<_>>(),
                "conditionals": [],
            }));
        }
        pipelines
    }

    /// The ids of each table's actions, in the order of its list. Ids are ordered by declaration of the action, then by
    /// table.
    fn number_actions(&mut self, tables: &[&Table]) -> Vec<Vec<usize>> {
        let program = self.input.program;
        let mut uses: Vec<(u32, Option<usize>, usize, usize, &ir::program::Action)> = Vec::new();
        for (at, table) in tables.iter().enumerate() {
            let declared = program.tables.iter().position(|other| std::ptr::eq(other, *table));
            for (position, TableAction { action, .. }) in table.actions.iter().enumerate() {
                let action = &program.actions[action.index()];
                let order = self.instances.actions.get(&action.name).copied().unwrap_or(u32::MAX);
                uses.push((order, declared, at, position, action));
            }
        }
        uses.sort_by_key(|(order, declared, _, position, _)| (*order, *declared, *position));
        let mut ids: Vec<Vec<usize>> = tables.iter().map(|table| vec![0; table.actions.len()]).collect();
        for (_, _, table, position, action) in uses {
            let id = self.actions.len();
            ids[table][position] = id;
            let data = action.params.iter().map(|(name, bits)| json!({ "name": name, "bitwidth": bits }));
            self.actions.push(json!({
                "name": action.name,
                "id": id,
                "runtime_data": data.collect::<Vec<_>>(),
                "primitives": [{ "op": PRIMITIVE, "parameters": [] }],
            }));
        }
        ids
    }

    fn profile(&mut self, profile: &Extern, table: &Table, id: u32) -> Value {
        let mut json = json!({ "name": profile.name, "id": id });
        match &profile.kind {
            ExternKind::ActionSelector { size, algorithm, .. } => {
                json["max_size"] = (*size).into();
                let input: Vec<Value> = self.keys(table, true).into_iter().map(|(_, target)| target.value()).collect();
                json["selector"] = json!({ "algo": algorithm.name(), "input": input });
            }
            ExternKind::ActionProfile { size, .. } => json["max_size"] = (*size).into(),
            _ => {}
        }
        json
    }

    /// Names and targets of a table's keys: those that entries match or, if `selector`, those that select a member of a
    /// group.
    fn keys(&mut self, table: &Table, selector: bool) -> Vec<(Option<String>, Reference)> {
        let Some(declared) = self.instances.tables.get(&table.name) else { return Vec::new() };
        let chosen = declared.keys.iter().filter(|key| (&*key.match_kind_name == "selector") == selector);
        chosen.map(|key| (Some(key.name.clone()), self.layout.reference(&key.expr))).collect()
    }

    fn table(&mut self, table: &Table, id: u32, action_ids: &[usize]) -> Value {
        let program = self.input.program;
        let mut targets = self.keys(table, false).into_iter();
        let mut keys = Vec::new();
        for key in &table.keys {
            let (_, target) = targets.next().unwrap_or_else(|| (None, self.layout.scalar("key", key.width)));
            keys.push(json!({
                "match_type": match_type(key.kind),
                "name": key_name(&key.name),
                "target": target.target(),
                "mask": target.mask(),
            }));
        }
        let name = |action: &TableAction| program.actions[action.action.index()].name.clone();
        let direct = |is: fn(&ExternKind) -> bool| {
            table.direct.iter().map(|id| &program.externs[id.index()]).find(|e| is(&e.kind))
        };
        let meter = direct(|kind| matches!(kind, ExternKind::Meter { .. }));
        let implementation = table.implementation.map(|id| &program.externs[id.index()]);
        let mut json = json!({
            "name": table.name,
            "id": id,
            "key": keys,
            "match_type": strongest(table),
            "type": match implementation.map(|e| &e.kind) {
                None => "simple",
                Some(ExternKind::ActionSelector { .. }) => "indirect_ws",
                Some(_) => "indirect",
            },
            "max_size": table.size,
            "with_counters": direct(|kind| matches!(kind, ExternKind::Counter { .. })).is_some(),
            "support_timeout": table.idle_timeout,
            "direct_meters": meter.map(|meter| meter.name.clone()),
            "action_ids": action_ids,
            "actions": table.actions.iter().map(name).collect::<Vec<_>>(),
            "base_default_next": null,
            "next_tables": {},
        });
        match implementation {
            Some(profile) => json["action_profile"] = profile.name.clone().into(),
            None => {
                let default = &table.default_action;
                json["default_entry"] = json!({
                    "action_id": action_ids.get(default.action as usize),
                    "action_const": table.const_default,
                    "action_data": default.args.iter().map(short_hex).collect::<Vec<_>>(),
                    "action_entry_const": table.const_default,
                });
            }
        }
        if !table.entries.is_empty() {
            json["entries"] = entries(table, action_ids).into();
        }
        json
    }

    /// The digests, with a scalar for each of their fields.
    fn learn_lists(&mut self) -> Vec<Value> {
        let mut lists = Vec::new();
        for item in &self.input.program.externs {
            let ExternKind::Digest { fields } = &item.kind else { continue };
            let elements: Vec<Value> = fields
                .iter()
                .map(|(name, width)| self.layout.scalar_named(format!("{}.{name}", item.name), *width).value())
                .collect();
            lists.push(json!({ "id": lists.len() + 1, "name": item.name, "elements": elements }));
        }
        lists
    }
}

/// The name of a key; p4c names a header's validity as its pseudo-field `$valid$`.
fn key_name(name: &str) -> String {
    name.strip_suffix(".isValid()").map_or_else(|| name.to_string(), |header| format!("{header}.$valid$"))
}

/// The format's match type; optional keys are ternary in it.
fn match_type(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Optional => MatchKind::Ternary.name(),
        other => other.name(),
    }
}

/// The match type of a table: the most general of its keys' types.
fn strongest(table: &Table) -> &'static str {
    let order = ["range", "ternary", "lpm", "exact"];
    order.into_iter().find(|wanted| table.keys.iter().any(|key| match_type(key.kind) == *wanted)).unwrap_or("exact")
}

/// Hexadecimal with all digits of the value's bytes.
fn hex(value: &Bits) -> String {
    value.to_bytes_be().iter().fold("0x".to_string(), |text, byte| text + &format!("{byte:02x}"))
}

/// Hexadecimal without leading zeros.
fn short_hex(value: &Bits) -> String {
    format!("{:#x}", value.to_biguint())
}

/// The program's entries in the order of the source; the lowest number is the highest priority.
fn entries(table: &Table, action_ids: &[usize]) -> Vec<Value> {
    let mut order: Vec<usize> = (0..table.entries.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(table.entries[at].priority));
    let mut rank = vec![0; order.len()];
    for (number, at) in (1..).zip(order) {
        rank[at] = number;
    }
    let matched = |key: &KeyMatch, width: u32| match key {
        KeyMatch::Exact(value) => json!({ "match_type": "exact", "key": hex(value) }),
        KeyMatch::Lpm { value, prefix_len } => {
            json!({ "match_type": "lpm", "key": hex(value), "prefix_length": prefix_len })
        }
        KeyMatch::Ternary { value, mask } => json!({ "match_type": "ternary", "key": hex(value), "mask": hex(mask) }),
        KeyMatch::Range { low, high } => json!({ "match_type": "range", "start": hex(low), "end": hex(high) }),
        KeyMatch::Optional(value) => {
            let mask = if value.is_some() { Bits::ones(width) } else { Bits::zero(width) };
            let value = value.clone().unwrap_or_else(|| Bits::zero(width));
            json!({ "match_type": "ternary", "key": hex(&value), "mask": hex(&mask) })
        }
    };
    let entry = |(at, entry): (usize, &base::entry::TableEntry)| {
        // Entries of a program call actions; only a controller's refer to members.
        let EntryAction::Call(call) = &entry.action else { return None };
        let keys = entry.key.iter().zip(&table.keys).map(|(found, key)| matched(found, key.width));
        Some(json!({
            "match_key": keys.collect::<Vec<_>>(),
            "action_entry": {
                "action_id": action_ids.get(call.action as usize),
                "action_data": call.args.iter().map(short_hex).collect::<Vec<_>>(),
            },
            "priority": rank[at],
        }))
    };
    table.entries.iter().enumerate().filter_map(entry).collect()
}

fn meter(program: &ir::Program, item: &Extern, id: usize) -> Option<Value> {
    let ExternKind::Meter { size, unit, direct } = &item.kind else { return None };
    let unit = if *unit == ir::program::CounterUnit::Bytes { "bytes" } else { "packets" };
    let mut json = json!({
        "name": item.name, "id": id, "is_direct": direct.is_some(), "rate_count": 2, "type": unit, "size": size,
    });
    if let Some(table) = direct {
        json["binding"] = program.tables[table.index()].name.clone().into();
    }
    Some(json)
}

fn counter(program: &ir::Program, item: &Extern, id: usize) -> Option<Value> {
    let ExternKind::Counter { size, direct, .. } = &item.kind else { return None };
    let mut json = json!({ "name": item.name, "id": id, "is_direct": direct.is_some() });
    match direct {
        Some(table) => json["binding"] = program.tables[table.index()].name.clone().into(),
        None => json["size"] = (*size).into(),
    }
    Some(json)
}

fn register(_: &ir::Program, item: &Extern, id: usize) -> Option<Value> {
    let ExternKind::Register { size, width, .. } = &item.kind else { return None };
    Some(json!({ "name": item.name, "id": id, "size": size, "bitwidth": width }))
}

fn value_sets(program: &ir::Program) -> Vec<Value> {
    let sets = program.tables.iter().filter(|table| table.value_set);
    let set = |(id, table): (usize, &Table)| {
        let width: u32 = table.keys.iter().map(|key| key.width).sum();
        json!({ "name": table.name, "id": id, "compressed_bitwidth": width, "max_size": table.size })
    };
    sets.enumerate().map(set).collect()
}

/// Calculations whose parameters tools can set by these names, without their input; other calculations are left out.
fn calculations(program: &ir::Program) -> Vec<Value> {
    let calculation = |(id, calculation): (usize, &ir::Calculation)| {
        let algorithm = match calculation.function {
            Calculated::Crc16 => "crc16_custom",
            Calculated::Crc32 => "crc32_custom",
            Calculated::Toeplitz => "toeplitz",
        };
        json!({ "name": calculation.name, "id": id, "algo": algorithm, "input": [] })
    };
    program.calculations.iter().enumerate().map(calculation).collect()
}

/// The parsers with the names of their states.
fn parsers(typed: &TypedProgram) -> Vec<Value> {
    let mut found = Vec::new();
    headers::for_each_block(typed, &mut |name, of| {
        if let InstanceOf::Parser(parser) = of {
            found.push((name.to_string(), &typed.parsers[parser.index()]));
        }
    });
    let only = found.len() == 1;
    let mut state_id = 0u32;
    let mut parser = |(id, (name, parser)): (usize, (String, &typed::Parser))| {
        let mut states = Vec::new();
        for (at, state) in parser.states.iter().enumerate() {
            let operation = json!({ "op": "primitive", "parameters": [{ "op": PRIMITIVE, "parameters": [] }] });
            let operations = if at == parser.start as usize { vec![operation] } else { Vec::new() };
            states.push(json!({
                "name": &*state.name, "id": state_id, "parser_ops": operations, "transitions": [], "transition_key": [],
            }));
            state_id += 1;
        }
        let name = if only { "parser".to_string() } else { name };
        let start = &*parser.states[parser.start as usize].name;
        json!({ "name": name, "id": id, "init_state": start, "parse_states": states })
    };
    found.into_iter().enumerate().map(&mut parser).collect()
}

/// Whether a header instance of the format can have this type.
fn is_header_like(ty: &Type) -> bool {
    match ty {
        Type::Header(_) | Type::HeaderUnion(_) => true,
        Type::Stack(element, _) => matches!(**element, Type::Header(_) | Type::HeaderUnion(_)),
        _ => false,
    }
}

/// An object with these members.
fn object(members: impl IntoIterator<Item = (&'static str, Vec<Value>)>) -> Map<String, Value> {
    members.into_iter().map(|(name, items)| (name.to_string(), Value::Array(items))).collect()
}
