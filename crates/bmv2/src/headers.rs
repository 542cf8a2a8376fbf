//! Header types, headers, stacks, unions, stacks of unions, errors, and the fields that simple_switch uses.

use crate::codes;
use crate::model::{Field, FieldType, Header, HeaderType, Stack, Union, UnionStack};
use crate::names::{Names, Reader};
use crate::read::{At, Read};
use std::collections::{HashMap, HashSet};

/// Most bits of a header: the width limit of values.
const HEADER_BITS_MAX: u64 = lower::WIDTH_LIMIT as u64;
/// Largest value of an error. p4c numbers errors from 0, formerly from 1. The bound limits the list of errors, which is
/// as long as the largest value.
const ERROR_MAX: u32 = 4096;

/// Errors of P4_16's core library.
pub(crate) const CORE_ERRORS: [&str; 7] = [
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
];

/// Fields that simple_switch reads and writes: its names for them, and v1model's.
const WELL_KNOWN: [(&str, &str); 17] = [
    ("standard_metadata.ingress_port", "ingress_port"),
    ("standard_metadata.egress_spec", "egress_spec"),
    ("standard_metadata.egress_port", "egress_port"),
    ("standard_metadata.instance_type", "instance_type"),
    ("standard_metadata.packet_length", "packet_length"),
    ("standard_metadata.parser_error", "parser_error"),
    ("standard_metadata.checksum_error", "checksum_error"),
    ("intrinsic_metadata.ingress_global_timestamp", "ingress_global_timestamp"),
    ("intrinsic_metadata.egress_global_timestamp", "egress_global_timestamp"),
    ("intrinsic_metadata.mcast_grp", "mcast_grp"),
    ("intrinsic_metadata.egress_rid", "egress_rid"),
    ("intrinsic_metadata.priority", "priority"),
    ("queueing_metadata.enq_timestamp", "enq_timestamp"),
    ("queueing_metadata.enq_qdepth", "enq_qdepth"),
    ("queueing_metadata.deq_timedelta", "deq_timedelta"),
    ("queueing_metadata.deq_qdepth", "deq_qdepth"),
    ("queueing_metadata.qid", "qid"),
];

/// How many of these, from the first on, a program must have.
const REQUIRED: usize = 5;

impl Reader {
    pub fn header_types(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.need("header_types")?.list()? {
            let index = self.m.header_types.len();
            self.header_types.add("header type", &object, index)?;
            let name = object.name()?.to_string();
            let mut fields = Vec::new();
            let (mut names, mut positions) = (HashMap::new(), Vec::new());
            let (mut fixed, mut varbit_at) = (0u64, None);
            for field in object.need("fields")?.list()? {
                let parts = field.list()?;
                let (Some(field_name), Some(width)) = (parts.first(), parts.get(1)) else {
                    return field.fail(codes::SHAPE, "a field is its name and its number of bits");
                };
                let text = field_name.text()?;
                let varbit = width.is_text() && width.text()? == "*";
                let is_empty = !varbit && width.number()? == 0;
                let at = (!is_empty).then_some(fields.len());
                positions.push(at);
                if names.insert(text.to_string(), at).is_some() {
                    return field_name.fail(codes::TWICE, format!("there is another field `{text}`"));
                }
                let flag = |i: usize| parts.get(i).map_or(Ok(false), |p| p.boolean());
                let (signed, saturating) = (flag(2)?, flag(3)?);
                if is_empty {
                    continue;
                }
                let bits = match varbit {
                    true if varbit_at.is_some() => {
                        return width.fail(codes::UNSUPPORTED, "a second field of variable length");
                    }
                    true => {
                        varbit_at = at;
                        0
                    }
                    false => width.number()?,
                };
                fixed += u64::from(bits);
                if fixed > HEADER_BITS_MAX {
                    return width.fail(codes::RANGE, format!("a field of {bits} bits in a header of {fixed}"));
                }
                fields.push(FieldType { name: text.to_string(), width: bits, signed, saturating, varbit });
            }
            if let Some(i) = varbit_at {
                let max = object.need("max_length")?;
                let bits = u64::from(max.number()?) * 8;
                match bits.checked_sub(fixed).filter(|b| *b > 0 && bits <= HEADER_BITS_MAX) {
                    Some(bits) => fields[i].width = bits as u32,
                    None => {
                        let message = format!("at most {bits} bits for a header with {fixed} bits and a varbit field");
                        return max.fail(codes::RANGE, message);
                    }
                }
            }
            self.m.header_types.push(HeaderType { name, fields, length: None });
            self.fields.push(names);
            self.positions.push(positions);
            if let (Some(_), Some(length)) = (varbit_at, object.get("length_exp")) {
                if self.positions[index].contains(&None) {
                    return length
                        .fail(codes::UNSUPPORTED, "a length that is computed in a header with fields of 0 bits");
                }
                self.locals = varbit_at.unwrap_or(0);
                let length = self.number(&length)?;
                self.locals = 0;
                self.m.header_types[index].length = Some(length);
            }
        }
        Ok(())
    }

