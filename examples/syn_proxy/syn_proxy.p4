// A SYN proxy: servers see connections only of clients that have completed a handshake, for IPv4 and IPv6. Port 1 leads to the
// clients, port 2 to the servers.
//
// SYN flooding (RFC 4987) fills tables with connections that nobody completes. Here a SYN to a protected server is answered with
// a SYN cookie (RFC 4987, sections 3.6 and 3.8) and forgotten: the answer's sequence number is a keyed hash of addresses, ports,
// the client's sequence number and the time, with three bits for the client's MSS. An ACK that returns a cookie of this time slot
// or the last one (67 s each) is from somebody who got it. Only then there is an entry in `connections`, which that packet writes,
// and a SYN to the server. The server's SYN and ACK becomes two packets: a clone that completes its handshake, and an ACK to the
// client that opens the window, which was 0 until then, so that clients send nothing too early. From then on the numbers of the
// server's direction are those of the cookie for the client, and are translated, checksums as well (RFC 1624), also where an
// ICMP error quotes them, since servers ask whether a quoted number fits (RFC 5927, section 4.1).
//
// The hash is HalfSipHash-2-4 (SipHash of Aumasson and Bernstein, 2012, with words of 32 bits), its key in register `secret`;
// without a key nothing is answered. A cookie that comes again finds the entry of its connection, which outlives the cookie, and
// opens nothing.
//
// After FIN or RST a connection ends once there is no packet for 140 s. Those of a client may be anybody's, since the proxy does
// not know the windows (RFC 5961, section 3), so the client's next data takes them back. IPv4 headers with a wrong checksum are
// dropped, and so is a SYN, or an ACK that opens, with a wrong one of TCP; that of a segment with data is not looked at.
//
// A cookie has no room for other options, so such connections have no window scale, SACK or timestamps. Connections that are
// older than the proxy are cut. What is not TCP and what is for other servers passes; fragments of TCP, IPv4 options before it
// and IPv6 extension headers do not.

#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
#include <p4lib/headers.p4>
#include <p4lib/checksum.p4>

const bit<9> CLIENTS = 1;
const bit<9> SERVERS = 2;
// The clone session that leads to the servers.
const bit<32> TO_SERVERS = 1;
const bit<32> CLONED = 1;

// States, by the number of their expire time.
const bit<8> OPENING = 0;
const bit<8> OPEN = 1;
const bit<8> CLOSING = 2;
const bit<8> CLIENT_CLOSES = 3;

header tcp_mss_t {
    bit<8>  kind;
    bit<8>  length;
    bit<16> mss;
}

header word_t {
    bit<32> word;
}

// What an error quotes of TCP.
header quoted_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> seq;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    tcp_t      tcp;
    // The option of packets that are made here.
    tcp_mss_t  mss;
    // Those of a SYN that has come.
    word_t[10] options;
    icmp_t     icmp;
    ipv4_t     quoted_ipv4;
    ipv6_t     quoted_ipv6;
    quoted_t   quoted;
}

// What the proxy knows of a connection: sequence numbers of the client, of the cookie and of the server, and the client's window.
struct proxied_t {
    bit<8>  state;
    bit<32> client_seq;
    bit<32> cookie;
    bit<32> server_seq;
    bit<16> window;
}

struct metadata_t {
    // IPv4 addresses are the IPv6 addresses that stand for them, ::ffff:0:0/96.
    bit<128>  client;
    bit<128>  server;
    bit<16>   client_port;
    bit<16>   server_port;
    bit<4>    words;
    bool      may_hide_tcp;
    bool      from_client;
    bool      begins;
    bit<16>   server_mss;
    proxied_t entry;
    bool      is_known;
    bool      is_closing;
    bool      sends_syn;
    bool      sends_both;
    bool      passes;
    // For the clone.
    @field_list(1)
    bit<16>   window;
}

#include <p4lib/v1model_ipv4.p4>

struct sip_t {
    bit<32> a;
    bit<32> b;
    bit<32> c;
    bit<32> d;
}

void sip_round(inout sip_t v) {
    v.a = v.a + v.b;
    v.b = (v.b[26:0] ++ v.b[31:27]) ^ v.a;
    v.a = v.a[15:0] ++ v.a[31:16];
    v.c = v.c + v.d;
    v.d = (v.d[23:0] ++ v.d[31:24]) ^ v.c;
    v.a = v.a + v.d;
    v.d = (v.d[24:0] ++ v.d[31:25]) ^ v.a;
    v.c = v.c + v.b;
    v.b = (v.b[18:0] ++ v.b[31:19]) ^ v.c;
    v.c = v.c[15:0] ++ v.c[31:16];
}

