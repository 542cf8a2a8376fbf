use crate::{Device, Error, HeapPool, Packet, PcapDevice, PoolRef, Queue};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A temporary folder of one test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pktio-pcap-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, contents).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn word(big_endian: bool, value: u32) -> [u8; 4] {
    if big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
}

/// A pcap file, byte by byte from the format's description. Original lengths are 1 more than the captured ones.
fn pcap(big_endian: bool, magic: u32, packets: &[&[u8]]) -> Vec<u8> {
    let word = |value| word(big_endian, value);
    let versions = if big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut file = [word(magic), versions, word(0), word(0), word(64), word(1)].concat();
    for packet in packets {
        let len = packet.len() as u32;
        file.extend([word(7), word(8), word(len), word(len + 1)].concat());
        file.extend_from_slice(packet);
    }
    file
}

fn pcapng_block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut padded = body.to_vec();
    padded.resize(body.len().next_multiple_of(4), 0);
    let total = word(false, padded.len() as u32 + 12);
    [&word(false, kind), &total, padded.as_slice(), &total].concat()
}

fn pcapng(packets: &[&[u8]]) -> Vec<u8> {
    let section = [word(false, 0x1a2b_3c4d), [1, 0, 0, 0], [0xff; 4], [0xff; 4]].concat();
    let mut file = pcapng_block(0x0a0d_0d0a, &section);
    // Two interfaces, whose packets are received in file order.
    for _ in 0..2 {
        file.extend(pcapng_block(1, &[[1, 0, 0, 0], word(false, 0)].concat()));
    }
    for (i, packet) in packets.iter().enumerate() {
        let len = word(false, packet.len() as u32);
        let head = [word(false, i as u32 % 2), word(false, 0), word(false, 9), len, len].concat();
        file.extend(pcapng_block(6, &[&head, *packet].concat()));
    }
    file
}

fn open(input: &std::path::Path) -> (PcapDevice, Box<dyn Queue>, PoolRef) {
    let pool = HeapPool::shared(8);
    let mut device = PcapDevice::open(input, None, Duration::ZERO, pool.clone()).unwrap();
    let queue = device.take_queues().remove(0);
    (device, queue, pool)
}

fn receive_all(queue: &mut dyn Queue) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while queue.rx(&mut packets, 2) > 0 {}
    packets.iter().map(|packet: &Packet| packet.data().to_vec()).collect()
}

#[test]
fn every_input_format_gives_its_packets_in_order_then_ends() {
    let folder = Folder::new("formats");
    let packets: [&[u8]; 3] = [b"first", b"second packet", b"3"];
    for (name, contents) in [
        ("le-us", pcap(false, 0xa1b2_c3d4, &packets)),
        ("be-us", pcap(true, 0xa1b2_c3d4, &packets)),
        ("le-ns", pcap(false, 0xa1b2_3c4d, &packets)),
        ("be-ns", pcap(true, 0xa1b2_3c4d, &packets)),
        ("ng", pcapng(&packets)),
    ] {
        let (device, mut queue, _) = open(&folder.file(name, &contents));
        assert!(!device.at_end(), "{name}");
        assert_eq!(receive_all(&mut *queue), packets, "{name}");
        assert!(device.at_end(), "{name}");
        assert_eq!(queue.rx(&mut Vec::new(), 4), 0, "{name}: idle after the end");
        let stats = device.stats();
        assert_eq!((stats.rx_packets, stats.rx_bytes, stats.rx_errors, stats.rx_dropped), (3, 19, 0, 0), "{name}");
    }
}

#[test]
fn too_long_packets_are_dropped_and_damage_ends_the_input() {
    let folder = Folder::new("damage");
    let mut contents = pcap(false, 0xa1b2_c3d4, &[b"good", &[0; 70_000], b"also good", &[7; 9018], b"cut off"]);
    contents.truncate(contents.len() - 3);
    let (device, mut queue, pool) = open(&folder.file("in", &contents));
    assert_eq!(receive_all(&mut *queue), [b"good".to_vec(), b"also good".to_vec(), vec![7; 9018]]);
    let stats = device.stats();
    assert_eq!((stats.rx_packets, stats.rx_dropped, stats.rx_errors), (3, 1, 1));
    assert!(device.at_end());
    assert_eq!(pool.available(), 8);
}

#[test]
fn without_a_buffer_the_packet_waits_in_the_file() {
    let folder = Folder::new("wait");
    let path = folder.file("in", &pcap(false, 0xa1b2_c3d4, &[b"a", b"b"]));
    let pool = HeapPool::shared(1);
    let mut device = PcapDevice::open(&path, None, Duration::ZERO, pool).unwrap();
    let mut queue = device.take_queues().remove(0);
    let mut packets = Vec::new();
    assert_eq!(queue.rx(&mut packets, 4), 1);
    packets.clear();
    assert_eq!(queue.rx(&mut packets, 4), 1);
    assert_eq!(packets[0].data(), b"b");
}

