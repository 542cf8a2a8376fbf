//! Encoding of thrift messages: Apache's binary protocol in its strict form, which all current clients use, with
//! limits.
//!
//! A message has at most [`MESSAGE_BYTES_MAX`] bytes and [`VALUES_MAX`] values, nested at most [`DEPTH_MAX`] deep.
//! Memory is allocated for bytes received, never for an announced length. A malformed message, or one that exceeds a
//! limit, ends the connection, since the start of the next message is unknown.
//!
//! Structs are fields by number, as on the wire. Code that uses them (`service` and its parts) knows the fields by the
//! numbers of bmv2's interface definitions.
//!
//! Tests: below.

use crate::fault::Fault;
use std::io::{self, Read, Write};
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier,
    TMessageIdentifier, TMessageType, TOutputProtocol, TStructIdentifier, TType,
};
use thrift::{ApplicationErrorKind, TConfiguration};

/// Limit on the length of a message in bytes; the largest content is a program as JSON.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Limit on values of a message. Requests are small apart from one text.
pub const VALUES_MAX: usize = 1 << 16;
/// Limit on the nesting of structs and lists.
pub const DEPTH_MAX: usize = 8;
/// Limit on fields of a struct; methods take at most 6.
pub const FIELDS_MAX: usize = 32;
/// Limit on the length of a method's name in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Limit on the length of an answer's value in bytes: a table of some hundred thousand entries.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;

/// A value of any type of the protocol that bmv2's services use.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `bool`.
    Bool(bool),
    /// `byte`.
    I8(i8),
    /// `i16`.
    I16(i16),
    /// `i32`, and enumerations.
    I32(i32),
    /// `i64`.
    I64(i64),
    /// `double`.
    Double(f64),
    /// `string` and `binary`.
    Bytes(Vec<u8>),
    /// Fields with their numbers.
    Struct(Vec<(i16, Value)>),
    /// A list or set.
    List(Vec<Value>),
    /// Pairs of texts, in answers only.
    Map(Vec<(String, String)>),
    /// A list of many elements, in answers only.
    Elements(Elements),
}

/// A list in encoded form, so that a large answer is in memory only once.
#[derive(Clone, PartialEq, Debug)]
pub struct Elements {
    element: TType,
    count: i32,
    bytes: Vec<u8>,
}

impl Elements {
    /// An empty list whose elements have the type of `example`.
    pub fn of(example: &Value) -> Elements {
        Elements { element: example.wire_type(), count: 0, bytes: Vec::new() }
    }

    /// Appends an element.
    ///
    /// # Errors
    /// If the list exceeds [`ANSWER_BYTES_MAX`] bytes.
    pub fn push(&mut self, value: &Value) -> Result<(), TooLong> {
        debug_assert_eq!(value.wire_type(), self.element);
        let mut out = TBinaryOutputProtocol::new(std::mem::take(&mut self.bytes), true);
        let written = write_value(&mut out, value);
        self.bytes = out.transport;
        // Writing to memory cannot fail.
        debug_assert!(written.is_ok());
        self.count += 1;
        if self.bytes.len() > ANSWER_BYTES_MAX { Err(TooLong) } else { Ok(()) }
    }

    /// Length of the encoded elements in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The elements in another order, given by their byte ranges.
    pub fn reordered(self, ranges: impl Iterator<Item = std::ops::Range<usize>>) -> Elements {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        ranges.for_each(|range| bytes.extend_from_slice(&self.bytes[range]));
        Elements { bytes, ..self }
    }
}

/// The error of an answer with more than [`ANSWER_BYTES_MAX`] bytes.
#[derive(Debug)]
pub struct TooLong;

/// A writer to memory that fails beyond [`ANSWER_BYTES_MAX`] bytes.
#[derive(Default)]
pub(crate) struct Bounded(Vec<u8>);

impl Bounded {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Value {
        Value::Bytes(text.into().into_bytes())
    }

    fn wire_type(&self) -> TType {
        match self {
            Value::Bool(_) => TType::Bool,
            Value::I8(_) => TType::I08,
            Value::I16(_) => TType::I16,
            Value::I32(_) => TType::I32,
            Value::I64(_) => TType::I64,
            Value::Double(_) => TType::Double,
            Value::Bytes(_) => TType::String,
            Value::Struct(_) => TType::Struct,
            Value::List(_) | Value::Elements(_) => TType::List,
            Value::Map(_) => TType::Map,
        }
    }

