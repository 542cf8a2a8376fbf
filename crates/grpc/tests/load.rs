//! Many clients at a time, and clients that do not read: the others notice nothing.
//!
//! Clients that are *stuck* are blocking clients whose runtime stands still: nobody reads their sockets, answers HTTP/2's
//! pings or gives windows back, as with a controller that hangs or whose network is gone.

#[path = "../../control/tests/fixture/mod.rs"]
mod fixture;

use control::Control;
use control::forwarding::{Built, Compiled, Refusal, Target};
use datapath::Keep;
use datapath::replication::Replication;
use datapath::state::FastState;
use fixture::id;
use grpc::client::Client;
use grpc::services::p4runtime::p4_runtime_client::P4RuntimeClient;
use grpc::{Handle, ServeOptions, Server, serve_with};
use messages::p4::v1 as pb;
use p4info::ObjectKind;
use pb::stream_message_request::Update as Said;
use pb::stream_message_response::Update as Heard;
use pb::update::Type;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

const DEVICE: u64 = 1;
const TIME_LIMIT: Duration = Duration::from_secs(240);
/// Routes that are there from the beginning: an answer of five megabytes, more than windows and buffers hold.
const ROUTES: u32 = 120_000;

/// The fixture's router with large tables, on the engines that packets use.
struct LargeSwitch;

impl Target for LargeSwitch {
    fn compile(&self, source: &[u8]) -> Result<Compiled, Refusal> {
        assert!(source != b"panics", "as the program asks");
        let (info, mut program) = fixture::program(&String::from_utf8_lossy(source)).ok_or("no program")?;
        let table = program.table_named("ingress.ipv4_lpm").ok_or("no table")?;
        program.tables[table.index()].size = 1 << 17;
        Ok(Compiled { p4info: Arc::new(info), program: Arc::new(program) })
    }

    fn build(&self, compiled: &Compiled, _earlier: Option<(&Built, &Keep)>) -> Result<Built, Refusal> {
        let Compiled { p4info, program } = compiled.clone();
        let state = Arc::new(FastState::new(Arc::clone(&program), 1).map_err(|e| e.to_string())?);
        let replication = Arc::new(Replication::new());
        Ok(Built { p4info, program, state, replication, shares: false, handle: Arc::new(()) })
    }

    fn activate(&self, _built: &Built) -> Result<(), String> {
        Ok(())
    }

    fn ports(&self) -> Vec<u32> {
        vec![1, 2, 3]
    }

    fn cpu_port(&self) -> Option<u32> {
        Some(fixture::CPU)
    }

    fn inject(&self, _port: u32, _frame: Vec<u8>) -> Result<(), String> {
        Ok(())
    }
}

struct Bed {
    server: Server,
    handle: Arc<Handle>,
}

impl Bed {
    fn new(options: ServeOptions) -> Bed {
        let mut control = Control::new();
        control.add_device(DEVICE, Arc::new(LargeSwitch));
        let config = control::forwarding::ForwardingConfig { device_config: b"router".to_vec(), ..Default::default() };
        control.load(DEVICE, config).unwrap();
        let handle = Handle::new(control);
        let server = serve_with("127.0.0.1:0".parse().unwrap(), Arc::clone(&handle), options).unwrap();
        Bed { server, handle }
    }

    fn address(&self) -> String {
        self.server.address().to_string()
    }

    async fn client(&self) -> P4RuntimeClient<Channel> {
        P4RuntimeClient::connect(format!("http://{}", self.address())).await.unwrap()
    }

    /// A client that is primary of a role.
    async fn primary(&self, role: &str) -> (P4RuntimeClient<Channel>, Session) {
        let mut client = self.client().await;
        let mut session = Session::open(&mut client).await;
        session.claim(role, 1).await;
        assert_eq!(session.arbitration().await, Code::Ok);
        (client, session)
    }
}

struct Session {
    say: mpsc::Sender<pb::StreamMessageRequest>,
    hear: Streaming<pb::StreamMessageResponse>,
}

