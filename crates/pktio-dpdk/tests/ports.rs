//! Each kind of port through its queues, against the kernel where there is one at the other end.

mod common;
#[path = "common/guest.rs"]
mod guest;

use common::*;
use pktio::{Error, HeapPool, LinkState, Pool, Queue};
use pktio_dpdk::{Eal, EalConfig, HugepageUse, PortOptions, register_worker};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Instant;

#[test]
fn af_packet_exchanges_packets_with_the_kernel() {
    isolated("af_packet_exchanges_packets_with_the_kernel", Needs::Root, || {
        veth_pair();
        ip("link set sw0 down");
        address("host0");
        let eal = small_eal();
        let options = PortOptions { up: true, ..PortOptions::default() };
        let (device, mut queue) = open_with(&eal, "sw0", &options);
        assert_eq!((device.name(), device.kind(), device.queue_count(), device.mtu()), ("sw0", "af_packet", 1, 1500));
        exchange_with_kernel(&mut *queue);
        wait_for("the link is up", is_up(&*device)); // the kernel says so up to a second late
        let stats = device.stats();
        assert_eq!(stats.tx_packets, 3);
        assert!(stats.rx_packets >= 3 && stats.rx_bytes >= 3 * 70, "{stats:?}");
        assert_eq!((stats.rx_dropped, stats.tx_dropped), (0, 0));
        let shown = Command::new("ip").args(["link", "show", "sw0"]).output().unwrap();
        let mac = device.mac().unwrap().to_string();
        assert!(String::from_utf8_lossy(&shown.stdout).contains(&format!("link/ether {mac}")));
    });
}

#[test]
fn af_packet_keeps_vlan_tags() {
    isolated("af_packet_keeps_vlan_tags", Needs::Root, || {
        veth_pair();
        let eal = small_eal();
        let (_switch, mut inside) = open(&eal, "sw0");
        let (_host, mut outside) = open(&eal, "host0");
        // The kernel takes the outer tag off each received packet and hands it over beside the packet.
        let tagged = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x81\0\x60\x05\x81\0\0\x06\x88\xb5two tags and a payload";
        assert_eq!(outside.tx(&mut vec![eal.pool().alloc_from(tagged).unwrap()]), 1);
        let packet = receive(&mut *inside, ends_with(b"a payload")).expect("the tagged packet arrives");
        assert_eq!(packet.data(), tagged);
        // And back, in the buffer it came in.
        assert_eq!(inside.tx(&mut vec![packet]), 1);
        assert_eq!(receive(&mut *outside, ends_with(b"a payload")).expect("it goes back").data(), tagged);
    });
}

/// In the ring, in large buffers, and beside the ring where the MTU grew after the port was opened.
#[test]
fn af_packet_carries_jumbo_frames_and_drops_what_is_too_long_for_the_interface() {
    isolated("af_packet_carries_jumbo_frames_and_drops_what_is_too_long_for_the_interface", Needs::Root, || {
        veth_pair();
        address("host0");
        let eal = small_eal();
        let (device, mut queue) = open(&eal, "sw0");
        let frame = |len: usize| {
            let mut frame = vec![0xff; len];
            frame[12..14].copy_from_slice(&[0x81, 0]);
            eal.pool().alloc_from(&frame).unwrap()
        };
        assert_eq!(queue.tx(&mut vec![frame(1519), frame(1518)]), 2);
        let stats = device.stats();
        assert_eq!(
            (stats.tx_packets, stats.tx_dropped, stats.tx_too_long),
            (1, 1, 1),
            "longer than MTU, header and tag"
        );

        ip("link set host0 mtu 9000");
        ip("link set sw0 mtu 9000");
        assert_eq!(device.mtu(), 9000);
        let socket = kernel_socket();
        let mut first = Some((device, queue));
        for round in 0..2 {
            // Opened before the MTU grew, and after.
            let (device, mut queue) = first.take().unwrap_or_else(|| open(&eal, "sw0"));
            for len in [1500, 1900, 1925, 1926, 1990, 2007, 2048, 5000, 8972] {
                socket.send_to(&vec![len as u8; len], "10.9.0.2:6000").unwrap();
                let mut packet = receive(&mut *queue, |frame| frame.len() == len + 42).expect("the frame arrives");
                assert!(packet.data()[42..].iter().all(|byte| *byte == len as u8), "{len}");
                turn_around(packet.data_mut());
                assert_eq!(queue.tx(&mut vec![packet]), 1);
                let mut buffer = vec![0; 10_000];
                assert_eq!(socket.recv(&mut buffer).expect("the kernel receives what the port sends"), len);
                assert!(buffer[..len].iter().all(|byte| *byte == len as u8), "{len}");
            }
            assert_eq!(device.stats().rx_dropped, 0, "round {round}");
        }
    });
}

