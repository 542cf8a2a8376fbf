//! A vhost-user port: `pktio-vhost` with buffers of DPDK's, in this process or in one of its own. What is in the socket's place is looked at here, as for all ports
//! with sockets.
//!
//! Threads: control. Tests: `tests/peers.rs`, `tests/offload.rs`.

use crate::vdev::{make_room_for_socket, socket_path};
use pktio::{Device, DeviceSpec, Error, MTU_DEFAULT, PoolRef, PortOptions};
use std::path::Path;

/// Opens the port at `path`; its guest may come and go.
pub(crate) fn open(
    pool: PoolRef,
    spec: &DeviceSpec,
    path: &Path,
    is_server: bool,
    options: &PortOptions,
) -> Result<Box<dyn Device>, Error> {
    let path = socket_path(path)?;
    if is_server {
        make_room_for_socket(&path)?;
    }
    if options.isolated {
        return pktio_process::open(spec, path, options, pool);
    }
    let options = pktio_vhost::Options {
        is_server,
        queues: options.queues.clamp(1, pktio_vhost::QUEUES_MAX),
        mtu: options.mtu.unwrap_or(MTU_DEFAULT),
        memory_bytes: u64::from(options.memory_mb) << 20,
    };
    pktio::guard(pktio_vhost::open(spec.to_string(), &path, &options, pool)?)
}
