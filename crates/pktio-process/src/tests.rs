//! Processes that a peer has taken over. This executable is also the process: the ignored tests are its forms.

use crate::channel::words;
use crate::child::{begin, hear};
use crate::process::{Launcher, set_launcher};
use crate::protocol::{Failure, Refused, ToProcess, ToSwitch, send};
use pktio::{Device, Error, HeapPool, PortOptions, PortStats};
use rustix::net::SendFlags;
use shared_memory::Closer;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Has ports start this form of the process; the launcher is one for all, so one test at a time.
fn use_form(form: &str) {
    let test = format!("tests::{form}");
    set_launcher(Launcher {
        program: std::env::current_exe().expect("this file"),
        arguments: [&test, "--exact", "--ignored", "--nocapture"].map(Into::into).to_vec(),
    });
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &std::path::Path) -> Result<Box<dyn Device>, Error> {
    let spec = format!("vhost-server:{}", path.display()).parse().expect("a port");
    let options = PortOptions { memory_mb: 64, ..PortOptions::default() };
    crate::open(&spec, path.to_owned(), &options, HeapPool::shared(512))
}

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn socket() -> Arc<OwnedFd> {
    Arc::new(std::io::stdin().as_fd().try_clone_to_owned().expect("it is the socket"))
}

#[test]
#[ignore = "a form of the process"]
fn honest() {
    let _ = crate::child::main();
    std::process::exit(0);
}

#[test]
#[ignore = "a form of the process"]
fn ends_at_once() {
    std::process::exit(7);
}

/// Puts a frame into the ring, and then one that cannot be.
#[test]
#[ignore = "a form of the process"]
fn breaks_its_rings() {
    let (control, closer) = (socket(), Closer::default());
    let (_, channel, events) = begin(&control, &closer).expect("the switch is there");
    let position = |frames: u64, bytes: u64| frames << 32 | bytes;
    channel.overwrite(512, 60);
    channel.overwrite(0, position(1, 72));
    send(&*control, &ToSwitch::Opened, &[]).expect("the switch is there");
    std::thread::sleep(Duration::from_millis(100));
    channel.overwrite(512 + 72, 61_000 | 5 << 16);
    channel.overwrite(0, position(2, 144));
    rustix::io::write(&events[0].1, &1u64.to_ne_bytes()).expect("an eventfd");
    std::thread::sleep(PATIENCE);
}

/// Asks for what there is not, and then says what is no message.
#[test]
#[ignore = "a form of the process"]
fn says_nonsense() {
    let (control, closer) = (socket(), Closer::default());
    let (_, channel, _events) = begin(&control, &closer).expect("the switch is there");
    channel.publish(true, &pktio::PortStats { tx_packets: u64::MAX, rx_dropped: u64::MAX, ..Default::default() });
    send(&*control, &ToSwitch::Opened, &[]).expect("the switch is there");
    let null = std::fs::File::open("/dev/null").expect("it is there");
    let mut refused = true;
    for files in [&[][..], &[null.as_fd()], &[null.as_fd(), control.as_fd()]] {
        send(&*control, &ToSwitch::End(99), files).expect("the switch is there");
        send(&*control, &ToSwitch::Admit { offset: u64::MAX, bytes: u64::MAX }, files).expect("the switch is there");
        let answer = hear(&control, &closer);
        refused &= matches!(answer, Some((ToProcess::Answer(Err(Refused::NotMemory)), _)));
    }
    if refused {
        rustix::net::send(&control, &[250, 1, 2, 3], SendFlags::empty()).expect("the switch is there");
    }
    std::thread::sleep(PATIENCE);
}

/// Tells large counters, then smaller ones, then larger ones just before it ends.
#[test]
#[ignore = "a form of the process"]
fn takes_its_counters_back() {
    let (control, closer) = (socket(), Closer::default());
    let (_, channel, _events) = begin(&control, &closer).expect("the switch is there");
    let tell = |tx_packets: u64| {
        channel.publish(true, &PortStats { tx_packets, rx_packets: 77, rx_errors: u64::MAX, ..PortStats::default() });
    };
    tell(1000);
    send(&*control, &ToSwitch::Opened, &[]).expect("the switch is there");
    std::thread::sleep(Duration::from_millis(50));
    tell(10);
    std::thread::sleep(Duration::from_millis(50));
    tell(1500);
    std::process::exit(0);
}