void sip_word(inout sip_t v, in bit<32> word) {
    v.d = v.d ^ word;
    sip_round(v);
    sip_round(v);
    v.a = v.a ^ word;
}

// HalfSipHash-2-4 of eleven words, which are hashed as little-endian bytes.
bit<32> half_sip_hash(in bit<32> key0, in bit<32> key1, in bit<352> words) {
    sip_t v = { key0, key1, key0 ^ 0x6c796765, key1 ^ 0x74656462 };
    bit<352> rest = words;
    for (bit<8> i = 0; i < 11; i = i + 1) {
        sip_word(v, rest[351:320]);
        rest = rest << 32;
    }
    sip_word(v, 44 << 24);
    v.c = v.c ^ 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v.b ^ v.d;
}

// The MSS that a SYN's options have; without one RFC 9293 has 536.
bit<16> mss_option(in bit<320> options) {
    bit<320> rest = options;
    bit<16> mss = 536;
    for (bit<8> i = 0; i < 40; i = i + 1) {
        if (rest[319:312] == 2 && rest[311:304] == 4) {
            mss = rest[303:288];
            break;
        } else if (rest[319:312] == 1) {
            rest = rest << 8;
        } else if (rest[319:312] == 0 || rest[311:304] < 2) {
            break;
        } else {
            rest = rest << (rest[311:304] ++ 3w0);
        }
    }
    return mss;
}

// The next lower one of these, as far as there is one.
bit<3> mss_class(in bit<16> mss) {
    return mss < 128 ? 3w0 : mss < 256 ? 3w1 : mss < 536 ? 3w2 : mss < 1220 ? 3w3 : mss < 1360 ? 3w4 : mss < 1440 ? 3w5
        : mss < 1460 ? 3w6 : 3w7;
}

