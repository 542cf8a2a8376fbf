//! Memory limits and usage of the process: of its control groups (version 2 or 1) and of the machine.
//!
//! A group is looked up where the kernel has it mounted, since a container sees its groups
//! elsewhere. A figure that cannot be read sets no limit. The page cache of files counts as free:
//! the kernel reclaims it before it kills a process.

use std::path::{Path, PathBuf};

/// Limits from here on mean no limit: version 1 reports 2^63 less a page.
const UNLIMITED: u64 = 1 << 62;

/// Memory figures in bytes, and the number of processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The limited control groups that contain the process, innermost first.
    pub groups: Vec<Group>,
    /// Shared memory (memfds, tmpfs) charged to the innermost group that has the
    /// controller; the machine's if no group tells.
    pub shared: u64,
    /// The machine's total memory, and how much is available without swapping.
    pub host: Option<(u64, u64)>,
    /// Number of processors.
    pub processors: u64,
}

/// A control group with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Path of the group.
    pub name: String,
    /// Memory limit.
    pub limit: u64,
    /// Memory charged to it, without the page cache of files.
    pub used: u64,
}

/// A control group hierarchy: where it is mounted and how its files are named.
struct Hierarchy {
    mount: PathBuf,
    /// Path of the process's group, relative to the mount.
    path: PathBuf,
    limit: &'static str,
    used: &'static str,
    /// Prefix of the names of figures that include child groups.
    prefix: &'static str,
}

impl Reading {
    /// The process's current figures.
    pub fn now() -> Reading {
        Reading::of(&|path| std::fs::read_to_string(path).ok())
    }

    /// The most memory that the process may have: the minimum of its groups' limits and of the machine's memory. `None`
    /// if the system does not tell.
    pub fn limit(&self) -> Option<u64> {
        let machine = self.host.map(|(total, _)| total);
        self.groups.iter().map(|group| group.limit).chain(machine).min()
    }

    /// The figures, where `read` returns the contents of the system's files.
    pub(super) fn of(read: &dyn Fn(&Path) -> Option<String>) -> Reading {
        let text = |path: &str| read(Path::new(path)).unwrap_or_default();
        let machine = text("/proc/meminfo");
        let kb = |name: &str| figure(&machine, name).map(|kb| kb << 10);
        let host = kb("MemTotal:").zip(kb("MemAvailable:"));
        let mut charged = None;
        let mut groups = Vec::new();
        if let Some(hierarchy) = hierarchy(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"), read) {
            let Hierarchy { mount, path, limit, used, prefix } = &hierarchy;
            for group in path.ancestors() {
                let file = |name: &str| read(&mount.join(group).join(name)).unwrap_or_default();
                let stat = file("memory.stat");
                let figure = |name: &str| figure(&stat, &format!("{prefix}{name}"));
                charged = charged.or_else(|| figure("shmem"));
                let limit = file(limit).trim().parse().ok().filter(|limit| *limit < UNLIMITED);
                if let (Some(limit), Ok(used)) = (limit, file(used).trim().parse::<u64>()) {
                    let cache = figure("active_file").unwrap_or(0) + figure("inactive_file").unwrap_or(0);
                    let name = Path::new("/").join(group).display().to_string();
                    groups.push(Group { name, limit, used: used.saturating_sub(cache) });
                }
            }
        }
        let shared = charged.or_else(|| kb("Shmem:")).unwrap_or(0);
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Reading { groups, shared, host, processors }
    }
}

/// The number after a name at the start of a line.
fn figure(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_ascii_whitespace);
    words.find_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok())?)
}

