//! Narrates the parts of bmv2: their beginnings and ends, the parser and deparser with their checksums, and copies.

use super::super::events::EventKind;
use super::super::line::Line;
use super::super::numbers::Kind;
use super::sets::Source;
use super::{Checking, DEPARSER, PARSER, Part, Run, plain, plain_hex};
use base::{Bits, Span};
use datapath::replication::Replica;
use interp::trace::{Event, TraceStep, Use};
use ir::Intrinsic;

/// bmv2 implements a clone session of P4Runtime by a multicast group, whose id is this plus the session's.
const P4RUNTIME_GROUPS: u32 = 1 << 15;

/// The steps between parts.
impl Run<'_> {
    pub(super) fn enter(&mut self, stage: &str) {
        self.end_checksum();
        let Some(part) = self.narrator.parts.get(stage).copied() else { return };
        match (self.open, part) {
            // Stages that belong to the current part.
            (Some(Part::Parser), Part::Verify) => return self.end_states(),
            (Some(Part::Compute), Part::Deparser) => {
                self.open = Some(Part::Deparser);
                return;
            }
            _ => self.close(),
        }
        match part {
            Part::Parser => {
                self.event(EventKind::ParserStart, vec![self.id(Kind::Parser, PARSER)]);
                self.debug(format!("Parser '{PARSER}': start"));
            }
            Part::Pipeline(name) => {
                self.event(EventKind::PipelineStart, vec![self.id(Kind::Pipeline, name)]);
                self.debug(format!("Pipeline '{name}': start"));
            }
            Part::Compute | Part::Deparser => {
                self.event(EventKind::DeparserStart, vec![self.id(Kind::Deparser, DEPARSER)]);
                self.debug(format!("Deparser '{DEPARSER}': start"));
            }
            Part::IngressEnd => self.ingress_end(),
            Part::EgressEnd => self.egress_end(),
            Part::DeparseEnd => {
                if self.wanted.value(Intrinsic::RecirculateFlag) != 0 {
                    self.debug("Recirculating packet".to_string());
                }
            }
            Part::Verify => {}
        }
        self.open = Some(part);
        if matches!(part, Part::IngressEnd | Part::EgressEnd | Part::DeparseEnd) {
            self.wanted.ended = Some(part);
        } else {
            self.wanted.ended = None;
        }
    }

    /// Ends the current part.
    pub(super) fn close(&mut self) {
        self.end_checksum();
        match self.open.take() {
            Some(Part::Parser) => {
                self.end_states();
                self.event(EventKind::ParserDone, vec![self.id(Kind::Parser, PARSER)]);
                self.debug(format!("Parser '{PARSER}': end"));
            }
            Some(Part::Pipeline(name)) => {
                self.event(EventKind::PipelineDone, vec![self.id(Kind::Pipeline, name)]);
                self.debug(format!("Pipeline '{name}': end"));
            }
            Some(Part::Compute | Part::Deparser) => {
                self.event(EventKind::DeparserDone, vec![self.id(Kind::Deparser, DEPARSER)]);
                self.debug(format!("Deparser '{DEPARSER}': end"));
            }
            _ => {}
        }
    }

    fn ingress_end(&mut self) {
        self.wanted.goes_on = false;
        self.clones("ingress");
        if self.wanted.value(Intrinsic::ResubmitFlag) != 0 {
            return self.debug("Resubmitting packet".to_string());
        }
        let group = self.wanted.value(Intrinsic::MulticastGroup);
        if group != 0 {
            self.debug("Multicast requested for packet".to_string());
            let replicas = self.packet.replication.group(group as u32);
            return self.copies(group as u32, replicas.as_deref().map(Vec::as_slice));
        }
        let port = self.wanted.value(Intrinsic::EgressSpec);
        self.debug(format!("Egress port is {port}"));
        if port == self.narrator.drop_port {
            return self.debug("Dropping packet at the end of ingress".to_string());
        }
        self.wanted.goes_on = true;
    }

    fn egress_end(&mut self) {
        self.clones("egress");
        if self.wanted.value(Intrinsic::EgressSpec) == self.narrator.drop_port {
            self.debug("Dropping packet at the end of egress".to_string());
        }
    }

    fn clones(&mut self, at: &str) {
        if self.wanted.value(Intrinsic::CloneFlag) == 0 {
            return;
        }
        self.debug(format!("Cloning packet at {at}"));
        let id = self.wanted.value(Intrinsic::CloneSession) as u32;
        let Some(session) = self.packet.replication.session(id) else { return };
        let Some(mirrored) = (self.packet.mirrored)(id) else {
            let group = P4RUNTIME_GROUPS + id;
            self.debug(format!("Cloning packet to MGID {group}"));
            return self.copies(group, Some(&session.replicas));
        };
        if let Some(group) = mirrored.group {
            self.debug(format!("Cloning packet to MGID {group}"));
            let replicas = self.packet.replication.group(group);
            self.copies(group, replicas.as_deref().map(Vec::as_slice));
        }
        if let Some(port) = mirrored.port {
            self.debug(format!("Cloning packet to egress port {port}"));
        }
    }

    fn copies(&mut self, group: u32, replicas: Option<&[Replica]>) {
        let Some(replicas) = replicas else {
            let text = format!("Replication requested for mgid {group}, which is not known to the PRE");
            return self.line(Line::warning(text).of_switch());
        };
        let text = format!("number of packets replicated : {} for MGID: {group}", replicas.len());
        self.line(Line::debug(text).of_switch());
        for replica in replicas {
            self.debug(format!("Replicating packet on port {}", replica.port));
        }
    }
}

