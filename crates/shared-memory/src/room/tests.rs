//! Admission tests on a simulated machine, which charges memory as the kernel does.

use super::*;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::os::fd::AsFd;

const MB: u64 = 1 << 20;
const LIMIT: u64 = 1600 * MB;
/// The part of the limit that stays unused.
const RESERVE: u64 = 100 * MB;

/// A service in a control group with a limit.
#[derive(Clone, Default)]
struct Machine(Arc<Mutex<Figures>>);

#[derive(Default)]
struct Figures {
    /// Memory of the service itself.
    own: u64,
    /// Shared memory charged to the service.
    shared: u64,
    limit: Option<u64>,
    host: Option<(u64, u64)>,
}

impl Machine {
    fn with_limit() -> Machine {
        Machine(Arc::new(Mutex::new(Figures { own: 100 * MB, limit: Some(LIMIT), ..Figures::default() })))
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().expect("no test fails with it")
    }

    fn room(&self) -> Arc<Room> {
        let machine = self.clone();
        Room::new(move || {
            let Figures { own, shared, limit, host } = *machine.figures();
            let group = |limit| Group { name: "/service".into(), limit, used: own + shared };
            Reading { groups: limit.map(group).into_iter().collect(), shared, host, processors: 0 }
        })
    }

    /// Charges pages that the service touches first.
    fn charge(&self, bytes: u64) {
        let mut figures = self.figures();
        figures.shared += bytes;
        assert!(figures.own + figures.shared <= figures.limit.unwrap_or(u64::MAX), "the service is ended");
    }
}

/// What is missing for a region that is refused.
fn missing(result: Result<Admitted, NotAdmitted>, why: &str) -> Shortage {
    match result {
        Err(NotAdmitted::NoRoom(shortage)) => shortage,
        other => panic!("{why}: {other:?}"),
    }
}

/// A file whose first `allocated` bytes are allocated.
fn file(bytes: u64, allocated: u64) -> OwnedFd {
    let file = memfd_create("peer", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, bytes).expect("it grows");
    if allocated > 0 {
        fallocate(&file, FallocateFlags::empty(), 0, allocated).expect("there is as much memory");
    }
    file
}

/// A peer shares one sparse file after another and keeps them all. Returns how many megabytes it could have charged.
fn burn(machine: &Machine, account: &Account, bytes: u64) -> u64 {
    let mut files = Vec::new();
    while files.len() < 1000 {
        let next = file(bytes, 0);
        let Ok(admitted) = account.admit(next.as_fd(), 0, bytes) else { return files.len() as u64 * bytes / MB };
        machine.charge(bytes);
        drop(admitted);
        files.push(next);
    }
    panic!("it is never refused");
}

#[test]
fn one_sparse_file_after_another_takes_half_of_the_room_and_the_service_goes_on() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let (greedy, second, honest) = (room.account(), room.account(), room.account());
    // Of 1,600 MB, the service uses 100; another 100 and the page tables are reserve.
    let took = burn(&machine, &greedy, 50 * MB);
    assert_eq!(took, 700);
    let took = burn(&machine, &second, 50 * MB);
    assert_eq!(took, 350, "half of what is left");
    let guest = file(300 * MB, 0);
    assert!(honest.admit(guest.as_fd(), 0, 300 * MB).is_ok(), "others have room still");
}

/// An attempt to bypass a check of the holes that a file has when it is mapped.
#[test]
fn holes_that_are_punched_later_were_paid_for_beforehand() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let account = room.account();
    let (first, second) = (file(800 * MB, 0), file(8 * MB, 8 * MB));
    let _first = account.admit(first.as_fd(), 0, 800 * MB).expect("it fits");
    machine.charge(800 * MB);
    // An allocated range may still cost all of its bytes.
    let account = room.account();
    let shortage = missing(account.admit(second.as_fd(), 0, 600 * MB), "1,600 MB are the limit");
    assert_eq!((shortage.place, shortage.bytes, shortage.others), (Place::Group("/service".into()), 600 * MB, 0));
    assert!(account.admit(second.as_fd(), 0, 500 * MB).is_ok());
}

