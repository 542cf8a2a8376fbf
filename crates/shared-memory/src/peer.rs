//! Who is at the other end of a Unix socket (`SO_PEERCRED`, unix(7)): the process that has connected, as it was then.
//!
//! rustix has this too, as a type whose process id is never 0; the kernel gives 0 for a process outside of our namespace.
//! Threads: any. Tests: below.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// A process, as far as it can be told. Processes of other namespaces, in which they have no id here, are told apart by
/// their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    process: i32,
    user: u32,
}

impl Peer {
    /// The one that has connected this socket.
    pub fn of(socket: impl AsFd) -> Option<Peer> {
        let mut about = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let at = (&raw mut about).cast();
        // SAFETY: the kernel writes at most `len` bytes to a structure of integers that lives during the call.
        let result =
            unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at, &mut len) };
        (result == 0).then_some(Peer { process: about.pid, user: about.uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_is_this_process() {
        let (a, b) = UnixStream::pair().expect("sockets");
        let peer = Peer::of(&a).expect("it is connected");
        assert_eq!((peer.process as u32, Some(peer)), (std::process::id(), Peer::of(&b)));
        assert_eq!(Peer::of(std::fs::File::open("/dev/null").expect("it is there")), None);
    }
}
