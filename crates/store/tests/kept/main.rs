//! What is written comes back: random writes of every kind of entity, and after some of them the switch is killed (what
//! it had in memory is gone) and begins from its directory; then everything must read as before. And what could not be
//! kept is undone.

mod damaged;
#[path = "../../../control/tests/fixture/mod.rs"]
mod fixture;
mod migration;
mod offline;
mod random;

use control::arbitration::ArbitrationRequest;
use control::control::{ConfigAction, SetConfigRequest, StreamRequest};
use control::entity::*;
use control::forwarding::ForwardingConfig;
use control::journal::{After, Batch, Change, Contents, Journal, Slot, Ticket, WhenKept};
use control::restore::Parts;
use control::{Code, Control};
use fixture::{FakeSwitch, id};
use messages::sluice::v1::KeptWiring;
use p4info::ObjectKind;
use random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use store::{OpenError, Store, Wiring};

const DEVICE: u64 = 1;

/// A control plane with a primary client.
fn control() -> Control {
    let mut control = Control::new();
    control.add_device(DEVICE, FakeSwitch::new() as _);
    let client = control.connect();
    let claim = ArbitrationRequest { device_id: DEVICE, election_id: Some(1), ..Default::default() };
    control.stream_request(client, StreamRequest::Arbitration(claim)).unwrap();
    control
}

fn router() -> ForwardingConfig {
    ForwardingConfig { device_config: b"router".to_vec(), cookie: Some(77), ..Default::default() }
}

fn set_config(control: &mut Control, action: ConfigAction, program: Option<&str>) -> Result<(), control::Error> {
    let config = |program: &str| ForwardingConfig { device_config: program.as_bytes().to_vec(), ..router() };
    let config = program.map(config);
    let (role, election_id) = (Role::default(), Some(1));
    control.set_config(SetConfigRequest { device_id: DEVICE, role, election_id, action, config })
}

/// As many parts as there are entities, so that several threads decode them even if they are few.
struct OneEach(Vec<Entity>);

impl Parts for OneEach {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn part(&self, at: usize, each: &mut dyn FnMut(Entity)) -> Result<(), String> {
        each(self.0[at].clone());
        Ok(())
    }
}

/// Begins from a directory, as the switch does.
fn start(dir: &Path) -> (Control, Arc<Store>) {
    begin(Store::open(dir).unwrap())
}

fn begin(store: Store) -> (Control, Arc<Store>) {
    let store = Arc::new(store);
    let stored = store.stored(DEVICE).unwrap();
    let mut control = control();
    let has_all = stored.running.is_some();
    for (slot, stored) in [(Slot::Running, stored.running), (Slot::Saved, stored.saved)] {
        let Some(stored) = stored else { continue };
        let entities = OneEach(stored.entities.decode().unwrap());
        let restored = control.prepare(DEVICE, stored.config, false).unwrap().restore(&entities).unwrap();
        let restored = control.install_restored(DEVICE, slot, restored).unwrap();
        assert_eq!(restored.refused, [""; 0]);
    }
    if !has_all {
        control.load(DEVICE, router()).unwrap();
    }
    control.keep(DEVICE, Arc::clone(&store) as _, has_all).unwrap();
    (control, store)
}

/// Parts are decoded while the program is compiled; nobody waits for ever when that fails, or when a part is wrong.
#[test]
fn what_cannot_be_restored_is_refused_and_nobody_waits_for_the_rest() {
    struct Broken(OneEach);

    impl Parts for Broken {
        fn count(&self) -> usize {
            self.0.count()
        }

        fn part(&self, at: usize, each: &mut dyn FnMut(Entity)) -> Result<(), String> {
            if at == self.0.count() / 2 { Err("half a part".into()) } else { self.0.part(at, each) }
        }
    }

    let entities = || {
        OneEach((0..500).map(|id| Entity::Digest(DigestEntry { digest_id: id, ..DigestEntry::default() })).collect())
    };
    let mut control = control();
    for _ in 0..50 {
        let config = ForwardingConfig { device_config: b"nothing".to_vec(), ..router() };
        let refused = control.prepare(DEVICE, config, false).unwrap().restore(&entities()).err().unwrap();
        assert!(refused.message.contains("no program"), "{refused:?}");
        let refused = control.prepare(DEVICE, router(), false).unwrap().restore(&Broken(entities())).err().unwrap();
        assert!(refused.message.contains("half a part"), "{refused:?}");
        let restored = control.prepare(DEVICE, router(), false).unwrap().restore(&entities()).unwrap();
        // The program has none of these digests.
        assert_eq!(control.install_restored(DEVICE, Slot::Saved, restored).unwrap().refused.len(), 500);
    }
}

