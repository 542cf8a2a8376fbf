//! C programs for the use cases of P4rt-OVS, compiled by clang, on packets whose results are computed here.

mod support;

use bpf::{Maps, Object, Options, Program, Update, Verdict};
use support::clang::object;
use support::packets::{ethernet, ipv4, run, tcp, transport_checksum, udp};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [192, 0, 2, 7];

fn load(object: &Object, name: &str, compile: bool) -> Program {
    load_with(object, name, &Maps::new(object).expect("made"), compile)
}

fn load_with(object: &Object, name: &str, maps: &Maps, compile: bool) -> Program {
    let options = Options { compile, ..Options::default() };
    let program = Program::load_with(object, name, maps, options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(program.is_compiled(), compile);
    program
}

/// Compilations that must all give the same results, by clang and by us.
const FLAGS: [(&[&str], bool); 4] = [(&["-mcpu=v1"], true), (&["-mcpu=v2"], true), (&["-mcpu=v3"], true), (&[], false)];

#[test]
fn rate_limiter() {
    for (flags, compile) in FLAGS {
        let Some(object) = object("rate_limiter", flags) else { return };
        let program = load(&object, "rate_limiter", compile);
        let maps = program.maps();
        let limit: Vec<u8> = [1000u64, 3].iter().flat_map(|n| n.to_le_bytes()).collect();
        maps.get("limits").expect("a map").update(&2u32.to_le_bytes(), &limit, Update::Any).expect("written");
        let packet = |from| ethernet(0x0800, &ipv4(17, from, B, &udp(from, B, 1, 2, b"hello")));
        let send = |from, class, now| run(&program, &packet(from), 1, class, now).0;
        let start = 5_000_000_000;
        // The burst, then one packet a millisecond.
        let verdicts: Vec<Verdict> = (0..5).map(|_| send(A, 2, start)).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, Verdict::Pass, Verdict::Drop, Verdict::Drop]);
        assert_eq!(send(A, 2, start + 999_999), Verdict::Drop);
        assert_eq!(send(A, 2, start + 1_000_000), Verdict::Pass);
        assert_eq!(send(A, 2, start + 1_000_001), Verdict::Drop);
        // Other senders, other classes, other protocols.
        assert_eq!(send(B, 2, start), Verdict::Pass);
        assert_eq!(send(A, 3, start), Verdict::Pass);
        assert_eq!(send(A, 99, start), Verdict::Pass);
        assert_eq!(run(&program, &ethernet(0x0806, &[0; 46]), 1, 2, start).0, Verdict::Pass);
        let globals = maps.get(".bss").expect("a map").lookup(&[0; 4]).expect("a key").expect("a value");
        assert_eq!(globals[..8], 4u64.to_le_bytes());
        assert_eq!(maps.get("buckets").expect("a map").len(), 2);
    }
}

#[test]
fn firewall() {
    for (flags, compile) in FLAGS {
        let Some(object) = object("firewall", flags) else { return };
        let program = load(&object, "xdp", compile);
        let maps = program.maps();
        maps.get("inside_ports").expect("a map").update(&1u32.to_le_bytes(), &[0; 4], Update::New).expect("written");
        let segment = |from, to, source, destination, flags| {
            ethernet(0x0800, &ipv4(6, from, to, &tcp(source, destination, flags)))
        };
        let out = |flags| run(&program, &segment(A, B, 4000, 80, flags), 1, 0, 0).0;
        let back = |flags| run(&program, &segment(B, A, 80, 4000, flags), 2, 0, 0).0;
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        assert_eq!(back(SYN), Verdict::Drop);
        assert_eq!(out(ACK), Verdict::Pass);
        assert_eq!(back(ACK), Verdict::Drop);
        assert_eq!(out(SYN), Verdict::Pass);
        assert_eq!(back(SYN | ACK), Verdict::Pass);
        assert_eq!(run(&program, &segment(B, A, 81, 4000, ACK), 2, 0, 0).0, Verdict::Drop);
        let entries = maps.get("connections").expect("a map").dump();
        let key = [&A[..], &B, &4000u16.to_be_bytes(), &80u16.to_be_bytes()].concat();
        assert_eq!(entries, [(key.clone(), 2u64.to_le_bytes().to_vec())]);
        assert_eq!(back(1 | ACK), Verdict::Pass);
        assert_eq!(back(ACK), Verdict::Drop);
        // The control plane opens and closes a connection.
        let connections = maps.get("connections").expect("a map");
        connections.update(&key, &[0; 8], Update::New).expect("written");
        assert_eq!(back(ACK), Verdict::Pass);
        assert_eq!(connections.delete(&key), Ok(true));
        assert_eq!(back(ACK), Verdict::Drop);
        // No room for a TCP header.
        assert_eq!(run(&program, &ethernet(0x0800, &ipv4(6, A, B, &[0; 19])), 1, 0, 0).0, Verdict::Drop);
    }
}

