//! `P4Data` values of registers and digests: translates between the controller's tree and the data plane's bits
//! (P4Runtime specification, "Representation of Arbitrary P4 Types").
//!
//! In the data plane a value is one bit string, with the members in declaration order from the most significant end; a
//! digest is one bit string per leaf. A header is its validity bit and then its fields, a union is all of its members,
//! a stack its elements. A varbit is its maximum width, with the value at the least significant end, and then its
//! length as a 32-bit number. Both directions walk the type that the P4Info describes.
//!
//! A controller gets all bytes of a varbit, leading zeros included, because inside a header only the number of bytes
//! tells the length. Lengths are whole bytes, as in packets: no program can produce others.

use crate::bytes;
use crate::entity::P4Data;
use crate::error::{Error, Result};
use base::Bits;
use p4info::{DataType, TypeInfo};

/// The bits of a value of a type, concatenated.
///
/// # Errors
///
/// INVALID_ARGUMENT if the value does not have the type, OUT_OF_RANGE if a number does not fit; the message names
/// `what`.
pub fn decode(types: &TypeInfo, data_type: &DataType, data: &P4Data, what: &str) -> Result<Bits> {
    let mismatch = || Error::invalid(format!("{what}: the value does not have the type {data_type:?} of the P4Info"));
    match (data_type, data) {
        (DataType::Varbit(max), P4Data::Varbit { bitstring, bitwidth }) => varbit(*max, *bitwidth, bitstring, what),
        (DataType::Bit(width), P4Data::Bitstring(value)) => bytes::parse(*width, value, what),
        (DataType::Int(width), P4Data::Bitstring(value)) => bytes::parse_signed(*width, value, what),
        (DataType::Bool, P4Data::Bool(value)) => Ok(Bits::from_bool(*value)),
        (DataType::NewType(name), data) => {
            let new_type = types.new_types.get(name).ok_or_else(mismatch)?;
            decode(types, &new_type.underlying, data, what)
        }
        (DataType::SerializableEnum(name), P4Data::EnumValue(value)) => {
            let spec = types.serializable_enums.get(name).ok_or_else(mismatch)?;
            bytes::parse(spec.bitwidth, value, what)
        }
        (DataType::Enum(name), P4Data::Enum(member)) => {
            let members = &types.enums.get(name).ok_or_else(mismatch)?.members;
            member_number(members, member).ok_or_else(|| no_member(what, member, members))
        }
        (DataType::Error, P4Data::Error(member)) => {
            let members = types.error.as_ref().ok_or_else(mismatch)?;
            member_number(members, member).ok_or_else(|| no_member(what, member, members))
        }
        (DataType::Struct(name), P4Data::Struct(values)) => {
            let spec = types.structs.get(name).ok_or_else(mismatch)?;
            let members: Vec<&DataType> = spec.members.iter().map(|(_, member)| member).collect();
            decode_members(types, &members, values, what)
        }
        (DataType::Tuple(members), P4Data::Tuple(values)) => {
            decode_members(types, &members.iter().collect::<Vec<_>>(), values, what)
        }
        (DataType::Header(name), P4Data::Header { is_valid, bitstrings }) => {
            let spec = types.headers.get(name).ok_or_else(mismatch)?;
            let members: Vec<&DataType> = spec.members.iter().map(|(_, member)| member).collect();
            let widths = leaf_widths(types, data_type).ok_or_else(mismatch)?;
            // The fields of an invalid header have no values; in the data plane they are zero.
            if !is_valid && bitstrings.is_empty() {
                return Ok(Bits::zero(widths.iter().sum()));
            }
            if members.len() != bitstrings.len() {
                let message = format!("{what}: {} fields given, the header has {}", bitstrings.len(), members.len());
                return Err(Error::invalid(message));
            }
            let value = |(member, value): (&&DataType, &Vec<u8>)| match member {
                DataType::SerializableEnum(_) => P4Data::EnumValue(value.clone()),
                DataType::Bool => P4Data::Bool(value.iter().any(|b| *b != 0)),
                DataType::Varbit(_) => {
                    let bitwidth = i32::try_from(value.len() * 8).unwrap_or(i32::MAX);
                    P4Data::Varbit { bitstring: value.clone(), bitwidth }
                }
                _ => P4Data::Bitstring(value.clone()),
            };
            let values: Vec<P4Data> = members.iter().zip(bitstrings).map(value).collect();
            let fields = decode_members(types, &members, &values, what)?;
            let fields = if *is_valid { fields } else { Bits::zero(fields.width()) };
            Ok(Bits::from_bool(*is_valid).concat(&fields))
        }
        (DataType::HeaderUnion(name), P4Data::HeaderUnion(valid)) => {
            let members = &types.header_unions.get(name).ok_or_else(mismatch)?.members;
            if let Some((member, header)) = valid {
                if !members.iter().any(|(name, _)| name == member) {
                    let names: Vec<String> = members.iter().map(|(name, _)| name.clone()).collect();
                    return Err(no_member(what, member, &names));
                }
                if !matches!(**header, P4Data::Header { is_valid: true, .. }) {
                    return Err(Error::invalid(format!("{what}: the valid header `{member}` of a union is not valid")));
                }
            }
            // All members follow each other; at most one is valid.
            members.iter().try_fold(Bits::zero(0), |bits, (name, member)| {
                let header = match valid {
                    Some((chosen, header)) if chosen == name => decode(types, member, header, what)?,
                    _ => decode(types, member, &P4Data::Header { is_valid: false, bitstrings: vec![] }, what)?,
                };
                Ok(bits.concat(&header))
            })
        }
        (DataType::HeaderStack { header, size }, P4Data::HeaderStack(values)) => {
            decode_members(types, &vec![&DataType::Header(header.clone()); *size as usize], values, what)
        }
        (DataType::HeaderUnionStack { header_union, size }, P4Data::HeaderUnionStack(values)) => {
            decode_members(types, &vec![&DataType::HeaderUnion(header_union.clone()); *size as usize], values, what)
        }
        _ => Err(mismatch()),
    }
}