fn write(control: &mut Control, updates: Vec<Update>, atomicity: Atomicity) -> Vec<Result<(), control::Error>> {
    let request =
        WriteRequest { device_id: DEVICE, election_id: Some(1), updates, atomicity, ..WriteRequest::default() };
    control.write(&request).unwrap()
}

fn wait(control: &Control) -> Result<(), String> {
    control.last_change(DEVICE).map_or(Ok(()), |(journal, ticket)| journal.wait(ticket))
}

/// Everything that a controller can read, sorted.
fn everything(control: &mut Control) -> Vec<String> {
    let table = TableEntry {
        counter_data: Some(Default::default()),
        meter_config: Some(Default::default()),
        ..Default::default()
    };
    let all = [
        Entity::Table(table.clone()),
        Entity::Table(TableEntry { is_default_action: true, ..Default::default() }),
        Entity::Member(Member::default()),
        Entity::Group(Group::default()),
        Entity::Counter(CounterEntry::default()),
        Entity::Meter(MeterEntry::default()),
        Entity::Register(RegisterEntry::default()),
        Entity::ValueSet(ValueSetEntry::default()),
        Entity::MulticastGroup(MulticastGroup::default()),
        Entity::CloneSession(CloneSession::default()),
        Entity::Digest(DigestEntry::default()),
    ];
    let (found, results) = control.read(DEVICE, &all.map(Some)).unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let mut found: Vec<String> = found.iter().map(|entity| format!("{entity:?}")).collect();
    found.sort();
    found
}

#[test]
fn whatever_is_written_reads_the_same_after_a_restart() {
    let mut done = 0;
    for seed in 1..=8 {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random::new(seed);
        // Logs of many lengths: some are folded with every request, some never.
        let start = |dir: &Path| begin(Store::open_with(dir, 200 << (2 * (seed % 5))).unwrap());
        let (mut control, mut store) = start(dir.path());
        for _ in 0..12 {
            for _ in 0..random.below(20) + 1 {
                let (updates, atomicity) = random.batch();
                done += write(&mut control, updates, atomicity).iter().filter(|r| r.is_ok()).count();
            }
            wait(&control).unwrap();
            let before = everything(&mut control);
            drop((control, store));
            (control, store) = start(dir.path());
            assert_eq!(everything(&mut control), before, "seed {seed}");
        }
    }
    assert!(done > 1000, "only {done} updates were good ones");
}

#[test]
fn configs_come_back_saved_and_running() {
    let dir = tempfile::tempdir().unwrap();
    let (mut control, store) = start(dir.path());
    let mut random = Random::new(99);
    let mut some = |control: &mut Control| {
        (0..40).for_each(|_| drop(write(control, random.batch().0, Atomicity::ContinueOnError)));
    };
    some(&mut control);
    wait(&control).unwrap();
    let running = everything(&mut control);
    // Writes go to the saved config while there is one.
    set_config(&mut control, ConfigAction::VerifyAndSave, Some("router")).unwrap();
    some(&mut control);
    wait(&control).unwrap();
    let saved = everything(&mut control);
    assert_ne!(saved, running);
    drop((control, store));

    let (mut control, store) = start(dir.path());
    assert_eq!(everything(&mut control), saved);
    assert_eq!(control.config(DEVICE).unwrap().unwrap().config.cookie, Some(77));
    set_config(&mut control, ConfigAction::Commit, None).unwrap();
    drop((control, store));

    let (mut control, store) = start(dir.path());
    assert_eq!(everything(&mut control), saved);
    // A program that starts empty leaves nothing of the old one behind.
    set_config(&mut control, ConfigAction::VerifyAndCommit, Some("router smaller")).unwrap();
    let empty = everything(&mut control);
    drop((control, store));
    let (mut control, _store) = start(dir.path());
    assert_eq!(everything(&mut control), empty);
    assert_eq!(control.config(DEVICE).unwrap().unwrap().config.device_config, b"router smaller");
}

