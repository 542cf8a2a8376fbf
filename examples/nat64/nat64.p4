// Stateful NAT64 (RFC 6146): hosts that have only IPv6 reach IPv4 hosts at 64:ff9b::/96 (RFC 6052), without a controller.
//
// `pools` gives the hosts of an IPv6 prefix an IPv4 address and a block of ports. `mappings` and `owners` are the binding
// information base, by IPv6 and by IPv4 address and port; the first packet from IPv6 writes both. Mapping and filtering are
// endpoint-independent. Sessions are not kept, other than in RFC 6146, section 3.5: a mapping has the timers of section 4 itself,
// and packets from IPv6 begin them anew; what comes from IPv6 after RST takes that back (section 3.5.2.2). Entries of `owners` end
// ten seconds after their mapping, as in nat44.
//
// Inside the program every packet has IPv6 addresses: those of IPv4 are in the prefix. A source from IPv6 becomes one in the
// prefix, a destination of the pools becomes its owner's, and what then goes to the prefix leaves as IPv4. So a packet that gets
// both is hairpinned (RFC 6146, section 3.8). Headers and ICMP are translated as RFC 7915 says, errors with what they quote, MTU
// and pointer. Checksums are changed (RFC 1624); only UDP over IPv4 without one gets one (RFC 7915, section 4.5). The first
// fragment leaves its addresses to the later ones; one that comes before it is dropped. Fragments of ICMP, IPv4 options, IPv6
// extension headers but that of fragments, other protocols, IPv4 headers with a wrong checksum, and addresses of IPv4 that are not
// global (RFC 6052, section 3.1) are dropped.
//
// Links are taken to carry 1500 bytes. Nothing is fragmented here: who sends IPv4 that would be longer as IPv6 gets an ICMP error
// with the MTU (RFC 7915, section 4), also if the packet may be fragmented. No other error is sent: what has no hop left, and what
// is too big and has no answer (later fragments, errors), is dropped and counted in `unanswered`.

#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
#include <p4lib/headers.p4>
#include <p4lib/checksum.p4>

// 64:ff9b::
const bit<96> PREFIX = 96w0x0064ff9b << 64;
const bit<32> BLOCKS = 65536;
// Ports that are tried for one packet, all over the block.
const bit<16> PROBES = 8;
const bit<16> MTU = 1500;

// Cells of `unanswered`.
const bit<32> NO_HOP_LEFT = 0;
const bit<32> TOO_BIG = 1;

// Of mappings, by the number of their expire time.
const bit<8> UDP = 0;
const bit<8> ECHO = 1;
const bit<8> TCP_TRANSITORY = 2;
const bit<8> TCP_ESTABLISHED = 3;
const bit<8> TCP_CLOSING = 4;
const bit<8> TCP_RESET = 5;

// TCP and UDP behind their ports.
header tcp_rest_t {
    bit<64> seqAck;
    bit<8>  dataOffset;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
}

header udp_rest_t {
    bit<16> length;
    bit<16> checksum;
}

struct headers_t {
    ethernet_t      ethernet;
    ipv4_t          ipv4;
    ipv6_t          ipv6;
    ipv6_fragment_t fragment;
    ports_t         ports;
    tcp_rest_t      tcp;
    udp_rest_t      udp;
    icmp_t          icmp;
    ipv4_t          quoted_ipv4;
    ipv6_t          quoted_ipv6;
    // Eight bytes are quoted at least, so of TCP no checksum.
    ports_t         quoted_ports;
    udp_rest_t      quoted_udp;
    icmp_t          quoted_icmp;
}

struct end_t {
    bit<128> address;
    bit<16>  port;
}

struct metadata_t {
    // IPv4's number for ICMP.
    bit<8>   protocol;
    bit<128> src;
    bit<128> dst;
    // Where the packet comes from and goes to; of an error what it quotes, which went the other way. Echoes have one port, the id.
    end_t    from;
    end_t    to;
    bool     is_complete;
    bool     is_error;
    // Fragments: all of them, and those behind the first.
    bool     is_fragment;
    bool     is_later;
    bit<32>  fragment_id;
    // The two sides of a mapping.
    end_t    inside;
    end_t    outside;
    bit<8>   state;
    bool     goes_out;
    bool     comes_in;
    // What the tables said.
    bool     is_mapped;
    bool     is_owned;
    bit<16>  first;
    bit<16>  ports;
    bit<32>  cell;
    bit<32>  pointer;
    bool     computes_udp;
}

// The parameters of the actions of these names.
struct mapping_t { bit<32> address; bit<16> port; bit<8> state; }
struct first_t { bit<128> src; bit<128> dst; }

#include <p4lib/v1model_ipv4.p4>

