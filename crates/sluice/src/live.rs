//! The server's side of `sluice trace` on a running switch.
//!
//! The interpreter traces a packet, on the running program's IR as lowered and on a snapshot of the running tables.
//! Workers only copy frames, while a trace waits for one. Counters and registers change in the snapshot alone, so the
//! switch does not count the packet twice; a frame given by the user does not leave the switch.
//!
//! A *tree* has one trace for each member that a selector could choose, and for each outcome of a random number that
//! sends the packet along another path (`live/draws.rs`). The run itself shows which groups and draws matter: a run
//! that meets a group of several members is repeated once per member. Copies by multicast and clones appear in every
//! trace.
//!
//! Threads: that of the request. Tests: `live/tests.rs`.

mod draws;
mod packet_filter;

pub use packet_filter::PacketFilter;

use crate::compiler::Compiler;
use crate::compiler::protocol::Wants;
use crate::target::port_problem;
use abi::state::PipelineState;
use base::SourceMap;
use base::entry::{EntryAction, GroupMember};
use base::ids::{ExternId, TableId};
use datapath::drops::RuntimeDrop;
use datapath::oracle::{Draws, Oracle};
use datapath::snapshot::{copy_replication, snapshot};
use datapath::{Local, Pipeline};
use frontend::Options;
use interp::filter::Filter;
use interp::trace::{Event, Form};
use interp::{State, Trace};
use ir::{EntryKind, Program};
use messages::sluice::v1 as pb;
use pb::trace_response::{Run, Sent, Step};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The most traces of one tree.
pub const OUTCOMES_MAX: usize = 256;
/// The most runs for one tree.
const RUNS_MAX: usize = 4096;

/// Traces packets through a running program.
pub struct Tracer {
    pipeline: Arc<Pipeline>,
    /// The IR as lowered.
    program: Arc<Program>,
    sources: SourceMap,
    filter: Filter,
    packet_filter: PacketFilter,
    now_us: u64,
    ports: Option<Ports>,
}

/// The ports of a device.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// All port numbers, including the controller's and the ends of links.
    pub there: BTreeSet<u32>,
    /// The ports that the operator has taken out of service.
    pub out_of_service: BTreeSet<u32>,
}

impl Ports {
    /// Returns the drop counter's name if a packet cannot leave by a port.
    fn problem(&self, port: u32) -> Option<String> {
        if self.out_of_service.contains(&port) {
            return Some(format!("{} ({port})", RuntimeDrop::PortDown.name()));
        }
        match self.there.contains(&port) {
            true => None,
            // `egress_spec` is 0 when the program has not set it.
            false if port == 0 => Some(RuntimeDrop::NoPortChosen.name().to_string()),
            false => Some(format!("{} ({port})", RuntimeDrop::NoSuchPort.name())),
        }
    }
}

/// The runs of one packet, the frames sent, and the reasons for drops.
pub type Runs = (Vec<(EntryKind, Trace)>, Vec<Sent>, Vec<String>);

/// The result of tracing one packet once.
struct Traced {
    response: pb::TraceResponse,
    /// The groups that matched entries name, each with its profile.
    groups: Vec<(ExternId, u32)>,
    traces: Vec<(EntryKind, Trace)>,
    /// The ranges of the random numbers drawn, `(low, high)`, in order.
    asked: Vec<(u64, u64)>,
}

/// The choices fixed for one run of a tree.
#[derive(Clone, Default)]
struct Choices {
    /// The profile, group and its chosen member.
    members: Vec<(ExternId, u32, GroupMember)>,
    /// The chosen random numbers, in the order of the draws.
    drawn: Vec<draws::Outcome>,
}

impl Choices {
    fn draws(&self) -> impl Iterator<Item = u64> {
        self.drawn.iter().map(|outcome| outcome.value)
    }
}

impl Tracer {
    /// Returns a tracer for the running program, compiled again from its text, and for frames that pass both filters.
    /// `now_us` is the packets' time in microseconds.
    ///
    /// # Errors
    /// If the program cannot be compiled, or `filter` is wrong.
    pub fn new(
        (compiler, options): (&Compiler, &Options),
        pipeline: Arc<Pipeline>,
        (name, source): (&str, &[u8]),
        filter: &str,
        packet_filter: PacketFilter,
        now_us: u64,
    ) -> Result<Tracer, String> {
        let text = frontend::form::text(source)?;
        let name = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("program.p4");
        let wants = Wants { raw: true, sources: true, ..Wants::default() };
        let compiled = compiler.compile_text(name, text, options, wants).map_err(|e| e.message().to_string())?;
        let program = Arc::new(compiled.program.ok_or("the running program has no IR")?);
        let filter = Filter::parse(filter, &program)?;
        Ok(Tracer { pipeline, program, sources: compiled.sources, filter, packet_filter, now_us, ports: None })
    }

