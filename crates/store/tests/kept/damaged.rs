//! A directory whose files were damaged: a start either brings back everything that was acknowledged, exactly, or is refused with the
//! file, the place, what is lost and the remedy. It never loses anything silently, and never ends the process.
//!
//! Each byte of each file is changed, each file is cut off at each length, emptied and removed; files are exchanged and put back from an
//! earlier time. A record that a crash cut off is the one thing that is dropped, and the start says so.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// All files of a directory, sorted.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in files(from) {
        std::fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

/// Everything that a directory holds.
pub type Content = (Option<Vec<Entity>>, Option<Vec<u8>>);

/// What opening a directory says: its content with what the start reports, or why it is refused.
pub fn open(dir: &Path) -> Result<(Content, Vec<String>), String> {
    let store = Store::open(dir).map_err(|e| e.to_string())?;
    let kept = store.kept(DEVICE).map_err(|e| e.to_string())?;
    Ok(((kept.running.map(|running| running.entities), kept.command_line), store.notes()))
}

/// Registers' cells, `first..first + count`, as one request.
pub fn cells(first: u32, count: u32) -> Batch {
    let cell = |index: u32| {
        let data = Some(P4Data::Bitstring(vec![index as u8 | 1, 7]));
        let entity = Entity::Register(RegisterEntry { register_id: 5, index: Some(index.into()), data });
        Change { key: index.to_be_bytes().to_vec(), after: After::Is(Box::new(entity)) }
    };
    let changes = (first..first + count).map(cell).collect();
    Batch { device_id: DEVICE, slot: Slot::Running, request: Arc::new(WriteRequest::default()), changes }
}

/// A directory with a table, a log and a record: all kinds of files.
fn small(dir: &Path) -> Content {
    {
        let store = Store::open(dir).unwrap();
        let entities = cells(0, 4).changes.into_iter().map(|change| match change.after {
            After::Is(entity) => Ok((change.key, *entity)),
            _ => unreachable!("cells have values"),
        });
        store.replace(DEVICE, Contents::New(&router(), &mut { entities }), Contents::Empty).unwrap();
        store.set_command_line(DEVICE, b"as it was started").unwrap();
        for i in 0..5 {
            let ticket = store.append(cells(10 * i, 2));
            store.wait(ticket).unwrap();
        }
    }
    let (content, notes) = open(dir).unwrap();
    assert_eq!((content.0.as_ref().unwrap().len(), notes), (12, vec![]));
    content
}

/// Opens a damaged directory; true if it was read, and then it is whole.
fn whole_or_refused(dir: &Path, content: &Content, what: &str) -> bool {
    match catch_unwind(AssertUnwindSafe(|| open(dir))) {
        Ok(Ok((found, notes))) => {
            assert!(found == *content, "{what}: something else came back, and the start said {notes:?}");
            true
        }
        Ok(Err(why)) => {
            assert!(why.contains(&dir.display().to_string()), "{what}: it does not say where: {why}");
            false
        }
        Err(_) => panic!("{what}: it ends the process"),
    }
}

#[test]
fn no_byte_of_a_directory_changes_without_a_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let content = small(dir.path());
    let (mut read, mut refused) = (0, 0);
    for file in files(dir.path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&file).unwrap();
        for at in 0..bytes.len() {
            // What pads the slots of the mark means nothing; a part of it is enough.
            if name == "mark" && at % 512 >= 80 && at % 64 != 0 {
                continue;
            }
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            std::fs::write(&file, &changed).unwrap();
            match whole_or_refused(dir.path(), &content, &format!("{name}, byte {at}")) {
                // Two slots make the mark; what pads them means nothing.
                true if name == "mark" || name == "format" => read += 1,
                true => panic!("{name}, byte {at}: nothing was noticed"),
                false => refused += 1,
            }
            std::fs::write(&file, &bytes).unwrap();
        }
    }
    assert!(read > 0 && refused > 500, "{read} read, {refused} refused");
    assert!(open(dir.path()).unwrap().0 == content, "whole again");
}

#[test]
fn a_file_that_is_cut_off_empty_or_missing_is_noticed() {
    let whole = tempfile::tempdir().unwrap();
    let content = small(whole.path());
    for file in files(whole.path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&file).unwrap();
        for length in (0..bytes.len()).map(Some).chain([None]) {
            // The rest of a file that is not the log is one thing to the reader.
            if length.is_some_and(|length| !name.starts_with("log") && length % 7 != 0) {
                continue;
            }
            match length {
                Some(length) => std::fs::write(&file, &bytes[..length]).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            let what = format!("{name} with {length:?} of {} bytes", bytes.len());
            let read = whole_or_refused(whole.path(), &content, &what);
            assert!(!read || name == "mark" || name == "format", "{what}: nothing was noticed");
            // A start without its mark makes it again.
            std::fs::write(&file, &bytes).unwrap();
        }
    }
    assert!(open(whole.path()).unwrap().0 == content, "whole again");
}

