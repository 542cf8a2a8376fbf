//! The passes in their order, and what was done by which.
//!
//! Each pass is a function from a well-formed program to a well-formed program; the verifier checks that around every
//! one in debug builds, and where [`Options::verify`] asks for it. A pass can be switched off by name, so that its
//! worth can be measured. The passes of the loop run again while one of them finds something, a few times at most: what
//! one leaves behind is often another's work.
//!
//! A new pass is a file with a `run` and a line in [`PASSES`].
//!
//! Tests: `tests/files.rs` (each pass alone), `tests/properties.rs` (behaviour is kept).

use crate::{
    coalesce, compact_slots, const_prop, dead_code, length_checks, multicast_frames, narrow_lookaheads, reingress,
    simplify, simplify_cfg, small_charges, strip_marks, unchanged_frames, unroll_stacks,
};
use ir::Program;
use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

/// When a pass runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    First,
    Loop,
    Last,
}

/// A pass.
struct Pass {
    name: &'static str,
    about: &'static str,
    phase: Phase,
    run: fn(&mut Program) -> bool,
}

/// All passes in the order in which they run.
const PASSES: &[Pass] = &[
    Pass { name: "strip_marks", about: "remove trace marks", phase: Phase::First, run: strip_marks::run },
    Pass {
        name: "reingress",
        about: "write the kept slots of resubmitted and recirculated packets directly into their records",
        phase: Phase::First,
        run: reingress::run,
    },
    Pass {
        name: "unroll_stacks",
        about: "unroll parser loops over header stacks",
        phase: Phase::First,
        run: unroll_stacks::run,
    },
    Pass {
        name: "small_charges",
        about: "remove step counting where paths are short",
        phase: Phase::First,
        run: small_charges::run,
    },
    Pass {
        name: "multicast_frames",
        about: "deparse a multicast packet once, before it is copied, where egress is the same for all copies",
        phase: Phase::Loop,
        run: multicast_frames::run,
    },
    Pass {
        name: "simplify_cfg",
        about: "merge blocks, remove empty and unreachable ones",
        phase: Phase::Loop,
        run: simplify_cfg::run,
    },
    Pass {
        name: "const_prop",
        about: "propagate constants and copies across stages and branches",
        phase: Phase::Loop,
        run: const_prop::run,
    },
    Pass {
        name: "simplify",
        about: "replace single operations by cheaper ones",
        phase: Phase::Loop,
        run: simplify::run,
    },
    Pass {
        name: "narrow_lookaheads",
        about: "narrow lookaheads to the bits that are used",
        phase: Phase::Loop,
        run: narrow_lookaheads::run,
    },
    Pass {
        name: "length_checks",
        about: "check the packet length once for several headers",
        phase: Phase::Loop,
        run: length_checks::run,
    },
    Pass {
        name: "dead_code",
        about: "remove operations whose results are unused",
        phase: Phase::Loop,
        run: dead_code::run,
    },
    Pass {
        name: "dead_tables",
        about: "remove table lookups without effect",
        phase: Phase::Loop,
        run: dead_code::run_tables,
    },
    Pass { name: "coalesce", about: "give copies of a variable the same slot", phase: Phase::Loop, run: coalesce::run },
    Pass {
        name: "unchanged_frames",
        about: "send clones and packets with unchanged frames without egress and deparsing",
        phase: Phase::Last,
        run: unchanged_frames::run,
    },
    Pass {
        name: "compact_slots",
        about: "remove unused slots, which shortens records",
        phase: Phase::Last,
        run: compact_slots::run,
    },
];

/// Most times that the loop runs.
const ROUNDS_MAX: u32 = 8;

/// Names of all passes, in order.
pub fn pass_names() -> impl Iterator<Item = &'static str> {
    PASSES.iter().map(|p| p.name)
}

/// Names of all passes, in order, and what each does, in a line.
pub fn passes() -> impl Iterator<Item = (&'static str, &'static str)> {
    PASSES.iter().map(|p| (p.name, p.about))
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Passes that do not run, by name.
    pub disabled: HashSet<String>,
    /// Whether the verifier runs around every pass.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { disabled: HashSet::new(), verify: cfg!(debug_assertions) }
    }
}

