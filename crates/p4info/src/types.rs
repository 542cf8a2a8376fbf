//! Types of the typed program as described in P4Info.
//!
//! A type that is used is entered into [`TypeInfo`] once, with every type that it refers to. Header fields that are
//! structs are flattened to `outer.inner`, because the message for header fields can hold only bit strings.

use crate::annotations::annotations;
use crate::model::*;
use base::{Bits, SourceMap};
use sema::TypedProgram;
use sema::Value;
use sema::typed::{Annotation, find_annotation};
use sema::types::{EnumId, FieldInfo, NewtypeId, StructId, StructInfo, StructKind, Type};

/// Collects the types that a P4Info refers to.
pub(crate) struct Types<'p> {
    program: &'p TypedProgram,
    sources: &'p SourceMap,
    /// The types entered so far.
    pub(crate) info: TypeInfo,
}

/// The controller's view of a scalar value: a key field, parameter or header field.
pub(crate) struct Scalar {
    /// Width in bits; 0 for strings (by translation), enums without underlying type and `error`.
    pub(crate) bitwidth: u32,
    /// The name of its `type` or enum without underlying type.
    pub(crate) type_name: Option<String>,
}

impl<'p> Types<'p> {
    pub(crate) fn new(program: &'p TypedProgram, sources: &'p SourceMap) -> Types<'p> {
        Types { program, sources, info: TypeInfo::default() }
    }

    /// Enters a type and returns its description.
    ///
    /// # Errors
    ///
    /// The name of a type that P4Info cannot describe.
    pub(crate) fn data_type(&mut self, ty: &Type) -> Result<DataType, String> {
        Ok(match ty {
            Type::Bits { width, signed: false } => DataType::Bit(*width),
            Type::Bits { width, signed: true } => DataType::Int(*width),
            Type::Varbit(width) => DataType::Varbit(*width),
            Type::Bool => DataType::Bool,
            Type::Error => {
                self.info.error.get_or_insert_with(|| self.program.errors.iter().map(|e| e.to_string()).collect());
                DataType::Error
            }
            Type::Tuple(members) => {
                DataType::Tuple(members.iter().map(|member| self.data_type(member)).collect::<Result<_, _>>()?)
            }
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => self.fields_type(*id)?,
            Type::Stack(element, size) => self.stack(element, *size)?,
            Type::Enum(id) | Type::SerEnum(id) => self.enumeration(*id),
            Type::Newtype(id) => self.newtype(*id)?,
            other => return Err(self.program.types.display(other).to_string()),
        })
    }

    /// Enters the type of a key field, parameter or header field.
    ///
    /// # Errors
    ///
    /// As [`Types::data_type`]; also for composite types, which are not scalars.
    pub(crate) fn scalar(&mut self, ty: &Type) -> Result<Scalar, String> {
        self.data_type(ty)?;
        let width = self.program.types.width_bits(ty, true);
        let (bitwidth, type_name) = match ty {
            Type::Newtype(id) => {
                let name = self.newtype_name(*id);
                let translation = self.info.new_types.get(&name).and_then(|new_type| new_type.translation.as_ref());
                let bitwidth = match translation.map(|translation| translation.sdn_type) {
                    Some(SdnType::Bits(width)) => Some(width),
                    Some(SdnType::String) => Some(0),
                    None => width.and_then(|width| u32::try_from(width).ok()),
                };
                (bitwidth, Some(name))
            }
            Type::Enum(id) => (Some(0), Some(self.program.types.enums[id.index()].name.to_string())),
            Type::Error => (Some(0), None),
            Type::Struct(_) | Type::Header(_) | Type::HeaderUnion(_) | Type::Stack(..) | Type::Tuple(_) => (None, None),
            _ => (width.and_then(|width| u32::try_from(width).ok()), None),
        };
        let bitwidth = bitwidth.ok_or_else(|| self.program.types.display(ty).to_string())?;
        Ok(Scalar { bitwidth, type_name })
    }

    /// Enters a type; returns the name of a `type` or of an enum without underlying type. Errors as [`Types::scalar`].
    pub(crate) fn type_name(&mut self, ty: &Type) -> Result<Option<String>, String> {
        Ok(self.scalar(ty)?.type_name)
    }

    fn fields_type(&mut self, id: StructId) -> Result<DataType, String> {
        let info = &self.program.types.structs[id.index()];
        let name = type_control_name(self.program, info);
        match info.kind {
            StructKind::Struct => {
                if !self.info.structs.contains_key(&name) {
                    let members = self.members(&info.fields)?;
                    let annotations = annotations(&info.annotations, &[], self.sources);
                    self.info.structs.insert(name.clone(), StructType { members, annotations });
                }
                Ok(DataType::Struct(name))
            }
            StructKind::Header => {
                if !self.info.headers.contains_key(&name) {
                    let mut members = Vec::new();
                    self.flatten("", &info.fields, &mut |_, _| {}, &mut members)?;
                    let annotations = annotations(&info.annotations, &[], self.sources);
                    self.info.headers.insert(name.clone(), StructType { members, annotations });
                }
                Ok(DataType::Header(name))
            }
            StructKind::HeaderUnion => {
                if !self.info.header_unions.contains_key(&name) {
                    let members = self.members(&info.fields)?;
                    let annotations = annotations(&info.annotations, &[], self.sources);
                    self.info.header_unions.insert(name.clone(), StructType { members, annotations });
                }
                Ok(DataType::HeaderUnion(name))
            }
        }
    }

    fn members(&mut self, fields: &[FieldInfo]) -> Result<Vec<(String, DataType)>, String> {
        fields.iter().map(|f| Ok((control_name(&f.name, &f.annotations), self.data_type(&f.ty)?))).collect()
    }

    /// Flattens header fields to bit strings; `visit` is called for each leaf.
    fn flatten(
        &mut self,
        prefix: &str,
        fields: &'p [FieldInfo],
        visit: &mut dyn FnMut(&str, &'p FieldInfo),
        into: &mut Vec<(String, DataType)>,
    ) -> Result<(), String> {
        for field in fields {
            let name = control_name(&field.name, &field.annotations);
            let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
            match &field.ty {
                Type::Struct(id) => {
                    let inner = &self.program.types.structs[id.index()].fields;
                    self.flatten(&name, inner, visit, into)?;
                }
                ty => {
                    self.data_type(ty)?;
                    visit(&name, field);
                    into.push((name, self.wire_type(ty)?));
                }
            }
        }
        Ok(())
    }

    /// The leaves of a header's fields with their flattened names.
    pub(crate) fn header_fields(&mut self, id: StructId) -> Result<Vec<(String, &'p FieldInfo)>, String> {
        let mut leaves = Vec::new();
        let fields = &self.program.types.structs[id.index()].fields;
        self.flatten("", fields, &mut |name, field| leaves.push((name.to_string(), field)), &mut Vec::new())?;
        Ok(leaves)
    }

    /// The type of a header field on the wire.
    fn wire_type(&self, ty: &Type) -> Result<DataType, String> {
        match self.program.types.underlying(ty) {
            Type::Bits { width, signed: false } => Ok(DataType::Bit(width)),
            Type::Bits { width, signed: true } => Ok(DataType::Int(width)),
            Type::Varbit(width) => Ok(DataType::Varbit(width)),
            Type::Bool => Ok(DataType::Bit(1)),
            other => Err(self.program.types.display(&other).to_string()),
        }
    }

    fn stack(&mut self, element: &Type, size: u32) -> Result<DataType, String> {
        match self.data_type(element)? {
            DataType::Header(header) => Ok(DataType::HeaderStack { header, size }),
            DataType::HeaderUnion(header_union) => Ok(DataType::HeaderUnionStack { header_union, size }),
            _ => Err(format!("{}[{size}]", self.program.types.display(element))),
        }
    }

    fn enumeration(&mut self, id: EnumId) -> DataType {
        let info = &self.program.types.enums[id.index()];
        let name = control_name(&info.name, &info.annotations);
        let annotations = annotations(&info.annotations, &[], self.sources);
        let Some(repr) = &info.repr else {
            let members = info.members.iter().map(|m| m.name.to_string()).collect();
            self.info.enums.entry(name.clone()).or_insert(EnumType { members, annotations });
            return DataType::Enum(name);
        };
        let bitwidth = match self.program.types.underlying(repr) {
            Type::Bits { width, .. } => width,
            _ => 0,
        };
        let member_value = |value: &Option<Value>| match value {
            Some(Value::Bits(bits)) => bits.clone(),
            _ => Bits::zero(bitwidth),
        };
        let members = info.members.iter().map(|m| (m.name.to_string(), member_value(&m.value))).collect();
        let spec = SerializableEnumType { bitwidth, members, annotations };
        self.info.serializable_enums.entry(name.clone()).or_insert(spec);
        DataType::SerializableEnum(name)
    }

    fn newtype_name(&self, id: NewtypeId) -> String {
        let info = &self.program.types.newtypes[id.index()];
        control_name(&info.name, &info.annotations)
    }

    fn newtype(&mut self, id: NewtypeId) -> Result<DataType, String> {
        let name = self.newtype_name(id);
        if self.info.new_types.contains_key(&name) {
            return Ok(DataType::NewType(name));
        }
        let info = &self.program.types.newtypes[id.index()];
        let mut target = &info.underlying;
        while let Type::Newtype(inner) = target {
            target = &self.program.types.newtypes[inner.index()].underlying;
        }
        let underlying = self.data_type(target)?;
        let new_type = NewType {
            underlying,
            translation: find_annotation(&info.annotations, "p4runtime_translation").and_then(translation),
            annotations: annotations(&info.annotations, &["p4runtime_translation"], self.sources),
        };
        self.info.new_types.insert(name.clone(), new_type);
        Ok(DataType::NewType(name))
    }
}

