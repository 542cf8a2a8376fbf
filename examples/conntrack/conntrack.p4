// A stateful firewall on connection tracking for IPv4 and IPv6, without a controller. Port 1 is inside, port 2 outside.
//
// Hosts inside open connections, hosts outside only answer. `connections` has an entry for each, which packets add, change and
// keep alive; one that is silent for as long as its state allows ends by itself. The state is also the number of the expire
// time. TCP goes from SYN_SENT through SYN_RECEIVED to ESTABLISHED, with FIN to FIN_WAIT and with RST to CLOSED; UDP and ICMP
// echoes are NEW until they are answered.
//
// TCP's sequence numbers are followed, as by van Rooij ("Real Stateful TCP Packet Filtering in IP Filter", 2000). Of both hosts the
// entry has the number behind the last byte that was sent, and the largest window that was announced, with its scale (RFC 7323).
// A segment passes if its bytes lie within the receiver's window of what its sender has sent so far, and what it acknowledges was
// sent and is not older than two windows (RFC 9293, section 3.10.7.4; RFC 5961, section 5.2). RST closes only with the very
// number that comes next (RFC 5961, section 3.2), and answers to a SYN have to acknowledge it, but not its data (RFC 7413).
//
// The entry changes with a sender's new bytes and with larger windows, not with acknowledgments alone. A change may be lost: it is
// refused, or another worker makes one at the same time. Of the numbers the entry is then behind what has passed, by a window at
// most. So acknowledgments may be ahead of it by a window (the hosts check them against what they sent themselves), and new bytes,
// or bytes that are sent again, bring the entry up to date. A segment whose change of state is refused is dropped, so that it
// comes again.
//
// An ICMP error from outside passes if what it quotes is part of a connection, of TCP within its window (RFC 5927, section 4.1);
// it does not keep the connection alive. Neighbor discovery and what is no IP pass; fragments, IPv4 options and IPv6 extension
// headers do not.

#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
#include <p4lib/headers.p4>

const bit<9> INSIDE = 1;
const bit<9> OUTSIDE = 2;

// States, by the number of their expire time in `@expire_time_ms`.
const bit<8> SYN_SENT = 0;
const bit<8> SYN_RECEIVED = 1;
const bit<8> ESTABLISHED = 2;
const bit<8> FIN_WAIT = 3;
const bit<8> CLOSED = 4;
const bit<8> NEW = 5;
const bit<8> REPLIED = 6;

// Of a SYN without the option.
const bit<8> NO_SCALE = 0xff;

header word_t {
    bit<32> word;
}

// What an error quotes of TCP (ports and sequence number), UDP (ports) or an echo (type, checksum, identifier).
header quoted_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> next;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    udp_t      udp;
    tcp_t      tcp;
    // Options of SYN.
    word_t[10] options;
    icmp_t     icmp;
    ipv4_t     quoted_ipv4;
    ipv6_t     quoted_ipv6;
    quoted_t   quoted;
}

// The parameters of `tracked`; `out` is of the host inside. In SYN_SENT `in_end` is the number of the SYN.
struct tracked_t {
    bit<8>  state;
    bit<32> out_end;
    bit<32> in_end;
    bit<32> out_window;
    bit<32> in_window;
    bit<8>  out_scale;
    bit<8>  in_scale;
}

struct metadata_t {
    // Of the packet or of what an error quotes; IPv4 addresses are the IPv6 addresses that stand for them, ::ffff:0:0/96.
    bit<128> src;
    bit<128> dst;
    bit<16>  src_port;
    bit<16>  dst_port;
    bit<8>   protocol;
    // The same from the connection's side.
    bit<128> inside;
    bit<128> outside;
    bit<16>  inside_port;
    bit<16>  outside_port;
    // Bytes behind the IP header, by that.
    bit<16>  payload;
    bit<4>   words;
    bool     is_complete;
    bool     is_error;
    bool     goes_out;
    // Of TCP: the number behind the segment, the window that it announces, and the scale if it is a SYN.
    bit<32>  end;
    bit<32>  window;
    bit<8>   scale;
    bool     passes;
}

