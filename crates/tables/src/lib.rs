//! Match engines for one writer and many lock-free readers.
//!
//! A [`Table`] takes entries as plain values ([`base::entry`]) from its one writer, and gives compiled code an
//! [`abi::TableBinding`] with which to look keys up. The key layout and match kinds determine its engine
//! ([`strategy`]). Workers share a [`Domain`] with the writers and announce quiescent points; memory is freed only
//! after all workers have passed one ([`reclaim`]).
//!
//! - [`direct`], [`exact`], [`lpm`], [`ternary`]: the engines; the first lines of each say how readers proceed during a
//!   change.
//! - [`prefilter`]: rejects keys that match no rule, by testing a few of their bytes ([`columns`]).
//! - [`selector`]: groups of weighted members.
//! - [`entry`], [`key`]: memory layouts of entries and keys; [`region`]: large arrays in huge pages.
//! - [`workload`]: realistic table contents for measurements.

pub mod exact;
pub mod map;
pub mod reclaim;
mod sync;
pub mod version;

// The model checker (`--cfg loom`) sees only the lock-free protocols above; what builds on them is tested with threads.
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

/// Two random words that seed a hash; the second is odd, so that multiplication by it is a bijection and loses no bits.
pub(crate) fn random_seeds() -> [u64; 2] {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new();
    [random.hash_one(0u8), random.hash_one(1u8) | 1]
}