#[test]
fn a_directory_is_for_one_switch_and_one_format() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let second = Store::open(dir.path()).err().unwrap();
    assert!(matches!(second, OpenError::InUse(_)), "{second}");
    assert!(matches!(store::forget(dir.path()), Err(OpenError::InUse(_))));
    drop(store);
    drop(Store::open(dir.path()).unwrap());

    std::fs::write(dir.path().join("format"), "sluice state 99\n").unwrap();
    let newer = Store::open(dir.path()).err().unwrap().to_string();
    assert!(newer.contains("has format 99, this version reads 2, 3 and 4"), "{newer}");

    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("holiday.jpg"), "x").unwrap();
    let foreign = Store::open(other.path()).err().unwrap();
    assert!(matches!(foreign, OpenError::Foreign(_)), "{foreign}");
    assert!(matches!(store::forget(other.path()), Err(OpenError::Foreign(_))));
}

#[test]
fn many_changes_come_back_whatever_was_folded_when() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Store::open_with(dir.path(), 40_000).unwrap();
    // Cells of eight registers, of which some are reset all at once.
    let key = |register: u32, index: u32| [register.to_be_bytes(), index.to_be_bytes()].concat();
    let cell = |register_id: u32, index: u32, value: u64| {
        let data = Some(P4Data::Bitstring(value.to_be_bytes().to_vec()));
        Entity::Register(RegisterEntry { register_id, index: Some(index.into()), data })
    };
    let mut expected: BTreeMap<Vec<u8>, Entity> = BTreeMap::new();
    expected.extend((0..5_000).map(|index| (key(0, index), cell(0, index, 0))));
    let mut store = open();
    let mut all = expected.clone().into_iter().map(Ok);
    store.replace(DEVICE, Contents::New(&router(), &mut all), Contents::Empty).unwrap();
    let mut random = Random::new(3);
    for round in 0..8 {
        let mut last = Ticket(0);
        for _ in 0..40 {
            let mut batch = Batch {
                device_id: DEVICE,
                slot: Slot::Running,
                request: Arc::new(WriteRequest::default()),
                changes: vec![],
            };
            for _ in 0..200 {
                let (register, index) = (random.below(8) as u32, random.below(3_000) as u32);
                let key = key(register, index);
                let after = match random.below(1000) {
                    0 => After::GoneBelow,
                    1..300 => After::Gone,
                    value => After::Is(Box::new(cell(register, index, value))),
                };
                let key = if after == After::GoneBelow { register.to_be_bytes().to_vec() } else { key };
                match &after {
                    After::Is(entity) => _ = expected.insert(key.clone(), (**entity).clone()),
                    After::Gone => _ = expected.remove(&key),
                    _ => expected.retain(|other, _| !other.starts_with(&key)),
                }
                batch.changes.push(Change { key, after });
            }
            last = store.append(batch);
        }
        store.wait(last).unwrap();
        drop(store);
        store = open();
        let kept = store.kept(DEVICE).unwrap().running.unwrap();
        let expected: Vec<Entity> = expected.values().cloned().collect();
        assert!(kept.entities == expected, "round {round}: {} kept, {} expected", kept.entities.len(), expected.len());
    }
}

#[test]
fn forgetting_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (mut control, store) = start(dir.path());
    let empty = everything(&mut control);
    let mut random = Random::new(5);
    (0..20).for_each(|_| drop(write(&mut control, random.batch().0, Atomicity::ContinueOnError)));
    wait(&control).unwrap();
    drop((control, store));
    store::forget(dir.path()).unwrap();
    let (mut control, _store) = start(dir.path());
    assert_eq!(everything(&mut control), empty);
}

/// A journal whose disk fails when it is told to.
#[derive(Default)]
struct Failing {
    tickets: Mutex<(Ticket, Ticket)>,
    broken: AtomicBool,
    /// Whether it knows: the disk answers late.
    noticed: AtomicBool,
    replaced: Mutex<Vec<Vec<String>>>,
}