/// Opening a pipe waits for its other end, and a start that waits does not even hear SIGTERM.
#[test]
fn a_pipe_or_a_folder_in_place_of_a_file_does_not_stop_the_start_for_ever() {
    let whole = tempfile::tempdir().unwrap();
    let content = small(whole.path());
    for file in files(whole.path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let dir = whole.path().to_path_buf();
        std::thread::spawn(move || tell.send(open(&dir)));
        let opened = told.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for the pipe");
        let why = opened.expect_err(&name);
        assert!(why.contains(&name) || name == "format", "{name}: {why}");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        open(whole.path()).expect_err(&name);
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, &bytes).unwrap();
    }
    assert!(open(whole.path()).unwrap().0 == content, "whole again");
}

#[test]
fn a_record_that_a_crash_cut_off_is_dropped_and_reported() {
    let whole = tempfile::tempdir().unwrap();
    let before = small(whole.path());
    let log = files(whole.path()).into_iter().rfind(|f| f.to_string_lossy().contains("/log-")).unwrap();
    let (mark, length) = (std::fs::read(whole.path().join("mark")).unwrap(), log.metadata().unwrap().len() as usize);
    {
        let store = Store::open(whole.path()).unwrap();
        let ticket = store.append(cells(90, 3));
        store.wait(ticket).unwrap();
    }
    let (after, _) = open(whole.path()).unwrap();
    assert_ne!(after, before);
    // The machine stopped before it was acknowledged.
    std::fs::write(whole.path().join("mark"), mark).unwrap();
    let bytes = std::fs::read(&log).unwrap();
    for end in length..=bytes.len() {
        let dir = tempfile::tempdir().unwrap();
        copy(whole.path(), dir.path());
        let cut = dir.path().join(log.file_name().unwrap());
        std::fs::write(&cut, &bytes[..end]).unwrap();
        let (found, notes) = open(dir.path()).unwrap();
        assert!(found == if end == bytes.len() { after.clone() } else { before.clone() }, "cut off at {end}");
        let torn = end > length && end < bytes.len();
        assert_eq!(notes.len(), usize::from(torn), "{notes:?}");
        if torn {
            assert!(notes[0].contains("was being written when the machine stopped"), "{notes:?}");
            // It is gone from the file, too: what is written next follows what is intact.
            assert_eq!(std::fs::read(&cut).unwrap(), bytes[..length]);
            assert_eq!(open(dir.path()).unwrap(), (before.clone(), vec![]));
        }
    }
}

