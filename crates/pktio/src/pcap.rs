//! The `pcap` device: receives the packets of a capture file, once and in order,
//! and writes sent packets to another file.
//!
//! Input is pcap (both byte orders, micro- and nanoseconds) or pcapng (all interfaces of the file, in file order);
//! output is pcap with the input's link type and resolution of timestamps, nanoseconds for pcapng. Timestamps of the
//! input are ignored: packets are delivered as fast as the worker polls. A packet longer than a buffer is counted as
//! dropped; a damaged record ends the input and is counted as an error. Without an output file, sent packets are counted
//! and freed. A FIFO as input is a pcap stream that its writer continues while the switch runs (`pcap/stream.rs`).
//!
//! Threads: one queue, so one worker. Tests: `pcap/tests.rs`.

use crate::device::{Device, LinkState, MTU_DEFAULT, MacAddress, PortStats, Queue, QueueCounters};
use crate::error::Error;
use crate::memory::total_bytes;
use crate::packet::Packet;
use crate::pool::PoolRef;
use pcap_file::pcap::{PcapHeader, PcapReader};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stream::{Form, Next, Stream};

mod stream;

/// The first four bytes of a pcapng file, the same in both byte orders.
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The device.
pub struct PcapDevice {
    name: String,
    pool: PoolRef,
    shared: Arc<Shared>,
    queue: Option<PcapQueue>,
}

#[derive(Default)]
struct Shared {
    counters: QueueCounters,
    at_end: AtomicBool,
}

struct PcapQueue {
    shared: Arc<Shared>,
    pool: PoolRef,
    input: Input,
    /// Before that nothing is read.
    from: Instant,
    output: Option<FileWriter>,
}

enum Input {
    Pcap(Box<PcapReader<File>>),
    PcapNg(Box<PcapNgReader<File>>),
    Stream(Stream),
    End,
}

impl PcapDevice {
    /// Opens `input`, whose packets are received after a delay, and creates `output`, replacing an existing file.
    ///
    /// # Errors
    /// [`Error::File`] if a file cannot be opened, or the input is not a capture file.
    pub fn open(input: &Path, output: Option<&Path>, after: Duration, pool: PoolRef) -> Result<PcapDevice, Error> {
        let name = match output {
            Some(output) => format!("pcap:{},{}", input.display(), output.display()),
            None => format!("pcap:{}", input.display()),
        };
        let (reader, form) = open_input(input)?;
        let output = output.map(|path| FileWriter::create(path, form)).transpose()?;
        let shared = Arc::new(Shared::default());
        let from = Instant::now() + after;
        let queue = PcapQueue { shared: Arc::clone(&shared), pool: Arc::clone(&pool), input: reader, from, output };
        Ok(PcapDevice { name, pool, shared, queue: Some(queue) })
    }
}

/// Opens a capture file and finds its link type: for pcapng that of the first interface before the first packet, or
/// Ethernet if there is none.
fn open_input(path: &Path) -> Result<(Input, Form), Error> {
    let fail = |reason: String| Error::File { path: path.to_owned(), reason };
    let mut file = File::open(path).map_err(|error| fail(error.to_string()))?;
    if file.metadata().is_ok_and(|data| data.file_type().is_fifo()) {
        let (stream, form) = Stream::open(file).map_err(|error| fail(error.to_string()))?;
        return Ok((Input::Stream(stream), form));
    }
    let mut magic = [0; 4];
    file.read_exact(&mut magic)
        .map_err(|_| fail("neither a pcap nor a pcapng file: it is shorter than 4 bytes".into()))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| fail(error.to_string()))?;
    if magic != PCAPNG_MAGIC {
        let reader =
            PcapReader::new(file).map_err(|error| fail(format!("not a capture file: {}", describe(&error))))?;
        let form = Form { link_type: reader.header().datalink, resolution: reader.header().ts_resolution };
        return Ok((Input::Pcap(Box::new(reader)), form));
    }
    let open = |file| PcapNgReader::new(file).map_err(|error| fail(describe(&error)));
    // A second reader looks for the link type, because a block that was read cannot be read again.
    let mut probe = open(file.try_clone().map_err(|error| fail(error.to_string()))?)?;
    let mut link_type = DataLink::ETHERNET;
    while let Some(Ok(block)) = probe.next_block() {
        match block {
            Block::InterfaceDescription(interface) => {
                link_type = interface.linktype;
                break;
            }
            Block::EnhancedPacket(_) | Block::SimplePacket(_) | Block::Packet(_) => break,
            _ => {}
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(|error| fail(error.to_string()))?;
    Ok((Input::PcapNg(Box::new(open(file)?)), Form { link_type, resolution: TsResolution::NanoSecond }))
}

/// Passes each packet of a capture file to `take`, until it returns false.
///
/// # Errors
/// [`Error::File`] if the file cannot be read, or is damaged.
pub fn read_capture(path: &Path, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Error> {
    let (mut input, _) = open_input(path)?;
    let mut wanted = true;
    let fail = |error| Error::File { path: path.to_owned(), reason: describe(&error) };
    while wanted {
        match input.next(&mut |packet| wanted = take(packet)).map_err(fail)? {
            Next::Packet => {}
            Next::Nothing => std::thread::sleep(Duration::from_millis(1)),
            Next::End => break,
        }
    }
    Ok(())
}

/// Describes an error; the crate's `Display` hides the system's error.
fn describe(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "it ends in the middle of a packet: it was cut off, or is still being written".to_string()
        }
        PcapError::IncompleteBuffer => "it ends too soon to be a capture, or in the middle of a packet".to_string(),
        PcapError::IoError(error) => error.to_string(),
        other => other.to_string(),
    }
}

