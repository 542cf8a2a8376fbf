//! The packet handle: a move-only view of one contiguous buffer, heap or `rte_mbuf`.
//!
//! Layout of a buffer, `capacity` bytes from `base`:
//!
//! ```text
//! base            base + offset         + len              base + capacity
//!  |--- headroom ----|------ data --------|----- tailroom -----|
//! ```
//!
//! Invariants: `offset + len <= capacity`; all `capacity` bytes are initialised memory (pools zero it once); exactly one
//! `Packet` exists per buffer that is out of its pool. There is no `Clone`: two handles on one buffer would free it
//! twice. [`Packet::copy`] takes a second buffer.
//!
//! Threads: a packet may move between threads; its pool's functions accept calls from any thread.
//! Tests: `packet/tests.rs`, and under every device.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// What a pool does for the packets that came from it. One `static` per kind of pool.
pub struct PoolVtable {
    /// The kind of pool, for messages.
    pub name: &'static str,
    /// Gives one buffer back.
    ///
    /// # Safety
    /// `handle` comes from a [`RawPacket`] of this vtable that is not used afterwards.
    pub free: unsafe fn(handle: NonNull<()>),
    /// Gives the buffers of all `packets` back; they are not used afterwards.
    ///
    /// # Safety
    /// Each element has this vtable and is owned by the caller.
    pub free_bulk: unsafe fn(packets: &[RawPacket]),
    /// Takes an empty buffer from the pool that `handle` belongs to; `None` when the pool is empty.
    ///
    /// # Safety
    /// `handle` comes from a live [`RawPacket`] of this vtable.
    pub alloc_like: unsafe fn(handle: NonNull<()>) -> Option<Packet>,
    /// As many calls of `alloc_like` in one: appends up to `n` empty buffers to `out`.
    ///
    /// # Safety
    /// As for `alloc_like`.
    pub alloc_like_bulk: unsafe fn(handle: NonNull<()>, out: &mut Vec<Packet>, n: usize),
    /// What buffers have in common that `alloc_like` takes from one another's pool: only for comparisons.
    ///
    /// # Safety
    /// As for `alloc_like`.
    pub pool_of: unsafe fn(handle: NonNull<()>) -> usize,
}

/// The fields of a [`Packet`], for code that stores or passes packets in its own `repr(C)` structures.
///
/// A `RawPacket` owns nothing: copying it is harmless, turning the same one into a [`Packet`] twice is not.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawPacket {
    /// First byte of the buffer (the start of the headroom).
    pub base: NonNull<u8>,
    /// What the pool knows the buffer by.
    pub handle: NonNull<()>,
    /// The pool's functions.
    pub vtable: &'static PoolVtable,
    /// Bytes from `base` to the end of the buffer.
    pub capacity: u16,
    /// Bytes from `base` to the first byte of data.
    pub offset: u16,
    /// Bytes of data.
    pub len: u16,
    /// Not 0 for a large frame: [`Packet::segment`].
    pub segment: u16,
}

/// A [`RawPacket`] whose 16-bit fields are one word: capacity, offset, length, segment, the first one lowest.
#[repr(C)]
struct Parts {
    base: NonNull<u8>,
    handle: NonNull<()>,
    vtable: &'static PoolVtable,
    tail: u64,
}

const _: () = assert!(size_of::<Parts>() == size_of::<RawPacket>() && cfg!(target_endian = "little"));

impl RawPacket {
    /// The same with other data: `len` bytes, `offset` from the buffer's start. Made in registers: a packet that is read as a whole
    /// right after one of its 16-bit fields was written waits for that (x86 forwards no store to a wider load).
    #[inline(always)]
    #[must_use]
    pub fn with_window(self, offset: u16, len: u16) -> RawPacket {
        debug_assert!(usize::from(offset) + usize::from(len) <= usize::from(self.capacity));
        // SAFETY: both are `repr(C)` with the same pointers and as many bytes behind them.
        let mut parts: Parts = unsafe { std::mem::transmute(self) };
        parts.tail = parts.tail & 0xffff_0000_0000_ffff | u64::from(offset) << 16 | u64::from(len) << 32;
        // SAFETY: as above.
        unsafe { std::mem::transmute(parts) }
    }

    /// The same with this [`Packet::segment`].
    #[inline(always)]
    #[must_use]
    pub fn with_segment(self, segment: u16) -> RawPacket {
        // SAFETY: as in `with_window`.
        let mut parts: Parts = unsafe { std::mem::transmute(self) };
        parts.tail = parts.tail & 0x0000_ffff_ffff_ffff | u64::from(segment) << 48;
        // SAFETY: as above.
        unsafe { std::mem::transmute(parts) }
    }
}

/// An operation would have left the buffer: not enough headroom, tailroom or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet's buffer has no room for this")]
pub struct NoRoom;

