//! The forms in which a program arrives, in a file or a controller's device config. Only this module knows them:
//!
//! ```text
//!   P4 source
//!   JSON with the field `sluice`   what `p4c-bm2-ss` of Sluice writes: it carries the P4 source, and how to compile it
//!   bmv2's JSON                    what p4c writes for `simple_switch`
//!   a P4DeviceConfig message       with one of these in `device_data`, as libraries for bmv2 send it
//! ```
//!
//! P4 source never begins with `{`, and no text begins like the message. The bytes are untrusted: a message is decoded
//! without recursion and without copies, and JSON without building a tree.

use serde::{Deserialize, Serialize};

/// The possible forms, for messages.
pub const FORMS: &str =
    "P4 source, the file that `p4c-bm2-ss` writes, bmv2's JSON, or a P4DeviceConfig message with one of these";

/// A program's text.
#[derive(Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// P4 source.
    P4(&'a str),
    /// JSON that carries P4 source.
    Embedded(Embedded),
    /// bmv2's JSON.
    Bmv2(&'a str),
}

/// P4 source in a JSON file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Embedded {
    /// P4 source that needs no other file.
    pub source: String,
    /// The name of the original source file.
    #[serde(default)]
    pub name: String,
    /// Whether the program behaves as in bmv2 (`Options::bmv2`), whatever the switch's options are.
    #[serde(default)]
    pub bmv2: bool,
}

impl Embedded {
    /// JSON text that holds only this.
    pub fn to_json(&self) -> String {
        serde_json::json!({ "sluice": self }).to_string()
    }
}

/// The text of a device config, extracted from a `P4DeviceConfig` if it is in one.
///
/// # Errors
///
/// A message for the user, if the bytes are not UTF-8.
pub fn text(config: &[u8]) -> Result<&str, String> {
    // A text may begin with the byte of a field's tag, but cannot be a valid message to its last byte by chance.
    let data = device_data(config).unwrap_or(config);
    std::str::from_utf8(data).map_err(|error| match invalid_utf8(data, error.valid_up_to()) {
        Some(why) => why,
        None => {
            let at = error.valid_up_to();
            format!("the device config is not text (byte {at} is not UTF-8): it must be {FORMS}")
        }
    })
}

/// The error for JSON that is valid UTF-8 only up to byte `at`, with the path to that place; `None` if it does not
/// begin like JSON.
pub fn invalid_utf8(bytes: &[u8], at: usize) -> Option<String> {
    let before = std::str::from_utf8(bytes.get(..at)?).ok()?;
    let before = before.strip_prefix('\u{feff}').unwrap_or(before);
    if !is_json(before.trim_start()) {
        return None;
    }
    let path = bmv2::path_behind(before);
    let of = if path.is_empty() { path } else { path + ": " };
    Some(format!("{of}byte {at} of the JSON is not UTF-8"))
}

/// Whether a text begins like a JSON object, and so like no P4 program.
fn is_json(begin: &str) -> bool {
    let first = begin.strip_prefix('{').map(|rest| rest.trim_start().chars().next());
    first.is_some_and(|first| first.is_none_or(|c| c == '"' || c == '}'))
}

/// The form of a text. Other texts that begin like JSON are left to the P4 parser, which reports what they are.
///
/// # Errors
///
/// A message for the user, if the text is JSON with a malformed field `sluice`.
pub fn of(text: &str) -> Result<Form<'_>, String> {
    #[derive(Deserialize)]
    struct File {
        sluice: Option<Embedded>,
    }
    let begin = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    if !begin.starts_with('{') {
        return Ok(Form::P4(text));
    }
    match serde_json::from_str::<File>(begin) {
        Ok(File { sluice: Some(carried) }) => Ok(Form::Embedded(carried)),
        // bmv2's front end gives better messages about malformed files, with locations.
        Ok(File { sluice: None }) if bmv2::is_program(begin) => Ok(Form::Bmv2(begin)),
        Ok(File { sluice: None }) => Ok(Form::P4(text)),
        Err(error) if error.is_data() => {
            Err(format!("the JSON does not hold a program: {error}; a program is {FORMS}"))
        }
        Err(_) if is_json(begin) || bmv2::is_program(begin) => Ok(Form::Bmv2(begin)),
        Err(_) => Ok(Form::P4(text)),
    }
}

