//! Frames, of which every file of a state directory consists; how damage is distinguished from a torn write.
//!
//! ```text
//!   frame    "SLFr" | u32 length of payload | u64 sequence number | u64 checksum of the previous header
//!            | u64 checksum of the payload | u64 checksum of the 32 bytes before  (little endian)  | payload
//! ```
//!
//! Each frame contains its sequence number and the header checksum of the previous frame, so frames form a
//! chain: a frame that is missing, out of order, or from another file or an earlier generation is detected,
//! and every byte is covered by a checksum (XXH3, 64 bits). A file's chain starts with a seed that the
//! manifest determines, so files cannot be swapped.
//!
//! **Torn write.** A crash can truncate or leave unwritten only the frame that was being appended, since the frame
//! before it was synced first. So the bytes after the last intact frame are a torn write only if no intact frame
//! follows, the frame's number is above what was ever acknowledged, and the file ends within the frame or the frame has
//! a sector that was never written (zeros). Anything else is damage.
//!
//! This detects accidents, not forgery: whoever can write the disk can also compute checksums.
//!
//! Tests: below, `tests/kept/damaged.rs`; the fuzz target `state_log`.

use std::io::Read;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 40;
/// Maximum payload in bytes. A group of requests logged together is far smaller;
/// a program with its P4Info may be 100 MB.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;
const MAGIC: [u8; 4] = *b"SLFr";
/// The minimum unit that disks write atomically, in bytes.
const SECTOR_BYTES: usize = 512;

/// A position in a chain of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Number of the next frame.
    pub next: u64,
    /// Header checksum of the last frame; before the first, the seed.
    pub last: u64,
}

/// Why a frame is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The file ends within the frame.
    Incomplete,
    /// The header's checksum is wrong.
    Header,
    /// The frame is intact, but has this sequence number instead of the next one.
    Number(u64),
    /// The frame does not follow the previous one.
    Chain,
    /// The payload's checksum is wrong.
    Payload,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Incomplete => write!(f, "the file ends within a record"),
            Fault::Header => write!(f, "a record's header does not fit its checksum"),
            Fault::Number(found) => write!(f, "a record has number {found}, which is not the next one"),
            Fault::Chain => {
                write!(f, "a record does not follow the one before it: it is of another file or generation")
            }
            Fault::Payload => write!(f, "a record does not fit its checksum"),
        }
    }
}

/// A header with a correct checksum.
struct Header {
    length: usize,
    sequence: u64,
    previous: u64,
    payload: u64,
    own: u64,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn header(bytes: &[u8]) -> Option<Header> {
    let own = u64_at(bytes, 32);
    let fits = bytes.len() >= HEADER_BYTES && bytes[..4] == MAGIC && xxh3_64(&bytes[..32]) == own;
    let length = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) as usize;
    let (sequence, previous, payload) = (u64_at(bytes, 8), u64_at(bytes, 16), u64_at(bytes, 24));
    fits.then_some(Header { length, sequence, previous, payload, own })
}

impl Chain {
    /// The start of a chain.
    pub fn begin(next: u64, seed: u64) -> Chain {
        Chain { next, last: seed }
    }

    /// Appends a frame to `out`; `content` writes its payload.
    pub fn frame(&mut self, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
        let at = out.len();
        out.resize(at + HEADER_BYTES, 0);
        content(out);
        let payload = &out[at + HEADER_BYTES..];
        // Callers respect the maximum; a longer frame would be refused on reading.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let checksum = xxh3_64(payload);
        let header = &mut out[at..at + HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&length.to_le_bytes());
        for (i, number) in [self.next, self.last, checksum].into_iter().enumerate() {
            header[8 + 8 * i..16 + 8 * i].copy_from_slice(&number.to_le_bytes());
        }
        let own = xxh3_64(&header[..32]);
        header[32..].copy_from_slice(&own.to_le_bytes());
        *self = Chain { next: self.next + 1, last: own };
    }

    fn follow(&mut self, header: &Header) -> Result<(), Fault> {
        if header.length > PAYLOAD_BYTES_MAX {
            return Err(Fault::Header);
        }
        if header.sequence != self.next {
            return Err(Fault::Number(header.sequence));
        }
        if header.previous != self.last {
            return Err(Fault::Chain);
        }
        Ok(())
    }

