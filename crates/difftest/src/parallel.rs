//! Independent cases on all processors.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The results of `case` for all items, in the items' order. Each item goes to the next free thread, so that long cases
/// do not wait for each other.
///
/// # Panics
/// If a case panics, after the other threads have come to their end.
pub fn map<T: Sync, R: Send>(items: &[T], case: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let work = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { return done };
            done.push((i, case(item)));
        }
    };
    let mut results = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let results = ends.into_iter().map(|end| end.unwrap_or_else(|panic| resume_unwind(panic)));
        results.flatten().collect::<Vec<_>>()
    });
    results.sort_unstable_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::map;
    use std::sync::Barrier;

    #[test]
    fn results_come_in_the_items_order() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(map(&items, |i| i * i), items.iter().map(|i| i * i).collect::<Vec<_>>());
        assert!(map(&[], |i: &u64| *i).is_empty());
    }

    #[test]
    fn cases_run_at_the_same_time() {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let all = Barrier::new(threads);
        map(&vec![(); threads], |()| {
            all.wait();
        });
    }

    #[test]
    #[should_panic(expected = "case 7")]
    fn a_panic_of_a_case_is_the_callers() {
        map(&(0..100).collect::<Vec<_>>(), |i| assert!(*i != 7, "case {i}"));
    }
}
