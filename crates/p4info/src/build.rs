//! Generates the P4Info of a typed program.
//!
//! Two passes over the instances below `main`: the first collects names and allocates ids, the second describes the
//! objects. The name of an extern's type determines its kind in the control plane ([`extern_kind`]); v1model's and the
//! portable architectures' names are known, and no other part of this crate depends on an architecture.
//!
//! Follows the P4Runtime specification, "P4Info Objects". Where that leaves choices, it does what the reference
//! compiler does: a v1model digest is named after its struct, a table without `size` has 1024 entries, `selector` keys
//! are not match fields.
//!
//! Problems are reported as diagnostics: an object that cannot be described fully is still listed where possible, so
//! that one run reports several.

mod objects;
mod restrictions;
mod tables;

use crate::annotations::{annotations, documentation};
use crate::ids::{Allocation, Allocator, field_ids};
use crate::model::*;
use crate::reach::Reach;
use crate::types::{Types, control_name};
use base::{Diagnostic, SourceMap, Span};
use sema::TypedProgram;
use sema::typed::{self, Annotation, ControlId, InstanceId, InstanceOf, ParserId, find_annotation};
use sema::types::{StructKind, Type};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An invalid or duplicate `@id`.
const BAD_ID: &str = "E0690";
/// A type that P4Info cannot describe.
const BAD_TYPE: &str = "E0691";
/// Two objects of the same kind and name.
const DUPLICATE: &str = "E0692";
/// An annotation's argument has the wrong form.
const BAD_ANNOTATION: &str = "W0693";
/// Like [`BAD_ANNOTATION`], where the argument is essential.
const BAD_ANNOTATION_ARGUMENT: &str = "E0694";
/// An `@entry_restriction` or `@action_restriction` that is not a valid constraint.
const BAD_RESTRICTION: &str = "E0695";
/// A clause of a constraint that does not fit its table or action.
const RESTRICTION_MISFIT: &str = "W0696";

/// The P4Info of a program for the architecture named `arch`, and diagnostics.
pub fn build(program: &TypedProgram, sources: &SourceMap, arch: &str) -> (P4Info, Vec<Diagnostic>) {
    let mut walk = Walk::new(program);
    walk.visit_all();
    let mut builder = Builder::new(program, sources, walk);
    builder.describe(arch);
    let mut info = builder.info;
    info.type_info = builder.types.info;
    (info, builder.diags)
}

/// The kind of P4Info object that an extern type corresponds to.
fn extern_kind(type_name: &str) -> Option<ObjectKind> {
    Some(match type_name {
        "counter" | "Counter" | "CounterArray" => ObjectKind::Counter,
        "direct_counter" | "DirectCounter" => ObjectKind::DirectCounter,
        "meter" | "Meter" => ObjectKind::Meter,
        "direct_meter" | "DirectMeter" => ObjectKind::DirectMeter,
        "register" | "Register" => ObjectKind::Register,
        "action_profile" | "ActionProfile" | "action_selector" | "ActionSelector" => ObjectKind::ActionProfile,
        "Digest" => ObjectKind::Digest,
        _ => return None,
    })
}

/// The instances in the order of `main`'s arguments, parents before children.
struct Walk<'p> {
    program: &'p TypedProgram,
    seen: BTreeSet<InstanceId>,
    controls: Vec<(InstanceId, ControlId)>,
    parsers: Vec<(InstanceId, ParserId)>,
    externs: Vec<(InstanceId, ObjectKind)>,
}

impl<'p> Walk<'p> {
    fn new(program: &'p TypedProgram) -> Walk<'p> {
        Walk { program, seen: BTreeSet::new(), controls: vec![], parsers: vec![], externs: vec![] }
    }

    fn visit_all(&mut self) {
        for &global in &self.program.global_instances {
            if matches!(self.program.instance(global).of, InstanceOf::Extern(_)) {
                self.visit(global);
            }
        }
        if let Some(main) = self.program.main {
            self.visit(main);
        }
    }

    fn visit(&mut self, id: InstanceId) {
        if !self.seen.insert(id) {
            return;
        }
        let instance = self.program.instance(id);
        match instance.of {
            InstanceOf::Extern(extern_id) => {
                if let Some(kind) = extern_kind(self.program.extern_name(extern_id)) {
                    self.externs.push((id, kind));
                }
            }
            InstanceOf::Control(control) => self.controls.push((id, control)),
            InstanceOf::Parser(parser) => self.parsers.push((id, parser)),
            InstanceOf::Package(_) => {}
        }
        let children = instance.args.iter().filter_map(|arg| arg.value.as_instance()).chain(instance.children.clone());
        for child in children {
            self.visit(child);
        }
    }
}

struct Builder<'p> {
    program: &'p TypedProgram,
    sources: &'p SourceMap,
    walk: Walk<'p>,
    /// The reachable tables, actions and calls of each control.
    reach: BTreeMap<ControlId, Reach<'p>>,
    types: Types<'p>,
    allocation: Allocation,
    info: P4Info,
    diags: Vec<Diagnostic>,
}

