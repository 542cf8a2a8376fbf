//! A directory whose files were damaged (bytes changed, the end of a file torn off): opening and reading it
//! either works or is refused with a reason, and never ends the process. The store's checksums find what was changed; what
//! the records themselves may say is the fuzz target `state_log`.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// All files below a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&file, target).unwrap();
    }
}

/// What opening a directory says.
fn open(dir: &Path) -> Result<Option<Vec<Entity>>, String> {
    let store = Store::open(dir).map_err(|e| e.to_string())?;
    let kept = store.kept(DEVICE).map_err(|e| e.to_string())?;
    Ok(kept.running.map(|running| running.entities))
}

#[test]
fn a_damaged_directory_is_read_or_refused_with_a_reason() {
    let whole = tempfile::tempdir().unwrap();
    let mut random = Random::new(11);
    {
        let (mut control, _store) = start(whole.path());
        for _ in 0..40 {
            let (updates, atomicity) = random.batch();
            write(&mut control, updates, atomicity);
            wait(&control).unwrap();
        }
    }
    let entities = open(whole.path()).unwrap().expect("there is a program").len();
    assert!(entities > 5, "{entities}");
    let (mut read, mut forgotten, mut refused) = (0, 0, BTreeMap::new());
    for round in 0..120 {
        let dir = tempfile::tempdir().unwrap();
        copy(whole.path(), dir.path());
        let all: Vec<PathBuf> = files(dir.path()).into_iter().filter(|f| f.metadata().unwrap().len() > 0).collect();
        let file = &all[random.below(all.len() as u64) as usize];
        let mut bytes = std::fs::read(file).unwrap();
        let at = random.below(bytes.len() as u64) as usize;
        let what = match round % 3 {
            0 => {
                bytes.truncate(at);
                "cut off"
            }
            1 => {
                bytes[at] ^= 1 << random.below(8);
                "one bit"
            }
            _ => {
                let end = bytes.len().min(at + 64);
                bytes[at..end].iter_mut().for_each(|b| *b = random.below(256) as u8);
                "overwritten"
            }
        };
        std::fs::write(file, &bytes).unwrap();
        let name = file.strip_prefix(dir.path()).unwrap().display().to_string();
        match catch_unwind(AssertUnwindSafe(|| open(dir.path()))) {
            Ok(Ok(found)) => {
                // Lost, perhaps; never more than there was.
                assert!(found.is_none_or(|found| found.len() <= entities), "{name}: {what} at {at}");
                read += 1;
            }
            Ok(Err(why)) => {
                assert!(!why.trim().is_empty() && !why.contains("Error"), "in words: {why}");
                if why.contains("--forget") {
                    store::forget(dir.path()).unwrap();
                    assert!(open(dir.path()).unwrap().is_none(), "{name}: {what} at {at}: begins anew");
                    forgotten += 1;
                }
                *refused.entry(why.replace(&dir.path().display().to_string(), "DIR")).or_insert(0) += 1;
            }
            Err(_) => panic!("{name}: {what} at {at} of {} bytes ends the process", bytes.len()),
        }
    }
    assert!(read > 0 && forgotten > 0, "{read} read, {forgotten} begun anew, {refused:?}");
}