// Neither this network (RFC 1122), private (RFC 1918), shared (RFC 6598), loopback, link-local, multicast nor reserved.
bool is_global(in bit<32> a) {
    // Without branches.
    bit<1> is_special = (bit<1>)(a[31:24] == 0) | (bit<1>)(a[31:24] == 10) | (bit<1>)(a[31:20] == 0xac1)
        | (bit<1>)(a[31:16] == 0xc0a8) | (bit<1>)(a[31:22] == 0x191) | (bit<1>)(a[31:24] == 127)
        | (bit<1>)(a[31:16] == 0xa9fe) | (bit<1>)(a[31:28] >= 14);
    return is_special == 0;
}

// RFC 7915, section 4.1, but for the addresses.
void make_ipv6(inout ipv4_t ipv4, inout ipv6_t ipv6) {
    ipv6.setValid();
    ipv6.version = 6;
    ipv6.trafficClass = ipv4.diffserv;
    ipv6.flowLabel = 0;
    ipv6.payloadLen = ipv4.totalLen - 20;
    ipv6.nextHdr = ipv4.protocol == IP_PROTO_ICMP ? IP_PROTO_ICMPV6 : ipv4.protocol;
    ipv6.hopLimit = ipv4.ttl;
    ipv4.setInvalid();
}

// Section 5.1, but for the addresses, the checksum, and what is for fragments.
void make_ipv4(inout ipv6_t ipv6, inout ipv4_t ipv4, in bit<8> protocol) {
    ipv4.setValid();
    ipv4.version = 4;
    ipv4.ihl = 5;
    ipv4.diffserv = ipv6.trafficClass;
    ipv4.totalLen = ipv6.payloadLen + 20;
    ipv4.flags = ipv6.payloadLen > 1240 ? 3w2 : 3w0;
    ipv4.ttl = ipv6.hopLimit;
    ipv4.protocol = protocol;
    ipv6.setInvalid();
}

// The words of the IP header.
bit<32> ip_words(in ipv4_t ipv4, in ipv6_t ipv6) {
    bit<32> words = 0;
    if (ipv4.isValid()) {
        // With its checksum.
        words = (bit<32>)(~ipv4_checksum(ipv4)) + (bit<32>)ipv4.hdrChecksum;
    } else if (ipv6.isValid()) {
        words = checksum_words32(ipv6.version ++ ipv6.trafficClass ++ ipv6.flowLabel) + (bit<32>)ipv6.payloadLen
            + (bit<32>)(ipv6.nextHdr ++ ipv6.hopLimit) + checksum_words128(ipv6.srcAddr) + checksum_words128(ipv6.dstAddr);
    }
    return words;
}

// The words of the pseudo-header, without what no translation changes. ICMP for IPv4 has none. `extension` is the length of
// the extension header.
bit<32> pseudo_words(in ipv4_t ipv4, in ipv6_t ipv6, in bit<16> extension, in bool is_icmp) {
    bit<32> words = 0;
    if (ipv6.isValid()) {
        words = checksum_words128(ipv6.srcAddr) + checksum_words128(ipv6.dstAddr);
        if (is_icmp) {
            words = words + (bit<32>)(ipv6.payloadLen - extension) + (bit<32>)IP_PROTO_ICMPV6;
        }
    } else if (ipv4.isValid() && !is_icmp) {
        words = checksum_words32(ipv4.srcAddr) + checksum_words32(ipv4.dstAddr);
    }
    return words;
}

bit<32> icmp_words(in icmp_t icmp) {
    return (bit<32>)(icmp.type ++ icmp.code) + checksum_words32(icmp.id ++ icmp.seq);
}