/// The bits of a `varbit<max>` value and its length.
fn varbit(max: u32, bitwidth: i32, bitstring: &[u8], what: &str) -> Result<Bits> {
    let length = u32::try_from(bitwidth).ok().filter(|length| *length <= max);
    let length =
        length.ok_or_else(|| Error::out_of_range(format!("{what}: a value of {bitwidth} bits for a varbit<{max}>")))?;
    if !length.is_multiple_of(8) {
        let message = format!("{what}: a varbit of {length} bits; in packets they have whole bytes");
        return Err(Error::invalid(message));
    }
    let value = match (length, bitstring) {
        (0, []) => Bits::zero(max),
        _ => bytes::parse(length, bitstring, what)?.resize_u(max),
    };
    Ok(value.concat(&Bits::new(VARBIT_LENGTH_WIDTH, u128::from(length))))
}

/// The bytes of a varbit, as many as its length says, and that length in bits.
fn varbit_bytes(leaves: &mut dyn Iterator<Item = Bits>) -> Option<(Vec<u8>, i32)> {
    let value = leaves.next()?;
    let length = u32::try_from(leaves.next()?.to_u64()?).ok().filter(|length| *length <= value.width())?;
    Some((value.resize_u(length).to_bytes_be(), i32::try_from(length).ok()?))
}

/// Width in bits of a varbit's length.
const VARBIT_LENGTH_WIDTH: u32 = 32;

/// Width in bits of an error, or of an enum without underlying type.
const MEMBER_WIDTH: u32 = 32;

/// The data plane's number of a member.
fn member_number(members: &[String], member: &str) -> Option<Bits> {
    members.iter().position(|m| m == member).map(|number| Bits::new(MEMBER_WIDTH, number as u128))
}

fn no_member(what: &str, member: &str, members: &[String]) -> Error {
    Error::invalid(format!("{what}: there is no member `{member}`; there are: {}", members.join(", ")))
}

fn decode_members(types: &TypeInfo, members: &[&DataType], values: &[P4Data], what: &str) -> Result<Bits> {
    if members.len() != values.len() {
        let message = format!("{what}: {} members given, the type has {}", values.len(), members.len());
        return Err(Error::invalid(message));
    }
    let mut pairs = members.iter().zip(values);
    pairs.try_fold(Bits::zero(0), |bits, (member, value)| Ok(bits.concat(&decode(types, member, value, what)?)))
}

