//! Nicira's `learn` action: adds flows made from packets (ovs-actions(7), "learn").
//!
//! The flow is added at once, so a later lookup of the same packet finds it. If an equal flow exists already, the
//! tables do not change, but each packet restarts the flow's idle timeout.

use super::Translator;
use super::actions::wide_port;
use crate::effects::Learned;
use crate::flow::Flow;
use crate::recent::Dependence;
use openflow::action::{Learn, LearnSpec, NO_BUFFER, Source, Subfield, port};
use openflow::message::{FlowCommand, FlowMod, GROUP_ANY, Timeouts, flow_flag};
use openflow::{Action, FieldId, Instructions, Match};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `NX_LEARN_F_` bits.
const SEND_FLOW_REM: u16 = 1;
const WRITE_RESULT: u16 = 4;
/// A learned flow with a hard timeout is learned again when it is this old, in microseconds, which restarts the
/// timeout.
const RENEW_US: u64 = 1_000_000;

impl Translator<'_> {
    /// Executes a `learn` action.
    pub(super) fn learn(&mut self, learn: &Learn) {
        self.would_learn = true;
        self.finds_flows = true;
        let request = self.request(learn);
        self.note(|| {
            format!("learns in table {}: {}", learn.table, crate::trace::matching(self.layout, &request.matching))
        });
        let has_learned = self.add(learn, request);
        if learn.flags & WRITE_RESULT != 0
            && let Some(to) = learn.result
        {
            self.load(to, u128::from(has_learned));
        }
    }

    /// Adds the flow unless it exists. Returns whether it exists afterwards.
    fn add(&mut self, learn: &Learn, request: FlowMod) -> bool {
        if request.table >= crate::tables::limit::TABLES {
            return false;
        }
        let found = self.find(&request);
        let is_there = found.as_ref().is_some_and(|flow| is_same(flow, &request, self.subject.now_us));
        if !is_there && self.learns {
            let is_full = found.is_none() && learn.limit != 0 && self.count_learned(learn) >= learn.limit as usize;
            if is_full {
                self.depend(Dependence::Table(request.table));
                return false;
            }
            // The writer must not wait for this reader's lock.
            self.tables = None;
            let result = self.shared.control.learn(&request);
            self.tables = Some(self.shared.control.tables());
            if let Err(error) = result {
                self.note(|| format!("the flow is refused: {error}"));
            }
        }
        // If the flow is removed, packets of this megaflow learn it again.
        self.depend(Dependence::Table(request.table));
        match self.find(&request) {
            Some(flow) => {
                flow.usage.add(0, 0, self.subject.now_us);
                self.learned.push(Learned { usage: Arc::clone(&flow.usage), request });
                true
            }
            None => false,
        }
    }

    fn find(&self, request: &FlowMod) -> Option<Arc<Flow>> {
        self.tables.as_ref()?.table(request.table).flows.find(&request.matching, request.priority).cloned()
    }

    fn count_learned(&self, learn: &Learn) -> usize {
        let Some(tables) = &self.tables else { return 0 };
        tables.table(learn.table).flows.with_cookie(learn.cookie)
    }

    /// The flow mod that adds the learned flow.
    fn request(&mut self, learn: &Learn) -> FlowMod {
        let mut terms: BTreeMap<FieldId, (u128, u128)> = BTreeMap::new();
        let mut apply = Vec::new();
        // This comes first, as in Open vSwitch.
        if learn.fin_idle_timeout != 0 || learn.fin_hard_timeout != 0 {
            apply.push(Action::FinTimeout { idle: learn.fin_idle_timeout, hard: learn.fin_hard_timeout });
        }
        for spec in &learn.specs {
            match spec {
                LearnSpec::Match { to, from } => {
                    let (value, mask) = self.value(*from, *to);
                    let term = terms.entry(to.field).or_insert((0, 0));
                    *term = (term.0 & !mask | value, term.1 | mask);
                }
                LearnSpec::Load { to, from } => {
                    let (value, mask) = self.value(*from, *to);
                    apply.push(Action::SetField { field: to.field, value, mask });
                }
                LearnSpec::Output { from } => {
                    let to = wide_port(self.read(*from), from.bits);
                    apply.push(Action::Output { port: to, max_len: NO_BUFFER });
                }
            }
        }
        let mut matching = Match::any();
        terms.into_iter().for_each(|(field, (value, mask))| {
            matching.add(field, value, mask);
        });
        FlowMod {
            command: FlowCommand::Add,
            table: learn.table,
            matching,
            priority: learn.priority,
            cookie: learn.cookie,
            cookie_mask: 0,
            timeouts: Timeouts { idle: learn.idle_timeout, hard: learn.hard_timeout },
            buffer: u32::MAX,
            out_port: port::ANY,
            out_group: GROUP_ANY,
            flags: if learn.flags & SEND_FLOW_REM != 0 { flow_flag::SEND_FLOW_REM } else { 0 },
            importance: 0,
            instructions: Instructions { apply, ..Instructions::default() },
        }
    }

    /// The value and mask of a source, shifted to the position of `to`.
    fn value(&mut self, from: Source, to: Subfield) -> (u128, u128) {
        let value = match from {
            Source::Value(value) => value,
            Source::Field(part) => self.read(part),
        };
        let bits = crate::key::low128(to.bits);
        let full = self.layout.fields().get(to.field).full();
        let shift = |value: u128| value.checked_shl(to.offset).unwrap_or(0) & full;
        (shift(value & bits), shift(bits))
    }
}

/// Whether the flow equals what the request would add, and its hard timeout need not be restarted yet.
fn is_same(flow: &Flow, request: &FlowMod, now_us: u64) -> bool {
    let is_fresh = request.timeouts.hard == 0 || now_us.cast_signed() < flow.modified_us + RENEW_US.cast_signed();
    flow.instructions == request.instructions
        && flow.timeouts == request.timeouts
        && flow.cookie == request.cookie
        && flow.flags == request.flags
        && is_fresh
}
