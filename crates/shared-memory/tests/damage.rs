//! Files that are truncated while they are mapped. Each test runs itself again in a process of its own, since a mapping that
//! is not guarded would end it.
#![allow(unsafe_code)]

use shared_memory::{MapError, Mapping, Quota};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const INNER: &str = "SHARED_MEMORY_TEST";

/// Runs `body` in a child process; returns how that ended.
fn in_child(test: &str, body: impl FnOnce()) -> Option<std::process::ExitStatus> {
    if std::env::var_os(INNER).is_some_and(|inner| inner == test) {
        body();
        return None;
    }
    let this = std::env::current_exe().expect("the test has a path");
    let mut command = Command::new(this);
    command.args([test, "--exact", "--nocapture"]).env(INNER, test);
    Some(command.status().expect("the child runs"))
}

fn memfd(bytes: u64, flags: libc::c_uint) -> Option<File> {
    // SAFETY: a C string; a file that is ours.
    let file = unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | flags);
        (fd >= 0).then(|| File::from_raw_fd(fd))
    }?;
    file.set_len(bytes).ok()?;
    Some(file)
}

fn map(file: impl AsFd, offset: u64, len: usize) -> Result<Mapping, MapError> {
    Mapping::new(file, offset, len, &Quota::new(1).expect("there are few"))
}

fn survives(file: &File, page: usize) {
    let mapping = map(file, 0, 4 * page).expect("it can be mapped");
    let other = map(memfd(8192, 0).unwrap(), 0, 8192).expect("it can be mapped");
    let all = mapping.all();
    assert!(all.write(0, 1u64) && all.write(3 * page, 2u64));
    assert!(!mapping.is_damaged());
    file.set_len(page as u64).expect("the file shrinks");
    assert_eq!(all.read::<u64>(0), Some(1), "what is left of the file is still there");
    assert!(!mapping.is_damaged());
    assert_eq!(all.read::<u64>(3 * page), Some(0), "what is gone reads as zero");
    assert!(mapping.is_damaged());
    assert!(all.write_bytes(page, &vec![7; 2 * page]), "writing goes on");
    assert_eq!(all.read::<u64>(3 * page - 8), Some(0x0707_0707_0707_0707));
    assert!(other.all().write(0, 5u64) && !other.is_damaged(), "others are not concerned");
}

#[test]
fn a_truncated_memfd_costs_its_mapping_and_nothing_else() {
    let status = in_child("a_truncated_memfd_costs_its_mapping_and_nothing_else", || {
        survives(&memfd(4 * 4096, 0).unwrap(), 4096);
        // Slots are used again.
        (0..5000).for_each(|_| drop(map(memfd(4096, 0).unwrap(), 0, 4096).unwrap()));
        survives(&memfd(4 * 4096, 0).unwrap(), 4096);
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

#[test]
fn a_truncated_file_of_huge_pages_costs_its_mapping_and_nothing_else() {
    let status = in_child("a_truncated_file_of_huge_pages_costs_its_mapping_and_nothing_else", || {
        const PAGE: usize = 2 << 20;
        let file = memfd(4 * PAGE as u64, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB).filter(reserved);
        let Some(file) = file else { return eprintln!("skipped: no huge pages are free") };
        survives(&file, PAGE);
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

/// Whether the kernel sets aside the huge pages of this file; a mapping without a reservation is not refused.
fn reserved(file: &File) -> bool {
    // SAFETY: allocates the file's pages.
    unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 4 * (2 << 20)) == 0 }
}

#[test]
fn damage_on_many_threads_at_once() {
    let status = in_child("damage_on_many_threads_at_once", || {
        let file = memfd(64 * 4096, 0).unwrap();
        let mapping = map(&file, 0, 64 * 4096).unwrap();
        file.set_len(0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..64).for_each(|page| assert!(mapping.all().read::<u64>(page * 4096).is_some())));
            }
        });
        assert!(mapping.is_damaged());
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

/// A fault of somebody else's memory still ends the process as it did before.
#[test]
fn a_fault_elsewhere_still_kills() {
    let status = in_child("a_fault_elsewhere_still_kills", || {
        let _guarded = map(memfd(4096, 0).unwrap(), 0, 4096).unwrap();
        let file = memfd(4096, 0).unwrap();
        // SAFETY: a new mapping, read after its file was truncated: the test is that this ends the process.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            file.set_len(0).unwrap();
            at.cast::<u64>().read_volatile();
        }
    });
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGBUS)), "{status:?}");
}

/// A signal that somebody sends is no fault.
#[test]
fn a_signal_that_is_sent_still_kills() {
    let status = in_child("a_signal_that_is_sent_still_kills", || {
        let _guarded = map(memfd(4096, 0).unwrap(), 0, 4096).unwrap();
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
        std::thread::sleep(std::time::Duration::from_secs(60));
    });
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGBUS)), "{status:?}");
}

/// How many ranges this process has mapped.
fn ranges() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count()
}

/// The finding: each page that was gone cost a signal and a mapping of its own, thousands in a poll, until the process
/// had as many as it may have.
#[test]
fn a_truncated_file_costs_one_replacement_and_not_one_for_each_page() {
    let status = in_child("a_truncated_file_costs_one_replacement_and_not_one_for_each_page", || {
        const PAGES: usize = 1 << 16;
        let files: Vec<File> = (0..4).map(|_| memfd((PAGES * 4096) as u64, 0).unwrap()).collect();
        let mappings: Vec<Mapping> = files.iter().map(|file| map(file, 0, PAGES * 4096).unwrap()).collect();
        let before = ranges();
        for (file, mapping) in files.iter().zip(&mappings) {
            file.set_len(0).unwrap();
            // Every second page: ranges beside each other would be one.
            for page in (0..PAGES).step_by(2) {
                assert_eq!(mapping.all().read::<u64>(page * 4096), Some(0));
            }
            assert!(mapping.is_damaged());
        }
        let more = ranges().saturating_sub(before);
        assert!(more <= 16, "{more} more ranges are mapped");
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

/// The finding: a library that sets its own handler for a while takes this one away for good.
#[test]
fn a_handler_that_somebody_else_sets_does_not_stay_in_front() {
    let status = in_child("a_handler_that_somebody_else_sets_does_not_stay_in_front", || {
        let files = [(); 3].map(|()| memfd(4096, 0).unwrap());
        let mut mappings = vec![map(&files[0], 0, 4096).unwrap()];
        let set_default = || {
            // SAFETY: the default action of a signal is no function.
            unsafe { assert_ne!(libc::signal(libc::SIGBUS, libc::SIG_DFL), libc::SIG_ERR) };
        };
        set_default();
        mappings.push(map(&files[1], 0, 4096).expect("registering puts it back"));
        files[0].set_len(0).unwrap();
        assert_eq!(mappings[0].all().read::<u64>(0), Some(0));
        set_default();
        shared_memory::verify().expect("it can be set");
        files[1].set_len(0).unwrap();
        assert_eq!(mappings[1].all().read::<u64>(0), Some(0));
        assert!(mappings.iter().all(Mapping::is_damaged));
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}
