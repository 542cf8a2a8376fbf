//! Packets, and running programs on them.

use bpf::{Frame, Program, Verdict};

/// Bytes in front of and behind a packet in its buffer.
pub const ROOM: usize = 128;

/// Runs a program on a copy of a packet: the verdict and the packet afterwards.
pub fn run(program: &Program, packet: &[u8], port: u32, argument: u64, now: u64) -> (Verdict, Vec<u8>) {
    run_by(packet, |frame| program.run(frame, port, argument, now))
}

/// As `run`, by what `run` calls.
pub fn run_by(packet: &[u8], run: impl FnOnce(&mut Frame<'_>) -> Verdict) -> (Verdict, Vec<u8>) {
    let mut buffer = vec![0xee; ROOM];
    buffer.extend(packet);
    buffer.extend([0xee; ROOM]);
    let mut frame = Frame { buffer: &mut buffer, offset: ROOM, len: packet.len() };
    let verdict = run(&mut frame);
    let bytes = frame.bytes().to_vec();
    (verdict, bytes)
}

/// An Ethernet header with type and payload.
pub fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    packet.extend(kind.to_be_bytes());
    packet.extend(payload);
    packet
}

/// An IPv4 packet with a right header checksum.
pub fn ipv4(protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let len = 20 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    let sum = checksum(&packet, 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// A UDP datagram with a right checksum for its addresses.
pub fn udp(from: [u8; 4], to: [u8; 4], source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for half in [source, destination, 8 + payload.len() as u16, 0] {
        datagram.extend(half.to_be_bytes());
    }
    datagram.extend(payload);
    let sum = match transport_checksum(17, from, to, &datagram) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// A TCP segment of flags alone.
pub fn tcp(source: u16, destination: u16, flags: u8) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source.to_be_bytes());
    segment.extend(destination.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    segment
}

/// The checksum of a segment or datagram whose checksum field is zero; 0 if it is right.
pub fn transport_checksum(protocol: u8, from: [u8; 4], to: [u8; 4], segment: &[u8]) -> u16 {
    let mut all = [from, to].concat();
    all.extend([0, protocol]);
    all.extend((segment.len() as u16).to_be_bytes());
    all.extend(segment);
    checksum(&all, 0)
}

/// RFC 1071.
pub fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