/// The controller's value of a type from its leaves, most significant first. Consumes as many leaves as the type has.
/// `None` if they do not match the type.
pub fn encode(types: &TypeInfo, data_type: &DataType, leaves: &mut dyn Iterator<Item = Bits>) -> Option<P4Data> {
    Some(match data_type {
        DataType::Bit(_) => P4Data::Bitstring(bytes::canonical(&leaves.next()?)),
        DataType::Int(_) => P4Data::Bitstring(bytes::canonical_signed(&leaves.next()?)),
        DataType::Bool => P4Data::Bool(leaves.next()?.is_true()),
        DataType::NewType(name) => encode(types, &types.new_types.get(name)?.underlying, leaves)?,
        DataType::SerializableEnum(_) => P4Data::EnumValue(bytes::canonical(&leaves.next()?)),
        DataType::Enum(name) => {
            let member = usize::try_from(leaves.next()?.to_u64()?).ok()?;
            P4Data::Enum(types.enums.get(name)?.members.get(member)?.clone())
        }
        DataType::Error => {
            let member = usize::try_from(leaves.next()?.to_u64()?).ok()?;
            P4Data::Error(types.error.as_ref()?.get(member)?.clone())
        }
        DataType::Struct(name) => P4Data::Struct(
            types.structs.get(name)?.members.iter().map(|(_, m)| encode(types, m, leaves)).collect::<Option<_>>()?,
        ),
        DataType::Tuple(members) => {
            P4Data::Tuple(members.iter().map(|m| encode(types, m, leaves)).collect::<Option<_>>()?)
        }
        DataType::Header(name) => {
            let is_valid = leaves.next()?.is_true();
            let mut bitstrings = Vec::new();
            for (_, member) in &types.headers.get(name)?.members {
                bitstrings.push(match member {
                    DataType::Varbit(_) => varbit_bytes(leaves)?.0,
                    DataType::Int(_) => bytes::canonical_signed(&leaves.next()?),
                    _ => bytes::canonical(&leaves.next()?),
                });
            }
            P4Data::Header { is_valid, bitstrings: if is_valid { bitstrings } else { vec![] } }
        }
        DataType::HeaderUnion(name) => {
            let mut valid = None;
            for (member, header) in &types.header_unions.get(name)?.members {
                let header = encode(types, header, leaves)?;
                if valid.is_none() && matches!(header, P4Data::Header { is_valid: true, .. }) {
                    valid = Some((member.clone(), Box::new(header)));
                }
            }
            P4Data::HeaderUnion(valid)
        }
        DataType::HeaderStack { header, size } => {
            let element = DataType::Header(header.clone());
            P4Data::HeaderStack((0..*size).map(|_| encode(types, &element, leaves)).collect::<Option<_>>()?)
        }
        DataType::HeaderUnionStack { header_union, size } => {
            let element = DataType::HeaderUnion(header_union.clone());
            P4Data::HeaderUnionStack((0..*size).map(|_| encode(types, &element, leaves)).collect::<Option<_>>()?)
        }
        DataType::Varbit(_) => {
            let (bitstring, bitwidth) = varbit_bytes(leaves)?;
            P4Data::Varbit { bitstring, bitwidth }
        }
    })
}

/// The controller's value of a type from one bit string; `None` if they do not match.
pub fn encode_bits(types: &TypeInfo, data_type: &DataType, bits: &Bits) -> Option<P4Data> {
    let widths = leaf_widths(types, data_type)?;
    let mut below = widths.iter().sum::<u32>();
    let mut leaves = widths.into_iter().map(|width| {
        below -= width;
        bits.lshr(u64::from(below)).resize_u(width)
    });
    encode(types, data_type, &mut leaves)
}

