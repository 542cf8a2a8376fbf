//! The interface to the switch that the services control; `sluice run` implements it.

use control::Control;
use control::schema::Schema;
use std::net::SocketAddr;
use std::time::Duration;

/// A port, as `show_ports` lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// Its interface.
    pub name: String,
    /// Whether the port is up.
    pub up: bool,
    /// Further properties: names and values.
    pub extra: Vec<(String, String)>,
}

/// An audit log record of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The client's address.
    pub peer: SocketAddr,
    /// `service:method`.
    pub method: &'a str,
    /// The subject, such as a table or port.
    pub what: String,
    /// `Ok`, or the kind of error.
    pub outcome: &'a str,
    /// The error message.
    pub message: &'a str,
    /// Duration of the call.
    pub took: Duration,
}

/// A setting of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueSetting {
    /// Capacity in packets.
    Depth(u32),
    /// Rate in packets per second; 0 for the port's maximum.
    Rate(u64),
}

/// A switch, with the one device that the services control. Errors are messages for the client or the log.
pub trait Switch: Send + Sync + 'static {
    /// The device's id.
    fn device_id(&self) -> u64;
    /// Runs `f` with the control plane.
    fn control(&self, f: &mut dyn FnMut(&mut Control));
    /// The running program in bmv2's JSON: the original if it was loaded in this form, otherwise a description.
    fn config(&self, schema: &Schema) -> Result<String, String>;
    /// Checks whether a program can run here; `text` is P4 or JSON.
    fn check_program(&self, text: &str) -> Result<(), String>;
    /// Replaces the running program, without keeping entries.
    fn load_program(&self, text: &str) -> Result<(), String>;
    /// Restarts the running program.
    fn reset(&self) -> Result<(), String>;
    /// All entities, in the format of `sluice run --entries`.
    fn entities(&self) -> Result<String, String>;
    /// All ports of the device.
    fn ports(&self) -> Vec<Port>;
    /// Adds a kernel interface.
    fn add_port(&self, number: u32, interface: &str) -> Result<(), String>;
    /// Removes a port.
    fn remove_port(&self, number: u32) -> Result<(), String>;
    /// Changes one or all queues of one or all ports. A queue's number is its priority.
    fn change_queues(&self, port: Option<u32>, queue: Option<u8>, setting: QueueSetting) -> Result<(), String>;
    /// The address of the event stream, if there is one.
    fn event_socket(&self) -> Option<String>;
    /// Microseconds since the switch started.
    fn elapsed_us(&self) -> u64;
    /// Records a call that changed something, or tried to, in the audit log.
    fn record(&self, record: Record<'_>);
}
