//! Copies the state of a running pipeline into the interpreter, so that a packet can be traced without touching the
//! workers.
//!
//! Tables, action profiles, registers, meters and custom CRCs are read one by one as the control plane reads them, so
//! with concurrent writes the snapshot is not of one moment. Counters stay at zero, since packets cannot read them,
//! and meters' buckets are full. The program may be the unoptimised form of the running one: objects and actions are
//! matched by name.
//!
//! Threads: the control plane's. Tests: `crates/sluice/src/live/tests.rs`.

use crate::pipeline::Pipeline;
use crate::replication::Replication;
use abi::state::PipelineState;
use base::entry::{ActionCall, EntryAction, TableEntry};
use base::ids::{ActionId, ExternId, TableId};
use interp::State;
use ir::{ExternKind, Program, TableAction};
use std::sync::Arc;

/// Maps positions in the old program's list of actions to positions in the new one's, by name.
fn positions(old: (&Program, &[TableAction]), new: (&Program, &[TableAction])) -> Vec<Option<u32>> {
    let name = |program: &Program, id: ActionId| program.actions[id.index()].name.clone();
    let place = |a: &TableAction| {
        let wanted = name(old.0, a.action);
        new.1.iter().position(|b| name(new.0, b.action) == wanted).map(|i| i as u32)
    };
    old.1.iter().map(place).collect()
}

fn call(call: &ActionCall, positions: &[Option<u32>]) -> Result<ActionCall, String> {
    let action = positions.get(call.action as usize).copied().flatten();
    let action = action.ok_or("an entry runs an action that the program before optimisation does not have")?;
    Ok(ActionCall { action, args: call.args.clone() })
}

fn moved(action: &EntryAction, positions: &[Option<u32>]) -> Result<EntryAction, String> {
    match action {
        EntryAction::Call(c) => call(c, positions).map(EntryAction::Call),
        other => Ok(other.clone()),
    }
}

/// The state of `pipeline` for `program`, which is the running program before or after optimisation.
///
/// # Errors
/// If an entry or member runs an action that `program` does not have.
pub fn snapshot(pipeline: &Pipeline, program: &Arc<Program>) -> Result<State, String> {
    let (from, live) = (pipeline.program(), pipeline.state());
    let state = State::new(Arc::clone(program));
    for (calculation, parameters) in live.hash_parameters() {
        let _ = state.hash_parameters_set(calculation.as_deref(), &parameters);
    }
    for (i, ext) in from.externs.iter().enumerate() {
        let (was, Some(now)) = (ExternId::from_index(i), program.extern_named(&ext.name)) else { continue };
        let kinds = (&ext.kind, &program.externs[now.index()].kind);
        match kinds {
            (
                ExternKind::ActionProfile { actions: a, .. } | ExternKind::ActionSelector { actions: a, .. },
                ExternKind::ActionProfile { actions: b, .. } | ExternKind::ActionSelector { actions: b, .. },
            ) => {
                let positions = positions((from, a), (program, b));
                for (id, action) in live.members(was) {
                    let _ = state.member_insert(now, id, &call(&action, &positions)?, 0);
                }
                for (id, members, max_size) in live.groups(was) {
                    let _ = state.group_insert(now, id, &members, max_size);
                    if live.group_is_random(was, id) {
                        let _ = state.group_set_random(now, id);
                    }
                }
            }
            (ExternKind::Register { size, initial, .. }, _) => {
                for index in 0..*size {
                    if let Ok(value) = live.register(was, index)
                        && value != *initial
                    {
                        let _ = state.register_set(now, index, &value);
                    }
                }
            }
            (ExternKind::Meter { size, direct: None, .. }, _) => {
                for index in 0..*size {
                    if let Ok(config @ Some(_)) = live.meter(was, index) {
                        let _ = state.meter_set(now, index, config);
                    }
                }
            }
            _ => {}
        }
    }
    for (i, table) in from.tables.iter().enumerate() {
        let (was, Some(now)) = (TableId::from_index(i), program.table_named(&table.name)) else { continue };
        let positions = positions((from, &table.actions), (program, &program.tables[now.index()].actions));
        let entries = live.entries(was).into_iter().map(|read| {
            let action = moved(&read.entry.action, &positions)?;
            Ok(TableEntry { action, ..read.entry })
        });
        let entries = entries.collect::<Result<Vec<_>, String>>()?;
        state.load_table(now, entries, moved(&live.default_action(was), &positions)?);
    }
    Ok(state)
}

/// Copies all multicast groups and clone sessions.
pub fn copy_replication(from: &Replication, to: &Replication) {
    for (id, replicas) in from.groups() {
        let _ = to.group_insert(id, replicas.to_vec());
    }
    for (id, session) in from.sessions() {
        let _ = to.session_insert(id, (*session).clone());
    }
}
