//! Small cases of the lock-free protocols in all interleavings, and with all memory orders that the Rust memory model
//! allows. Run: `RUSTFLAGS="--cfg loom" cargo test -p tables --test loom --release`
#![cfg(loom)]
#![allow(unsafe_code)]

use abi::EntryHeader;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use loom::thread;
use std::ptr;
use std::sync::Arc;
use tables::exact::{self, Array, At, ExactSnapshot, Form, Shape};
use tables::map::{MapSnapshot, PointerMap, probe};
use tables::reclaim::Assumption;
use tables::version::Version;
use tables::{Domain, Worker};

/// Runs a model with at most this many preemptions per execution.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

fn worker(domain: &Arc<Domain>) -> Worker {
    domain.register().expect("a slot is free")
}

/// An object that readers reach through a pointer, and that is written to ("freed") when they no longer can.
struct Object {
    here: AtomicPtr<UnsafeCell<u64>>,
}

// SAFETY: the model checks every access to the cell.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    fn read(&self) {
        let cell = self.here.load(Ordering::Acquire);
        if !cell.is_null() {
            // SAFETY: the cell is leaked; loom reports a concurrent write.
            unsafe { (*cell).with(|value| assert_eq!(*value, 7)) };
        }
    }
}

/// A reader in each of the states a worker can be in, against a writer that unlinks, advances, and frees if it may.
fn reclaim(read: impl Fn(&mut Worker, &Object) + Copy + Send + Sync + 'static) {
    model(3, move || {
        let domain = Domain::new(1);
        let cell = Box::into_raw(Box::new(UnsafeCell::new(7)));
        let object = Arc::new(Object { here: AtomicPtr::new(cell) });
        let mut reader = worker(&domain);
        let seen = Arc::clone(&object);
        let thread = thread::spawn(move || read(&mut reader, &seen));
        object.here.store(ptr::null_mut(), Ordering::Release);
        let epoch = domain.advance();
        if domain.is_past(epoch) {
            // SAFETY: the cell is leaked until the end; loom reports a concurrent read.
            unsafe { (*cell).with_mut(|value| *value = 0) };
        }
        thread.join().expect("the reader does not panic");
        // SAFETY: both threads are done.
        drop(unsafe { Box::from_raw(cell) });
    });
}

#[test]
fn nothing_is_freed_under_a_worker_that_goes_online() {
    reclaim(|worker, object| {
        worker.online();
        object.read();
        worker.offline();
    });
}

#[test]
fn nothing_is_freed_under_a_worker_that_is_quiescent_in_between() {
    reclaim(|worker, object| {
        worker.online();
        object.read();
        worker.quiescent();
        object.read();
        worker.quiescent();
    });
}

#[test]
fn nothing_is_freed_under_a_worker_that_comes_back() {
    reclaim(|worker, object| {
        worker.online();
        object.read();
        worker.offline();
        worker.online();
        object.read();
    });
}

/// Two writers share a domain: each one's epoch covers its own unlinking.
#[test]
fn epochs_of_several_writers_hold() {
    model(2, || {
        let domain = Domain::new(1);
        let cell = Box::into_raw(Box::new(UnsafeCell::new(7)));
        let object = Arc::new(Object { here: AtomicPtr::new(cell) });
        let mut reader = worker(&domain);
        reader.online();
        let other_domain = Arc::clone(&domain);
        let other = thread::spawn(move || _ = other_domain.advance());
        let seen = Arc::clone(&object);
        let reads = thread::spawn(move || {
            seen.read();
            reader.quiescent();
            seen.read();
        });
        object.here.store(ptr::null_mut(), Ordering::Release);
        let epoch = domain.advance();
        if domain.is_past(epoch) {
            // SAFETY: the cell is leaked until the end; loom reports a concurrent read.
            unsafe { (*cell).with_mut(|value| *value = 0) };
        }
        other.join().expect("no panic");
        reads.join().expect("no panic");
        // SAFETY: all threads are done.
        drop(unsafe { Box::from_raw(cell) });
    });
}

/// A batch of a worker: with specialised code that assumes that all entries are `7`, or with code that assumes nothing.
fn run_batch(domain: &Domain, generation: u64, entry: &AtomicU64) {
    let is_special = domain.generation() == generation;
    let found = entry.load(Ordering::Acquire);
    assert!(!is_special || found == 7, "code with the old assumption met {found}");
}