#[test]
fn one_flipped_bit_in_a_records_framing_loses_no_entry_silently() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path());
    {
        let store = Store::open(dir.path()).unwrap();
        let tickets: Vec<Ticket> = (0..200)
            .map(|i| {
                let ticket = store.append(cells(1000 + 10 * i, 10));
                store.wait(ticket).unwrap();
                ticket
            })
            .collect();
        assert_eq!(tickets.len(), 200);
    }
    let log = files(dir.path()).into_iter().rfind(|f| f.to_string_lossy().contains("/log-")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    let at = middle + bytes[middle..].windows(4).position(|four| four == b"SLFr").unwrap() + 5;
    bytes[at] ^= 4;
    std::fs::write(&log, &bytes).unwrap();
    let why = open(dir.path()).unwrap_err();
    for part in [
        "log-1, byte ",
        "header does not fit its checksum",
        "lost: records from number",
        "are intact",
        "restore a backup",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // The explicit choice: all but the one request.
    let mut text = Vec::new();
    let findings = store::offline::dump(dir.path(), true, &mut text).unwrap();
    assert!(findings.iter().any(|finding| finding.severity == store::Severity::Damage), "{findings:?}");
    let saved = tempfile::tempdir().unwrap();
    let dump = saved.path().join("dump");
    std::fs::write(&dump, text).unwrap();
    store::offline::restore(&dump, &saved.path().join("state")).unwrap();
    let (content, _) = open(&saved.path().join("state")).unwrap();
    assert_eq!(content.0.unwrap().len(), 12 + 2000 - 10);
    // And the other one.
    store::forget(dir.path()).unwrap();
    assert_eq!(open(dir.path()).unwrap().0, (None, None));
}

#[test]
fn files_of_another_directory_or_time_are_noticed() {
    let (whole, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content = small(whole.path());
    small(other.path());
    let earlier = tempfile::tempdir().unwrap();
    copy(whole.path(), earlier.path());
    {
        let store = Store::open(whole.path()).unwrap();
        store.set_command_line(DEVICE, b"later").unwrap();
    }
    let (later, _) = open(whole.path()).unwrap();
    assert_ne!(later, content);
    for (from, what) in [(&other, "of another directory"), (&earlier, "of an earlier time")] {
        for file in files(from.path()) {
            let name = file.file_name().unwrap();
            let dir = tempfile::tempdir().unwrap();
            copy(whole.path(), dir.path());
            std::fs::copy(&file, dir.path().join(name)).unwrap();
            whole_or_refused(dir.path(), &later, &format!("{} {what}", name.to_string_lossy()));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    copy(whole.path(), dir.path());
    std::fs::copy(earlier.path().join("manifest"), dir.path().join("manifest")).unwrap();
    let why = open(dir.path()).unwrap_err();
    assert!(why.contains("an older copy has taken its place"), "{why}");
}

#[test]
fn writes_are_refused_while_the_directory_is_gone_and_kept_again_when_it_is_there() {
    for by_moving in [false, true] {
        let parent = tempfile::tempdir().unwrap();
        let (dir, aside) = (parent.path().join("state"), parent.path().join("aside"));
        let content = small(&dir);
        let store = Store::open(&dir).unwrap();
        match by_moving {
            true => std::fs::rename(&dir, &aside).unwrap(),
            false => std::fs::remove_dir_all(&dir).unwrap(),
        }
        let ticket = store.append(cells(500, 1));
        let why = store.wait(ticket).unwrap_err();
        assert!(why.contains("was deleted or moved while the switch used it"), "{why}");
        let again = |why: &str| {
            // It is tried at most twice a second.
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            loop {
                match store.reopen() {
                    Err(e) if why.is_empty() || !e.contains(why) => {
                        assert!(std::time::Instant::now() < end, "{e}");
                        std::thread::sleep(std::time::Duration::from_millis(50));
                    }
                    other => return other,
                }
            }
        };
        assert!(again("make an empty directory there").is_err());
        if by_moving {
            std::fs::rename(&aside, &dir).unwrap();
        } else {
            std::fs::create_dir(&dir).unwrap();
        }
        again("").unwrap();
        let entities = content.0.clone().unwrap().into_iter().enumerate();
        let mut entities = entities.map(|(i, entity)| Ok(((i as u32).to_be_bytes().to_vec(), entity)));
        store.replace(DEVICE, Contents::New(&router(), &mut entities), Contents::Empty).unwrap();
        let ticket = store.append(cells(600, 1));
        store.wait(ticket).unwrap();
        drop(store);
        let (found, _) = open(&dir).unwrap();
        assert_eq!((found.0.unwrap().len(), found.1), (13, content.1));
    }
}

#[test]
fn a_directory_that_was_lent_is_the_other_process_s_until_that_is_gone() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("state");
    let content = small(&dir);
    let store = Store::open(&dir).unwrap();
    store.lend("another process has it", std::time::Duration::from_secs(3600)).unwrap();
    let refused = store.append(cells(600, 1));
    assert_eq!(store.wait(refused).unwrap_err(), "another process has it");
    assert!(store.stored(DEVICE).err().unwrap().to_string().contains("another process has it"));
    // Nobody has it yet, and it stays free for that process.
    assert!(store.reopen().is_err());
    let other = Store::open(&dir).unwrap();
    store.take_back();
    let why = store.reopen().unwrap_err();
    assert!(why.contains("another"), "{why}");
    let ticket = other.append(cells(600, 2));
    other.wait(ticket).unwrap();
    other.set_command_line(DEVICE, b"the other's").unwrap();
    drop(other);
    store.take_back();
    store.reopen().unwrap();
    // The caller writes everything anew, as after a failure of the disk; what the store has of its own is back already.
    let entities = content.0.clone().unwrap().into_iter().enumerate();
    let mut entities = entities.map(|(i, entity)| Ok(((i as u32).to_be_bytes().to_vec(), entity)));
    store.replace(DEVICE, Contents::New(&router(), &mut entities), Contents::Empty).unwrap();
    drop(store);
    let (found, _) = open(&dir).unwrap();
    assert_eq!((found.0.unwrap().len(), found.1), (content.0.unwrap().len(), content.1));
}

#[test]
fn a_directory_that_is_gone_is_not_lent() {
    let temporary = tempfile::tempdir().unwrap();
    let (dir, aside) = (temporary.path().join("state"), temporary.path().join("aside"));
    small(&dir);
    let store = Store::open(&dir).unwrap();
    std::fs::rename(&dir, &aside).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // It is looked for once a second.
    while store.failure().is_none() && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let why = store.lend("another process has it", std::time::Duration::from_secs(3600)).unwrap_err();
    assert!(why.contains("was deleted or moved"), "{why}");
    assert!(Store::open(&aside).is_err(), "it is still this process's");
}

#[test]
fn a_deleted_file_is_heard_of_before_more_is_acknowledged() {
    for name in ["log-1", "manifest", "mark", "format"] {
        let dir = tempfile::tempdir().unwrap();
        small(dir.path());
        let store = Store::open(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(name)).unwrap();
        let ticket = store.append(cells(500, 1));
        let why = store.wait(ticket).unwrap_err();
        assert!(why.contains(&format!("{name} was deleted while the switch used it")), "{why}");
    }
    // Nobody writes: it is heard of all the same.
    let dir = tempfile::tempdir().unwrap();
    small(dir.path());
    let store = Store::open(dir.path()).unwrap();
    std::fs::remove_dir_all(dir.path()).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while store.failure().is_none() {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
