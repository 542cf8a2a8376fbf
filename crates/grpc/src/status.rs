//! Conversion of the control plane's errors to gRPC statuses (P4Runtime specification, "Error Reporting Messages").
//!
//! A batch with failures has the status UNKNOWN, with one `p4.v1.Error` per element in the order of the request, inside
//! a `google.rpc.Status` in the `grpc-status-details-bin` trailer. Trailers have a limited size, so details beyond
//! [`DETAILS_BYTES_MAX`] have no message; all codes are present.

use control::{Code, Error};
use messages::google::rpc;
use messages::p4::v1 as pb;
use prost::Message;
use tonic::Status;

/// Limit on the bytes of details with messages; the rest have codes only.
const DETAILS_BYTES_MAX: usize = 4 * 1024;
/// Limit on the bytes of a message as percent-encoded on the wire, where each byte other than printable ASCII takes
/// three. Clients refuse answers whose headers exceed 8 KiB (gRPC's default) or 16 KiB, and the status of a batch
/// contains a message twice.
const MESSAGE_BYTES_MAX: usize = 2 * 1024;

/// The type URL of an `Any` that holds a `p4.v1.Error`.
const ERROR_TYPE: &str = "type.googleapis.com/p4.v1.Error";

/// A status whose message is cut to its limit. All statuses of this crate are made here.
pub fn new(code: tonic::Code, message: impl Into<String>) -> Status {
    Status::new(code, cut(message.into()))
}

/// The beginning of a message, as far as the limit allows, and how many bytes were cut off.
pub fn cut(mut message: String) -> String {
    let on_wire = |c: char| if c == ' ' || c.is_ascii_graphic() && c != '%' { 1 } else { 3 * c.len_utf8() };
    let mut bytes = 0;
    let over = message.char_indices().find(|(_, c)| {
        bytes += on_wire(*c);
        bytes > MESSAGE_BYTES_MAX
    });
    if let Some((at, _)) = over {
        let more = message.len() - at;
        message.truncate(at);
        message += &format!(" ... and {more} bytes more");
    }
    message
}

/// The status of a refused request.
pub fn of_error(error: &Error) -> Status {
    new(code(error.code), error.message.as_str())
}

/// The status of a batch; `None` if all elements succeeded. `what` names the elements.
pub fn of_batch(results: &[Result<(), Error>], what: &str) -> Option<Status> {
    let failed = results.iter().filter(|r| r.is_err()).count();
    let first = results.iter().find_map(|r| r.as_ref().err())?;
    let message = cut(format!("{failed} of {} {what} failed; the first: {}", results.len(), first.message));
    let mut bytes = 0;
    let detail = |result: &Result<(), Error>| {
        let error = match result {
            Ok(()) => pb::Error { canonical_code: Code::Ok as i32, ..Default::default() },
            Err(error) => {
                let message = cut(error.message.clone());
                let fits = bytes + message.len() <= DETAILS_BYTES_MAX;
                let message = if fits { message } else { String::new() };
                bytes += message.len();
                pb::Error { canonical_code: error.code as i32, message, ..Default::default() }
            }
        };
        prost_types::Any { type_url: ERROR_TYPE.to_string(), value: error.encode_to_vec() }
    };
    let details = results.iter().map(detail).collect();
    let status = rpc::Status { code: tonic::Code::Unknown as i32, message: message.clone(), details };
    Some(Status::with_details(tonic::Code::Unknown, message, status.encode_to_vec().into()))
}

/// The gRPC code; the numbers are the same.
pub fn code(code: Code) -> tonic::Code {
    tonic::Code::from_i32(code as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_clients_take() {
        assert_eq!(cut("short, 100 %".into()), "short, 100 %");
        for text in ["x".repeat(50 << 20), "\u{1f600}%\n".repeat(10_000)] {
            let all = text.len();
            let cut = cut(text);
            assert!(cut.len() <= MESSAGE_BYTES_MAX + 40, "{}", cut.len());
            let (kept, more) = cut.split_once(" ... and ").unwrap();
            assert_eq!(more, format!("{} bytes more", all - kept.len()));
        }
    }

    #[test]
    fn a_batch_with_long_messages_stays_below_the_limits_of_headers() {
        let results: Vec<Result<(), Error>> = (0..3).map(|_| Err(Error::invalid("\n".repeat(1 << 20)))).collect();
        let status = of_batch(&results, "updates").unwrap();
        assert!(status.message().len() + status.details().len() < 8 * 1024, "{}", status.details().len());
        let details = rpc::Status::decode(status.details()).unwrap();
        assert_eq!(details.details.len(), 3);
    }
}
