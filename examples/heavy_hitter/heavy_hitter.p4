// Heavy hitters, found with a count-min sketch (Cormode and Muthukrishnan, 2005), and kept from whom they attack.
//
// Packets to a protected prefix are counted by flow in four rows of counters; the least of a flow's four is what it has sent in this
// window of about a second, or more where flows share counters. A flow with more packets than its destination allows is dropped
// for the rest of the window; the controller hears of it once per window. Each counter carries the window it is of, so
// nobody has to clear the rows. The four places are two hashes and two of their sums (Kirsch and Mitzenmacher, "Less hashing,
// same performance", 2006).

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>

// Counters in a row.
const bit<32> CELLS = 1 << 16;

typedef bit<12> window_t;
typedef bit<20> count_t;

struct flow_t {
    bit<128> source;
    bit<128> destination;
    bit<8>   protocol;
    bit<32>  ports;
}

struct hitter_t {
    bit<128> source;
    bit<128> destination;
    bit<8>   protocol;
    bit<32>  ports;
    count_t  packets;
}

struct metadata_t {
    flow_t flow;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    ports_t    ports;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.flow.source = (bit<128>)hdr.ipv4.srcAddr;
        meta.flow.destination = (bit<128>)hdr.ipv4.dstAddr;
        meta.flow.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, IP_PROTO_TCP): ports;
            (5, 0, IP_PROTO_UDP): ports;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.flow.source = hdr.ipv6.srcAddr;
        meta.flow.destination = hdr.ipv6.dstAddr;
        meta.flow.protocol = hdr.ipv6.nextHdr;
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_TCP: ports;
            IP_PROTO_UDP: ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.flow.ports = hdr.ports.srcPort ++ hdr.ports.dstPort;
        transition accept;
    }
}

// A row of the sketch: counts the packet, and lowers `least` to what its counter has now.
control Row(in window_t window, in bit<32> index, inout count_t least) {
    register<bit<32>>(CELLS) cells;

    apply {
        @atomic {
            bit<32> cell;
            cells.read(cell, index);
            count_t count = cell[31:20] == window ? cell[19:0] : 0;
            count = count |+| 1;
            cells.write(index, window ++ count);
            least = count < least ? count : least;
        }
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Row() row_1;
    Row() row_2;
    Row() row_3;
    Row() row_4;

    // Set by `protect`.
    count_t hitter_limit = 0;
    bit<32> at = 0;
    bit<32> step = 0;

    action to_port(bit<9> port) {
        std.egress_spec = port;
    }

    table wire {
        key = { std.ingress_port: exact; }
        actions = { to_port; NoAction; }
        default_action = NoAction();
        size = 512;
    }

    action protect(count_t packets_max) {
        bit<32> first;
        bit<32> second;
        hash(first, HashAlgorithm.crc32, 32w0, meta.flow, 33w0x100000000);
        hash(second, HashAlgorithm.crc32, 32w0, { meta.flow.ports, meta.flow.destination, meta.flow.source }, 33w0x100000000);
        hitter_limit = packets_max;
        at = first;
        step = second | 1;
    }

    table protected_v4 {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { protect; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    table protected_v6 {
        key = { hdr.ipv6.dstAddr: lpm; }
        actions = { protect; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    apply {
        wire.apply();
        bool watched = false;
        if (hdr.ipv4.isValid()) {
            watched = protected_v4.apply().hit;
        } else if (hdr.ipv6.isValid()) {
            watched = protected_v6.apply().hit;
        }
        if (watched) {
            window_t window = (window_t)(std.ingress_global_timestamp >> 20);
            count_t packets = 0xfffff;
            row_1.apply(window, at & (CELLS - 1), packets);
            row_2.apply(window, (at + step) & (CELLS - 1), packets);
            row_3.apply(window, (at + (step << 1)) & (CELLS - 1), packets);
            row_4.apply(window, (at + (step << 1) + step) & (CELLS - 1), packets);
            if (packets > hitter_limit) {
                mark_to_drop(std);
                if (packets == hitter_limit + 1) {
                    digest<hitter_t>(1, { meta.flow.source, meta.flow.destination, meta.flow.protocol, meta.flow.ports, packets });
                }
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
