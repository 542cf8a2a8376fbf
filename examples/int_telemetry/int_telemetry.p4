// In-band network telemetry: source, transit hop and sink of INT-MD, as the "In-band Network Telemetry (INT) Dataplane
// Specification", version 2.1 (P4.org, 2020) has it, with reports by the "Telemetry Report Format Specification", version 2.0.
//
// A packet of a watched flow that comes in at the edge gets, between IP and TCP or UDP, a UDP header of INT's port, a shim
// (NPT 2: the original layer 4 follows), and INT's header with a bitmap of what each hop shall tell. So no checksum of
// layer 4 changes. Each hop pushes its metadata onto the stack: none if the hops are used up (bit E), if the port's MTU does
// not allow it (bit M), if it does not know an instruction, or if the stack is full. Where the packet goes out at the edge it
// gets its old form; a copy goes to a collector, as a report with IP, INT and the beginning of layer 4. Of a flow there is
// at most one report in each interval. INT that comes in at the edge is dropped.
//
// Times are microseconds, queues' depths are packets. Forwarding is by MAC address.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/headers.p4>

// "INT_TBD" in the specification, section 5.7.
const bit<16> INT_PORT = 5000;
const bit<32> EGRESS_CLONE = 2;
// UDP, shim and INT's header, in bytes.
const bit<16> FIXED = 24;
// Words of a report whose length is given (255 is "to the end").
const bit<16> REPORT_WORDS_MAX = 254;

header word_t {
    bit<32> value;
}

header two_words_t {
    bit<64> value;
}

// What other hops pushed: 255 words less INT's header.
header int_stack_t {
    varbit<8064> words;
}

header report_group_t {
    bit<4>  version;
    bit<6>  hw_id;
    bit<22> sequence;
    bit<32> node;
}

// Says that the packet leaves without its UDP and INT headers; its copy, the report, has them still.
header without_int_t {
    bit<8> unused;
}

// An individual report with the main contents of type 1 (INT).
header report_t {
    bit<4>  type;
    bit<4>  inner_type;
    bit<8>  length;
    bit<8>  metadata_length;
    bit<1>  dropped;
    bit<1>  congested;
    bit<1>  tracked;
    bit<1>  intermediate;
    bit<4>  reserved;
    bit<16> metadata_bits;
    bit<16> domain;
    bit<16> domain_bits;
    bit<16> domain_status;
}

struct metadata_t {
    // Of what is in front of layer 4, and of that.
    bit<32> front;
    bit<16> length;
    bool    is_source;
    bit<16> instructions;
    bit<5>  hop_length;
    bit<8>  hops;
    bool    is_sink;
    bool    reports;
    bit<32> session;
    bit<32> mtu;
    bit<32> node;
}

// In the order of the wire: what this hop pushes is in front of what others did.
struct int_headers_t {
    int_shim_t  shim;
    int_md_t    md;
    word_t      node;
    word_t      ports;
    word_t      latency;
    word_t      queue;
    two_words_t ingress_time;
    two_words_t egress_time;
    two_words_t interfaces;
    word_t      utilization;
    word_t      buffer;
    word_t      complement;
    int_stack_t stack;
}

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         report_ipv4;
    udp_t          report_udp;
    report_group_t report_group;
    report_t       report;
    ipv4_t         ipv4;
    ipv6_t         ipv6;
    udp_t          udp;
    int_headers_t  telemetry;
    without_int_t  without_int;
    ports_t        layer_4;
}

#include <p4lib/v1model_ipv4.p4>

