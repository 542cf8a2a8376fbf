//! The process at the other end of a Unix socket (`SO_PEERCRED`, unix(7)), as of when it connected.
//!
//! rustix provides this too, but its process id type excludes 0, which the kernel reports for a process outside our
//! PID namespace.
//! Threads: any. Tests: below.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// Identity of a process. Processes of other PID namespaces have no id here and are distinguished only by their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    process: i32,
    user: u32,
}

impl Peer {
    /// The process that connected this socket; `None` if the kernel does not tell.
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
