//! Memory of the process as a whole: returning and measuring it.
#![allow(unsafe_code)]

use libmimalloc_sys::mi_collect;

/// Returns freed memory to the system, in as few pieces as possible.
pub fn give_back() {
    // SAFETY: it returns only memory that is free.
    unsafe { mi_collect(true) };
}

/// Resident bytes of this process, shared pages included; 0 if unknown.
pub fn resident_bytes() -> u64 {
    statm_bytes()[0]
}

/// Resident bytes of this process, and how many of them are files or shared (`proc(5)`, `statm`); zeros if unknown.
pub(super) fn statm_bytes() -> [u64; 2] {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let field = |at| pages.split(' ').nth(at).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    [field(1), field(2)].map(|pages| pages * rustix::param::page_size() as u64)
}
