//! Value sets, extern objects, digests, controller headers, and the program as a whole.

use super::tables::match_type;
use super::{BAD_ANNOTATION, BAD_ANNOTATION_ARGUMENT, Builder};
use crate::annotations::{annotations, documentation, key_values};
use crate::model::*;
use crate::types::control_name;
use base::entry::MatchKind;
use base::{Diagnostic, Span};
use sema::Value;
use sema::typed::{self, Annotation, InstanceId, find_annotation};
use sema::types::{FieldInfo, StructId, Type};

impl<'p> Builder<'p> {
    pub(super) fn value_set(&mut self, instance: InstanceId, set: &typed::ValueSet) {
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
                let mut fields = Vec::new();
                self.leaf_fields(*id, "", &mut fields);
                let ids = self.field_ids(fields.iter().map(|(_, f)| (f.annotations.as_slice(), f.span)));
                let mut result = Vec::new();
                for ((name, field), id) in fields.into_iter().zip(ids) {
                    match self.types.scalar(&field.ty) {
                        Ok(scalar) => result.push(MatchField {
                            annotations: annotations(&field.annotations, &["match"], self.sources),
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

    /// Appends the leaf fields of a struct, with nested structs flattened to dotted names.
    fn leaf_fields(&self, id: StructId, prefix: &str, out: &mut Vec<(String, &'p FieldInfo)>) {
        for field in &self.program.types.structs[id.index()].fields {
            let name = format!("{prefix}{}", control_name(&field.name, &field.annotations));
            match &field.ty {
                Type::Struct(inner) => self.leaf_fields(*inner, &format!("{name}."), out),
                _ => out.push((name, field)),
            }
        }
    }

    /// The match type from `@match(ternary)` on a field of a value set.
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

    pub(super) fn extern_object(&mut self, id: InstanceId, kind: ObjectKind, tables: &[u32]) {
        let instance = self.program.instance(id);
        if instance.hidden {
            return;
        }
        let spelled_out = ["max_group_size", "selector_size_semantics", "max_member_weight", "weights_disallowed"];
        let spelled_out: &[&str] = if kind == ObjectKind::ActionProfile { &spelled_out } else { &[] };
        let preamble = self.preamble(kind, &instance.path, &instance.annotations, spelled_out);
        let Type::Extern(extern_id, type_args) = &instance.ty else { return };
        let type_name = self.program.extern_name(*extern_id);
        let size = ["size", "n_counters", "n_meters"].iter().find_map(|name| instance.arg(name)?.to_u64());
        // ebpf_model's `CounterArray` has a maximum index instead of a size.
        let last = || instance.arg("max_index")?.to_u64()?.checked_add(1);
        let size = size.or_else(last).unwrap_or(0);
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let unit = instance.args.iter().find(|arg| &*arg.name == "type").and_then(|arg| match (&arg.ty, &arg.value) {
            (Type::Enum(id), Value::Enum(member)) => {
                self.program.types.enums[id.index()].members.get(*member as usize).map(|m| m.name.to_lowercase())
            }
            _ => None,
        });
        let table = tables.first().copied();
        let meter_type = meter_type(&instance.annotations);
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
            // A direct resource that no table uses is not listed.
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
                let unit = meter_unit(unit.as_deref());
                self.info.meters.push(Meter { preamble, unit, meter_type, size, index_type_name });
            }
            ObjectKind::DirectMeter => {
                let unit = meter_unit(unit.as_deref());
                self.info.direct_meters.extend(table.map(|direct_table_id| DirectMeter {
                    preamble,
                    unit,
                    meter_type,
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

    pub(super) fn digest(&mut self, preamble: Preamble, ty: &Type, span: Span) {
        match self.types.data_type(ty) {
            Ok(type_spec) => self.info.digests.push(Digest { preamble, type_spec }),
            Err(ty) => self.bad_type(&format!("digest `{}`", preamble.name), &ty, span),
        }
    }

    pub(super) fn controller_header(&mut self, header: &sema::types::StructInfo) {
        let annotation = find_annotation(&header.annotations, "controller_header");
        let Some(name) = annotation.and_then(Annotation::as_str) else {
            let message = "`@controller_header` needs the name `packet_in` or `packet_out`";
            self.diags.push(Diagnostic::error(BAD_ANNOTATION_ARGUMENT, header.span, message));
            return;
        };
        // The name is that of the annotation; the id is derived from the name of the type.
        let type_name = control_name(&header.name, &header.annotations);
        let preamble = Preamble {
            id: self.id(ObjectKind::ControllerHeader, &type_name),
            name: name.to_string(),
            alias: name.to_string(),
            annotations: annotations(&header.annotations, &[], self.sources),
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
                    annotations: annotations(&field.annotations, &[], self.sources),
                    doc: None,
                    bitwidth: scalar.bitwidth,
                    type_name: scalar.type_name,
                }),
                Err(ty) => self.bad_type(&format!("field `{name}`"), &ty, field.span),
            }
        }
        self.info.controller_packet_metadata.push(ControllerPacketMetadata { preamble, metadata });
    }

    pub(super) fn pkg_info(&mut self, arch: &str) -> PkgInfo {
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
        pkg.annotations = annotations(&others, &[], self.sources);
        pkg.doc = documentation(source);
        pkg
    }
}

fn counter_unit(member: Option<&str>) -> CounterUnit {
    match member {
        Some("bytes") => CounterUnit::Bytes,
        Some("packets") => CounterUnit::Packets,
        _ => CounterUnit::Both,
    }
}

/// The meter type given by annotations (P4Runtime, "Meter & DirectMeter").
fn meter_type(annotations: &[Annotation]) -> MeterType {
    let has = |name| find_annotation(annotations, name).is_some();
    if has("single_rate_three_color") {
        MeterType::SingleRateThreeColor
    } else if has("single_rate_two_color") {
        MeterType::SingleRateTwoColor
    } else {
        MeterType::TwoRateThreeColor
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
