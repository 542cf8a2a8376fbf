//! Starts DPDK (its EAL, the environment abstraction layer) and opens devices.
//!
//! DPDK can start once per process and never really stops; [`Eal::init`] enforces the first, and buffers stay valid for
//! the life of the process because of the second. Everything is private to the process: no files, no lock against other
//! DPDK processes, no telemetry socket.
//!
//! While DPDK takes memory from the kernel it has a SIGBUS handler of its own, which jumps to the thread that takes it. A worker
//! that touches memory which a guest has just taken away would jump there too, on another thread's stack. So all that DPDK is
//! likely to need is taken when it starts, and it takes nothing while memory of guests and peers is mapped
//! ([`may_grow`]): a port that would need more is refused then. Behind each call that may have set a handler, ours is put back
//! if it is gone ([`shared_memory::verify`]).
//!
//! Threads: control calls are serialised by one mutex ([`Shared::lock`]), since ethdev's control functions are not thread
//! safe. Packet calls take no lock.
#![allow(unsafe_code)]

use crate::device::PortDevice;
use crate::pool::{BYTES_PER_BUFFER, BYTES_PER_LARGE_BUFFER, LARGE_BUFFERS, MbufPool};
use crate::port::{Driver, ETHDEV};
use crate::queue::Port;
use crate::shared::Shared;
use crate::vdev::{self, PortPlan, c_string, socket_path};
use crate::{ffi, hugepages, vhost};
use pktio::{Device, DeviceSpec, Error, MTU_DEFAULT, MemifRole, PoolRef, PortOptions};
use std::ffi::{CString, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What DPDK needs besides the buffers: rings, queues, device structures.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// How DPDK starts.
#[derive(Clone, Debug)]
pub struct EalConfig {
    /// Packet buffers for all ports together; each takes about 2.5 KB. At best one less than a power of two.
    pub buffers: u32,
    /// Whether memory comes from hugepages.
    pub hugepages: HugepageUse,
    /// Addresses of the network cards that will be opened; no other card is touched.
    pub pci: Vec<String>,
    /// Whether a port will be a guest (`virtio:`): its switch maps our memory, which must then be in few files.
    pub guest: bool,
}

impl Default for EalConfig {
    fn default() -> Self {
        EalConfig { buffers: 32_767, hugepages: HugepageUse::Auto, pci: Vec::new(), guest: false }
    }
}

/// Whether memory comes from hugepages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugepageUse {
    /// If enough are free; otherwise ordinary pages, with a notice.
    Auto,
    /// Or do not start.
    Require,
    /// Ordinary pages.
    Never,
}

/// A running DPDK.
#[derive(Clone)]
pub struct Eal {
    inner: Arc<Shared>,
    notices: Arc<[String]>,
    hugepages: bool,
}