/// An entry is published only when no batch runs with code that assumes the old entries, or not at all. For each state
/// that a worker can be in, and when the writer tries again.
fn assumptions(run: impl Fn(&mut Worker, u64, &AtomicU64) + Copy + Send + Sync + 'static) {
    model(3, move || {
        let domain = Domain::new(1);
        let entry = Arc::new(AtomicU64::new(7));
        let generation = domain.generation();
        let mut assumption = Assumption::default();
        assumption.hold(&domain);
        let mut reader = worker(&domain);
        let seen = Arc::clone(&entry);
        let thread = thread::spawn(move || run(&mut reader, generation, &seen));
        let mut published = false;
        for _ in 0..2 {
            if !published && assumption.invalidate(&domain).is_ok() {
                assert!(!assumption.is_held());
                entry.store(9, Ordering::Release);
                published = true;
            }
            assert!(published || assumption.is_held(), "a refused change gives nothing up");
        }
        thread.join().expect("the reader does not panic");
        assert!(published || assumption.invalidate(&domain).is_ok(), "nobody stands any more");
    });
}

#[test]
fn no_batch_outlives_an_assumption_in_a_worker_that_goes_online() {
    assumptions(|worker, generation, entry| {
        worker.online();
        run_batch(worker.domain(), generation, entry);
        worker.offline();
    });
}

#[test]
fn no_batch_outlives_an_assumption_in_a_worker_that_is_quiescent_in_between() {
    assumptions(|worker, generation, entry| {
        worker.online();
        run_batch(worker.domain(), generation, entry);
        worker.quiescent();
        run_batch(worker.domain(), generation, entry);
        worker.offline();
    });
}

#[test]
fn no_batch_outlives_an_assumption_in_a_worker_that_comes_back() {
    assumptions(|worker, generation, entry| {
        worker.online();
        run_batch(worker.domain(), generation, entry);
        worker.offline();
        worker.online();
        run_batch(worker.domain(), generation, entry);
        worker.offline();
    });
}

/// Another writer has invalidated the assumption already: batches that began before may still run, and are waited for
/// too.
#[test]
fn no_batch_outlives_an_assumption_that_another_writer_invalidated() {
    model(2, || {
        let domain = Domain::new(1);
        let entry = Arc::new(AtomicU64::new(7));
        let generation = domain.generation();
        let mut assumption = Assumption::default();
        assumption.hold(&domain);
        let mut reader = worker(&domain);
        let (seen, other) = (Arc::clone(&entry), Arc::clone(&domain));
        let other = thread::spawn(move || other.invalidate());
        let thread = thread::spawn(move || {
            reader.online();
            run_batch(reader.domain(), generation, &seen);
            reader.offline();
        });
        if assumption.invalidate(&domain).is_ok() {
            entry.store(9, Ordering::Release);
        }
        other.join().expect("no panic");
        thread.join().expect("the reader does not panic");
    });
}

/// The address of a key's entry; never dereferenced.
fn entry(key: u64) -> *mut EntryHeader {
    ptr::without_provenance_mut(0x1000 + 16 * key as usize)
}

#[derive(Clone, Copy)]
struct Snapshot(*const MapSnapshot);

// SAFETY: the map outlives the threads.
unsafe impl Send for Snapshot {}

impl Snapshot {
    /// Finds the key's entry or none, never the entry of another key.
    fn look(self, key: u64) -> bool {
        // SAFETY: the map outlives the threads and does not grow.
        let found = unsafe { probe(self.0, [key, 0]) };
        assert!(found.is_null() || found == entry(key), "key {key} found {found:?}");
        !found.is_null()
    }
}

#[test]
fn a_slot_that_is_filled_shows_its_key_with_its_entry() {
    model(3, || {
        let domain = Domain::new(1);
        let mut map = PointerMap::with_seeds([3, 5]);
        let snapshot = Snapshot(map.snapshot());
        let reader = thread::spawn(move || {
            // Key 0 equals the key bytes of an empty slot.
            assert!(!snapshot.look(0));
            let first = snapshot.look(1);
            assert!(snapshot.look(1) || !first, "an entry does not go away by itself");
        });
        map.insert([1, 0], entry(1), &domain);
        map.insert([2, 0], entry(2), &domain);
        reader.join().expect("the reader does not panic");
    });
}

