// Heavy hitters, found with a count-min sketch (Cormode and Muthukrishnan, 2005), and two defences against floods.
//
// Packets to a protected prefix are counted by flow in four rows of counters. The least of a flow's four is what it has sent
// in this window of about a second, or more where flows share counters. A flow with more packets than its destination allows
// is dropped for the rest of the window (`protect`). Against floods from many sources, or from forged ones, a destination may
// also have a limit of new flows in a window (`protect_from_many`), those that have no packet in this window or the one
// before. Beyond it they are dropped and leave no trace in the sketch, while known flows go on. The controller hears of
// either once per window.
//
// Each counter carries the window it is of, so nobody has to clear the rows. The four places are two hashes and two of their
// sums (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006).

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

struct flood_t {
    bit<128> destination;
    count_t  flows;
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

// A cell with one more in it.
bit<32> counted(in bit<32> cell, in window_t window) {
    count_t count = cell[31:20] == window ? cell[19:0] : 0;
    return window ++ (count |+| 1);
}

count_t lesser(in count_t a, in count_t b) {
    return a < b ? a : b;
}

// Whether the cell is of this window or the one before.
bool is_recent(in bit<32> cell, in window_t window) {
    return window - cell[31:20] <= 1;
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // The sketch.
    register<bit<32>>(CELLS) row_1;
    register<bit<32>>(CELLS) row_2;
    register<bit<32>>(CELLS) row_3;
    register<bit<32>>(CELLS) row_4;
    // New flows, by destination.
    register<bit<32>>(CELLS) arrivals;

    // Set by `protect` and `protect_from_many`.
    count_t hitter_limit = 0;
    bool limits_flows = false;
    count_t flow_limit = 0;
    bit<32> destination = 0;
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

    action protect_from_many(count_t packets_max, count_t flows_max) {
        protect(packets_max);
        limits_flows = true;
        flow_limit = flows_max;
        hash(destination, HashAlgorithm.crc32, 32w0, meta.flow.destination, 33w0x100000000);
    }

    table protected_v4 {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { protect; protect_from_many; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    table protected_v6 {
        key = { hdr.ipv6.dstAddr: lpm; }
        actions = { protect; protect_from_many; NoAction; }
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
            // The first one is 2: cells that nobody has written are not recent.
            window_t window = (window_t)(std.ingress_global_timestamp >> 20) + 2;
            bit<32> at_1 = at & (CELLS - 1);
            bit<32> at_2 = (at + step) & (CELLS - 1);
            bit<32> at_3 = (at + (step << 1)) & (CELLS - 1);
            bit<32> at_4 = (at + (step << 1) + step) & (CELLS - 1);
            bool admitted = true;
            count_t packets;
            @atomic {
                bit<32> cell_1;
                bit<32> cell_2;
                bit<32> cell_3;
                bit<32> cell_4;
                row_1.read(cell_1, at_1);
                row_2.read(cell_2, at_2);
                row_3.read(cell_3, at_3);
                row_4.read(cell_4, at_4);
                if (limits_flows && !(is_recent(cell_1, window) && is_recent(cell_2, window) && is_recent(cell_3, window)
                                      && is_recent(cell_4, window))) {
                    bit<32> flows;
                    arrivals.read(flows, destination & (CELLS - 1));
                    flows = counted(flows, window);
                    arrivals.write(destination & (CELLS - 1), flows);
                    admitted = flows[19:0] <= flow_limit;
                    if (flows[19:0] == flow_limit + 1) {
                        digest<flood_t>(1, { meta.flow.destination, flows[19:0] });
                    }
                }
                cell_1 = counted(cell_1, window);
                cell_2 = counted(cell_2, window);
                cell_3 = counted(cell_3, window);
                cell_4 = counted(cell_4, window);
                packets = lesser(lesser(cell_1[19:0], cell_2[19:0]), lesser(cell_3[19:0], cell_4[19:0]));
                if (admitted) {
                    row_1.write(at_1, cell_1);
                    row_2.write(at_2, cell_2);
                    row_3.write(at_3, cell_3);
                    row_4.write(at_4, cell_4);
                }
            }
            if (!admitted) {
                mark_to_drop(std);
            } else if (packets > hitter_limit) {
                mark_to_drop(std);
                if (packets == hitter_limit + 1) {
                    digest<hitter_t>(1, { meta.flow.source, meta.flow.destination, meta.flow.protocol, meta.flow.ports,
                                          packets });
                }
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
