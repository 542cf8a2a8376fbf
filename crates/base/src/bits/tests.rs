//! Every operation of [`Bits`] against integers without a width (`num-bigint`), at widths on both sides of each word
//! boundary. The reference computes the mathematical result and then wraps or clamps it.

use super::*;
use num_integer::Integer;
use proptest::prelude::*;

const WIDTHS: [u32; 16] = [1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 1000];

/// Patterns that exercise carries and signs, and random ones.
fn pattern(width: u32) -> impl Strategy<Value = BigUint> {
    let full = big_mask(width);
    let top = BigUint::one() << (width - 1);
    let bytes = width.div_ceil(8) as usize;
    let random = proptest::collection::vec(any::<u8>(), bytes).prop_map({
        let full = full.clone();
        move |b| BigUint::from_bytes_be(&b) & &full
    });
    prop_oneof![
        1 => Just(BigUint::zero()),
        1 => Just(BigUint::one()),
        1 => Just(full),
        1 => Just(top.clone()),
        1 => Just(top - BigUint::one()),
        8 => random,
    ]
}

/// A width and two patterns of that width.
fn operands() -> impl Strategy<Value = (u32, BigUint, BigUint)> {
    proptest::sample::select(&WIDTHS[..]).prop_flat_map(|w| (Just(w), pattern(w), pattern(w)))
}

/// Shift amounts around the width and far above it.
fn amount(width: u32) -> impl Strategy<Value = u64> {
    let w = u64::from(width);
    prop_oneof![8 => 0..=w + 2, 1 => Just(w), 1 => Just(w - 1), 1 => Just(u64::MAX)]
}

fn modulus(width: u32) -> BigInt {
    BigInt::one() << width
}

fn wrap(width: u32, value: &BigInt) -> BigUint {
    value.mod_floor(&modulus(width)).to_biguint().expect("mod_floor by a positive number is not negative")
}

fn signed(width: u32, pattern: &BigUint) -> BigInt {
    let value = BigInt::from(pattern.clone());
    if pattern.bit(u64::from(width) - 1) { value - modulus(width) } else { value }
}

/// Asserts the width, the value, and the unique representation of a result.
#[track_caller]
fn check(got: &Bits, width: u32, want: &BigInt) {
    assert_eq!(got, &Bits::from_biguint(width, &wrap(width, want)));
    assert_eq!(got.width(), width);
    assert_eq!(BigInt::from(got.to_biguint()), BigInt::from(wrap(width, want)), "value of {got}");
    assert_eq!(matches!(got.value, Value::Small(_)), width <= INLINE_WIDTH, "representation of {got}");
}

