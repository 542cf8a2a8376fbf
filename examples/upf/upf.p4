// The user plane function of a 5G core (3GPP TS 23.501, clause 6.2.3), between the radio access network (N3) and the data
// network (N6). What the control plane writes into the tables is what PFCP has (3GPP TS 29.244, clause 5.2):
//
// - a packet detection rule (PDR) knows uplink packets by their tunnel (F-TEID) and the user's own address, downlink
//   packets by the user's address. `flow` has its filters for service data flows, by precedence;
// - a forwarding action rule (FAR) says where to: to the data network, into a tunnel, nowhere; or, while the user is idle, to
//   the controller, which keeps the packets, with a notice for the first of them. It sends them back by packet-out once the
//   FAR has a tunnel;
// - a QoS enforcement rule (QER) has a gate, the QFI, the class and the maximum bit rate of a flow, and that of the session
//   in each direction. Red packets are dropped;
// - a usage reporting rule (URR) counts a session's packets and bytes in each direction, frames as they were received.
//
// GTP-U (3GPP TS 29.281) runs over IPv4 or IPv6, with IPv4 and IPv6 in it. Up to four extension headers are followed; of the
// PDU session container (3GPP TS 38.415) the QFI is taken. All lengths must agree, and the outer IPv4 header's checksum must be
// right. What is for the N3 address and no G-PDU (echo requests, for instance) goes to the controller.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>
#include <p4lib/checksum.p4>
#include <p4lib/v1model_checksum.p4>

const bit<9> CONTROLLER = 510;
const bit<32> SESSIONS = 65536;
const bit<2> RED = 2;
// Of a user's packet, so that it fits into a tunnel's lengths.
const bit<16> LENGTH_MAX = 65000;

// A meter's and a counter's cell: one for each session and direction.
typedef bit<16> session_t;

enum bit<7> Reason { LOCAL = 0, FOR_N3 = 1, BUFFER = 2, TTL = 3 }

@controller_header("packet_in")
header packet_in_t {
    bit<9>    port;
    Reason    reason;
    session_t session;
}

// A packet that the controller kept is treated like one from the data network.
@controller_header("packet_out")
header packet_out_t {
    bit<16> reserved;
}

// Downlink data notification: PFCP's Session Report Request with a Downlink Data Report (TS 29.244, clause 7.5.8).
struct buffering_t {
    session_t session;
    bit<6>    qfi;
    bit<6>    dscp;
}

// For the Error Indication that TS 29.281, clause 7.3.1, wants.
struct unknown_tunnel_t {
    bit<32>  teid;
    bit<128> peer;
}

struct metadata_t {
    bit<128>  peer;
    bool      uplink;
    bit<8>    extension;
    bit<3>    extensions_left;
    // Of the optional parts of GTP-U's header, and of the user's packet.
    bit<16>   options_length;
    bit<16>   length;
    bit<6>    qfi;
    bit<6>    dscp;
    bit<128>  remote;
    bit<8>    protocol;
    bit<16>   remote_port;
    session_t session;
    bit<32>   far;
    bit<2>    colour;
}

struct headers_t {
    packet_in_t        packet_in;
    packet_out_t       packet_out;
    ethernet_t         ethernet;
    ipv4_t             outer_ipv4;
    ipv6_t             outer_ipv6;
    udp_t              udp;
    gtpu_t             gtpu;
    gtpu_options_t     gtpu_options;
    gtpu_pdu_session_t pdu_session;
    ipv4_t             ipv4;
    ipv6_t             ipv6;
    ports_t            ports;
}

#include <p4lib/v1model.p4>

error {
    GtpExtension,
    NotIp
}

struct n3_v4_t {
    bit<9>  port;
    bit<32> address;
}

struct n3_v6_t {
    bit<9>   port;
    bit<128> address;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // The source interface "access": a port, and the switch's own address there.
    value_set<n3_v4_t>(16) n3_v4;
    value_set<n3_v6_t>(16) n3_v6;

