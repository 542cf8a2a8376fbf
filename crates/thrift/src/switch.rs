//! What the services need of the switch that they speak for; `sluice run` implements it.

use control::Control;
use control::schema::Schema;
use std::net::SocketAddr;
use std::time::Duration;

/// A port, as `show_ports` tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// Its interface.
    pub name: String,
    /// Whether packets pass.
    pub up: bool,
    /// What else there is to say: names and values.
    pub extra: Vec<(String, String)>,
}

/// A call for the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Who called.
    pub peer: SocketAddr,
    /// `service:method`.
    pub method: &'a str,
    /// What it was about: a table, a port.
    pub what: String,
    /// `Ok`, or what it ended with.
    pub outcome: &'a str,
    /// Why.
    pub message: &'a str,
    /// How long it took.
    pub took: Duration,
}

/// What of a queue is to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueSetting {
    /// Packets that it holds.
    Depth(u32),
    /// Packets that leave it in a second; 0 for as many as the port takes.
    Rate(u64),
}

/// A switch with one device that the services are about. Refusals are sentences.
pub trait Switch: Send + Sync + 'static {
    /// The device's id.
    fn device_id(&self) -> u64;
    /// Does something with the control plane.
    fn control(&self, f: &mut dyn FnMut(&mut Control));
    /// The running program in bmv2's JSON: itself, if it came so, or a description.
    fn config(&self, schema: &Schema) -> Result<String, String>;
    /// Whether a program can run here; `text` is P4 or JSON.
    fn check_program(&self, text: &str) -> Result<(), String>;
    /// Runs another program, without the entries of the last one.
    fn load_program(&self, text: &str) -> Result<(), String>;
    /// Begins the running program anew.
    fn reset(&self) -> Result<(), String>;
    /// All entities, in the language of `sluice run --entries`.
    fn entities(&self) -> Result<String, String>;
    /// All ports of the device.
    fn ports(&self) -> Vec<Port>;
    /// Adds a kernel interface.
    fn add_port(&self, number: u32, interface: &str) -> Result<(), String>;
    /// Removes a port.
    fn remove_port(&self, number: u32) -> Result<(), String>;
    /// Changes one or all queues of a port, or of all ports. A queue's number is its priority.
    fn change_queues(&self, port: Option<u32>, queue: Option<u8>, setting: QueueSetting) -> Result<(), String>;
    /// The address of the event stream, if there is one.
    fn event_socket(&self) -> Option<String>;
    /// Microseconds since the switch started.
    fn elapsed_us(&self) -> u64;
    /// Takes a call that changed something, or was to, into the audit log.
    fn record(&self, record: Record<'_>);
}
