//! The sockets of a port's queues: for AF_PACKET a socket with a receive ring and one for sending, for TAP one file.
//!
//! The queues of an interface form a fanout group, in which the kernel distributes flows by a symmetric hash. The port
//! does not receive what the kernel itself sends (`PACKET_IGNORE_OUTGOING`, since Linux 4.20).
//!
//! Opening and closing waits for other processors (`synchronize_net`), so workers must do neither.

use crate::ring::Ring;
use crate::sys;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The kind of a port: AF_PACKET or TAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Packet,
    Tap,
}

/// Receive buffer of a socket in bytes, for frames that wait outside the ring.
const RECEIVE_BUFFER_BYTES: i32 = 4 << 20;

/// Bytes by which a frame may exceed the interface's MTU: an Ethernet header and two VLAN tags.
const LINK_HEADER_BYTES: usize = 22;

/// The file descriptors of one queue.
pub(crate) enum Io {
    Packet {
        /// The socket with the receive ring.
        input: Arc<OwnedFd>,
        ring: Ring,
        output: OwnedFd,
    },
    Tap(Arc<OwnedFd>),
}

impl Io {
    /// The file that is readable while packets are waiting.
    pub(crate) fn file(&self) -> &Arc<OwnedFd> {
        match self {
            Io::Packet { input, .. } => input,
            Io::Tap(file) => file,
        }
    }

    /// Number of packets that the kernel has dropped for lack of space since the last call.
    pub(crate) fn take_missed(&self) -> u64 {
        match self {
            Io::Packet { input, .. } => {
                let stats = sys::option::<libc::tpacket_stats>(input, libc::SOL_PACKET, libc::PACKET_STATISTICS);
                stats.map_or(0, |stats| u64::from(stats.tp_drops))
            }
            Io::Tap(_) => 0,
        }
    }
}

/// Opens all queues of a TAP interface, which is created if it does not exist.
pub(crate) fn open_tap(interface: &str, queues: u16) -> io::Result<Vec<Arc<Io>>> {
    (0..queues).map(|_| Ok(Arc::new(Io::Tap(Arc::new(sys::open_tap(interface, queues > 1)?))))).collect()
}

/// The sockets of all queues of a port, with their rings, not yet bound to an interface, so that they receive nothing.
/// Creating them is slow; binding them is not.
pub struct Sockets {
    frame_bytes: usize,
    queues: Vec<(OwnedFd, Ring, OwnedFd)>,
}

impl Sockets {
    /// Creates the sockets for an interface with this MTU in bytes.
    pub(crate) fn new(mtu: u32, queues: u16) -> io::Result<Sockets> {
        let frame_bytes = frame_bytes(mtu);
        let queues = (0..queues).map(|_| {
            let input = socket()?;
            sys::set_option(&input, libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
            sys::set_option(&input, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
            // Optional: kernels before 4.20 also deliver what they send.
            let _ = sys::set_option(&input, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
            let ring = Ring::new(&input, frame_bytes)?;
            Ok((input, ring, socket()?))
        });
        Ok(Sockets { frame_bytes, queues: queues.collect::<io::Result<_>>()? })
    }

    /// Whether the sockets fit an interface with this MTU, and this number of queues.
    pub(crate) fn fit(&self, mtu: u32, queues: u16) -> bool {
        self.frame_bytes == frame_bytes(mtu) && self.queues.len() == usize::from(queues)
    }

    /// Binds the sockets to the interface with this index.
    pub(crate) fn bind(self, index: u32) -> io::Result<Vec<Arc<Io>>> {
        let mut group = 0;
        let mut all = Vec::new();
        let several = self.queues.len() > 1;
        for (number, (input, ring, output)) in self.queues.into_iter().enumerate() {
            sys::bind_packet(&input, index, sys::ETH_P_ALL)?;
            // Promiscuous mode: a switch receives every packet. Interfaces
            // without link-layer addresses do not support it.
            let all_packets = libc::packet_mreq {
                mr_ifindex: index as i32,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            let _ = sys::set_option(&input, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, all_packets);
            if several {
                join(&input, number == 0, &mut group)?;
            }
            sys::bind_packet(&output, index, 0)?;
            for socket in [&input, &output] {
                // Clears the error that binding has left if the interface is down.
                sys::take_error(socket);
            }
            all.push(Arc::new(Io::Packet { input: Arc::new(input), ring, output }));
        }
        Ok(all)
    }
}

fn frame_bytes(mtu: u32) -> usize {
    mtu as usize + LINK_HEADER_BYTES
}

fn socket() -> io::Result<OwnedFd> {
    let socket = sys::packet_socket()?;
    sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    // Exceeding the system's limit needs CAP_NET_ADMIN; otherwise less must do. The send buffer keeps the system's
    // default: what it holds waits in the interface's queueing discipline, not in a queue of ours.
    if sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES).is_err() {
        let _ = sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES);
    }
    Ok(socket)
}

/// Joins the fanout group. For its first member, the kernel chooses an unused group id.
fn join(socket: &OwnedFd, is_first: bool, group: &mut i32) -> io::Result<()> {
    let mut flags = (libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING) as i32;
    if is_first {
        flags |= libc::PACKET_FANOUT_FLAG_UNIQUEID as i32;
    }
    sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, *group | flags << 16)?;
    if is_first {
        *group = sys::option::<i32>(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)? & 0xffff;
    }
    Ok(())
}
