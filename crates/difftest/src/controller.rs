//! Fuzz target for OpenFlow: a controller's messages to a bridge over `openflow.p4`.
//!
//! The first byte selects the version, the formats and how the rest is split; the rest is messages. Each message that
//! can be decoded is encoded, decoded and encoded again, and both encodings must be equal. Then a bridge receives all
//! of them: its answers must be decodable and of bounded size.

#[path = "../../openflow/tests/messages/generate.rs"]
mod generate;

use bridge::connection::OUTPUT_MAX;
use bridge::{Bridge, BridgeOptions, Connection, ConnectionOptions, Host, NotInjected};
use frontend::{Input, Options, Until};
use generate::{Generator, connections};
use openflow::Fields;
use openflow::message::{Framed, Message, PortStats, Queue, QueueStats, Version};
use openflow::wire::{self, Formats, HEADER};
use random::Random;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The maximum number of messages for the bridge.
const MESSAGES_MAX: usize = 64;
/// The maximum number of bytes of answers that are examined: one table features request takes more than a megabyte.
const ANSWERS_MAX: usize = 4 << 20;
/// The maximum length of a message in bytes.
const MESSAGE_MAX: usize = 0xffff;
/// The number of frames that the switch accepts before its queue is full.
const FRAMES_MAX: usize = 3;

/// A switch that accepts a few frames.
#[derive(Debug, Default)]
struct Switch {
    frames: AtomicUsize,
}

impl Host for Switch {
    fn now_us(&self) -> u64 {
        1_000_000
    }

    fn inject(&self, frame: Vec<u8>, in_port: u32, _: u64) -> Result<(), NotInjected> {
        if in_port == 3 {
            return Err(NotInjected::Failed("nothing takes frames of port 3".into()));
        }
        if self.frames.fetch_add(1, Ordering::Relaxed) >= FRAMES_MAX {
            self.frames.store(0, Ordering::Relaxed);
            return Err(NotInjected::Busy(frame));
        }
        Ok(())
    }

    fn port_stats(&self, port: u32) -> Option<PortStats> {
        Some(PortStats { port, ..PortStats::default() })
    }

    fn queues(&self, port: u32) -> Vec<Queue> {
        vec![Queue { port, queue: 0, rates: [None, None] }]
    }

    fn queue_stats(&self, port: u32) -> Vec<QueueStats> {
        vec![QueueStats { port, ..QueueStats::default() }]
    }

    fn set_port_config(&self, port: u32, _: u32) -> Result<(), String> {
        if port == 2 { Err("port 2 stays".into()) } else { Ok(()) }
    }

    fn sync_counts(&self) {}

    fn wake(&self, _: u64) {}
}

fn program() -> &'static ir::Program {
    static PROGRAM: OnceLock<ir::Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let input = Input::Text { name: "openflow.p4", text: bridge::PROTOCOLS };
        let compiled = frontend::compile(input, &Options::default(), Until::Ir).expect("a text needs no file");
        compiled.optimised.expect("the bridge's program compiles")
    })
}

/// Splits off the next whole message.
fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = wire::length(rest.first_chunk::<HEADER>()?).ok()?;
    let (message, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(message)
}

/// Decodes a message; if that succeeds, checks that its encoding round-trips.
fn check(bytes: &[u8], fields: &Fields, formats: &Formats) {
    let framed = match wire::read_agreed(bytes, fields, formats) {
        Ok(framed) => framed,
        Err(error) => {
            let mut answer = Vec::new();
            wire::write(&error.answer(bytes), fields, formats, &mut answer).expect("an error can be said");
            assert!(answer.len() <= MESSAGE_MAX);
            return;
        }
    };
    let mut written = Vec::new();
    if let Err(error) = wire::write(&framed, fields, formats, &mut written) {
        // A message decoded from another order or format may exceed the maximum length when encoded.
        assert!(bytes.len() > MESSAGE_MAX / 4, "{error}: {framed:?}");
        return;
    }
    let again = wire::read_agreed(&written, fields, formats);
    // Encoding normalises: other bytes, such as a hello's versions, may have the same meaning.
    let again = again.unwrap_or_else(|error| panic!("{error}: {written:02x?}"));
    let mut twice = Vec::new();
    wire::write(&again, fields, formats, &mut twice).unwrap_or_else(|error| panic!("{error}: {again:?}"));
    assert_eq!(twice, written, "{framed:?} {again:?}");
}

