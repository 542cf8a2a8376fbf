//! The command line's port syntax: `NUMBER@DEVICE`, as bmv2's `0@veth0`, with a
//! scheme for other than kernel interfaces.
//!
//! ```text
//! 0@veth0                     kernel interface (AF_PACKET)
//! 1@vhost:/run/vm1.sock       connect to a guest's vhost-user socket, and reconnect when the guest restarts
//! 2@vhost-server:/run/vm2.sock   listen on the socket
//! 2@virtio:/run/vm3.sock      be the guest: connect to another switch's vhost-user port (virtio-server: listen)
//! 3@memif:/run/memif.sock,id=0,role=client
//! 4@xdp:eth0   5@tap:tap0   6@pci:0000:03:00.0   7@pcap:in.pcap,out.pcap   8@memory   9@null   10@ring:r0
//! 11@veth1,mtu=9000,queues=2  12@tap:tap1,spread   options of every kind of port, last
//! 13@pci:0000:04:00.0,descriptors=4096   an option of ports whose rings are made here
//! 15@vhost:/run/vm4.sock,isolated   an option of ports that share memory: a process of its own touches it
//! 14@veth2,up                 an option of kernel interfaces: one that is down is set up
//! ```
//!
//! [`DeviceSpec`] is the part after `@` without these options. Both print back to what parses to the same value.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The largest port number of the command line (65535 means "no port").
pub const PORT_NUMBER_MAX: u32 = 65_534;

const FORMS: &str = "valid forms: NAME (kernel interface), vhost:PATH, vhost-server:PATH, \
    virtio:PATH, virtio-server:PATH, memif:PATH[,id=N][,role=server|client], xdp:IFACE, tap:NAME, pci:ADDRESS, pcap:IN[,OUT][,after=S], memory, null, ring:NAME; \
    each may end in ,mtu=N ,queues=N ,spread, pci, xdp, memif and virtio in ,descriptors=N, vhost and memif in ,memory=MB and ,isolated, \
    and kernel interfaces in ,up";

/// Valid MTUs in bytes: from RFC 791's minimum to what a buffer holds.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=65_000;

/// Valid numbers of queues of a port.
const QUEUES_RANGE: std::ops::RangeInclusive<u32> = 1..=64;

/// Valid numbers of descriptors of a ring: from two bursts to the maximum of any driver.
const DESCRIPTORS_RANGE: std::ops::RangeInclusive<u32> = 64..=32_768;

/// Megabytes that a guest or peer may share: up to a terabyte.
const MEMORY_RANGE: std::ops::RangeInclusive<u32> = 1..=1 << 20;

/// The kernel's limit on interface names, without the terminating zero (`IFNAMSIZ`).
const INTERFACE_NAME_MAX_BYTES: usize = 15;

/// The kernel's limit on unix socket paths, without the terminating zero (`sockaddr_un`).
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// A port: its number in the P4 program and the device behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The port's number in the data plane.
    pub number: u32,
    /// The device.
    pub device: DeviceSpec,
    /// `mtu=N`: the MTU in bytes to set; longer frames are not sent.
    pub mtu: Option<u16>,
    /// `queues=N`: number of queues; default: one per worker.
    pub queues: Option<u16>,
    /// `descriptors=N`: descriptors per ring, as near as the device supports; default 1,024.
    pub descriptors: Option<u16>,
    /// `memory=N`: megabytes on ordinary pages that a guest or memif client may share; default
    /// [`crate::MEMORY_MB_DEFAULT`].
    pub memory_mb: Option<u32>,
    /// `spread`: workers without a queue of their own get a share of the flows from workers that have one.
    pub spread: bool,
    /// `isolated`: a process of the port's own, instead of workers, accesses the memory that its peer shares.
    pub isolated: bool,
    /// `up`: a kernel interface that is down is set up.
    pub up: bool,
}

