//! A ring of frames in memory that two processes share: one producer, one consumer, neither of which trusts the other.
//!
//! ```text
//!  0      head: position behind the last frame        written by the producer
//!  128    tail: position of the first frame           written by the consumer
//!  256    not 0 while the consumer sleeps             written by the consumer
//!  512    RING_BYTES of records
//! ```
//!
//! A *record* is a word with the frame's length (bits 0 to 15) and segment size (bits 16 to 31, [`Packet::segment`]),
//! followed by the frame, padded to a multiple of 8 bytes. A frame may continue at the ring's start. A *position* counts
//! the frames and the bytes of records since the ring was made; one word holds both, so that they change together: frames
//! in the upper half, bytes in the lower one, each modulo 2^32.
//!
//! Each side keeps its own position in private memory and never reads it back. It copies the other side's position, or a
//! record's first word, once, and checks the copy. A position that is out of bounds or a record that does not fit is a
//! [`Fault`]; then the ring is not used again. So the other side can lose or invent frames of this port, and nothing else:
//! at most [`FRAMES_MAX`] frames are outstanding, and every access is within the ring.
//!
//! The consumer announces that it sleeps ([`Consumer::arm`]); the producer then says that it must be woken. Both have a
//! fence between their store and their load, so one of them sees the other's.
//!
//! Threads: each end belongs to one. Tests: `ring/tests.rs`.

use pktio::{BUFFER_CAPACITY, HEADROOM, ISOLATED_RING_MAX, LARGE_CAPACITY, Packet, PoolRef, free_front, offload};
use shared_memory::Mapping;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Bytes of records in a ring, a power of two: what stays in a second-level cache, and 8 of the largest frames.
const RING_BYTES: usize = 512 << 10;
/// Maximum frames in a ring: four bursts.
pub(crate) const FRAMES_MAX: usize = ISOLATED_RING_MAX;
/// Maximum bytes of a frame: what a large buffer holds.
pub(crate) const FRAME_BYTES_MAX: usize = LARGE_CAPACITY - HEADROOM;
/// Data bytes of a small buffer.
const SMALL_BYTES: usize = BUFFER_CAPACITY - HEADROOM;

const HEAD_AT: usize = 0;
const TAIL_AT: usize = 128;
const SLEEPS_AT: usize = 256;
const RECORDS_AT: usize = 512;
/// Bytes of a record before the frame.
const WORD_BYTES: usize = 8;

/// Bytes of a ring.
pub(crate) const BYTES: usize = RECORDS_AT + RING_BYTES;

const _: () = assert!(RING_BYTES.is_power_of_two() && record_bytes(FRAME_BYTES_MAX) <= RING_BYTES);

/// Bytes of the record of a frame.
const fn record_bytes(frame: usize) -> usize {
    (WORD_BYTES + frame).next_multiple_of(8)
}

/// How the other side has broken the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its position is out of bounds.
    Position,
    /// The length of a record is zero, above the limit, or beyond the written part of the ring.
    Record,
    /// A frame's segment size is not one that a port accepts.
    Segment,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Position => "a ring's position out of bounds",
            Fault::Record => "a frame of a wrong length",
            Fault::Segment => "a large frame with a wrong segment size",
        })
    }
}

/// Frames and bytes since the ring was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    frames: u32,
    bytes: u32,
}

impl Position {
    fn of(word: u64) -> Position {
        Position { frames: (word >> 32) as u32, bytes: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.frames) << 32 | u64::from(self.bytes)
    }

    /// The position behind a record.
    fn after(self, record: usize) -> Position {
        Position { frames: self.frames.wrapping_add(1), bytes: self.bytes.wrapping_add(record as u32) }
    }

    /// Frames and bytes from `tail` up to this position, if a ring may hold as many.
    fn beyond(self, tail: Position) -> Result<(usize, usize), Fault> {
        let frames = self.frames.wrapping_sub(tail.frames) as usize;
        let bytes = self.bytes.wrapping_sub(tail.bytes) as usize;
        let is_possible = frames <= FRAMES_MAX
            && bytes <= RING_BYTES
            && bytes >= frames * record_bytes(1)
            && bytes.is_multiple_of(8)
            && (frames == 0) == (bytes == 0);
        is_possible.then_some((frames, bytes)).ok_or(Fault::Position)
    }
}

/// A ring's place in the shared memory.
#[derive(Clone)]
pub(crate) struct Place {
    memory: Arc<Mapping>,
    at: usize,
}

