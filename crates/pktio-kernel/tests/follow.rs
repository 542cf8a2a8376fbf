//! Ports to interfaces that come, go, change their names and flap. Each test runs itself again in a network namespace of its
//! own, as root; the kernel's processes of other namespaces see nothing of it.

use pktio::{Device, Error, HeapPool, Packet, PoolRef, PortOptions, Queue, Wake};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const INNER: &str = "PKTIO_KERNEL_TEST";
/// How long anything may take: far longer than it does on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// A frame of an experimental type, from one to another.
const FRAME: &[u8] = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5 a frame with a payload of fifty bytes and a few more";

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// Runs `body` in a child process, in its own network namespace.
fn isolated(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INNER).is_some_and(|inner| inner == test) {
        return body();
    }
    if !is_root() {
        eprintln!("{test}: skipped, it needs root to make a network namespace and interfaces");
        return;
    }
    let this = std::env::current_exe().expect("the test has a path");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(this).args([test, "--exact", "--nocapture"]).env(INNER, test);
    assert!(command.status().expect("the test starts").success(), "{test}: failed, see above");
}

/// Runs `ip`, split at spaces.
fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("`ip` runs");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A veth pair, both ends up and silent.
fn pair(one: &str, other: &str) {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    ip(&format!("link add {one} type veth peer name {other}"));
    ip(&format!("link set {one} up"));
    ip(&format!("link set {other} up"));
}

fn pool() -> PoolRef {
    HeapPool::shared(4096)
}

type Port = (Box<dyn Device>, Box<dyn Queue>);

fn try_open(spec: &str, options: &PortOptions) -> Result<Port, Error> {
    let mut device = pktio_kernel::open(&spec.parse().expect("a device"), pool(), options)?;
    let queue = device.take_queues().remove(0);
    Ok((device, queue))
}