#[test]
fn mpls_label_edge_router() {
    for (flags, compile) in FLAGS {
        let Some(object) = object("mpls_ler", flags) else { return };
        let maps = Maps::new(&object).expect("made");
        let with = |name| load_with(&object, name, &maps, compile);
        let (push, pop) = (with("push"), with("xdp/pop"));
        let routes = maps.get("routes").expect("a map");
        for (length, address, label, port) in
            [(24u32, [192, 0, 2, 0], 77u32, 5u32), (16, [192, 0, 0, 0], 1 << 19 | 3, 6)]
        {
            let key = [length.to_le_bytes(), address].concat();
            let value = [label.to_le_bytes(), port.to_le_bytes()].concat();
            routes.update(&key, &value, Update::Any).expect("written");
        }
        maps.get("labels")
            .expect("a map")
            .update(&77u32.to_le_bytes(), &9u32.to_le_bytes(), Update::Any)
            .expect("written");
        let payload = ipv4(17, A, B, &udp(A, B, 1, 2, b"payload"));
        let packet = ethernet(0x0800, &payload);
        let (verdict, labelled) = run(&push, &packet, 1, 0, 0);
        assert_eq!(verdict, Verdict::Redirect(5));
        let entry = 77u32 << 12 | 1 << 8 | 63;
        assert_eq!(labelled, ethernet(0x8847, &[&entry.to_be_bytes()[..], &payload].concat()));
        assert_eq!(run(&pop, &labelled, 5, 0, 0), (Verdict::Redirect(9), packet.clone()));
        let (verdict, labelled) = run(&push, &ethernet(0x0800, &ipv4(17, A, [192, 0, 3, 1], &[0; 8])), 1, 0, 0);
        assert_eq!(verdict, Verdict::Redirect(6));
        assert_eq!(labelled[14..18], ((1 << 19 | 3) << 12 | 1 << 8 | 63u32).to_be_bytes());
        assert_eq!(run(&push, &ethernet(0x0800, &ipv4(17, A, A, &[0; 8])), 1, 0, 0).0, Verdict::Drop);
        assert_eq!(run(&pop, &labelled, 1, 0, 0).0, Verdict::Drop, "no such label");
        assert_eq!(run(&pop, &packet, 1, 0, 0), (Verdict::Pass, packet));
    }
}

