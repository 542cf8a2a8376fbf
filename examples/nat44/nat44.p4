// Dynamic NAPT for IPv4 with port blocks and hairpinning, without a controller: packets write the mappings.
//
// Port 2 is outside, all others are inside. `pools` gives the hosts of a prefix inside their addresses outside and, on each, a
// block of ports, by arithmetic (RFC 7422): who had a port is known without a log, and no host takes the ports of others
// (RFC 6888, REQ-4). A block's next port is in a register, for all protocols.
//
// `mappings` leads from a host's address and port to those outside, whomever it talks to, and `owners` back; the first packet
// writes both. Mapping and filtering are endpoint-independent (RFC 4787, REQ-1 and REQ-8; RFC 5382; RFC 5508 for echoes). What
// goes out keeps both alive, what comes in does not (RFC 4787, REQ-6). Entries of `owners` end ten seconds after their mapping,
// so nobody gets a port at once that another had. TCP has 2 h 4 min when it is established, 4 min before and after FIN or RST
// (RFC 5382, REQ-5; RFC 7857, section 2), counted for the mapping and not for each connection. RST may be anybody's: what the
// host sends after it makes the connection established again (RFC 6146, section 3.5.2.2).
//
// What is routed from inside to inside is not translated. A packet from inside to an address of ours gets both translations, its
// source's first (hairpinning, RFC 4787, REQ-9). ICMP errors are translated with what they quote (RFC 5508, REQ-4, REQ-5 and
// REQ-7). The first fragment leaves its addresses to the later ones; one that comes before it is dropped, since no packet waits
// here (RFC 4787, REQ-14 wants it kept). Checksums are changed (RFC 1624) and never made anew, so damage stays visible. Of what
// is translated, other protocols and IPv4 options are dropped.

#include <core.p4>
#include <v1model.p4>
#include <add_on_miss.p4>
#include <p4lib/headers.p4>
#include <p4lib/checksum.p4>

const bit<9> OUTSIDE = 2;
const bit<32> HOSTS = 65536;
// Ports that are tried for one packet, all over the block.
const bit<16> PROBES = 8;

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
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
    tcp_rest_t tcp;
    udp_rest_t udp;
    icmp_t     icmp;
    ipv4_t     quoted;
    // Eight bytes are quoted at least, so of TCP no checksum.
    ports_t    quoted_ports;
    udp_rest_t quoted_udp;
    icmp_t     quoted_icmp;
}

struct end_t {
    bit<32> address;
    bit<16> port;
}

struct metadata_t {
    bit<8>  protocol;
    // Where the packet comes from and goes to; of an error what it quotes, which went the other way. Echoes have one port, the id.
    end_t   from;
    end_t   to;
    bool    is_complete;
    bool    is_error;
    // The two sides of a mapping.
    end_t   inside;
    end_t   outside;
    bit<8>  state;
    bool    goes_out;
    bool    comes_in;
    // What the tables said.
    bool    is_mapped;
    bool    is_owned;
    // The host's block, and its cell in `next_port`.
    bit<32> first;
    bit<16> ports;
    bit<32> cell;
    // As received.
    bit<32> src;
    bit<32> dst;
}

