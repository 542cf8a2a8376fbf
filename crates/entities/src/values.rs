//! Values of registers as words of a line: the leaves of the value, in order. A header is `valid` and its fields, or
//! `invalid`; a union is the name of its valid member and that header, or `invalid`. Numbers are decimal or
//! hexadecimal, negative ones decimal or as their bits; varbits are bytes (`0x` for none). [`parse`] reads what
//! [`data_text`] prints as the same value.
//!
//! Types come from a server, so invalid ones must not cause a panic. Tests: below.

use messages::p4::config::v1 as config;
use messages::p4::v1 as pb;
use pb::p4_data::Data;

/// A type in P4 syntax.
pub fn type_text(spec: &config::P4DataTypeSpec) -> String {
    use config::p4_bitstring_like_type_spec::TypeSpec as BitSpec;
    use config::p4_data_type_spec::TypeSpec;
    match &spec.type_spec {
        Some(TypeSpec::Bitstring(bits)) => match &bits.type_spec {
            Some(BitSpec::Bit(bit)) => format!("bit<{}>", bit.bitwidth),
            Some(BitSpec::Int(int)) => format!("int<{}>", int.bitwidth),
            Some(BitSpec::Varbit(varbit)) => format!("varbit<{}>", varbit.max_bitwidth),
            None => String::new(),
        },
        Some(TypeSpec::Bool(_)) => "bool".to_string(),
        Some(TypeSpec::Error(_)) => "error".to_string(),
        Some(TypeSpec::Tuple(tuple)) => {
            format!("tuple<{}>", tuple.members.iter().map(type_text).collect::<Vec<_>>().join(", "))
        }
        Some(TypeSpec::Struct(named) | TypeSpec::Header(named)) => named.name.clone(),
        Some(TypeSpec::HeaderUnion(named) | TypeSpec::Enum(named)) => named.name.clone(),
        Some(TypeSpec::SerializableEnum(named) | TypeSpec::NewType(named)) => named.name.clone(),
        Some(TypeSpec::HeaderStack(stack)) => {
            format!("{}[{}]", stack.header.as_ref().map_or("", |h| h.name.as_str()), stack.size)
        }
        Some(TypeSpec::HeaderUnionStack(stack)) => {
            format!("{}[{}]", stack.header_union.as_ref().map_or("", |h| h.name.as_str()), stack.size)
        }
        None => String::new(),
    }
}

/// A number as in `0xa`. Prints all bytes if there is none or the first is zero: only varbits and signed numbers have
/// such values, and for them leading zeros matter.
fn number_text(bytes: &[u8]) -> String {
    let digits = hex::encode(bytes);
    match bytes {
        [0] => "0".to_string(),
        [] | [0, ..] => format!("0x{digits}"),
        _ => format!("0x{}", digits.trim_start_matches('0')),
    }
}

fn header_text(header: &pb::P4Header) -> String {
    match header.is_valid {
        false => "invalid".to_string(),
        true => {
            let fields = header.bitstrings.iter().map(|b| number_text(b));
            ["valid".to_string()].into_iter().chain(fields).collect::<Vec<_>>().join(" ")
        }
    }
}

fn union_text(union: &pb::P4HeaderUnion) -> String {
    match &union.valid_header {
        None => "invalid".to_string(),
        Some(header) => format!("{} {}", union.valid_header_name, header_text(header)),
    }
}

/// The leaves of a value, in the form that `set` takes.
pub fn data_text(data: &pb::P4Data) -> String {
    let all = |members: &[pb::P4Data]| members.iter().map(data_text).collect::<Vec<_>>().join(" ");
    match &data.data {
        Some(Data::Bitstring(bytes) | Data::EnumValue(bytes)) => number_text(bytes),
        Some(Data::Varbit(varbit)) => number_text(&varbit.bitstring),
        Some(Data::Bool(value)) => value.to_string(),
        Some(Data::Tuple(like) | Data::Struct(like)) => all(&like.members),
        Some(Data::Header(header)) => header_text(header),
        Some(Data::HeaderUnion(union)) => union_text(union),
        Some(Data::HeaderStack(stack)) => stack.entries.iter().map(header_text).collect::<Vec<_>>().join(" "),
        Some(Data::HeaderUnionStack(stack)) => stack.entries.iter().map(union_text).collect::<Vec<_>>().join(" "),
        Some(Data::Enum(name) | Data::Error(name)) => name.clone(),
        None => "# no value".to_string(),
    }
}