impl Place {
    /// The ring at an offset, a multiple of 8; `None` if the memory does not contain it.
    pub(crate) fn new(memory: &Arc<Mapping>, at: usize) -> Option<Place> {
        memory.slice(at, BYTES).filter(|_| at.is_multiple_of(8))?;
        Some(Place { memory: Arc::clone(memory), at })
    }

    /// `new` has checked that these words are in the memory and aligned.
    #[inline]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.memory.all().load_u64(self.at + at, order).unwrap_or_default()
    }

    #[inline]
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.memory.all().store_u64(self.at + at, value, order);
    }

    /// Writes bytes from a position on; they may continue at the ring's start.
    #[inline]
    fn write(&self, position: u32, bytes: &[u8]) {
        let at = position as usize % RING_BYTES;
        let (first, second) = bytes.split_at(bytes.len().min(RING_BYTES - at));
        let memory = self.memory.all();
        memory.write_bytes(self.at + RECORDS_AT + at, first);
        if !second.is_empty() {
            memory.write_bytes(self.at + RECORDS_AT, second);
        }
    }

    /// Reads bytes from a position on.
    #[inline]
    fn read(&self, position: u32, bytes: &mut [u8]) {
        let at = position as usize % RING_BYTES;
        let (first, second) = bytes.split_at_mut(bytes.len().min(RING_BYTES - at));
        let memory = self.memory.all();
        memory.read_bytes(self.at + RECORDS_AT + at, first);
        if !second.is_empty() {
            memory.read_bytes(self.at + RECORDS_AT, second);
        }
    }
}

/// What a burst was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Frames that were moved.
    pub packets: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that were dropped: empty or too long, or there was no large buffer for them.
    pub dropped: u64,
    /// Part of `dropped`: too long.
    pub too_long: u64,
}

/// The end that puts frames in.
pub(crate) struct Producer {
    place: Place,
    head: Position,
    /// The consumer's position as last seen.
    tail: Position,
}

impl Producer {
    /// The producer of a new ring.
    pub(crate) fn new(place: Place) -> Producer {
        Producer { place, head: Position::default(), tail: Position::default() }
    }

    #[inline]
    fn has_room_for(&self, record: usize) -> Result<bool, Fault> {
        let (frames, bytes) = self.head.beyond(self.tail)?;
        Ok(frames < FRAMES_MAX && record <= RING_BYTES - bytes)
    }

    fn look(&mut self) -> Result<(), Fault> {
        let tail = Position::of(self.place.load(TAIL_AT, Ordering::Acquire));
        self.head.beyond(tail)?;
        self.tail = tail;
        Ok(())
    }

    /// How many frames of a usual length fit at least.
    ///
    /// # Errors
    /// The consumer has broken the ring.
    pub(crate) fn room(&mut self) -> Result<usize, Fault> {
        self.look()?;
        let (frames, bytes) = self.head.beyond(self.tail)?;
        Ok((FRAMES_MAX - frames).min((RING_BYTES - bytes) / record_bytes(SMALL_BYTES)))
    }

    /// Frames that the consumer has not taken.
    pub(crate) fn outstanding(&mut self) -> usize {
        let _ = self.look();
        self.head.beyond(self.tail).map_or(FRAMES_MAX, |(frames, _)| frames)
    }

    /// Moves packets from the front into the ring, as many as fit; frees them. Packets that no ring can carry are dropped.
    ///
    /// # Errors
    /// The consumer has broken the ring.
    pub(crate) fn put(&mut self, packets: &mut Vec<Packet>) -> Result<Moved, Fault> {
        let mut moved = Moved::default();
        let mut done = 0;
        for packet in packets.iter() {
            let len = packet.len();
            if len == 0 || len > FRAME_BYTES_MAX {
                moved.dropped += 1;
                moved.too_long += u64::from(len != 0);
                done += 1;
                continue;
            }
            let record = record_bytes(len);
            if !self.has_room_for(record)? {
                self.look()?;
                if !self.has_room_for(record)? {
                    break;
                }
            }
            let word = len as u64 | u64::from(packet.segment()) << 16;
            self.place.write(self.head.bytes, &word.to_ne_bytes());
            self.place.write(self.head.bytes.wrapping_add(WORD_BYTES as u32), packet.data());
            self.head = self.head.after(record);
            moved.packets += 1;
            moved.bytes += len as u64;
            done += 1;
        }
        if moved.packets != 0 {
            self.place.store(HEAD_AT, self.head.word(), Ordering::Release);
        }
        if done != 0 {
            free_front(packets, done);
        }
        Ok(moved)
    }

    /// Whether the consumer sleeps, after frames were put in.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.place.load(SLEEPS_AT, Ordering::Relaxed) != 0
    }
}

