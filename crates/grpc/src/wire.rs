//! What a protobuf message costs in memory, found out from its bytes before anything is allocated for it.
//!
//! Decoders allocate as a message says: two bytes of an empty `Update` become some hundred bytes, so a message of 100 MB becomes tens of
//! gigabytes. [`Schema`] knows all messages of the services (from the descriptors that the build makes), and walks a message's bytes
//! along them: [`Schema::cost`] is an upper bound of what decoded structures and their vectors take, and stops as soon as a limit is
//! passed. The walk allocates nothing. [`Fields`] gives single fields of a message, for checks and records that need no more.
//!
//! Wire format: protobuf encoding guide, "Message Structure" (varint, I64, LEN, I32; groups are refused, as no message here has any).
//! Threads: none; the schema is made once and shared. Tests: below, `crates/difftest` (fuzz target `messages`, with a counting allocator).

use messages::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Messages inside one another; what `prost` decodes at most.
const DEPTH_MAX: usize = 100;
/// Fields of a message of which elements are counted; no message of the services has as many.
const FIELDS_MAX: usize = 48;
/// Smallest capacity of a growing vector (`Vec` of the standard library, elements of up to 1 KiB).
const FIRST_CAPACITY: u64 = 4;
/// A hash table has a place for each element, at least one of eight stays empty, and their number doubles.
const MAP_FACTOR: u64 = 3;
/// What an allocator adds to a block, at most: header and rounding of small ones.
const BLOCK_BYTES: u64 = 16;

/// Why a message is not decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// Its bytes are no message of the type.
    #[error("the request is no {message}: {problem} at byte {at}")]
    Malformed {
        /// The type.
        message: String,
        /// What is wrong.
        problem: &'static str,
        /// Where.
        at: usize,
    },
    /// Decoding it would take more than the limit.
    #[error("decoding this {message} would take more than {limit} bytes of memory")]
    TooLarge {
        /// The type.
        message: String,
        /// The limit.
        limit: u64,
    },
}

/// A method of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Method {
    /// Its request.
    pub input: MessageId,
    /// Whether there are many requests.
    pub streams_requests: bool,
}

/// A message type of the schema.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageId(usize);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A number, with the bytes that it takes in a vector.
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
    /// A map, of which each element is a message of key and value.
    map: bool,
    /// In a block of its own: the message is inside itself.
    boxed: bool,
}

#[derive(Clone, Debug, Default)]
struct MessageSchema {
    name: String,
    /// By number.
    fields: Vec<Field>,
    /// Bytes of the structure, at most.
    size: u64,
}

/// All messages and methods.
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

    /// The method that a request's path names.
    pub fn method(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }

    /// All methods' paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.methods.keys().map(String::as_str)
    }

    /// A message type's full name, as `p4.v1.Update`.
    pub fn name(&self, message: MessageId) -> &str {
        &self.messages[message.0].name
    }

    /// Bytes of memory that decoding takes at most, the message's own not included. Ends as soon as it is more than `limit`.
    pub fn cost(&self, message: MessageId, bytes: &[u8], limit: u64) -> Result<u64, WireError> {
        let mut walk = Walk { schema: self, top: message, length: bytes.len(), limit, cost: 0 };
        walk.add(self.messages[message.0].size)?;
        walk.message(message, bytes, 0)?;
        Ok(walk.cost)
    }

    /// The fields of a message, outermost ones, in the order of its bytes; those that the type does not have are left out.
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

/// An upper bound of a structure's size, as `prost` lays messages out: fields in place, a `oneof` as an enum, a message inside itself in
/// a block. Marks the fields that are such blocks.
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

/// Adds up what a message takes.
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

    /// A vector's growth when it gets another element: doubling, and the old block stays until the new one is filled.
    fn element(&mut self, before: u64, size: u64) -> Result<(), WireError> {
        if before == 0 {
            return self.add(FIRST_CAPACITY * size + BLOCK_BYTES);
        }
        match before >= FIRST_CAPACITY && before.is_power_of_two() {
            // From n to 2n, and n are being copied.
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
                    // The shortest number is one byte.
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
                    // Tables of maps are emptier than vectors.
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
                        // Merged into the one before, whose vectors grow on.
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

/// A field's value as it is on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A number of any type.
    Number(u64),
    /// Bytes, a text, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// A number.
    pub fn number(self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(number),
            Value::Bytes(_) => None,
        }
    }

    /// Bytes.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(_) => None,
        }
    }
}

/// What the type of a message says of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A number; bytes are several of them, packed.
    Number,
    /// Bytes or a text.
    Bytes,
    /// A message.
    Message(MessageId),
}

/// Packed numbers, until there is none any more.
pub fn packed(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let mut reader = Reader { bytes, at: 0 };
    std::iter::from_fn(move || reader.varint().ok())
}

/// See [`Schema::fields`]. Ends where the bytes are no message any more.
pub struct Fields<'a> {
    schema: &'a Schema,
    message: MessageId,
    reader: Reader<'a>,
}

impl<'a> Iterator for Fields<'a> {
    /// The field's name, what its bytes are, its value.
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

/// Fields with their numbers.
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
        // `updates` is field 4 of the request; 3 is the election id, which is one structure in place.
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
