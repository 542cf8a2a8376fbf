// A stateful firewall on connection tracking, without a controller. Port 1 is inside, port 2 outside.
//
// Hosts inside open connections, hosts outside only answer. `connections` has an entry for each, which packets add, change and
// keep alive; one that is silent for as long as its state allows ends by itself. The state is also the number of the expire
// time. TCP goes from SYN_SENT through SYN_RECEIVED to ESTABLISHED, with FIN to FIN_WAIT and with RST to CLOSED; UDP and ICMP
// echoes are NEW until they are answered. An ICMP error from outside passes if what it quotes is part of a connection, which
// that does not keep alive. What is no IPv4 passes, fragments do not.

#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>

const bit<9> INSIDE = 1;
const bit<9> OUTSIDE = 2;

const bit<8> FIN = 0x01;
const bit<8> SYN = 0x02;
const bit<8> RST = 0x04;
const bit<8> ACK = 0x10;

// States, by the number of their expire time in `@expire_time_ms`.
const bit<8> SYN_SENT = 0;
const bit<8> SYN_RECEIVED = 1;
const bit<8> ESTABLISHED = 2;
const bit<8> FIN_WAIT = 3;
const bit<8> CLOSED = 4;
const bit<8> NEW = 5;
const bit<8> REPLIED = 6;

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> length;
    bit<16> id;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ports_t {
    bit<16> src;
    bit<16> dst;
}

header tcp_rest_t {
    bit<32> seq;
    bit<32> ack;
    bit<4>  offset;
    bit<4>  reserved;
    bit<8>  flags;
}

header icmp_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
    bit<16> id;
    bit<16> seq;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
    tcp_rest_t tcp;
    icmp_t     icmp;
    ipv4_t     quoted;
    ports_t    quoted_ports;
}

struct metadata_t {
    bit<32> inside;
    bit<32> outside;
    bit<16> inside_port;
    bit<16> outside_port;
    bit<8>  protocol;
    bool    goes_out;
    bool    is_error;
    bool    passes;
}

// The parameters of `tracked`.
struct tracked_t {
    bit<8> state;
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
        transition select(hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.offset, hdr.ipv4.protocol) {
            (5, 0, 0, 1): icmp;
            (5, 0, 0, 6): tcp;
            (5, 0, 0, 17): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.ports);
        transition accept;
    }
    state tcp {
        packet.extract(hdr.ports);
        packet.extract(hdr.tcp);
        transition accept;
    }
    state icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.icmp.type) {
            3: quoted;
            11: quoted;
            12: quoted;
            default: accept;
        }
    }
    state quoted {
        packet.extract(hdr.quoted);
        packet.extract(hdr.quoted_ports);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action tracked(bit<8> state) {
        meta.passes = true;
        if (!meta.is_error) {
            bit<8> next = state;
            if (hdr.tcp.isValid()) {
                bit<8> flags = hdr.tcp.flags & (SYN | ACK);
                if (hdr.tcp.flags & RST != 0) {
                    next = CLOSED;
                } else if (hdr.tcp.flags & FIN != 0) {
                    next = FIN_WAIT;
                } else if (state == SYN_SENT && !meta.goes_out && flags == SYN | ACK) {
                    next = SYN_RECEIVED;
                } else if (state == SYN_RECEIVED && meta.goes_out && flags == ACK) {
                    next = ESTABLISHED;
                } else if ((state == FIN_WAIT || state == CLOSED) && meta.goes_out && flags == SYN) {
                    next = SYN_SENT;
                }
            } else if (state == NEW && !meta.goes_out) {
                next = REPLIED;
            }
            if (next != state) {
                replace_entry("tracked", (tracked_t){ next }, next);
            } else if (state != CLOSED) {
                restart_expire_timer();
            }
        }
    }

    action untracked() {
        bool begins = !hdr.tcp.isValid() || hdr.tcp.flags & (SYN | ACK | RST | FIN) == SYN;
        if (meta.goes_out && !meta.is_error && begins) {
            bit<8> state = hdr.tcp.isValid() ? SYN_SENT : NEW;
            meta.passes = add_entry("tracked", (tracked_t){ state }, state) == ADD_ENTRY_SUCCESS;
        }
    }

    // In the order of the states.
    @expire_time_ms(20000, 60000, 432000000, 120000, 10000, 30000, 180000)
    @notify_expired
    table connections {
        key = {
            meta.inside: exact;
            meta.outside: exact;
            meta.inside_port: exact;
            meta.outside_port: exact;
            meta.protocol: exact;
        }
        actions = { tracked; @defaultonly untracked; }
        const default_action = untracked();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 1048576;
    }

    // A packet from `src` to `dst`, or one that is quoted, which went the other way.
    action of_flow(bool goes_out, bit<32> src, bit<32> dst, bit<16> src_port, bit<16> dst_port, bit<8> protocol) {
        meta.inside = goes_out ? src : dst;
        meta.outside = goes_out ? dst : src;
        meta.inside_port = goes_out ? src_port : dst_port;
        meta.outside_port = goes_out ? dst_port : src_port;
        meta.protocol = protocol;
    }

    apply {
        meta.goes_out = std.ingress_port == INSIDE;
        std.egress_spec = meta.goes_out ? OUTSIDE : INSIDE;
        if (std.parser_error != error.NoError) {
            mark_to_drop(std);
        } else if (hdr.ipv4.isValid()) {
            if (hdr.quoted.isValid()) {
                meta.is_error = true;
                of_flow(!meta.goes_out, hdr.quoted.src, hdr.quoted.dst, hdr.quoted_ports.src, hdr.quoted_ports.dst,
                      hdr.quoted.protocol);
                connections.apply();
            } else if (hdr.ports.isValid()) {
                of_flow(meta.goes_out, hdr.ipv4.src, hdr.ipv4.dst, hdr.ports.src, hdr.ports.dst, hdr.ipv4.protocol);
                connections.apply();
            } else if (hdr.icmp.isValid() && (hdr.icmp.type == (meta.goes_out ? 8w8 : 8w0))) {
                of_flow(meta.goes_out, hdr.ipv4.src, hdr.ipv4.dst, hdr.icmp.id, hdr.icmp.id, hdr.ipv4.protocol);
                connections.apply();
            }
            if (!meta.passes) {
                mark_to_drop(std);
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
        packet.emit(hdr.ports);
        packet.emit(hdr.tcp);
        packet.emit(hdr.icmp);
        packet.emit(hdr.quoted);
        packet.emit(hdr.quoted_ports);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
