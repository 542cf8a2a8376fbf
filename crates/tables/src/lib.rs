//! Match engines: one writer, many lock-free readers.
//!
//! - [`exact`]: bucketised hash for keys of up to 16 bytes; its probe is inlined by `jit`.
//! - [`reclaim`]: when memory that readers could have seen may be freed.

pub mod exact;
pub mod reclaim;
mod sync;

pub use reclaim::{Domain, Limbo, Worker};

/// Two random words for a hash; the second one is odd, so that products do not lose bits.
pub(crate) fn random_seeds() -> [u64; 2] {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new();
    [random.hash_one(0u8), random.hash_one(1u8) | 1]
}
