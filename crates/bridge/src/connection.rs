//! A controller's or management connection, as a state machine without a socket.
//!
//! Received bytes go into [`Connection::input`], bytes to send come from [`Connection::output`], and
//! [`Connection::poll`] tells it the time. Every call makes as much progress as there is room for. Requests are
//! processed in order; events in the connection's queue are sent before the next request is processed.
//!
//! **Memory is bounded.** While more than [`OUTPUT_MAX`] bytes wait to be sent, no request is read, no multipart
//! reply continues, and events stay in their queue, which has its own bounds (`crate::controllers`). The owner of
//! the socket should read only while [`Connection::wants_input`]; what it passes in regardless is buffered up to
//! [`INPUT_MAX`] bytes, beyond which the connection closes.
//!
//! | file | holds |
//! | --- | --- |
//! | `connection` | the state machine: hello, framing, echo probes, multipart replies |
//! | `connection/requests` | handling of each message |
//! | `connection/events` | asynchronous messages |
//! | `waiting`, `turns` | packet-outs for which workers have no room; fairness between connections |
//!
//! Sources: OpenFlow 1.3.5, 6.3 and 7.5.1.

mod events;
mod requests;

use crate::bridge::Bridge;
use crate::bundle::Bundles;
use crate::controllers::Endpoint;
use crate::memory::Charge;
use crate::stats::Answer;
use crate::waiting::Waiting;
use openflow::message::{Framed, Reply};
use openflow::wire::{self, Formats, HEADER};
use openflow::{Error, ErrorKind, Message, Version};
use std::sync::Arc;

/// Bytes of output beyond which requests have to wait.
pub const OUTPUT_MAX: usize = 1 << 20;
/// Maximum number of received bytes that have not been processed.
pub const INPUT_MAX: usize = 16 << 20;
/// How long to wait for the peer's hello, in microseconds.
pub const HELLO_US: u64 = 10_000_000;

/// Settings of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionOptions {
    /// Whether it is a management connection, such as `ovs-ofctl`'s, which gets no asynchronous messages unless it
    /// asks for them.
    pub is_service: bool,
    /// URI of the peer, such as `tcp:10.0.0.1:6653`.
    pub uri: String,
    /// A bit mask of the versions to offer: bit 1 is OpenFlow 1.0, bit 4 is 1.3.
    pub versions: u32,
    /// The inactivity probe interval, in microseconds. After this time without a message an echo request is sent;
    /// if there is no answer within the same time again, the connection closes. 0 disables it.
    pub probe_us: u64,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        let versions = Version::ALL.iter().fold(0, |all, version| all | 1 << *version as u32);
        ConnectionOptions { is_service: false, uri: String::new(), versions, probe_us: 5_000_000 }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// Before the peer's hello.
    Hello,
    /// The version is negotiated.
    Open(Version),
    /// Closed, for this reason.
    Closed(String),
}

/// A multipart reply in progress, which continues when there is room.
#[derive(Debug)]
struct Ongoing {
    xid: u32,
    formats: Formats,
    answer: Answer,
    /// The first bytes of the request, for an error message.
    head: Vec<u8>,
    /// The charge of the reply to the memory of queues.
    _charge: Charge,
}

/// A controller's or management connection.
#[derive(Debug)]
pub struct Connection {
    bridge: Arc<Bridge>,
    endpoint: Arc<Endpoint>,
    options: ConnectionOptions,
    phase: Phase,
    formats: Formats,
    input: Vec<u8>,
    output: Vec<u8>,
    bundles: Bundles,
    ongoing: Option<Ongoing>,
    /// Packet-outs for which workers have no room yet. Nothing else is processed before they are sent.
    waiting: Waiting,
    /// Requests whose changes may not be stored yet: xids and first bytes.
    unkept: Vec<(u32, Vec<u8>)>,
    started_us: u64,
    heard_us: u64,
    is_probed: bool,
    probed_us: u64,
    next_xid: u32,
}

/// Bytes of a refused request in its error message; at least 64 are required (1.3.5, 7.4.4).
const ERROR_DATA: usize = 64;

