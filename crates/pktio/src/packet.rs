//! The packet handle: a move-only view of one contiguous buffer, heap or `rte_mbuf`.
//!
//! Layout of a buffer, `capacity` bytes from `base`:
//!
//! ```text
//! base            base + offset         + len              base + capacity
//!  |--- headroom ----|------ data --------|----- tailroom -----|
//! ```
//!
//! **Invariants:** `offset + len <= capacity`; all `capacity` bytes are initialised (pools zero them once); exactly one
//! `Packet` exists per allocated buffer. There is no `Clone`: two handles on one buffer would free it twice.
//! [`Packet::copy`] allocates a second buffer.
//!
//! Threads: a packet may move between threads; its pool's functions accept calls from any thread.
//! Tests: `packet/tests.rs`, and under every device.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A pool's functions for its packets. One `static` per kind of pool.
pub struct PoolVtable {
    /// The kind of pool, for messages.
    pub name: &'static str,
    /// Frees one buffer.
    ///
    /// # Safety
    /// `handle` comes from a [`RawPacket`] of this vtable that is not used afterwards.
    pub free: unsafe fn(handle: NonNull<()>),
    /// Frees the buffers of all `packets`, which must not be used afterwards.
    ///
    /// # Safety
    /// Each element has this vtable and is owned by the caller.
    pub free_bulk: unsafe fn(packets: &[RawPacket]),
    /// Allocates an empty buffer from the pool that `handle` belongs to; `None` when the pool is empty.
    ///
    /// # Safety
    /// `handle` comes from a live [`RawPacket`] of this vtable.
    pub alloc_like: unsafe fn(handle: NonNull<()>) -> Option<Packet>,
    /// Like `n` calls of `alloc_like`: appends up to `n` empty buffers to `out`.
    ///
    /// # Safety
    /// As for `alloc_like`.
    pub alloc_like_bulk: unsafe fn(handle: NonNull<()>, out: &mut Vec<Packet>, n: usize),
    /// Identifies the pool that `alloc_like` allocates from; only for comparisons.
    ///
    /// # Safety
    /// As for `alloc_like`.
    pub pool_of: unsafe fn(handle: NonNull<()>) -> usize,
}

/// The fields of a [`Packet`], for code that stores or passes packets in its own `repr(C)` structures.
///
/// A `RawPacket` owns nothing: copying it is harmless, but it must not be turned into a [`Packet`] twice.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawPacket {
    /// First byte of the buffer (the start of the headroom).
    pub base: NonNull<u8>,
    /// The pool's handle of the buffer.
    pub handle: NonNull<()>,
    /// The pool's functions.
    pub vtable: &'static PoolVtable,
    /// Bytes from `base` to the end of the buffer.
    pub capacity: u16,
    /// Bytes from `base` to the first byte of data.
    pub offset: u16,
    /// Bytes of data.
    pub len: u16,
    /// Segment size of a large frame, otherwise 0: [`Packet::segment`].
    pub segment: u16,
}

/// A [`RawPacket`] whose 16-bit fields form one word: capacity, offset, length, segment, from the lowest bits up.
#[repr(C)]
struct Parts {
    base: NonNull<u8>,
    handle: NonNull<()>,
    vtable: &'static PoolVtable,
    tail: u64,
}

const _: () = assert!(size_of::<Parts>() == size_of::<RawPacket>() && cfg!(target_endian = "little"));

impl RawPacket {
    /// Returns a copy with another data window: `len` bytes at `offset` from the buffer's start. Computed in
    /// registers: loading a whole packet right after one of its 16-bit fields was stored would stall (x86
    /// cannot forward a store to a wider load).
    #[inline(always)]
    #[must_use]
    pub fn with_window(self, offset: u16, len: u16) -> RawPacket {
        debug_assert!(usize::from(offset) + usize::from(len) <= usize::from(self.capacity));
        // SAFETY: both are `repr(C)` with the same pointers, followed by the same number of bytes.
        let mut parts: Parts = unsafe { std::mem::transmute(self) };
        parts.tail = parts.tail & 0xffff_0000_0000_ffff | u64::from(offset) << 16 | u64::from(len) << 32;
        // SAFETY: as above.
        unsafe { std::mem::transmute(parts) }
    }

    /// Returns a copy with this [`Packet::segment`].
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

/// Error: an operation would leave the buffer, for lack of headroom, tailroom or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet's buffer has no room for this")]
pub struct NoRoom;

/// A packet. Dropping it returns its buffer to its pool.
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

    /// The fields; ownership stays here.
    #[inline]
    pub fn raw(&self) -> &RawPacket {
        &self.raw
    }

