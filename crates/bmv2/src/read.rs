//! Reads JSON and keeps the path of each value: every error names its location, as in
//! `pipelines[0].tables[3].key[1].target`.
//!
//! Unknown attributes are ignored, as in bmv2. A missing attribute and `null` are equivalent. A duplicate attribute is
//! refused. Nesting is bounded before the text is parsed, because the parser, the values and their readers are
//! recursive.

use crate::codes;
use base::{FileId, Span};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt::{self, Write};
use std::rc::Rc;

/// Deepest nesting of arrays and objects. The reference compiler needs half of it for a sum of 900 terms.
pub(crate) const DEPTH_MAX: usize = 8192;

/// Longest line of the text that messages show, in bytes.
const SHOWN_LINE_MAX: usize = 400;
/// Steps at either end of a path that messages show, and bytes of a step's name.
const SHOWN_STEPS_MAX: usize = 16;
const SHOWN_NAME_MAX: usize = 64;

/// Why a text is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// One of [`codes`].
    pub code: &'static str,
    /// The path in the JSON; empty for the whole text.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// Byte offset in the text, if known.
    pub at: Option<usize>,
}

/// The result of reading.
pub(crate) type Read<T> = Result<T, Box<Fault>>;

#[derive(Debug)]
enum Step {
    Root,
    Key(Rc<Step>, String),
    Index(Rc<Step>, usize),
}

/// A value and its path.
#[derive(Clone, Debug)]
pub(crate) struct At<'a> {
    value: &'a Value,
    path: Rc<Step>,
}

