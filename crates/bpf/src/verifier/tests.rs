//! Abstract operations contain the results of the interpreter's operations.

use super::scalar::Scalar;
use super::tnum::Tnum;
use crate::alu;
use crate::instruction::{Alu, Condition};
use random::Random;

/// Random numbers, often near boundaries.
fn number(random: &mut Random) -> u64 {
    let near =
        [0, 1, 31, 32, 63, 64, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX];
    let offset = random.below(9).wrapping_sub(4);
    match random.below(4) {
        0 => random.next_u64(),
        1 => random.next_u64() >> random.below(64),
        _ => random.pick(&near).wrapping_add(offset),
    }
}

/// A random set, and numbers in it.
fn set(random: &mut Random) -> (Scalar, Vec<u64>) {
    let first = number(random);
    let mut numbers = vec![first];
    for _ in 0..random.below(4) {
        numbers.push(match random.one_in(2) {
            true => first.wrapping_add(random.below(40)),
            false => number(random),
        });
    }
    let set = Scalar::around(&numbers);
    assert!(numbers.iter().all(|n| set.has(*n)), "{set:?} {numbers:x?}");
    (set, numbers)
}

#[test]
fn arithmetic_contains_every_result() {
    let mut random = Random::new(1);
    for _ in 0..400_000 {
        let ((a, xs), (b, ys)) = (set(&mut random), set(&mut random));
        let (op, wide) = (*random.pick(&Alu::ALL), random.one_in(2));
        let result = Scalar::compute(op, wide, a, b);
        for x in &xs {
            for y in &ys {
                let exact = alu::compute(op, wide, *x, *y);
                assert!(result.has(exact), "{x:#x} {op:?} {y:#x} = {exact:#x}, wide {wide}, not in {result:x?}");
            }
            assert!(Scalar::negated(wide, a).has(alu::negate(wide, *x)));
            for bits in [16, 32, 64] {
                assert!(Scalar::swapped(true, bits, a).has(alu::swap(true, bits, *x)));
                assert!(Scalar::swapped(false, bits, a).has(alu::swap(false, bits, *x)));
            }
        }
    }
}

#[test]
fn refinement_keeps_every_number_that_satisfies_the_condition() {
    let mut random = Random::new(2);
    for _ in 0..400_000 {
        let ((a, xs), (b, ys)) = (set(&mut random), set(&mut random));
        let (condition, wide) = (*random.pick(&Condition::ALL), random.one_in(2));
        let yes = Scalar::refine(condition, wide, a, b);
        let no = Scalar::refine_not(condition, wide, a, b);
        for x in &xs {
            for y in &ys {
                let kept = if alu::holds(condition, wide, *x, *y) { &yes } else { &no };
                let kept = kept.as_ref().is_some_and(|(a, b)| a.has(*x) && b.has(*y));
                assert!(kept, "{x:#x} {condition:?} {y:#x}, wide {wide}: {yes:x?} {no:x?}");
            }
        }
    }
}

#[test]
fn refinement_is_sharp() {
    let byte = Scalar::of_bytes(1);
    let (below, _) = Scalar::refine(Condition::Lt, true, byte, Scalar::of(10)).expect("possible");
    assert_eq!((below.umin, below.umax, below.bits.mask), (0, 9, 15));
    assert!(Scalar::refine(Condition::Gt, true, byte, Scalar::of(255)).is_none());
    assert!(Scalar::refine_not(Condition::Le, false, byte, Scalar::of(255)).is_none());
    let (positive, _) = Scalar::refine(Condition::SGt, true, Scalar::UNKNOWN, Scalar::of(u64::MAX)).expect("possible");
    assert_eq!((positive.smin, positive.umax), (0, i64::MAX as u64));
    let multiple = Scalar::compute(Alu::Lsh, true, byte, Scalar::of(2));
    assert_eq!((multiple.umax, multiple.bits), (1020, Tnum { value: 0, mask: 0x3fc }));
}

#[test]
fn covering_is_containment() {
    let mut random = Random::new(3);
    for _ in 0..100_000 {
        let ((a, _), (b, numbers)) = (set(&mut random), set(&mut random));
        if a.contains(&b) {
            assert!(numbers.iter().all(|n| a.has(*n)));
        }
        assert!(a.contains(&a));
    }
}
