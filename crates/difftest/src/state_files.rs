//! Fuzz target `state_files`: a state directory with changed bytes, and truncated, removed or replaced files.
//!
//! Property: a start restores exactly the stored state, is refused, or reports what it does not know or has dropped.
//! The directory is the same every time except for its id; inputs give positions in files as fractions of the length.

use control::entity::{Entity, P4Data, RegisterEntry};
use control::forwarding::ForwardingConfig;
use control::journal::{After, Batch, Change, Contents, Journal, Slot};
use std::sync::{Arc, OnceLock};
use store::Store;

const DEVICE: u64 = 1;
/// The length of one damage in an input: file and kind, position (two bytes), value.
const DAMAGE_BYTES: usize = 4;

/// The files of an undamaged directory, and its content.
struct Whole {
    files: Vec<(String, Vec<u8>)>,
    content: String,
}

fn cells(first: u32) -> Vec<Change> {
    let cell = |index: u32| {
        let data = Some(P4Data::Bitstring(vec![index as u8]));
        let entity = Entity::Register(RegisterEntry { register_id: 5, index: Some(index.into()), data });
        Change { key: index.to_be_bytes().to_vec(), after: After::Is(Box::new(entity)) }
    };
    (first..first + 3).map(cell).collect()
}

fn content(store: &Store) -> Result<String, String> {
    store.kept(DEVICE).map(|kept| format!("{kept:?}")).map_err(|e| e.to_string())
}

fn whole() -> Whole {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let store = Store::open(dir.path()).expect("an empty folder");
    let config = ForwardingConfig { device_config: b"a program".to_vec(), ..ForwardingConfig::default() };
    let mut entities = cells(0).into_iter().filter_map(|change| match change.after {
        After::Is(entity) => Some(Ok((change.key, *entity))),
        _ => None,
    });
    store.replace(DEVICE, Contents::New(&config, &mut entities), Contents::Empty).expect("it is kept");
    store.set_command_line(DEVICE, b"another").expect("it is kept");
    for i in 1..4 {
        let changes = cells(10 * i);
        let batch = Batch { device_id: DEVICE, slot: Slot::Running, request: Arc::default(), changes };
        store.wait(store.append(batch)).expect("it is kept");
    }
    let content = content(&store).expect("it is whole");
    drop(store);
    let files = std::fs::read_dir(dir.path()).expect("a folder").flatten();
    let read = |entry: std::fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("a file"))
    };
    let mut files: Vec<_> = files.map(read).collect();
    files.sort();
    Whole { files, content }
}

/// The maximum length in bytes up to which files are lengthened: each time may double one, and an input does it dozens
/// of times.
const REPEATED_BYTES_MAX: usize = 1 << 20;

fn damage(files: &mut Vec<(String, Vec<u8>)>, how: &[u8]) {
    let &[what, high, low, value] = how else { return };
    if files.is_empty() {
        return;
    }
    let file = usize::from(what >> 3) % files.len();
    let place = usize::from(u16::from_be_bytes([high, low]));
    let bytes = &mut files[file].1;
    let at = place * bytes.len() / (1 << 16);
    match what & 7 {
        0..=2 if !bytes.is_empty() => bytes[at] ^= value,
        3 => bytes.truncate(at),
        4 => _ = files.remove(file),
        5 => bytes[at..].fill(value),
        6 if bytes.len() < REPEATED_BYTES_MAX => bytes.extend_from_within(at..),
        7 => {
            let other = files[usize::from(value) % files.len()].1.clone();
            files[file].1 = other;
        }
        _ => {}
    }
}

/// Damages a directory as the input says, and starts from it.
pub fn state_files(bytes: &[u8]) {
    static WHOLE: OnceLock<Whole> = OnceLock::new();
    let Whole { files, content: expected } = WHOLE.get_or_init(whole);
    let mut files = files.clone();
    bytes.chunks_exact(DAMAGE_BYTES).for_each(|how| damage(&mut files, how));
    let dir = tempfile::tempdir().expect("a folder can be made");
    files.iter().for_each(|(name, bytes)| std::fs::write(dir.path().join(name), bytes).expect("a file can be written"));
    let checked = store::offline::check(dir.path());
    let found = Store::open(dir.path()).map_err(|e| e.to_string()).and_then(|store| {
        let notes = store.notes();
        content(&store).map(|content| (content, notes))
    });
    match found {
        Ok((content, notes)) => {
            let said = !notes.is_empty() || is_none(&files);
            assert!(content == *expected || said, "something else came back: {content}, not {expected}");
            let whole = checked.is_ok_and(|report| report.severity() <= store::Severity::Torn);
            assert!(whole || files.iter().all(|(name, _)| name != "format"), "`check` refuses what a start takes");
        }
        Err(why) => {
            assert!(why.contains(&dir.path().display().to_string()), "it does not say where: {why}");
            let whole = checked.is_ok_and(|report| report.severity() <= store::Severity::Torn);
            assert!(!whole, "`check` finds nothing, and a start is refused: {why}");
        }
    }
}

/// Whether no trace of the switch's state is left: that is an empty directory, not a damaged one.
fn is_none(files: &[(String, Vec<u8>)]) -> bool {
    files.iter().all(|(name, bytes)| name == "mark" || bytes.is_empty())
}

/// Seed inputs: one damage of each kind to several files.
pub fn seeds() -> Vec<Vec<u8>> {
    (0..8u8)
        .flat_map(|kind| [1u8, 3, 5].map(|file| vec![file << 3 | kind, 40u8.wrapping_mul(kind), 7, 1 << kind]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{DAMAGE_BYTES, state_files};

    #[test]
    fn damage_at_random_places_loses_nothing_silently() {
        let mut random = random::Random::new(1);
        let mut byte = || random.next_u64() as u8;
        for round in 0..400 {
            let bytes: Vec<u8> = (0..DAMAGE_BYTES * (1 + round % 3)).map(|_| byte()).collect();
            println!("{bytes:?}");
            state_files(&bytes);
        }
    }
}
