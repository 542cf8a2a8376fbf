//! The P4Info of a program, built from the names in its JSON.
//!
//! Ids are those that `crates/p4info` assigns to the same names, so a controller built with the P4Info of the source
//! finds its objects. What the JSON lacks (annotations, types, `@controller_header`) is absent.

use crate::emit::Declared;
use crate::model::{Model, Node, Table};
use base::entry::MatchKind;
use p4info::ids::{Allocation, Allocator};
use p4info::model::*;
use std::collections::{BTreeMap, BTreeSet};

/// Builds the P4Info.
pub(crate) fn build(m: &Model, program: &ir::Program, declared: &Declared) -> P4Info {
    let tables: Vec<(&Table, ir::TableId)> = [&m.ingress, &m.egress]
        .into_iter()
        .enumerate()
        .flat_map(|(egress, p)| p.nodes.iter().enumerate().map(move |(i, n)| ((egress == 1, i), n)))
        .filter_map(|(at, node)| match node {
            Node::Table(table) => Some((&**table, *declared.tables.get(&at)?)),
            _ => None,
        })
        .collect();
    let mut names: Vec<(ObjectKind, &str)> = Vec::new();
    for (table, id) in &tables {
        names.push((ObjectKind::Table, &table.name));
        let ir_table = &program.tables[id.index()];
        names.extend(ir_table.actions.iter().map(|a| (ObjectKind::Action, &*program.actions[a.action.index()].name)));
    }
    for ext in &program.externs {
        names.push((kind_of(&ext.kind), &ext.name));
    }
    names.extend(m.actions.iter().map(|a| (ObjectKind::Action, &*a.name)));
    names.extend(m.value_sets.iter().map(|s| (ObjectKind::ValueSet, &*s.name)));
    let mut allocator = Allocator::default();
    for (kind, name) in &names {
        // Without ids chosen by the program's author nothing can be refused.
        _ = allocator.add(*kind, name, None);
    }
    let allocation = allocator.allocate();
    let of = Info { program, allocation };
    let pkg_info = PkgInfo { arch: "v1model".into(), ..PkgInfo::default() };
    let mut info = P4Info { pkg_info, from_names: true, ..P4Info::default() };
    of.actions(m, &tables, &mut info);
    for (table, id) in &tables {
        info.tables.push(of.table(table, *id));
    }
    for (i, ext) in program.externs.iter().enumerate() {
        of.instance(ir::ExternId::from_index(i), ext, &tables, &mut info);
    }
    for set in &m.value_sets {
        let fields: Vec<(String, u32, MatchKind)> = match set.parts.as_slice() {
            [] | [_] => vec![(String::new(), set.width, MatchKind::Exact)],
            parts => parts.iter().map(|(n, w)| (n.clone(), *w, MatchKind::Exact)).collect(),
        };
        info.value_sets.push(ValueSet {
            preamble: of.preamble(ObjectKind::ValueSet, &set.name),
            match_fields: match_fields(fields),
            size: i32::try_from(set.size).unwrap_or(i32::MAX),
        });
    }
    info
}

fn kind_of(kind: &ir::ExternKind) -> ObjectKind {
    match kind {
        ir::ExternKind::Counter { direct: None, .. } => ObjectKind::Counter,
        ir::ExternKind::Counter { .. } => ObjectKind::DirectCounter,
        ir::ExternKind::Meter { direct: None, .. } => ObjectKind::Meter,
        ir::ExternKind::Meter { .. } => ObjectKind::DirectMeter,
        ir::ExternKind::Register { .. } => ObjectKind::Register,
        ir::ExternKind::ActionProfile { .. } | ir::ExternKind::ActionSelector { .. } => ObjectKind::ActionProfile,
        ir::ExternKind::Digest { .. } => ObjectKind::Digest,
    }
}

fn match_fields(fields: Vec<(String, u32, MatchKind)>) -> Vec<MatchField> {
    let field = |(i, (name, bitwidth, kind)): (usize, (String, u32, MatchKind))| MatchField {
        id: i as u32 + 1,
        name,
        annotations: Annotations::default(),
        doc: None,
        bitwidth,
        match_type: MatchType::Known(kind),
        type_name: None,
    };
    fields.into_iter().enumerate().map(field).collect()
}

struct Info<'a> {
    program: &'a ir::Program,
    allocation: Allocation,
}

