//! A peer that brings one sparse file after another to a process in a control group with a limit. The kernel ends a process
//! that exceeds it, so the test runs itself again in a process of its own, in a group that it makes and removes.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use shared_memory::{Mapping, Quota};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

const INNER: &str = "SHARED_MEMORY_ROOM_TEST";
const LIMIT: u64 = 256 << 20;
const FILE_BYTES: u64 = 8 << 20;

/// A group of either version that has the memory controller, below those of this process.
struct Group(PathBuf);

impl Group {
    /// None where there is no such controller, or no right.
    fn new() -> Option<Group> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path_of = |controller: &str| {
            let mut groups = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            groups.find_map(|(name, path)| (name == controller).then_some(path))
        };
        let name = format!("sluice-test-{}", std::process::id());
        let tries =
            [("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "", "memory.max")];
        tries.into_iter().find_map(|(mount, controller, limit)| {
            let path = path_of(controller)?;
            // A container's path may be one of outside.
            let folders = [Path::new(mount).join(path.trim_start_matches('/')), mount.into()];
            folders.iter().find_map(|folder| {
                if !folder.join("cgroup.procs").exists() {
                    return None;
                }
                let group = Group(folder.join(&name));
                fs::create_dir(&group.0).ok()?;
                fs::write(group.0.join(limit), LIMIT.to_string()).ok()?;
                Some(group)
            })
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The finding: a page that the switch touches first is charged to it for as long as the peer keeps its file.
#[test]
fn one_sparse_file_after_another_does_not_end_the_process() {
    const NAME: &str = "one_sparse_file_after_another_does_not_end_the_process";
    if let Some(procs) = std::env::var_os(INNER) {
        fs::write(procs, std::process::id().to_string()).expect("the process moves to the group");
        return attack();
    }
    let Some(group) = Group::new() else {
        return eprintln!("skipped: {NAME}: no control group with a limit on memory can be made here");
    };
    let this = std::env::current_exe().expect("the test has a path");
    let mut command = Command::new(this);
    command.args([NAME, "--exact", "--nocapture"]).env(INNER, group.0.join("cgroup.procs"));
    let status = command.status().expect("the child runs");
    assert!(status.success(), "{status:?}");
}

fn attack() {
    let quota = Quota::new(2).expect("room");
    let mut kept: Vec<OwnedFd> = Vec::new();
    let refused = loop {
        assert!((kept.len() as u64) < 2 * LIMIT / FILE_BYTES, "it is never refused");
        let file = memfd_create("sparse", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, FILE_BYTES).expect("it grows");
        match Mapping::new(&file, 0, FILE_BYTES as usize, &quota) {
            Ok(mapping) => (0..FILE_BYTES as usize).step_by(4096).for_each(|at| assert!(mapping.all().write(at, 1u8))),
            Err(refused) => break refused.to_string(),
        }
        kept.push(file);
    };
    assert!(refused.contains("the control group") && refused.contains("MemoryMax="), "{refused}");
    let least = LIMIT / 4 / FILE_BYTES;
    assert!(kept.len() as u64 > least, "refused after {} files: {refused}", kept.len());
    // Another port has room, and so has this one when the peer frees what it kept.
    let other = Quota::new(1).expect("room");
    let file = memfd_create("other", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&file, 8 * FILE_BYTES).expect("it grows");
    drop(Mapping::new(&file, 0, 8 * FILE_BYTES as usize, &other).expect("half of the room is left for others"));
    kept.clear();
    Mapping::new(&file, 0, 8 * FILE_BYTES as usize, &quota).expect("it was freed");
}