/// Parses a text.
pub(crate) fn parse(text: &str) -> Read<Value> {
    let fault = |code, message: String, at| Box::new(Fault { code, path: path_of(text, at), message, at: Some(at) });
    if let Some(at) = too_deep(text) {
        let message = format!("arrays and objects are nested deeper than {DEPTH_MAX} levels");
        return Err(fault(codes::TOO_LARGE, message, at));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let value = Unique::deserialize(&mut reader).and_then(|value| reader.end().map(|()| value.0));
    value.map_err(|e| {
        let line_start = text.split_inclusive('\n').take(e.line().saturating_sub(1)).map(str::len).sum::<usize>();
        match e.classify() {
            serde_json::error::Category::Eof => fault(codes::NO_JSON, format!("the JSON is cut off: {e}"), text.len()),
            serde_json::error::Category::Data => {
                fault(codes::CONTRADICTION, e.to_string(), (line_start + e.column()).min(text.len()))
            }
            _ => {
                let at = (line_start + e.column().saturating_sub(1)).min(text.len());
                fault(codes::NO_JSON, format!("this is not JSON: {e}"), at)
            }
        }
    })
}

/// A value in which no object has an attribute twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Unique, D::Error> {
        from.deserialize_any(Values).map(Unique)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a valid number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = elements.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if values.contains_key(&name) {
                return Err(A::Error::custom("duplicate attribute of the object"));
            }
            let Unique(value) = members.next_value()?;
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

/// The JSON path of the value at a byte offset. The text before it must be valid JSON; the rest is not read.
pub(crate) fn path_of(text: &str, at: usize) -> String {
    enum Open {
        /// The current name, and whether a name is expected next.
        Object(Option<(usize, usize)>, bool),
        Array(usize),
    }
    let mut open: Vec<Open> = Vec::new();
    let mut string: Option<usize> = None;
    let mut escaped = false;
    for (i, byte) in text.bytes().enumerate().take(at) {
        match (byte, string) {
            _ if escaped => escaped = false,
            (b'\\', Some(_)) => escaped = true,
            (b'"', Some(from)) => {
                string = None;
                if let Some(Open::Object(name, awaited @ true)) = open.last_mut() {
                    (*name, *awaited) = (Some((from, i)), false);
                }
            }
            (_, Some(_)) => {}
            (b'"', None) => string = Some(i + 1),
            (b'{', None) => open.push(Open::Object(None, true)),
            (b'[', None) => open.push(Open::Array(0)),
            (b'}' | b']', None) => _ = open.pop(),
            (b',', None) => match open.last_mut() {
                Some(Open::Object(name, awaited)) => (*name, *awaited) = (None, true),
                Some(Open::Array(index)) => *index += 1,
                None => {}
            },
            _ => {}
        }
    }
    let mut path = String::new();
    let hidden = SHOWN_STEPS_MAX..open.len().saturating_sub(SHOWN_STEPS_MAX);
    for (number, step) in open.iter().enumerate() {
        if hidden.contains(&number) {
            path.push_str(if number == hidden.start { "..." } else { "" });
            continue;
        }
        match step {
            Open::Array(index) => _ = write!(path, "[{index}]"),
            Open::Object(Some((from, to)), _) => push_name(&mut path, &text[*from..*to]),
            Open::Object(None, _) => {}
        }
    }
    path
}

fn push_name(path: &mut String, name: &str) {
    let is_plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_$".contains(&b));
    match is_plain && name.len() <= SHOWN_NAME_MAX {
        true if path.is_empty() => path.push_str(name),
        true => _ = write!(path, ".{name}"),
        false => {
            let shown: String = name.chars().take(SHOWN_NAME_MAX).collect();
            let cut = if shown.len() < name.len() { "..." } else { "" };
            _ = write!(path, "[\"{shown}{cut}\"]");
        }
    }
}

/// The offset where the text is nested too deeply, if it is.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(at);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

impl<'a> At<'a> {
    pub fn root(value: &'a Value) -> At<'a> {
        At { value, path: Rc::new(Step::Root) }
    }

    pub fn path(&self) -> String {
        let mut steps = Vec::new();
        let mut step = &self.path;
        loop {
            match &**step {
                Step::Root => break,
                Step::Key(outer, _) | Step::Index(outer, _) => {
                    steps.push(step);
                    step = outer;
                }
            }
        }
        let mut path = String::new();
        for step in steps.into_iter().rev() {
            match &**step {
                Step::Root => {}
                Step::Key(_, key) if path.is_empty() => path.push_str(key),
                Step::Key(_, key) => _ = write!(path, ".{key}"),
                Step::Index(_, index) => _ = write!(path, "[{index}]"),
            }
        }
        path
    }

    pub fn fail<T>(&self, code: &'static str, message: impl Into<String>) -> Read<T> {
        Err(Box::new(Fault { code, path: self.path(), message: message.into(), at: None }))
    }

    fn wrong_type<T>(&self, wanted: &str) -> Read<T> {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        self.fail(codes::SHAPE, format!("{found} where {wanted} should be"))
    }

    pub fn is_object(&self) -> bool {
        self.value.is_object()
    }

    pub fn is_text(&self) -> bool {
        self.value.is_string()
    }

    pub fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub fn is_number(&self) -> bool {
        self.value.is_number()
    }

    /// An attribute, if it exists and is not `null`.
    pub fn get(&self, name: &str) -> Option<At<'a>> {
        let value = self.value.as_object()?.get(name).filter(|v| !v.is_null())?;
        Some(At { value, path: Rc::new(Step::Key(Rc::clone(&self.path), name.to_string())) })
    }

    /// Whether an attribute exists, even as `null`.
    pub fn has(&self, name: &str) -> bool {
        self.value.as_object().is_some_and(|o| o.contains_key(name))
    }

    /// A required attribute.
    pub fn need(&self, name: &str) -> Read<At<'a>> {
        if !self.value.is_object() {
            return self.wrong_type("an object");
        }
        match self.get(name) {
            Some(at) => Ok(at),
            None => self.fail(codes::SHAPE, format!("`{name}` is missing")),
        }
    }

    /// The elements of an array.
    pub fn list(&self) -> Read<Vec<At<'a>>> {
        let Some(values) = self.value.as_array() else { return self.wrong_type("an array") };
        let at = |(i, value)| At { value, path: Rc::new(Step::Index(Rc::clone(&self.path), i)) };
        Ok(values.iter().enumerate().map(at).collect())
    }

    /// The elements of an array of fixed length.
    pub fn tuple<const N: usize>(&self) -> Read<[At<'a>; N]> {
        let list = self.list()?;
        let found = list.len();
        match list.try_into() {
            Ok(array) => Ok(array),
            Err(_) => self.fail(codes::SHAPE, format!("an array of {found} where one of {N} should be")),
        }
    }

    /// The elements of an optional array.
    pub fn list_of(&self, name: &str) -> Read<Vec<At<'a>>> {
        self.get(name).map_or(Ok(Vec::new()), |at| at.list())
    }

    pub fn text(&self) -> Read<&'a str> {
        match self.value {
            Value::String(text) => Ok(text),
            _ => self.wrong_type("a string"),
        }
    }

    pub fn boolean(&self) -> Read<bool> {
        match self.value {
            Value::Bool(b) => Ok(*b),
            // Compilers write the signedness of some fields as 0.
            Value::Number(n) if n.as_u64().is_some_and(|n| n <= 1) => Ok(n.as_u64() == Some(1)),
            _ => self.wrong_type("a boolean"),
        }
    }

    /// An optional boolean; `missing` is its default.
    pub fn flag(&self, name: &str, missing: bool) -> Read<bool> {
        self.get(name).map_or(Ok(missing), |at| at.boolean())
    }

    /// A number of at most 32 bits.
    pub fn number(&self) -> Read<u32> {
        let Value::Number(number) = self.value else { return self.wrong_type("a number") };
        match number.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(number) => Ok(number),
            None => self.fail(codes::RANGE, format!("{number} is not a whole number from 0 to {}", u32::MAX)),
        }
    }

    /// The name of an object.
    pub fn name(&self) -> Read<&'a str> {
        let name = self.need("name")?;
        match name.text()? {
            "" => name.fail(codes::RANGE, "an object with an empty name"),
            text if text.len() > NAME_BYTES_MAX => {
                name.fail(codes::RANGE, format!("a name of {} bytes; {NAME_BYTES_MAX} are possible", text.len()))
            }
            text => Ok(text),
        }
    }
}

