//! The devices of the switch as one worker has them: each a program with its ports.
//!
//! A worker that is in the middle of a batch holds back what writers want to free, program by program. Between the bursts of
//! one device that is over quickly; a device that has no packets while others are busy is let go of after a while
//! ([`Devices::let_go_of_quiet_ones`]), so that its writers do not wait for packets that never come.
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

/// Rounds without packets after which a device is let go of.
const QUIET_ROUNDS: u32 = 2_000;

/// A program with what runs it.
pub(super) struct Running {
    pub pipeline: Arc<Pipeline>,
    pub engine: Engine,
    pub executor: Box<dyn Executor>,
}

impl Running {
    /// Tells it from other programs.
    pub(super) fn number(&self) -> u64 {
        self.pipeline.number()
    }
}

/// A device.
pub(super) struct Slot {
    pub id: u64,
    pub ports: Ports,
    pub running: Option<Running>,
    /// Programs before that whose packets may wait in queues, and when they were replaced, in microseconds.
    pub earlier: Vec<(Running, u64)>,
    /// For packets that meet no program.
    pub drops: Arc<DropCounters>,
    /// Whether it had packets since it was last asked.
    pub active: bool,
    quiet_rounds: u32,
}

/// All of them, in the order in which they were added.
#[derive(Default)]
pub(super) struct Devices {
    pub all: Vec<Slot>,
}

impl Devices {
    /// Where a device is.
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

    /// Gives a device a port.
    pub(super) fn add_port(&mut self, device: u64, number: u32, queue: PortQueue) {
        if let Some(slot) = self.get(device) {
            slot.ports.add(number, queue);
        }
    }

    /// Takes a port from a device.
    pub(super) fn remove_port(&mut self, device: u64, number: u32) -> Option<PortQueue> {
        self.get(device)?.ports.remove(number)
    }

    /// Takes a device's port into service or out of it.
    pub(super) fn set_in_service(&mut self, device: u64, number: u32, up: bool) {
        if let Some(slot) = self.get(device) {
            slot.ports.set_in_service(number, up);
        }
    }

    /// Gives one device's port to another one. Nothing waits to leave by it: this is between two bursts.
    pub(super) fn move_port(&mut self, number: u32, from: u64, to: u64) {
        let queues = self.get(from).and_then(|slot| slot.ports.set_egress(number, None));
        if let Some(queue) = self.remove_port(from, number) {
            self.add_port(to, number, queue);
            self.get(to).and_then(|slot| slot.ports.set_egress(number, queues));
        }
    }

    /// Makes a device run a program, or none.
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
            // States share places for executors, and a pipeline has one for each worker.
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

    /// Whether this worker is the server of a port's queues.
    pub(super) fn serves(&self) -> bool {
        self.all.iter().any(|slot| slot.ports.serves() || !slot.earlier.is_empty())
    }

    /// Whether flow processors decide about packets of a device.
    pub(super) fn decide(&self) -> bool {
        self.all.iter().any(|slot| slot.running.as_ref().is_some_and(|running| running.engine.is_decided()))
    }

    /// Between bursts, for the processors' own work.
    pub(super) fn idle(&mut self, now_us: u64) {
        self.all.iter_mut().filter_map(|slot| slot.running.as_mut()).for_each(|running| running.engine.idle(now_us));
    }

    /// Nobody waits for this worker until the next batch.
    pub(super) fn let_go(&mut self) {
        for running in self.all.iter_mut().filter_map(|slot| slot.running.as_mut()) {
            running.engine.rest(running.executor.as_mut());
        }
    }

    /// Before the worker sleeps: how it will hear of packets on any port; adds files that become readable.
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

    /// The worker polls again.
    pub(super) fn disarm(&mut self) {
        for slot in &mut self.all {
            let polled = slot.ports.polled;
            slot.ports.all[..polled].iter_mut().for_each(|port| port.queue.disarm());
        }
    }

    /// After a round: nobody waits any more for devices that have had no packets for long.
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
