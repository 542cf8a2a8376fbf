//! Memory that a peer shares with us, and may change or take away at any moment.
//!
//! A [`Mapping`] is a range of a file that the peer has sent, mapped after checks: the file lives in memory (memfd, tmpfs
//! or hugetlbfs) and reaches to the end of the range. The peer keeps the file and may truncate it later. Then an access
//! raises SIGBUS; the handler in [`guard`](self) puts zeros in place of the whole mapping, once, and marks it as damaged.
//! Whoever uses it reads zeros, sees [`Mapping::is_damaged`] and closes the port, for a while ([`Pause`]). Nothing else stops.
//!
//! Access goes through [`Slice`] and [`Array`], which check every offset and never make a Rust reference to shared bytes.
//!
//! | file | holds |
//! | --- | --- |
//! | `mapping` | [`Mapping`]: what is checked, and how |
//! | `file` | what a peer's file is |
//! | `slice` | [`Slice`]: reads, writes and copies |
//! | `array` | [`Array`]: numbers of a ring
//! | `batch` | [`Batch`]: what a burst has at hand
//! | `access` | prefetches, and the copy of short frames |
//! | `guard` | the SIGBUS handler and its registry |
//! | `quota` | [`Quota`]: how many mappings a port may have |
//! | `room` | [`Room`]: whether there is memory for the pages of a peer's file; [`Reading`]: how much the process may have
//! | `limit` | [`Limit`]: how often a peer may ask for something |
//! | `pause` | [`Pause`]: how long a port is closed to peers that do damage |
//! | `peer` | [`Peer`]: which process is at the other end of a socket |
//! | `received` | [`PeerFile`]: files that a peer has sent; these and mappings end where nobody waits for them |
//! | `waits` | [`Usage`]: what the kernel has counted for a thread: waits, faults, time |
//! | `overdue` | [`Overdue`]: whether a call that touches a peer's memory takes too long |
//! | `notify` | [`Notifier`], [`Watch`]: eventfds that a peer has too |
//!
//! Threads: a mapping may be used from any thread; the last owner unmaps it.
//! **Invariant:** all bytes of a mapping are hostile. What is read is a copy, and is checked after it was copied.
//! Tests: `tests/damage.rs` (truncated files, in processes of their own), `tests/room.rs` (a control group with a limit), and
//! below each file.
#![deny(unsafe_op_in_unsafe_fn)]

mod access;
mod array;
mod batch;
mod error;
mod file;
mod guard;
mod limit;
mod mapping;
mod notify;
mod overdue;
mod pause;
mod peer;
mod quota;
mod received;
mod room;
mod slice;
mod waits;

pub use access::{copy, prefetch, prefetch_to_write};
pub use array::Array;
pub use batch::Batch;
pub use error::MapError;
pub use guard::{damages, is_guarding, verify};
pub use limit::Limit;
pub use mapping::{Mapping, is_huge};
pub use notify::{Caller, Doorbell, Notifier, Watch, is_eventfd};
pub use overdue::{Entered, Overdue, enter};
pub use pause::Pause;
pub use peer::Peer;
pub use quota::Quota;
pub use received::{Closer, FILES_MAX, PeerFile};
pub use room::{Group, Place, Reading, Room, Shortage};
pub use slice::{Plain, Slice};
pub use waits::Usage;
