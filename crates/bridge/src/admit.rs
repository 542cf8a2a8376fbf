//! Admission checks of flows and actions that depend on the P4 program and on the existing tables, groups and
//! meters. `openflow::check` has those that depend on the message alone.

use crate::features::Capabilities;
use crate::key::Layout;
use crate::references::each_action;
use crate::tables::limit;
use crate::view::View;
use openflow::action::port;
use openflow::message::meter;
use openflow::{Action, Error, ErrorKind, Fields, Instructions, Match};
use std::sync::Arc;

/// The admission checks of a bridge.
#[derive(Debug)]
pub(crate) struct Admit {
    pub layout: Arc<Layout>,
    pub capabilities: Capabilities,
}

impl Admit {
    /// The program's match fields.
    pub fn fields(&self) -> &Arc<Fields> {
        self.layout.fields()
    }

    /// Checks a match: the prerequisites of its fields must be matched as well (`OFPBMC_BAD_PREREQ`).
    pub fn matching(&self, matching: &Match) -> Result<(), Error> {
        match matching.lacks_prerequisite(self.fields()) {
            None => Ok(()),
            Some(field) => {
                let why = format!("what `{}` needs is not matched", self.fields().get(field).name);
                Err(Error::new(ErrorKind::BmcBadPrereq, why))
            }
        }
    }

    /// Checks the instructions of a flow with this match in a table.
    pub fn flow(
        &self,
        tables: &View<'_>,
        instructions: &Instructions,
        matching: &Match,
        table: u8,
    ) -> Result<(), Error> {
        openflow::check::check(instructions, matching, self.fields())?;
        check_conjunctions(instructions)?;
        if let Some(next) = instructions.goto
            && (next >= limit::TABLES || next <= table && table != crate::flow_mod::ALL_TABLES)
        {
            return Err(Error::new(ErrorKind::BicBadTableId, format!("table {table} cannot go to table {next}")));
        }
        if let Some(id) = instructions.meter {
            has_meter(tables, id)?;
        }
        self.actions(tables, &instructions.apply)?;
        self.actions(tables, &instructions.write)
    }

    /// Checks the actions of a bucket or a packet-out.
    pub fn list(&self, tables: &View<'_>, actions: &[Action]) -> Result<(), Error> {
        openflow::check::check_unmatched(actions, self.fields())?;
        if actions.iter().any(|action| matches!(action, Action::Conjunction { .. })) {
            return Err(Error::new(ErrorKind::NxbacBadConjunction, "only flows are parts of conjunctions"));
        }
        self.actions(tables, actions)
    }

    fn actions(&self, tables: &View<'_>, actions: &[Action]) -> Result<(), Error> {
        let mut result = Ok(());
        each_action(actions, &mut |action| {
            if result.is_ok() {
                result = self.action(tables, action);
            }
        });
        result
    }

    fn action(&self, tables: &View<'_>, action: &Action) -> Result<(), Error> {
        match action {
            Action::Output { port, .. } | Action::OutputTruncated { port, .. } | Action::Enqueue { port, .. } => {
                can_output(*port)
            }
            Action::Bundle { members, .. } => {
                members.iter().filter(|port| **port != port::ANY).try_for_each(|port| can_output(*port))
            }
            Action::Group(id) if tables.group(*id).is_none() => {
                Err(Error::new(ErrorKind::BacBadOutGroup, format!("there is no group {id}")))
            }
            Action::Meter(id) => has_meter(tables, *id),
            Action::Controller(controller) => controller.meter.map_or(Ok(()), |id| has_meter(tables, id)),
            Action::Header { name, .. } if !self.capabilities.has(*name) => {
                let why = format!("the program has no action `{}`", name.name());
                Err(Error::new(ErrorKind::BacBadType, why))
            }
            Action::DecTtlControllers(_) if !self.capabilities.has(openflow::action::HeaderAction::DecNwTtl) => {
                Err(Error::new(ErrorKind::BacBadType, "the program has no action `dec_nw_ttl`"))
            }
            Action::Resubmit { table: Some(table), .. } if *table >= limit::TABLES && *table != 0xff => {
                Err(Error::new(ErrorKind::BrcBadTableId, format!("there is no table {table} to resubmit to")))
            }
            Action::Resubmit { with_ct: true, .. } => {
                Err(Error::new(ErrorKind::BacBadType, "connection tracking is not supported: resubmit(…,ct)"))
            }
            Action::Learn(learn) if learn.table >= limit::TABLES => {
                Err(Error::new(ErrorKind::BacBadArgument, format!("there is no table {} to learn into", learn.table)))
            }
            Action::GotoTable(table) if *table >= limit::TABLES => {
                Err(Error::new(ErrorKind::BicBadTableId, format!("there is no table {table}")))
            }
            Action::SetField { field, .. } if !self.fields().get(*field).writable => {
                let why = format!("`{}` cannot be written", self.fields().get(*field).name);
                Err(Error::new(ErrorKind::BacBadSetArgument, why))
            }
            Action::Unsupported(name) => Err(Error::new(ErrorKind::BacBadType, format!("`{name}` is not supported"))),
            _ => Ok(()),
        }
    }
}

/// Checks an output port: it need not exist yet, but its number must be valid (1.3.5, 7.4.4.4:
/// `OFPBAC_BAD_OUT_PORT`).
fn can_output(to: u32) -> Result<(), Error> {
    match to {
        1..port::MAX | port::IN_PORT..=port::LOCAL => Ok(()),
        _ => Err(Error::new(ErrorKind::BacBadOutPort, format!("{to} is no port to output to"))),
    }
}

fn has_meter(tables: &View<'_>, id: u32) -> Result<(), Error> {
    if id == 0 || id > meter::MAX || tables.meter(id).is_none() {
        return Err(Error::new(ErrorKind::MmfcInvalidMeter, format!("there is no meter {id}")));
    }
    Ok(())
}

/// Checks that a flow with `conjunction` actions does nothing else (ovs-actions(7), "conjunction").
fn check_conjunctions(instructions: &Instructions) -> Result<(), Error> {
    let mut has_conjunction = false;
    let mut conjunctions = 0;
    crate::references::each_of_flow(instructions, &mut |action| {
        has_conjunction |= matches!(action, Action::Conjunction { .. });
        conjunctions += usize::from(matches!(action, Action::Conjunction { .. } | Action::Note(_)));
    });
    let Instructions { meter, apply, clear, write, metadata, goto } = instructions;
    let is_alone = conjunctions == apply.len()
        && !clear
        && write.is_empty()
        && meter.is_none()
        && metadata.is_none()
        && goto.is_none();
    if has_conjunction && !is_alone {
        return Err(Error::new(
            ErrorKind::NxbacBadConjunction,
            "a flow with `conjunction` does nothing else but `note`",
        ));
    }
    Ok(())
}
