//! The server's side of `sluice trace` on a running switch.
//!
//! A packet is traced by the interpreter, on the program as lowered from the running text and on a snapshot of the running
//! tables: workers do nothing for it but copy frames while one is waited for. What counts and changes in a trace is the
//! snapshot's, so the switch does not count the packet twice, and a frame that is given does not leave it.
//!
//! A *tree* has one trace for each member that a selector could choose. Which groups decide is known from the run itself: a
//! run whose group has several members is done again for each of them alone. Copies of multicast and clones are in every
//! trace; random numbers are one outcome, drawn.
//!
//! Threads: the request's. Tests: `live/tests.rs`.

mod filter;

use abi::state::PipelineState;
use base::SourceMap;
use base::entry::{EntryAction, GroupMember};
use base::ids::{ExternId, TableId};
use datapath::oracle::Oracle;
use datapath::snapshot::{copy_replication, snapshot};
use datapath::{Local, Pipeline};
use filter::Filter;
use frontend::{Input, Options, Until};
use grpc::proto::sluice::v1 as pb;
use interp::trace::{Event, Form};
use interp::{State, Trace};
use ir::{EntryKind, Program};
use pb::trace_response::{Run, Sent, Step};
use std::sync::Arc;

/// Most traces of one tree.
pub const OUTCOMES_MAX: usize = 256;

/// Traces packets through a running program.
pub struct Tracer {
    pipeline: Arc<Pipeline>,
    /// As lowered.
    program: Arc<Program>,
    sources: SourceMap,
    filter: Filter,
    now_us: u64,
}

/// What one packet did.
struct Traced {
    response: pb::TraceResponse,
    /// Tables whose entries named a group: the profile, and the group.
    groups: Vec<(ExternId, u32)>,
}

impl Tracer {
    /// For the program that runs from this text.
    pub fn new(pipeline: Arc<Pipeline>, source: &[u8], filter: &str, now_us: u64) -> Result<Tracer, String> {
        let text = std::str::from_utf8(source).map_err(|e| e.to_string())?;
        let input = Input::Text { name: "device_config.p4", text };
        let compiled = frontend::compile(input, &Options::default(), Until::Ir).map_err(|e| e.to_string())?;
        let program = Arc::new(compiled.raw.ok_or("the running program has no IR")?);
        let filter = Filter::parse(filter, &program)?;
        Ok(Tracer { pipeline, program, sources: compiled.sources, filter, now_us })
    }

    /// Whether the filter wants a frame: by what the parser extracts from it, on empty tables.
    pub fn wants(&self, port: u32, frame: &[u8]) -> bool {
        if self.filter.wants_all() {
            return true;
        }
        let state = Arc::new(State::new(Arc::clone(&self.program)));
        let (traces, ..) = self.run(state, port, frame);
        let events = traces.first().map_or(&[][..], |(_, trace)| &trace.steps);
        self.filter.accepts(port, frame.len() as u64, events.iter().map(|step| &step.event))
    }

    /// All traces of a frame: one, or with `tree` one for each choice.
    pub fn trace(&self, port: u32, frame: &[u8], tree: bool) -> Result<Vec<pb::TraceResponse>, String> {
        let base = snapshot(&self.pipeline, &self.program)?;
        let mut done = Vec::new();
        // What is fixed: a group and its only member.
        let mut waiting: Vec<Vec<(ExternId, u32, GroupMember)>> = vec![vec![]];
        while let Some(fixed) = waiting.pop() {
            if done.len() >= OUTCOMES_MAX {
                break;
            }
            let state = base.fork();
            for (profile, group, member) in &fixed {
                let _ = state.group_modify(*profile, *group, std::slice::from_ref(member));
            }
            let mut traced = self.one(state, port, frame);
            let open = traced.groups.iter().find(|(profile, group)| {
                let free = !fixed.iter().any(|(p, g, _)| p == profile && g == group);
                tree && free && members(&base, *profile, *group).len() > 1
            });
            if let Some((profile, group)) = open {
                let of = |member: GroupMember| [fixed.clone(), vec![(*profile, *group, member)]].concat();
                waiting.extend(members(&base, *profile, *group).into_iter().rev().map(of));
                continue;
            }
            let choice = |(profile, group, member): &(ExternId, u32, GroupMember)| {
                let name = &self.program.externs[profile.index()].name;
                format!("{name}, group {group}: member {}", member.member)
            };
            traced.response.choices = fixed.iter().map(choice).collect();
            done.push(traced.response);
        }
        Ok(done)
    }

    fn run(&self, state: Arc<State>, port: u32, frame: &[u8]) -> (Vec<(EntryKind, Trace)>, Vec<Sent>, Vec<String>) {
        let oracle = Oracle::with_state(Arc::clone(&self.program), state, true);
        let output = oracle.output();
        let pipeline = Arc::new(Pipeline::new(Arc::clone(&self.program), Box::new(oracle), 1));
        copy_replication(self.pipeline.replication(), pipeline.replication());
        let mut local = Local::new(pipeline);
        local.advance_us(self.now_us);
        let sent = local.receive(port, frame);
        let too_long = sent.is_none().then(|| "the frame is longer than a buffer".to_string());
        let sent: Vec<Sent> =
            sent.unwrap_or_default().into_iter().map(|s| Sent { port: s.port, frame: s.bytes }).collect();
        let mut dropped: Vec<String> = too_long.into_iter().collect();
        if sent.is_empty() {
            let drops = local.pipeline().drops(0).read(local.pipeline().program());
            dropped.extend(drops.into_iter().filter(|(_, n)| *n > 0).map(|(name, _)| name));
        }
        (output.take_traces(), sent, dropped)
    }

    fn one(&self, state: State, port: u32, frame: &[u8]) -> Traced {
        let state = Arc::new(state);
        let (traces, sent, dropped) = self.run(Arc::clone(&state), port, frame);
        let events = traces.iter().flat_map(|(_, trace)| &trace.steps).map(|step| &step.event);
        let groups = self.groups(&state, events);
        let run = |(entry, trace): &(EntryKind, Trace)| {
            let copy = matches!(entry, EntryKind::Egress | EntryKind::Deparse);
            let lines = trace.lines(&self.sources, Form::Lowered);
            Run {
                entry: entry.name().to_string(),
                steps: lines.into_iter().map(step).collect(),
                egress_port: trace.port.filter(|_| copy),
                instance: trace.rid.filter(|rid| copy && *rid != 0),
            }
        };
        let runs = traces.iter().map(run).collect();
        let frame = frame.to_vec();
        Traced { response: pb::TraceResponse { port, frame, runs, sent, dropped, choices: vec![] }, groups }
    }

    /// The groups that entries of lookups named.
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
        // A lookup changes nothing that counts here: the state is the trace's own.
        match state.lookup(table, keys, &[]).matched {
            Some(entry) => entry.action,
            None => state.default_action(table),
        }
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
