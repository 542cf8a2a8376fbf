//! OpenFlow 1.0, 1.3, 1.4 and 1.5 with Nicira's extensions, compatible with Open vSwitch.
//!
//! A message is one value for all versions ([`Message`]); [`wire`] decodes and encodes its format in one version.
//! Encoding fails for what the version cannot express; decoding gives a field that the version lacks its neutral value.
//!
//! **This crate knows no packet protocol.** Which match fields exist, their widths, their OXM and NXM numbers and their
//! prerequisites come from a [`Fields`], which is made from a P4 program. Only the fixed match structure of OpenFlow
//! 1.0 refers to particular fields, by their OXM numbers ([`field::class`]).
//!
//! | file | holds |
//! | --- | --- |
//! | `field` | match fields: OXM and NXM numbers, widths, prerequisites |
//! | `matching` | matches: values and masks of fields |
//! | `action` | actions, instructions, buckets |
//! | `version` | protocol versions |
//! | `message` | messages |
//! | `error` | error types and codes in each version |
//! | `wire` | wire format of each version |
//! | `check` | consistency of actions with a match |
//! | `text` | matches and actions as text |
//!
//! Sources: OpenFlow Switch Specification 1.0.0, 1.3.5, 1.4.1, 1.5.1 of the Open Networking Foundation; for Nicira's
//! extensions ovs-fields(7), ovs-actions(7) and ovs-ofctl(8).

pub mod action;
pub mod check;
pub mod error;
pub mod field;
pub mod matching;
pub mod memory;
pub mod message;
#[cfg(test)]
mod testing;
pub mod text;
mod version;
pub mod wire;

pub use action::{Action, Bucket, Instructions};
pub use error::{Error, ErrorKind};
pub use field::{Field, FieldId, Fields};
pub use matching::Match;
pub use message::{Message, Version};
