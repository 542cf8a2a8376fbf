//! All interleavings of small cases of the shared buffer.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p traffic --test loom --release`
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use traffic::{Buffer, BufferConfig, Share, Size};

fn buffer(capacity: u64, alpha: f64, reserved: &[u64]) -> Arc<Buffer> {
    let tenants = reserved.iter().map(|reserved| Share { reserved: Size(*reserved), max: None }).collect();
    Buffer::new(&BufferConfig { capacity: Size(capacity), cell: Size(1), alpha, tenants }).unwrap()
}

/// Each thread holds at most what it was granted; in the end everything is back.
fn model(capacity: u64, reserved: &'static [u64], threads: &'static [(usize, &'static [u64])]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let buffer = buffer(capacity, 256.0, reserved);
        let run = |buffer: Arc<Buffer>, number: usize, sizes: &[u64]| {
            let tenant = buffer.tenant(number).unwrap();
            let granted: Vec<u64> = sizes.iter().copied().filter(|bytes| tenant.reserve(*bytes)).collect();
            for bytes in granted {
                assert!(buffer.free() <= buffer.pool());
                tenant.give_back(bytes);
            }
        };
        let (first, rest) = threads.split_first().unwrap();
        let handles: Vec<_> = rest
            .iter()
            .map(|&(number, sizes)| {
                let buffer = buffer.clone();
                thread::spawn(move || run(buffer, number, sizes))
            })
            .collect();
        run(buffer.clone(), first.0, first.1);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        for number in 0..reserved.len() {
            assert_eq!(buffer.tenant(number).unwrap().used(), 0);
        }
        assert_eq!(buffer.free(), buffer.pool());
    });
}

#[test]
fn one_tenants_threads_mix_reserve_and_pool() {
    // 10 reserved, 10 in the pool: grants span both, and are given back by either thread's account.
    model(20, &[10], &[(0, &[8, 7]), (0, &[6])]);
    model(14, &[10], &[(0, &[8]), (0, &[6, 3])]);
}

#[test]
fn tenants_compete_for_the_pool() {
    model(14, &[4, 0], &[(0, &[6, 5]), (1, &[7])]);
}

#[test]
fn bytes_are_given_back_by_another_thread() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let buffer = buffer(20, 256.0, &[10]);
        let tenant = buffer.tenant(0).unwrap();
        assert!(tenant.reserve(12));
        let other = {
            let tenant = tenant.clone();
            thread::spawn(move || tenant.give_back(12))
        };
        let granted = tenant.reserve(7);
        other.join().unwrap();
        assert!(granted);
        assert_eq!(tenant.used(), 7);
        tenant.give_back(7);
        assert_eq!((tenant.used(), buffer.free()), (0, 10));
    });
}
