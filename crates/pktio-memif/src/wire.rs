//! The messages of memif's control channel, version 2.0: 128 bytes each, in native byte
//! order, with at most one file descriptor.
//!
//! [`Message::decode`] accepts any bytes; `handshake` checks the numbers in messages. Strings end at their terminating
//! zero, and unprintable characters are replaced, since strings reach the log.
//!
//! Source: the message structures of VPP's memif plugin, as a format. Threads: any. Tests: below.

/// Bytes of every message.
pub const MESSAGE_BYTES: usize = 128;

/// Protocol version 2.0, the only one.
pub const VERSION: u16 = 0x0200;

/// Interface mode: frames begin with an Ethernet header.
pub const MODE_ETHERNET: u8 = 0;

/// Ring flag: the ring carries frames from the client to the server.
pub const RING_CLIENT_TO_SERVER: u16 = 1;

const NAME_BYTES: usize = 32;
const SECRET_BYTES: usize = 24;
const REASON_BYTES: usize = 96;

/// A message, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The last message was accepted.
    Ack,
    /// The server's first message: its limits.
    Hello(Hello),
    /// The client selects an interface.
    Init(Init),
    /// The client shares a memory region; the file descriptor is its file.
    AddRegion(AddRegion),
    /// The client announces a ring; the file descriptor is the eventfd that interrupts the ring's receiver.
    AddRing(AddRing),
    /// The client has announced all regions and rings.
    Connect(String),
    /// The server has accepted them: packets may pass.
    Connected(String),
    /// One side ends the connection, with a reason.
    Disconnect(String),
}

/// A server's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server's name.
    pub name: String,
    /// Lowest supported version.
    pub min_version: u16,
    /// Highest supported version.
    pub max_version: u16,
    /// Highest region index.
    pub max_region: u16,
    /// Highest index of a ring to the client.
    pub max_to_client: u16,
    /// Highest index of a ring to the server.
    pub max_to_server: u16,
    /// Base-2 logarithm of the maximum number of descriptors of a ring.
    pub max_ring_log2: u8,
}

/// The interface that a client selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// The client's protocol version.
    pub version: u16,
    /// The interface's id on the socket.
    pub id: u32,
    /// Interface mode: [`MODE_ETHERNET`] or another.
    pub mode: u8,
    /// Shared secret that a server may require; unused here.
    pub secret: [u8; SECRET_BYTES],
    /// The client's name.
    pub name: String,
}

/// A region of the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRegion {
    /// Index, ascending from 0.
    pub index: u16,
    /// Length in bytes, from the file's start.
    pub bytes: u64,
}

/// A ring in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// [`RING_CLIENT_TO_SERVER`] or 0.
    pub flags: u16,
    /// Index, ascending from 0 in each direction.
    pub index: u16,
    /// Index of the region that contains it.
    pub region: u16,
    /// Offset in the region, in bytes.
    pub offset: u32,
    /// Base-2 logarithm of the number of descriptors.
    pub log2: u8,
    /// Bytes of private headers before each frame.
    pub private_header_bytes: u16,
}

impl Message {
    /// Decodes a message; `None` if its type is unknown.
    pub fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Message> {
        Some(match u16_at(bytes, 0) {
            1 => Message::Ack,
            2 => Message::Hello(Hello {
                name: text_at(bytes, 2, NAME_BYTES),
                min_version: u16_at(bytes, 34),
                max_version: u16_at(bytes, 36),
                max_region: u16_at(bytes, 38),
                max_to_client: u16_at(bytes, 40),
                max_to_server: u16_at(bytes, 42),
                max_ring_log2: bytes[44],
            }),
            3 => Message::Init(Init {
                version: u16_at(bytes, 2),
                id: u32_at(bytes, 4),
                mode: bytes[8],
                secret: std::array::from_fn(|i| bytes[9 + i]),
                name: text_at(bytes, 33, NAME_BYTES),
            }),
            4 => Message::AddRegion(AddRegion { index: u16_at(bytes, 2), bytes: u64_at(bytes, 4) }),
            5 => Message::AddRing(AddRing {
                flags: u16_at(bytes, 2),
                index: u16_at(bytes, 4),
                region: u16_at(bytes, 6),
                offset: u32_at(bytes, 8),
                log2: bytes[12],
                private_header_bytes: u16_at(bytes, 13),
            }),
            6 => Message::Connect(text_at(bytes, 2, NAME_BYTES)),
            7 => Message::Connected(text_at(bytes, 2, NAME_BYTES)),
            8 => Message::Disconnect(text_at(bytes, 6, REASON_BYTES)),
            _ => return None,
        })
    }

