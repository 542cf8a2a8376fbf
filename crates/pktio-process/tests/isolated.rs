//! Ports with real processes of their own: honest guests and memif peers, hostile ones, and processes that end.
//!
//! This executable is also the ports' process: [`port_process`].

#[path = "../../pktio-dpdk/tests/common/guest.rs"]
mod guest;

use guest::*;
use pktio::{Device, DeviceSpec, Error, HeapPool, Packet, PoolRef, PortOptions, Queue, Wake};
use pktio_process::{CLOSE_MAX, Launcher};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

const FEATURES: u64 = F_MRG_RXBUF | F_VERSION_1;
/// How long anything may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process of a port, which the other tests' ports start.
#[test]
#[ignore = "started by the other tests"]
fn port_process() {
    let code = pktio_process::child::main();
    std::process::exit(if format!("{code:?}").contains("0") { 0 } else { 1 });
}

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

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a line of the log about a port.
fn says(port: &str, what: &[&str]) {
    wait_for(&format!("a line in the log about {port}: {what:?}"), || {
        let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let log = String::from_utf8_lossy(&log).into_owned();
        log.lines().any(|line| line.contains(port) && what.iter().all(|what| line.contains(what)))
    });
}

/// Processes of ports that this one has started.
fn processes() -> BTreeSet<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent(*pid) == Some(std::process::id() as i32)).collect()
}

/// Whether a thread of the process waits in the kernel and can be neither stopped nor ended.
fn is_held_up(pid: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.into_iter().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, behind)| behind.starts_with('D'))
    })
}

struct Port {
    queues: Vec<Box<dyn Queue>>,
    device: Box<dyn Device>,
    pool: PoolRef,
    pid: i32,
}

fn try_open(spec: &str, path: &Path, queues: u16) -> Result<Port, Error> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
            .with_writer(|| Logged)
            .try_init();
        pktio_process::set_launcher(Launcher {
            program: std::env::current_exe().expect("this file"),
            arguments: ["port_process", "--exact", "--ignored", "--nocapture"].map(Into::into).to_vec(),
        });
    });
    // One at a time, so that it is known which process is whose.
    static OPENING: Mutex<()> = Mutex::new(());
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let before = processes();
    let pool = HeapPool::shared(4096);
    let spec: DeviceSpec = spec.parse().expect("a port");
    let options = PortOptions { queues, descriptors: 64, memory_mb: 1024, isolated: true, ..PortOptions::default() };
    let mut device = pktio_process::open(&spec, path.to_owned(), &options, pool.clone())?;
    // Another port may have started its process anew meanwhile.
    let pid = processes().difference(&before).copied().max().expect("it has a process");
    Ok(Port { queues: device.take_queues(), device, pool, pid })
}

fn open(spec: &str, path: &Path) -> Port {
    try_open(spec, path, 1).unwrap_or_else(|error| panic!("{error}"))
}

fn vhost(path: &Path) -> Port {
    open(&format!("vhost-server:{}", path.display()), path)
}

fn connect(path: &Path) -> Guest {
    Guest::connect(&path.display().to_string(), FEATURES, 2048)
}

impl Port {
    fn receive(&mut self, count: usize) -> Vec<Packet> {
        let mut packets = Vec::new();
        wait_for("packets come", || {
            self.queues.iter_mut().for_each(|queue| _ = queue.rx(&mut packets, count));
            packets.len() >= count
        });
        packets
    }

    /// The worker sends back what comes.
    fn echo(&mut self, count: usize) {
        let mut packets = self.receive(count);
        wait_for("packets are taken", || {
            self.queues[0].tx(&mut packets);
            packets.is_empty()
        });
    }

    /// A guest sends frames of 60 to 9,000 bytes and gets each back.
    fn echoes(&mut self, guest: &mut Guest) {
        for number in 0..20u8 {
            let frame = vec![number; 60 + 470 * usize::from(number)];
            guest.send(Header::default(), &frame, &[]);
            self.echo(1);
            assert!(guest.wait().1 == frame, "frame {number}");
            wait_for("it was taken", || guest.all_taken());
        }
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    (folder, path)
}

#[test]
fn a_guest_exchanges_frames_with_a_switch_that_never_maps_its_memory() {
    let (_folder, path) = folder();
    let mut port = vhost(&path);
    assert_eq!((port.device.kind(), port.device.queue_count(), port.device.mtu()), ("vhost", 1, 9000));
    assert!(!port.device.link().up);
    let mut guest = connect(&path);
    wait_for("the link is up", || port.device.link().up);
    port.echoes(&mut guest);
    // This executable has the memory mapped once, for the guest, which is part of the test.
    let inode = rustix::fs::fstat(guest.file()).expect("a memfd").st_ino.to_string();
    let mappings = |pid: u32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("/proc");
        maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count()
    };
    assert_eq!((mappings(port.pid as u32), mappings(std::process::id())), (1, 1));
    let bytes: u64 = (0..20).map(|number| 60 + 470 * number).sum();
    wait_for("the counters are told", || port.device.stats().tx_packets == 20);
    let stats = port.device.stats();
    assert_eq!((stats.rx_packets, stats.rx_bytes, stats.tx_bytes), (20, bytes, bytes));
    assert_eq!((stats.rx_dropped, stats.tx_dropped, port.device.note()), (0, 0, None));
    drop(guest);
    wait_for("the link is down", || !port.device.link().up);
    let mut next = connect(&path);
    port.echoes(&mut next);
}

