//! Errors of refused requests: a canonical code, and a message that names the object and the valid choices.
//!
//! The codes are those of gRPC (`google.rpc.Code`), because the P4Runtime specification assigns them clause by clause.
//! They have the protocol's numbers, but nothing here depends on gRPC: one file in `grpc` turns errors into statuses.

use abi::state::StateError;
use std::fmt;

/// A canonical code of `google.rpc.Code`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
#[allow(missing_docs, reason = "defined by google.rpc.Code")]
pub enum Code {
    Ok = 0,
    Unknown = 2,
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// A refused operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The code, by which clients react.
    pub code: Code,
    /// The explanation, for the controller's author.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident = $code:ident;)*) => {
        impl Error {
            $($(#[$doc])*
            pub fn $name(message: impl Into<String>) -> Error {
                Error { code: Code::$code, message: message.into() }
            })*
        }
    };
}

constructors! {
    /// The request contradicts the P4Info or the protocol.
    invalid = InvalidArgument;
    /// The object that the request names does not exist.
    not_found = NotFound;
    /// The object exists already.
    already_exists = AlreadyExists;
    /// This client may not do it, or the object cannot be changed.
    denied = PermissionDenied;
    /// A limit is reached.
    exhausted = ResourceExhausted;
    /// The current state does not allow it.
    precondition = FailedPrecondition;
    /// A value or index is too large.
    out_of_range = OutOfRange;
    /// The protocol defines it, but this switch does not support it.
    unimplemented = Unimplemented;
    /// A bug in this program, or a failure of the switch.
    internal = Internal;
    /// Interrupted by a concurrent event; the client may retry.
    aborted = Aborted;
    /// Not possible at present: the same request may succeed later.
    unavailable = Unavailable;
}

impl Error {
    /// The error for `object` that corresponds to a pipeline state's error.
    pub(crate) fn from_state(error: StateError, object: &str) -> Error {
        match error {
            StateError::Exists => Error::already_exists(format!("{object} exists already")),
            StateError::NotFound => Error::not_found(format!("{object} does not exist")),
            StateError::Full(limit) => Error::exhausted(format!("{object}: no room, the limit is {limit}")),
            StateError::NoMemory(bytes) => Error::exhausted(format!(
                "{object}: the switch has more than {} MB of memory in use, so no entry is added; delete some, or start it with a larger \
                 --state-memory",
                bytes >> 20
            )),
            StateError::NoSuchReference(id) => {
                Error::not_found(format!("{object} refers to member or group {id}, which does not exist"))
            }
            StateError::InUse => Error::precondition(format!("{object} is still in use")),
            StateError::WrongKind => Error::invalid(format!("{object} is not of the kind that this needs")),
            StateError::Unacknowledged(worker) => Error::unavailable(format!(
                "{object}: nothing was changed, for worker {worker} has not come to the end of a batch of packets for {} s and may \
                 still use what this would change; try again, and if it stays so, see what thread `worker-{worker}` waits for \
                 (`sluice stats`) or restart the switch",
                datapath::ACKNOWLEDGE_MAX.as_secs()
            )),
            StateError::Unsupported(what) => Error::unimplemented(format!("{object}: {what} is not supported")),
        }
    }
}

/// The names as `a, b or c` for messages, cut off after a few.
pub(crate) fn choices<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN_MAX: usize = 8;
    let names: Vec<&str> = names.into_iter().collect();
    match names.as_slice() {
        [] => "none".to_string(),
        [one] => format!("`{one}`"),
        many if many.len() > SHOWN_MAX => {
            let shown: Vec<String> = many[..SHOWN_MAX].iter().map(|name| format!("`{name}`")).collect();
            format!("{} and {} more", shown.join(", "), many.len() - SHOWN_MAX)
        }
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", rest.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_has_not_acknowledged_is_unavailable_and_says_which_worker_and_what_to_do() {
        let error = Error::from_state(StateError::Unacknowledged(3), "table `ingress.route`");
        assert_eq!(error.code, Code::Unavailable);
        for part in ["table `ingress.route`", "nothing was changed", "worker 3", "thread `worker-3`", "try again"] {
            assert!(error.message.contains(part), "{error} lacks `{part}`");
        }
    }
}