impl Session {
    async fn open(client: &mut P4RuntimeClient<Channel>) -> Session {
        let (say, said) = mpsc::channel(4);
        let hear = client.stream_channel(ReceiverStream::new(said)).await.unwrap().into_inner();
        Session { say, hear }
    }

    async fn claim(&self, role: &str, election: u64) {
        let role = (!role.is_empty()).then(|| pb::Role { name: role.to_string(), ..Default::default() });
        let election_id = Some(pb::Uint128 { high: 0, low: election });
        let update = pb::MasterArbitrationUpdate { device_id: DEVICE, role, election_id, ..Default::default() };
        self.say.send(pb::StreamMessageRequest { update: Some(Said::Arbitration(update)) }).await.unwrap();
    }

    async fn heard(&mut self) -> Heard {
        let message = tokio::time::timeout(TIME_LIMIT, self.hear.message()).await.expect("a message in time");
        message.unwrap().and_then(|m| m.update).expect("a message")
    }

    async fn arbitration(&mut self) -> Code {
        match self.heard().await {
            Heard::Arbitration(update) => Code::from_i32(update.status.unwrap().code),
            other => panic!("{other:?} is no arbitration update"),
        }
    }

    /// The number in the next packet.
    async fn packet(&mut self) -> u32 {
        loop {
            match self.heard().await {
                Heard::Packet(packet) => return u32::from_be_bytes(packet.payload[..4].try_into().unwrap()),
                Heard::Arbitration(_) => {}
                other => panic!("{other:?} is no packet"),
            }
        }
    }
}

