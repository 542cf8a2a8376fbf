//! What is written is read as it was.

use std::collections::HashSet;
use std::mem::discriminant;

use openflow::message::{Framed, Message};
use openflow::wire;
use random::Random;

use super::fields;
use super::generate::{Generator, connections};

/// The number that messages in bundles have, too.
const XID: u32 = 77;

#[test]
fn messages_are_read_as_they_were_written() {
    let fields = fields();
    for (version, formats) in connections() {
        let mut generator = Generator { random: Random::new(1), version, formats, fields: &fields };
        for round in 0..200 {
            for message in generator.messages() {
                let framed = Framed { version, xid: XID, message };
                let mut bytes = Vec::new();
                let written = wire::write(&framed, &fields, &formats, &mut bytes);
                assert_eq!(written, Ok(()), "{version:?}, {formats:?}, round {round}: {framed:#?}");
                let header = bytes.first_chunk().expect("there is a header");
                assert_eq!(wire::length(header), Ok(bytes.len()));
                assert_eq!(bytes[4..8], XID.to_be_bytes());
                let read = wire::read_agreed(&bytes, &fields, &formats);
                assert_eq!(read.as_ref(), Ok(&framed), "{version:?}, {formats:?}, round {round}: {bytes:02x?}");
            }
        }
    }
}

#[test]
fn every_kind_of_message_is_tried() {
    let fields = fields();
    let (mut messages, mut requests, mut replies) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (version, formats) in connections() {
        let mut generator = Generator { random: Random::new(1), version, formats, fields: &fields };
        for message in generator.messages() {
            match &message {
                Message::Multipart(request) => requests.insert(discriminant(request)),
                Message::MultipartReply { reply, .. } => replies.insert(discriminant(reply)),
                _ => true,
            };
            messages.insert(discriminant(&message));
        }
    }
    assert_eq!((messages.len(), requests.len(), replies.len()), (45, 21, 20));
}
