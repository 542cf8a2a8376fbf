//! Byte streams of OpenFlow connections: non-blocking sockets, and TLS over TCP.

use super::admission::HANDSHAKE_MAX;
use grpc::tls::peers::{Connection, PeerTls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// The most bytes that TLS buffers for the socket.
const WAITING_MAX: usize = 256 << 10;

/// Data buffered between the connection and its socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pending {
    /// There is input although the socket may have none.
    pub input: bool,
    /// There is output that the socket has not accepted.
    pub output: bool,
}

/// The byte stream of a connection.
pub trait Stream: Read + Write + AsFd + Send {
    /// Performs the handshake that precedes the first byte. Blocks, but not once `stops` returns true.
    ///
    /// # Errors
    /// If the handshake fails, takes too long or is stopped.
    fn begin(&mut self, _stops: &dyn Fn() -> bool) -> std::io::Result<()> {
        Ok(())
    }

    /// Returns which data is buffered.
    fn pending(&self) -> Pending {
        Pending::default()
    }
}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// TLS over TCP.
pub struct Tls {
    socket: TcpStream,
    tls: Connection,
    config: Arc<PeerTls>,
    /// The peer has closed its side, with or without `close_notify`.
    is_cut: bool,
    /// The last read filled its buffer, so there may be more.
    has_more: bool,
}

impl Tls {
    /// Returns a stream over a non-blocking socket.
    pub fn new(socket: TcpStream, mut tls: Connection, config: Arc<PeerTls>) -> Tls {
        tls.set_buffer_limit(Some(WAITING_MAX));
        Tls { socket, tls, config, is_cut: false, has_more: false }
    }

    /// Reads from the socket; returns whether there was data or the end.
    fn receive(&mut self) -> std::io::Result<bool> {
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => {
                self.is_cut = true;
                Ok(true)
            }
            Ok(_) => {
                let done = self.tls.process_new_packets();
                // After an error this sends the TLS alert.
                let sent = self.send();
                done.map_err(|error| std::io::Error::other(self.config.explain(&error)))?;
                sent.map(|()| true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes buffered output until the socket accepts no more.
    fn send(&mut self) -> std::io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for Tls {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut taken = 0;
        while taken < buffer.len() {
            match self.tls.reader().read(&mut buffer[taken..]) {
                Ok(0) => break,
                Ok(bytes) => taken += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.is_cut || !self.receive()? {
                        if taken == 0 && !self.is_cut {
                            return Err(ErrorKind::WouldBlock.into());
                        }
                        break;
                    }
                }
                // The end without `close_notify`, as after a crash; earlier data has been read.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        self.has_more = taken == buffer.len();
        Ok(taken)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.send()?;
        if taken == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.send()
    }
}

impl AsFd for Tls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Stream for Tls {
    fn begin(&mut self, stops: &dyn Fn() -> bool) -> std::io::Result<()> {
        let begin = Instant::now();
        self.send()?;
        while self.tls.is_handshaking() {
            if stops() || begin.elapsed() > HANDSHAKE_MAX {
                return Err(std::io::Error::new(ErrorKind::TimedOut, "the TLS handshake takes too long"));
            }
            let mut events = PollFlags::IN;
            events.set(PollFlags::OUT, self.tls.wants_write());
            let time = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), events)], Some(&time));
            self.receive()?;
            if self.is_cut {
                return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "it has closed during the TLS handshake"));
            }
            self.send()?;
        }
        Ok(())
    }

    fn pending(&self) -> Pending {
        Pending { input: self.is_cut || self.has_more, output: self.tls.wants_write() }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.tls.send_close_notify();
        // If the socket accepts no more, the peer sees only its end.
        let _ = self.send();
    }
}
