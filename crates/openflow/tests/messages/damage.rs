//! Damaged messages: no panic, and memory that the input bounds.

use openflow::message::{Framed, Message};
use openflow::wire;
use random::Random;

use super::fields;
use super::generate::{Generator, connections};

/// Reads and, if it can be read, writes and reads again: what was accepted once is accepted as it was written.
fn try_bytes(bytes: &[u8], formats: &wire::Formats, fields: &openflow::Fields) {
    let framed = match wire::read_agreed(bytes, fields, formats) {
        Ok(framed) => framed,
        Err(error) => {
            let answer = error.answer(bytes);
            let mut out = Vec::new();
            wire::write(&answer, fields, formats, &mut out).expect("an error can be said");
            let is_error = matches!(answer.message, Message::Error { kind, .. } if kind == error.error.kind);
            assert!(is_error && out.len() <= 0xffff);
            return;
        }
    };
    // A limit that no list of this many bytes exceeds; a length taken on trust would.
    let printed = format!("{framed:?}").len();
    assert!(printed <= 2000 + 100 * bytes.len(), "{} bytes became {printed}", bytes.len());
    let mut out = Vec::new();
    drop(wire::write(&framed, fields, formats, &mut out));
}

fn each_message(seed: u64, mut with: impl FnMut(Vec<u8>, &wire::Formats, &openflow::Fields)) {
    let fields = fields();
    for (version, formats) in connections() {
        let mut generator = Generator { random: Random::new(seed), version, formats, fields: &fields };
        for message in generator.messages() {
            let mut bytes = Vec::new();
            let framed = Framed { version, xid: 77, message };
            wire::write(&framed, &fields, &formats, &mut bytes).expect("it can be written");
            with(bytes, &formats, &fields);
        }
    }
}

#[test]
fn prefixes_do_not_panic() {
    each_message(2, |bytes, formats, fields| {
        for len in 0..bytes.len() {
            let mut prefix = bytes[..len].to_vec();
            try_bytes(&prefix, formats, fields);
            if len >= wire::HEADER {
                // The same with a header that tells the truth: the check of the header does not help.
                prefix[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                try_bytes(&prefix, formats, fields);
            }
        }
    });
}

#[test]
fn changed_bytes_do_not_panic() {
    each_message(3, |mut bytes, formats, fields| {
        // Long texts are not of interest byte by byte.
        let step = 1 + bytes.len() / 600;
        for at in (0..bytes.len()).step_by(step) {
            let was = bytes[at];
            for value in [0, 1, 0x7f, 0x80, 0xff, was ^ 1, was ^ 0x80, was.wrapping_add(4), was.wrapping_sub(8)] {
                bytes[at] = value;
                try_bytes(&bytes, formats, fields);
            }
            bytes[at] = was;
        }
    });
}

#[test]
fn noise_does_not_panic() {
    let fields = fields();
    let mut random = Random::new(4);
    for (version, formats) in connections() {
        for _ in 0..20_000 {
            let len = wire::HEADER + random.index(120);
            let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8 & random.next_u64() as u8).collect();
            bytes[0] = version as u8;
            bytes[1] %= 40;
            bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            try_bytes(&bytes, &formats, &fields);
        }
    }
}