/// A device, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A kernel interface, through AF_PACKET.
    AfPacket {
        /// The interface's name.
        interface: String,
    },
    /// A vhost-user port (back end) for a virtual machine.
    Vhost {
        /// Path of the socket.
        path: PathBuf,
        /// Whether we listen (`vhost-server:`) or connect to the guest's socket (`vhost:`).
        server: bool,
    },
    /// A virtio-user port: the guest's end (front end) of a vhost-user socket of another switch.
    Virtio {
        /// Path of the socket.
        path: PathBuf,
        /// Whether we listen (`virtio-server:`) or connect to the switch's socket (`virtio:`).
        server: bool,
    },
    /// A memif port: shared memory with another process.
    Memif {
        /// Path of the socket.
        path: PathBuf,
        /// Interface id on the socket.
        id: u32,
        /// Server or client.
        role: MemifRole,
    },
    /// A kernel interface, through AF_XDP.
    Xdp {
        /// The interface's name.
        interface: String,
    },
    /// A TAP interface, which is created.
    Tap {
        /// The interface's name.
        interface: String,
    },
    /// A network card bound to a userspace driver.
    Pci {
        /// Its PCI address, e.g. `0000:03:00.0`.
        address: String,
    },
    /// Packets from and to capture files.
    Pcap {
        /// File to receive packets from.
        input: PathBuf,
        /// File for sent packets; without it they are counted and dropped.
        output: Option<PathBuf>,
        /// Seconds before packets are received.
        after_s: u32,
    },
    /// An in-process device: a test injects and collects packets.
    Memory,
    /// Receives empty packets without end, and discards sent ones; for measurements.
    Null,
    /// An in-process ring: sent packets are received again.
    Ring {
        /// The ring's name.
        name: String,
    },
}

/// The role of this process on a memif socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemifRole {
    /// Listens on the socket.
    Server,
    /// Connects, and provides the shared memory.
    Client,
}

/// Error: a port description that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port `{text}`: {reason}")]
pub struct SpecError {
    /// The whole description.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl SpecError {
    /// The valid forms of a description.
    pub fn help(&self) -> String {
        FORMS.to_owned()
    }
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PortSpec, SpecError> {
        let fail = |reason: String| SpecError { text: text.to_owned(), reason };
        let (number, device) = text
            .split_once('@')
            .ok_or_else(|| fail("the port number is missing: write NUMBER@DEVICE, e.g. 0@veth0".into()))?;
        let number = decimal(number)
            .filter(|&n| n <= PORT_NUMBER_MAX)
            .ok_or_else(|| fail(format!("`{number}` is not a port number; a number from 0 to {PORT_NUMBER_MAX} is")))?;
        let (mtu, queues, descriptors) = (None, None, None);
        let (spread, isolated, up) = (false, false, false);
        let device_later = DeviceSpec::Memory;
        let mut spec =
            PortSpec { number, device: device_later, mtu, queues, descriptors, memory_mb: None, spread, isolated, up };
        let device = spec.take_options(device).map_err(fail)?;
        spec.device = DeviceSpec::parse_without_options(device).map_err(fail)?;
        if spec.descriptors.is_some() && !spec.device.has_own_rings() {
            let kind = spec.device.kind();
            let reason = "only pci, xdp, memif and virtio ports have rings whose size is chosen here (a vhost port's are its guest's)";
            return Err(fail(format!("`descriptors=` does not fit a port of kind {kind}: {reason}")));
        }
        if spec.memory_mb.is_some() && !spec.device.maps_memory_of_others() {
            let kind = spec.device.kind();
            let reason = "only vhost ports and memif servers map memory that somebody else shares";
            return Err(fail(format!("`memory=` does not fit a port of kind {kind}: {reason}")));
        }
        if spec.isolated && !spec.device.shares_memory() {
            let kind = spec.device.kind();
            let reason = "only vhost and memif ports share memory with somebody who can hold up its readers";
            return Err(fail(format!("`isolated` does not fit a port of kind {kind}: {reason}")));
        }
        let kind = spec.device.kind();
        if spec.up && !spec.device.is_interface() {
            return Err(fail(format!(
                "`up` does not fit a port of kind {kind}: only interfaces of the kernel are set up"
            )));
        }
        if spec.mtu.is_some() && matches!(spec.device, DeviceSpec::Memory | DeviceSpec::Pcap { .. }) {
            let reason = "its frames may have any length";
            return Err(fail(format!("`mtu=` does not fit a port of kind {kind}: {reason}")));
        }
        Ok(spec)
    }
}