error {
    IntLength
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
        meta.front = 34;
        meta.length = hdr.ipv4.totalLen - 20;
        transition select(hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, 0, IP_PROTO_TCP): layer_4;
            (5, 0, 0, IP_PROTO_UDP): udp;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.front = 54;
        meta.length = hdr.ipv6.payloadLen;
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_TCP: layer_4;
            IP_PROTO_UDP: udp;
            default: accept;
        }
    }
    state udp {
        transition select(packet.lookahead<ports_t>().dstPort) {
            INT_PORT: any_int;
            default: layer_4;
        }
    }
    // INT of another type or version, or in another place, is a payload like others.
    state any_int {
        packet.extract(hdr.udp);
        int_shim_t shim = packet.lookahead<int_shim_t>();
        transition select(shim.type, shim.npt, packet.lookahead<bit<36>>()[3:0]) {
            (1, 2, 2): int_md;
            default: accept;
        }
    }
    state int_md {
        packet.extract(hdr.telemetry.shim);
        packet.extract(hdr.telemetry.md);
        bit<16> words = (bit<16>)hdr.telemetry.shim.length;
        verify(words >= 3 && words * 4 + 12 <= hdr.udp.length, error.IntLength);
        packet.extract(hdr.telemetry.stack, ((bit<32>)words - 3) * 32);
        transition accept;
    }
    state layer_4 {
        packet.extract(hdr.layer_4);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // When a flow was last reported, by hash.
    register<bit<48>>(65536) reported;

    action drop() {
        mark_to_drop(std);
        exit;
    }

    action to_port(bit<9> port) {
        std.egress_spec = port;
    }

    table forward {
        key = { hdr.ethernet.dstAddr: exact; }
        actions = { to_port; drop; }
        default_action = drop();
        size = 65536;
    }

    // Ports of hosts.
    table edge_in {
        key = { std.ingress_port: exact @name("port"); }
        actions = { NoAction; }
        default_action = NoAction();
        size = 512;
    }

    action sink(bit<32> session, bit<48> interval) {
        meta.is_sink = true;
        bit<32> cell;
        bit<48> last;
        hash(cell, HashAlgorithm.crc16, 32w0, { hdr.ipv4.srcAddr, hdr.ipv4.dstAddr, hdr.ipv6.srcAddr, hdr.ipv6.dstAddr,
                                                hdr.udp.srcPort, hdr.layer_4.srcPort, hdr.layer_4.dstPort }, 32w65536);
        reported.read(last, cell);
        meta.reports = last == 0 || std.ingress_global_timestamp - last >= interval;
        if (meta.reports) {
            meta.session = session;
            reported.write(cell, std.ingress_global_timestamp |+| 1);
        }
    }

    table edge_out {
        key = { std.egress_spec: exact @name("port"); }
        actions = { sink; NoAction; }
        default_action = NoAction();
        size = 512;
    }

    // `hop_length` is the number of words that the instructions ask for.
    action source(bit<16> instructions, bit<5> hop_length, bit<8> hops) {
        meta.is_source = true;
        meta.instructions = instructions;
        meta.hop_length = hop_length;
        meta.hops = hops;
    }

    table watched_v4 {
        key = {
            hdr.ipv4.srcAddr: ternary;
            hdr.ipv4.dstAddr: ternary;
            hdr.ipv4.protocol: ternary;
            hdr.layer_4.srcPort: ternary;
            hdr.layer_4.dstPort: ternary;
        }
        actions = { source; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    table watched_v6 {
        key = {
            hdr.ipv6.srcAddr: ternary;
            hdr.ipv6.dstAddr: ternary;
            hdr.ipv6.nextHdr: ternary;
            hdr.layer_4.srcPort: ternary;
            hdr.layer_4.dstPort: ternary;
        }
        actions = { source; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    apply {
        if (std.parser_error != error.NoError || std.checksum_error == 1) {
            drop();
        }
        if (hdr.telemetry.md.isValid() && hdr.udp.length != meta.length) {
            drop();
        }
        // What INT is put into or taken from is all there.
        if ((hdr.telemetry.md.isValid() || hdr.layer_4.isValid()) && meta.front + (bit<32>)meta.length > std.packet_length) {
            drop();
        }
        forward.apply();
        bool from_edge = edge_in.apply().hit;
        if (hdr.telemetry.md.isValid()) {
            if (from_edge) {
                drop();
            }
            edge_out.apply();
        } else if (from_edge && hdr.layer_4.isValid()) {
            if (hdr.ipv4.isValid()) {
                watched_v4.apply();
            } else {
                watched_v6.apply();
            }
            if (meta.is_source) {
                edge_out.apply();
            }
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // Reports sent, by the collector's port: each counts its own to see what is lost.
    register<bit<32>>(1024) reports;

    action mtu(bit<32> bytes) {
        meta.mtu = bytes;
    }

    // The longest frame of a port.
    table port {
        key = { std.egress_port: exact @name("port"); }
        actions = { mtu; }
        default_action = mtu(1514);
        size = 512;
    }

    // IP's payload gets longer, and is of this protocol.
    action resize(bit<8> protocol, bit<16> bytes) {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.protocol = protocol;
            hdr.ipv4.totalLen = hdr.ipv4.totalLen + bytes;
        } else {
            hdr.ipv6.nextHdr = protocol;
            hdr.ipv6.payloadLen = hdr.ipv6.payloadLen + bytes;
        }
    }

    action begin() {
        bit<8> protocol = hdr.ipv4.isValid() ? hdr.ipv4.protocol : hdr.ipv6.nextHdr;
        hdr.udp = { 0, INT_PORT, meta.length + FIXED, 0 };
        hash(hdr.udp.srcPort, HashAlgorithm.crc16, 16w49152, { hdr.ipv4.srcAddr, hdr.ipv4.dstAddr, hdr.ipv6.srcAddr,
             hdr.ipv6.dstAddr, protocol, hdr.layer_4.srcPort, hdr.layer_4.dstPort }, 16w16384);
        hdr.telemetry.shim = { 1, 2, 0, 3, 8w0 ++ protocol };
        hdr.telemetry.md = { 2, 0, 0, 0, 0, meta.hop_length, meta.hops, meta.instructions, 0, 0, 0 };
        resize(IP_PROTO_UDP, FIXED);
    }

    // In the order of the bits. What this hop does not know is all ones.
    action push(bit<16> bits, bit<5> words) {
        if (bits[15:15] == 1) { hdr.telemetry.node = { meta.node }; }
        if (bits[14:14] == 1) { hdr.telemetry.ports = { 7w0 ++ std.ingress_port ++ 7w0 ++ std.egress_port }; }
        bit<48> latency = std.egress_global_timestamp - std.ingress_global_timestamp;
        if (bits[13:13] == 1) { hdr.telemetry.latency = { latency[31:0] }; }
        if (bits[12:12] == 1) { hdr.telemetry.queue = { 5w0 ++ std.priority ++ 5w0 ++ std.deq_qdepth }; }
        if (bits[11:11] == 1) { hdr.telemetry.ingress_time = { (bit<64>)std.ingress_global_timestamp }; }
        if (bits[10:10] == 1) { hdr.telemetry.egress_time = { (bit<64>)std.egress_global_timestamp }; }
        if (bits[9:9] == 1) { hdr.telemetry.interfaces = { 0xffffffffffffffff }; }
        if (bits[8:8] == 1) { hdr.telemetry.utilization = { 0xffffffff }; }
        if (bits[7:7] == 1) { hdr.telemetry.buffer = { 0xffffffff }; }
        if (bits[0:0] == 1) { hdr.telemetry.complement = { 0xffffffff }; }
        hdr.telemetry.md.remainingHops = hdr.telemetry.md.remainingHops - 1;
        hdr.telemetry.shim.length = hdr.telemetry.shim.length + (bit<8>)words;
        hdr.udp.length = hdr.udp.length + (bit<16>)words * 4;
        resize(IP_PROTO_UDP, (bit<16>)words * 4);
    }

    action identity(bit<32> id) {
        meta.node = id;
    }

    // The default action says who this hop is; without one it pushes nothing.
    table hop {
        actions = { identity; NoAction; }
        default_action = NoAction();
    }

    action report(bit<48> srcAddr, bit<48> dstAddr, bit<32> own, bit<32> collector, bit<16> udp_port) {
        // The packet as it was with INT, as far as five words behind it.
        bit<16> int_words = (bit<16>)hdr.telemetry.shim.length + 3;
        resize(IP_PROTO_UDP, int_words * 4);
        bit<16> in_packet = (hdr.ipv4.isValid() ? hdr.ipv4.totalLen : hdr.ipv6.payloadLen + 40) >> 2;
        bit<16> words = (hdr.ipv4.isValid() ? 16w5 : 10) + int_words + 5;
        words = words < in_packet ? words : in_packet;
        words = words < REPORT_WORDS_MAX - 2 ? words : REPORT_WORDS_MAX - 2;
        bit<32> sequence;
        reports.read(sequence, (bit<32>)std.egress_port);
        reports.write((bit<32>)std.egress_port, sequence + 1);
        hdr.report = { 1, hdr.ipv4.isValid() ? 4w4 : 5, (bit<8>)words + 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0 };
        hdr.report_group = { 2, 0, sequence[21:0], meta.node };
        hdr.report_udp = { INT_PORT, udp_port, words * 4 + 28, 0 };
        hdr.report_ipv4 = { 4, 5, 0, words * 4 + 48, 0, 2, 0, 64, IP_PROTO_UDP, 0, own, collector };
        hdr.ethernet = { dstAddr, srcAddr, ETHERTYPE_IPV4 };
        truncate((bit<32>)words * 4 + 62);
    }

    table collector {
        key = { std.egress_port: exact @name("port"); }
        actions = { report; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    apply {
        hop.apply();
        if (std.instance_type == EGRESS_CLONE) {
            hdr.without_int.setInvalid();
            if (!collector.apply().hit) {
                mark_to_drop(std);
            }
            exit;
        }
        port.apply();
        bit<32> frame = std.packet_length;
        if (meta.is_source && frame + (bit<32>)FIXED <= meta.mtu) {
            begin();
            frame = frame + (bit<32>)FIXED;
        }
        if (hdr.telemetry.md.isValid()) {
            bit<16> bits = hdr.telemetry.md.instructions;
            bit<5> words = (bit<5>)bits[15:15] + (bit<5>)bits[14:14] + (bit<5>)bits[13:13] + (bit<5>)bits[12:12]
                + (bit<5>)(bits[11:11] ++ 1w0) + (bit<5>)(bits[10:10] ++ 1w0) + (bit<5>)(bits[9:9] ++ 1w0)
                + (bit<5>)bits[8:8] + (bit<5>)bits[7:7] + (bit<5>)bits[0:0];
            if (hdr.telemetry.md.remainingHops == 0) {
                hdr.telemetry.md.exceeded = 1;
            } else if (meta.node != 0 && bits[6:1] == 0 && words == hdr.telemetry.md.hopLength
                       && hdr.telemetry.shim.length <= 255 - (bit<8>)words) {
                if (frame + (bit<32>)words * 4 > meta.mtu) {
                    hdr.telemetry.md.mtuExceeded = 1;
                } else {
                    push(bits, words);
                }
            }
            if (meta.is_sink) {
                if (meta.reports) {
                    clone(CloneType.E2E, meta.session);
                }
                if (hdr.telemetry.md.discard == 1) {
                    mark_to_drop(std);
                }
                hdr.without_int.setValid();
                resize(hdr.telemetry.shim.next[7:0], -(((bit<16>)hdr.telemetry.shim.length + 3) * 4));
            }
        }
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_ipv4_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, hdr.ipv4);
        update_ipv4_checksum(hdr.report_ipv4.isValid(), hdr.report_ipv4);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report_udp);
        packet.emit(hdr.report_group);
        packet.emit(hdr.report);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        if (!hdr.without_int.isValid()) {
            packet.emit(hdr.udp);
            packet.emit(hdr.telemetry);
        }
        packet.emit(hdr.layer_4);
    }
}

V1Switch(MyParser(), VerifyIpv4Checksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
