//! Learning lists: digests in the form that bmv2's tools receive, on a socket of their own and acknowledged by thrift.
//!
//! Each digest of the program is a list; its id is its position among them, from 1, as p4c numbers them. Samples wait
//! in the list's buffer until there are as many as a message holds (default 1) or until the first one exceeds the
//! maximum age (default 1 s); the buffer is then sent as a message. A sample that was sent and not acknowledged is not
//! sent again.
//!
//! A message is in native byte order. Its header has 32 bytes: `LEA|`, device (8 bytes), context (4), list (4), buffer
//! (8), number of samples (4). The samples follow; each is its fields in order, in whole bytes of network byte order.
//!
//! Limits: a message has at most [`SAMPLES_MAX`] samples. Beyond [`UNACKED_MAX`] unacknowledged samples of a list, the
//! oldest are considered acknowledged. The caller sends the messages. Threads: any; no call blocks. Tests: below,
//! `tests/py/test_thrift.py`.
//!
//! Source: `learning.h` of behavioral-model.

use abi::state::DigestMessage;
use base::ids::ExternId;
use control::schema::Schema;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limit on samples of a message.
pub const SAMPLES_MAX: usize = 1024;
/// Limit on unacknowledged samples of a list.
pub const UNACKED_MAX: usize = 65_536;
/// Default maximum age in ms of the first sample in a buffer.
const TIMEOUT_MS: u64 = 1000;

/// The learning lists of a device.
pub struct Learning {
    device: u64,
    address: String,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// The program to which the lists belong.
    schema: Option<Arc<Schema>>,
    lists: Vec<List>,
}

struct List {
    digest: ExternId,
    samples_max: usize,
    /// Maximum age of a sample in ms; 0: samples wait until there are enough.
    timeout_ms: u64,
    buffer: Vec<Vec<u8>>,
    since_ms: u64,
    next: u64,
    /// Samples that wait or were sent, and are not acknowledged.
    known: HashSet<Vec<u8>>,
    /// Sent samples, by the number of their message; samples acknowledged individually are `None`.
    sent: BTreeMap<u64, Vec<Option<Vec<u8>>>>,
}

impl Learning {
    /// The lists of a device whose messages are sent to `address`, such as `ipc:///tmp/bmv2-0-notifications.ipc`.
    pub fn new(device: u64, address: String) -> Learning {
        Learning { device, address, lists: Mutex::default() }
    }

    /// The address where clients receive messages.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Whether samples wait, so that a message may become due by time alone.
    pub fn waits(&self) -> bool {
        self.lock().lists.iter().any(|list| !list.buffer.is_empty())
    }

    /// Adds digests of the data plane under a program, and returns the messages that are due. `now_ms` is in
    /// milliseconds of any monotonic clock.
    pub fn take(&self, schema: &Arc<Schema>, messages: &[DigestMessage], now_ms: u64) -> Vec<Vec<u8>> {
        let mut lists = self.lock();
        lists.sync(schema);
        let mut out = Vec::new();
        let Lists { lists, .. } = &mut *lists;
        for message in messages {
            let Some((at, list)) = lists.iter_mut().enumerate().find(|(_, list)| list.digest == message.digest) else {
                continue;
            };
            let sample: Vec<u8> = message.fields.iter().flat_map(base::Bits::to_bytes_be).collect();
            if list.known.insert(sample.clone()) {
                if list.buffer.is_empty() {
                    list.since_ms = now_ms;
                }
                list.buffer.push(sample);
                if list.buffer.len() >= list.samples_max {
                    out.push(list.send(self.device, at));
                }
            }
        }
        for (at, list) in lists.iter_mut().enumerate() {
            let is_old = list.timeout_ms > 0 && now_ms.saturating_sub(list.since_ms) >= list.timeout_ms;
            if is_old && !list.buffer.is_empty() {
                out.push(list.send(self.device, at));
            }
        }
        out
    }

    /// Acknowledges some samples of a message, or all of them. Returns whether the list exists.
    pub(crate) fn acknowledge(&self, schema: &Arc<Schema>, list: i32, buffer: u64, samples: Option<&[usize]>) -> bool {
        self.with(schema, list, |list| {
            let Some(sent) = list.sent.get_mut(&buffer) else { return };
            match samples {
                Some(samples) => {
                    for &sample in samples {
                        if let Some(sample) = sent.get_mut(sample).and_then(Option::take) {
                            list.known.remove(&sample);
                        }
                    }
                }
                None => {
                    for sample in sent.iter_mut().filter_map(Option::take) {
                        list.known.remove(&sample);
                    }
                }
            }
            if sent.iter().all(Option::is_none) {
                list.sent.remove(&buffer);
            }
        })
    }

