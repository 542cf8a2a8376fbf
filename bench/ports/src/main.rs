//! `portgen`: sends prebuilt frames on ports as fast as they are taken (or at a rate), counts what comes back, and prints
//! one JSON object.
//!
//! ```text
//! portgen --port virtio:/tmp/a.sock --frames a.bin --port virtio:/tmp/b.sock --frames b.bin --seconds 2 --cpu 1
//! ```
//!
//! A frame file is an array of frames of one length (`--size`, the default) or, for mixed lengths, each frame after its
//! length in two bytes, little end first (`--mixed`). A port without frames (`--frames none`) only receives. Frames are
//! copied into fresh buffers, so what the switch does to a packet never comes back here; with `--random` bytes of each
//! copy are drawn anew, for traffic in which no header comes twice.
//!
//! With `--window N` every packet is accounted for (`account.rs`): what is measured then is whether any is lost, not how fast
//! they go.
//!
//! What is measured runs elsewhere; this process has one busy thread. Tests: `frames/tests.rs`, `histogram.rs`.

mod account;
mod frames;
mod histogram;
mod pace;
mod traffic;

use anyhow::{Context, Result, bail};
use clap::Parser;
use frames::{Frames, RandomSpan};
use pktio::DeviceSpec;
use pktio_dpdk::{Eal, EalConfig, HugepageUse, PortOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use traffic::{Plan, Port};

/// Sends prebuilt frames and counts what comes back.
#[derive(Parser)]
struct Args {
    /// A port, as `sluice run` names devices; mostly virtio:PATH, the guest's end of a vhost-user port.
    #[arg(long = "port", required = true)]
    ports: Vec<DeviceSpec>,
    /// What each port sends, in the order of the ports: a file of frames, or `none`.
    #[arg(long = "frames", required = true)]
    frames: Vec<PathBuf>,
    /// Bytes of each frame of the files.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// The files hold frames of mixed lengths.
    #[arg(long, conflicts_with = "size")]
    mixed: bool,
    /// Bytes that are drawn anew for each packet: OFFSET:LENGTH[,OFFSET:LENGTH...].
    #[arg(long, value_delimiter = ',')]
    random: Vec<RandomSpan>,
    /// The IPv4 header at byte 14 gets a right checksum after random bytes.
    #[arg(long)]
    ipv4_checksum: bool,
    /// Packets a second over all sending ports; as many as are taken without it.
    #[arg(long)]
    rate: Option<f64>,
    /// Measures the time until packets come back: the last eight bytes of frames hold the time of sending.
    #[arg(long)]
    latency: bool,
    /// Has at most this many packets under way, as many as all the time if they come back, and says at the end how many never
    /// did. Fewer than a ring holds, so that no ring overflows because somebody was not scheduled. There is no warm-up then, and
    /// standard input ends the measurement: when it is closed, nothing is sent any more.
    #[arg(long, conflicts_with_all = ["rate", "warmup"])]
    window: Option<usize>,
    /// Counts received packets whose bytes at these two places differ: PLACE:PLACE.
    #[arg(long, requires = "window", value_parser = parse_same)]
    same: Option<(usize, usize)>,
    /// Seconds before the measurement.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Seconds of the measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Packets sent at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
    /// Packets in each ring.
    #[arg(long, default_value_t = 512)]
    ring: u16,
    /// Microseconds that a turn over all ports takes at least. Rings are looked at seldom and in large steps then, as a
    /// guest with interrupts does, and the two processors do not fight over their cache lines.
    #[arg(long, default_value_t = 12.0)]
    turn_us: f64,
    /// Buffers, as for `sluice run`.
    #[arg(long, default_value_t = 16_383)]
    buffers: u32,
    /// Ordinary pages instead of hugepages.
    #[arg(long)]
    no_huge: bool,
    /// How long links may take to come up.
    #[arg(long, default_value_t = 10.0)]
    patience: f64,
}

fn parse_same(text: &str) -> Result<(usize, usize), String> {
    let places = text.split_once(':').and_then(|(a, b)| a.parse().ok().zip(b.parse().ok()));
    places.ok_or_else(|| "it is two numbers, as 42:43".to_string())
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.frames.len() != args.ports.len() {
        bail!("{} ports and {} --frames: each port needs one", args.ports.len(), args.frames.len());
    }
    let size = if args.mixed { None } else { Some(args.size) };
    let mut sources = Vec::new();
    for path in &args.frames {
        sources.push(match path.to_str() {
            Some("none") => None,
            _ => Some(Frames::read(path, size)?),
        });
    }
    let guest = args.ports.iter().any(|port| matches!(port, DeviceSpec::Virtio { .. }));
    let hugepages = if args.no_huge { HugepageUse::Never } else { HugepageUse::Require };
    let eal = Eal::init(&EalConfig { buffers: args.buffers, hugepages, guest, ..EalConfig::default() })?;
    let mut devices = Vec::new();
    for port in &args.ports {
        devices.push(
            eal.open(port, &PortOptions { descriptors: args.ring, ..PortOptions::default() })
                .with_context(|| format!("port {port}"))?,
        );
    }
    let deadline = Instant::now() + Duration::from_secs_f64(args.patience);
    while let Some(down) = devices.iter().find(|device| !device.link().up) {
        if Instant::now() > deadline {
            bail!("{}: no link after {} s", down.name(), args.patience);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ports =
        devices.iter_mut().zip(sources).map(|(device, frames)| Port::new(device.take_queues().remove(0), frames));
    let plan = Plan {
        warmup: Duration::from_secs_f64(args.warmup),
        measured: Duration::from_secs_f64(args.seconds),
        burst: args.burst.into(),
        turn: Duration::from_secs_f64(args.turn_us / 1e6),
        rate: args.rate,
        latency: args.latency,
        random: args.random,
        ipv4_checksum: args.ipv4_checksum,
    };
    let window = args.window.map(|most| account::Window { most, same: args.same, ended: account::end_of_input() });
    let ports: Vec<Port> = ports.collect();
    let pool = eal.pool();
    let result = std::thread::scope(|scope| {
        let body = || {
            let _registration = pktio_dpdk::register_worker();
            match &window {
                Some(window) => account::run(ports, &pool, &plan, window),
                None => traffic::run(ports, &pool, &plan).to_json(),
            }
        };
        let thread = std::thread::Builder::new().name("generator".into()).spawn_scoped(scope, body);
        thread.context("no thread").map(|thread| thread.join())
    })?;
    match result {
        Ok(result) => println!("{result}"),
        Err(_) => bail!("the generator's thread has panicked"),
    }
    Ok(())
}
