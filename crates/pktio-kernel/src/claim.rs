//! Ensures that an interface is a port only once per network namespace: two switches on one
//! interface would each forward every packet.
//!
//! A claim is a Unix socket in the abstract namespace, whose name contains the interface's index. The kernel keeps such
//! names per network namespace, as it does indices; so this also works between containers that share a network
//! namespace and no folder. A claim ends with its process. If the name is taken, we connect to it, and `SO_PEERCRED`
//! tells its owner. Nobody accepts these connections: the kernel queues some, and when the queue is full the owner
//! cannot be named. So the connection attempt must not block.
//!
//! Processes that do not use claims, such as `tcpdump`, are not kept out and can read a port's packets.

use pktio::Error;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// A claim on an interface, released on drop.
#[derive(Debug)]
pub(crate) struct Claim {
    _listener: UnixListener,
}

impl Claim {
    /// Claims the interface of this index for the port `device`.
    ///
    /// # Errors
    /// Another port has claimed it, or a system call failed.
    pub(crate) fn new(device: &str, interface: &str, index: u32) -> Result<Claim, Error> {
        let fail = |reason: String| Error::Device { device: device.to_owned(), reason };
        let name = format!("sluice/port/{index}");
        let address = SocketAddr::from_abstract_name(&name)
            .map_err(|error| fail(format!("its interface cannot be claimed: {error}")))?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Claim { _listener: listener }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                Err(fail(format!("interface `{interface}` is a port of {} already", owner(&name))))
            }
            Err(error) => Err(fail(format!("its interface cannot be claimed: {error}"))),
        }
    }
}

/// Connects to the owner of a name; fails if its queue of connections is full.
fn reach(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Names the owner of the claim, for a message.
fn owner(name: &str) -> String {
    let credentials = reach(name).and_then(socket_peercred).ok();
    let Some(pid) = credentials.map(|credentials| credentials.pid.as_raw_nonzero().get()) else {
        return "another process".to_owned();
    };
    if u32::try_from(pid) == Ok(std::process::id()) {
        return "this switch".to_owned();
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a port that waits for an interface of another process tries twice a second; when the owner's queue
    /// of connections was full, the attempt blocked for ever, and with it the thread that follows all interfaces.
    #[test]
    fn an_owner_with_a_full_queue_is_not_named_and_keeps_nobody_waiting() {
        let index = 4_000_000_000;
        let _claim = Claim::new("first", "interface", index).expect("nobody has it");
        let refused = |index| Claim::new("second", "interface", index).expect_err("it is taken").to_string();
        assert!(refused(index).contains("this switch already"), "{}", refused(index));
        let waiting: Vec<OwnedFd> = std::iter::from_fn(|| reach(&format!("sluice/port/{index}")).ok()).collect();
        assert!(!waiting.is_empty());
        assert!(refused(index).contains("another process already"), "{}", refused(index));
    }
}
