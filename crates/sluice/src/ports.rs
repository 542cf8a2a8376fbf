//! Opens ports, at the start and at run time; starts DPDK with the first port that needs it.
//!
//! Threads: one at a time. Tests: `tests/py/test_ports.py`.

use anyhow::{Context, Result, bail};
use datapath::switch::WorkerHook;
use pktio::{Device, DeviceSpec, HeapPool, PoolRef, PortOptions, PortSpec};
use pktio_dpdk::{Eal, EalConfig};
use pktio_kernel::Sockets;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Packet buffers on the heap while no port needs DPDK.
const HEAP_BUFFERS: usize = 16 * 1024;

/// Parses the ports of a command line.
///
/// # Errors
/// If one is wrong, or two conflict.
pub fn parse(texts: &[String]) -> Result<Vec<PortSpec>> {
    let mut specs: Vec<PortSpec> = Vec::new();
    for text in texts {
        let spec: PortSpec = match text.parse() {
            Ok(spec) => spec,
            Err(error) => {
                let error: pktio::SpecError = error;
                bail!("-i: {error}\n{}", error.help());
            }
        };
        if let Some(problem) = conflict(&spec, specs.iter()) {
            bail!("{problem}");
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// Returns why a port conflicts with others: they share a number or a device.
pub fn conflict<'a>(spec: &PortSpec, others: impl Iterator<Item = &'a PortSpec>) -> Option<String> {
    let shared = matches!(spec.device, DeviceSpec::Memory | DeviceSpec::Null);
    for other in others {
        if other.number == spec.number {
            return Some(format!("port {} is given twice", spec.number));
        }
        if !shared && other.device == spec.device {
            let device = &spec.device;
            let (one, two) = (other.number, spec.number);
            return Some(format!("{device} is given to ports {one} and {two}: one device is one port"));
        }
    }
    None
}

/// Opens ports.
pub struct Opener {
    eal: Option<Eal>,
    heap: PoolRef,
    /// The number of worker threads, and of queues that a port gets by default.
    workers: u16,
    /// Sockets prepared in advance, by port.
    prepared: BTreeMap<u32, Sockets>,
}

impl Opener {
    /// Returns an opener; starts DPDK if one of `specs` needs it.
    ///
    /// # Errors
    /// If DPDK cannot be started.
    pub fn new(specs: &[PortSpec], workers: u16) -> Result<Opener> {
        let mut opener = Opener { eal: None, heap: HeapPool::shared(HEAP_BUFFERS), workers, prepared: BTreeMap::new() };
        if specs.iter().any(|s| s.device.needs_dpdk()) {
            opener.start_dpdk(specs)?;
        }
        Ok(opener)
    }

    fn start_dpdk(&mut self, specs: &[PortSpec]) -> Result<&Eal> {
        let pci = specs.iter().filter_map(|s| match &s.device {
            DeviceSpec::Pci { address } => Some(address.clone()),
            _ => None,
        });
        let guest = specs.iter().any(|s| matches!(s.device, DeviceSpec::Virtio { .. }));
        // The rings of a queue hold a buffer per descriptor, in each direction.
        let in_rings = |spec: &PortSpec| {
            2 * u32::from(spec.descriptors.unwrap_or(0)) * u32::from(spec.queues.unwrap_or(self.workers))
        };
        let defaults = EalConfig::default();
        let buffers = (defaults.buffers + specs.iter().map(in_rings).sum::<u32>() + 1).next_power_of_two() - 1;
        let eal = Eal::init(&EalConfig { pci: pci.collect(), guest, buffers, ..defaults })?;
        for notice in eal.notices() {
            tracing::warn!("{notice}");
        }
        Ok(self.eal.insert(eal))
    }

    fn options(&self, spec: &PortSpec) -> PortOptions {
        let defaults = PortOptions::default();
        PortOptions {
            queues: spec.queues.unwrap_or(self.workers),
            descriptors: spec.descriptors.unwrap_or(defaults.descriptors),
            mtu: spec.mtu,
            memory_mb: spec.memory_mb.unwrap_or(defaults.memory_mb),
            isolated: spec.isolated,
            up: spec.up,
        }
    }

    /// Does the slow part of opening ports in advance, while another process still has them. Returns the ports that
    /// cannot be opened, with the errors.
    pub fn prepare(&mut self, specs: &[PortSpec]) -> Vec<(u32, anyhow::Error)> {
        let mut failed = Vec::new();
        for spec in specs {
            let prepared = pktio_kernel::prepare(&spec.device, &self.options(spec));
            match prepared.with_context(|| format!("port {}", spec.number)) {
                Ok(Some(sockets)) => drop(self.prepared.insert(spec.number, sockets)),
                Ok(None) => {}
                Err(error) => failed.push((spec.number, error)),
            }
        }
        failed
    }

    /// Opens a port's device.
    ///
    /// # Errors
    /// If the device or DPDK cannot be opened.
    pub fn open(&mut self, spec: &PortSpec) -> Result<Box<dyn Device>> {
        let options = self.options(spec);
        let context = || format!("port {}", spec.number);
        if !spec.device.needs_dpdk() {
            return pktio::open(&spec.device, self.pool()).with_context(context);
        }
        if let DeviceSpec::AfPacket { .. } | DeviceSpec::Tap { .. } = &spec.device {
            let prepared = self.prepared.remove(&spec.number);
            return pktio_kernel::open_prepared(&spec.device, self.pool(), &options, prepared).with_context(context);
        }
        let eal = match &self.eal {
            Some(eal) => eal,
            None => self.start_dpdk(std::slice::from_ref(spec))?,
        };
        eal.open(&spec.device, &options).with_context(context)
    }

    /// Returns the pool of packet buffers.
    pub fn pool(&self) -> PoolRef {
        self.eal.as_ref().map_or_else(|| Arc::clone(&self.heap), Eal::pool)
    }

    /// Returns the hook that registers each worker with DPDK; `None` if DPDK does not run.
    pub fn register_workers(&self) -> Option<WorkerHook> {
        self.eal.is_some().then(|| {
            Arc::new(|worker| match pktio_dpdk::register_worker() {
                Ok(registration) => Box::new(registration) as Box<dyn std::any::Any>,
                Err(error) => {
                    tracing::warn!(worker, "no DPDK thread of its own, so buffers are shared under a lock: {error}");
                    Box::new(())
                }
            }) as WorkerHook
        })
    }
}
