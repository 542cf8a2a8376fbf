//! Rights through a socket: what a client with one role and one device can say, however it says it, and what is recorded of that.

#[path = "../../control/tests/fixture/mod.rs"]
mod fixture;

use control::Control;
use control::forwarding::ForwardingConfig;
use fixture::FakeSwitch;
use grpc::access::Access;
use grpc::audit::Audit;
use grpc::services::p4runtime::p4_runtime_client::P4RuntimeClient;
use grpc::{Handle, ServeOptions, Server, Socket, serve_on};
use http_body::Frame;
use messages::p4::v1 as pb;
use pb::stream_message_request::Update as Said;
use pb::stream_message_response::Update as Heard;
use prost::Message;
use prost::bytes::{BufMut, Bytes};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower_service::Service;

/// Longer than anything takes on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A switch with devices 1 and 2, on a Unix socket, with a roles file about this process's user.
struct Bed {
    server: Option<Server>,
    handle: Arc<Handle>,
    access: Arc<Access>,
    folder: PathBuf,
}

impl Bed {
    fn new(name: &str, rights: &str) -> Bed {
        let mut control = Control::new();
        for device in [1, 2] {
            control.add_device(device, FakeSwitch::new());
            let config = ForwardingConfig { device_config: b"router".to_vec(), ..Default::default() };
            control.load(device, config).unwrap();
        }
        let folder = std::env::temp_dir().join(format!("sluice-rights-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut bed = Bed { server: None, handle: Handle::new(control), access: Arc::default(), folder };
        bed.write_roles(rights);
        bed.access = Arc::new(Access::load(&bed.folder.join("roles")).unwrap());
        let audit = Audit::to_file(&bed.folder.join("audit")).unwrap();
        let options = ServeOptions { access: Arc::clone(&bed.access), audit, ..Default::default() };
        let path = bed.folder.join("admin.sock");
        let socket = |_| Socket::bind(&path).map(Some);
        bed.server = Some(serve_on(None, socket, Arc::clone(&bed.handle), options).unwrap());
        bed
    }

    /// What this process's user may do.
    fn write_roles(&self, rights: &str) {
        use std::os::unix::fs::MetadataExt;
        let uid = std::fs::metadata("/proc/self").unwrap().uid();
        std::fs::write(self.folder.join("roles"), format!("uid:{uid} {rights}\n")).unwrap();
    }

    async fn channel(&self) -> Channel {
        let path = self.folder.join("admin.sock");
        Endpoint::from_shared(format!("unix:{}", path.display())).unwrap().connect().await.unwrap()
    }

    /// The audit log, when all is written.
    fn records(mut self) -> String {
        self.server = None;
        self.access = Arc::default();
        // The last writer waits for its thread.
        let start = std::time::Instant::now();
        let mut before = String::new();
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = std::fs::read_to_string(self.folder.join("audit")).unwrap();
            if now == before && !now.is_empty() || start.elapsed() > TIME_LIMIT {
                return now;
            }
            before = now;
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One message as given, and then nothing, without an end.
struct Raw(Option<Bytes>);

impl http_body::Body for Raw {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

/// What a stream answers to such bytes of a message: its first answer, or how it ends.
async fn first_answer(channel: &mut Channel, message: &[u8]) -> Result<pb::StreamMessageResponse, Status> {
    let mut framed = vec![0];
    framed.put_u32(message.len() as u32);
    framed.extend(message);
    let request = tonic::codegen::http::Request::post("http://localhost/p4.v1.P4Runtime/StreamChannel")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Raw(Some(framed.into()))))
        .unwrap();
    let answer = async {
        std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
        let answer = channel.call(request).await.unwrap();
        if let Some(status) = Status::from_header_map(answer.headers()) {
            return Err(status);
        }
        let mut body = answer.into_body();
        loop {
            let frame = std::future::poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx));
            let frame = frame.await.expect("an answer").unwrap();
            if let Some(trailers) = frame.trailers_ref() {
                return Err(Status::from_header_map(trailers).unwrap());
            }
            if let Some(data) = frame.data_ref()
                && data.len() > 5
            {
                return Ok(pb::StreamMessageResponse::decode(&data[5..]).unwrap());
            }
        }
    };
    tokio::time::timeout(TIME_LIMIT, answer).await.expect("an answer in time")
}

fn claim(device_id: u64, role: &str, election: u64) -> pb::MasterArbitrationUpdate {
    let role = (!role.is_empty()).then(|| pb::Role { name: role.into(), ..Default::default() });
    let election_id = (election > 0).then_some(pb::Uint128 { high: 0, low: election });
    pb::MasterArbitrationUpdate { device_id, role, election_id, ..Default::default() }
}

/// A length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128);
    let mut all = vec![number << 3 | 2, bytes.len() as u8];
    all.extend(bytes);
    all
}

