//! Stops all workers between two bursts, so that several changes become visible to packets at once.
//!
//! A worker that gets the hold command finishes its burst with everything derived from it, goes offline for
//! reclamation, reports that it has stopped, and waits. Packets that arrive meanwhile wait in the devices' queues.
//! When the [`Held`] is dropped, also by a panic, all workers continue. Packets that are not held pay nothing:
//! holding is a mailbox command. Replacing a program with a moment without packets (`Switch::replace_pipeline_of`)
//! holds workers in the same way.
//!
//! Threads: one holder at a time (whoever serialises writes), and the workers. Tests:
//! `crates/datapath/tests/worker.rs`.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The barrier at which workers wait.
#[derive(Default, Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    standing: usize,
    open: bool,
    /// The holder has given up: not all workers arrived in time.
    given_up: bool,
}

impl Gate {
    /// For workers: waits until the gate opens. Returns whether the change that it waited for has happened.
    pub(crate) fn stand(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.standing += 1;
        self.changed.notify_all();
        while !state.open {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.given_up
    }

    /// For the holder: marks the change as abandoned. Waiting workers learn of it when the gate opens.
    pub(crate) fn give_up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).given_up = true;
    }

    /// For the holder: waits until `workers` workers have stopped; `false` if that takes longer than `limit`.
    pub(crate) fn await_standing(&self, workers: usize, limit: Duration) -> bool {
        let start = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.standing < workers {
            let Some(left) = limit.checked_sub(start.elapsed()) else { return false };
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

/// Keeps all workers stopped until dropped.
#[derive(Debug)]
pub struct Held {
    pub(crate) gate: Arc<Gate>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gate.state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        self.gate.changed.notify_all();
    }
}
