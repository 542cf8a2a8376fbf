//! What a client cannot use up, whoever it is: memory, connections, threads, time.

#[path = "../../control/tests/fixture/mod.rs"]
mod fixture;

use control::Control;
use control::forwarding::ForwardingConfig;
use fixture::FakeSwitch;
use grpc::client::Client;
use grpc::services::p4runtime::p4_runtime_client::P4RuntimeClient;
use grpc::{ConnectionLimits, Handle, ServeOptions, Server, serve_with};
use http_body::Frame;
use messages::p4::v1 as pb;
use pb::stream_message_request::Update as Said;
use pb::stream_message_response::Update as Heard;
use prost::Message;
use prost::bytes::Bytes;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service;

const DEVICE: u64 = 1;
/// Longer than anything takes on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

struct Bed {
    server: Server,
}

impl Bed {
    fn new(options: ServeOptions) -> Bed {
        let mut control = Control::new();
        control.add_device(DEVICE, FakeSwitch::new());
        let config = ForwardingConfig { device_config: b"router".to_vec(), ..Default::default() };
        control.load(DEVICE, config).unwrap();
        Bed { server: serve_with("127.0.0.1:0".parse().unwrap(), Handle::new(control), options).unwrap() }
    }

    fn address(&self) -> String {
        self.server.address().to_string()
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address())).unwrap().connect().await.unwrap()
    }

    async fn client(&self) -> P4RuntimeClient<Channel> {
        P4RuntimeClient::new(self.channel().await).max_encoding_message_size(usize::MAX)
    }

    /// A stream that is primary, with election id 1.
    async fn primary(&self, client: &mut P4RuntimeClient<Channel>) -> Session {
        let (say, said) = mpsc::channel(4);
        let hear = client.stream_channel(ReceiverStream::new(said)).await.unwrap().into_inner();
        let mut session = Session { say, hear };
        let election_id = Some(pb::Uint128 { high: 0, low: 1 });
        let claim = pb::MasterArbitrationUpdate { device_id: DEVICE, election_id, ..Default::default() };
        session.say(Said::Arbitration(claim)).await;
        assert!(matches!(session.hear().await, Ok(Some(Heard::Arbitration(_)))));
        session
    }
}

struct Session {
    say: mpsc::Sender<pb::StreamMessageRequest>,
    hear: tonic::Streaming<pb::StreamMessageResponse>,
}

impl Session {
    async fn say(&self, what: Said) {
        self.say.send(pb::StreamMessageRequest { update: Some(what) }).await.unwrap();
    }

    async fn hear(&mut self) -> Result<Option<Heard>, Status> {
        let heard = tokio::time::timeout(TIME_LIMIT, self.hear.message()).await.expect("an answer in time");
        Ok(heard?.and_then(|message| message.update))
    }
}

fn write_of(updates: Vec<pb::Update>) -> pb::WriteRequest {
    let election_id = Some(pb::Uint128 { high: 0, low: 1 });
    pb::WriteRequest { device_id: DEVICE, election_id, updates, ..Default::default() }
}

/// Most memory that this process has ever had, in bytes.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_hundred_megabytes_of_empty_updates_from_nobody_are_not_decoded() {
    // Two bytes each; decoded they would be some twenty gigabytes.
    let request = Bytes::from([0x22, 0].repeat(50 << 20));
    for (message_bytes_max, memory_bytes_max, why) in [
        (grpc::MESSAGE_BYTES_MAX, grpc::MEMORY_BYTES_MAX, "the limit is 16777216"),
        (128 << 20, 1 << 30, "would take more than"),
    ] {
        let bed = Bed::new(ServeOptions { message_bytes_max, memory_bytes_max, ..Default::default() });
        let error =
            Client::connect(&bed.address()).unwrap().write_encoded(std::slice::from_ref(&request), 1).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(memory_peak() < 3 << 30, "{} MiB", memory_peak() >> 20);
}

