//! The frame: a cursor for the parser, and an output buffer for the deparser.

use base::Bits;

/// A packet's bytes, and the parser's position.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    /// Position in bits; a multiple of 8 between instructions.
    cursor: u64,
    /// The bytes that the deparser has emitted.
    emitted: Vec<u8>,
    truncate: Option<u64>,
}

impl Frame {
    pub fn new(bytes: &[u8], consumed: usize) -> Frame {
        Frame { bytes: bytes.to_vec(), cursor: consumed as u64 * 8, emitted: Vec::new(), truncate: None }
    }

    /// Moves the cursor to the first byte, where a parser starts.
    pub fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// Number of consumed bytes; the payload follows.
    pub fn consumed(&self) -> usize {
        (self.cursor / 8) as usize
    }

    pub fn payload(&self) -> &[u8] {
        self.bytes.get(self.consumed()..).unwrap_or(&[])
    }

    /// Whether `bits` bits, rounded up to whole bytes, remain.
    pub fn has_bits(&self, bits: u64) -> bool {
        bits.div_ceil(8) <= self.payload().len() as u64
    }

    /// The `width` bits at bit `offset` behind the cursor, which must exist.
    pub fn peek(&self, offset: u64, width: u32) -> Bits {
        let start = self.cursor + offset;
        let end = start + u64::from(width);
        let bytes = &self.bytes[(start / 8) as usize..end.div_ceil(8) as usize];
        let behind = end.next_multiple_of(8) - end;
        Bits::from_bytes_be(bytes.len() as u32 * 8, bytes).lshr(behind).resize_u(width)
    }

    /// Advances the cursor by `bits` bits, which must exist.
    pub fn advance(&mut self, bits: u64) {
        self.cursor += bits;
    }

    /// Appends bytes to the output.
    pub fn emit(&mut self, bytes: &[u8]) {
        self.emitted.extend_from_slice(bytes);
    }

    /// Truncates the output to `bytes` bytes when the deparser ends. The last call applies.
    pub fn truncate(&mut self, bytes: u64) {
        self.truncate = Some(bytes);
    }

    /// Whether more than [`ir::EMITTED_BYTES_MAX`] bytes have been emitted.
    pub fn exceeds_emit_limit(&self) -> bool {
        self.emitted.len() > ir::EMITTED_BYTES_MAX as usize
    }

    /// Ends the deparser: emitted headers and payload become the frame. Returns its length in bytes before truncation.
    pub fn deparse(&mut self) -> usize {
        let mut bytes = std::mem::take(&mut self.emitted);
        let emitted = bytes.len();
        bytes.extend_from_slice(self.payload());
        let longest = bytes.len();
        if let Some(limit) = self.truncate.take() {
            bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        self.cursor = emitted.min(bytes.len()) as u64 * 8;
        self.bytes = bytes;
        longest
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
