// A firewall that knows the state of TCP connections, after the one measured in section V of "P4rt-OVS" (CNSM 2020).
//
// Ports that `zone` names are inside or outside; a frame goes to the port that stands there. Connections are opened from inside:
// SYN marks one, the answer's SYN and ACK make it open; after FIN only what is under way passes, RST closes it at once. Segments
// from outside pass only if they fit the state. States are cells of one register, by a hash of the connection; each cell also has 30 bits that tell
// connections with the same cell apart (the later one wins). What is neither TCP nor IPv4 passes from inside only. See
// `firewall` for one with a Bloom filter.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> totalLen;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragOffset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

header tcp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> seq;
    bit<32> ack;
    bit<4>  dataOffset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

const bit<32> CELLS = 1 << 20;

// The lowest two bits of a cell.
const bit<2> CLOSED = 0;
const bit<2> SYN_SENT = 1;
const bit<2> OPEN = 2;
const bit<2> CLOSING = 3;

const bit<8> FIN = 0x01;
const bit<8> SYN = 0x02;
const bit<8> RST = 0x04;
const bit<8> ACK = 0x10;

struct metadata_t {
    bool inside;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, 6): tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(CELLS) connections;

    action drop() {
        mark_to_drop(std);
        exit;
    }

    action inside(bit<9> port) {
        meta.inside = true;
        std.egress_spec = port;
    }

    action outside(bit<9> port) {
        meta.inside = false;
        std.egress_spec = port;
    }

    table zone {
        key = { std.ingress_port: exact; }
        actions = { inside; outside; drop; }
        default_action = drop();
        size = 512;
    }

    apply {
        zone.apply();
        if (!hdr.tcp.isValid()) {
            if (!meta.inside) {
                drop();
            }
            exit;
        }
        // Both directions of a connection hash alike.
        bit<32> local_ip = meta.inside ? hdr.ipv4.srcAddr : hdr.ipv4.dstAddr;
        bit<32> remote_ip = meta.inside ? hdr.ipv4.dstAddr : hdr.ipv4.srcAddr;
        bit<16> local_port = meta.inside ? hdr.tcp.srcPort : hdr.tcp.dstPort;
        bit<16> remote_port = meta.inside ? hdr.tcp.dstPort : hdr.tcp.srcPort;
        bit<32> hash_value;
        hash(hash_value, HashAlgorithm.crc32, 32w0, { local_ip, remote_ip, local_port, remote_port }, 33w0x100000000);
        bit<32> at = hash_value & (CELLS - 1);
        // 12 bits of the hash that the cell does not say, and 18 of the connection itself.
        bit<30> mark = hash_value[31:20] ++ (local_ip[17:0] ^ remote_ip[17:0] ^ (local_port ++ 2w0) ^ (2w0 ++ remote_port));

        @atomic {
            bit<32> cell;
            connections.read(cell, at);
            bit<2> state = cell[31:2] == mark ? cell[1:0] : CLOSED;
            bit<2> next = state;
            bit<8> open_flags = hdr.tcp.flags & (SYN | ACK);
            if (hdr.tcp.flags & RST != 0) {
                next = CLOSED;
            } else if (meta.inside && open_flags == SYN) {
                next = SYN_SENT;
            } else if (!meta.inside && state == SYN_SENT && open_flags == (SYN | ACK)) {
                next = OPEN;
            } else if (state == OPEN && hdr.tcp.flags & FIN != 0) {
                next = CLOSING;
            }
            if (!meta.inside) {
                bool fits = state == SYN_SENT ? next != SYN_SENT : state == OPEN ? open_flags != SYN : hdr.tcp.flags & SYN == 0;
                if (state == CLOSED || !fits) {
                    drop();
                }
            }
            if (next != state) {
                connections.write(at, mark ++ next);
            }
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.tcp);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