impl Journal for Failing {
    fn append(&self, _batch: Batch) -> Ticket {
        let mut tickets = self.tickets.lock().unwrap();
        tickets.0.0 += 1;
        if !self.broken.load(Ordering::Relaxed) {
            tickets.1 = tickets.0;
        }
        tickets.0
    }

    fn kept(&self) -> Ticket {
        self.tickets.lock().unwrap().1
    }

    fn when_kept(&self, ticket: Ticket, then: WhenKept) {
        then(if self.kept() >= ticket { Ok(()) } else { Err("no space left".into()) });
    }

    fn failure(&self) -> Option<String> {
        let tickets = self.tickets.lock().unwrap();
        (self.noticed.load(Ordering::Relaxed) && tickets.1 < tickets.0).then(|| "no space left".into())
    }

    fn replace(&self, _device: u64, running: Contents, _saved: Contents) -> Result<(), String> {
        if self.broken.load(Ordering::Relaxed) {
            return Err("no space left".into());
        }
        if let Contents::New(_, entities) = running {
            self.replaced.lock().unwrap().push(entities.map(|kept| format!("{:?}", kept.unwrap().1)).collect());
        }
        Ok(())
    }

    fn reopen(&self) -> Result<(), String> {
        if self.broken.load(Ordering::Relaxed) {
            return Err("still none".into());
        }
        let mut tickets = self.tickets.lock().unwrap();
        tickets.1 = tickets.0;
        Ok(())
    }
}

#[test]
fn what_cannot_be_kept_is_undone_and_writes_are_refused_until_it_can() {
    let mut lost = 0;
    for seed in 100..130 {
        let mut random = Random::new(seed);
        let journal = Arc::new(Failing::default());
        let mut control = control();
        control.load(DEVICE, router()).unwrap();
        control.keep(DEVICE, Arc::clone(&journal) as _, false).unwrap();
        for _ in 0..20 {
            for _ in 0..random.below(10) + 1 {
                drop(write(&mut control, random.batch().0, Atomicity::ContinueOnError));
            }
            let before = everything(&mut control);
            journal.broken.store(true, Ordering::Relaxed);
            // What comes before the disk is heard of is applied.
            for _ in 0..random.below(4) + 1 {
                let (updates, atomicity) = random.batch();
                lost += write(&mut control, updates, atomicity).iter().filter(|r| r.is_ok()).count();
            }
            journal.noticed.store(true, Ordering::Relaxed);
            if journal.failure().is_some() {
                assert!(wait(&control).is_err());
                let (updates, _) = random.batch();
                let request = WriteRequest { device_id: DEVICE, election_id: Some(1), updates, ..Default::default() };
                let refused = control.write(&request).unwrap_err();
                assert_eq!(refused.code, Code::Unavailable);
                assert!(refused.message.contains("no space left"), "{}", refused.message);
            }
            control.roll_back().expect("no worker uses it");
            assert_eq!(everything(&mut control), before, "seed {seed}");
            let refused = set_config(&mut control, ConfigAction::VerifyAndCommit, Some("router")).unwrap_err();
            assert_eq!(refused.code, Code::Unavailable);
            assert_eq!(everything(&mut control), before, "seed {seed}");
            journal.broken.store(false, Ordering::Relaxed);
            journal.noticed.store(false, Ordering::Relaxed);
            journal.reopen().unwrap();
        }
    }
    assert!(lost > 200, "only {lost} updates were lost");
}

