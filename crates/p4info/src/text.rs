//! P4Info in the protobuf text format, as printed by `sluice p4info` and read by other tools.
//!
//! Fields are in the order of the messages, default values are omitted, and strings and bytes are escaped as `protoc`
//! does, so that the output can be compared line by line with the reference compiler's.

use crate::model::*;
use base::Bits;
use base::entry::MatchKind;
use std::fmt::{Display, Write};

/// Prints a P4Info, with the header lines that tell editors the schema.
pub fn print(info: &P4Info) -> String {
    let mut out = Printer::default();
    out.text.push_str("# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n");
    out.p4info(info);
    out.text
}

#[derive(Default)]
struct Printer {
    text: String,
    depth: usize,
}

/// Fields by type; a default value prints nothing.
impl Printer {
    fn line(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.text, "{:1$}{name}: {value}", "", self.depth * 2);
    }

    fn number<N: Display + Default + PartialEq>(&mut self, name: &str, value: N) {
        if value != N::default() {
            self.line(name, value);
        }
    }

    fn string(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.line(name, quoted(value.as_bytes()));
        }
    }

    fn bytes(&mut self, name: &str, value: &Bits) {
        self.line(name, quoted(&canonical(value)));
    }

    fn message(&mut self, name: &str, body: impl FnOnce(&mut Printer)) {
        let _ = writeln!(self.text, "{:1$}{name} {{", "", self.depth * 2);
        self.depth += 1;
        body(self);
        self.depth -= 1;
        let _ = writeln!(self.text, "{:1$}}}", "", self.depth * 2);
    }

    fn named_type(&mut self, field: &str, name: &Option<String>) {
        if let Some(name) = name {
            self.message(field, |p| p.string("name", name));
        }
    }
}

/// The canonical byte string of a value: the shortest one, at least one byte (P4Runtime, "Bytestrings").
fn canonical(value: &Bits) -> Vec<u8> {
    let bytes = value.to_bytes_be();
    let first = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len().saturating_sub(1));
    if bytes.is_empty() { vec![0] } else { bytes[first..].to_vec() }
}

/// Bytes as a string of the text format.
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\'' => text.push_str("\\'"),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x20..=0x7e => text.push(byte as char),
            _ => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// The messages.
impl Printer {
    fn p4info(&mut self, info: &P4Info) {
        self.message("pkg_info", |p| p.pkg_info(&info.pkg_info));
        for table in &info.tables {
            self.message("tables", |p| p.table(table));
        }
        for action in &info.actions {
            self.message("actions", |p| {
                p.preamble(&action.preamble);
                for param in &action.params {
                    p.message("params", |p| p.param(param, ParamOf::Action));
                }
            });
        }
        for profile in &info.action_profiles {
            self.message("action_profiles", |p| p.action_profile(profile));
        }
        for counter in &info.counters {
            self.message("counters", |p| {
                p.preamble(&counter.preamble);
                p.counter_spec(counter.unit);
                p.number("size", counter.size);
                p.named_type("index_type_name", &counter.index_type_name);
            });
        }
        for counter in &info.direct_counters {
            self.message("direct_counters", |p| {
                p.preamble(&counter.preamble);
                p.counter_spec(counter.unit);
                p.number("direct_table_id", counter.direct_table_id);
            });
        }
        for meter in &info.meters {
            self.message("meters", |p| {
                p.preamble(&meter.preamble);
                p.meter_spec(meter.unit, meter.meter_type);
                p.number("size", meter.size);
                p.named_type("index_type_name", &meter.index_type_name);
            });
        }
        for meter in &info.direct_meters {
            self.message("direct_meters", |p| {
                p.preamble(&meter.preamble);
                p.meter_spec(meter.unit, meter.meter_type);
                p.number("direct_table_id", meter.direct_table_id);
            });
        }
        for header in &info.controller_packet_metadata {
            self.message("controller_packet_metadata", |p| {
                p.preamble(&header.preamble);
                for field in &header.metadata {
                    p.message("metadata", |p| p.param(field, ParamOf::Header));
                }
            });
        }
        for set in &info.value_sets {
            self.message("value_sets", |p| {
                p.preamble(&set.preamble);
                for field in &set.match_fields {
                    p.message("match", |p| p.match_field(field));
                }
                p.number("size", set.size);
            });
        }
        for register in &info.registers {
            self.message("registers", |p| {
                p.preamble(&register.preamble);
                p.message("type_spec", |p| p.data_type(&register.type_spec));
                p.number("size", register.size);
                p.named_type("index_type_name", &register.index_type_name);
            });
        }
        for digest in &info.digests {
            self.message("digests", |p| {
                p.preamble(&digest.preamble);
                p.message("type_spec", |p| p.data_type(&digest.type_spec));
            });
        }
        for group in &info.externs {
            self.message("externs", |p| {
                p.number("extern_type_id", group.extern_type_id);
                p.string("extern_type_name", &group.extern_type_name);
                for instance in &group.instances {
                    p.message("instances", |p| p.preamble(instance));
                }
            });
        }
        self.message("type_info", |p| p.type_info(&info.type_info));
    }

