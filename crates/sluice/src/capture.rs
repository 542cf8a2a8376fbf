//! `sluice capture [PORT ...] -w FILE`: what ports of a running switch receive and send, as pcapng.
//!
//! Each port is an interface of the file, and each frame carries its direction (`epb_flags`). If this command reads too
//! slowly, the capture loses frames and counts them; the switch loses none. `-w -` writes to stdout, as `tcpdump -r -`
//! and `wireshark -k -i -` read it. With `--json` each frame is a line.
//!
//! Tests: at the end of the file.

use crate::complete;
use crate::stats::{NO_ADMIN, ServerArgs};
use anyhow::{Context, Result, bail, ensure};
use clap_complete::ArgValueCompleter;
use messages::sluice::v1 as pb;
use pb::capture_response::Frame;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The snap length, in bytes, that truncates no frame.
const SNAP_MAX: u32 = 65_535;
/// The resolution of time stamps, 10^-9 s, as `if_tsresol` encodes it.
const NANOSECONDS: u8 = 9;
/// The direction in `epb_flags`: inbound.
const RECEIVED: u32 = 1;
/// The direction in `epb_flags`: outbound.
const SENT: u32 = 2;

/// Arguments of `capture`.
#[derive(clap::Args)]
#[command(after_help = "Ends with Ctrl-C, or after --count frames.")]
pub struct Args {
    /// Port numbers; none for all.
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    ports: Vec<u32>,
    /// Only ports of this device, its ends of links included.
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(complete::devices))]
    device_id: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    /// Where frames are written, as pcapng; `-` is stdout.
    #[arg(short, long, value_name = "FILE", required_unless_present = "json")]
    write: Option<PathBuf>,
    /// Print a JSON object a line for each frame, with --write beside the file.
    #[arg(long)]
    json: bool,
    /// End after this many frames.
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// Bytes of each frame.
    #[arg(short, long, value_name = "BYTES")]
    snap_length: Option<u32>,
    /// Which frames, as tcpdump takes it: 'tcp port 80 and host 10.0.0.1'.
    #[arg(short = 'f', long, value_name = "EXPRESSION")]
    pcap_filter: Option<String>,
}

/// Runs `sluice capture`.
///
/// # Errors
/// If no switch answers, or the file cannot be written.
pub fn main(args: &Args) -> Result<ExitCode> {
    let client = args.server.connect()?;
    let stats = client.stats()?.context(NO_ADMIN)?;
    for wanted in &args.ports {
        let ends = stats.links.iter().flat_map(|link| [link.from, link.to]).flatten();
        let there =
            stats.ports.iter().map(|p| (p.device_id, p.number)).chain(ends.map(|end| (end.device_id, end.port)));
        let there = there.filter(|(device, _)| args.device_id.is_none_or(|wanted| wanted == *device));
        let numbers: BTreeSet<u32> = there.map(|(_, port)| port).collect();
        let list: Vec<String> = numbers.iter().map(u32::to_string).collect();
        ensure!(numbers.contains(wanted), "there is no port {wanted}; there are {}", list.join(", "));
    }
    let wanted = stats.ports.iter().filter(|p| args.ports.is_empty() || args.ports.contains(&p.number));
    let wanted = wanted.filter(|p| args.device_id.is_none_or(|device| device == p.device_id));
    let names = wanted.map(|p| ((p.device_id, p.number), format!("{}@{}", p.number, p.name))).collect();
    ensure!(
        !args.json || args.write.as_deref() != Some(Path::new("-")),
        "--json and --write - both want standard output"
    );
    let snap_length = args.snap_length.unwrap_or(SNAP_MAX);
    let file = args.write.as_deref().map(|path| CaptureFile::new(open(path)?, &names, snap_length));
    let mut file = file.transpose()?;
    let request = pb::CaptureRequest {
        device_id: args.device_id.unwrap_or(0),
        ports: args.ports.clone(),
        snap_length: args.snap_length.unwrap_or(0),
        packet_filter: args.pcap_filter.clone().unwrap_or_default(),
    };
    let (mut count, mut lost, mut failed) = (0, 0, None);
    client.capture(request, |message| {
        lost = message.lost;
        for frame in &message.frames {
            if args.count.is_some_and(|max| count >= max) {
                return false;
            }
            if args.json {
                println!("{}", to_json(frame));
            }
            if let Some(Err(error)) = file.as_mut().map(|file| file.write(frame)) {
                failed = Some(error);
                return false;
            }
            count += 1;
        }
        // A reader of the file sees each frame at once.
        failed = file.as_mut().and_then(|file| file.flush().err());
        failed.is_none() && args.count.is_none_or(|max| count < max)
    })?;
    if let (Some(error), Some(path)) = (failed, &args.write) {
        bail!("cannot write {}: {error:#}", path.display());
    }
    eprintln!("{count} frames, {lost} lost by the capture");
    Ok(ExitCode::SUCCESS)
}

