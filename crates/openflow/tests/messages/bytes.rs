//! Messages byte by byte: what Open vSwitch's ovs-ofctl(8) prints of these bytes is what is expected here.

use openflow::action::{Action, Instructions, port};
use openflow::error::ErrorKind;
use openflow::matching::Match;
use openflow::message::*;
use openflow::wire::{self, Formats};

use super::fields;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

/// The bytes are this message, and the message these bytes.
fn check(hex: &str, formats: Formats, version: Version, xid: u32, message: Message) {
    let fields = fields();
    let bytes = bytes_of(hex);
    let framed = Framed { version, xid, message };
    assert_eq!(wire::read_agreed(&bytes, &fields, &formats), Ok(framed.clone()));
    let mut written = Vec::new();
    wire::write(&framed, &fields, &formats, &mut written).expect("it can be written");
    assert_eq!(written, bytes, "{framed:?}");
}

fn matching(terms: &[(&str, u128)]) -> Match {
    let fields = fields();
    let mut matching = Match::any();
    for (name, value) in terms {
        let id = fields.named(name).expect("the field exists");
        matching.add(id, *value, fields.get(id).full());
    }
    matching
}

#[test]
fn hello_with_a_bitmap() {
    let hex = "06 00 00 10 00 00 00 01  00 01 00 08 00 00 00 72";
    check(hex, Formats::default(), Version::V15, 1, Message::Hello { versions: 0x72 });
}

#[test]
fn hello_without_a_bitmap_speaks_all_versions_to_its_own() {
    let read = wire::read(&bytes_of("02 00 00 08 00 00 00 01"), &fields()).map(|framed| framed.message);
    assert_eq!(read, Ok(Message::Hello { versions: 0b110 }));
}

#[test]
fn nicira_error_in_openflow_10() {
    let hex = "01 01 00 1c 00 00 00 05  b0 c2 00 00 00 00 23 20  00 01 02 00
               01 0e 00 08 00 00 00 05";
    let data = bytes_of("01 0e 00 08 00 00 00 05");
    let message = Message::Error { kind: ErrorKind::BrcBadTableId, data };
    check(hex, Formats::default(), Version::V10, 5, message);
}

#[test]
fn onf_error_in_openflow_13() {
    let hex = "04 01 00 18 00 00 00 05  ff ff 08 fe 4f 4e 46 00  04 04 00 08 00 00 00 05";
    let data = bytes_of("04 04 00 08 00 00 00 05");
    let message = Message::Error { kind: ErrorKind::BfcBadId, data };
    check(hex, Formats::default(), Version::V13, 5, message);
}

#[test]
fn flow_mod_13() {
    let hex = "04 0e 00 60 00 00 00 02  00 00 00 00 00 00 00 07  00 00 00 00 00 00 00 00
               01 00 00 3c 00 00 00 64  ff ff ff ff ff ff ff ff  ff ff ff ff 00 01 00 00
               00 01 00 12 80 00 00 04  00 00 00 03 80 00 0a 02  08 00 00 00 00 00 00 00
               00 04 00 18 00 00 00 00  00 00 00 10 00 00 00 05  00 00 00 00 00 00 00 00";
    let flow = FlowMod {
        command: FlowCommand::Add,
        table: 1,
        matching: matching(&[("in_port", 3), ("eth_type", 0x0800)]),
        priority: 100,
        cookie: 7,
        cookie_mask: 0,
        timeouts: Timeouts { idle: 60, hard: 0 },
        buffer: u32::MAX,
        out_port: port::ANY,
        out_group: GROUP_ANY,
        flags: flow_flag::SEND_FLOW_REM,
        importance: 0,
        instructions: Instructions { apply: vec![Action::Output { port: 5, max_len: 0 }], ..Instructions::default() },
    };
    check(hex, Formats::default(), Version::V13, 2, Message::FlowMod(flow));
}

#[test]
fn nxt_flow_mod_that_names_a_table_and_matches_a_cookie() {
    let hex = "01 04 00 50 00 00 00 02  00 00 23 20 00 00 00 0d  ff ff ff ff ff ff ff ff
               02 03 00 00 00 00 80 00  ff ff ff ff ff fd 00 00  00 20 00 00 00 00 00 00
               00 01 20 08 00 00 00 00  00 00 00 09 00 01 3d 10  00 00 00 00 00 00 00 05
               00 00 00 00 00 00 00 ff";
    let formats = Formats { flow: wire::FLOW_NXM, flow_mod_table_id: true, ..Formats::default() };
    let flow = FlowMod {
        command: FlowCommand::Delete,
        table: 2,
        matching: matching(&[("tunnel_id", 9)]),
        priority: 0x8000,
        cookie: 5,
        cookie_mask: 0xff,
        timeouts: Timeouts::default(),
        buffer: u32::MAX,
        out_port: port::CONTROLLER,
        out_group: GROUP_ANY,
        flags: 0,
        importance: 0,
        instructions: Instructions::default(),
    };
    check(hex, formats, Version::V10, 2, Message::FlowMod(flow));
}

