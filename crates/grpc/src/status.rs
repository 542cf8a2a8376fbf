//! Conversion of the control plane's errors to gRPC statuses (P4Runtime specification, "Error Reporting Messages").
//!
//! A batch with failures has the status UNKNOWN, with one `p4.v1.Error` per element in the order of the request, inside
//! a `google.rpc.Status` in the `grpc-status-details-bin` trailer. Clients refuse answers whose headers exceed 8 KiB
//! (gRPC's default), so details have [`DETAILS_BYTES_MAX`]: messages that do not fit are left out, and if the codes
//! alone do not fit, the last detail gives the codes of the others in runs.

use control::{Code, Error};
use messages::google::rpc;
use messages::p4::v1 as pb;
use prost::Message;
use tonic::Status;

/// Limit on the bytes of the `google.rpc.Status` of a batch. In base64 it takes a third more; with the batch's message
/// and the other headers that is less than 8 KiB.
const DETAILS_BYTES_MAX: usize = 5 * 1024;
/// What each detail takes beside its message: the type URL, the code and the lengths.
const DETAIL_BYTES: usize = 48;
/// Limit on the bytes of messages if not all codes fit.
const MESSAGES_BYTES_FEW: usize = 1024;
/// Limit on the bytes of the detail about the results that are left out.
const LEFT_OUT_BYTES_MAX: usize = 512;
/// Limit on the bytes of a message as percent-encoded on the wire, where each byte other than printable ASCII takes
/// three.
const MESSAGE_BYTES_MAX: usize = 2 * 1024;
/// The same for the message of a batch, which its details contain, too.
const BATCH_MESSAGE_BYTES_MAX: usize = 512;

/// The `space` of the detail about the results that are left out; its `code` is the number of the first failed element,
/// counted from 0, if that is among them.
pub(crate) const LEFT_OUT: &str = "results left out";

/// The type URL of an `Any` that holds a `p4.v1.Error`.
const ERROR_TYPE: &str = "type.googleapis.com/p4.v1.Error";

/// A status whose message is cut to its limit. All statuses of this crate are made here.
pub fn new(code: tonic::Code, message: impl Into<String>) -> Status {
    Status::new(code, cut(message.into()))
}

/// The beginning of a message, as far as the limit allows, and how many bytes were cut off.
pub fn cut(message: String) -> String {
    cut_to(message, MESSAGE_BYTES_MAX)
}