    /// The packet's data.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `offset + len <= capacity`, the buffer is initialised and only this handle refers to it.
        unsafe { std::slice::from_raw_parts(self.data_ptr(), self.len()) }
    }

    /// The packet's data, mutable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `data`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.data_mut_ptr(), self.len()) }
    }

    /// Length of the data in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.raw.len)
    }

    /// The segment size of a large frame (several segments of one TCP or UDP stream in one packet), otherwise 0. It is
    /// the payload of each segment in bytes, with the highest bit set for UDP ([`crate::offload::SEGMENT_UDP`]). A port
    /// that does not accept large frames segments them ([`crate::offload`]).
    #[inline]
    pub fn segment(&self) -> u16 {
        self.raw.segment
    }

    /// Marks the packet as a large frame, or as none; see [`Packet::segment`].
    pub fn set_segment(&mut self, segment: u16) {
        self.raw.segment = segment;
    }

    /// Whether the packet has no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.raw.len == 0
    }

    /// Free bytes before the data, which is also the data's offset in the buffer.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.raw.offset)
    }

    /// Free bytes after the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.capacity() - self.headroom() - self.len()
    }

    /// Size of the whole buffer in bytes.
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

    /// Moves the data window; `offset` is relative to the buffer's start. Bytes do not move.
    ///
    /// # Errors
    /// The window would exceed the buffer.
    #[inline]
    pub fn adjust(&mut self, offset: usize, len: usize) -> Result<(), NoRoom> {
        if offset.checked_add(len).is_none_or(|end| end > self.capacity()) {
            return Err(NoRoom);
        }
        self.raw.offset = offset as u16;
        self.raw.len = len as u16;
        Ok(())
    }

    /// Like [`Packet::adjust`], without checks.
    ///
    /// # Safety
    /// `offset + len <= self.capacity()`.
    #[inline]
    pub unsafe fn adjust_unchecked(&mut self, offset: u16, len: u16) {
        debug_assert!(usize::from(offset) + usize::from(len) <= self.capacity());
        self.raw.offset = offset;
        self.raw.len = len;
    }

    /// Grows the data by `n` bytes at the front and returns it; the new bytes contain what was in the headroom.
    ///
    /// # Errors
    /// The headroom is too small.
    pub fn push_front(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        let offset = self.headroom().checked_sub(n).ok_or(NoRoom)?;
        self.adjust(offset, self.len() + n)?;
        Ok(self.data_mut())
    }

    /// Removes `n` bytes from the front.
    ///
    /// # Errors
    /// The data is shorter.
    pub fn pull_front(&mut self, n: usize) -> Result<(), NoRoom> {
        let len = self.len().checked_sub(n).ok_or(NoRoom)?;
        self.adjust(self.headroom() + n, len)
    }

    /// Grows the data by `n` bytes at the end and returns it; the new bytes contain what was in the tailroom.
    ///
    /// # Errors
    /// The tailroom is too small.
    pub fn push_back(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        self.adjust(self.headroom(), self.len().saturating_add(n))?;
        Ok(self.data_mut())
    }

    /// Sets the data's length in bytes, at the same offset; new bytes contain what was in the buffer.
    ///
    /// # Errors
    /// The buffer is too small.
    pub fn set_len(&mut self, len: usize) -> Result<(), NoRoom> {
        self.adjust(self.headroom(), len)
    }

    /// Truncates the data to `len` bytes; a shorter packet is unchanged. A truncated packet is no longer a large frame.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.raw.len = len as u16;
            self.raw.segment = 0;
        }
    }

    /// Replaces the data by `bytes`, at the same offset.
    ///
    /// # Errors
    /// The buffer is too small.
    pub fn set_data(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.adjust(self.headroom(), bytes.len())?;
        self.data_mut().copy_from_slice(bytes);
        Ok(())
    }

    /// Copies the packet into a new buffer of the same pool, with the same headroom; `None` when the pool is empty.
    pub fn copy(&self) -> Option<Packet> {
        // SAFETY: `handle` is this live packet's, and belongs to this vtable.
        let copy = unsafe { (self.raw.vtable.alloc_like)(self.raw.handle) }?;
        self.copy_into(copy)
    }

    /// Copies the packet into `buffer`, with the same headroom; `None`, and `buffer` is freed, if it is too small.
    #[inline(always)]
    pub fn copy_into(&self, buffer: Packet) -> Option<Packet> {
        let raw = self.raw;
        let (offset, len) = (usize::from(raw.offset), usize::from(raw.len));
        if offset + len > buffer.capacity() {
            return None;
        }
        let copy = buffer.into_raw().with_window(raw.offset, raw.len).with_segment(raw.segment);
        // SAFETY: `offset + len` is within both buffers, and so is the cache line where that is copied; both are
        // initialised, and two packets never share a buffer.
        unsafe {
            let (from, to) = (raw.base.as_ptr().add(offset), copy.base.as_ptr().add(offset));
            // The shortest frames copy a whole cache line, if both buffers contain
            // it: a copy of fixed length needs no call.
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

    /// Whether the other packet's buffer has the same pool and size.
    #[inline]
    pub fn is_like(&self, other: &Packet) -> bool {
        // SAFETY: both handles are of live packets, and the first comparison ensures that both have this vtable.
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

/// Frees all packets, with one call per run of packets of the same kind of pool; `packets` is empty afterwards.
pub fn free_bulk(packets: &mut Vec<Packet>) {
    free_front(packets, packets.len());
}

/// Frees the first `count` packets like [`free_bulk`]; the others move to the front.
///
/// # Panics
/// If there are fewer than `count`.
pub fn free_front(packets: &mut Vec<Packet>, count: usize) {
    let rest = packets.len().checked_sub(count).expect("as many packets as are freed");
    // SAFETY: `Packet` is a transparent wrapper of `RawPacket`. `set_len(0)` passes ownership of all packets to this
    // function, and `set_len(rest)` returns those after the first `count` once they have moved.
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

/// Frees packets, with one call per run of packets of the same kind of pool.
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
