//! An interface is a port once per network namespace: two switches on one interface would each forward every packet.
//!
//! A claim is a Unix socket in the abstract namespace, whose name has the interface's index. The kernel keeps such names per
//! network namespace, as it keeps indices, also where containers share one and no folder; a claim ends with its process.
//! Whoever finds the name taken connects, and learns from `SO_PEERCRED` who has it. Nobody accepts these connections: the
//! kernel keeps some waiting, and when they are too many, the owner is not named any more. So connecting must not wait.
//!
//! What it does not do: keep out processes that do not ask, such as `tcpdump`, which may look at the packets of a port.

use pktio::Error;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// A claim, ended on drop.
#[derive(Debug)]
pub(crate) struct Claim {
    _listener: UnixListener,
}

impl Claim {
    /// Claims the interface of this index for the port `device`.
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

/// A connection to the owner of a name, if there is still room for one.
fn reach(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Who has the claim, for a message.
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

    /// The finding: who waits for an interface that another process has asks twice a second; when the owner's queue of
    /// connections was full, the question waited for ever, and with it the thread that follows all interfaces.
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