/// Runs an input as a controller.
pub fn fuzz(bytes: &[u8]) {
    let Some((choice, messages)) = bytes.split_first() else { return };
    let all = connections();
    let (version, formats) = all[usize::from(*choice) % all.len()];
    let bridge = Bridge::new(program(), Arc::new(Switch::default()), BridgeOptions::default());
    let bridge = Arc::new(bridge.expect("the program is a bridge's"));
    for number in 1..=3 {
        bridge.put_port(openflow::message::Port { number, name: format!("p{number}"), ..Default::default() });
    }
    let mut rest = messages;
    let mut count = 0;
    while count < MESSAGES_MAX
        && let Some(message) = next(&mut rest)
    {
        check(message, bridge.fields(), &formats);
        count += 1;
    }
    // The end of the messages, or the first that cannot be delimited.
    let taken = messages.len() - rest.len();
    let sent = &messages[..messages.len().min(taken + HEADER)];
    talk(&bridge, version, sent, if *choice >= 128 { 7 } else { sent.len().max(1) });
}

/// Sends bytes to a bridge in pieces.
fn talk(bridge: &Arc<Bridge>, version: Version, sent: &[u8], piece: usize) {
    let options = ConnectionOptions { probe_us: 0, ..ConnectionOptions::default() };
    let mut connection = Connection::new(Arc::clone(bridge), options);
    let mut hello = Vec::new();
    let framed = Framed { version, xid: 0, message: Message::Hello { versions: 1 << version as u32 } };
    wire::write(&framed, bridge.fields(), &Formats::default(), &mut hello).expect("a hello can be said");
    connection.input(&hello);
    let mut answers = 0;
    for bytes in sent.chunks(piece) {
        connection.input(bytes);
        loop {
            connection.poll(1_000_000);
            let output = std::mem::take(connection.output());
            // Requests wait while output is pending; the last answer begun may add to it.
            assert!(output.len() <= OUTPUT_MAX + 64 * MESSAGE_MAX, "{} bytes wait to be sent", output.len());
            answers += output.len();
            let mut rest = &output[..];
            while let Some(message) = next(&mut rest) {
                let read = wire::read(message, bridge.fields());
                assert!(read.is_ok(), "{read:?}: {message:02x?}");
            }
            assert!(rest.is_empty(), "half a message");
            let waits = connection.is_stalled() || !output.is_empty();
            if !waits || answers > ANSWERS_MAX {
                break;
            }
        }
        if connection.is_closed() || answers > ANSWERS_MAX {
            break;
        }
    }
    drop(connection);
    assert!(bridge.flow_count() <= MESSAGES_MAX, "a message adds one flow");
}

/// Seed inputs: for each connection, messages of all kinds in a few inputs.
pub fn seeds() -> Vec<Vec<u8>> {
    let fields = generate::fields();
    let mut seeds = Vec::new();
    for (choice, (version, formats)) in connections().into_iter().enumerate() {
        let random = Random::new(choice as u64);
        let mut generator = Generator { random, version, formats, fields: &fields };
        for messages in generator.messages().chunks(8) {
            let mut bytes = vec![choice as u8];
            for message in messages {
                let framed = Framed { version, xid: 77, message: message.clone() };
                wire::write(&framed, &fields, &formats, &mut bytes).expect("it can be written");
            }
            seeds.push(bytes);
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    /// Changes some bytes; changes a message's version and length only if `random` says so.
    fn change(random: &mut Random, bytes: &mut Vec<u8>) {
        if bytes.len() < 2 {
            return;
        }
        let at = 1 + random.index(bytes.len() - 1);
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = *random.pick(&[0, 1, 4, 0x7f, 0x80, 0xff]),
            2 => bytes[at] = random.next_u64() as u8,
            3 => {
                let from = 1 + random.index(bytes.len() - 1);
                let len = (1 + random.index(16)).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + len, at);
            }
            _ => bytes.truncate(at.max(9)),
        }
    }

    /// `SLUICE_ROUNDS` is the number of inputs.
    #[test]
    fn changed_seeds_are_refused_or_written_as_they_were_read() {
        let rounds = std::env::var("SLUICE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1500);
        let seeds = seeds();
        let mut random = Random::new(1);
        for round in 0..rounds {
            let mut bytes = random.pick(&seeds).clone();
            for _ in 0..random.below(5) {
                change(&mut random, &mut bytes);
            }
            assert!(catch_unwind(|| fuzz(&bytes)).is_ok(), "round {round}: {bytes:02x?}");
        }
    }
}
