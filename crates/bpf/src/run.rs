//! The packet and verdict of a run, and the implementation of helpers, shared by interpreter and compiled code.

use crate::map::{Map, Refused, Update};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The minimum length in bytes to which a packet may be shortened: an Ethernet header.
pub const PACKET_BYTES_MIN: usize = 14;
/// The maximum number of lines in a program's log until it is read; with the longest lines 64 KiB.
pub const LOG_LINES_MAX: usize = 256;
/// The maximum length of a line in a program's log in bytes; longer lines are truncated. A program's stack can hold a
/// format string of 512 bytes.
const LOG_LINE_BYTES_MAX: usize = 256;

/// Errors that helpers return, as negative numbers (errno(3)).
pub(crate) mod errno {
    pub(crate) const NOT_FOUND: i64 = -2;
    pub(crate) const TOO_BIG: i64 = -7;
    pub(crate) const NO_MEMORY: i64 = -12;
    pub(crate) const EXISTS: i64 = -17;
    pub(crate) const INVALID: i64 = -22;
}

/// A packet in its buffer.
#[derive(PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The memory, in which the packet may grow in both directions.
    pub buffer: &'a mut [u8],
    /// The offset of the packet's first byte.
    pub offset: usize,
    /// The length of the packet in bytes.
    pub len: usize,
}

impl Frame<'_> {
    /// The packet's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.offset..self.offset.saturating_add(self.len)).unwrap_or_default()
    }
}

/// The result of a run. Programs return a code of `enum xdp_action` in `linux/bpf.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// `XDP_PASS` (2): the packet continues with the next action.
    Pass,
    /// `XDP_DROP` (1): the packet is dropped.
    Drop,
    /// `XDP_TX` (3): the packet is sent out of its ingress port.
    Transmit,
    /// `XDP_REDIRECT` (4): the packet is sent out of the port that `redirect` set.
    Redirect(u32),
    /// The packet is dropped because the run failed.
    Aborted(Abort),
}

/// Why a run failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Abort {
    /// The program returned `XDP_ABORTED` (0), an invalid code, or `XDP_REDIRECT` without a port.
    Result,
    /// The run exceeded its budget.
    Budget,
    /// The frame's offset and length are not within its buffer.
    Frame,
    /// An access or instruction that the verifier should have excluded: a bug.
    Fault,
}

impl Verdict {
    pub(crate) fn of(result: u64, redirect: Option<u32>) -> Verdict {
        // Results have type `int`.
        match (result as u32, redirect) {
            (1, _) => Verdict::Drop,
            (2, _) => Verdict::Pass,
            (3, _) => Verdict::Transmit,
            (4, Some(port)) => Verdict::Redirect(port),
            _ => Verdict::Aborted(Abort::Result),
        }
    }
}

/// The position of a packet in its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) capacity: usize,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Window {
    pub(crate) fn of(frame: &Frame<'_>) -> Option<Window> {
        let Frame { buffer, offset, len } = frame;
        let fits = offset.checked_add(*len).is_some_and(|end| end <= buffer.len());
        fits.then_some(Window { capacity: buffer.len(), offset: *offset, len: *len })
    }

    /// Moves the start of the packet by `delta`. Returns the range of new bytes, which the caller must zero; `None` if
    /// the packet would leave the buffer or become too short.
    pub(crate) fn adjust_head(&mut self, delta: u64) -> Option<Range<usize>> {
        let delta = delta as i32 as isize;
        let offset = self.offset.checked_add_signed(delta)?;
        let len = self.len.checked_add_signed(-delta).filter(|len| *len >= PACKET_BYTES_MIN)?;
        let new = offset..self.offset.max(offset);
        (self.offset, self.len) = (offset, len);
        Some(new)
    }

    /// Moves the end of the packet by `delta`; otherwise as `adjust_head`.
    pub(crate) fn adjust_tail(&mut self, delta: u64) -> Option<Range<usize>> {
        let len = self.len.checked_add_signed(delta as i32 as isize).filter(|len| *len >= PACKET_BYTES_MIN)?;
        if self.offset + len > self.capacity {
            return None;
        }
        let new = self.offset + self.len.min(len)..self.offset + len;
        self.len = len;
        Some(new)
    }
}

/// Implements `map_update_elem` for a key and a value of the right sizes; returns 0 or a negative error.
pub(crate) fn map_update(map: &Map, key: &[u8], value: &[u8], flags: u64) -> i64 {
    let update = match flags {
        0 => Update::Any,
        1 => Update::New,
        2 => Update::Existing,
        _ => return errno::INVALID,
    };
    match map.try_update(key, value, update) {
        Ok(()) => 0,
        Err(Refused::Exists(true)) => errno::EXISTS,
        Err(Refused::Exists(false)) => errno::NOT_FOUND,
        Err(Refused::Full) => errno::NO_MEMORY,
        Err(Refused::Number) => errno::TOO_BIG,
        Err(Refused::Length(_) | Refused::Delete | Refused::Constant) => errno::INVALID,
    }
}