#[tokio::test]
async fn a_claim_in_parts_gets_no_role_that_its_client_has_no_right_to() {
    let bed = Bed::new("parts", "p4runtime devices=1 roles=sdn");
    let mut channel = bed.channel().await;
    let (arbitration, packet) = (1, 2);
    let part = |device, role, election| field(arbitration, &claim(device, role, election).encode_to_vec());
    for hidden in [
        // A decoder begins anew with the last one, for another one stood between.
        [part(1, "sdn", 0), field(packet, &[]), part(1, "", 9)].concat(),
        [part(1, "sdn", 9), field(packet, &[]), part(2, "sdn", 9)].concat(),
        // And merges what follows at once.
        [part(1, "sdn", 0), part(2, "", 9)].concat(),
        part(1, "", 9),
        part(2, "sdn", 9),
        part(1, "other", 9),
    ] {
        let refused = first_answer(&mut channel, &hidden).await.expect_err("it has no right to that");
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }
    for device in [1, 2] {
        assert!(!bed.handle.with(|control| control.has_primary(device)).unwrap(), "device {device}");
    }
    // Merged it is a claim to what it may have.
    let whole = [part(1, "sdn", 0), part(1, "", 9)].concat();
    first_answer(&mut channel, &whole).await.expect("it has the right to that");
    assert!(bed.records().contains("role sdn, election id 9, claims to be primary"));
}

#[tokio::test]
async fn every_call_is_refused_for_a_device_or_role_that_its_client_has_no_right_to() {
    let bed = Bed::new("calls", "p4runtime devices=1 roles=sdn");
    let mut client = P4RuntimeClient::new(bed.channel().await);
    let role = String::from("sdn");
    let election_id = Some(pb::Uint128 { high: 0, low: 1 });
    for (device_id, role) in [(2, role), (1, String::new())] {
        let write = pb::WriteRequest { device_id, role: role.clone(), election_id, ..Default::default() };
        // A large one is refused before it is decoded, a small one after.
        let large = pb::WriteRequest { updates: vec![pb::Update::default(); 20_000], ..write.clone() };
        let read = pb::ReadRequest { device_id, role: role.clone(), ..Default::default() };
        let set = pb::SetForwardingPipelineConfigRequest { device_id, role, election_id, ..Default::default() };
        let refused = [
            client.write(write).await.unwrap_err(),
            client.write(large).await.unwrap_err(),
            client.read(read).await.err().unwrap(),
            client.set_forwarding_pipeline_config(set).await.unwrap_err(),
        ];
        for status in refused {
            assert_eq!(status.code(), Code::PermissionDenied, "{status}");
            assert!(status.message().contains("the roles file gives this client no right"), "{status}");
        }
    }
    let get = pb::GetForwardingPipelineConfigRequest { device_id: 2, ..Default::default() };
    assert_eq!(client.get_forwarding_pipeline_config(get).await.unwrap_err().code(), Code::PermissionDenied);
    let capabilities = |device_id| pb::CapabilitiesRequest { device_id };
    assert_eq!(client.capabilities(capabilities(2)).await.unwrap_err().code(), Code::PermissionDenied);
    client.capabilities(capabilities(0)).await.unwrap();
    client.capabilities(capabilities(1)).await.unwrap();
}

struct Session {
    say: mpsc::Sender<pb::StreamMessageRequest>,
    hear: tonic::Streaming<pb::StreamMessageResponse>,
}

impl Session {
    async fn open(channel: Channel) -> Session {
        let (say, said) = mpsc::channel(4);
        let hear = P4RuntimeClient::new(channel).stream_channel(ReceiverStream::new(said)).await.unwrap().into_inner();
        Session { say, hear }
    }

