//! Who waits for whom.

#[path = "../../../control/tests/fixture/mod.rs"]
mod fixture;

use super::*;
use crate::server::Service;
use control::arbitration::ArbitrationRequest;
use control::control::StreamRequest;
use control::entity::{
    Action, Atomicity, Entity, FieldMatch, MatchValue, MulticastGroup, Role, TableAction, Update, UpdateKind,
};
use control::journal::{Batch, Contents, Journal, Ticket, WhenKept};
use fixture::{FakeSwitch, id};
use p4info::ObjectKind;
use std::sync::atomic::AtomicBool;

#[test]
fn who_uses_the_control_plane_again_and_again_lets_those_that_wait_go_first() {
    const ROUNDS: usize = 10;
    let handle = Handle::new(Control::new());
    let first = (0..ROUNDS).filter(|_| {
        let (waits, was_in) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            handle.with(|_| {
                scope.spawn(|| {
                    waits.store(true, Ordering::Relaxed);
                    handle.with(|_| was_in.store(true, Ordering::Relaxed));
                });
                while !waits.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                // Usually enough for the other one to wait.
                std::thread::sleep(Duration::from_millis(100));
            });
            handle.with(|_| was_in.load(Ordering::Relaxed))
        })
    });
    let first = first.count();
    assert!(first > ROUNDS / 2, "the one that waited was first {first} times of {ROUNDS}");
}

/// Two devices with a primary client each.
fn devices() -> Arc<Handle> {
    let mut control = Control::new();
    for device_id in [1, 2] {
        control.add_device(device_id, FakeSwitch::new());
        let config = ForwardingConfig { device_config: b"router large".to_vec(), ..Default::default() };
        control.load(device_id, config).unwrap();
        let client = control.connect();
        let claim = ArbitrationRequest { device_id, election_id: Some(1), ..Default::default() };
        control.stream_request(client, StreamRequest::Arbitration(claim)).unwrap();
        let client = control.connect();
        let claim = ArbitrationRequest { device_id, election_id: Some(1), role: other_role(), ..Default::default() };
        control.stream_request(client, StreamRequest::Arbitration(claim)).unwrap();
    }
    Handle::new(control)
}

fn other_role() -> Role {
    Role { name: "other".to_string(), id: 0 }
}

fn routes(device_id: u64, net: u8, count: u16, atomicity: Atomicity) -> Arc<WriteRequest> {
    let action = Action {
        action_id: id(ObjectKind::Action, "ingress.forward"),
        params: vec![(1, vec![1]), (2, vec![0xaa, 0xbb])],
    };
    let entry = |i: u16| TableEntry {
        table_id: id(ObjectKind::Table, "ingress.ipv4_lpm"),
        matches: vec![FieldMatch {
            field_id: 1,
            value: MatchValue::Lpm { value: vec![net, (i >> 8) as u8, i as u8, 0], prefix_len: 24 },
        }],
        action: Some(TableAction::Action(action.clone())),
        ..Default::default()
    };
    let update = |i| Update { kind: UpdateKind::Insert, entity: Some(Entity::Table(entry(i))) };
    let updates = (0..count).map(update).collect();
    Arc::new(WriteRequest { device_id, election_id: Some(1), updates, atomicity, ..Default::default() })
}

fn entries(handle: &Handle, device_id: u64) -> usize {
    let query = TableEntry { table_id: id(ObjectKind::Table, "ingress.ipv4_lpm"), ..Default::default() };
    let read = |control: &mut Control| control.read(device_id, &[Some(Entity::Table(query))]);
    handle.with_device(device_id, read).unwrap().0.len()
}

const UPDATES: u16 = 1000;

/// Sends large batches, and meanwhile what `other` does. The turns of the batches, of one update each, are slow until
/// `other` is done, so that it is done before they are, unless it waits for all of them. Returns the turns that there
/// were by then.
fn turns_before(handle: &Handle, batches: &[Arc<WriteRequest>], other: impl FnOnce() + Send) -> usize {
    let (turns, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for batch in batches {
            scope.spawn(|| {
                let mut turn = || {
                    turns.fetch_add(1, Ordering::Relaxed);
                    if !done.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_micros(500));
                    }
                    Duration::ZERO
                };
                handle.write_in_turns(batch, &mut turn).unwrap();
            });
        }
        while turns.load(Ordering::Relaxed) < 5 {
            std::thread::sleep(Duration::from_micros(200));
        }
        let before = turns.load(Ordering::Relaxed);
        other();
        done.store(true, Ordering::Relaxed);
        turns.load(Ordering::Relaxed) - before
    })
}

fn written(handle: &Handle, request: &Arc<WriteRequest>) {
    assert!(handle.write(request).unwrap().results.iter().all(Result::is_ok));
}