// The parameters of the actions of these names.
struct mapping_t { bit<32> address; bit<16> port; bit<8> state; }
struct first_t { bit<32> src; bit<32> dst; }

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
        packet.extract(hdr.ipv4);
        meta.protocol = hdr.ipv4.protocol;
        meta.from.address = hdr.ipv4.srcAddr;
        meta.to.address = hdr.ipv4.dstAddr;
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (5, 0, IP_PROTO_ICMP): icmp;
            (5, 0, IP_PROTO_TCP): ports;
            (5, 0, IP_PROTO_UDP): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.from.port = hdr.ports.srcPort;
        meta.to.port = hdr.ports.dstPort;
        meta.is_complete = true;
        transition select(hdr.ipv4.protocol) {
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
        transition select(hdr.icmp.type) {
            ICMP_ECHO_REQUEST: echo;
            ICMP_ECHO_REPLY: echo;
            ICMP_UNREACHABLE: quoted;
            ICMP_TIME_EXCEEDED: quoted;
            ICMP_PARAMETER_PROBLEM: quoted;
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
    state quoted {
        packet.extract(hdr.quoted);
        meta.protocol = hdr.quoted.protocol;
        meta.from.address = hdr.quoted.dstAddr;
        meta.to.address = hdr.quoted.srcAddr;
        meta.is_error = true;
        transition select(hdr.quoted.ihl, hdr.quoted.fragOffset, hdr.quoted.protocol) {
            (5, 0, IP_PROTO_ICMP): quoted_icmp;
            (5, 0, IP_PROTO_TCP): quoted_ports;
            (5, 0, IP_PROTO_UDP): quoted_ports;
            default: accept;
        }
    }
    state quoted_ports {
        packet.extract(hdr.quoted_ports);
        meta.from.port = hdr.quoted_ports.dstPort;
        meta.to.port = hdr.quoted_ports.srcPort;
        meta.is_complete = true;
        transition select(hdr.quoted.protocol) {
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
        meta.is_complete = true;
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<16>>(HOSTS) next_port;

    action drop() {
        mark_to_drop(std);
        exit;
    }

    // The block of a host of the prefix that begins with `inside`: 2^sharing hosts have an address, `ports` ports each.
    action pool(bit<32> inside, bit<32> outside, bit<4> sharing, bit<16> ports, bit<32> cell) {
        bit<32> host = meta.inside.address - inside;
        bit<32> block = host & ((32w1 << sharing) - 1);
        meta.outside.address = outside + (host >> sharing);
        meta.first = 1024 + block * (bit<32>)ports;
        meta.ports = meta.first + (bit<32>)ports <= 65536 ? ports : 0;
        meta.cell = cell + host;
    }

    table pools {
        key = { meta.inside.address: lpm; }
        actions = { pool; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // Who comes in learns whose the port is; who goes out, whether it is his.
    action owner(bit<32> address, bit<16> port) {
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
            meta.outside.address: exact;
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
        meta.outside = { address, port };
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
            mapping_t values = { meta.outside.address, meta.outside.port, meta.state };
            meta.is_mapped = add_entry("mapping", values, meta.state) == ADD_ENTRY_SUCCESS;
        }
    }

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

    action first(bit<32> src, bit<32> dst) {
        if (meta.is_complete) {
            replace_entry("first", (first_t){ hdr.ipv4.srcAddr, hdr.ipv4.dstAddr }, 0);
        } else {
            hdr.ipv4.srcAddr = src;
            hdr.ipv4.dstAddr = dst;
        }
    }

    action no_first() {
        if (meta.is_complete) {
            add_entry("first", (first_t){ hdr.ipv4.srcAddr, hdr.ipv4.dstAddr }, 0);
        }
    }

    @expire_time_ms(15000)
    @evict_oldest
    table fragments {
        key = {
            meta.src: exact;
            meta.dst: exact;
            hdr.ipv4.protocol: exact;
            hdr.ipv4.identification: exact;
        }
        actions = { first; @defaultonly no_first; }
        const default_action = no_first();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 65536;
    }

    // The addresses of the pools, which are ours.
    table addresses {
        key = { meta.dst: lpm; }
        actions = { NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    action forward(bit<9> port, bit<48> srcMac, bit<48> dstMac) {
        std.egress_spec = port;
        hdr.ethernet.srcAddr = srcMac;
        hdr.ethernet.dstAddr = dstMac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    table routes {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }

    // Puts the ends where the packet has them, and adjusts the checksums of all but the IPv4 header.
    action rewrite() {
        hdr.ipv4.srcAddr = meta.goes_out ? meta.from.address : hdr.ipv4.srcAddr;
        hdr.ipv4.dstAddr = meta.comes_in ? meta.to.address : hdr.ipv4.dstAddr;
        bit<16> id = meta.comes_in ? meta.to.port : meta.from.port;
        bit<32> change = checksum_change32(meta.src, hdr.ipv4.srcAddr) + checksum_change32(meta.dst, hdr.ipv4.dstAddr)
            + checksum_change32(hdr.ports.srcPort ++ hdr.ports.dstPort, meta.from.port ++ meta.to.port);
        if (!hdr.icmp.isValid()) {
            hdr.ports = { meta.from.port, meta.to.port };
            hdr.tcp.checksum = checksum_update(hdr.tcp.checksum, change);
            hdr.udp.checksum = checksum_update_udp(hdr.udp.checksum, change);
        } else if (!meta.is_error) {
            hdr.icmp.checksum = checksum_update(hdr.icmp.checksum, checksum_change16(hdr.icmp.id, id));
            hdr.icmp.id = id;
        } else {
            // The checksum of ICMP covers all that changes in the quoted packet, checksums as well.
            bit<32> addresses_change = checksum_change32(hdr.quoted.srcAddr, meta.to.address)
                + checksum_change32(hdr.quoted.dstAddr, meta.from.address);
            bit<32> ports_change = hdr.quoted_icmp.isValid()
                ? checksum_change16(hdr.quoted_icmp.id, id)
                : checksum_change32(hdr.quoted_ports.srcPort ++ hdr.quoted_ports.dstPort, meta.to.port ++ meta.from.port);
            bit<16> quoted_sum = checksum_update(hdr.quoted.hdrChecksum, addresses_change);
            bit<16> udp_sum = checksum_update_udp(hdr.quoted_udp.checksum, addresses_change + ports_change);
            bit<16> icmp_sum = checksum_update(hdr.quoted_icmp.checksum, ports_change);
            change = addresses_change + ports_change + checksum_change16(hdr.quoted.hdrChecksum, quoted_sum);
            if (hdr.quoted_icmp.isValid()) {
                change = change + checksum_change16(hdr.quoted_icmp.checksum, icmp_sum);
            } else if (hdr.quoted_udp.isValid()) {
                change = change + checksum_change16(hdr.quoted_udp.checksum, udp_sum);
            }
            hdr.icmp.checksum = checksum_update(hdr.icmp.checksum, change);
            hdr.quoted.srcAddr = meta.to.address;
            hdr.quoted.dstAddr = meta.from.address;
            hdr.quoted.hdrChecksum = quoted_sum;
            hdr.quoted_ports.srcPort = meta.to.port;
            hdr.quoted_ports.dstPort = meta.from.port;
            hdr.quoted_udp.checksum = udp_sum;
            hdr.quoted_icmp.id = id;
            hdr.quoted_icmp.checksum = icmp_sum;
        }
    }

    apply {
        if (std.parser_error != error.NoError || !hdr.ipv4.isValid() || hdr.ipv4.ttl < 2) {
            drop();
        }
        meta.src = hdr.ipv4.srcAddr;
        meta.dst = hdr.ipv4.dstAddr;
        bit<16> ttl = hdr.ipv4.ttl ++ hdr.ipv4.protocol;
        bool is_ours = addresses.apply().hit;
        bool from_inside = std.ingress_port != OUTSIDE;
        // Where it goes is decided by its destination, unless that changes.
        bool is_routed = from_inside && !is_ours;
        if (is_routed) {
            routes.apply();
        }
        if (is_routed && std.egress_spec != OUTSIDE) {
            // Between hosts inside.
        } else if (hdr.ipv4.fragOffset != 0) {
            if (!fragments.apply().hit) {
                drop();
            }
        } else if (meta.is_complete) {
            if (from_inside) {
                meta.goes_out = true;
                meta.inside = meta.from;
                if (mappings.apply().hit) {
                    if (!meta.is_error) {
                        owners.apply();
                        meta.is_mapped = meta.is_owned;
                    }
                } else if (!meta.is_error && (!hdr.icmp.isValid() || hdr.icmp.type == ICMP_ECHO_REQUEST)) {
                    pools.apply();
                    if (meta.ports != 0) {
                        bit<16> n;
                        next_port.read(n, meta.cell);
                        n = n < meta.ports ? n : 0;
                        next_port.write(meta.cell, n + 1);
                        bit<16> step = meta.ports < PROBES ? 1 : meta.ports / PROBES;
                        for (bit<16> i = 0; i < PROBES && !meta.is_owned; i = i + 1) {
                            meta.outside.port = meta.first[15:0] + n;
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
            if (is_ours) {
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
            } else if (!from_inside) {
                drop();
            }
            rewrite();
            if (hdr.ipv4.flags[0:0] == 1) {
                fragments.apply();
            }
        } else {
            drop();
        }
        if (!is_routed) {
            routes.apply();
        }
        bit<32> change = checksum_change32(meta.src, hdr.ipv4.srcAddr) + checksum_change32(meta.dst, hdr.ipv4.dstAddr)
            + checksum_change16(ttl, (hdr.ipv4.ttl ++ hdr.ipv4.protocol));
        hdr.ipv4.hdrChecksum = checksum_update(hdr.ipv4.hdrChecksum, change);
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
