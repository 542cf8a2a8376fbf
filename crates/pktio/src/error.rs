//! Errors of opening and configuring ports. Each has a remedy for the user ([`Error::remedy`]).

use crate::spec::SpecError;
use std::path::PathBuf;

/// A port could not be opened or configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The port's description is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel has no interface of this name.
    #[error("there is no network interface `{interface}`")]
    NoSuchInterface {
        /// Name of the interface.
        interface: String,
    },
    /// The process lacks a permission that the device needs.
    #[error("no permission to open `{device}`: {capability} is missing")]
    Permission {
        /// The device.
        device: String,
        /// The Linux capability that is missing, e.g. `CAP_NET_RAW`.
        capability: &'static str,
    },
    /// The device needs hugepages, and none are free.
    #[error("`{device}` needs hugepages and none are free")]
    NoHugepages {
        /// The device.
        device: String,
    },
    /// A Unix socket could not be created or connected.
    #[error("socket `{}`: {reason}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("file `{}`: {reason}", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// The message of the system or the file format.
        reason: String,
    },
    /// The device failed for another reason.
    #[error("device `{device}`: {reason}")]
    Device {
        /// The device.
        device: String,
        /// What failed and why.
        reason: String,
    },
    /// This function cannot open devices of this kind.
    #[error("device `{device}` is not available here: {reason}")]
    Unsupported {
        /// The device.
        device: String,
        /// Why.
        reason: &'static str,
    },
}

impl Error {
    /// What the user can do about it, in one sentence; `None` if the message is enough.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Error::Spec(spec) => Some(spec.help()),
            Error::NoSuchInterface { interface } => {
                Some(format!("`ip link` lists the interfaces; `ip link add {interface} type veth` makes a pair"))
            }
            Error::Permission { capability, .. } => {
                let lower = capability.to_lowercase();
                Some(format!("run as root, or give the program the capability: `setcap {lower}+ep PROGRAM`"))
            }
            Error::NoHugepages { .. } => Some(
                "`echo 256 > /proc/sys/vm/nr_hugepages` reserves 512 MB; `free` and /proc/meminfo show what there is"
                    .to_owned(),
            ),
            Error::Socket { path, .. } => Some(match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
                    format!("make the folder first: `mkdir -p {}`", folder.display())
                }
                _ => "a socket path is at most 107 bytes long and its folder must be writable; \
                      remove a stale socket that no process listens on"
                    .to_owned(),
            }),
            Error::File { .. } | Error::Device { .. } | Error::Unsupported { .. } => None,
        }
    }
}