    /// Sets the maximum age of samples in ms; 0 for no limit. Returns whether the list exists.
    pub(crate) fn set_timeout(&self, schema: &Arc<Schema>, list: i32, timeout_ms: u64) -> bool {
        self.with(schema, list, |list| list.timeout_ms = timeout_ms)
    }

    /// Sets the number of samples of a message. Returns whether the list exists.
    pub(crate) fn set_samples(&self, schema: &Arc<Schema>, list: i32, samples: usize) -> bool {
        self.with(schema, list, |list| list.samples_max = samples.clamp(1, SAMPLES_MAX))
    }

    fn with(&self, schema: &Arc<Schema>, list: i32, f: impl FnOnce(&mut List)) -> bool {
        let mut lists = self.lock();
        lists.sync(schema);
        let at = usize::try_from(list).ok().and_then(|list| list.checked_sub(1));
        at.and_then(|at| lists.lists.get_mut(at)).map(f).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        // Each statement leaves the lists consistent, so data of a poisoned lock can be used.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lists {
    /// Creates new lists if the program has changed.
    fn sync(&mut self, schema: &Arc<Schema>) {
        if self.schema.as_ref().is_some_and(|known| Arc::ptr_eq(known, schema)) {
            return;
        }
        let mut digests: Vec<ExternId> = schema.digests.values().filter_map(|digest| digest.target).collect();
        digests.sort();
        self.lists = digests.into_iter().map(List::new).collect();
        self.schema = Some(Arc::clone(schema));
    }
}

impl List {
    fn new(digest: ExternId) -> List {
        List {
            digest,
            samples_max: 1,
            timeout_ms: TIMEOUT_MS,
            buffer: Vec::new(),
            since_ms: 0,
            next: 0,
            known: HashSet::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Makes a message of the buffer; `at` is the position of the list.
    fn send(&mut self, device: u64, at: usize) -> Vec<u8> {
        let samples = std::mem::take(&mut self.buffer);
        let mut message = b"LEA|".to_vec();
        message.extend(device.to_ne_bytes());
        message.extend(0i32.to_ne_bytes());
        message.extend((at as i32 + 1).to_ne_bytes());
        message.extend(self.next.to_ne_bytes());
        message.extend((samples.len() as u32).to_ne_bytes());
        samples.iter().for_each(|sample| message.extend(sample));
        self.sent.insert(self.next, samples.into_iter().map(Some).collect());
        self.next += 1;
        while self.known.len() > UNACKED_MAX
            && let Some((_, oldest)) = self.sent.pop_first()
        {
            for sample in oldest.into_iter().flatten() {
                self.known.remove(&sample);
            }
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Bits;

    fn message(values: [u128; 2]) -> DigestMessage {
        let [mac, port] = values;
        DigestMessage { digest: ExternId(4), fields: vec![Bits::new(48, mac), Bits::new(9, port)] }
    }

    fn list() -> List {
        List::new(ExternId(4))
    }

    fn sample(values: [u128; 2]) -> Vec<u8> {
        message(values).fields.iter().flat_map(Bits::to_bytes_be).collect()
    }

    #[test]
    fn a_message_has_32_bytes_before_its_samples() {
        let mut list = list();
        list.buffer = vec![sample([0x0a0b_0c0d_0e0f, 3]), sample([1, 0x102])];
        list.next = 7;
        let sent = list.send(2, 0);
        let device = 2u64.to_ne_bytes();
        let numbers = [0i32.to_ne_bytes(), 1i32.to_ne_bytes()].concat();
        let (buffer, count) = (7u64.to_ne_bytes(), 2u32.to_ne_bytes());
        let samples = [10, 11, 12, 13, 14, 15, 0, 3, 0, 0, 0, 0, 0, 1, 1, 2];
        assert_eq!(sent, [&b"LEA|"[..], &device, &numbers, &buffer, &count, &samples].concat());
        assert_eq!((list.next, list.buffer.len(), list.sent[&7].len()), (8, 0, 2));
    }

    #[test]
    fn what_nobody_acknowledges_is_bounded() {
        let mut list = list();
        for number in 0..UNACKED_MAX as u128 + 10 {
            let sample = sample([number, 1]);
            list.known.insert(sample.clone());
            list.buffer.push(sample);
            list.send(0, 0);
        }
        assert_eq!((list.known.len(), list.sent.len()), (UNACKED_MAX, UNACKED_MAX));
        assert!(!list.known.contains(&sample([9, 1])) && list.known.contains(&sample([10, 1])));
    }
}