impl Eal {
    /// Starts DPDK. The second call in a process is refused.
    pub fn init(config: &EalConfig) -> Result<Eal, Error> {
        static STARTED: AtomicBool = AtomicBool::new(false);
        let (hugepages, notice) = choose_hugepages(config)?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(eal_error("DPDK has been started in this process; it cannot start twice".into()));
        }
        let arguments: Vec<CString> = arguments(config, hugepages).into_iter().map(c_string).collect();
        let mut argv: Vec<*mut c_char> = arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
        // The EAL reorders the array, and like `main`'s it ends with a null pointer.
        argv.push(std::ptr::null_mut());
        // SAFETY: an array of `argc` C strings and a null pointer, alive during the call; the EAL copies what it keeps.
        let result = unsafe { ffi::shim_eal_init(arguments.len() as c_int, argv.as_mut_ptr()) };
        if result < 0 {
            return Err(eal_error(failure("it did not start", result)));
        }
        ffi::shim_ask_before_growing(may_grow);
        // Threads of isolated ports get buffer caches of their own, as workers do.
        pktio::register_threads(|| Some(Box::new(register_worker().ok()?)));
        let mbufs = MbufPool::create(c"sluice", config.buffers)
            .map_err(|error| eal_error(failure(&format!("no memory for {} packet buffers", config.buffers), error)))?;
        Ok(Eal { inner: Arc::new(Shared::new(mbufs)), notices: notice.into_iter().collect(), hugepages })
    }

    /// What the user should know about the start, one sentence each; empty when all is well.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Whether memory comes from hugepages.
    pub fn uses_hugepages(&self) -> bool {
        self.hugepages
    }

    /// The pool of all ports.
    pub fn pool(&self) -> PoolRef {
        self.inner.pool()
    }

    /// Opens and starts a device. Devices that need no DPDK are opened too, with buffers that DPDK's ports can send.
    pub fn open(&self, spec: &DeviceSpec, options: &PortOptions) -> Result<Box<dyn Device>, Error> {
        if !spec.needs_dpdk() {
            return pktio::open(spec, self.pool());
        }
        if let DeviceSpec::Memif { path, role, .. } = spec {
            let path = socket_path(path)?;
            if options.isolated {
                return pktio_process::open(spec, path, options, self.pool());
            }
            if let Some(port) = pktio_process::serves(&path).filter(|_| *role == MemifRole::Server) {
                let reason = format!("port `{port}` is isolated and has it to itself: give `{spec}` another path");
                return Err(Error::Socket { path, reason });
            }
            let PortOptions { queues, descriptors, mtu, memory_mb, .. } = *options;
            let memory_bytes = u64::from(memory_mb) << 20;
            let device =
                pktio_memif::open(spec, &pktio_memif::Options { queues, descriptors, mtu, memory_bytes }, self.pool())?;
            return pktio::guard(device);
        }
        if let DeviceSpec::AfPacket { .. } | DeviceSpec::Tap { .. } = spec {
            return pktio_kernel::open(spec, self.pool(), options);
        }
        if let DeviceSpec::Vhost { path, server } = spec {
            return vhost::open(self.pool(), spec, path, *server, options);
        }
        let mut control = self.inner.lock();
        take_log();
        let _verifies = Verifies;
        let plan = vdev::plan(spec, control.next_number, options)?;
        control.next_number += 1;
        let number = attach(spec, &plan)?;
        let mut config = ffi::PortConfig {
            queues: options.queues.max(1),
            descriptors: options.descriptors,
            mtu: options.mtu.or(plan.mtu).unwrap_or(0),
        };
        let (mut error, pool) = (0, self.inner.mbufs().as_ptr());
        // SAFETY: the port exists and nobody else uses it; a C string or null; the pool lives as long as the process.
        let shim = unsafe { ffi::shim_eth_open(number, plan.vdev_name(), pool, &mut config, &mut error) };
        let Some(shim) = NonNull::new(shim) else {
            detach(number, &plan);
            return Err(device_error(spec, "it cannot be set up", error));
        };
        drop(control);
        let mtu = if let Some(known) = plan.mtu {
            options.mtu.unwrap_or(known)
        } else {
            // SAFETY: the port is open.
            u16::try_from(unsafe { ffi::shim_eth_mtu(shim.as_ptr()) }).unwrap_or(MTU_DEFAULT)
        };
        let port = Port::new(&self.inner, shim, &ETHDEV, config.queues, mtu);
        let PortPlan { tx_errors_are_losses, interface, .. } = plan;
        // SAFETY: the port is open and configured; control calls are serialised by the lock.
        let result = {
            let _control = self.inner.lock();
            unsafe { ffi::shim_eth_start(port.as_ptr()) }
        };
        if result < 0 {
            return Err(device_error(spec, "it does not start", result));
        }
        let (name, kind) = (spec.to_string(), spec.kind());
        Ok(Box::new(PortDevice::new(name, kind, port, Driver { tx_errors_are_losses, interface })))
    }
}

/// Whether DPDK may take memory from the kernel now.
extern "C" fn may_grow() -> c_int {
    c_int::from(!shared_memory::is_guarding())
}

/// Sees to the SIGBUS handler when a call ends that DPDK may have set its own in.
struct Verifies;

impl Drop for Verifies {
    fn drop(&mut self) {
        if let Err(error) = shared_memory::verify() {
            tracing::error!("a guest that truncates its memory would end this process: no SIGBUS handler: {error}");
        }
    }
}

