//! Locks of register cells, for programs that run on several workers. `ir::atomicity` defines which locks there are and
//! when packets acquire and release them.

use crate::error::Error;
use crate::ssa::Var;
use abi::{Bindings, ExternBinding};
use ir::{Acquisitions, EntryPoint, ExternId, Program};
use std::collections::{BTreeMap, BTreeSet};

/// The locks of an entry point.
#[derive(Default)]
pub(crate) struct Locks {
    pub acquisitions: Acquisitions,
    /// By lock rank: the address of the lock that the packet holds, or 0.
    pub held: BTreeMap<u32, Var>,
}

/// The lock rank of a register, if its cells have locks.
pub(crate) fn lock_rank(bindings: &Bindings, register: ExternId) -> Option<u32> {
    match bindings.externs.get(register.index()) {
        Some(&ExternBinding::Register { lock_rank, .. }) => lock_rank,
        _ => None,
    }
}

impl Locks {
    /// The locks of an entry point; `declare` creates a variable.
    ///
    /// # Errors
    /// [`Error::Binding`] if the ranks in `bindings` would have a register locked out of order.
    pub fn new(
        program: &Program,
        entry: &EntryPoint,
        bindings: &Bindings,
        mut declare: impl FnMut() -> Var,
    ) -> Result<Locks, Error> {
        let rank = |register| lock_rank(bindings, register);
        let ranks: Vec<u32> = (0..program.externs.len()).filter_map(|i| rank(ExternId::from_index(i))).collect();
        if ranks.is_empty() {
            return Ok(Locks::default());
        }
        let acquisitions = Acquisitions::new(program, entry, &rank).map_err(|register| {
            let name = &program.externs[register.index()].name;
            Error::Binding(format!("register `{name}` would be locked out of order"))
        })?;
        if acquisitions.is_empty() {
            return Ok(Locks::default());
        }
        let held = ranks.into_iter().collect::<BTreeSet<u32>>().into_iter().map(|rank| (rank, declare())).collect();
        Ok(Locks { acquisitions, held })
    }
}