    /// Length of its encoding in bytes.
    fn len_bytes(&self) -> usize {
        let counted = |bytes: usize| 4 + bytes;
        match self {
            Value::Bool(_) | Value::I8(_) => 1,
            Value::I16(_) => 2,
            Value::I32(_) => 4,
            Value::I64(_) | Value::Double(_) => 8,
            Value::Bytes(bytes) => counted(bytes.len()),
            Value::Struct(fields) => fields.iter().map(|(_, value)| 3 + value.len_bytes()).sum::<usize>() + 1,
            Value::List(values) => 1 + counted(values.iter().map(Value::len_bytes).sum()),
            Value::Elements(list) => 1 + counted(list.len_bytes()),
            Value::Map(pairs) => {
                2 + counted(pairs.iter().map(|(key, value)| counted(key.len()) + counted(value.len())).sum())
            }
        }
    }

    /// The field of a struct with this number.
    pub fn field(&self, id: i16) -> Option<&Value> {
        match self {
            Value::Struct(fields) => fields.iter().find(|(have, _)| *have == id).map(|(_, value)| value),
            _ => None,
        }
    }
}

/// A call, as received.
#[derive(Debug)]
pub struct Call {
    /// The service's name, a colon, and the method's name.
    pub name: String,
    /// The sequence number, repeated in the answer.
    pub sequence: i32,
    /// Whether the client expects no answer.
    pub oneway: bool,
    /// The arguments, a struct.
    pub arguments: Value,
}

/// The result of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The method's result; `None` if it has none.
    Result(Option<Value>),
    /// The method's own exception, with its code.
    Exception(i32),
    /// The protocol's exception, with its text.
    Failed(ApplicationErrorKind, String),
}

/// The rest of a message: the stream, and the number of bytes that may still be read.
struct Incoming<'a> {
    from: &'a mut dyn Read,
    left: usize,
}

impl Read for Incoming<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !into.is_empty() {
            return Err(io::Error::other(format!("the message has more than {MESSAGE_BYTES_MAX} bytes")));
        }
        let most = into.len().min(self.left);
        let read = self.from.read(&mut into[..most])?;
        self.left -= read;
        Ok(read)
    }
}

struct Reader<'a> {
    protocol: TBinaryInputProtocol<Incoming<'a>>,
    values_left: usize,
}

fn wrong(why: impl Into<String>) -> thrift::Error {
    thrift::Error::Protocol(thrift::ProtocolError::new(thrift::ProtocolErrorKind::InvalidData, why.into()))
}

/// Reads a call.
///
/// # Errors
/// If the stream fails or ends early, or the message is malformed or exceeds a limit.
pub fn read_call(from: &mut dyn Read) -> thrift::Result<Call> {
    let names = TConfiguration::builder().max_string_size(Some(NAME_BYTES_MAX)).build()?;
    let incoming = Incoming { from, left: MESSAGE_BYTES_MAX };
    let mut reader =
        Reader { protocol: TBinaryInputProtocol::with_config(incoming, true, names), values_left: VALUES_MAX };
    let begin = reader.protocol.read_message_begin()?;
    let oneway = match begin.message_type {
        TMessageType::Call => false,
        TMessageType::OneWay => true,
        other => return Err(wrong(format!("a message of type {other} is not a request"))),
    };
    let arguments = reader.value(TType::Struct, 0)?;
    reader.protocol.read_message_end()?;
    Ok(Call { name: begin.name, sequence: begin.sequence_number, oneway, arguments })
}

