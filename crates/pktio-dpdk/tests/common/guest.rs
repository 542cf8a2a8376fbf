//! A guest of one queue pair for vhost-user ports, of which a test chooses every descriptor: the driver's side of virtio 1.1
//! (2.6 split rings, 2.7 packed rings, 5.1 network device) and the front end's side of the vhost-user protocol.
//!
//! Single-threaded. What it waits for ends at last.
#![allow(unsafe_code, dead_code)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering, fence};
use std::time::{Duration, Instant};

pub const F_CSUM: u64 = 1 << 0;
pub const F_GUEST_CSUM: u64 = 1 << 1;
pub const F_GUEST_TSO4: u64 = 1 << 7;
pub const F_GUEST_TSO6: u64 = 1 << 8;
pub const F_HOST_TSO4: u64 = 1 << 11;
pub const F_HOST_TSO6: u64 = 1 << 12;
pub const F_MRG_RXBUF: u64 = 1 << 15;
pub const F_VERSION_1: u64 = 1 << 32;
pub const F_RING_PACKED: u64 = 1 << 34;

/// Places in each ring.
const SIZE: u16 = 256;
pub const MEMORY_BYTES: usize = 32 << 20;
/// Where the rings and buffers are in the guest's memory.
const RINGS: [u64; 2] = [0, 0x1_0000];
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x4000;
const RECEIVE_BUFFERS: u64 = 0x10_0000;
const SEND_BUFFERS: u64 = 0x180_0000;

const PATIENCE: Duration = Duration::from_secs(120);

const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Marks of a packed ring.
const AVAIL: u16 = 1 << 7;
const IS_USED: u16 = 1 << 15;

/// The header before each frame (5.1.6), with the number of buffers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Header {
    pub flags: u8,
    pub gso_type: u8,
    pub header_len: u16,
    pub gso_size: u16,
    pub csum_start: u16,
    pub csum_offset: u16,
    pub buffers: u16,
}

impl Header {
    pub const BYTES: usize = 12;

    fn to_bytes(self) -> [u8; Header::BYTES] {
        let mut bytes = [0; Header::BYTES];
        (bytes[0], bytes[1]) = (self.flags, self.gso_type);
        let words = [self.header_len, self.gso_size, self.csum_start, self.csum_offset, self.buffers];
        for (to, word) in bytes[2..].chunks_mut(2).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Header {
        let word = |i: usize| u16::from_le_bytes([bytes[i], bytes[i + 1]]);
        Header {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            buffers: word(10),
        }
    }
}

/// Lets the calling thread run only when no other thread wants its processor; or as others do again.
pub fn run_when_idle(is_idle: bool) {
    let parameters = libc::sched_param { sched_priority: 0 };
    let policy = if is_idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    // SAFETY: a structure that lives for the call, about this thread.
    unsafe { assert_eq!(libc::sched_setscheduler(0, policy, &parameters), 0) }
}

/// What is written into a file that wakes.
static ONE: u64 = 1;

/// One ring as the driver has it: 0 receives, 1 sends.
#[derive(Default)]
struct Ring {
    next_available: u16,
    next_used: u16,
    /// Packed: how often each of these has gone round.
    rounds: [u16; 2],
    /// Packed: names and pieces of what the port has, in order.
    open: VecDeque<(u16, u16)>,
}

pub struct Guest {
    socket: UnixStream,
    memory: NonNull<u8>,
    _file: OwnedFd,
    rings: [Ring; 2],
    buffer_bytes: u32,
    packed: bool,
    /// What it kicks the port with when that asks for it; without one, the port polls.
    kick: Option<OwnedFd>,
}

// SAFETY: the memory is the guest's own; who has it may use it from any thread.
unsafe impl Send for Guest {}

impl Guest {
    /// Connects to a listening port, accepts exactly these features, and gives it receive buffers of this size.
    pub fn connect(path: &str, features: u64, buffer_bytes: u32) -> Guest {
        Guest::connect_with(path, features, buffer_bytes, false)
    }

    /// The same; perhaps it kicks the port when there is something for it.
    pub fn connect_with(path: &str, features: u64, buffer_bytes: u32, kicks: bool) -> Guest {
        Guest::over(UnixStream::connect(path).expect("the port listens"), features, buffer_bytes, kicks)
    }

