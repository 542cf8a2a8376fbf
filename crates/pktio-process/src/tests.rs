//! Processes that a peer has taken over. This executable is also the process: the ignored tests are its forms.

use crate::child::{begin, hear};
use crate::process::{Launcher, set_launcher};
use crate::protocol::{Refused, ToProcess, ToSwitch, send};
use pktio::{Device, Error, HeapPool, PortOptions};
use rustix::net::SendFlags;
use shared_memory::Closer;
use std::os::fd::{AsFd, OwnedFd};
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
    // Its counters are its own business, and overflow nothing.
    let _ = device.stats();
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
