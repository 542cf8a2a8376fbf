//! Layout, round trips and recycling.
#![allow(unsafe_code)]

use super::{EntryMemory, NO_ACTION, Runs, Tag};
use base::Bits;
use base::entry::ActionCall;
use std::ptr;

fn call(action: u32, widths: &[u32], seed: u128) -> ActionCall {
    let args = widths.iter().enumerate().map(|(i, w)| Bits::ones(*w).sub(&Bits::new(*w, seed + i as u128))).collect();
    ActionCall { action, args }
}

#[test]
fn arguments_of_every_width_come_back() {
    let widths = vec![vec![], vec![1, 9, 64], vec![65, 128, 129, 1000], vec![8; 100]];
    let mut memory = EntryMemory::new(&widths);
    for (action, widths) in widths.iter().enumerate() {
        let call = call(action as u32, widths, 5);
        assert!(memory.accepts(&call));
        let entry = memory.make(Runs::Call(&call), Tag::NONE);
        // SAFETY: the entry is live and then freed once.
        unsafe {
            assert_eq!(memory.call(entry), Some(call));
            assert!(entry.addr().is_multiple_of(64) || memory.cell_of(action as u32) == 32);
            memory.free(entry);
        }
    }
}

#[test]
fn freed_cells_are_used_again() {
    let mut memory = EntryMemory::new(&[vec![32, 32]]);
    let call = call(0, &[32, 32], 1);
    let first = memory.make(Runs::Call(&call), Tag::NONE);
    // SAFETY: nobody reads the entry.
    unsafe { memory.free(first) };
    assert_eq!(memory.make(Runs::Call(&call), Tag::NONE), first);
}

#[test]
fn group_entries_have_no_call() {
    let mut memory = EntryMemory::new(&[vec![8]]);
    let group = ptr::without_provenance(64);
    let entry = memory.make(Runs::Group(group), Tag { index: 3, touch: true, last_hit_us: 9 });
    // SAFETY: the entry is live.
    unsafe {
        assert_eq!(memory.call(entry), None);
        assert_eq!(((*entry).action, (*entry).index, (*entry).group, (*entry).flags), (NO_ACTION, 3, group, 1));
        assert_eq!(super::last_hit_us(entry), 9);
    }
}

#[test]
fn calls_of_the_wrong_shape_are_not_accepted() {
    let memory = EntryMemory::new(&[vec![8]]);
    assert!(!memory.accepts(&call(1, &[8], 0)));
    assert!(!memory.accepts(&call(0, &[9], 0)));
    assert!(!memory.accepts(&call(0, &[8, 8], 0)));
}