/// Makes the virtual device, or finds the card, and returns its port number.
fn attach(spec: &DeviceSpec, plan: &PortPlan) -> Result<u16, Error> {
    if let Some(arguments) = &plan.arguments {
        // SAFETY: two C strings that live for the call.
        let result = unsafe { ffi::shim_vdev_add(plan.name.as_ptr(), arguments.as_ptr()) };
        if result < 0 {
            return Err(device_error(spec, "DPDK cannot make it", result));
        }
    }
    // SAFETY: a C string that lives for the call.
    let id = unsafe { ffi::shim_port_by_name(plan.name.as_ptr()) };
    u16::try_from(id).map_err(|_| match spec {
        DeviceSpec::Pci { .. } => Error::Device {
            device: spec.to_string(),
            reason: "DPDK has found no such card: it must be named when DPDK starts, and be bound to vfio-pci".into(),
        },
        _ => device_error(spec, "DPDK made no port of it", id),
    })
}

/// Undoes [`attach`].
fn detach(id: u16, plan: &PortPlan) {
    // SAFETY: the port has no device and no queue yet; a C string or null; the caller holds the control lock.
    unsafe { ffi::shim_port_detach(id, plan.vdev_name()) }
}

/// What DPDK takes.
fn needed_bytes(config: &EalConfig) -> u64 {
    let large = u64::from(LARGE_BUFFERS) * BYTES_PER_LARGE_BUFFER;
    u64::from(config.buffers) * BYTES_PER_BUFFER + large + OVERHEAD_BYTES
}

fn choose_hugepages(config: &EalConfig) -> Result<(bool, Option<String>), Error> {
    let needed = needed_bytes(config);
    let free = hugepages::free_bytes();
    match config.hugepages {
        HugepageUse::Never => Ok((false, None)),
        _ if free >= needed => Ok((true, None)),
        HugepageUse::Require => Err(Error::NoHugepages { device: "DPDK".into() }),
        HugepageUse::Auto => {
            let notice = format!(
                "{} MB of hugepages are free and {} MB are needed, so DPDK runs on ordinary pages: packets cost more \
                 and network cards may not work; `echo {} > /proc/sys/vm/nr_hugepages` reserves enough",
                free >> 20,
                needed >> 20,
                (needed >> 21) + 1,
            );
            Ok((false, Some(notice)))
        }
    }
}

fn arguments(config: &EalConfig, hugepages: bool) -> Vec<String> {
    let mut arguments: Vec<String> = ["sluice", "--no-telemetry"].map(String::from).into();
    arguments.push(format!("--file-prefix=sluice{}", std::process::id()));
    arguments.push(format!("--lcores={}", lcores(&allowed_cpus())));
    // At once: see the file's comment. Without hugepages it never grows.
    let megabytes = needed_bytes(config) >> 20;
    arguments.extend(["-m".into(), megabytes.to_string()]);
    if hugepages {
        arguments.push("--in-memory".into());
    } else {
        // It is in no file anyway, and the EAL refuses `--in-memory` here; what remains of that option is `--no-shconf`.
        arguments.extend(["--no-huge".into(), "--no-shconf".into()]);
    }
    if config.guest {
        arguments.push("--single-file-segments".into());
    }
    if config.pci.is_empty() {
        arguments.push("--no-pci".into());
    }
    // Where DPDK is not installed, its drivers lie beside the binary (`scripts/package tarball`).
    if let Some(drivers) = std::env::var_os("SLUICE_DPDK_DRIVERS") {
        arguments.extend(["-d".into(), drivers.to_string_lossy().into_owned()]);
    }
    for address in &config.pci {
        arguments.extend(["-a".into(), address.clone()]);
    }
    arguments
}

/// One lcore, the calling thread's, that may run on every CPU this process may use. The EAL wants to pin its main
/// thread; our workers choose their CPUs themselves.
fn lcores(cpus: &[u16]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u16::to_string).collect();
    if cpus.is_empty() { "0".into() } else { format!("0@({})", cpus.join(",")) }
}

fn allowed_cpus() -> Vec<u16> {
    let mut cpus = [0; 1024];
    // SAFETY: room for as many CPUs as promised.
    let count = unsafe { ffi::shim_allowed_cpus(cpus.as_mut_ptr(), cpus.len() as c_int) };
    cpus[..usize::try_from(count).unwrap_or(0)].to_vec()
}

