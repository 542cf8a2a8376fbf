//! A front end's socket, read without blocking. A message that arrives in pieces is assembled over several calls, in a
//! buffer that holds one message.
//!
//! File descriptors are accepted with any byte of a message, since senders attach them to its first bytes. More of them
//! than a message may carry end the connection. They and the socket are closed on another thread, because `close` may
//! block ([`PeerFile`]). Threads: the port's service thread. Tests: below, `tests/hostile.rs`.

use crate::message::{self, BadMessage, HEADER_BYTES, Message, PAYLOAD_MAX, REGIONS_MAX};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown};
use shared_memory::{Closer, FILES_MAX, PeerFile};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

pub(crate) struct Connection {
    socket: PeerFile,
    closer: Closer,
    bytes: Box<[u8; HEADER_BYTES + PAYLOAD_MAX]>,
    /// Bytes of `bytes` that have been received.
    filled: usize,
    /// Files received with the message that is being read.
    files: Vec<PeerFile>,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The front end has closed it.
    Closed,
    /// The front end closed the connection within a message.
    Torn,
    Bad(BadMessage),
    TooManyFiles,
    /// An invalid request, described in words.
    Refused(String),
    /// The front end does not read our replies.
    NotRead,
    System(io::Error),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Closed => f.write_str("the front end has closed it"),
            Ended::Torn => f.write_str("it ended within a message"),
            Ended::Bad(bad) => write!(f, "{bad}"),
            Ended::TooManyFiles => write!(f, "a message with more than {REGIONS_MAX} files"),
            Ended::Refused(what) => f.write_str(what),
            Ended::NotRead => f.write_str("the front end does not read replies"),
            Ended::System(error) => write!(f, "{error}"),
        }
    }
}

impl Connection {
    pub(crate) fn new(socket: UnixStream, closer: &Closer) -> io::Result<Connection> {
        let result = socket.set_nonblocking(true);
        let (socket, closer) = (PeerFile::new(socket, closer), closer.clone());
        result?;
        let bytes = Box::new([0; HEADER_BYTES + PAYLOAD_MAX]);
        Ok(Connection { socket, closer, bytes, filled: 0, files: Vec::new() })
    }

    /// The descriptor to poll for readability.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the next complete message with its files, or `None` if it has not arrived completely.
    ///
    /// # Errors
    /// The connection has ended or must be ended: closed by the peer, an invalid
    /// message, too many files, a system error.
    pub(crate) fn receive(&mut self) -> Result<Option<(Message, Vec<PeerFile>)>, Ended> {
        loop {
            let wanted = match self.bytes.first_chunk() {
                Some(header) if self.filled >= HEADER_BYTES => {
                    HEADER_BYTES + message::payload_bytes(header).map_err(Ended::Bad)?
                }
                _ => HEADER_BYTES,
            };
            if self.filled >= HEADER_BYTES && self.filled == wanted {
                self.filled = 0;
                let files = std::mem::take(&mut self.files);
                let (header, rest) = self.bytes.split_first_chunk().ok_or(Ended::Torn)?;
                let message = message::parse(header, &rest[..wanted - HEADER_BYTES]).map_err(Ended::Bad)?;
                return Ok(Some((message, files)));
            }
            if !self.read_up_to(wanted)? {
                return Ok(None);
            }
        }
    }

    /// Reads up to `wanted` bytes, as far as they have arrived. Returns whether any were read.
    fn read_up_to(&mut self, wanted: usize) -> Result<bool, Ended> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut part = [IoSliceMut::new(&mut self.bytes[self.filled..wanted])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match rustix::net::recvmsg(&self.socket, &mut part, &mut control, flags) {
            Ok(got) => got,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(Ended::System(error.into())),
        };
        for ancillary in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = ancillary {
                self.files.extend(files.map(|file| PeerFile::new(file, &self.closer)));
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.files.len() > REGIONS_MAX {
            return Err(Ended::TooManyFiles);
        }
        if got.bytes == 0 {
            return Err(if self.filled == 0 { Ended::Closed } else { Ended::Torn });
        }
        self.filled += got.bytes;
        Ok(true)
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// [`Ended::NotRead`] if it does not fit into the socket's buffer: replies are
    /// far shorter, so the peer is not reading.
    pub(crate) fn send(&mut self, reply: &[u8]) -> Result<(), Ended> {
        match rustix::net::send(&self.socket, reply, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == reply.len() => Ok(()),
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Err(Ended::NotRead),
            Err(error) => Err(Ended::System(error.into())),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The front end sees the end at once. The call fails only if the front end has already gone.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Request;
    use std::io::Write;

    #[test]
    fn a_message_may_come_byte_by_byte() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(socket, &Closer::default()).unwrap();
        let mut bytes = Vec::new();
        for word in [8u32, 1, 8, 3, 256] {
            bytes.extend(word.to_ne_bytes());
        }
        for round in 0..2 {
            for (i, byte) in bytes.iter().enumerate() {
                assert!(matches!(connection.receive(), Ok(None)), "round {round}, byte {i}");
                peer.write_all(&[*byte]).unwrap();
            }
            let (message, files) = connection.receive().unwrap().expect("it is whole");
            assert_eq!((message.request, files.len()), (Request::SetRingSize { ring: 3, size: 256 }, 0));
        }
        peer.write_all(&bytes[..5]).unwrap();
        drop(peer);
        assert!(matches!(connection.receive(), Err(Ended::Torn)));
    }

    #[test]
    fn who_does_not_read_replies_is_left() {
        let (_peer, socket) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(socket, &Closer::default()).unwrap();
        let ended = (0..1_000_000).find_map(|_| connection.send(&[0; 20]).err());
        assert!(matches!(ended, Some(Ended::NotRead)), "{ended:?}");
    }
}
