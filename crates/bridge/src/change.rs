//! Changes of tables, which can be undone.
//!
//! A request becomes changes (`flow_mod`, `groups`, `meters`, `ports`), which are applied here. A bundle that fails undoes its
//! changes in reverse order while it still holds the write lock, so packets see all of a bundle or nothing.

use crate::flow::{Flow, Group, Meter};
use crate::references::Index;
use crate::tables::{TableSettings, Tables, table_config};
use openflow::message::{Port, RemovedReason};
use std::sync::Arc;

/// Why a flow changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// It is added, maybe in the place of another.
    Add,
    /// Its instructions or its cookie are changed.
    Modify,
    /// It is removed.
    Remove(RemovedReason),
}

/// A change of a flow.
#[derive(Debug)]
pub(crate) struct FlowChange {
    /// What was there.
    pub old: Option<Arc<Flow>>,
    /// What is there then.
    pub new: Option<Arc<Flow>>,
    /// Why.
    pub cause: Cause,
}

impl FlowChange {
    /// A flow's removal.
    pub fn removal(old: &Arc<Flow>, reason: RemovedReason) -> FlowChange {
        FlowChange { old: Some(Arc::clone(old)), new: None, cause: Cause::Remove(reason) }
    }
}

/// A change of anything.
#[derive(Debug)]
pub(crate) enum Change {
    /// Of a flow.
    Flow(FlowChange),
    /// Of a group.
    Group { id: u32, old: Option<Arc<Group>>, new: Option<Arc<Group>> },
    /// Of a meter.
    Meter { id: u32, old: Option<Arc<Meter>>, new: Option<Arc<Meter>> },
    /// Of a port.
    Port { number: u32, old: Option<Port>, new: Option<Port> },
    /// Of a table's settings.
    Settings { table: u8, old: TableSettings, new: TableSettings },
}

impl Change {
    /// Makes the change.
    pub fn apply(&self, tables: &mut Tables, index: &mut Index) {
        self.make(tables, index, false);
    }

    /// Makes it not have been.
    pub fn undo(&self, tables: &mut Tables, index: &mut Index) {
        self.make(tables, index, true);
    }

    fn make(&self, tables: &mut Tables, index: &mut Index, backwards: bool) {
        fn pair<T>(old: T, new: T, backwards: bool) -> (T, T) {
            if backwards { (new, old) } else { (old, new) }
        }
        match self {
            Change::Flow(change) => {
                let (old, new) = pair(change.old.as_ref(), change.new.as_ref(), backwards);
                let found = match (old, new) {
                    (_, Some(new)) => tables.insert_flow(Arc::clone(new)),
                    (Some(old), None) => tables.remove_flow(old.table, &old.matching, old.priority),
                    (None, None) => None,
                };
                debug_assert_eq!(
                    found.as_ref().map(Arc::as_ptr),
                    old.map(Arc::as_ptr),
                    "the change was planned on other tables"
                );
                index.replace(found.as_ref(), new);
            }
            Change::Group { id, old, new } => {
                let (old, new) = pair(old, new, backwards);
                tables.replace_group(*id, new.clone());
                index.replace_group(old.as_deref(), new.as_deref());
            }
            Change::Meter { id, old, new } => {
                let (_, new) = pair(old, new, backwards);
                tables.replace_meter(*id, new.clone());
            }
            Change::Port { number, old, new } => {
                let (_, new) = pair(old, new, backwards);
                tables.replace_port(*number, new.clone());
            }
            Change::Settings { table, old, new } => {
                let (old, new) = pair(old, new, backwards);
                tables.replace_settings(*table, new.clone());
                let evicts = |settings: &TableSettings| settings.config & table_config::EVICTION != 0;
                if evicts(old) != evicts(new) {
                    let mut flows = tables.table(*table).flows.iter();
                    index.set_eviction(*table, evicts(new).then_some(&mut flows));
                }
            }
        }
    }
}