#[test]
#[ignore = "a form of the process"]
fn fails_after_it_has_opened_the_port() {
    let (control, closer) = (socket(), Closer::default());
    let _kept = begin(&control, &closer).expect("the switch is there");
    send(&*control, &ToSwitch::Opened, &[]).expect("the switch is there");
    let failure = Failure::Device { reason: "the operator must run something".to_owned() };
    send(&*control, &ToSwitch::Failed(failure), &[]).expect("the switch is there");
    std::thread::sleep(PATIENCE);
}

#[test]
#[ignore = "a form of the process"]
fn fails_with_a_long_story() {
    let (control, closer) = (socket(), Closer::default());
    let _kept = begin(&control, &closer).expect("the switch is there");
    let failure = Failure::Device { reason: format!("first\r\n2026-01-01 ERROR second\u{1b}[2J{}", "x".repeat(8000)) };
    send(&*control, &ToSwitch::Failed(failure), &[]).expect("the switch is there");
    std::thread::sleep(PATIENCE);
}

/// Puts a socket in place of its own, and ends when it is told to.
#[test]
#[ignore = "a form of the process"]
fn replaces_its_socket() {
    let (control, closer) = (socket(), Closer::default());
    let (start, ..) = begin(&control, &closer).expect("the switch is there");
    let _first = UnixListener::bind(&start.path).expect("the path is free");
    send(&*control, &ToSwitch::Opened, &[]).expect("the switch is there");
    let may_go = start.path.with_extension("go");
    wait_for("it may go on", || may_go.exists());
    std::fs::remove_file(&start.path).expect("it is there");
    let _second = UnixListener::bind(&start.path).expect("the path is free");
    std::process::exit(5);
}

/// Binds its socket, and ends before it says so.
#[test]
#[ignore = "a form of the process"]
fn binds_and_ends() {
    let (control, closer) = (socket(), Closer::default());
    let (start, ..) = begin(&control, &closer).expect("the switch is there");
    let _socket = UnixListener::bind(&start.path).expect("the path is free");
    std::process::exit(6);
}

/// Fills its stderr, which it has made non-blocking.
#[test]
#[ignore = "a form of the process"]
fn writes_without_end() {
    let (control, closer) = (socket(), Closer::default());
    let (_, channel, _events) = begin(&control, &closer).expect("the switch is there");
    let stderr = std::io::stderr();
    rustix::fs::fcntl_setfl(&stderr, rustix::fs::OFlags::NONBLOCK).expect("it is a file");
    channel.publish(true, &PortStats::default());
    send(&*control, &ToSwitch::Opened, &[]).expect("the switch is there");
    let mut beats = 0;
    loop {
        beats += 1;
        channel.beat(beats);
        while rustix::io::write(&stderr, &[b'\n', 27, b'x', b'y'].repeat(1024)).is_ok() {}
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_counter_goes_back_whatever_a_process_tells_and_when_it_is_started_again() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    use_form("takes_its_counters_back");
    let device = open(&folder.path().join("socket")).expect("it says so");
    let mut before = [0; 9];
    wait_for("the third process has counted", || {
        let now = words(&device.stats());
        assert!(before.iter().zip(&now).all(|(before, now)| before <= now), "{before:?}, then {now:?}");
        assert!(now.iter().all(|count| *count <= 1 << 62), "{now:?}");
        before = now;
        device.stats().tx_packets >= 4000
    });
    let stats = device.stats();
    assert_eq!((stats.rx_packets, stats.rx_errors), (0, 1 << 62), "what the worker counts is not the process's");
    // Each has counted 1,500 packets, the last of them perhaps not yet all.
    assert!(matches!(stats.tx_packets % 1500, 0 | 1000), "{}", stats.tx_packets);
}

#[test]
fn a_process_cannot_fail_once_it_has_opened_the_port() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    use_form("fails_after_it_has_opened_the_port");
    let device = open(&folder.path().join("socket")).expect("it says so");
    wait_for("it is ended", || device.note().is_some_and(|note| note.contains("it has sent a message out of turn")));
    assert!(device.note().is_some_and(|note| !note.contains("operator")));
}