impl Connection {
    /// A connection that has just been established. Sends a hello.
    pub fn new(bridge: Arc<Bridge>, options: ConnectionOptions) -> Connection {
        let endpoint = bridge.attach(options.is_service, options.uri.clone());
        let now_us = bridge.host().now_us();
        let bundles = Bundles::new(&bridge.memory);
        let mut connection = Connection {
            bridge,
            endpoint,
            options,
            phase: Phase::Hello,
            formats: Formats::default(),
            input: Vec::new(),
            output: Vec::new(),
            bundles,
            ongoing: None,
            waiting: Waiting::default(),
            unkept: Vec::new(),
            started_us: now_us,
            heard_us: now_us,
            is_probed: false,
            probed_us: now_us,
            next_xid: 1,
        };
        let highest =
            Version::ALL.into_iter().rev().find(|version| connection.options.versions >> *version as u32 & 1 == 1);
        match highest {
            Some(version) => {
                let hello = Message::Hello { versions: connection.options.versions };
                connection.send_as(version, 0, hello);
            }
            None => connection.close("no version of OpenFlow may be spoken"),
        }
        connection
    }

    /// Its id, which [`crate::Host::wake`] uses.
    pub fn id(&self) -> u64 {
        self.endpoint.id
    }

    /// The version, once negotiated.
    pub fn version(&self) -> Option<Version> {
        match self.phase {
            Phase::Open(version) => Some(version),
            _ => None,
        }
    }

    /// Whether the owner should read from the socket.
    pub fn wants_input(&self) -> bool {
        !self.is_closed()
            && self.output.len() < OUTPUT_MAX
            && self.ongoing.is_none()
            && !self.is_stalled()
            && self.input.len() < OUTPUT_MAX
    }

