//! A vhost-user port: the rings of `shim/vhost.c`.
//!
//! Threads: the device on control; its queues are `queue`'s. What the guest does meanwhile is the shim's affair. Tests:
//! `tests/peers.rs`, `tests/offload.rs`.
#![allow(unsafe_code)]

use crate::device::{Behind, PortDevice};
use crate::eal::{Inner, PortOptions};
use crate::ffi;
use crate::queue::{Kind, Port, Sleep};
use crate::vdev::{c_string, make_room_for_socket, socket_path};
use pktio::{Device, DeviceSpec, Error, LinkState, MTU_DEFAULT};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// Most queues of a port; the shim's bound.
const QUEUES_MAX: u16 = 64;

static VHOST: Kind = Kind {
    rx: ffi::shim_vhost_rx,
    tx: ffi::shim_vhost_tx,
    close: ffi::shim_vhost_close,
    sleep: Sleep::Armed { file: ffi::shim_vhost_file, arm: ffi::shim_vhost_arm, disarm: ffi::shim_vhost_disarm },
};

/// A guest.
struct Guest;

/// Opens the port at `path`; its guest may come and go. Called under the control lock.
pub(crate) fn open(
    eal: &Arc<Inner>,
    spec: &DeviceSpec,
    path: &Path,
    server: bool,
    options: &PortOptions,
) -> Result<Box<dyn Device>, Error> {
    let path = socket_path(path)?;
    if server {
        make_room_for_socket(&path)?;
    }
    let queues = options.queues.clamp(1, QUEUES_MAX);
    let text = c_string(path.display().to_string());
    let mut error = 0;
    // SAFETY: a C string that the shim copies; the pool lives as long as the process.
    let shim =
        unsafe { ffi::shim_vhost_open(text.as_ptr(), i32::from(!server), queues, eal.mbufs().as_ptr(), &mut error) };
    let Some(shim) = NonNull::new(shim) else {
        return Err(Error::Socket { path, reason: crate::eal::failure("DPDK's vhost library refuses it", error) });
    };
    let port = Port::new(eal, shim, &VHOST, queues, options.mtu.unwrap_or(MTU_DEFAULT), None);
    Ok(Box::new(PortDevice::new(spec.to_string(), "vhost", port, Guest)))
}

impl Behind for Guest {
    fn link(&self, port: &Port) -> LinkState {
        // SAFETY: the port is open.
        LinkState { up: unsafe { ffi::shim_vhost_up(port.as_ptr()) } != 0, speed_mbps: None }
    }
}
