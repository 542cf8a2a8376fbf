//! Shared-memory ports against `dpdk-testpmd` in a process of its own: memif both ways round, vhost-user both ways round
//! with testpmd's virtio-user port as the guest. The peer swaps addresses and sends everything back.

mod common;

use common::*;
use pktio::Queue;
use pktio_dpdk::{Eal, EalConfig, HugepageUse, PortOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Hugepages of 2 MB that the guest and our end need together.
const HUGEPAGES: u64 = 200;

/// A running `dpdk-testpmd`, ended on drop.
struct Peer {
    _process: Reaped,
    _runtime: Folder,
}

/// `dpdk-testpmd` with one port that answers every packet; `None` when it is not installed.
fn echo_peer(test: &str, eal_arguments: &[&str], device: &str) -> Option<Peer> {
    echo_peer_with(test, eal_arguments, device, &[])
}

/// The same with further arguments of testpmd.
fn echo_peer_with(test: &str, eal_arguments: &[&str], device: &str, arguments: &[&str]) -> Option<Peer> {
    // DPDK keeps its lock and its sockets in a folder below this one, and a process that is killed leaves them.
    let runtime = Folder::new(&format!("peer-of-{test}"));
    let spawned = Command::new("dpdk-testpmd")
        .args(["--lcores", "0@(0-1),1@(0-1)", "--no-pci", "--no-telemetry"])
        .arg(format!("--file-prefix=peer{}", std::process::id()))
        .env("RUNTIME_DIRECTORY", &runtime.0)
        .args(eal_arguments)
        .args(["--vdev", device, "--", "--forward-mode=macswap", "--port-topology=loop", "--auto-start"])
        .args(["--total-num-mbufs=4096", "--no-mlockall", "--no-flush-rx", "--disable-link-check"])
        .args(arguments)
        .stdin(Stdio::piped()) // it ends at the end of its input
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match spawned {
        Ok(child) => Some(Peer { _process: Reaped(child), _runtime: runtime }),
        Err(error) => {
            eprintln!("{test}: skipped, `dpdk-testpmd` does not run: {error}");
            None
        }
    }
}

/// Sends numbered packets of many lengths and expects each back with its addresses swapped.
fn exchange(eal: &Eal, queue: &mut dyn Queue) {
    exchange_up_to(1510, eal, queue);
}

/// The same, with packets of 60 bytes to `longest`.
fn exchange_up_to(longest: usize, eal: &Eal, queue: &mut dyn Queue) {
    let pool = eal.pool();
    let frame = |i: u16| {
        let mut frame = vec![i as u8; 60 + (usize::from(i) * (longest / 167)) % (longest - 60)];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame[14..16].copy_from_slice(&i.to_be_bytes());
        frame
    };
    // The link is up before the peer forwards, and a starting guest resets its rings once more: what is sent until then
    // is lost. So one packet at a time until one comes back, and then until all have.
    let mut received = Vec::new();
    wait_for("the peer sends something back", || {
        queue.tx(&mut vec![pool.alloc_from(&frame(u16::MAX)).expect("the pool has buffers")]);
        queue.rx(&mut received, 64) > 0
    });
    while !received.is_empty() {
        received.clear();
        std::thread::sleep(Duration::from_millis(300));
        queue.rx(&mut received, 2048);
    }

    let mut packets = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let mut next = 0;
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while frames.len() < 1000 && Instant::now() < deadline {
        // At most 32 in flight: testpmd drops what does not fit into its ring at once, and a packet may take six places.
        while next < 1000 && usize::from(next) < frames.len() + 32 {
            packets.push(pool.alloc_from(&frame(next)).expect("the pool has buffers"));
            next += 1;
        }
        queue.tx(&mut packets);
        queue.rx(&mut received, 64);
        // A straggler of the first ones may come even now.
        let of_these = |frame: &Vec<u8>| frame.get(14..16) != Some(&u16::MAX.to_be_bytes());
        frames.extend(received.drain(..).map(|packet| packet.data().to_vec()).filter(of_these));
    }
    let numbers: Vec<_> = frames.iter().map(|frame| frame.get(14..16)).collect();
    let wrong = (0..numbers.len()).find(|&i| numbers[i] != Some(&(i as u16).to_be_bytes()));
    if let Some(wrong) = wrong {
        let around = &numbers[wrong.saturating_sub(1)..frames.len().min(wrong + 3)];
        panic!("packet {wrong} of {} is out of place: {around:?}", frames.len());
    }
    assert_eq!(frames.len(), 1000, "packets sent: {next}, not taken by the device: {}", packets.len());
    for (i, received) in frames.iter().enumerate() {
        let mut expected = frame(i as u16);
        for byte in 0..6 {
            expected.swap(byte, byte + 6);
        }
        assert!(*received == expected, "packet {i} of {} bytes", expected.len());
    }
}

#[test]
fn memif_client_reaches_a_server_and_finds_it_again() {
    const TEST: &str = "memif_client_reaches_a_server_and_finds_it_again";
    isolated(TEST, Needs::Root, || {
        let folder = Folder::new("memif-client");
        let socket = folder.path("memif.sock");
        let peer = || {
            let device = format!("net_memif0,role=server,id=3,socket={socket},socket-abstract=no");
            echo_peer(TEST, &["--no-huge", "--no-shconf", "-m", "128"], &device)
        };
        let eal = small_eal();
        let (device, mut queue) = open(&eal, &format!("memif:{socket},id=3"));
        assert!(!device.link().up, "nobody is there yet");
        let Some(first) = peer() else { return };
        wait_for("the link is up", is_up(&*device));
        exchange(&eal, &mut *queue);
        drop(first);
        wait_for("the link is down when the peer is gone", || {
            queue.rx(&mut Vec::new(), 32);
            !device.link().up
        });
        let _ = std::fs::remove_file(&socket);
        let _second = peer();
        wait_for("the link is up again", is_up(&*device));
        exchange(&eal, &mut *queue);
    });
}

#[test]
fn memif_server_serves_a_client() {
    const TEST: &str = "memif_server_serves_a_client";
    isolated(TEST, Needs::Root, || {
        let folder = Folder::new("memif-server");
        let socket = folder.path("memif.sock");
        let eal = small_eal();
        let (device, mut queue) = open(&eal, &format!("memif:{socket},role=server"));
        let peer = format!("net_memif0,role=client,id=0,socket={socket},socket-abstract=no");
        let Some(_peer) = echo_peer(TEST, &["--no-huge", "--no-shconf", "-m", "128"], &peer) else { return };
        wait_for("the link is up", is_up(&*device));
        exchange(&eal, &mut *queue);
        assert!(device.stats().rx_packets > 1000 && device.stats().tx_packets > 1000, "{:?}", device.stats());
    });
}

/// Buffers of our memory that hold a long frame each.
#[test]
fn memif_carries_jumbo_frames() {
    const TEST: &str = "memif_carries_jumbo_frames";
    isolated(TEST, Needs::Root, || {
        let folder = Folder::new(TEST);
        let socket = folder.path("memif.sock");
        let eal = small_eal();
        let options = PortOptions { mtu: Some(9000), ..PortOptions::default() };
        let (device, mut queue) = open_with(&eal, &format!("memif:{socket}"), &options);
        let peer = format!("net_memif0,role=server,id=0,socket={socket},socket-abstract=no");
        let Some(_peer) = echo_peer(TEST, &["--no-huge", "--no-shconf", "-m", "128"], &peer) else { return };
        wait_for("the link is up", is_up(&*device));
        exchange_up_to(9018, &eal, &mut *queue);
        let stats = device.stats();
        assert!(stats.rx_packets > 1000 && stats.rx_dropped == 0 && stats.tx_dropped == 0, "{stats:?}");
    });
}

#[test]
fn memif_rings_have_1024_places() {
    const TEST: &str = "memif_rings_have_1024_places";
    isolated(TEST, Needs::Root, || {
        assert!((1000..=1024).contains(&waiting(TEST, &PortOptions::default())));
    });
}

#[test]
fn memif_rings_are_as_long_as_asked() {
    const TEST: &str = "memif_rings_are_as_long_as_asked";
    isolated(TEST, Needs::Root, || {
        let options = PortOptions { descriptors: 4096, ..PortOptions::default() };
        assert!((4000..=4096).contains(&waiting(TEST, &options)));
    });
}

/// How many packets wait in the rings between two ports of ours.
fn waiting(test: &str, options: &PortOptions) -> usize {
    const SENT: usize = 6000;
    let folder = Folder::new(test);
    let socket = folder.path("memif.sock");
    let config = EalConfig { buffers: 16_383, hugepages: HugepageUse::Never, ..EalConfig::default() };
    let eal = Eal::init(&config).expect("DPDK starts");
    let (server, mut receiver) = open_with(&eal, &format!("memif:{socket},role=server"), options);
    let (client, mut sender) = open_with(&eal, &format!("memif:{socket}"), options);
    wait_for("both links are up", || client.link().up && server.link().up);
    let pool = eal.pool();
    let mut packets: Vec<_> = (0..SENT).map(|_| pool.alloc_from(&[0x5a; 60]).expect("a buffer")).collect();
    // What a burst does not take stays.
    (0..SENT / 32).for_each(|_| _ = sender.tx(&mut packets));
    let mut received = Vec::new();
    while receiver.rx(&mut received, 64) > 0 {}
    println!("{} of {SENT} packets have waited", received.len());
    received.len()
}

/// One guest at a time: two would need twice the hugepages.
fn alone() -> MutexGuard<'static, ()> {
    static GUESTS: Mutex<()> = Mutex::new(());
    GUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` in a process of its own, with a folder for sockets, if there can be a guest.
fn beside_a_guest(test: &str, body: impl FnOnce(&Folder)) {
    let _alone = alone();
    isolated(test, Needs::Root, || {
        if guest_possible(test) {
            body(&Folder::new(test));
        }
    });
}

/// Whether the kernel has the hugepages that a guest needs; says so if not.
fn guest_possible(test: &str) -> bool {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    let free: u64 = free.trim().parse().unwrap_or(0);
    if free < HUGEPAGES {
        eprintln!(
            "{test}: skipped, a guest needs hugepages: {free} of {HUGEPAGES} are free \
             (`echo {HUGEPAGES} > /proc/sys/vm/nr_hugepages` as root)"
        );
    }
    free >= HUGEPAGES
}

fn guest(test: &str, socket: &str, server: bool) -> Option<Peer> {
    let server = u8::from(server);
    let device = format!("net_virtio_user0,path={socket},server={server},queues=1,queue_size=1024");
    echo_peer(test, &["--in-memory", "--single-file-segments", "--socket-mem", "128"], &device)
}

/// Our end on hugepages, as in production, or on ordinary pages.
fn eal(hugepages: HugepageUse) -> Eal {
    let config = EalConfig { buffers: 8191, hugepages, ..EalConfig::default() };
    Eal::init(&config).unwrap_or_else(|error| panic!("{error}"))
}

fn vhost_client(test: &'static str, hugepages: HugepageUse) {
    beside_a_guest(test, |folder| {
        let socket = folder.path("guest.sock");
        let eal = eal(hugepages);
        let (device, mut queue) = open(&eal, &format!("vhost:{socket}"));
        assert!(!device.link().up, "there is no guest yet");
        let Some(first) = guest(test, &socket, true) else { return };
        wait_for("the link is up", is_up(&*device));
        exchange(&eal, &mut *queue);
        drop(first);
        wait_for("the link is down when the guest is gone", || {
            queue.rx(&mut Vec::new(), 32);
            !device.link().up
        });
        let _ = std::fs::remove_file(&socket);
        let _second = guest(test, &socket, true);
        wait_for("the link is up again after the guest's restart", is_up(&*device));
        exchange(&eal, &mut *queue);
        assert!(device.stats().rx_packets > 2000, "{:?}", device.stats());
    });
}

#[test]
fn vhost_client_reaches_a_guest_and_its_restart() {
    vhost_client("vhost_client_reaches_a_guest_and_its_restart", HugepageUse::Require);
}

#[test]
fn vhost_client_works_on_ordinary_pages() {
    vhost_client("vhost_client_works_on_ordinary_pages", HugepageUse::Never);
}

#[test]
fn vhost_server_waits_for_a_guest() {
    const TEST: &str = "vhost_server_waits_for_a_guest";
    beside_a_guest(TEST, |folder| {
        let socket = folder.path("switch.sock");
        let eal = eal(HugepageUse::Never);
        let (device, mut queue) = open(&eal, &format!("vhost-server:{socket}"));
        assert!(Path::new(&socket).exists());
        let Some(_guest) = guest(TEST, &socket, false) else { return };
        wait_for("the link is up", is_up(&*device));
        exchange(&eal, &mut *queue);
        drop((device, queue));
        assert!(!Path::new(&socket).exists(), "closing the port removes its socket");
    });
}

#[test]
fn virtio_is_the_guest_of_another_switch() {
    const TEST: &str = "virtio_is_the_guest_of_another_switch";
    isolated(TEST, Needs::Root, || {
        let folder = Folder::new(TEST);
        let socket = folder.path("switch.sock");
        let config = EalConfig { buffers: 8191, hugepages: HugepageUse::Never, guest: true, ..EalConfig::default() };
        let eal = Eal::init(&config).unwrap_or_else(|error| panic!("{error}"));
        let arguments = ["--no-huge", "--no-shconf", "-m", "128"];
        let Some(_switch) = echo_peer(TEST, &arguments, &format!("net_vhost0,iface={socket},queues=1")) else { return };
        wait_for("the switch's socket", || Path::new(&socket).exists());
        let (device, mut queue) = open(&eal, &format!("virtio:{socket}"));
        wait_for("the link is up", is_up(&*device));
        exchange_up_to(9018, &eal, &mut *queue);
        assert!(device.stats().rx_packets > 1000 && device.stats().tx_packets > 1000, "{:?}", device.stats());
    });
}

/// A guest with rings of its own kind in front of our server, and frames of up to `longest` bytes.
fn guest_of(test: &'static str, device_arguments: &str, arguments: &[&str], longest: usize) {
    beside_a_guest(test, |folder| {
        let socket = folder.path("switch.sock");
        let eal = eal(HugepageUse::Never);
        let (device, mut queue) = open(&eal, &format!("vhost-server:{socket}"));
        let device_text = format!("net_virtio_user0,path={socket},queues=1,{device_arguments}");
        let memory = ["--in-memory", "--single-file-segments", "--socket-mem", "128"];
        let Some(_guest) = echo_peer_with(test, &memory, &device_text, arguments) else { return };
        wait_for("the link is up", is_up(&*device));
        exchange_up_to(longest, &eal, &mut *queue);
        let stats = device.stats();
        assert!(stats.rx_packets > 1000 && stats.tx_packets > 1000 && stats.rx_dropped == 0, "{stats:?}");
    });
}

#[test]
fn vhost_guest_without_mergeable_buffers_and_a_small_ring() {
    const TEST: &str = "vhost_guest_without_mergeable_buffers_and_a_small_ring";
    guest_of(TEST, "queue_size=256,mrg_rxbuf=0,in_order=0", &[], 1510);
}

/// Frames are spread over several buffers of the guest, and come back in chains of several descriptors.
#[test]
fn vhost_guest_with_buffers_smaller_than_frames() {
    const TEST: &str = "vhost_guest_with_buffers_smaller_than_frames";
    guest_of(TEST, "queue_size=1024,in_order=0", &["--mbuf-size=384", "--enable-scatter", "--max-pkt-len=1518"], 1510);
}

#[test]
fn vhost_guest_with_packed_rings() {
    const TEST: &str = "vhost_guest_with_packed_rings";
    guest_of(TEST, "queue_size=1024,packed_vq=1", &[], 1510);
}

/// Frames take several buffers and chains, and places are given back out of step with the ring's end.
#[test]
fn vhost_guest_with_packed_rings_and_jumbo_frames() {
    const TEST: &str = "vhost_guest_with_packed_rings_and_jumbo_frames";
    let arguments = ["--mbuf-size=1024", "--enable-scatter", "--max-pkt-len=9018"];
    guest_of(TEST, "queue_size=1024,packed_vq=1,in_order=0", &arguments, 9018);
}

#[test]
fn vhost_guest_with_jumbo_frames() {
    const TEST: &str = "vhost_guest_with_jumbo_frames";
    guest_of(TEST, "queue_size=1024,in_order=0", &["--enable-scatter", "--max-pkt-len=9018"], 9018);
}

/// A guest with two queue pairs sends back by the queue by which it has received.
#[test]
fn vhost_guest_with_two_queues() {
    const TEST: &str = "vhost_guest_with_two_queues";
    beside_a_guest(TEST, |folder| {
        let socket = folder.path("switch.sock");
        let eal = eal(HugepageUse::Never);
        let spec = format!("vhost-server:{socket}").parse().unwrap();
        let mut device = eal.open(&spec, &PortOptions { queues: 2, ..PortOptions::default() }).unwrap();
        let mut queues = device.take_queues();
        assert_eq!((queues.len(), device.queue_count()), (2, 2));
        let guest = format!("net_virtio_user0,path={socket},queues=2,queue_size=256");
        let memory = ["--in-memory", "--single-file-segments", "--socket-mem", "128"];
        let Some(_guest) = echo_peer_with(TEST, &memory, &guest, &["--rxq=2", "--txq=2"]) else { return };
        wait_for("the link is up", is_up(&*device));
        for queue in &mut queues {
            exchange(&eal, &mut **queue);
        }
        let stats = device.stats();
        assert!(stats.rx_packets > 2000 && stats.rx_dropped == 0, "{stats:?}");
    });
}
