//! Changes of the tables, and of the index of references between flows, groups, meters and cookies.
//!
//! A request is planned as a list of changes (`flow_mod`, `groups`, `meters`, `port_mod`). The index, which only
//! requests read, is updated at once; if a bundle fails, its updates are undone in reverse order. The tables, which
//! packets read, are changed when the whole request is planned.

use crate::flow::{Flow, Group, Meter};
use crate::tables::{TableSettings, Tables};
use openflow::message::{Port, RemovedReason};
use std::sync::Arc;

/// Why a flow changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// It is added, and may replace another one.
    Add,
    /// Its instructions or its cookie are modified.
    Modify,
    /// It is removed.
    Remove(RemovedReason),
}

/// A change of a flow.
#[derive(Debug)]
pub(crate) struct FlowChange {
    /// The flow before the change.
    pub old: Option<Arc<Flow>>,
    /// The flow after the change.
    pub new: Option<Arc<Flow>>,
    /// The cause.
    pub cause: Cause,
}

impl FlowChange {
    /// A flow's removal.
    pub fn removal(old: &Arc<Flow>, reason: RemovedReason) -> FlowChange {
        FlowChange { old: Some(Arc::clone(old)), new: None, cause: Cause::Remove(reason) }
    }
}

/// A change of the tables.
#[derive(Debug)]
pub(crate) enum Change {
    /// A change of a flow.
    Flow(FlowChange),
    /// A change of a group.
    Group { id: u32, old: Option<Arc<Group>>, new: Option<Arc<Group>> },
    /// A change of a meter.
    Meter { id: u32, old: Option<Arc<Meter>>, new: Option<Arc<Meter>> },
    /// A change of a port.
    Port { number: u32, old: Option<Port>, new: Option<Port> },
    /// A change of a table's settings.
    Settings { table: u8, old: TableSettings, new: TableSettings },
}

impl Change {
    /// Applies the change to the tables, where packets see it.
    pub fn apply(&self, tables: &mut Tables) {
        match self {
            Change::Flow(change) => {
                let found = match (&change.old, &change.new) {
                    (_, Some(new)) => tables.insert_flow(Arc::clone(new)),
                    (Some(old), None) => tables.remove_flow(old.table, &old.matching, old.priority),
                    (None, None) => None,
                };
                debug_assert_eq!(
                    found.as_ref().map(Arc::as_ptr),
                    change.old.as_ref().map(Arc::as_ptr),
                    "the change was planned on other tables"
                );
            }
            Change::Group { id, new, .. } => drop(tables.replace_group(*id, new.clone())),
            Change::Meter { id, new, .. } => drop(tables.replace_meter(*id, new.clone())),
            Change::Port { number, new, .. } => drop(tables.replace_port(*number, new.clone())),
            Change::Settings { table, new, .. } => drop(tables.replace_settings(*table, new.clone())),
        }
    }
}
