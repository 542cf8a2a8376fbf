//! Trie lookups: one key, or a batch. [`super::node`] has the layout of the nodes.
//!
//! Threads: any number of readers. Tests: `tests/properties.rs`, `tests/stress.rs`.
#![allow(unsafe_code)]

use super::node::{List, Node, Place, QUARTER_BYTES, TAG_ENTRY, TAG_LIST, TAG_NODE, TAG_SKIP, tag_of, untag};
use super::word::{STRIDE, Word};
use abi::EntryHeader;
use std::ptr;
use std::sync::atomic::Ordering;

/// Looks `key` up from a place's content, which is that of the key's first `depth` bits: the entry of the longest
/// matching prefix, or `best` if none matches.
///
/// # Safety
/// The content belongs to a trie of this `T`, and nothing that was linked at or after the caller's last quiescent point
/// has been freed.
#[inline(always)]
pub unsafe fn walk<T: Word>(content: *mut u8, key: T, depth: u32, best: *mut EntryHeader) -> *mut EntryHeader {
    let (mut content, mut depth, mut best) = (content, depth, best);
    loop {
        match tag_of(content) {
            TAG_ENTRY => return if content.is_null() { best } else { content.cast() },
            TAG_NODE => {
                // SAFETY: the tag says what is there; linked memory outlives the caller's batch.
                let (base, place) = unsafe { Node::<T>::step(untag(content), key.octet(depth), best) };
                (content, best) = (place.load(Ordering::Acquire), base);
                depth += STRIDE;
            }
            // SAFETY: as above.
            TAG_LIST => return unsafe { List::<T>::find(untag(content), key, best) },
            _ => {
                // SAFETY: as above.
                unsafe {
                    let node = untag::<Node<T>>(content);
                    let (base, place) = Node::step(node, key.octet((*node).depth), best);
                    if !key.agrees((*node).value, (*node).depth) {
                        return base;
                    }
                    (content, best) = (place.load(Ordering::Acquire), base);
                    depth = (*node).depth + STRIDE;
                }
            }
        }
    }
}

/// The most keys of a batch.
pub const BATCH: usize = 32;

/// Looks several keys up, from the contents of places of depth `depth`; `result` holds the best entries so far and, at
/// the end, the results. Each step prefetches the memory of the next one for all keys before it reads any.
///
/// # Safety
/// As [`walk`] for each key.
#[inline(always)]
pub unsafe fn walk_batch<T: Word>(keys: &[T], contents: &mut [*mut u8], depth: u32, result: &mut [*const EntryHeader]) {
    #[derive(Clone, Copy)]
    struct Walk {
        depth: u32,
        key: u8,
    }
    let count = keys.len();
    debug_assert!(count <= BATCH && contents.len() == count && result.len() == count);
    let mut walks = [Walk { depth: 0, key: 0 }; BATCH];
    let mut running = 0;
    for i in 0..count {
        walks[running] = Walk { depth, key: i as u8 };
        running += usize::from(settle(contents[i], &mut result[i]));
        prefetch_step(contents[i], keys[i], depth);
    }
    let mut places = [ptr::null::<Place>(); BATCH];
    while running > 0 {
        // From nodes to places: read the quarters, prefetch the places.
        let mut kept = 0;
        for w in 0..running {
            let Walk { mut depth, key } = walks[w];
            let i = usize::from(key);
            let content = contents[i];
            // SAFETY: the tag says what is there; linked memory outlives the caller's batch.
            unsafe {
                if tag_of(content) == TAG_LIST {
                    result[i] = List::<T>::find(untag(content), keys[i], result[i].cast_mut());
                    continue;
                }
                let node = untag::<Node<T>>(content);
                let skips = tag_of(content) == TAG_SKIP;
                if skips {
                    depth = (*node).depth;
                }
                let (base, place) = Node::step(node, keys[i].octet(depth), result[i].cast_mut());
                result[i] = base;
                if skips && !keys[i].agrees((*node).value, depth) {
                    continue;
                }
                prefetch(ptr::from_ref(place).cast());
                places[kept] = place;
                walks[kept] = Walk { depth: depth + STRIDE, key };
                kept += 1;
            }
        }
        // From places to the next nodes.
        running = 0;
        for w in 0..kept {
            let Walk { depth, key } = walks[w];
            let i = usize::from(key);
            // SAFETY: a place of a node that is alive.
            let content = unsafe { (*places[w]).load(Ordering::Acquire) };
            contents[i] = content;
            walks[running] = walks[w];
            if settle(content, &mut result[i]) {
                running += 1;
                prefetch_step(content, keys[i], depth);
            }
        }
    }
}

/// Takes an entry as the result. Returns false if the lookup ends at this content (an entry or null), true if it
/// continues.
#[inline(always)]
fn settle(content: *mut u8, result: &mut *const EntryHeader) -> bool {
    let is_entry = tag_of(content) == TAG_ENTRY;
    *result = if is_entry && !content.is_null() { content.cast_const().cast() } else { *result };
    !is_entry
}

/// Prefetches the cache line that the next step of a lookup reads first.
#[inline(always)]
fn prefetch_step<T: Word>(content: *mut u8, key: T, depth: u32) {
    let quarter = if tag_of(content) == TAG_NODE { key.octet(depth) >> 6 } else { 0 };
    prefetch(untag::<u8>(content).wrapping_add(quarter * QUARTER_BYTES));
}

/// Prefetches a cache line.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
