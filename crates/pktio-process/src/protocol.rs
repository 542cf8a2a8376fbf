//! The messages between the switch and a port's process, over a socket that only they have (SOCK_SEQPACKET).
//!
//! ```text
//!  switch                               process
//!    Start + memory, eventfds  ───────▶   maps the memory
//!                              ◀───────  Mapped
//!    seals the memory: Go      ───────▶   gives up its rights, opens the port
//!                              ◀───────  Opened, or Failed and the end
//!                              ◀───────  Admit + file, End, Log: at any time, also before Opened
//!    Answer                    ───────▶
//! ```
//!
//! Messages are these types in postcard's encoding; both ends are the same executable, so there are no versions. The
//! switch trusts no message of a process: another thread closes the files that come with it ([`PeerFile`]), lengths and
//! numbers are bounded, text is cut and escaped ([`clean`]), and a process that sends a message out of turn is ended.
//!
//! Threads: any; nothing blocks. Tests: below; `src/tests.rs`.

use crate::text::clean;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared_memory::{Closer, FILES_MAX, NotAdmitted, PeerFile, Place, Shortage};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum bytes of a message.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// The process's end of the socket, as its threads share it.
pub(crate) type Control = Arc<OwnedFd>;

/// What port the process is to open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The device as the command line has it: also its name in messages.
    pub spec: String,
    /// The socket's path from the root.
    pub path: PathBuf,
    pub queues: u16,
    pub descriptors: u16,
    pub mtu: Option<u16>,
    pub memory_mb: u32,
}

/// From the switch to the process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToProcess {
    /// With the memory, and two eventfds for each queue: the process's, the worker's.
    Start(Start),
    /// The memory is sealed.
    Go,
    /// To `Admit`: the region's number.
    Answer(Result<u64, Refused>),
}

/// From the process to the switch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSwitch {
    Mapped,
    Opened,
    Failed(Failure),
    /// With the file: `bytes` bytes from `offset` shall be mapped.
    Admit {
        offset: u64,
        bytes: u64,
    },
    /// The region of this number is no longer mapped.
    End(u64),
    Log(Line),
}

/// Why a port cannot be opened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    Socket { reason: String },
    Device { reason: String },
}

impl Failure {
    pub(crate) fn of(error: pktio::Error) -> Failure {
        match error {
            pktio::Error::Socket { reason, .. } => Failure::Socket { reason },
            pktio::Error::Device { reason, .. } => Failure::Device { reason },
            other => Failure::Device { reason: other.to_string() },
        }
    }

    /// The error in the switch. Which port and path it is about, the switch knows better.
    pub(crate) fn into_error(self, start: &Start) -> pktio::Error {
        match self {
            Failure::Socket { reason } => pktio::Error::Socket { path: start.path.clone(), reason: clean(&reason) },
            Failure::Device { reason } => pktio::Error::Device { device: start.spec.clone(), reason: clean(&reason) },
        }
    }
}

/// Why a region is not admitted ([`NotAdmitted`]).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refused {
    NoRoom { group: Option<String>, left: u64, bytes: u64, others: u64, former: u64, reserve: u64 },
    NotMemory,
    TooMany(usize),
    BeyondFile { end: u64, file: u64 },
    TooMuch(u64),
    Other(String),
}

impl Refused {
    pub(crate) fn of(reason: NotAdmitted) -> Refused {
        let shortage = match reason {
            NotAdmitted::NoRoom(shortage) => shortage,
            NotAdmitted::NotMemory => return Refused::NotMemory,
            NotAdmitted::TooMany(most) => return Refused::TooMany(most),
            NotAdmitted::BeyondFile { end, file } => return Refused::BeyondFile { end, file },
            NotAdmitted::TooMuch(most) => return Refused::TooMuch(most),
            NotAdmitted::NoAnswer(error) => return Refused::Other(error.to_string()),
        };
        let Shortage { place, left, bytes, others, former, reserve } = shortage;
        let group = match place {
            Place::Group(name) => Some(name),
            Place::Host => None,
        };
        Refused::NoRoom { group, left, bytes, others, former, reserve }
    }

