//! Workers that do not execute a change: it is refused after a bounded time with an error of its own, and undone,
//! also on the worker that executes it later.
//!
//! Here workers are held (`Switch::hold`), which is equivalent to a batch that does not end: they execute no
//! commands.

mod common;

use common::{frame, wait_for};
use datapath::{EngineKind, Idle, Pipeline, Switch, SwitchConfig, SwitchError};
use ir::{EntryKind, Fate, Operand, StageKind};
use pktio::{HeapPool, MemoryDevice, MemoryHandle, PoolRef};
use std::sync::Arc;

/// A pipeline that sends all packets to one port.
fn always(port: u32, workers: usize) -> Arc<Pipeline> {
    let mut b = ir::Builder::new("always");
    let parser = b.begin_stage("parse", StageKind::Parser);
    b.fate(Fate::Send(Operand::new_const(32, u128::from(port))));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser]);
    Arc::new(datapath::load(Arc::new(b.finish()), EngineKind::Machine, workers).expect("it is small"))
}

struct Bed {
    switch: Switch,
    pool: PoolRef,
}

impl Bed {
    fn new(workers: usize) -> Bed {
        let pool = HeapPool::shared(1024);
        let config = SwitchConfig { workers, idle: Idle::Sleep, pool: Some(Arc::clone(&pool)), ..Default::default() };
        Bed { switch: Switch::new(config), pool }
    }

    fn port(&self, number: u32) -> MemoryHandle {
        let queues = self.switch.workers() as u16;
        let (port, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&self.pool), queues);
        self.switch.add_port(number, Box::new(port)).expect("a new number");
        handle
    }

    fn runs(&self, pipeline: &Arc<Pipeline>) -> bool {
        self.switch.pipeline().is_some_and(|now| Arc::ptr_eq(&now, pipeline))
    }
}

fn is_stuck(done: Result<(), SwitchError>) -> bool {
    matches!(done, Err(SwitchError::Stuck(_)))
}

/// Checks that packets of each worker's queue leave by this port.
fn all_go_to(from: &MemoryHandle, to: &MemoryHandle, workers: usize) {
    for worker in 0..workers {
        assert!(from.inject_on(worker as u16, &frame(0, worker as u32)));
    }
    let mut got = 0;
    wait_for("packets", || {
        got += to.collect().len();
        got == workers
    });
}

#[test]
fn a_program_that_workers_do_not_take_is_undone() {
    const WORKERS: usize = 2;
    let bed = Bed::new(WORKERS);
    let [from, old_port, new_port] = [1, 2, 3].map(|number| bed.port(number));
    let (old, new) = (always(2, WORKERS), always(3, WORKERS));
    bed.switch.set_pipeline(Some(Arc::clone(&old))).unwrap();
    let changes = bed.switch.program_changes();

    let held = bed.switch.hold().unwrap();
    assert!(is_stuck(bed.switch.set_pipeline(Some(Arc::clone(&new)))));
    assert!(bed.runs(&old));
    assert_eq!(bed.switch.program_changes(), changes);
    // The same for a replacement with state: `between` does not run.
    let mut between = false;
    assert!(is_stuck(bed.switch.replace_pipeline_of(bed.switch.first_device(), Arc::clone(&new), || between = true)));
    assert!(!between && bed.runs(&old));
    drop(held);

    all_go_to(&from, &old_port, WORKERS);
    assert_eq!(new_port.collect().len(), 0, "a worker has taken it after all");
    bed.switch.set_pipeline(Some(Arc::clone(&new))).unwrap();
    all_go_to(&from, &new_port, WORKERS);
    assert!(bed.runs(&new));
}

#[test]
fn a_device_whose_removal_workers_do_not_take_stays_as_it_was() {
    const WORKERS: usize = 2;
    const DEVICE: u64 = 7;
    let bed = Bed::new(WORKERS);
    let program = always(4, WORKERS);
    bed.switch.add_device(DEVICE).unwrap();
    bed.switch.set_pipeline_of(DEVICE, Some(Arc::clone(&program))).unwrap();
    let dropped = || {
        let drops = bed.switch.drops_of(DEVICE);
        drops.into_iter().find(|(reason, _)| reason == "no such port").map_or(0, |(_, count)| count)
    };
    bed.switch.inject_into(DEVICE, 510, frame(0, 1)).unwrap();
    wait_for("the program's work", || dropped() == 1);

    let held = bed.switch.hold().unwrap();
    assert!(is_stuck(bed.switch.remove_device(DEVICE)));
    assert!(bed.switch.devices().contains(&DEVICE));
    drop(held);

    // Its program still runs, and its counters continue.
    assert!(bed.switch.pipeline_of(DEVICE).is_some_and(|now| Arc::ptr_eq(&now, &program)));
    bed.switch.inject_into(DEVICE, 510, frame(0, 2)).unwrap();
    wait_for("the program's work after it", || dropped() == 2);
    bed.switch.remove_device(DEVICE).unwrap();
    assert!(!bed.switch.devices().contains(&DEVICE));
}