/// Implements `map_delete_elem` for a key of the right size; returns 0 or a negative error.
pub(crate) fn map_delete(map: &Map, key: &[u8]) -> i64 {
    match map.try_delete(key) {
        Ok(true) => 0,
        Ok(false) => errno::NOT_FOUND,
        Err(_) => errno::INVALID,
    }
}

/// The maximum length in bytes of each buffer of `csum_diff`, as in Linux.
const CHECKSUM_BYTES_MAX: usize = 512;

/// The costs of helpers in instructions that take the same time. They are charged before the helper runs.
pub(crate) mod cost {
    use crate::map::Map;

    /// `map_lookup_elem`: for each hash lookup, the hash of the key and likely cache misses.
    pub(crate) fn lookup(map: &Map) -> i64 {
        match map.hashes() {
            0 => 16,
            hashes => i64::from(hashes) * (128 + i64::from(map.spec().key_size) / 4),
        }
    }

    /// `map_update_elem`: also takes a mutex and copies the value twice.
    pub(crate) fn update(map: &Map) -> i64 {
        512 + i64::from(map.spec().key_size) / 4 + i64::from(map.spec().value_size) / 4
    }

    /// `map_delete_elem`.
    pub(crate) fn delete(map: &Map) -> i64 {
        512 + i64::from(map.spec().key_size) / 4
    }

    /// `trace_printk`: formats and stores a line.
    pub(crate) fn trace(len: u64) -> i64 {
        2048 + bytes(len)
    }

    /// `csum_diff`.
    pub(crate) fn checksum(from: u64, to: u64) -> i64 {
        64 + bytes(from) + bytes(to)
    }

    /// `xdp_adjust_head`, `xdp_adjust_tail`: zero the new bytes.
    pub(crate) fn adjust(delta: u64) -> i64 {
        64 + bytes(u64::from((delta as i32).unsigned_abs()))
    }

    /// The remaining helpers.
    pub(crate) const OTHER: i64 = 8;

    /// The cost of `len` bytes, bounded for lengths that helpers refuse.
    fn bytes(len: u64) -> i64 {
        (len.min(1 << 20) / 4) as i64
    }
}

/// Implements `csum_diff`: the ones' complement sum of 32-bit words, which the program folds to 16 bits (RFC 1071, RFC
/// 1624).
pub(crate) fn checksum_difference(from: &[u8], to: &[u8], seed: u64) -> i64 {
    let is_wrong = |bytes: &[u8]| !bytes.len().is_multiple_of(4) || bytes.len() > CHECKSUM_BYTES_MAX;
    if is_wrong(from) || is_wrong(to) {
        return errno::INVALID;
    }
    let words = |bytes: &[u8], flip: u32| {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from(u32::from_ne_bytes(*word) ^ flip));
        words.sum::<u64>()
    };
    let mut sum = u64::from(seed as u32) + words(from, u32::MAX) + words(to, 0);
    while sum >> 32 != 0 {
        sum = (sum & 0xffff_ffff) + (sum >> 32);
    }
    sum as i64
}

/// Implements `redirect`: sets the port and returns the code that the program should return.
pub(crate) fn redirect(port: u64, flags: u64, redirect: &mut Option<u32>) -> u64 {
    match flags {
        0 => {
            *redirect = Some(port as u32);
            4
        }
        // `XDP_ABORTED`, as in Linux.
        _ => 0,
    }
}

/// The random number generator (SplitMix64) of all runs of a program.
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let z = self.0.fetch_add(GAMMA, Relaxed).wrapping_add(GAMMA);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z >> 32
    }
}

/// The newest lines that `trace_printk` wrote. A line is lost if the log is being read.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: Mutex<VecDeque<String>>,
    lost: AtomicU64,
}

impl Log {
    /// Removes the lines, and returns them with the number of lines lost since the last time.
    pub(crate) fn take(&self) -> (Vec<String>, u64) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        (lines.drain(..).collect(), self.lost.swap(0, Relaxed))
    }

    /// Implements `trace_printk`.
    pub(crate) fn print(&self, format: &[u8], numbers: &[u64]) -> i64 {
        let Some(line) = formatted(format, numbers) else { return errno::INVALID };
        let len = line.len() as i64;
        match self.lines.try_lock() {
            Ok(mut lines) => {
                if lines.len() == LOG_LINES_MAX {
                    lines.pop_front();
                    self.lost.fetch_add(1, Relaxed);
                }
                lines.push_back(line);
            }
            Err(_) => _ = self.lost.fetch_add(1, Relaxed),
        }
        len
    }
}

