// A load balancer whose connections stay with their server while servers come and go, for IPv4 and IPv6.
//
// Servers have the service's address themselves and answer clients directly, so only the MAC address changes, and packets from
// clients are all that is seen. `services` names a group of an action selector, which a hash selects from for the first packet
// of a connection; packets write the server into `connections`. So a group may change at any time:
//
// - a server that joins, or another weight, concerns new connections only;
// - one that leaves the group keeps its connections until they end, as long as it is in `servers`;
// - one that leaves `servers`, too, is dead: the next packet of a connection takes it to another of the group, where TCP is
//   answered with RST, so that the client begins anew at once.
//
// A TCP segment that begins nothing and has no entry, as after a restart, goes where the hash says: to its server, if the group
// is as it was. ICMP errors follow the connection that they quote, so that servers find the path's MTU (RFC 7690). Without packets
// a connection ends in the time that its state has, which only the client tells. Fragments without ports, IPv4 options and IPv6
// extension headers are dropped.

#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
#include <p4lib/headers.p4>

// States, by the number of their expire time.
const bit<8> OPENING = 0;
const bit<8> OPEN = 1;
const bit<8> CLOSING = 2;
const bit<8> DATAGRAMS = 3;

// What follows the ports, up to the flags.
header tcp_rest_t {
    bit<64> seqAck;
    bit<8>  dataOffset;
    bit<8>  flags;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    ports_t    ports;
    tcp_rest_t tcp;
    icmp_t     icmp;
    ipv4_t     quoted_ipv4;
    ipv6_t     quoted_ipv6;
    ports_t    quoted_ports;
}

struct metadata_t {
    // IPv4 addresses are the IPv6 addresses that stand for them, ::ffff:0:0/96.
    bit<128> client;
    bit<128> service;
    bit<16>  client_port;
    bit<16>  service_port;
    bit<8>   protocol;
    bool     is_complete;
    bool     is_error;
    bit<16>  server;
    // Whether `services` selected the server.
    bool     is_new;
}

// The parameters of `assigned`.
struct assigned_t {
    bit<16> server;
    bit<8>  state;
}

#include <p4lib/v1model.p4>

bit<128> mapped(in bit<32> address) {
    return 80w0 ++ 16w0xffff ++ address;
}

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
        meta.client = mapped(hdr.ipv4.srcAddr);
        meta.service = mapped(hdr.ipv4.dstAddr);
        meta.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, IP_PROTO_TCP): ports;
            (5, 0, IP_PROTO_UDP): ports;
            (5, 0, IP_PROTO_ICMP): icmp;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.client = hdr.ipv6.srcAddr;
        meta.service = hdr.ipv6.dstAddr;
        meta.protocol = hdr.ipv6.nextHdr;
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_TCP: ports;
            IP_PROTO_UDP: ports;
            IP_PROTO_ICMPV6: icmp;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.client_port = hdr.ports.srcPort;
        meta.service_port = hdr.ports.dstPort;
        meta.is_complete = true;
        transition select(meta.protocol) {
            IP_PROTO_TCP: tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
    state icmp {
        packet.extract(hdr.icmp);
        meta.is_error = true;
        transition select(meta.protocol, hdr.icmp.type) {
            (IP_PROTO_ICMP, ICMP_UNREACHABLE): quoted_ipv4;
            (IP_PROTO_ICMP, ICMP_TIME_EXCEEDED): quoted_ipv4;
            (IP_PROTO_ICMP, ICMP_PARAMETER_PROBLEM): quoted_ipv4;
            (IP_PROTO_ICMPV6, ICMPV6_UNREACHABLE .. ICMPV6_PARAMETER_PROBLEM): quoted_ipv6;
            default: accept;
        }
    }
    state quoted_ipv4 {
        packet.extract(hdr.quoted_ipv4);
        meta.client = mapped(hdr.quoted_ipv4.dstAddr);
        meta.service = mapped(hdr.quoted_ipv4.srcAddr);
        meta.protocol = hdr.quoted_ipv4.protocol;
        transition select(hdr.quoted_ipv4.ihl, hdr.quoted_ipv4.fragOffset) {
            (5, 0): quoted_ports;
            default: accept;
        }
    }
    state quoted_ipv6 {
        packet.extract(hdr.quoted_ipv6);
        meta.client = hdr.quoted_ipv6.dstAddr;
        meta.service = hdr.quoted_ipv6.srcAddr;
        meta.protocol = hdr.quoted_ipv6.nextHdr;
        transition quoted_ports;
    }
    state quoted_ports {
        packet.extract(hdr.quoted_ports);
        meta.client_port = hdr.quoted_ports.dstPort;
        meta.service_port = hdr.quoted_ports.srcPort;
        meta.is_complete = true;
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
        exit;
    }

    action_selector(HashAlgorithm.crc32, 65536, 32) group_members;

    action select_server(bit<16> server) {
        meta.server = server;
        meta.is_new = true;
    }

    table services {
        key = {
            meta.service: exact;
            meta.service_port: exact;
            meta.protocol: exact;
            meta.client: selector;
            meta.client_port: selector;
        }
        actions = { select_server; drop; }
        const default_action = drop();
        implementation = group_members;
        size = 4096;
    }

    action assigned(bit<16> server, bit<8> state) {
        if (meta.is_new) {
            // The one that it had is dead.
            replace_entry("assigned", (assigned_t){ meta.server, state }, state);
        } else {
            meta.server = server;
            if (!meta.is_error) {
                bit<8> next = state;
                if (hdr.tcp.flags & (TCP_FIN | TCP_RST) != 0) {
                    next = CLOSING;
                } else if (hdr.tcp.flags & TCP_SYN != 0) {
                    next = OPENING;
                } else if (state == OPENING) {
                    next = OPEN;
                }
                if (next != state) {
                    replace_entry("assigned", (assigned_t){ server, next }, next);
                } else {
                    restart_expire_timer();
                }
            }
        }
    }

    action unassigned() {
        if (meta.is_new && !meta.is_error && hdr.tcp.flags & TCP_RST == 0) {
            bit<8> state = hdr.tcp.isValid() ? OPENING : DATAGRAMS;
            // If the table is full, the packets go where the hash says.
            add_entry("assigned", (assigned_t){ meta.server, state }, state);
        }
    }

    // In the order of the states.
    @expire_time_ms(60000, 7440000, 60000, 120000)
    table connections {
        key = {
            meta.client: exact;
            meta.service: exact;
            meta.client_port: exact;
            meta.service_port: exact;
            meta.protocol: exact;
        }
        actions = { assigned; @defaultonly unassigned; }
        const default_action = unassigned();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 1048576;
    }

    action send(bit<48> mac, bit<9> port) {
        hdr.ethernet.dstAddr = mac;
        std.egress_spec = port;
    }

    // Servers that are alive, those that get no new connections included.
    table servers {
        key = { meta.server: exact; }
        actions = { send; NoAction; }
        const default_action = NoAction();
        size = 65536;
    }

    apply {
        if (std.parser_error != error.NoError || !meta.is_complete) {
            drop();
        }
        if (!connections.apply().hit || !servers.apply().hit) {
            services.apply();
            connections.apply();
            if (!servers.apply().hit) {
                drop();
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