#[test]
fn a_small_write_waits_for_one_turn_of_large_ones_however_many_there_are() {
    for device in [1, 2] {
        let handle = devices();
        let large: Vec<_> = (0..4).map(|i| routes(1, 10 + i, UPDATES, Atomicity::ContinueOnError)).collect();
        // About another object than the large ones, if to the same device.
        let group = |group_id| {
            let entity = Some(Entity::MulticastGroup(MulticastGroup { group_id, ..Default::default() }));
            let updates = vec![Update { kind: UpdateKind::Insert, entity }];
            Arc::new(WriteRequest { device_id: device, election_id: Some(1), updates, ..Default::default() })
        };
        let turns = turns_before(&handle, &large, || (1..=10).for_each(|i| written(&handle, &group(i))));
        assert_eq!(entries(&handle, 1), 4 * usize::from(UPDATES));
        // One or two turns each, if the thread gets a processor at once; the batches have thousands.
        assert!(turns < 400, "ten writes to device {device} waited for {turns} turns");
    }
}

/// Each small one is a turn; without lines the other role would wait for all of them.
#[test]
fn a_role_that_sends_many_small_writes_at_once_has_one_place_in_line() {
    const SENDERS: usize = 16;
    let handle = devices();
    let small: Vec<_> = (0..SENDERS).map(|i| routes(1, i as u8, 1, Atomicity::ContinueOnError)).collect();
    let of_other = WriteRequest { role: other_role(), ..(*routes(1, 99, 1, Atomicity::ContinueOnError)).clone() };
    let of_other = Arc::new(of_other);
    let rounds = (0..10).map(|_| {
        let (turns, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for request in &small {
                let (turns, waiting, handle) = (&turns, &waiting, &handle);
                scope.spawn(move || {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    let mut turn = || {
                        turns.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(10));
                        TURN_MAX
                    };
                    handle.write_in_turns(request, &mut turn).unwrap();
                });
            }
            while waiting.load(Ordering::Relaxed) < SENDERS {
                std::thread::sleep(Duration::from_micros(200));
            }
            let before = turns.load(Ordering::Relaxed);
            handle.write(&of_other).unwrap();
            turns.load(Ordering::Relaxed) - before
        })
    });
    let waited: Vec<usize> = rounds.collect();
    // Usually one or two, if the thread gets a processor at once.
    assert!(waited.iter().filter(|turns| **turns <= 4).count() > 5, "{waited:?} turns of {SENDERS}");
}

/// Takes the place of a batch that is being written to a device, for as long as the result exists.
fn running(handle: &Handle, device_id: u64) -> Places {
    handle.turns(device_id).wait(Waits { batches: true, running: true, line: None })
}

/// A journal whose disk does not answer until it is told to.
#[derive(Default)]
struct SlowDisk {
    last: AtomicU64,
    /// Who waits for it; `None` once it answers.
    waiting: Mutex<(bool, Vec<WhenKept>)>,
}

impl SlowDisk {
    fn answer(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.0 = true;
        std::mem::take(&mut waiting.1).into_iter().for_each(|then| then(Ok(())));
    }
}

impl Journal for SlowDisk {
    fn append(&self, _: Batch) -> Ticket {
        Ticket(1 + self.last.fetch_add(1, Ordering::Relaxed))
    }

    fn kept(&self) -> Ticket {
        Ticket(0)
    }