/// The kernel refuses a frame that the other end of a pair does not take as if its queue were full.
#[test]
fn af_packet_sends_what_is_behind_a_frame_that_the_peer_does_not_take() {
    isolated("af_packet_sends_what_is_behind_a_frame_that_the_peer_does_not_take", Needs::Root, || {
        veth_pair();
        ip("link set sw0 mtu 9000");
        let eal = small_eal();
        let (device, mut inside) = open(&eal, "sw0");
        let (_host, mut outside) = open(&eal, "host0");
        wait_for("the link is up", is_up(&*device));
        let frame = |len: usize| {
            let mut frame = vec![0xff; len];
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            eal.pool().alloc_from(&frame).unwrap()
        };
        let mut packets = vec![frame(100), frame(5000), frame(101)];
        packets.extend((0..10).map(|i| frame(5001 + i)));
        packets.push(frame(102));
        // As often as workers try when nothing goes out.
        for _ in 0..4 {
            inside.tx(&mut packets);
        }
        assert!(packets.is_empty(), "{} are left", packets.len());
        for len in [100, 101, 102] {
            receive(&mut *outside, |frame| frame.len() == len).expect("the short ones arrive");
        }
    });
}

#[test]
fn af_packet_survives_runts_and_a_link_that_goes_down() {
    isolated("af_packet_survives_runts_and_a_link_that_goes_down", Needs::Root, || {
        veth_pair();
        address("host0");
        let eal = small_eal();
        let (device, mut queue) = open(&eal, "sw0");
        let pool = device.pool();
        for len in [0, 1, 13, 14] {
            let mut packets = vec![pool.alloc_from(&vec![0xff; len]).unwrap()];
            queue.tx(&mut packets);
            assert!(packets.is_empty(), "{len} bytes");
        }
        exchange_with_kernel(&mut *queue);
        ip("link set host0 down");
        wait_for("the link is down", || !device.link().up);
        let mut packets = Vec::new();
        for _ in 0..10 {
            pool.alloc_bulk(&mut packets, 64);
            packets.iter_mut().for_each(|packet| packet.set_data(&[0xff; 64]).unwrap());
            queue.tx(&mut packets);
        }
        packets.clear();
        ip("link set host0 up");
        ip("neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev host0");
        wait_for("the link is up", is_up(&*device)); // until then, up to a second, the kernel may drop what it sends
        exchange_with_kernel(&mut *queue);
    });
}

#[test]
fn af_packet_spreads_flows_over_queues() {
    isolated("af_packet_spreads_flows_over_queues", Needs::Root, || {
        veth_pair();
        address("host0");
        let eal = small_eal();
        let options = PortOptions { queues: 2, ..PortOptions::default() };
        let mut device = eal.open(&"sw0".parse().unwrap(), &options).unwrap();
        let mut queues = device.take_queues();
        assert_eq!((queues.len(), device.queue_count()), (2, 2));
        let socket = kernel_socket();
        for port in 6000..6064 {
            socket.send_to(b"one of many flows", ("10.9.0.2", port)).unwrap();
        }
        let mut counts = [0; 2];
        let deadline = Instant::now() + PATIENCE;
        while counts[0] + counts[1] < 64 && Instant::now() < deadline {
            for (queue, count) in queues.iter_mut().zip(&mut counts) {
                let mut packets = Vec::new();
                queue.rx(&mut packets, 32);
                *count += packets.iter().filter(|packet| packet.data().ends_with(b"one of many flows")).count();
            }
        }
        assert_eq!(counts[0] + counts[1], 64, "{counts:?}");
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    });
}

