//! The receive ring that a packet socket shares with the kernel (packet_mmap, TPACKET_V2): a mapping of
//! equal slots, called places here. The kernel fills them in order and hands each over by its status; the
//! reader returns it after copying the frame.
//!
//! **Invariants:** a [`Place`] exists only while user space owns the slot, so the kernel does not write to it. Whatever
//! offsets and lengths a slot contains, nothing beyond it is read.
#![allow(unsafe_code)]

use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Size of the ring in bytes. Slots have at least [`PLACE_BYTES_MIN`], more if the MTU requires it.
const RING_BYTES: usize = 4 << 20;
const PLACE_BYTES_MIN: usize = 2048;
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes before a frame in its slot: the kernel's headers, room for a link layer, the virtio header.
const PLACE_HEADER_BYTES: usize = 128;

/// The mapped ring. Read by one queue, which keeps the current index itself.
pub(crate) struct Ring {
    base: NonNull<u8>,
    place_bytes: usize,
    places: usize,
}

// SAFETY: the mapping is plain memory that lives as long as the value; statuses are atomic, and a slot belongs to the
// thread that saw it handed over.
unsafe impl Send for Ring {}
// SAFETY: as above; `Ring::place` requires that one thread at a time reads.
unsafe impl Sync for Ring {}

impl Ring {
    /// Creates the ring of an unbound socket, for frames of `frame_bytes`; longer ones wait in the socket.
    pub(crate) fn new(socket: &OwnedFd, frame_bytes: usize) -> io::Result<Ring> {
        let mut place_bytes = PLACE_BYTES_MIN;
        while place_bytes < frame_bytes + PLACE_HEADER_BYTES && place_bytes < BLOCK_BYTES {
            place_bytes *= 2;
        }
        let places = RING_BYTES / place_bytes;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (RING_BYTES / BLOCK_BYTES) as u32,
            tp_frame_size: place_bytes as u32,
            tp_frame_nr: places as u32,
        };
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        // SAFETY: a new mapping, of the size that was set up with the kernel.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), RING_BYTES, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Ring { base, place_bytes, places })
    }

    /// The index of the next slot.
    pub(crate) fn after(&self, place: usize) -> usize {
        if place + 1 >= self.places { 0 } else { place + 1 }
    }

    /// The address of a slot.
    fn at(&self, place: usize) -> NonNull<u8> {
        // SAFETY: inside the mapping.
        unsafe { self.base.add(place.min(self.places - 1) * self.place_bytes) }
    }

    fn status(&self, place: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned, since slots are multiples of 2,048 bytes; `tp_status` comes first.
        unsafe { self.at(place).cast::<AtomicU32>().as_ref() }
    }

    /// Whether the kernel has handed over a slot.
    pub(crate) fn is_full(&self, place: usize) -> bool {
        self.status(place).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
    }

    /// Borrows a slot that the kernel has handed over. Must not be called on two threads at a time.
    pub(crate) fn place(&self, place: usize) -> Option<Place<'_>> {
        let status = self.status(place);
        let flags = status.load(Ordering::Acquire);
        if flags & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: user space owns the slot until `Place` is dropped, and it has `place_bytes` bytes. Its status, which
        // the kernel reads, is excluded.
        let rest = unsafe {
            let from = self.at(place).add(size_of::<u32>());
            std::slice::from_raw_parts(from.as_ptr(), self.place_bytes - size_of::<u32>())
        };
        Some(Place { status, flags, rest })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), RING_BYTES) };
    }
}

/// A slot owned by user space; returned to the kernel on drop.
pub(crate) struct Place<'a> {
    status: &'a AtomicU32,
    flags: u32,
    /// The slot without its status: `struct tpacket2_hdr` from `tp_len` on.
    rest: &'a [u8],
}

impl Place<'_> {
    fn u32_at(&self, at: usize) -> u32 {
        let at = at - size_of::<u32>();
        u32::from_ne_bytes(self.rest[at..at + 4].try_into().unwrap_or_default())
    }

    fn u16_at(&self, at: usize) -> u16 {
        let at = at - size_of::<u32>();
        u16::from_ne_bytes(self.rest[at..at + 2].try_into().unwrap_or_default())
    }

    /// Whether the frame is longer than the slot and waits in the socket.
    pub(crate) fn is_beside(&self) -> bool {
        self.flags & libc::TP_STATUS_COPY != 0
    }

    /// The frame's virtio header and bytes; `None` if the frame is incomplete.
    pub(crate) fn frame(&self) -> Option<([u8; 10], &[u8])> {
        let (len, snap_len) = (self.u32_at(4) as usize, self.u32_at(8) as usize);
        let from = usize::from(self.u16_at(12)).checked_sub(size_of::<u32>())?;
        let header = self.rest.get(from.checked_sub(10)?..from)?.try_into().ok()?;
        let data = self.rest.get(from..from.checked_add(snap_len)?)?;
        (len == snap_len).then_some((header, data))
    }

    /// The VLAN tag that the kernel has stripped.
    pub(crate) fn tag(&self) -> Option<[u8; 4]> {
        const ETHERTYPE_VLAN: u16 = 0x8100;
        if self.flags & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let has_type = self.flags & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let ethertype = if has_type { self.u16_at(26) } else { ETHERTYPE_VLAN };
        let ([a, b], [c, d]) = (ethertype.to_be_bytes(), self.u16_at(24).to_be_bytes());
        Some([a, b, c, d])
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}