/// Formats numbers as by printf(3): `%d %i %u %x %X %c %%`, each with `l`, `ll`, `h`, `hh` and a width. `None` if the
/// format has other conversions or more than there are numbers.
fn formatted(format: &[u8], numbers: &[u64]) -> Option<String> {
    let format = format.split(|b| *b == 0).next().unwrap_or_default();
    let format = String::from_utf8_lossy(&format[..format.len().min(LOG_LINE_BYTES_MAX)]);
    let mut numbers = numbers.iter();
    let mut line = String::new();
    let mut rest = format.trim_end_matches('\n').chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            line.push(c);
            continue;
        }
        let (mut bits, mut width, mut zeros) = (32, 0usize, false);
        loop {
            match rest.next()? {
                '%' => line.push('%'),
                'l' => {
                    bits = 64;
                    continue;
                }
                'h' => {
                    bits = if bits == 32 { 16 } else { 8 };
                    continue;
                }
                '#' => {
                    line.push_str("0x");
                    continue;
                }
                '0' if width == 0 => {
                    zeros = true;
                    continue;
                }
                digit @ '0'..='9' => {
                    width = (width * 10 + digit as usize - '0' as usize).min(64);
                    continue;
                }
                kind @ ('d' | 'i' | 'u' | 'x' | 'X' | 'c') => {
                    let number = *numbers.next()?;
                    let signed = (number as i64) << (64 - bits) >> (64 - bits);
                    let unsigned = number << (64 - bits) >> (64 - bits);
                    let text = match kind {
                        'd' | 'i' => signed.to_string(),
                        'u' => unsigned.to_string(),
                        'x' => format!("{unsigned:x}"),
                        'X' => format!("{unsigned:X}"),
                        _ => char::from(number as u8).to_string(),
                    };
                    match zeros {
                        true => line.push_str(&format!("{text:0>width$}")),
                        false => line.push_str(&format!("{text:>width$}")),
                    }
                }
                _ => return None,
            }
            break;
        }
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let line = |format: &str, numbers: &[u64]| formatted(format.as_bytes(), numbers);
        assert_eq!(line("a %d %u\n\0junk", &[u64::MAX, 7]), Some("a -1 7".to_string()));
        assert_eq!(line("%lx %04x %llu%%", &[1 << 40, 0xab, 3]), Some("10000000000 00ab 3%".to_string()));
        assert_eq!(line("%hhu %hd", &[0x1ff, 0xffff]), Some("255 -1".to_string()));
        assert_eq!(line("%s", &[1]), None);
        assert_eq!(line("%d %d", &[1]), None);
        assert_eq!(line("%", &[1]), None);
    }

    #[test]
    fn windows_stay_in_the_buffer() {
        let mut window = Window { capacity: 100, offset: 20, len: 60 };
        assert_eq!(window.adjust_head(-21i64 as u64), None);
        assert_eq!(window.adjust_head(-20i64 as u64), Some(0..20));
        assert_eq!(window, Window { capacity: 100, offset: 0, len: 80 });
        assert_eq!(window.adjust_head(67), None);
        assert_eq!(window.adjust_head(66), Some(66..66));
        assert_eq!(window.adjust_tail(21), None);
        assert_eq!(window.adjust_tail(20), Some(80..100));
        assert_eq!(window.adjust_tail(-21i64 as u64), None);
        assert_eq!(window, Window { capacity: 100, offset: 66, len: 34 });
        assert_eq!(window.adjust_head(i32::MIN as u64), None);
        assert_eq!(window.adjust_tail(i32::MAX as u64), None);
    }

    #[test]
    fn checksum_differences() {
        // Replacing a word changes the sum by the difference.
        let fold = |mut sum: u64| {
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            sum as u16
        };
        let (before, after) = (*b"abcdefgh", *b"abcdzzgh");
        let all = |bytes: &[u8]| checksum_difference(&[], bytes, 0) as u64;
        let changed = checksum_difference(&before[4..], &after[4..], all(&before)) as u64;
        assert_eq!(fold(changed), fold(all(&after)));
        assert_eq!(checksum_difference(&before[..3], &[], 0), errno::INVALID);
    }

    #[test]
    fn checksums_are_bounded() {
        let bytes = [0xa5; CHECKSUM_BYTES_MAX + 4];
        let most = &bytes[..CHECKSUM_BYTES_MAX];
        assert!(checksum_difference(most, most, 0) >= 0);
        assert_eq!(checksum_difference(&bytes, most, 0), errno::INVALID);
        assert_eq!(checksum_difference(most, &bytes, 0), errno::INVALID);
    }
}
