//! `sluice run --entries FILE`: a device's entities at the start.
//!
//! Lines about P4Runtime entities go through the control plane, as a controller's writes do. So it knows everything
//! that a line says (metadata, timeouts, actions to select from, names for translated values), and controllers can read
//! it back. Other lines of scripts go directly to the switch (`stf::Setup`). Lines take effect in order.

use anyhow::{Context, Result};
use control::Control;
use control::entity::{Update, UpdateKind};
use datapath::Pipeline;
use entities::{Change, Names, config};
use grpc::Handle;
use messages::convert;
use messages::p4::v1 as pb;
use std::path::Path;
use stf::{Line, ScriptError, Setup, Target};

/// Carries out a file. If lines are wrong, all of them are reported on stderr, and the result is false.
///
/// # Errors
/// If the file cannot be read.
pub fn entries(file: &Path, device: u64, handle: &Handle, pipeline: &Pipeline) -> Result<bool> {
    let text = crate::files::text(file)?;
    let errors = match stf::parse(&text) {
        Ok(lines) => handle.with(|control| carry_out(&lines, device, control, pipeline))?,
        Err(errors) => errors,
    };
    errors.iter().for_each(|error| eprintln!("{}: {error}", file.display()));
    Ok(errors.is_empty())
}

fn carry_out(lines: &[Line], device: u64, control: &mut Control, pipeline: &Pipeline) -> Result<Vec<ScriptError>> {
    let view = control.config(device).map_err(refused)?.context("--entries needs a program")?;
    let names = Names::new(convert::p4info::to_proto(&view.p4info)).lenient();
    let target =
        Target { program: pipeline.program(), state: pipeline.state().as_ref(), replication: pipeline.replication() };
    let mut setup = Setup::new();
    let mut errors = Vec::new();
    for line in lines {
        let done = match names.change(&line.command) {
            Some(Ok(change)) => write(control, device, change),
            // The P4Info may omit objects of the program.
            other => match setup.apply(&line.command, target) {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err("only commands that set a switch up may stand here".to_string()),
                Err(message) => Err(other.and_then(Result::err).unwrap_or(message)),
            },
        };
        errors.extend(done.err().map(|message| ScriptError { line: line.number, message }));
    }
    control.adopt(device).map_err(refused)?;
    Ok(errors)
}

fn refused(error: control::Error) -> anyhow::Error {
    anyhow::anyhow!("{}", error.message)
}

fn write(control: &mut Control, device: u64, change: Change) -> Result<(), String> {
    let changes = [change];
    let queries =
        config::needed(&changes).into_iter().map(|entity| convert::entity(pb::Entity { entity: Some(entity) }));
    let (found, results) = control.read(device, &queries.collect::<Vec<_>>()).map_err(|e| e.message)?;
    // Entities that do not exist are not found; other errors will show in the write.
    drop(results);
    let found = found.into_iter().filter_map(|entity| convert::entity_to_proto(entity).entity).collect();
    let updates = config::resolve(&changes, found).map_err(|(_, why)| why)?;
    let update = |(_, update): (usize, pb::Update)| Update {
        kind: match pb::update::Type::try_from(update.r#type) {
            Ok(pb::update::Type::Insert) => UpdateKind::Insert,
            Ok(pb::update::Type::Modify) => UpdateKind::Modify,
            Ok(pb::update::Type::Delete) => UpdateKind::Delete,
            _ => UpdateKind::Unspecified,
        },
        entity: update.entity.and_then(convert::entity),
    };
    let updates: Vec<Update> = updates.into_iter().map(update).collect();
    for done in control.set_up(device, &updates).map_err(|e| e.message)? {
        done.map_err(|e| e.message)?;
    }
    Ok(())
}