impl PortSpec {
    /// Returns the port with other options: `mtu=9000`, `spread`; `mtu=default` removes an option.
    ///
    /// # Errors
    /// An option is unknown, invalid or not for this kind of device, or would change the device.
    pub fn with_options<S: AsRef<str>>(&self, options: &[S]) -> Result<PortSpec, SpecError> {
        let mut plain = self.clone();
        let mut given = String::new();
        for option in options.iter().map(AsRef::as_ref) {
            match option.split('=').next().unwrap_or_default() {
                "mtu" => plain.mtu = None,
                "queues" => plain.queues = None,
                "descriptors" => plain.descriptors = None,
                "memory" => plain.memory_mb = None,
                "spread" => plain.spread = false,
                "isolated" => plain.isolated = false,
                "up" => plain.up = false,
                _ => {}
            }
            if !option.ends_with("=default") {
                given.push(',');
                given.push_str(option);
            }
        }
        let with: PortSpec = format!("{plain}{given}").parse()?;
        // An option must not change the device.
        if with.device == self.device {
            return Ok(with);
        }
        let reason =
            format!("`{}` is the device, which cannot be changed: remove the port and add it anew", with.device);
        Err(SpecError { text: with.to_string(), reason })
    }

    /// Parses and removes the options at the end of a device's description. Returns the rest.
    fn take_options<'a>(&mut self, mut text: &'a str) -> Result<&'a str, String> {
        while let Some((rest, option)) = text.rsplit_once(',') {
            let number = |value: &str, range: std::ops::RangeInclusive<u32>| {
                let number = decimal(value).filter(|number| range.contains(number));
                let refusal = || format!("`{option}`: a number from {} to {} is needed", range.start(), range.end());
                number.map(|number| Some(number as u16)).ok_or_else(refusal)
            };
            match option.split_once('=') {
                Some(("mtu", value)) if self.mtu.is_none() => self.mtu = number(value, MTU_RANGE)?,
                Some(("queues", value)) if self.queues.is_none() => self.queues = number(value, QUEUES_RANGE)?,
                Some(("descriptors", value)) if self.descriptors.is_none() => {
                    self.descriptors = number(value, DESCRIPTORS_RANGE)?;
                }
                Some(("memory", value)) if self.memory_mb.is_none() => {
                    let number = decimal(value).filter(|number| MEMORY_RANGE.contains(number));
                    let (least, most) = (MEMORY_RANGE.start(), MEMORY_RANGE.end());
                    self.memory_mb =
                        Some(number.ok_or_else(|| format!("`{option}`: megabytes from {least} to {most} are needed"))?);
                }
                Some(("mtu" | "queues" | "descriptors" | "memory", _)) => {
                    return Err(format!("`{option}` is there twice"));
                }
                None if option == "spread" => self.spread = true,
                None if option == "isolated" => self.isolated = true,
                None if option == "up" => self.up = true,
                _ => break,
            }
            text = rest;
        }
        Ok(text)
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<DeviceSpec, SpecError> {
        DeviceSpec::parse(text).map_err(|reason| SpecError { text: text.to_owned(), reason })
    }
}

impl DeviceSpec {
    /// Parses a device's description after its options were removed. What remains after a comma is an unknown option,
    /// except for the kinds that have arguments there.
    fn parse_without_options(text: &str) -> Result<DeviceSpec, String> {
        let unknown = text.rsplit_once(',').filter(|_| !text.starts_with("memif:") && !text.starts_with("pcap:"));
        let Some((_, option)) = unknown else { return DeviceSpec::parse(text) };
        let device = DeviceSpec::parse(text.split(',').next().unwrap_or_default())?;
        let rings = if device.has_own_rings() { ", descriptors=N" } else { "" };
        let memory = if device.maps_memory_of_others() { ", memory=MB" } else { "" };
        let isolated = if device.shares_memory() { ", isolated" } else { "" };
        let up = if device.is_interface() { ", up" } else { "" };
        let kind = device.kind();
        Err(format!(
            "`{option}` is no option of a port of kind {kind}; there are mtu=N, queues=N, spread{rings}{memory}{isolated}{up}"
        ))
    }