// Names and ids.
impl<'p> Builder<'p> {
    fn new(program: &'p TypedProgram, sources: &'p SourceMap, walk: Walk<'p>) -> Builder<'p> {
        let reach = walk.controls.iter().map(|(_, control)| (*control, Reach::of(program, *control))).collect();
        let mut builder = Builder {
            program,
            sources,
            reach,
            walk,
            types: Types::new(program, sources),
            allocation: Allocator::default().allocate(),
            info: P4Info::default(),
            diags: Vec::new(),
        };
        let mut allocator = Allocator::default();
        for (kind, name, source, span) in builder.objects() {
            let id = find_annotation(source, "id").and_then(Annotation::as_u64);
            let id = match id.map(u32::try_from).transpose() {
                Ok(id) => id,
                Err(_) => {
                    builder.diags.push(Diagnostic::error(BAD_ID, span, "`@id` must fit into 32 bits".to_string()));
                    None
                }
            };
            if let Err(error) = allocator.add(kind, &name, id) {
                let message = format!("wrong id for {} `{name}`: {error}", kind.noun());
                builder.diags.push(Diagnostic::error(BAD_ID, span, message));
            }
        }
        builder.allocation = allocator.allocate();
        builder
    }

    /// All named objects: kind, fully qualified name, annotations, span. Digest calls of v1model are included.
    fn objects(&self) -> Vec<(ObjectKind, String, &'p [Annotation], Span)> {
        let program = self.program;
        let mut objects: Vec<(ObjectKind, String, &'p [Annotation], Span)> = Vec::new();
        for (action, name, _) in self.actions() {
            let action = &program.actions[action.index()];
            objects.push((ObjectKind::Action, name, &action.annotations, action.span));
        }
        for (instance, control) in &self.walk.controls {
            for table in self.tables_of(*control) {
                let table = &program.tables[table.index()];
                let name = table.control_name.qualified(&program.instance(*instance).path);
                objects.push((ObjectKind::Table, name, &table.annotations, table.span));
            }
        }
        for (instance, parser) in &self.walk.parsers {
            for set in &program.parsers[parser.index()].value_sets {
                let set = &program.value_sets[set.index()];
                let name = set.control_name.qualified(&program.instance(*instance).path);
                objects.push((ObjectKind::ValueSet, name, &set.annotations, set.span));
            }
        }
        for (id, kind) in &self.walk.externs {
            let instance = program.instance(*id);
            objects.push((*kind, instance.path.clone(), &instance.annotations, instance.span));
        }
        for header in self.controller_headers() {
            let name = control_name(&header.name, &header.annotations);
            objects.push((ObjectKind::ControllerHeader, name, &header.annotations, header.span));
        }
        for (name, _, span) in self.digest_calls() {
            objects.push((ObjectKind::Digest, name, &[], span));
        }
        objects
    }

    /// The tables of a control that are applied, in declaration order.
    fn tables_of(&self, control: ControlId) -> Vec<typed::TableId> {
        let tables = &self.program.controls[control.index()].tables;
        tables.iter().copied().filter(|table| self.reach[&control].tables.contains(table)).collect()
    }

    /// Every action that a table lists or a control calls, once, with its qualified name and whether a table lists it.
    fn actions(&self) -> Vec<(typed::ActionId, String, bool)> {
        let program = self.program;
        let mut actions: Vec<(typed::ActionId, String, bool)> = Vec::new();
        let mut position: HashMap<String, usize> = HashMap::new();
        for (instance, control) in &self.walk.controls {
            let path = &program.instance(*instance).path;
            let reach = &self.reach[control];
            let own = program.controls[control.index()].actions.iter().copied();
            let in_lists = reach.listed();
            let own = own.filter(|id| in_lists.contains(id) || reach.called.contains(id));
            let tables = self.tables_of(*control).into_iter();
            let listed = tables.flat_map(|t| program.tables[t.index()].actions.iter().map(|a| a.action));
            for id in own.chain(listed).chain(reach.called.iter().copied()) {
                let action = &program.actions[id.index()];
                let name = action.control_name.qualified(path);
                let is_listed = in_lists.contains(&id);
                match position.get(&name) {
                    Some(&at) => actions[at].2 |= is_listed,
                    None if action.control_name.hidden => {}
                    None => {
                        position.insert(name.clone(), actions.len());
                        actions.push((id, name, is_listed));
                    }
                }
            }
        }
        actions
    }

    /// `@controller_header` headers.
    fn controller_headers(&self) -> impl Iterator<Item = &'p sema::types::StructInfo> + use<'p> {
        let structs = self.program.types.structs.iter();
        structs
            .filter(|s| s.kind == StructKind::Header && find_annotation(&s.annotations, "controller_header").is_some())
    }

    fn digest_calls(&self) -> Vec<(String, Type, Span)> {
        crate::digests::digests(self.program, self.reach.values().flat_map(|reach| reach.calls.iter().copied()))
    }

    fn preamble(&self, kind: ObjectKind, name: &str, source: &[Annotation], spelled_out: &[&str]) -> Preamble {
        Preamble {
            id: self.id(kind, name),
            name: name.to_string(),
            alias: self.allocation.alias(name).to_string(),
            annotations: annotations(source, spelled_out, self.sources),
            doc: documentation(source),
        }
    }

    /// The id of an object; 0 if it was not collected, after an error.
    fn id(&self, kind: ObjectKind, name: &str) -> u32 {
        self.allocation.id(kind, name).unwrap_or(0)
    }

    fn field_ids<'a>(&mut self, fields: impl Iterator<Item = (&'a [Annotation], Span)>) -> Vec<u32> {
        let fields: Vec<_> = fields.collect();
        let given: Vec<Option<u32>> = fields
            .iter()
            .map(|(source, _)| {
                find_annotation(source, "id").and_then(Annotation::as_u64).and_then(|id| u32::try_from(id).ok())
            })
            .collect();
        field_ids(&given).unwrap_or_else(|(at, id)| {
            let message = match id {
                0 => "`@id` must not be 0".to_string(),
                _ => format!("`@id({id})` is used twice here"),
            };
            self.diags.push(Diagnostic::error(BAD_ID, fields[at].1, message));
            (1..=given.len() as u32).collect()
        })
    }

