//! A front end's socket, read without waiting: a message that comes in pieces is collected over as many calls as it takes, in
//! a buffer of one message.
//!
//! Files that come with a message are taken from its first byte on, as senders attach them; more than a message may have
//! end the connection. They and the socket are closed elsewhere, since that may wait ([`PeerFile`]). Threads: the port's service thread. Tests: below, `tests/hostile.rs`.

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
    /// How many of these have come.
    filled: usize,
    /// Files of the message that is being read.
    files: Vec<PeerFile>,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The front end has closed it.
    Closed,
    /// It broke off in a message.
    Torn,
    Bad(BadMessage),
    TooManyFiles,
    /// It has asked for what cannot be; in words.
    Refused(String),
    /// It does not read our replies.
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

    /// What to wait for.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next whole message with its files; `None` if the rest of it has not come yet.
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

    /// Reads until `wanted` bytes are there, or as many as have come; whether some have.
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

    /// Sends a reply, which is far shorter than a socket's buffer: one that does not fit means that nobody reads.
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
        // The front end sees the end at once. An error is that it has gone itself.
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
