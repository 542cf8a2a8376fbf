//! The index compared with `std::collections::HashMap`, with few hash values so that clusters form and wrap.

use super::Index;
use proptest::prelude::*;
use std::collections::HashMap;

proptest! {
    #[test]
    fn agrees_with_a_map(ops in prop::collection::vec((any::<bool>(), 0u32..60), 0..400)) {
        // A key's position is the key plus 100.
        let hash = |key: u32| key % 7 * 0x1001_1000 + 13;
        let mut index = Index::default();
        let mut map: HashMap<u32, u32> = HashMap::new();
        for (insert, key) in ops {
            if insert && !map.contains_key(&key) {
                if index.is_crowded(key + 100) {
                    index.grow(key + 100, map.iter().map(|(key, position)| (hash(*key), *position)));
                }
                index.insert(hash(key), key + 100);
                map.insert(key, key + 100);
            } else if !insert {
                index.remove(hash(key), |position| position == key + 100, |position| hash(position - 100));
                map.remove(&key);
            }
            for key in 0..60 {
                prop_assert_eq!(index.find(hash(key), |p| p == key + 100), map.get(&key).copied());
            }
        }
    }
}