impl Input {
    /// Passes the next packet's bytes to `take`.
    fn next(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<Next, PcapError> {
        match self {
            Input::End => Ok(Next::End),
            Input::Stream(stream) => stream.next(take).map_err(PcapError::IoError),
            // Raw records: the checked reader refuses files whose original lengths
            // exceed the snap length, which are common.
            Input::Pcap(reader) => match reader.next_raw_packet().transpose()? {
                Some(packet) => {
                    take(&packet.data);
                    Ok(Next::Packet)
                }
                None => Ok(Next::End),
            },
            Input::PcapNg(reader) => {
                while let Some(block) = reader.next_block().transpose()? {
                    match block {
                        Block::EnhancedPacket(packet) => take(&packet.data),
                        Block::SimplePacket(packet) => take(&packet.data),
                        Block::Packet(packet) => take(&packet.data),
                        _ => continue,
                    }
                    return Ok(Next::Packet);
                }
                Ok(Next::End)
            }
        }
    }
}

impl Device for PcapDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "pcap"
    }

    fn queue_count(&self) -> u16 {
        1
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        self.queue.take().map(|queue| Box::new(queue) as Box<dyn Queue>).into_iter().collect()
    }

    fn pool(&self) -> PoolRef {
        Arc::clone(&self.pool)
    }

    fn link(&self) -> LinkState {
        LinkState { up: true, speed_mbps: None }
    }

    fn stats(&self) -> PortStats {
        self.shared.counters.read()
    }

    fn mac(&self) -> Option<MacAddress> {
        None
    }

    fn mtu(&self) -> u16 {
        MTU_DEFAULT
    }

    fn at_end(&self) -> bool {
        self.shared.at_end.load(Ordering::Acquire)
    }
}

impl Queue for PcapQueue {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let mut burst = PortStats::default();
        let before = out.len();
        if Instant::now() < self.from {
            return 0;
        }
        while out.len() - before < max {
            // The buffer is allocated first: a record that was read cannot be put back.
            let Some(mut packet) = self.pool.alloc() else { break };
            let mut fits = false;
            match self.input.next(&mut |bytes| {
                fits =
                    packet.set_data(bytes).is_ok() || self.pool.alloc_from(bytes).map(|large| packet = large).is_some();
            }) {
                Ok(Next::Packet) if fits => out.push(packet),
                Ok(Next::Packet) => burst.rx_dropped += 1,
                Ok(Next::Nothing) => break,
                ended => {
                    burst.rx_errors += u64::from(ended.is_err());
                    self.input = Input::End;
                    self.shared.at_end.store(true, Ordering::Release);
                    break;
                }
            }
        }
        burst.rx_packets = (out.len() - before) as u64;
        burst.rx_bytes = total_bytes(&out[before..]);
        self.shared.counters.add(&burst);
        out.len() - before
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        let count = packets.len();
        let bytes = total_bytes(packets);
        let written = match &mut self.output {
            Some(output) => output.write(packets.iter().map(Packet::data)).is_ok(),
            None => true,
        };
        crate::free_bulk(packets);
        self.shared.counters.add(&if written {
            PortStats { tx_packets: count as u64, tx_bytes: bytes, ..PortStats::default() }
        } else {
            PortStats { tx_dropped: count as u64, ..PortStats::default() }
        });
        count
    }
}

/// Writes a pcap file. The `pcap-file` crate's writer is not used: it owns its output, which so cannot be flushed after
/// a burst.
struct FileWriter {
    file: BufWriter<File>,
    resolution: TsResolution,
}

impl FileWriter {
    fn create(path: &Path, form: Form) -> Result<FileWriter, Error> {
        let fail = |reason: String| Error::File { path: path.to_owned(), reason };
        let mut file = BufWriter::new(File::create(path).map_err(|error| fail(error.to_string()))?);
        let header = PcapHeader {
            datalink: form.link_type,
            ts_resolution: form.resolution,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        header.write_to(&mut file).map_err(|error| fail(describe(&error)))?;
        file.flush().map_err(|error| fail(error.to_string()))?;
        Ok(FileWriter { file, resolution: form.resolution })
    }

    fn write<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]>) -> std::io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let part = match self.resolution {
            TsResolution::NanoSecond => now.subsec_nanos(),
            TsResolution::MicroSecond => now.subsec_micros(),
        };
        for bytes in packets {
            let len = bytes.len() as u32;
            for field in [now.as_secs() as u32, part, len, len] {
                self.file.write_all(&field.to_le_bytes())?;
            }
            self.file.write_all(bytes)?;
        }
        self.file.flush()
    }
}

#[cfg(test)]
mod tests;