#[tokio::test]
async fn who_is_not_primary_hears_it_before_the_batch_is_decoded() {
    let bed = Bed::new(ServeOptions::default());
    let mut client = bed.client().await;
    // What comes first decides: a text that is no UTF-8 is found when it is decoded.
    let mut request = write_of(vec![pb::Update::default(); 20_000]).encode_to_vec();
    request.extend([0x22, 12, 0x12, 10, 0x12, 8, 0x12, 6, 0xa2, 0x06, 3, 0x0a, 1, 0xff]);
    let request = Bytes::from(request);
    let address = bed.address();
    let refusal = |request: Bytes| {
        let address = address.clone();
        let send = move || Client::connect(&address).unwrap().write_encoded(&[request], 1).unwrap_err().to_string();
        tokio::task::spawn_blocking(send)
    };
    let stranger = refusal(request.clone()).await.unwrap();
    assert!(stranger.contains("there is no primary client"), "{stranger}");
    let _session = bed.primary(&mut client).await;
    let primary = refusal(request).await.unwrap();
    assert!(primary.contains("invalid string value"), "{primary}");
}

#[tokio::test]
async fn memory_of_requests_is_bounded_and_given_back() {
    let bed = Bed::new(ServeOptions { memory_bytes_max: 8 << 20, ..Default::default() });
    let mut client = bed.client().await;
    let _session = bed.primary(&mut client).await;
    for _ in 0..5 {
        // Three megabytes as they come, and again in the decoder's hands: more than half of all.
        let data = pb::ForwardingPipelineConfig { p4_device_config: vec![b'x'; 3 << 20], ..Default::default() };
        let request =
            pb::SetForwardingPipelineConfigRequest { device_id: DEVICE, config: Some(data), ..Default::default() };
        let refused = client.set_forwarding_pipeline_config(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        // What is left is there for the next one.
        let small = client.write(write_of(vec![pb::Update::default(); 50])).await.unwrap_err();
        assert_eq!(small.code(), Code::Unknown, "{small}");
    }
}

#[tokio::test]
async fn a_value_of_megabytes_in_an_error_breaks_nothing() {
    let bed = Bed::new(ServeOptions::default());
    let mut client = bed.client().await;
    let mut session = bed.primary(&mut client).await;
    let role = pb::ReadRequest { device_id: DEVICE, role: "r".repeat(5 << 20), ..Default::default() };
    let _ = client.read(role).await;
    let mut request = write_of(vec![]);
    request.role = "\u{1f600}".repeat(1 << 20);
    let refused = client.write(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert!(refused.message().len() < 4096 && refused.message().contains("bytes more"), "{}", refused.message().len());
    // A packet with metadata that nobody knows comes back, but not all of it.
    let metadata = vec![pb::PacketMetadata { metadata_id: 77, value: vec![1; 1 << 20] }];
    session.say(Said::Packet(pb::PacketOut { payload: vec![2; 2 << 20], metadata })).await;
    match session.hear().await.unwrap() {
        Some(Heard::Error(error)) => assert!(error.encoded_len() < 64 << 10, "{}", error.encoded_len()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_oversized_packet_out_is_answered_with_the_limit() {
    let bed = Bed::new(ServeOptions { message_bytes_max: 1 << 20, ..Default::default() });
    let mut client = bed.client().await;
    let mut session = bed.primary(&mut client).await;
    // Longer than a frame can be.
    let metadata = [1, 2].map(|metadata_id| pb::PacketMetadata { metadata_id, value: vec![metadata_id as u8 % 2] });
    let metadata = metadata.to_vec();
    session.say(Said::Packet(pb::PacketOut { payload: vec![0; 70_000], metadata })).await;
    match session.hear().await.unwrap() {
        Some(Heard::Error(error)) => {
            assert_eq!(error.canonical_code, Code::InvalidArgument as i32, "{}", error.message);
            assert!(error.message.contains("the limit is "), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    // Longer than a message can be: the stream ends, and says why.
    session.say(Said::Packet(pb::PacketOut { payload: vec![0; 2 << 20], metadata: vec![] })).await;
    let ended = session.hear().await.unwrap_err();
    assert_eq!(ended.code(), Code::OutOfRange);
    assert!(ended.message().contains("the limit is 1048576"), "{ended}");
}

/// Such bytes, and never the rest.
struct Slow(Option<Bytes>);

impl http_body::Body for Slow {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

/// How a call ends whose request is such bytes and does not end.
async fn end_of(bed: &Bed, method: &str, bytes: &[u8]) -> Status {
    let mut channel = bed.channel().await;
    let request = tonic::codegen::http::Request::post(format!("http://{}/p4.v1.P4Runtime/{method}", bed.address()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Slow(Some(Bytes::copy_from_slice(bytes)))))
        .unwrap();
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let answer = tokio::time::timeout(TIME_LIMIT, channel.call(request)).await.expect("an answer in time").unwrap();
    if let Some(status) = Status::from_header_map(answer.headers()) {
        return status;
    }
    let mut body = answer.into_body();
    loop {
        let frame = std::future::poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx));
        let frame = tokio::time::timeout(TIME_LIMIT, frame).await.expect("an end in time");
        if let Some(trailers) = frame.unwrap().unwrap().trailers_ref() {
            return Status::from_header_map(trailers).unwrap();
        }
    }
}

#[tokio::test]
async fn a_message_that_does_not_end_is_given_up() {
    let bed = Bed::new(ServeOptions { receive_max: Duration::from_millis(300), ..Default::default() });
    for method in ["Write", "StreamChannel"] {
        let status = end_of(&bed, method, &[0, 0, 0, 1, 0, 8]).await;
        assert_eq!(status.code(), Code::DeadlineExceeded, "{method}: {status}");
    }
}

#[tokio::test]
async fn a_request_that_does_not_end_after_its_message_is_given_up() {
    let bed = Bed::new(ServeOptions { receive_max: Duration::from_millis(300), ..Default::default() });
    // A whole message of no bytes.
    for method in ["Read", "Write"] {
        let status = end_of(&bed, method, &[0; 5]).await;
        assert_eq!(status.code(), Code::DeadlineExceeded, "{method}: {status}");
    }
    // With the head of the next one behind it, which would be charged for as long as the stream is open.
    let status = end_of(&bed, "StreamChannel", &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0]).await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
}

#[tokio::test]
async fn requests_that_are_cancelled_keep_their_memory_until_they_are_over() {
    let mut control = Control::new();
    control.add_device(DEVICE, FakeSwitch::new());
    let handle = Handle::new(control);
    let options = ServeOptions { memory_bytes_max: 4 << 20, ..Default::default() };
    let server = serve_with("127.0.0.1:0".parse().unwrap(), Arc::clone(&handle), options).unwrap();
    let bed = Bed { server };
    let mut client = bed.client().await;
    // Two of them fit.
    let read = || pb::ReadRequest { device_id: DEVICE, role: "r".repeat(200 << 10), ..Default::default() };
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (hold, held) = tokio::sync::oneshot::channel();
    let busy = std::thread::spawn(move || {
        handle.with(|_| {
            hold.send(()).unwrap();
            let _ = released.recv();
        });
    });
    held.await.unwrap();
    for _ in 0..2 {
        let cancelled = tokio::time::timeout(Duration::from_millis(500), client.read(read())).await;
        assert!(cancelled.is_err(), "nothing is answered while the control plane is busy");
    }
    let refused = tokio::time::timeout(TIME_LIMIT, client.read(read())).await.expect("an answer in time");
    assert_eq!(refused.err().unwrap().code(), Code::ResourceExhausted);
    release.send(()).unwrap();
    busy.join().unwrap();
    let start = Instant::now();
    while client.read(read()).await.err().is_some_and(|status| status.code() == Code::ResourceExhausted) {
        assert!(start.elapsed() < TIME_LIMIT, "the memory is not given back");
    }
}

/// Whether the other end has closed, or does so within the time.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn connections_that_say_nothing_or_no_http2_are_closed_and_keep_nobody_out() {
    let handshake = Duration::from_millis(500);
    let limits = ConnectionLimits { connections_max: 8, per_peer_max: 8, handshake, ..Default::default() };
    let bed = Bed::new(ServeOptions { connections: limits, ..Default::default() });
    let mut silent: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(bed.server.address()).unwrap()).collect();
    let mut web = TcpStream::connect(bed.server.address()).unwrap();
    // The connection may be closed already.
    let _ = web.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(is_closed(&mut web));
    assert!(silent.iter_mut().all(is_closed));
    let start = Instant::now();
    loop {
        let client = Client::connect(&bed.address());
        if client.is_ok_and(|client| client.p4info(DEVICE).is_ok()) {
            break;
        }
        assert!(start.elapsed() < TIME_LIMIT, "a client gets no connection");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_peer_has_so_many_connections_and_those_that_are_there_go_on() {
    let limits = ConnectionLimits { connections_max: 8, per_peer_max: 3, ..Default::default() };
    let bed = Bed::new(ServeOptions { connections: limits, ..Default::default() });
    let clients: Vec<Client> = (0..3).map(|_| Client::connect(&bed.address()).unwrap()).collect();
    clients.iter().for_each(|client| _ = client.p4info(DEVICE).unwrap());
    let mut fourth = TcpStream::connect(bed.server.address()).unwrap();
    assert!(is_closed(&mut fourth));
    clients.iter().for_each(|client| _ = client.p4info(DEVICE).unwrap());
    drop(clients);
    let start = Instant::now();
    while !Client::connect(&bed.address()).is_ok_and(|client| client.p4info(DEVICE).is_ok()) {
        assert!(start.elapsed() < TIME_LIMIT, "places are not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn handshakes_that_do_not_end_keep_nobody_out() {
    let handshake = Duration::from_secs(3600);
    let limits = ConnectionLimits { connections_max: 4, handshakes_max: 8, handshake, ..Default::default() };
    let bed = Bed::new(ServeOptions { connections: limits, ..Default::default() });
    let _silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(bed.server.address()).unwrap()).collect();
    let start = Instant::now();
    while !Client::connect(&bed.address()).is_ok_and(|client| client.p4info(DEVICE).is_ok()) {
        assert!(start.elapsed() < TIME_LIMIT, "a client gets no connection");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn two_addresses_that_hold_all_places_keep_no_third_one_out() {
    let limits = ConnectionLimits { connections_max: 8, per_peer_max: 4, ..Default::default() };
    let bed = Bed::new(ServeOptions { connections: limits, ..Default::default() });
    let mut held = Vec::new();
    for address in [[127, 0, 0, 2], [127, 0, 0, 3]] {
        for _ in 0..4 {
            let endpoint = Channel::from_shared(format!("http://{}", bed.address())).unwrap();
            let channel = endpoint.local_address(Some(address.into())).connect().await.unwrap();
            let (say, said) = mpsc::channel::<pb::StreamMessageRequest>(1);
            // The answer's head shows that the call is there, and so is its place.
            let hear = P4RuntimeClient::new(channel).stream_channel(ReceiverStream::new(said)).await.unwrap();
            held.push((say, hear));
        }
    }
    let address = bed.address();
    let third = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        while !Client::connect(&address).is_ok_and(|client| client.p4info(DEVICE).is_ok()) {
            assert!(start.elapsed() < TIME_LIMIT, "a third address gets no connection");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    third.await.unwrap();
}

#[tokio::test]
async fn a_connection_without_calls_is_closed_and_one_with_a_stream_is_not() {
    let idle = Duration::from_millis(300);
    let limits = ConnectionLimits { idle, ..Default::default() };
    let bed = Bed::new(ServeOptions { connections: limits, ..Default::default() });
    let mut client = bed.client().await;
    let mut session = bed.primary(&mut client).await;
    let mut quiet = TcpStream::connect(bed.server.address()).unwrap();
    // What begins HTTP/2, and empty SETTINGS.
    quiet.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    assert!(tokio::task::spawn_blocking(move || is_closed(&mut quiet)).await.unwrap());
    tokio::time::sleep(3 * idle).await;
    let election_id = Some(pb::Uint128 { high: 0, low: 2 });
    let claim = pb::MasterArbitrationUpdate { device_id: DEVICE, election_id, ..Default::default() };
    session.say(Said::Arbitration(claim)).await;
    assert!(matches!(session.hear().await, Ok(Some(Heard::Arbitration(_)))));
}
