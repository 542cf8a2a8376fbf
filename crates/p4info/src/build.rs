//! From a typed program to its P4Info.
//!
//! Two walks over the instances below `main`: the first collects names and gives ids, the second describes the objects.
//! What an extern object is to the control plane is decided by the name of its type ([`extern_kind`]); both v1model's
//! and the portable architectures' names are known, and no other part of this crate depends on an architecture.
//!
//! Follows P4Runtime specification, "P4Info Objects", and where that leaves room, what the reference compiler does: the
//! name of a v1model digest is its struct's, a table without `size` has 1024 entries, `selector` keys are not match
//! fields.
//!
//! Problems are diagnostics: an object that controllers cannot see properly is still listed where possible, so that
//! several are reported in one run.

use crate::annotations::{annotations, documentation, key_values};
use crate::ids::{Allocation, Allocator, field_ids};
use crate::model::*;
use crate::reach::Reach;
use crate::types::{Types, control_name};
use base::entry::MatchKind;
use base::{Bits, Diagnostic, Span};
use sema::typed::{self, Annotation, ControlId, InstanceId, InstanceOf, ParserId, find_annotation};
use sema::types::{StructKind, Type};
use sema::{TypedProgram, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A wrong `@id`, or the same one twice.
const BAD_ID: &str = "E0690";
/// A type that the control plane cannot see.
const BAD_TYPE: &str = "E0691";
/// Two objects of one kind and name.
const DUPLICATE: &str = "E0692";
/// An annotation's argument has the wrong form.
const BAD_ANNOTATION: &str = "W0693";

/// Entries of a table that does not say.
const DEFAULT_TABLE_SIZE: i64 = 1024;

/// The P4Info of a program for the architecture named `arch`, and what is wrong with it.
pub fn build(program: &TypedProgram, arch: &str) -> (P4Info, Vec<Diagnostic>) {
    let mut walk = Walk::new(program);
    walk.visit_all();
    let mut builder = Builder::new(program, walk);
    builder.describe(arch);
    let mut info = builder.info;
    info.type_info = builder.types.info;
    (info, builder.diags)
}

/// What an extern type is to the control plane.
fn extern_kind(type_name: &str) -> Option<ObjectKind> {
    Some(match type_name {
        "counter" | "Counter" => ObjectKind::Counter,
        "direct_counter" | "DirectCounter" => ObjectKind::DirectCounter,
        "meter" | "Meter" => ObjectKind::Meter,
        "direct_meter" | "DirectMeter" => ObjectKind::DirectMeter,
        "register" | "Register" => ObjectKind::Register,
        "action_profile" | "ActionProfile" | "action_selector" | "ActionSelector" => ObjectKind::ActionProfile,
        "Digest" => ObjectKind::Digest,
        _ => return None,
    })
}

/// Table properties that name an action profile or a direct resource.
const ATTACHING: [&str; 9] = [
    "implementation",
    "psa_implementation",
    "pna_implementation",
    "counters",
    "psa_direct_counter",
    "pna_direct_counter",
    "meters",
    "psa_direct_meter",
    "pna_direct_meter",
];

/// The instances that exist, in the order of `main`'s arguments, parents before children.
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
    walk: Walk<'p>,
    /// What of each control can run.
    reach: BTreeMap<ControlId, Reach<'p>>,
    types: Types<'p>,
    allocation: Allocation,
    info: P4Info,
    diags: Vec<Diagnostic>,
}

