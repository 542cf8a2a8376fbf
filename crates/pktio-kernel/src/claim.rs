//! Ensures that an interface is a port only once per network namespace: two switches on one
//! interface would each forward every packet.
//!
//! A claim is a Unix socket in the abstract namespace, whose name contains the interface's index. The kernel keeps such
//! names per network namespace, as it does indices; so this also works between containers that share a network
//! namespace and no folder. A claim ends with its process. If the name is taken, we connect to it, and `SO_PEERCRED`
//! tells its owner. Nobody accepts these connections: the kernel queues some, and when the queue is full the owner
//! cannot be named. So the connection attempt must not block.
//!
//! A process that was killed ends only when none of its threads is in the kernel, and until then its names are taken:
//! another process's memory may hold a thread there for as long as it likes. So an interface has several names, and
//! those of a process that is ending do not count.
//!
//! Processes that do not use claims, such as `tcpdump`, are not kept out and can read a port's packets.

use pktio::Error;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fmt;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Names of an interface: one more than processes that can be ending at a time.
const NAMES: u32 = 8;

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
        let taken = |owner: &str| fail(format!("interface `{interface}` is a port of {owner} already"));
        for number in 0..NAMES {
            let address = SocketAddr::from_abstract_name(name(index, number))
                .map_err(|error| fail(format!("its interface cannot be claimed: {error}")))?;
            match UnixListener::bind_addr(&address) {
                Ok(listener) => {
                    // Another process may have another name, taken when this one's owner was ending.
                    let others = (0..NAMES).filter(|other| *other != number);
                    let owner = others.filter_map(|other| Owner::of(&name(index, other))).find(|o| !o.is_ending());
                    return owner.map_or(Ok(Claim { _listener: listener }), |owner| Err(taken(&owner.to_string())));
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    let owner = Owner::of(&name(index, number)).unwrap_or(Owner(None));
                    if !owner.is_ending() {
                        return Err(taken(&owner.to_string()));
                    }
                }
                Err(error) => return Err(fail(format!("its interface cannot be claimed: {error}"))),
            }
        }
        Err(taken("processes that are ending"))
    }
}

/// One of the names of an interface.
fn name(index: u32, number: u32) -> String {
    if number == 0 { format!("sluice/port/{index}") } else { format!("sluice/port/{index}/{number}") }
}

/// Connects to the owner of a name; fails if its queue of connections is full.
fn reach(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// The process that owns a name; `None` if it cannot be told.
struct Owner(Option<u32>);

impl Owner {
    /// The owner of a name; `None` if nobody has it.
    fn of(name: &str) -> Option<Owner> {
        match reach(name) {
            Ok(socket) => {
                let pid = socket_peercred(socket).ok().map(|credentials| credentials.pid.as_raw_nonzero().get());
                Some(Owner(pid.and_then(|pid| u32::try_from(pid).ok())))
            }
            Err(Errno::CONNREFUSED) => None,
            Err(_) => Some(Owner(None)),
        }
    }

    /// Whether the process was killed, so that it will never run again.
    fn is_ending(&self) -> bool {
        let Some(pid) = self.0 else { return false };
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
        let statuses = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("status")));
        // A thread that has just ended has no status.
        are_ending(statuses.flatten())
    }
}

/// Whether all threads with these contents of `status` have ended or are to be killed. A process of which only the main
/// thread has ended goes on.
fn are_ending(statuses: impl IntoIterator<Item = String>) -> bool {
    const KILL: u64 = 1 << (9 - 1);
    let mut count = 0;
    let mut all = statuses.into_iter().inspect(|_| count += 1).map(|status| {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let is_killed = |name| u64::from_str_radix(field(name), 16).is_ok_and(|pending| pending & KILL != 0);
        field("State:").starts_with(['Z', 'X']) || is_killed("SigPnd:") || is_killed("ShdPnd:")
    });
    all.all(|ends| ends) && count > 0
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.0 else { return f.write_str("another process") };
        if pid == std::process::id() {
            return f.write_str("this switch");
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match name.trim() {
            "" => write!(f, "process {pid}"),
            name => write!(f, "process {pid} ({name})"),
        }
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

    #[test]
    fn a_process_is_ending_when_none_of_its_threads_will_run_again() {
        let status = |state: &str, own: &str, shared: &str| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0000000000000100\n")
        };
        let (none, kill) = ("0000000000000000", "0000000000000100");
        let ended = status("Z (zombie)", none, none);
        let (held, runs) = (status("D (disk sleep)", kill, none), status("D (disk sleep)", none, none));
        assert!(are_ending([ended.clone(), held.clone()]));
        assert!(are_ending([status("D (disk sleep)", none, kill)]));
        assert!(!are_ending([ended.clone(), held, runs]), "a thread goes on");
        assert!(!are_ending([ended, status("S (sleeping)", "0000000000004000", none)]), "SIGTERM may be handled");
        assert!(!are_ending([]));
        assert!(!Owner(Some(std::process::id())).is_ending() && !Owner(None).is_ending());
    }

    #[test]
    fn all_names_of_an_interface_count() {
        let index = 4_000_000_001;
        let address = SocketAddr::from_abstract_name(name(index, 3)).expect("it is short");
        let other = UnixListener::bind_addr(&address).expect("nobody has it");
        let refused = Claim::new("first", "interface", index).expect_err("it is taken").to_string();
        assert!(refused.contains("this switch already"), "{refused}");
        drop(other);
        Claim::new("first", "interface", index).expect("all names are free");
    }
}