/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 1024;

/// The span of an error in the text, if its line can be shown.
pub(crate) fn locate(text: &str, file: FileId, fault: &Fault) -> Span {
    let Some(at) = fault.at.or_else(|| Finder { text: text.as_bytes(), at: 0 }.find(&fault.path)) else {
        return Span::NONE;
    };
    let at = at.min(text.len());
    let bytes = text.as_bytes();
    let start = bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let end = bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| at + i);
    if end - start > SHOWN_LINE_MAX {
        return Span::NONE;
    }
    let mut last = (at + 1).min(end).max(at);
    while !text.is_char_boundary(last) {
        last += 1;
    }
    match text.is_char_boundary(at) {
        true => Span::new(file, at as u32, last as u32),
        false => Span::NONE,
    }
}

/// Walks over JSON text to the value of a path.
struct Finder<'t> {
    text: &'t [u8],
    at: usize,
}

impl Finder<'_> {
    fn find(mut self, path: &str) -> Option<usize> {
        let mut rest = path;
        loop {
            self.space();
            if rest.is_empty() {
                return Some(self.at);
            }
            if let Some(inner) = rest.strip_prefix('[') {
                let (index, after) = inner.split_once(']')?;
                self.element(index.parse().ok()?)?;
                rest = after;
            } else {
                // Names of known attributes contain neither dots nor brackets.
                let name = rest.strip_prefix('.').unwrap_or(rest);
                let end = name.find(['.', '[']).unwrap_or(name.len());
                self.member(&name[..end])?;
                rest = &name[end..];
            }
        }
    }

    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.text.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn string(&mut self) -> Option<&[u8]> {
        self.take(b'"')?;
        let start = self.at;
        while *self.text.get(self.at)? != b'"' {
            self.at += if self.text[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        Some(&self.text[start..self.at - 1])
    }

    /// Skips a value.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            self.space();
            match *self.text.get(self.at)? {
                b'"' => _ = self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    let word = self.text[self.at..].iter().position(|b| b",:]} \t\r\n\"{[".contains(b));
                    self.at += word.unwrap_or(self.text.len() - self.at).max(1);
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn element(&mut self, index: usize) -> Option<()> {
        self.take(b'[')?;
        for _ in 0..index {
            self.skip()?;
            self.take(b',')?;
        }
        Some(())
    }

    fn member(&mut self, name: &str) -> Option<()> {
        self.take(b'{')?;
        loop {
            let found = self.string()? == name.as_bytes();
            self.take(b':')?;
            if found {
                return Some(());
            }
            self.skip()?;
            self.take(b',')?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_resolve_to_their_values() {
        let text = r#"{"a": [1, {"b\"": "x]", "c": [true, {}]}], "d": null}"#;
        let value = parse(text).unwrap();
        let at = At::root(&value).need("a").unwrap().list().unwrap()[1].need("c").unwrap().list().unwrap()[1].clone();
        assert_eq!(at.path(), "a[1].c[1]");
        let found = Finder { text: text.as_bytes(), at: 0 }.find("a[1].c[1]").unwrap();
        assert_eq!(&text[found..found + 2], "{}");
        assert_eq!(Finder { text: text.as_bytes(), at: 0 }.find("a[7]"), None);
        assert_eq!(Finder { text: text.as_bytes(), at: 0 }.find("x.y"), None);
        assert!(At::root(&value).get("d").is_none());
    }

    #[test]
    fn syntax_errors_are_reported_with_their_json_path() {
        for (text, path, what) in [
            (
                r#"{"pipelines": [{"tables": [{}, {}, {}, {"key": [{"target": ["#,
                "pipelines[0].tables[3].key[0].target[0]",
                "cut off",
            ),
            (r#"{"pipelines": [{"tables": [{}, {}, {}, {"key": "#, "pipelines[0].tables[3].key", "cut off"),
            (r#"{"pipelines": [{"name": "a\"b, [{"#, "pipelines[0].name", "cut off"),
            (r#"{"a": {"b": 1}, "c"#, "", "cut off"),
            (r#"{"a": {"b": 1}, "c""#, "c", "cut off"),
            ("", "", "cut off"),
            (r#"{"a": [true, nul]}"#, "a[1]", "not JSON"),
            ("{\"a\": [1,\n 2,\n NaN]}", "a[2]", "not JSON"),
            (r#"{"a": {"b": [1e999]}}"#, "a.b[0]", "out of range"),
            (r#"{"a": [{}, {"id" 3}]}"#, "a[1].id", "not JSON"),
            (r#"{"a": [{}, {"id": 3, "name": "x", "id": 4}]}"#, "a[1].id", "duplicate attribute"),
            (r#"{"a b": {"": [01]}}"#, r#"["a b"][""][0]"#, "not JSON"),
            (r#"{"a": 1} x"#, "", "not JSON"),
            ("[\"\u{1}\"]", "[0]", "not JSON"),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!(fault.path, path, "{text}: {}", fault.message);
            assert!(fault.message.contains(what), "{text}: {}", fault.message);
        }
        let whole = r#"{"a": [1, -2, 0.5, 18446744073709551616], "b": {"c": [null, true, "\u00e4"]}}"#;
        assert_eq!(parse(whole).unwrap(), serde_json::from_str::<Value>(whole).unwrap());
    }

    #[test]
    fn paths_have_a_bound() {
        let deep = format!("{{\"{}\": {}", "n".repeat(1000), "{\"a\": [".repeat(20_000));
        let fault = parse(&deep).unwrap_err();
        assert_eq!(fault.code, codes::TOO_LARGE);
        let begin = format!("[\"{}...\"].a[0]", "n".repeat(SHOWN_NAME_MAX));
        assert!(
            fault.path.starts_with(&begin) && fault.path.ends_with("...[0].a[0].a[0].a[0].a[0].a[0].a[0].a[0].a"),
            "{}",
            fault.path
        );
    }

    #[test]
    fn deep_nesting_is_refused_before_it_is_parsed() {
        let deep = "[".repeat(1 << 20);
        assert_eq!(parse(&deep).unwrap_err().code, codes::TOO_LARGE);
        assert_eq!(parse("{\"a\": [1,").unwrap_err().code, codes::NO_JSON);
        assert_eq!(parse("{} x").unwrap_err().code, codes::NO_JSON);
        let strings = format!("[\"{}\"]", "[{".repeat(DEPTH_MAX));
        assert!(parse(&strings).is_ok());
    }
}