    pub fn headers(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.need("headers")?.list()? {
            let index = self.m.headers.len();
            self.headers.add("header", &object, index)?;
            let ty = object.need("header_type")?;
            let metadata = object.flag("metadata", false)?;
            let header_type = self.header_types.named("header type", &ty)?;
            let fields = &self.m.header_types[header_type].fields;
            let bits: u64 = fields.iter().filter(|f| !f.varbit).map(|f| u64::from(f.width)).sum();
            if !metadata && !bits.is_multiple_of(8) {
                return ty.fail(codes::RANGE, format!("a header of {bits} bits, which is not a multiple of 8"));
            }
            let name = object.name()?.to_string();
            self.m.headers.push(Header { name, ty: header_type, metadata, union: None });
        }
        Ok(())
    }

    pub fn stacks(&mut self, root: &At<'_>) -> Read<()> {
        let mut in_stacks = HashSet::new();
        for object in root.list_of("header_stacks")? {
            let index = self.m.stacks.len();
            self.stacks.add("header stack", &object, index)?;
            let ty = self.header_types.named("header type", &object.need("header_type")?)?;
            let mut elements = Vec::new();
            for id in object.need("header_ids")?.list()? {
                let header = self.headers.with_id("header", &id)?;
                if self.m.headers[header].ty != ty || self.m.headers[header].metadata {
                    return id.fail(codes::CONTRADICTION, "the header is not of the stack's type");
                }
                if !in_stacks.insert(header) {
                    let name = &self.m.headers[header].name;
                    return id.fail(codes::TWICE, format!("header `{name}` is in a stack already"));
                }
                elements.push(header);
            }
            if elements.is_empty() {
                return object.fail(codes::RANGE, "a stack without elements");
            }
            self.m.stacks.push(Stack { name: object.name()?.to_string(), ty, elements });
        }
        Ok(())
    }

    pub fn unions(&mut self, root: &At<'_>) -> Read<()> {
        let mut types = Names::default();
        let mut type_members: Vec<Vec<(String, usize)>> = Vec::new();
        for object in root.list_of("header_union_types")? {
            types.add("header union type", &object, type_members.len())?;
            let mut members = Vec::new();
            for member in object.need("headers")?.list()? {
                let [name, ty] = member.tuple()?;
                members.push((name.text()?.to_string(), self.header_types.named("header type", &ty)?));
            }
            type_members.push(members);
        }
        let mut union_types = Vec::new();
        for object in root.list_of("header_unions")? {
            let index = self.m.unions.len();
            self.unions.add("header union", &object, index)?;
            let ty = types.named("header union type", &object.need("union_type")?)?;
            let ids = object.need("header_ids")?;
            let mut members = Vec::new();
            for (id, (_, member_type)) in ids.list()?.iter().zip(&type_members[ty]) {
                let header = self.headers.with_id("header", id)?;
                let known = &mut self.m.headers[header];
                if known.ty != *member_type || known.metadata || known.union.is_some() {
                    return id.fail(codes::CONTRADICTION, "the header is not of the type of the union's member");
                }
                known.union = Some(index);
                members.push(header);
            }
            if members.len() != type_members[ty].len() || ids.list()?.len() != members.len() {
                return ids.fail(codes::CONTRADICTION, "the union has another number of members than its type");
            }
            self.m.unions.push(Union { members });
            union_types.push(ty);
        }
        for object in root.list_of("header_union_stacks")? {
            let index = self.m.union_stacks.len();
            self.union_stacks.add("header union stack", &object, index)?;
            let ty = types.named("header union type", &object.need("union_type")?)?;
            let mut elements = Vec::new();
            for id in object.need("header_union_ids")?.list()? {
                let union = self.unions.with_id("header union", &id)?;
                if union_types[union] != ty {
                    return id.fail(codes::CONTRADICTION, "the union is not of the stack's type");
                }
                elements.push(union);
            }
            if elements.is_empty() {
                return object.fail(codes::RANGE, "a stack without elements");
            }
            self.m.union_stacks.push(UnionStack { name: object.name()?.to_string(), elements });
            self.union_members.push(type_members[ty].clone());
        }
        Ok(())
    }

