//! Keeps a port connected whose driver does not: DPDK's memif client fails to start without a server, and stays down
//! when the server goes away.
//!
//! A thread per such port looks at the link twice a second and restarts the port while it is down. Restarting swaps the
//! driver's functions and queues, which must not happen under a worker's feet, so each burst passes a [`Gate`]: one
//! uncontended lock per queue, that the thread takes for the restart. Ports with better drivers have no gate.
//!
//! Threads: workers pass and never wait (a shut gate is an empty burst); the reconnecting thread shuts the gate under the
//! EAL's control lock. It ends within half a second after its port is gone. Tests: `tests/peers.rs`.
#![allow(unsafe_code)]

use crate::ffi;
use crate::port;
use crate::queue::Port;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(500);

/// Per queue: whether the port is started. A worker holds its queue's lock during a burst.
pub(crate) struct Gate {
    started: Vec<Mutex<bool>>,
}

/// Permission for one burst.
pub(crate) enum Pass<'a> {
    /// The port is never stopped before it is closed.
    Open,
    /// The port stays started while this lives.
    Held(#[allow(dead_code, reason = "held, not read")] MutexGuard<'a, bool>),
}

impl Gate {
    /// A gate for a port that is not started.
    pub(crate) fn new(queues: u16) -> Gate {
        Gate { started: (0..queues).map(|_| Mutex::new(false)).collect() }
    }

    #[inline]
    pub(crate) fn pass(&self, queue: u16) -> Option<Pass<'_>> {
        self.started[usize::from(queue)].try_lock().ok().filter(|started| **started).map(Pass::Held)
    }

    /// Keeps all workers out, runs `restart`, and lets them in again if it returns true.
    fn shut(&self, restart: impl FnOnce(bool) -> bool) {
        let mut locks: Vec<_> =
            self.started.iter().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        let was_started = locks.iter().any(|started| **started);
        let is_started = restart(was_started);
        locks.iter_mut().for_each(|started| **started = is_started);
    }
}

/// Starts `port` now if its peer is there, and again whenever its link is down, until the port is gone.
pub(crate) fn keep_connected(port: &Arc<Port>) -> io::Result<()> {
    restart_if_down(port);
    let port = Arc::downgrade(port);
    thread::Builder::new().name("port-reconnect".into()).spawn(move || watch(&port)).map(|_| ())
}

fn watch(port: &Weak<Port>) {
    loop {
        thread::sleep(INTERVAL);
        let Some(port) = port.upgrade() else { return };
        restart_if_down(&port);
    }
}

fn restart_if_down(port: &Port) {
    let Some(gate) = &port.gate else { return };
    let control = port.eal.lock();
    if port::link(port, None, &control).up {
        return;
    }
    gate.shut(|started| {
        // SAFETY: the port is configured, no worker is inside, and control calls are serialised by the lock.
        unsafe {
            if started {
                ffi::shim_eth_stop(port.as_ptr());
            }
            ffi::shim_eth_start(port.as_ptr()) == 0
        }
    });
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn a_shut_gate_lets_nobody_in_and_nobody_wait() {
        let gate = Gate::new(2);
        assert!(gate.pass(0).is_none(), "not started yet");
        gate.shut(|started| {
            assert!(!started);
            true
        });
        assert!(gate.pass(0).is_some() && gate.pass(1).is_some());
        gate.shut(|started| {
            assert!(started);
            assert!(gate.pass(1).is_none(), "shut for the restart");
            false
        });
        assert!(gate.pass(1).is_none(), "the restart failed");
    }
}
