// A broadband network gateway: PPPoE sessions (RFC 2516) of subscribers on one side, a routed core on the other.
//
// A session is known by its port, up to two VLAN tags, both MAC addresses and the session id. It belongs to a subscriber, who
// may only send from its own addresses; a subscriber is reached by the routes to them, also from another one. Each has
// counters, a meter for each direction and one for each of eight classes downstream; red packets are dropped. The class, by
// the subscriber's service and the packet's DSCP, is the queue (`priority`) and downstream the tags' PCP.
//
// The controller has discovery (PADI, PADR, PADT), all of PPP that is not IP (LCP, authentication, IPCP, IPv6CP), ARP, what
// is for the gateway itself (`local`), and packets that want an ICMP error. From subscribers these must have a source of theirs,
// or for the gateway one of the link, and fit into the rate. It hears of sessions that there are not by digest.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>
#include <p4lib/checksum.p4>

const bit<9> CONTROLLER = 510;
const bit<32> SUBSCRIBERS = 32768;
const bit<2> RED = 2;

typedef bit<16> subscriber_t;

enum bit<7> Reason { CONTROL = 0, LOCAL = 1, TTL = 2, TOO_BIG = 3 }

@controller_header("packet_in")
header packet_in_t {
    bit<9>       port;
    Reason       reason;
    subscriber_t subscriber;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> port;
    bit<7> reserved;
}

// The controller answers with a PADT (RFC 2516, section 5.5).
struct unknown_session_t {
    bit<9>  port;
    bit<24> vids;
    bit<48> address;
    bit<16> session;
}

struct metadata_t {
    bit<16>      etherType;
    bit<24>      vids;
    // What is in front of the IP packet, and its length.
    bit<16>      front;
    bit<16>      length;
    bit<6>       dscp;
    bit<8>       ttl;
    subscriber_t from;
    subscriber_t to;
    bool         to_subscriber;
    bool         is_own;
    bool         is_local;
    bit<8>       service;
    bit<9>       port;
    bit<48>      srcAddr;
    bit<48>      dstAddr;
    bit<16>      session;
    bit<2>       colour;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    vlan_t[2]    vlan;
    pppoe_t      pppoe;
    ppp_t        ppp;
    ipv4_t       ipv4;
    ipv6_t       ipv6;
}

#include <p4lib/v1model.p4>