    fn bad_type(&mut self, what: &str, ty: &str, span: Span) {
        let message = format!("{what} has type `{ty}`, which the control plane cannot see");
        self.diags.push(Diagnostic::error(BAD_TYPE, span, message));
    }
}

// Descriptions.
impl Builder<'_> {
    fn describe(&mut self, arch: &str) {
        for (id, name, is_listed) in self.actions() {
            self.action(id, &name, is_listed);
        }
        let controls = std::mem::take(&mut self.walk.controls);
        let mut users = BTreeMap::new();
        for (instance, control) in &controls {
            for table in self.tables_of(*control) {
                self.table(*instance, table, &mut users);
            }
        }
        self.walk.controls = controls;
        for (instance, parser) in std::mem::take(&mut self.walk.parsers) {
            for set in &self.program.parsers[parser.index()].value_sets {
                self.value_set(instance, &self.program.value_sets[set.index()]);
            }
        }
        for (id, kind) in std::mem::take(&mut self.walk.externs) {
            self.extern_object(id, kind, users.get(&id).map_or(&[], Vec::as_slice));
        }
        for (name, ty, span) in self.digest_calls() {
            self.digest(self.preamble(ObjectKind::Digest, &name, &[], &[]), &ty, span);
        }
        for header in self.controller_headers() {
            self.controller_header(header);
        }
        self.info.pkg_info = self.pkg_info(arch);
        self.check_duplicates();
    }

    fn check_duplicates(&mut self) {
        let mut seen = BTreeSet::new();
        let tables = self.info.tables.iter().map(|t| (ObjectKind::Table, &t.preamble.name));
        let counters = self.info.counters.iter().map(|c| (ObjectKind::Counter, &c.preamble.name));
        let registers = self.info.registers.iter().map(|r| (ObjectKind::Register, &r.preamble.name));
        let profiles = self.info.action_profiles.iter().map(|p| (ObjectKind::ActionProfile, &p.preamble.name));
        let headers =
            self.info.controller_packet_metadata.iter().map(|h| (ObjectKind::ControllerHeader, &h.preamble.name));
        let meters = self.info.meters.iter().map(|m| (ObjectKind::Meter, &m.preamble.name));
        let direct_counters = self.info.direct_counters.iter().map(|c| (ObjectKind::DirectCounter, &c.preamble.name));
        let direct_meters = self.info.direct_meters.iter().map(|m| (ObjectKind::DirectMeter, &m.preamble.name));
        let indirect = tables.chain(counters).chain(meters).chain(registers).chain(profiles).chain(headers);
        for (kind, name) in indirect.chain(direct_counters).chain(direct_meters) {
            if !seen.insert((kind, name)) {
                let message = format!("two {}s have the control-plane name `{name}`", kind.noun());
                let diag = Diagnostic::error(DUPLICATE, Span::NONE, message).help("give one of them another `@name`");
                self.diags.push(diag);
            }
        }
    }
}