    fn pkg_info(&mut self, pkg: &PkgInfo) {
        self.string("name", &pkg.name);
        self.string("version", &pkg.version);
        self.documentation(&pkg.doc);
        self.plain_annotations(&pkg.annotations);
        self.string("arch", &pkg.arch);
        self.string("organization", &pkg.organization);
        self.string("contact", &pkg.contact);
        self.string("url", &pkg.url);
        self.structured_annotations(&pkg.annotations);
        if let Some(limits) = &pkg.platform_properties {
            self.message("platform_properties", |p| {
                p.number("multicast_group_table_size", limits.multicast_group_table_size);
                p.number("multicast_group_table_total_replicas", limits.multicast_group_table_total_replicas);
                p.number(
                    "multicast_group_table_max_replicas_per_entry",
                    limits.multicast_group_table_max_replicas_per_entry,
                );
            });
        }
    }

    fn preamble(&mut self, preamble: &Preamble) {
        self.message("preamble", |p| {
            p.number("id", preamble.id);
            p.string("name", &preamble.name);
            p.string("alias", &preamble.alias);
            p.plain_annotations(&preamble.annotations);
            p.documentation(&preamble.doc);
            p.structured_annotations(&preamble.annotations);
        });
    }

    fn documentation(&mut self, doc: &Option<Documentation>) {
        if let Some(doc) = doc {
            self.message("doc", |p| {
                p.string("brief", &doc.brief);
                p.string("description", &doc.description);
            });
        }
    }

    fn plain_annotations(&mut self, annotations: &Annotations) {
        for annotation in &annotations.plain {
            self.string("annotations", annotation);
        }
        for at in &annotations.plain_at {
            self.message("annotation_locations", |p| p.location(at));
        }
    }

    fn location(&mut self, at: &SourceLocation) {
        self.string("file", &at.file);
        self.number("line", u64::from(at.line));
        self.number("column", u64::from(at.column));
    }

    fn structured_annotations(&mut self, annotations: &Annotations) {
        for annotation in &annotations.structured {
            self.message("structured_annotations", |p| {
                p.string("name", &annotation.name);
                match &annotation.body {
                    StructuredBody::Empty => {}
                    StructuredBody::Expressions(list) => p.message("expression_list", |p| {
                        for expression in list {
                            p.message("expressions", |p| p.expression(expression));
                        }
                    }),
                    StructuredBody::KeyValues(pairs) => p.message("kv_pair_list", |p| {
                        for (key, value) in pairs {
                            p.message("kv_pairs", |p| {
                                p.string("key", key);
                                p.message("value", |p| p.expression(value));
                            });
                        }
                    }),
                }
                if annotation.at != SourceLocation::default() {
                    p.message("source_location", |p| p.location(&annotation.at));
                }
            });
        }
    }