    /// Encodes the message. Strings that are too long are truncated.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        match self {
            Message::Ack => put(0, &1u16.to_ne_bytes()),
            Message::Hello(hello) => {
                put(0, &2u16.to_ne_bytes());
                put(2, cut(&hello.name, NAME_BYTES));
                let numbers =
                    [hello.min_version, hello.max_version, hello.max_region, hello.max_to_client, hello.max_to_server];
                for (i, number) in numbers.into_iter().enumerate() {
                    put(34 + 2 * i, &number.to_ne_bytes());
                }
                put(44, &[hello.max_ring_log2]);
            }
            Message::Init(init) => {
                put(0, &3u16.to_ne_bytes());
                put(2, &init.version.to_ne_bytes());
                put(4, &init.id.to_ne_bytes());
                put(8, &[init.mode]);
                put(9, &init.secret);
                put(33, cut(&init.name, NAME_BYTES));
            }
            Message::AddRegion(region) => {
                put(0, &4u16.to_ne_bytes());
                put(2, &region.index.to_ne_bytes());
                put(4, &region.bytes.to_ne_bytes());
            }
            Message::AddRing(ring) => {
                put(0, &5u16.to_ne_bytes());
                put(2, &ring.flags.to_ne_bytes());
                put(4, &ring.index.to_ne_bytes());
                put(6, &ring.region.to_ne_bytes());
                put(8, &ring.offset.to_ne_bytes());
                put(12, &[ring.log2]);
                put(13, &ring.private_header_bytes.to_ne_bytes());
            }
            Message::Connect(name) => {
                put(0, &6u16.to_ne_bytes());
                put(2, cut(name, NAME_BYTES));
            }
            Message::Connected(name) => {
                put(0, &7u16.to_ne_bytes());
                put(2, cut(name, NAME_BYTES));
            }
            Message::Disconnect(reason) => {
                put(0, &8u16.to_ne_bytes());
                put(6, cut(reason, REASON_BYTES));
            }
        }
        bytes
    }
}

/// The longest prefix of a string that fits into a field with its terminating zero.
fn cut(text: &str, field_bytes: usize) -> &[u8] {
    let end = (0..=text.len().min(field_bytes - 1)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text.as_bytes()[..end]
}

/// Decodes a zero-terminated string; a field without a terminator is truncated as by [`cut`].
fn text_at(bytes: &[u8; MESSAGE_BYTES], at: usize, field_bytes: usize) -> String {
    let field = bytes[at..at + field_bytes - 1].iter();
    field
        .take_while(|byte| **byte != 0)
        .map(|&byte| if (b' '..=b'~').contains(&byte) { byte.into() } else { '?' })
        .collect()
}

fn u16_at(bytes: &[u8; MESSAGE_BYTES], at: usize) -> u16 {
    u16::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u32_at(bytes: &[u8; MESSAGE_BYTES], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8; MESSAGE_BYTES], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_message() -> impl Strategy<Value = Message> {
        let name = || "[ -~]{0,31}";
        prop_oneof![
            Just(Message::Ack),
            (name(), any::<[u16; 5]>(), any::<u8>()).prop_map(|(name, numbers, max_ring_log2)| {
                let [min_version, max_version, max_region, max_to_client, max_to_server] = numbers;
                let hello =
                    Hello { name, min_version, max_version, max_region, max_to_client, max_to_server, max_ring_log2 };
                Message::Hello(hello)
            }),
            (any::<(u16, u32, u8)>(), any::<[u8; 24]>(), name()).prop_map(|((version, id, mode), secret, name)| {
                Message::Init(Init { version, id, mode, secret, name })
            }),
            any::<(u16, u64)>().prop_map(|(index, bytes)| Message::AddRegion(AddRegion { index, bytes })),
            any::<(u16, u16, u16, u32, u8, u16)>().prop_map(
                |(flags, index, region, offset, log2, private_header_bytes)| Message::AddRing(AddRing {
                    flags,
                    index,
                    region,
                    offset,
                    log2,
                    private_header_bytes
                })
            ),
            name().prop_map(Message::Connect),
            name().prop_map(Message::Connected),
            "[ -~]{0,95}".prop_map(Message::Disconnect),
        ]
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(message in any_message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), MESSAGE_BYTES)) {
            let bytes: [u8; MESSAGE_BYTES] = bytes.try_into().expect("as many as asked");
            if let Some(message) = Message::decode(&bytes) {
                prop_assert_eq!(Message::decode(&message.encode()), Some(message));
            }
        }
    }

    #[test]
    fn fields_are_where_other_implementations_have_them() {
        let ring =
            AddRing { flags: 1, index: 2, region: 3, offset: 0x0102_0304, log2: 10, private_header_bytes: 0x0506 };
        let bytes = Message::AddRing(ring).encode();
        assert_eq!(bytes[..15], [5, 0, 1, 0, 2, 0, 3, 0, 4, 3, 2, 1, 10, 6, 5], "packed, little-endian");
        let region = Message::AddRegion(AddRegion { index: 1, bytes: 0x1_0000_0000 }).encode();
        assert_eq!(region[..12], [4, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        let init = Init { version: VERSION, id: 7, mode: MODE_ETHERNET, secret: [9; 24], name: "n".into() };
        let bytes = Message::Init(init).encode();
        assert_eq!((&bytes[..10], bytes[33]), (&[3, 0, 0, 2, 7, 0, 0, 0, 0, 9][..], b'n'));
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        let bytes = Message::Connect("x".repeat(100)).encode();
        assert_eq!(Message::decode(&bytes), Some(Message::Connect("x".repeat(31))));
        let bytes = Message::Connect("\u{fc}".repeat(20)).encode();
        assert_eq!(Message::decode(&bytes), Some(Message::Connect("?".repeat(30))), "whole characters");
        let mut endless = bytes;
        endless[2..34].fill(b'y');
        assert_eq!(Message::decode(&endless), Some(Message::Connect("y".repeat(31))));
        assert_eq!(
            Message::decode(&Message::Disconnect("a\nb".into()).encode()),
            Some(Message::Disconnect("a?b".into()))
        );
    }
}