// Names and ids.
impl<'p> Builder<'p> {
    fn new(program: &'p TypedProgram, walk: Walk<'p>) -> Builder<'p> {
        let reach = walk.controls.iter().map(|(_, control)| (*control, Reach::of(program, *control))).collect();
        let mut builder = Builder {
            program,
            reach,
            walk,
            types: Types::new(program),
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

    /// All named objects: kind, fully qualified name, annotations, place. Digest calls of v1model are among them.
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

    /// The tables of a control that are applied, in order of declaration.
    fn tables_of(&self, control: ControlId) -> Vec<typed::TableId> {
        let tables = &self.program.controls[control.index()].tables;
        tables.iter().copied().filter(|table| self.reach[&control].tables.contains(table)).collect()
    }

    /// Every action that a table lists or a control calls, with its qualified name, once; and whether a table lists it.
    fn actions(&self) -> Vec<(typed::ActionId, String, bool)> {
        let program = self.program;
        let mut actions: Vec<(typed::ActionId, String, bool)> = Vec::new();
        for (instance, control) in &self.walk.controls {
            let path = &program.instance(*instance).path;
            let reach = &self.reach[control];
            let own = program.controls[control.index()].actions.iter().copied();
            let own = own.filter(|id| reach.is_listed(*id) || reach.called.contains(id));
            let tables = self.tables_of(*control).into_iter();
            let listed = tables.flat_map(|t| program.tables[t.index()].actions.iter().map(|a| a.action));
            for id in own.chain(listed).chain(reach.called.iter().copied()) {
                let action = &program.actions[id.index()];
                let name = action.control_name.qualified(path);
                let is_listed = reach.is_listed(id);
                match actions.iter_mut().find(|(_, have, _)| *have == name) {
                    Some((_, _, already)) => *already |= is_listed,
                    None if action.control_name.hidden => {}
                    None => actions.push((id, name, is_listed)),
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
            annotations: annotations(source, spelled_out),
            doc: documentation(source),
        }
    }

    /// Objects that were not collected (after an error) have id 0.
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

    /// Only tables take action data from controllers: an action that is merely called has no parameters for them.
    fn action(&mut self, id: typed::ActionId, name: &str, is_listed: bool) {
        let action = &self.program.actions[id.index()];
        let preamble = self.preamble(ObjectKind::Action, name, &action.annotations, &[]);
        let ids = self.field_ids(action.data_params().map(|p| (p.annotations.as_slice(), p.span)));
        let mut params = Vec::new();
        for (param, id) in action.data_params().zip(ids).filter(|_| is_listed) {
            let name = control_name(&param.name, &param.annotations);
            match self.types.scalar(&param.ty) {
                Ok(scalar) => params.push(Param {
                    id,
                    name,
                    annotations: annotations(&param.annotations, &[]),
                    doc: documentation(&param.annotations),
                    bitwidth: scalar.bitwidth,
                    type_name: scalar.type_name,
                }),
                Err(ty) => self.bad_type(&format!("action parameter `{name}`"), &ty, param.span),
            }
        }
        self.info.actions.push(Action { preamble, params });
    }

    /// `users` collects which tables refer to an extern instance.
    fn table(&mut self, instance: InstanceId, id: typed::TableId, users: &mut BTreeMap<InstanceId, Vec<u32>>) {
        let table = &self.program.tables[id.index()];
        if table.control_name.hidden {
            return;
        }
        let path = self.program.instance(instance).path.clone();
        let name = table.control_name.qualified(&path);
        let mut result = Table {
            preamble: self.preamble(ObjectKind::Table, &name, &table.annotations, &[]),
            is_const_table: table.const_entries && table.has_entries,
            has_initial_entries: !table.entries.is_empty(),
            ..Table::default()
        };
        result.match_fields = self.match_fields(table);
        for listed in &table.actions {
            let action = &self.program.actions[listed.action.index()];
            let mut own = annotations(&listed.annotations, &[]);
            if listed.implicit && own.plain.is_empty() {
                own.plain.push("@defaultonly".to_string());
            }
            result.action_refs.push(ActionRef {
                id: self.id(ObjectKind::Action, &action.control_name.qualified(&path)),
                scope: match (listed.table_only, listed.default_only || listed.implicit) {
                    (true, _) => ActionScope::TableOnly,
                    (false, true) => ActionScope::DefaultOnly,
                    (false, false) => ActionScope::TableAndDefault,
                },
                annotations: own,
            });
        }
        if let Some(default) = &table.default_action {
            let listed = &result.action_refs[default.action as usize];
            let arguments = self.arguments(table.actions[default.action as usize].action, &default.args, instance);
            result.const_default_action_id = default.is_const.then_some(listed.id);
            result.initial_default_action = Some(ActionCall { action_id: listed.id, arguments });
        }
        let size = table.size.as_ref().and_then(|size| self.program.eval(size, Some(instance)));
        result.size = match size.and_then(|size| size.to_u64()).map(i64::try_from) {
            None | Some(Ok(0)) => DEFAULT_TABLE_SIZE,
            Some(size) => size.unwrap_or(i64::MAX),
        };
        self.properties(&mut result, table, instance, users);
        self.info.tables.push(result);
    }

    /// Constant arguments of a default action by parameter id.
    fn arguments(&mut self, action: typed::ActionId, args: &[typed::Expr], instance: InstanceId) -> Vec<(u32, Bits)> {
        let action = &self.program.actions[action.index()];
        let ids = self.field_ids(action.data_params().map(|p| (p.annotations.as_slice(), p.span)));
        let values = args.iter().map(|arg| match self.program.eval(arg, Some(instance)) {
            Some(Value::Bits(bits)) => Some(bits),
            Some(Value::Bool(value)) => Some(Bits::from_bool(value)),
            _ => None,
        });
        ids.into_iter().zip(values).filter_map(|(id, value)| Some((id, value?))).collect()
    }

    fn properties(
        &mut self,
        result: &mut Table,
        table: &typed::Table,
        instance: InstanceId,
        users: &mut BTreeMap<InstanceId, Vec<u32>>,
    ) {
        for property in &table.properties {
            let value = self.program.eval(&property.value, Some(instance));
            match &*property.name {
                "support_timeout" => result.idle_timeout = value.and_then(|v| v.as_bool()) == Some(true),
                "psa_idle_timeout" | "pna_idle_timeout" => {
                    result.idle_timeout = self.enum_member(&property.value, value.as_ref()) == Some("NOTIFY_CONTROL");
                }
                name if ATTACHING.contains(&name) => {
                    let typed::ExprKind::Instance(reference) = &property.value.kind else { continue };
                    let Some(id) = self.program.resolve(*reference, Some(instance)) else { continue };
                    let attached = self.program.instance(id);
                    let InstanceOf::Extern(extern_id) = attached.of else { continue };
                    let Some(kind) = extern_kind(self.program.extern_name(extern_id)) else { continue };
                    let object = self.id(kind, &attached.path);
                    match kind {
                        ObjectKind::ActionProfile => result.implementation_id = Some(object),
                        _ => result.direct_resource_ids.push(object),
                    }
                    users.entry(id).or_default().push(result.preamble.id);
                }
                _ => {}
            }
        }
    }

    fn enum_member(&self, expr: &typed::Expr, value: Option<&Value>) -> Option<&str> {
        match (&expr.ty, value?) {
            (Type::Enum(id), Value::Enum(member)) => {
                Some(&self.program.types.enums[id.index()].members.get(*member as usize)?.name)
            }
            _ => None,
        }
    }

    fn match_fields(&mut self, table: &typed::Table) -> Vec<MatchField> {
        let ids = self.field_ids(table.keys.iter().map(|key| (key.annotations.as_slice(), key.span)));
        let mut fields = Vec::new();
        for (key, id) in table.keys.iter().zip(ids) {
            let Some(match_type) = match_type(&key.match_kind_name) else { continue };
            match self.types.scalar(&key.expr.ty) {
                Ok(scalar) => fields.push(MatchField {
                    id,
                    name: key.name.clone(),
                    annotations: annotations(&key.annotations, &[]),
                    doc: documentation(&key.annotations),
                    bitwidth: scalar.bitwidth,
                    match_type,
                    type_name: scalar.type_name.filter(|_| matches!(key.expr.ty, Type::Newtype(_))),
                }),
                Err(ty) => self.bad_type(&format!("match field `{}`", key.name), &ty, key.span),
            }
        }
        fields
    }

    fn value_set(&mut self, instance: InstanceId, set: &typed::ValueSet) {
        if set.control_name.hidden {
            return;
        }
        let name = set.control_name.qualified(&self.program.instance(instance).path);
        let size = self.program.eval(&set.size, Some(instance)).and_then(|size| size.to_u64());
        let size = size.and_then(|size| i32::try_from(size).ok()).unwrap_or(i32::MAX);
        let preamble = self.preamble(ObjectKind::ValueSet, &name, &set.annotations, &[]);
        let match_fields = self.value_set_fields(set);
        self.info.value_sets.push(ValueSet { preamble, match_fields, size });
    }

    fn value_set_fields(&mut self, set: &typed::ValueSet) -> Vec<MatchField> {
        let plain = |id, name, bitwidth| MatchField {
            id,
            name,
            annotations: Annotations::default(),
            doc: None,
            bitwidth,
            match_type: MatchType::Known(MatchKind::Exact),
            type_name: None,
        };
        match &set.element {
            Type::Struct(id) => {
                let fields = &self.program.types.structs[id.index()].fields;
                let ids = self.field_ids(fields.iter().map(|f| (f.annotations.as_slice(), f.span)));
                let mut result = Vec::new();
                for (field, id) in fields.iter().zip(ids) {
                    let name = control_name(&field.name, &field.annotations);
                    match self.types.scalar(&field.ty) {
                        Ok(scalar) => result.push(MatchField {
                            annotations: annotations(&field.annotations, &["match"]),
                            doc: documentation(&field.annotations),
                            match_type: self.declared_match_type(field),
                            type_name: scalar.type_name,
                            ..plain(id, name, scalar.bitwidth)
                        }),
                        Err(ty) => self.bad_type(&format!("value set field `{name}`"), &ty, field.span),
                    }
                }
                result
            }
            Type::Tuple(members) => {
                let scalars: Vec<_> = members.iter().map(|member| self.types.scalar(member)).collect();
                let mut result = Vec::new();
                for (i, scalar) in scalars.into_iter().enumerate() {
                    match scalar {
                        Ok(scalar) => result.push(plain(i as u32 + 1, String::new(), scalar.bitwidth)),
                        Err(ty) => self.bad_type("a value set field", &ty, set.span),
                    }
                }
                result
            }
            element => match self.types.scalar(element) {
                Ok(scalar) => {
                    vec![MatchField { type_name: scalar.type_name, ..plain(1, String::new(), scalar.bitwidth) }]
                }
                Err(ty) => {
                    self.bad_type(&format!("value set `{}`", set.name), &ty, set.span);
                    vec![]
                }
            },
        }
    }

    /// `@match(ternary)` of a value set's field.
    fn declared_match_type(&mut self, field: &sema::types::FieldInfo) -> MatchType {
        let exact = MatchType::Known(MatchKind::Exact);
        let Some(annotation) = find_annotation(&field.annotations, "match") else { return exact };
        let word = match &annotation.body {
            typed::AnnotationBody::Unstructured { tokens, .. } => tokens.first().map(|token| &*token.text),
            _ => None,
        };
        word.and_then(match_type).unwrap_or_else(|| {
            let message = "`@match` names no match kind; the field is matched exactly";
            self.diags.push(Diagnostic::warning(BAD_ANNOTATION, annotation.span, message));
            exact
        })
    }

    fn extern_object(&mut self, id: InstanceId, kind: ObjectKind, tables: &[u32]) {
        let instance = self.program.instance(id);
        if instance.hidden {
            return;
        }
        let spelled_out = ["max_group_size", "selector_size_semantics", "max_member_weight", "weights_disallowed"];
        let spelled_out: &[&str] = if kind == ObjectKind::ActionProfile { &spelled_out } else { &[] };
        let preamble = self.preamble(kind, &instance.path, &instance.annotations, spelled_out);
        let Type::Extern(extern_id, type_args) = &instance.ty else { return };
        let type_name = self.program.extern_name(*extern_id);
        let size = ["size", "n_counters", "n_meters"].iter().find_map(|name| instance.arg(name)?.to_u64()).unwrap_or(0);
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let unit = instance.args.iter().find(|arg| &*arg.name == "type").and_then(|arg| match (&arg.ty, &arg.value) {
            (Type::Enum(id), Value::Enum(member)) => {
                self.program.types.enums[id.index()].members.get(*member as usize).map(|m| m.name.to_lowercase())
            }
            _ => None,
        });
        let table = tables.first().copied();
        match kind {
            ObjectKind::Counter => {
                let index_type_name = type_args.get(1).and_then(|ty| self.types.type_name(ty).ok().flatten());
                self.info.counters.push(Counter {
                    preamble,
                    unit: counter_unit(unit.as_deref()),
                    size,
                    index_type_name,
                });
            }
            // Without a table there is nothing to count beside.
            ObjectKind::DirectCounter => {
                let unit = counter_unit(unit.as_deref());
                self.info.direct_counters.extend(table.map(|direct_table_id| DirectCounter {
                    preamble,
                    unit,
                    direct_table_id,
                }));
            }
            ObjectKind::Meter => {
                let index = if type_name == "Meter" { type_args.first() } else { type_args.get(1) };
                let index_type_name = index.and_then(|ty| self.types.type_name(ty).ok().flatten());
                self.info.meters.push(Meter { preamble, unit: meter_unit(unit.as_deref()), size, index_type_name });
            }
            ObjectKind::DirectMeter => {
                let unit = meter_unit(unit.as_deref());
                self.info.direct_meters.extend(table.map(|direct_table_id| DirectMeter {
                    preamble,
                    unit,
                    direct_table_id,
                }));
            }
            ObjectKind::Register => {
                let Some(cell) = type_args.first() else { return };
                match self.types.data_type(cell) {
                    Ok(type_spec) => {
                        let index_type_name = type_args.get(1).and_then(|ty| self.types.type_name(ty).ok().flatten());
                        let size = i32::try_from(size).unwrap_or(i32::MAX);
                        self.info.registers.push(Register { preamble, type_spec, size, index_type_name });
                    }
                    Err(ty) => self.bad_type(&format!("register `{}`", instance.path), &ty, instance.span),
                }
            }
            ObjectKind::ActionProfile => {
                let with_selector = matches!(type_name, "action_selector" | "ActionSelector");
                let profile = self.action_profile(preamble, with_selector, size, tables, &instance.annotations);
                self.info.action_profiles.push(profile);
            }
            ObjectKind::Digest => {
                if let Some(ty) = type_args.first() {
                    self.digest(preamble, ty, instance.span);
                }
            }
            ObjectKind::Action | ObjectKind::Table | ObjectKind::ValueSet | ObjectKind::ControllerHeader => {}
        }
    }

    fn action_profile(
        &mut self,
        preamble: Preamble,
        with_selector: bool,
        size: i64,
        tables: &[u32],
        source: &[Annotation],
    ) -> ActionProfile {
        let mut profile =
            ActionProfile { preamble, table_ids: tables.to_vec(), with_selector, size, ..ActionProfile::default() };
        if !with_selector {
            return profile;
        }
        let number = |name| {
            find_annotation(source, name).and_then(Annotation::as_u64).and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
        };
        profile.max_group_size = number("max_group_size");
        profile.weights_disallowed = find_annotation(source, "weights_disallowed").is_some();
        if let Some(annotation) = find_annotation(source, "selector_size_semantics") {
            profile.selector_size = match annotation.as_str().map(str::to_lowercase).as_deref() {
                Some("sum_of_weights") => Some(SelectorSize::SumOfWeights),
                Some("sum_of_members") => {
                    Some(SelectorSize::SumOfMembers { max_member_weight: number("max_member_weight") })
                }
                _ => {
                    let message = "expected `\"sum_of_weights\"` or `\"sum_of_members\"`";
                    self.diags.push(Diagnostic::warning(BAD_ANNOTATION, annotation.span, message));
                    None
                }
            };
        }
        profile
    }

    fn digest(&mut self, preamble: Preamble, ty: &Type, span: Span) {
        match self.types.data_type(ty) {
            Ok(type_spec) => self.info.digests.push(Digest { preamble, type_spec }),
            Err(ty) => self.bad_type(&format!("digest `{}`", preamble.name), &ty, span),
        }
    }

    fn controller_header(&mut self, header: &sema::types::StructInfo) {
        let annotation = find_annotation(&header.annotations, "controller_header");
        let Some(name) = annotation.and_then(Annotation::as_str) else {
            let message = "`@controller_header` needs the name `packet_in` or `packet_out`";
            self.diags.push(Diagnostic::error(BAD_ANNOTATION_ARGUMENT, header.span, message));
            return;
        };
        // The name is the annotation's; the id still comes from the type's.
        let type_name = control_name(&header.name, &header.annotations);
        let preamble = Preamble {
            id: self.id(ObjectKind::ControllerHeader, &type_name),
            name: name.to_string(),
            alias: name.to_string(),
            annotations: annotations(&header.annotations, &[]),
            doc: documentation(&header.annotations),
        };
        let id = self.program.types.structs.iter().position(|s| std::ptr::eq(s, header)).unwrap_or(0);
        let leaves = match self.types.header_fields(sema::types::StructId::from_index(id)) {
            Ok(leaves) => leaves,
            Err(ty) => return self.bad_type(&format!("a field of `{}`", header.name), &ty, header.span),
        };
        let ids = self.field_ids(leaves.iter().map(|(_, field)| (field.annotations.as_slice(), field.span)));
        let mut metadata = Vec::new();
        for ((name, field), id) in leaves.into_iter().zip(ids) {
            if find_annotation(&field.annotations, "hidden").is_some() {
                continue;
            }
            match self.types.scalar(&field.ty) {
                Ok(scalar) => metadata.push(Param {
                    id,
                    name,
                    annotations: annotations(&field.annotations, &[]),
                    doc: None,
                    bitwidth: scalar.bitwidth,
                    type_name: scalar.type_name,
                }),
                Err(ty) => self.bad_type(&format!("field `{name}`"), &ty, field.span),
            }
        }
        self.info.controller_packet_metadata.push(ControllerPacketMetadata { preamble, metadata });
    }

    fn pkg_info(&mut self, arch: &str) -> PkgInfo {
        let mut pkg = PkgInfo { arch: arch.to_string(), ..PkgInfo::default() };
        let Some(main) = self.program.main else { return pkg };
        let source = &self.program.instance(main).annotations;
        for annotation in source.iter().filter(|a| matches!(&*a.name, "pkginfo" | "platform_property")) {
            let Some(pairs) = key_values(annotation) else {
                let message = format!("`@{}` is written `(key = value, ...)`", annotation.name);
                self.diags.push(Diagnostic::warning(BAD_ANNOTATION, annotation.span, message));
                continue;
            };
            for (key, value) in pairs {
                if !set_package_property(&mut pkg, &annotation.name, &key, &value) {
                    let message = format!("`@{}` has no property `{key}` with such a value", annotation.name);
                    self.diags.push(Diagnostic::warning(BAD_ANNOTATION, annotation.span, message));
                }
            }
        }
        let others: Vec<Annotation> =
            source.iter().filter(|a| !matches!(&*a.name, "pkginfo" | "platform_property")).cloned().collect();
        pkg.annotations = annotations(&others, &[]);
        pkg.doc = documentation(source);
        pkg
    }

    fn check_duplicates(&mut self) {
        let mut seen = BTreeSet::new();
        let tables = self.info.tables.iter().map(|t| (ObjectKind::Table, &t.preamble.name));
        let counters = self.info.counters.iter().map(|c| (ObjectKind::Counter, &c.preamble.name));
        let registers = self.info.registers.iter().map(|r| (ObjectKind::Register, &r.preamble.name));
        let profiles = self.info.action_profiles.iter().map(|p| (ObjectKind::ActionProfile, &p.preamble.name));
        let headers =
            self.info.controller_packet_metadata.iter().map(|h| (ObjectKind::ControllerHeader, &h.preamble.name));
        for (kind, name) in tables.chain(counters).chain(registers).chain(profiles).chain(headers) {
            if !seen.insert((kind, name)) {
                let message = format!("two {}s have the control-plane name `{name}`", kind.noun());
                let diag = Diagnostic::error(DUPLICATE, Span::NONE, message).help("give one of them another `@name`");
                self.diags.push(diag);
            }
        }
    }
}

/// As [`BAD_ANNOTATION`], where nothing sensible can be done without it.
const BAD_ANNOTATION_ARGUMENT: &str = "E0694";

fn match_type(kind: &str) -> Option<MatchType> {
    Some(match kind {
        "exact" => MatchType::Known(MatchKind::Exact),
        "lpm" => MatchType::Known(MatchKind::Lpm),
        "ternary" => MatchType::Known(MatchKind::Ternary),
        "range" => MatchType::Known(MatchKind::Range),
        "optional" => MatchType::Known(MatchKind::Optional),
        // Input of the selector's hash; no entry matches on it.
        "selector" => return None,
        other => MatchType::Other(other.to_string()),
    })
}

fn counter_unit(member: Option<&str>) -> CounterUnit {
    match member {
        Some("bytes") => CounterUnit::Bytes,
        Some("packets") => CounterUnit::Packets,
        _ => CounterUnit::Both,
    }
}

fn meter_unit(member: Option<&str>) -> MeterUnit {
    if member == Some("bytes") { MeterUnit::Bytes } else { MeterUnit::Packets }
}

fn set_package_property(pkg: &mut PkgInfo, annotation: &str, key: &str, value: &Value) -> bool {
    let limits = |pkg: &mut PkgInfo, set: fn(&mut PlatformProperties, i32)| {
        let Some(value) = value.to_u64().and_then(|v| i32::try_from(v).ok()) else { return false };
        set(pkg.platform_properties.get_or_insert_default(), value);
        true
    };
    if annotation == "platform_property" {
        return match key {
            "multicast_group_table_size" => limits(pkg, |p, v| p.multicast_group_table_size = v),
            "multicast_group_table_total_replicas" => limits(pkg, |p, v| p.multicast_group_table_total_replicas = v),
            "multicast_group_table_max_replicas_per_entry" => {
                limits(pkg, |p, v| p.multicast_group_table_max_replicas_per_entry = v)
            }
            _ => false,
        };
    }
    let Some(text) = value.as_str().map(str::to_string) else { return false };
    match key {
        "name" => pkg.name = text,
        "version" => pkg.version = text,
        "organization" => pkg.organization = text,
        "contact" => pkg.contact = text,
        "url" => pkg.url = text,
        "arch" => pkg.arch = text,
        _ => return false,
    }
    true
}
