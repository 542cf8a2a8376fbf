//! `--pcap`, `--log-console`, `--log-file` and `--nanolog`: what ports receive and send, and what the program does with each packet, as users
//! of bmv2 read it and as its event stream tells it.
//!
//! ```text
//!   ports ─ datapath::tap ─┬▶ pcap: files
//!                          └▶ log: live.rs runs the frame again ─▶ story ─┬▶ line: the log
//!                                                                         └▶ events: subscribers of nanomsg
//! ```
//!
//! Workers do nothing for it but copy frames (`datapath::tap`). A thread writes pcap files, another one runs each received frame again
//! through the interpreter, on a snapshot of the tables as they are then, and tells each step. Frames that come faster than that are not
//! told, and the log says how many; the switch does not wait. So both are for looking at packets, not for load.
//!
//! A line has bmv2's form; numbers of packets count what is told. Times are UTC. Entries have the handles that thrift gives them.
//!
//! Tests: in the files, `tests/py/test_bmv2.py`.

mod conditions;
mod events;
mod line;
mod log;
mod numbers;
mod pcap;
mod story;

use super::names;
use crate::compiler::Compiler;
use crate::nanomsg::{Address, Publisher};
use anyhow::{Context, Result, ensure};
use datapath::Switch;
use datapath::tap::TapConfig;
use grpc::Handle;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a thread waits for a frame before it writes out what it has.
const LOOK: Duration = Duration::from_millis(50);

/// Gives entries their handles once thrift is served.
pub type Handles = Arc<OnceLock<thrift_service::HandleLookup>>;

/// Options of `sluice run` that bmv2's command lines become.
#[derive(clap::Args, Clone, Debug)]
pub struct ObserveArgs {
    /// Record what ports receive and send, as INTERFACE_in.pcap and INTERFACE_out.pcap in this folder.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pcap: Option<PathBuf>,
    /// Write a line for each step of each packet, as bmv2 does; `-` is stdout.
    #[arg(long, value_name = "FILE", hide = true)]
    packet_log: Option<PathBuf>,
    /// Whether it shows what the program does.
    #[arg(long, value_name = "true|false", hide = true, default_value_t = true, action = clap::ArgAction::Set)]
    packet_log_steps: bool,
    /// Bytes of packets that it shows.
    #[arg(long, value_name = "BYTES", hide = true, default_value_t = 0)]
    packet_log_bytes: usize,
    /// Send a message for each step of each packet to subscribers of nanomsg, as bmv2 does.
    #[arg(long, value_name = "ADDR", hide = true)]
    packet_events: Option<Address>,
}

/// What is being written; dropping it ends it, once what has come is written.
pub struct Observer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    handles: Handles,
}

impl Observer {
    /// Takes what gives entries their handles.
    pub fn know_handles(&self, lookup: thrift_service::HandleLookup) {
        let _ = self.handles.set(lookup);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl ObserveArgs {
    /// Begins with the first frame of the ports that are added afterwards.
    pub fn start(
        &self,
        switch: &Arc<Switch>,
        handle: &Arc<Handle>,
        (compiler, options): (&Arc<Compiler>, &frontend::Options),
        device: u64,
    ) -> Result<Observer> {
        let mut observer = Observer { stop: Arc::default(), threads: Vec::new(), handles: Arc::default() };
        if let Some(folder) = &self.pcap {
            let tapped = switch.tap(TapConfig::default())?;
            let files = pcap::PcapFiles::new(folder.clone());
            let (switch, stop) = (Arc::clone(switch), Arc::clone(&observer.stop));
            let thread = std::thread::Builder::new().name("pcap".into());
            observer.threads.push(thread.spawn(move || files.write_all(&switch, &tapped, &stop))?);
        }
        if self.packet_log.is_none() && self.packet_events.is_none() {
            return Ok(observer);
        }
        let out = self.packet_log.as_deref().map(open).transpose()?;
        let publisher = self.packet_events.as_ref().map(|address| {
            Publisher::bind(address).with_context(|| format!("the event stream: cannot listen at {address}"))
        });
        let source = log::Source {
            switch: Arc::clone(switch),
            handle: Arc::clone(handle),
            compiler: Arc::clone(compiler),
            options: options.clone(),
            device,
            handles: Arc::clone(&observer.handles),
        };
        let log = log::PacketLog {
            source,
            steps: out.is_some() && self.packet_log_steps,
            out,
            bytes: self.packet_log_bytes,
            publisher: publisher.transpose()?,
            program: None,
            count: 0,
        };
        let tapped = log.out.is_some().then(|| log.source.tap(log.shows_sent())).transpose()?;
        let stop = Arc::clone(&observer.stop);
        let thread = std::thread::Builder::new().name("packet-log".into());
        observer.threads.push(thread.spawn(move || log.write_all(tapped, &stop))?);
        Ok(observer)
    }

    /// Where events are sent.
    pub fn events(&self) -> Option<&Address> {
        self.packet_events.as_ref()
    }

    /// Refuses an address that other machines reach, unless that is allowed.
    pub fn check(&self, insecure: bool) -> Result<()> {
        if let Some(Address::Tcp(address)) = &self.packet_events
            && !address.ip().to_canonical().is_loopback()
        {
            let what = "other machines can connect there, and everybody can read which packets pass";
            ensure!(insecure, "the event stream at {address}: {what}; --insecure does it all the same");
            tracing::warn!("the event stream at {address}: {what} ({})", names::insecure());
        }
        Ok(())
    }
}

fn open(file: &Path) -> Result<Box<dyn Write + Send>> {
    Ok(match file {
        file if file == Path::new("-") => Box::new(std::io::stdout()),
        file => Box::new(File::create(file).with_context(|| format!("cannot write {}", file.display()))?),
    })
}
