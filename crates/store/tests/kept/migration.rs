//! Directories of formats 2 and 3, which were those of an embedded store: what they hold is taken over, or the start is
//! refused.

use super::*;
use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use messages::sluice::v1::{KeptConfig, KeptDevice};
use prost::Message;

/// A directory as versions before wrote them: a config with a route, which the log of format 3 replaces and adds to.
fn old(dir: &Path, format: &str) {
    let db = Database::builder(dir.join("db")).open().unwrap();
    let keyspace = |name: &str| db.keyspace(name, KeyspaceCreateOptions::default).unwrap();
    let device = KeptDevice { running: Some(3), saved: None };
    keyspace("devices").insert(DEVICE.to_be_bytes(), device.encode_to_vec()).unwrap();
    keyspace("devices").insert("1/command-line", b"as it was started").unwrap();
    let config = KeptConfig { device_config: b"router".to_vec(), cookie: Some(77), ..KeptConfig::default() };
    keyspace("configs").insert(3u64.to_be_bytes(), config.encode_to_vec()).unwrap();
    let value = |entity: &Entity| messages::convert::entity_to_proto(entity.clone()).encode_to_vec();
    for change in super::damaged::cells(0, 3).changes {
        let After::Is(entity) = change.after else { unreachable!("cells have values") };
        keyspace("entities-3").insert(change.key, value(&entity)).unwrap();
    }
    if format == "3" {
        let mut batch = super::damaged::cells(2, 2);
        batch.changes.push(Change { key: 0u32.to_be_bytes().to_vec(), after: After::Gone });
        keyspace("log").insert(1u64.to_be_bytes(), store::log::record(3, &batch)).unwrap();
    }
    db.persist(PersistMode::SyncAll).unwrap();
    std::fs::write(dir.join("format"), format!("sluice state {format}\n")).unwrap();
}

#[test]
fn directories_of_formats_before_are_taken_over() {
    for (format, indices) in [("2", vec![0, 1, 2]), ("3", vec![1, 2, 3])] {
        let dir = tempfile::tempdir().unwrap();
        old(dir.path(), format);
        for start in 0..2 {
            let store = Store::open(dir.path()).unwrap();
            let kept = store.kept(DEVICE).unwrap();
            let running = kept.running.unwrap();
            assert_eq!((running.config.cookie, kept.command_line), (Some(77), Some(b"as it was started".to_vec())));
            let found: Vec<i64> = running
                .entities
                .iter()
                .map(|entity| match entity {
                    Entity::Register(entry) => entry.index.unwrap(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(found, indices);
            let taken_over = format!("the directory was of format {format}: 1 devices with 3 entities were taken over");
            assert_eq!(store.notes(), if start == 0 { vec![taken_over] } else { vec![] });
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("format")).unwrap(), "sluice state 4\n");
        assert!(!dir.path().join("db").exists());
    }
}

#[test]
fn an_old_directory_that_comes_back_empty_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    old(dir.path(), "3");
    // What made versions before start with nothing, silently.
    std::fs::remove_dir_all(dir.path().join("db")).unwrap();
    let why = Store::open(dir.path()).err().unwrap().to_string();
    assert!(why.contains("its folder `db` is missing"), "{why}");
    std::fs::create_dir(dir.path().join("db")).unwrap();
    let why = Store::open(dir.path()).err().unwrap().to_string();
    assert!(why.contains("names no device"), "{why}");
    store::forget(dir.path()).unwrap();
    assert!(Store::open(dir.path()).unwrap().kept(DEVICE).unwrap().running.is_none());
}
