//! Names and values as words of a line.

use messages::p4::config::v1 as config;

/// Hexadecimal, with as many digits as the width has, or as the value needs.
pub fn hex(bytes: &[u8], width: u32) -> String {
    let digits = hex::encode(bytes);
    let digits = digits.trim_start_matches('0');
    let wanted = (width.div_ceil(4) as usize).max(1);
    format!("0x{digits:0>wanted$}")
}

/// All bytes in hexadecimal, for values that are not numbers, such as metadata.
pub fn bytes_text(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

/// A name as one word: in quotes, if one of its characters has a meaning in the language.
pub fn name_text(name: &str) -> String {
    // `hdr.x.isValid()` and slices such as `f[7:0]` need no quotes.
    let plain = name.strip_suffix("isValid()").unwrap_or(name);
    let mut depth = 0u32;
    let has_meaning = |c: char| {
        depth = match c {
            '[' => depth + 1,
            ']' => depth.saturating_sub(1),
            _ => depth,
        };
        let is_plain = c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '[' | ']') || (c == ':' && depth > 0);
        !is_plain
    };
    match name.is_empty() || plain.contains(has_meaning) {
        // A name cannot contain a quote; P4 has no such names.
        true => format!("\"{}\"", name.replace('"', "")),
        false => name.to_string(),
    }
}

/// The type of a field's or parameter's value, for controllers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// A number of this width in bits.
    Bits(u32),
    /// A string (`@p4runtime_translation(uri, string)`).
    String,
}

/// Larger widths are considered invalid.
const WIDTH_MAX: u32 = 1 << 16;

/// A P4Info's width in bits; 0 if it is invalid.
pub fn width(bitwidth: i32) -> u32 {
    u32::try_from(bitwidth).ok().filter(|width| *width <= WIDTH_MAX).unwrap_or(0)
}

/// The type of a field's or parameter's value.
pub fn holds(info: &config::P4Info, bitwidth: i32, type_name: Option<&config::P4NamedType>) -> Holds {
    use config::p4_new_type_spec::Representation;
    use config::p4_new_type_translation::SdnType;
    let spec = type_name.and_then(|named| info.type_info.as_ref()?.new_types.get(&named.name));
    match spec.and_then(|spec| spec.representation.as_ref()) {
        Some(Representation::TranslatedType(t)) if matches!(t.sdn_type, Some(SdnType::SdnString(_))) => Holds::String,
        _ => Holds::Bits(width(bitwidth)),
    }
}

/// A value as a word.
pub fn value_text(bytes: &[u8], holds: Holds) -> String {
    match (holds, std::str::from_utf8(bytes)) {
        (Holds::Bits(width), _) => hex(bytes, width),
        (Holds::String, Ok(text)) if !text.contains(|c: char| c == '"' || c.is_control()) => format!("\"{text}\""),
        (Holds::String, _) => bytes_text(bytes),
    }
}

/// A value for JSON: numbers as in lines, strings as they are.
pub fn value_json(bytes: &[u8], holds: Holds) -> serde_json::Value {
    match (holds, std::str::from_utf8(bytes)) {
        (Holds::String, Ok(text)) => text.into(),
        _ => value_text(bytes, holds).into(),
    }
}

/// The byte string that a word represents.
///
/// # Errors
///
/// The word is no number, does not fit, or is no string.
pub fn value_bytes(text: &str, holds: Holds) -> Result<Vec<u8>, String> {
    match holds {
        Holds::Bits(width) => {
            if text.starts_with('"') {
                return Err(format!("{text} is a string, but the value is a number of {width} bits"));
            }
            Ok(control::bytes::canonical(&stf::setup::value_of(text, width)?))
        }
        Holds::String => string_bytes(text),
    }
}

/// A string: in quotes, as its bytes in hexadecimal, or plain.
fn string_bytes(text: &str) -> Result<Vec<u8>, String> {
    if let Some(rest) = text.strip_prefix('"') {
        let inner = rest.strip_suffix('"').filter(|inner| !inner.contains('"'));
        return inner.map(|inner| inner.as_bytes().to_vec()).ok_or_else(|| format!("{text} has no closing quote"));
    }
    match text.strip_prefix("0x") {
        Some(digits) => hex::decode(digits)
            .map_err(|error| format!("`{text}`: {error}; a string that begins so is written in quotes")),
        None => Ok(text.as_bytes().to_vec()),
    }
}

/// A port's number as the shortest byte string.
pub fn port_bytes(port: u32) -> Vec<u8> {
    let bytes = port.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(3);
    bytes[zeros..].to_vec()
}

/// The number of a port; `None` if the bytes are no 32-bit number.
pub fn port_number(bytes: &[u8]) -> Option<u32> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = &bytes[zeros..];
    (digits.len() <= 4 && !bytes.is_empty()).then(|| digits.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
}

/// A port as a word.
pub fn port_text(bytes: &[u8]) -> String {
    port_number(bytes).map_or_else(|| bytes_text(bytes), |port| port.to_string())
}