proptest! {
    #[test]
    fn arithmetic_wraps((w, x, y) in operands()) {
        let (a, b) = (Bits::from_biguint(w, &x), Bits::from_biguint(w, &y));
        let (x, y) = (BigInt::from(x), BigInt::from(y));
        check(&a.add(&b), w, &(&x + &y));
        check(&a.sub(&b), w, &(&x - &y));
        check(&a.mul(&b), w, &(&x * &y));
        check(&a.neg(), w, &-&x);
        match (a.div_u(&b), a.mod_u(&b)) {
            (Some(quotient), Some(remainder)) => {
                check(&quotient, w, &(&x / &y));
                check(&remainder, w, &(&x % &y));
            }
            (quotient, remainder) => assert!(y.is_zero() && quotient.is_none() && remainder.is_none()),
        }
    }

    #[test]
    fn saturation_stops_at_the_ends((w, x, y) in operands()) {
        let (a, b) = (Bits::from_biguint(w, &x), Bits::from_biguint(w, &y));
        let (sx, sy) = (signed(w, &x), signed(w, &y));
        let (x, y) = (BigInt::from(x), BigInt::from(y));
        let unsigned = |v: BigInt| v.clamp(BigInt::zero(), modulus(w) - 1);
        let two_complement = |v: BigInt| v.clamp(-modulus(w - 1), modulus(w - 1) - 1);
        check(&a.sat_add_u(&b), w, &unsigned(&x + &y));
        check(&a.sat_sub_u(&b), w, &unsigned(&x - &y));
        check(&a.sat_add_s(&b), w, &two_complement(&sx + &sy));
        check(&a.sat_sub_s(&b), w, &two_complement(&sx - &sy));
    }

    #[test]
    fn bitwise_operations_work_bit_by_bit((w, x, y) in operands()) {
        let (a, b) = (Bits::from_biguint(w, &x), Bits::from_biguint(w, &y));
        let (and, or, xor, not) = (a.and(&b), a.or(&b), a.xor(&b), a.not());
        for i in 0..w {
            let (p, q) = (x.bit(u64::from(i)), y.bit(u64::from(i)));
            assert_eq!((a.bit(i), b.bit(i)), (p, q));
            assert_eq!((and.bit(i), or.bit(i), xor.bit(i), not.bit(i)), (p & q, p | q, p ^ q, !p));
        }
        for v in [&a, &and, &or, &xor, &not] {
            assert!(!v.bit(w) && !v.bit(w + 200));
            assert_eq!(v.width(), w);
        }
    }

    #[test]
    fn shifts_take_any_amount((w, x, n) in proptest::sample::select(&WIDTHS[..])
        .prop_flat_map(|w| (Just(w), pattern(w), amount(w))))
    {
        let a = Bits::from_biguint(w, &x);
        let far = n.min(2000);
        check(&a.shl(n), w, &(BigInt::from(x.clone()) << far));
        check(&a.lshr(n), w, &(BigInt::from(x.clone()) >> far));
        // A right shift of a negative BigInt rounds towards minus infinity, as an arithmetic shift does.
        check(&a.ashr(n), w, &(signed(w, &x) >> far));
    }

    #[test]
    fn comparisons_follow_the_reading((w, x, y) in operands()) {
        let (a, b) = (Bits::from_biguint(w, &x), Bits::from_biguint(w, &y));
        let (sx, sy) = (signed(w, &x), signed(w, &y));
        assert_eq!((a.ult(&b), a.ule(&b)), (x < y, x <= y));
        assert_eq!((a.slt(&b), a.sle(&b)), (sx < sy, sx <= sy));
        assert_eq!(a.cmp(&b), x.cmp(&y));
        assert_eq!(a == b, x == y);
    }

    #[test]
    fn concatenation_puts_the_left_operand_on_top((v, x, _) in operands(), (w, y, _) in operands()) {
        let joined = Bits::from_biguint(v, &x).concat(&Bits::from_biguint(w, &y));
        check(&joined, v + w, &((BigInt::from(x.clone()) << w) + BigInt::from(y.clone())));
        assert_eq!(joined.slice(v + w - 1, w), Bits::from_biguint(v, &x));
        assert_eq!(joined.slice(w - 1, 0), Bits::from_biguint(w, &y));
    }

    #[test]
    fn slices_read_and_write((w, x, y) in operands(), i in 0u32..1000, j in 0u32..1000) {
        let (lo, hi) = ((i % w).min(j % w), (i % w).max(j % w));
        let (a, v) = (Bits::from_biguint(w, &x), Bits::from_biguint(hi - lo + 1, &y));
        check(&a.slice(hi, lo), hi - lo + 1, &BigInt::from(x >> lo));
        let written = a.set_slice(hi, lo, &v);
        assert_eq!(written.slice(hi, lo), v);
        for i in (0..w).filter(|i| !(lo..=hi).contains(i)) {
            assert_eq!(written.bit(i), a.bit(i), "bit {i} outside [{hi}:{lo}]");
        }
    }

    #[test]
    fn casts_keep_the_value_or_the_low_bits((w, x, _) in operands(), to in proptest::sample::select(&WIDTHS[..])) {
        let a = Bits::from_biguint(w, &x);
        check(&a.resize_u(to), to, &BigInt::from(x.clone()));
        check(&a.resize_s(to), to, &signed(w, &x));
        if to >= w {
            check(&a.zext(to), to, &BigInt::from(x.clone()));
            check(&a.sext(to), to, &signed(w, &x));
        } else {
            check(&a.trunc(to), to, &BigInt::from(x.clone()));
        }
    }

    #[test]
    fn conversions_round_trip((w, x, y) in operands()) {
        let a = Bits::from_biguint(w, &x);
        assert_eq!(Bits::from_bytes_be(w, &a.to_bytes_be()), a);
        assert_eq!(a.to_bytes_be().len(), w.div_ceil(8) as usize);
        assert_eq!(a.to_bigint_signed(), signed(w, &x));
        assert_eq!(Bits::from_bigint(w, &signed(w, &x)), a);
        assert_eq!(Bits::from_bigint(w, &-BigInt::from(y.clone())), Bits::from_biguint(w, &y).neg());
        assert_eq!((a.to_u64(), a.to_u128(), a.to_i128()), (x.to_u64(), x.to_u128(), signed(w, &x).to_i128()));
        assert_eq!((a.is_zero(), a.is_true()), (x.is_zero(), !x.is_zero()));
        if let Some(v) = x.to_u128() {
            assert_eq!(Bits::new(w, v), a);
        }
        if let Some(v) = a.to_i128() {
            assert_eq!(Bits::from_i128(w, v), a);
        }
    }

    #[test]
    fn text_round_trips((w, x, _) in operands()) {
        let a = Bits::from_biguint(w, &x);
        assert_eq!(a.to_string(), format!("{w}w0x{x:x}"));
        assert_eq!(format!("{a:#}"), format!("0x{x:x}"));
        assert_eq!(a.to_string().parse(), Ok(a.clone()));
        assert_eq!(Bits::parse(&format!("{w}w{x}")), Ok(a));
    }

    #[test]
    fn parsing_never_panics(text in "[0-9a-fA-Fwxob_ +-]{0,12}") {
        if let Ok(value) = Bits::parse(&text) {
            assert_eq!(Bits::parse(&value.to_string()), Ok(value));
        }
    }
}

