//! A running switch compiles in a child process: a program that exceeds its limits is refused with a reason, and other
//! clients do not wait. Runs the real binary as a P4Runtime client.

use grpc::services::p4runtime::p4_runtime_client::P4RuntimeClient;
use messages::p4::v1 as pb;
use pb::set_forwarding_pipeline_config_request::Action;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(240);
const ELECTION: pb::Uint128 = pb::Uint128 { high: 0, low: 1 };

/// A running switch and its primary client.
struct Bed {
    switch: Child,
    runtime: Runtime,
    client: P4RuntimeClient<Channel>,
    /// Keeps the stream channel open, and so the role of primary.
    _requests: tokio::sync::mpsc::Sender<pb::StreamMessageRequest>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}

impl Bed {
    fn new(options: &[&str]) -> Bed {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(["run", "--grpc", "127.0.0.1:0", "--specialise", "off", "-i", "1@memory"]).args(options);
        let mut switch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the switch starts");
        let mut lines = BufReader::new(switch.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.starts_with("P4Runtime on ")).expect("it says where it listens");
        std::thread::spawn(move || lines.for_each(drop));
        let address = line["P4Runtime on ".len()..].split([',', ' ']).next().unwrap().to_string();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (client, requests) = runtime.block_on(async {
            let mut client = P4RuntimeClient::connect(format!("http://{address}")).await.expect("it listens");
            let (requests, receiver) = tokio::sync::mpsc::channel(4);
            let claim = pb::MasterArbitrationUpdate { device_id: 1, election_id: Some(ELECTION), ..Default::default() };
            let update = Some(pb::stream_message_request::Update::Arbitration(claim));
            requests.send(pb::StreamMessageRequest { update }).await.unwrap();
            let mut events = client.stream_channel(ReceiverStream::new(receiver)).await.unwrap().into_inner();
            events.message().await.unwrap().expect("who is primary");
            tokio::spawn(async move { while let Ok(Some(_)) = events.message().await {} });
            (client, requests)
        });
        Bed { switch, runtime, client, _requests: requests }
    }

    fn set(&self, action: Action, text: &str) -> Result<(), Status> {
        self.runtime.block_on(set(self.client.clone(), action, text.to_string()))
    }

    /// Returns the switch's child processes: the compiling one and the spare.
    fn children(&self) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.switch.id())).into_iter().flatten().flatten();
        let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        tasks
            .flat_map(|task| of(task).split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect()
    }

    /// Waits for a child that is compiling; it has more than one thread.
    fn busy_child(&self) -> u32 {
        let busy = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().count() > 1;
        wait_for("a child that compiles", || self.children().into_iter().find(busy))
    }

    fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.switch.id())).unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

async fn set(mut client: P4RuntimeClient<Channel>, action: Action, text: String) -> Result<(), Status> {
    let config = pb::ForwardingPipelineConfig {
        p4info: Some(Default::default()),
        p4_device_config: text.into_bytes(),
        ..Default::default()
    };
    let request = pb::SetForwardingPipelineConfigRequest {
        device_id: 1,
        election_id: Some(ELECTION),
        action: action.into(),
        config: Some(config),
        ..Default::default()
    };
    client.set_forwarding_pipeline_config(request).await.map(drop)
}