#[test]
fn large_frames_keep_their_segments() {
    let (_folder, path) = folder();
    let mut port = vhost(&path);
    let features = FEATURES | F_CSUM | F_HOST_TSO4;
    let mut guest = Guest::connect(&path.display().to_string(), features, 2048);
    // An Ethernet, an IPv4 and a TCP header, and 4,000 bytes.
    let mut frame = vec![0u8; 54 + 4000];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0x0f, 0xc8, 0, 0, 0, 0, 64, 6]);
    frame[46] = 0x50;
    let header =
        Header { flags: 1, gso_type: 1, header_len: 54, gso_size: 1400, csum_start: 34, csum_offset: 16, buffers: 0 };
    guest.send(header, &frame, &[]);
    let packets = port.receive(1);
    assert_eq!((packets[0].len(), packets[0].segment()), (frame.len(), 1400));
}

#[test]
fn memif_peers_exchange_frames_with_a_process() {
    for isolated_is_server in [true, false] {
        let (_folder, path) = folder();
        let (server, client) = (format!("memif:{},role=server", path.display()), format!("memif:{}", path.display()));
        let options = pktio_memif::Options { queues: 1, descriptors: 64, mtu: None, memory_bytes: 1 << 30 };
        let pool = HeapPool::shared(1024);
        let plain = |spec: &str| {
            let spec = spec.parse().expect("a port");
            pktio_memif::open(&spec, &options, pool.clone()).unwrap_or_else(|error| panic!("{error}"))
        };
        let (mut isolated, mut other) = if isolated_is_server {
            let isolated = open(&server, &path);
            (isolated, plain(&client))
        } else {
            let other = plain(&server);
            (open(&client, &path), other)
        };
        let mut queue = other.take_queues().remove(0);
        wait_for("both links are up", || isolated.device.link().up && other.link().up);
        for number in 0..100u8 {
            let frame = vec![number | 1; 60 + 40 * usize::from(number)];
            let mut packets = vec![pool.alloc_from(&frame).expect("a buffer")];
            wait_for("it is sent", || {
                queue.tx(&mut packets);
                packets.is_empty()
            });
            isolated.echo(1);
            let mut back = Vec::new();
            wait_for("it comes back", || queue.rx(&mut back, 1) == 1);
            assert!(back[0].data() == frame, "frame {number}");
        }
        drop((queue, other));
        wait_for("the link is down", || !isolated.device.link().up);
    }
}

#[test]
fn what_cannot_be_opened_is_told_as_without_a_process() {
    let (folder, path) = folder();
    std::fs::write(&path, "").expect("the folder is ours");
    let told = |spec: &str| match try_open(spec, &path, 1) {
        Err(Error::Socket { path: of, reason }) if of == path => reason,
        other => panic!("{:?}", other.err()),
    };
    assert!(told(&format!("vhost-server:{}", path.display())).contains("in use"));
    let memif = format!("memif:{},role=server", path.display());
    assert_eq!(told(&memif), "a file that is no socket is in its place");
    std::fs::remove_file(&path).expect("the folder is ours");
    let _port = open(&memif, &path);
    let refused = told(&format!("memif:{},id=1,role=server", path.display()));
    assert!(refused.contains("which is isolated, serves it") && refused.contains("another path"), "{refused}");
    assert!(pktio_process::serves(&path).is_some_and(|port| port.starts_with("memif:")));
    drop(folder);
}

#[test]
fn lines_of_the_process_s_log_are_lines_of_the_switch_s_log() {
    let (_folder, path) = folder();
    let port = vhost(&path);
    let name = port.device.name().to_owned();
    let mut socket = UnixStream::connect(&path).expect("it listens");
    socket.write_all(&[1, 2, 0].map(u32::to_le_bytes).concat()).expect("the socket is open");
    says(&name, &["DEBUG pktio_vhost::service", "a vhost-user front end is connected", "port=\"vhost-server:"]);
    says(&name, &["WARN pktio_vhost::service", "vhost-user: the connection ends: ", "not of version 1"]);
}