    fn when_kept(&self, _: Ticket, then: WhenKept) {
        let mut waiting = lock(&self.waiting);
        if waiting.0 { then(Ok(())) } else { waiting.1.push(then) }
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn replace(&self, _: u64, _: Contents, _: Contents) -> Result<(), String> {
        Ok(())
    }

    fn reopen(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn writes_that_wait_for_the_disk_take_no_threads_from_others() {
    const WAITING: usize = 600;
    let handle = devices();
    let disk = Arc::new(SlowDisk::default());
    handle.with(|control| control.keep(1, Arc::clone(&disk) as _, false)).unwrap();
    let service = Service::new(Arc::clone(&handle), Duration::from_secs(10));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let all = routes(1, 10, WAITING as u16, Atomicity::ContinueOnError);
    let one_each = all.updates.iter().map(|update| {
        let request = Arc::new(WriteRequest { updates: vec![update.clone()], ..(*all).clone() });
        let service = service.clone();
        runtime.spawn(async move { service.written(request).await.map(|results| results.len()) })
    });
    let waiting: Vec<_> = one_each.collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while lock(&disk.waiting).1.len() < WAITING && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let all_wait = lock(&disk.waiting).1.len();
    let other = runtime.block_on(async {
        let other = handle.on_device(2, |_, _| 1);
        tokio::time::timeout(Duration::from_secs(10), other).await
    });
    let done = waiting.iter().filter(|task| task.is_finished()).count();
    disk.answer();
    let carried_out = runtime.block_on(async {
        let mut carried_out = 0;
        for task in waiting {
            carried_out += task.await.unwrap().unwrap();
        }
        carried_out
    });
    assert_eq!((all_wait, done), (WAITING, 0), "none is answered before the disk has answered");
    assert_eq!(other.expect("a request that needs no disk waits").unwrap(), 1);
    assert_eq!(carried_out, WAITING);
}

/// The runtime has 512 blocking threads.
#[test]
fn requests_that_wait_for_one_device_take_no_threads_from_another() {
    const WAITING: usize = 600;
    let handle = devices();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let batch = running(&handle, 1);
    let large = routes(1, 10, 70, Atomicity::ContinueOnError);
    // Of all kinds.
    let waiting = (0..WAITING).flat_map(|_| {
        let (write, read, all) = (Arc::clone(&handle), Arc::clone(&handle), Arc::clone(&handle));
        let large = Arc::clone(&large);
        let write = async move { write.write_as_task(large, |_, written| written.results.len()).await };
        let read = async move { read.read_objects(1, |_| Objects::All, |_| 0).await };
        let all = async move { all.on_device(1, |_, _| 0).await };
        [runtime.spawn(write), runtime.spawn(read), runtime.spawn(all)]
    });
    let waiting: Vec<_> = waiting.collect();
    std::thread::sleep(Duration::from_millis(100));
    let small = routes(2, 10, 1, Atomicity::ContinueOnError);
    let other = runtime.block_on(async {
        let other = handle.write_as_task(small, |_, written| written.results.len());
        tokio::time::timeout(Duration::from_secs(10), other).await
    });
    drop(batch);
    let done = runtime.block_on(async {
        let mut done = 0;
        for task in waiting {
            done += usize::from(task.await.unwrap().is_ok());
        }
        done
    });
    assert_eq!(other.expect("a write to another device waits").unwrap(), 1);
    assert_eq!(done, 3 * WAITING, "all are carried out afterwards");
}

#[test]
fn a_request_about_the_whole_device_waits_for_one_batch_and_not_for_those_queued() {
    let handle = devices();
    let batch = running(&handle, 1);
    let (queued, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for net in 10..20 {
            let (queued, handle) = (&queued, &handle);
            scope.spawn(move || {
                queued.fetch_add(1, Ordering::Relaxed);
                written(handle, &routes(1, net, 100, Atomicity::ContinueOnError));
            });
        }
        while queued.load(Ordering::Relaxed) < 10 {
            std::thread::sleep(Duration::from_micros(200));
        }
        // Usually enough for them to wait.
        std::thread::sleep(Duration::from_millis(100));
        scope.spawn(|| seen.store(entries(&handle, 1), Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(100));
        drop(batch);
    });
    let seen = seen.load(Ordering::Relaxed);
    assert!(seen <= 100, "it waited for batches of {seen} entries");
    assert_eq!(entries(&handle, 1), 1000);
}

#[test]
fn a_read_sees_a_large_batch_as_a_whole_or_not_at_all() {
    let handle = devices();
    let large: Vec<_> = (0..2).map(|i| routes(1, 10 + i, 200, Atomicity::ContinueOnError)).collect();
    turns_before(&handle, &large, || {
        for _ in 0..3 {
            assert_eq!(entries(&handle, 1) % 200, 0);
        }
    });
    assert_eq!(entries(&handle, 1), 400);
}

#[test]
fn other_devices_do_not_wait_for_a_batch_that_takes_effect_as_a_whole() {
    let handle = devices();
    let batch = routes(1, 10, UPDATES, Atomicity::RollbackOnError);
    let small = routes(2, 99, 10, Atomicity::RollbackOnError);
    let turns = turns_before(&handle, &[batch], || {
        written(&handle, &small);
        assert_eq!(entries(&handle, 2), 10);
    });
    assert_eq!(entries(&handle, 1), usize::from(UPDATES));
    assert!(turns < 400, "another device waited for {turns} turns");
}

#[test]
fn nobody_sees_a_batch_half_done_that_takes_effect_as_a_whole() {
    for fails in [false, true] {
        let handle = devices();
        let mut batch = (*routes(1, 10, 200, Atomicity::RollbackOnError)).clone();
        if fails {
            let first = batch.updates[0].clone();
            batch.updates.push(first);
        }
        let small = routes(1, 99, 1, Atomicity::ContinueOnError);
        let all = if fails { 0 } else { 200 };
        turns_before(&handle, &[Arc::new(batch)], || {
            assert_eq!(entries(&handle, 1), all);
            written(&handle, &small);
            assert_eq!(entries(&handle, 1), all + 1);
        });
    }
}

#[test]
fn a_batch_that_stops_packets_is_one_turn_and_short() {
    let handle = devices();
    let request = routes(1, 10, 200, Atomicity::DataplaneAtomic);
    let mut turn = || -> Duration { panic!("others get a turn while packets are stopped") };
    assert!(handle.write_in_turns(&request, &mut turn).unwrap().results.iter().all(Result::is_ok));
    let error = handle.write(&routes(1, 11, 1025, Atomicity::DataplaneAtomic)).err().unwrap();
    assert_eq!(error.code, control::Code::ResourceExhausted);
    assert!(error.message.contains("the limit is 1024"), "{}", error.message);
}

#[test]
fn locks_are_kept_of_devices_that_exist_only() {
    let handle = devices();
    for device_id in 1..100 {
        let _ = handle.write(&routes(device_id, 10, 1, Atomicity::ContinueOnError));
    }
    assert_eq!(lock(&handle.turns).len(), 2);
    handle.remove_device(2, || Ok(())).unwrap();
    assert_eq!(lock(&handle.turns).len(), 1);
}
