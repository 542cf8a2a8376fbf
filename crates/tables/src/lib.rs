//! Match engines: one writer, many lock-free readers.
//!
//! A [`Table`] takes entries as plain values ([`base::entry`]) from its one writer and gives compiled code a
//! [`abi::TableBinding`] to look keys up. Key layout and match kinds choose its engine ([`strategy`]). Workers share a
//! [`Domain`] with the writers and announce quiescent points; memory is freed only behind those ([`reclaim`]).
//!
//! - [`direct`], [`exact`], [`lpm`], [`ternary`]: the engines; each file's first lines say how readers run while it
//!   changes.
//! - [`prefilter`]: which keys match no rule, told by few of their bytes ([`columns`]).
//! - [`selector`]: groups of weighted members.
//! - [`entry`], [`key`]: how entries and keys lie in memory; [`region`]: large arrays, in huge pages.
//! - [`workload`]: contents of realistic shape, for measurements.

pub mod exact;
pub mod map;
pub mod reclaim;
mod sync;
pub mod version;

// The model checker (`--cfg loom`) sees the lock-free protocols above; what is built on them is tested with threads.
#[cfg(not(loom))]
mod bytes;
#[cfg(not(loom))]
mod cells;
#[cfg(not(loom))]
pub mod columns;
#[cfg(not(loom))]
pub mod direct;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
pub mod entry;
#[cfg(not(loom))]
mod index;
#[cfg(not(loom))]
pub mod key;
#[cfg(not(loom))]
pub mod lpm;
#[cfg(not(loom))]
pub mod prefilter;
#[cfg(not(loom))]
mod recorded;
#[cfg(not(loom))]
mod records;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
pub mod selector;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
pub mod strategy;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
pub mod ternary;
#[cfg(not(loom))]
pub mod workload;

#[cfg(not(loom))]
pub use entry::Runs;
#[cfg(not(loom))]
pub use exact::dynamic::DynamicSpec;
pub use reclaim::{Domain, Limbo, Worker};
#[cfg(not(loom))]
pub use table::{SpecError, Table, TableSpec, Wanted};

/// Two random words for a hash; the second one is odd, so that products do not lose bits.
pub(crate) fn random_seeds() -> [u64; 2] {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new();
    [random.hash_one(0u8), random.hash_one(1u8) | 1]
}
