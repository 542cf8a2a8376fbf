use crate::{
    Capture, CaptureHandle, CaptureLimits, CaptureStatus, Device, Error, HeapPool, MemoryDevice, MemoryHandle, Queue,
};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::path::{Path, PathBuf};

struct Bed {
    queue: Box<dyn Queue>,
    outside: MemoryHandle,
    capture: CaptureHandle,
    path: PathBuf,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn bed(test: &str) -> Bed {
    let (device, outside) = MemoryDevice::new("port-7", HeapPool::shared(64), 1);
    let (mut device, capture) = Capture::wrap(Box::new(device));
    let queue = device.take_queues().remove(0);
    let path = std::env::temp_dir().join(format!("pktio-capture-{test}-{}", std::process::id()));
    Bed { queue, outside, capture, path }
}

impl Bed {
    /// Receives `bytes` and sends them back.
    fn echo(&mut self, bytes: &[u8]) {
        assert!(self.outside.inject(bytes));
        let mut packets = Vec::new();
        assert_eq!(self.queue.rx(&mut packets, 8), 1);
        assert_eq!(self.queue.tx(&mut packets), 1);
    }
}

/// Direction flag, bytes and original length of each record.
fn records(path: &Path) -> Vec<(u32, Vec<u8>, u32)> {
    let mut reader = PcapNgReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut records = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::EnhancedPacket(packet) => {
                let [EnhancedPacketOption::Flags(direction)] = packet.options[..] else { panic!("{packet:?}") };
                records.push((direction, packet.data.to_vec(), packet.original_len));
            }
            Block::InterfaceDescription(interface) => {
                assert!(interface.options.contains(&InterfaceDescriptionOption::IfName("port-7".into())));
            }
            other => panic!("{other:?}"),
        }
    }
    records
}

#[test]
fn both_directions_are_recorded_between_start_and_stop() {
    let mut bed = bed("both");
    bed.echo(b"before");
    bed.capture.start(&bed.path, CaptureLimits::default()).unwrap();
    bed.echo(b"during");
    assert_eq!(bed.capture.status(), CaptureStatus { running: true, packets: 2, stopped_because: None });
    assert_eq!(records(&bed.path).len(), 2, "the file can be read while the capture runs");
    bed.capture.stop();
    bed.echo(b"after");
    assert_eq!(bed.outside.collect().len(), 3, "packets pass with and without a capture");
    assert_eq!(records(&bed.path), [(1, b"during".to_vec(), 6), (2, b"during".to_vec(), 6)]);
}

#[test]
fn limits_stop_the_capture_not_the_packets() {
    let mut bed = bed("limits");
    bed.capture.start(&bed.path, CaptureLimits { snap_len_bytes: 3, packets_max: 3 }).unwrap();
    bed.echo(b"abcdef");
    bed.echo(b"ghijkl");
    bed.echo(b"mnopqr");
    let status = bed.capture.status();
    assert_eq!((status.running, status.packets), (false, 3));
    assert_eq!(status.stopped_because.unwrap(), "the limit of 3 packets is reached");
    assert_eq!(records(&bed.path), [(1, b"abc".to_vec(), 6), (2, b"abc".to_vec(), 6), (1, b"ghi".to_vec(), 6)]);
    assert_eq!(bed.outside.collect().len(), 3);
}

#[test]
fn only_what_the_device_took_counts_as_sent() {
    let mut bed = bed("unsent");
    bed.capture.start(&bed.path, CaptureLimits::default()).unwrap();
    let pool = HeapPool::shared(5000);
    let mut packets = Vec::new();
    pool.alloc_bulk(&mut packets, 4100);
    assert_eq!(bed.queue.tx(&mut packets), 4096);
    assert_eq!(bed.capture.status().packets, 4096);
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let bed = bed("refused");
    let error = bed.capture.start(Path::new("/no/such/folder/file"), CaptureLimits::default()).unwrap_err();
    assert!(matches!(error, Error::File { .. }) && error.to_string().contains("/no/such/folder/file"));
    assert!(!bed.capture.status().running);
}
