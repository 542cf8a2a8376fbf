//! Conversion of P4Info to messages, and the parts of a controller's P4Info that are checked.
//!
//! A controller sends the P4Info that it was built with along with the program. The switch compiles the program itself
//! and derives its own P4Info; [`claims`] extracts the parts of the controller's that must agree with it.

use crate::proto::p4::config::v1 as pb;
use ::p4info as model;
use base::entry::MatchKind;
use control::bytes::canonical;
use control::forwarding::Claim;
use model::ObjectKind;

/// Converts a whole P4Info.
pub fn to_proto(info: &model::P4Info) -> pb::P4Info {
    pb::P4Info {
        pkg_info: Some(pkg_info(&info.pkg_info)),
        tables: info.tables.iter().map(table).collect(),
        actions: info.actions.iter().map(action).collect(),
        action_profiles: info.action_profiles.iter().map(action_profile).collect(),
        counters: info
            .counters
            .iter()
            .map(|counter| pb::Counter {
                preamble: preamble(&counter.preamble),
                spec: counter_spec(counter.unit),
                size: counter.size,
                index_type_name: named(&counter.index_type_name),
            })
            .collect(),
        direct_counters: info
            .direct_counters
            .iter()
            .map(|counter| pb::DirectCounter {
                preamble: preamble(&counter.preamble),
                spec: counter_spec(counter.unit),
                direct_table_id: counter.direct_table_id,
            })
            .collect(),
        meters: info
            .meters
            .iter()
            .map(|meter| pb::Meter {
                preamble: preamble(&meter.preamble),
                spec: meter_spec(meter.unit, meter.meter_type),
                size: meter.size,
                index_type_name: named(&meter.index_type_name),
            })
            .collect(),
        direct_meters: info
            .direct_meters
            .iter()
            .map(|meter| pb::DirectMeter {
                preamble: preamble(&meter.preamble),
                spec: meter_spec(meter.unit, meter.meter_type),
                direct_table_id: meter.direct_table_id,
            })
            .collect(),
        controller_packet_metadata: info.controller_packet_metadata.iter().map(controller_header).collect(),
        value_sets: info
            .value_sets
            .iter()
            .map(|set| pb::ValueSet {
                preamble: preamble(&set.preamble),
                r#match: set.match_fields.iter().map(match_field).collect(),
                size: set.size,
            })
            .collect(),
        registers: info
            .registers
            .iter()
            .map(|register| pb::Register {
                preamble: preamble(&register.preamble),
                type_spec: Some(data_type(&register.type_spec)),
                size: register.size,
                index_type_name: named(&register.index_type_name),
            })
            .collect(),
        digests: info
            .digests
            .iter()
            .map(|digest| pb::Digest {
                preamble: preamble(&digest.preamble),
                type_spec: Some(data_type(&digest.type_spec)),
            })
            .collect(),
        externs: info
            .externs
            .iter()
            .map(|group| pb::Extern {
                extern_type_id: group.extern_type_id,
                extern_type_name: group.extern_type_name.clone(),
                instances: group
                    .instances
                    .iter()
                    .map(|instance| pb::ExternInstance { preamble: preamble(instance), info: None })
                    .collect(),
            })
            .collect(),
        type_info: Some(type_info(&info.type_info)),
    }
}

fn int32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn pkg_info(pkg: &model::PkgInfo) -> pb::PkgInfo {
    pb::PkgInfo {
        name: pkg.name.clone(),
        version: pkg.version.clone(),
        doc: documentation(&pkg.doc),
        annotations: pkg.annotations.plain.clone(),
        annotation_locations: locations(&pkg.annotations),
        arch: pkg.arch.clone(),
        organization: pkg.organization.clone(),
        contact: pkg.contact.clone(),
        url: pkg.url.clone(),
        structured_annotations: structured(&pkg.annotations),
        platform_properties: pkg.platform_properties.map(|limits| pb::PlatformProperties {
            multicast_group_table_size: limits.multicast_group_table_size,
            multicast_group_table_total_replicas: limits.multicast_group_table_total_replicas,
            multicast_group_table_max_replicas_per_entry: limits.multicast_group_table_max_replicas_per_entry,
        }),
    }
}

