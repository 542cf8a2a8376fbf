//! System calls that no safe crate provides: packet socket options, TAP
//! interfaces, interface settings, sending a burst.
//!
//! Each function is a thin wrapper with a safe signature; lengths and pointers passed to the kernel are of values that
//! live during the call. Sources: packet(7), netdevice(7), the kernel's Documentation/networking/tuntap.rst.
#![allow(unsafe_code)]

use libc::{c_int, c_ulong, c_void, socklen_t};
use pktio::Packet;
use pktio::offload::VirtioNetHeader;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Maximum packets sent by one call.
pub(crate) const BURST_MAX: usize = 64;

pub(crate) const ETH_P_ALL: u16 = libc::ETH_P_ALL as u16;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A plain value that the kernel reads or writes as bytes.
///
/// # Safety
/// `repr(C)` without padding or pointers, and any bytes are a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers, and the kernel's structures of integers.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: as above.
unsafe impl Plain for libc::packet_mreq {}

pub(crate) fn set_option<T: Plain>(socket: &OwnedFd, level: c_int, option: c_int, value: T) -> io::Result<()> {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: the value lives during the call, and `len` is its size.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) }).map(drop)
}

pub(crate) fn option<T: Plain>(socket: &OwnedFd, level: c_int, option: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: `value` has room for `len` bytes.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &mut len) })?;
    // SAFETY: any bytes are a valid value of a `Plain` type.
    Ok(unsafe { value.assume_init() })
}

/// Creates an unbound packet socket. Needs CAP_NET_RAW.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: passes no pointers; the result is a new file descriptor that nobody else owns.
    unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Binds a packet socket to an interface; with `protocol` 0 it receives nothing.
pub(crate) fn bind_packet(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as c_int;
    let len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the address lives during the call, and `len` is its size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Takes the socket's pending error, such as ENETDOWN after its interface went down. A
/// socket with a pending error is readable.
pub(crate) fn take_error(socket: &OwnedFd) -> c_int {
    option::<c_int>(socket, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0)
}

/// `struct ifreq`: an interface's name, and the request's argument.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

impl Request {
    fn new(interface: &str) -> io::Result<Request> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], value: [0; 24] };
        let bytes = interface.as_bytes();
        // The name must end with a zero byte.
        let name = request.name.get_mut(..bytes.len()).filter(|name| name.len() < libc::IFNAMSIZ);
        name.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
        Ok(request)
    }

    fn run(&mut self, file: &OwnedFd, request: c_ulong) -> io::Result<()> {
        // SAFETY: all requests in this file take a `struct ifreq`, which this is. It contains no pointers except, in
        // `speed_mbps`, one to a value that lives during the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut *self) }).map(drop)
    }
}

/// Creates a socket for requests that change interfaces.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: passes no pointers; the result is a new file descriptor that nobody else owns.
    unsafe {
        let fd = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

pub(crate) fn set_mtu(control: &OwnedFd, interface: &str, mtu: u16) -> io::Result<()> {
    let mut request = Request::new(interface)?;
    request.value[..4].copy_from_slice(&c_int::from(mtu).to_ne_bytes());
    request.run(control, libc::SIOCSIFMTU as c_ulong)
}

/// Sets the interface's `IFF_UP` flag.
pub(crate) fn set_up(control: &OwnedFd, interface: &str) -> io::Result<()> {
    let mut request = Request::new(interface)?;
    request.run(control, libc::SIOCGIFFLAGS as c_ulong)?;
    request.value[0] |= libc::IFF_UP as u8;
    request.run(control, libc::SIOCSIFFLAGS as c_ulong)
}

/// Link speed in megabits per second, if the driver knows it (`ETHTOOL_GSET`).
pub(crate) fn speed_mbps(control: &OwnedFd, interface: &str) -> Option<u32> {
    const ETHTOOL_GSET: u32 = 1;
    /// `struct ethtool_cmd`: 44 bytes; the speed is stored in two halves.
    #[repr(C, align(4))]
    struct Settings([u8; 44]);
    let mut settings = Settings([0; 44]);
    settings.0[..4].copy_from_slice(&ETHTOOL_GSET.to_ne_bytes());
    let mut request = Request::new(interface).ok()?;
    let pointer = (&raw mut settings) as usize;
    request.value[..size_of::<usize>()].copy_from_slice(&pointer.to_ne_bytes());
    request.run(control, libc::SIOCETHTOOL as c_ulong).ok()?;
    // The kernel has written through the pointer.
    let settings = std::hint::black_box(&settings);
    let half = |at: usize| u32::from(u16::from_ne_bytes([settings.0[at], settings.0[at + 1]]));
    match half(28) << 16 | half(12) {
        0 | 0xffff | u32::MAX => None,
        speed => Some(speed),
    }
}

/// Opens a queue of a TAP interface, which is created if it does not exist. Needs CAP_NET_ADMIN.
pub(crate) fn open_tap(interface: &str, has_queues: bool) -> io::Result<OwnedFd> {
    let path = c"/dev/net/tun";
    // SAFETY: passes a C string; the result is a new file descriptor that nobody else owns.
    let file = unsafe {
        let fd = check(libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC))?;
        OwnedFd::from_raw_fd(fd)
    };
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if has_queues {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let mut request = Request::new(interface)?;
    request.value[..2].copy_from_slice(&(flags as u16).to_ne_bytes());
    request.run(&file, libc::TUNSETIFF as c_ulong)?;
    let header_bytes = VirtioNetHeader::BYTES as c_int;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: the first takes a pointer to an integer, which lives for the call; the second a number.
    unsafe {
        check(libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const header_bytes))?;
        check(libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, c_ulong::from(offloads)))?;
    }
    Ok(file)
}

/// Whether a TAP queue's interface still exists, in any network namespace.
pub(crate) fn is_attached(tap: &OwnedFd) -> bool {
    Request { name: [0; libc::IFNAMSIZ], value: [0; 24] }.run(tap, libc::TUNGETIFF as c_ulong).is_ok()
}

/// Sends each packet after its virtio header, without blocking. Returns how many the kernel took, at most
/// [`BURST_MAX`].
pub(crate) fn send_burst(
    socket: &OwnedFd,
    headers: &[[u8; VirtioNetHeader::BYTES]],
    packets: &[Packet],
) -> io::Result<usize> {
    let count = packets.len().min(headers.len()).min(BURST_MAX);
    let mut parts = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; BURST_MAX];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BURST_MAX];
    for i in 0..count {
        let data = packets[i].data();
        let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr() as *mut c_void, iov_len: bytes.len() };
        let parts = parts[i].write([part(&headers[i]), part(data)]);
        // SAFETY: a structure of integers and pointers, for which zeros are valid.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        message.msg_hdr.msg_iov = parts.as_mut_ptr();
        message.msg_hdr.msg_iovlen = 2;
        messages[i].write(message);
    }
    // SAFETY: the first `count` messages are initialised; they point to parts, headers and packets,
    // which live for the call and are only read.
    let result = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr().cast(), count as _, libc::MSG_DONTWAIT as _)
    };
    check(result).map(|count| count as usize)
}
