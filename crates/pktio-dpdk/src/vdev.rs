//! A [`DeviceSpec`] as DPDK's driver name and arguments, and the checks that turn DPDK's "failed to probe" into errors
//! with a remedy: does the interface exist, may we open it, can the socket be made?
//!
//! Values cannot smuggle in further driver arguments: the port syntax refuses commas, equals signs and brackets.
#![allow(unsafe_code)]

use crate::eal::PortOptions;
use crate::ffi;
use pktio::{DeviceSpec, Error, FRAME_HEADER_MAX, MTU_DEFAULT, MemifRole};
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
    pub interface: Option<CString>,
    /// Whether the driver neither waits for its peer nor finds it again, so that we have to.
    pub needs_reconnect: bool,
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
    let (driver, arguments) = match spec {
        DeviceSpec::Xdp { interface } => {
            check_interface(spec, interface)?;
            check_xdp_mtu(spec, options.mtu)?;
            bring_up(interface)?;
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
        DeviceSpec::Memif { path, id, role } => {
            let path = socket_path(path)?;
            let role = match role {
                MemifRole::Server => "server",
                MemifRole::Client => "client",
            };
            if role == "server" {
                make_room_for_socket(&path)?;
            }
            let bytes = memif_buffer_bytes(options.mtu.unwrap_or(MEMIF_MTU));
            let ring = ring_size(options.descriptors, MEMIF_RING_MAX).ilog2();
            let socket = path.display();
            let arguments =
                format!("role={role},id={id},socket={socket},socket-abstract=no,bsize={bytes},rsize={ring}");
            ("net_memif", arguments)
        }
        DeviceSpec::Null => ("net_null", "size=64".to_owned()),
        DeviceSpec::Ring { .. } => ("net_ring", String::new()),
        DeviceSpec::Pci { address } => {
            return Ok(PortPlan {
                name: c_string(address.clone()),
                arguments: None,
                tx_errors_are_losses: true,
                interface: None,
                needs_reconnect: false,
                mtu: None,
            });
        }
        DeviceSpec::AfPacket { .. }
        | DeviceSpec::Tap { .. }
        | DeviceSpec::Vhost { .. }
        | DeviceSpec::Memory
        | DeviceSpec::Pcap { .. } => {
            return Err(Error::Unsupported { device: spec.to_string(), reason: "no driver of DPDK is behind it" });
        }
    };
    let interface = match spec {
        DeviceSpec::Xdp { interface } => Some(c_string(interface.clone())),
        _ => None,
    };
    Ok(PortPlan {
        name: c_string(format!("{driver}{number}")),
        arguments: Some(c_string(arguments)),
        tx_errors_are_losses: false,
        interface,
        needs_reconnect: matches!(spec, DeviceSpec::Memif { role: MemifRole::Client, .. }),
        mtu: match spec {
            DeviceSpec::Xdp { .. } => None,
            DeviceSpec::Memif { .. } => Some(MEMIF_MTU),
            _ => Some(MTU_DEFAULT),
        },
    })
}

/// The MTU of a memif port unless its user says another: what the driver's default buffers hold. Longer frames would be spread
/// over several of them, which DPDK 22.11 gets wrong now and then: a piece of an older frame comes in place of the first.
const MEMIF_MTU: u16 = 2048 - FRAME_HEADER_MAX;

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

/// Bytes of a buffer of a memif port of ours, if we are the client: one frame each.
fn memif_buffer_bytes(mtu: u16) -> u32 {
    (u32::from(mtu) + u32::from(FRAME_HEADER_MAX)).next_multiple_of(64).clamp(2048, 65_472)
}

/// Most places of a ring of virtio-user in DPDK 22.11.
const VIRTIO_RING_MAX: u16 = 1024;
/// Most places of a ring of memif in DPDK 22.11.
const MEMIF_RING_MAX: u16 = 1 << 14;

/// Places of a ring of a driver that wants a power of two.
fn ring_size(descriptors: u16, most: u16) -> u16 {
    descriptors.clamp(64, most).next_power_of_two()
}

/// A C string of a text that the port syntax has checked: it holds no control characters.
pub(crate) fn c_string(text: String) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Brings a kernel interface up; DPDK's drivers leave that to the administrator. Before the driver binds its sockets:
/// one that is bound while the interface is down fails its first call.
fn bring_up(interface: &str) -> Result<(), Error> {
    // SAFETY: a C string that lives for the call.
    let result = unsafe { ffi::shim_interface_up(c_string(interface.to_owned()).as_ptr()) };
    if result == 0 {
        return Ok(());
    }
    let reason = std::io::Error::from_raw_os_error(-result);
    if matches!(reason.kind(), ErrorKind::PermissionDenied) {
        return Err(Error::Permission { device: interface.to_owned(), capability: "CAP_NET_ADMIN" });
    }
    Err(Error::Device { device: interface.to_owned(), reason: format!("it cannot be brought up: {reason}") })
}

pub(crate) fn check_interface(spec: &DeviceSpec, interface: &str) -> Result<(), Error> {
    // SAFETY: a C string that lives for the call.
    if unsafe { ffi::shim_interface_exists(c_string(interface.to_owned()).as_ptr()) } == 0 {
        return Err(Error::NoSuchInterface { interface: interface.to_owned() });
    }
    if ffi::shim_can_open_packet_socket() != 0 {
        return Err(Error::Permission { device: spec.to_string(), capability: "CAP_NET_RAW" });
    }
    Ok(())
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

/// The number of the capability in `capabilities(7)`.
const CAP_NET_ADMIN: u32 = 12;

/// Whether the process has a capability in effect; if the kernel does not say, opening will.
fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask >> number & 1 == 1)
}

pub(crate) fn check_tap(spec: &DeviceSpec) -> Result<(), Error> {
    match fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        // The file is open to all, the interface that is made through it is not.
        Ok(_) if !has_capability(CAP_NET_ADMIN) => {
            Err(Error::Permission { device: spec.to_string(), capability: "CAP_NET_ADMIN" })
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(Error::Permission { device: spec.to_string(), capability: "CAP_NET_ADMIN" })
        }
        Err(error) => Err(Error::File { path: "/dev/net/tun".into(), reason: error.to_string() }),
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
            // A listener of another socket type, such as memif's: this process may have it open for another port.
            Err(error) if error.raw_os_error() == Some(EPROTOTYPE) => Ok(()),
            Err(error) => fail(&error.to_string()),
        },
    }
}
