//! Multipart replies that do not fit in one message.

use openflow::action::Instructions;
use openflow::matching::Match;
use openflow::message::{Counts, FlowEntry, Message, Reply, Timeouts, Version};
use openflow::{Action, wire};

use super::fields;

fn flow(priority: u16, actions: usize) -> FlowEntry {
    FlowEntry {
        table: 3,
        matching: Match::any(),
        priority,
        cookie: 1,
        timeouts: Timeouts::default(),
        flags: 0,
        importance: 0,
        duration: (1, 2),
        ages: (0, 0),
        counts: Counts { packets: 3, bytes: 4 },
        instructions: Instructions { apply: vec![Action::SetQueue(1); actions], ..Instructions::default() },
    }
}

/// All messages of some bytes.
fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some(header) = bytes.first_chunk() {
        let (message, rest) = bytes.split_at(wire::length(header).expect("the length is right"));
        all.push(message);
        bytes = rest;
    }
    all
}

#[test]
fn a_long_reply_is_several_messages() {
    let fields = fields();
    let formats = wire::Formats::default();
    for version in Version::ALL {
        let flows: Vec<_> = (0..3000).map(|priority| flow(priority, 2)).collect();
        let mut bytes = Vec::new();
        let left_out = wire::write_reply(version, 9, &Reply::Flow(flows.clone()), &fields, &formats, &mut bytes);
        assert_eq!(left_out, Ok(0));
        let messages = split(&bytes);
        assert!(messages.len() > 3, "{version:?}: {}", messages.len());
        let mut read = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let framed = wire::read(message, &fields).expect("it can be read");
            let Message::MultipartReply { reply: Reply::Flow(part), more } = framed.message else {
                panic!("{version:?}: {:?}", framed.message)
            };
            assert_eq!((framed.xid, more), (9, at + 1 < messages.len()));
            assert!(!part.is_empty());
            read.extend(part);
        }
        assert_eq!(read, flows, "{version:?}");
    }
}

#[test]
fn an_empty_reply_is_one_message() {
    let fields = fields();
    let mut bytes = Vec::new();
    let reply = Reply::Flow(Vec::new());
    let left_out = wire::write_reply(Version::V13, 9, &reply, &fields, &wire::Formats::default(), &mut bytes);
    assert_eq!(left_out, Ok(0));
    let framed = wire::read(&bytes, &fields).expect("it can be read");
    assert_eq!(framed.message, Message::MultipartReply { reply, more: false });
}

#[test]
fn a_flow_that_fits_in_no_message_is_left_out() {
    let fields = fields();
    let formats = wire::Formats::default();
    for version in Version::ALL {
        // As long as an entry can be, which is too long for the message, and too long for the entry's length.
        let most = match version {
            Version::V10 => 8180,
            Version::V13 | Version::V14 => 8183,
            Version::V15 => 8179,
        };
        for actions in [most, most + 1, 20_000] {
            let flows = vec![flow(1, 1), flow(2, actions), flow(3, 1)];
            let mut bytes = Vec::new();
            let left_out = wire::write_reply(version, 9, &Reply::Flow(flows), &fields, &formats, &mut bytes);
            assert_eq!(left_out, Ok(1), "{version:?}");
            let read =
                split(&bytes).into_iter().map(|message| wire::read(message, &fields).map(|framed| framed.message));
            let priorities: Vec<u16> = read
                .flat_map(|message| match message {
                    Ok(Message::MultipartReply { reply: Reply::Flow(part), .. }) => part,
                    other => panic!("{other:?}"),
                })
                .map(|flow| flow.priority)
                .collect();
            assert_eq!(priorities, [1, 3]);
        }
    }
}
