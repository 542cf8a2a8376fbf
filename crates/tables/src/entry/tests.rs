//! Layout, round trips and recycling.
#![allow(unsafe_code)]

use super::{EntryMemory, EntryWriter, Runs, Source, Tag};
use abi::EntryParts;
use base::Bits;
use base::entry::ActionCall;
use std::ptr;

fn call(action: u32, widths: &[u32], seed: u128) -> ActionCall {
    let args = widths.iter().enumerate().map(|(i, w)| Bits::ones(*w).sub(&Bits::new(*w, seed + i as u128))).collect();
    ActionCall { action, args }
}

#[test]
fn arguments_of_every_width_round_trip() {
    let widths =
        vec![vec![], vec![1, 9, 64], vec![65, 128, 129, 1000], vec![8; 100], vec![17, 25, 33, 48, 56], vec![8; 900]];
    let mut memory = EntryMemory::new(&widths, EntryParts::default());
    for (action, widths) in widths.iter().enumerate() {
        let call = call(action as u32, widths, 5);
        assert!(memory.writer().accepts(&call));
        let entry = memory.make(Runs::Call(&call), Tag::NONE);
        // SAFETY: the entry is live and then freed once.
        unsafe {
            assert_eq!(memory.writer().call(entry), Some(call));
            memory.free(entry);
        }
    }
}

#[test]
fn freed_cells_are_used_again() {
    let mut memory = EntryMemory::new(&[vec![32, 32]], EntryParts::default());
    let call = call(0, &[32, 32], 1);
    let first = memory.make(Runs::Call(&call), Tag::NONE);
    // SAFETY: the entry has no readers.
    unsafe { memory.free(first) };
    assert_eq!(memory.make(Runs::Call(&call), Tag::NONE), first);
}

#[test]
fn entries_have_the_parts_of_their_layout() {
    let groups = [ptr::null(), ptr::without_provenance(64)];
    for bits in 0..32 {
        let has = |i: u32| bits >> i & 1 == 1;
        let parts = EntryParts {
            last_hit: has(0),
            idle_timeout: has(1),
            group: has(2),
            index: has(3),
            source: has(4),
            timer: has(5),
        };
        let mut memory = EntryMemory::new(&[vec![8, 48], vec![]], parts);
        for (i, group) in groups.into_iter().enumerate() {
            let call = call(0, &[8, 48], 3);
            let runs = if i == 0 { Runs::Call(&call) } else { Runs::Group(group) };
            let source = if i == 0 { Source::Member(u32::MAX) } else { Source::Group(7) };
            let tag = Tag { index: 3 + i as u32, last_hit_us: 9 << 40, idle_timeout_ns: 5 << 50, source };
            let entry = memory.make(runs, tag);
            let writer = memory.writer();
            // SAFETY: the entry is live.
            unsafe {
                assert_eq!(writer.call(entry), (i == 0).then_some(call), "{parts:?}");
                assert_eq!(writer.action(entry), if i == 0 { 0 } else { 0xff }, "{parts:?}");
                assert_eq!(writer.group(entry), if parts.group { group } else { ptr::null() }, "{parts:?}");
                assert_eq!(writer.index(entry), if parts.index { tag.index } else { u32::MAX }, "{parts:?}");
                assert_eq!(writer.source(entry), if parts.source { source } else { Source::Call }, "{parts:?}");
                assert_eq!(writer.idle_timeout_ns(entry), if parts.idle_timeout { 5 << 50 } else { 0 }, "{parts:?}");
                assert_eq!(writer.last_hit_us(entry), if parts.last_hit { 9 << 40 } else { 0 }, "{parts:?}");
                writer.hit(entry, 11);
                assert_eq!(writer.last_hit_us(entry), if parts.last_hit { 11 } else { 0 }, "{parts:?}");
                memory.free(entry);
            }
        }
    }
}

#[test]
fn many_actions_have_larger_numbers() {
    let actions = vec![vec![16]; 300];
    let mut memory = EntryMemory::new(&actions, EntryParts::default());
    let call = call(299, &[16], 1);
    let entry = memory.make(Runs::Call(&call), Tag::NONE);
    // SAFETY: the entry is live.
    assert_eq!(unsafe { memory.writer().call(entry) }, Some(call));
    assert_eq!((memory.writer().layout().action_bytes, memory.writer().layout().no_action()), (2, 0xffff));
}

#[test]
fn calls_with_wrong_arguments_are_refused() {
    let memory = EntryWriter::new(&[vec![8]], EntryParts::default());
    assert!(!memory.accepts(&call(1, &[8], 0)));
    assert!(!memory.accepts(&call(0, &[9], 0)));
    assert!(!memory.accepts(&call(0, &[8, 8], 0)));
}
