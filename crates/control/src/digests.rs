//! Digests: configuration, lists, acknowledgements (P4Runtime specification, "DigestEntry").
//!
//! A message is held in its digest's buffer until the buffer is full or its oldest message has waited for the timeout;
//! then the buffer is sent as one list. Sent messages are remembered until their list is acknowledged or the
//! acknowledgement timeout is over, so that the same message is not sent again in the meantime. Time is an argument, in
//! nanoseconds of any monotonic clock.
//!
//! Limits: a list has at most [`LIST_MAX`] messages, whatever the controller allows. Above [`UNACKED_MAX`]
//! unacknowledged messages, the oldest lists are forgotten. Messages of digests that no controller has enabled are
//! dropped.

use crate::data;
use crate::entity::{self, DigestConfig, Entity, P4Data, UpdateKind};
use crate::error::{Error, Result};
use crate::forwarding::Forwarding;
use abi::state::DigestMessage;
use base::Bits;
use std::collections::{BTreeMap, VecDeque};

/// Limit on the messages of a list.
const LIST_MAX: usize = 1024;
/// Limit on the unacknowledged messages per digest.
const UNACKED_MAX: usize = 65_536;

/// A `DigestList` for the controller.
#[derive(Clone, PartialEq, Debug)]
pub struct DigestList {
    /// The digest.
    pub digest_id: u32,
    /// The list's id, which the acknowledgement names.
    pub list_id: u64,
    /// The messages, no two of which are equal.
    pub data: Vec<P4Data>,
}

/// The enabled digests.
#[derive(Default, Debug)]
pub(crate) struct Digests {
    enabled: BTreeMap<u32, Enabled>,
    last_list: u64,
}

#[derive(Debug)]
struct Enabled {
    config: DigestConfig,
    buffer: Vec<Vec<Bits>>,
    /// When the oldest message of the buffer arrived.
    since_ns: u64,
    /// Lists that were sent and not acknowledged: list id, time sent in nanoseconds, messages.
    unacked: VecDeque<(u64, u64, Vec<Vec<Bits>>)>,
}

impl Enabled {
    fn list_max(&self) -> usize {
        match usize::try_from(self.config.max_list_size) {
            Ok(0) | Err(_) => LIST_MAX,
            Ok(size) => size.min(LIST_MAX),
        }
    }

    fn forget(&mut self, now_ns: u64) {
        let timeout = u64::try_from(self.config.ack_timeout_ns).unwrap_or(0);
        self.unacked.retain(|(_, sent_ns, _)| now_ns.saturating_sub(*sent_ns) < timeout);
        while self.unacked.iter().map(|(_, _, list)| list.len()).sum::<usize>() > UNACKED_MAX {
            self.unacked.pop_front();
        }
    }

    fn take(&mut self, list_id: u64, now_ns: u64) -> Vec<Vec<Bits>> {
        let list = std::mem::take(&mut self.buffer);
        if self.config.ack_timeout_ns > 0 {
            self.unacked.push_back((list_id, now_ns, list.clone()));
        }
        list
    }
}

impl Forwarding {
    pub(crate) fn write_digest(&mut self, kind: UpdateKind, entry: &entity::DigestEntry) -> Result<()> {
        let digest = self.schema.digest_by_id(entry.digest_id)?;
        let name = format!("digest `{}`", digest.name);
        let config = entry.config.unwrap_or_default();
        if kind != UpdateKind::Delete
            && (config.max_timeout_ns < 0 || config.max_list_size < 0 || config.ack_timeout_ns < 0)
        {
            return Err(Error::invalid(format!("{name}: a negative value in the configuration")));
        }
        let enabled = &mut self.digests.enabled;
        match (kind, enabled.get_mut(&entry.digest_id)) {
            (UpdateKind::Insert, Some(_)) => Err(Error::already_exists(format!("{name} is enabled already"))),
            (UpdateKind::Insert, None) => {
                let new = Enabled { config, buffer: vec![], since_ns: 0, unacked: VecDeque::new() };
                enabled.insert(entry.digest_id, new);
                Ok(())
            }
            (_, None) => Err(Error::not_found(format!("{name} is not enabled"))),
            (UpdateKind::Modify, Some(enabled)) => {
                enabled.config = config;
                Ok(())
            }
            (UpdateKind::Delete, Some(_)) => {
                enabled.remove(&entry.digest_id);
                Ok(())
            }
            (UpdateKind::Unspecified, Some(_)) => Ok(()),
        }
    }

    pub(crate) fn read_digests(&self, query: &entity::DigestEntry, into: &mut Vec<Entity>) -> Result<()> {
        if query.digest_id != 0 {
            self.schema.digest_by_id(query.digest_id)?;
        }
        let selected = self.digests.enabled.iter().filter(|(id, _)| query.digest_id == 0 || query.digest_id == **id);
        let entry = |(id, enabled): (&u32, &Enabled)| {
            Entity::Digest(entity::DigestEntry { digest_id: *id, config: Some(enabled.config) })
        };
        into.extend(selected.map(entry));
        Ok(())
    }

    /// Buffers a message of the data plane. Returns a list if the buffer is full.
    pub(crate) fn digest_message(&mut self, message: &DigestMessage, now_ns: u64) -> Option<DigestList> {
        let (id, _) = self.schema.digests.iter().find(|(_, d)| d.target == Some(message.digest))?;
        let id = *id;
        let enabled = self.digests.enabled.get_mut(&id)?;
        enabled.forget(now_ns);
        let sent = enabled.unacked.iter().any(|(_, _, list)| list.contains(&message.fields));
        if sent || enabled.buffer.contains(&message.fields) {
            return None;
        }
        if enabled.buffer.is_empty() {
            enabled.since_ns = now_ns;
        }
        enabled.buffer.push(message.fields.clone());
        let full = enabled.buffer.len() >= enabled.list_max() || enabled.config.max_timeout_ns == 0;
        if full { self.digest_list(id, now_ns) } else { None }
    }

    /// Lists whose timeout is over.
    pub(crate) fn due_digests(&mut self, now_ns: u64) -> Vec<DigestList> {
        let due = |enabled: &Enabled| {
            let timeout = u64::try_from(enabled.config.max_timeout_ns).unwrap_or(0);
            !enabled.buffer.is_empty() && now_ns.saturating_sub(enabled.since_ns) >= timeout
        };
        let ids: Vec<u32> = self.digests.enabled.iter().filter(|(_, e)| due(e)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.digest_list(id, now_ns)).collect()
    }

    fn digest_list(&mut self, id: u32, now_ns: u64) -> Option<DigestList> {
        self.digests.last_list += 1;
        let list_id = self.digests.last_list;
        let list = self.digests.enabled.get_mut(&id)?.take(list_id, now_ns);
        let data_type = &self.schema.digests.get(&id)?.data;
        let types = &self.schema.info.type_info;
        // A message that does not have the type that the P4Info describes cannot be encoded.
        let data = list.into_iter().filter_map(|fields| data::encode(types, data_type, &mut fields.into_iter()));
        Some(DigestList { digest_id: id, list_id, data: data.collect() })
    }

    /// Handles the acknowledgement of a list.
    pub(crate) fn acknowledge_digest(&mut self, digest_id: u32, list_id: u64) -> Result<()> {
        self.schema.digest_by_id(digest_id).map_err(|e| Error::invalid(e.message))?;
        if let Some(enabled) = self.digests.enabled.get_mut(&digest_id) {
            enabled.unacked.retain(|(id, ..)| *id != list_id);
        }
        Ok(())
    }
}