/// One packet. Dropping it gives its buffer back to its pool.
#[repr(transparent)]
pub struct Packet {
    raw: RawPacket,
}

const _: () = assert!(size_of::<Packet>() == 32);

// SAFETY: a packet is the only handle on its buffer, and `PoolVtable`'s functions accept calls from any thread.
unsafe impl Send for Packet {}
// SAFETY: through `&Packet` the buffer is only read, and `alloc_like` accepts calls from any thread.
unsafe impl Sync for Packet {}

impl Packet {
    /// Takes ownership of the buffer that `raw` describes.
    ///
    /// # Safety
    /// `raw` satisfies this file's invariants, and no other `Packet` for its buffer exists.
    #[inline]
    pub unsafe fn from_raw(raw: RawPacket) -> Packet {
        debug_assert!(usize::from(raw.offset) + usize::from(raw.len) <= usize::from(raw.capacity));
        Packet { raw }
    }

    /// Gives up ownership; the buffer leaks unless [`Packet::from_raw`] or the vtable's `free` follows.
    #[inline]
    pub fn into_raw(self) -> RawPacket {
        ManuallyDrop::new(self).raw
    }

    /// A copy of the fields; ownership stays here.
    #[inline]
    pub fn raw(&self) -> &RawPacket {
        &self.raw
    }

    /// The packet's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `offset + len <= capacity`, the buffer is initialised and only this handle refers to it.
        unsafe { std::slice::from_raw_parts(self.data_ptr(), self.len()) }
    }

    /// The packet's bytes, to change in place.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `data`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.data_mut_ptr(), self.len()) }
    }

    /// Bytes of data.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.raw.len)
    }

    /// Not 0 for a large frame: several segments of one TCP or UDP stream that came as one packet. Then it is the payload of
    /// each, in bytes, with the uppermost bit set for UDP. A port that does not take large frames cuts them up; where that
    /// is done says how (`pktio-dpdk`).
    #[inline]
    pub fn segment(&self) -> u16 {
        self.raw.segment
    }

    /// Says that this is a large frame, or none; see [`Packet::segment`].
    pub fn set_segment(&mut self, segment: u16) {
        self.raw.segment = segment;
    }

    /// Whether the packet has no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.raw.len == 0
    }

    /// Free bytes before the data; equally the data's offset in the buffer.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.raw.offset)
    }

    /// Free bytes after the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.capacity() - self.headroom() - self.len()
    }

    /// Size of the whole buffer.
    #[inline]
    pub fn capacity(&self) -> usize {
        usize::from(self.raw.capacity)
    }

    /// First byte of the buffer (start of the headroom).
    #[inline]
    pub fn base_ptr(&self) -> *mut u8 {
        self.raw.base.as_ptr()
    }

    /// First byte of data, to read.
    #[inline]
    pub fn data_ptr(&self) -> *const u8 {
        self.data_mut_ptr()
    }

    /// First byte of data, to write through while nothing else uses the packet.
    #[inline]
    pub fn data_mut_ptr(&self) -> *mut u8 {
        // SAFETY: `offset <= capacity`, so the result is inside the buffer or one past its end.
        unsafe { self.raw.base.as_ptr().add(self.headroom()) }
    }

    /// Moves the data window: `offset` counts from the buffer's start. Bytes do not move.
    #[inline]
    pub fn adjust(&mut self, offset: usize, len: usize) -> Result<(), NoRoom> {
        if offset.checked_add(len).is_none_or(|end| end > self.capacity()) {
            return Err(NoRoom);
        }
        self.raw.offset = offset as u16;
        self.raw.len = len as u16;
        Ok(())
    }

    /// [`Packet::adjust`] for callers that have checked the bounds.
    ///
    /// # Safety
    /// `offset + len <= self.capacity()`.
    #[inline]
    pub unsafe fn adjust_unchecked(&mut self, offset: u16, len: u16) {
        debug_assert!(usize::from(offset) + usize::from(len) <= self.capacity());
        self.raw.offset = offset;
        self.raw.len = len;
    }

    /// Grows the data by `n` bytes at the front and returns the data; the new bytes hold whatever the headroom held.
    pub fn push_front(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        let offset = self.headroom().checked_sub(n).ok_or(NoRoom)?;
        self.adjust(offset, self.len() + n)?;
        Ok(self.data_mut())
    }

    /// Removes `n` bytes from the front.
    pub fn pull_front(&mut self, n: usize) -> Result<(), NoRoom> {
        let len = self.len().checked_sub(n).ok_or(NoRoom)?;
        self.adjust(self.headroom() + n, len)
    }

    /// Grows the data by `n` bytes at the end and returns the data; the new bytes hold whatever the tailroom held.
    pub fn push_back(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        self.adjust(self.headroom(), self.len().saturating_add(n))?;
        Ok(self.data_mut())
    }

    /// Makes the data `len` bytes long, at the present offset; bytes that are new hold whatever the buffer held.
    pub fn set_len(&mut self, len: usize) -> Result<(), NoRoom> {
        self.adjust(self.headroom(), len)
    }

    /// Shortens the data to `len` bytes; a shorter packet stays as it is. What is cut is no large frame any more.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.raw.len = len as u16;
            self.raw.segment = 0;
        }
    }

    /// Replaces the data by `bytes`, at the present offset.
    pub fn set_data(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.adjust(self.headroom(), bytes.len())?;
        self.data_mut().copy_from_slice(bytes);
        Ok(())
    }

    /// A copy in a second buffer of the same pool with the same headroom; `None` when the pool is empty.
    pub fn copy(&self) -> Option<Packet> {
        // SAFETY: `handle` is this live packet's, and belongs to this vtable.
        let copy = unsafe { (self.raw.vtable.alloc_like)(self.raw.handle) }?;
        self.copy_into(copy)
    }

    /// A copy in this buffer, with the same headroom; `None`, and the buffer is given back, if it is too small.
    #[inline(always)]
    pub fn copy_into(&self, buffer: Packet) -> Option<Packet> {
        let raw = self.raw;
        let (offset, len) = (usize::from(raw.offset), usize::from(raw.len));
        if offset + len > buffer.capacity() {
            return None;
        }
        let copy = buffer.into_raw().with_window(raw.offset, raw.len).with_segment(raw.segment);
        // SAFETY: `offset + len` is within both buffers, and so is the line where that is copied; both are initialised, and two
        // packets are never one buffer.
        unsafe {
            let (from, to) = (raw.base.as_ptr().add(offset), copy.base.as_ptr().add(offset));
            // Of the shortest frames the whole cache line, if both buffers have that: it needs no call.
            if len <= LINE && offset + LINE <= usize::from(raw.capacity.min(copy.capacity)) {
                std::ptr::copy_nonoverlapping(from, to, LINE);
            } else {
                std::ptr::copy_nonoverlapping(from, to, len);
            }
            Some(Packet::from_raw(copy))
        }
    }

    /// Appends up to `n` empty buffers of this packet's pool and size to `out`.
    pub fn alloc_like(&self, out: &mut Vec<Packet>, n: usize) {
        // SAFETY: `handle` is this live packet's, and belongs to this vtable.
        unsafe { (self.raw.vtable.alloc_like_bulk)(self.raw.handle, out, n) }
    }

    /// Whether the other's buffer is of the same pool and size.
    #[inline]
    pub fn is_like(&self, other: &Packet) -> bool {
        // SAFETY: both handles are of live packets, and belong to this vtable if the first comparison says so.
        std::ptr::eq(self.raw.vtable, other.raw.vtable)
            && self.raw.capacity == other.raw.capacity
            && unsafe { (self.raw.vtable.pool_of)(self.raw.handle) == (self.raw.vtable.pool_of)(other.raw.handle) }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the buffer's only handle, and it ends here.
        unsafe { (self.raw.vtable.free)(self.raw.handle) }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({}, headroom {}, {} bytes:", self.raw.vtable.name, self.headroom(), self.len())?;
        for byte in self.data().iter().take(64) {
            write!(f, " {byte:02x}")?;
        }
        f.write_str(if self.len() > 64 { " ...)" } else { ")" })
    }
}