#[test]
fn a_worker_that_sleeps_is_woken_and_so_is_the_process() {
    let (_folder, path) = folder();
    let mut port = vhost(&path);
    let mut guest = connect(&path);
    for number in 0..20u8 {
        let mut files = Vec::new();
        wait_for("nothing is there", || {
            files.clear();
            port.queues[0].arm(&mut files) == Wake::File
        });
        let frame = vec![number; 60];
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // By then the process sleeps, too.
                std::thread::sleep(Duration::from_millis(5));
                guest.send(Header::default(), &frame, &[]);
            });
            // Other events wake it as well.
            while !files.is_empty() && port.queues[0].rx(&mut Vec::new(), 0) == 0 && start.elapsed() < PATIENCE {
                pktio::wait(&files, PATIENCE);
                port.queues[0].disarm();
                files.clear();
                if port.queues[0].arm(&mut files) == Wake::Now {
                    break;
                }
            }
        });
        assert!(start.elapsed() < PATIENCE, "it slept on");
        port.queues[0].disarm();
        std::thread::sleep(Duration::from_millis(3));
        port.echo(1);
        assert!(guest.wait().1 == frame);
    }
}

#[test]
fn a_process_that_is_killed_is_started_again_and_packets_flow() {
    let (_folder, path) = folder();
    let mut port = vhost(&path);
    let name = port.device.name().to_owned();
    let mut guest = connect(&path);
    port.echoes(&mut guest);
    wait_for("the counters are told", || port.device.stats().tx_packets == 20);
    for round in 1..=2u64 {
        let before = processes();
        // Nobody but the worker takes part in this, which has just sent something.
        let mut packets: Vec<_> = (0..100).map(|_| port.pool.alloc_from(&[1; 60]).expect("a buffer")).collect();
        let pid = Pid::from_raw(port.pid).expect("a process");
        kill_process(pid, Signal::STOP).expect("it is ours");
        assert_eq!(port.queues[0].tx(&mut packets), 100, "the ring takes them");
        kill_process(pid, Signal::KILL).expect("it is ours");
        says(&name, &["WARN", "its process is gone: it was ended by signal 9; it is started again in"]);
        wait_for("the link is down", || !port.device.link().up);
        assert!(guest.try_ask(1, &[]).is_none(), "the front end sees it, too");
        wait_for("it is started again", || {
            port.queues[0].rx(&mut Vec::new(), 1);
            port.device.note().is_none() && path.exists()
        });
        // The worker has just returned the old ring, or does now; then the supervisor counts what was in it.
        wait_for("what was lost is counted", || port.device.stats().tx_dropped >= 100 * round - 64);
        let dropped = port.device.stats().tx_dropped;
        assert!(dropped <= 100 * round, "{dropped} of {round} times 100");
        guest = connect(&path);
        port.echoes(&mut guest);
        wait_for("no count is lost", || port.device.stats().tx_packets >= 20 * (round + 1));
        port.pid = *processes().difference(&before).max().unwrap_or(&port.pid);
        let started: Vec<i32> = processes().into_iter().filter(|pid| !before.contains(pid)).collect();
        port.pid = started.into_iter().find(|pid| listens(*pid, &path)).expect("it runs");
    }
    assert_eq!(port.device.stats().rx_packets, 60);
}

/// Whether the process has the socket at a path.
fn listens(pid: i32, path: &Path) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("/proc");
    let path = path.display().to_string();
    let of_path = sockets.lines().filter(|line| line.ends_with(&path));
    let inodes: Vec<String> = of_path.filter_map(|line| line.split_whitespace().nth(6).map(str::to_owned)).collect();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|link| {
        let link = link.display().to_string();
        inodes.iter().any(|inode| link == format!("socket:[{inode}]"))
    })
}

#[test]
fn closing_a_port_ends_its_process_and_leaves_the_path_free() {
    let (_folder, path) = folder();
    for _ in 0..3 {
        let mut port = vhost(&path);
        let mut guest = connect(&path);
        port.echoes(&mut guest);
        let Port { queues, device, pid, .. } = port;
        drop(queues);
        drop(device);
        wait_for("it is gone", || !processes().contains(&pid));
        assert!(!path.exists());
        assert!(guest.try_ask(1, &[]).is_none());
    }
}

#[test]
fn a_process_gives_up_what_it_does_not_need() {
    let (_folder, path) = folder();
    let port = vhost(&path);
    // The main thread of this executable is the test harness's; ours is the one that serves the port.
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", port.pid)).expect("/proc").flatten();
        let statuses = tasks.map(|task| std::fs::read_to_string(task.path().join("status")).unwrap_or_default());
        let is_ours = |status: &String| status.starts_with("Name:\tvhost ") || status.starts_with("Name:\tisolated ");
        statuses.filter(is_ours).collect::<Vec<_>>()
    };
    // A thread gives itself its name when it first runs.
    wait_for("two threads serve the port", || threads().len() >= 2);
    let allowed = 1u64 << 1;
    for status in threads() {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim();
        assert_eq!(field("NoNewPrivs:"), "1");
        let effective = field("CapEff:");
        assert_eq!(u64::from_str_radix(effective, 16).expect("a number") & !allowed, 0);
    }
}