#[test]
fn a_reason_that_a_process_gives_is_one_short_line() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    use_form("fails_with_a_long_story");
    let error = open(&folder.path().join("socket")).err().expect("there is no port").to_string();
    assert!(error.contains("first\\r\\n2026-01-01 ERROR second\\u{1b}[2Jxxx"), "{error}");
    assert!(!error.contains(char::is_control) && error.len() < 1300, "{error}");
}

#[test]
fn no_process_keeps_the_path_from_the_next_one() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    use_form("replaces_its_socket");
    let device = open(&path).expect("it says so");
    use_form("binds_and_ends");
    std::fs::write(path.with_extension("go"), "").expect("the folder is ours");
    let says = |what: &str| device.note().is_some_and(|note| note.contains(what));
    wait_for("it has ended", || says("it ended with code 5"));
    wait_for("the next one has ended", || says("it ended with code 6"));
    // And once more, with the socket of one that never opened the port in its place.
    use_form("honest");
    wait_for("an honest one is started", || device.note().is_none() && UnixStream::connect(&path).is_ok());
}

#[test]
fn a_process_cannot_stop_the_switch_s_log_by_its_stderr() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let flags = || rustix::fs::fcntl_getfl(std::io::stderr()).expect("it is a file");
    let before = flags();
    assert!(!before.contains(rustix::fs::OFlags::NONBLOCK));
    use_form("writes_without_end");
    let device = open(&folder.path().join("socket")).expect("it says so");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        assert!(device.link().up && device.note().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(flags(), before);
    let start = Instant::now();
    drop(device);
    // The machine has other work.
    assert!(start.elapsed() < 10 * crate::CLOSE_MAX);
}

#[test]
fn a_process_that_breaks_its_rings_is_ended_and_started_again() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    use_form("breaks_its_rings");
    let mut device = open(&path).expect("it says so");
    let mut queue = device.take_queues().remove(0);
    let mut out = Vec::new();
    wait_for("a frame comes", || queue.rx(&mut out, 64) == 1);
    assert_eq!(out.pop().map(|packet| packet.len()), Some(60));
    let told = || device.note().is_some_and(|note| note.contains("it has broken a ring that it shares"));
    use_form("honest");
    // The worker sleeps, and is woken by the process.
    wait_for("the fault is found", || {
        let mut files = Vec::new();
        queue.arm(&mut files);
        pktio::wait(&files, Duration::from_millis(20));
        queue.disarm();
        assert_eq!(queue.rx(&mut out, 64), 0);
        told()
    });
    wait_for("an honest one is started", || {
        queue.rx(&mut out, 64);
        device.note().is_none() && path.exists()
    });
    assert_eq!(device.stats().rx_packets, 1);
}

#[test]
fn a_process_that_says_nonsense_costs_its_port_only() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (path, other) = (folder.path().join("socket"), folder.path().join("other"));
    use_form("honest");
    let honest = open(&other).expect("it is honest");
    use_form("says_nonsense");
    let mut device = open(&path).expect("it says so");
    let mut queue = device.take_queues().remove(0);
    wait_for("it is ended", || {
        queue.rx(&mut Vec::new(), 64);
        device.note().is_some_and(|note| note.contains("it has sent a message of no form"))
    });
    assert!(!device.link().up);
    // What it has counted is bounded, and stays when the next one is started.
    let told = device.stats();
    assert_eq!((told.tx_packets, told.rx_dropped, told.rx_packets), (1 << 62, 1 << 62, 0));
    use_form("honest");
    wait_for("an honest one is started", || device.note().is_none());
    assert_eq!(device.stats(), told);
    assert!(honest.note().is_none() && other.exists());
}

#[test]
fn a_process_that_ends_at_once_is_an_error_of_the_port() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    use_form("ends_at_once");
    let error = open(&folder.path().join("socket")).err().expect("there is no port").to_string();
    assert!(error.contains("its process is gone: it ended with code 7"), "{error}");
}
