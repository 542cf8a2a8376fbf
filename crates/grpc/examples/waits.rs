//! How long one large `Write` takes, and how long other clients' small ones wait meanwhile: entries of an access list,
//! each with a mask of its own. All without sockets.
//!
//! Run: `cargo run --release -p grpc --example waits [updates]`.

#[path = "../../control/tests/fixture/mod.rs"]
mod fixture;

use control::Control;
use control::arbitration::ArbitrationRequest;
use control::control::StreamRequest;
use control::entity::*;
use control::forwarding::{Built, Compiled, ForwardingConfig, Refusal, Target};
use datapath::Keep;
use datapath::replication::Replication;
use datapath::state::FastState;
use fixture::id;
use grpc::Handle;
use p4info::ObjectKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A switch with the data plane's state and without packets.
struct Still;

impl Target for Still {
    fn compile(&self, _: &[u8]) -> Result<Compiled, Refusal> {
        let (info, mut program) = fixture::program("router").ok_or("there is no router")?;
        let table = program.table_named("ingress.acl").ok_or("there is no access list")?;
        program.tables[table.index()].size = 1 << 17;
        Ok(Compiled { p4info: Arc::new(info), program: Arc::new(program) })
    }

    fn build(&self, compiled: &Compiled, _: Option<(&Built, &Keep)>) -> Result<Built, Refusal> {
        let Compiled { p4info, program } = compiled.clone();
        let state = Arc::new(FastState::new(Arc::clone(&program), 1).map_err(|error| error.to_string())?);
        let replication = Arc::new(Replication::new());
        Ok(Built { p4info, program, state, replication, shares: false, handle: Arc::new(()) })
    }

    fn activate(&self, _: &Built) -> Result<(), String> {
        Ok(())
    }

    fn ports(&self) -> Vec<u32> {
        vec![1, 2, 3]
    }

    fn cpu_port(&self) -> Option<u32> {
        None
    }

    fn inject(&self, _: u32, _: Vec<u8>) -> Result<(), String> {
        Ok(())
    }
}

fn devices() -> Arc<Handle> {
    let mut control = Control::new();
    for device_id in [1, 2] {
        control.add_device(device_id, Arc::new(Still));
        control.load(device_id, ForwardingConfig::default()).expect("the router loads");
        let client = control.connect();
        let claim = ArbitrationRequest { device_id, election_id: Some(1), ..Default::default() };
        control.stream_request(client, StreamRequest::Arbitration(claim)).expect("the first client is primary");
    }
    Handle::new(control)
}

fn request(device_id: u64, updates: Vec<Update>, atomicity: Atomicity) -> Arc<WriteRequest> {
    Arc::new(WriteRequest { device_id, election_id: Some(1), updates, atomicity, ..Default::default() })
}

/// The entry of the access list whose mask is `n` in other order, and so of no other entry.
fn rule(n: u32) -> Update {
    let mask = n.wrapping_mul(0x9e37_79b1) | 1 << 31;
    let value = MatchValue::Ternary { value: vec![0x80, 0, 0, 0], mask: mask.to_be_bytes().to_vec() };
    let exact = MatchValue::Exact(vec![1]);
    let entry = TableEntry {
        table_id: id(ObjectKind::Table, "ingress.acl"),
        matches: vec![FieldMatch { field_id: 1, value }, FieldMatch { field_id: 4, value: exact }],
        action: Some(TableAction::Action(Action {
            action_id: id(ObjectKind::Action, "ingress.discard"),
            params: vec![],
        })),
        priority: 1 + (n % 900) as i32,
        ..Default::default()
    };
    Update { kind: UpdateKind::Insert, entity: Some(Entity::Table(entry)) }
}

/// Writes one group again and again. Returns the longest time of a write.
fn longest(handle: &Handle, device_id: u64, done: &AtomicBool) -> Duration {
    let group = MulticastGroup { group_id: 1, ..Default::default() };
    let write = |kind| {
        let update = Update { kind, entity: Some(Entity::MulticastGroup(group.clone())) };
        let start = Instant::now();
        handle.write(&request(device_id, vec![update], Atomicity::ContinueOnError)).expect("the primary writes");
        start.elapsed()
    };
    let mut longest = write(UpdateKind::Insert);
    while !done.load(Ordering::Relaxed) {
        longest = longest.max(write(UpdateKind::Modify));
        std::thread::sleep(Duration::from_micros(200));
    }
    longest
}

fn main() {
    let only = std::env::args().nth(1).and_then(|count| count.parse::<u32>().ok());
    println!("updates, atomicity: time of the Write; longest wait for another device, for another object");
    for count in [5_000, 19_000, 50_000].into_iter().filter(|count| only.is_none_or(|only| only == *count)) {
        for atomicity in [Atomicity::ContinueOnError, Atomicity::RollbackOnError] {
            let (handle, done) = (devices(), AtomicBool::new(false));
            let batch = request(1, (0..count).map(rule).collect(), atomicity);
            let (took, waits) = std::thread::scope(|scope| {
                let others = [2, 1].map(|device| {
                    scope.spawn({
                        let (handle, done) = (&handle, &done);
                        move || longest(handle, device, done)
                    })
                });
                std::thread::sleep(Duration::from_millis(20));
                let start = Instant::now();
                let results = handle.write(&batch).expect("the primary writes").results;
                assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|r| r.is_err()));
                let took = start.elapsed();
                done.store(true, Ordering::Relaxed);
                (took, others.map(|other| other.join().expect("it ends")))
            });
            println!("{count}, {atomicity:?}: {took:.0?}; {:.1?}, {:.1?}", waits[0], waits[1]);
        }
    }
}
