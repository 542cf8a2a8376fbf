//! Consistency of a flow's actions with its match (OpenFlow 1.3.5, 5.10 and 6.4: `OFPBAC_MATCH_INCONSISTENT`).
//!
//! An action may only access a field whose prerequisites the match guarantees; [`Fields`] gives the prerequisites.
//! After an action that adds or removes headers, the match no longer describes the packet, so that nothing more is
//! refused.

use std::collections::BTreeMap;

use crate::action::{Action, Instructions, Learn, LearnSpec, Source, Subfield};
use crate::error::{Error, ErrorKind};
use crate::field::{FieldId, Fields};
use crate::matching::Match;

/// Checks the instructions of a flow with this match. Actions of the action set are checked as if they were applied in
/// this table, as in Open vSwitch.
///
/// # Errors
/// `OFPBAC_MATCH_INCONSISTENT` for a field whose prerequisites the match does not guarantee; `OFPBAC_BAD_SET_LEN` or
/// `OFPBAC_BAD_SET_ARGUMENT` for bits that a field does not have or that no action may write.
pub fn check(instructions: &Instructions, matching: &Match, fields: &Fields) -> Result<(), Error> {
    check_list(&instructions.apply, matching, fields)?;
    check_list(&instructions.write, matching, fields)
}

/// Checks a list of actions for packets of a match.
///
/// # Errors
/// See [`check`].
pub fn check_list(actions: &[Action], matching: &Match, fields: &Fields) -> Result<(), Error> {
    let mut check = Check { matching, fields, is_certain: true };
    actions.iter().try_for_each(|action| check.action(action))
}

/// Checks a list of actions for packets whose headers are unknown: those of buckets and packet-outs.
///
/// # Errors
/// See [`check`]. `OFPBAC_MATCH_INCONSISTENT` is reported for learned flows only.
pub fn check_unmatched(actions: &[Action], fields: &Fields) -> Result<(), Error> {
    let mut check = Check { matching: &Match::any(), fields, is_certain: false };
    actions.iter().try_for_each(|action| check.action(action))
}

struct Check<'a> {
    matching: &'a Match,
    fields: &'a Fields,
    /// Whether the packet still has the headers that the match describes.
    is_certain: bool,
}

impl Check<'_> {
    fn action(&mut self, action: &Action) -> Result<(), Error> {
        match action {
            Action::OutputField { field, .. } | Action::StackPush(field) => self.read(*field),
            Action::StackPop(to) | Action::CheckPacketLarger { to, .. } | Action::Multipath { to, .. } => {
                self.write(*to)
            }
            Action::Bundle { to, .. } => to.map_or(Ok(()), |to| self.write(to)),
            Action::SetField { field, .. } => {
                self.provided(*field)?;
                // A write of a VLAN tag's CFI adds or removes the tag.
                self.is_certain &= crate::wire::number::vlan_tci(self.fields) != Some(*field);
                Ok(())
            }
            // It would do nothing where it is meant to do something.
            Action::SetFieldIfPresent { field, .. }
                if self.is_certain && self.matching.provides(*field, self.fields) =>
            {
                writable(*field, self.fields)
            }
            Action::Move { from, to } => {
                self.read(*from)?;
                self.write(*to)
            }
            Action::Learn(learn) => self.learn(learn),
            Action::Clone(actions) => {
                let mut check = Check { is_certain: self.is_certain, ..*self };
                actions.iter().try_for_each(|action| check.action(action))
            }
            Action::WriteActions(actions) => actions.iter().try_for_each(|action| self.action(action)),
            Action::Header { .. } | Action::Program { .. } => {
                self.is_certain = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn provided(&self, field: FieldId) -> Result<(), Error> {
        if !self.is_certain || self.matching.provides(field, self.fields) {
            return Ok(());
        }
        Err(inconsistent(field, self.fields))
    }

    fn read(&self, bits: Subfield) -> Result<(), Error> {
        within(bits, self.fields)?;
        self.provided(bits.field)
    }

    fn write(&self, bits: Subfield) -> Result<(), Error> {
        self.read(bits)?;
        writable(bits.field, self.fields)
    }

    /// Checks a `learn` action: constants that earlier parts match must provide the prerequisites of later parts.
    fn learn(&self, learn: &Learn) -> Result<(), Error> {
        if let Some(result) = learn.result {
            self.write(result)?;
        }
        let mut constants = BTreeMap::new();
        for spec in &learn.specs {
            let (from, to) = match spec {
                LearnSpec::Match { to, from } | LearnSpec::Load { to, from } => (*from, Some(*to)),
                LearnSpec::Output { from } => (Source::Field(*from), None),
            };
            if let Source::Field(from) = from {
                self.read(from)?;
            }
            let Some(to) = to else { continue };
            within(to, self.fields)?;
            if matches!(spec, LearnSpec::Load { .. }) {
                writable(to.field, self.fields)?;
            }
            let needs: Vec<FieldId> = self.fields.get(to.field).prerequisites.iter().map(|needs| needs.field).collect();
            let mut learned = Match::any();
            for field in needs {
                if let Some((value, mask)) = constants.get(&field) {
                    learned.add(field, *value, *mask);
                }
            }
            if !learned.provides(to.field, self.fields) {
                return Err(inconsistent(to.field, self.fields));
            }
            if let (LearnSpec::Match { .. }, Source::Value(value)) = (spec, from) {
                let (all, mask): &mut (u128, u128) = constants.entry(to.field).or_default();
                *all |= value << to.offset;
                *mask |= ones(to.bits) << to.offset;
            }
        }
        Ok(())
    }
}

fn ones(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

fn within(bits: Subfield, fields: &Fields) -> Result<(), Error> {
    let field = fields.get(bits.field);
    if bits.bits > 0 && bits.offset < field.width && bits.bits <= field.width - bits.offset {
        return Ok(());
    }
    Err(Error::new(ErrorKind::BacBadSetLen, format!("`{}` has {} bits", field.name, field.width)))
}

fn writable(field: FieldId, fields: &Fields) -> Result<(), Error> {
    let field = fields.get(field);
    if field.writable {
        return Ok(());
    }
    Err(Error::new(ErrorKind::BacBadSetArgument, format!("`{}` cannot be written", field.name)))
}

fn inconsistent(field: FieldId, fields: &Fields) -> Error {
    let text = format!("the match does not make sure that there is `{}`", fields.get(field).name);
    Error::new(ErrorKind::BacMatchInconsistent, text)
}

#[cfg(test)]
mod tests;