fn preamble(preamble: &model::Preamble) -> Option<pb::Preamble> {
    Some(pb::Preamble {
        id: preamble.id,
        name: preamble.name.clone(),
        alias: preamble.alias.clone(),
        annotations: preamble.annotations.plain.clone(),
        annotation_locations: locations(&preamble.annotations),
        doc: documentation(&preamble.doc),
        structured_annotations: structured(&preamble.annotations),
    })
}

fn documentation(doc: &Option<model::Documentation>) -> Option<pb::Documentation> {
    doc.as_ref().map(|doc| pb::Documentation { brief: doc.brief.clone(), description: doc.description.clone() })
}

fn locations(annotations: &model::Annotations) -> Vec<pb::SourceLocation> {
    annotations.plain_at.iter().map(location).collect()
}

fn location(at: &model::SourceLocation) -> pb::SourceLocation {
    pb::SourceLocation { file: at.file.clone(), line: int32(at.line), column: int32(at.column) }
}

fn structured(annotations: &model::Annotations) -> Vec<pb::StructuredAnnotation> {
    use pb::structured_annotation::Body;
    let annotations = annotations.structured.iter();
    annotations
        .map(|annotation| pb::StructuredAnnotation {
            name: annotation.name.clone(),
            body: match &annotation.body {
                model::StructuredBody::Empty => None,
                model::StructuredBody::Expressions(list) => Some(Body::ExpressionList(pb::ExpressionList {
                    expressions: list.iter().map(expression).collect(),
                })),
                model::StructuredBody::KeyValues(pairs) => Some(Body::KvPairList(pb::KeyValuePairList {
                    kv_pairs: pairs
                        .iter()
                        .map(|(key, value)| pb::KeyValuePair { key: key.clone(), value: Some(expression(value)) })
                        .collect(),
                })),
            },
            source_location: Some(&annotation.at).filter(|at| at.line > 0).map(location),
        })
        .collect()
}

fn expression(expression: &model::Expression) -> pb::Expression {
    use pb::expression::Value;
    let value = match expression {
        model::Expression::String(value) => Value::StringValue(value.clone()),
        model::Expression::Int64(value) => Value::Int64Value(*value),
        model::Expression::Bool(value) => Value::BoolValue(*value),
    };
    pb::Expression { value: Some(value) }
}

fn named(name: &Option<String>) -> Option<pb::P4NamedType> {
    name.as_ref().map(|name| pb::P4NamedType { name: name.clone() })
}

fn named_type(name: &str) -> pb::P4NamedType {
    pb::P4NamedType { name: name.to_string() }
}

fn table(table: &model::Table) -> pb::Table {
    use pb::table::IdleTimeoutBehavior;
    let idle_timeout =
        if table.idle_timeout { IdleTimeoutBehavior::NotifyControl } else { IdleTimeoutBehavior::NoTimeout };
    pb::Table {
        preamble: preamble(&table.preamble),
        match_fields: table.match_fields.iter().map(match_field).collect(),
        action_refs: table.action_refs.iter().map(action_ref).collect(),
        const_default_action_id: table.const_default_action_id.unwrap_or(0),
        initial_default_action: table.initial_default_action.as_ref().map(|call| pb::TableActionCall {
            action_id: call.action_id,
            arguments: call
                .arguments
                .iter()
                .map(|(id, value)| pb::table_action_call::Argument { param_id: *id, value: canonical(value) })
                .collect(),
        }),
        implementation_id: table.implementation_id.unwrap_or(0),
        direct_resource_ids: table.direct_resource_ids.clone(),
        size: table.size,
        idle_timeout_behavior: idle_timeout.into(),
        is_const_table: table.is_const_table,
        has_initial_entries: table.has_initial_entries,
        other_properties: None,
    }
}

fn action_ref(action: &model::ActionRef) -> pb::ActionRef {
    use pb::action_ref::Scope;
    let scope = match action.scope {
        model::ActionScope::TableAndDefault => Scope::TableAndDefault,
        model::ActionScope::TableOnly => Scope::TableOnly,
        model::ActionScope::DefaultOnly => Scope::DefaultOnly,
        model::ActionScope::GroupAction => Scope::GroupAction,
    };
    pb::ActionRef {
        id: action.id,
        scope: scope.into(),
        annotations: action.annotations.plain.clone(),
        annotation_locations: locations(&action.annotations),
        structured_annotations: structured(&action.annotations),
    }
}

