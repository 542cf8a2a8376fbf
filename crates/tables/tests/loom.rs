//! All interleavings, and all orders of memory that the Rust memory model allows, of small cases of the lock-free
//! protocols. Run: `RUSTFLAGS="--cfg loom" cargo test -p tables --test loom --release`
#![cfg(loom)]
#![allow(unsafe_code)]

use abi::EntryHeader;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use loom::thread;
use std::ptr;
use std::sync::Arc;
use tables::exact::{ExactMap, ExactSnapshot, probe};
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

/// Something that readers read through a pointer, and that is written to ("freed") once they cannot.
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

/// The entry of a key; never read.
fn entry(key: u64) -> *mut EntryHeader {
    ptr::without_provenance_mut(0x1000 + 16 * key as usize)
}

#[derive(Clone, Copy)]
struct Snapshot(*const ExactSnapshot);

// SAFETY: the map outlives the threads.
unsafe impl Send for Snapshot {}

impl Snapshot {
    /// Never the entry of another key.
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
        let mut map = ExactMap::with_seeds([3, 5]);
        let snapshot = Snapshot(map.snapshot());
        let reader = thread::spawn(move || {
            // Key 0 is what an empty slot looks like.
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
        let mut map = ExactMap::with_seeds([3, 5]);
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
fn a_key_that_is_removed_and_added_again_keeps_its_slot_sound() {
    model(3, || {
        let domain = Domain::new(1);
        let mut map = ExactMap::with_seeds([3, 5]);
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

/// A covering route is added, then the specific one removed: no lookup finds neither.
#[test]
fn a_lookup_of_several_steps_sees_one_state() {
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
                // Even relaxed loads: the order is the counter's business.
                let short = seen.short.load(Ordering::Relaxed);
                let long = seen.long.load(Ordering::Relaxed);
                short + long
            });
            assert_ne!(found, 0);
        });
        // As the trie does: insertions do not count, removals do. The last store is relaxed: its order is the counter's.
        trie.short.store(1, Ordering::Release);
        trie.version.change();
        trie.long.store(0, Ordering::Relaxed);
        reader.join().expect("the reader does not panic");
    });
}
