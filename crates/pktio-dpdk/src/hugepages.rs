//! How much memory the kernel can give in hugepages, from sysfs.

use std::fs;
use std::path::Path;

/// Where the kernel lists its page sizes.
const SYSFS: &str = "/sys/kernel/mm/hugepages";

/// Bytes in hugepages of all sizes that nobody uses.
pub(crate) fn free_bytes() -> u64 {
    free_bytes_in(Path::new(SYSFS))
}

fn free_bytes_in(folder: &Path) -> u64 {
    let Ok(sizes) = fs::read_dir(folder) else { return 0 };
    sizes
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let size_kb: u64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let free: u64 = fs::read_to_string(entry.path().join("free_hugepages")).ok()?.trim().parse().ok()?;
            Some(free * size_kb * 1024)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::free_bytes_in;
    use std::fs;

    #[test]
    fn all_page_sizes_add_up_and_odd_entries_do_not_count() {
        let folder = std::env::temp_dir().join(format!("pktio-dpdk-hugepages-{}", std::process::id()));
        for (name, free) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "1\n"), ("other", "9\n")] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("free_hugepages"), free).unwrap();
        }
        assert_eq!(free_bytes_in(&folder), (3 << 21) + (1 << 30));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(free_bytes_in(&folder), 0);
    }
}
