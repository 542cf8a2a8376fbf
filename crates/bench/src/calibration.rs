//! The costs of sharing on this machine, in cycles of the time stamp counter: threads on two processors that lock, add to and
//! prefetch cache lines, beside one thread alone.
//!
//! Virtual processors move: a line takes several times as long in one second as in the next. So a measurement is short, and is
//! repeated beside what it explains ([`Costs::measure`]).

use crate::workers::on_threads;
use datapath::timing::ticks;
use random::Random;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Lines that threads share: so many that two threads seldom want the same one.
const LINES: usize = 1024;
/// Timed steps of a thread; a quarter as many go before them.
const STEPS: usize = 150_000;
/// The length of the sequence of lines that a thread repeats.
const SEQUENCE: usize = 1 << 16;
/// Lines that are prefetched together.
const AHEAD: usize = 32;

/// A cell, its lock, and the rest of a cache line.
#[derive(Default)]
#[repr(align(64))]
struct Cell {
    value: AtomicU32,
    locked: AtomicBool,
}

/// What a thread does in each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// Locks a cell, adds, releases.
    Lock,
    /// As [`Kernel::Lock`], with the cells of 32 steps prefetched.
    PrefetchLock,
    /// As [`Kernel::Lock`], but which cell comes next follows from the value of this one, so that no two transfers overlap.
    ChainedLock,
    /// As [`Kernel::ChainedLock`], with one instruction that adds.
    ChainedAdd,
}

impl Cell {
    /// The value before.
    fn update(&self) -> u32 {
        while self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.locked.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        let value = self.value.load(Ordering::Relaxed);
        self.value.store(value.wrapping_add(1), Ordering::Relaxed);
        self.locked.store(false, Ordering::Release);
        value
    }
}

/// Cycles per step of `threads` threads that run a kernel at the same time on `lines` lines, on average.
pub fn cycles(kernel: Kernel, threads: usize, lines: usize) -> f64 {
    on_cells(kernel, threads, &(0..lines).map(|_| Cell::default()).collect::<Vec<Cell>>())
}

fn on_cells(kernel: Kernel, threads: usize, cells: &[Cell]) -> f64 {
    let done = AtomicUsize::new(0);
    let each = on_threads(threads, |thread, start| {
        let mut random = Random::stream(1, thread as u64);
        let sequence: Vec<u32> = (0..SEQUENCE).map(|_| random.below(cells.len() as u64) as u32).collect();
        let cell = |step: usize| &cells[sequence[step % SEQUENCE] as usize];
        let mut at = 0;
        // Always 0, which the compiler does not know.
        let mut next = 0;
        let mut run = |steps: usize| {
            for step in at..at + steps {
                if kernel == Kernel::PrefetchLock && step % AHEAD == 0 {
                    (step..step + AHEAD).for_each(|ahead| {
                        shared_memory::prefetch_to_write(std::ptr::from_ref(cell(ahead)).cast());
                    });
                }
                let cell = cell(step + next);
                match kernel {
                    Kernel::Lock | Kernel::PrefetchLock => _ = cell.update(),
                    Kernel::ChainedLock => next = (cell.update() >> 31) as usize,
                    Kernel::ChainedAdd => next = (cell.value.fetch_add(1, Ordering::Relaxed) >> 31) as usize,
                }
            }
            at += steps;
        };
        start.wait();
        run(STEPS / 4);
        let begin = ticks();
        run(STEPS);
        let spent = ticks() - begin;
        // The others are timed while this one goes on.
        done.fetch_add(1, Ordering::AcqRel);
        while done.load(Ordering::Acquire) < threads {
            run(AHEAD);
        }
        spent as f64 / STEPS as f64
    });
    each.iter().sum::<f64>() / threads as f64
}

/// Cycles that sharing takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// To get a line from the other processor, where nothing hides it.
    pub transfer: f64,
    /// Transfers that overlap where lines are prefetched.
    pub overlap: f64,
    /// To lock, change and release a cell whose line is there.
    pub lock: f64,
}

impl Costs {
    /// Measures on processors 0 and 1, some ten milliseconds.
    pub fn measure() -> Costs {
        // Both threads go to random lines, so the other one was at half of them last.
        let transfer_of = |kernel| 2.0 * (cycles(kernel, 2, LINES) - cycles(kernel, 1, LINES));
        let transfer = transfer_of(Kernel::ChainedLock).max(1.0);
        let prefetched = transfer_of(Kernel::PrefetchLock).max(1.0);
        Costs { transfer, overlap: (transfer / prefetched).max(1.0), lock: cycles(Kernel::Lock, 1, LINES / 4) }
    }
}

/// Cycles of a pause between two looks at a lock.
pub fn pause() -> f64 {
    let begin = ticks();
    (0..STEPS).for_each(|_| std::hint::spin_loop());
    (ticks() - begin) as f64 / STEPS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_a_machine() {
        let costs = Costs::measure();
        assert!(costs.transfer >= 1.0 && costs.overlap >= 1.0, "{costs:?}");
        assert!(costs.lock > 1.0 && costs.lock < 10_000.0, "{costs:?}");
        assert!(pause() > 0.1);
    }

    #[test]
    fn no_step_of_threads_is_lost() {
        for kernel in [Kernel::Lock, Kernel::PrefetchLock, Kernel::ChainedLock, Kernel::ChainedAdd] {
            let cells = [Cell::default()];
            let spent = on_cells(kernel, 2, &cells);
            assert!(spent > 0.0);
            let added = cells[0].value.load(Ordering::Relaxed) as usize;
            assert!(added >= 2 * (STEPS + STEPS / 4) && added.is_multiple_of(2), "{kernel:?}: {added}");
        }
    }
}
