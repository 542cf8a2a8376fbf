//! The verifier's output: the input of interpreter and compiler.

use crate::instruction::Op;
use crate::map::Map;
use crate::object::link::Linked;
use crate::run::{Log, Random};
use crate::verifier::Role;
use std::sync::Arc;

/// A verified program, with the state shared by its runs.
pub(crate) struct Verified {
    pub(crate) ops: Vec<Op>,
    pub(crate) roles: Vec<Role>,
    pub(crate) linked: Linked,
    pub(crate) maps: Vec<Arc<Map>>,
    pub(crate) budget: i64,
    pub(crate) random: Random,
    pub(crate) log: Log,
}

impl Verified {
    /// The number of instructions of the function that begins at `start`.
    pub(crate) fn len_of(&self, start: usize) -> i64 {
        self.linked.functions[self.linked.function_of(start)].len as i64
    }
}