fn route(number: u32, port: u8) -> pb::TableEntry {
    let lpm = pb::field_match::Lpm { value: (0x0a00_0000 + number).to_be_bytes().to_vec(), prefix_len: 32 };
    let param = |param_id, value| pb::action::Param { param_id, value: vec![value] };
    let action_id = id(ObjectKind::Action, "ingress.forward");
    let action = pb::Action { action_id, params: vec![param(1, port), param(2, 0xaa)] };
    let field_match_type = Some(pb::field_match::FieldMatchType::Lpm(lpm));
    pb::TableEntry {
        table_id: id(ObjectKind::Table, "ingress.ipv4_lpm"),
        r#match: vec![pb::FieldMatch { field_id: 1, field_match_type }],
        action: Some(pb::TableAction { r#type: Some(pb::table_action::Type::Action(action)) }),
        ..Default::default()
    }
}

fn update(kind: Type, entry: pb::TableEntry) -> pb::Update {
    let entity = pb::Entity { entity: Some(pb::entity::Entity::TableEntry(entry)) };
    pb::Update { r#type: kind.into(), entity: Some(entity) }
}

fn routes_query() -> Vec<pb::Entity> {
    let table_id = id(ObjectKind::Table, "ingress.ipv4_lpm");
    let entry = pb::TableEntry { table_id, ..Default::default() };
    vec![pb::Entity { entity: Some(pb::entity::Entity::TableEntry(entry)) }]
}

async fn write(client: &mut P4RuntimeClient<Channel>, role: &str, updates: Vec<pb::Update>) {
    let election_id = Some(pb::Uint128 { high: 0, low: 1 });
    let request = pb::WriteRequest { device_id: DEVICE, role: role.into(), election_id, updates, ..Default::default() };
    let done = tokio::time::timeout(TIME_LIMIT, client.write(request)).await.expect("an answer in time");
    done.unwrap();
}

/// Number and port of a route.
fn number_and_port(entity: &pb::Entity) -> (u32, u8) {
    let Some(pb::entity::Entity::TableEntry(entry)) = &entity.entity else { panic!("{entity:?} is no entry") };
    let Some(pb::field_match::FieldMatchType::Lpm(lpm)) = &entry.r#match[0].field_match_type else {
        panic!("{entry:?} is no route")
    };
    let Some(pb::table_action::Type::Action(action)) = entry.action.as_ref().and_then(|a| a.r#type.as_ref()) else {
        panic!("{entry:?} has no action")
    };
    (u32::from_be_bytes(lpm.value.as_slice().try_into().unwrap()) - 0x0a00_0000, action.params[0].value[0])
}

async fn read(client: &mut P4RuntimeClient<Channel>) -> BTreeMap<u32, u8> {
    let request = pb::ReadRequest { device_id: DEVICE, entities: routes_query(), ..Default::default() };
    let all = async {
        let mut answer = client.read(request).await.unwrap().into_inner();
        let mut found = BTreeMap::new();
        while let Some(message) = answer.message().await.unwrap() {
            for entity in &message.entities {
                let (number, port) = number_and_port(entity);
                assert_eq!(found.insert(number, port), None, "route {number} is there twice");
            }
        }
        found
    };
    tokio::time::timeout(TIME_LIMIT, all).await.expect("an answer in time")
}

async fn fill(bed: &Bed) {
    let (mut client, _session) = bed.primary("fill").await;
    for from in (0..ROUTES).step_by(5000) {
        let updates = (from..from + 5000).map(|n| update(Type::Insert, route(n, 1))).collect();
        write(&mut client, "fill", updates).await;
    }
}

fn packet(number: u32) -> Vec<u8> {
    // The fixture's packet-in header is two bytes.
    let mut frame = vec![0, 0];
    frame.extend(number.to_be_bytes());
    frame.resize(1400, 0);
    frame
}

/// Whoever is stuck stays so for as long as a test takes, on a busy machine, too.
fn patient() -> ServeOptions {
    let long = Duration::from_secs(3600);
    ServeOptions { keepalive: long, keepalive_answer: long, patience: long, ..ServeOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_are_served_together() {
    const EACH: u32 = 16;
    let bed = Arc::new(Bed::new(patient()));
    let mut clients = tokio::task::JoinSet::new();
    // Sixteen that write under roles of their own, always both routes of a pair in a request.
    for n in 0..EACH {
        let bed = Arc::clone(&bed);
        clients.spawn(async move {
            let role = format!("writer {n}");
            let (mut client, _session) = bed.primary(&role).await;
            let first = 1000 * n;
            let both = |kind, pair: u32, port| [0, 1].map(|side| update(kind, route(first + 2 * pair + side, port)));
            for round in 0..20u32 {
                let pairs = 10 * round..10 * round + 10;
                write(&mut client, &role, pairs.clone().flat_map(|p| both(Type::Insert, p, 1)).collect()).await;
                write(&mut client, &role, pairs.clone().flat_map(|p| both(Type::Modify, p, 2)).collect()).await;
                let gone = pairs.filter(|pair| pair % 2 == 0);
                write(&mut client, &role, gone.flat_map(|p| both(Type::Delete, p, 2)).collect()).await;
            }
        });
    }
    // Sixteen that read, and never see half of a request.
    for _ in 0..EACH {
        let bed = Arc::clone(&bed);
        clients.spawn(async move {
            let mut client = bed.client().await;
            for _ in 0..10 {
                let found = read(&mut client).await;
                for (number, port) in &found {
                    assert_eq!(found.get(&(number ^ 1)), Some(port), "route {number} without its other half");
                }
            }
        });
    }
    // Sixteen that listen, and sixteen that hold a stream and do not.
    let listening = Arc::new(tokio::sync::Barrier::new(EACH as usize + 1));
    for n in 0..2 * EACH {
        let (bed, listening) = (Arc::clone(&bed), Arc::clone(&listening));
        clients.spawn(async move {
            let (_client, mut session) = bed.primary(&format!("listener {n}")).await;
            if n >= EACH {
                tokio::time::sleep(Duration::from_millis(500)).await;
                return;
            }
            listening.wait().await;
            for expected in 0..2000 {
                assert_eq!(session.packet().await, expected);
            }
        });
    }
    listening.wait().await;
    for number in 0..2000 {
        bed.handle.packet_in(DEVICE, &packet(number));
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    // What is left of each writer: every other pair, modified.
    let found = read(&mut bed.client().await).await;
    assert_eq!(found.len() as u32, EACH * 200);
    assert!(found.iter().all(|(number, port)| (number % 1000 / 2) % 2 == 1 && *port == 2));
}

/// A client that is stuck: its runtime stands still, and its socket is not read.
struct Stuck<R> {
    resume: blocking::Sender<()>,
    thread: std::thread::JoinHandle<R>,
}

impl<R: Send + 'static> Stuck<R> {
    /// Connects it and returns when `body` has called its second argument, which returns when it may go on.
    fn begin(bed: &Bed, body: impl FnOnce(&Client, &dyn Fn()) -> R + Send + 'static) -> Stuck<R> {
        let address = bed.address();
        let (stuck, is_stuck) = blocking::channel::<()>();
        let (resume, resumed) = blocking::channel::<()>();
        let thread = std::thread::spawn(move || {
            let client = Client::connect(&address).unwrap();
            body(&client, &|| {
                stuck.send(()).unwrap();
                resumed.recv().unwrap();
            })
        });
        is_stuck.recv().unwrap();
        Stuck { resume, thread }
    }

    /// It reads again; what became of it.
    fn go_on(self) -> R {
        self.resume.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

impl Stuck<()> {
    /// One that is primary.
    fn primary(bed: &Bed) -> Stuck<()> {
        Stuck::begin(bed, |client, halt| {
            let primary = client.become_primary(DEVICE, 5).unwrap();
            halt();
            drop(primary);
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_its_stream_loses_packets_and_nobody_else_does() {
    let bed = Bed::new(patient());
    let stuck = Stuck::primary(&bed);
    let (mut client, mut session) = bed.primary("other").await;
    for hundred in 0..200u32 {
        for number in 0..100 {
            bed.handle.packet_in(DEVICE, &packet(100 * hundred + number));
        }
        for number in 0..100 {
            assert_eq!(session.packet().await, 100 * hundred + number);
        }
        write(&mut client, "other", vec![update(Type::Insert, route(hundred, 1))]).await;
    }
    let lost = bed.handle.lost_events();
    assert!(lost.packets > 0 && lost.packets < 20_000, "{lost:?}");
    assert_eq!((lost.digests, lost.idle_timeouts), (0, 0));
    assert_eq!(read(&mut client).await.len(), 200);
    stuck.go_on();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_take_its_answer_holds_up_neither_writers_nor_readers() {
    let bed = Bed::new(patient());
    fill(&bed).await;
    let stuck = Stuck::begin(&bed, |client, halt| {
        let mut found = BTreeMap::new();
        let each = |entity: pb::Entity| {
            if found.is_empty() {
                halt();
            }
            let (number, port) = number_and_port(&entity);
            assert_eq!(found.insert(number, port), None);
        };
        client.read(DEVICE, routes_query(), each).unwrap();
        found
    });
    let (mut client, _session) = bed.primary("other").await;
    for from in (0..ROUTES).step_by(1000) {
        let half = (from..from + 1000).filter(|n| n % 2 == 0);
        write(&mut client, "other", half.map(|n| update(Type::Delete, route(n, 1))).collect()).await;
        let half = (from..from + 1000).filter(|n| n % 2 == 1);
        write(&mut client, "other", half.map(|n| update(Type::Modify, route(n, 3))).collect()).await;
    }
    let now = read(&mut client).await;
    assert_eq!(now.len() as u32, ROUTES / 2);
    assert!(now.values().all(|port| *port == 3));
    // The first answer is still of what was there when it was asked for.
    let then = stuck.go_on();
    assert_eq!(then.len() as u32, ROUTES);
    assert!(then.values().all(|port| *port == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_takes_ends_and_says_that_it_is_not_whole() {
    let patience = Duration::from_millis(100);
    let bed = Bed::new(ServeOptions { patience, ..ServeOptions::default() });
    fill(&bed).await;
    // On a busy machine the server's patience may begin to count late.
    for pause in [20, 200, 2000].map(|times| times * patience) {
        let address = bed.address();
        let done = tokio::task::spawn_blocking(move || {
            let client = Client::connect(&address).unwrap();
            let mut found = 0;
            let each = |_| {
                if found == 0 {
                    std::thread::sleep(pause);
                }
                found += 1;
            };
            (client.read(DEVICE, routes_query(), each), found)
        });
        let (answer, found) = done.await.unwrap();
        let Err(error) = answer.map_err(|error| error.to_string()) else { continue };
        assert!(error.contains("the read ends here"), "{error}");
        assert!(found < ROUTES);
        return;
    }
    panic!("the server waits for ever");
}

/// On a busy machine a client that is well may be taken for stuck, or the stuck one be gone before another has come: then
/// once more, with more time for everyone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_place_of_a_client_that_is_stuck_becomes_free() {
    for times in [1, 5, 25, 125] {
        if tokio::spawn(stuck_with_keepalive(times * Duration::from_millis(200))).await.is_ok() {
            return;
        }
    }
    panic!("not even with much time, see above");
}

async fn stuck_with_keepalive(keepalive: Duration) {
    let keepalive_answer = keepalive * 3 / 2;
    let bed = Bed::new(ServeOptions { keepalive, keepalive_answer, ..ServeOptions::default() });
    let stuck = Stuck::primary(&bed);
    let mut client = bed.client().await;
    let mut session = Session::open(&mut client).await;
    session.claim("", 3).await;
    assert_eq!(session.arbitration().await, Code::AlreadyExists, "the stuck one is primary, with a higher id");
    // It is told that the primary has gone; the specification wants a new claim of at least the id that was highest.
    assert_eq!(session.arbitration().await, Code::NotFound);
    session.claim("", 6).await;
    assert_eq!(session.arbitration().await, Code::Ok);
    stuck.go_on();
}

/// Whether somebody is primary in the default role.
fn has_primary(bed: &Bed) -> bool {
    bed.handle.with(|control| control.has_primary(DEVICE)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_client_takes_nothing_of_a_full_queue_is_cut_and_the_client_is_told() {
    let patience = Duration::from_millis(300);
    let bed = Bed::new(ServeOptions { patience, ..patient() });
    let (_client, mut session) = bed.primary("").await;
    let mut number = 0;
    let mut fill = |until: &dyn Fn() -> bool| {
        let start = std::time::Instant::now();
        while !until() {
            assert!(start.elapsed() < TIME_LIMIT, "the stream is kept for ever");
            bed.handle.packet_in(DEVICE, &packet(number));
            number += 1;
            // Others want the lock, too.
            if number % 64 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    fill(&|| bed.handle.lost_events().packets > 0);
    // It hangs, and what comes is lost; then it is no client any more, though it has not left.
    fill(&|| !has_primary(&bed));
    let ended = async {
        loop {
            match session.hear.message().await {
                Ok(message) => assert!(message.is_some(), "the stream ends without a reason"),
                Err(status) => return status,
            }
        }
    };
    let status = tokio::time::timeout(TIME_LIMIT, ended).await.expect("an end in time");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("does not read") && status.message().contains("300ms"), "{status}");
}

#[test]
fn programs_that_make_the_compiler_panic_leave_their_places_to_others() {
    let bed = Bed::new(patient());
    let config =
        |source: &[u8]| control::forwarding::ForwardingConfig { device_config: source.to_vec(), ..Default::default() };
    for _ in 0..20 {
        let load = std::panic::AssertUnwindSafe(|| bed.handle.load(DEVICE, config(b"panics")));
        assert!(std::panic::catch_unwind(load).is_err());
    }
    bed.handle.load(DEVICE, config(b"router")).unwrap();
}
