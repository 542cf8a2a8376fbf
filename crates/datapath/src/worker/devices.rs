//! The devices of the switch as one worker holds them: each a program with its ports.
//!
//! Reclamation is per program: a worker that has not passed a quiescent point holds back what that program's writers
//! want to free. Between the bursts of a busy device this is short. A device without packets, while others are busy,
//! is taken offline after a while ([`Devices::let_go_of_quiet_ones`]), so that its writers do not wait for packets
//! that never come.
//!
//! One worker, one thread. Tests: `tests/devices.rs`.

use super::egress::EARLIER_MAX;
use super::out::Ports;
use super::{PortQueue, WorkerSetup};
use crate::drops::DropCounters;
use crate::engine::Engine;
use crate::executor::Executor;
use crate::pipeline::Pipeline;
use pktio::Wake;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Rounds without packets after which a device is taken offline for reclamation.
const QUIET_ROUNDS: u32 = 2_000;

/// A pipeline with the engine and executor that run it.
pub(super) struct Running {
    pub pipeline: Arc<Pipeline>,
    pub engine: Engine,
    pub executor: Box<dyn Executor>,
}

impl Running {
    /// The pipeline's number, unique in the process.
    pub(super) fn number(&self) -> u64 {
        self.pipeline.number()
    }
}

/// A device on this worker.
pub(super) struct Slot {
    pub id: u64,
    pub ports: Ports,
    pub running: Option<Running>,
    /// Earlier programs whose packets may still wait in queues, each with the time of its replacement in
    /// microseconds.
    pub earlier: Vec<(Running, u64)>,
    /// Drop counters while no program is loaded.
    pub drops: Arc<DropCounters>,
    /// Whether it had packets since this flag was last cleared.
    pub active: bool,
    quiet_rounds: u32,
}

/// All devices, in the order in which they were added.
#[derive(Default)]
pub(super) struct Devices {
    pub all: Vec<Slot>,
}

impl Devices {
    /// The position of a device in `all`.
    pub(super) fn position(&self, id: u64) -> Option<usize> {
        self.all.iter().position(|slot| slot.id == id)
    }

    fn get(&mut self, id: u64) -> Option<&mut Slot> {
        self.all.iter_mut().find(|slot| slot.id == id)
    }

    /// Adds a device without ports and program.
    pub(super) fn add(&mut self, id: u64, drops: Arc<DropCounters>) {
        let slot = Slot {
            id,
            ports: Ports::new(id),
            running: None,
            earlier: Vec::new(),
            drops,
            active: false,
            quiet_rounds: 0,
        };
        self.all.push(slot);
    }

    /// Removes a device.
    pub(super) fn remove(&mut self, id: u64) {
        self.all.retain(|slot| slot.id != id);
    }

    /// Adds a port to a device.
    pub(super) fn add_port(&mut self, device: u64, number: u32, queue: PortQueue) {
        if let Some(slot) = self.get(device) {
            slot.ports.add(number, queue);
        }
    }

    /// Removes a port from a device; returns its queues.
    pub(super) fn remove_port(&mut self, device: u64, number: u32) -> Option<PortQueue> {
        self.get(device)?.ports.remove(number)
    }

    /// Takes a device's port into service (`up`) or out of it.
    pub(super) fn set_in_service(&mut self, device: u64, number: u32, up: bool) {
        if let Some(slot) = self.get(device) {
            slot.ports.set_in_service(number, up);
        }
    }

    /// Moves a port to another device. No packet waits in its transmit buffer, since this runs between bursts.
    pub(super) fn move_port(&mut self, number: u32, from: u64, to: u64) {
        let queues = self.get(from).and_then(|slot| slot.ports.set_egress(number, None));
        if let Some(queue) = self.remove_port(from, number) {
            self.add_port(to, number, queue);
            self.get(to).and_then(|slot| slot.ports.set_egress(number, queues));
        }
    }