    /// Sets the device's ports: packets sent to others are shown as dropped.
    pub fn with_ports(self, ports: Ports) -> Tracer {
        Tracer { ports: Some(ports), ..self }
    }

    /// Whether a frame passes the filters, which see the headers that the parser extracts. The frame is run on empty
    /// tables for that.
    pub fn wants(&self, port: u32, frame: &[u8]) -> bool {
        if !self.packet_filter.accepts(frame) {
            return false;
        }
        if self.filter.wants_all() {
            return true;
        }
        let state = Arc::new(State::new(Arc::clone(&self.program)));
        let (traces, ..) = self.run(state, None, port, frame);
        let events = traces.first().map_or(&[][..], |(_, trace)| &trace.steps);
        self.filter.accepts(port, frame.len() as u64, events.iter().map(|step| &step.event))
    }

    /// Returns the traces of a frame: one, or with `tree` one for each combination of choices, at most
    /// [`OUTCOMES_MAX`].
    ///
    /// # Errors
    /// If the program cannot have the port, or the tables cannot be copied.
    pub fn trace(&self, port: u32, frame: &[u8], tree: bool) -> Result<Vec<pb::TraceResponse>, String> {
        if let Some(problem) = port_problem(&self.program, port) {
            return Err(problem);
        }
        let base = snapshot(&self.pipeline, &self.program)?;
        if !tree {
            return Ok(vec![self.one(&base, &Choices::default(), None, port, frame).response]);
        }
        let mut done: Vec<pb::TraceResponse> = Vec::new();
        let mut told: Vec<Vec<String>> = Vec::new();
        let (mut runs, mut cut_short) = (0, false);
        let mut waiting = vec![Choices::default()];
        while let Some(fixed) = waiting.pop() {
            if done.len() >= OUTCOMES_MAX || runs >= RUNS_MAX {
                cut_short = true;
                break;
            }
            let mut traced = self.one(&base, &fixed, Some(Draws::given(fixed.draws())), port, frame);
            runs += 1;
            // Draws first, because they may decide which groups are met. Choices that a run did not meet are left out
            // by `told`.
            if let Some(&(low, high)) = traced.asked.get(fixed.drawn.len()) {
                let budget = RUNS_MAX.saturating_sub(runs).min(draws::RUNS_MAX);
                let mut outcome = |value: u64| {
                    runs += 1;
                    let given = Draws::given(fixed.draws().chain([value]));
                    draws::outcome(&self.one(&base, &fixed, Some(given), port, frame))
                };
                let constants = draws::constants(&self.program, &base);
                let outcomes = draws::outcomes(low, high, &constants, budget, &mut outcome);
                let of = |outcome: draws::Outcome| Choices {
                    drawn: [&fixed.drawn[..], &[outcome]].concat(),
                    ..fixed.clone()
                };
                waiting.extend(outcomes.into_iter().rev().map(of));
                continue;
            }
            let open = traced.groups.iter().find(|(profile, group)| {
                let free = !fixed.members.iter().any(|(p, g, _)| p == profile && g == group);
                free && members(&base, *profile, *group).len() > 1
            });
            if let Some((profile, group)) = open {
                let of = |member: GroupMember| Choices {
                    members: [&fixed.members[..], &[(*profile, *group, member)]].concat(),
                    ..fixed.clone()
                };
                waiting.extend(members(&base, *profile, *group).into_iter().rev().map(of));
                continue;
            }
            let choices = self.told(&fixed, &traced);
            if !told.contains(&choices) {
                traced.response.choices.clone_from(&choices);
                told.push(choices);
                done.push(traced.response);
            }
        }
        if let Some((last, others)) = done.split_last_mut() {
            others.iter_mut().for_each(|trace| trace.more = true);
            last.cut_short = cut_short;
        }
        Ok(done)
    }

    /// Runs a frame on a snapshot of the tables and returns every step.
    ///
    /// # Errors
    /// As [`Tracer::trace`].
    pub fn runs(&self, port: u32, frame: &[u8]) -> Result<Runs, String> {
        if let Some(problem) = port_problem(&self.program, port) {
            return Err(problem);
        }
        let state = snapshot(&self.pipeline, &self.program)?;
        Ok(self.run(Arc::new(state), None, port, frame))
    }

    /// Returns the IR as lowered, with its source texts.
    pub fn program(&self) -> (&Program, &SourceMap) {
        (&self.program, &self.sources)
    }

    /// Describes the choices that a run has met.
    fn told(&self, fixed: &Choices, traced: &Traced) -> Vec<String> {
        let met = fixed.members.iter().filter(|(p, g, _)| traced.groups.contains(&(*p, *g)));
        let members = met.map(|(profile, group, member)| {
            let name = &self.program.externs[profile.index()].name;
            format!("{name}, group {group}: member {}", member.member)
        });
        let drawn = fixed.drawn.iter().zip(&traced.asked);
        let drawn = drawn.map(|(outcome, (low, high))| format!("random number from {low} to {high}: {outcome}"));
        members.chain(drawn).collect()
    }

