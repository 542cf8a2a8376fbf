//! Packet-outs of several controllers while workers have room for few of them.

mod common;

use bridge::Bridge;
use common::{Controller, Recorder, bridge};
use openflow::Version::V13;
use openflow::message::PacketOut;
use openflow::{Action, Match, Message};
use std::sync::Arc;

/// A packet-out of the controller of this number.
fn out(controller: u8) -> Message {
    let actions = vec![Action::Output { port: 2, max_len: 0 }];
    let frame = vec![controller; 60];
    Message::PacketOut(PacketOut { buffer: u32::MAX, fields: Match::any(), in_port: 1, actions, frame })
}

/// How many packets of a controller were injected.
fn injected(host: &Recorder, controller: u8) -> usize {
    host.injected.lock().unwrap().iter().filter(|(frame, ..)| frame[0] == controller).count()
}

/// Controllers by their numbers, with so many packet-outs each that wait.
fn waiting(bridge: &Arc<Bridge>, host: &Recorder, packets: &[usize]) -> Vec<Controller> {
    *host.room.lock().unwrap() = Some(0);
    let mut controllers: Vec<Controller> = packets.iter().map(|_| Controller::new(bridge, V13)).collect();
    for ((number, controller), packets) in (0..).zip(&mut controllers).zip(packets) {
        (0..*packets).for_each(|_| controller.send(1, out(number)));
    }
    controllers
}

/// Rounds until the last controller's packets are injected, if workers take 8 packets in each and the others come first.
fn rounds(host: &Recorder, controllers: &mut [Controller], packets: usize) -> Option<usize> {
    let last = controllers.len() as u8 - 1;
    (1..500).find(|_| {
        *host.room.lock().unwrap() = Some(8);
        controllers.iter_mut().for_each(|controller| controller.connection.poll(0));
        injected(host, last) == packets
    })
}

/// The finding: who was there first whenever workers had room took all of it.
#[test]
fn a_controller_waits_for_a_turn_of_each_other_one_and_not_for_its_flood() {
    for floods in 1..4 {
        let (bridge, host) = bridge();
        let mut packets = vec![3000; floods];
        packets.push(10);
        let mut controllers = waiting(&bridge, &host, &packets);
        let rounds = rounds(&host, &mut controllers, 10).expect("it has its turn");
        // A turn is 16 KB: at most 64 packets, or 8 rounds; and 10 packets want two.
        assert!(rounds <= 8 * floods + 3, "{rounds} rounds beside {floods}");
        // All that was sent is injected in the end.
        *host.room.lock().unwrap() = None;
        while controllers.iter().any(|controller| controller.connection.is_stalled()) {
            controllers.iter_mut().for_each(|controller| controller.connection.poll(0));
        }
        assert_eq!(host.injected.lock().unwrap().len(), 3000 * floods + 10);
    }
}

#[test]
fn a_turn_is_passed_on_at_once() {
    let (bridge, host) = bridge();
    let mut controllers = waiting(&bridge, &host, &[3000, 10, 10]);
    let ids: Vec<u64> = controllers.iter().map(|controller| controller.connection.id()).collect();
    host.woken.lock().unwrap().clear();
    *host.room.lock().unwrap() = Some(1000);
    controllers[0].connection.poll(0);
    assert_eq!(*host.woken.lock().unwrap(), [ids[1]], "the first one's turn is over");
    // Nor does one keep its turn that ends.
    drop(controllers.remove(1));
    assert_eq!(*host.woken.lock().unwrap(), ids[1..]);
    controllers[1].connection.poll(0);
    assert_eq!(injected(&host, 2), 10);
}

/// The finding: one that was given the turn of another, and had nothing more to send, stayed among those that take turns for ever, also
/// after its end: each of its turns held the others up until it was over.
#[test]
fn who_has_taken_the_turn_of_another_leaves_no_place_behind() {
    let (bridge, host) = bridge();
    let mut first = waiting(&bridge, &host, &[3000]).remove(0);
    // Its thread does not come for a while.
    host.now_us.fetch_add(20_000, std::sync::atomic::Ordering::Relaxed);
    *host.room.lock().unwrap() = None;
    let mut second = Controller::new(&bridge, V13);
    second.send(1, out(1));
    assert_eq!(injected(&host, 1), 1, "it has the turn");
    first.connection.poll(0);
    assert_eq!(injected(&host, 0), 3000, "nobody else waits");
    drop(second);
    first.send(1, out(0));
    assert_eq!(injected(&host, 0), 3001);
}

/// The finding: what nothing took used up the memory, and everybody waited until it was forgotten after 30 s.
#[test]
fn a_flood_that_no_worker_takes_leaves_memory_for_others() {
    let (bridge, host) = bridge();
    bridge.limit_memory(1 << 20);
    let mut flood = Controller::new(&bridge, V13);
    let sent = (0..1000).take_while(|_| {
        flood.send(1, out(0));
        !flood.connection.is_stalled()
    });
    let sent = sent.count();
    assert!(sent > 20 && sent < 1000, "it is not read any more: {sent}");
    for number in 1..4 {
        let mut other = Controller::new(&bridge, V13);
        (0..5).for_each(|_| other.send(1, out(number)));
        assert!(!other.connection.is_stalled());
        assert_eq!(injected(&host, number), 5);
    }
    flood.connection.poll(0);
    assert_eq!(injected(&host, 0), sent);
}
