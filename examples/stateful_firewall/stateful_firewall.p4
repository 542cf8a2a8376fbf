// A firewall that knows the state of TCP connections, after the one measured in section V of "P4rt-OVS" (CNSM 2020).
//
// Ports that `zone` names are inside or outside; a frame goes to the port that stands there. Connections are opened from inside:
// SYN marks one, the answer's SYN and ACK make it open; after FIN only what is under way passes, RST closes it at once. Segments
// from outside pass only if they fit the state. States are cells of one register, by a hash of the connection; each cell also has 30 bits that tell
// connections with the same cell apart (the later one wins). What is neither TCP nor IPv4 passes from inside only. See
// `firewall` for one with a Bloom filter.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/connection.p4>
#include <p4lib/parsers.p4>

const bit<32> CELLS = 1 << 20;

// The lowest two bits of a cell.
const bit<2> CLOSED = 0;
const bit<2> SYN_SENT = 1;
const bit<2> OPEN = 2;
const bit<2> CLOSING = 3;

struct metadata_t {
    bool inside;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        ParseIpv4Tcp.apply(packet, hdr.ipv4, hdr.tcp);
        transition accept;
    }
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
        connection_t flow = connection_of(hdr.ipv4, hdr.tcp, meta.inside);
        bit<32> hash_value;
        hash(hash_value, HashAlgorithm.crc32, 32w0, flow, 33w0x100000000);
        bit<32> at = hash_value & (CELLS - 1);
        // 12 bits of the hash that the cell does not say, and 18 of the connection itself.
        bit<30> mark = hash_value[31:20] ++ (flow.local_ip[17:0] ^ flow.remote_ip[17:0] ^ (flow.local_port ++ 2w0) ^
            (2w0 ++ flow.remote_port));

        @atomic {
            bit<32> cell;
            connections.read(cell, at);
            bit<2> state = cell[31:2] == mark ? cell[1:0] : CLOSED;
            bit<2> next = state;
            bit<8> open_flags = hdr.tcp.flags & (TCP_SYN | TCP_ACK);
            if (hdr.tcp.flags & TCP_RST != 0) {
                next = CLOSED;
            } else if (meta.inside && open_flags == TCP_SYN) {
                next = SYN_SENT;
            } else if (!meta.inside && state == SYN_SENT && open_flags == (TCP_SYN | TCP_ACK)) {
                next = OPEN;
            } else if (state == OPEN && hdr.tcp.flags & TCP_FIN != 0) {
                next = CLOSING;
            }
            if (!meta.inside) {
                bool fits = state == SYN_SENT ? next != SYN_SENT :
                    state == OPEN ? open_flags != TCP_SYN : hdr.tcp.flags & TCP_SYN == 0;
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

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