    /// Reads the chain's next frame at `at` and returns its payload; `None` at the end of `bytes`.
    ///
    /// # Errors
    /// Why the frame is invalid.
    pub fn read<'a>(&mut self, bytes: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, Fault> {
        let rest = &bytes[(*at).min(bytes.len())..];
        if rest.is_empty() {
            return Ok(None);
        }
        if rest.len() < HEADER_BYTES {
            return Err(Fault::Incomplete);
        }
        let header = header(rest).ok_or(Fault::Header)?;
        self.follow(&header)?;
        let payload = rest.get(HEADER_BYTES..HEADER_BYTES + header.length).ok_or(Fault::Incomplete)?;
        if xxh3_64(payload) != header.payload {
            return Err(Fault::Payload);
        }
        *self = Chain { next: self.next + 1, last: header.own };
        *at += HEADER_BYTES + header.length;
        Ok(Some(payload))
    }
}

/// The classification of what follows the end of a valid chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// A torn write: a frame that was being appended when the machine stopped.
    Torn,
    /// Damage.
    Damaged {
        /// Number of intact frames that follow.
        intact: usize,
    },
}

/// Classifies the bytes from `at` on, where `chain` found `fault`. Frames up to number `acknowledged` had been synced.
pub fn classify_tail(bytes: &[u8], at: usize, chain: &Chain, fault: Fault, acknowledged: u64) -> Tail {
    let rest = &bytes[at.min(bytes.len())..];
    let intact = intact_frames(rest).count();
    let unwritten = || {
        // Starts at the sector after the one in which the frame begins.
        let first = at.next_multiple_of(SECTOR_BYTES).min(bytes.len());
        bytes[first..].chunks(SECTOR_BYTES).any(|sector| sector.iter().all(|b| *b == 0))
    };
    let whole = fault != Fault::Incomplete;
    match intact == 0 && chain.next > acknowledged && (!whole || unwritten()) {
        true => Tail::Torn,
        false => Tail::Damaged { intact },
    }
}

/// All frames that are intact on their own, wherever they are: what can be salvaged from a damaged file.
pub fn intact_frames(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &bytes[at..];
            // Searches for the magic number.
            let begin = rest.windows(MAGIC.len()).position(|four| four == MAGIC)?;
            at += begin;
            let rest = &bytes[at..];
            let found = header(rest).and_then(|header| {
                let payload = rest.get(HEADER_BYTES..HEADER_BYTES.checked_add(header.length)?)?;
                (xxh3_64(payload) == header.payload).then_some(payload)
            });
            match found {
                Some(payload) => {
                    let range = at..at + HEADER_BYTES + payload.len();
                    at = range.end;
                    return Some((range, payload));
                }
                None => at += MAGIC.len(),
            }
        }
    })
}

/// Reads the frames of a file in sequence.
pub struct Frames<R> {
    from: R,
    /// Bytes not yet read.
    left: u64,
    /// Offset of the next frame.
    pub at: u64,
    /// Position in the chain.
    pub chain: Chain,
    payload: Vec<u8>,
}

/// Why reading a file stopped.
#[derive(Debug)]
pub enum Stop {
    /// A frame is damaged.
    Fault(Fault),
    /// The system reported an error.
    Io(std::io::Error),
}

impl<R: Read> Frames<R> {
    /// Starts reading a file of this length in bytes.
    pub fn new(from: R, bytes: u64, chain: Chain) -> Frames<R> {
        Frames { from, left: bytes, at: 0, chain, payload: vec![] }
    }

    /// Reads the next frame. Returns false at the end.
    ///
    /// # Errors
    /// The frame is damaged, or cannot be read.
    pub fn advance(&mut self) -> Result<bool, Stop> {
        if self.left == 0 {
            return Ok(false);
        }
        if self.left < HEADER_BYTES as u64 {
            return Err(Stop::Fault(Fault::Incomplete));
        }
        let mut bytes = [0; HEADER_BYTES];
        self.fill(|from, _| from.read_exact(&mut bytes))?;
        let header = header(&bytes).ok_or(Stop::Fault(Fault::Header))?;
        self.chain.follow(&header).map_err(Stop::Fault)?;
        let whole = HEADER_BYTES as u64 + header.length as u64;
        if self.left < whole {
            return Err(Stop::Fault(Fault::Incomplete));
        }
        self.payload.resize(header.length, 0);
        self.fill(|from, payload| from.read_exact(payload))?;
        if xxh3_64(&self.payload) != header.payload {
            return Err(Stop::Fault(Fault::Payload));
        }
        self.chain = Chain { next: self.chain.next + 1, last: header.own };
        self.at += whole;
        self.left -= whole;
        Ok(true)
    }