fn cut_to(mut message: String, bytes_max: usize) -> String {
    let on_wire = |c: char| if c == ' ' || c.is_ascii_graphic() && c != '%' { 1 } else { 3 * c.len_utf8() };
    let mut bytes = 0;
    let over = message.char_indices().find(|(_, c)| {
        bytes += on_wire(*c);
        bytes > bytes_max
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
    // An update that was undone because of another one is no cause.
    let is_cause = |result: &Result<(), Error>| result.as_ref().is_err_and(|error| error.code != Code::Aborted);
    let at = results.iter().position(is_cause).or_else(|| results.iter().position(Result::is_err))?;
    let first = results[at].as_ref().err()?;
    let message = format!("{failed} of {} {what} failed; the first: {}", results.len(), first.message);
    let message = cut_to(message, BATCH_MESSAGE_BYTES_MAX);
    let room = DETAILS_BYTES_MAX - message.len() - DETAIL_BYTES;
    let mut cause = cut(first.message.clone());
    if results.len() * DETAIL_BYTES + cause.len() > room {
        cause = cut_to(first.message.clone(), BATCH_MESSAGE_BYTES_MAX);
    }
    let room = room - cause.len();
    let all_fit = results.len() * DETAIL_BYTES <= room;
    let (shown, mut for_messages) = match all_fit {
        true => (results.len(), room - results.len() * DETAIL_BYTES),
        false => {
            let others = MESSAGES_BYTES_FEW + LEFT_OUT_BYTES_MAX + DETAIL_BYTES;
            ((room - others) / DETAIL_BYTES, MESSAGES_BYTES_FEW)
        }
    };
    let detail = |(i, result): (usize, &Result<(), Error>)| {
        let message = match result {
            Ok(()) => String::new(),
            Err(_) if i == at => cause.clone(),
            Err(error) => {
                let message = cut(error.message.clone());
                // From the first that does not fit on, there are none.
                let rest = for_messages.checked_sub(message.len());
                for_messages = rest.unwrap_or(0);
                rest.map_or_else(String::new, |_| message)
            }
        };
        any(&pb::Error { canonical_code: code_of(result) as i32, message, ..Default::default() })
    };
    let mut details: Vec<prost_types::Any> = results[..shown].iter().enumerate().map(detail).collect();
    if !all_fit {
        let code = if at < shown { 0 } else { i32::try_from(at).unwrap_or(0) };
        let space = LEFT_OUT.to_string();
        let message = left_out(results, shown);
        details.push(any(&pb::Error { canonical_code: Code::Unknown as i32, message, space, code, details: None }));
    }
    let status = rpc::Status { code: tonic::Code::Unknown as i32, message: message.clone(), details };
    Some(Status::with_details(tonic::Code::Unknown, message, status.encode_to_vec().into()))
}

fn code_of(result: &Result<(), Error>) -> Code {
    result.as_ref().err().map_or(Code::Ok, |error| error.code)
}

fn any(error: &pb::Error) -> prost_types::Any {
    prost_types::Any { type_url: ERROR_TYPE.to_string(), value: error.encode_to_vec() }
}

/// How many results are left out, and their codes in runs of equal ones, as far as they fit.
fn left_out(results: &[Result<(), Error>], shown: usize) -> String {
    let mut text = format!("{} results do not fit in an answer:", results.len() - shown);
    let mut at = shown;
    for run in results[shown..].chunk_by(|a, b| code_of(a) == code_of(b)) {
        let next = format!(" {at} to {} {:?};", at + run.len() - 1, code_of(&run[0]));
        if text.len() + next.len() > LEFT_OUT_BYTES_MAX - 8 {
            text += " ...";
            break;
        }
        text += &next;
        at += run.len();
    }
    text
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
        assert!(on_wire(&status) < 8 * 1024 - 512, "{}", on_wire(&status));
        let details = rpc::Status::decode(status.details()).unwrap();
        assert_eq!(details.details.len(), 3);
    }

    /// The bytes of the headers with a status's texts, as gRPC counts them, with room for the others.
    fn on_wire(status: &Status) -> usize {
        let encoded = |c: char| if c == ' ' || c.is_ascii_graphic() && c != '%' { 1 } else { 3 * c.len_utf8() };
        let message: usize = status.message().chars().map(encoded).sum();
        let details = status.details().len().div_ceil(3) * 4;
        message + "grpc-message".len() + 32 + details + "grpc-status-details-bin".len() + 32
    }

    fn errors(status: &Status) -> Vec<pb::Error> {
        let details = rpc::Status::decode(status.details()).unwrap().details;
        details.iter().map(|detail| pb::Error::decode(detail.value.as_slice()).unwrap()).collect()
    }

    #[test]
    fn a_batch_of_any_size_stays_below_the_limits_of_headers() {
        let results = |n: usize, message: &str| -> Vec<Result<(), Error>> {
            (0..n).map(|i| if i % 7 == 3 { Ok(()) } else { Err(Error::invalid(message)) }).collect()
        };
        for n in [1, 2, 5, 40, 80, 90, 100, 110, 1000, 50_000] {
            for message in ["", "no such entry", &"\u{1f600}".repeat(300), &"x".repeat(5000)] {
                let Some(status) = of_batch(&results(n, message), "updates") else { continue };
                assert!(on_wire(&status) < 8 * 1024 - 512, "{n} x {} bytes: {}", message.len(), on_wire(&status));
                let errors = errors(&status);
                let codes = results(n, message).iter().map(|r| code_of(r) as i32).collect::<Vec<_>>();
                let (last, shown) = errors.split_last().unwrap();
                if last.space != LEFT_OUT {
                    assert_eq!(errors.iter().map(|e| e.canonical_code).collect::<Vec<_>>(), codes);
                } else {
                    assert!(n > 80 && shown.len() > 40, "{n}: {}", shown.len());
                    assert!(shown.iter().zip(&codes).all(|(shown, code)| shown.canonical_code == *code));
                    assert!(last.message.starts_with(&format!("{} results do not fit", n - shown.len())), "{last:?}");
                }
            }
        }
    }

    #[test]
    fn results_that_are_left_out_are_told_in_runs() {
        let mut results: Vec<Result<(), Error>> = (0..20_000).map(|_| Ok(())).collect();
        results[15_000] = Err(Error::invalid("wrong"));
        let status = of_batch(&results, "updates").unwrap();
        let last = errors(&status).pop().unwrap();
        assert_eq!((last.canonical_code, last.space.as_str(), last.code), (Code::Unknown as i32, LEFT_OUT, 15_000));
        assert!(last.message.ends_with(" to 14999 Ok; 15000 to 15000 InvalidArgument; 15001 to 19999 Ok;"), "{last:?}");
    }
}