#[test]
fn wire_bytes_longer_than_the_width_lose_their_high_bits() {
    assert_eq!(Bits::from_bytes_be(9, &[0xff, 0xab, 0xcd]), Bits::new(9, 0x1cd));
    assert_eq!(Bits::from_bytes_be(16, &[0xcd]), Bits::new(16, 0xcd));
    assert_eq!(Bits::from_bytes_be(16, &[]), Bits::zero(16));
    assert_eq!(Bits::from_bytes_be(136, &[0xff; 40]), Bits::ones(136));
}

#[test]
fn a_value_without_bits_is_zero_everywhere() {
    let nothing = Bits::zero(0);
    assert_eq!(Bits::ones(0), nothing);
    assert_eq!(nothing.to_bytes_be(), Vec::<u8>::new());
    for result in [
        nothing.add(&nothing),
        nothing.neg(),
        nothing.not(),
        nothing.sat_add_u(&nothing),
        nothing.sat_add_s(&nothing),
        nothing.sat_sub_s(&nothing),
        nothing.ashr(3),
        nothing.concat(&nothing),
        Bits::from_bytes_be(0, &[7]),
        Bits::new(8, 5).resize_s(0),
    ] {
        assert_eq!(result, nothing);
    }
    assert_eq!(nothing.concat(&Bits::new(128, 5)), Bits::new(128, 5));
    assert_eq!(Bits::new(128, 5).concat(&nothing), Bits::new(128, 5));
    assert_eq!(nothing.sext(200), Bits::zero(200));
    assert!(!nothing.slt(&nothing) && nothing.sle(&nothing));
    assert_eq!(nothing.to_i128(), Some(0));
}

#[test]
fn values_of_different_widths_are_different_and_ordered_by_value() {
    assert_ne!(Bits::new(8, 1), Bits::new(9, 1));
    assert!(Bits::new(8, 1) < Bits::new(9, 1) && Bits::new(200, 1) < Bits::new(8, 2));
    assert!(Bits::ones(128) < Bits::ones(129));
}

#[test]
fn wrong_texts_say_why() {
    for (text, why) in [
        ("", ParseBitsError::Form),
        ("0xff", ParseBitsError::Form),
        ("w1", ParseBitsError::Width),
        ("+8w1", ParseBitsError::Width),
        ("1048577w1", ParseBitsError::Width),
        ("8w", ParseBitsError::Digits),
        ("8w-1", ParseBitsError::Digits),
        ("8w0x", ParseBitsError::Digits),
        ("8w0xfg", ParseBitsError::Digits),
        ("8w0x_f", ParseBitsError::Digits),
        ("8w256", ParseBitsError::Range),
        ("0w1", ParseBitsError::Range),
    ] {
        assert_eq!(Bits::parse(text), Err(why), "{text}");
    }
    assert_eq!(Bits::parse("0w0x0"), Ok(Bits::zero(0)));
    assert_eq!(Bits::parse("16w0b1010_1010"), Ok(Bits::new(16, 0xaa)));
    assert_eq!(Bits::parse("16w0o17"), Ok(Bits::new(16, 15)));
    assert_eq!(Bits::parse("1048576w1").map(|v| v.width()), Ok(MAX_WIDTH));
}

#[test]
#[should_panic(expected = "exceeds 1048576")]
fn a_width_above_the_limit_is_a_bug() {
    let half = Bits::zero(MAX_WIDTH);
    half.concat(&Bits::zero(1));
}
