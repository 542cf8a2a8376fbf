//! Hashes against published values and the oracle's; messages, wide values, headroom.
#![allow(unsafe_code)]

use super::{CALLS, DIGESTS_MAX, LOG_LINES_MAX, LOG_LINES_PER_SECOND, LogRecord, Messages, WorkerRuntime, hash};
use abi::packet::PacketDesc;
use abi::state::{CrcParameters, DigestMessage, HashParameters, TOEPLITZ_KEY_MAX};
use abi::{StateError, WorkerCtx};
use base::Bits;
use base::ids::ExternId;
use ir::{BinOp, Calculated, Calculation, HashAlgorithm, Program};
use std::ptr;
use std::sync::Arc;

const ALGORITHMS: [HashAlgorithm; 13] = [
    HashAlgorithm::Crc32,
    HashAlgorithm::Crc32Custom,
    HashAlgorithm::Crc16,
    HashAlgorithm::Crc16Custom,
    HashAlgorithm::CrcCcitt,
    HashAlgorithm::Identity,
    HashAlgorithm::Csum16,
    HashAlgorithm::Xor16,
    HashAlgorithm::Xor32,
    HashAlgorithm::Crc8,
    HashAlgorithm::Crc64,
    HashAlgorithm::Xxh64,
    HashAlgorithm::HashEx,
];

/// A worker's context on a program with one digest of 9 and 100 bits.
struct World {
    runtime: WorkerRuntime,
    messages: Arc<Messages>,
}

impl World {
    fn new() -> World {
        let fields = vec![("a".to_string(), 9), ("b".to_string(), 100)];
        let digest = ir::Extern {
            name: "learn".to_string(),
            span: base::Span::default(),
            kind: ir::ExternKind::Digest { fields },
        };
        let messages = Arc::new(Messages::new(&Program { externs: vec![digest], ..Program::default() }));
        World {
            runtime: WorkerRuntime::new(
                7,
                vec![None],
                Arc::new(hash::Parametric::new(&[], None)),
                Arc::clone(&messages),
            ),
            messages,
        }
    }

    fn with<R>(&mut self, f: impl FnOnce(*const WorkerCtx) -> R) -> R {
        let mut place = 0;
        let ctx = WorkerCtx {
            counters: ptr::null(),
            table_counters: ptr::null_mut(),
            runtime: (&raw mut self.runtime).cast(),
            worker: 0,
            flags: 0,
            place: &raw mut place,
        };
        let result = f(&ctx);
        self.runtime.settle();
        result
    }
}

