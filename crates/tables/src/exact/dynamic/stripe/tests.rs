//! The timing wheel compared with a list of times; retired slots.

use super::*;

struct Wheel {
    content: Content,
    times: Vec<u8>,
    links: Vec<u16>,
    /// For each slot in the wheel, the step at whose beginning it is due.
    due: Vec<Option<u64>>,
}

impl Wheel {
    fn new(slots: usize) -> Wheel {
        Wheel { content: Content::default(), times: vec![NEVER; slots], links: vec![0; slots], due: vec![None; slots] }
    }

    fn put(&mut self, slot: usize, due: u64) {
        let is_urgent = self.content.put(&mut self.times, slot as u16, due);
        assert_eq!(is_urgent, due <= self.content.step);
        self.due[slot] = Some(due);
    }

    fn take(&mut self, slot: usize) {
        Content::take(&mut self.times, slot as u16);
        self.due[slot] = None;
    }

    /// Advances to `now`, puts slots back that were found early, and checks that no due slot was missed. Returns how
    /// many were found.
    fn advance(&mut self, now: u64) -> usize {
        let mut found = Vec::new();
        self.content.advance(&mut self.times, now, &mut found);
        for slot in &found {
            assert!(Content::is_found(&self.times, *slot));
            let due = self.due[usize::from(*slot)].expect("a slot that was taken out is not looked at");
            match due > now {
                true => self.put((*slot).into(), due),
                false => self.take((*slot).into()),
            }
        }
        assert!(self.due.iter().flatten().all(|due| *due > now), "at {now}: {:?}", self.due);
        found.len()
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
        let mut wheel = Wheel::new(150);
        let mut now = if round % 2 == 0 { 0 } else { below(1 << 30) };
        wheel.advance(now);
        for _ in 0..2000 {
            match below(4) {
                0 => wheel.take(below(150) as usize),
                1 => {
                    now += match below(12) {
                        0 => 0,
                        1..8 => 1,
                        8 => below(CHUNK),
                        9 => below(5 * CHUNK),
                        10 => below(CHUNK * CHUNKS),
                        _ => below(3 * CHUNK * CHUNKS),
                    };
                    wheel.advance(now);
                }
                _ => {
                    let ahead = 1 << below(16);
                    wheel.put(below(150) as usize, now.saturating_sub(2) + below(ahead));
                }
            }
        }
        wheel.advance(now + (1 << 30));
        assert!(wheel.due.iter().all(Option::is_none));
    }
}

#[test]
fn a_timer_is_checked_once_or_twice_per_timeout() {
    for ahead in [1, 100, CHUNK - 1, CHUNK, 1000, CHUNK * (CHUNKS - 1)] {
        let mut wheel = Wheel::new(1);
        wheel.advance(1000);
        wheel.put(0, 1000 + ahead);
        let looks: usize = (1001..=1000 + ahead).map(|now| wheel.advance(now)).sum();
        assert_eq!(wheel.due[0], None);
        assert!((1..=2).contains(&looks), "{looks} looks within {ahead} steps");
    }
}

#[test]
fn a_slot_waits_until_all_workers_have_been_quiescent() {
    let domain = Domain::new(1);
    let mut worker = domain.register().expect("a place");
    worker.online();
    let mut wheel = Wheel::new(4);
    let mut released = Vec::new();
    wheel.content.retire(&mut wheel.links, 1, &domain);
    wheel.content.retire(&mut wheel.links, 2, &domain);
    wheel.content.collect(&mut wheel.links, &domain, |slot| released.push(slot));
    assert_eq!(released, []);
    worker.quiescent();
    wheel.content.retire(&mut wheel.links, 3, &domain);
    wheel.content.collect(&mut wheel.links, &domain, |slot| released.push(slot));
    assert_eq!(released, [1], "the second list has a younger one");
    worker.offline();
    wheel.content.collect(&mut wheel.links, &domain, |slot| released.push(slot));
    released.sort_unstable();
    assert_eq!(released, [1, 2, 3]);
    assert!(!wheel.content.has_waiting());
}
