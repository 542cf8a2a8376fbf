//! The child's sandbox: before it looks at a program, the compiling process limits its own memory and time and drops
//! every right that compiling does not need.
//!
//! | | how |
//! | --- | --- |
//! | memory, processor time | `RLIMIT_AS`, `RLIMIT_CPU`: the kernel refuses memory, or kills the process |
//! | other processes, threads | `RLIMIT_NPROC` 0 (root is exempt) |
//! | writing files, core dumps | `RLIMIT_FSIZE`, `RLIMIT_CORE` 0 |
//! | many open files | `RLIMIT_NOFILE` |
//! | files | Landlock: no writing or executing; a program that arrived as text reads only the include directories |
//! | network | Landlock, from Linux 6.7 on: no TCP |
//! | descriptors of the switch | all but the pipes are closed (`datapath::descriptors`) |
//!
//! Each measure applies where the system supports it. On a kernel without Landlock the compiler still runs; then only
//! its own rules restrict included files.

use super::limits::Limits;
use super::protocol::{Request, Source};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Descriptors that the child may have open. Nested includes are up to 64 deep, but each file is read to its end before
/// the next is opened.
const OPEN_FILES_MAX: u64 = 32;
/// Processor time beyond the elapsed-time limit, in seconds, so that the parent's timeout comes first and is reported.
const CPU_TIME_MARGIN_S: u64 = 2;

fn set(resource: Resource, value: u64) {
    // A limit that the system lacks, or that is lower already, is no reason to refuse.
    let _ = setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
}

/// Drops the rights that the request does not need. To be called while the process has one thread.
pub fn enter(request: &Request, limits: &Limits) {
    let readable: Vec<&str> = match &request.source {
        Source::Text { .. } => request.include_dirs.iter().map(String::as_str).filter(|dir| !dir.is_empty()).collect(),
        Source::File(_) => vec!["/"],
    };
    // Landlock before the resource limits, because it opens folders.
    let _ = leave_files(&readable);
    set(Resource::As, limits.memory_bytes);
    set(Resource::Cpu, limits.time.as_secs() + CPU_TIME_MARGIN_S);
    set(Resource::Fsize, 0);
    set(Resource::Core, 0);
    set(Resource::Nofile, OPEN_FILES_MAX);
}

/// Forbids creating processes and threads from now on.
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
