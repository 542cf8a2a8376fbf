//! Errors of the control plane as gRPC statuses: the one place where they meet (P4Runtime specification, "Error Reporting
//! Messages").
//!
//! A batch with failures is UNKNOWN with one `p4.v1.Error` per element in the order of the request, inside a
//! `google.rpc.Status` in the `grpc-status-details-bin` trailer. Trailers have limits, so messages are left out of the
//! details once they exceed [`DETAILS_BYTES_MAX`]; the codes stay complete.

use crate::proto::google::rpc;
use crate::proto::p4::v1 as pb;
use control::{Code, Error};
use prost::Message;
use tonic::Status;

/// Bytes of details with messages; the rest has codes only.
const DETAILS_BYTES_MAX: usize = 4 * 1024;

/// How an `Any` says that it holds a `p4.v1.Error`.
const ERROR_TYPE: &str = "type.googleapis.com/p4.v1.Error";

/// The status of a refused request.
pub fn of_error(error: &Error) -> Status {
    Status::new(code(error.code), error.message.clone())
}

/// The status of a batch, `None` if all went well.
pub fn of_batch(results: &[Result<(), Error>], what: &str) -> Option<Status> {
    let failed = results.iter().filter(|r| r.is_err()).count();
    let first = results.iter().find_map(|r| r.as_ref().err())?;
    let message = format!("{failed} of {} {what} failed; the first: {}", results.len(), first.message);
    let mut bytes = 0;
    let detail = |result: &Result<(), Error>| {
        let error = match result {
            Ok(()) => pb::Error { canonical_code: Code::Ok as i32, ..Default::default() },
            Err(error) => {
                bytes += error.message.len();
                let message = if bytes <= DETAILS_BYTES_MAX { error.message.clone() } else { String::new() };
                pb::Error { canonical_code: error.code as i32, message, ..Default::default() }
            }
        };
        prost_types::Any { type_url: ERROR_TYPE.to_string(), value: error.encode_to_vec() }
    };
    let details = results.iter().map(detail).collect();
    let status = rpc::Status { code: tonic::Code::Unknown as i32, message: message.clone(), details };
    Some(Status::with_details(tonic::Code::Unknown, message, status.encode_to_vec().into()))
}

fn code(code: Code) -> tonic::Code {
    tonic::Code::from_i32(code as i32)
}
