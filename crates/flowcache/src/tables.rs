//! A table's entries, as traces look them up: with the bits of the key that decided.

mod classifier;
mod lanes;
#[cfg(test)]
mod tests;
mod trie;

pub use classifier::{Classifier, Found};