#[test]
fn closing_a_port_gives_back_its_buffers_and_its_interface() {
    isolated("closing_a_port_gives_back_its_buffers_and_its_interface", Needs::Root, || {
        veth_pair();
        address("host0");
        let eal = small_eal();
        for _ in 0..3 {
            let (device, mut queue) = open(&eal, "sw0");
            exchange_with_kernel(&mut *queue);
            drop(device);
            let mut packets = Vec::new();
            queue.rx(&mut packets, 4); // the queue keeps the port alive
        }
        assert_eq!(eal.pool().available(), eal.pool().limit());
    });
}

#[test]
fn tap_exchanges_packets_with_the_kernel() {
    isolated("tap_exchanges_packets_with_the_kernel", Needs::Root, || {
        let eal = small_eal();
        let (device, mut queue) = open(&eal, "tap:tap9");
        address("tap9");
        // The kernel drops what is not for the interface's address, which on a tap is the port's.
        let mac = device.mac().expect("a tap has an address");
        assert!(device.link().up);
        assert_ne!(mac.0, [0; 6]);
        // One packet that is too long for the interface must not hold up the others.
        let mut packets =
            vec![eal.pool().alloc_from(&[0xff; 1519]).unwrap(), eal.pool().alloc_from(&[0xff; 1518]).unwrap()];
        assert_eq!(queue.tx(&mut packets), 2);
        assert_eq!((device.stats().tx_packets, device.stats().tx_dropped), (1, 1));
        exchange_with_kernel(&mut *queue);
        assert_eq!(device.stats().tx_packets, 4);
        drop((device, queue));
        let gone = Command::new("ip").args(["link", "show", "tap9"]).output().unwrap();
        assert!(!gone.status.success(), "the interface goes with the port");
    });
}

#[test]
fn af_xdp_exchanges_packets_with_the_kernel() {
    isolated("af_xdp_exchanges_packets_with_the_kernel", Needs::Root, || {
        veth_pair();
        address("host0");
        let eal = small_eal();
        let device = eal.open(&"xdp:sw0".parse().unwrap(), &PortOptions::default());
        let mut device = match device {
            Ok(device) => device,
            Err(error) => return eprintln!("skipped, this kernel gives no AF_XDP socket: {error}"),
        };
        let mut queue = device.take_queues().remove(0);
        exchange_with_kernel(&mut *queue);
        assert_eq!(device.stats().tx_packets, 3);
        drop((device, queue));
        let shown = Command::new("ip").args(["link", "show", "sw0"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&shown.stdout).contains("xdp"), "the XDP program goes with the port");
    });
}

/// The bound that `docs/ports.md` states: the kernel gets an MTU that it keeps, and what is longer is counted.
#[test]
fn af_xdp_carries_what_fits_into_a_buffer() {
    isolated("af_xdp_carries_what_fits_into_a_buffer", Needs::Root, || {
        veth_pair();
        ip("link set sw0 mtu 3400");
        ip("link set host0 mtu 3400");
        let eal = small_eal();
        let open_xdp = |mtu| eal.open(&"xdp:sw0".parse().unwrap(), &PortOptions { mtu, ..PortOptions::default() });
        let refused = open_xdp(Some(1775)).err().expect("it is refused").to_string();
        assert!(refused.contains("1774") && refused.contains("several buffers"), "{refused}");
        let mut device = match open_xdp(Some(1774)) {
            Ok(device) => device,
            Err(error) => return eprintln!("skipped, this kernel gives no AF_XDP socket: {error}"),
        };
        let mut near = device.take_queues().remove(0);
        let (_far_device, mut far) = open(&eal, "host0");
        let frame = |len: usize| {
            let mut frame = vec![len as u8; len];
            frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
            frame
        };
        for len in [60, 1518, 1792] {
            assert_eq!(far.tx(&mut vec![eal.pool().alloc_from(&frame(len)).unwrap()]), 1);
            let received = receive(&mut *near, |bytes| bytes[12..14] == [0x88, 0xb5]).expect("a frame arrives");
            assert!(received.data() == frame(len), "{len} bytes");
            // Back, behind one that is too long.
            let too_long = eal.pool().alloc_from(&frame(1793)).unwrap();
            assert_eq!(near.tx(&mut vec![too_long, received]), 2);
            let received = receive(&mut *far, |bytes| bytes[12..14] == [0x88, 0xb5]).expect("a frame arrives");
            assert!(received.data() == frame(len), "{len} bytes");
        }
        let stats = device.stats();
        assert_eq!((stats.tx_packets, stats.tx_too_long), (3, 3), "{stats:?}");
    });
}

