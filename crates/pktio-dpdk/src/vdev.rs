//! A [`DeviceSpec`] as DPDK's driver name and arguments, and the checks that turn DPDK's "failed to probe" into errors
//! with a remedy: does the interface exist, may we open it, can the socket be made?
//!
//! Values cannot smuggle in further driver arguments: the port syntax refuses commas, equals signs and brackets.

use pktio::{DeviceSpec, Error, FRAME_HEADER_MAX, MTU_DEFAULT, PortOptions};
use pktio_kernel::Interface;
use std::ffi::{CString, c_char};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// "Protocol wrong type for socket", which has no name in `std`.
const EPROTOTYPE: i32 = 91;

/// How to make a DPDK port.
pub(crate) struct PortPlan {
    /// The driver's name and a number, or a card's address.
    pub name: CString,
    /// Arguments of a virtual device; `None` for a card, which the EAL has probed.
    pub arguments: Option<CString>,
    /// Whether what the driver calls errors on transmission are packets that it took and lost. Most drivers count what
    /// did not fit into their ring, which stays with the worker here.
    pub tx_errors_are_losses: bool,
    /// The kernel's interface behind the port.
    pub interface: Option<Interface>,
    /// The MTU unless the user says another, of devices whose drivers know none or a wrong one; `None` asks the driver.
    pub mtu: Option<u16>,
}

impl PortPlan {
    /// The virtual device's name for the shim; null for a card.
    pub(crate) fn vdev_name(&self) -> *const c_char {
        if self.arguments.is_some() { self.name.as_ptr() } else { std::ptr::null() }
    }
}

/// Plans the port for `spec`; `number` makes the name unique in the process.
pub(crate) fn plan(spec: &DeviceSpec, number: u32, options: &PortOptions) -> Result<PortPlan, Error> {
    let queues = options.queues.max(1);
    let mut claimed = None;
    let (driver, arguments) = match spec {
        DeviceSpec::Xdp { interface } => {
            check_xdp_mtu(spec, options.mtu)?;
            claimed = Some(claim(spec, interface, options)?);
            ("net_af_xdp", format!("iface={interface},start_queue=0,queue_count={queues}"))
        }
        DeviceSpec::Virtio { path, server } => {
            let path = socket_path(path)?;
            if *server {
                make_room_for_socket(&path)?;
            }
            let server = u8::from(*server);
            let rings = format!("queues={queues},queue_size={}", ring_size(options.descriptors, VIRTIO_RING_MAX));
            ("net_virtio_user", format!("path={},server={server},{rings}", path.display()))
        }
        DeviceSpec::Null => ("net_null", "size=64".to_owned()),
        DeviceSpec::Ring { .. } => ("net_ring", String::new()),
        DeviceSpec::Pci { address } => {
            return Ok(PortPlan {
                name: c_string(address.clone()),
                arguments: None,
                tx_errors_are_losses: true,
                interface: None,
                mtu: None,
            });
        }
        DeviceSpec::AfPacket { .. }
        | DeviceSpec::Tap { .. }
        | DeviceSpec::Vhost { .. }
        | DeviceSpec::Memif { .. }
        | DeviceSpec::Memory
        | DeviceSpec::Pcap { .. } => {
            return Err(Error::Unsupported { device: spec.to_string(), reason: "no driver of DPDK is behind it" });
        }
    };
    Ok(PortPlan {
        name: c_string(format!("{driver}{number}")),
        arguments: Some(c_string(arguments)),
        tx_errors_are_losses: false,
        interface: claimed,
        mtu: match spec {
            DeviceSpec::Xdp { .. } => None,
            _ => Some(MTU_DEFAULT),
        },
    })
}

/// The largest MTU of an XDP port: the kernel keeps 256 bytes of each 2 KB buffer for XDP programs, and drops what is longer than the
/// rest. Frames in several buffers need Linux 6.6 and a newer driver than that of DPDK 22.11.
const XDP_MTU_MAX: u16 = 2048 - 256 - FRAME_HEADER_MAX;

fn check_xdp_mtu(spec: &DeviceSpec, mtu: Option<u16>) -> Result<(), Error> {
    match mtu {
        Some(mtu) if mtu > XDP_MTU_MAX => Err(Error::Device {
            device: spec.to_string(),
            reason: format!(
                "an MTU of {mtu} needs AF_XDP with several buffers for a frame, which DPDK 22.11 does not have; \
                 there is room for {XDP_MTU_MAX} (a port of the kernel without `xdp:` carries long frames)"
            ),
        }),
        _ => Ok(()),
    }
}

/// Most places of a ring of virtio-user in DPDK 22.11.
const VIRTIO_RING_MAX: u16 = 1024;

/// Places of a ring of a driver that wants a power of two.
fn ring_size(descriptors: u16, most: u16) -> u16 {
    descriptors.clamp(64, most).next_power_of_two()
}

/// A C string of a text that the port syntax has checked: it holds no control characters.
pub(crate) fn c_string(text: String) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Claims the interface of an AF_XDP port, which must be set up: the kernel binds no such socket to one that is down.
fn claim(spec: &DeviceSpec, interface: &str, options: &PortOptions) -> Result<Interface, Error> {
    let claimed = Interface::claim(&spec.to_string(), interface, options)?;
    if claimed.is_set_up() {
        return Ok(claimed);
    }
    let reason = format!("its interface is down: `ip link set {interface} up`, or the port's option `up`");
    Err(Error::Device { device: spec.to_string(), reason })
}

/// Whether a socket can be made at a path: drivers do not say why they could not.
fn may_make_socket(path: &Path) -> Result<(), Error> {
    match std::os::unix::net::UnixListener::bind(path) {
        Ok(_) => {
            fs::remove_file(path).map_err(|error| Error::Socket { path: path.to_owned(), reason: error.to_string() })
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let folder = path.parent().map_or_else(String::new, |folder| folder.display().to_string());
            let reason = format!("this user may not write into the folder `{folder}`");
            Err(Error::Socket { path: path.to_owned(), reason })
        }
        Err(error) => Err(Error::Socket { path: path.to_owned(), reason: error.to_string() }),
    }
}

/// The path from the root, since drivers refuse others; its folder must exist.
pub(crate) fn socket_path(path: &Path) -> Result<PathBuf, Error> {
    let fail = |reason: String| Error::Socket { path: path.to_owned(), reason };
    let absolute = std::path::absolute(path).map_err(|error| fail(error.to_string()))?;
    match absolute.parent() {
        Some(folder) if folder.is_dir() => Ok(absolute),
        Some(folder) => Err(fail(format!("there is no folder `{}`", folder.display()))),
        None => Err(fail("it is not a file".into())),
    }
}

/// Removes a socket that nobody listens on, which DPDK would refuse; refuses everything else that is in the way.
pub(crate) fn make_room_for_socket(path: &Path) -> Result<(), Error> {
    let fail = |reason: &str| Err(Error::Socket { path: path.to_owned(), reason: reason.to_owned() });
    match fs::symlink_metadata(path) {
        Err(_) => may_make_socket(path),
        Ok(metadata) if !metadata.file_type().is_socket() => fail("a file that is no socket is in its place"),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => fail("another process listens on it"),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).or_else(|error| fail(&format!("a stale socket cannot be removed: {error}")))
            }
            // A listener of another socket type, such as memif's.
            Err(error) if error.raw_os_error() == Some(EPROTOTYPE) => fail("another process listens on it"),
            Err(error) => fail(&error.to_string()),
        },
    }
}