#[test]
fn a_slot_that_is_filled_again_never_mixes_keys_and_entries() {
    model(3, || {
        let domain = Domain::new(1);
        let mut map = PointerMap::with_seeds([3, 5]);
        map.insert([1, 0], entry(1), &domain);
        map.insert([2, 0], entry(2), &domain);
        let snapshot = Snapshot(map.snapshot());
        let mut worker = worker(&domain);
        let reader = thread::spawn(move || {
            worker.online();
            snapshot.look(1);
            snapshot.look(3);
            worker.quiescent();
            snapshot.look(3);
            worker.offline();
        });
        map.remove([1, 0], &domain).expect("it is there");
        map.insert([3, 0], entry(3), &domain);
        reader.join().expect("the reader does not panic");
        assert!(snapshot.look(3) && !snapshot.look(1));
    });
}

#[test]
fn a_removed_and_readded_key_keeps_its_slot_consistent() {
    model(3, || {
        let domain = Domain::new(1);
        let mut map = PointerMap::with_seeds([3, 5]);
        map.insert([1, 0], entry(1), &domain);
        let snapshot = Snapshot(map.snapshot());
        let reader = thread::spawn(move || {
            snapshot.look(1);
            snapshot.look(1);
        });
        map.remove([1, 0], &domain).expect("it is there");
        map.insert([1, 0], entry(1), &domain);
        reader.join().expect("the reader does not panic");
        assert!(snapshot.look(1));
    });
}

/// Buckets of two slots with keys of two 32-bit words; one bucket is the home of all keys. An entry contains its key.
struct Exact(Array);

const FORM: Form = Form {
    shape: Shape { key_bytes: 8, slots: 2, entry_bytes: 8 },
    before: 0,
    out_of_line: false,
    wide_words: 0,
    mix: 1,
};

/// The hash of every key here: all have the same home and the same overflow mark.
const HASH: u64 = 0;

impl Exact {
    fn new() -> Exact {
        Exact(Array::new(1, FORM, [3, 5]))
    }

    fn reader(&self) -> Buckets {
        Buckets(self.0.snapshot())
    }

    /// Writes an entry and publishes it.
    fn put(&self, key: [u32; 2], generation: u64, instead_of: Option<At>) -> At {
        let at = self.0.reserve(HASH, instead_of.map(|old| old.bucket)).expect("there is room");
        let cell = self.0.bucket(at.bucket).entry(&FORM.shape, at.slot as usize);
        // SAFETY: the slot is free; loom reports who reads it.
        unsafe { cell.with_mut(|entry| *entry = u64::from(key[0]) << 32 | u64::from(key[1]) << 16 | generation) };
        self.0.publish(HASH, &key, at, instead_of);
        at
    }
}

#[derive(Clone, Copy)]
struct Buckets(*const ExactSnapshot);

// SAFETY: the array outlives the threads.
unsafe impl Send for Buckets {}

impl Buckets {
    /// The generation of the key's entry; panics on the entry of another key.
    fn look(self, key: [u32; 2]) -> Option<u64> {
        // SAFETY: the array outlives the threads; loom reports a write to what is read.
        unsafe {
            let (bucket, slot) = exact::probe(self.0, &FORM.shape, HASH, &key, |_, _| true)?;
            let found = (*bucket).entry(&FORM.shape, slot).with(|entry| *entry);
            assert_eq!(found >> 16, u64::from(key[0]) << 16 | u64::from(key[1]), "the entry of another key");
            Some(found & 0xffff)
        }
    }
}

#[test]
fn a_live_slot_shows_its_whole_key_and_entry() {
    model(3, || {
        let exact = Exact::new();
        let reader = exact.reader();
        let thread = thread::spawn(move || {
            // The key of an empty slot, and one that is half of that and half of the new one.
            assert_eq!(reader.look([0, 0]), None);
            assert_eq!(reader.look([1, 0]), None);
            let first = reader.look([1, 2]);
            assert!(reader.look([1, 2]).is_some() || first.is_none(), "an entry does not go away by itself");
        });
        exact.put([1, 2], 1, None);
        thread.join().expect("the reader does not panic");
        assert_eq!(reader.look([1, 2]), Some(1));
    });
}