fn eal_error(reason: String) -> Error {
    Error::Device { device: "DPDK".into(), reason }
}

fn device_error(spec: &DeviceSpec, what: &str, error: c_int) -> Error {
    let reason = failure(what, error);
    match spec {
        DeviceSpec::Virtio { path, .. } => Error::Socket { path: path.clone(), reason },
        _ => Error::Device { device: spec.to_string(), reason },
    }
}

/// What failed, the system's word for the error number, and DPDK's own words.
pub(crate) fn failure(what: &str, error: c_int) -> String {
    let system = std::io::Error::from_raw_os_error(-error);
    let log = take_log();
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join("; ");
    if last.is_empty() { format!("{what}: {system}") } else { format!("{what}: {system}; DPDK says: {last}") }
}

/// What DPDK has logged since the last call; the newest 16 KB of it.
pub fn take_log() -> String {
    let mut bytes = vec![0; 16_384];
    // SAFETY: the shim writes at most the buffer's size.
    let len = unsafe { ffi::shim_log_take(bytes.as_mut_ptr(), bytes.len()) };
    bytes.truncate(len);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// This thread's registration with DPDK, ended on drop. It cannot leave the thread.
#[must_use = "the registration ends when this is dropped"]
pub struct WorkerRegistration {
    _not_send: PhantomData<*const ()>,
}

/// Registers the calling thread, so that it gets buffer caches of its own. Call it first thing on each worker, after
/// [`Eal::init`]. Unregistered threads may use ports too, only slower.
pub fn register_worker() -> Result<WorkerRegistration, Error> {
    match ffi::shim_thread_register() {
        0 => Ok(WorkerRegistration { _not_send: PhantomData }),
        error => Err(eal_error(failure("this thread cannot be registered", error))),
    }
}

impl Drop for WorkerRegistration {
    fn drop(&mut self) {
        ffi::shim_thread_unregister();
    }
}

/// Lets no program that this process starts inherit a file beyond the standard three. DPDK's own files (memory, cards) would stay open
/// there, and their memory taken.
pub fn close_on_exec() {
    // SAFETY: numbers only; files get a flag.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return;
    }
    // Linux before 5.11.
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if let Some(file) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|file| *file > 2) {
            // SAFETY: as above; one that is closed meanwhile has no flags.
            unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_thread_may_run_on_every_allowed_cpu() {
        assert_eq!(lcores(&[0, 1, 5]), "0@(0,1,5)");
        assert_eq!(lcores(&[]), "0");
        assert!(!allowed_cpus().is_empty());
    }

    #[test]
    fn arguments_say_no_to_what_is_not_asked_for() {
        let plain = arguments(&EalConfig::default(), true);
        assert!(plain.contains(&"--no-pci".into()) && plain.contains(&"--in-memory".into()));
        assert!(!plain.contains(&"--no-huge".into()));
        assert!(plain.contains(&"-m".into()), "all is taken at the start");
        let config = EalConfig { pci: vec!["0000:03:00.0".into()], buffers: 1023, ..EalConfig::default() };
        assert!(!plain.contains(&"--single-file-segments".into()));
        assert!(
            arguments(&EalConfig { guest: true, ..config.clone() }, true).contains(&"--single-file-segments".into())
        );
        let card = arguments(&config, false);
        assert!(!card.contains(&"--no-pci".into()));
        assert!(card.windows(2).any(|pair| pair == ["-a", "0000:03:00.0"]));
        assert!(card.windows(2).any(|pair| pair == ["-m", "99"]), "{card:?}");
    }

    #[test]
    fn more_hugepages_than_there_can_be_are_refused_or_noticed() {
        let config = EalConfig { buffers: u32::MAX, hugepages: HugepageUse::Require, ..EalConfig::default() };
        assert!(matches!(choose_hugepages(&config), Err(Error::NoHugepages { .. })));
        let config = EalConfig { hugepages: HugepageUse::Auto, ..config };
        let (hugepages, notice) = choose_hugepages(&config).unwrap();
        assert!(!hugepages && notice.unwrap().contains("nr_hugepages"));
    }
}