#[test]
fn ring_returns_what_is_sent() {
    isolated("ring_returns_what_is_sent", Needs::Nothing, || {
        let eal = small_eal();
        let pool = eal.pool();
        let (device, mut queue) = open(&eal, "ring:r0");
        let before = pool.available();

        // A packet of another pool, a buffer of ours with a moved window, and an empty packet that nothing can send.
        let heap = HeapPool::new(1);
        let mut moved = pool.alloc_from(b"xxpayload").unwrap();
        moved.pull_front(2).unwrap();
        moved.push_front(4).unwrap()[..4].copy_from_slice(b"head");
        let mut packets = vec![heap.alloc_from(b"from the heap").unwrap(), pool.alloc().unwrap(), moved];
        assert_eq!(queue.tx(&mut packets), 3);
        assert!(packets.is_empty());
        assert_eq!(heap.available(), 1, "the heap's packet was copied and freed");

        assert_eq!(queue.rx(&mut packets, 1), 1);
        assert_eq!(queue.rx(&mut packets, 8), 1);
        assert_eq!((packets[0].data(), packets[1].data()), (b"from the heap".as_slice(), b"headpayload".as_slice()));
        assert_eq!(packets[1].headroom(), pktio::HEADROOM - 2);
        let copy = packets[1].copy().unwrap();
        assert_eq!((copy.data(), copy.headroom()), (b"headpayload".as_slice(), packets[1].headroom()));
        let stats = device.stats();
        assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_dropped), (2, 24, 1));
        assert_eq!((stats.rx_packets, stats.rx_bytes), (2, 24));

        pktio::free_bulk(&mut packets);
        drop(copy);
        assert_eq!(pool.available(), before);
    });
}

#[test]
fn a_full_ring_keeps_order_and_leaves_the_rest() {
    isolated("a_full_ring_keeps_order_and_leaves_the_rest", Needs::Nothing, || {
        let eal = small_eal();
        let (device, mut queue) = open(&eal, "ring:r0");
        let mut packets = Vec::new();
        assert_eq!(eal.pool().alloc_bulk(&mut packets, 3000), 3000);
        for (i, packet) in packets.iter_mut().enumerate() {
            packet.set_data(&(i as u32).to_be_bytes()).unwrap();
        }
        let sent = queue.tx(&mut packets);
        assert!((1..3000).contains(&sent), "{sent}");
        assert_eq!(packets.len(), 3000 - sent);
        assert_eq!(packets[0].data(), (sent as u32).to_be_bytes());
        let mut received = Vec::new();
        while queue.rx(&mut received, 100) > 0 {
            queue.tx(&mut packets);
        }
        assert_eq!(received.len(), 3000);
        assert!(received.iter().enumerate().all(|(i, packet)| packet.data() == (i as u32).to_be_bytes()));
        assert_eq!((device.stats().tx_packets, device.stats().tx_dropped), (3000, 0));
    });
}

#[test]
fn null_gives_and_takes_without_end() {
    isolated("null_gives_and_takes_without_end", Needs::Nothing, || {
        let eal = small_eal();
        let (device, mut queue) = open(&eal, "null");
        let mut packets = Vec::new();
        for _ in 0..1000 {
            assert_eq!(queue.rx(&mut packets, 32), 32);
            assert!(packets.iter().all(|packet| packet.len() == 64));
            assert_eq!(queue.tx(&mut packets), 32);
        }
        let stats = device.stats();
        assert_eq!((stats.rx_packets, stats.tx_packets, stats.tx_bytes), (32_000, 32_000, 32_000 * 64));
        assert!(device.link().up);
    });
}

