//! Frames to send: arrays read from files, gone through again and again, and the bytes of them that are drawn anew.
//!
//! All frames lie one after the other in one allocation, so that the generator reads memory in order, whatever their
//! number. Each begins at a multiple of [`CHUNK`] and is copied in whole chunks: a copy of a length that is known when
//! this is compiled costs a tenth of one that is not.

use anyhow::{Context, Result, ensure};
use pktio::{HEADROOM, Packet};
use std::path::Path;
use std::str::FromStr;

/// The longest frame that a buffer holds.
const FRAME_BYTES_MAX: usize = 2048;

/// Where an IPv4 header lies behind an Ethernet header.
const IPV4_OFFSET: usize = 14;

/// Bytes that are copied at once.
pub const CHUNK: usize = 64;

/// An array of frames with a place in it.
pub struct Frames {
    chunks: Vec<[u8; CHUNK]>,
    /// First chunk and length of each frame; empty when all have the length `size`.
    index: Vec<(u32, u16)>,
    size: usize,
    count: usize,
    next: usize,
}

impl Frames {
    /// Reads a file of frames of `size` bytes, or of mixed lengths.
    pub fn read(path: &Path, size: Option<usize>) -> Result<Frames> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Frames::new(&bytes, size).with_context(|| format!("{}", path.display()))
    }

    fn new(bytes: &[u8], size: Option<usize>) -> Result<Frames> {
        let mut frames = Frames { chunks: Vec::new(), index: Vec::new(), size: 0, count: 0, next: 0 };
        match size {
            Some(size) => {
                ensure!((1..=FRAME_BYTES_MAX).contains(&size), "frames of {size} bytes cannot be sent");
                ensure!(bytes.len().is_multiple_of(size), "{} bytes are not whole frames of {size}", bytes.len());
                frames.size = size;
                bytes.chunks_exact(size).for_each(|frame| frames.push(frame));
            }
            None => {
                let mut rest = bytes;
                while let Some((length, behind)) = rest.split_first_chunk() {
                    let length = u16::from_le_bytes(*length);
                    ensure!((1..=FRAME_BYTES_MAX).contains(&length.into()), "a frame of {length} bytes");
                    let (frame, behind) = behind.split_at_checked(length.into()).context("the last frame is cut")?;
                    frames.index.push((u32::try_from(frames.chunks.len()).context("too many frames")?, length));
                    frames.push(frame);
                    rest = behind;
                }
                ensure!(rest.is_empty(), "the last frame is cut");
            }
        }
        ensure!(frames.count > 0, "there is no frame");
        Ok(frames)
    }

    fn push(&mut self, frame: &[u8]) {
        for part in frame.chunks(CHUNK) {
            let mut chunk = [0; CHUNK];
            chunk[..part.len()].copy_from_slice(part);
            self.chunks.push(chunk);
        }
        self.count += 1;
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The next frame in whole chunks, and its length; the first again after the last.
    #[inline]
    pub fn take(&mut self) -> (&[[u8; CHUNK]], usize) {
        let at = self.next;
        self.next = if at + 1 == self.count { 0 } else { at + 1 };
        let (start, length) = match self.index.get(at) {
            None => (at * self.size.div_ceil(CHUNK), self.size),
            Some(&(start, length)) => (start as usize, usize::from(length)),
        };
        (&self.chunks[start..start + length.div_ceil(CHUNK)], length)
    }

    /// Makes a packet the next frame.
    #[inline]
    pub fn fill(&mut self, packet: &mut Packet) {
        let (chunks, length) = self.take();
        // Frames fit into a buffer: longer ones are refused, and a buffer is whole chunks long behind its headroom.
        if packet.adjust(HEADROOM, chunks.len() * CHUNK).is_ok() {
            let (to, _) = packet.data_mut().as_chunks_mut::<CHUNK>();
            for (to, from) in to.iter_mut().zip(chunks) {
                *to = *from;
            }
            packet.truncate(length);
        }
    }
}

/// Bytes of a frame that are drawn for each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomSpan {
    offset: usize,
    length: usize,
}

impl FromStr for RandomSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<RandomSpan, String> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n < FRAME_BYTES_MAX);
        let (offset, length) = text.split_once(':').ok_or("write OFFSET:LENGTH")?;
        match (number(offset), number(length)) {
            (Some(offset), Some(length @ 1..=8)) => Ok(RandomSpan { offset, length }),
            _ => Err(format!("`{text}`: an offset and a length of 1 to 8 bytes are needed")),
        }
    }
}

/// Draws bytes (Marsaglia, «Xorshift RNGs», 2003, with the finaliser of xorshift64*).
pub struct Random(u64);

impl Random {
    /// Any seed will do.
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    #[inline]
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Fills the spans of a frame; what lies behind its end stays out.
    #[inline]
    pub fn fill(&mut self, frame: &mut [u8], spans: &[RandomSpan]) {
        for span in spans {
            let bytes = self.draw().to_be_bytes();
            if let Some(target) = frame.get_mut(span.offset..span.offset + span.length) {
                target.copy_from_slice(&bytes[..span.length]);
            }
        }
    }
}

/// Sets the checksum of the IPv4 header without options behind an Ethernet header (RFC 1071).
pub fn set_ipv4_checksum(frame: &mut [u8]) {
    let Some(header) = frame.get_mut(IPV4_OFFSET..IPV4_OFFSET + 20) else { return };
    header[10..12].fill(0);
    let mut sum: u32 = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum += sum >> 16;
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests;
