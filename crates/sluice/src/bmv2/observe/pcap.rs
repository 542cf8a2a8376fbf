//! `--pcap`: two files for each port, one for received frames and one for sent ones.
//!
//! Threads: one. Tests: below, `tests/py/test_bmv2.py`.

use super::POLL_INTERVAL;
use datapath::Switch;
use datapath::tap::{Tapped, TappedFrame};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const SNAP_LENGTH: u32 = 65_535;
/// The size of a file's buffer, in bytes: the most that is not written yet.
const BUFFER_BYTES: usize = 64 << 10;

/// The files of all ports.
pub(super) struct PcapFiles {
    folder: PathBuf,
    files: BTreeMap<(u32, bool), Option<BufWriter<File>>>,
    /// Whether a problem has been reported.
    failed: bool,
}

impl PcapFiles {
    pub(super) fn new(folder: PathBuf) -> PcapFiles {
        PcapFiles { folder, files: BTreeMap::new(), failed: false }
    }

    pub(super) fn write_all(mut self, switch: &Switch, tapped: &Tapped, stop: &AtomicBool) {
        let mut lost = 0;
        loop {
            let frame = tapped.next_within(POLL_INTERVAL);
            let Some(frame) = frame else {
                self.make(switch);
                self.flush();
                if tapped.lost() != lost {
                    lost = tapped.lost();
                    tracing::warn!("--pcap: {lost} frames came too fast and are not in the files");
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                continue;
            };
            if !self.files.contains_key(&(frame.port, frame.sent)) {
                self.make(switch);
            }
            self.write(&frame);
        }
    }

    /// Creates the missing files of all ports, so that a port without traffic has files too.
    fn make(&mut self, switch: &Switch) {
        for port in switch.ports() {
            for sent in [false, true] {
                if self.files.contains_key(&(port.number, sent)) {
                    continue;
                }
                let path = self.folder.join(file_name(&port.name, sent));
                let made = File::create(&path).and_then(|file| {
                    let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
                    file.write_all(&file_header()).map(|()| file)
                });
                let made = made.map_err(|error| self.tell(&format!("{}: {error}", path.display()))).ok();
                self.files.insert((port.number, sent), made);
            }
        }
    }

    fn write(&mut self, frame: &TappedFrame) {
        let Some(Some(file)) = self.files.get_mut(&(frame.port, frame.sent)) else { return };
        let written = file.write_all(&record_header(frame)).and_then(|()| file.write_all(&frame.data));
        if let Err(error) = written {
            self.files.insert((frame.port, frame.sent), None);
            self.tell(&error.to_string());
        }
    }

    fn flush(&mut self) {
        let failed = self.files.values_mut().flatten().find_map(|file| file.flush().err());
        if let Some(error) = failed {
            self.tell(&error.to_string());
        }
    }

    /// Reports a problem, such as a full disk, once.
    fn tell(&mut self, problem: &str) {
        if !self.failed {
            tracing::error!("--pcap: {problem}");
        }
        self.failed = true;
    }
}

/// Returns the header of a pcap file: Ethernet, microseconds, this machine's byte order.
fn file_header() -> Vec<u8> {
    const MAGIC: u32 = 0xa1b2_c3d4;
    const VERSION: [u16; 2] = [2, 4];
    const ETHERNET: u32 = 1;
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend(VERSION.into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend([0, 0, SNAP_LENGTH, ETHERNET].into_iter().flat_map(u32::to_ne_bytes));
    bytes
}

/// Returns the record header of a frame.
fn record_header(frame: &TappedFrame) -> Vec<u8> {
    let fields = [frame.time.as_secs() as u32, frame.time.subsec_micros(), frame.data.len() as u32, frame.length];
    fields.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// Returns a file's name, `s1-eth1_in.pcap`. Other characters are replaced, so that a port's name cannot leave the
/// folder.
fn file_name(port: &str, sent: bool) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = port.chars().map(plain).collect();
    let name = name.trim_start_matches('.');
    format!("{name}_{}.pcap", if sent { "out" } else { "in" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn files_are_named_by_interfaces_and_stay_in_their_folder() {
        assert_eq!(file_name("s1-eth1", false), "s1-eth1_in.pcap");
        assert_eq!(file_name("s1-eth1", true), "s1-eth1_out.pcap");
        assert_eq!(file_name("../../etc/x", true), "_.._etc_x_out.pcap");
    }

    #[test]
    fn files_are_read_by_others() {
        let time = Duration::new(1_700_000_000, 123_456_789);
        let frame = TappedFrame { device: 0, port: 1, sent: false, time, length: 70, data: vec![7; 60] };
        let bytes = [file_header(), record_header(&frame), frame.data].concat();
        let mut reader = pcap_file::pcap::PcapReader::new(bytes.as_slice()).unwrap();
        assert_eq!(reader.header().datalink, pcap_file::DataLink::ETHERNET);
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!((packet.timestamp, packet.orig_len), (Duration::new(1_700_000_000, 123_456_000), 70));
        assert_eq!(*packet.data, [7; 60]);
        assert!(reader.next_packet().is_none());
    }
}