#include <p4lib/v1model.p4>

// Whether a sequence number is not behind another.
bool at_most(in bit<32> a, in bit<32> b) {
    bit<32> distance = b - a;
    return distance[31:31] == 0;
}

bit<128> mapped(in bit<32> address) {
    return 80w0 ++ 16w0xffff ++ address;
}

// The window scale that a SYN's options have; more than 14 means 14 (RFC 7323, section 2.3).
bit<8> scale_option(in bit<320> options) {
    bit<320> rest = options;
    bit<8> scale = NO_SCALE;
    for (bit<8> i = 0; i < 40; i = i + 1) {
        if (rest[319:312] == 3 && rest[311:304] == 3) {
            scale = rest[303:296] > 14 ? 8w14 : rest[303:296];
            break;
        } else if (rest[319:312] == 1) {
            rest = rest << 8;
        } else if (rest[319:312] == 0 || rest[311:304] < 2) {
            break;
        } else {
            rest = rest << (rest[311:304] ++ 3w0);
        }
    }
    return scale;
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
        meta.src = mapped(hdr.ipv4.srcAddr);
        meta.dst = mapped(hdr.ipv4.dstAddr);
        meta.protocol = hdr.ipv4.protocol;
        meta.payload = hdr.ipv4.totalLen |-| 20;
        transition select(hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, 0, IP_PROTO_ICMP): icmp;
            (5, 0, 0, IP_PROTO_TCP): tcp;
            (5, 0, 0, IP_PROTO_UDP): udp;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.src = hdr.ipv6.srcAddr;
        meta.dst = hdr.ipv6.dstAddr;
        meta.protocol = hdr.ipv6.nextHdr;
        meta.payload = hdr.ipv6.payloadLen;
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_ICMPV6: icmp;
            IP_PROTO_TCP: tcp;
            IP_PROTO_UDP: udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.srcPort;
        meta.dst_port = hdr.udp.dstPort;
        meta.is_complete = true;
        transition accept;
    }
    state tcp {
        packet.extract(hdr.tcp);
        meta.src_port = hdr.tcp.srcPort;
        meta.dst_port = hdr.tcp.dstPort;
        meta.is_complete = hdr.tcp.dataOffset >= 5 && meta.payload >= (bit<16>)(hdr.tcp.dataOffset ++ 2w0);
        meta.words = hdr.tcp.dataOffset |-| 5;
        transition select(hdr.tcp.flags[1:1]) {
            1: option;
            default: accept;
        }
    }
    state option {
        transition select(meta.words) {
            0: accept;
            default: word;
        }
    }
    state word {
        packet.extract(hdr.options.next);
        meta.words = meta.words - 1;
        transition option;
    }
    state icmp {
        packet.extract(hdr.icmp);
        meta.src_port = hdr.icmp.id;
        meta.dst_port = hdr.icmp.id;
        transition select(meta.protocol, hdr.icmp.type) {
            (IP_PROTO_ICMP, ICMP_ECHO_REQUEST): echo;
            (IP_PROTO_ICMP, ICMP_ECHO_REPLY): echo;
            (IP_PROTO_ICMP, ICMP_UNREACHABLE): quoted_ipv4;
            (IP_PROTO_ICMP, ICMP_TIME_EXCEEDED): quoted_ipv4;
            (IP_PROTO_ICMP, ICMP_PARAMETER_PROBLEM): quoted_ipv4;
            (IP_PROTO_ICMPV6, ICMPV6_ECHO_REQUEST): echo;
            (IP_PROTO_ICMPV6, ICMPV6_ECHO_REPLY): echo;
            (IP_PROTO_ICMPV6, ICMPV6_UNREACHABLE .. ICMPV6_PARAMETER_PROBLEM): quoted_ipv6;
            default: accept;
        }
    }
    state echo {
        meta.is_complete = true;
        transition accept;
    }
    state quoted_ipv4 {
        packet.extract(hdr.quoted_ipv4);
        meta.src = mapped(hdr.quoted_ipv4.srcAddr);
        meta.dst = mapped(hdr.quoted_ipv4.dstAddr);
        meta.protocol = hdr.quoted_ipv4.protocol;
        transition select(hdr.quoted_ipv4.ihl, hdr.quoted_ipv4.fragOffset) {
            (5, 0): quoted;
            default: accept;
        }
    }
    state quoted_ipv6 {
        packet.extract(hdr.quoted_ipv6);
        meta.src = hdr.quoted_ipv6.srcAddr;
        meta.dst = hdr.quoted_ipv6.dstAddr;
        meta.protocol = hdr.quoted_ipv6.nextHdr;
        transition quoted;
    }
    state quoted {
        packet.extract(hdr.quoted);
        meta.src_port = hdr.quoted.srcPort;
        meta.dst_port = hdr.quoted.dstPort;
        meta.is_error = true;
        transition select(meta.protocol, hdr.quoted.srcPort[15:8]) {
            (IP_PROTO_TCP, _): quoted_is_complete;
            (IP_PROTO_UDP, _): quoted_is_complete;
            (IP_PROTO_ICMP, ICMP_ECHO_REQUEST): quoted_echo;
            (IP_PROTO_ICMPV6, ICMPV6_ECHO_REQUEST): quoted_echo;
            default: accept;
        }
    }
    state quoted_echo {
        meta.src_port = hdr.quoted.next[31:16];
        meta.dst_port = hdr.quoted.next[31:16];
        transition quoted_is_complete;
    }
    state quoted_is_complete {
        meta.is_complete = true;
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action tracked(bit<8> state, bit<32> out_end, bit<32> in_end, bit<32> out_window, bit<32> in_window, bit<8> out_scale,
                   bit<8> in_scale) {
        tracked_t entry = { state, out_end, in_end, out_window, in_window, out_scale, in_scale };
        // Of the sender, of what is quoted too, and of the receiver.
        bit<32> own_end = meta.goes_out ? out_end : in_end;
        bit<32> own_window = meta.goes_out ? out_window : in_window;
        bit<32> peer_end = meta.goes_out ? in_end : out_end;
        bit<32> peer_window = meta.goes_out ? in_window : out_window;
        bit<8> flags = hdr.tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
        meta.passes = true;
        if (meta.is_error) {
            if (meta.protocol == IP_PROTO_TCP) {
                meta.passes = at_most(own_end - 1 - peer_window, hdr.quoted.next) && at_most(hdr.quoted.next, own_end);
            }
        } else if (!hdr.tcp.isValid()) {
            entry.state = meta.goes_out ? state : REPLIED;
        } else if (flags == TCP_SYN) {
            meta.passes = meta.goes_out;
            if (meta.goes_out && (state == SYN_SENT || state == FIN_WAIT || state == CLOSED)) {
                // One that comes again may leave out the data that the first one had.
                bool is_shorter = state == SYN_SENT && hdr.tcp.seq == in_end && at_most(meta.end, out_end);
                entry = { SYN_SENT, is_shorter ? out_end : meta.end, hdr.tcp.seq, meta.window, 0, meta.scale, NO_SCALE };
            }
        } else if (state == SYN_SENT) {
            bool ack_fits = at_most(in_end + 1, hdr.tcp.ack) && at_most(hdr.tcp.ack, out_end);
            meta.passes = !meta.goes_out && ack_fits && (flags == TCP_SYN | TCP_ACK || flags == TCP_RST | TCP_ACK);
            entry.state = flags & TCP_RST != 0 ? CLOSED : SYN_RECEIVED;
            entry.in_end = meta.end;
            entry.in_window = meta.window;
            bool scales = meta.scale != NO_SCALE && out_scale != NO_SCALE;
            entry.in_scale = scales ? meta.scale : 0;
            entry.out_scale = scales ? out_scale : 0;
        } else {
            bit<8> scale = meta.goes_out ? out_scale : in_scale;
            bit<32> window = flags & TCP_SYN != 0 ? meta.window : meta.window << scale;
            bool seq_fits = at_most(own_end - peer_window, meta.end) && at_most(hdr.tcp.seq, own_end + peer_window);
            bool ack_fits = at_most(peer_end - 2 * own_window, hdr.tcp.ack) && at_most(hdr.tcp.ack, peer_end + own_window);
            meta.passes = seq_fits && (ack_fits || flags & TCP_ACK == 0);
            bit<32> end = at_most(meta.end, own_end) || flags & TCP_RST != 0 ? own_end : meta.end;
            window = window > own_window ? window : own_window;
            if (meta.goes_out) {
                entry.out_end = end;
                entry.out_window = window;
            } else {
                entry.in_end = end;
                entry.in_window = window;
            }
            if (flags & TCP_RST != 0) {
                entry.state = hdr.tcp.seq == own_end ? CLOSED : state;
            } else if (flags & TCP_FIN != 0) {
                entry.state = FIN_WAIT;
            } else if (state == SYN_RECEIVED && meta.goes_out && flags == TCP_ACK) {
                entry.state = ESTABLISHED;
            }
        }
        if (meta.passes && !meta.is_error && (state != CLOSED || entry.state == SYN_SENT)) {
            if (entry != (tracked_t){ state, out_end, in_end, out_window, in_window, out_scale, in_scale }) {
                bool is_done = replace_entry("tracked", entry, entry.state) == ADD_ENTRY_SUCCESS;
                meta.passes = is_done || entry.state == state || !hdr.tcp.isValid();
            } else {
                restart_expire_timer();
            }
        }
    }

    action untracked() {
        bool begins = !hdr.tcp.isValid() || hdr.tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN) == TCP_SYN;
        if (meta.goes_out && !meta.is_error && begins) {
            bit<8> state = hdr.tcp.isValid() ? SYN_SENT : NEW;
            tracked_t entry = { state, meta.end, hdr.tcp.seq, meta.window, 0, meta.scale, NO_SCALE };
            meta.passes = add_entry("tracked", entry, state) == ADD_ENTRY_SUCCESS;
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

    apply {
        bool from_inside = std.ingress_port == INSIDE;
        std.egress_spec = from_inside ? OUTSIDE : INSIDE;
        bit<32> length = (bit<32>)meta.payload + (hdr.ipv4.isValid() ? 32w34 : 32w54);
        if (std.parser_error != error.NoError) {
            mark_to_drop(std);
        } else if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
            // What is quoted went the other way.
            meta.goes_out = from_inside != meta.is_error;
            meta.inside = meta.goes_out ? meta.src : meta.dst;
            meta.outside = meta.goes_out ? meta.dst : meta.src;
            meta.inside_port = meta.goes_out ? meta.src_port : meta.dst_port;
            meta.outside_port = meta.goes_out ? meta.dst_port : meta.src_port;
            if (hdr.tcp.isValid()) {
                bit<16> data = meta.payload - (bit<16>)(hdr.tcp.dataOffset ++ 2w0);
                meta.end = hdr.tcp.seq + (bit<32>)data + (bit<32>)hdr.tcp.flags[1:1] + (bit<32>)hdr.tcp.flags[0:0];
                meta.window = (bit<32>)hdr.tcp.window;
                meta.scale = scale_option(hdr.options[0].word ++ hdr.options[1].word ++ hdr.options[2].word
                    ++ hdr.options[3].word ++ hdr.options[4].word ++ hdr.options[5].word ++ hdr.options[6].word
                    ++ hdr.options[7].word ++ hdr.options[8].word ++ hdr.options[9].word);
            }
            bool is_reply = hdr.icmp.type == (meta.protocol == IP_PROTO_ICMP ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY);
            bool is_echo = hdr.icmp.isValid() && !meta.is_error;
            if (meta.is_complete && length <= std.packet_length && (!is_echo || is_reply != from_inside)) {
                connections.apply();
            } else if (hdr.icmp.isValid() && meta.protocol == IP_PROTO_ICMPV6 && hdr.ipv6.hopLimit == 255) {
                // RFC 4861, from router solicitations to redirects.
                meta.passes = hdr.icmp.type >= 133 && hdr.icmp.type <= 137;
            }
            if (!meta.passes) {
                mark_to_drop(std);
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
