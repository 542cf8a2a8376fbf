//! A bounds-checked reader and a writer of big-endian integers.

use super::result::Result;
use crate::error::{Error, ErrorKind};

/// Reads bytes in order. Reading past the end is an error of kind `short`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    short: ErrorKind,
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub(crate) fn new(bytes: &'a [u8], short: ErrorKind) -> Reader<'a> {
        Reader { bytes, at: 0, short }
    }

    /// The same reader with another kind of error at the end.
    pub(crate) fn short(self, short: ErrorKind) -> Reader<'a> {
        Reader { short, ..self }
    }

    /// The number of bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The number of bytes left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether no byte is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Reads `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.left() {
            let text = format!("{len} bytes wanted at {}, {} left", self.at, self.left());
            return Err(Error::new(self.short, text));
        }
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    /// Reads an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// Reads a byte.
    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    /// Reads 16 bits.
    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Reads 32 bits.
    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Reads 64 bits.
    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads a number of `len` bytes, at most 16.
    pub(crate) fn uint(&mut self, len: usize) -> Result<u128> {
        debug_assert!(len <= 16);
        Ok(self.bytes(len)?.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
    }

    /// Skips bytes.
    pub(crate) fn skip(&mut self, len: usize) -> Result<()> {
        self.bytes(len).map(|_| ())
    }

    /// Skips to the next multiple of 8 bytes from the reader's start, or to its end.
    pub(crate) fn align(&mut self) {
        self.at = self.at.next_multiple_of(8).min(self.bytes.len());
    }

    /// Splits off a reader of the next `len` bytes.
    pub(crate) fn sub(&mut self, len: usize) -> Result<Reader<'a>> {
        Ok(Reader::new(self.bytes(len)?, self.short))
    }

    /// Reads all bytes left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// All bytes left, without reading them.
    pub(crate) fn peek(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// An error of this reader's kind.
    pub(crate) fn bad_length(&self, what: &str) -> Error {
        Error::new(self.short, what)
    }
}

/// Appends big-endian integers and bytes to a message.
pub(crate) trait Writer {
    /// Appends bytes.
    fn bytes(&mut self, bytes: &[u8]);
    /// Appends a byte.
    fn u8(&mut self, value: u8);
    /// Appends 16 bits.
    fn u16(&mut self, value: u16);
    /// Appends 32 bits.
    fn u32(&mut self, value: u32);
    /// Appends 64 bits.
    fn u64(&mut self, value: u64);
    /// Appends the lowest `len` bytes of a number.
    fn uint(&mut self, value: u128, len: usize);
    /// Appends zeros.
    fn zeros(&mut self, len: usize);
    /// Appends zeros until the structure that begins at `start` is a multiple of 8 bytes long.
    fn align(&mut self, start: usize);
    /// Appends a text in `len` bytes, truncated to leave room for a final zero and padded with zeros.
    fn text(&mut self, text: &str, len: usize);
    /// Overwrites the 16 bits at `at`.
    fn patch(&mut self, at: usize, value: u16);
    /// Overwrites the 16 bits at `at` with the length of the structure that begins at `start`; an error if it is 64 KB
    /// or more.
    fn patch_length(&mut self, at: usize, start: usize) -> Result<()>;
}

impl Writer for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn uint(&mut self, value: u128, len: usize) {
        self.extend_from_slice(&value.to_be_bytes()[16 - len..]);
    }

    fn zeros(&mut self, len: usize) {
        self.resize(self.len() + len, 0);
    }

    fn align(&mut self, start: usize) {
        let len = (self.len() - start).next_multiple_of(8);
        self.resize(start + len, 0);
    }

    fn text(&mut self, text: &str, len: usize) {
        let end = self.len() + len;
        let mut cut = text.len().min(len.saturating_sub(1));
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.extend_from_slice(&text.as_bytes()[..cut]);
        self.resize(end, 0);
    }

    fn patch(&mut self, at: usize, value: u16) {
        self[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    fn patch_length(&mut self, at: usize, start: usize) -> Result<()> {
        let len = self.len() - start;
        let short = u16::try_from(len).map_err(|_| too_long(len))?;
        self.patch(at, short);
        Ok(())
    }
}

fn too_long(len: usize) -> Error {
    Error::new(ErrorKind::BrcBadLen, format!("{len} bytes do not fit in a length of 16 bits"))
}
