//! Single-threaded rules of the protocol; interleavings are in `tests/loom.rs`.

use super::{Assumption, BACKLOG_MAX, BACKLOG_UNIT_BYTES, Domain, Limbo, Unacknowledged};

#[test]
fn without_online_workers_every_epoch_is_past() {
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
fn slots_are_bounded_and_reused() {
    let domain = Domain::new(1);
    let worker = domain.register();
    assert!(worker.is_some());
    assert!(domain.register().is_none());
    drop(worker);
    assert!(domain.register().is_some());
}

#[test]
fn limbo_frees_in_order_after_the_grace_period() {
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

#[test]
fn a_refused_invalidation_is_acknowledged_by_the_next_quiescent_point() {
    let domain = Domain::new(4);
    let mut worker = domain.register_as(3).expect("a slot is free");
    worker.online();
    let mut assumption = Assumption::default();
    assert_eq!(assumption.invalidate(&domain), Ok(()), "the assumption is not held");
    assumption.hold(&domain);
    let generation = domain.generation();
    assert_eq!(assumption.invalidate(&domain), Err(Unacknowledged { worker: 3 }));
    assert_eq!(assumption.invalidate(&domain), Err(Unacknowledged { worker: 3 }));
    assert_eq!(domain.generation(), generation + 1, "it ends once");
    worker.quiescent();
    assert_eq!(assumption.invalidate(&domain), Ok(()));
    assert!(!assumption.is_held());
}

#[test]
fn retired_memory_counts_as_backlog_until_it_may_be_freed() {
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a slot is free");
    worker.online();
    domain.advance();
    domain.advance_by(10 * BACKLOG_UNIT_BYTES as usize);
    assert_eq!((domain.backlog(), domain.await_room()), (12, Ok(())));
    domain.advance_by((BACKLOG_MAX * BACKLOG_UNIT_BYTES) as usize);
    assert_eq!(domain.await_room(), Err(Unacknowledged { worker: 0 }));
    worker.quiescent();
    assert_eq!((domain.backlog(), domain.await_room()), (0, Ok(())));
}