    fn parse(text: &str) -> Result<DeviceSpec, String> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return match text {
                "" => Err("the device is missing after `@`".into()),
                "memory" => Ok(DeviceSpec::Memory),
                "null" => Ok(DeviceSpec::Null),
                "vhost" | "vhost-server" | "virtio" | "virtio-server" | "memif" | "xdp" | "tap" | "pci" | "pcap"
                | "ring" => Err(format!("`{text}` needs an argument: `{text}:...`")),
                name => Ok(DeviceSpec::AfPacket { interface: interface(name)? }),
            };
        };
        match scheme {
            "vhost" | "vhost-server" => Ok(DeviceSpec::Vhost { path: socket(rest)?, server: scheme == "vhost-server" }),
            "virtio" | "virtio-server" => {
                Ok(DeviceSpec::Virtio { path: socket(rest)?, server: scheme == "virtio-server" })
            }
            "memif" => memif(rest),
            "xdp" => Ok(DeviceSpec::Xdp { interface: interface(rest)? }),
            "tap" => Ok(DeviceSpec::Tap { interface: interface(rest)? }),
            "pci" => Ok(DeviceSpec::Pci { address: pci_address(rest)? }),
            "pcap" => pcap(rest),
            "ring" => Ok(DeviceSpec::Ring { name: interface(rest)? }),
            "memory" | "null" => Err(format!("`{scheme}` takes no argument")),
            _ => Err(format!("`{scheme}` is not a kind of device")),
        }
    }

    /// The kind of device in one word, as in the syntax.
    pub fn kind(&self) -> &'static str {
        match self {
            DeviceSpec::AfPacket { .. } => "af_packet",
            DeviceSpec::Vhost { .. } => "vhost",
            DeviceSpec::Virtio { .. } => "virtio",
            DeviceSpec::Memif { .. } => "memif",
            DeviceSpec::Xdp { .. } => "xdp",
            DeviceSpec::Tap { .. } => "tap",
            DeviceSpec::Pci { .. } => "pci",
            DeviceSpec::Pcap { .. } => "pcap",
            DeviceSpec::Memory => "memory",
            DeviceSpec::Null => "null",
            DeviceSpec::Ring { .. } => "ring",
        }
    }

    /// Whether this side chooses the size of the rings.
    fn has_own_rings(&self) -> bool {
        use DeviceSpec::{Memif, Pci, Virtio, Xdp};
        matches!(self, Pci { .. } | Xdp { .. } | Memif { .. } | Virtio { .. })
    }

    /// Whether the device maps memory that a guest or peer shares.
    fn maps_memory_of_others(&self) -> bool {
        matches!(self, DeviceSpec::Vhost { .. } | DeviceSpec::Memif { role: MemifRole::Server, .. })
    }

    /// Whether the device accesses memory that is shared with a guest or peer.
    fn shares_memory(&self) -> bool {
        matches!(self, DeviceSpec::Vhost { .. } | DeviceSpec::Memif { .. })
    }

    /// Whether the device is an interface of the kernel.
    fn is_interface(&self) -> bool {
        matches!(self, DeviceSpec::AfPacket { .. } | DeviceSpec::Tap { .. } | DeviceSpec::Xdp { .. })
    }

    /// Whether another crate than this one must open the device: all but `memory` and `pcap`.
    pub fn needs_dpdk(&self) -> bool {
        !matches!(self, DeviceSpec::Memory | DeviceSpec::Pcap { .. })
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.number, self.device)?;
        if let Some(mtu) = self.mtu {
            write!(f, ",mtu={mtu}")?;
        }
        if let Some(queues) = self.queues {
            write!(f, ",queues={queues}")?;
        }
        if let Some(descriptors) = self.descriptors {
            write!(f, ",descriptors={descriptors}")?;
        }
        if let Some(memory) = self.memory_mb {
            write!(f, ",memory={memory}")?;
        }
        if self.isolated {
            f.write_str(",isolated")?;
        }
        if self.up {
            f.write_str(",up")?;
        }
        if self.spread { f.write_str(",spread") } else { Ok(()) }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::AfPacket { interface } => f.write_str(interface),
            DeviceSpec::Vhost { path, server: false } => write!(f, "vhost:{}", path.display()),
            DeviceSpec::Vhost { path, server: true } => write!(f, "vhost-server:{}", path.display()),
            DeviceSpec::Virtio { path, server: false } => write!(f, "virtio:{}", path.display()),
            DeviceSpec::Virtio { path, server: true } => write!(f, "virtio-server:{}", path.display()),
            DeviceSpec::Memif { path, id, role } => {
                let role = if *role == MemifRole::Server { "server" } else { "client" };
                write!(f, "memif:{},id={id},role={role}", path.display())
            }
            DeviceSpec::Xdp { interface } => write!(f, "xdp:{interface}"),
            DeviceSpec::Tap { interface } => write!(f, "tap:{interface}"),
            DeviceSpec::Pci { address } => write!(f, "pci:{address}"),
            DeviceSpec::Pcap { input, output, after_s } => {
                write!(f, "pcap:{}", input.display())?;
                output.iter().try_for_each(|output| write!(f, ",{}", output.display()))?;
                if *after_s > 0 { write!(f, ",after={after_s}") } else { Ok(()) }
            }
            DeviceSpec::Memory => f.write_str("memory"),
            DeviceSpec::Null => f.write_str("null"),
            DeviceSpec::Ring { name } => write!(f, "ring:{name}"),
        }
    }
}

