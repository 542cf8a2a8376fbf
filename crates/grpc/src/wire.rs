//! Memory cost of a protobuf message, computed from its encoded bytes before anything is allocated for it.
//!
//! Decoders allocate what a message asks for: the two bytes of an empty `Update` become some hundred bytes, so a
//! message of 100 MB can become tens of gigabytes. [`Schema`] describes all messages of the services (from the
//! descriptors that the build produces), and is used to walk the bytes of a message. [`Schema::cost`] is an upper bound
//! of the memory of the decoded structures and their vectors; it stops as soon as a limit is exceeded. The walk
//! allocates nothing. [`Fields`] yields single fields of a message, for checks and records that need no more.
//!
//! Wire format: protobuf encoding guide, "Message Structure" (varint, I64, LEN, I32; groups are refused, because no
//! message here has any). Threads: any; the schema is built once and shared. Tests: below, and `crates/difftest` (fuzz
//! target `messages`, with a counting allocator).

use messages::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Limit on nested messages; the same as in `prost`.
const DEPTH_MAX: usize = 100;
/// Limit on the fields of a message whose elements are counted; no message of the services has as many.
const FIELDS_MAX: usize = 48;
/// Smallest non-zero capacity of a growing `Vec` (standard library, elements of up to 1 KiB).
const FIRST_CAPACITY: u64 = 4;
/// Worst-case slots per element of a hash table: at least one slot in eight stays empty, and the capacity doubles.
const MAP_FACTOR: u64 = 3;
/// Upper bound of an allocator's overhead per block: header, and rounding of small blocks.
const BLOCK_BYTES: u64 = 16;

/// Why a message must not be decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// Its bytes are not a valid message of the type.
    #[error("the request is no {message}: {problem} at byte {at}")]
    Malformed {
        /// The message type.
        message: String,
        /// What is wrong.
        problem: &'static str,
        /// The byte offset.
        at: usize,
    },
    /// Decoding it would take more than the limit.
    #[error("decoding this {message} would take more than {limit} bytes of memory")]
    TooLarge {
        /// The message type.
        message: String,
        /// The limit.
        limit: u64,
    },
}

/// A method of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Method {
    /// The request's message type.
    pub input: MessageId,
    /// Whether the client streams requests.
    pub streams_requests: bool,
}

/// A message type of the schema.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageId(usize);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A number; holds the bytes of an element in a vector.
    Number(u64),
    /// `bytes` or `string`.
    Bytes,
    Message(MessageId),
}

#[derive(Clone, Debug)]
struct Field {
    number: u32,
    name: String,
    kind: Kind,
    repeated: bool,
    /// A map; its elements are messages of key and value.
    map: bool,
    /// In a block of its own (`Box`), because the message type is recursive.
    boxed: bool,
}

#[derive(Clone, Debug, Default)]
struct MessageSchema {
    name: String,
    /// Sorted by number.
    fields: Vec<Field>,
    /// Upper bound of the structure's size in bytes.
    size: u64,
}

/// All messages and methods of the services.
pub struct Schema {
    messages: Vec<MessageSchema>,
    methods: HashMap<String, Method>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    Schema::new(&files)
});

/// The schema of this server's services.
pub fn schema() -> &'static Schema {
    &SCHEMA
}

impl Schema {
    fn new(files: &FileDescriptorSet) -> Schema {
        let mut named: Vec<(String, &DescriptorProto)> = Vec::new();
        for file in &files.file {
            let mut waiting: Vec<(String, &DescriptorProto)> =
                file.message_type.iter().map(|m| (format!(".{}", file.package()), m)).collect();
            while let Some((scope, message)) = waiting.pop() {
                let name = format!("{scope}.{}", message.name());
                waiting.extend(message.nested_type.iter().map(|m| (name.clone(), m)));
                named.push((name, message));
            }
        }
        let ids: HashMap<&str, MessageId> =
            named.iter().enumerate().map(|(i, (name, _))| (name.as_str(), MessageId(i))).collect();
        let mut messages: Vec<MessageSchema> = named
            .iter()
            .map(|(name, message)| {
                let mut fields: Vec<Field> = message.field.iter().filter_map(|f| field(f, &ids)).collect();
                fields.sort_by_key(|f| f.number);
                MessageSchema { name: name.trim_start_matches('.').to_string(), fields, size: 0 }
            })
            .collect();
        let is_map =
            |message: MessageId| named[message.0].1.options.as_ref().is_some_and(|options| options.map_entry());
        for field in messages.iter_mut().flat_map(|message| &mut message.fields) {
            field.map = matches!(field.kind, Kind::Message(inner) if is_map(inner));
        }
        let protos: Vec<&DescriptorProto> = named.iter().map(|(_, message)| *message).collect();
        for i in 0..messages.len() {
            messages[i].size = size(&mut messages, &protos, i, &mut Vec::new());
        }
        let mut methods = HashMap::new();
        for file in &files.file {
            for service in &file.service {
                for method in &service.method {
                    let Some(input) = ids.get(method.input_type()) else { continue };
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    methods.insert(path, Method { input: *input, streams_requests: method.client_streaming() });
                }
            }
        }
        Schema { messages, methods }
    }

