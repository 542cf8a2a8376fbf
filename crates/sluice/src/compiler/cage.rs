//! What a compiler's process takes from itself before it looks at a program: more than its share of memory and time, and everything
//! that compiling does not need.
//!
//! | | how |
//! | --- | --- |
//! | memory, processor time | `RLIMIT_AS`, `RLIMIT_CPU`: the kernel refuses, or ends the process |
//! | other processes, threads | `RLIMIT_NPROC` 0 (root is not bound by it) |
//! | writing files, core dumps | `RLIMIT_FSIZE`, `RLIMIT_CORE` 0 |
//! | many open files | `RLIMIT_NOFILE` |
//! | files | Landlock: nothing can be written or executed, and a text's program reads the include directories alone |
//! | network | Landlock, where the kernel has that (6.7): no TCP |
//! | what the switch has open | all descriptors but the pipes are closed (`datapath::descriptors`) |
//!
//! Each is taken where the system has it; a kernel without Landlock runs the compiler all the same, whose own rules about included files
//! then stand alone.

use super::limits::Limits;
use super::protocol::{Request, Source};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Included files are open within one another 64 deep at most; those above are read to their end.
const OPEN_FILES_MAX: u64 = 32;
/// More than the clock has, so that who waits says what was too long.
const CPU_TIME_MARGIN_S: u64 = 2;

fn set(resource: Resource, value: u64) {
    // One that the system does not have, or that is lower already, is not worth a refusal.
    let _ = setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
}

/// Gives up what the request's compilation does not need. To be called before there is another thread.
pub fn enter(request: &Request, limits: &Limits) {
    let readable: Vec<&str> = match &request.source {
        Source::Text { .. } => request.include_dirs.iter().map(String::as_str).filter(|dir| !dir.is_empty()).collect(),
        Source::File(_) => vec!["/"],
    };
    // Before the limits: opening folders is part of it.
    let _ = leave_files(&readable);
    set(Resource::As, limits.memory_bytes);
    set(Resource::Cpu, limits.time.as_secs() + CPU_TIME_MARGIN_S);
    set(Resource::Fsize, 0);
    set(Resource::Core, 0);
    set(Resource::Nofile, OPEN_FILES_MAX);
}

/// No process or thread can be made from now on.
pub fn allow_no_process() {
    set(Resource::Nproc, 0);
}

fn leave_files(readable: &[&str]) -> Result<(), landlock::RulesetError> {
    let abi = ABI::V5;
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(readable, AccessFs::ReadFile | AccessFs::ReadDir))?
        .restrict_self()?;
    Ok(())
}
