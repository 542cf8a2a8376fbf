//! A pcap stream through a FIFO, to which another process adds packets while the switch runs.
//!
//! Opening waits for the writer and its header. After that nothing waits: a record is given once all of it has come. The stream ends
//! when its writer closes it; half a record before that, or one that is longer than any packet, is an error.

use pcap_file::{DataLink, TsResolution};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;
/// Longest record: what capture tools call a snap length, which no packet exceeds.
const PACKET_BYTES_MAX: usize = 262_144;
/// How much is read at once.
const PIECE_BYTES: usize = 65_536;

/// Properties of the input that the output has, too.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub link_type: DataLink,
    pub resolution: TsResolution,
}

/// What a stream has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A packet, which was taken.
    Packet,
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End,
}

/// The stream.
pub(super) struct Stream {
    file: File,
    big_endian: bool,
    /// What has come and has not been given, from `at` on.
    buffer: Vec<u8>,
    at: usize,
    is_closed: bool,
}

impl Stream {
    /// Waits for the stream's header.
    pub fn open(mut file: File) -> Result<(Stream, Form)> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                Error::new(ErrorKind::InvalidData, "its writer has closed it before a pcap header")
            }
            _ => error,
        })?;
        let (big_endian, resolution) = match header[..4] {
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, TsResolution::MicroSecond),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, TsResolution::NanoSecond),
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, TsResolution::MicroSecond),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, TsResolution::NanoSecond),
            _ => return Err(Error::new(ErrorKind::InvalidData, "not a pcap stream")),
        };
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
        let stream = Stream { file, big_endian, buffer: Vec::new(), at: 0, is_closed: false };
        let link_type = DataLink::from(stream.word(&header[20..]));
        Ok((stream, Form { link_type, resolution }))
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let four = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }

    /// Gives the next packet's bytes to `take`, if all of it has come.
    pub fn next(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<Next> {
        loop {
            let rest = &self.buffer[self.at..];
            let length = (rest.len() >= RECORD_BYTES).then(|| self.word(&rest[8..]) as usize);
            if length.is_some_and(|length| length > PACKET_BYTES_MAX) {
                return Err(Error::new(ErrorKind::InvalidData, "a record that is longer than any packet"));
            }
            let whole = length.and_then(|length| rest.get(RECORD_BYTES..RECORD_BYTES + length));
            if let Some(packet) = whole {
                take(packet);
                self.at += RECORD_BYTES + packet.len();
                return Ok(Next::Packet);
            }
            match (self.is_closed, rest.is_empty()) {
                (true, true) => return Ok(Next::End),
                (true, false) => return Err(ErrorKind::UnexpectedEof.into()),
                (false, _) if self.fill()? => {}
                (false, _) => return Ok(Next::Nothing),
            }
        }
    }

    /// Reads what has come; false if that is nothing.
    fn fill(&mut self) -> Result<bool> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + PIECE_BYTES, 0);
        let read = self.file.read(&mut self.buffer[before..]);
        self.buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(count) => {
                self.is_closed = count == 0;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
