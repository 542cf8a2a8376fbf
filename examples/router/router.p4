// An IPv4 router: longest prefix match, TTL, checksums, next hops.
//
// `ipv4_lpm` chooses a next hop, `nexthop` the port and the MAC addresses. Packets with a wrong checksum, a TTL that runs
// out, or no route are dropped and counted in `dropped`. ARP for the router's own addresses is answered in `arp_reply`,
// so hosts need no static neighbours. The header checksum is verified and updated in full; see `acl` for a program that
// leaves it alone.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header arp_t {
    bit<16> htype;
    bit<16> ptype;
    bit<8>  hlen;
    bit<8>  plen;
    bit<16> oper;
    bit<48> senderHw;
    bit<32> senderIp;
    bit<48> targetHw;
    bit<32> targetIp;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> totalLen;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragOffset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

struct metadata_t {
    bit<16> nexthop;
}

struct headers_t {
    ethernet_t ethernet;
    arp_t      arp;
    ipv4_t     ipv4;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x0800: ipv4;
            0x0806: arp;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
    state arp {
        packet.extract(hdr.arp);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr },
            hdr.ipv4.hdrChecksum, HashAlgorithm.csum16);
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // Why a packet was dropped: 0 bad checksum, 1 TTL, 2 no route, 3 not IPv4 or ARP.
    counter(4, CounterType.packets) dropped;

    action drop(bit<32> reason) {
        dropped.count(reason);
        mark_to_drop(std);
    }

    action no_route() {
        drop(2);
    }

    action set_nexthop(bit<16> nexthop) {
        meta.nexthop = nexthop;
    }

    direct_counter(CounterType.packets_and_bytes) route_counter;

    table ipv4_lpm {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { set_nexthop; no_route; }
        default_action = no_route();
        counters = route_counter;
        size = 1048576;
    }

    action send(bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        std.egress_spec = port;
        hdr.ethernet.srcAddr = srcAddr;
        hdr.ethernet.dstAddr = dstAddr;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    table nexthop {
        key = { meta.nexthop: exact; }
        actions = { send; no_route; }
        default_action = no_route();
        size = 65536;
    }

    // Answers a request for one of the router's own addresses with the port's MAC address.
    action arp_answer(bit<48> mac) {
        bit<32> asked = hdr.arp.targetIp;
        hdr.ethernet.dstAddr = hdr.ethernet.srcAddr;
        hdr.ethernet.srcAddr = mac;
        hdr.arp.oper = 2;
        hdr.arp.targetHw = hdr.arp.senderHw;
        hdr.arp.targetIp = hdr.arp.senderIp;
        hdr.arp.senderHw = mac;
        hdr.arp.senderIp = asked;
        std.egress_spec = std.ingress_port;
    }

    action arp_ignore() {
        drop(3);
    }

    table arp_reply {
        key = {
            hdr.arp.oper: exact;
            hdr.arp.targetIp: exact;
        }
        actions = { arp_answer; arp_ignore; }
        default_action = arp_ignore();
        size = 1024;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            if (std.checksum_error == 1) {
                drop(0);
            } else if (hdr.ipv4.ttl <= 1) {
                drop(1);
            } else if (ipv4_lpm.apply().hit) {
                nexthop.apply();
            }
        } else if (hdr.arp.isValid()) {
            arp_reply.apply();
        } else {
            drop(3);
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr },
            hdr.ipv4.hdrChecksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
