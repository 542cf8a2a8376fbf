//! Single-threaded rules of the protocol; interleavings are in `tests/loom.rs`.

use super::{Domain, Limbo};

#[test]
fn without_online_workers_everything_is_past() {
    let domain = Domain::new(2);
    let worker = domain.register().expect("a slot is free");
    let epoch = domain.advance();
    assert!(domain.is_past(epoch));
    drop(worker);
}

#[test]
fn an_online_worker_holds_an_epoch_back_until_it_is_quiescent() {
    let domain = Domain::new(2);
    let mut a = domain.register().expect("a slot is free");
    let mut b = domain.register().expect("a slot is free");
    a.online();
    b.online();
    let epoch = domain.advance();
    assert!(!domain.is_past(epoch));
    a.quiescent();
    assert!(!domain.is_past(epoch));
    b.offline();
    assert!(domain.is_past(epoch));
    assert!(!domain.is_past(domain.advance()));
    drop(a);
    assert!(domain.is_past(domain.advance()));
}

#[test]
fn slots_are_bounded_and_come_back() {
    let domain = Domain::new(1);
    let worker = domain.register();
    assert!(worker.is_some());
    assert!(domain.register().is_none());
    drop(worker);
    assert!(domain.register().is_some());
}

#[test]
fn limbo_frees_in_order_and_only_what_is_past() {
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a slot is free");
    worker.online();
    let mut limbo = Limbo::default();
    limbo.push(domain.advance(), 'a');
    worker.quiescent();
    limbo.push(domain.advance(), 'b');
    let mut freed = Vec::new();
    limbo.collect(&domain, |x| freed.push(x));
    assert_eq!(freed, ['a']);
    worker.quiescent();
    limbo.collect(&domain, |x| freed.push(x));
    assert_eq!((freed, limbo.len()), (vec!['a', 'b'], 0));
}
