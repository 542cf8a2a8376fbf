//! vhost-user ports: a guest's rings are read and written straight between its buffers and our packets.
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
//! | `connection` | a socket from which messages are read without waiting, in bounded buffers |
//! | `session` | what one front end has told, and the rings made of it |
//! | `service` | the port's thread: connects or listens, and runs sessions |
//! | `memory` | the guest's memory: address translation, and the log of dirty pages |
//! | `events` | eventfds of a peer: checked, and written by a thread of their own |
//! | `ring`, `split`, `packed` | rings (virtio 1.2, 2.7 and 2.8), without sockets or packets |
//! | `plain` | frames in one buffer each: the quick part of both kinds
//! | `chain` | copies between chains of descriptors and packets |
//! | `queue` | [`pktio::Queue`]: bursts, budgets, offloads |
//! | `device` | [`open`] and [`pktio::Device`] |
//! | `lock` | the workers' lock; the one file with unsafe code |
//!
//! # Trust
//!
//! The front end, the guest and everything in shared memory are hostile, and may change at any moment. Each descriptor is
//! copied once, and the copy is checked; each address is checked against the memory table, by slices that do not outlive
//! it. Whatever a front end sets (size, addresses, features, memory) takes effect through one function that derives the
//! rings anew and checks them (`session::Session::rebuild`). What is wrong costs the guest its packet, ring or connection.
//!
//! A worker makes no system call for a guest: it asks the notifier thread to write a call eventfd, which may block there
//! and nowhere else. Per poll a guest gets a bounded number of packets, descriptors and bytes ([`ring::Budget`]). Sockets
//! are read without waiting, by a thread that belongs to one port.
//!
//! Not offered: indirect descriptors, event indices, UDP fragmentation, post-copy migration, an IOMMU.
//!
//! The protocol is our own code and not rust-vmm's `vhost`, because that reads a message with calls that wait for its end
//! (it retries when a socket's timeout expires), and ends the connection at RARP, MTU and status requests, which QEMU sends.
//! Nor is `vm-memory` used: it does not survive a truncated file, and copies small ranges byte by byte.
//!
//! Source: the vhost-user protocol of QEMU's documentation (interop/vhost-user), virtio 1.2. Tests: `tests/hostile.rs` (front
//! ends that attack), `tests/honest.rs`, `pktio-dpdk/tests/` (against testpmd and a kernel's TCP).
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