#[test]
fn a_journal_that_works_again_is_given_everything() {
    let journal = Arc::new(Failing::default());
    let mut control = control();
    control.load(DEVICE, router()).unwrap();
    control.keep(DEVICE, Arc::clone(&journal) as _, false).unwrap();
    let member = |member_id| Update {
        kind: UpdateKind::Insert,
        entity: Some(Entity::Member(Member {
            action_profile_id: id(ObjectKind::ActionProfile, "ingress.selector"),
            member_id,
            action: Some(Random::forward(1)),
        })),
    };
    assert_eq!(write(&mut control, vec![member(1)], Atomicity::ContinueOnError), [Ok(())]);
    journal.broken.store(true, Ordering::Relaxed);
    journal.noticed.store(true, Ordering::Relaxed);
    assert_eq!(write(&mut control, vec![member(2)], Atomicity::ContinueOnError), [Ok(())]);
    journal.broken.store(false, Ordering::Relaxed);
    // Member 2 was never kept, so it is as if it had never been.
    assert_eq!(write(&mut control, vec![member(2)], Atomicity::ContinueOnError), [Ok(())]);
    let replaced = journal.replaced.lock().unwrap().last().unwrap().join("\n");
    assert!(replaced.contains("member_id: 1,") && !replaced.contains("member_id: 2,"), "{replaced}");
}

#[test]
fn devices_ports_and_links_come_back() {
    use messages::sluice::v1::{KeptWiring, kept_wiring};
    use store::Wiring;
    let dir = tempfile::tempdir().unwrap();
    let now = KeptWiring {
        devices: vec![2, u64::MAX],
        bindings: vec![kept_wiring::Binding { port: 3, device_id: 2 }],
        links: vec![kept_wiring::Link {
            from_device_id: 1,
            from_port: 10,
            to_device_id: 2,
            to_port: 1,
            queues: r#"{"queues":[{}],"root":{"queue":0}}"#.into(),
        }],
        without_first: true,
        ports: vec![kept_wiring::Port {
            port: "3@veth3,mtu=9000".into(),
            out_of_service: true,
            queues: r#"{"queues":[{}],"root":{"queue":0}}"#.into(),
        }],
        has_ports: true,
        tenants: vec![kept_wiring::Tenant { name: "a".into(), config: r#"{"packets":10}"#.into() }],
    };
    {
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.wiring(Wiring::Now).unwrap(), None);
        store.set_wiring(Wiring::CommandLine, &KeptWiring::default()).unwrap();
        store.set_wiring(Wiring::Now, &now).unwrap();
    }
    // What is no device's record must not be taken for one.
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.wiring(Wiring::Now).unwrap(), Some(now));
    assert_eq!(store.wiring(Wiring::CommandLine).unwrap(), Some(KeptWiring::default()));
    assert!(store.kept(DEVICE).unwrap().running.is_none());
}

#[test]
fn a_record_that_was_refused_is_not_stored_with_the_next_change() {
    let dir = tempfile::tempdir().unwrap();
    let wiring = |device| KeptWiring { devices: vec![device], ..Default::default() };
    let store = Store::open(dir.path()).unwrap();
    store.set_wiring(Wiring::Now, &wiring(7)).unwrap();
    // A file of this name is written before each change of the manifest.
    let in_the_way = dir.path().join("manifest.new");
    for repeated in [false, true] {
        std::fs::create_dir(&in_the_way).unwrap();
        store.set_wiring(Wiring::Now, &wiring(8)).unwrap_err();
        assert_eq!(store.wiring(Wiring::Now).unwrap(), Some(wiring(7)));
        std::fs::remove_dir(&in_the_way).unwrap();
        let manifest = || std::fs::read(dir.path().join("manifest")).unwrap();
        let before = manifest();
        match repeated {
            // What was there is written again, since what the disk has is not known.
            true => store.set_wiring(Wiring::Now, &wiring(7)).unwrap(),
            false => store.set_command_line(DEVICE, b"program").unwrap(),
        }
        assert_ne!(manifest(), before);
    }
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.wiring(Wiring::Now).unwrap(), Some(wiring(7)));
}

/// A start with what is kept already waits for no disk.
#[test]
fn a_start_that_changes_nothing_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let wiring = KeptWiring { devices: vec![7], ..Default::default() };
    let start = || {
        let store = Store::open(dir.path()).unwrap();
        for which in [Wiring::Now, Wiring::CommandLine] {
            store.set_wiring(which, &wiring).unwrap();
        }
        store.set_command_line(DEVICE, b"program").unwrap();
    };
    let files = || -> BTreeMap<String, Vec<u8>> {
        let all = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
        all.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
    };
    start();
    let before = files();
    start();
    assert_eq!(files(), before);
}