/// The control-plane name of a struct, header or union; that of an instantiation of a generic type includes its type
/// arguments, such as `pair_bit32`.
pub(crate) fn type_control_name(program: &TypedProgram, info: &StructInfo) -> String {
    let mut name = control_name(&info.name, &info.annotations);
    for arg in &info.args {
        let arg = program.types.display(arg).to_string();
        name.push('_');
        name.extend(arg.chars().filter(|c| c.is_alphanumeric() || *c == '_'));
    }
    name
}

/// `@name` or the declared name.
pub(crate) fn control_name(name: &str, annotations: &[Annotation]) -> String {
    let given = find_annotation(annotations, "name").and_then(Annotation::as_str);
    given.unwrap_or(name).trim_start_matches('.').to_string()
}

/// Parses `@p4runtime_translation("uri", 32)`, `("uri", bit<32>)` or `("uri", string)` from its tokens, since the
/// latter two are not expressions.
fn translation(annotation: &Annotation) -> Option<Translation> {
    use sema::typed::{AnnotationBody, AnnotationTokenKind};
    let AnnotationBody::Unstructured { tokens, .. } = &annotation.body else { return None };
    let (uri, rest) = match tokens.as_slice() {
        [uri, comma, rest @ ..] if uri.kind == AnnotationTokenKind::String && &*comma.text == "," => (uri, rest),
        _ => return None,
    };
    let words: Vec<&str> = rest.iter().map(|token| &*token.text).collect();
    let sdn_type = match words.as_slice() {
        ["string"] => SdnType::String,
        [width] | ["bit", "<", width, ">"] => SdnType::Bits(width.parse().ok()?),
        _ => return None,
    };
    Some(Translation { uri: uri.text.to_string(), sdn_type })
}
