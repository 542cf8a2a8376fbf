//! Digests: which of them are sent to controllers, and how (P4Runtime specification, "DigestEntry").

use crate::names::{Names, find, id_of};
use crate::text::name_text;
use crate::values::data_text;
use crate::{Change, Kind, Verb};
use messages::p4::v1 as pb;
use pb::entity::Entity;
use serde_json::{Value, json};
use std::fmt::Write;
use stf::Command;
use stf::script::time_text;

/// The kind of digest configurations.
pub(crate) struct Digests;

impl Names {
    /// A digest's name.
    pub fn digest_name(&self, id: u32) -> String {
        self.name_in(&self.info.digests, |digest| &digest.preamble, id)
    }

    /// The id of the digest with a name or a unique suffix of it.
    ///
    /// # Errors
    ///
    /// There is none, or the suffix is ambiguous.
    pub fn digest_id(&self, name: &str) -> Result<u32, String> {
        find("digest", name, &self.info.digests, |digest| &digest.preamble).map(|digest| id_of(&digest.preamble))
    }

    /// A digest list as a JSON object; each message is its leaves in order, as on a line.
    pub fn digest_list_json(&self, list: &pb::DigestList) -> Value {
        let messages: Vec<Vec<String>> =
            list.data.iter().map(|data| data_text(data).split_whitespace().map(str::to_string).collect()).collect();
        json!({ "digest": self.digest_name(list.digest_id), "list": list.list_id, "messages": messages })
    }
}

impl Kind for Digests {
    fn noun(&self) -> &'static str {
        "digest"
    }

    fn queries(&self, names: &Names, name: Option<&str>) -> Result<Vec<Entity>, String> {
        if names.info.digests.is_empty() && name.is_none() {
            return Ok(vec![]);
        }
        let digest_id = name.map_or(Ok(0), |name| names.digest_id(name))?;
        Ok(vec![Entity::DigestEntry(pb::DigestEntry { digest_id, config: None })])
    }

    fn key(&self, entity: &Entity) -> Option<Entity> {
        let Entity::DigestEntry(entry) = entity else { return None };
        Some(Entity::DigestEntry(pb::DigestEntry { digest_id: entry.digest_id, config: None }))
    }

    fn comes_and_goes(&self, _: &Entity) -> bool {
        true
    }

    fn line(&self, names: &Names, entity: &Entity) -> Option<String> {
        let Entity::DigestEntry(entry) = entity else { return None };
        let mut line = format!("digest {}", name_text(&names.digest_name(entry.digest_id)));
        let config = entry.config.unwrap_or_default();
        if let Ok(time @ 1..) = u64::try_from(config.max_timeout_ns) {
            let _ = write!(line, " max_timeout={}", time_text(time));
        }
        if config.max_list_size != 0 {
            let _ = write!(line, " max_list_size={}", config.max_list_size);
        }
        if let Ok(time @ 1..) = u64::try_from(config.ack_timeout_ns) {
            let _ = write!(line, " ack_timeout={}", time_text(time));
        }
        Some(line)
    }

    fn json(&self, names: &Names, entity: &Entity) -> Value {
        let Entity::DigestEntry(entry) = entity else { return Value::Null };
        let config = entry.config.unwrap_or_default();
        json!({
            "digest": names.digest_name(entry.digest_id),
            "max_timeout_ns": config.max_timeout_ns,
            "max_list_size": config.max_list_size,
            "ack_timeout_ns": config.ack_timeout_ns,
        })
    }

    fn change(&self, names: &Names, command: &Command) -> Option<Result<Change, String>> {
        let Command::Digest { name, max_timeout_ns, max_list_size, ack_timeout_ns } = command else { return None };
        let entry = names.digest_id(name).and_then(|digest_id| {
            let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
            let config = pb::digest_entry::Config {
                max_timeout_ns: signed(*max_timeout_ns),
                max_list_size: i32::try_from(*max_list_size)
                    .map_err(|_| format!("the size {max_list_size} is too large"))?,
                ack_timeout_ns: signed(*ack_timeout_ns),
            };
            Ok(Entity::DigestEntry(pb::DigestEntry { digest_id, config: Some(config) }))
        });
        Some(entry.map(|entity| Change { verb: Verb::Set, entity }))
    }
}
