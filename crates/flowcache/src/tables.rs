//! Table lookup for traces, which also returns the key bits that determine the result.

mod classifier;
mod lanes;
#[cfg(test)]
mod tests;
mod trie;

pub use classifier::{Classifier, Found};