#[test]
fn a_slot_is_filled_again_when_no_reader_can_be_in_it() {
    model(3, || {
        let domain = Domain::new(1);
        let exact = Exact::new();
        let at = exact.put([1, 1], 1, None);
        let reader = exact.reader();
        let mut worker = worker(&domain);
        let thread = thread::spawn(move || {
            worker.online();
            reader.look([1, 1]);
            reader.look([2, 1]);
            worker.quiescent();
            reader.look([2, 2]);
            worker.offline();
        });
        exact.0.unpublish(at);
        let epoch = domain.advance();
        if domain.is_past(epoch) {
            exact.0.release(at);
            assert_eq!(exact.put([2, 2], 2, None), at);
        } else {
            assert_ne!(exact.put([2, 2], 2, None), at, "the slot waits");
        }
        thread.join().expect("the reader does not panic");
        assert_eq!((reader.look([1, 1]), reader.look([2, 2])), (None, Some(2)));
    });
}

#[test]
fn a_changed_entry_is_found_at_any_time_in_its_bucket() {
    model(3, || {
        let exact = Exact::new();
        let at = exact.put([1, 1], 1, None);
        let reader = exact.reader();
        let thread = thread::spawn(move || {
            let first = reader.look([1, 1]).expect("it is there at any time");
            let second = reader.look([1, 1]).expect("it is there at any time");
            assert!(first <= second, "the old entry does not come back");
        });
        exact.put([1, 1], 2, Some(at));
        thread.join().expect("the reader does not panic");
        assert_eq!(reader.look([1, 1]), Some(2));
    });
}

#[test]
fn a_changed_entry_is_found_at_any_time_when_it_moves_to_a_later_bucket() {
    model(3, || {
        let exact = Exact::new();
        let at = exact.put([1, 1], 1, None);
        exact.put([3, 3], 3, None);
        let reader = exact.reader();
        let thread = thread::spawn(move || {
            assert!(reader.look([1, 1]).is_some(), "it is there at any time");
            assert_eq!(reader.look([3, 3]), Some(3));
        });
        let new = exact.put([1, 1], 2, Some(at));
        assert_ne!(new.bucket, at.bucket, "the home is full");
        thread.join().expect("the reader does not panic");
        assert_eq!(reader.look([1, 1]), Some(2));
    });
}

#[test]
fn a_copy_is_complete_when_readers_see_it() {
    model(2, || {
        let old = Exact::new();
        old.put([1, 1], 1, None);
        old.put([2, 2], 2, None);
        old.put([3, 3], 3, None);
        let published = Arc::new(AtomicPtr::new(old.reader().0.cast_mut()));
        let seen = Arc::clone(&published);
        let thread = thread::spawn(move || {
            for key in 1..=3 {
                let reader = Buckets(seen.load(Ordering::Acquire));
                assert_eq!(reader.look([key, key]), Some(key.into()));
            }
        });
        let new = Exact(Array::new(2, FORM, [3, 5]));
        assert!(new.0.fill_from(&old.0, |_, _| HASH));
        published.store(new.reader().0.cast_mut(), Ordering::Release);
        thread.join().expect("the reader does not panic");
    });
}

/// A covering route is added, then the specific one removed: no lookup finds neither.
#[test]
fn a_multi_step_lookup_sees_one_state() {
    model(3, || {
        struct Trie {
            short: AtomicU64,
            long: AtomicU64,
            version: Version,
        }
        let trie = Arc::new(Trie { short: AtomicU64::new(0), long: AtomicU64::new(1), version: Version::new() });
        let seen = Arc::clone(&trie);
        let reader = thread::spawn(move || {
            let found = seen.version.read(|| {
                // Even relaxed loads: the counter provides the order.
                let short = seen.short.load(Ordering::Relaxed);
                let long = seen.long.load(Ordering::Relaxed);
                short + long
            });
            assert_ne!(found, 0);
        });
        // As the trie does: insertions do not advance the counter, removals do. The last store is relaxed: the counter
        // orders it.
        trie.short.store(1, Ordering::Release);
        trie.version.change();
        trie.long.store(0, Ordering::Relaxed);
        reader.join().expect("the reader does not panic");
    });
}