    pub(crate) fn into_reason(self) -> NotAdmitted {
        match self {
            Refused::NoRoom { group, left, bytes, others, former, reserve } => {
                let place = group.map_or(Place::Host, Place::Group);
                NotAdmitted::NoRoom(Shortage { place, left, bytes, others, former, reserve })
            }
            Refused::NotMemory => NotAdmitted::NotMemory,
            Refused::TooMany(most) => NotAdmitted::TooMany(most),
            Refused::BeyondFile { end, file } => NotAdmitted::BeyondFile { end, file },
            Refused::TooMuch(most) => NotAdmitted::TooMuch(most),
            Refused::Other(reason) => NotAdmitted::NoAnswer(io::Error::other(reason)),
        }
    }
}

/// A line for the switch's log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// From 0, an error, to 4, a trace.
    pub level: u8,
    pub target: String,
    pub text: String,
    pub port: Option<String>,
    pub queue: Option<u64>,
}

/// Sends a message with files.
///
/// # Errors
/// The other end is gone or reads nothing, or the message is too long.
pub(crate) fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if bytes.len() > MESSAGE_BYTES_MAX || files.len() > FILES_MAX {
        return Err(io::Error::other("the message is too long"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// What was received.
#[derive(Debug)]
pub(crate) enum Received<T> {
    Message(T, Vec<PeerFile>),
    Nothing,
    /// The other end is gone.
    End,
    /// It is no message.
    Wrong,
}

/// Receives a message, if there is one.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd, closer: &Closer) -> Received<T> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags);
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received.map(|file| PeerFile::new(file, closer)));
        }
    }
    match result {
        Ok(received) if received.bytes == 0 => Received::End,
        Ok(received) if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) => Received::Wrong,
        Ok(received) => match postcard::from_bytes(&bytes[..received.bytes]) {
            Ok(message) => Received::Message(message, files),
            Err(_) => Received::Wrong,
        },
        Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socketpair};

    #[test]
    fn messages_arrive_whole_with_their_files_and_nonsense_is_told() {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets");
        let closer = Closer::default();
        assert!(matches!(receive::<ToSwitch>(&b, &closer), Received::Nothing));
        let shortage =
            Shortage { place: Place::Group("/g".into()), left: 1, bytes: 2, others: 3, former: 4, reserve: 5 };
        let refused = Refused::of(NotAdmitted::NoRoom(shortage.clone()));
        let null = std::fs::File::open("/dev/null").expect("it is there");
        send(&a, &ToProcess::Answer(Err(refused)), &[null.as_fd(), null.as_fd()]).expect("it is short");
        match receive::<ToProcess>(&b, &closer) {
            Received::Message(ToProcess::Answer(Err(refused)), files) => {
                assert_eq!(files.len(), 2);
                assert!(matches!(refused.into_reason(), NotAdmitted::NoRoom(back) if back == shortage));
            }
            other => panic!("{other:?}"),
        }
        let text = "x".repeat(MESSAGE_BYTES_MAX);
        let line = Line { level: 1, target: String::new(), text, port: None, queue: None };
        assert!(send(&a, &ToSwitch::Log(line), &[]).is_err(), "too long");
        for nonsense in [&[200u8, 1, 2][..], &vec![7; MESSAGE_BYTES_MAX + 1]] {
            rustix::net::send(&a, nonsense, SendFlags::empty()).expect("the socket is open");
            assert!(matches!(receive::<ToSwitch>(&b, &closer), Received::Wrong));
        }
        // Closing it would not do: a process that another test starts has a copy until its `exec`.
        rustix::net::shutdown(&a, Shutdown::Both).expect("it is connected");
        assert!(matches!(receive::<ToSwitch>(&b, &closer), Received::End));
    }
}