    /// Whether it is closed. What is left in [`Connection::output`] should still be sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_))
    }

    /// Why it is closed.
    pub fn close_reason(&self) -> Option<&str> {
        match &self.phase {
            Phase::Closed(why) => Some(why),
            _ => None,
        }
    }

    /// Whether packet-outs wait for workers. The connection should then be polled again in about a millisecond.
    pub fn is_stalled(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Processes bytes received from the socket.
    pub fn input(&mut self, bytes: &[u8]) {
        if self.is_closed() {
            return;
        }
        self.heard_us = self.bridge.host().now_us();
        self.is_probed = false;
        if self.input.len() + bytes.len() > INPUT_MAX {
            self.close("more was received than was asked for");
            return;
        }
        self.input.extend_from_slice(bytes);
        self.run();
    }

    /// The peer has acknowledged sent bytes, so it is alive even if none of its messages have been read yet.
    pub fn taken(&mut self) {
        self.heard_us = self.bridge.host().now_us();
        self.is_probed = false;
    }

    /// The bytes to send. The caller removes those that it has sent, which makes room for more.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.run();
        &mut self.output
    }

    /// Handles probes, timeouts and events. To be called when the connection was woken, and several times a second.
    pub fn poll(&mut self, now_us: u64) {
        match self.phase {
            Phase::Hello if now_us.saturating_sub(self.started_us) > HELLO_US => self.close("no hello"),
            Phase::Open(_) => self.probe(now_us),
            _ => {}
        }
        for (xid, head) in self.bundles.expire(now_us) {
            self.send_error(xid, ErrorKind::BfcTimeout, &head);
        }
        self.run();
    }

    fn probe(&mut self, now_us: u64) {
        let silence_us = now_us.saturating_sub(self.heard_us);
        if self.options.probe_us == 0 || silence_us < self.options.probe_us {
            return;
        }
        if !self.is_probed {
            self.is_probed = true;
            self.probed_us = now_us;
            let xid = self.xid();
            self.send(xid, Message::EchoRequest(Vec::new()));
        } else if now_us.saturating_sub(self.probed_us) >= self.options.probe_us {
            self.close("no answer to an echo request");
        }
    }

    /// Closes the connection.
    pub fn close(&mut self, why: &str) {
        if !self.is_closed() {
            self.phase = Phase::Closed(why.to_owned());
            self.input = Vec::new();
            self.ongoing = None;
            self.waiting.end(&self.bridge, self.endpoint.id);
            self.bundles = Bundles::new(&self.bridge.memory);
        }
    }

    /// Makes as much progress as there is room for.
    fn run(&mut self) {
        let mut at = 0;
        while !self.is_closed() && self.output.len() < OUTPUT_MAX {
            // Events that precede a request's reply are sent before it.
            self.drain();
            if self.output.len() >= OUTPUT_MAX || self.is_closed() {
                break;
            }
            if self.ongoing.is_some() {
                self.go_on();
                continue;
            }
            if !self.waiting.send(&self.bridge, self.endpoint.id) {
                // It is this side that does not read, so the peer's silence says nothing.
                self.taken();
                break;
            }
            let Some(header) = self.input.get(at..at + HEADER).and_then(|header| header.try_into().ok()) else { break };
            let len = match wire::length(header) {
                Ok(len) => len,
                Err(error) => {
                    let (xid, head) = (xid_of(&self.input[at..]), self.input[at..at + HEADER].to_vec());
                    self.send_error(xid, error.kind, &head);
                    self.close("a message's length is wrong");
                    break;
                }
            };
            if self.input.len() < at + len {
                break;
            }
            let input = std::mem::take(&mut self.input);
            self.message(&input[at..at + len]);
            at += len;
            if !self.is_closed() {
                self.input = input;
            }
        }
        self.input.drain(..at.min(self.input.len()));
        if self.waiting.is_empty() {
            // Only now, not after each packet: a turn allows several.
            self.waiting.leave(&self.bridge, self.endpoint.id);
        }
        if self.input.is_empty() && self.input.capacity() > OUTPUT_MAX {
            self.input = Vec::new();
        }
    }

    /// Processes a complete message.
    fn message(&mut self, bytes: &[u8]) {
        match self.phase.clone() {
            Phase::Hello => self.hello(bytes),
            Phase::Open(version) => {
                let read = wire::read_agreed(bytes, self.bridge.fields(), &self.formats);
                let (xid, result) = match read {
                    Ok(framed) if framed.version != version && !matches!(framed.message, Message::Hello { .. }) => {
                        let why = format!("OpenFlow {:?} where {version:?} was agreed on", framed.version);
                        (framed.xid, Err(Error::new(ErrorKind::BrcBadVersion, why)))
                    }
                    Ok(framed) => (framed.xid, self.request(version, framed, bytes)),
                    Err(failed) => (failed.xid, Err(failed.error)),
                };
                if let Err(error) = result {
                    tracing::debug!("{}: {error}", self.options.uri);
                    self.send_error(xid, error.kind, bytes);
                }
            }
            Phase::Closed(_) => {}
        }
    }

    /// Processes the peer's hello and negotiates the highest common version (1.3.5, 6.3.1).
    fn hello(&mut self, bytes: &[u8]) {
        let theirs = match wire::read(bytes, self.bridge.fields()) {
            Ok(Framed { message: Message::Hello { versions }, .. }) => versions,
            _ => return self.refuse_hello(bytes, "the first message is no hello"),
        };
        let common = theirs & self.options.versions;
        let agreed = Version::ALL.into_iter().rev().find(|version| common >> *version as u32 & 1 == 1);
        match agreed {
            Some(version) => {
                self.phase = Phase::Open(version);
                self.endpoint.status().version = Some(version);
                self.bridge.connections_changed();
            }
            None => {
                let why = format!("versions {theirs:#x} there, {:#x} here: none in common", self.options.versions);
                self.refuse_hello(bytes, &why);
            }
        }
    }

    fn refuse_hello(&mut self, bytes: &[u8], why: &str) {
        let number = bytes.first().copied().unwrap_or(1);
        let known = Version::ALL.into_iter().rev().filter(|version| self.options.versions >> *version as u32 & 1 == 1);
        let version = known.clone().find(|version| *version as u8 <= number).or(known.min());
        let message = Message::Error { kind: ErrorKind::HfcIncompatible, data: why.as_bytes().to_vec() };
        self.send_as(version.unwrap_or(Version::V10), xid_of(bytes), message);
        self.close(why);
    }

    /// Starts a multipart reply, which is sent in parts as there is room.
    fn answer(&mut self, version: Version, xid: u32, request: &[u8], answer: Answer) -> Result<(), Error> {
        let mut charge = Charge::nothing(&self.bridge.memory.queues);
        if !charge.grow(answer.bytes(), self.endpoint.queued_bytes()) {
            let why = "an answer: too much waits to be sent to controllers";
            self.bridge.memory.log(why);
            // OpenFlow 1.0 has no specific error.
            let kind = match version {
                Version::V10 => ErrorKind::BrcEperm,
                _ => ErrorKind::BrcMultipartBufferOverflow,
            };
            return Err(Error::new(kind, why));
        }
        let formats = wire::reply_formats(request, &self.formats);
        let head = request[..request.len().min(ERROR_DATA)].to_vec();
        self.ongoing = Some(Ongoing { xid, formats, answer, head, _charge: charge });
        Ok(())
    }

    fn go_on(&mut self) {
        let (Phase::Open(version), Some(mut ongoing)) = (self.phase.clone(), self.ongoing.take()) else { return };
        let (reply, more) = ongoing.answer.part(&self.bridge, version);
        let start = self.output.len();
        match self.write_reply(version, ongoing.xid, reply, &ongoing.formats) {
            Ok(left_out) => {
                if left_out > 0 {
                    tracing::debug!(
                        "{}: {left_out} entries are left out: too long, or not to be said",
                        self.options.uri
                    );
                }
                if more {
                    mark_more(&mut self.output[start..]);
                    self.ongoing = Some(ongoing);
                }
            }
            Err(error) => {
                tracing::debug!("{}: {error}", self.options.uri);
                self.send_error(ongoing.xid, error.kind, &ongoing.head);
            }
        }
    }

    /// Appends a reply. Flows that the version cannot express are left out; returns their number.
    fn write_reply(&mut self, version: Version, xid: u32, mut reply: Reply, formats: &Formats) -> Result<usize, Error> {
        let fields = self.bridge.fields();
        let done = wire::write_reply(version, xid, &reply, fields, formats, &mut self.output);
        let Err(error) = done else { return done };
        let mut scratch = Vec::new();
        let mut can_say = |reply: &Reply| {
            scratch.clear();
            wire::write_reply(version, xid, reply, fields, formats, &mut scratch).is_ok()
        };
        let mut left_out = 0;
        match &mut reply {
            Reply::Flow(flows) => {
                let all = flows.len();
                flows.retain(|flow| can_say(&Reply::Flow(vec![flow.clone()])));
                left_out += all - flows.len();
            }
            Reply::FlowMonitor(updates) => {
                let all = updates.len();
                updates.retain(|update| can_say(&Reply::FlowMonitor(vec![update.clone()])));
                left_out += all - updates.len();
            }
            _ => return Err(error),
        }
        if left_out == 0 {
            return Err(error);
        }
        Ok(left_out + wire::write_reply(version, xid, &reply, fields, formats, &mut self.output)?)
    }

    fn xid(&mut self) -> u32 {
        let xid = self.next_xid;
        self.next_xid = self.next_xid.wrapping_add(1).max(1);
        xid
    }

    fn send(&mut self, xid: u32, message: Message) {
        if let Phase::Open(version) = self.phase {
            self.send_as(version, xid, message);
        }
    }

    fn send_as(&mut self, version: Version, xid: u32, message: Message) {
        let framed = Framed { version, xid, message };
        if let Err(error) = wire::write(&framed, self.bridge.fields(), &self.formats, &mut self.output) {
            tracing::debug!("{}: not sent: {error}", self.options.uri);
        }
    }

    fn send_error(&mut self, xid: u32, kind: ErrorKind, request: &[u8]) {
        let version = match self.phase {
            Phase::Open(version) => version,
            _ => Version::V10,
        };
        let data = request[..request.len().min(ERROR_DATA.max(HEADER))].to_vec();
        self.send_as(version, xid, Message::Error { kind, data });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.waiting.end(&self.bridge, self.endpoint.id);
        self.bridge.detach(self.endpoint.id);
    }
}

/// The transaction id of a message.
fn xid_of(bytes: &[u8]) -> u32 {
    bytes.get(4..8).and_then(|xid| xid.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Sets `OFPMPF_REPLY_MORE` in the last of these multipart replies.
fn mark_more(mut messages: &mut [u8]) {
    const FLAGS: usize = HEADER + 3;
    while let Some(len) = messages.get(2..4).map(|len| usize::from(u16::from_be_bytes([len[0], len[1]]))) {
        if len <= FLAGS || len > messages.len() {
            return;
        }
        if len == messages.len() {
            messages[FLAGS] |= 1;
            return;
        }
        messages = &mut messages[len..];
    }
}
