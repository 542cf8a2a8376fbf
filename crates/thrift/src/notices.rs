//! Notifications that bmv2 sends to nanomsg subscribers besides digests: port status changes, and entries that reached
//! their idle timeout.
//!
//! Messages are in native byte order and begin with a header of 32 bytes:
//!
//! ```text
//!   PRT|  device (8 bytes)  statuses (4)  16 zero bytes    then for each: port (4), 1 for up or 0 for down (4)
//!   AGE|  device (8)  context (4)  message number (8)  table (4)  entries (4)    then for each: its handle (4)
//! ```
//!
//! Deliberately not here: `SWP|`. bmv2 1.15 creates it when a program is swapped, but does not send it.
//!
//! The caller sends the messages. Tests: below, `tests/py/test_thrift.py`.
//!
//! Source: `port_monitor.h` and `ageing.h` of behavioral-model.

use crate::service::Services;
use crate::tables;
use control::entity::TableEntry;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Limit on batches of idle entries that wait for handles while a call is in progress; further ones are dropped.
const ROUNDS_MAX: usize = 64;
/// Limit on entries of a message: messages may have any length, but a subscriber's backlog is bounded.
const ENTRIES_MAX: usize = 16_384;

/// The port status that subscribers know.
pub struct PortNotices {
    device: u64,
    /// By port number: whether it is up.
    known: BTreeMap<u32, bool>,
}

impl PortNotices {
    /// Notifications of a device. All ports count as down until they are reported up.
    pub fn new(device: u64) -> PortNotices {
        PortNotices { device, known: BTreeMap::new() }
    }

    /// Takes the status of all ports; returns a message about those that have changed.
    pub fn take(&mut self, ports: impl Iterator<Item = (u32, bool)>) -> Option<Vec<u8>> {
        let now: BTreeMap<u32, bool> = ports.collect();
        let was_up = |port: &u32| self.known.get(port).copied().unwrap_or(false);
        let changed: Vec<(u32, bool)> =
            now.iter().map(|(p, up)| (*p, *up)).filter(|(p, up)| was_up(p) != *up).collect();
        self.known = now;
        if changed.is_empty() {
            return None;
        }
        let mut message = b"PRT|".to_vec();
        message.extend(self.device.to_ne_bytes());
        message.extend((changed.len() as u32).to_ne_bytes());
        message.extend([0; 16]);
        for (port, up) in changed {
            message.extend((port as i32).to_ne_bytes());
            message.extend(i32::from(up).to_ne_bytes());
        }
        Some(message)
    }
}

/// Determines the handles of idle entries on a thread of its own, because a call in progress can take long. The thread
/// ends when this is dropped.
pub struct Ageing {
    idle: SyncSender<Vec<TableEntry>>,
    messages: Receiver<Vec<u8>>,
}

impl Ageing {
    pub(crate) fn start(services: Arc<Services>) -> io::Result<Ageing> {
        let (idle, rounds) = sync_channel::<Vec<TableEntry>>(ROUNDS_MAX);
        let (told, messages) = sync_channel(ROUNDS_MAX);
        let run = move || {
            let mut number = 0u64;
            for entries in rounds {
                for message in services.with(|on| messages_about(on, entries, &mut number)) {
                    if told.send(message).is_err() {
                        return;
                    }
                }
            }
        };
        std::thread::Builder::new().name("ageing".to_string()).spawn(run)?;
        Ok(Ageing { idle, messages })
    }

    /// Takes idle entries, without blocking.
    pub fn take(&self, idle: Vec<TableEntry>) {
        if !idle.is_empty() && self.idle.try_send(idle).is_err() {
            tracing::warn!("idle entries were not reported to subscribers: a thrift call takes long");
        }
    }

    /// The messages that are due.
    pub fn messages(&self) -> impl Iterator<Item = Vec<u8>> {
        self.messages.try_iter()
    }
}

/// Messages about idle entries: one or, for very many entries, several for each table.
fn messages_about(on: &mut crate::service::Context<'_>, entries: Vec<TableEntry>, number: &mut u64) -> Vec<Vec<u8>> {
    let mut tables: BTreeMap<u32, Vec<TableEntry>> = BTreeMap::new();
    entries.into_iter().for_each(|entry| tables.entry(entry.table_id).or_default().push(entry));
    let device = on.switch.device_id();
    let mut messages = Vec::new();
    for (id, entries) in tables {
        let (table, handles) = match tables::handles_of(on, id, &entries) {
            Ok(found) => found,
            Err(fault) => {
                tracing::warn!("idle entries were not reported to subscribers: {}", fault.message());
                continue;
            }
        };
        for handles in handles.chunks(ENTRIES_MAX) {
            messages.push(about_table(device, *number, table, handles));
            *number += 1;
        }
    }
    messages
}

fn about_table(device: u64, number: u64, table: i32, handles: &[i32]) -> Vec<u8> {
    let mut message = b"AGE|".to_vec();
    message.extend(device.to_ne_bytes());
    message.extend(0i32.to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend(table.to_ne_bytes());
    message.extend((handles.len() as u32).to_ne_bytes());
    handles.iter().for_each(|handle| message.extend(handle.to_ne_bytes()));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_when_they_change() {
        let mut notices = PortNotices::new(2);
        let first = notices.take([(0, false), (1, true), (7, true)].into_iter()).expect("two are up");
        let numbers = |all: &[i32]| all.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
        let begin = [&b"PRT|"[..], &2u64.to_ne_bytes(), &2u32.to_ne_bytes(), &[0; 16]].concat();
        assert_eq!(begin.len(), 32);
        assert_eq!(first, [begin, numbers(&[1, 1, 7, 1])].concat());
        assert_eq!(notices.take([(0, false), (1, true), (7, true)].into_iter()), None);
        let then =
            notices.take([(0, true), (1, false)].into_iter()).expect("two changed; one is gone, which is not told");
        assert_eq!(then[32..], numbers(&[0, 1, 1, 0]));
        // A port that is up again is reported.
        let last = notices.take([(0, true), (1, false), (7, true)].into_iter()).expect("it is up");
        assert_eq!(last[32..], numbers(&[7, 1]));
    }

    #[test]
    fn idle_entries_are_told_by_handle() {
        let message = about_table(3, 9, 4, &[0, 1 << 24 | 2]);
        assert_eq!(message.len(), 32 + 8);
        let begin = [&b"AGE|"[..], &3u64.to_ne_bytes(), &0i32.to_ne_bytes(), &9u64.to_ne_bytes(), &4i32.to_ne_bytes()];
        assert_eq!(message[..28], begin.concat());
        assert_eq!(message[28..], [2u32, 0, 1 << 24 | 2].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>());
    }
}
