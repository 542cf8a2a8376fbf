//! Ports to the kernel as [`Device`]s: existing interfaces and TAP interfaces, over the sockets of `shim/kernel.c`.
//!
//! Threads: the device on control; its queues are `queue`'s. Tests: `tests/ports.rs`, `tests/offload.rs`.
#![allow(unsafe_code)]

use crate::eal::{Inner, PortOptions};
use crate::ffi;
use crate::queue::{Kind, Port, Sleep};
use crate::vdev::{c_string, check_interface, check_tap};
use pktio::{Device, DeviceSpec, Error, LinkState, MacAddress, PoolRef, PortStats, Queue};
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

/// Most queues of a port; the shim's bound.
const QUEUES_MAX: u16 = 64;

static KERNEL: Kind = Kind {
    rx: ffi::shim_kernel_rx,
    tx: ffi::shim_kernel_tx,
    close: ffi::shim_kernel_close,
    sleep: Sleep::File(ffi::shim_kernel_file),
};

struct KernelDevice {
    name: String,
    kind: &'static str,
    interface: CString,
    port: Arc<Port>,
    queues_taken: bool,
}

/// Opens an interface, or makes a TAP interface. Called under the control lock.
pub(crate) fn open(
    eal: &Arc<Inner>,
    spec: &DeviceSpec,
    interface: &str,
    options: &PortOptions,
) -> Result<Box<dyn Device>, Error> {
    let is_tap = matches!(spec, DeviceSpec::Tap { .. });
    if is_tap { check_tap(spec) } else { check_interface(spec, interface) }?;
    let interface = c_string(interface.to_owned());
    let queues = options.queues.clamp(1, QUEUES_MAX);
    let (mtu, pool) = (options.mtu.unwrap_or(0), eal.mbufs().as_ptr());
    let mut error = 0;
    // SAFETY: a C string that lives for the call; the pool lives as long as the process.
    let shim = unsafe { ffi::shim_kernel_open(interface.as_ptr(), i32::from(is_tap), queues, mtu, pool, &mut error) };
    let Some(shim) = NonNull::new(shim) else { return Err(refused(spec, error)) };
    let port = Port::new(eal, shim, &KERNEL, queues, 0, None);
    let device = KernelDevice { name: spec.to_string(), kind: spec.kind(), interface, port, queues_taken: false };
    device.follow_mtu();
    Ok(Box::new(device))
}

fn refused(spec: &DeviceSpec, error: i32) -> Error {
    let reason = std::io::Error::from_raw_os_error(-error);
    if reason.kind() == std::io::ErrorKind::PermissionDenied {
        return Error::Permission { device: spec.to_string(), capability: "CAP_NET_ADMIN" };
    }
    Error::Device { device: spec.to_string(), reason: format!("the kernel refuses it: {reason}") }
}

impl KernelDevice {
    /// The administrator may change the MTU at any time; frames follow when somebody looks at the port.
    fn follow_mtu(&self) {
        // SAFETY: a C string that lives for the call.
        let mtu = unsafe { ffi::shim_interface_mtu(self.interface.as_ptr()) };
        if mtu > 0 {
            self.port.set_mtu(u16::try_from(mtu).unwrap_or(u16::MAX));
        }
    }
}

impl Device for KernelDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn queue_count(&self) -> u16 {
        self.port.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        if std::mem::replace(&mut self.queues_taken, true) { Vec::new() } else { self.port.queues() }
    }

    fn pool(&self) -> PoolRef {
        self.port.eal.pool()
    }

    fn link(&self) -> LinkState {
        self.follow_mtu();
        let mut link = ffi::Link::default();
        // SAFETY: a C string that lives for the call; the shim writes `link` on success only.
        let result = unsafe { ffi::shim_interface_link(self.interface.as_ptr(), &mut link) };
        if result == 0 { link.into() } else { LinkState::default() }
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.port.stats();
        let _control = self.port.eal.lock();
        // SAFETY: the port is open, and control calls are serialised by the lock.
        stats.rx_dropped += unsafe { ffi::shim_kernel_missed(self.port.as_ptr()) };
        stats
    }

    fn mac(&self) -> Option<MacAddress> {
        let mut bytes = [0; 6];
        // SAFETY: a C string that lives for the call; the shim writes six bytes.
        let result = unsafe { ffi::shim_interface_mac(self.interface.as_ptr(), &mut bytes) };
        (result == 0 && bytes != [0; 6]).then_some(MacAddress(bytes))
    }

    fn mtu(&self) -> u16 {
        self.follow_mtu();
        self.port.mtu()
    }
}