    fn run(&self, state: Arc<State>, draws: Option<&Draws>, port: u32, frame: &[u8]) -> Runs {
        let mut oracle = Oracle::with_state(Arc::clone(&self.program), state, true);
        if let Some(draws) = draws {
            oracle = oracle.with_draws(draws.clone());
        }
        let output = oracle.output();
        let pipeline = Arc::new(Pipeline::new(Arc::clone(&self.program), Box::new(oracle), 1));
        copy_replication(self.pipeline.replication(), pipeline.replication());
        let mut local = Local::new(pipeline);
        local.advance_us(self.now_us);
        let sent = local.receive(port, frame);
        let too_long = sent.is_none().then(|| "the frame is longer than a buffer".to_string());
        let mut dropped: Vec<String> = too_long.into_iter().collect();
        let mut leaves = |port: u32| {
            let problem = self.ports.as_ref().and_then(|ports| ports.problem(port));
            let leaves = problem.is_none();
            dropped.extend(problem);
            leaves
        };
        let sent = sent.unwrap_or_default().into_iter().filter(|s| leaves(s.port));
        let sent: Vec<Sent> = sent.map(|s| Sent { port: s.port, frame: s.bytes }).collect();
        if sent.is_empty() {
            let drops = local.pipeline().drops(0).read(local.pipeline().program());
            dropped.extend(drops.into_iter().filter(|(_, n)| *n > 0).map(|(name, _)| name));
        }
        (output.take_traces(), sent, dropped)
    }

    /// Runs a frame with the given choices fixed. With `draws`, random numbers come from there.
    fn one(&self, base: &State, fixed: &Choices, draws: Option<Draws>, port: u32, frame: &[u8]) -> Traced {
        let state = base.fork();
        for (profile, group, member) in &fixed.members {
            let _ = state.group_modify(*profile, *group, std::slice::from_ref(member));
        }
        let state = Arc::new(state);
        let (traces, sent, dropped) = self.run(Arc::clone(&state), draws.as_ref(), port, frame);
        let events = traces.iter().flat_map(|(_, trace)| &trace.steps).map(|step| &step.event);
        let groups = self.groups(&state, events);
        let runs = traces.iter().map(|(entry, trace)| run(*entry, trace, &self.sources, Form::Lowered)).collect();
        let frame = frame.to_vec();
        let response = pb::TraceResponse { port, frame, runs, sent, dropped, ..Default::default() };
        let asked = draws.map(|draws| draws.asked()).unwrap_or_default();
        Traced { response, groups, traces, asked }
    }

    /// Returns the groups named by the entries that the run's lookups matched.
    fn groups<'a>(&self, state: &State, events: impl Iterator<Item = &'a Event>) -> Vec<(ExternId, u32)> {
        let mut groups = Vec::new();
        for event in events {
            let Event::Apply { table, keys, .. } = event else { continue };
            let Some(id) = self.program.table_named(table) else { continue };
            let Some(profile) = self.program.tables[id.index()].implementation else { continue };
            let keys: Vec<base::Bits> = keys.iter().map(|(_, value)| value.clone()).collect();
            if let EntryAction::Group(group) = self.entry(state, id, &keys)
                && !groups.contains(&(profile, group))
            {
                groups.push((profile, group));
            }
        }
        groups
    }

    fn entry(&self, state: &State, table: TableId, keys: &[base::Bits]) -> EntryAction {
        // The state belongs to this trace, so what a lookup counts does not matter.
        match state.lookup(table, keys, &[]).matched {
            Some(entry) => entry.action,
            None => state.default_action(table),
        }
    }
}

/// Converts a run through one entry point into its protocol message.
pub fn run(entry: EntryKind, trace: &Trace, sources: &SourceMap, form: Form) -> Run {
    let copy = matches!(entry, EntryKind::Egress | EntryKind::Deparse);
    Run {
        entry: entry.name().to_string(),
        steps: trace.lines(sources, form).into_iter().map(step).collect(),
        egress_port: trace.port.filter(|_| copy),
        instance: trace.rid.filter(|rid| copy && *rid != 0),
    }
}

fn step(line: interp::trace::TraceLine) -> Step {
    let text = if line.heading { format!("== {}", line.text) } else { line.text };
    let (file, number, source) = line.place.unwrap_or_default();
    Step { text, file, line: number, source }
}

fn members(state: &State, profile: ExternId, group: u32) -> Vec<GroupMember> {
    let groups = state.groups(profile);
    groups.into_iter().find(|(id, ..)| *id == group).map(|(_, members, _)| members).unwrap_or_default()
}

#[cfg(test)]
mod tests;
