//! Taps: each packet is copied once in each direction, and a tap that nobody reads delays nothing.

mod common;

use common::LIMIT;
use datapath::tap::{TapConfig, WAITING_MAX};
use datapath::{EngineKind, Switch, SwitchConfig};
use ir::{EntryKind, Fate, Operand, StageKind};
use pktio::{HeapPool, MemoryDevice, MemoryHandle};
use std::sync::Arc;
use std::time::Duration;

/// A switch that sends all packets to port 2.
fn switch() -> (Switch, Vec<MemoryHandle>) {
    let mut b = ir::Builder::new("to two");
    let stage = b.begin_stage("send", StageKind::Control);
    b.fate(Fate::Send(Operand::new_const(32, 2)));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[stage]);
    let pool = HeapPool::shared(16 * 1024);
    let switch = Switch::new(SwitchConfig { pool: Some(Arc::clone(&pool)), ..SwitchConfig::default() });
    let pipeline = datapath::load(Arc::new(b.finish()), EngineKind::Machine, 1).expect("it is small");
    switch.set_pipeline(Some(Arc::new(pipeline))).expect("workers answer");
    let open = |number| {
        let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), 1);
        switch.add_port(number, Box::new(device)).expect("a new number");
        handle
    };
    let ports = (1..=2).map(open).collect();
    (switch, ports)
}

#[test]
fn a_tap_sees_both_directions_of_the_ports_it_wants() {
    let (switch, ports) = switch();
    let all = switch.tap(TapConfig::default()).expect("workers answer");
    let some =
        switch.tap(TapConfig { ports: [2].into(), snap_length: 20, ..TapConfig::default() }).expect("workers answer");
    let received = switch.tap(TapConfig { received_only: true, ..TapConfig::default() }).expect("workers answer");
    for i in 0..5u8 {
        assert!(ports[0].inject(&[i; 60]));
        let first = all.next_within(LIMIT).expect("it was received");
        assert_eq!((first.port, first.sent, first.length, first.data), (1, false, 60, vec![i; 60]));
        let second = all.next_within(LIMIT).expect("it was sent");
        assert_eq!((second.port, second.sent, second.data), (2, true, vec![i; 60]));
        let cut = some.next_within(LIMIT).expect("it was sent");
        assert_eq!((cut.port, cut.sent, cut.length, cut.data), (2, true, 60, vec![i; 20]));
        assert_eq!(received.next_within(LIMIT).map(|f| f.port), Some(1));
    }
    assert!(received.next_within(Duration::from_millis(20)).is_none());
    assert_eq!((all.lost(), some.lost(), received.lost()), (0, 0, 0));
}

#[test]
fn who_does_not_read_loses_copies_and_slows_nobody() {
    let (switch, ports) = switch();
    let tapped = switch.tap(TapConfig { received_only: true, ..TapConfig::default() }).expect("workers answer");
    let count = WAITING_MAX + 1000;
    let mut out = 0;
    for burst in 0..count.div_ceil(64) {
        let packets = (count - 64 * burst).min(64);
        (0..packets).for_each(|_| assert!(ports[0].inject(&[0; 60])));
        // A port that is not drained would drop them.
        let sent = ports[1].collect_within(packets, LIMIT).len();
        assert_eq!(sent, packets);
        out += sent;
    }
    assert_eq!(out, count);
    assert_eq!(tapped.lost(), 1000);
    drop(tapped);
    // The tap is gone without a trace.
    assert!(ports[0].inject(&[0; 60]));
    assert_eq!(ports[1].collect_within(1, LIMIT).len(), 1);
}