/// Parses a decimal number without sign; `u32::from_str` alone would accept `+1`.
fn decimal(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()))
}

/// Checks an interface name. It becomes part of DPDK device arguments, where a
/// comma or equals sign would start another one.
fn interface(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("the interface name is missing".into());
    }
    if name.len() > INTERFACE_NAME_MAX_BYTES {
        return Err(format!("the interface name `{name}` is longer than {INTERFACE_NAME_MAX_BYTES} bytes"));
    }
    match name.chars().find(|c| !c.is_ascii_graphic() || matches!(c, ',' | '=' | '/' | '@' | ':' | '[' | ']')) {
        Some(c) => Err(format!("the interface name `{name}` contains {c:?}")),
        None => Ok(name.to_owned()),
    }
}

fn socket(path: &str) -> Result<PathBuf, String> {
    if path.is_empty() {
        return Err("the socket path is missing".into());
    }
    if path.len() > SOCKET_PATH_MAX_BYTES {
        return Err(format!(
            "the socket path is {} bytes long, the system's limit is {SOCKET_PATH_MAX_BYTES}",
            path.len()
        ));
    }
    // The same restriction as for interfaces: DPDK's argument parser knows no escapes.
    match path.chars().find(|c| c.is_control() || matches!(c, ',' | '=' | '[' | ']')) {
        Some(c) => Err(format!("the socket path `{path}` contains {c:?}")),
        None => Ok(PathBuf::from(path)),
    }
}

fn memif(rest: &str) -> Result<DeviceSpec, String> {
    let mut parts = rest.split(',');
    let path = socket(parts.next().unwrap_or_default())?;
    let (mut id, mut role) = (0, MemifRole::Client);
    for option in parts {
        match option.split_once('=') {
            Some(("id", value)) => {
                id = decimal(value).ok_or_else(|| format!("memif id `{value}` is not a number of 32 bits"))?;
            }
            Some(("role", "server")) => role = MemifRole::Server,
            Some(("role", "client")) => role = MemifRole::Client,
            Some(("role", value)) => return Err(format!("memif role `{value}` is neither `server` nor `client`")),
            _ => {
                return Err(format!(
                    "memif has no option `{option}`; it has `id=N` and `role=server|client`, \
                             and as other kinds of ports mtu=N, queues=N, spread, descriptors=N, memory=MB, isolated"
                ));
            }
        }
    }
    Ok(DeviceSpec::Memif { path, id, role })
}

/// `DDDD:BB:DD.F` or `BB:DD.F`, hexadecimal.
fn pci_address(text: &str) -> Result<String, String> {
    let hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split(':').collect();
    let ok = match parts[..] {
        [bus, rest] => hex(bus, 2) && device_function(rest, hex),
        [domain, bus, rest] => hex(domain, 4) && hex(bus, 2) && device_function(rest, hex),
        _ => false,
    };
    if ok { Ok(text.to_owned()) } else { Err(format!("`{text}` is not a PCI address such as 0000:03:00.0")) }
}

fn device_function(text: &str, hex: impl Fn(&str, usize) -> bool) -> bool {
    text.split_once('.').is_some_and(|(device, function)| hex(device, 2) && hex(function, 1) && function < "8")
}

fn pcap(rest: &str) -> Result<DeviceSpec, String> {
    const FORM: &str = "pcap:IN[,OUT][,after=SECONDS]";
    let (files, after_s) = match rest.rsplit_once(",after=") {
        Some((files, after)) => {
            (files, after.parse().map_err(|_| format!("`{after}` is no number of seconds: {FORM}"))?)
        }
        None => (rest, 0),
    };
    let (input, output) = match files.split_once(',') {
        Some((input, output)) => (input, Some(output)),
        None => (files, None),
    };
    if input.is_empty() {
        return Err(format!("the input file is missing: {FORM}"));
    }
    match output {
        Some("") => Err(format!("the output file is missing after the comma: {FORM}")),
        Some(output) if output.contains(',') => Err(format!("more than two files: {FORM}")),
        _ => Ok(DeviceSpec::Pcap { input: input.into(), output: output.map(PathBuf::from), after_s }),
    }
}

#[cfg(test)]
mod tests;
