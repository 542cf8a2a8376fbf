//! Ports in processes of their own: vhost-user and memif ports whose peers are not trusted (the port option `isolated`).
//!
//! ```text
//!   switch                                                    process of the port
//!   worker ── ProcessQueue ══ rings in a sealed memfd ══ serving thread ── Queue ── the peer's memory
//!                                (one per direction)      one per queue
//!   supervisor thread ─────── socket: Start, Log, Admit ─── main thread ── Device ── the peer's socket
//! ```
//!
//! A peer that punches holes into its memory, or truncates it, can keep a thread that reads this memory waiting in the
//! kernel, with the memory map of the thread's process locked. Then whatever maps memory in that process waits: a table
//! that grows, a program that is loaded, a thread that starts; and the process cannot end. Here this hits a process that
//! does nothing else. The switch never maps the peer's memory, and waits neither for the peer nor, beyond a bounded time,
//! for the process. What it reads from the shared rings is copied and checked ([`Consumer`](ring)).
//!
//! **What this bounds is waiting.** The process runs the same memory-safe code as a switch without `isolated`, and gives up
//! rights that it does not need (`child/confine`). It is no sandbox for whoever takes it over completely: it has the
//! switch's user, so it could connect to the switch's Unix sockets, signal processes of this user, and fork; there is no
//! seccomp filter, and it binds its own listener. Through rings and messages even such a process gets this port only.
//!
//! The process is this executable with a hidden subcommand ([`SUBCOMMAND`], [`child::main`]). It opens the port as a
//! switch without `isolated` does. If it ends, its link is down and it is started again, with a growing delay. Closing the
//! port ends it, within a tenth of a second or behind our back. Lines of its log appear in the switch's. The memory that
//! its peers share is admitted by the switch, for all ports together ([`shared_memory::Guest`]).
//!
//! | file | holds |
//! | --- | --- |
//! | `channel` | the shared memory: layout, seals |
//! | `ring` | a ring of frames between two processes |
//! | `protocol` | messages between switch and process |
//! | `port` | the worker's queue, the device, the state that both share |
//! | `supervisor` | the thread that starts the process, answers it, and starts it again |
//! | `process` | one process, from its start to its end |
//! | `sockets` | socket files: removed when the process is gone; those that isolated memif ports serve |
//! | `log` | lines of the process in the switch's log |
//! | `words` | its stderr |
//! | `text` | what it has sent, made fit to be shown |
//! | `child` | the process: `child/confine` its rights, `child/serve` its queues, `child/room` admission, `child/log` |
//!
//! Threads: as above. Tests: `ring/tests.rs`, `src/tests.rs` (hostile processes), `tests/isolated.rs` (processes with honest
//! and hostile peers).
#![deny(unsafe_op_in_unsafe_fn)]

mod channel;
pub mod child;
mod log;
mod port;
mod process;
mod protocol;
mod ring;
mod sockets;
mod supervisor;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use port::CLOSE_MAX;
pub use process::{Launcher, SUBCOMMAND, set_launcher};
pub use sockets::serves;

use pktio::{Device, DeviceSpec, Error, MTU_DEFAULT, MemifRole, PoolRef, PortOptions};
use port::ProcessDevice;
use protocol::Start;
use std::path::PathBuf;

/// Opens a vhost-user or memif port in a process of its own. `path` is the socket's, from the root.
///
/// # Errors
/// The process cannot be started, or those of [`pktio_vhost::open`] and [`pktio_memif::open`] there;
/// [`Error::Socket`] if another memif port serves the same socket.
pub fn open(spec: &DeviceSpec, path: PathBuf, options: &PortOptions, pool: PoolRef) -> Result<Box<dyn Device>, Error> {
    let listens = match spec {
        DeviceSpec::Vhost { server, .. } => *server,
        DeviceSpec::Memif { role, .. } => *role == MemifRole::Server,
        _ => {
            let reason = "only vhost and memif ports have processes of their own";
            return Err(Error::Unsupported { device: spec.to_string(), reason });
        }
    };
    let claim = match spec {
        DeviceSpec::Memif { .. } if listens => Some(sockets::Claim::new(spec, &path)?),
        _ => None,
    };
    let start = Start {
        spec: spec.to_string(),
        path,
        queues: options.queues.clamp(1, pktio_vhost::QUEUES_MAX),
        descriptors: options.descriptors,
        mtu: options.mtu,
        memory_mb: options.memory_mb,
    };
    let mtu = options.mtu.unwrap_or(MTU_DEFAULT);
    let running = supervisor::start(start, listens, claim, pool)?;
    Ok(Box::new(ProcessDevice::new(spec.kind(), mtu, running)))
}