#[test]
fn pcap_and_memory_packets_come_in_dpdk_buffers() {
    isolated("pcap_and_memory_packets_come_in_dpdk_buffers", Needs::Nothing, || {
        let folder = Folder::new("pcap-dpdk");
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
        file.extend([0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0]);
        file.extend(b"hello");
        std::fs::write(folder.path("in"), file).unwrap();
        let eal = small_eal();
        let (_pcap, mut input) = open(&eal, &format!("pcap:{}", folder.path("in")));
        let (_ring, mut ring) = open(&eal, "ring:r0");
        let mut packets = Vec::new();
        assert_eq!(input.rx(&mut packets, 8), 1);
        assert!(format!("{:?}", packets[0]).starts_with("Packet(mbuf"));
        assert_eq!(ring.tx(&mut packets), 1);
        assert_eq!(receive(&mut *ring, |_| true).unwrap().data(), b"hello");
        let (memory, _queue) = open(&eal, "memory");
        assert_eq!(memory.link(), LinkState { up: false, speed_mbps: None });
    });
}

#[test]
fn workers_have_caches_and_may_come_and_go() {
    isolated("workers_have_caches_and_may_come_and_go", Needs::Nothing, || {
        let eal = small_eal();
        let (_device, queue) = open(&eal, "null");
        let mut queue: Box<dyn Queue> = queue;
        for _ in 0..3 {
            queue = std::thread::spawn(move || {
                let _worker = register_worker().unwrap_or_else(|error| panic!("{error}"));
                let mut packets = Vec::new();
                for _ in 0..100 {
                    queue.rx(&mut packets, 64);
                    queue.tx(&mut packets);
                }
                queue
            })
            .join()
            .unwrap();
        }
        assert_eq!(eal.pool().available(), eal.pool().limit());
    });
}

#[test]
fn dpdk_leaves_the_main_thread_s_cpus_alone_and_starts_once() {
    isolated("dpdk_leaves_the_main_thread_s_cpus_alone_and_starts_once", Needs::Nothing, || {
        let cpus = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned()
        };
        let before = cpus();
        let _eal = small_eal();
        assert_eq!(cpus(), before);
        let error = Eal::init(&EalConfig::default()).err().expect("a second start is refused");
        assert!(error.to_string().contains("cannot start twice"), "{error}");
    });
}

#[test]
fn hugepages_are_used_when_there_are_enough() {
    isolated("hugepages_are_used_when_there_are_enough", Needs::Nothing, || {
        let config = EalConfig { buffers: 1023, hugepages: HugepageUse::Require, ..EalConfig::default() };
        let eal = match Eal::init(&config) {
            Ok(eal) => eal,
            Err(error @ Error::NoHugepages { .. }) => {
                assert!(error.remedy().unwrap().contains("nr_hugepages"));
                return eprintln!("skipped: {error}; {}", error.remedy().unwrap());
            }
            Err(error) => panic!("{error}"),
        };
        assert!(eal.uses_hugepages() && eal.notices().is_empty());
        let (_device, mut queue) = open(&eal, "ring:r0");
        queue.tx(&mut vec![eal.pool().alloc_from(b"in a hugepage").unwrap()]);
        assert_eq!(receive(&mut *queue, |_| true).unwrap().data(), b"in a hugepage");
    });
}