    /// The same over a connection that is there, as when the port connects.
    pub fn over(socket: UnixStream, features: u64, buffer_bytes: u32, kicks: bool) -> Guest {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // SAFETY: a C string; the file is ours; the mapping lives until `drop`.
        let (file, memory) = unsafe {
            let fd = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0 && libc::ftruncate(fd, MEMORY_BYTES as i64) == 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), MEMORY_BYTES, protection, libc::MAP_SHARED, fd, 0);
            assert_ne!(at, libc::MAP_FAILED);
            (OwnedFd::from_raw_fd(fd), NonNull::new(at.cast()).unwrap())
        };
        // SAFETY: the file is ours.
        let kick = kicks.then(|| unsafe {
            let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        });
        let packed = features & F_RING_PACKED != 0;
        let mut guest = Guest { socket, memory, _file: file, rings: Default::default(), buffer_bytes, packed, kick };
        guest.negotiate(features);
        guest
    }

    fn negotiate(&mut self, features: u64) {
        let offered = self.ask(1, &[]);
        assert_eq!(features & !offered, 0, "features that the port does not offer");
        self.tell(3, &[], None);
        self.tell(2, &features.to_le_bytes(), None);
        let mut regions = [1u32, 0].map(u32::to_le_bytes).concat();
        let base = self.memory.as_ptr() as u64;
        regions.extend([0, MEMORY_BYTES as u64, base, 0].map(u64::to_le_bytes).concat());
        let fd = self._file.as_raw_fd();
        self.tell(5, &regions, Some(fd));
        for (index, ring) in RINGS.iter().enumerate() {
            let index = index as u32;
            let state = |value: u32| [index, value].map(u32::to_le_bytes).concat();
            self.tell(8, &state(u32::from(SIZE)), None);
            // Packed: both sides are in their first round.
            self.tell(10, &state(if self.packed { 0x8000 } else { 0 }), None);
            let mut addresses = [index, 0].map(u32::to_le_bytes).concat();
            addresses.extend([ring, &(ring + USED), &(ring + AVAILABLE)].map(|at| (base + at).to_le_bytes()).concat());
            addresses.extend(0u64.to_le_bytes());
            self.tell(9, &addresses, None);
            // No file descriptors: both sides poll, unless this one is to kick.
            let none = (u64::from(index) | 1 << 8).to_le_bytes();
            self.tell(13, &none, None);
            match self.kick.as_ref().map(AsRawFd::as_raw_fd).filter(|_| index == 1) {
                Some(kick) => self.tell(12, &u64::from(index).to_le_bytes(), Some(kick)),
                None => self.tell(12, &none, None),
            }
        }
        // An answer to this says that all before has been worked on.
        self.ask(1, &[]);
        for place in 0..SIZE {
            self.give_buffer(place);
        }
    }

    /// Sends a message, with a file if there is one.
    pub fn tell(&mut self, request: u32, payload: &[u8], fd: Option<RawFd>) {
        let mut message = [request, 1, payload.len() as u32].map(u32::to_le_bytes).concat();
        message.extend(payload);
        // The port may have closed the connection: a question notices.
        let Some(fd) = fd else { return drop(self.socket.write_all(&message)) };
        let mut control = [0u64; 4];
        let mut part = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: message.len() };
        // SAFETY: all that the header points to lives during the call, and the control buffer has room for one descriptor.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(fd);
            libc::sendmsg(self.socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL);
        }
    }

    /// Sends a question and waits for its answer.
    pub fn ask(&mut self, request: u32, payload: &[u8]) -> u64 {
        self.try_ask(request, payload).expect("the port answers")
    }

    /// The same; `None` if the port has closed the connection.
    pub fn try_ask(&mut self, request: u32, payload: &[u8]) -> Option<u64> {
        self.tell(request, payload, None);
        let mut answer = [0; 20];
        self.socket.read_exact(&mut answer).ok()?;
        Some(u64::from_le_bytes(answer[12..].try_into().unwrap()))
    }

    /// Whether the port still talks to this guest; after this it has worked on all that was told before.
    pub fn is_connected(&mut self) -> bool {
        self.try_ask(1, &[]).is_some()
    }

    /// The connection, for bytes that are no message.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The memory's file, which the port has mapped.
    pub fn file(&self) -> &OwnedFd {
        &self._file
    }

    /// The front end's address of a guest's address.
    pub fn user(&self, address: u64) -> u64 {
        self.memory.as_ptr() as u64 + address
    }

    fn at(&self, address: u64, len: usize) -> *mut u8 {
        assert!(address as usize + len <= MEMORY_BYTES);
        // SAFETY: inside the mapping.
        unsafe { self.memory.as_ptr().add(address as usize) }
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        // SAFETY: inside the mapping; the port does not look there before the index says so.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(address, bytes.len()), bytes.len()) }
    }

    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: inside the mapping; the port does not write there after the index said so.
        unsafe { std::ptr::copy_nonoverlapping(self.at(address, len), bytes.as_mut_ptr(), len) }
        bytes
    }

    fn index(&self, address: u64) -> &AtomicU16 {
        // SAFETY: inside the mapping, aligned, and both sides use it atomically.
        unsafe { AtomicU16::from_ptr(self.at(address, 2).cast()) }
    }

    /// Writes a descriptor of ring `r`; `last` is what comes last in it.
    fn describe(&mut self, r: usize, place: u16, address: u64, len: u32, last: [u16; 2]) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(last.map(u16::to_le_bytes).concat());
        self.write(RINGS[r] + u64::from(place) * 16, &bytes);
    }

    /// Gives the port a chain with this name: address, length and flags of each piece.
    fn give(&mut self, r: usize, name: u16, pieces: &[(u64, u32, u16)]) {
        let more = |i: usize| if i + 1 == pieces.len() { 0 } else { NEXT };
        if self.packed {
            return self.give_packed(r, name, pieces);
        }
        for (i, &(address, len, flags)) in pieces.iter().enumerate() {
            let place = name + i as u16;
            self.describe(r, place, address, len, [flags | more(i), place + 1]);
        }
        self.make_available(r, name);
    }

    /// The same for a packed ring (2.7.13): the first piece says last that it is there.
    fn give_packed(&mut self, r: usize, name: u16, pieces: &[(u64, u32, u16)]) {
        let head = self.rings[r].next_available;
        let mut head_flags = 0;
        for (i, &(address, len, flags)) in pieces.iter().enumerate() {
            let ring = &mut self.rings[r];
            let place = ring.next_available;
            let marks = if ring.rounds[0].is_multiple_of(2) { AVAIL } else { IS_USED };
            let flags = flags | marks | if i + 1 == pieces.len() { 0 } else { NEXT };
            (ring.next_available, ring.rounds[0]) = stepped(place, ring.rounds[0], 1);
            // What the head had before: not available.
            let old = self.index(RINGS[r] + u64::from(place) * 16 + 14).load(Ordering::Relaxed);
            let shown = if i == 0 { old } else { flags };
            self.describe(r, place, address, len, [name, shown]);
            if i == 0 {
                head_flags = flags;
            }
        }
        self.rings[r].open.push_back((name, pieces.len() as u16));
        self.index(RINGS[r] + u64::from(head) * 16 + 14).store(head_flags, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Gives the port the chain of a split ring that begins at `head`.
    fn make_available(&mut self, r: usize, head: u16) {
        let place = self.rings[r].next_available % SIZE;
        self.write(RINGS[r] + AVAILABLE + 4 + 2 * u64::from(place), &head.to_le_bytes());
        self.rings[r].next_available = self.rings[r].next_available.wrapping_add(1);
        self.index(RINGS[r] + AVAILABLE + 2).store(self.rings[r].next_available, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn give_buffer(&mut self, place: u16) {
        let address = RECEIVE_BUFFERS + u64::from(place) * u64::from(self.buffer_bytes);
        self.give(0, place, &[(address, self.buffer_bytes, WRITE)]);
    }

    /// Sends a frame whose header and bytes are in one chain, in pieces of these lengths and the rest in a last one.
    pub fn send(&mut self, header: Header, frame: &[u8], pieces: &[usize]) {
        let all = [&header.to_bytes(), frame].concat();
        self.write(SEND_BUFFERS, &all);
        let mut lengths = pieces.to_vec();
        lengths.push(all.len() - pieces.iter().sum::<usize>());
        let mut at = SEND_BUFFERS;
        let mut chain = Vec::new();
        for len in lengths {
            chain.push((at, len as u32, 0));
            at += len as u64;
        }
        self.give(1, 0, &chain);
        self.kick();
    }

    /// Kicks the port, if it wants to be; whether it did.
    pub fn kick(&self) -> bool {
        const NO_NOTIFY: u16 = 1;
        let Some(kick) = &self.kick else { return false };
        let wish = RINGS[1] + USED + if self.packed { 2 } else { 0 };
        let wanted = self.index(wish).load(Ordering::Acquire) & NO_NOTIFY == 0;
        // SAFETY: eight bytes that live for the call.
        wanted && unsafe { libc::write(kick.as_raw_fd(), (&raw const ONE).cast(), 8) == 8 }
    }

    /// Whether the port has given back everything that was sent.
    pub fn all_taken(&mut self) -> bool {
        if self.packed {
            while self.used_packed(1).is_some() {}
            return self.rings[1].open.is_empty();
        }
        self.index(RINGS[1] + USED + 2).load(Ordering::Acquire) == self.rings[1].next_available
    }

    /// The next used entry of the receiving ring: which buffer, how many bytes.
    fn used(&mut self) -> Option<(u16, usize)> {
        if self.packed {
            return self.used_packed(0);
        }
        if self.index(RINGS[0] + USED + 2).load(Ordering::Acquire) == self.rings[0].next_used {
            return None;
        }
        let place = self.rings[0].next_used % SIZE;
        let entry = self.read(RINGS[0] + USED + 4 + 8 * u64::from(place), 8);
        self.rings[0].next_used = self.rings[0].next_used.wrapping_add(1);
        let word = |i: usize| u32::from_le_bytes(entry[i..i + 4].try_into().unwrap());
        Some((word(0) as u16, word(4) as usize))
    }

    /// The next chain that was given back to a packed ring: its name, and how many bytes were written.
    fn used_packed(&mut self, r: usize) -> Option<(u16, usize)> {
        let at = RINGS[r] + u64::from(self.rings[r].next_used) * 16;
        let flags = self.index(at + 14).load(Ordering::Acquire);
        let marks = if self.rings[r].rounds[1].is_multiple_of(2) { AVAIL | IS_USED } else { 0 };
        if flags & (AVAIL | IS_USED) != marks || self.rings[r].open.is_empty() {
            return None;
        }
        let entry = self.read(at + 8, 6);
        let len = u32::from_le_bytes(entry[..4].try_into().unwrap()) as usize;
        let name = u16::from_le_bytes(entry[4..].try_into().unwrap());
        let ring = &mut self.rings[r];
        let (wanted, pieces) = ring.open.pop_front()?;
        assert_eq!(name, wanted, "the port gives back in order");
        assert_eq!(flags & WRITE != 0, len != 0, "the length counts where something was written");
        (ring.next_used, ring.rounds[1]) = stepped(ring.next_used, ring.rounds[1], pieces);
        Some((name, len))
    }

    /// A frame with its header, if one is there; its buffers go back to the port.
    pub fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut bytes = Vec::new();
        let mut missing = 1;
        while missing > 0 {
            let (place, len) = match self.used() {
                Some(used) => used,
                None if bytes.is_empty() => return None,
                None => panic!("a frame lacks {missing} buffers"),
            };
            let address = RECEIVE_BUFFERS + u64::from(place) * u64::from(self.buffer_bytes);
            if bytes.is_empty() {
                bytes = self.read(address, len);
                missing = Header::from_bytes(&bytes).buffers;
            } else {
                bytes.extend(self.read(address, len));
            }
            missing -= 1;
            self.give_buffer(place);
        }
        Some((Header::from_bytes(&bytes), bytes.split_off(Header::BYTES)))
    }

    /// The next frame.
    pub fn wait(&mut self) -> (Header, Vec<u8>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(received) = self.receive() {
                return received;
            }
            assert!(Instant::now() < deadline, "no frame within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A place of a packed ring and how often it went round, some steps on.
fn stepped(place: u16, rounds: u16, steps: u16) -> (u16, u16) {
    let next = place + steps;
    if next < SIZE { (next, rounds) } else { (next - SIZE, rounds + 1) }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // SAFETY: mapped in `connect`, and used by nobody after this.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), MEMORY_BYTES) };
    }
}
