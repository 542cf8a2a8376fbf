//! The protocol's messages as values: a header of 12 bytes and a payload whose format depends on the request.
//!
//! A message is read completely before it is acted on. Parsing checks lengths; `session` checks the values.
//! Source: QEMU's documentation, interop/vhost-user ("Message Specification"). Threads: none. Tests: below.

/// Bytes of a header: request, flags and payload length, 32 bits each in native byte order.
pub(crate) const HEADER_BYTES: usize = 12;
/// Maximum payload that is read: 64 memory regions would fit. All supported messages are shorter.
pub(crate) const PAYLOAD_MAX: usize = 4096;
/// Maximum number of memory regions, and so of files in a message. DPDK and most
/// front ends use 8, QEMU's hotplug up to 32.
pub(crate) const REGIONS_MAX: usize = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Flag "no file descriptor is attached" in the requests that name a ring and carry an eventfd.
const NO_FILE: u64 = 1 << 8;

/// A region of guest memory, as the front end describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Guest physical address.
    pub guest: u64,
    pub bytes: u64,
    /// User address: where the front end's process has mapped it. Ring addresses are user addresses.
    pub user: u64,
    /// Offset in its file, in bytes.
    pub offset: u64,
}

/// Addresses of a ring's parts, as user addresses of the front end; `log` is the
/// guest physical address of the used ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingAddress {
    pub logs: bool,
    pub descriptors: u64,
    pub used: u64,
    pub available: u64,
    pub log: u64,
}

/// Which eventfd of a ring a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingFile {
    Kick,
    Call,
    Error,
}

/// A front end's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<Region>),
    SetLogBase { bytes: u64, offset: u64 },
    SetLogFile,
    SetRingSize { ring: u32, size: u32 },
    SetRingAddress { ring: u32, address: RingAddress },
    SetRingBase { ring: u32, base: u32 },
    GetRingBase { ring: u32 },
    SetRingFile { ring: u32, which: RingFile, has_file: bool },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueCount,
    EnableRing { ring: u32, enable: bool },
    SendRarp,
    SetMtu(u64),
    GetMaxMemSlots,
    AddMemRegion(Region),
    RemoveMemRegion(Region),
    SetStatus(u64),
    GetStatus,
    ResetDevice,
}

/// A message without its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub code: u32,
    pub needs_reply: bool,
    pub request: Request,
}

/// Why a message is invalid; ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadMessage {
    Version(u32),
    TooLong(usize),
    Unknown(u32),
    Length { code: u32, bytes: usize },
    Value { code: u32, value: u64 },
}

impl std::fmt::Display for BadMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadMessage::Version(flags) => write!(f, "a message with flags {flags:#x}, not of version 1"),
            BadMessage::TooLong(bytes) => write!(f, "a message with {bytes} bytes of payload, at most {PAYLOAD_MAX}"),
            BadMessage::Unknown(code) => write!(f, "request {code}, which was not offered"),
            BadMessage::Length { code, bytes } => write!(f, "request {code} with {bytes} bytes of payload"),
            BadMessage::Value { code, value } => write!(f, "request {code} with the value {value:#x}"),
        }
    }
}

/// Returns the length in bytes of the payload that follows a header.
///
/// # Errors
/// The version is wrong, the message is a reply, or the payload is longer than [`PAYLOAD_MAX`].
pub(crate) fn payload_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, BadMessage> {
    let [_, flags, bytes] = words(header);
    if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
        return Err(BadMessage::Version(flags));
    }
    let bytes = bytes as usize;
    if bytes <= PAYLOAD_MAX { Ok(bytes) } else { Err(BadMessage::TooLong(bytes)) }
}

fn words(header: &[u8; HEADER_BYTES]) -> [u32; 3] {
    let word = |i: usize| u32::from_ne_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
    [word(0), word(4), word(8)]
}

