//! `--pcap`, `--log-console`, `--log-file` and `--nanolog`: records what ports receive and send, and each step of each
//! packet, in the forms of bmv2's log and event stream.
//!
//! ```text
//!   ports ─ datapath::tap ─┬▶ pcap: files
//!                          └▶ log: live.rs runs the frame again ─▶ story ─┬▶ line: the log
//!                                                                         └▶ events: subscribers of nanomsg
//! ```
//!
//! Workers only copy frames for it (`datapath::tap`). One thread writes pcap files; another runs each received frame
//! again through the interpreter, on a snapshot of the current tables, and reports each step. Frames that arrive faster
//! are not reported, and the log says how many; the switch does not wait. So both are for looking at packets, not for
//! operation under load.
//!
//! Log lines have bmv2's format; packet numbers count the reported packets. Times are UTC. Entries have the handles
//! that thrift assigns.
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

/// How long a thread waits for a frame before it flushes its output.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The lookup of entries' handles, set once thrift is served.
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

/// The running threads; dropping it stops them after they have written what they have received.
pub struct Observer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    handles: Handles,
}

impl Observer {
    /// Sets the lookup of entries' handles.
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
    /// Starts the threads. Called before ports are added, so that no frame is missed.
    ///
    /// # Errors
    /// If a file cannot be opened, the address cannot be listened on, or the tap or a thread cannot be made.
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

    /// Returns the address of the event stream.
    pub fn events(&self) -> Option<&Address> {
        self.packet_events.as_ref()
    }

    /// Refuses an address that other machines can reach, unless `insecure` is set.
    ///
    /// # Errors
    /// If it is refused.
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
