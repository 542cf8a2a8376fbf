//! The wheel against a list of times, and the slots that wait.

use super::*;

struct Wheel {
    content: Content,
    links: Vec<Links>,
    /// When each slot is due, if it is in the wheel.
    due: Vec<Option<u64>>,
}

impl Wheel {
    fn new(slots: usize) -> Wheel {
        let links = (0..slots).map(|_| Links { next: AtomicU16::new(0), previous: AtomicU16::new(0) }).collect();
        let content = Content { step: 0, heads: [0; 128], old: (0, 0), young: (0, 0), stale: 0 };
        Wheel { content, links, due: vec![None; slots] }
    }

    fn put(&mut self, slot: usize, due: u64) {
        self.content.take(&self.links, slot as u16);
        self.content.put(&self.links, slot as u16, due);
        self.due[slot] = Some(due);
    }

    fn take(&mut self, slot: usize) {
        self.content.take(&self.links, slot as u16);
        self.due[slot] = None;
    }

    /// What is over by `now`, and must be all of that.
    fn advance(&mut self, now: u64) {
        let due = &mut self.due;
        self.content.advance(&self.links, now, |slot| {
            let at = due[usize::from(slot)].expect("a slot that was taken out is not looked at");
            if at > now {
                return Some(at);
            }
            due[usize::from(slot)] = None;
            None
        });
        assert!(self.due.iter().flatten().all(|due| *due > now), "at {now}: {:?}", self.due);
        let first = self.due.iter().flatten().min().map(|due| step_of(*due));
        match (first, self.content.next_step()) {
            (Some(first), Some(told)) => assert!(told <= first.max(step_of(now)), "{told} > {first}"),
            (first, told) => assert_eq!(first.is_some(), told.is_some()),
        }
    }
}

#[test]
fn the_wheel_agrees_with_a_list() {
    let mut random = 1u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    for round in 0..40 {
        let mut wheel = Wheel::new(24);
        let mut now = if round % 2 == 0 { 0 } else { below(1 << 40) };
        for _ in 0..400 {
            match below(4) {
                0 => wheel.take(below(24) as usize),
                1 => {
                    now += match below(5) {
                        0 => 0,
                        1 => below(STEP_TICKS),
                        2 => below(100 * STEP_TICKS),
                        3 => below(5000 * STEP_TICKS),
                        _ => below(20_000 * STEP_TICKS),
                    };
                    wheel.advance(now);
                }
                _ => {
                    let ahead = 1 << below(24);
                    wheel.put(below(24) as usize, now + below(ahead));
                }
            }
        }
        wheel.advance(now + (1 << 30));
        assert!(wheel.due.iter().all(Option::is_none));
    }
}

#[test]
fn a_slot_waits_until_all_workers_have_been_quiescent() {
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a place");
    worker.online();
    let mut wheel = Wheel::new(4);
    let mut released = Vec::new();
    wheel.content.retire(&wheel.links, 1, &domain);
    wheel.content.retire(&wheel.links, 2, &domain);
    wheel.content.collect(&wheel.links, &domain, |slot| released.push(slot));
    assert_eq!(released, []);
    worker.quiescent();
    wheel.content.retire(&wheel.links, 3, &domain);
    wheel.content.collect(&wheel.links, &domain, |slot| released.push(slot));
    assert_eq!(released, [1], "the second list has a younger one");
    worker.offline();
    wheel.content.collect(&wheel.links, &domain, |slot| released.push(slot));
    released.sort_unstable();
    assert_eq!(released, [1, 2, 3]);
    assert!(!wheel.content.has_waiting());
}