/// Whether a value is zero, which is the initial value of a cell.
pub fn is_zero(data: &pb::P4Data) -> bool {
    match &data.data {
        Some(Data::Bitstring(bytes) | Data::EnumValue(bytes)) => bytes.iter().all(|b| *b == 0),
        Some(Data::Varbit(varbit)) => varbit.bitstring.is_empty(),
        Some(Data::Bool(value)) => !value,
        Some(Data::Tuple(like) | Data::Struct(like)) => like.members.iter().all(is_zero),
        Some(Data::Header(header)) => !header.is_valid,
        Some(Data::HeaderUnion(union)) => union.valid_header.is_none(),
        Some(Data::HeaderStack(stack)) => stack.entries.iter().all(|header| !header.is_valid),
        Some(Data::HeaderUnionStack(stack)) => stack.entries.iter().all(|union| union.valid_header.is_none()),
        // The first member is zero, and only the switch knows which one it is.
        Some(Data::Enum(_) | Data::Error(_)) => false,
        None => true,
    }
}

/// Bytes: in hexadecimal exactly as written (`0x` for none); for a decimal number, as many as it needs.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.len() % 2 == 0 && !digits.contains('_') => {
            hex::decode(digits).map_err(|_| format!("`{text}` is no number (decimal or 0x...)"))
        }
        _ => number(text),
    }
}

/// A signed number: decimal, or its bits in hexadecimal. As in the printed form, bits are negative if the first one is
/// set.
fn signed(text: &str) -> Result<Vec<u8>, String> {
    let Ok(value) = text.replace('_', "").parse::<i128>() else { return bytes(text) };
    let all = value.to_be_bytes();
    let fill = if value < 0 { 0xff } else { 0 };
    let redundant = all.windows(2).take_while(|pair| pair[0] == fill && (pair[1] ^ fill) & 0x80 == 0).count();
    Ok(all[redundant..].to_vec())
}

/// The bytes of a header's field, by its type.
fn field(spec: Option<&config::P4BitstringLikeTypeSpec>, text: &str) -> Result<Vec<u8>, String> {
    use config::p4_bitstring_like_type_spec::TypeSpec as BitSpec;
    match spec.and_then(|spec| spec.type_spec.as_ref()) {
        Some(BitSpec::Varbit(_)) => bytes(text),
        Some(BitSpec::Int(_)) => signed(text),
        _ => number(text),
    }
}

/// A number in the shortest byte string.
fn number(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("`{text}` is no number (decimal or 0x...)");
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let digits: String = digits.chars().filter(|c| *c != '_').collect();
        let even = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits };
        let bytes = hex::decode(&even).ok().filter(|bytes| !bytes.is_empty()).ok_or_else(wrong)?;
        let zeros = bytes.iter().take(bytes.len() - 1).take_while(|b| **b == 0).count();
        return Ok(bytes[zeros..].to_vec());
    }
    let value: u128 = text.replace('_', "").parse().map_err(|_| wrong())?;
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take(bytes.len() - 1).take_while(|b| **b == 0).count();
    Ok(bytes[zeros..].to_vec())
}

/// The value that words represent.
///
/// # Errors
///
/// The P4Info does not describe the type, or the words do not fit it.
pub fn parse(
    info: &config::P4Info,
    spec: Option<&config::P4DataTypeSpec>,
    words: &[String],
) -> Result<pb::P4Data, String> {
    let spec = spec.ok_or("the P4Info does not describe the type")?;
    let mut words = Words { info, words: words.iter() };
    let data = words.data(spec)?;
    match words.words.next() {
        None => Ok(data),
        Some(more) => Err(format!("`{more}` is one value too many for `{}`", type_text(spec))),
    }
}

/// Consumes words one by one.
struct Words<'a> {
    info: &'a config::P4Info,
    words: std::slice::Iter<'a, String>,
}