#[test]
fn what_is_mapped_and_not_charged_yet_is_kept_for_its_port() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let (one, other) = (room.account(), room.account());
    let (a, b) = (file(1000 * MB, 0), file(500 * MB, 0));
    let mapped = one.admit(a.as_fd(), 0, 1000 * MB).expect("it fits");
    machine.charge(200 * MB);
    let shortage = missing(other.admit(b.as_fd(), 0, 500 * MB), "it is too much");
    assert_eq!((shortage.others, shortage.former), (800 * MB, 0));
    // A former region may still exist, with everything that was charged.
    drop(mapped);
    let shortage = missing(one.admit(b.as_fd(), 0, 1100 * MB), "200 MB may be gone for good");
    assert_eq!((shortage.others, shortage.former), (0, 200 * MB));
    assert!(other.admit(b.as_fd(), 0, 500 * MB).is_ok());
}

#[test]
fn a_guest_that_shares_the_same_memory_again_has_paid_for_it() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let account = room.account();
    let memory = file(1300 * MB, 0);
    for _ in 0..3 {
        let mapped = account.admit(memory.as_fd(), 0, 1300 * MB).expect("it fits");
        if machine.figures().shared == 0 {
            machine.charge(1300 * MB);
        }
        drop(mapped);
    }
    let other = file(1300 * MB, 0);
    assert!(account.admit(other.as_fd(), 0, 100 * MB).is_err(), "another file is not paid for");
}

#[test]
fn memory_that_was_freed_can_be_had_again() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let account = room.account();
    for _ in 0..300 {
        let memory = file(1300 * MB, 0);
        let mapped = account.admit(memory.as_fd(), 0, 1300 * MB).expect("the last one's was freed");
        machine.charge(1300 * MB);
        drop(mapped);
        machine.figures().shared = 0;
    }
}

#[test]
fn a_port_that_is_removed_leaves_its_debts() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let account = room.account();
    let memory = file(600 * MB, 0);
    drop(account.admit(memory.as_fd(), 0, 600 * MB).expect("it fits"));
    machine.charge(600 * MB);
    drop(account);
    let account = room.account();
    let other = file(2000 * MB, 0);
    let mapped = account.admit(other.as_fd(), 0, 790 * MB).expect("it fits");
    let shortage = missing(account.admit(other.as_fd(), 0, 20 * MB), "600 MB are charged for nothing that is mapped");
    assert_eq!(shortage.others, 790 * MB);
    drop(mapped);
}

#[test]
fn of_the_machine_holes_are_counted_and_what_was_allocated_beforehand_is_not() {
    let machine = Machine::default();
    machine.figures().host = Some((LIMIT, 400 * MB));
    let room = machine.room();
    let account = room.account();
    let (sparse, full) = (file(128 * MB, 0), file(1024 * MB, 1024 * MB));
    let _full = account.admit(full.as_fd(), 0, 1024 * MB).expect("it takes nothing more");
    let first = account.admit(sparse.as_fd(), 0, 128 * MB).expect("it fits");
    let other = file(300 * MB, 0);
    let shortage = missing(account.admit(other.as_fd(), 0, 300 * MB), "300 MB are free for both");
    assert_eq!((&shortage.place, shortage.bytes, shortage.others), (&Place::Host, 300 * MB, 128 * MB));
    assert!(shortage.to_string().contains("prealloc=on"), "{shortage}");
    // The first file's holes are filled, and other memory is freed.
    fallocate(&sparse, FallocateFlags::empty(), 0, 128 * MB).expect("there is as much memory");
    machine.figures().host = Some((LIMIT, 410 * MB));
    assert!(account.admit(other.as_fd(), 0, 300 * MB).is_ok());
    drop(first);
}

#[test]
fn a_reserve_is_left() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let account = room.account();
    let memory = file(2000 * MB, 0);
    let shortage = missing(account.admit(memory.as_fd(), 0, 1400 * MB), "nothing is left for page tables");
    let tables = 1400 * MB / 512;
    assert_eq!((shortage.left, shortage.reserve), (1500 * MB, RESERVE + tables));
    assert!(account.admit(memory.as_fd(), 0, 1397 * MB).is_ok());
}

#[test]
fn what_a_port_has_open_to_be_measured_is_bounded() {
    let machine = Machine::with_limit();
    let room = machine.room();
    let account = room.account();
    let files: Vec<OwnedFd> = (0..100).map(|_| file(4096, 0)).collect();
    let mut admitted: Vec<Admitted> =
        files.iter().map(|file| account.admit(file.as_fd(), 0, 4096).expect("small")).collect();
    assert_eq!(admitted.iter_mut().filter_map(Admitted::end).count(), 8);
}
