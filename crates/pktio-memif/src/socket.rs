//! The control channel: SOCK_SEQPACKET Unix sockets, which deliver whole messages or none.
//!
//! Nothing here blocks. A peer that sends a message of the wrong size, or does not read ours, loses its connection.
//! File descriptors beyond the first, and those with a message that carries none, are closed on another thread, because
//! `close` may block ([`PeerFile`]).
//!
//! Threads: the service thread's (`service`). Tests: `tests/hostile.rs`.

use crate::wire::{MESSAGE_BYTES, Message};
use pktio::Error;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg,
    socket_with,
};
use shared_memory::{Closer, FILES_MAX, PeerFile};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Length of the listener's backlog, in connections.
const BACKLOG: i32 = 16;

/// The result of reading a message.
pub(crate) enum Received {
    /// A message with its file descriptor.
    Message(Message, Option<PeerFile>),
    /// No message has arrived.
    Nothing,
    /// The peer has closed its end.
    End,
    /// The peer does not follow the protocol.
    Wrong(&'static str),
}

/// Creates a socket of the control channel's type.
fn new_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

/// Connects to a server's socket, without waiting.
///
/// # Errors
/// Nobody listens at the path, or the listener's backlog is full.
pub(crate) fn connect_to(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Accepts the next connection of a listening socket; `None` if none is waiting.
pub(crate) fn accept(listener: impl AsFd, closer: &Closer) -> Result<Option<PeerFile>, Errno> {
    match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(socket) => Ok(Some(PeerFile::new(socket, closer))),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends a message, with a file descriptor if one is given.
///
/// # Errors
/// The peer's receive buffer is full, or the connection is closed.
pub(crate) fn send(socket: impl AsFd, message: &Message, file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file]);
    if let Some(files) = &files {
        beside.push(SendAncillaryMessage::ScmRights(files));
    }
    let bytes = message.encode();
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Reads the next message.
pub(crate) fn receive(socket: impl AsFd, closer: &Closer) -> Received {
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags);
    let mut file = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            // Further files are closed when they are dropped.
            let files = files.map(|file| PeerFile::new(file, closer));
            file = files.reduce(|first, _| first).or(file);
        }
    }
    match result {
        Ok(received) if received.bytes == MESSAGE_BYTES => {
            let bytes = std::array::from_fn(|i| bytes[i]);
            match Message::decode(&bytes) {
                Some(message) => Received::Message(message, file),
                None => Received::Wrong("it sent a message of an unknown type"),
            }
        }
        Ok(received) if received.bytes == 0 => Received::End,
        Ok(_) => Received::Wrong("it sent a message of another size than 128 bytes"),
        Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}

/// A listening socket and its file, which is removed when this is dropped.
pub(crate) struct Listening {
    pub socket: PeerFile,
    path: PathBuf,
    /// Device and inode number of the file.
    file: Option<(u64, u64)>,
}

impl Listening {
    /// Listens at a path, replacing a stale socket that nobody listens on.
    ///
    /// # Errors
    /// Another process listens there, the path holds another file, or the socket cannot be created.
    pub(crate) fn new(path: &Path, closer: &Closer) -> Result<Listening, Error> {
        let fail = |reason: String| Error::Socket { path: path.to_owned(), reason };
        make_room(path)?;
        let address = SocketAddrUnix::new(path).map_err(|error| fail(error.to_string()))?;
        let socket = new_socket().map_err(|error| fail(error.to_string()))?;
        bind(&socket, &address).map_err(|error| match error {
            Errno::ACCESS => {
                let folder = path.parent().map_or_else(String::new, |folder| folder.display().to_string());
                fail(format!("this user may not write into the folder `{folder}`"))
            }
            other => fail(other.to_string()),
        })?;
        let file = std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let listening = Listening { socket: PeerFile::new(socket, closer), path: path.to_owned(), file };
        listen(&listening.socket, BACKLOG).map_err(|error| fail(error.to_string()))?;
        Ok(listening)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        // Another process may have replaced the file with its own socket.
        if now == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody listens on; refuses any other existing file.
fn make_room(path: &Path) -> Result<(), Error> {
    let fail = |reason: &str| Err(Error::Socket { path: path.to_owned(), reason: reason.to_owned() });
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => fail(&error.to_string()),
        Ok(metadata) if !metadata.file_type().is_socket() => fail("a file that is no socket is in its place"),
        Ok(_) => match connect_to(path) {
            Err(Errno::CONNREFUSED) => {
                std::fs::remove_file(path).or_else(|error| fail(&format!("a stale socket cannot be removed: {error}")))
            }
            // EAGAIN: a listener whose backlog is full. EPROTOTYPE: a listener of another socket type.
            Ok(_) | Err(Errno::AGAIN | Errno::PROTOTYPE) => fail("another process listens on it"),
            Err(error) => fail(&error.to_string()),
        },
    }
}

/// Makes the path absolute.
///
/// # Errors
/// The path is not a file, or its folder does not exist.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Error> {
    let fail = |reason: String| Error::Socket { path: path.to_owned(), reason };
    let absolute = std::path::absolute(path).map_err(|error| fail(error.to_string()))?;
    match absolute.parent() {
        Some(folder) if folder.is_dir() => Ok(absolute),
        Some(folder) => Err(fail(format!("there is no folder `{}`", folder.display()))),
        None => Err(fail("it is not a file".into())),
    }
}