error {
    Pppoe,
    NotIp
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CONTROLLER: packet_out;
            default: ethernet;
        }
    }
    state packet_out {
        packet.extract(hdr.packet_out);
        transition accept;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        meta.etherType = hdr.ethernet.etherType;
        meta.front = 14;
        transition by_type;
    }
    state by_type {
        transition select(meta.etherType) {
            ETHERTYPE_VLAN: vlan;
            ETHERTYPE_QINQ: vlan;
            ETHERTYPE_PPPOE_SESSION: pppoe;
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }
    // A third tag is an error.
    state vlan {
        packet.extract(hdr.vlan.next);
        meta.etherType = hdr.vlan.last.etherType;
        meta.vids = meta.vids[11:0] ++ hdr.vlan.last.vid;
        meta.front = meta.front + 4;
        transition by_type;
    }
    state pppoe {
        packet.extract(hdr.pppoe);
        verify(hdr.pppoe.version == 1 && hdr.pppoe.type == 1 && hdr.pppoe.code == 0, error.Pppoe);
        packet.extract(hdr.ppp);
        meta.front = meta.front + 8;
        transition select(hdr.ppp.protocol) {
            PPP_IPV4: ipv4;
            PPP_IPV6: ipv6;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4 && hdr.ipv4.ihl >= 5, error.NotIp);
        meta.length = hdr.ipv4.totalLen;
        meta.dscp = hdr.ipv4.diffserv[7:2];
        meta.ttl = hdr.ipv4.ttl;
        transition accept;
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        verify(hdr.ipv6.version == 6, error.NotIp);
        meta.length = hdr.ipv6.payloadLen + 40;
        meta.dscp = hdr.ipv6.trafficClass[7:2];
        meta.ttl = hdr.ipv6.hopLimit;
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(SUBSCRIBERS, CounterType.packets_and_bytes) upstream;
    counter(SUBSCRIBERS, CounterType.packets_and_bytes) downstream;
    meter(SUBSCRIBERS, MeterType.bytes) upstream_rate;
    meter(SUBSCRIBERS, MeterType.bytes) downstream_rate;
    // A subscriber's eight classes are side by side.
    meter(8 * SUBSCRIBERS, MeterType.bytes) class_rate;

    action drop() {
        mark_to_drop(std);
        exit;
    }

    action to_controller(Reason reason) {
        hdr.packet_in.setValid();
        hdr.packet_in.port = std.ingress_port;
        hdr.packet_in.reason = reason;
        hdr.packet_in.subscriber = meta.from;
        std.egress_spec = CONTROLLER;
        exit;
    }

    action of_subscriber(subscriber_t subscriber, bit<8> service) {
        meta.from = subscriber;
        meta.service = service;
    }

    action unknown_session() {
        digest<unknown_session_t>(1, { std.ingress_port, meta.vids, hdr.ethernet.srcAddr, hdr.pppoe.sessionId });
        drop();
    }

    table session {
        key = {
            std.ingress_port: exact;
            meta.vids: exact @name("vids");
            hdr.ethernet.srcAddr: exact;
            hdr.ethernet.dstAddr: exact;
            hdr.pppoe.sessionId: exact;
        }
        actions = { of_subscriber; unknown_session; }
        const default_action = unknown_session();
        size = SUBSCRIBERS;
    }

    // Ports of the core and the gateway's address there: IP without PPPoE comes from nowhere else.
    table core {
        key = {
            std.ingress_port: exact;
            meta.vids: exact @name("vids");
            hdr.ethernet.dstAddr: exact;
        }
        actions = { NoAction; drop; }
        const default_action = drop();
        size = 64;
    }

    action own() {
        meta.is_own = true;
    }

    table source_v4 {
        key = {
            meta.from: exact @name("subscriber");
            hdr.ipv4.srcAddr: lpm;
        }
        actions = { own; NoAction; }
        const default_action = NoAction();
        size = 2 * SUBSCRIBERS;
    }

    table source_v6 {
        key = {
            meta.from: exact @name("subscriber");
            hdr.ipv6.srcAddr: lpm;
        }
        actions = { own; NoAction; }
        const default_action = NoAction();
        size = 4 * SUBSCRIBERS;
    }

    action to_core(bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        meta.port = port;
        meta.srcAddr = srcAddr;
        meta.dstAddr = dstAddr;
    }

    action local() {
        meta.is_local = true;
    }

    action to_subscriber(subscriber_t subscriber) {
        meta.to_subscriber = true;
        meta.to = subscriber;
    }

    table route_v4 {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { to_core; to_subscriber; local; drop; }
        default_action = drop();
        size = 16 * SUBSCRIBERS;
    }

    table route_v6 {
        key = { hdr.ipv6.dstAddr: lpm; }
        actions = { to_core; to_subscriber; local; drop; }
        default_action = drop();
        size = 16 * SUBSCRIBERS;
    }

    // `mtu` is what the peer's LCP has as MRU, 1492 at most (RFC 2516, section 7) or more by RFC 4638. Of two tags the first
    // is an S-tag; a VLAN of 0 is no tag.
    action reach(bit<9> port, bit<24> vids, bit<48> srcAddr, bit<48> dstAddr, bit<16> session, bit<16> mtu, bit<8> service) {
        to_core(port, srcAddr, dstAddr);
        meta.vids = vids;
        meta.session = session;
        meta.service = service;
        if (meta.length > mtu) {
            to_controller(Reason.TOO_BIG);
        }
    }

    table subscriber {
        key = { meta.to: exact @name("subscriber"); }
        actions = { reach; drop; }
        default_action = drop();
        size = SUBSCRIBERS;
    }

    action queue(bit<3> priority) {
        std.priority = priority;
    }

    table class {
        key = {
            meta.service: exact @name("service");
            meta.dscp: ternary @name("dscp");
        }
        actions = { queue; drop; }
        default_action = queue(0);
        size = 1024;
    }

    action push_pppoe() {
        hdr.pppoe = { 1, 1, 0, meta.session, meta.length + 2 };
        hdr.ppp = { hdr.ipv4.isValid() ? PPP_IPV4 : PPP_IPV6 };
        hdr.ethernet.etherType = ETHERTYPE_PPPOE_SESSION;
        if (meta.vids[11:0] != 0) {
            hdr.vlan[1] = { std.priority, 0, meta.vids[11:0], hdr.ethernet.etherType };
            hdr.ethernet.etherType = ETHERTYPE_VLAN;
        }
        if (meta.vids[23:12] != 0) {
            hdr.vlan[0] = { std.priority, 0, meta.vids[23:12], hdr.ethernet.etherType };
            hdr.ethernet.etherType = ETHERTYPE_QINQ;
        }
    }

    apply {
        if (std.parser_error != error.NoError) {
            drop();
        }
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.port;
            std.priority = 7;
            hdr.packet_out.setInvalid();
            exit;
        }
        bool is_ip = hdr.ipv4.isValid() || hdr.ipv6.isValid();
        bool from_subscriber = hdr.pppoe.isValid();
        if (from_subscriber) {
            session.apply();
            if (!is_ip) {
                to_controller(Reason.CONTROL);
            }
        } else if (is_ip) {
            core.apply();
        } else if (meta.etherType == ETHERTYPE_PPPOE_DISCOVERY || meta.etherType == ETHERTYPE_ARP) {
            to_controller(Reason.CONTROL);
        } else {
            drop();
        }
        // All of the packet is there, and fits into PPPoE's length.
        if ((bit<32>)meta.front + (bit<32>)meta.length > std.packet_length
            || (from_subscriber && (bit<32>)meta.length + 2 > (bit<32>)hdr.pppoe.length)) {
            drop();
        }

        if (hdr.ipv4.isValid()) {
            route_v4.apply();
        } else {
            route_v6.apply();
        }
        if (from_subscriber) {
            if (hdr.ipv4.isValid()) {
                source_v4.apply();
            } else {
                source_v6.apply();
            }
            // Router solicitations, DHCPv6 and the like; :: is that of who asks for an address (RFC 4862).
            if (!meta.is_own) {
                bool is_of_link = hdr.ipv6.srcAddr[127:118] == 0x3fa || hdr.ipv6.srcAddr == 0;
                if (!meta.is_local || !hdr.ipv6.isValid() || !is_of_link) {
                    drop();
                }
            }
            upstream_rate.execute_meter((bit<32>)meta.from, meta.colour);
            if (meta.colour == RED) {
                drop();
            }
        }
        if (meta.is_local) {
            to_controller(Reason.LOCAL);
        }
        if (meta.ttl <= 1) {
            to_controller(Reason.TTL);
        }
        if (meta.to_subscriber) {
            subscriber.apply();
        }
        class.apply();

        if (meta.to_subscriber) {
            class_rate.execute_meter((bit<32>)(meta.to ++ std.priority), meta.colour);
            if (meta.colour == RED) {
                drop();
            }
            downstream_rate.execute_meter((bit<32>)meta.to, meta.colour);
            if (meta.colour == RED) {
                drop();
            }
            downstream.count((bit<32>)meta.to);
        }
        if (from_subscriber) {
            upstream.count((bit<32>)meta.from);
        }

        std.egress_spec = meta.port;
        hdr.vlan[0].setInvalid();
        hdr.vlan[1].setInvalid();
        hdr.pppoe.setInvalid();
        hdr.ppp.setInvalid();
        hdr.ethernet = { meta.dstAddr, meta.srcAddr, hdr.ipv4.isValid() ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6 };
        if (meta.to_subscriber) {
            push_pppoe();
        }
        if (hdr.ipv4.isValid()) {
            ipv4_decrement_ttl(hdr.ipv4);
        } else {
            hdr.ipv6.hopLimit = hdr.ipv6.hopLimit - 1;
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
