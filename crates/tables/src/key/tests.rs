//! Packing is reversible and canonical, and refuses keys that do not fit the table.

use super::KeyShape;
use super::compact::CompactForm;
use base::Bits;
use base::entry::{KeyMatch, MatchKind};

fn bits(width: u32, value: u128) -> Bits {
    Bits::new(width, value)
}

#[test]
fn every_kind_round_trips() {
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
    let form = CompactForm::new(&shape);
    assert_eq!(form.bytes(), 2 + (4 + 1) + (6 + 6) + (2 + 2) + (1 + 1) + (1 + 1) + (25 + 25));
    let (mut compact, mut expanded) = (vec![0; form.bytes()], vec![u64::MAX; packed.len()]);
    form.compact(&packed, &mut compact);
    form.expand(&compact, &mut expanded);
    assert_eq!(expanded, packed);
}

#[test]
fn compact_prefixes_of_every_length_round_trip() {
    for width in [1, 7, 8, 9, 32, 33, 64, 65, 128, 200, 300] {
        let shape = KeyShape::new(&[(3, MatchKind::Exact), (width, MatchKind::Lpm), (5, MatchKind::Exact)]);
        let form = CompactForm::new(&shape);
        for prefix_len in 0..=width {
            let value = Bits::ones(width).shl(u64::from(width - prefix_len));
            let key = [
                KeyMatch::Exact(bits(3, 5)),
                KeyMatch::Lpm { value: value.clone(), prefix_len },
                KeyMatch::Exact(bits(5, 9)),
            ];
            let mut packed = vec![0; shape.packed_words()];
            assert!(shape.pack(&key, &mut packed));
            let (mut compact, mut expanded) = (vec![0; form.bytes()], vec![u64::MAX; packed.len()]);
            form.compact(&packed, &mut compact);
            form.expand(&compact, &mut expanded);
            assert_eq!(expanded, packed, "width {width}, length {prefix_len}");
        }
    }
}

#[test]
fn an_exact_value_is_accepted_for_any_match_kind() {
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
fn keys_of_another_layout_are_refused() {
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