    /// The payload of the frame last read.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn fill(&mut self, read: impl FnOnce(&mut R, &mut Vec<u8>) -> std::io::Result<()>) -> Result<(), Stop> {
        read(&mut self.from, &mut self.payload).map_err(|e| match e.kind() {
            // The file was truncated meanwhile.
            std::io::ErrorKind::UnexpectedEof => Stop::Fault(Fault::Incomplete),
            _ => Stop::Io(e),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(payloads: &[&[u8]]) -> (Vec<u8>, Chain) {
        let mut chain = Chain::begin(5, 77);
        let mut out = Vec::new();
        payloads.iter().for_each(|payload| chain.frame(&mut out, |out| out.extend_from_slice(payload)));
        (out, chain)
    }

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Chain, usize, Result<(), Fault>) {
        let (mut chain, mut at, mut found) = (Chain::begin(5, 77), 0, vec![]);
        let end = loop {
            match chain.read(bytes, &mut at) {
                Ok(Some(payload)) => found.push(payload.to_vec()),
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        // The file reader agrees.
        let mut frames = Frames::new(bytes, bytes.len() as u64, Chain::begin(5, 77));
        let mut same = vec![];
        let stop = loop {
            match frames.advance() {
                Ok(true) => same.push(frames.payload().to_vec()),
                Ok(false) => break Ok(()),
                Err(Stop::Fault(fault)) => break Err(fault),
                Err(Stop::Io(e)) => panic!("{e}"),
            }
        };
        assert_eq!((&same, frames.chain, stop), (&found, chain, end));
        (found, chain, at, end)
    }

    #[test]
    fn no_bit_of_a_file_can_change_unnoticed() {
        let (bytes, end) = file(&[b"one", b"", &[0; 600], b"four"]);
        assert_eq!(
            read(&bytes),
            (vec![b"one".to_vec(), vec![], vec![0; 600], b"four".to_vec()], end, bytes.len(), Ok(()))
        );
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let (_, chain, at, found) = read(&other);
            let fault = found.expect_err("it is noticed");
            // All frames were acknowledged, so nothing counts as a torn write.
            let tail = classify_tail(&other, at, &chain, fault, 8);
            assert!(matches!(tail, Tail::Damaged { .. }), "bit {bit}: {tail:?}");
        }
    }

    #[test]
    fn a_frame_that_is_missing_twice_there_or_of_another_file_is_noticed() {
        let (bytes, _) = file(&[b"one", b"two", b"three"]);
        let size = HEADER_BYTES + 3;
        let (one, two, three) = (&bytes[..size], &bytes[size..2 * size], &bytes[2 * size..]);
        assert_eq!(read(&[one, three].concat()).3, Err(Fault::Number(7)));
        assert_eq!(read(&[one, one, two, three].concat()).3, Err(Fault::Number(5)));
        let (other, _) = file(&[b"eno", b"two"]);
        assert_eq!(read(&[one, &other[size..]].concat()).3, Err(Fault::Chain));
    }

    #[test]
    fn a_torn_tail_is_the_one_frame_after_what_was_acknowledged() {
        let (bytes, _) = file(&[b"one", &[9; 2000]]);
        let first = HEADER_BYTES + 3;
        for length in first + 1..bytes.len() {
            let (found, chain, at, fault) = read(&bytes[..length]);
            let judged = |acknowledged| classify_tail(&bytes[..length], at, &chain, fault.unwrap_err(), acknowledged);
            assert_eq!((found.len(), judged(5), judged(6)), (1, Tail::Torn, Tail::Damaged { intact: 0 }));
        }
        // The length is complete, but one sector was not written.
        let mut unwritten = bytes.clone();
        unwritten[1024..1536].fill(0);
        let (_, chain, at, fault) = read(&unwritten);
        assert_eq!(classify_tail(&unwritten, at, &chain, fault.unwrap_err(), 5), Tail::Torn);
        // One byte differs.
        let mut changed = bytes.clone();
        changed[1024] ^= 1;
        let (_, chain, at, fault) = read(&changed);
        assert_eq!(classify_tail(&changed, at, &chain, fault.unwrap_err(), 5), Tail::Damaged { intact: 0 });
    }

    #[test]
    fn what_is_intact_is_found_behind_damage() {
        let (mut bytes, _) = file(&[b"one", b"SLFr and more", b"three"]);
        bytes[HEADER_BYTES] ^= 1;
        let found: Vec<_> = intact_frames(&bytes).map(|(_, payload)| payload).collect();
        assert_eq!(found, [&b"SLFr and more"[..], b"three"]);
        let (_, chain, at, fault) = read(&bytes);
        assert_eq!(classify_tail(&bytes, at, &chain, fault.unwrap_err(), 0), Tail::Damaged { intact: 2 });
    }
}