/// Checksums.
impl Run<'_> {
    pub(super) fn checksum_step(&mut self, event: &Event) {
        self.note(event);
        let Some(checking) = &mut self.checking else { return };
        match event {
            Event::Extern { what: Use::Hash { .. }, .. } => checking.computed = true,
            Event::Verified { computed, actual } => checking.verified = Some((computed.clone(), actual.clone())),
            Event::Condition { on: Some(on), value: false, .. }
                if [".isValid()", ".$valid"].iter().any(|test| on.ends_with(test)) =>
            {
                checking.target_is_invalid = true;
            }
            _ => {}
        }
    }

    pub(super) fn end_checksum(&mut self) {
        let Some(Checking { name, update, computed, target_is_invalid, verified }) = self.checking.take() else {
            return;
        };
        if update {
            return match computed {
                true => {
                    self.event(EventKind::ChecksumUpdate, vec![self.id(Kind::Checksum, &name)]);
                    self.debug(format!("Updating checksum '{name}'"));
                }
                false => self.trace(format!("Skipping checksum '{name}' update because condition not met")),
            };
        }
        let Some((computed, actual)) = verified else {
            let why = if target_is_invalid { "target field invalid" } else { "condition not met" };
            return self.trace(format!("Skipping checksum '{name}' verification because {why}"));
        };
        let right = computed == actual;
        let [computed, actual] = [&computed, &actual].map(|value| format!("{:#x}", value.to_biguint()));
        self.debug(format!("Checksum '{name}': computed {computed} - actual {actual}"));
        self.debug(format!("Verified checksum '{name}': {}", if right { "passed" } else { "failed" }));
        if !right {
            self.error(format!("Checksum '{name}' is not correct"));
        }
    }
}

