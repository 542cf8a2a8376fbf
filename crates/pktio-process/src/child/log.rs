//! The process's log: lines from `debug` up go to the switch, which knows what is wanted of them.
//!
//! A line that the socket has no room for is lost. Threads: any. Tests: `tests/isolated.rs`.

use crate::protocol::{Control, Line, ToSwitch, send};
use std::fmt::{Debug, Write};
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Maximum bytes of a line's text, so that it fits into a message.
const TEXT_BYTES_MAX: usize = 8 << 10;

struct ToTheSwitch(Control);

/// Sends the process's log to the switch from now on.
pub(super) fn use_switch(control: &Control) {
    // It fails only if the process has a log already.
    let _ = tracing::subscriber::set_global_default(ToTheSwitch(Arc::clone(control)));
}

#[derive(Default)]
struct Fields {
    text: String,
    port: Option<String>,
    queue: Option<u64>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.text, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "port" => self.port = Some(value.to_owned()),
            "message" => self.text.push_str(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "queue" => self.queue = Some(value),
            _ => self.record_debug(field, &value),
        }
    }
}

impl Subscriber for ToTheSwitch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { mut text, port, queue } = fields;
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        let level = match *event.metadata().level() {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            Level::DEBUG => 3,
            Level::TRACE => 4,
        };
        let target = event.metadata().target().to_owned();
        let _ = send(&*self.0, &ToSwitch::Log(Line { level, target, text, port, queue }), &[]);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
