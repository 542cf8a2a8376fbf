//! Opening ports: those that the switch begins with, and those that come while it runs; and DPDK, which starts with the first
//! port that needs it.
//!
//! Threads: one at a time. Tests: `tests/py/test_ports.py`.

use anyhow::{Context, Result, bail};
use datapath::switch::WorkerHook;
use pktio::{Device, DeviceSpec, HeapPool, PoolRef, PortOptions, PortSpec};
use pktio_dpdk::{Eal, EalConfig};
use pktio_kernel::Sockets;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Heap buffers while no port needs DPDK.
const HEAP_BUFFERS: usize = 16 * 1024;

/// Ports as the command line says.
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

/// Why a port cannot be beside others.
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

/// What opens ports.
pub struct Opener {
    eal: Option<Eal>,
    heap: PoolRef,
    /// Worker threads, each of which gets a queue if the device has so many.
    workers: u16,
    /// By port, what was done ahead.
    prepared: BTreeMap<u32, Sockets>,
}

impl Opener {
    /// Starts DPDK if one of the ports that the switch begins with needs it.
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
        // Rings hold buffers, one for each packet that waits in either direction.
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

    /// Does ahead what takes long when a port is opened, while another process has it; what would keep ports from being opened.
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

    /// Opens a port.
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

    /// Where received packets' buffers come from.
    pub fn pool(&self) -> PoolRef {
        self.eal.as_ref().map_or_else(|| Arc::clone(&self.heap), Eal::pool)
    }

    /// What workers do first, if DPDK runs.
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
