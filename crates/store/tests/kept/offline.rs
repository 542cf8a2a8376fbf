//! Check, dump, restore, backup: what comes out of one goes into another, and is what the switch had.

use super::damaged::{cells, open};
use super::*;
use store::offline::{backup, check, dump, restore};

/// A directory of a switch with entities of every kind, a saved config, and a table of some folds.
fn everything_kept(dir: &Path) -> String {
    let (mut control, store) = begin(Store::open_with(dir, 2_000).unwrap());
    let mut random = Random::new(21);
    for _ in 0..60 {
        drop(write(&mut control, random.batch().0, Atomicity::ContinueOnError));
    }
    set_config(&mut control, ConfigAction::VerifyAndSave, Some("router")).unwrap();
    for _ in 0..20 {
        drop(write(&mut control, random.batch().0, Atomicity::ContinueOnError));
    }
    wait(&control).unwrap();
    store.set_command_line(DEVICE, "\"text\"\n\0\u{e4}".as_bytes()).unwrap();
    drop((control, store));
    read(dir)
}

/// All that a directory holds, as text.
fn read(dir: &Path) -> String {
    format!("{:?}", Store::open(dir).unwrap().kept(DEVICE).unwrap())
}

fn dumped(dir: &Path) -> String {
    let mut text = Vec::new();
    assert_eq!(dump(dir, false, &mut text).unwrap().len(), 0);
    String::from_utf8(text).unwrap()
}

#[test]
fn a_dump_makes_the_same_directory() {
    let dir = tempfile::tempdir().unwrap();
    let kept = everything_kept(&dir.path().join("state"));
    let text = dumped(&dir.path().join("state"));
    assert!(text.contains("\nentity ") && text.contains("saved: true") || text.contains("saved:true"), "{text}");
    let file = dir.path().join("dump");
    std::fs::write(&file, &text).unwrap();
    let report = restore(&file, &dir.path().join("again")).unwrap();
    assert_eq!((report.configs.len(), report.findings.len()), (2, 0));
    assert_eq!(read(&dir.path().join("again")), kept);
    assert_eq!(dumped(&dir.path().join("again")), text);
    // Whole lines only, all of them, and into an empty directory.
    let refused = |text: &str, into: &str, expected: &str| {
        std::fs::write(&file, text).unwrap();
        let why = restore(&file, &dir.path().join(into)).unwrap_err().to_string();
        assert!(why.contains(expected), "{why}");
    };
    let lines: Vec<&str> = text.lines().collect();
    refused(&lines[..lines.len() - 1].join("\n"), "no", "it was cut off");
    refused(&[&lines[..4], &lines[5..]].concat().join("\n"), "no", "lines are missing");
    refused(&text.replacen("entity ", "entity xyz ", 1), "no", "is not hexadecimal");
    refused("nothing", "no", "this is not a dump");
    refused(&text, "again", "it is not empty");
    assert_eq!(std::fs::read_dir(dir.path().join("no")).unwrap().count(), 0, "what was refused leaves nothing");
}

#[test]
fn a_backup_of_a_running_switch_has_all_that_was_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    // Folds all the time, so files come and go under the backup.
    let (control, store) = begin(Store::open_with(&state, 4_000).unwrap());
    drop(control);
    // What a program begins with.
    let base = backup(&state, &dir.path().join("base")).unwrap().configs[0].2;
    assert!(check(&state).unwrap_err().to_string().contains("a switch is using it"));
    let stop = AtomicBool::new(false);
    let acknowledged = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for i in 0.. {
                let ticket = store.append(cells(1_000 + 10 * i, 10));
                store.wait(ticket).unwrap();
                acknowledged.store(i + 1, Ordering::SeqCst);
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        for round in 0..10 {
            let before = acknowledged.load(Ordering::SeqCst);
            let to = dir.path().join(format!("backup-{round}"));
            let report = backup(&state, &to).unwrap_or_else(|e| panic!("{e}"));
            let after = acknowledged.load(Ordering::SeqCst) + 1;
            let [(DEVICE, "running", entities)] = report.configs[..] else { panic!("{report:?}") };
            let requests = ((entities - base) / 10) as u32;
            assert!(
                (entities - base).is_multiple_of(10) && (before..=after).contains(&requests),
                "{before} {requests} {after}"
            );
            // It is a directory like any other, and a backup makes one again.
            let into = dir.path().join(format!("restored-{round}"));
            restore(&to, &into).unwrap();
            let (content, notes) = open(&into).unwrap();
            assert_eq!((content.0.unwrap().len(), notes), (entities, vec![]));
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(backup(&state, &state).unwrap_err().to_string().contains("is not empty"));
}

#[test]
fn a_backup_of_a_damaged_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    everything_kept(&state);
    let table = super::damaged::files(&state).into_iter().find(|f| f.to_string_lossy().contains("/blob-")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[45] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let why = backup(&state, &dir.path().join("backup")).unwrap_err().to_string();
    assert!(why.contains("is damaged: blob-"), "{why}");
    let report = check(&state).unwrap();
    assert_eq!(report.severity(), store::Severity::Damage);
}

#[test]
fn values_of_a_bridge_come_back_through_folds_dumps_and_backups() {
    use messages::sluice::v1::KeptOpenFlow;
    use prost::Message;
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let value = |number: u32| {
        let message = number.to_be_bytes().repeat(20);
        KeptOpenFlow { message, created_us: u64::from(number) << 40, ..Default::default() }.encode_to_vec()
    };
    let key = |number: u32| number.to_be_bytes().to_vec();
    let store = Store::open_with(&state, 2_000).unwrap();
    let mut all = (0..50).map(|number| (key(number), value(number)));
    store.replace(DEVICE, Contents::Values(&router(), &mut all), Contents::Empty).unwrap();
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = (0..50).map(|number| (key(number), value(number))).collect();
    for number in 25..200u32 {
        let after = if number % 7 == 0 { After::Gone } else { After::Value(value(number * 1000)) };
        match &after {
            After::Value(value) => _ = expected.insert(key(number), value.clone()),
            _ => _ = expected.remove(&key(number)),
        }
        let changes = vec![Change { key: key(number), after }];
        let batch = Batch { device_id: DEVICE, slot: Slot::Running, request: Arc::default(), changes };
        let ticket = store.append(batch);
        store.wait(ticket).unwrap();
    }
    drop(store);
    let values = |dir: &Path| {
        let running = Store::open(dir).unwrap().stored(DEVICE).unwrap().running.unwrap();
        assert!(running.openflow && running.config.device_config == b"router");
        running.entities.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let expected: Vec<Vec<u8>> = expected.into_values().collect();
    assert_eq!(values(&state), expected);
    assert_eq!(check(&state).unwrap().configs, [(DEVICE, "running", expected.len())]);
    let text = dumped(&state);
    assert!(text.contains("openflow: true") || text.contains("openflow:true"), "{text}");
    std::fs::write(dir.path().join("dump"), &text).unwrap();
    restore(&dir.path().join("dump"), &dir.path().join("again")).unwrap();
    assert_eq!(values(&dir.path().join("again")), expected);
    assert_eq!(dumped(&dir.path().join("again")), text);
    backup(&state, &dir.path().join("backup")).unwrap();
    assert_eq!(values(&dir.path().join("backup")), expected);
}