/// What one pass has done, over all its runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassReport {
    /// Its name.
    pub name: &'static str,
    /// How often it ran.
    pub runs: u32,
    /// How often it changed something.
    pub changes: u32,
    /// Instructions and terminators that it took away, less those that it added.
    pub removed: i64,
    /// The time it took, without verification.
    pub time: Duration,
}

/// What the optimiser has done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// By pass, in order; passes that are switched off are left out.
    pub passes: Vec<PassReport>,
    /// Instructions and terminators before and after.
    pub size: (usize, usize),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for PassReport { name, runs, changes, removed, time } in &self.passes {
            writeln!(f, "{name:<16} {changes:>2} of {runs:>2} runs changed {removed:>8} removed {time:>12.1?}")?;
        }
        writeln!(f, "{} instructions became {}", self.size.0, self.size.1)
    }
}

/// Instructions and terminators of a program.
pub fn size(program: &Program) -> usize {
    program.stages.iter().flat_map(|s| &s.blocks).map(|b| b.insts.len() + 1).sum()
}

/// Runs all passes that are not switched off.
///
/// # Panics
/// If the verifier is on and a pass leaves an ill-formed program behind: a bug of that pass, or of who made the
/// program.
pub fn optimise(program: &mut Program, options: &Options) -> Report {
    optimise_watched(program, options, &mut |_, _, _| ())
}

/// As [`optimise`], and shows the program after each run of a pass: its name, how often it has run, the program.
pub fn optimise_watched(
    program: &mut Program,
    options: &Options,
    watch: &mut dyn FnMut(&'static str, u32, &Program),
) -> Report {
    let before = size(program);
    check(program, options, "before the first pass");
    let passes = PASSES.iter().filter(|p| !options.disabled.contains(p.name));
    let mut runs: Vec<(&Pass, PassReport)> = passes.map(|p| (p, PassReport::new(p.name))).collect();
    for phase in [Phase::First, Phase::Loop, Phase::Last] {
        for _ in 0..if phase == Phase::Loop { ROUNDS_MAX } else { 1 } {
            let mut changed = false;
            for (pass, report) in runs.iter_mut().filter(|(p, _)| p.phase == phase) {
                changed |= run_one(pass, report, program, options);
                watch(pass.name, report.runs, program);
            }
            if !changed {
                break;
            }
        }
    }
    Report { passes: runs.into_iter().map(|(_, report)| report).collect(), size: (before, size(program)) }
}

/// Runs one pass by name, once; `None` if there is none of that name, else whether it changed something.
pub fn run_pass(program: &mut Program, name: &str) -> Option<bool> {
    let pass = PASSES.iter().find(|p| p.name == name)?;
    check(program, &Options::default(), "before the pass");
    Some(run_one(pass, &mut PassReport::new(pass.name), program, &Options::default()))
}

/// Runs `const_prop` with less work than it may do, as it has for large programs; whether it changed something.
pub fn run_const_prop(program: &mut Program, work_per_access_max: usize) -> bool {
    check(program, &Options::default(), "before the pass");
    let changed = const_prop::run_following(program, work_per_access_max);
    check(program, &Options::default(), "const_prop");
    changed
}

impl PassReport {
    fn new(name: &'static str) -> PassReport {
        PassReport { name, runs: 0, changes: 0, removed: 0, time: Duration::ZERO }
    }
}

fn run_one(pass: &Pass, report: &mut PassReport, program: &mut Program, options: &Options) -> bool {
    let before = size(program);
    let start = Instant::now();
    let changed = (pass.run)(program);
    report.time += start.elapsed();
    report.runs += 1;
    report.changes += u32::from(changed);
    report.removed += before as i64 - size(program) as i64;
    check(program, options, pass.name);
    changed
}

fn check(program: &Program, options: &Options, place: &str) {
    if options.verify {
        let diags = ir::verify(program);
        let messages: Vec<&str> = diags.iter().map(|d| d.message.as_str()).collect();
        assert!(diags.is_empty(), "ill-formed program: {place}\n{}\n{}", messages.join("\n"), ir::print(program));
    }
}