    /// Makes a device run a program, or none. An earlier program whose packets may wait in queues is kept
    /// (`egress.rs`).
    pub(super) fn run(&mut self, device: u64, pipeline: Option<Arc<Pipeline>>, worker: &WorkerSetup, now_us: u64) {
        if let Some(slot) = self.get(device) {
            let same = |running: &Running| pipeline.as_ref().is_some_and(|new| Arc::ptr_eq(new, &running.pipeline));
            if slot.running.as_ref().is_some_and(same) {
                return;
            }
            if let Some(mut old) =
                slot.running.take().filter(|old| old.pipeline.program().queues && slot.ports.serves())
            {
                old.engine.rest(old.executor.as_mut());
                slot.earlier.push((old, now_us));
            }
            // Inherited states share a fixed number of executors per worker, and a pipeline has one of them.
            while slot.earlier.len() > EARLIER_MAX {
                slot.earlier.remove(0);
            }
            let is_it = |earlier: &(Running, u64)| same(&earlier.0);
            if let Some(again) = slot.earlier.iter().position(is_it) {
                slot.running = Some(slot.earlier.remove(again).0);
                return;
            }
            slot.running = pipeline.map(|pipeline| {
                let mut executor = pipeline.executor(worker.index);
                executor.report_to(worker.samples.place());
                let engine = Engine::of_pipeline(&pipeline, worker.index);
                Running { engine, executor, pipeline }
            });
        }
    }

    /// Whether this worker serves any port's queues, or keeps earlier programs.
    pub(super) fn serves(&self) -> bool {
        self.all.iter().any(|slot| slot.ports.serves() || !slot.earlier.is_empty())
    }

    /// Whether any device's packets are decided by a flow processor.
    pub(super) fn decide(&self) -> bool {
        self.all.iter().any(|slot| slot.running.as_ref().is_some_and(|running| running.engine.is_decided()))
    }

    /// Runs the flow processors' idle work between bursts.
    pub(super) fn idle(&mut self, now_us: u64) {
        self.all.iter_mut().filter_map(|slot| slot.running.as_mut()).for_each(|running| running.engine.idle(now_us));
    }

    /// Takes all running programs offline for reclamation until their next batch.
    pub(super) fn let_go(&mut self) {
        for running in self.all.iter_mut().filter_map(|slot| slot.running.as_mut()) {
            running.engine.rest(running.executor.as_mut());
        }
    }

    /// Prepares for sleep: returns how the worker learns of packets on any port, and appends file descriptors that
    /// become readable.
    pub(super) fn arm(&mut self, files: &mut Vec<Arc<OwnedFd>>) -> Wake {
        let mut all = Wake::Never;
        for slot in &mut self.all {
            let polled = slot.ports.polled;
            for port in &mut slot.ports.all[..polled] {
                all = match (all, port.queue.arm(files)) {
                    (Wake::Now, _) | (_, Wake::Now) => Wake::Now,
                    (Wake::Poll, _) | (_, Wake::Poll) => Wake::Poll,
                    (Wake::File, _) | (_, Wake::File) => Wake::File,
                    (Wake::Never, Wake::Never) => Wake::Never,
                };
            }
        }
        all
    }

    /// Ends [`Devices::arm`]: the worker polls again.
    pub(super) fn disarm(&mut self) {
        for slot in &mut self.all {
            let polled = slot.ports.polled;
            slot.ports.all[..polled].iter_mut().for_each(|port| port.queue.disarm());
        }
    }

    /// Called after each round: takes devices offline that have had no packets for [`QUIET_ROUNDS`].
    pub(super) fn let_go_of_quiet_ones(&mut self) {
        for slot in &mut self.all {
            if std::mem::take(&mut slot.active) {
                slot.quiet_rounds = 0;
            } else if slot.quiet_rounds <= QUIET_ROUNDS {
                slot.quiet_rounds += 1;
                if let (QUIET_ROUNDS, Some(running)) = (slot.quiet_rounds, &mut slot.running) {
                    running.engine.rest(running.executor.as_mut());
                }
            }
        }
    }
}