/// Parses a header and its complete payload.
///
/// # Errors
/// The request is unknown, or its payload has the wrong length or an invalid value.
pub(crate) fn parse(header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Message, BadMessage> {
    let [code, flags, _] = words(header);
    let mut fields = Fields { code, bytes: payload, all: payload.len() };
    let request = match code {
        1 => Request::GetFeatures,
        2 => Request::SetFeatures(fields.u64()?),
        3 => Request::SetOwner,
        4 => Request::ResetOwner,
        5 => {
            let count = fields.u32()? as usize;
            fields.u32()?;
            if count > REGIONS_MAX {
                return Err(BadMessage::Value { code, value: count as u64 });
            }
            Request::SetMemTable((0..count).map(|_| fields.region()).collect::<Result<_, _>>()?)
        }
        6 => Request::SetLogBase { bytes: fields.u64()?, offset: fields.u64()? },
        7 => Request::SetLogFile,
        8 => Request::SetRingSize { ring: fields.u32()?, size: fields.u32()? },
        9 => {
            let (ring, flags) = (fields.u32()?, fields.u32()?);
            let (descriptors, used, available, log) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
            Request::SetRingAddress {
                ring,
                address: RingAddress { logs: flags & 1 != 0, descriptors, used, available, log },
            }
        }
        10 => Request::SetRingBase { ring: fields.u32()?, base: fields.u32()? },
        11 => {
            let ring = fields.u32()?;
            fields.u32()?;
            Request::GetRingBase { ring }
        }
        12..=14 => {
            let value = fields.u64()?;
            if value & !(NO_FILE | 0xff) != 0 {
                return Err(BadMessage::Value { code, value });
            }
            let which = [RingFile::Kick, RingFile::Call, RingFile::Error][code as usize - 12];
            Request::SetRingFile { ring: (value & 0xff) as u32, which, has_file: value & NO_FILE == 0 }
        }
        15 => Request::GetProtocolFeatures,
        16 => Request::SetProtocolFeatures(fields.u64()?),
        17 => Request::GetQueueCount,
        18 => {
            let (ring, value) = (fields.u32()?, fields.u32()?);
            if value > 1 {
                return Err(BadMessage::Value { code, value: value.into() });
            }
            Request::EnableRing { ring, enable: value == 1 }
        }
        19 => {
            fields.u64()?;
            Request::SendRarp
        }
        20 => Request::SetMtu(fields.u64()?),
        34 => Request::ResetDevice,
        36 => Request::GetMaxMemSlots,
        37 | 38 => {
            fields.u64()?;
            let region = fields.region()?;
            if code == 37 { Request::AddMemRegion(region) } else { Request::RemoveMemRegion(region) }
        }
        39 => Request::SetStatus(fields.u64()?),
        40 => Request::GetStatus,
        _ => return Err(BadMessage::Unknown(code)),
    };
    // Requests without a payload may carry one: some front ends send the same structure for all requests.
    let ignores = matches!(
        request,
        Request::GetFeatures
            | Request::SetOwner
            | Request::ResetOwner
            | Request::SetLogFile
            | Request::GetProtocolFeatures
            | Request::GetQueueCount
            | Request::GetMaxMemSlots
            | Request::GetStatus
            | Request::ResetDevice
    );
    if !fields.bytes.is_empty() && !ignores {
        return Err(BadMessage::Length { code, bytes: payload.len() });
    }
    Ok(Message { code, needs_reply: flags & NEED_REPLY != 0, request })
}

/// Encodes a reply with this payload.
pub(crate) fn reply(code: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    for word in [code, VERSION | REPLY, payload.len() as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// Reads the fields of a payload in order.
struct Fields<'a> {
    code: u32,
    bytes: &'a [u8],
    all: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (field, rest) =
            self.bytes.split_first_chunk().ok_or(BadMessage::Length { code: self.code, bytes: self.all })?;
        self.bytes = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, BadMessage> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, BadMessage> {
        self.take().map(u64::from_ne_bytes)
    }

    fn region(&mut self) -> Result<Region, BadMessage> {
        Ok(Region { guest: self.u64()?, bytes: self.u64()?, user: self.u64()?, offset: self.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(code: u32, flags: u32, bytes: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        for (to, word) in header.chunks_mut(4).zip([code, flags, bytes]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        header
    }

    #[test]
    fn messages_of_a_wrong_form_are_refused() {
        assert_eq!(payload_bytes(&header(1, 2, 0)), Err(BadMessage::Version(2)));
        assert_eq!(payload_bytes(&header(1, 1 | REPLY, 0)), Err(BadMessage::Version(5)));
        assert_eq!(payload_bytes(&header(1, 1, 4097)), Err(BadMessage::TooLong(4097)));
        assert_eq!(parse(&header(99, 1, 0), &[]), Err(BadMessage::Unknown(99)));
        assert_eq!(parse(&header(8, 1, 4), &[0; 4]), Err(BadMessage::Length { code: 8, bytes: 4 }));
        assert_eq!(parse(&header(8, 1, 9), &[0; 9]), Err(BadMessage::Length { code: 8, bytes: 9 }));
        let many = [33u32.to_ne_bytes().to_vec(), vec![0; 4 + 33 * 32]].concat();
        assert_eq!(parse(&header(5, 1, 0), &many), Err(BadMessage::Value { code: 5, value: 33 }));
        assert_eq!(parse(&header(18, 1, 8), &[2; 8]).map_err(|_| ()), Err(()));
    }

    proptest! {
        #[test]
        fn any_payload_is_parsed_or_refused(code in 0u32..50, payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&header(code, 9, payload.len() as u32), &payload);
        }
    }
}
