//! Workers that sleep until a port has packets: kernel interfaces, TAP interfaces, and vhost-user guests that kick.

mod common;
#[path = "common/guest.rs"]
mod guest;

use common::*;
use guest::*;
use pktio::{Queue, Wake, wait};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(240);

/// Arms the queue and sleeps until it has been silent for a while: an interface that comes up says a few things.
fn silence(queue: &mut dyn Queue) {
    let deadline = Instant::now() + PATIENCE;
    let mut packets = Vec::new();
    loop {
        assert!(Instant::now() < deadline, "it never falls silent");
        let mut files = Vec::new();
        let (wake, start) = (queue.arm(&mut files), Instant::now());
        if wake == Wake::File {
            wait(&files, Duration::from_millis(100));
        }
        queue.disarm();
        queue.rx(&mut packets, 64);
        if packets.is_empty() && start.elapsed() >= Duration::from_millis(100) {
            return;
        }
        packets.clear();
    }
}

/// When the queue is silent, sleeps until `send`, which runs meanwhile, has made its file readable.
fn sleep_through(queue: &mut dyn Queue, send: impl FnOnce() + Send) {
    let mut files = Vec::new();
    // An interface may have said something since it was silent.
    for _ in 0..10 {
        silence(queue);
        files.clear();
        if queue.arm(&mut files) == Wake::File {
            break;
        }
        queue.disarm();
    }
    assert_eq!(files.len(), 1, "it never falls silent");
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            send();
        });
        wait(&files, LONG);
    });
    assert!(start.elapsed() < LONG / 2, "nothing woke it");
    queue.disarm();
}

fn kernel_wakes(port: &str, queue: &mut dyn Queue) {
    for round in 0..3 {
        let text = format!("wake up, {port}, for the {round}. time");
        sleep_through(queue, || {
            _ = kernel_socket().send_to(text.as_bytes(), "10.9.0.2:6000").expect("the kernel sends")
        });
        assert!(receive(queue, ends_with(text.as_bytes())).is_some(), "{text}");
    }
}

#[test]
fn a_kernel_interface_wakes_its_worker() {
    isolated("a_kernel_interface_wakes_its_worker", Needs::Root, || {
        veth_pair();
        address("host0");
        let eal = small_eal();
        let (_device, mut queue) = open(&eal, "sw0");
        kernel_wakes("AF_PACKET", &mut *queue);
    });
}

#[test]
fn a_tap_interface_wakes_its_worker() {
    isolated("a_tap_interface_wakes_its_worker", Needs::Root, || {
        let eal = small_eal();
        let (_device, mut queue) = open(&eal, "tap:tap0");
        address("tap0");
        kernel_wakes("TAP", &mut *queue);
    });
}

#[test]
fn a_guest_kicks_a_worker_that_sleeps_and_no_other() {
    isolated("a_guest_kicks_a_worker_that_sleeps_and_no_other", Needs::Nothing, || {
        let folder = Folder::new("kicks");
        let socket = folder.path("switch.sock");
        let eal = small_eal();
        let (device, mut queue) = open(&eal, &format!("vhost-server:{socket}"));
        let frame = |i: u8| vec![i; 60];
        // A worker that sleeps before there is a guest is woken by the first one, and asks it to kick.
        let mut files = Vec::new();
        assert_eq!(queue.arm(&mut files), Wake::File);
        for round in 0..3 {
            let start = Instant::now();
            let rings = if round == 1 { F_RING_PACKED } else { 0 };
            let features = F_VERSION_1 | F_MRG_RXBUF | rings;
            let mut guest = std::thread::scope(|scope| {
                let guest = scope.spawn(|| Guest::connect_with(&socket, features, 2048, true));
                wait(&files, LONG);
                guest.join().expect("it connects")
            });
            assert!(start.elapsed() < LONG / 2, "round {round}: nothing woke it");
            queue.disarm();
            wait_for("the link is up", is_up(&*device));
            for i in 0..3 {
                silence(&mut *queue);
                assert!(!guest.kick(), "the worker polls");
                sleep_through(&mut *queue, || guest.send(Header::default(), &frame(i), &[]));
                assert_eq!(receive(&mut *queue, |_| true).expect("the frame").data(), frame(i));
            }
            // What came before it slept is there at once.
            guest.send(Header::default(), &frame(9), &[]);
            files.clear();
            assert_eq!(queue.arm(&mut files), Wake::Now);
            queue.disarm();
            assert_eq!(receive(&mut *queue, |_| true).expect("the frame").data(), frame(9));
            // The next guest finds a worker that sleeps.
            files.clear();
            assert_eq!(queue.arm(&mut files), Wake::File);
            drop(guest);
            wait_for("the link is down", || !device.link().up);
            wait(&files, Duration::from_millis(50));
            queue.disarm();
            files.clear();
            assert_eq!(queue.arm(&mut files), Wake::File);
        }
        queue.disarm();
    });
}

#[test]
fn a_guest_without_a_kick_is_polled() {
    isolated("a_guest_without_a_kick_is_polled", Needs::Nothing, || {
        let folder = Folder::new("no-kick");
        let socket = folder.path("switch.sock");
        let eal = small_eal();
        let (device, mut queue) = open(&eal, &format!("vhost-server:{socket}"));
        let _guest = Guest::connect(&socket, F_VERSION_1 | F_MRG_RXBUF, 2048);
        wait_for("the link is up", is_up(&*device));
        // What the guest says of its rings comes in messages of their own.
        wait_for("it is polled", || {
            let wake = queue.arm(&mut Vec::new());
            queue.disarm();
            wake == Wake::Poll
        });
    });
}