    /// Errors by value; those of the core library that are not listed get values after the others.
    pub fn errors(&mut self, root: &At<'_>) -> Read<()> {
        let mut errors: Vec<Option<String>> = Vec::new();
        for pair in root.list_of("errors")? {
            let [name, value] = pair.tuple()?;
            let (text, number) = (name.text()?, value.number()?);
            if number > ERROR_MAX {
                return value.fail(codes::RANGE, format!("an error of value {number}; {ERROR_MAX} is the largest"));
            }
            let index = number as usize;
            if errors.len() <= index {
                errors.resize(index + 1, None);
            }
            if errors.iter().flatten().any(|e| e == text) || errors[index].is_some() {
                return pair.fail(codes::TWICE, format!("another error has the name or value of `{text}`"));
            }
            errors[index] = Some(text.to_string());
        }
        for core in CORE_ERRORS {
            if !errors.iter().flatten().any(|e| e == core) {
                errors.push(Some(core.to_string()));
            }
        }
        let name = |(i, e): (usize, Option<String>)| e.unwrap_or_else(|| format!("error {i}"));
        self.m.errors = errors.into_iter().enumerate().map(name).collect();
        Ok(())
    }

    /// For a message: the target that the headers' names indicate.
    fn made_for(&self) -> String {
        let targets = [("psa_", "psa_switch", "PSA"), ("pna_", "pna_nic", "PNA")];
        let found =
            targets.iter().find(|(start, ..)| self.m.headers.iter().any(|h| h.metadata && h.name.starts_with(start)));
        found.map_or(String::new(), |(_, target, architecture)| {
            format!(": the JSON is for {target}, which is not supported; {architecture} programs run from P4 source")
        })
    }

    /// The fields that simple_switch uses, found by alias or else by their own names.
    pub fn well_known(&mut self, root: &At<'_>) -> Read<()> {
        let mut aliases: HashMap<&str, Field> = HashMap::new();
        for pair in root.list_of("field_aliases")? {
            let [alias, target] = pair.tuple()?;
            let field = self.fixed_field(&target)?;
            // A compiler writes the program's own aliases after the standard ones.
            aliases.insert(alias.text()?, field);
        }
        for (i, (name, short)) in WELL_KNOWN.into_iter().enumerate() {
            let (header, field) = name.split_once('.').unwrap_or((name, ""));
            let own = || {
                let header = self.headers.get(header)?;
                let field = (*self.fields[self.m.headers[header].ty].get(field)?)?;
                Some(Field { header, field })
            };
            let Some(field) = aliases.get(name).copied().or_else(own) else {
                if i < REQUIRED {
                    let message = format!("there is no field `{name}`, which simple_switch needs{}", self.made_for());
                    return root.need("headers")?.fail(codes::OTHER_FORMAT, message);
                }
                continue;
            };
            let ty = self.m.field(field);
            if !self.m.headers[field.header].metadata || ty.width > 64 || ty.signed || ty.varbit {
                let message = format!("`{name}` is not an unsigned field of at most 64 bits of metadata");
                return root.need("headers")?.fail(codes::CONTRADICTION, message);
            }
            self.m.well_known.insert(short.to_string(), field);
        }
        let width = |name: &str| self.m.field(self.m.well_known[name]).width;
        let (spec, port) = (width("egress_spec"), width("egress_port"));
        if spec != port {
            let message = format!("`standard_metadata.egress_spec` has {spec} bits and `egress_port` {port}");
            return root.need("headers")?.fail(codes::CONTRADICTION, message);
        }
        Ok(())
    }
}
