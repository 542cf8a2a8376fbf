//! The wire formats of messages in OpenFlow 1.0, 1.3, 1.4 and 1.5.
//!
//! Lengths are checked before they are trusted: a [`Reader`] never reads past its end, and memory is a small multiple of the
//! input. Fields that must be zero are ignored where the specification says so.

pub(crate) mod action;
pub(crate) mod bytes;
pub(crate) mod instruction;
pub(crate) mod learn;
pub(crate) mod match10;
pub(crate) mod nicira;
pub(crate) mod number;
pub(crate) mod oxm;

pub(crate) use bytes::{Reader, Writer};

use crate::error::Error;

/// What reading or writing a part of a message gives.
pub(crate) type Result<T> = std::result::Result<T, Error>;