#[test]
fn published_check_values() {
    let of = |algorithm: HashAlgorithm, bytes: &[u8]| {
        hash::hash(algorithm.code(), bytes, &[]).expect("a function of the data")
    };
    assert_eq!(of(HashAlgorithm::Crc32, b"123456789"), 0xcbf4_3926);
    assert_eq!(of(HashAlgorithm::Crc16, b"123456789"), 0xbb3d);
    assert_eq!(of(HashAlgorithm::Csum16, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
    assert_eq!(hash::hash(HashAlgorithm::Random.code(), &[], &[]), None);
}

#[test]
fn hashes_are_the_oracles() {
    let bytes: Vec<u8> = (0..200u32).map(|i| (i * i * 37 + i * 11 + 5) as u8).collect();
    for algorithm in ALGORITHMS {
        for bits in [0, 1, 7, 8, 9, 16, 63, 64, 65, 72, 104, 128, 136, 293, 512] {
            for payload in [0usize, 1, 2, 7, 8, 33] {
                let data = Bits::from_bytes_be(512, &bytes[..64]).resize_u(bits);
                let padded = data.concat(&Bits::zero(bits.next_multiple_of(8) - bits)).to_bytes_be();
                let payload = &bytes[100..100 + payload];
                let expected = interp::hash::hash(algorithm, &data, payload);
                assert_eq!(
                    hash::hash(algorithm.code(), &padded, payload),
                    expected,
                    "{algorithm:?} of {bits} bits and {} bytes",
                    payload.len()
                );
            }
        }
    }
}

#[test]
fn random_numbers_stay_in_range_and_repeat_from_a_seed() {
    let draw = |low, high| {
        let mut world = World::new();
        // SAFETY: the context is the world's.
        world.with(|ctx| (0..100).map(|_| unsafe { (CALLS.random)(ctx, low, high) }).collect::<Vec<_>>())
    };
    let dice = draw(1, 6);
    assert!((1..=6).all(|face| dice.contains(&face)) && dice.iter().all(|face| (1..=6).contains(face)));
    assert_eq!(dice, draw(1, 6));
    assert_eq!(draw(5, 5), [5; 100]);
    assert!(draw(0, u64::MAX).iter().any(|n| *n > u64::MAX / 2));
    assert!(draw(u64::MAX - 1, u64::MAX).iter().all(|n| *n >= u64::MAX - 1));
}

#[test]
fn digests_come_out_as_fields_and_are_dropped_when_there_are_too_many() {
    let mut world = World::new();
    let words = [0x1ff, 5, 1 << 35];
    let send = |ctx| unsafe { (CALLS.digest)(ctx, ptr::null(), 0, words.as_ptr(), 3) };
    world.with(send);
    let fields = vec![Bits::new(9, 0x1ff), Bits::new(100, 1 << 99 | 5)];
    assert_eq!(world.messages.take_digests(), [DigestMessage { digest: ExternId(0), fields }]);
    (0..DIGESTS_MAX + 3).for_each(|_| world.with(send));
    assert_eq!(world.messages.digests_dropped(), 3);
    assert_eq!(world.messages.take_digests().len(), DIGESTS_MAX);
}

#[test]
fn what_packets_leave_comes_out_in_their_order() {
    let mut world = World::new();
    // Only the descriptor's address is used.
    let packet = |n: usize| ptr::without_provenance::<PacketDesc>(64 * n);
    world.with(|ctx| {
        for (of, what) in [(3, 1), (1, 2), (3, 3), (2, 4), (1, 5)] {
            let words = [what, 0, 0];
            unsafe {
                (CALLS.digest)(ctx, packet(of), 0, words.as_ptr(), 3);
                (CALLS.log)(ctx, packet(of), what as u32, words.as_ptr(), 1);
            }
        }
    });
    let digests = world.messages.take_digests();
    let numbers: Vec<u64> = digests.iter().map(|d| d.fields[0].to_u64().expect("nine bits")).collect();
    assert_eq!(numbers, [2, 5, 4, 1, 3]);
    assert_eq!(world.messages.take_lines().iter().map(|l| l.site).collect::<Vec<_>>(), [2, 5, 4, 1, 3]);
}

#[test]
fn log_lines_are_limited_per_second_and_in_all() {
    let mut world = World::new();
    let words = [9, 8];
    let log = |ctx| unsafe { (CALLS.log)(ctx, ptr::null(), 4, words.as_ptr(), 2) };
    let fail = |ctx| unsafe { (CALLS.assert_failed)(ctx, ptr::null(), 5) };
    world.with(log);
    world.with(fail);
    let lines = world.messages.take_lines();
    assert_eq!(lines, [LogRecord { site: 4, words: vec![9, 8] }, LogRecord { site: 5, words: vec![] }]);
    assert_eq!(world.messages.assertions_failed(), 1);
    (0..LOG_LINES_PER_SECOND).for_each(|_| world.with(log));
    assert_eq!(world.messages.lines_dropped(), 2);
    assert_eq!(world.messages.take_lines().len(), LOG_LINES_PER_SECOND as usize - 2);
    for second in 1..4 {
        world.runtime.now_us = second * 1_000_000;
        (0..600).for_each(|_| world.with(log));
    }
    assert_eq!(world.messages.take_lines().len(), LOG_LINES_MAX);
}

#[test]
fn wide_values_are_computed_as_bits_are() {
    let words = |value: &Bits| -> Vec<u64> {
        let bytes = value.to_bytes_be();
        bytes.rchunks(8).map(|c| c.iter().fold(0, |w, b| w << 8 | u64::from(*b))).collect()
    };
    for width in [129u32, 192, 200, 1024] {
        let a = Bits::ones(width).sub(&Bits::new(width, 12345)).shl(3);
        let b = Bits::new(width, u128::MAX - 99);
        for (number, op) in super::BIN_OPS.iter().enumerate() {
            let is_shift = matches!(op, BinOp::Shl | BinOp::Lshr | BinOp::Ashr);
            let second = if is_shift { Bits::new(64, 77) } else { b.clone() };
            let expected = op.apply(&a, &second);
            let mut result = vec![0xdead; words(&a).len()];
            let (first, other) = (words(&a), words(&second));
            // SAFETY: the operands and the result have the words of the width.
            unsafe { (CALLS.wide_bin)(number as u32, width, result.as_mut_ptr(), first.as_ptr(), other.as_ptr()) };
            let expected = words(&expected);
            assert_eq!(result[..expected.len()], expected, "{op:?} at {width}");
        }
    }
}

#[test]
fn headroom_is_made_out_of_tailroom() {
    let mut buffer: Vec<u8> = (0..100).collect();
    // SAFETY: the descriptor says what the buffer is: 10 bytes free, 60 of data, 30 free.
    unsafe {
        let data = buffer.as_mut_ptr().add(10);
        let mut packet = PacketDesc { data, len: 60, headroom: 10, tailroom: 30, ..PacketDesc::EMPTY };
        assert!((CALLS.make_headroom)(ptr::null(), &mut packet, 10));
        assert_eq!(packet.headroom, 10, "nothing to do");
        assert!((CALLS.make_headroom)(ptr::null(), &mut packet, 25));
        assert_eq!((packet.headroom, packet.tailroom, packet.len), (25, 15, 60));
        assert!(!(CALLS.make_headroom)(ptr::null(), &mut packet, 41));
        assert!((CALLS.make_headroom)(ptr::null(), &mut packet, 40));
        assert_eq!(packet.data, buffer.as_mut_ptr().add(40));
    }
    assert_eq!(buffer[40..], (10..70).collect::<Vec<u8>>());
}

#[test]
fn custom_crcs_are_the_oracles() {
    let bytes: Vec<u8> = (0..60u32).map(|i| (i * i * 29 + i * 5 + 3) as u8).collect();
    let mut random = World::new().runtime;
    for round in 0..200 {
        let width = if round % 2 == 0 { 16 } else { 32 };
        let mut value = || (random.next_random() >> (64 - width)) as u32;
        let (polynomial, initial, xor_out) = (value(), value(), value());
        let (reflect_in, reflect_out) = (value() % 2 == 0, value() % 2 == 0);
        let parameters = CrcParameters { width, polynomial, initial, xor_out, reflect_in, reflect_out };
        let (algorithm, slow) = match width {
            16 => (HashAlgorithm::Crc16Custom, interp::hash::Parameters { crc16: parameters, ..Default::default() }),
            _ => (HashAlgorithm::Crc32Custom, interp::hash::Parameters { crc32: parameters, ..Default::default() }),
        };
        let fast = hash::Parametric::new(&[], None);
        let (data, payload) = bytes.split_at(round % 60);
        let plain = hash::hash(algorithm.code(), data, payload);
        assert_eq!(fast.hash(algorithm.code(), data, payload), plain, "nothing was set");
        fast.set(None, &HashParameters::Crc(parameters)).expect("a CRC");
        let expected =
            interp::hash::hash_with(&slow, algorithm, &Bits::from_bytes_be(data.len() as u32 * 8, data), payload);
        assert_eq!(fast.hash(algorithm.code(), data, payload), expected, "{parameters:?}");
    }
    let too_wide = CrcParameters { initial: 1 << 16, ..CrcParameters::CRC16 };
    assert_eq!(hash::Parametric::new(&[], None).set(None, &HashParameters::Crc(too_wide)), Err(StateError::WrongKind));
}

#[test]
fn calculations_have_parameters_of_their_own() {
    let calculation = |name: &str, width| {
        let function = if width == 16 { Calculated::Crc16 } else { Calculated::Crc32 };
        ir::Calculation { name: name.to_string(), function }
    };
    let crcs = hash::Parametric::new(&[calculation("a", 32), calculation("b", 32), calculation("c", 16)], None);
    let of = |crcs: &hash::Parametric, id| {
        crcs.hash(HashAlgorithm::Calculation(ir::CalculationId(id)).code(), b"12345", b"6789").expect("one of them")
    };
    assert_eq!([0, 1, 2].map(|id| of(&crcs, id)), [0xcbf4_3926, 0xcbf4_3926, 0xbb3d]);
    let iscsi = HashParameters::Crc(CrcParameters { polynomial: 0x1edc_6f41, ..CrcParameters::CRC32 });
    crcs.set(Some("b"), &iscsi).expect("it is there");
    crcs.set(Some("c"), &HashParameters::Crc(CrcParameters::CCITT)).expect("it is there");
    assert_eq!([0, 1, 2].map(|id| of(&crcs, id)), [0xcbf4_3926, 0xe306_9283, 0x29b1]);
    assert_eq!(crcs.set(Some("d"), &iscsi), Err(StateError::NotFound));
    assert_eq!(crcs.set(Some("c"), &iscsi), Err(StateError::WrongKind));
    // Another program shares those of the same name and width.
    let later = hash::Parametric::new(&[calculation("c", 32), calculation("b", 32)], Some(&crcs));
    assert_eq!([0, 1].map(|id| of(&later, id)), [0xcbf4_3926, 0xe306_9283]);
    let copy = hash::Parametric::new(&[calculation("a", 32), calculation("b", 32), calculation("c", 16)], None);
    for (name, parameters) in crcs.all() {
        copy.set(name.as_deref(), &parameters).expect("it is there");
    }
    assert_eq!([0, 1, 2].map(|id| of(&copy, id)), [0xcbf4_3926, 0xe306_9283, 0x29b1]);
    crcs.set(None, &iscsi).expect("all of this width");
    assert_eq!([of(&crcs, 0), of(&crcs, 2), of(&later, 1)], [0xe306_9283, 0x29b1, 0xe306_9283]);
    assert_eq!(crcs.hash(HashAlgorithm::Calculation(ir::CalculationId(3)).code(), &[], &[]), None);
}

#[test]
fn toeplitz_is_the_oracles() {
    let calculation = Calculation { name: "t".to_string(), function: Calculated::Toeplitz };
    let algorithm = HashAlgorithm::Calculation(ir::CalculationId(0));
    let bytes: Vec<u8> = (0..60u32).map(|i| (i * i * 29 + i * 5 + 3) as u8).collect();
    let mut random = World::new().runtime;
    let fast = hash::Parametric::new(std::slice::from_ref(&calculation), None);
    assert_eq!(fast.hash(algorithm.code(), &bytes, &[]), Some(0), "the first key is zero");
    for round in 0..120 {
        let key = (0..4 * (1 + round % 11)).map(|_| random.next_random() as u8).collect();
        let parameters = HashParameters::Toeplitz(key);
        fast.set(Some("t"), &parameters).expect("a key");
        assert_eq!(fast.all()[2], (Some("t".to_string()), parameters.clone()));
        let slow = interp::hash::Parameters { calculations: vec![parameters], ..Default::default() };
        let (data, payload) = bytes.split_at(round % 60);
        let expected =
            interp::hash::hash_with(&slow, algorithm, &Bits::from_bytes_be(data.len() as u32 * 8, data), payload);
        assert_eq!(fast.hash(algorithm.code(), data, payload), expected, "round {round}");
    }
    for length in [0, 3, 6, TOEPLITZ_KEY_MAX + 4] {
        assert_eq!(fast.set(Some("t"), &HashParameters::Toeplitz(vec![1; length])), Err(StateError::WrongKind));
    }
    assert_eq!(fast.set(Some("t"), &HashParameters::Crc(CrcParameters::CRC32)), Err(StateError::WrongKind));
}