    state start {
        transition select(std.ingress_port) {
            CONTROLLER: packet_out;
            default: ethernet;
        }
    }
    state packet_out {
        packet.extract(hdr.packet_out);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: any_ipv4;
            ETHERTYPE_IPV6: any_ipv6;
            default: accept;
        }
    }
    state any_ipv4 {
        transition select(std.ingress_port, packet.lookahead<ipv4_t>().dstAddr) {
            n3_v4: outer_ipv4;
            default: ipv4;
        }
    }
    state any_ipv6 {
        transition select(std.ingress_port, packet.lookahead<ipv6_t>().dstAddr) {
            n3_v6: outer_ipv6;
            default: ipv6;
        }
    }
    state outer_ipv4 {
        packet.extract(hdr.outer_ipv4);
        meta.peer = (bit<128>)hdr.outer_ipv4.srcAddr;
        transition select(hdr.outer_ipv4.ihl, hdr.outer_ipv4.flags[0:0] ++ hdr.outer_ipv4.fragOffset, hdr.outer_ipv4.protocol) {
            (5, 0, IP_PROTO_UDP): udp;
            default: accept;
        }
    }
    state outer_ipv6 {
        packet.extract(hdr.outer_ipv6);
        meta.peer = hdr.outer_ipv6.srcAddr;
        transition select(hdr.outer_ipv6.nextHdr) {
            IP_PROTO_UDP: udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dstPort) {
            UDP_PORT_GTPU: any_gtpu;
            default: accept;
        }
    }
    state any_gtpu {
        gtpu_t front = packet.lookahead<gtpu_t>();
        transition select(front.version, front.pt, front.messageType) {
            (1, 1, GTPU_G_PDU): gtpu;
            default: accept;
        }
    }
    state gtpu {
        packet.extract(hdr.gtpu);
        meta.uplink = true;
        meta.extensions_left = 4;
        transition select(hdr.gtpu.ex ++ hdr.gtpu.seq ++ hdr.gtpu.pn) {
            0: pdu;
            default: options;
        }
    }
    state options {
        packet.extract(hdr.gtpu_options);
        meta.options_length = 4;
        meta.extension = hdr.gtpu.ex == 1 ? hdr.gtpu_options.nextExtension : 0;
        transition extension;
    }
    // The upper two bits of a type say who must understand it (TS 29.281, clause 5.2.1): with 0b1x, who ends the tunnel.
    state extension {
        transition select(meta.extension) {
            0: pdu;
            GTPU_PDU_SESSION: pdu_session;
            0x80 &&& 0x80: not_understood;
            default: skip_extension;
        }
    }
    state not_understood {
        verify(false, error.GtpExtension);
        transition reject;
    }
    state pdu_session {
        meta.qfi = packet.lookahead<gtpu_pdu_session_t>().qfi;
        transition skip_extension;
    }
    state skip_extension {
        bit<16> size = (bit<16>)packet.lookahead<bit<8>>() << 2;
        verify(size != 0 && meta.extensions_left != 0, error.GtpExtension);
        packet.advance(((bit<32>)size << 3) - 8);
        meta.extension = packet.lookahead<bit<8>>();
        packet.advance(8);
        meta.options_length = meta.options_length + size;
        meta.extensions_left = meta.extensions_left - 1;
        transition extension;
    }
    state pdu {
        transition select(packet.lookahead<bit<4>>()) {
            4: ipv4;
            6: ipv6;
            default: no_ip;
        }
    }
    state no_ip {
        verify(false, error.NotIp);
        transition reject;
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4 && hdr.ipv4.ihl >= 5, error.NotIp);
        meta.length = hdr.ipv4.totalLen;
        meta.dscp = hdr.ipv4.diffserv[7:2];
        meta.protocol = hdr.ipv4.protocol;
        meta.remote = (bit<128>)(meta.uplink ? hdr.ipv4.dstAddr : hdr.ipv4.srcAddr);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, IP_PROTO_TCP): ports;
            (5, 0, IP_PROTO_UDP): ports;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        verify(hdr.ipv6.version == 6, error.NotIp);
        meta.length = hdr.ipv6.payloadLen + 40;
        meta.dscp = hdr.ipv6.trafficClass[7:2];
        meta.protocol = hdr.ipv6.nextHdr;
        meta.remote = meta.uplink ? hdr.ipv6.dstAddr : hdr.ipv6.srcAddr;
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_TCP: ports;
            IP_PROTO_UDP: ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.remote_port = meta.uplink ? hdr.ports.dstPort : hdr.ports.srcPort;
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(2 * SESSIONS, CounterType.packets_and_bytes) usage;
    meter(2 * SESSIONS, MeterType.bytes) session_rate;
    direct_meter<bit<2>>(MeterType.bytes) flow_rate;
    // The number of the idle period that the controller has a notice of, by session.
    register<bit<16>>(SESSIONS) noticed;

    action drop() {
        mark_to_drop(std);
        exit;
    }

    action to_controller(Reason reason) {
        hdr.packet_in.setValid();
        hdr.packet_in.port = std.ingress_port;
        hdr.packet_in.reason = reason;
        hdr.packet_in.session = meta.session;
        std.egress_spec = CONTROLLER;
        exit;
    }

    // ---- PDR

    action detected(session_t session, bit<32> far, bit<6> qfi) {
        meta.session = session;
        meta.far = far;
        meta.qfi = meta.uplink ? meta.qfi : qfi;
    }

    action unknown_tunnel() {
        digest<unknown_tunnel_t>(1, { hdr.gtpu.teid, meta.peer });
        drop();
    }

    table uplink_v4 {
        key = {
            hdr.gtpu.teid: exact;
            hdr.ipv4.srcAddr: exact;
        }
        actions = { detected; unknown_tunnel; }
        const default_action = unknown_tunnel();
        size = SESSIONS;
    }

    // A user has a prefix of 64 bits (TS 23.501, clause 5.8.2.2.3).
    table uplink_v6 {
        key = {
            hdr.gtpu.teid: exact;
            hdr.ipv6.srcAddr[127:64]: exact @name("prefix");
        }
        actions = { detected; unknown_tunnel; }
        const default_action = unknown_tunnel();
        size = SESSIONS;
    }

    // The switch's own addresses, and those of neighbour discovery, go to the controller.
    table downlink_v4 {
        key = { hdr.ipv4.dstAddr: exact; }
        actions = { detected; to_controller; drop; }
        const default_action = drop();
        size = SESSIONS;
    }

    table downlink_v6 {
        key = { hdr.ipv6.dstAddr[127:64]: exact @name("prefix"); }
        actions = { detected; to_controller; drop; }
        const default_action = drop();
        size = SESSIONS;
    }

    // ---- SDF filters, QER

    action qos(bit<6> qfi, bit<3> priority) {
        flow_rate.read(meta.colour);
        meta.qfi = qfi;
        std.priority = priority;
    }

    action gate_closed() {
        drop();
    }

    table flow {
        key = {
            meta.session: exact @name("session");
            meta.uplink: exact @name("uplink");
            meta.qfi: ternary @name("qfi");
            meta.remote: ternary @name("remote");
            meta.protocol: ternary @name("protocol");
            meta.remote_port: range @name("remote_port");
        }
        actions = { qos; gate_closed; NoAction; }
        default_action = NoAction();
        meters = flow_rate;
        size = 4 * SESSIONS;
    }

    // ---- FAR

    action to_data_network(bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        std.egress_spec = port;
        hdr.ethernet.srcAddr = srcAddr;
        hdr.ethernet.dstAddr = dstAddr;
    }

    action tunnel(bit<32> teid, bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        to_data_network(port, srcAddr, dstAddr);
        // The container, the options in front of it, and the packet.
        hdr.gtpu = { 1, 1, 0, 1, 0, 0, GTPU_G_PDU, meta.length + 8, teid };
        hdr.gtpu_options = { 0, 0, GTPU_PDU_SESSION };
        hdr.pdu_session = { 1, meta.uplink ? 4w1 : 0, 0, 0, 0, meta.qfi, 0 };
        // UDP without a checksum: over IPv6 as RFC 6935 has it for tunnels. The source port is for load balancing.
        hdr.udp = { 0, UDP_PORT_GTPU, meta.length + 24, 0 };
        hash(hdr.udp.srcPort, HashAlgorithm.crc16, 16w49152, { meta.session, meta.remote, meta.protocol, meta.remote_port },
             32w16384);
    }

    action tunnel_v4(bit<32> teid, bit<32> own, bit<32> peer, bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        tunnel(teid, port, srcAddr, dstAddr);
        hdr.ethernet.etherType = ETHERTYPE_IPV4;
        hdr.outer_ipv4 = { 4, 5, meta.dscp ++ 2w0, meta.length + 44, 0, 2, 0, 64, IP_PROTO_UDP, 0, own, peer };
    }

    action tunnel_v6(bit<32> teid, bit<128> own, bit<128> peer, bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        tunnel(teid, port, srcAddr, dstAddr);
        hdr.ethernet.etherType = ETHERTYPE_IPV6;
        hdr.outer_ipv6 = { 6, meta.dscp ++ 2w0, 0, meta.length + 24, IP_PROTO_UDP, 64, own, peer };
    }

    // `period` is another number each time the user becomes idle.
    action buffer(bit<16> period) {
        bit<16> last;
        noticed.read(last, (bit<32>)meta.session);
        if (last != period) {
            noticed.write((bit<32>)meta.session, period);
            digest<buffering_t>(1, { meta.session, meta.qfi, meta.dscp });
        }
        to_controller(Reason.BUFFER);
    }

    table far {
        key = { meta.far: exact @name("far"); }
        actions = { to_data_network; tunnel_v4; tunnel_v6; buffer; drop; }
        default_action = drop();
        size = 2 * SESSIONS;
    }

    apply {
        if (std.parser_error != error.NoError || std.checksum_error != 0) {
            drop();
        }
        if (!hdr.ipv4.isValid() && !hdr.ipv6.isValid()) {
            to_controller(hdr.outer_ipv4.isValid() || hdr.outer_ipv6.isValid() ? Reason.FOR_N3 : Reason.LOCAL);
        }
        // All of the packet is there, and the lengths of all headers say so.
        bit<16> front = hdr.packet_out.isValid() ? 16w16 : 14;
        if (meta.uplink) {
            bit<16> outer_length = hdr.outer_ipv4.isValid() ? hdr.outer_ipv4.totalLen - 20 : hdr.outer_ipv6.payloadLen;
            front = front + meta.options_length + (hdr.outer_ipv4.isValid() ? 16w36 : 56);
            if (hdr.udp.length != outer_length || hdr.gtpu.length != outer_length - 16
                || hdr.gtpu.length != meta.options_length + meta.length) {
                drop();
            }
        } else if (meta.length > LENGTH_MAX) {
            drop();
        }
        if ((bit<32>)front + (bit<32>)meta.length > std.packet_length) {
            drop();
        }
        hdr.packet_out.setInvalid();

        if (meta.uplink) {
            if (hdr.ipv4.isValid()) {
                uplink_v4.apply();
            } else {
                uplink_v6.apply();
            }
        } else if (hdr.ipv4.isValid()) {
            downlink_v4.apply();
        } else {
            downlink_v6.apply();
        }
        if (meta.uplink) {
            hdr.outer_ipv4.setInvalid();
            hdr.outer_ipv6.setInvalid();
            hdr.udp.setInvalid();
            hdr.gtpu.setInvalid();
            hdr.gtpu_options.setInvalid();
            hdr.ethernet.etherType = hdr.ipv4.isValid() ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6;
        }
        if ((hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) || (hdr.ipv6.isValid() && hdr.ipv6.hopLimit <= 1)) {
            to_controller(Reason.TTL);
        }

        flow.apply();
        bit<32> cell = (bit<32>)(meta.session ++ (meta.uplink ? 1w1 : 0));
        if (meta.colour != RED) {
            session_rate.execute_meter(cell, meta.colour);
        }
        if (meta.colour == RED) {
            drop();
        }

        far.apply();
        usage.count(cell);
        if (hdr.ipv4.isValid()) {
            ipv4_decrement_ttl(hdr.ipv4);
        } else {
            hdr.ipv6.hopLimit = hdr.ipv6.hopLimit - 1;
        }
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_ipv4_checksum(hdr.outer_ipv4.isValid() && hdr.outer_ipv4.ihl == 5, hdr.outer_ipv4);
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_ipv4_checksum(hdr.outer_ipv4.isValid() && hdr.pdu_session.isValid(), hdr.outer_ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), EmptyEgress(), MyComputeChecksum(), EmitHeaders()) main;