#[test]
fn sent_packets_are_in_the_output_at_once_with_the_input_s_link_type() {
    let folder = Folder::new("output");
    let mut contents = pcap(false, 0xa1b2_c3d4, &[]);
    contents[20] = 101; // LINKTYPE_RAW
    let input = folder.file("in", &contents);
    let output = folder.0.join("out");
    let mut device = PcapDevice::open(&input, Some(&output), Duration::ZERO, HeapPool::shared(4)).unwrap();
    let mut queue = device.take_queues().remove(0);
    let pool = device.pool();
    let mut packets = vec![pool.alloc_from(b"x").unwrap(), pool.alloc_from(b"yz").unwrap()];
    assert_eq!(queue.tx(&mut packets), 2);
    assert!(packets.is_empty());
    let mut reader = PcapReader::new(fs::File::open(&output).unwrap()).unwrap();
    assert_eq!(reader.header().datalink, DataLink::RAW);
    assert_eq!(reader.header().ts_resolution, pcap_file::TsResolution::MicroSecond);
    assert_eq!(reader.next_packet().unwrap().unwrap().data.as_ref(), b"x");
    let second = reader.next_packet().unwrap().unwrap();
    assert_eq!((second.data.as_ref(), second.orig_len), (b"yz".as_slice(), 2));
    assert!(second.timestamp.as_secs() > 1_700_000_000);
    assert!(reader.next_packet().is_none());
    assert_eq!((device.stats().tx_packets, device.stats().tx_bytes), (2, 3));
    assert_eq!(pool.available(), 4);
}

#[test]
fn without_output_sent_packets_are_counted_and_freed() {
    let folder = Folder::new("discard");
    let (device, mut queue, pool) = open(&folder.file("in", &pcap(false, 0xa1b2_c3d4, &[])));
    assert_eq!(queue.tx(&mut vec![pool.alloc_from(b"x").unwrap()]), 1);
    assert_eq!((device.stats().tx_packets, pool.available()), (1, 8));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = Folder::new("refused");
    let refused = |path: PathBuf, output: Option<PathBuf>| match PcapDevice::open(
        &path,
        output.as_deref(),
        Duration::ZERO,
        HeapPool::shared(1),
    ) {
        Err(error @ Error::File { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} opens", path.display()),
    };
    assert!(refused(folder.0.join("absent"), None).contains("absent`: No such file"));
    assert!(refused(folder.file("text", b"hello, world; this is no capture"), None).contains("not a capture file"));
    assert!(refused(folder.file("short", b"ab"), None).contains("shorter than 4 bytes"));
    let input = folder.file("in", &pcap(false, 0xa1b2_c3d4, &[]));
    assert!(refused(input, Some(folder.0.join("no/such/folder"))).contains("no/such/folder`: No such file"));
}

#[test]
fn a_fifo_gives_packets_as_they_come_and_ends_when_it_is_closed() {
    let folder = Folder::new("fifo");
    let path = folder.0.join("in");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for big_endian in [false, true] {
        let stream = pcap(big_endian, 0xa1b2_c3d4, &[b"first", b"second"]);
        let to = path.clone();
        let writer = std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().write(true).open(to).unwrap();
            // The header and a part of the first record.
            std::io::Write::write_all(&mut file, &stream[..43]).unwrap();
            (file, stream)
        });
        let (device, mut queue, _pool) = open(&path);
        let (mut file, stream) = writer.join().unwrap();
        let mut packets = Vec::new();
        assert_eq!((queue.rx(&mut packets, 8), device.at_end()), (0, false));
        std::io::Write::write_all(&mut file, &stream[43..]).unwrap();
        assert_eq!((queue.rx(&mut packets, 8), device.at_end()), (2, false));
        assert_eq!((packets[0].data(), packets[1].data()), (b"first".as_slice(), b"second".as_slice()));
        std::io::Write::write_all(&mut file, &stream[24..30]).unwrap();
        drop(file);
        // Half a record is an error.
        assert_eq!((queue.rx(&mut packets, 8), device.at_end(), device.stats().rx_errors), (0, true, 1));
    }
    let to = path.clone();
    let writer = std::thread::spawn(move || fs::write(to, [&pcap(false, 0xa1b2_c3d4, &[])[..], &[0xff; 16]].concat()));
    let (device, mut queue, _pool) = open(&path);
    writer.join().unwrap().unwrap();
    assert_eq!((queue.rx(&mut Vec::new(), 8), device.stats().rx_errors), (0, 1), "a record of four gigabytes");
}

#[test]
fn packets_are_received_after_the_time_that_is_said() {
    let folder = Folder::new("after");
    let path = folder.file("in", &pcap(false, 0xa1b2_c3d4, &[b"a"]));
    let start = Instant::now();
    let after = Duration::from_millis(50);
    let mut device = PcapDevice::open(&path, None, after, HeapPool::shared(1)).unwrap();
    let mut queue = device.take_queues().remove(0);
    let mut packets = Vec::new();
    while queue.rx(&mut packets, 4) == 0 {
        assert!(!device.at_end());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(start.elapsed() >= after);
}