#[test]
fn dynamic_nat() {
    for (flags, compile) in FLAGS {
        let Some(object) = object("nat", flags) else { return };
        let program = load(&object, "nat", compile);
        let maps = program.maps();
        let public = [203, 0, 113, 1];
        maps.get("config").expect("a map").update(&[0; 4], &public, Update::Any).expect("written");
        let packet = |from, to, source, destination| {
            ethernet(0x0800, &ipv4(17, from, to, &udp(from, to, source, destination, b"question")))
        };
        let right = |packet: &[u8]| {
            let (from, to) = (packet[26..30].try_into().expect("4"), packet[30..34].try_into().expect("4"));
            support::packets::checksum(&packet[14..34], 0) == 0 && transport_checksum(17, from, to, &packet[34..]) == 0
        };
        let (verdict, first) = run(&program, &packet(A, B, 5000, 53), 1, 1, 0);
        assert_eq!((verdict, &first), (Verdict::Pass, &packet(public, B, 20000, 53)));
        let (_, second) = run(&program, &packet([10, 0, 0, 2], B, 5000, 53), 1, 1, 0);
        assert_eq!(second, packet(public, B, 20001, 53));
        // The same host and port keep theirs.
        assert_eq!(run(&program, &packet(A, A, 5000, 99), 1, 1, 0).1, packet(public, A, 20000, 99));
        // Answers.
        let (verdict, answer) = run(&program, &packet(B, public, 53, 20001), 2, 0, 0);
        assert_eq!((verdict, answer), (Verdict::Pass, packet(B, [10, 0, 0, 2], 53, 5000)));
        assert_eq!(run(&program, &packet(B, public, 53, 20002), 2, 0, 0).0, Verdict::Drop);
        // All ports are taken in the end.
        for host in 2..256u16 {
            let (verdict, translated) = run(&program, &packet([10, 1, 0, host as u8], B, 1, 2), 1, 1, 0);
            assert!(verdict == Verdict::Pass && right(&translated));
        }
        assert_eq!(run(&program, &packet([10, 2, 0, 0], B, 1, 2), 1, 1, 0).0, Verdict::Drop);
        assert_eq!(maps.get("incoming").expect("a map").len(), 256);
        assert!(maps.get("incoming").expect("a map").delete(&20100u16.to_le_bytes()).expect("a key"));
        let key = maps.get("outgoing").expect("a map").dump().into_iter().find(|(_, v)| **v == 20100u16.to_le_bytes());
        assert!(maps.get("outgoing").expect("a map").delete(&key.expect("an entry").0).expect("a key"));
        assert_eq!(run(&program, &packet([10, 2, 0, 0], B, 1, 2), 1, 1, 0).1, packet(public, B, 20100, 2));
    }
}

#[test]
fn vxlan() {
    for (flags, compile) in FLAGS {
        let Some(object) = object("vxlan", flags) else { return };
        let maps = Maps::new(&object).expect("made");
        let with = |name| load_with(&object, name, &maps, compile);
        let (encap, decap) = (with("encap"), with("decap"));
        let inner = ethernet(0x0800, &ipv4(17, A, B, &udp(A, B, 1, 2, b"inner")));
        assert_eq!(run(&encap, &inner, 1, 0, 0), (Verdict::Pass, inner.clone()));
        let (own, remote, vni) = ([172, 16, 0, 1], [172, 16, 0, 2], 0x0a0b0cu32);
        let (hop_mac, own_mac) = ([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]);
        let tunnel = [&own[..], &remote, &vni.to_le_bytes(), &4u32.to_le_bytes(), &hop_mac, &own_mac].concat();
        maps.get("stations").expect("a map").update(&inner[..6], &tunnel, Update::Any).expect("written");
        let (verdict, outer) = run(&encap, &inner, 1, 0, 0);
        assert_eq!(verdict, Verdict::Redirect(4));
        let vxlan = [&[8, 0, 0, 0, 0x0a, 0x0b, 0x0c, 0][..], &inner].concat();
        let mut expected = ipv4(17, own, remote, &udp(own, remote, 49152 + 31 + 2, 4789, &vxlan));
        // No identification, no UDP checksum.
        expected[4..6].fill(0);
        expected[10..12].fill(0);
        let sum = support::packets::checksum(&expected[..20], 0);
        expected[10..12].copy_from_slice(&sum.to_be_bytes());
        expected[26..28].fill(0);
        let expected = [&hop_mac[..], &own_mac, &[8, 0], &expected].concat();
        assert_eq!(outer, expected);
        let (verdict, _) = run(&decap, &outer, 4, 0, 0);
        assert_eq!(verdict, Verdict::Drop);
        assert_eq!(decap.take_log(), (vec![format!("no port for VNI {vni}")], 0));
        maps.get("networks")
            .expect("a map")
            .update(&vni.to_le_bytes(), &8u32.to_le_bytes(), Update::Any)
            .expect("written");
        assert_eq!(run(&decap, &outer, 4, 0, 0), (Verdict::Redirect(8), inner.clone()));
        assert_eq!(run(&decap, &inner, 4, 0, 0), (Verdict::Pass, inner));
    }
}