impl Info<'_> {
    fn id(&self, kind: ObjectKind, name: &str) -> u32 {
        self.allocation.id(kind, name).unwrap_or(0)
    }

    fn preamble(&self, kind: ObjectKind, name: &str) -> Preamble {
        Preamble {
            id: self.id(kind, name),
            name: name.to_string(),
            alias: self.allocation.alias(name).to_string(),
            ..Preamble::default()
        }
    }

    fn action_id(&self, action: ir::ActionId) -> u32 {
        self.id(ObjectKind::Action, &self.program.actions[action.index()].name)
    }

    /// The actions of tables, then other actions, which controllers may know because the source calls them.
    fn actions(&self, m: &Model, tables: &[(&Table, ir::TableId)], info: &mut P4Info) {
        let mut seen = BTreeSet::new();
        let of_tables = tables.iter().flat_map(|(_, id)| &self.program.tables[id.index()].actions);
        let listed = of_tables.map(|a| &self.program.actions[a.action.index()]).map(|a| (&a.name, &a.params));
        for (name, params) in listed.chain(m.actions.iter().map(|a| (&a.name, &a.params))) {
            if !seen.insert(name) {
                continue;
            }
            let param = |(i, (name, width)): (usize, &(String, u32))| Param {
                id: i as u32 + 1,
                name: name.clone(),
                bitwidth: *width,
                ..Param::default()
            };
            info.actions.push(Action {
                preamble: self.preamble(ObjectKind::Action, name),
                params: params.iter().enumerate().map(param).collect(),
                restriction: None,
            });
        }
    }

    fn table(&self, table: &Table, id: ir::TableId) -> p4info::model::Table {
        let of = &self.program.tables[id.index()];
        let reference = |a: &ir::TableAction| ActionRef {
            id: self.action_id(a.action),
            scope: if a.default_only { ActionScope::DefaultOnly } else { ActionScope::TableAndDefault },
            annotations: Annotations::default(),
        };
        let default = &of.default_action;
        let default_id = of.actions.get(default.action as usize).map(|a| self.action_id(a.action));
        let arguments = default.args.iter().enumerate().map(|(i, v)| (i as u32 + 1, v.clone())).collect();
        let initial = default_id.map(|action_id| ActionCall { action_id, arguments });
        let external = |e: &ir::ExternId| {
            let ext = &self.program.externs[e.index()];
            self.id(kind_of(&ext.kind), &ext.name)
        };
        p4info::model::Table {
            preamble: self.preamble(ObjectKind::Table, &of.name),
            match_fields: match_fields(of.keys.iter().map(|k| (k.name.clone(), k.width, k.kind)).collect()),
            action_refs: of.actions.iter().map(reference).collect(),
            const_default_action_id: default_id.filter(|_| of.const_default),
            initial_default_action: initial.filter(|_| of.implementation.is_none() && table.default.is_some()),
            implementation_id: of.implementation.as_ref().map(external),
            direct_resource_ids: of.direct.iter().map(external).collect(),
            size: i64::try_from(of.size).unwrap_or(i64::MAX),
            idle_timeout: of.idle_timeout,
            is_const_table: of.const_entries,
            const_entries: of.entries.iter().map(|_| of.const_entries).collect(),
            has_initial_entries: !of.entries.is_empty(),
            restriction: None,
        }
    }

    fn instance(&self, id: ir::ExternId, ext: &ir::Extern, tables: &[(&Table, ir::TableId)], info: &mut P4Info) {
        let preamble = self.preamble(kind_of(&ext.kind), &ext.name);
        let table_id = |t: &ir::TableId| self.id(ObjectKind::Table, &self.program.tables[t.index()].name);
        let cells = |size: &u64| i64::try_from(*size).unwrap_or(i64::MAX);
        let meter_unit = |unit: &ir::CounterUnit| match unit {
            ir::CounterUnit::Packets => MeterUnit::Packets,
            _ => MeterUnit::Bytes,
        };
        match &ext.kind {
            ir::ExternKind::Counter { size, direct: None, .. } => info.counters.push(Counter {
                preamble,
                unit: CounterUnit::Both,
                size: cells(size),
                index_type_name: None,
            }),
            ir::ExternKind::Counter { direct: Some(table), .. } => info.direct_counters.push(DirectCounter {
                preamble,
                unit: CounterUnit::Both,
                direct_table_id: table_id(table),
            }),
            ir::ExternKind::Meter { size, unit, direct: None } => info.meters.push(Meter {
                preamble,
                unit: meter_unit(unit),
                meter_type: MeterType::default(),
                size: cells(size),
                index_type_name: None,
            }),
            ir::ExternKind::Meter { unit, direct: Some(table), .. } => info.direct_meters.push(DirectMeter {
                preamble,
                unit: meter_unit(unit),
                meter_type: MeterType::default(),
                direct_table_id: table_id(table),
            }),
            ir::ExternKind::Register { size, width, .. } => info.registers.push(Register {
                preamble,
                type_spec: DataType::Bit(*width),
                size: i32::try_from(*size).unwrap_or(i32::MAX),
                index_type_name: None,
            }),
            ir::ExternKind::ActionProfile { size, .. } | ir::ExternKind::ActionSelector { size, .. } => {
                let uses = |(_, t): &&(&Table, ir::TableId)| self.program.tables[t.index()].implementation == Some(id);
                info.action_profiles.push(ActionProfile {
                    preamble,
                    table_ids: tables.iter().filter(uses).map(|(_, t)| table_id(t)).collect(),
                    with_selector: matches!(ext.kind, ir::ExternKind::ActionSelector { .. }),
                    size: cells(size),
                    max_group_size: 0,
                    selector_size: None,
                    weights_disallowed: false,
                });
            }
            ir::ExternKind::Digest { fields } => {
                let mut members: BTreeMap<&str, usize> = BTreeMap::new();
                let mut list = Vec::new();
                for (name, width) in fields {
                    // A field that occurs twice in a list becomes two members.
                    let count = members.entry(name).or_default();
                    *count += 1;
                    let name = if *count == 1 { name.clone() } else { format!("{name}#{count}") };
                    list.push((name, DataType::Bit(*width)));
                }
                let ty = StructType { members: list, annotations: Annotations::default() };
                info.type_info.structs.insert(ext.name.clone(), ty);
                info.digests.push(Digest { preamble, type_spec: DataType::Struct(ext.name.clone()) });
            }
        }
    }
}