impl Reader<'_> {
    fn value(&mut self, of: TType, depth: usize) -> thrift::Result<Value> {
        let left = self.values_left.checked_sub(1);
        self.values_left = left.ok_or_else(|| wrong(format!("the message has more than {VALUES_MAX} values")))?;
        if depth > DEPTH_MAX {
            return Err(wrong(format!("the message is nested more than {DEPTH_MAX} deep")));
        }
        let on = &mut self.protocol;
        Ok(match of {
            TType::Bool => Value::Bool(on.read_bool()?),
            TType::I08 => Value::I8(on.read_i8()?),
            TType::I16 => Value::I16(on.read_i16()?),
            TType::I32 => Value::I32(on.read_i32()?),
            TType::I64 => Value::I64(on.read_i64()?),
            TType::Double => Value::Double(on.read_double()?),
            TType::String => Value::Bytes(self.bytes()?),
            TType::Struct => {
                on.read_struct_begin()?;
                let mut fields = Vec::new();
                loop {
                    let field = self.protocol.read_field_begin()?;
                    if field.field_type == TType::Stop {
                        break;
                    }
                    if fields.len() == FIELDS_MAX {
                        return Err(wrong(format!("a struct has more than {FIELDS_MAX} fields")));
                    }
                    let id = field.id.ok_or_else(|| wrong("a field has no number"))?;
                    let value = self.value(field.field_type, depth + 1)?;
                    if fields.iter().any(|(have, _)| *have == id) {
                        return Err(wrong(format!("field {id} is given twice")));
                    }
                    fields.push((id, value));
                }
                self.protocol.read_struct_end()?;
                Value::Struct(fields)
            }
            TType::List | TType::Set => {
                // A set has the same encoding as a list.
                let list = on.read_list_begin()?;
                let mut values = Vec::new();
                for _ in 0..list.size {
                    values.push(self.value(list.element_type, depth + 1)?);
                }
                Value::List(values)
            }
            other => return Err(wrong(format!("no method takes a value of type {other}"))),
        })
    }

    fn bytes(&mut self) -> thrift::Result<Vec<u8>> {
        let length = self.protocol.read_i32()?;
        let length = usize::try_from(length).map_err(|_| wrong(format!("a text of {length} bytes")))?;
        let from = &mut self.protocol.transport;
        if length > from.left {
            return Err(wrong(format!("a text of {length} bytes: a message has at most {MESSAGE_BYTES_MAX}")));
        }
        // Grows with the bytes received.
        let mut bytes = Vec::new();
        from.take(length as u64).read_to_end(&mut bytes).map_err(thrift::Error::from)?;
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

type Writer = TBinaryOutputProtocol<Vec<u8>>;

fn write_value(out: &mut Writer, value: &Value) -> thrift::Result<()> {
    match value {
        Value::Bool(value) => out.write_bool(*value),
        Value::I8(value) => out.write_i8(*value),
        Value::I16(value) => out.write_i16(*value),
        Value::I32(value) => out.write_i32(*value),
        Value::I64(value) => out.write_i64(*value),
        Value::Double(value) => out.write_double(*value),
        Value::Bytes(value) => out.write_bytes(value),
        Value::Struct(fields) => {
            out.write_struct_begin(&TStructIdentifier::new(""))?;
            for (id, value) in fields {
                out.write_field_begin(&TFieldIdentifier::new::<Option<String>, String, i16>(
                    None,
                    value.wire_type(),
                    *id,
                ))?;
                write_value(out, value)?;
                out.write_field_end()?;
            }
            out.write_field_stop()?;
            out.write_struct_end()
        }
        Value::List(values) => {
            // The element type of an empty list is irrelevant.
            let element = values.first().map_or(TType::Struct, Value::wire_type);
            out.write_list_begin(&TListIdentifier::new(element, values.len() as i32))?;
            values.iter().try_for_each(|value| write_value(out, value))?;
            out.write_list_end()
        }
        Value::Elements(list) => {
            out.write_list_begin(&TListIdentifier::new(list.element, list.count))?;
            out.transport.extend_from_slice(&list.bytes);
            out.write_list_end()
        }
        Value::Map(pairs) => {
            out.write_map_begin(&TMapIdentifier::new(TType::String, TType::String, pairs.len() as i32))?;
            for (key, value) in pairs {
                out.write_string(key)?;
                out.write_string(value)?;
            }
            out.write_map_end()
        }
    }
}

/// Encodes a call.
pub fn request(call: &Call) -> thrift::Result<Vec<u8>> {
    let mut out = TBinaryOutputProtocol::new(Vec::new(), true);
    let kind = if call.oneway { TMessageType::OneWay } else { TMessageType::Call };
    out.write_message_begin(&TMessageIdentifier::new(&call.name, kind, call.sequence))?;
    write_value(&mut out, &call.arguments)?;
    out.write_message_end()?;
    Ok(out.transport)
}

/// Encodes the answer to a call; `method` is without the service's name. An answer that is too long becomes an
/// exception.
pub fn answer(method: &str, sequence: i32, outcome: Outcome) -> thrift::Result<Vec<u8>> {
    let mut out = TBinaryOutputProtocol::new(Vec::new(), true);
    let (kind, body) = match outcome {
        Outcome::Result(Some(value)) if value.len_bytes() > ANSWER_BYTES_MAX => {
            return answer(method, sequence, Fault::from(TooLong).outcome());
        }
        Outcome::Result(result) => {
            (TMessageType::Reply, Value::Struct(result.into_iter().map(|value| (0, value)).collect()))
        }
        Outcome::Exception(code) => {
            let exception = Value::Struct(vec![(1, Value::I32(code))]);
            (TMessageType::Reply, Value::Struct(vec![(1, exception)]))
        }
        Outcome::Failed(kind, message) => {
            (TMessageType::Exception, Value::Struct(vec![(1, Value::text(message)), (2, Value::I32(kind as i32))]))
        }
    };
    out.write_message_begin(&TMessageIdentifier::new(method, kind, sequence))?;
    write_value(&mut out, &body)?;
    out.write_message_end()?;
    Ok(out.transport)
}

#[cfg(test)]
mod tests;