/// Frees all packets with one call per run of packets from the same kind of pool; `packets` is empty afterwards.
pub fn free_bulk(packets: &mut Vec<Packet>) {
    free_front(packets, packets.len());
}

/// Frees the first `count` packets like [`free_bulk`]; the others move to the front.
///
/// # Panics
/// If there are fewer.
pub fn free_front(packets: &mut Vec<Packet>, count: usize) {
    let rest = packets.len().checked_sub(count).expect("as many packets as are freed");
    // SAFETY: `Packet` is a transparent wrapper of `RawPacket`; ownership of all passes to this function by `set_len(0)`, and
    // of those behind the first `count` back when they are in place.
    unsafe {
        packets.set_len(0);
        free_raws(std::slice::from_raw_parts(packets.as_ptr().cast::<RawPacket>(), count));
        if rest != 0 {
            let first = packets.as_mut_ptr();
            std::ptr::copy(first.add(count), first, rest);
            packets.set_len(rest);
        }
    }
}

/// Frees packets, with one call per run of packets from the same kind of pool.
///
/// # Safety
/// The caller owns all of them and does not use them afterwards.
unsafe fn free_raws(raws: &[RawPacket]) {
    for run in raws.chunk_by(|a, b| std::ptr::eq(a.vtable, b.vtable)) {
        // SAFETY: each element of `run` has this vtable, and the caller owned it.
        unsafe { (run[0].vtable.free_bulk)(run) }
    }
}

#[cfg(test)]
mod tests;
