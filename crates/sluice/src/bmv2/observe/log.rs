//! The thread of the packet log: the interpreter runs each received frame again, and its steps become lines of the log
//! and messages of the event stream.
//!
//! Tests: `tests/py/test_bmv2.py`, `tests/py/test_bmv2_events.py`.

use super::events::{self, Subject};
use super::line::Line;
use super::numbers::Numbers;
use super::story::{Narrator, PacketRuns, Story};
use super::{Handles, POLL_INTERVAL};
use crate::bmv2::{config, switch::DROP_PORT};
use crate::compiler::Compiler;
use crate::live::{PacketFilter, Tracer};
use crate::nanomsg::Publisher;
use base::entry::TableEntry;
use datapath::tap::{TapConfig, Tapped, TappedFrame};
use datapath::{Pipeline, Switch, SwitchError};
use grpc::Handle;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The switch whose packets are logged.
pub(super) struct Source {
    pub switch: Arc<Switch>,
    pub handle: Arc<Handle>,
    pub compiler: Arc<Compiler>,
    pub options: frontend::Options,
    pub device: u64,
    pub handles: Handles,
}

impl Source {
    /// Taps the device's received frames, and with `sent` those that it sends.
    ///
    /// # Errors
    /// If the switch refuses the tap.
    pub fn tap(&self, sent: bool) -> Result<Tapped, SwitchError> {
        self.switch.tap(TapConfig { device: Some(self.device), received_only: !sent, ..TapConfig::default() })
    }
}

/// The outputs and state of the thread.
pub(super) struct PacketLog {
    pub source: Source,
    /// Where lines are written; whether they show the program's steps, and how many bytes of each frame.
    pub out: Option<Box<dyn Write + Send>>,
    pub steps: bool,
    pub bytes: usize,
    /// Where events are published.
    pub publisher: Option<Publisher>,
    /// The running program, with its tracer if it can be traced.
    pub program: Option<(Arc<Pipeline>, Option<Traced>)>,
    pub count: u64,
}

/// A program that can be traced and narrated.
pub(super) struct Traced {
    tracer: Tracer,
    narrator: Narrator,
}

impl PacketLog {
    /// Runs until `stop` is set. If lines are written, `tapped` receives frames from the first packet on.
    pub(super) fn write_all(mut self, mut tapped: Option<Tapped>, stop: &AtomicBool) {
        let mut lost = 0;
        while !stop.load(Ordering::Relaxed) {
            // Without a log file and subscribers, workers do not copy frames.
            let wanted = self.out.is_some() || self.publisher.as_ref().is_some_and(Publisher::is_heard);
            if !wanted || tapped.is_none() {
                (tapped, lost) = (wanted.then(|| self.source.tap(self.shows_sent()).ok()).flatten(), 0);
            }
            let Some(tapped) = &tapped else {
                std::thread::sleep(POLL_INTERVAL);
                self.publish(&[]);
                continue;
            };
            let frame = tapped.next_within(POLL_INTERVAL);
            let mut messages = Vec::new();
            if self.publisher.is_some() && self.follow_program() {
                messages.push(events::config_change(self.source.device));
            }
            let Some(frame) = frame else {
                self.publish(&messages);
                continue;
            };
            let mut lines = Vec::new();
            if tapped.lost() != lost {
                let count = tapped.lost() - lost;
                lines.push(Line::info(format!("{count} packets came too fast and are not in this log")).of_switch());
                lost = tapped.lost();
            }
            self.frame(&frame, &mut lines, &mut messages);
            self.publish(&messages);
            if !self.write(&lines) {
                tracing::error!("the log of packets cannot be written any more");
                self.out = None;
                if self.publisher.is_none() {
                    return;
                }
            }
        }
    }

    /// Whether sent frames are logged. Steps show already where frames go, so this is for their bytes.
    pub(super) fn shows_sent(&self) -> bool {
        self.out.is_some() && self.bytes > 0
    }

    fn frame(&mut self, frame: &TappedFrame, lines: &mut Vec<Line>, messages: &mut Vec<Vec<u8>>) {
        self.data(frame, lines);
        if frame.sent || !(self.steps || self.publisher.is_some()) {
            return;
        }
        let story = self.packet(frame);
        if self.steps {
            lines.extend(story.lines);
        }
        let subject = self.subject(frame);
        messages.extend(story.events.iter().map(|event| event.message(subject)));
        self.count += 1;
    }

