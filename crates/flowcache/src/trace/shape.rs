//! Shapes: what a program's parser makes of the frames of a pattern.
//!
//! For frames of the same headers, most words of the record that a flow processor gets are constants or bits of the
//! frame at fixed positions. So a few loads give the words that a decision reads, without a run of the parser.
//! Values that are computed are consulted, and then are constants of a narrower pattern.

use super::context::Known;
use super::exec::Ended;
use super::outcome::Untraceable;
use super::run::Run;
use super::value::{Origin, Part, low};
use super::{PASSES_MAX, Tracer, covers, pattern};
use crate::path::{Pattern, WINDOW};
use ir::{EntryKind, ReplicationPoint};

/// 2^64 divided by the golden ratio, an odd number whose bits look random (Knuth, "The Art of Computer Programming",
/// volume 3, 6.4).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits of a frame that are bits of a word.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Offset of the 8 bytes that contain them.
    at: u16,
    /// Number of bits of these bytes after them.
    below: u8,
    /// Position in the word.
    to: u8,
    mask: u64,
}

/// A word that frames differ in.
#[derive(Debug)]
struct Word {
    word: u32,
    /// Its bits that are the same for all frames.
    constant: u64,
    /// Number of its loads.
    loads: u8,
}

/// The record that the `Ingress` entry hands over, as a function of the frame, for all frames of a pattern.
#[derive(Debug)]
pub struct Shape {
    record: Box<[u64]>,
    words: Box<[Word]>,
    /// The loads of all words, in their order.
    loads: Box<[Load]>,
}

impl Shape {
    /// Reads a frame of the pattern, which begins where `bytes` do; bytes behind it are ignored. Returns the record,
    /// of which the words that the shape was made for are valid, and a hash of them and of `seed`.
    ///
    /// The caller may change the record, but must restore it.
    #[inline]
    pub fn read(&mut self, bytes: &[u8], seed: u64) -> (&mut [u64], u64) {
        let mut hash = seed;
        let mut loads = self.loads.iter();
        for Word { word, constant, loads: count } in &self.words {
            let mut value = *constant;
            for load in loads.by_ref().take(usize::from(*count)) {
                value |= (load_bytes(bytes, load.at.into()) >> load.below & load.mask) << load.to;
            }
            self.record[*word as usize] = value;
            let product = u128::from(hash ^ value) * u128::from(FACTOR);
            hash = (product as u64 ^ (product >> 64) as u64).wrapping_add(FACTOR);
        }
        (&mut self.record, hash)
    }
}

/// 8 bytes of a frame as a big-endian number. Bytes after the end are 0.
#[inline(always)]
fn load_bytes(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => (at..at + 8).fold(0, |all, at| all << 8 | u64::from(bytes.get(at).copied().unwrap_or(0))),
    }
}

impl Tracer {
    /// The shape of a frame received on `port`, with its pattern. Of the record, it gives `words`, which are in
    /// ascending order. It holds for frames of this port only.
    ///
    /// # Errors
    /// If the program's `Ingress` entry does more than fill the record, or one of the words depends on more than the
    /// frame; the message says why.
    pub fn shape(&self, frame: &[u8], port: u32, words: &[u32]) -> Result<(Pattern, Shape), Untraceable> {
        let mut known = Known { mask: [0; WINDOW], length: false };
        for _ in 0..PASSES_MAX {
            let mut run = Run::new(&self.cx, frame, &known, None);
            self.begin(&mut run, port);
            if !matches!(self.entry(&mut run, EntryKind::Ingress)?, Ended::Replicate(ReplicationPoint::IngressEnd)) {
                return Err(Untraceable("the packet is not handed over".to_string()));
            }
            words.iter().for_each(|word| run.consult_computed(*word));
            run.check()?;
            if !run.counted.is_empty() {
                return Err(Untraceable("it is counted before it is handed over".to_string()));
            }
            if run.consulted == known {
                let pattern = pattern(&run);
                debug_assert!(covers(&pattern, frame), "a frame is not in its own pattern");
                return Ok((pattern, shape(&run, words)));
            }
            known = run.consulted.clone();
        }
        Err(Untraceable(format!("what decides still grows after {PASSES_MAX} passes")))
    }
}

impl Run<'_> {
    /// Consults the bits of a word that are neither constants nor bits of the frame.
    fn consult_computed(&mut self, word: u32) {
        let value = self.word(word);
        for part in value.parts().iter().filter(|part| !matches!(part.origin, Origin::Const | Origin::Frame(_))) {
            self.consult_part(part, u64::MAX);
        }
    }
}

fn shape(run: &Run<'_>, words: &[u32]) -> Shape {
    let record = run.record();
    let (mut moving, mut loads) = (Vec::new(), Vec::new());
    for word in words {
        let before = loads.len();
        let value = run.word(*word);
        let mut below = value.width();
        let mut constant = 0;
        for part in value.parts() {
            below -= part.width;
            match part.origin {
                Origin::Frame(bit) => add_loads(&mut loads, *part, bit, below),
                _ => constant |= part.value << below,
            }
        }
        if loads.len() != before {
            moving.push(Word { word: *word, constant, loads: (loads.len() - before) as u8 });
        }
    }
    Shape { record: record.into(), words: moving.into(), loads: loads.into() }
}

/// Adds the loads of a part, which begins at a bit of the frame and is `below` bits above the word's end.
fn add_loads(loads: &mut Vec<Load>, part: Part, bit: u32, below: u32) {
    let (mut bit, mut left) = (bit, part.width);
    while left > 0 {
        let skipped = bit % 8;
        let width = left.min(64 - skipped);
        left -= width;
        let (at, after) = ((bit / 8) as u16, (64 - skipped - width) as u8);
        loads.push(Load { at, below: after, to: (below + left) as u8, mask: low(width) });
        bit += width;
    }
}