impl Words<'_> {
    fn next(&mut self) -> Result<&str, String> {
        self.words.next().map(String::as_str).ok_or_else(|| "values are missing".to_string())
    }

    /// The fields of a header type.
    fn fields_of(&self, header: &str) -> &[config::p4_header_type_spec::Member] {
        let types = self.info.type_info.as_ref().and_then(|types| types.headers.get(header));
        types.map_or(&[], |header| &header.members)
    }

    fn header(&mut self, name: &str) -> Result<pb::P4Header, String> {
        match self.next()? {
            "invalid" => Ok(pb::P4Header::default()),
            "valid" => {
                let specs: Vec<_> = self.fields_of(name).iter().map(|member| member.type_spec.clone()).collect();
                let fields = specs.iter().map(|spec| field(spec.as_ref(), self.next()?)).collect::<Result<_, _>>()?;
                Ok(pb::P4Header { is_valid: true, bitstrings: fields })
            }
            other => Err(format!("`{other}` stands where a header begins: `valid` and its fields, or `invalid`")),
        }
    }

    fn union(&mut self, name: &str) -> Result<pb::P4HeaderUnion, String> {
        let member = self.next()?.to_string();
        if member == "invalid" {
            return Ok(pb::P4HeaderUnion::default());
        }
        let types = self.info.type_info.as_ref().and_then(|types| types.header_unions.get(name));
        let found = types.and_then(|union| union.members.iter().find(|m| m.name == member));
        let header = found.and_then(|m| m.header.as_ref());
        let header = header.ok_or_else(|| format!("`{name}` has no member `{member}`"))?.name.clone();
        Ok(pb::P4HeaderUnion { valid_header_name: member, valid_header: Some(self.header(&header)?) })
    }

    fn data(&mut self, spec: &config::P4DataTypeSpec) -> Result<pb::P4Data, String> {
        use config::p4_data_type_spec::TypeSpec;
        let unknown = || "the P4Info does not describe the type".to_string();
        let types = self.info.type_info.as_ref();
        let data = match spec.type_spec.as_ref().ok_or_else(unknown)? {
            TypeSpec::Bitstring(bits) => {
                use config::p4_bitstring_like_type_spec::TypeSpec as BitSpec;
                let bitstring = field(Some(bits), self.next()?)?;
                match &bits.type_spec {
                    Some(BitSpec::Varbit(_)) => {
                        let bitwidth = i32::try_from(bitstring.len() * 8).map_err(|_| "too many digits".to_string())?;
                        Data::Varbit(pb::P4Varbit { bitstring, bitwidth })
                    }
                    _ => Data::Bitstring(bitstring),
                }
            }
            TypeSpec::Bool(_) => match self.next()? {
                "true" => Data::Bool(true),
                "false" => Data::Bool(false),
                other => return Err(format!("`{other}` is neither `true` nor `false`")),
            },
            TypeSpec::Error(_) => Data::Error(self.next()?.to_string()),
            TypeSpec::Enum(_) => Data::Enum(self.next()?.to_string()),
            TypeSpec::SerializableEnum(_) => Data::EnumValue(number(self.next()?)?),
            TypeSpec::NewType(named) => {
                use config::p4_new_type_spec::Representation;
                let new = types.and_then(|t| t.new_types.get(&named.name)).ok_or_else(unknown)?;
                match new.representation.as_ref().ok_or_else(unknown)? {
                    Representation::OriginalType(original) => return self.data(original),
                    Representation::TranslatedType(_) => Data::Bitstring(number(self.next()?)?),
                }
            }
            TypeSpec::Tuple(tuple) => {
                let members = tuple.members.iter().map(|m| self.data(m)).collect::<Result<_, _>>()?;
                Data::Tuple(pb::P4StructLike { members })
            }
            TypeSpec::Struct(named) => {
                let members = &types.and_then(|t| t.structs.get(&named.name)).ok_or_else(unknown)?.members;
                let specs = members.iter().map(|m| m.type_spec.as_ref().ok_or_else(unknown));
                let members = specs.map(|m| self.data(m?)).collect::<Result<_, _>>()?;
                Data::Struct(pb::P4StructLike { members })
            }
            TypeSpec::Header(named) => Data::Header(self.header(&named.name)?),
            TypeSpec::HeaderUnion(named) => Data::HeaderUnion(self.union(&named.name)?),
            TypeSpec::HeaderStack(stack) => {
                let name = stack.header.as_ref().ok_or_else(unknown)?.name.clone();
                let entries = (0..stack.size).map(|_| self.header(&name)).collect::<Result<_, _>>()?;
                Data::HeaderStack(pb::P4HeaderStack { entries })
            }
            TypeSpec::HeaderUnionStack(stack) => {
                let name = stack.header_union.as_ref().ok_or_else(unknown)?.name.clone();
                let entries = (0..stack.size).map(|_| self.union(&name)).collect::<Result<_, _>>()?;
                Data::HeaderUnionStack(pb::P4HeaderUnionStack { entries })
            }
        };
        Ok(pb::P4Data { data: Some(data) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::p4_bitstring_like_type_spec::TypeSpec as BitSpec;
    use config::p4_data_type_spec::TypeSpec;

    fn named(name: &str) -> config::P4NamedType {
        config::P4NamedType { name: name.to_string() }
    }

    fn of(spec: TypeSpec) -> config::P4DataTypeSpec {
        config::P4DataTypeSpec { type_spec: Some(spec) }
    }

    fn bits() -> config::P4DataTypeSpec {
        let bit = BitSpec::Bit(config::P4BitTypeSpec { bitwidth: 16 });
        of(TypeSpec::Bitstring(config::P4BitstringLikeTypeSpec { type_spec: Some(bit), ..Default::default() }))
    }

    /// Header `H` of two fields; union `U` of it; struct `S` of a number, a bool, a stack of two `H` and a `U`.
    fn info() -> config::P4Info {
        use config::{p4_header_type_spec, p4_header_union_type_spec, p4_struct_type_spec};
        let field = |name: &str| p4_header_type_spec::Member { name: name.to_string(), ..Default::default() };
        let header = config::P4HeaderTypeSpec { members: vec![field("a"), field("b")], ..Default::default() };
        let member = p4_header_union_type_spec::Member { name: "h".to_string(), header: Some(named("H")) };
        let union = config::P4HeaderUnionTypeSpec { members: vec![member], ..Default::default() };
        let stack = config::P4HeaderStackTypeSpec { header: Some(named("H")), size: 2 };
        let members = [
            bits(),
            of(TypeSpec::Bool(config::P4BoolType {})),
            of(TypeSpec::HeaderStack(stack)),
            of(TypeSpec::HeaderUnion(named("U"))),
        ];
        let member = |spec| p4_struct_type_spec::Member { name: String::new(), type_spec: Some(spec) };
        let members = members.into_iter().map(member).collect();
        let types = config::P4TypeInfo {
            structs: [("S".to_string(), config::P4StructTypeSpec { members, ..Default::default() })].into(),
            headers: [("H".to_string(), header)].into(),
            header_unions: [("U".to_string(), union)].into(),
            ..Default::default()
        };
        config::P4Info { type_info: Some(types), ..Default::default() }
    }

    fn read(words: &str) -> Result<pb::P4Data, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
        parse(&info(), Some(&of(TypeSpec::Struct(named("S")))), &words)
    }

    #[test]
    fn what_is_printed_is_read_as_the_same() {
        for words in [
            "0x102 true valid 0x1 0xff invalid h valid 0 0x7",
            "0 false invalid invalid invalid",
            "0xffff true invalid valid 0 0 invalid",
        ] {
            let data = read(words).unwrap_or_else(|e| panic!("{words}: {e}"));
            assert_eq!(data_text(&data), words);
            assert_eq!(is_zero(&data), words.starts_with("0 "), "{words}");
        }
        assert_eq!(read("258 false invalid invalid invalid"), read("0x0_102 false invalid invalid invalid"));
    }

    #[test]
    fn varbits_have_all_of_their_bytes_and_signed_numbers_their_sign() {
        let like = |spec| config::P4BitstringLikeTypeSpec { type_spec: Some(spec), ..Default::default() };
        let varbit = like(BitSpec::Varbit(config::P4VarbitTypeSpec { max_bitwidth: 64 }));
        let int = like(BitSpec::Int(config::P4IntTypeSpec { bitwidth: 16 }));
        for (text, spec, bytes) in [
            ("0x", &varbit, &[][..]),
            ("0", &varbit, &[0]),
            ("0x0000", &varbit, &[0, 0]),
            ("0x0102", &varbit, &[1, 2]),
            ("0x102", &varbit, &[1, 2]),
            ("0x00c8", &int, &[0, 0xc8]),
            ("0xff", &int, &[0xff]),
            ("0x7f", &int, &[0x7f]),
        ] {
            assert_eq!(field(Some(spec), text), Ok(bytes.to_vec()), "{text}");
            let again = number_text(bytes);
            assert_eq!(field(Some(spec), &again), Ok(bytes.to_vec()), "{text} is printed {again}");
        }
        for (text, bytes) in [("200", &[0, 0xc8][..]), ("-1", &[0xff]), ("-200", &[0xff, 0x38]), ("127", &[0x7f])] {
            assert_eq!(signed(text), Ok(bytes.to_vec()), "{text}");
        }
        let words = ["0x0304".to_string()];
        let spec = of(TypeSpec::Bitstring(varbit));
        let data = parse(&info(), Some(&spec), &words).unwrap();
        assert_eq!(data.data, Some(Data::Varbit(pb::P4Varbit { bitstring: vec![3, 4], bitwidth: 16 })));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, why) in [
            ("1 true invalid", "values are missing"),
            ("1 true invalid invalid invalid 5", "`5` is one value too many for `S`"),
            ("x true", "`x` is no number"),
            ("0x true", "`0x` is no number"),
            ("1 yes", "`yes` is neither"),
            ("1 true 7", "`7` stands where a header begins"),
            ("1 true invalid invalid g valid", "`U` has no member `g`"),
        ] {
            let refused = read(words).expect_err(words);
            assert!(refused.contains(why), "{words}: {refused}");
        }
    }
}