    async fn claim(&mut self, role: &str, election: u64) -> Result<Code, Status> {
        let update = Some(Said::Arbitration(claim(1, role, election)));
        self.say.send(pb::StreamMessageRequest { update }).await.unwrap();
        let heard = tokio::time::timeout(TIME_LIMIT, self.hear.message()).await.expect("an answer in time")?;
        match heard.and_then(|message| message.update) {
            Some(Heard::Arbitration(update)) => Ok(Code::from_i32(update.status.unwrap().code)),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn rights_that_are_taken_away_end_the_streams_that_have_them_and_no_others() {
    let bed = Bed::new("reload", "p4runtime devices=1 roles=sdn,other");
    let mut session = Session::open(bed.channel().await).await;
    assert_eq!(session.claim("sdn", 1).await.unwrap(), Code::Ok);
    let mut other = Session::open(bed.channel().await).await;
    assert_eq!(other.claim("other", 1).await.unwrap(), Code::Ok);
    // What stays allowed goes on.
    bed.write_roles("p4runtime devices=1 roles=other");
    bed.access.reload().unwrap();
    let ended = tokio::time::timeout(TIME_LIMIT, session.hear.message()).await.expect("an end in time").unwrap_err();
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    assert!(ended.message().contains("no right in the role `sdn`"), "{ended}");
    assert_eq!(other.claim("other", 2).await.unwrap(), Code::Ok);
    // The other is primary still, and of `sdn` nobody is, as soon as the stream's task has ended.
    let primaries = || -> Vec<String> {
        let roles = bed.handle.with(|control| control.roles(1)).unwrap();
        roles.into_iter().filter(|role| role.has_primary).map(|role| role.role.name).collect()
    };
    let start = std::time::Instant::now();
    while primaries() != ["other"] {
        assert!(start.elapsed() < TIME_LIMIT, "{:?}", primaries());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn claims_are_recorded_with_their_outcome_and_a_flood_of_them_fills_nothing() {
    let bed = Bed::new("claims", "p4runtime devices=1 roles=sdn,x");
    let mut session = Session::open(bed.channel().await).await;
    assert_eq!(session.claim("sdn", 5).await.unwrap(), Code::Ok);
    let mut backup = Session::open(bed.channel().await).await;
    assert_eq!(backup.claim("sdn", 4).await.unwrap(), Code::AlreadyExists);
    let mut refused = Session::open(bed.channel().await).await;
    assert_eq!(refused.claim("", 6).await.unwrap_err().code(), Code::PermissionDenied);
    let mut flood = Session::open(bed.channel().await).await;
    let start = std::time::Instant::now();
    for _ in 0..500 {
        assert_eq!(flood.claim("x", 0).await.unwrap(), Code::NotFound);
    }
    let seconds = start.elapsed().as_secs() as usize + 2;
    let text = bed.records();
    for (role, id, outcome) in [("sdn", 5, "Granted"), ("sdn", 4, "Backup"), ("default", 6, "PermissionDenied")] {
        let said =
            format!("\"device 1, role {role}, election id {id}, claims to be primary\",\"outcome\":\"{outcome}\"");
        assert!(text.contains(&said), "{said} is not in {text}");
    }
    // Ten a second of this peer.
    assert!(text.lines().count() <= 10 * seconds + 10, "{} lines in {seconds} s", text.lines().count());
}

#[tokio::test]
async fn a_change_is_recorded_and_counted_though_its_client_does_not_wait_for_the_answer() {
    let bed = Bed::new("cancelled", "p4runtime devices=1 roles=sdn");
    let mut session = Session::open(bed.channel().await).await;
    assert_eq!(session.claim("sdn", 5).await.unwrap(), Code::Ok);
    let mut client = P4RuntimeClient::new(bed.channel().await);
    for cancels in [true, false] {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (hold, held) = tokio::sync::oneshot::channel();
        let handle = Arc::clone(&bed.handle);
        let busy = std::thread::spawn(move || {
            handle.with(|_| {
                hold.send(()).unwrap();
                let _ = released.recv();
            });
        });
        held.await.unwrap();
        let election_id = Some(pb::Uint128 { high: 0, low: 5 });
        let write = pb::WriteRequest { device_id: 1, role: "sdn".into(), election_id, ..Default::default() };
        let mut request = tonic::Request::new(write);
        if !cancels {
            request.set_timeout(Duration::from_millis(500));
        }
        let waited =
            tokio::time::timeout(Duration::from_secs(if cancels { 1 } else { 60 }), client.write(request)).await;
        assert!(
            waited.map_or(cancels, |answer| answer.is_err()),
            "nothing is answered while the control plane is busy"
        );
        // By now the server has heard of it.
        tokio::time::sleep(Duration::from_millis(500)).await;
        release.send(()).unwrap();
        busy.join().unwrap();
    }
    // All changes are made when this is answered.
    let read = pb::ReadRequest { device_id: 1, role: "sdn".into(), ..Default::default() };
    client.read(read).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    // And counted, as `sluice run --metrics` shows.
    let counts = bed.handle.rpcs().read();
    assert!(counts.contains(&("Write".to_string(), "Ok".to_string(), 2)), "{counts:?}");
    assert_eq!(bed.handle.rpcs().changes(), 2);
    let text = bed.records();
    let of_writes = text.lines().filter(|line| line.contains("/p4.v1.P4Runtime/Write") && line.contains("\"Ok\""));
    assert_eq!(of_writes.count(), 2, "{text}");
}
