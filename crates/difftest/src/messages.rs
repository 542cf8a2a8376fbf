//! Fuzz target for the memory cost of requests: actual allocation against the estimate that `grpc::wire` makes before
//! decoding.
//!
//! The oracle is the allocator: a process that measures installs a counting allocator and registers it with
//! [`measure_with`]. Otherwise requests are only decoded and converted.
//!
//! Tests: `tests/messages.rs` with a counting allocator, `tests/fuzz_regressions.rs` without.

use grpc::wire::schema;
use messages::convert;
use messages::p4::v1 as pb;
use messages::sluice::v1 as admin;
use prost::Message;
use std::sync::OnceLock;

/// The maximum estimated cost of a request in bytes; larger ones are refused, as by a server.
const COST_MAX: u64 = 64 << 20;
/// An allowance in bytes for error texts and for concurrent allocations of the process.
const BESIDES: u64 = 64 << 10;

/// The counters of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Resets the peak.
    pub reset: fn(),
    /// The number of bytes allocated.
    pub now: fn() -> usize,
    /// The maximum number of bytes allocated since the last reset.
    pub peak: fn() -> usize,
}

static METER: OnceLock<Meter> = OnceLock::new();

/// Enables measurement with a counting allocator.
pub fn measure_with(meter: Meter) {
    let _ = METER.set(meter);
}

/// The methods, in the order in which the first byte selects them.
fn paths() -> Vec<&'static str> {
    let mut paths: Vec<&str> = schema().paths().collect();
    paths.sort_unstable();
    paths
}

/// Drops a value.
fn discard<T>(_: T) {}

/// Decodes a request as the server does, and converts it to the control plane's values.
fn decode(path: &str, bytes: &[u8]) -> Option<()> {
    match path {
        "/p4.v1.P4Runtime/Write" => discard(convert::write_request(pb::WriteRequest::decode(bytes).ok()?)),
        "/p4.v1.P4Runtime/Read" => discard(convert::read_entities(pb::ReadRequest::decode(bytes).ok()?.entities)),
        "/p4.v1.P4Runtime/StreamChannel" => {
            discard(convert::stream_request(pb::StreamMessageRequest::decode(bytes).ok()?));
        }
        "/p4.v1.P4Runtime/SetForwardingPipelineConfig" => {
            let config = pb::SetForwardingPipelineConfigRequest::decode(bytes).ok()?.config?;
            discard(config.p4info.as_ref().map(convert::p4info::claims));
        }
        "/p4.v1.P4Runtime/GetForwardingPipelineConfig" => {
            discard(pb::GetForwardingPipelineConfigRequest::decode(bytes).ok()?);
        }
        "/p4.v1.P4Runtime/Capabilities" => discard(pb::CapabilitiesRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Bind" => discard(admin::BindRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Capture" => discard(admin::CaptureRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Chain" => discard(admin::ChainRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Load" => discard(admin::LoadRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Log" => discard(admin::LogRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Port" => discard(admin::PortRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Cache" => discard(admin::CacheRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Program" => discard(admin::ProgramRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Qos" => discard(admin::QosRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Restart" => discard(admin::RestartRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Stats" => discard(admin::StatsRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Trace" => discard(admin::TraceRequest::decode(bytes).ok()?),
        "/sluice.v1.Admin/Unload" => discard(admin::UnloadRequest::decode(bytes).ok()?),
        _ => return None,
    }
    Some(())
}

/// The fuzz target's body, see `fuzz.rs`. The first byte selects the method.
pub fn fuzz(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let paths = paths();
    let path = paths[usize::from(*choice) % paths.len()];
    let input = schema().method(path).expect("it is one of them").input;
    schema().fields(input, bytes).for_each(drop);
    let Ok(cost) = schema().cost(input, bytes, COST_MAX) else { return };
    let Some(meter) = METER.get() else {
        let _ = decode(path, bytes);
        return;
    };
    (meter.reset)();
    let before = (meter.now)();
    let _ = decode(path, bytes);
    let taken = (meter.peak)().saturating_sub(before) as u64;
    let said = 2 * (cost + bytes.len() as u64) + BESIDES;
    assert!(taken <= said, "{path}: {} bytes take {taken} bytes of memory, {said} were expected", bytes.len());
}

/// Seed inputs: those of the target `p4runtime`, and for each kind the request with the highest cost per byte.
pub fn seeds() -> Vec<Vec<u8>> {
    let paths = paths();
    let choice = |path: &str| paths.iter().position(|p| *p == path).expect("there is such a method") as u8;
    let (write, read) = (choice("/p4.v1.P4Runtime/Write"), choice("/p4.v1.P4Runtime/Read"));
    let stream = choice("/p4.v1.P4Runtime/StreamChannel");
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for message in crate::p4rt::message_seeds() {
        let (of, bytes) = message.split_first().expect("a seed has bytes");
        if let Some(method) = [write, read, stream].get(usize::from(*of)) {
            seeds.push([&[*method], bytes].concat());
        }
    }
    let wrapped = |number: u8, inner: &[u8]| {
        let mut outer = vec![number << 3 | 2];
        prost::encoding::encode_varint(inner.len() as u64, &mut outer);
        outer.extend(inner);
        outer
    };
    // Empty updates; entries with empty matches; one entry repeated, so that its matches grow; packed ports.
    let matches = [0x12, 0].repeat(500);
    let entry = wrapped(4, &wrapped(2, &wrapped(2, &matches)));
    let again = wrapped(4, &wrapped(2, &wrapped(2, &[0x12, 0].repeat(4)).repeat(200)));
    seeds.push([vec![write], [0x22, 0].repeat(1000)].concat());
    seeds.push([vec![write], entry.repeat(3)].concat());
    seeds.push([vec![write], again].concat());
    seeds.push([vec![read], [0x12, 0].repeat(1000)].concat());
    seeds.push([vec![choice("/sluice.v1.Admin/Bind")], wrapped(1, &[7; 1000])].concat());
    let options = wrapped(4, &[0x12, 1, b'x'].repeat(1000));
    seeds.push([vec![choice("/sluice.v1.Admin/Port")], options].concat());
    seeds.push([vec![choice("/sluice.v1.Admin/Log")], wrapped(1, &[b'a'; 1000])].concat());
    seeds.push([vec![choice("/sluice.v1.Admin/Capture")], [0x10, 1].repeat(1000)].concat());
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_every_method_are_decoded() {
        for path in paths() {
            assert!(path.ends_with("SetForwardingPipelineConfig") || decode(path, &[]).is_some(), "{path}");
        }
    }
}
