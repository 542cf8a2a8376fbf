//! OpenFlow 1.0, 1.3, 1.4 and 1.5, with Nicira's extensions, as Open vSwitch speaks them.
//!
//! A message is a value that is the same for all versions ([`Message`]); [`wire`] reads and writes its form in one version. What a
//! version cannot say is an error where it is written, and a field that it lacks has its neutral value where it is read.
//!
//! **No protocol of packets is known here.** Which fields there are, how wide they are, by which OXM and NXM numbers they go and
//! which other fields they need comes from a [`Fields`], which a P4 program makes. Only OpenFlow 1.0's fixed match structure names
//! fields, by their numbers ([`field::class`]).
//!
//! | file | holds |
//! | --- | --- |
//! | `field` | match fields: numbers, widths, prerequisites |
//! | `matching` | values and masks of fields |
//! | `action` | actions, instructions, buckets |
//! | `version` | versions of the protocol |
//! | `message` | messages |
//! | `error` | what a switch refuses, with each version's numbers |
//! | `wire` | versions' formats |
//! | `check` | whether actions go with a match |
//! | `text` | matches and actions as text |
//!
//! Sources: OpenFlow Switch Specification 1.0.0, 1.3.5, 1.4.1, 1.5.1 of the Open Networking Foundation; for Nicira's extensions
//! ovs-fields(7), ovs-actions(7) and ovs-ofctl(8).

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