bit<16> mss_of_class(in bit<3> class) {
    return class == 0 ? 16w64 : class == 1 ? 16w128 : class == 2 ? 16w256 : class == 3 ? 16w536 : class == 4 ? 16w1220
        : class == 5 ? 16w1360 : class == 6 ? 16w1440 : 16w1460;
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
        meta.client = 80w0 ++ 16w0xffff ++ hdr.ipv4.srcAddr;
        meta.server = 80w0 ++ 16w0xffff ++ hdr.ipv4.dstAddr;
        transition select(hdr.ipv4.protocol, hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragOffset) {
            (IP_PROTO_TCP, 5, 0, 0): tcp;
            (IP_PROTO_TCP, _, _, _): hidden;
            (IP_PROTO_ICMP, 5, 0, 0): icmp;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.client = hdr.ipv6.srcAddr;
        meta.server = hdr.ipv6.dstAddr;
        transition select(hdr.ipv6.nextHdr) {
            IP_PROTO_TCP: tcp;
            IP_PROTO_UDP: accept;
            IP_PROTO_ICMPV6: icmp;
            default: hidden;
        }
    }
    state hidden {
        meta.may_hide_tcp = true;
        transition accept;
    }
    state icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.ipv4.isValid(), hdr.icmp.type) {
            (true, ICMP_UNREACHABLE): quoted_ipv4;
            (true, ICMP_TIME_EXCEEDED): quoted_ipv4;
            (true, ICMP_PARAMETER_PROBLEM): quoted_ipv4;
            (false, ICMPV6_UNREACHABLE .. ICMPV6_PARAMETER_PROBLEM): quoted_ipv6;
            default: accept;
        }
    }
    // Servers have sent what clients' routers quote.
    state quoted_ipv4 {
        packet.extract(hdr.quoted_ipv4);
        meta.client = 80w0 ++ 16w0xffff ++ hdr.quoted_ipv4.dstAddr;
        meta.server = 80w0 ++ 16w0xffff ++ hdr.quoted_ipv4.srcAddr;
        transition select(hdr.quoted_ipv4.protocol, hdr.quoted_ipv4.ihl, hdr.quoted_ipv4.fragOffset) {
            (IP_PROTO_TCP, 5, 0): quoted;
            default: accept;
        }
    }
    state quoted_ipv6 {
        packet.extract(hdr.quoted_ipv6);
        meta.client = hdr.quoted_ipv6.dstAddr;
        meta.server = hdr.quoted_ipv6.srcAddr;
        transition select(hdr.quoted_ipv6.nextHdr) {
            IP_PROTO_TCP: quoted;
            default: accept;
        }
    }
    state quoted {
        packet.extract(hdr.quoted);
        meta.client_port = hdr.quoted.dstPort;
        meta.server_port = hdr.quoted.srcPort;
        transition accept;
    }
    state tcp {
        packet.extract(hdr.tcp);
        meta.client_port = hdr.tcp.srcPort;
        meta.server_port = hdr.tcp.dstPort;
        meta.words = hdr.tcp.dataOffset - 5;
        transition select(hdr.tcp.dataOffset, hdr.tcp.flags & (TCP_SYN | TCP_ACK)) {
            (0 .. 4, _): hidden;
            (_, TCP_SYN): option;
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
}

// Sends a packet back where it came from.
void turn_back(inout headers_t hdr) {
    bit<48> mac = hdr.ethernet.srcAddr;
    hdr.ethernet.srcAddr = hdr.ethernet.dstAddr;
    hdr.ethernet.dstAddr = mac;
    bit<32> address = hdr.ipv4.srcAddr;
    hdr.ipv4.srcAddr = hdr.ipv4.dstAddr;
    hdr.ipv4.dstAddr = address;
    bit<128> address6 = hdr.ipv6.srcAddr;
    hdr.ipv6.srcAddr = hdr.ipv6.dstAddr;
    hdr.ipv6.dstAddr = address6;
    bit<16> port = hdr.tcp.srcPort;
    hdr.tcp.srcPort = hdr.tcp.dstPort;
    hdr.tcp.dstPort = port;
}

// Makes a segment without data, with the MSS if it is not 0, and gives the frame's length.
bit<32> make_segment(inout headers_t hdr, in bit<32> seq, in bit<32> ack, in bit<8> flags, in bit<16> mss) {
    bit<16> length = 20;
    if (mss != 0) {
        length = 24;
        hdr.mss.setValid();
        hdr.mss.kind = 2;
        hdr.mss.length = 4;
        hdr.mss.mss = mss;
    }
    hdr.tcp.seq = seq;
    hdr.tcp.ack = ack;
    hdr.tcp.dataOffset = length[5:2];
    hdr.tcp.reserved = 0;
    hdr.tcp.flags = flags;
    hdr.tcp.urgent = 0;
    bit<32> sum = (bit<32>)IP_PROTO_TCP + (bit<32>)length + checksum_words32(hdr.tcp.srcPort ++ hdr.tcp.dstPort)
        + checksum_words32(seq) + checksum_words32(ack) + (bit<32>)(hdr.tcp.dataOffset ++ 4w0 ++ flags) + (bit<32>)hdr.tcp.window;
    if (mss != 0) {
        sum = sum + 0x0204 + (bit<32>)mss;
    }
    if (hdr.ipv4.isValid()) {
        hdr.ipv4.diffserv = 0;
        hdr.ipv4.totalLen = 20 + length;
        hdr.ipv4.identification = 0;
        hdr.ipv4.flags = 2;
        hdr.ipv4.ttl = 64;
        hdr.ipv4.hdrChecksum = ipv4_checksum(hdr.ipv4);
        sum = sum + checksum_words32(hdr.ipv4.srcAddr) + checksum_words32(hdr.ipv4.dstAddr);
        length = length + 34;
    } else {
        hdr.ipv6.trafficClass = 0;
        hdr.ipv6.flowLabel = 0;
        hdr.ipv6.payloadLen = length;
        hdr.ipv6.hopLimit = 64;
        sum = sum + checksum_words128(hdr.ipv6.srcAddr) + checksum_words128(hdr.ipv6.dstAddr);
        length = length + 54;
    }
    hdr.tcp.checksum = checksum_of(sum);
    return (bit<32>)length;
}

bit<16> tcp_length(in headers_t hdr) {
    return hdr.ipv4.isValid() ? hdr.ipv4.totalLen |-| 20 : hdr.ipv6.payloadLen;
}

bool has_data(in headers_t hdr) {
    return tcp_length(hdr) > (bit<16>)(hdr.tcp.dataOffset ++ 2w0);
}

// Whether the checksum of a segment is wrong, one without data or options, but for a SYN's.
bool is_damaged(in headers_t hdr) {
    bit<32> sum = (bit<32>)IP_PROTO_TCP + (bit<32>)tcp_length(hdr) + checksum_words32(hdr.tcp.srcPort ++ hdr.tcp.dstPort)
        + checksum_words32(hdr.tcp.seq) + checksum_words32(hdr.tcp.ack)
        + (bit<32>)(hdr.tcp.dataOffset ++ hdr.tcp.reserved ++ hdr.tcp.flags) + (bit<32>)hdr.tcp.window
        + (bit<32>)hdr.tcp.checksum + (bit<32>)hdr.tcp.urgent;
    if (hdr.ipv4.isValid()) {
        sum = sum + checksum_words32(hdr.ipv4.srcAddr) + checksum_words32(hdr.ipv4.dstAddr);
    } else {
        sum = sum + checksum_words128(hdr.ipv6.srcAddr) + checksum_words128(hdr.ipv6.dstAddr);
    }
    for (bit<8> i = 0; i < 10; i = i + 1) {
        if (hdr.options[i].isValid()) {
            sum = sum + checksum_words32(hdr.options[i].word);
        }
    }
    bool is_known = !has_data(hdr) && (hdr.tcp.flags & TCP_SYN != 0 || hdr.tcp.dataOffset == 5);
    return is_known && checksum_of(sum) != 0;
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(2) secret;

    action drop() {
        mark_to_drop(std);
        exit;
    }

    // `mss` is that of the server.
    action protect(bit<16> mss) {
        meta.server_mss = mss;
    }

    table protected {
        key = {
            meta.server: exact;
            meta.server_port: exact;
        }
        actions = { protect; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    action proxied(bit<8> state, bit<32> client_seq, bit<32> cookie, bit<32> server_seq, bit<16> window) {
        if (meta.begins) {
            meta.sends_syn = replace_entry("proxied", meta.entry, OPENING) == ADD_ENTRY_SUCCESS;
        } else {
            meta.is_known = true;
            meta.entry = { state, client_seq, cookie, server_seq, window };
        }
        if (!meta.begins && hdr.tcp.isValid()) {
            bit<8> flags = hdr.tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
            bool answers = !meta.from_client && flags == TCP_SYN | TCP_ACK && hdr.tcp.ack == client_seq + 1;
            if (state != OPENING) {
                meta.sends_both = answers && hdr.tcp.seq == server_seq;
                meta.passes = !meta.sends_both;
                meta.is_closing = state != OPEN;
                if (flags & (TCP_FIN | TCP_RST) != 0) {
                    meta.entry.state = !meta.from_client ? CLOSING : state == OPEN ? CLIENT_CLOSES : state;
                } else if (state == CLIENT_CLOSES && meta.from_client && has_data(hdr)) {
                    meta.entry.state = OPEN;
                }
            } else if (answers) {
                meta.sends_both = true;
                meta.entry.state = OPEN;
                meta.entry.server_seq = hdr.tcp.seq;
            } else if (!meta.from_client && flags == TCP_RST | TCP_ACK && hdr.tcp.ack == client_seq + 1) {
                meta.passes = true;
                meta.entry.state = CLOSING;
                meta.entry.server_seq = hdr.tcp.seq - 1;
            } else {
                // The client repeats itself: the server has not got the SYN.
                meta.sends_syn = meta.from_client && flags == TCP_ACK && hdr.tcp.seq == client_seq + 1
                    && hdr.tcp.ack == cookie + 1;
            }
            if (meta.entry.state != state) {
                replace_entry("proxied", meta.entry, meta.entry.state);
            } else if (meta.passes || meta.sends_syn) {
                restart_expire_timer();
            }
        }
    }

    action unknown() {
        if (meta.begins) {
            meta.sends_syn = add_entry("proxied", meta.entry, OPENING) == ADD_ENTRY_SUCCESS;
        }
    }

    // In the order of the states. A cookie is good for two time slots at most, 134.3 s: a closed connection is there for longer.
    @expire_time_ms(20000, 7440000, 140000, 140000)
    table connections {
        key = {
            meta.client: exact;
            meta.server: exact;
            meta.client_port: exact;
            meta.server_port: exact;
        }
        actions = { proxied; @defaultonly unknown; }
        const default_action = unknown();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 1048576;
    }

    apply {
        std.egress_spec = std.ingress_port == CLIENTS ? SERVERS : CLIENTS;
        meta.from_client = std.ingress_port == CLIENTS;
        if (std.parser_error != error.NoError || std.checksum_error != 0 || meta.may_hide_tcp) {
            drop();
        }
        if (hdr.quoted.isValid() && meta.from_client) {
            connections.apply();
            if (meta.is_known && meta.entry.state != OPENING) {
                bit<32> seq = hdr.quoted.seq + (meta.entry.server_seq - meta.entry.cookie);
                hdr.icmp.checksum = checksum_update(hdr.icmp.checksum, checksum_change32(hdr.quoted.seq, seq));
                hdr.quoted.seq = seq;
            }
        }
        if (!hdr.tcp.isValid()) {
            exit;
        }
        if (!meta.from_client) {
            bit<128> client = meta.server;
            bit<16> client_port = meta.server_port;
            meta.server = meta.client;
            meta.server_port = meta.client_port;
            meta.client = client;
            meta.client_port = client_port;
        }
        if (!protected.apply().hit) {
            exit;
        }
        bit<8> flags = hdr.tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);
        bool is_syn = meta.from_client && flags == TCP_SYN;
        if (!is_syn) {
            connections.apply();
        }
        if (is_syn || meta.from_client && flags == TCP_ACK && (!meta.is_known || meta.is_closing)) {
            if (is_damaged(hdr)) {
                drop();
            }
            bit<32> key0;
            bit<32> key1;
            secret.read(key0, 0);
            secret.read(key1, 1);
            bit<32> returned = hdr.tcp.ack - 1;
            bit<22> slot = std.ingress_global_timestamp[47:26];
            slot = is_syn || slot[0:0] == returned[31:31] ? slot : slot - 1;
            bit<3> class = returned[30:28];
            if (is_syn) {
                class = mss_class(mss_option(hdr.options[0].word ++ hdr.options[1].word ++ hdr.options[2].word
                    ++ hdr.options[3].word ++ hdr.options[4].word ++ hdr.options[5].word ++ hdr.options[6].word
                    ++ hdr.options[7].word ++ hdr.options[8].word ++ hdr.options[9].word));
            }
            bit<32> client_seq = is_syn ? hdr.tcp.seq : hdr.tcp.seq - 1;
            bit<32> sum = half_sip_hash(key0, key1, meta.client ++ meta.server ++ meta.client_port ++ meta.server_port
                ++ client_seq ++ slot ++ class ++ 7w0);
            bit<32> cookie = slot[0:0] ++ class ++ sum[27:0];
            if (key0 | key1 == 0) {
                drop();
            }
            if (is_syn) {
                turn_back(hdr);
                // The options that came are cut off with the data.
                hdr.tcp.window = 0;
                truncate(make_segment(hdr, cookie, client_seq + 1, TCP_SYN | TCP_ACK, meta.server_mss));
                std.egress_spec = CLIENTS;
                exit;
            }
            if (returned == cookie && (!meta.is_known || cookie != meta.entry.cookie)) {
                meta.passes = false;
                meta.begins = true;
                meta.entry = { OPENING, client_seq, cookie, 0, hdr.tcp.window };
                connections.apply();
            }
        }
        if (meta.sends_syn) {
            truncate(make_segment(hdr, hdr.tcp.seq - 1, 0, TCP_SYN, mss_of_class(meta.entry.cookie[30:28])));
        } else if (meta.sends_both) {
            meta.window = meta.entry.window;
            clone_preserving_field_list(CloneType.I2E, TO_SERVERS, 1);
            truncate(make_segment(hdr, meta.entry.cookie + 1, hdr.tcp.ack, TCP_ACK, 0));
        } else if (!meta.passes) {
            drop();
        } else {
            bit<32> ahead = meta.entry.server_seq - meta.entry.cookie;
            bit<32> change = 0;
            if (!meta.from_client) {
                change = checksum_change32(hdr.tcp.seq, hdr.tcp.seq - ahead);
                hdr.tcp.seq = hdr.tcp.seq - ahead;
            } else if (hdr.tcp.flags & TCP_ACK != 0) {
                change = checksum_change32(hdr.tcp.ack, hdr.tcp.ack + ahead);
                hdr.tcp.ack = hdr.tcp.ack + ahead;
            }
            hdr.tcp.checksum = checksum_update(hdr.tcp.checksum, change);
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        // The server's SYN and ACK, as it came: the rest of its handshake.
        if (std.instance_type == CLONED) {
            turn_back(hdr);
            hdr.tcp.window = meta.window;
            truncate(make_segment(hdr, hdr.tcp.ack, hdr.tcp.seq + 1, TCP_ACK, 0));
        }
    }
}

V1Switch(MyParser(), VerifyIpv4Checksum(), MyIngress(), MyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
