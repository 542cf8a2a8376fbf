//! Each distinct content is stored once, as long as it has users.

use super::SharedEntries;
use crate::entry::{EntryMemory, Runs};
use abi::EntryParts;
use base::Bits;
use base::entry::ActionCall;
use random::Random;
use std::collections::HashMap;

#[test]
fn equal_contents_are_shared() {
    let mut memory = EntryMemory::new(&[vec![], vec![9, 128], vec![300]], EntryParts::default());
    let mut shared = SharedEntries::default();
    let mut users: HashMap<ActionCall, (usize, u32)> = HashMap::new();
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let n = u128::from(random.below(300));
        let call = match random.below(3) {
            0 => ActionCall { action: 0, args: vec![] },
            1 => ActionCall { action: 1, args: vec![Bits::new(9, n), Bits::new(128, n << 64)] },
            _ => ActionCall { action: 2, args: vec![Bits::new(300, n).shl(280)] },
        };
        if random.below(2) == 0 {
            let entry = shared.take(&mut memory, Runs::Call(&call));
            // SAFETY: the entry has a user.
            assert_eq!(unsafe { memory.writer().call(entry) }.as_ref(), Some(&call));
            let (there, count) = users.entry(call).or_insert((entry.addr(), 0));
            assert_eq!(*there, entry.addr());
            *count += 1;
        } else if let Some((address, count)) = users.get_mut(&call) {
            let entry = shared.iter().find(|e| e.addr() == *address).expect("it has users");
            *count -= 1;
            let last = *count == 0;
            assert_eq!(shared.release(&memory, entry), last);
            if last {
                users.remove(&call);
                // SAFETY: the entry has no users.
                unsafe { memory.free(entry) };
            }
        }
        assert_eq!(shared.iter().count(), users.len());
    }
}

#[test]
fn unshared_contents_have_one_user_each() {
    let mut memory = EntryMemory::new(&[vec![64]], EntryParts::default());
    let mut shared = SharedEntries::at_most(2);
    let call = |n: u64| ActionCall { action: 0, args: vec![Bits::new(64, n.into())] };
    let mut take = |memory: &mut EntryMemory, n| shared.take(memory, Runs::Call(&call(n)));
    let [a, b] = [1, 2].map(|n| take(&mut memory, n));
    assert_eq!([1, 2].map(|n| take(&mut memory, n)), [a, b]);
    let [c, d] = [3, 3].map(|n| take(&mut memory, n));
    assert_ne!(c, d);
    assert!(shared.release(&memory, c) && shared.release(&memory, d));
    assert!(!shared.release(&memory, a) && shared.release(&memory, a));
    // One content fits again.
    let [e, f] = [4, 4].map(|n| shared.take(&mut memory, Runs::Call(&call(n))));
    assert_eq!(e, f);
    assert_eq!(shared.iter().count(), 2);
}
