//! Errors of methods. They are reported by the method's own exception, which has a numeric code, or by the protocol's
//! exception, which has a text.
//!
//! bmv2's exceptions consist of a code only; the message with the object and the valid choices is logged. Conditions
//! without a code (an unsupported operation, a primary controller, a failing disk) use the protocol's exception, so
//! that the caller sees the reason.

use crate::wire::{Outcome, TooLong};
use control::{Code, Error};
use thrift::ApplicationErrorKind;

/// Maximum length in bytes of a text sent to a client; compiler output can be long.
const SAID_BYTES_MAX: usize = 8 << 10;

/// An error of a method.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fault {
    /// The method's exception: its code, and a message for the log.
    Coded(i32, String),
    /// The protocol's exception, with its message.
    Said(ApplicationErrorKind, String),
}

pub(crate) type Answer<T> = std::result::Result<T, Fault>;

impl Fault {
    /// An operation that the switch does not support.
    pub(crate) fn unsupported(what: &str) -> Fault {
        Fault::Said(ApplicationErrorKind::InternalError, format!("not supported: {what}"))
    }

    /// Any other error without a code.
    pub(crate) fn with_message(why: impl Into<String>) -> Fault {
        Fault::Said(ApplicationErrorKind::InternalError, why.into())
    }

    /// An argument that is missing or has the wrong type.
    pub(crate) fn arguments(why: impl Into<String>) -> Fault {
        Fault::Said(ApplicationErrorKind::ProtocolError, why.into())
    }

    /// The message for the log.
    pub(crate) fn message(&self) -> &str {
        match self {
            Fault::Coded(_, why) | Fault::Said(_, why) => why,
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Fault::Coded(code, _) => Outcome::Exception(code),
            Fault::Said(kind, mut why) => {
                if why.len() > SAID_BYTES_MAX {
                    why.truncate(why.floor_char_boundary(SAID_BYTES_MAX));
                    why.push_str(" ...");
                }
                Outcome::Failed(kind, why)
            }
        }
    }
}

impl From<TooLong> for Fault {
    fn from(_: TooLong) -> Fault {
        Fault::with_message(format!(
            "the answer has more than {} MiB; `sluice table show`, `sluice config save` and P4Runtime have no such limit",
            crate::wire::ANSWER_BYTES_MAX >> 20
        ))
    }
}

/// Whether an error does not concern the arguments; it is then reported by text, since no code applies.
fn is_general(code: Code) -> bool {
    matches!(
        code,
        Code::PermissionDenied | Code::Unavailable | Code::Internal | Code::Aborted | Code::FailedPrecondition
    )
}

/// An error of the control plane, reported with `code` if it concerns the arguments.
pub(crate) fn with_code(error: Error, code: i32) -> Fault {
    match is_general(error.code) {
        true => Fault::with_message(error.message),
        false => Fault::Coded(code, error.message),
    }
}

/// `TableOperationErrorCode`, restricted to codes that clients of all versions know: an unknown code ends a command
/// line.
#[allow(missing_docs, dead_code, reason = "bmv2's names")]
pub(crate) mod table {
    pub const FULL: i32 = 1;
    pub const INVALID_HANDLE: i32 = 2;
    pub const EXPIRED_HANDLE: i32 = 3;
    pub const COUNTERS_DISABLED: i32 = 4;
    pub const METERS_DISABLED: i32 = 5;
    pub const AGEING_DISABLED: i32 = 6;
    pub const INVALID_TABLE_NAME: i32 = 7;
    pub const INVALID_ACTION_NAME: i32 = 8;
    pub const WRONG_TABLE_TYPE: i32 = 9;
    pub const INVALID_MEMBER: i32 = 10;
    pub const MEMBER_STILL_USED: i32 = 11;
    pub const MEMBER_ALREADY_IN_GROUP: i32 = 12;
    pub const MEMBER_NOT_IN_GROUP: i32 = 13;
    pub const INVALID_GROUP: i32 = 14;
    pub const GROUP_STILL_USED: i32 = 15;
    pub const EMPTY_GROUP: i32 = 16;
    pub const DUPLICATE_ENTRY: i32 = 17;
    pub const BAD_MATCH_KEY: i32 = 18;
    pub const INVALID_METER_OPERATION: i32 = 19;
    pub const DEFAULT_ACTION_IS_CONST: i32 = 20;
    pub const DEFAULT_ENTRY_IS_CONST: i32 = 21;
    pub const INVALID_PROFILE_NAME: i32 = 23;
    pub const NO_SELECTION: i32 = 24;
    pub const IMMUTABLE_ENTRIES: i32 = 25;
    pub const BAD_ACTION_DATA: i32 = 26;
    pub const ERROR: i32 = 100;
}

/// `CounterOperationErrorCode` and `RegisterOperationErrorCode`, which are identical. Meters share the first two codes.
#[allow(missing_docs, reason = "bmv2's names")]
pub(crate) mod array {
    pub const INVALID_NAME: i32 = 1;
    pub const INVALID_INDEX: i32 = 2;
    pub const ERROR: i32 = 3;
}

/// `MeterOperationErrorCode`.
#[allow(missing_docs, reason = "bmv2's names")]
pub(crate) mod meter {
    pub const BAD_RATES_LIST: i32 = 3;
    pub const INVALID_INFO_RATE: i32 = 4;
    pub const INVALID_BURST: i32 = 5;
    pub const ERROR: i32 = 6;
}

/// `ParseVSetOperationErrorCode`.
#[allow(missing_docs, reason = "bmv2's names")]
pub(crate) mod value_set {
    pub const INVALID_NAME: i32 = 1;
    pub const ERROR: i32 = 2;
}

/// `CrcErrorCode`.
#[allow(missing_docs, reason = "bmv2's names")]
pub(crate) mod crc {
    pub const INVALID_NAME: i32 = 1;
    pub const WRONG_TYPE: i32 = 2;
}

/// `ToeplitzHashErrorCode`.
#[allow(missing_docs, reason = "bmv2's names")]
pub(crate) mod toeplitz {
    pub const INVALID_NAME: i32 = 1;
    pub const WRONG_TYPE: i32 = 2;
    pub const INVALID_KEY: i32 = 3;
}

/// `LearnOperationErrorCode`.
#[allow(missing_docs, reason = "bmv2's names")]
pub(crate) mod learn {
    pub const INVALID_LIST: i32 = 1;
    pub const ERROR: i32 = 3;
}

/// `McOperationErrorCode`.
#[allow(missing_docs, reason = "bmv2's names")]
pub(crate) mod multicast {
    pub const TABLE_FULL: i32 = 1;
    pub const INVALID_MGID: i32 = 2;
    pub const INVALID_GROUP: i32 = 3;
    pub const INVALID_NODE: i32 = 4;
    pub const ERROR: i32 = 5;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_cut() {
        let Outcome::Failed(_, text) = Fault::with_message("é".repeat(SAID_BYTES_MAX)).outcome() else { panic!() };
        assert_eq!(text.len(), SAID_BYTES_MAX + 4);
        assert_eq!(
            Fault::with_message("short").outcome(),
            Outcome::Failed(ApplicationErrorKind::InternalError, "short".into())
        );
    }
}
