//! The service over a real socket with a real client: what gRPC adds to the control plane, whose own rules are tested in
//! `control`.

#[path = "../../control/tests/fixture/mod.rs"]
mod fixture;

use abi::state::DigestMessage;
use base::Bits;
use control::Control;
use fixture::{FakeSwitch, id};
use grpc::services::p4runtime::p4_runtime_client::P4RuntimeClient;
use grpc::{Handle, Server, serve};
use messages::google::rpc;
use messages::p4::v1 as pb;
use p4info::ObjectKind;
use pb::set_forwarding_pipeline_config_request::Action as ConfigAction;
use pb::stream_message_request::Update as Said;
use pb::stream_message_response::Update as Heard;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const DEVICE: u64 = 1;
const TIME_LIMIT: Duration = Duration::from_secs(120);

struct Bed {
    server: Server,
    handle: Arc<Handle>,
    switch: Arc<FakeSwitch>,
    client: P4RuntimeClient<Channel>,
}

impl Bed {
    async fn new() -> Bed {
        let switch = FakeSwitch::new();
        let mut control = Control::new();
        control.add_device(DEVICE, Arc::clone(&switch) as _);
        let handle = Handle::new(control);
        let server = serve("127.0.0.1:0".parse().unwrap(), Arc::clone(&handle)).unwrap();
        let client = P4RuntimeClient::connect(format!("http://{}", server.address())).await.unwrap();
        Bed { server, handle, switch, client }
    }

    async fn running() -> (Bed, Session) {
        let mut bed = Bed::new().await;
        let session = bed.primary(1).await;
        bed.set_config(ConfigAction::VerifyAndCommit, "router").await.unwrap();
        (bed, session)
    }

    /// A stream that has become primary.
    async fn primary(&mut self, election: u64) -> Session {
        let mut session = Session::open(&mut self.client).await;
        session.claim(election).await;
        let update = session.arbitration().await;
        assert_eq!(update.status.unwrap().code, Code::Ok as i32);
        assert_eq!(update.election_id, Some(election_id(election)));
        session
    }

    async fn set_config(&mut self, action: ConfigAction, source: &str) -> Result<(), Status> {
        let config = pb::ForwardingPipelineConfig {
            p4info: Some(Default::default()),
            p4_device_config: source.as_bytes().to_vec(),
            cookie: Some(pb::forwarding_pipeline_config::Cookie { cookie: 7 }),
        };
        let request = pb::SetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            election_id: Some(election_id(1)),
            action: action.into(),
            config: Some(config),
            ..Default::default()
        };
        self.client.set_forwarding_pipeline_config(request).await.map(drop)
    }

    async fn set_config_without_p4info(&mut self) -> Result<(), Status> {
        let config = pb::ForwardingPipelineConfig { p4_device_config: b"router".to_vec(), ..Default::default() };
        let request = pb::SetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            election_id: Some(election_id(1)),
            action: ConfigAction::VerifyAndCommit.into(),
            config: Some(config),
            ..Default::default()
        };
        self.client.set_forwarding_pipeline_config(request).await.map(drop)
    }

    async fn write(&mut self, updates: Vec<pb::Update>) -> Result<(), Status> {
        let election_id = Some(election_id(1));
        let request = pb::WriteRequest { device_id: DEVICE, election_id, updates, ..Default::default() };
        self.client.write(request).await.map(drop)
    }

    async fn read(&mut self, entities: Vec<pb::Entity>) -> (Vec<pb::Entity>, Option<Status>) {
        let request = pb::ReadRequest { device_id: DEVICE, entities, ..Default::default() };
        let mut stream = self.client.read(request).await.unwrap().into_inner();
        let mut found = Vec::new();
        loop {
            match stream.message().await {
                Ok(Some(answer)) => found.extend(answer.entities),
                Ok(None) => return (found, None),
                Err(status) => return (found, Some(status)),
            }
        }
    }
}

/// A controller's stream.
struct Session {
    say: mpsc::Sender<pb::StreamMessageRequest>,
    hear: Streaming<pb::StreamMessageResponse>,
}

impl Session {
    async fn open(client: &mut P4RuntimeClient<Channel>) -> Session {
        let (say, said) = mpsc::channel(16);
        let hear = client.stream_channel(ReceiverStream::new(said)).await.unwrap().into_inner();
        Session { say, hear }
    }

    async fn say(&self, update: Said) {
        self.say.send(pb::StreamMessageRequest { update: Some(update) }).await.unwrap();
    }