    /// The method with a path, as in an HTTP/2 request.
    pub fn method(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }

    /// The paths of all methods.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.methods.keys().map(String::as_str)
    }

    /// The full name of a message type, such as `p4.v1.Update`.
    pub fn name(&self, message: MessageId) -> &str {
        &self.messages[message.0].name
    }

    /// Upper bound of the bytes that decoding a message allocates, not counting its encoded bytes.
    ///
    /// # Errors
    ///
    /// The message is malformed, or the bound exceeds `limit`; the walk then stops.
    pub fn cost(&self, message: MessageId, bytes: &[u8], limit: u64) -> Result<u64, WireError> {
        let mut walk = Walk { schema: self, top: message, length: bytes.len(), limit, cost: 0 };
        walk.add(self.messages[message.0].size)?;
        walk.message(message, bytes, 0)?;
        Ok(walk.cost)
    }

    /// The top-level fields of a message, in the order of its bytes. Unknown fields are skipped.
    pub fn fields<'a>(&'a self, message: MessageId, bytes: &'a [u8]) -> Fields<'a> {
        Fields { schema: self, message, reader: Reader { bytes, at: 0 } }
    }
}

fn field(proto: &FieldDescriptorProto, ids: &HashMap<&str, MessageId>) -> Option<Field> {
    let kind = match proto.r#type() {
        Type::Message => Kind::Message(*ids.get(proto.type_name())?),
        Type::String | Type::Bytes => Kind::Bytes,
        // No message here has groups.
        Type::Group => return None,
        Type::Bool => Kind::Number(1),
        Type::Int32 | Type::Uint32 | Type::Sint32 | Type::Fixed32 | Type::Sfixed32 | Type::Float | Type::Enum => {
            Kind::Number(4)
        }
        Type::Int64 | Type::Uint64 | Type::Sint64 | Type::Fixed64 | Type::Sfixed64 | Type::Double => Kind::Number(8),
    };
    let repeated = proto.label() == Label::Repeated;
    let (number, name) = (proto.number() as u32, proto.name().to_string());
    Some(Field { number, name, kind, repeated, map: false, boxed: false })
}

/// Upper bound of a structure's size in bytes, for the layout that `prost` generates: fields in place, a `oneof` as an
/// enum, a recursive message in a `Box`. Marks such fields as boxed.
fn size(messages: &mut [MessageSchema], protos: &[&DescriptorProto], of: usize, open: &mut Vec<usize>) -> u64 {
    const POINTER: u64 = 8;
    const VECTOR: u64 = 24;
    const MAP: u64 = 48;
    if messages[of].size > 0 {
        return messages[of].size;
    }
    open.push(of);
    let (mut total, mut choices): (u64, HashMap<i32, u64>) = (0, HashMap::new());
    for at in 0..messages[of].fields.len() {
        let Field { number, kind, repeated, map, .. } = messages[of].fields[at].clone();
        let taken = match kind {
            _ if map => MAP,
            _ if repeated => VECTOR,
            Kind::Number(_) => 2 * POINTER,
            Kind::Bytes => VECTOR,
            Kind::Message(inner) if open.contains(&inner.0) => {
                messages[of].fields[at].boxed = true;
                POINTER
            }
            Kind::Message(inner) => size(messages, protos, inner.0, open) + POINTER,
        };
        let choice = protos[of].field.iter().find(|f| f.number() as u32 == number).and_then(|f| f.oneof_index);
        match choice {
            Some(choice) => {
                let largest = choices.entry(choice).or_default();
                *largest = (*largest).max(taken);
            }
            None => total += taken,
        }
    }
    open.pop();
    total + choices.values().map(|largest| largest + POINTER).sum::<u64>()
}

/// The walk that sums up a message's cost.
struct Walk<'a> {
    schema: &'a Schema,
    top: MessageId,
    length: usize,
    limit: u64,
    cost: u64,
}