fn open(spec: &str) -> Port {
    try_open(spec, &PortOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends [`FRAME`] by one port until the other receives it: an interface that came up just now drops what it sends.
fn passes(from: &mut dyn Queue, to: &mut dyn Queue) {
    let pool = pool();
    wait_for("a frame passes", || {
        let mut packets: Vec<Packet> = vec![pool.alloc_from(FRAME).expect("a buffer")];
        from.tx(&mut packets);
        let mut received = Vec::new();
        to.rx(&mut received, 64);
        received.iter().any(|packet| packet.data() == FRAME)
    });
}

#[test]
fn an_interface_made_again_under_its_name_moves_packets() {
    isolated("an_interface_made_again_under_its_name_moves_packets", || {
        pair("sw0", "host0");
        let (device, mut inside) = open("sw0");
        let (_other, mut outside) = open("host0");
        for _ in 0..3 {
            passes(&mut *inside, &mut *outside);
            passes(&mut *outside, &mut *inside);
            ip("link del sw0");
            assert!(!device.link().up, "it is gone");
            assert!(device.note().expect("a note").contains("waits for one of this name"));
            // What is sent meanwhile is dropped, and holds nobody up.
            let mut packets = vec![pool().alloc_from(FRAME).unwrap()];
            assert_eq!(inside.tx(&mut packets), 1);
            pair("sw0", "host0");
            wait_for("the link is up", || device.link().up);
            assert_eq!(device.note(), None);
        }
        passes(&mut *inside, &mut *outside);
        assert!(device.stats().tx_dropped >= 3);
    });
}

#[test]
fn a_renamed_interface_is_still_the_ports_and_shows_its_link() {
    isolated("a_renamed_interface_is_still_the_ports_and_shows_its_link", || {
        pair("sw0", "host0");
        let (device, mut inside) = open("sw0");
        let (_other, mut outside) = open("host0");
        wait_for("the link is up", || device.link().up);
        // Interfaces that are up may be renamed from Linux 6.2 on.
        ip("link set sw0 down");
        ip("link set sw0 name eth7");
        ip("link set eth7 up");
        wait_for("the link is up", || device.link().up);
        assert!(device.note().expect("a note").contains("is called `eth7` now"));
        passes(&mut *inside, &mut *outside);
        ip("link set host0 down");
        wait_for("the link is down", || !device.link().up);
        // Another one of the port's name is not taken as long as the first is there.
        pair("sw0", "host1");
        ip("link set host0 up");
        wait_for("the link is up", || device.link().up);
        passes(&mut *inside, &mut *outside);
        ip("link del eth7");
        wait_for("the one of its name", || device.link().up && device.note().is_none());
        let (_third, mut outside) = open("host1");
        passes(&mut *inside, &mut *outside);
    });
}

/// How often a worker that waits for packets comes back within a time, though there are none.
fn wakings(queue: &mut dyn Queue, time: Duration) -> u32 {
    let (start, mut count, mut packets) = (Instant::now(), 0, Vec::new());
    while start.elapsed() < time {
        let mut files = Vec::new();
        assert_ne!(queue.arm(&mut files), Wake::Poll);
        pktio::wait(&files, Duration::from_millis(50));
        queue.disarm();
        queue.rx(&mut packets, 64);
        packets.clear();
        count += 1;
    }
    count
}

#[test]
fn waiting_workers_sleep_after_every_link_flap() {
    isolated("waiting_workers_sleep_after_every_link_flap", || {
        pair("sw0", "host0");
        for spec in ["sw0", "tap:tap0"] {
            let interface = spec.trim_start_matches("tap:");
            let (device, mut queue) = open(spec);
            let far = (spec == "sw0").then(|| open("host0"));
            // As it sleeps, so it does after each flap: 10 rounds of 50 ms, and some for what interfaces say when they come up.
            let few = 100;
            for _ in 0..3 {
                ip(&format!("link set {interface} down"));
                assert!(!device.link().up);
                let count = wakings(&mut *queue, Duration::from_millis(500));
                assert!(count < few, "{spec} is down: {count} wakings in half a second");
                ip(&format!("link set {interface} up"));
                let count = wakings(&mut *queue, Duration::from_millis(500));
                assert!(count < few, "{spec} is up: {count} wakings in half a second");
            }
            if let Some((_device, mut outside)) = far {
                passes(&mut *outside, &mut *queue);
                passes(&mut *queue, &mut *outside);
            }
            ip(&format!("link del {interface}"));
            let count = wakings(&mut *queue, Duration::from_millis(500));
            // The kernel's news come to the queue through a thread; until then the file of a TAP that is gone looks readable.
            wait_for("it sleeps", || wakings(&mut *queue, Duration::from_millis(500)) < few);
            assert!(count < 1_000_000, "{count}");
        }
    });
}

#[test]
fn an_interface_is_a_port_once_per_host() {
    const TEST: &str = "an_interface_is_a_port_once_per_host";
    const SECOND: &str = "PKTIO_KERNEL_SECOND";
    if std::env::var_os(SECOND).is_some() {
        let error = try_open("sw0", &PortOptions::default()).err().expect("it is taken");
        println!("refused: {error}");
        return;
    }
    isolated(TEST, || {
        pair("sw0", "host0");
        let first = open("sw0");
        let error = try_open("sw0", &PortOptions::default()).err().expect("it is taken").to_string();
        assert!(error.contains("interface `sw0` is a port of this switch already"), "{error}");
        let this = std::env::current_exe().expect("the test has a path");
        let mut command = Command::new(this);
        command.args([TEST, "--exact", "--nocapture"]).env(SECOND, "1").stdout(Stdio::piped());
        let output = command.output().expect("the second process runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let owner = format!("interface `sw0` is a port of process {} (", std::process::id());
        assert!(text.contains(&owner), "{text}");
        // A claim ends with its port.
        drop(first);
        open("sw0");
    });
}

#[test]
fn an_interface_that_is_down_is_set_up_only_when_asked() {
    isolated("an_interface_that_is_down_is_set_up_only_when_asked", || {
        pair("sw0", "host0");
        let (_other, mut outside) = open("host0");
        for queues in [1, 2] {
            ip("link set sw0 down");
            let options = PortOptions { queues, ..PortOptions::default() };
            {
                let (device, mut inside) = try_open("sw0", &options).unwrap_or_else(|error| panic!("{error}"));
                let shown = Command::new("ip").args(["link", "show", "sw0"]).output().unwrap();
                assert!(String::from_utf8_lossy(&shown.stdout).contains("state DOWN"), "left alone");
                assert!(!device.link().up);
                let note = device.note().expect("a note");
                assert!(note.contains("ip link set sw0 up"), "{note}");
                // The operator sets it up: it works without further ado.
                ip("link set sw0 up");
                wait_for("the link is up", || device.link().up);
                passes(&mut *inside, &mut *outside);
            }
            ip("link set sw0 down");
            let (device, mut inside) = try_open("sw0", &PortOptions { up: true, ..options }).unwrap();
            wait_for("the link is up", || device.link().up);
            passes(&mut *inside, &mut *outside);
        }
    });
}

#[test]
fn links_stay_true_when_no_descriptor_is_left() {
    isolated("links_stay_true_when_no_descriptor_is_left", || {
        pair("sw0", "host0");
        let (device, _queue) = open("sw0");
        wait_for("the link is up", || device.link().up);
        let files = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok());
        let all: Vec<std::fs::File> = files.take(1 << 20).collect();
        assert!(std::fs::File::open("/dev/null").is_err(), "the table is full");
        for _ in 0..10 {
            assert!(device.link().up, "nothing is wrong with the link");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(device.mtu(), 1500);
        assert!(device.mac().is_some());
        drop(all);
        ip("link set host0 down");
        wait_for("the link is down", || !device.link().up);
    });
}

#[test]
fn mtu_and_address_follow_the_interface_and_the_options_come_back_with_it() {
    isolated("mtu_and_address_follow_the_interface_and_the_options_come_back_with_it", || {
        pair("sw0", "host0");
        let options = PortOptions { mtu: Some(4000), up: true, ..PortOptions::default() };
        let (device, _queue) = try_open("sw0", &options).unwrap();
        assert_eq!(device.mtu(), 4000);
        ip("link set sw0 mtu 2000");
        assert_eq!(device.mtu(), 2000);
        ip("link set sw0 address 02:00:00:00:00:77");
        assert_eq!(device.mac().expect("an address").to_string(), "02:00:00:00:00:77");
        ip("link del sw0");
        ip("link add sw0 type veth peer name host0");
        ip("link set host0 up");
        wait_for("it is set up again", || device.link().up && device.mtu() == 4000);
    });
}