    async fn claim(&self, election: u64) {
        let election_id = Some(election_id(election));
        let update = pb::MasterArbitrationUpdate { device_id: DEVICE, election_id, ..Default::default() };
        self.say(Said::Arbitration(update)).await;
    }

    async fn heard(&mut self) -> Result<Option<Heard>, Status> {
        let message = tokio::time::timeout(TIME_LIMIT, self.hear.message()).await.expect("a message in time");
        message.map(|message| message.and_then(|m| m.update))
    }

    async fn arbitration(&mut self) -> pb::MasterArbitrationUpdate {
        match self.heard().await {
            Ok(Some(Heard::Arbitration(update))) => update,
            other => panic!("{other:?} is no arbitration update"),
        }
    }
}

fn election_id(low: u64) -> pb::Uint128 {
    pb::Uint128 { high: 0, low }
}

fn entity(entity: pb::entity::Entity) -> pb::Entity {
    pb::Entity { entity: Some(entity) }
}

fn route(prefix: u8, port: u8) -> pb::TableEntry {
    let lpm = pb::field_match::Lpm { value: vec![prefix, 0, 0, 0], prefix_len: 8 };
    let params = vec![
        pb::action::Param { param_id: 1, value: vec![port] },
        pb::action::Param { param_id: 2, value: vec![0xaa] },
    ];
    let action = pb::Action { action_id: id(ObjectKind::Action, "ingress.forward"), params };
    pb::TableEntry {
        table_id: id(ObjectKind::Table, "ingress.ipv4_lpm"),
        r#match: vec![pb::FieldMatch {
            field_id: 1,
            field_match_type: Some(pb::field_match::FieldMatchType::Lpm(lpm)),
        }],
        action: Some(pb::TableAction { r#type: Some(pb::table_action::Type::Action(action)) }),
        ..Default::default()
    }
}

fn insert(entry: pb::TableEntry) -> pb::Update {
    let entity = entity(pb::entity::Entity::TableEntry(entry));
    pb::Update { r#type: pb::update::Type::Insert.into(), entity: Some(entity) }
}

fn all_entries() -> pb::Entity {
    let table_id = id(ObjectKind::Table, "ingress.ipv4_lpm");
    entity(pb::entity::Entity::TableEntry(pb::TableEntry { table_id, ..Default::default() }))
}

/// The `p4.v1.Error`s of a failed batch.
fn details(status: &Status) -> Vec<(i32, String)> {
    let packed = rpc::Status::decode(status.details()).unwrap();
    assert_eq!((packed.code, packed.message.as_str()), (status.code() as i32, status.message()));
    let error = |any: &prost_types::Any| {
        assert_eq!(any.type_url, "type.googleapis.com/p4.v1.Error");
        let error = pb::Error::decode(any.value.as_slice()).unwrap();
        (error.canonical_code, error.message)
    };
    packed.details.iter().map(error).collect()
}

#[tokio::test]
async fn a_controller_becomes_primary_loads_a_program_and_writes() {
    let (mut bed, _session) = Bed::running().await;
    bed.write(vec![insert(route(10, 1)), insert(route(11, 2))]).await.unwrap();
    let (found, status) = bed.read(vec![all_entries()]).await;
    assert!(status.is_none());
    let expected = [route(10, 1), route(11, 2)].map(|entry| entity(pb::entity::Entity::TableEntry(entry)));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_config_without_p4info_and_an_unknown_atomicity_are_refused() {
    let (mut bed, _session) = Bed::running().await;
    let status = bed.set_config_without_p4info().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("no P4Info"), "{status:?}");
    let request = pb::WriteRequest {
        device_id: DEVICE,
        election_id: Some(election_id(1)),
        updates: vec![insert(route(10, 1))],
        atomicity: 7,
        ..Default::default()
    };
    let status = bed.client.write(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("no atomicity 7"), "{status:?}");
    assert!(bed.read(vec![all_entries()]).await.0.is_empty());
}

#[tokio::test]
async fn a_failed_batch_says_what_became_of_each_update() {
    let (mut bed, _session) = Bed::running().await;
    let unknown = pb::TableEntry { table_id: 5, ..route(12, 1) };
    let status = bed.write(vec![insert(route(10, 1)), insert(route(10, 1)), insert(unknown)]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let details = details(&status);
    let codes: Vec<i32> = details.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [Code::Ok as i32, Code::AlreadyExists as i32, Code::NotFound as i32]);
    assert_eq!(details[0].1, "");
    assert!(details[2].1.contains("ingress.ipv4_lpm"), "{}", details[2].1);
}

#[tokio::test]
async fn a_failed_read_comes_after_what_was_found() {
    let (mut bed, _session) = Bed::running().await;
    bed.write(vec![insert(route(10, 1))]).await.unwrap();
    let unknown = entity(pb::entity::Entity::TableEntry(pb::TableEntry { table_id: 5, ..Default::default() }));
    let (found, status) = bed.read(vec![all_entries(), unknown]).await;
    assert_eq!(found.len(), 1);
    let details = details(&status.unwrap());
    let codes: Vec<i32> = details.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [Code::Ok as i32, Code::NotFound as i32]);
}