/// Buffers for received frames, allocated for a burst at a time.
pub(crate) struct Buffers {
    pool: PoolRef,
    spare: Vec<Packet>,
}

impl Buffers {
    pub(crate) fn new(pool: PoolRef) -> Buffers {
        Buffers { pool, spare: Vec::new() }
    }

    /// Allocates small buffers for so many frames. Those that are not used stay for the next burst: they are as many as
    /// this one has large frames.
    #[inline]
    fn prepare(&mut self, frames: usize) {
        let missing = frames.saturating_sub(self.spare.len());
        if missing != 0 {
            self.pool.alloc_bulk(&mut self.spare, missing);
        }
    }
}

/// The end that takes frames out.
pub(crate) struct Consumer {
    place: Place,
    tail: Position,
    /// The producer's position as last seen.
    head: Position,
}

impl Consumer {
    /// The consumer of a new ring.
    pub(crate) fn new(place: Place) -> Consumer {
        Consumer { place, tail: Position::default(), head: Position::default() }
    }

    #[inline]
    fn look(&mut self) -> Result<(), Fault> {
        let head = Position::of(self.place.load(HEAD_AT, Ordering::Acquire));
        head.beyond(self.tail)?;
        self.head = head;
        Ok(())
    }

    /// Frames that the producer has put in and that were not taken.
    pub(crate) fn outstanding(&mut self) -> usize {
        let _ = self.look();
        self.head.beyond(self.tail).map_or(0, |(frames, _)| frames)
    }

    /// Appends at most `max` frames to `out`. A frame for which there is no small buffer waits, one for which there is no
    /// large buffer is dropped. The producer may use the room of these frames again after [`Consumer::release`].
    ///
    /// # Errors
    /// The producer has broken the ring. What was appended before is in `out`.
    #[inline]
    pub(crate) fn take(&mut self, out: &mut Vec<Packet>, max: usize, buffers: &mut Buffers) -> Result<Moved, Fault> {
        let mut moved = Moved::default();
        if self.head == self.tail {
            self.look()?;
            if self.head == self.tail {
                return Ok(moved);
            }
        }
        let (frames, _) = self.head.beyond(self.tail)?;
        buffers.prepare(frames.min(max));
        while moved.packets < max && self.head.frames != self.tail.frames {
            let mut word = [0; WORD_BYTES];
            self.place.read(self.tail.bytes, &mut word);
            let word = u64::from_ne_bytes(word);
            let (len, segment) = (usize::from(word as u16), (word >> 16) as u16);
            let record = record_bytes(len);
            let (_, left) = self.head.beyond(self.tail)?;
            if len == 0 || len > FRAME_BYTES_MAX || record > left {
                return Err(Fault::Record);
            }
            if segment != 0 && !is_segment(segment) {
                return Err(Fault::Segment);
            }
            let next = self.tail.after(record);
            let buffer = if len <= SMALL_BYTES {
                let Some(buffer) = buffers.spare.pop() else { break };
                Some(buffer)
            } else {
                buffers.pool.alloc_large()
            };
            match buffer.and_then(|mut buffer| buffer.set_len(len).ok().map(|()| buffer)) {
                Some(mut buffer) => {
                    self.place.read(self.tail.bytes.wrapping_add(WORD_BYTES as u32), buffer.data_mut());
                    buffer.set_segment(segment);
                    out.push(buffer);
                    moved.packets += 1;
                    moved.bytes += len as u64;
                }
                None => moved.dropped += 1,
            }
            self.tail = next;
        }
        // The producer's count of bytes must be that of its frames.
        self.head.beyond(self.tail)?;
        Ok(moved)
    }

    /// Returns the room of all frames that were taken.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.place.store(TAIL_AT, self.tail.word(), Ordering::Release);
    }

    /// Announces that the consumer will sleep. Returns whether no frame is there; the producer wakes it for later ones.
    ///
    /// # Errors
    /// The producer has broken the ring.
    pub(crate) fn arm(&mut self) -> Result<bool, Fault> {
        self.place.store(SLEEPS_AT, 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.look()?;
        Ok(self.head == self.tail)
    }

    /// Ends [`Consumer::arm`].
    pub(crate) fn disarm(&mut self) {
        self.place.store(SLEEPS_AT, 0, Ordering::Relaxed);
    }
}

/// Whether ports accept this segment size of a large frame ([`offload::complete`]).
fn is_segment(segment: u16) -> bool {
    match segment & !offload::SEGMENT_UDP {
        0 => false,
        size => segment & offload::SEGMENT_UDP != 0 || size >= offload::TCP_SEGMENT_MIN,
    }
}

#[cfg(test)]
mod tests;
