//! Ports to the kernel: existing interfaces and TAP interfaces, over the sockets of `shim/kernel.c`.
//!
//! Threads: the device on control; its queues are `queue`'s. Tests: `tests/ports.rs`, `tests/offload.rs`.
#![allow(unsafe_code)]

use crate::device::{Behind, PortDevice};
use crate::eal::{Inner, PortOptions};
use crate::ffi;
use crate::queue::{Kind, Port, Sleep};
use crate::vdev::{c_string, check_interface, check_tap};
use pktio::{Device, DeviceSpec, Error, LinkState, MacAddress, PortStats};
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

/// The kernel's interface.
struct Interface(CString);

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
    let interface = Interface(interface);
    interface.follow_mtu(&port);
    Ok(Box::new(PortDevice::new(spec.to_string(), spec.kind(), port, interface)))
}

fn refused(spec: &DeviceSpec, error: i32) -> Error {
    let reason = std::io::Error::from_raw_os_error(-error);
    if reason.kind() == std::io::ErrorKind::PermissionDenied {
        return Error::Permission { device: spec.to_string(), capability: "CAP_NET_ADMIN" };
    }
    Error::Device { device: spec.to_string(), reason: format!("the kernel refuses it: {reason}") }
}

impl Interface {
    /// The administrator may change the MTU at any time; frames follow when somebody looks at the port.
    fn follow_mtu(&self, port: &Port) {
        // SAFETY: a C string that lives for the call.
        let mtu = unsafe { ffi::shim_interface_mtu(self.0.as_ptr()) };
        if mtu > 0 {
            port.set_mtu(u16::try_from(mtu).unwrap_or(u16::MAX));
        }
    }
}

impl Behind for Interface {
    fn link(&self, port: &Port) -> LinkState {
        self.follow_mtu(port);
        let mut link = ffi::Link::default();
        // SAFETY: a C string that lives for the call; the shim writes `link` on success only.
        let result = unsafe { ffi::shim_interface_link(self.0.as_ptr(), &mut link) };
        if result == 0 { link.into() } else { LinkState::default() }
    }

    fn add_stats(&self, port: &Port, stats: &mut PortStats) {
        let _control = port.eal.lock();
        // SAFETY: the port is open, and control calls are serialised by the lock.
        stats.rx_dropped += unsafe { ffi::shim_kernel_missed(port.as_ptr()) };
    }

    fn mac(&self, _port: &Port) -> Option<MacAddress> {
        let mut bytes = [0; 6];
        // SAFETY: a C string that lives for the call; the shim writes six bytes.
        let result = unsafe { ffi::shim_interface_mac(self.0.as_ptr(), &mut bytes) };
        (result == 0 && bytes != [0; 6]).then_some(MacAddress(bytes))
    }

    fn mtu(&self, port: &Port) -> u16 {
        self.follow_mtu(port);
        port.mtu()
    }
}