impl Walk<'_> {
    fn add(&mut self, bytes: u64) -> Result<(), WireError> {
        self.cost = self.cost.saturating_add(bytes);
        match self.cost > self.limit {
            true => Err(WireError::TooLarge { message: self.schema.name(self.top).to_string(), limit: self.limit }),
            false => Ok(()),
        }
    }

    fn malformed(&self, problem: &'static str, rest: usize) -> WireError {
        let message = self.schema.name(self.top).to_string();
        WireError::Malformed { message, problem, at: self.length - rest.min(self.length) }
    }

    /// Adds the growth of a vector by one element: it doubles, and the old block lives until the new one is filled.
    fn element(&mut self, before: u64, size: u64) -> Result<(), WireError> {
        if before == 0 {
            return self.add(FIRST_CAPACITY * size + BLOCK_BYTES);
        }
        match before >= FIRST_CAPACITY && before.is_power_of_two() {
            // From n to 2n elements, while the old n are copied.
            true => self.add(before * size + before * size / 2),
            false => Ok(()),
        }
    }

    fn message(&mut self, message: MessageId, bytes: &[u8], depth: usize) -> Result<(), WireError> {
        let schema = self.schema;
        let MessageSchema { fields, .. } = &schema.messages[message.0];
        let mut counts = [0u64; FIELDS_MAX];
        let mut reader = Reader { bytes, at: 0 };
        while let Some(next) = reader.next().transpose() {
            let (number, value) = next.map_err(|problem| self.malformed(problem, reader.left()))?;
            let Ok(at) = fields.binary_search_by_key(&number, |f| f.number) else { continue };
            let field = &fields[at];
            let count = &mut counts[at.min(FIELDS_MAX - 1)];
            let before = *count;
            match (field.kind, value) {
                (Kind::Number(size), Value::Bytes(packed)) if field.repeated => {
                    // The shortest varint is one byte.
                    *count += packed.len() as u64;
                    self.add(3 * packed.len() as u64 * size + BLOCK_BYTES)?;
                }
                (Kind::Number(size), Value::Number(_)) if field.repeated => {
                    *count += 1;
                    self.element(before, size)?;
                }
                (Kind::Bytes, Value::Bytes(value)) => {
                    *count += 1;
                    if field.repeated {
                        self.element(before, 24)?;
                    }
                    self.add(value.len() as u64 + BLOCK_BYTES)?;
                }
                (Kind::Message(inner), Value::Bytes(value)) => {
                    *count += 1;
                    // Hash tables have more empty slots than vectors.
                    let size = schema.messages[inner.0].size * if field.map { MAP_FACTOR } else { 1 };
                    if field.repeated {
                        self.element(before, size)?;
                    } else if field.boxed {
                        self.add(size + BLOCK_BYTES)?;
                    }
                    if depth == DEPTH_MAX {
                        return Err(self.malformed("more than 100 messages inside one another", reader.left()));
                    }
                    let so_far = self.cost;
                    self.message(inner, value, depth + 1)?;
                    if before > 0 && !field.repeated {
                        // Merged into the previous occurrence, whose vectors grow.
                        self.add(2 * (self.cost - so_far))?;
                    }
                }
                (Kind::Number(_), Value::Number(_)) => {}
                (Kind::Number(_), Value::Bytes(_)) | (Kind::Bytes | Kind::Message(_), Value::Number(_)) => {
                    return Err(self.malformed("a field of another type than the message has", reader.left()));
                }
            }
        }
        Ok(())
    }
}

/// A field's value on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A varint, I64 or I32.
    Number(u64),
    /// LEN: bytes, a string, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number, if it is one.
    pub fn number(self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(number),
            Value::Bytes(_) => None,
        }
    }

    /// The bytes, if it has any.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(_) => None,
        }
    }
}

/// The declared type of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A number; if its value is bytes, packed numbers.
    Number,
    /// Bytes or a string.
    Bytes,
    /// A message.
    Message(MessageId),
}

/// The numbers of a packed field, up to the first malformed one.
pub fn packed(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let mut reader = Reader { bytes, at: 0 };
    std::iter::from_fn(move || reader.varint().ok())
}

/// The fields of a message: see [`Schema::fields`]. Ends at the first malformed field.
pub struct Fields<'a> {
    schema: &'a Schema,
    message: MessageId,
    reader: Reader<'a>,
}

impl<'a> Iterator for Fields<'a> {
    /// The field's name, declared type and value.
    type Item = (&'a str, Shape, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let fields = &self.schema.messages[self.message.0].fields;
        loop {
            let (number, value) = self.reader.next().ok()??;
            let Ok(at) = fields.binary_search_by_key(&number, |f| f.number) else { continue };
            let shape = match fields[at].kind {
                Kind::Message(inner) => Shape::Message(inner),
                Kind::Bytes => Shape::Bytes,
                Kind::Number(_) => Shape::Number,
            };
            return Some((&fields[at].name, shape, value));
        }
    }
}