    /// Members of a `oneof` are printed even when they hold the default.
    fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::String(value) => self.line("string_value", quoted(value.as_bytes())),
            Expression::Int64(value) => self.line("int64_value", value),
            Expression::Bool(value) => self.line("bool_value", value),
        }
    }

    fn table(&mut self, table: &Table) {
        self.preamble(&table.preamble);
        for field in &table.match_fields {
            self.message("match_fields", |p| p.match_field(field));
        }
        for action in &table.action_refs {
            self.message("action_refs", |p| {
                p.number("id", action.id);
                p.plain_annotations(&action.annotations);
                match action.scope {
                    ActionScope::TableAndDefault => {}
                    ActionScope::TableOnly => p.line("scope", "TABLE_ONLY"),
                    ActionScope::GroupAction => p.line("scope", "GROUP_ACTION"),
                    ActionScope::DefaultOnly => p.line("scope", "DEFAULT_ONLY"),
                }
                p.structured_annotations(&action.annotations);
            });
        }
        self.number("const_default_action_id", table.const_default_action_id.unwrap_or(0));
        if let Some(call) = &table.initial_default_action {
            self.message("initial_default_action", |p| {
                p.number("action_id", call.action_id);
                for (param, value) in &call.arguments {
                    p.message("arguments", |p| {
                        p.number("param_id", *param);
                        p.bytes("value", value);
                    });
                }
            });
        }
        self.number("implementation_id", table.implementation_id.unwrap_or(0));
        for id in &table.direct_resource_ids {
            self.number("direct_resource_ids", *id);
        }
        self.number("size", table.size);
        if table.idle_timeout {
            self.line("idle_timeout_behavior", "NOTIFY_CONTROL");
        }
        self.number("is_const_table", table.is_const_table);
        self.number("has_initial_entries", table.has_initial_entries);
    }

    fn match_field(&mut self, field: &MatchField) {
        self.number("id", field.id);
        self.string("name", &field.name);
        self.plain_annotations(&field.annotations);
        self.number("bitwidth", field.bitwidth);
        match &field.match_type {
            MatchType::Known(kind) => self.line("match_type", match_type_name(*kind)),
            MatchType::Other(_) => {}
        }
        self.documentation(&field.doc);
        if let MatchType::Other(name) = &field.match_type {
            self.line("other_match_type", quoted(name.as_bytes()));
        }
        self.named_type("type_name", &field.type_name);
        self.structured_annotations(&field.annotations);
    }

    fn param(&mut self, param: &Param, of: ParamOf) {
        self.number("id", param.id);
        self.string("name", &param.name);
        self.plain_annotations(&param.annotations);
        self.number("bitwidth", param.bitwidth);
        if of == ParamOf::Action {
            self.documentation(&param.doc);
        }
        self.named_type("type_name", &param.type_name);
        self.structured_annotations(&param.annotations);
    }

    fn action_profile(&mut self, profile: &ActionProfile) {
        self.preamble(&profile.preamble);
        for id in &profile.table_ids {
            self.number("table_ids", *id);
        }
        self.number("with_selector", profile.with_selector);
        self.number("size", profile.size);
        self.number("max_group_size", profile.max_group_size);
        match profile.selector_size {
            None => {}
            Some(SelectorSize::SumOfWeights) => self.message("sum_of_weights", |_| {}),
            Some(SelectorSize::SumOfMembers { max_member_weight }) => {
                self.message("sum_of_members", |p| p.number("max_member_weight", max_member_weight));
            }
        }
        self.number("weights_disallowed", profile.weights_disallowed);
    }

    fn counter_spec(&mut self, unit: CounterUnit) {
        let unit = match unit {
            CounterUnit::Bytes => "BYTES",
            CounterUnit::Packets => "PACKETS",
            CounterUnit::Both => "BOTH",
        };
        self.message("spec", |p| p.line("unit", unit));
    }

    fn meter_spec(&mut self, unit: MeterUnit, meter_type: MeterType) {
        let unit = match unit {
            MeterUnit::Bytes => "BYTES",
            MeterUnit::Packets => "PACKETS",
        };
        let name = match meter_type {
            MeterType::TwoRateThreeColor => None,
            MeterType::SingleRateThreeColor => Some("SINGLE_RATE_THREE_COLOR"),
            MeterType::SingleRateTwoColor => Some("SINGLE_RATE_TWO_COLOR"),
        };
        self.message("spec", |p| {
            p.line("unit", unit);
            // The default is not printed.
            name.into_iter().for_each(|name| p.line("type", name));
        });
    }
}