    fn subject(&self, frame: &TappedFrame) -> Subject {
        match self.publisher {
            Some(_) => {
                let signature = events::signature(&frame.data);
                Subject { device: self.source.device, signature, packet: self.count }
            }
            None => Subject::default(),
        }
    }

    fn publish(&mut self, messages: &[Vec<u8>]) {
        if let Some(publisher) = &mut self.publisher {
            publisher.publish(messages, Instant::now());
        }
    }

    /// Writes lines; false if that fails.
    fn write(&mut self, lines: &[Line]) -> bool {
        let Some(out) = &mut self.out else { return true };
        let text: String = lines.iter().map(|line| line.text(self.count.saturating_sub(1))).collect();
        // Escape control characters, so that names cannot control a terminal.
        let text = crate::output::visible(&text);
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
    }

    fn data(&self, frame: &TappedFrame, lines: &mut Vec<Line>) {
        if self.bytes > 0 {
            let what = if frame.sent { "Sending" } else { "Received" };
            let shown = &frame.data[..frame.data.len().min(self.bytes)];
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = format!("{what} packet of length {} on port {}: {hex}", frame.length, frame.port);
            lines.push(Line::info(text).of_switch());
        }
    }

    fn packet(&mut self, frame: &TappedFrame) -> Story {
        self.follow_program();
        let nothing = |why: &str| {
            let received = Line::debug(format!("Processing packet received on port {}", frame.port));
            let dropped = Line::debug(format!("Dropping packet: {why}"));
            Story { lines: vec![received, dropped], events: Vec::new() }
        };
        let Some((pipeline, Some(Traced { tracer, narrator }))) = &mut self.program else {
            return nothing("no program runs");
        };
        let runs = match tracer.runs(frame.port, &frame.data) {
            Ok(runs) => runs,
            Err(why) => return nothing(&why),
        };
        let handles = self.source.handles.get();
        let handle_of = |table: &str, entry: &TableEntry| handles?.handle_of(table, &entry.key, entry.priority);
        let mirrored = |session| handles?.mirrored(session);
        let (_, sources) = tracer.program();
        narrator.tell(&PacketRuns {
            runs: &runs,
            sources,
            replication: pipeline.replication(),
            handle_of: &handle_of,
            mirrored: &mirrored,
            port: frame.port,
        })
    }

    /// Makes a tracer if the running program has changed. Returns true if it has replaced another one.
    fn follow_program(&mut self) -> bool {
        let Some(pipeline) = self.source.switch.pipeline_of(self.source.device) else {
            return self.program.take().is_some();
        };
        if self.program.as_ref().is_some_and(|(traced, _)| Arc::ptr_eq(traced, &pipeline)) {
            return false;
        }
        let made = self.trace(&pipeline);
        let traced = made.map_err(|why| tracing::warn!("packets of this program cannot be traced: {why}")).ok();
        self.program.replace((pipeline, traced)).is_some()
    }

    fn trace(&self, pipeline: &Arc<Pipeline>) -> Result<Traced, String> {
        let Source { switch, handle, compiler, options, device, .. } = &self.source;
        let config = handle.with(|control| control.running_config(*device)).ok().flatten();
        let config = config.ok_or("no program runs")?;
        let program = (config.name.as_str(), config.device_config.as_slice());
        let filter = PacketFilter::compile("")?;
        let tracer = Tracer::new((&**compiler, options), Arc::clone(pipeline), program, "", filter, switch.now_us())?;
        // For a program from source, the description is made only if events need its ids.
        let is_json = frontend::form::text(program.1).is_ok_and(|text| text.trim_start().starts_with('{'));
        let json = (is_json || self.publisher.is_some())
            .then(|| config::json(compiler, options, program.0, program.1).ok())
            .flatten()
            .and_then(|json| serde_json::from_str(&json).ok());
        let (program, _) = tracer.program();
        let drop_port = program.drop_port.unwrap_or(u64::from(DROP_PORT));
        let narrator = Narrator::new(program, Numbers::new(json.as_ref(), program), drop_port);
        Ok(Traced { tracer, narrator })
    }
}
