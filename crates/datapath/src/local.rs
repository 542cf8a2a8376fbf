//! A pipeline without threads, ports or a clock of its own: frames in, frames out, in the order of the calls.
//!
//! STF scripts, traces and property tests use it, with any executor. The caller advances the clock.

use crate::drops::{DropCounters, DropReason};
use crate::engine::{Engine, Sink, WORK_MAX};
use crate::executor::Executor;
use crate::pipeline::Pipeline;
use crate::replication::Replication;
use pktio::{HeapPool, Packet, PoolRef};
use std::sync::Arc;

/// A frame that left by a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The port.
    pub port: u32,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// A pipeline run by its caller.
pub struct Local {
    pipeline: Arc<Pipeline>,
    engine: Engine,
    executor: Box<dyn Executor>,
    worker: usize,
    replication: Arc<Replication>,
    pool: PoolRef,
    /// Microseconds since the start.
    now_us: u64,
}

struct Collect<'a> {
    sent: &'a mut Vec<Sent>,
    drops: &'a DropCounters,
}

impl Sink for Collect<'_> {
    fn send(&mut self, port: u32, packet: Packet) {
        self.sent.push(Sent { port, bytes: packet.data().to_vec() });
    }

    fn drop(&mut self, reason: DropReason, _packet: Packet) {
        self.drops.count(reason);
    }

    fn lost_copies(&mut self, reason: DropReason, count: u64) {
        self.drops.count_many(reason, count);
    }
}

impl Local {
    /// Runs `pipeline` as worker 0.
    pub fn new(pipeline: Arc<Pipeline>) -> Local {
        Local::of_worker(pipeline, 0)
    }

    /// Runs `pipeline` as worker `worker`; each worker can be run only once at a time.
    pub fn of_worker(pipeline: Arc<Pipeline>, worker: usize) -> Local {
        let replication = Arc::clone(pipeline.replication());
        let engine = Engine::of_pipeline(&pipeline, worker);
        Local {
            engine,
            executor: pipeline.executor(worker),
            worker,
            pipeline,
            replication,
            pool: HeapPool::shared(16 * 1024),
            now_us: 0,
        }
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// Multicast groups and clone sessions.
    pub fn replication(&self) -> &Arc<Replication> {
        &self.replication
    }

    /// Advances the clock by `by` microseconds and expires entries.
    pub fn advance_us(&mut self, by: u64) {
        self.now_us += by;
        self.pipeline.state().expire(self.now_us);
    }

    /// The clock, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Runs one frame received on `port`; returns the frames sent, or `None` if the frame is longer than a buffer.
    pub fn receive(&mut self, port: u32, frame: &[u8]) -> Option<Vec<Sent>> {
        self.receive_batch(port, &[frame])
    }

    /// Runs the flow processor's idle work.
    pub fn idle(&mut self) {
        self.engine.idle(self.now_us);
    }

    /// As [`Local::receive`]; the program's flow processor begins at `start`.
    pub fn receive_at(&mut self, port: u32, start: u64, frame: &[u8]) -> Option<Vec<Sent>> {
        self.engine.begin_at(start);
        self.receive(port, frame)
    }

    /// Runs up to `abi::BATCH_MAX` frames received together; returns the frames sent, or `None` if one is longer than
    /// a buffer.
    pub fn receive_batch(&mut self, port: u32, frames: &[&[u8]]) -> Option<Vec<Sent>> {
        let mut packets = frames.iter().map(|f| self.pool.alloc_from(f)).collect::<Option<Vec<Packet>>>()?;
        let mut sent = Vec::new();
        self.now_us += 1;
        let mut sink = Collect { sent: &mut sent, drops: self.pipeline.drops(self.worker) };
        self.engine.set_work(WORK_MAX);
        self.engine.receive(self.executor.as_mut(), &mut packets, port, self.now_us, &mut sink);
        // Go offline: the caller may write to tables next, and would otherwise wait for itself.
        self.engine.rest(self.executor.as_mut());
        Some(sent)
    }
}