#[tokio::test]
async fn a_large_failed_batch_keeps_all_codes() {
    let (mut bed, _session) = Bed::running().await;
    let wrong = || insert(pb::TableEntry { table_id: 5, ..route(12, 1) });
    // Clients of this kind accept 16 KiB of trailers by default; so few codes with short messages must fit.
    let status = bed.write((0..40).map(|_| wrong()).collect()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown, "{status:?}");
    assert_eq!(details(&status).len(), 40);
}

#[tokio::test]
async fn requests_are_refused_with_the_code_of_the_control_plane() {
    let mut bed = Bed::new().await;
    let status = bed.write(vec![]).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let _session = bed.primary(1).await;
    assert_eq!(bed.write(vec![]).await.unwrap_err().code(), Code::FailedPrecondition);
    let status = bed.set_config(ConfigAction::VerifyAndCommit, "nonsense").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("`nonsense` is no program"));
    let request = pb::CapabilitiesRequest { device_id: 9 };
    assert_eq!(bed.client.capabilities(request).await.unwrap_err().code(), Code::NotFound);
    let request = pb::CapabilitiesRequest::default();
    assert_eq!(bed.client.capabilities(request).await.unwrap().into_inner().p4runtime_api_version, "1.5.0");
}

#[tokio::test]
async fn what_is_left_to_servers_is_told_as_experimental_capabilities() {
    use messages::sluice::v1::Capabilities;
    use prost::Message;
    let mut bed = Bed::new().await;
    let told = bed.client.capabilities(pb::CapabilitiesRequest::default()).await.unwrap().into_inner();
    let told = told.experimental.expect("there are some");
    assert_eq!(told.type_url, "type.googleapis.com/sluice.v1.Capabilities");
    let told = Capabilities::decode(told.value.as_slice()).unwrap();
    let _session = bed.primary(1).await;
    bed.set_config(ConfigAction::VerifyAndCommit, "router").await.unwrap();
    // What is told is so: each atomicity is taken, and not one update more than the limit.
    assert_eq!(told.atomicities.len(), 3);
    for atomicity in told.atomicities {
        let election_id = Some(election_id(1));
        let request = pb::WriteRequest { device_id: DEVICE, election_id, atomicity, ..Default::default() };
        bed.client.write(request).await.unwrap();
    }
    let too_many = vec![pb::Update::default(); told.updates_max as usize + 1];
    let status = bed.write(too_many).await.unwrap_err();
    assert!(status.message().contains(&format!("the limit is {}", told.updates_max)), "{status}");
}

#[tokio::test]
async fn a_config_is_read_back_in_the_asked_parts() {
    use pb::get_forwarding_pipeline_config_request::ResponseType;
    let (mut bed, _session) = Bed::running().await;
    for (wanted, p4info, program) in [
        (ResponseType::All, true, true),
        (ResponseType::CookieOnly, false, false),
        (ResponseType::P4infoAndCookie, true, false),
        (ResponseType::DeviceConfigAndCookie, false, true),
    ] {
        let request = pb::GetForwardingPipelineConfigRequest { device_id: DEVICE, response_type: wanted.into() };
        let config = bed.client.get_forwarding_pipeline_config(request).await.unwrap().into_inner().config.unwrap();
        assert_eq!(config.cookie.map(|c| c.cookie), Some(7));
        assert_eq!(config.p4info.is_some(), p4info);
        assert_eq!(config.p4_device_config == b"router", program);
        if let Some(info) = config.p4info {
            let names: Vec<_> = info.tables.iter().map(|t| t.preamble.as_ref().unwrap().name.as_str()).collect();
            assert!(names.contains(&"ingress.ipv4_lpm"));
        }
    }
}

