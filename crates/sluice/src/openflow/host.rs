//! The services of the switch that a bridge uses: time, ports, queues, packet injection.

use bridge::processor::Pipeline;
use bridge::{Bridge, Host, NotInjected};
use datapath::switch::PortInfo;
use datapath::{Switch, SwitchError};
use openflow::message::{Counts, Port, PortStats, Queue, QueueStats};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// `OFPPC_PORT_DOWN`.
const PORT_DOWN: u32 = 1;
/// `OFPPS_LINK_DOWN`.
const LINK_DOWN: u32 = 1;
/// The longest name of a port in OpenFlow, in bytes without the terminating zero.
const NAME_BYTES: usize = 15;

/// The switch, as the host of a bridge.
pub struct SwitchHost {
    switch: Arc<Switch>,
    device: u64,
    /// Event descriptors that wake connections' threads, by connection.
    wakers: Mutex<BTreeMap<u64, Arc<OwnedFd>>>,
    /// The workers' part of the bridge; weak, because it owns this host.
    flows: OnceLock<Weak<Pipeline>>,
    /// Ports that were announced to the bridge, each with the time in microseconds.
    ports: Mutex<BTreeMap<u32, (Port, u64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the `OFPPF_` bits of a full-duplex speed (OpenFlow 1.3.5, 7.2.1.1); OpenFlow 1.0 has no other form of
/// speeds.
fn kinds(mbps: u32) -> u32 {
    match mbps {
        0 => 0,
        10 => 1 << 1,
        100 => 1 << 3,
        1_000 => 1 << 5,
        10_000 => 1 << 6,
        40_000 => 1 << 7,
        100_000 => 1 << 8,
        1_000_000 => 1 << 9,
        _ => 1 << 10,
    }
}

/// Describes a port in OpenFlow's terms.
fn described(port: &PortInfo) -> Port {
    let mut name = port.name.clone();
    let mut end = NAME_BYTES.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    let mbps = port.link.speed_mbps.unwrap_or(0);
    let (kbps, kinds) = (mbps.saturating_mul(1000), kinds(mbps));
    Port {
        number: port.number,
        address: port.mac.map_or([0; 6], |address| address.0),
        name,
        config: if port.in_service { 0 } else { PORT_DOWN },
        state: if port.link.up { 0 } else { LINK_DOWN },
        features: [kinds, 0, kinds, 0],
        speeds: [kbps, kbps],
    }
}

impl SwitchHost {
    /// Returns the host of the bridge with this device id.
    pub fn new(switch: Arc<Switch>, device: u64) -> SwitchHost {
        SwitchHost { switch, device, wakers: Mutex::default(), flows: OnceLock::new(), ports: Mutex::default() }
    }

    /// Sets the workers' part of the bridge.
    pub fn set_flows(&self, flows: &Arc<Pipeline>) {
        // Set once.
        let _ = self.flows.set(Arc::downgrade(flows));
    }

    fn our_ports(&self) -> Vec<PortInfo> {
        self.switch.ports().into_iter().filter(|port| port.bound_to == self.device).collect()
    }

    /// Returns the default datapath id: the low 48 bits of the device's id.
    pub fn default_datapath(&self) -> u64 {
        self.device & 0xffff_ffff_ffff
    }

    /// Announces added, removed and changed ports to the bridge.
    pub fn tell_ports(&self, bridge: &Bridge) {
        let now_us = self.switch.now_us();
        let mut known = lock(&self.ports);
        let ports = self.our_ports();
        let links = self.switch.links().into_iter().filter(|link| link.from.device == self.device);
        let ends = links.map(|link| Port {
            number: link.from.port,
            name: format!("link-{}-{}", link.to.device, link.to.port),
            ..Port::default()
        });
        let now: Vec<Port> = ports.iter().map(described).chain(ends).collect();
        let gone: Vec<u32> =
            known.keys().copied().filter(|number| now.iter().all(|port| port.number != *number)).collect();
        for number in gone {
            known.remove(&number);
            bridge.remove_port(number);
        }
        for port in now {
            match known.get_mut(&port.number) {
                Some((old, _)) if *old == port => {}
                Some((old, _)) => {
                    *old = port.clone();
                    bridge.put_port(port);
                }
                None => {
                    known.insert(port.number, (port.clone(), now_us));
                    bridge.put_port(port);
                }
            }
        }
    }

    /// Sets the descriptor that wakes a connection's thread; `None` removes it.
    pub fn set_waker(&self, connection: u64, waker: Option<Arc<OwnedFd>>) {
        let mut wakers = lock(&self.wakers);
        match waker {
            Some(waker) => wakers.insert(connection, waker),
            None => wakers.remove(&connection),
        };
    }

    fn age(&self, port: u32) -> (u32, u32) {
        let since = lock(&self.ports).get(&port).map_or(0, |(_, since)| *since);
        let age = self.switch.now_us().saturating_sub(since);
        ((age / 1_000_000) as u32, (age % 1_000_000) as u32 * 1000)
    }
}

impl Host for SwitchHost {
    fn now_us(&self) -> u64 {
        self.switch.now_us()
    }

    fn inject(&self, frame: Vec<u8>, in_port: u32, start: u64) -> Result<(), NotInjected> {
        self.switch.inject_at(self.device, in_port, start, frame).map_err(|(error, frame)| match error {
            SwitchError::Busy => NotInjected::Busy(frame),
            error => NotInjected::Failed(error.to_string()),
        })
    }

    fn port_stats(&self, port: u32) -> Option<PortStats> {
        let duration = self.age(port);
        if let Some(link) =
            self.switch.links().into_iter().find(|link| link.from.device == self.device && link.from.port == port)
        {
            let sent = Counts { packets: link.packets, bytes: link.bytes };
            return Some(PortStats { port, sent, duration, ..PortStats::default() });
        }
        let info = self.our_ports().into_iter().find(|info| info.number == port)?;
        let stats = info.stats;
        Some(PortStats {
            port,
            received: Counts { packets: stats.rx_packets, bytes: stats.rx_bytes },
            sent: Counts { packets: stats.tx_packets, bytes: stats.tx_bytes },
            dropped: [stats.rx_dropped, stats.tx_dropped],
            errors: [stats.rx_errors, stats.tx_too_long + stats.tx_not_cut],
            duration,
        })
    }

    fn queues(&self, port: u32) -> Vec<Queue> {
        let count = self.queue_stats(port).len();
        (0..count as u32).map(|queue| Queue { port, queue, rates: [None; 2] }).collect()
    }

    fn queue_stats(&self, port: u32) -> Vec<QueueStats> {
        let duration = self.age(port);
        let Ok(Some(queues)) = self.switch.queues(port) else { return Vec::new() };
        let stats = queues.statistics.into_iter().enumerate().map(|(queue, stats)| QueueStats {
            port,
            queue: queue as u32,
            sent: Counts { packets: stats.sent.packets, bytes: stats.sent.bytes },
            errors: stats.dropped.total().packets,
            duration,
        });
        stats.collect()
    }

    fn set_port_config(&self, port: u32, config: u32) -> Result<(), String> {
        self.switch.set_in_service(port, config & PORT_DOWN == 0).map_err(|error| error.to_string())
    }

    fn sync_counts(&self) {
        if let Some(flows) = self.flows.get().and_then(Weak::upgrade) {
            flows.request_counts();
        }
        // The counts of a worker that does not respond in time are missing from the answer.
        let _ = self.switch.settle();
    }

    fn wake(&self, connection: u64) {
        if let Some(waker) = lock(&self.wakers).get(&connection) {
            let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
        }
    }
}