fn match_field(field: &model::MatchField) -> pb::MatchField {
    use pb::match_field::{Match, MatchType};
    let kind = match &field.match_type {
        model::MatchType::Known(MatchKind::Exact) => Match::MatchType(MatchType::Exact.into()),
        model::MatchType::Known(MatchKind::Lpm) => Match::MatchType(MatchType::Lpm.into()),
        model::MatchType::Known(MatchKind::Ternary) => Match::MatchType(MatchType::Ternary.into()),
        model::MatchType::Known(MatchKind::Range) => Match::MatchType(MatchType::Range.into()),
        model::MatchType::Known(MatchKind::Optional) => Match::MatchType(MatchType::Optional.into()),
        model::MatchType::Other(name) => Match::OtherMatchType(name.clone()),
    };
    pb::MatchField {
        id: field.id,
        name: field.name.clone(),
        annotations: field.annotations.plain.clone(),
        annotation_locations: locations(&field.annotations),
        bitwidth: int32(field.bitwidth),
        r#match: Some(kind),
        doc: documentation(&field.doc),
        type_name: named(&field.type_name),
        structured_annotations: structured(&field.annotations),
    }
}

fn action(action: &model::Action) -> pb::Action {
    pb::Action {
        preamble: preamble(&action.preamble),
        params: action
            .params
            .iter()
            .map(|param| pb::action::Param {
                id: param.id,
                name: param.name.clone(),
                annotations: param.annotations.plain.clone(),
                annotation_locations: locations(&param.annotations),
                bitwidth: int32(param.bitwidth),
                doc: documentation(&param.doc),
                type_name: named(&param.type_name),
                structured_annotations: structured(&param.annotations),
            })
            .collect(),
    }
}

fn action_profile(profile: &model::ActionProfile) -> pb::ActionProfile {
    use pb::action_profile::{SelectorSizeSemantics, SumOfMembers, SumOfWeights};
    pb::ActionProfile {
        preamble: preamble(&profile.preamble),
        table_ids: profile.table_ids.clone(),
        with_selector: profile.with_selector,
        size: profile.size,
        max_group_size: profile.max_group_size,
        weights_disallowed: profile.weights_disallowed,
        selector_size_semantics: profile.selector_size.map(|size| match size {
            model::SelectorSize::SumOfWeights => SelectorSizeSemantics::SumOfWeights(SumOfWeights {}),
            model::SelectorSize::SumOfMembers { max_member_weight } => {
                SelectorSizeSemantics::SumOfMembers(SumOfMembers { max_member_weight })
            }
        }),
    }
}

fn counter_spec(unit: model::CounterUnit) -> Option<pb::CounterSpec> {
    use pb::counter_spec::Unit;
    let unit = match unit {
        model::CounterUnit::Bytes => Unit::Bytes,
        model::CounterUnit::Packets => Unit::Packets,
        model::CounterUnit::Both => Unit::Both,
    };
    Some(pb::CounterSpec { unit: unit.into() })
}

