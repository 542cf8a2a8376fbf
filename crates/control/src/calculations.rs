//! Hash calculations whose parameters are set by the calculation's name, as bmv2's tools do.
//!
//! A calculation always has parameters, so its entry can be modified, but not inserted or deleted. Tests:
//! `crates/control/tests/p4runtime/calculations.rs`; after a restart, `tests/py/test_thrift.py`.

use crate::entity::{CalculationEntry, Entity, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::Forwarding;
use abi::state::HashParameters;

impl Forwarding {
    pub(crate) fn write_calculation(&mut self, kind: UpdateKind, entry: &CalculationEntry) -> Result<()> {
        let CalculationEntry { name, parameters } = entry;
        if kind != UpdateKind::Modify {
            return Err(Error::invalid("the parameters of a calculation can only be modified"));
        }
        let Some(parameters) = parameters else {
            return Err(Error::invalid(format!("calculation `{name}`: no parameters are given")));
        };
        let set = self.state().hash_parameters_set(Some(name), parameters);
        set.map_err(|error| Error::from_state(error, &format!("calculation `{name}`")))
    }

    pub(crate) fn read_calculations(&self, query: &CalculationEntry, into: &mut Vec<Entity>) -> Result<()> {
        let all = query.name.is_empty();
        let mut found = false;
        for (name, parameters) in self.state().hash_parameters() {
            let Some(name) = name.filter(|name| all || *name == query.name) else { continue };
            found = true;
            into.push(Entity::Calculation(CalculationEntry { name, parameters: Some(parameters) }));
        }
        match all || found {
            true => Ok(()),
            false => Err(Error::not_found(format!("there is no calculation `{}`", query.name))),
        }
    }

    /// Whether a calculation still has its initial parameters.
    pub(crate) fn calculation_is_initial(&self, entry: &CalculationEntry) -> bool {
        let calculation = self.schema.program.calculations.iter().find(|calculation| calculation.name == entry.name);
        let initial = calculation.map(|calculation| HashParameters::initial(calculation.function));
        initial.is_some() && entry.parameters == initial
    }
}
