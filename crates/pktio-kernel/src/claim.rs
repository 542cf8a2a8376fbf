//! An interface is a port once per network namespace: two switches on one interface would each forward every packet.
//!
//! A claim is a Unix socket in the abstract namespace, whose name has the interface's index. The kernel keeps such names per
//! network namespace, as it keeps indices, also where containers share one and no folder; a claim ends with its process.
//! Whoever finds the name taken connects, and learns from `SO_PEERCRED` who has it. Nobody accepts these connections: the
//! kernel keeps a few waiting, and when they are too many, the owner is not named any more.
//!
//! What it does not do: keep out processes that do not ask, such as `tcpdump`, which may look at the packets of a port.

use pktio::Error;
use rustix::net::sockopt::socket_peercred;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// A claim, ended on drop.
#[derive(Debug)]
pub(crate) struct Claim {
    _listener: UnixListener,
}

impl Claim {
    /// Claims the interface of this index for the port `device`.
    pub(crate) fn new(device: &str, interface: &str, index: u32) -> Result<Claim, Error> {
        let fail = |reason: String| Error::Device { device: device.to_owned(), reason };
        let address = SocketAddr::from_abstract_name(format!("sluice/port/{index}"))
            .map_err(|error| fail(format!("its interface cannot be claimed: {error}")))?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Claim { _listener: listener }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                Err(fail(format!("interface `{interface}` is a port of {} already", owner(&address))))
            }
            Err(error) => Err(fail(format!("its interface cannot be claimed: {error}"))),
        }
    }
}

/// Who has the claim, for a message.
fn owner(address: &SocketAddr) -> String {
    let credentials = UnixStream::connect_addr(address).ok().and_then(|stream| socket_peercred(&stream).ok());
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