#[test]
fn flow_removed_15_has_statistics_of_their_own() {
    let hex = "06 0b 00 50 00 00 00 00  01 02 00 64 00 3c 00 00  00 00 00 00 00 00 00 07
               00 01 00 0c 80 00 00 04  00 00 00 03 00 00 00 00
               00 00 00 28 80 02 00 08  00 00 00 01 00 00 00 02  80 02 08 08 00 00 00 00
               00 00 00 03 80 02 0a 08  00 00 00 00 00 00 00 04";
    let flow = FlowRemoved {
        matching: matching(&[("in_port", 3)]),
        priority: 100,
        cookie: 7,
        table: 1,
        reason: RemovedReason::Delete,
        duration: (1, 2),
        timeouts: Timeouts { idle: 60, hard: 0 },
        counts: Counts { packets: 3, bytes: 4 },
    };
    check(hex, Formats::default(), Version::V15, 0, Message::FlowRemoved(flow));
}

#[test]
fn packet_out_13() {
    let hex = "04 0d 00 2a 00 00 00 03  ff ff ff ff ff ff ff fd  00 10 00 00 00 00 00 00
               00 00 00 10 ff ff ff fb  00 00 00 00 00 00 00 00  ab cd";
    let packet = PacketOut {
        buffer: u32::MAX,
        fields: matching(&[("in_port", 0xffff_fffd)]),
        in_port: port::CONTROLLER,
        actions: vec![Action::Output { port: port::FLOOD, max_len: 0 }],
        frame: vec![0xab, 0xcd],
    };
    check(hex, Formats::default(), Version::V13, 3, Message::PacketOut(packet));
}

#[test]
fn bundle_control_is_onf_s_in_13() {
    let hex = "04 04 00 18 00 00 00 03  4f 4e 46 00 00 00 08 fc  00 00 00 09 00 04 00 03";
    let message = Message::BundleControl { bundle: 9, kind: BundleControl::CommitRequest, flags: 3 };
    check(hex, Formats::default(), Version::V13, 3, message);
}

#[test]
fn set_async_that_names_one_kind_keeps_the_others() {
    let before = AsyncConfig { port_status: [7, 7], ..AsyncConfig::default() };
    let formats = Formats { asynchronous: before, ..Formats::default() };
    let bytes = bytes_of("05 1c 00 10 00 00 00 01  00 01 00 08 00 00 00 03");
    let read = wire::read_agreed(&bytes, &fields(), &formats).map(|framed| framed.message);
    assert_eq!(read, Ok(Message::SetAsync(AsyncConfig { packet_in: [3, 0], ..before })));
}

#[test]
fn a_request_for_flows_says_in_which_format_the_answer_is() {
    let plain = Formats::default();
    let standard = format!("01 10 00 38 00 00 00 01 00 01 00 00 {}", "00".repeat(44));
    assert_eq!(wire::reply_formats(&bytes_of(&standard), &Formats { flow: 2, ..plain }).flow, 0);
    let nicira = "01 10 00 20 00 00 00 01  ff ff 00 00 00 00 23 20  00 00 00 00 00 00 00 00  ff ff 00 00 ff 00 00 00";
    assert_eq!(wire::reply_formats(&bytes_of(nicira), &plain).flow, wire::FLOW_NXM);
    let read = wire::read(&bytes_of(nicira), &fields()).map(|framed| framed.message);
    assert!(matches!(read, Ok(Message::Multipart(Request::Flow(_)))), "{read:?}");
}

#[test]
fn wrong_messages_are_refused_with_the_right_error() {
    let cases = [
        ("09 05 00 08 00 00 00 01", ErrorKind::BrcBadVersion),
        ("01 20 00 08 00 00 00 01", ErrorKind::BrcBadType),
        ("01 16 00 08 00 00 00 01", ErrorKind::BrcBadType),
        ("04 05 00 09 00 00 00 01", ErrorKind::BrcBadLen),
        ("04 05 00 09 00 00 00 01 00", ErrorKind::BrcBadLen),
        ("04 12 00 10 00 00 00 01 00 77 00 00 00 00 00 00", ErrorKind::BrcBadStat),
        ("04 18 00 18 00 00 00 01 00 00 00 09 00 00 00 00 00 00 00 00 00 00 00 00", ErrorKind::RrfcBadRole),
        ("04 0f 00 10 00 00 00 01 00 09 00 00 00 00 00 01", ErrorKind::GmfcBadCommand),
        ("04 0f 00 10 00 00 00 01 00 00 09 00 00 00 00 01", ErrorKind::GmfcBadType),
        ("04 1d 00 10 00 00 00 01 00 05 00 00 00 00 00 01", ErrorKind::MmfcBadCommand),
        ("05 21 00 10 00 00 00 01 00 00 00 01 00 09 00 00", ErrorKind::BfcBadType),
    ];
    for (hex, kind) in cases {
        let read = wire::read(&bytes_of(hex), &fields());
        assert_eq!(read.as_ref().map_err(|error| error.error.kind).err(), Some(kind), "{hex}: {read:?}");
    }
}