/// Widths in bits of a type's leaves, most significant first; `None` for a type that the P4Info does not describe.
fn leaf_widths(types: &TypeInfo, data_type: &DataType) -> Option<Vec<u32>> {
    let all = |members: &mut dyn Iterator<Item = &DataType>| {
        let widths = members.map(|m| leaf_widths(types, m)).collect::<Option<Vec<_>>>()?;
        Some(widths.into_iter().flatten().collect())
    };
    match data_type {
        DataType::Bit(width) | DataType::Int(width) => Some(vec![*width]),
        DataType::Bool => Some(vec![1]),
        DataType::NewType(name) => leaf_widths(types, &types.new_types.get(name)?.underlying),
        DataType::SerializableEnum(name) => Some(vec![types.serializable_enums.get(name)?.bitwidth]),
        DataType::Struct(name) => all(&mut types.structs.get(name)?.members.iter().map(|(_, m)| m)),
        DataType::Tuple(members) => all(&mut members.iter()),
        DataType::Enum(_) | DataType::Error => Some(vec![MEMBER_WIDTH]),
        DataType::Header(name) => {
            let fields = all(&mut types.headers.get(name)?.members.iter().map(|(_, m)| m))?;
            Some([vec![1], fields].concat())
        }
        DataType::HeaderUnion(name) => all(&mut types.header_unions.get(name)?.members.iter().map(|(_, m)| m)),
        DataType::HeaderStack { header, size } => {
            Some(leaf_widths(types, &DataType::Header(header.clone()))?.repeat(*size as usize))
        }
        DataType::HeaderUnionStack { header_union, size } => {
            Some(leaf_widths(types, &DataType::HeaderUnion(header_union.clone()))?.repeat(*size as usize))
        }
        DataType::Varbit(max) => Some(vec![*max, VARBIT_LENGTH_WIDTH]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use p4info::{EnumType, StructType};

    #[test]
    fn a_header_begins_with_its_validity() {
        let mut types = TypeInfo::default();
        let members = vec![("a".to_string(), DataType::Bit(4)), ("b".to_string(), DataType::Int(8))];
        types.headers.insert("H".to_string(), StructType { members, ..Default::default() });
        let data_type = DataType::Header("H".to_string());
        let header = |is_valid, bitstrings: &[&[u8]]| {
            let bitstrings = bitstrings.iter().map(|b| b.to_vec()).collect();
            P4Data::Header { is_valid, bitstrings }
        };
        let bits = |data: &P4Data| decode(&types, &data_type, data, "r");
        let valid = header(true, &[&[3], &[0xfe]]);
        assert_eq!(bits(&valid), Ok(Bits::new(13, 0b1_0011_1111_1110)));
        assert_eq!(encode_bits(&types, &data_type, &bits(&valid).unwrap()), Some(valid));
        // An invalid header has no values.
        let invalid = header(false, &[]);
        assert_eq!(bits(&invalid), Ok(Bits::zero(13)));
        assert_eq!(bits(&header(false, &[&[3], &[1]])), Ok(Bits::zero(13)));
        assert_eq!(encode_bits(&types, &data_type, &Bits::zero(13)), Some(invalid));
        assert!(bits(&header(true, &[&[3]])).is_err() && bits(&header(true, &[&[16], &[1]])).is_err());
    }

    #[test]
    fn stacks_are_their_elements_and_unions_their_members_side_by_side() {
        let mut types = TypeInfo::default();
        let named = |members: Vec<(&str, DataType)>| StructType {
            members: members.into_iter().map(|(name, t)| (name.to_string(), t)).collect(),
            ..Default::default()
        };
        types.headers.insert("H".to_string(), named(vec![("a", DataType::Bit(4))]));
        types.headers.insert("G".to_string(), named(vec![("b", DataType::Bit(2)), ("c", DataType::Bool)]));
        let members = vec![("h", DataType::Header("H".to_string())), ("g", DataType::Header("G".to_string()))];
        types.header_unions.insert("U".to_string(), named(members));
        let header = |bitstrings: &[u8]| P4Data::Header {
            is_valid: !bitstrings.is_empty(),
            bitstrings: bitstrings.iter().map(|b| vec![*b]).collect(),
        };
        let union_of =
            |name: &str, bitstrings: &[u8]| P4Data::HeaderUnion(Some((name.to_string(), Box::new(header(bitstrings)))));

        let stack = DataType::HeaderStack { header: "H".to_string(), size: 2 };
        let value = P4Data::HeaderStack(vec![header(&[9]), header(&[])]);
        let bits = decode(&types, &stack, &value, "r").expect("it is of the type");
        assert_eq!(bits, Bits::new(10, 0b11_0010_0000));
        assert_eq!(encode_bits(&types, &stack, &bits), Some(value));
        let short = P4Data::HeaderStack(vec![header(&[9])]);
        assert!(decode(&types, &stack, &short, "r").is_err(), "a stack is always whole");

        let unions = DataType::HeaderUnionStack { header_union: "U".to_string(), size: 3 };
        let value =
            P4Data::HeaderUnionStack(vec![union_of("g", &[2, 1]), P4Data::HeaderUnion(None), union_of("h", &[5])]);
        let bits = decode(&types, &unions, &value, "r").expect("it is of the type");
        assert_eq!(bits, Bits::new(27, 0b000_0011_0100_0000_0001_0101_0000));
        assert_eq!(encode_bits(&types, &unions, &bits), Some(value));
        let union_type = DataType::HeaderUnion("U".to_string());
        let refused = |data: &P4Data| decode(&types, &union_type, data, "r").expect_err("refused").to_string();
        assert!(refused(&union_of("x", &[1])).contains("there is no member `x`; there are: h, g"));
        assert!(refused(&union_of("h", &[])).contains("the valid header `h` of a union is not valid"));
        assert!(refused(&union_of("h", &[1, 1])).contains("2 fields given, the header has 1"));
        assert!(refused(&header(&[1])).contains("does not have the type"));
    }

    #[test]
    fn a_varbit_has_the_bytes_that_its_length_says() {
        let mut types = TypeInfo::default();
        let members = vec![("a".to_string(), DataType::Bit(8)), ("v".to_string(), DataType::Varbit(20))];
        types.headers.insert("H".to_string(), StructType { members, ..Default::default() });
        let varbit = |bitwidth, bitstring: &[u8]| P4Data::Varbit { bitstring: bitstring.to_vec(), bitwidth };
        let alone = DataType::Varbit(20);
        let bits = |value: u128, length: u128| Bits::new(52, value << 32 | length);
        let code = |data: &P4Data| decode(&types, &alone, data, "r").expect_err("refused").code;
        for (value, length, data) in
            [(0, 0, varbit(0, &[])), (0, 8, varbit(8, &[0])), (0x00fe, 16, varbit(16, &[0, 0xfe]))]
        {
            assert_eq!(decode(&types, &alone, &data, "r"), Ok(bits(value, length)));
            assert_eq!(encode_bits(&types, &alone, &bits(value, length)), Some(data));
        }
        // Shorter and longer strings of the same number are accepted, as for other numbers, and returned at full
        // length.
        assert_eq!(decode(&types, &alone, &varbit(16, &[0xfe]), "r"), Ok(bits(0x00fe, 16)));
        assert_eq!(code(&varbit(8, &[1, 0xfe])), Code::OutOfRange);
        assert_eq!(code(&varbit(16, &[])), Code::OutOfRange);
        assert_eq!(code(&varbit(24, &[0, 0, 1])), Code::OutOfRange);
        assert_eq!(code(&varbit(-8, &[1])), Code::OutOfRange);
        assert_eq!(code(&varbit(4, &[1])), Code::InvalidArgument);
        assert_eq!(code(&P4Data::Bitstring(vec![1])), Code::InvalidArgument);

        // Inside a header only the number of bytes tells the length.
        let header_type = DataType::Header("H".to_string());
        let header = |bitstrings: &[&[u8]]| {
            let bitstrings = bitstrings.iter().map(|b| b.to_vec()).collect();
            P4Data::Header { is_valid: true, bitstrings }
        };
        for (fields, value, length) in [(&[&[7][..], &[0, 9]], 9, 16), (&[&[7], &[]], 0, 0)] {
            let cell = Bits::new(9, 0x107).concat(&bits(value, length));
            assert_eq!(decode(&types, &header_type, &header(fields), "r"), Ok(cell.clone()));
            assert_eq!(encode_bits(&types, &header_type, &cell), Some(header(fields)));
        }
        assert!(decode(&types, &header_type, &header(&[&[7], &[1, 2, 3]]), "r").is_err());
        // A length that no packet can have is not encoded.
        assert_eq!(encode_bits(&types, &alone, &bits(0, 24)), None);
    }

    #[test]
    fn a_cell_of_a_struct_is_its_members_from_the_most_significant_end() {
        let mut types = TypeInfo::default();
        let colours = ["red", "green", "blue"].map(str::to_string).to_vec();
        types.enums.insert("Colour".to_string(), EnumType { members: colours, ..Default::default() });
        let member = |name: &str, data_type| (name.to_string(), data_type);
        let inner = vec![member("set", DataType::Bool), member("colour", DataType::Enum("Colour".to_string()))];
        types.structs.insert("Inner".to_string(), StructType { members: inner, ..Default::default() });
        let pair = vec![member("first", DataType::Int(5)), member("inner", DataType::Struct("Inner".to_string()))];
        types.structs.insert("Pair".to_string(), StructType { members: pair, ..Default::default() });

        let data_type = DataType::Struct("Pair".to_string());
        let value = |colour: &str| {
            let inner = P4Data::Struct(vec![P4Data::Bool(true), P4Data::Enum(colour.to_string())]);
            P4Data::Struct(vec![P4Data::Bitstring(vec![0xfe]), inner])
        };
        let bits = decode(&types, &data_type, &value("blue"), "r").expect("it is of the type");
        assert_eq!(bits, Bits::new(38, 0b11110 << 33 | 1 << 32 | 2));
        assert_eq!(encode_bits(&types, &data_type, &bits), Some(value("blue")));
        let refused = decode(&types, &data_type, &value("pink"), "r").expect_err("no such colour");
        assert!(refused.to_string().contains("there is no member `pink`; there are: red, green, blue"), "{refused}");
    }
}
