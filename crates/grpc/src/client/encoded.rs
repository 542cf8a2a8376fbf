//! Calls with requests that were encoded in advance and answers that are counted instead of decoded, for measuring a
//! switch rather than its client.
//!
//! The calls are those of P4Runtime over the connection of a [`Client`], with another codec. It walks the top-level
//! fields of an answer, so the number of entities is exact, and a malformed answer is an error.
//!
//! Used by `sluice bench --control`.

use super::{Client, ClientError, MESSAGE_BYTES_MAX};
use messages::p4::v1 as pb;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// The field number of `ReadResponse.entities`.
const ENTITIES: u32 = 1;

/// The size of a read's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Number of entities in all messages.
    pub entities: u64,
    /// Number of messages.
    pub messages: u64,
    /// Total bytes of the messages.
    pub bytes: u64,
}

impl Client {
    /// Sends `WriteRequest`s, at most `in_flight` at a time. Returns the time of each from sending to its answer.
    ///
    /// # Errors
    ///
    /// The first refusal; it ends the run.
    pub fn write_encoded(&self, requests: &[Bytes], in_flight: usize) -> Result<Vec<Duration>, ClientError> {
        let call = |request: Bytes, mut grpc: Grpc<Channel>| async move {
            let start = Instant::now();
            let ready = grpc.ready().await;
            ready.map_err(|e| Status::unavailable(super::innermost(&e)))?;
            let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Write");
            grpc.unary(Request::new(request), path, Encoded).await.map(|_| start.elapsed())
        };
        let done: Result<Vec<Duration>, Status> = self.runtime.block_on(async {
            let mut waiting = JoinSet::new();
            let mut took = Vec::with_capacity(requests.len());
            let mut next = requests.iter();
            loop {
                while waiting.len() < in_flight.max(1)
                    && let Some(request) = next.next()
                {
                    waiting.spawn(call(request.clone(), self.encoded()));
                }
                match waiting.join_next().await {
                    None => return Ok(took),
                    Some(done) => took.push(done.map_err(|e| Status::internal(e.to_string()))??),
                }
            }
        });
        done.map_err(|status| self.refusal(&status))
    }

    /// Reads, and counts the answer. It waits for `pause` after each message, like a slow client.
    pub fn read_counted(&self, request: &pb::ReadRequest, pause: Duration) -> Result<Counted, ClientError> {
        let request = Bytes::from(request.encode_to_vec());
        let done: Result<Counted, Status> = self.runtime.block_on(async {
            let mut grpc = self.encoded();
            grpc.ready().await.map_err(|e| Status::unavailable(super::innermost(&e)))?;
            let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Read");
            let mut answers = grpc.server_streaming(Request::new(request), path, Encoded).await?.into_inner();
            let mut sum = Counted::default();
            while let Some(answer) = answers.message().await? {
                sum.entities += answer.entities;
                sum.messages += answer.messages;
                sum.bytes += answer.bytes;
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
            Ok(sum)
        });
        done.map_err(|status| self.refusal(&status))
    }

    fn encoded(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// The codec: sends bytes as they are, and counts what it receives.
#[derive(Clone, Copy, Default)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Counted;
    type Encoder = Encoded;
    type Decoder = Encoded;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Encoded {
        Encoded
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Counted;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Counted>, Status> {
        let mut counted = Counted { messages: 1, bytes: from.remaining() as u64, entities: 0 };
        let broken = |e: prost::DecodeError| Status::internal(format!("the answer is no message: {e}"));
        while from.has_remaining() {
            let (field, wire) = decode_key(from).map_err(broken)?;
            match wire {
                WireType::LengthDelimited if field == ENTITIES => {
                    let length = decode_varint(from).map_err(broken)?;
                    let length = usize::try_from(length).ok().filter(|length| *length <= from.remaining());
                    from.advance(length.ok_or_else(|| Status::internal("the answer is cut off"))?);
                    counted.entities += 1;
                }
                _ => skip_field(wire, field, from, DecodeContext::default()).map_err(broken)?,
            }
        }
        Ok(Some(counted))
    }
}