/// Parser and deparser.
impl Run<'_> {
    pub(super) fn parser_step(&mut self, step: &TraceStep) {
        match &step.event {
            Event::State(name) => {
                self.end_state();
                self.state = Some(name.clone());
                self.chose = false;
                self.set = None;
                self.debug(format!("Parser '{PARSER}' entering state '{name}'"));
            }
            // A switch on a `$` slot, such as a stack's index, is not the program's `select`.
            Event::Select { on, .. } if on.contains('$') => {}
            Event::Select { value, .. } => {
                self.chose = true;
                let state = self.state.clone().unwrap_or_default();
                self.debug(format!("Parser state '{state}': key is {}", plain_hex(value)));
            }
            // Conditions without a target are checks that the compiler has added.
            Event::Condition { to, .. } if !to.is_empty() => self.chose = true,
            Event::Extract { header, offset, fields } => {
                let bits: u64 = fields.iter().map(|(_, value)| u64::from(value.width())).sum();
                self.parsed_bits = offset * 8 + bits;
                self.extract(header);
            }
            Event::Advance { bits } => {
                self.parsed_bits += bits;
                self.debug(format!("Advancing by {} bytes", bits / 8));
            }
            Event::Action(name) => {
                self.debug(format!("Executing method {name}"));
                self.trace(format!("Action {name}"));
            }
            Event::Statement => self.statement(step.span),
            Event::HasBits { there: false, .. } => self.exception("PacketTooShort"),
            Event::Change { slot, new, .. } => {
                self.note(&step.event);
                if self.narrator.intrinsics.get(slot) == Some(&Intrinsic::ParserError) {
                    let error = self.narrator.errors.get(new.to_u64().unwrap_or(0) as usize).cloned();
                    // In JSON, the absence of an error may have a value other than 0.
                    if let Some(error) = error.filter(|error| !["NoError", "no error"].contains(&error.as_str())) {
                        self.exception(&error);
                    }
                } else if let Some(from) = self.source_of(step.span, slot, new) {
                    let (field, value) = (self.field(slot), new.to_biguint());
                    let what = match from {
                        Source::Constant => format!("to {value}"),
                        Source::Field(name) => format!("from field '{}' ({value})", self.field(&name)),
                        Source::Lookahead { offset, width } => {
                            format!("from lookahead ({offset}, {width}), new value is {value}")
                        }
                        Source::Expression | Source::Extracted => format!("from expression, new value is {value}"),
                    };
                    self.debug(format!("Parser set: setting field '{field}' {what}"));
                }
            }
            _ => {}
        }
    }

    fn extract(&mut self, header: &str) {
        let header = plain(header);
        let name = self.instance(header);
        let id = self.id(Kind::Header, &name);
        self.event(EventKind::ParserExtract, vec![id]);
        let stack = name.split_once('[').and_then(|(stack, _)| self.narrator.numbers.find(Kind::Stack, stack));
        self.debug(match stack {
            Some(stack) => format!("Extracting to header stack {stack}, next header is {id}"),
            None if self.narrator.variable.contains(header) => {
                format!("Extracting variable-sized header '{name}'")
            }
            None => format!("Extracting header '{name}'"),
        });
    }

    /// Returns a header's name in bmv2: without the name of the enclosing struct.
    fn instance(&self, header: &str) -> String {
        match header.split_once('.') {
            Some((_, name)) if self.narrator.numbers.find(Kind::Header, header).is_none() => name.to_string(),
            _ => header.to_string(),
        }
    }

    /// Returns the origin of a value that the parser assigns.
    fn source_of(&mut self, span: Span, slot: &str, value: &Bits) -> Option<Source> {
        let state = self.state.as_deref().unwrap_or_default();
        self.narrator.sets.source(&mut self.set, (state, span), slot, value)
    }

    /// Returns a field's name in bmv2.
    fn field(&self, slot: &str) -> String {
        match slot.rsplit_once('.') {
            Some((header, field)) if self.narrator.headers.contains(header) => {
                format!("{}.{field}", self.instance(header))
            }
            _ => slot.to_string(),
        }
    }

    /// Narrates a parser error; only the first of a run.
    fn exception(&mut self, error: &str) {
        if !self.failed {
            self.failed = true;
            self.error(format!("Exception while parsing: {error}"));
        }
    }

    fn end_state(&mut self) {
        let Some(state) = self.state.take() else { return };
        if self.failed {
            return;
        }
        if !self.chose {
            self.debug(format!("Parser state '{state}' has no switch, going to default next state"));
        }
        self.trace(format!("Bytes parsed: {}", self.parsed_bits / 8));
    }

    fn end_states(&mut self) {
        self.end_state();
        self.parsed_bits = 0;
        self.failed = false;
    }

    pub(super) fn deparser_step(&mut self, event: &Event) {
        self.note(event);
        if let Event::Emit { header, .. } = event {
            let name = self.instance(plain(header));
            self.event(EventKind::DeparserEmit, vec![self.id(Kind::Header, &name)]);
            self.debug(format!("Deparsing header '{name}'"));
        }
    }
}