fn to_json(frame: &Frame) -> serde_json::Value {
    serde_json::json!({
        "device_id": frame.device_id, "port": frame.port, "direction": if frame.sent { "send" } else { "receive" },
        "time_ns": frame.time_ns, "length": frame.length, "frame": hex::encode(&frame.data),
    })
}

fn open(path: &Path) -> Result<Box<dyn Write>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdout()));
    }
    let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Box::new(file))
}

struct CaptureFile {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    /// Interface numbers in the file, by device and port.
    interfaces: BTreeMap<(u64, u32), u32>,
    snap_length: u32,
}

impl CaptureFile {
    fn new(to: Box<dyn Write>, ports: &BTreeMap<(u64, u32), String>, snap_length: u32) -> Result<CaptureFile> {
        let writer = PcapNgWriter::new(BufWriter::new(to))?;
        let mut file = CaptureFile { writer, interfaces: BTreeMap::new(), snap_length };
        for (port, name) in ports {
            file.interface(*port, name)?;
        }
        file.flush()?;
        Ok(file)
    }

    fn interface(&mut self, port: (u64, u32), name: &str) -> Result<u32> {
        let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, self.snap_length);
        interface.options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        self.writer.write_pcapng_block(interface)?;
        let id = self.interfaces.len() as u32;
        self.interfaces.insert(port, id);
        Ok(id)
    }

    fn write(&mut self, frame: &Frame) -> Result<()> {
        let port = (frame.device_id, frame.port);
        let interface_id = match self.interfaces.get(&port) {
            Some(id) => *id,
            // The end of a link, or a port that was added after the capture began.
            None => self.interface(port, &format!("{}:{}", port.0, port.1))?,
        };
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(frame.time_ns),
            original_len: frame.length,
            data: Cow::Borrowed(&frame.data),
            options: vec![EnhancedPacketOption::Flags(if frame.sent { SENT } else { RECEIVED })],
        })?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.writer.get_mut().flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frames_have_their_port_time_and_direction() {
        let shared = Shared::default();
        let names = BTreeMap::from([((1, 3), "3@veth0".to_string()), ((1, 9), "9@veth1".to_string())]);
        let mut file = CaptureFile::new(Box::new(shared.clone()), &names, 100).unwrap();
        let frame = |port, sent, time_ns| {
            let data = vec![port as u8; 100];
            Frame { port, sent, time_ns, length: 1500, data, device_id: 1 }
        };
        let frames =
            [frame(9, false, 1_700_000_000_123_456_789), frame(3, true, 1_700_000_000_123_456_790), frame(4, true, 5)];
        frames.iter().for_each(|f| file.write(f).unwrap());
        file.flush().unwrap();
        let bytes = shared.0.lock().unwrap().clone();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut found = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                let flags = packet.options.iter().find_map(|o| match o {
                    EnhancedPacketOption::Flags(flags) => Some(*flags),
                    _ => None,
                });
                let nanoseconds = packet.timestamp.as_nanos();
                found.push((packet.interface_id, nanoseconds, packet.original_len, packet.data.to_vec(), flags));
            }
        }
        let expected: Vec<_> = [(1, RECEIVED), (0, SENT), (2, SENT)]
            .into_iter()
            .zip(&frames)
            .map(|((interface, flags), f)| (interface, u128::from(f.time_ns), 1500, f.data.clone(), Some(flags)))
            .collect();
        assert_eq!(found, expected);
    }
}
