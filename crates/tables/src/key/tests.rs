//! Packing is reversible, canonical, and refuses what is no key of the table.

use super::KeyShape;
use base::Bits;
use base::entry::{KeyMatch, MatchKind};

fn bits(width: u32, value: u128) -> Bits {
    Bits::new(width, value)
}

#[test]
fn every_kind_comes_back() {
    let shape = KeyShape::new(&[
        (9, MatchKind::Exact),
        (32, MatchKind::Lpm),
        (48, MatchKind::Ternary),
        (16, MatchKind::Range),
        (8, MatchKind::Optional),
        (8, MatchKind::Optional),
        (200, MatchKind::Ternary),
    ]);
    let key = vec![
        KeyMatch::Exact(bits(9, 0x1ff)),
        KeyMatch::Lpm { value: bits(32, 0x0a00_0000), prefix_len: 7 },
        KeyMatch::Ternary { value: bits(48, 0x8000_0000_0001), mask: bits(48, 0x8000_0000_0001) },
        KeyMatch::Range { low: bits(16, 80), high: bits(16, 0xffff) },
        KeyMatch::Optional(None),
        KeyMatch::Optional(Some(bits(8, 6))),
        KeyMatch::Ternary { value: Bits::ones(200), mask: Bits::ones(200) },
    ];
    let mut packed = vec![0; shape.packed_words()];
    assert!(shape.pack(&key, &mut packed));
    assert_eq!(shape.unpack(&packed), key);
}

#[test]
fn an_exact_value_stands_for_any_kind() {
    let shape = KeyShape::new(&[(8, MatchKind::Lpm), (8, MatchKind::Range)]);
    let mut exact = vec![0; shape.packed_words()];
    let mut own = exact.clone();
    assert!(shape.pack(&[KeyMatch::Exact(bits(8, 3)), KeyMatch::Exact(bits(8, 4))], &mut exact));
    let key =
        [KeyMatch::Lpm { value: bits(8, 3), prefix_len: 8 }, KeyMatch::Range { low: bits(8, 4), high: bits(8, 4) }];
    assert!(shape.pack(&key, &mut own));
    assert_eq!(exact, own);
}

#[test]
fn what_is_no_key_of_the_table_is_refused() {
    let shape = KeyShape::new(&[(8, MatchKind::Lpm)]);
    let mut packed = vec![0; shape.packed_words()];
    let lpm = |width, prefix_len| KeyMatch::Lpm { value: bits(width, 0), prefix_len };
    assert!(shape.pack(&[lpm(8, 8)], &mut packed));
    assert!(!shape.pack(&[], &mut packed), "too few fields");
    assert!(!shape.pack(&[lpm(8, 8), lpm(8, 8)], &mut packed), "too many fields");
    assert!(!shape.pack(&[lpm(9, 8)], &mut packed), "wrong width");
    assert!(!shape.pack(&[lpm(8, 9)], &mut packed), "prefix too long");
    assert!(!shape.pack(&[KeyMatch::Optional(None)], &mut packed), "wrong kind");
}
