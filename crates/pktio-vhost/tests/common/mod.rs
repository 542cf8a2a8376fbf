//! What the tests share: two ports with a worker between them that sends back what comes, and a guest for each.
#![allow(unsafe_code, dead_code)]

#[path = "../../../pktio-dpdk/tests/common/guest.rs"]
pub mod guest;

pub use guest::*;
use pktio::{Device, HeapPool, Queue};
use pktio_vhost::{Options, open};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const FEATURES: u64 = F_MRG_RXBUF | F_VERSION_1;
/// How long anything may take on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What ports have logged, all tests' together: names of ports tell them apart.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Two ports and the worker that sends back what comes, each on its own.
pub struct Ports {
    pub folder: tempfile::TempDir,
    pub devices: Vec<Box<dyn Device>>,
    worker: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Ports {
    pub fn new() -> Ports {
        let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Logged).try_init();
        let folder = tempfile::tempdir().expect("a folder");
        let pool = HeapPool::shared(2048);
        let options = Options { is_server: true, queues: 1, mtu: 9000, memory_bytes: 1 << 30 };
        let mut devices: Vec<_> = ["attacked", "honest"]
            .map(|name| {
                let path = folder.path().join(name);
                open(path.display().to_string(), &path, &options, pool.clone()).expect("the port opens")
            })
            .into();
        let mut queues: Vec<Box<dyn Queue>> = devices.iter_mut().flat_map(|device| device.take_queues()).collect();
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let worker = std::thread::spawn(move || {
            let mut packets = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let mut got = 0;
                for queue in &mut queues {
                    got += queue.rx(&mut packets, 64);
                    queue.tx(&mut packets);
                    pktio::free_bulk(&mut packets);
                }
                counted.fetch_add(1, Ordering::Relaxed);
                if got == 0 {
                    std::thread::yield_now();
                }
            }
        });
        Ports { folder, devices, worker: Some(worker), stop, rounds }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn connect(&self, name: &str) -> Guest {
        Guest::connect(&self.path(name).display().to_string(), FEATURES, 2048)
    }

    /// A guest sends frames and gets each back.
    pub fn echo(&self, guest: &mut Guest) {
        self.echo_up_to(1010, guest);
    }

    /// The same with 20 frames of 60 bytes to this many.
    pub fn echo_up_to(&self, longest: usize, guest: &mut Guest) {
        for number in 0..20u8 {
            let frame = vec![number; 60 + (longest - 60) * usize::from(number) / 19];
            guest.send(Header::default(), &frame, &[]);
            let (_, back) = guest.wait();
            assert!(back == frame, "frame {number}");
            wait_for("it was taken", || guest.all_taken());
        }
    }

    /// The worker goes round its ports.
    pub fn worker_runs(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        wait_for("the worker goes on", || self.rounds.load(Ordering::Relaxed) > before + 2);
    }

    pub fn says(&self, what: &str) {
        let port = self.path("attacked").display().to_string();
        wait_for(&format!("a line in the log about {port}: {what}"), || {
            let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&log).lines().any(|line| line.contains(&port) && line.contains(what))
        });
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.worker.take().map(JoinHandle::join);
        let start = Instant::now();
        self.devices.clear();
        assert!(start.elapsed() < PATIENCE, "ports close though a front end does nothing");
        assert!(!Path::new(&self.path("attacked")).exists(), "closing a port removes its socket");
    }
}

pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Stops a ring and starts it anew, with other places.
pub fn move_ring(guest: &mut Guest, ring: u32, size: u32, descriptors: u64, used: u64, available: u64) {
    guest.try_ask(11, &words(&[ring, 0]));
    guest.tell(8, &words(&[ring, size]), None);
    guest.tell(10, &words(&[ring, 0]), None);
    let mut address = words(&[ring, 0]);
    address.extend([descriptors, used, available].map(|at| guest.user(at).to_le_bytes()).concat());
    address.extend(0u64.to_le_bytes());
    guest.tell(9, &address, None);
    guest.tell(12, &(u64::from(ring) | 1 << 8).to_le_bytes(), None);
}

pub fn eventfd(count: u64) -> OwnedFd {
    // SAFETY: a new file that is ours, and eight bytes that live for the call.
    unsafe {
        let file = OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC));
        if count != 0 {
            assert_eq!(libc::write(file.as_raw_fd(), (&raw const count).cast(), 8), 8);
        }
        file
    }
}