/// The hierarchy with the memory controller.
fn hierarchy(own: &str, mounts: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<Hierarchy> {
    // Version 1: `4:memory:/path`. Version 2: `0::/path`.
    let path_of = |is_it: &dyn Fn(&str) -> bool| {
        own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            is_it(controllers).then(|| PathBuf::from(path))
        })
    };
    let has_memory = |list: &str| list.split(',').any(|word| word == "memory");
    // `31 23 0:28 ROOT MOUNT OPTIONS ... - TYPE SOURCE OPTIONS`
    let mount_of = |kind: &str, is_it: &dyn Fn(&str) -> bool| {
        mounts.lines().find_map(|line| {
            let (place, what) = line.split_once(" - ")?;
            let mut what = what.split(' ');
            let is_kind = what.next()? == kind && is_it(what.nth(1)?);
            let mut place = place.split(' ').skip(3);
            is_kind.then(|| Some((PathBuf::from(place.next()?), PathBuf::from(place.next()?))))?
        })
    };
    // The path is relative to the hierarchy's root, of which the mount may show only a part.
    let below = |path: PathBuf, root: &Path| {
        let path = path.strip_prefix(root).or_else(|_| path.strip_prefix("/"));
        path.map(Path::to_path_buf).unwrap_or_default()
    };
    if let Some((path, (root, mount))) = path_of(&has_memory).zip(mount_of("cgroup", &has_memory)) {
        let (limit, used) = ("memory.limit_in_bytes", "memory.usage_in_bytes");
        return Some(Hierarchy { path: below(path, &root), mount, limit, used, prefix: "total_" });
    }
    let (path, (root, mount)) = path_of(&str::is_empty).zip(mount_of("cgroup2", &|_| true))?;
    let path = below(path, &root);
    // The innermost groups may lack the controller, while groups around them have limits.
    path.ancestors().find_map(|group| read(&mount.join(group).join("memory.stat")))?;
    Some(Hierarchy { path, mount, limit: "memory.max", used: "memory.current", prefix: "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) =
        ("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\nShmem:   70 kB\n");

    fn reading(files: &[(&str, &str)]) -> Reading {
        let find =
            |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| text.to_string());
        Reading { processors: 0, ..Reading::of(&find) }
    }

    fn group(name: &str, limit: u64, used: u64) -> Group {
        Group { name: name.into(), limit, used }
    }

    #[test]
    fn of_a_service_and_its_slice() {
        let found = reading(&[
            MACHINE,
            ("/proc/self/cgroup", "0::/system.slice/sluice.service\n"),
            (
                "/proc/self/mountinfo",
                "24 1 0:5 / /sys rw - sysfs sysfs rw\n31 24 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
            ),
            ("/sys/fs/cgroup/system.slice/sluice.service/memory.max", "500000\n"),
            ("/sys/fs/cgroup/system.slice/sluice.service/memory.current", "300000\n"),
            (
                "/sys/fs/cgroup/system.slice/sluice.service/memory.stat",
                "anon 1\nfile 9\nshmem 40000\ninactive_file 7000\nactive_file 3000\n",
            ),
            ("/sys/fs/cgroup/system.slice/memory.max", "max\n"),
            ("/sys/fs/cgroup/memory.max", "900000\n"),
            ("/sys/fs/cgroup/memory.current", "800000\n"),
        ]);
        let groups = vec![group("/system.slice/sluice.service", 500_000, 290_000), group("/", 900_000, 800_000)];
        assert_eq!(found, Reading { groups, shared: 40_000, host: Some((1_024_000, 614_400)), processors: 0 });
    }

    #[test]
    fn of_groups_without_the_controller_in_a_group_with_a_limit() {
        let found = reading(&[
            MACHINE,
            ("/proc/self/cgroup", "0::/machine.slice/box/app\n"),
            ("/proc/self/mountinfo", "31 24 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("/sys/fs/cgroup/machine.slice/memory.max", "700000\n"),
            ("/sys/fs/cgroup/machine.slice/memory.current", "100000\n"),
            ("/sys/fs/cgroup/machine.slice/memory.stat", "shmem 30000\n"),
            ("/sys/fs/cgroup/memory.stat", "shmem 50000\n"),
        ]);
        assert_eq!((&*found.groups, found.shared), (&[group("/machine.slice", 700_000, 100_000)][..], 30_000));
    }

    #[test]
    fn the_least_limit_of_all_around_the_process_is_its_limit() {
        let with = |groups: Vec<Group>| Reading { groups, host: Some((1000, 1)), ..Reading::default() };
        assert_eq!(Reading::default().limit(), None);
        assert_eq!(with(vec![]).limit(), Some(1000));
        assert_eq!(with(vec![group("/a/b", 500, 0), group("/a", 300, 0), group("/", 2000, 0)]).limit(), Some(300));
    }

    #[test]
    fn of_version_1_in_a_container_that_sees_a_part_of_the_hierarchy() {
        let files = [
            MACHINE,
            ("/proc/self/cgroup", "5:cpu:/\n4:memory,hugetlb:/docker/abc/inner\n0::/\n"),
            (
                "/proc/self/mountinfo",
                "32 31 0:29 / /cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 /docker/abc /groups/memory rw - cgroup cgroup rw,memory,hugetlb\n36 31 0:33 / /unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("/groups/memory/inner/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/groups/memory/inner/memory.stat", "shmem 1\ntotal_shmem 20\n"),
            ("/groups/memory/memory.limit_in_bytes", "5000\n"),
            ("/groups/memory/memory.usage_in_bytes", "4000\n"),
            ("/groups/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n"),
        ];
        let found = reading(&files);
        assert_eq!((found.groups, found.shared), (vec![group("/", 5000, 3900)], 20));
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        assert_eq!(reading(&[]), Reading::default());
        let found =
            reading(&[MACHINE, ("/proc/self/cgroup", "0::/\n"), ("/proc/self/mountinfo", "no mounts - \n - \n\n")]);
        assert_eq!((found.groups, found.shared), (vec![], 71_680));
    }

    #[test]
    fn of_this_process() {
        let reading = Reading::now();
        assert!(reading.host.is_some_and(|(total, available)| available > 0 && available <= total), "{reading:?}");
    }
}
