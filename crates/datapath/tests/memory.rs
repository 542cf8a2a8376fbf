//! Freed memory stays with the process until it is returned explicitly. A process of its own, since memory of other
//! tests would be measured, too.
#![allow(unsafe_code)]

use datapath::memory::{KEPT_MS, PURGE_DELAY, give_back, keep_freed, resident_bytes, returning};
use libmimalloc_sys::{mi_free, mi_malloc, mi_option_get};

fn purge_delay_ms() -> std::ffi::c_long {
    // SAFETY: reads an option.
    unsafe { mi_option_get(PURGE_DELAY) }
}

fn resident_mb() -> u64 {
    resident_bytes() >> 20
}

/// Allocates `mb` megabytes in small pieces, writes to them and frees them.
fn use_memory(mb: usize) {
    const PIECE: usize = 4000;
    // SAFETY: each piece is written where it is, and freed once.
    unsafe {
        let pieces: Vec<_> = (0..(mb << 20) / PIECE).map(|_| mi_malloc(PIECE)).collect();
        pieces.iter().for_each(|piece| piece.cast::<u8>().write_bytes(1, PIECE));
        pieces.into_iter().for_each(|piece| mi_free(piece));
    }
}

#[test]
fn freed_memory_is_kept_until_it_is_given_back() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    // mimalloc may renumber its options: the default value (of version 2 or 3) shows that it is the right one.
    assert!([10, 1000].contains(&purge_delay_ms()), "{}", purge_delay_ms());
    keep_freed();
    assert_eq!(purge_delay_ms(), KEPT_MS);
    let before = resident_mb();
    returning(|| use_memory(200));
    let after = resident_mb();
    assert!(after < before + 60, "{after} MB after it, {before} before");
    use_memory(200);
    let kept = resident_mb();
    assert!(kept > before + 140, "{kept} MB are kept, {before} before");
    give_back();
    let after = resident_mb();
    assert!(after < before + 60, "{after} MB when it was given back, {before} before");
}
