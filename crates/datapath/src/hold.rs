//! Stopping all workers between two bursts, so that several changes become visible to packets at once.
//!
//! A worker that is told to hold finishes its burst with everything that became of its packets, goes offline for
//! reclamation, reports that it stands, and waits. Packets that arrive meanwhile wait in the devices' queues. When the
//! [`Held`] is dropped, also by a panic, all go on. Nothing is added to the path of packets: holding is a command in the mailbox.
//! A change of programs that needs a moment without packets holds workers in the same way (`Switch::replace_pipeline_of`).
//!
//! Threads: one holder at a time (whoever serialises writes), the workers. Tests: `crates/datapath/tests/worker.rs`.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where workers wait.
#[derive(Default, Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    standing: usize,
    open: bool,
    /// The holder has given up: not all came.
    given_up: bool,
}

impl Gate {
    /// A worker's: stands until the gate is open. Whether what it stood for has happened.
    pub(crate) fn stand(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.standing += 1;
        self.changed.notify_all();
        while !state.open {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.given_up
    }

    /// The holder's: those who stand go on, and are told that what they stood for does not happen.
    pub(crate) fn give_up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).given_up = true;
    }

    /// The holder's: whether so many workers stand, within the time.
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

/// All workers stand until this is dropped.
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