#[test]
fn what_cannot_be_opened_is_named_with_a_remedy() {
    isolated("what_cannot_be_opened_is_named_with_a_remedy", Needs::Root, || {
        let folder = Folder::new("refused");
        let eal = small_eal();
        let refused = |spec: &str| -> Error {
            match eal.open(&spec.parse().unwrap(), &PortOptions::default()) {
                Ok(_) => panic!("{spec} opens"),
                Err(error) => error,
            }
        };
        for spec in ["nosuch0", "xdp:nosuch0"] {
            let error = refused(spec);
            assert!(matches!(&error, Error::NoSuchInterface { interface } if interface == "nosuch0"), "{error}");
            assert!(error.remedy().unwrap().contains("ip link"));
        }
        for scheme in ["vhost", "vhost-server", "memif"] {
            let error = refused(&format!("{scheme}:{}", folder.path("absent/sock")));
            assert!(matches!(&error, Error::Socket { .. }), "{error}");
            assert!(error.remedy().unwrap().contains("mkdir -p"));
        }
        let taken = folder.path("taken");
        let listener = UnixListener::bind(&taken).unwrap();
        assert!(refused(&format!("vhost-server:{taken}")).to_string().contains("another process listens"));
        drop(listener);
        let (_device, _queue) = open(&eal, &format!("vhost-server:{taken}"));
        std::fs::write(folder.path("file"), "").unwrap();
        let error = refused(&format!("vhost-server:{}", folder.path("file")));
        assert!(error.to_string().contains("no socket"), "{error}");
        let error = refused("pci:0000:00:1f.7");
        assert!(error.to_string().contains("named when DPDK starts"), "{error}");
        let error = refused("tap:lo");
        assert!(matches!(&error, Error::Device { .. }), "{error}");
        assert!(error.to_string().contains("the kernel refuses it"), "{error}");
    });
}

#[test]
fn without_the_capability_the_error_says_which() {
    const TEST: &str = "without_the_capability_the_error_says_which";
    if std::env::var_os("PKTIO_DPDK_UNPRIVILEGED").is_some() {
        let eal = small_eal();
        let error = eal.open(&"lo".parse().unwrap(), &PortOptions::default()).err().expect("lo is refused");
        assert!(matches!(&error, Error::Permission { capability: "CAP_NET_RAW", .. }), "{error}");
        assert!(error.remedy().unwrap().contains("setcap cap_net_raw+ep"));
        return;
    }
    isolated(TEST, Needs::Root, || {
        let this = std::env::current_exe().unwrap();
        let status = Command::new("setpriv")
            .args(["--bounding-set", "-net_raw", "--inh-caps", "-net_raw"])
            .arg(this)
            .args([TEST, "--exact", "--nocapture"])
            .env("PKTIO_DPDK_UNPRIVILEGED", "1")
            .status();
        match status {
            Ok(status) => assert!(status.success()),
            Err(error) => eprintln!("{TEST}: skipped, `setpriv` does not run: {error}"),
        }
    });
}

/// The finding, reasoned: DPDK's own SIGBUS handler, which it has while it takes hugepages, jumps to the stack of the thread
/// that takes them; a worker whose guest truncated its memory in that moment would have gone there too.
#[test]
fn dpdk_takes_no_memory_while_a_guest_has_some_mapped() {
    isolated("dpdk_takes_no_memory_while_a_guest_has_some_mapped", Needs::Nothing, || {
        let config = EalConfig { buffers: 1023, hugepages: HugepageUse::Require, ..EalConfig::default() };
        let eal = match Eal::init(&config) {
            Ok(eal) => eal,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let hugepages = || {
            let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
            status.lines().find(|line| line.starts_with("HugetlbPages:")).expect("a line").to_owned()
        };
        let folder = Folder::new("dpdk_takes_no_memory");
        let socket = folder.path("switch.sock");
        let (device, _queue) = open(&eal, &format!("vhost-server:{socket}"));
        let guest = guest::Guest::connect(&socket, guest::F_VERSION_1 | guest::F_MRG_RXBUF, 2048);
        wait_for("the link is up", is_up(&*device));
        let before = hugepages();
        let rings = |eal: &Eal, i: usize| {
            let options = PortOptions { queues: 16, ..PortOptions::default() };
            eal.open(&format!("ring:r{i}").parse().expect("a port"), &options).map_err(|error| error.to_string())
        };
        let opened: Vec<_> = (0..8).map(|i| rings(&eal, i)).collect();
        assert_eq!(hugepages(), before, "while a guest is there, nothing is taken");
        assert!(
            opened.iter().all(Result::is_ok),
            "what was taken at the start is enough: {:?}",
            opened.iter().find_map(|port| port.as_ref().err())
        );
        drop(guest);
    });
}