// What the change from one sum to another adds.
bit<32> difference(in bit<32> before, in bit<32> after) {
    return (bit<32>)checksum_of(before) + after;
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
        meta.protocol = hdr.ipv4.protocol;
        meta.src = PREFIX ++ hdr.ipv4.srcAddr;
        meta.dst = PREFIX ++ hdr.ipv4.dstAddr;
        meta.is_later = hdr.ipv4.fragOffset != 0;
        meta.is_fragment = meta.is_later || hdr.ipv4.flags[0:0] == 1;
        meta.fragment_id = (bit<32>)hdr.ipv4.identification;
        transition select(hdr.ipv4.ihl) {
            5: transport;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.protocol = hdr.ipv6.nextHdr == IP_PROTO_ICMPV6 ? IP_PROTO_ICMP : hdr.ipv6.nextHdr;
        meta.src = hdr.ipv6.srcAddr;
        meta.dst = hdr.ipv6.dstAddr;
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_FRAGMENT: fragment;
            IP_PROTO_ICMP: accept;
            default: transport;
        }
    }
    state fragment {
        packet.extract(hdr.fragment);
        meta.protocol = hdr.fragment.nextHdr == IP_PROTO_ICMPV6 ? IP_PROTO_ICMP : hdr.fragment.nextHdr;
        meta.is_later = hdr.fragment.fragOffset != 0;
        meta.is_fragment = meta.is_later || hdr.fragment.more == 1;
        meta.fragment_id = hdr.fragment.identification;
        transition select(hdr.fragment.nextHdr) {
            IP_PROTO_ICMP: accept;
            default: transport;
        }
    }
    state transport {
        meta.from = { meta.src, 0 };
        meta.to = { meta.dst, 0 };
        transition select(meta.is_later, meta.protocol) {
            (true, IP_PROTO_TCP): later;
            (true, IP_PROTO_UDP): later;
            (false, IP_PROTO_TCP): ports;
            (false, IP_PROTO_UDP): ports;
            (false, IP_PROTO_ICMP): icmp;
            default: accept;
        }
    }
    state later {
        meta.is_complete = true;
        transition accept;
    }
    state ports {
        packet.extract(hdr.ports);
        meta.from.port = hdr.ports.srcPort;
        meta.to.port = hdr.ports.dstPort;
        meta.is_complete = true;
        transition select(meta.protocol) {
            IP_PROTO_TCP: tcp;
            default: udp;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        meta.state = TCP_TRANSITORY;
        transition accept;
    }
    state udp {
        packet.extract(hdr.udp);
        meta.state = UDP;
        transition accept;
    }
    state icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.ipv4.isValid(), meta.is_fragment, hdr.icmp.type) {
            (true, false, ICMP_ECHO_REQUEST): echo;
            (true, false, ICMP_ECHO_REPLY): echo;
            (true, false, ICMP_UNREACHABLE): quoted_ipv4;
            (true, false, ICMP_TIME_EXCEEDED): quoted_ipv4;
            (true, false, ICMP_PARAMETER_PROBLEM): quoted_ipv4;
            (false, false, ICMPV6_ECHO_REQUEST): echo;
            (false, false, ICMPV6_ECHO_REPLY): echo;
            (false, false, ICMPV6_UNREACHABLE .. ICMPV6_PARAMETER_PROBLEM): quoted_ipv6;
            default: accept;
        }
    }
    state echo {
        meta.from.port = hdr.icmp.id;
        meta.to.port = hdr.icmp.id;
        meta.is_complete = true;
        meta.state = ECHO;
        transition accept;
    }
    state quoted_ipv4 {
        packet.extract(hdr.quoted_ipv4);
        meta.protocol = hdr.quoted_ipv4.protocol;
        meta.from.address = PREFIX ++ hdr.quoted_ipv4.dstAddr;
        meta.to.address = PREFIX ++ hdr.quoted_ipv4.srcAddr;
        transition select(hdr.quoted_ipv4.ihl, hdr.quoted_ipv4.flags[0:0], hdr.quoted_ipv4.fragOffset) {
            (5, 0, 0): quoted;
            default: accept;
        }
    }
    state quoted_ipv6 {
        packet.extract(hdr.quoted_ipv6);
        meta.protocol = hdr.quoted_ipv6.nextHdr == IP_PROTO_ICMPV6 ? IP_PROTO_ICMP : hdr.quoted_ipv6.nextHdr;
        meta.from.address = hdr.quoted_ipv6.dstAddr;
        meta.to.address = hdr.quoted_ipv6.srcAddr;
        transition quoted;
    }
    state quoted {
        meta.is_error = true;
        transition select(meta.protocol) {
            IP_PROTO_ICMP: quoted_icmp;
            IP_PROTO_TCP: quoted_ports;
            IP_PROTO_UDP: quoted_ports;
            default: accept;
        }
    }
    state quoted_ports {
        packet.extract(hdr.quoted_ports);
        meta.from.port = hdr.quoted_ports.dstPort;
        meta.to.port = hdr.quoted_ports.srcPort;
        meta.is_complete = true;
        transition select(meta.protocol) {
            IP_PROTO_UDP: quoted_udp;
            default: accept;
        }
    }
    state quoted_udp {
        packet.extract(hdr.quoted_udp);
        transition accept;
    }
    state quoted_icmp {
        packet.extract(hdr.quoted_icmp);
        meta.from.port = hdr.quoted_icmp.id;
        meta.to.port = hdr.quoted_icmp.id;
        meta.is_complete = hdr.quoted_icmp.type == (hdr.quoted_ipv4.isValid() ? ICMP_ECHO_REQUEST : ICMPV6_ECHO_REQUEST)
            || hdr.quoted_icmp.type == (hdr.quoted_ipv4.isValid() ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<16>>(BLOCKS) next_port;
    // By the lower bits of the destination: identifiers of IPv4 packets that may be fragmented.
    register<bit<16>>(4096) next_id;

    counter(2, CounterType.packets) unanswered;

    action drop() {
        mark_to_drop(std);
        exit;
    }

    action drop_unanswered(bit<32> reason) {
        unanswered.count(reason);
        drop();
    }

    // All hosts of the prefix share the ports.
    action pool(bit<32> outside, bit<16> first, bit<16> ports, bit<32> cell) {
        meta.outside.address = PREFIX ++ outside;
        meta.first = first;
        meta.ports = (bit<32>)first + (bit<32>)ports <= 65536 ? ports : 0;
        meta.cell = cell;
    }

    table pools {
        key = { meta.inside.address: lpm; }
        actions = { pool; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // Who comes in learns whose the port is; who goes out, whether it is his.
    action owner(bit<128> address, bit<16> port) {
        if (meta.comes_in) {
            meta.is_owned = true;
            meta.inside = { address, port };
            if (hdr.tcp.flags & TCP_RST != 0) {
                set_entry_expire_time(TCP_RESET);
            }
        } else if (address == meta.inside.address && port == meta.inside.port) {
            meta.is_owned = true;
            set_entry_expire_time(meta.state);
        }
    }

    action free() {
        if (!meta.comes_in) {
            meta.is_owned = add_entry("owner", meta.inside, meta.state) == ADD_ENTRY_SUCCESS;
        }
    }

    @expire_time_ms(310000, 70000, 250000, 7450000, 250000, 250000)
    table owners {
        key = {
            meta.protocol: exact;
            meta.outside.address[31:0]: exact @name("outside");
            meta.outside.port: exact;
        }
        actions = { owner; @defaultonly free; }
        const default_action = free();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 1048576;
    }

    action mapping(bit<32> address, bit<16> port, bit<8> state) {
        meta.is_mapped = true;
        meta.outside = { PREFIX ++ address, port };
        if (!meta.is_error) {
            meta.state = state;
            if (hdr.tcp.flags & TCP_RST != 0) {
                meta.state = state == TCP_ESTABLISHED ? TCP_RESET : state;
            } else if (hdr.tcp.flags & TCP_FIN != 0) {
                meta.state = TCP_CLOSING;
            } else if (hdr.tcp.flags & TCP_SYN != 0) {
                meta.state = state == TCP_ESTABLISHED ? state : TCP_TRANSITORY;
            } else if (state == TCP_TRANSITORY || state == TCP_RESET) {
                meta.state = TCP_ESTABLISHED;
            }
            if (meta.state != state) {
                replace_entry("mapping", (mapping_t){ address, port, meta.state }, meta.state);
            } else if (!meta.comes_in) {
                restart_expire_timer();
            }
        }
    }

    action unmapped() {
        if (meta.is_owned && !meta.comes_in) {
            mapping_t values = { meta.outside.address[31:0], meta.outside.port, meta.state };
            meta.is_mapped = add_entry("mapping", values, meta.state) == ADD_ENTRY_SUCCESS;
        }
    }

    // UDP_DEFAULT, ICMP_DEFAULT, TCP_TRANS, TCP_EST, and TCP_TRANS again.
    @expire_time_ms(300000, 60000, 240000, 7440000, 240000, 240000)
    table mappings {
        key = {
            meta.protocol: exact;
            meta.inside.address: exact;
            meta.inside.port: exact;
        }
        actions = { mapping; @defaultonly unmapped; }
        const default_action = unmapped();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 1048576;
    }

    action first(bit<128> src, bit<128> dst) {
        if (!meta.is_later) {
            replace_entry("first", (first_t){ meta.from.address, meta.to.address }, 0);
        } else {
            meta.from.address = src;
            meta.to.address = dst;
        }
    }

    action no_first() {
        if (!meta.is_later) {
            add_entry("first", (first_t){ meta.from.address, meta.to.address }, 0);
        }
    }

    @expire_time_ms(15000)
    @evict_oldest
    table fragments {
        key = {
            meta.src: exact;
            meta.dst: exact;
            meta.protocol: exact;
            meta.fragment_id: exact;
        }
        actions = { first; @defaultonly no_first; }
        const default_action = no_first();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 65536;
    }

    // The IPv4 addresses of the pools.
    table addresses {
        key = { meta.to.address[31:0]: lpm @name("address"); }
        actions = { NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    action forward(bit<9> port, bit<48> srcMac, bit<48> dstMac) {
        std.egress_spec = port;
        hdr.ethernet.srcAddr = srcMac;
        hdr.ethernet.dstAddr = dstMac;
    }

    // IPv4 addresses are those of the prefix.
    table routes {
        key = { meta.dst: lpm; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }

    action becomes(bit<8> type, bit<8> code, bit<16> rest) {
        hdr.icmp.type = type;
        hdr.icmp.code = code;
        hdr.icmp.id = 0;
        hdr.icmp.seq = rest;
    }

    // RFC 7915, sections 4.2 and 5.2: what errors become in the other version. Marks of extensions (RFC 4884) are lost.
    table errors {
        key = {
            hdr.ipv4.isValid(): exact @name("is_ipv4");
            hdr.icmp.type: exact;
            hdr.icmp.code: range;
        }
        actions = { becomes; drop; }
        const default_action = drop();
        const entries = {
            (true, ICMP_UNREACHABLE, 2): becomes(ICMPV6_PARAMETER_PROBLEM, 1, 6);
            (true, ICMP_UNREACHABLE, 3): becomes(ICMPV6_UNREACHABLE, 4, 0);
            (true, ICMP_UNREACHABLE, 4): becomes(ICMPV6_PACKET_TOO_BIG, 0, 0);
            (true, ICMP_UNREACHABLE, 9 .. 10): becomes(ICMPV6_UNREACHABLE, 1, 0);
            (true, ICMP_UNREACHABLE, 13): becomes(ICMPV6_UNREACHABLE, 1, 0);
            (true, ICMP_UNREACHABLE, 15): becomes(ICMPV6_UNREACHABLE, 1, 0);
            (true, ICMP_UNREACHABLE, 0 .. 12): becomes(ICMPV6_UNREACHABLE, 0, 0);
            (true, ICMP_TIME_EXCEEDED, 0): becomes(ICMPV6_TIME_EXCEEDED, 0, 0);
            (true, ICMP_TIME_EXCEEDED, 1): becomes(ICMPV6_TIME_EXCEEDED, 1, 0);
            (true, ICMP_PARAMETER_PROBLEM, 0): becomes(ICMPV6_PARAMETER_PROBLEM, 0, 0);
            (true, ICMP_PARAMETER_PROBLEM, 2): becomes(ICMPV6_PARAMETER_PROBLEM, 0, 0);
            (false, ICMPV6_UNREACHABLE, 1): becomes(ICMP_UNREACHABLE, 10, 0);
            (false, ICMPV6_UNREACHABLE, 4): becomes(ICMP_UNREACHABLE, 3, 0);
            (false, ICMPV6_UNREACHABLE, 0 .. 3): becomes(ICMP_UNREACHABLE, 1, 0);
            (false, ICMPV6_PACKET_TOO_BIG, _): becomes(ICMP_UNREACHABLE, 4, 0);
            (false, ICMPV6_TIME_EXCEEDED, 0): becomes(ICMP_TIME_EXCEEDED, 0, 0);
            (false, ICMPV6_TIME_EXCEEDED, 1): becomes(ICMP_TIME_EXCEEDED, 1, 0);
            (false, ICMPV6_PARAMETER_PROBLEM, 0): becomes(ICMP_PARAMETER_PROBLEM, 0, 0);
            (false, ICMPV6_PARAMETER_PROBLEM, 1): becomes(ICMP_UNREACHABLE, 2, 0);
        }
    }

    // To the neighbour who has sent the packet, of which 28 bytes are quoted.
    action answer_too_big(bit<16> mtu) {
        bit<64> front = hdr.ports.srcPort ++ hdr.ports.dstPort
            ++ (hdr.tcp.isValid() ? hdr.tcp.seqAck[63:32] : hdr.udp.length ++ hdr.udp.checksum);
        hdr.quoted_ipv4 = hdr.ipv4;
        hdr.quoted_icmp = hdr.icmp;
        if (!hdr.icmp.isValid()) {
            hdr.quoted_icmp = { front[63:56], front[55:48], front[47:32], front[31:16], front[15:0] };
        }
        hdr.ports.setInvalid();
        hdr.tcp.setInvalid();
        hdr.udp.setInvalid();
        hdr.ipv4 = { 4, 5, 0, 56, 0, 2, 0, 64, IP_PROTO_ICMP, 0, hdr.quoted_ipv4.dstAddr, hdr.quoted_ipv4.srcAddr };
        hdr.ipv4.hdrChecksum = ipv4_checksum(hdr.ipv4);
        hdr.icmp = { ICMP_UNREACHABLE, 4, 0, 0, mtu };
        hdr.icmp.checksum = checksum_of(icmp_words(hdr.icmp) + ip_words(hdr.quoted_ipv4, hdr.quoted_ipv6)
            + icmp_words(hdr.quoted_icmp) + (bit<32>)hdr.quoted_icmp.checksum);
        forward(std.ingress_port, hdr.ethernet.dstAddr, hdr.ethernet.srcAddr);
        truncate(70);
        exit;
    }

    action points_to(bit<8> at) {
        hdr.icmp.id = hdr.ipv4.isValid() ? 0 : at ++ 8w0;
        hdr.icmp.seq = hdr.ipv4.isValid() ? (bit<16>)at : 0;
    }

    // Figures 3 and 6 there: the fields that parameter problems are about.
    table pointers {
        key = {
            hdr.ipv4.isValid(): exact @name("is_ipv4");
            meta.pointer: range;
        }
        actions = { points_to; drop; }
        const default_action = drop();
        const entries = {
            (true, 0): points_to(0);
            (true, 1): points_to(1);
            (true, 2 .. 3): points_to(4);
            (true, 8): points_to(7);
            (true, 9): points_to(6);
            (true, 12 .. 15): points_to(8);
            (true, 16 .. 19): points_to(24);
            (false, 0): points_to(0);
            (false, 1): points_to(1);
            (false, 4 .. 5): points_to(2);
            (false, 6): points_to(9);
            (false, 7): points_to(8);
            (false, 8 .. 23): points_to(12);
            (false, 24 .. 39): points_to(16);
        }
    }

    // Of routers that tell none, the next lower plateau (RFC 1191, section 7).
    action translate_mtu() {
        bit<16> length = hdr.quoted_ipv4.totalLen;
        if (hdr.ipv4.isValid()) {
            bit<16> mtu = meta.pointer[15:0];
            if (mtu == 0) {
                mtu = length > 1492 ? 16w1492 : length > 1006 ? 16w1006 : length > 508 ? 16w508 : length > 296 ? 16w296 : 16w68;
            }
            hdr.icmp.seq = mtu > MTU - 20 ? MTU : mtu + 20;
        } else {
            hdr.icmp.seq = meta.pointer > (bit<32>)MTU ? MTU - 20 : meta.pointer[15:0] |-| 20;
        }
    }

    action translate_echo(inout icmp_t icmp) {
        icmp.type = icmp.type == ICMP_ECHO_REQUEST ? ICMPV6_ECHO_REQUEST : icmp.type == ICMP_ECHO_REPLY ? ICMPV6_ECHO_REPLY
            : icmp.type == ICMPV6_ECHO_REQUEST ? ICMP_ECHO_REQUEST : ICMP_ECHO_REPLY;
    }

    action make_outer_ipv6() {
        if (meta.is_fragment) {
            hdr.fragment.setValid();
            hdr.fragment.nextHdr = hdr.ipv4.protocol;
            hdr.fragment.reserved = 0;
            hdr.fragment.fragOffset = hdr.ipv4.fragOffset;
            hdr.fragment.reserved2 = 0;
            hdr.fragment.more = hdr.ipv4.flags[0:0];
            hdr.fragment.identification = (bit<32>)hdr.ipv4.identification;
        }
        make_ipv6(hdr.ipv4, hdr.ipv6);
        if (meta.is_fragment) {
            hdr.ipv6.nextHdr = IP_PROTO_FRAGMENT;
            hdr.ipv6.payloadLen = hdr.ipv6.payloadLen + 8;
        }
        hdr.ethernet.etherType = ETHERTYPE_IPV6;
    }

    action make_outer_ipv4() {
        make_ipv4(hdr.ipv6, hdr.ipv4, hdr.icmp.isValid() ? IP_PROTO_ICMP : meta.protocol);
        if (hdr.fragment.isValid()) {
            hdr.ipv4.totalLen = hdr.ipv4.totalLen - 8;
            hdr.ipv4.identification = hdr.fragment.identification[15:0];
            hdr.ipv4.flags = 2w0 ++ hdr.fragment.more;
            hdr.ipv4.fragOffset = hdr.fragment.fragOffset;
            hdr.fragment.setInvalid();
        } else if (hdr.ipv4.flags == 0) {
            @atomic {
                next_id.read(hdr.ipv4.identification, (bit<32>)meta.dst[11:0]);
                next_id.write((bit<32>)meta.dst[11:0], hdr.ipv4.identification + 1);
            }
        }
        hdr.ethernet.etherType = ETHERTYPE_IPV4;
    }

    apply {
        bit<32> length = 0;
        bit<8> hops = 0;
        bool is_sound = false;
        if (hdr.ipv4.isValid()) {
            length = (bit<32>)hdr.ipv4.totalLen + 14;
            hops = hdr.ipv4.ttl;
            is_sound = std.checksum_error == 0 && is_global(hdr.ipv4.srcAddr)
                && hdr.ipv4.totalLen >= (meta.is_error ? 16w56 : 16w20);
        } else if (hdr.ipv6.isValid()) {
            length = (bit<32>)hdr.ipv6.payloadLen + 54;
            hops = hdr.ipv6.hopLimit;
            is_sound = hdr.ipv6.payloadLen >= (meta.is_error ? 16w56 : 16w8) && meta.src[127:32] != PREFIX
                && meta.dst[127:32] == PREFIX && is_global(meta.dst[31:0]);
        }
        if (std.parser_error != error.NoError || !meta.is_complete || !is_sound || length > std.packet_length) {
            drop();
        }
        if (hops <= 1) {
            drop_unanswered(NO_HOP_LEFT);
        }
        bit<16> mtu = MTU - (meta.is_fragment ? 16w28 : 20);
        if (hdr.ipv4.isValid() && hdr.ipv4.totalLen > mtu) {
            if (meta.is_error || meta.is_later || !addresses.apply().hit) {
                drop_unanswered(TOO_BIG);
            }
            answer_too_big(mtu);
        }
        // UDP over IPv6 has a checksum (RFC 8200, section 8.1). Of a fragment it cannot be computed.
        if (hdr.udp.isValid() && hdr.udp.checksum == 0) {
            meta.computes_udp = hdr.ipv4.isValid() && !meta.is_fragment && (bit<32>)hdr.udp.length + 34 == length;
            if (!meta.computes_udp) {
                drop();
            }
        }
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv6.hopLimit = hdr.ipv6.hopLimit - 1;

        if (meta.is_later) {
            if (!fragments.apply().hit) {
                drop();
            }
        } else {
            if (hdr.ipv6.isValid()) {
                meta.goes_out = true;
                meta.inside = meta.from;
                if (mappings.apply().hit) {
                    if (!meta.is_error) {
                        owners.apply();
                        meta.is_mapped = meta.is_owned;
                    }
                } else if (!meta.is_error && (!hdr.icmp.isValid() || hdr.icmp.type == ICMPV6_ECHO_REQUEST)) {
                    pools.apply();
                    if (meta.ports != 0) {
                        bit<16> n;
                        next_port.read(n, meta.cell);
                        n = n < meta.ports ? n : 0;
                        next_port.write(meta.cell, n + 1);
                        bit<16> step = meta.ports < PROBES ? 1 : meta.ports / PROBES;
                        for (bit<16> i = 0; i < PROBES && !meta.is_owned; i = i + 1) {
                            meta.outside.port = meta.first + n;
                            owners.apply();
                            n = n < meta.ports - step ? n + step : n - (meta.ports - step);
                        }
                        mappings.apply();
                    }
                }
                if (!meta.is_mapped) {
                    drop();
                }
                meta.from = meta.outside;
            }
            if (addresses.apply().hit) {
                meta.comes_in = true;
                meta.is_owned = false;
                meta.outside = meta.to;
                owners.apply();
                if (!meta.is_owned) {
                    drop();
                }
                meta.to = meta.inside;
                if (hdr.tcp.flags & TCP_RST != 0) {
                    mappings.apply();
                }
            } else if (hdr.ipv4.isValid()) {
                drop();
            }
            if (meta.is_fragment) {
                fragments.apply();
            }
        }

        bool is_icmp = hdr.icmp.isValid();
        bool is_quoted_icmp = hdr.quoted_icmp.isValid();
        bit<16> id = meta.comes_in ? meta.to.port : meta.from.port;
        bit<32> before = pseudo_words(hdr.ipv4, hdr.ipv6, hdr.fragment.isValid() ? 16w8 : 0, is_icmp) + icmp_words(hdr.icmp)
            + checksum_words32(hdr.ports.srcPort ++ hdr.ports.dstPort);
        bit<32> quoted_before = pseudo_words(hdr.quoted_ipv4, hdr.quoted_ipv6, 0, is_quoted_icmp) + icmp_words(hdr.quoted_icmp)
            + checksum_words32(hdr.quoted_ports.srcPort ++ hdr.quoted_ports.dstPort);
        before = before + ip_words(hdr.quoted_ipv4, hdr.quoted_ipv6) + icmp_words(hdr.quoted_icmp)
            + checksum_words32(hdr.quoted_ports.srcPort ++ hdr.quoted_ports.dstPort)
            + (bit<32>)hdr.quoted_udp.checksum + (bit<32>)hdr.quoted_icmp.checksum;

        bool to_ipv4 = meta.to.address[127:32] == PREFIX;
        if (is_icmp && to_ipv4 != hdr.ipv4.isValid()) {
            if (meta.is_error) {
                meta.pointer = hdr.ipv4.isValid() && hdr.icmp.type == ICMP_PARAMETER_PROBLEM
                    ? (bit<32>)hdr.icmp.id[15:8] : hdr.icmp.id ++ hdr.icmp.seq;
                errors.apply();
                if (hdr.icmp.type == (to_ipv4 ? ICMP_PARAMETER_PROBLEM : ICMPV6_PARAMETER_PROBLEM) && hdr.icmp.code == 0) {
                    pointers.apply();
                } else if (to_ipv4 ? hdr.icmp.type == ICMP_UNREACHABLE && hdr.icmp.code == 4
                                   : hdr.icmp.type == ICMPV6_PACKET_TOO_BIG) {
                    translate_mtu();
                }
                translate_echo(hdr.quoted_icmp);
            } else {
                translate_echo(hdr.icmp);
            }
        }

        // An error comes from where it came from, if that is IPv4, else from the address of the host that it is about.
        meta.src = meta.is_error && !meta.goes_out ? meta.src : meta.from.address;
        meta.dst = meta.is_error && !meta.comes_in ? meta.dst : meta.to.address;
        if (to_ipv4 && hdr.ipv6.isValid()) {
            make_outer_ipv4();
            if (meta.is_error) {
                hdr.ipv4.totalLen = hdr.ipv4.totalLen - 20;
                make_ipv4(hdr.quoted_ipv6, hdr.quoted_ipv4, meta.protocol);
            }
        } else if (!to_ipv4 && hdr.ipv4.isValid()) {
            make_outer_ipv6();
            if (meta.is_error) {
                hdr.ipv6.payloadLen = hdr.ipv6.payloadLen + 20;
                make_ipv6(hdr.quoted_ipv4, hdr.quoted_ipv6);
            }
        }
        hdr.ipv4.srcAddr = meta.src[31:0];
        hdr.ipv4.dstAddr = meta.dst[31:0];
        hdr.ipv4.hdrChecksum = ipv4_checksum(hdr.ipv4);
        hdr.ipv6.srcAddr = meta.src;
        hdr.ipv6.dstAddr = meta.dst;
        hdr.quoted_ipv4.srcAddr = meta.to.address[31:0];
        hdr.quoted_ipv4.dstAddr = meta.from.address[31:0];
        hdr.quoted_ipv4.hdrChecksum = ipv4_checksum(hdr.quoted_ipv4);
        hdr.quoted_ipv6.srcAddr = meta.to.address;
        hdr.quoted_ipv6.dstAddr = meta.from.address;
        hdr.ports.srcPort = meta.from.port;
        hdr.ports.dstPort = meta.to.port;
        hdr.icmp.id = meta.is_error ? hdr.icmp.id : id;
        hdr.quoted_ports.srcPort = meta.to.port;
        hdr.quoted_ports.dstPort = meta.from.port;
        hdr.quoted_icmp.id = id;

        bit<32> quoted_after = pseudo_words(hdr.quoted_ipv4, hdr.quoted_ipv6, 0, is_quoted_icmp) + icmp_words(hdr.quoted_icmp)
            + checksum_words32(hdr.quoted_ports.srcPort ++ hdr.quoted_ports.dstPort);
        bit<32> quoted_change = difference(quoted_before, quoted_after);
        hdr.quoted_udp.checksum = checksum_update_udp(hdr.quoted_udp.checksum, quoted_change);
        hdr.quoted_icmp.checksum = checksum_update(hdr.quoted_icmp.checksum, quoted_change);
        bit<32> after = pseudo_words(hdr.ipv4, hdr.ipv6, hdr.fragment.isValid() ? 16w8 : 0, is_icmp) + icmp_words(hdr.icmp)
            + checksum_words32(hdr.ports.srcPort ++ hdr.ports.dstPort);
        after = after + ip_words(hdr.quoted_ipv4, hdr.quoted_ipv6) + icmp_words(hdr.quoted_icmp)
            + checksum_words32(hdr.quoted_ports.srcPort ++ hdr.quoted_ports.dstPort)
            + (bit<32>)hdr.quoted_udp.checksum + (bit<32>)hdr.quoted_icmp.checksum;
        bit<32> change = difference(before, after);
        hdr.tcp.checksum = checksum_update(hdr.tcp.checksum, change);
        hdr.udp.checksum = checksum_update_udp(hdr.udp.checksum, change);
        hdr.icmp.checksum = checksum_update(hdr.icmp.checksum, change);
        routes.apply();
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(meta.computes_udp,
            { hdr.ipv6.srcAddr, hdr.ipv6.dstAddr, hdr.udp.length, 8w0, IP_PROTO_UDP, hdr.ports.srcPort, hdr.ports.dstPort,
              hdr.udp.length },
            hdr.udp.checksum, HashAlgorithm.csum16);
        if (meta.computes_udp && hdr.udp.checksum == 0) {
            hdr.udp.checksum = 0xffff;
        }
    }
}

V1Switch(MyParser(), VerifyIpv4Checksum(), MyIngress(), EmptyEgress(), MyComputeChecksum(), EmitHeaders()) main;