/// Reads fields with their numbers.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or("it ends within a number")?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number has more than ten bytes")
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.left());
        let length = length.ok_or("it ends within a field")?;
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    fn fixed(&mut self, length: u64) -> Result<Value<'a>, &'static str> {
        let taken = self.take(length)?;
        Ok(Value::Number(taken.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))))
    }

    fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, &'static str> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number =
            u32::try_from(key >> 3).ok().filter(|n| (1..1 << 29).contains(n)).ok_or("a field's number is wrong")?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.fixed(8)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.fixed(4)?,
            _ => return Err("a field's wire type is wrong"),
        };
        Ok(Some((number, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::p4::v1 as pb;

    fn write() -> MessageId {
        schema().method("/p4.v1.P4Runtime/Write").expect("the method").input
    }

    #[test]
    fn structures_are_no_larger_than_their_bound() {
        let bound = |name: &str| {
            let found = schema().messages.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("no {name}"));
            found.size as usize
        };
        assert!(size_of::<pb::Update>() <= bound("p4.v1.Update"));
        assert!(size_of::<pb::WriteRequest>() <= bound("p4.v1.WriteRequest"));
        assert!(size_of::<pb::TableEntry>() <= bound("p4.v1.TableEntry"));
        assert!(size_of::<pb::FieldMatch>() <= bound("p4.v1.FieldMatch"));
        assert!(size_of::<pb::P4Data>() <= bound("p4.v1.P4Data"));
        assert!(size_of::<pb::StreamMessageRequest>() <= bound("p4.v1.StreamMessageRequest"));
        assert!(size_of::<messages::p4::config::v1::P4Info>() <= bound("p4.config.v1.P4Info"));
        assert!(size_of::<messages::sluice::v1::BindRequest>() <= bound("sluice.v1.BindRequest"));
    }

    #[test]
    fn empty_updates_cost_what_they_become_and_the_walk_ends_at_the_limit() {
        let bytes = [0x1a, 0].repeat(1000);
        // `updates` is field 4 of the request; 3 is the election id, a single structure in place.
        let cost = schema().cost(write(), &bytes, u64::MAX).unwrap();
        assert!(cost < 4096, "{cost}");
        let bytes = [0x22, 0].repeat(1000);
        let cost = schema().cost(write(), &bytes, u64::MAX).unwrap();
        assert!(cost >= 1024 * size_of::<pb::Update>() as u64, "{cost}");
        let error = schema().cost(write(), &bytes, 10_000).unwrap_err();
        assert_eq!(error, WireError::TooLarge { message: "p4.v1.WriteRequest".into(), limit: 10_000 });
    }

    #[test]
    fn broken_messages_are_refused_at_their_place() {
        for (bytes, problem) in [
            (&[0x22, 5, 1][..], "ends within a field"),
            (&[0x08, 0x80], "ends within a number"),
            (&[0x0b], "wire type"),
            (&[0x00, 1], "number is wrong"),
            (&[0x20, 1], "another type"),
        ] {
            let error = schema().cost(write(), bytes, u64::MAX).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("p4.v1.WriteRequest"), "{error}");
        }
        // A P4Data that is a tuple of a tuple of ...
        let mut deep = Vec::new();
        for _ in 0..200 {
            let mut outer = vec![0x22];
            prost::encoding::encode_varint(deep.len() as u64 + 1 + varint_len(deep.len()), &mut outer);
            outer.push(0x0a);
            prost::encoding::encode_varint(deep.len() as u64, &mut outer);
            outer.extend(&deep);
            deep = outer;
        }
        let data = schema().messages.iter().position(|m| m.name == "p4.v1.P4Data").unwrap();
        let error = schema().cost(MessageId(data), &deep, u64::MAX).unwrap_err().to_string();
        assert!(error.contains("100 messages inside one another"), "{error}");
    }

    fn varint_len(n: usize) -> u64 {
        prost::encoding::encoded_len_varint(n as u64) as u64
    }

    #[test]
    fn outer_fields_have_their_names() {
        let update = pb::Update { r#type: 1, ..Default::default() };
        let request =
            pb::WriteRequest { device_id: 7, updates: vec![update; 2], role: "sdn".into(), ..Default::default() };
        let bytes = request.encode_to_vec();
        let fields: Vec<_> = schema().fields(write(), &bytes).map(|(name, _, value)| (name, value)).collect();
        assert!(fields.contains(&("device_id", Value::Number(7))), "{fields:?}");
        assert!(fields.contains(&("role", Value::Bytes(b"sdn"))), "{fields:?}");
        assert_eq!(fields.iter().filter(|(name, _)| *name == "updates").count(), 2);
    }
}