fn meter_spec(unit: model::MeterUnit, meter_type: model::MeterType) -> Option<pb::MeterSpec> {
    use pb::meter_spec::{Type, Unit};
    let unit = match unit {
        model::MeterUnit::Bytes => Unit::Bytes,
        model::MeterUnit::Packets => Unit::Packets,
    };
    let meter_type = match meter_type {
        model::MeterType::TwoRateThreeColor => Type::TwoRateThreeColor,
        model::MeterType::SingleRateThreeColor => Type::SingleRateThreeColor,
        model::MeterType::SingleRateTwoColor => Type::SingleRateTwoColor,
    };
    Some(pb::MeterSpec { unit: unit.into(), r#type: meter_type.into() })
}

fn controller_header(header: &model::ControllerPacketMetadata) -> pb::ControllerPacketMetadata {
    pb::ControllerPacketMetadata {
        preamble: preamble(&header.preamble),
        metadata: header
            .metadata
            .iter()
            .map(|field| pb::controller_packet_metadata::Metadata {
                id: field.id,
                name: field.name.clone(),
                annotations: field.annotations.plain.clone(),
                annotation_locations: locations(&field.annotations),
                bitwidth: int32(field.bitwidth),
                type_name: named(&field.type_name),
                structured_annotations: structured(&field.annotations),
            })
            .collect(),
    }
}

fn data_type(data_type: &model::DataType) -> pb::P4DataTypeSpec {
    use model::DataType;
    use pb::p4_data_type_spec::TypeSpec;
    let spec = match data_type {
        DataType::Bit(_) | DataType::Int(_) | DataType::Varbit(_) => TypeSpec::Bitstring(bitstring_like(data_type)),
        DataType::Bool => TypeSpec::Bool(pb::P4BoolType {}),
        DataType::Tuple(members) => {
            TypeSpec::Tuple(pb::P4TupleTypeSpec { members: members.iter().map(self::data_type).collect() })
        }
        DataType::Struct(name) => TypeSpec::Struct(named_type(name)),
        DataType::Header(name) => TypeSpec::Header(named_type(name)),
        DataType::HeaderUnion(name) => TypeSpec::HeaderUnion(named_type(name)),
        DataType::HeaderStack { header, size } => {
            TypeSpec::HeaderStack(pb::P4HeaderStackTypeSpec { header: Some(named_type(header)), size: int32(*size) })
        }
        DataType::HeaderUnionStack { header_union, size } => {
            TypeSpec::HeaderUnionStack(pb::P4HeaderUnionStackTypeSpec {
                header_union: Some(named_type(header_union)),
                size: int32(*size),
            })
        }
        DataType::Enum(name) => TypeSpec::Enum(named_type(name)),
        DataType::Error => TypeSpec::Error(pb::P4ErrorType {}),
        DataType::SerializableEnum(name) => TypeSpec::SerializableEnum(named_type(name)),
        DataType::NewType(name) => TypeSpec::NewType(named_type(name)),
    };
    pb::P4DataTypeSpec { type_spec: Some(spec) }
}

/// The type of a header field. Other types than these three were flattened before.
fn bitstring_like(data_type: &model::DataType) -> pb::P4BitstringLikeTypeSpec {
    use pb::p4_bitstring_like_type_spec::TypeSpec;
    let type_spec = match data_type {
        model::DataType::Bit(width) => Some(TypeSpec::Bit(pb::P4BitTypeSpec { bitwidth: int32(*width) })),
        model::DataType::Int(width) => Some(TypeSpec::Int(pb::P4IntTypeSpec { bitwidth: int32(*width) })),
        model::DataType::Varbit(width) => Some(TypeSpec::Varbit(pb::P4VarbitTypeSpec { max_bitwidth: int32(*width) })),
        _ => None,
    };
    pb::P4BitstringLikeTypeSpec { type_spec, ..Default::default() }
}

fn type_info(types: &model::TypeInfo) -> pb::P4TypeInfo {
    pb::P4TypeInfo {
        structs: types.structs.iter().map(|(name, spec)| (name.clone(), struct_type(spec))).collect(),
        headers: types.headers.iter().map(|(name, spec)| (name.clone(), header_type(spec))).collect(),
        header_unions: types.header_unions.iter().map(|(name, spec)| (name.clone(), header_union(spec))).collect(),
        enums: types.enums.iter().map(|(name, spec)| (name.clone(), enum_type(spec))).collect(),
        error: types.error.as_ref().map(|members| pb::P4ErrorTypeSpec { members: members.clone() }),
        serializable_enums: types
            .serializable_enums
            .iter()
            .map(|(name, spec)| (name.clone(), serializable_enum(spec)))
            .collect(),
        new_types: types.new_types.iter().map(|(name, spec)| (name.clone(), new_type(spec))).collect(),
    }
}

fn struct_type(spec: &model::StructType) -> pb::P4StructTypeSpec {
    pb::P4StructTypeSpec {
        members: spec
            .members
            .iter()
            .map(|(name, member)| pb::p4_struct_type_spec::Member {
                name: name.clone(),
                type_spec: Some(data_type(member)),
            })
            .collect(),
        annotations: spec.annotations.plain.clone(),
        annotation_locations: locations(&spec.annotations),
        structured_annotations: structured(&spec.annotations),
    }
}

fn header_type(spec: &model::StructType) -> pb::P4HeaderTypeSpec {
    pb::P4HeaderTypeSpec {
        members: spec
            .members
            .iter()
            .map(|(name, member)| pb::p4_header_type_spec::Member {
                name: name.clone(),
                type_spec: Some(bitstring_like(member)),
            })
            .collect(),
        annotations: spec.annotations.plain.clone(),
        annotation_locations: locations(&spec.annotations),
        structured_annotations: structured(&spec.annotations),
    }
}

fn header_union(spec: &model::StructType) -> pb::P4HeaderUnionTypeSpec {
    let member = |(name, member): &(String, model::DataType)| pb::p4_header_union_type_spec::Member {
        name: name.clone(),
        header: match member {
            model::DataType::Header(header) => Some(named_type(header)),
            _ => None,
        },
    };
    pb::P4HeaderUnionTypeSpec {
        members: spec.members.iter().map(member).collect(),
        annotations: spec.annotations.plain.clone(),
        annotation_locations: locations(&spec.annotations),
        structured_annotations: structured(&spec.annotations),
    }
}

fn enum_type(spec: &model::EnumType) -> pb::P4EnumTypeSpec {
    pb::P4EnumTypeSpec {
        members: spec
            .members
            .iter()
            .map(|name| pb::p4_enum_type_spec::Member { name: name.clone(), ..Default::default() })
            .collect(),
        annotations: spec.annotations.plain.clone(),
        annotation_locations: locations(&spec.annotations),
        structured_annotations: structured(&spec.annotations),
    }
}

fn serializable_enum(spec: &model::SerializableEnumType) -> pb::P4SerializableEnumTypeSpec {
    pb::P4SerializableEnumTypeSpec {
        underlying_type: Some(pb::P4BitTypeSpec { bitwidth: int32(spec.bitwidth) }),
        members: spec
            .members
            .iter()
            .map(|(name, value)| pb::p4_serializable_enum_type_spec::Member {
                name: name.clone(),
                value: canonical(value),
                ..Default::default()
            })
            .collect(),
        annotations: spec.annotations.plain.clone(),
        annotation_locations: locations(&spec.annotations),
        structured_annotations: structured(&spec.annotations),
    }
}

fn new_type(spec: &model::NewType) -> pb::P4NewTypeSpec {
    use pb::p4_new_type_spec::Representation;
    use pb::p4_new_type_translation::{SdnString, SdnType};
    let representation = match &spec.translation {
        None => Representation::OriginalType(data_type(&spec.underlying)),
        Some(translation) => Representation::TranslatedType(pb::P4NewTypeTranslation {
            uri: translation.uri.clone(),
            sdn_type: Some(match translation.sdn_type {
                model::SdnType::Bits(width) => SdnType::SdnBitwidth(int32(width)),
                model::SdnType::String => SdnType::SdnString(SdnString {}),
            }),
        }),
    };
    pb::P4NewTypeSpec {
        representation: Some(representation),
        annotations: spec.annotations.plain.clone(),
        annotation_locations: locations(&spec.annotations),
        structured_annotations: structured(&spec.annotations),
    }
}

/// The platform properties that a P4Info requires.
pub fn platform(info: &pb::P4Info) -> Option<model::PlatformProperties> {
    let asked = info.pkg_info.as_ref()?.platform_properties.as_ref()?;
    Some(model::PlatformProperties {
        multicast_group_table_size: asked.multicast_group_table_size,
        multicast_group_table_total_replicas: asked.multicast_group_table_total_replicas,
        multicast_group_table_max_replicas_per_entry: asked.multicast_group_table_max_replicas_per_entry,
    })
}

/// How many bytes of a program's text are searched for the name of its file.
const NAMED_BYTES_MAX: usize = 1 << 16;

/// Limit on the characters of a program's name.
const NAME_CHARS_MAX: usize = 128;

/// The name of a controller's program: from its P4Info (`@pkginfo(name="...")`), else from the first line marker of
/// preprocessed text; empty if there is neither. Operators see it in tables and messages, so it is a short line without
/// control characters.
pub fn program_name(info: &pb::P4Info, source: &[u8]) -> String {
    let name = given_name(info, source);
    name.trim().chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

fn given_name(info: &pb::P4Info, source: &[u8]) -> String {
    let of_info = info.pkg_info.as_ref().map_or("", |package| package.name.trim());
    if !of_info.is_empty() {
        return of_info.to_string();
    }
    let text = String::from_utf8_lossy(&source[..source.len().min(NAMED_BYTES_MAX)]);
    // `# 1 "router.p4"` or `#line 1 "router.p4"`.
    let of_marker = |line: &str| {
        let rest = line.strip_prefix('#')?.trim_start();
        let rest = rest.strip_prefix("line").unwrap_or(rest).trim_start();
        let quoted = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().strip_prefix('"')?;
        let (name, _) = quoted.split_once('"')?;
        (rest.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && !name.starts_with('<'))
            .then(|| name.to_string())
    };
    text.lines().find_map(of_marker).unwrap_or_default()
}

/// The ids and widths in a controller's P4Info. Objects without a preamble are skipped.
pub fn claims(info: &pb::P4Info) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut claim = |kind: ObjectKind, preamble: &Option<pb::Preamble>, fields: Vec<(u32, i32)>| {
        if let Some(preamble) = preamble {
            let fields = fields.into_iter().map(|(id, width)| (id, u32::try_from(width).unwrap_or(0))).collect();
            claims.push(Claim { kind, id: preamble.id, name: preamble.name.clone(), fields });
        }
    };
    let widths = |fields: &[pb::MatchField]| fields.iter().map(|f| (f.id, f.bitwidth)).collect::<Vec<_>>();
    for object in &info.tables {
        claim(ObjectKind::Table, &object.preamble, widths(&object.match_fields));
    }
    for object in &info.actions {
        claim(ObjectKind::Action, &object.preamble, object.params.iter().map(|p| (p.id, p.bitwidth)).collect());
    }
    for object in &info.value_sets {
        claim(ObjectKind::ValueSet, &object.preamble, widths(&object.r#match));
    }
    for object in &info.controller_packet_metadata {
        let fields = object.metadata.iter().map(|m| (m.id, m.bitwidth)).collect();
        claim(ObjectKind::ControllerHeader, &object.preamble, fields);
    }
    info.action_profiles.iter().for_each(|o| claim(ObjectKind::ActionProfile, &o.preamble, vec![]));
    info.counters.iter().for_each(|o| claim(ObjectKind::Counter, &o.preamble, vec![]));
    info.direct_counters.iter().for_each(|o| claim(ObjectKind::DirectCounter, &o.preamble, vec![]));
    info.meters.iter().for_each(|o| claim(ObjectKind::Meter, &o.preamble, vec![]));
    info.direct_meters.iter().for_each(|o| claim(ObjectKind::DirectMeter, &o.preamble, vec![]));
    info.registers.iter().for_each(|o| claim(ObjectKind::Register, &o.preamble, vec![]));
    info.digests.iter().for_each(|o| claim(ObjectKind::Digest, &o.preamble, vec![]));
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_cannot_write_to_the_operators_terminal() {
        let package = pb::PkgInfo { name: format!("\u{1b}[2Ja\r\n{}", "b".repeat(1 << 20)), ..Default::default() };
        let info = pb::P4Info { pkg_info: Some(package), ..Default::default() };
        let name = program_name(&info, b"");
        assert!(name.starts_with("[2Jabbb") && name.chars().count() == NAME_CHARS_MAX, "{name}");
    }

    #[test]
    fn a_controllers_program_is_named_by_its_p4info_or_file() {
        let named = pb::P4Info {
            pkg_info: Some(pb::PkgInfo { name: "router".into(), ..Default::default() }),
            ..Default::default()
        };
        let text = b"# 1 \"<built-in>\"\n#line 1 \"src/acl.p4\"\nheader h_t { }\n# 3 \"other.p4\"\n";
        assert_eq!(program_name(&named, text), "router");
        assert_eq!(program_name(&pb::P4Info::default(), text), "src/acl.p4");
        assert_eq!(program_name(&pb::P4Info::default(), b"#define X \"a\"\n#include \"b.p4\"\n"), "");
    }
}