/// Allocates and frees a guest's buffers, again and again. While it frees them it gets hardly any processor time, so an
/// access to them waits for a second or more.
struct Attack {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Attack {
    fn begin(file: OwnedFd) -> Attack {
        let stop = Arc::new(AtomicBool::new(false));
        let pinned = |run: Box<dyn Fn() + Send>| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut cpus = CpuSet::new();
                cpus.set(0);
                let _ = sched_setaffinity(None, &cpus);
                while !stop.load(Ordering::Relaxed) {
                    run();
                }
            })
        };
        let (from, bytes) = (0x10_0000, MEMORY_BYTES as u64 - 0x10_0000);
        let frees = Box::new(move || {
            // This process touches nothing in this range.
            let _ = fallocate(&file, FallocateFlags::empty(), from, bytes);
            run_when_idle(true);
            let _ = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, bytes);
            run_when_idle(false);
        });
        let threads = vec![pinned(frees), pinned(Box::new(std::hint::spin_loop))];
        Attack { stop, threads }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The one that spins first, so that the other one has the processor.
        self.threads.drain(..).rev().for_each(|thread| _ = thread.join());
    }
}

/// Offers the port frames in its buffers, without a look at these.
fn offer(guest: &Guest, index: &mut u16) {
    const RING: u64 = 0x1_0000;
    let mut descriptor = 0x180_0000u64.to_le_bytes().to_vec();
    descriptor.extend(72u32.to_le_bytes());
    descriptor.extend([0u8; 4]);
    guest.write(RING, &descriptor);
    guest.write(RING + 0x2000 + 4 + 2 * u64::from(*index % 256), &[0, 0]);
    *index = index.wrapping_add(1);
    guest.write(RING + 0x2000 + 2, &index.to_le_bytes());
}

/// Waits until the peer holds the process up, and for some time already.
fn hold_up(port: &mut Port, guest: &Guest, index: &mut u16) {
    let mut held = 0;
    wait_for("the peer holds the process up", || {
        port.queues[0].rx(&mut Vec::new(), 64);
        offer(guest, index);
        held = if is_held_up(port.pid) { held + 1 } else { 0 };
        held > 20
    });
}

#[test]
fn while_a_peer_holds_up_the_process_the_switch_maps_memory_starts_threads_and_closes_the_port() {
    let (_folder, path) = folder();
    let mut closed = Vec::new();
    let mut mapped = Vec::new();
    for _ in 0..5 {
        let mut port = vhost(&path);
        let guest = connect(&path);
        wait_for("the link is up", || port.device.link().up);
        let attack = Attack::begin(guest.file().try_clone().expect("a file"));
        let mut index = 0;
        let mut rounds = 0;
        while rounds < 10 {
            hold_up(&mut port, &guest, &mut index);
            let start = Instant::now();
            // So much is mapped, and unmapped when it is freed; a thread's stack, too.
            drop(std::hint::black_box(vec![1u8; 8 << 20]));
            std::thread::spawn(|| ()).join().expect("it does nothing");
            port.queues[0].rx(&mut Vec::new(), 64);
            let took = start.elapsed();
            if is_held_up(port.pid) {
                mapped.push(took);
                rounds += 1;
            }
        }
        hold_up(&mut port, &guest, &mut index);
        let Port { queues, device, pid, .. } = port;
        let start = Instant::now();
        drop(queues);
        drop(device);
        let took = start.elapsed();
        let is_left_behind = processes().contains(&pid);
        // The path is free for the next one, though the old process still has its socket.
        assert!(!path.exists());
        if is_left_behind {
            closed.push(took);
        }
        drop(attack);
        drop(guest);
        // Once the peer lets it go, it ends, and nothing is left of it.
        wait_for("it is reaped", || !processes().contains(&pid));
        if closed.len() == 2 {
            break;
        }
    }
    mapped.sort();
    let (median, shortest) = (mapped[mapped.len() / 2], closed.iter().min());
    // The machine has other work, so single measurements may take longer.
    assert!(median < Duration::from_millis(50), "{mapped:?}");
    let shortest = shortest.expect("a port was closed while its process was held up");
    assert!(*shortest < CLOSE_MAX + Duration::from_millis(50), "{closed:?}");
    println!("map, unmap, start a thread: median {median:?}; close: {closed:?}");
}
