//! vhost-user back end: ports that exchange packets with a virtual machine through virtqueues in its memory.
//!
//! ```text
//!  front end ──socket──▶ service thread (one per port)        workers (one per queue)
//!                          connection: bytes → messages         queue: Queue for the engine
//!                          session:    messages → rings  ──────▶ pair: lock around both rings
//!                          notifier thread ◀── "call" ────────── ring: split, packed
//!                             │ eventfd
//!                             ▼
//!                           guest
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `message` | the protocol's messages as values, from and to bytes |
//! | `connection` | a non-blocking socket from which messages are read into a bounded buffer |
//! | `session` | the state that one front end has set up, and the rings built from it |
//! | `service` | the port's thread: connects or listens, and runs sessions |
//! | `memory` | the guest's memory: address translation, and the log of dirty pages |
//! | `events` | a peer's eventfds: call eventfds are checked, kick eventfds are polled |
//! | `ring`, `split`, `packed` | virtqueues (virtio 1.2, 2.7 and 2.8), without sockets or packets |
//! | `plain` | fast path of both ring formats: frames in a single buffer |
//! | `chain` | copies between chains of descriptors and packets |
//! | `queue` | [`pktio::Queue`]: bursts, budgets, offloads |
//! | `device` | [`open`] and [`pktio::Device`] |
//! | `lock` | the workers' lock; the one file with unsafe code |
//!
//! # Trust
//!
//! The front end, the guest and everything in shared memory are hostile, and may change at any moment. A descriptor is
//! copied once and the copy is checked. Each address is checked against the memory table; the slice that results cannot
//! outlive the table. Whatever a front end sets (size, addresses, features, memory) takes effect through one function,
//! which rebuilds the rings and checks them again (`session::Session::rebuild`). An error costs the guest its packet,
//! its ring or its connection.
//!
//! A worker makes no system call for a guest: it asks the notifier thread to write to a call eventfd. Only that thread
//! can block there. One poll takes a bounded number of packets, descriptors and bytes from a guest (`terms::Budget`).
//! Sockets are read without blocking, by a thread that belongs to one port.
//!
//! Not supported: indirect descriptors, event indices, UDP fragmentation, post-copy migration, an IOMMU.
//!
//! The protocol is implemented here because rust-vmm's `vhost` blocks until a message is complete (it retries when a
//! socket's timeout expires) and closes the connection on the RARP, MTU and status requests that QEMU sends.
//! `vm-memory` is not used because it does not survive a truncated file, and copies small ranges byte by byte.
//!
//! Source: QEMU's documentation of the vhost-user protocol (interop/vhost-user), virtio 1.2. Tests: `tests/hostile.rs`
//! (front ends that attack), `tests/honest.rs`, `pktio-dpdk/tests/` (against testpmd and the kernel's TCP).
#![deny(unsafe_op_in_unsafe_fn)]

mod chain;
mod connection;
mod device;
mod events;
#[doc(hidden)]
pub mod fuzz;
mod lock;
mod memory;
mod message;
mod packed;
mod plain;
mod port;
mod queue;
mod ring;
mod service;
mod session;
mod split;
mod terms;

pub use device::{Options, QUEUES_MAX, open};
pub use memory::LOG_BYTES_MAX;