/// The field `device_data` of a `P4DeviceConfig` (`p4/tmp/p4config.proto`): `reassign` is field 1, `extras` 2,
/// `device_data` 3. `None` unless all of the bytes are such a message.
fn device_data(bytes: &[u8]) -> Option<&[u8]> {
    const REASSIGN: u64 = 1 << 3;
    const EXTRAS: u64 = 2 << 3 | 2;
    const DEVICE_DATA: u64 = 3 << 3 | 2;
    let mut rest = bytes;
    let mut found = None;
    while !rest.is_empty() {
        match varint(&mut rest)? {
            REASSIGN => {
                varint(&mut rest)?;
            }
            tag @ (EXTRAS | DEVICE_DATA) => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (field, after) = rest.split_at_checked(length)?;
                rest = after;
                if tag == DEVICE_DATA {
                    found = Some(field);
                }
            }
            _ => return None,
        }
    }
    found
}

/// Reads a varint of protobuf's wire format and removes it from `bytes`.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    const BYTES_MAX: usize = 10;
    let mut value = 0;
    for at in 0..BYTES_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as sent by `p4runtime_lib`.
    fn message(data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x08, 1, 0x1a];
        let mut length = data.len();
        while length > 0x7f {
            bytes.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn each_form_is_known_also_in_a_message() {
        let long = format!("// {}\n#include <core.p4>\n", "x".repeat(70_000));
        let carried = r#" {"actions": [], "sluice": {"source": "// p4\n", "name": "a.p4"}}"#;
        let bmv2 = r#"{"header_types": [{"sluice": 1}]}"#;
        for program in ["#include <core.p4>\n", "", &long, carried, bmv2] {
            let wrapped = message(program.as_bytes());
            assert_eq!(text(program.as_bytes()), Ok(program));
            assert_eq!(text(&wrapped), Ok(program));
        }
        let (source, name) = ("// p4\n".to_string(), "a.p4".to_string());
        let carried_source = Embedded { source, name, bmv2: false };
        assert_eq!(of(carried), Ok(Form::Embedded(carried_source.clone())));
        let as_in_bmv2 = Embedded { bmv2: true, ..carried_source };
        assert_eq!(of(&as_in_bmv2.to_json()), Ok(Form::Embedded(as_in_bmv2)));
        assert_eq!(of(bmv2), Ok(Form::Bmv2(bmv2)));
        assert_eq!(of(&long), Ok(Form::P4(&long)));
        // Extras, and fields in another order.
        let mut other = vec![0x12, 3, 1, 2, 3];
        other.extend(message(b"header h {}"));
        assert_eq!(text(&other), Ok("header h {}"));
    }

    #[test]
    fn what_is_none_of_the_forms_is_refused_with_their_names() {
        let elf = b"\x7fELF\x02\x01\x01\x00\xff\xfe";
        let cut = &message(b"\xff\xff header h {}")[..8];
        for bytes in [&elf[..], cut, &message(&[0xff]), b"\x08\x01\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            let why = text(bytes).unwrap_err();
            assert!(why.contains("P4 source") && why.contains("bmv2's JSON"), "{why}");
        }
        let why = of(r#"{"sluice": {"source": 3}}"#).unwrap_err();
        assert!(why.contains("line 1") && why.contains("P4DeviceConfig"), "{why}");
    }

    #[test]
    fn a_text_that_begins_like_a_message_is_a_text() {
        // Text with the bytes of a tag and of a length.
        let program = "\u{8}\u{1}\u{1a}\u{3}abc // and more\n";
        assert_eq!(text(program.as_bytes()), Ok(program));
    }

    #[test]
    fn deep_json_takes_no_stack() {
        for key in ["a", "parsers"] {
            let deep = format!("{{\"{key}\": {}", "[".repeat(5_000_000));
            assert_eq!(of(&deep), Ok(Form::Bmv2(&deep)));
        }
    }

    #[test]
    fn json_is_known_by_its_first_bytes() {
        for json in ["{", "{ \n", "{\"", "{\"head", "{\"a\": [1, 2", "\u{feff}{\"a\""] {
            assert!(matches!(of(json), Ok(Form::Bmv2(_))), "{json}");
        }
        for other in ["{ header", "{{}", "{1}", "{\"a\": 1}"] {
            assert_eq!(of(other), Ok(Form::P4(other)));
        }
        let why = text(b"{\"parsers\": [{\"name\": \"\xff\"}]}").unwrap_err();
        assert_eq!(why, "parsers[0].name: byte 23 of the JSON is not UTF-8");
        assert!(text(b"{ header \xff").unwrap_err().contains(FORMS));
    }
}
