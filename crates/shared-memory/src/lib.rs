//! Memory that a peer shares with us, and may change or take away at any moment.
//!
//! A [`Mapping`] is a range of a file that the peer has sent. It is mapped after two checks: the file lives in
//! memory (memfd, tmpfs or hugetlbfs), and it is long enough. The peer keeps the file and may truncate it
//! later. An access then raises SIGBUS; the handler in [`guard`](self) replaces the whole mapping by zeros,
//! once, and marks it as damaged. Its user reads zeros, sees [`Mapping::is_damaged`] and closes the port for a
//! while ([`Pause`]). Nothing else is affected.
//!
//! Access goes through [`Slice`] and [`Array`], which check every offset and
//! never make a Rust reference to shared bytes.
//!
//! | file | holds |
//! | --- | --- |
//! | `mapping` | [`Mapping`]: a checked mapping of a file |
//! | `file` | properties of a peer's file |
//! | `slice` | [`Slice`]: reads, writes and copies |
//! | `array` | [`Array`]: integers of a ring |
//! | `batch` | [`Batch`]: a burst's values on the stack |
//! | `access` | prefetches, and the copy of short frames |
//! | `guard` | the SIGBUS handler and its registry |
//! | `quota` | [`Quota`]: how many mappings a port may have |
//! | `room` | [`Room`]: admission control for the pages of peers' files; [`Reading`]: memory limits and usage |
//! | `guest` | [`Guest`]: the account of a port that another process of ours serves |
//! | `limit` | [`Limit`]: a peer's rate limit |
//! | `pause` | [`Pause`]: how long a port is closed to peers that do damage |
//! | `peer` | [`Peer`]: the process at the other end of a socket |
//! | `received` | [`PeerFile`], [`Closer`]: a peer's files and mappings are closed on another thread |
//! | `waits` | [`Usage`]: the kernel's counts of a thread's waits, page faults and processor time |
//! | `overdue` | [`Overdue`]: whether a call that touches a peer's memory takes too long |
//! | `notify` | [`Notifier`], [`Watch`]: eventfds shared with a peer |
//!
//! Threads: a mapping may be used from any thread; the last owner unmaps it.
//! **Invariant:** all bytes of a mapping are hostile. Reads copy, and the copy is checked.
//! Tests: `tests/damage.rs` (truncated files, in separate processes), `tests/room.rs` (a control group with a limit),
//! and in each file.
#![deny(unsafe_op_in_unsafe_fn)]

mod access;
mod array;
mod batch;
mod error;
mod file;
mod guard;
mod guest;
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
pub use guest::Guest;
pub use limit::Limit;
pub use mapping::{Mapping, is_huge};
pub use notify::{Caller, Doorbell, Notifier, Watch, is_eventfd};
pub use overdue::{Entered, Overdue, enter, start_monitor};
pub use pause::Pause;
pub use peer::Peer;
pub use quota::Quota;
pub use received::{Closer, FILES_MAX, PeerFile};
pub use room::{Group, Landlord, NotAdmitted, Place, Reading, Room, Shortage, ask};
pub use slice::{Plain, Slice};
pub use waits::Usage;