/// The enumerator of a match kind in `MatchField.MatchType`.
pub fn match_type_name(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Exact => "EXACT",
        MatchKind::Lpm => "LPM",
        MatchKind::Ternary => "TERNARY",
        MatchKind::Range => "RANGE",
        MatchKind::Optional => "OPTIONAL",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParamOf {
    Action,
    Header,
}

/// Types.
impl Printer {
    fn data_type(&mut self, data_type: &DataType) {
        match data_type {
            DataType::Bit(_) | DataType::Int(_) | DataType::Varbit(_) => {
                self.message("bitstring", |p| p.bitstring_like(data_type));
            }
            DataType::Bool => self.message("bool", |_| {}),
            DataType::Tuple(members) => self.message("tuple", |p| {
                for member in members {
                    p.message("members", |p| p.data_type(member));
                }
            }),
            DataType::Struct(name) => self.message("struct", |p| p.string("name", name)),
            DataType::Header(name) => self.message("header", |p| p.string("name", name)),
            DataType::HeaderUnion(name) => self.message("header_union", |p| p.string("name", name)),
            DataType::HeaderStack { header, size } => self.message("header_stack", |p| {
                p.message("header", |p| p.string("name", header));
                p.number("size", *size);
            }),
            DataType::HeaderUnionStack { header_union, size } => self.message("header_union_stack", |p| {
                p.message("header_union", |p| p.string("name", header_union));
                p.number("size", *size);
            }),
            DataType::Enum(name) => self.message("enum", |p| p.string("name", name)),
            DataType::Error => self.message("error", |_| {}),
            DataType::SerializableEnum(name) => self.message("serializable_enum", |p| p.string("name", name)),
            DataType::NewType(name) => self.message("new_type", |p| p.string("name", name)),
        }
    }

    /// The message that header fields hold directly and other types hold in the field `bitstring`.
    fn bitstring_like(&mut self, data_type: &DataType) {
        match data_type {
            DataType::Bit(width) => self.message("bit", |p| p.number("bitwidth", *width)),
            DataType::Int(width) => self.message("int", |p| p.number("bitwidth", *width)),
            DataType::Varbit(width) => self.message("varbit", |p| p.number("max_bitwidth", *width)),
            // Header fields of other types have been flattened.
            _ => {}
        }
    }

    fn type_info(&mut self, types: &TypeInfo) {
        for (name, spec) in &types.structs {
            self.map_entry("structs", name, &spec.annotations, |p| {
                for (name, data_type) in &spec.members {
                    p.message("members", |p| {
                        p.string("name", name);
                        p.message("type_spec", |p| p.data_type(data_type));
                    });
                }
            });
        }
        for (name, spec) in &types.headers {
            self.map_entry("headers", name, &spec.annotations, |p| {
                for (name, data_type) in &spec.members {
                    p.message("members", |p| {
                        p.string("name", name);
                        p.message("type_spec", |p| p.bitstring_like(data_type));
                    });
                }
            });
        }
        for (name, spec) in &types.header_unions {
            self.map_entry("header_unions", name, &spec.annotations, |p| {
                for (name, data_type) in &spec.members {
                    p.message("members", |p| {
                        p.string("name", name);
                        p.data_type(data_type);
                    });
                }
            });
        }
        for (name, spec) in &types.enums {
            self.map_entry("enums", name, &spec.annotations, |p| {
                for name in &spec.members {
                    p.message("members", |p| p.string("name", name));
                }
            });
        }
        if let Some(members) = &types.error {
            self.message("error", |p| members.iter().for_each(|name| p.string("members", name)));
        }
        for (name, spec) in &types.serializable_enums {
            self.map_entry("serializable_enums", name, &spec.annotations, |p| {
                p.message("underlying_type", |p| p.number("bitwidth", spec.bitwidth));
                for (name, value) in &spec.members {
                    p.message("members", |p| {
                        p.string("name", name);
                        p.bytes("value", value);
                    });
                }
            });
        }
        for (name, spec) in &types.new_types {
            self.map_entry("new_types", name, &spec.annotations, |p| match &spec.translation {
                None => p.message("original_type", |p| p.data_type(&spec.underlying)),
                Some(translation) => p.message("translated_type", |p| {
                    p.string("uri", &translation.uri);
                    match translation.sdn_type {
                        SdnType::Bits(width) => p.line("sdn_bitwidth", width),
                        SdnType::String => p.message("sdn_string", |_| {}),
                    }
                }),
            });
        }
    }

    fn map_entry(&mut self, map: &str, key: &str, annotations: &Annotations, value: impl FnOnce(&mut Printer)) {
        self.message(map, |p| {
            p.string("key", key);
            p.message("value", |p| {
                value(p);
                p.plain_annotations(annotations);
                p.structured_annotations(annotations);
            });
        });
    }
}

#[cfg(test)]
mod tests;
