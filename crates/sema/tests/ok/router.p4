// A router: the usual shape of a program.
#include <core.p4>
#include <v1model.p4>

typedef bit<48> mac_t;
typedef bit<32> ip_t;

enum bit<16> EtherType {
    IPV4 = 0x0800,
    ARP = 0x0806
}

const bit<8> TTL_LIMIT = 8w1 + 1 - 1;

header ethernet_t {
    mac_t dst;
    mac_t src;
    EtherType kind;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> len;
    bit<16> id;
    bit<3> flags;
    bit<13> frag;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ip_t src;
    ip_t dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct meta_t {
    bit<16> vrf;
    bool routed;
}

error { BadVersion }

parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            EtherType.IPV4: ipv4;
            0x0806 &&& 0xffff: accept;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.BadVersion);
        meta.vrf = (bit<16>)hdr.ipv4.tos[7:2];
        transition accept;
    }
}

control V(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    counter(512, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets) routes;
    register<bit<32>>(16) last;

    action drop() {
        mark_to_drop(sm);
        exit;
    }
    action route(mac_t dst, bit<9> port) {
        routes.count();
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        sm.egress_spec = port;
        meta.routed = true;
    }
    table lpm {
        key = {
            meta.vrf: exact;
            hdr.ipv4.dst: lpm @name("destination");
        }
        actions = { route; drop; @defaultonly NoAction; }
        size = 1024;
        default_action = NoAction();
        counters = routes;
    }
    table acl {
        key = {
            hdr.ipv4.src: ternary;
            hdr.ipv4.protocol: range;
            hdr.ipv4.isValid(): exact;
        }
        actions = { drop; NoAction; }
        const entries = {
            (0x0a000000 &&& 0xff000000, 6 .. 17, true): drop();
            (_, _, false): NoAction();
        }
    }

    apply {
        seen.count((bit<32>)sm.ingress_port);
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl <= TTL_LIMIT) {
            drop();
        } else if (acl.apply().miss) {
            switch (lpm.apply().action_run) {
                route: { last.write(0, hdr.ipv4.dst); }
                drop:
                NoAction: { return; }
                default: {}
            }
        }
    }
}

control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {}
}

control C(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
