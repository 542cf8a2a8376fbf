//! What the tests share: a process and a network namespace for each test, and talking to the kernel through a port.
//!
//! DPDK starts once per process, so each test runs itself again as a child: in a network namespace of its own that
//! vanishes with it, and with a time limit. The parent kills only that child.
#![allow(dead_code)]

use pktio::{Device, Packet, Queue};
use pktio_dpdk::{Eal, EalConfig, HugepageUse, PortOptions};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const INNER: &str = "PKTIO_DPDK_TEST";
const TIME_LIMIT: Duration = Duration::from_secs(900);
/// How long anything may take: far longer than it does on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a test cannot do without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Root,
}

pub fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("`id` runs");
    output.stdout == b"0\n"
}

/// Runs `body` in a child process, as root in its own network namespace.
pub fn isolated(test: &str, needs: Needs, body: impl FnOnce()) {
    if std::env::var_os(INNER).is_some_and(|inner| inner == test) {
        return body();
    }
    let root = is_root();
    if needs == Needs::Root && !root {
        eprintln!("{test}: skipped, it needs root to make a network namespace and interfaces");
        return;
    }
    let this = std::env::current_exe().expect("the test has a path");
    let mut command = if root {
        let mut command = Command::new("unshare");
        command.arg("--net").arg(&this);
        command
    } else {
        Command::new(&this)
    };
    command.args([test, "--exact", "--nocapture"]).env(INNER, test);
    let mut child = Reaped(command.spawn().expect("the test starts"));
    let status = wait(&mut child.0, TIME_LIMIT);
    assert!(status.is_some(), "{test}: not done after {TIME_LIMIT:?}");
    assert!(status.is_some_and(|status| status.success()), "{test}: failed, see above");
}

fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait().expect("the child can be waited for") {
            Some(status) => return Some(status),
            None if Instant::now() >= deadline => return None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// A child that does not outlive its owner.
pub struct Reaped(pub Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// DPDK with few buffers on ordinary pages.
pub fn small_eal() -> Eal {
    let config = EalConfig { buffers: 8191, hugepages: HugepageUse::Never, ..EalConfig::default() };
    Eal::init(&config).unwrap_or_else(|error| panic!("{error}"))
}

pub fn open(eal: &Eal, spec: &str) -> (Box<dyn Device>, Box<dyn Queue>) {
    open_with(eal, spec, &PortOptions::default())
}

pub fn open_with(eal: &Eal, spec: &str, options: &PortOptions) -> (Box<dyn Device>, Box<dyn Queue>) {
    let spec = spec.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut device = eal.open(&spec, options).unwrap_or_else(|error| panic!("{error}"));
    let queue = device.take_queues().remove(0);
    (device, queue)
}

/// Runs `ip`, split at spaces.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("`ip` runs");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A veth pair `sw0` (the switch's end) and `host0`, both up.
pub fn veth_pair() {
    ip("link add sw0 type veth peer name host0");
    ip("link set host0 up");
    ip("link set sw0 up");
}

/// Gives `interface` the address 10.9.0.1 and a neighbour 10.9.0.2 that needs no address resolution.
pub fn address(interface: &str) {
    ip(&format!("addr add 10.9.0.1/24 dev {interface}"));
    ip(&format!("link set {interface} up"));
    ip(&format!("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev {interface}"));
}

fn output_of_ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("`ip` runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A UDP socket at 10.9.0.1:5000, once the kernel sends through its interface. The kernel drops what it should send until it
/// has noticed that the link is up, which takes it up to a second.
pub fn kernel_socket() -> UdpSocket {
    let addresses = output_of_ip("-o addr show to 10.9.0.1");
    let interface = addresses.split_whitespace().nth(1).expect("an interface has the address");
    wait_for("the kernel notices that the link is up", || {
        let shown = output_of_ip(&format!("-o link show {interface}"));
        shown.contains("state UP") || shown.contains("state UNKNOWN")
    });
    let socket = UdpSocket::bind("10.9.0.1:5000").expect("the address is there");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    socket
}

/// Polls until a packet satisfies `wanted`; other packets (neighbour discovery, say) are dropped.
pub fn receive(queue: &mut dyn Queue, wanted: impl Fn(&[u8]) -> bool) -> Option<Packet> {
    let deadline = Instant::now() + PATIENCE;
    let mut packets = Vec::new();
    while Instant::now() < deadline {
        // One at a time, so that nothing behind the wanted packet is lost.
        if queue.rx(&mut packets, 1) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(packet) = packets.pop().filter(|packet| wanted(packet.data())) {
            return Some(packet);
        }
    }
    None
}

/// Whether the frame ends with `payload` (Ethernet pads short ones, our payloads are long enough).
pub fn ends_with(payload: &[u8]) -> impl Fn(&[u8]) -> bool {
    move |frame| frame.ends_with(payload)
}

/// Turns an IPv4/UDP frame around: swaps addresses and ports; no UDP checksum, the IPv4 one stays right by itself.
pub fn turn_around(frame: &mut [u8]) {
    for (a, b, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        for i in 0..len {
            frame.swap(a + i, b + i);
        }
    }
    frame[40..42].fill(0);
}

/// The kernel sends to the port, the port answers with the packet turned around, the kernel receives.
pub fn exchange_with_kernel(queue: &mut dyn Queue) {
    let socket = kernel_socket();
    for round in 0..3 {
        let text = format!("packet number {round} from the kernel");
        socket.send_to(text.as_bytes(), "10.9.0.2:6000").expect("the kernel sends");
        let mut packet = receive(queue, ends_with(text.as_bytes())).expect("the port receives what the kernel sends");
        assert_eq!(packet.data()[..6], [2, 0, 0, 0, 0, 2]);
        turn_around(packet.data_mut());
        let mut packets = vec![packet];
        assert_eq!(queue.tx(&mut packets), 1);
        let mut buffer = [0; 100];
        let (len, from) = socket.recv_from(&mut buffer).expect("the kernel receives what the port sends");
        assert_eq!((&buffer[..len], from.to_string().as_str()), (text.as_bytes(), "10.9.0.2:6000"));
    }
}

/// Polls until `ready`.
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn is_up(device: &dyn Device) -> impl FnMut() -> bool + '_ {
    || device.link().up
}

/// A folder of this test's own, removed when the test ends.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sluice-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Folder(path)
    }

    pub fn path(&self, name: &str) -> String {
        Path::new(&self.0).join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
