//! The rights that a port's process gives up before it deals with any peer.
//!
//! | | how |
//! | --- | --- |
//! | files | Landlock: none may be opened; in the socket's folder sockets may be made and removed |
//! | network | Landlock, from Linux 6.7 on: no TCP |
//! | capabilities | none but `CAP_DAC_OVERRIDE`: a front end's socket may belong to another user |
//! | new rights | `no_new_privs` |
//! | private memory, core dumps | `RLIMIT_DATA`, `RLIMIT_CORE` 0 |
//! | descriptors of the switch | all but the socket, the memory and the eventfds are closed on exec or by the caller |
//!
//! Each measure applies where the system supports it; that Landlock is not enforced is a warning in the log. What is left
//! to somebody who takes the process over: the switch's user, so Unix sockets of the switch, signals to processes of this
//! user, and new processes, since there is no seccomp filter; processor time; and memory of the control group that it shares
//! with the switch, where `MemoryMax=` limits both together.
//!
//! Tests: `tests/isolated.rs`.

use crate::protocol::Start;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use std::path::Path;

/// Private memory: buffers, stacks of 64 queues' threads, and the allocator's reserve are a quarter of it.
const DATA_BYTES_MAX: u64 = 1 << 30;

/// Gives up what the port does not need. To be called while the process has one thread.
pub(super) fn enter(start: &Start) {
    // All of this is a second line of defence: what the system lacks is no reason to refuse.
    let _ = set_no_new_privs(true);
    let folder = start.path.parent().unwrap_or(Path::new("/"));
    let port = start.spec.as_str();
    match leave_files(folder) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(RulesetStatus::PartiallyEnforced) => {
            tracing::debug!(
                port,
                "this kernel enforces a part of the Landlock rules for its process: TCP needs Linux 6.7"
            );
        }
        Ok(RulesetStatus::NotEnforced) => {
            tracing::warn!(
                port,
                "Landlock is not available, so its process may open the files of the switch's user, and use TCP"
            );
        }
        Err(error) => {
            tracing::warn!(
                port,
                "Landlock fails ({error}), so its process may open the files of the switch's user, and use TCP"
            );
        }
    }
    let kept = CapabilitySet::DAC_OVERRIDE;
    let kept = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |own| own.permitted & kept);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    let _ = set_capabilities(None, sets);
    for (resource, most) in [(Resource::Core, 0), (Resource::Data, DATA_BYTES_MAX)] {
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
}

fn leave_files(folder: &Path) -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V5;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules([folder], AccessFs::MakeSock | AccessFs::RemoveFile))?
        .restrict_self()?;
    Ok(status.ruleset)
}