/// Writes a multicast group, which works with every program.
async fn write(mut client: P4RuntimeClient<Channel>, id: u32) -> Result<(), Status> {
    use pb::packet_replication_engine_entry::Type;
    let group = pb::MulticastGroupEntry { multicast_group_id: id, ..Default::default() };
    let entry = pb::PacketReplicationEngineEntry { r#type: Some(Type::MulticastGroupEntry(group)) };
    let entity = pb::Entity { entity: Some(pb::entity::Entity::PacketReplicationEngineEntry(entry)) };
    let update = pb::Update { r#type: pb::update::Type::Insert.into(), entity: Some(entity) };
    let election_id = Some(ELECTION);
    let request = pb::WriteRequest { device_id: 1, election_id, updates: vec![update], ..Default::default() };
    client.write(request).await.map(drop)
}

/// Returns a program with these types, metadata and ingress statements.
fn program(types: &str, metadata: &str, apply: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
{types}
header h_t {{ bit<8> a; }}
struct headers_t {{ h_t h; }}
struct meta_t {{ bit<32> w; {metadata} }}
parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    state start {{ b.extract(hdr.h); transition accept; }}
}}
control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ apply {{ {apply} }} }}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control D(packet_out b, in headers_t hdr) {{ apply {{ b.emit(hdr.h); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"
    )
}

fn small() -> String {
    program("", "", "sm.egress_spec = 1;")
}

/// Returns a program within the front end's limits that takes long to compile.
fn long() -> String {
    program("", "", &"if (meta.w == 1) { meta.w = meta.w + 7; }\n".repeat(30_000))
}

fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_long_compilation_does_not_block_other_writes() {
    let bed = Bed::new(&["--compile-time", "600"]);
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let compiling = {
        let (client, done) = (bed.client.clone(), Arc::clone(&done));
        bed.runtime.spawn(async move {
            let result = set(client, Action::Verify, long()).await;
            done.store(true, Ordering::Release);
            result
        })
    };
    let busy = bed.busy_child();
    let open = std::fs::read_dir(format!("/proc/{busy}/fd")).unwrap().count();
    assert!(open <= 3, "the compiler has {open} files open: it inherits none but its pipes");
    // Stop the compiler, so that it takes longer than the writes on any machine.
    signal("-STOP", busy);
    for id in 1..=100 {
        bed.runtime.block_on(write(bed.client.clone(), id)).unwrap();
    }
    assert!(!done.load(Ordering::Acquire), "the program was still being compiled");
    signal("-KILL", busy);
    bed.runtime.block_on(compiling).unwrap().unwrap_err();
}

#[test]
fn sixteen_million_parentheses_are_refused_and_the_memory_is_returned() {
    let bed = Bed::new(&[]);
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
    let before = bed.resident_bytes();
    let text = format!("const bit<8> x = {}1;", "(".repeat(16_000_000));
    let refused = bed.set(Action::Verify, &text).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
    assert!(refused.message().contains("E0007"), "{}", refused.message());
    // The request has 16 MB, of which the server and its libraries hold several copies.
    let after = bed.resident_bytes();
    assert!(after < before + (400 << 20), "{before} bytes before, {after} after");
}

#[test]
fn assignments_of_a_struct_of_131072_fields_are_refused_and_take_no_memory_of_the_switch() {
    let bed = Bed::new(&[]);
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
    let before = bed.resident_bytes();
    let mut types = "struct s0_t { bit<8> x; bit<8> y; }\n".to_string();
    for i in 1..=16 {
        types += &format!("struct s{i}_t {{ s{}_t a; s{}_t b; }}\n", i - 1, i - 1);
    }
    let text = program(&types, "", &format!("s16_t x; s16_t y;\n{}", "x = y;\n".repeat(1000)));
    let refused = bed.set(Action::Verify, &text).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
    assert!(refused.message().contains("E0611"), "{}", refused.message());
    let after = bed.resident_bytes();
    assert!(after < before + (64 << 20), "{before} bytes before, {after} after");
}

#[test]
fn a_compilation_that_takes_too_long_names_the_limit_and_the_option() {
    let bed = Bed::new(&["--compile-time", "1"]);
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
    let compiling = bed.runtime.spawn(set(bed.client.clone(), Action::Verify, long()));
    signal("-STOP", bed.busy_child());
    let refused = bed.runtime.block_on(compiling).unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{}", refused.message());
    assert!(refused.message().contains("longer than 1 s") && refused.message().contains("--compile-time"), "{refused}");
    // The next program gets a fresh child.
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
}

#[test]
fn a_compilation_that_takes_too_much_memory_names_the_limit_and_the_option() {
    let bed = Bed::new(&["--compile-memory", "256", "--compile-time", "600"]);
    let refused = bed.set(Action::Verify, &long()).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{}", refused.message());
    assert!(refused.message().contains("256 MB") && refused.message().contains("--compile-memory"), "{refused}");
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
}

#[test]
fn a_compiler_that_crashes_is_told_and_the_next_program_compiles() {
    let bed = Bed::new(&["--compile-time", "600"]);
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
    let compiling = bed.runtime.spawn(set(bed.client.clone(), Action::Verify, long()));
    signal("-ILL", bed.busy_child());
    let refused = bed.runtime.block_on(compiling).unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::Internal, "{}", refused.message());
    assert!(refused.message().contains("by signal 4"), "{}", refused.message());
    bed.set(Action::VerifyAndCommit, &small()).unwrap();
}

#[test]
fn a_switch_that_stops_while_it_compiles_leaves_no_child() {
    let mut bed = Bed::new(&["--compile-time", "600"]);
    let compiling = bed.runtime.spawn(set(bed.client.clone(), Action::Verify, long()));
    let busy = bed.busy_child();
    signal("-TERM", bed.switch.id());
    let status = wait_for("the switch's end", || bed.switch.try_wait().unwrap());
    assert!(status.success(), "{status}");
    wait_for("the child's end", || (!std::path::Path::new(&format!("/proc/{busy}")).exists()).then_some(()));
    compiling.abort();
}

#[test]
fn a_program_of_the_command_line_is_compiled_with_its_includes_and_their_limits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.p4");
    let run = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(["run", "--grpc", "none", "-i", "1@pcap:/nonexistent"]).arg(&path);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, stderr) = run("#include \"/dev/zero\"\n");
    assert!(code == Some(1) && stderr.contains("E0010"), "{code:?}: {stderr}");
    std::fs::write(folder.path().join("part.p4"), small()).unwrap();
    let (code, stderr) = run("#include \"part.p4\"\n");
    // It compiles, and then the port does not exist.
    assert!(code == Some(2) && !stderr.contains("error["), "{code:?}: {stderr}");
}