#[tokio::test]
async fn the_p4info_of_the_program_is_accepted_back_and_another_is_not() {
    let (mut bed, _session) = Bed::running().await;
    let request = pb::GetForwardingPipelineConfigRequest { device_id: DEVICE, ..Default::default() };
    let config = bed.client.get_forwarding_pipeline_config(request).await.unwrap().into_inner().config.unwrap();
    let set = |config| pb::SetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        election_id: Some(election_id(1)),
        action: ConfigAction::VerifyAndCommit.into(),
        config: Some(config),
        ..Default::default()
    };
    bed.client.set_forwarding_pipeline_config(set(config.clone())).await.unwrap();
    let mut other = config;
    other.p4info.as_mut().unwrap().tables[0].match_fields[0].bitwidth = 31;
    let status = bed.client.set_forwarding_pipeline_config(set(other)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_higher_election_id_takes_over_and_a_lost_stream_is_noticed() {
    let mut bed = Bed::new().await;
    let mut first = bed.primary(1).await;
    let mut second = bed.primary(2).await;
    let update = first.arbitration().await;
    assert_eq!(update.status.unwrap().code, Code::AlreadyExists as i32);
    assert_eq!(update.election_id, Some(election_id(2)));
    assert_eq!(bed.write(vec![]).await.unwrap_err().code(), Code::PermissionDenied);
    drop(second.say);
    assert!(matches!(second.hear.message().await, Ok(None)), "the server closes its side, too");
    let update = first.arbitration().await;
    assert_eq!(update.status.unwrap().code, Code::NotFound as i32);
}

#[tokio::test]
async fn a_wrong_claim_ends_the_stream_with_its_code() {
    let mut bed = Bed::new().await;
    let _first = bed.primary(1).await;
    let mut second = Session::open(&mut bed.client).await;
    second.claim(1).await;
    assert_eq!(second.heard().await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn packets_go_both_ways() {
    let (bed, mut session) = Bed::running().await;
    let metadata = vec![
        pb::PacketMetadata { metadata_id: 1, value: vec![3] },
        pb::PacketMetadata { metadata_id: 2, value: vec![0] },
    ];
    let packet = pb::PacketOut { payload: vec![9, 9], metadata: metadata.clone() };
    session.say(Said::Packet(packet)).await;
    let wrong = pb::PacketOut { payload: vec![1], metadata: vec![] };
    session.say(Said::Packet(wrong.clone())).await;
    match session.heard().await.unwrap().unwrap() {
        Heard::Error(error) => {
            assert_eq!(error.canonical_code, Code::InvalidArgument as i32);
            let about = pb::PacketOutError { packet_out: Some(wrong) };
            assert_eq!(error.details, Some(pb::stream_error::Details::PacketOut(about)));
        }
        other => panic!("{other:?}"),
    }
    // Messages of a stream are handled in order, so the first one has had its effect.
    assert_eq!(*bed.switch.injected.lock().unwrap(), [(fixture::CPU, vec![0x01, 0x80, 9, 9])]);
    bed.handle.packet_in(DEVICE, &[0x01, 0x80, 7, 7]);
    let expected = pb::PacketIn { payload: vec![7, 7], metadata };
    assert_eq!(session.heard().await.unwrap(), Some(Heard::Packet(expected)));
}

#[tokio::test]
async fn digests_arrive() {
    let (mut bed, mut session) = Bed::running().await;
    let digest_id = id(ObjectKind::Digest, "learn");
    let entry = pb::DigestEntry { digest_id, config: Some(Default::default()) };
    let entity = Some(entity(pb::entity::Entity::DigestEntry(entry)));
    bed.write(vec![pb::Update { r#type: pb::update::Type::Insert.into(), entity }]).await.unwrap();
    let digest = fixture::program("router").unwrap().1.extern_named("learn").unwrap();
    let message = DigestMessage { digest, fields: vec![Bits::new(48, 5), Bits::new(9, 2)] };
    bed.handle.tick(DEVICE, &[message], 0);
    match session.heard().await.unwrap().unwrap() {
        Heard::Digest(list) => {
            assert_eq!((list.digest_id, list.data.len()), (digest_id, 1));
            assert!(list.timestamp > 0);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_server_stops_with_clients_connected() {
    let (bed, mut session) = Bed::running().await;
    let Bed { server, .. } = bed;
    tokio::task::spawn_blocking(move || server.shutdown()).await.unwrap();
    assert!(!matches!(session.heard().await, Ok(Some(_))));
}
