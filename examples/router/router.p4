// An IPv4 router: longest prefix match, TTL, checksums, next hops.
//
// `ipv4_lpm` chooses a next hop, `nexthop` the port and the MAC addresses. Packets with a wrong checksum, a TTL that runs
// out, or no route are dropped and counted in `dropped`. ARP for the router's own addresses is answered in `arp_reply`,
// so hosts need no static neighbours. The header checksum is verified and updated in full; see `acl` for a program that
// leaves it alone.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/arp.p4>
#include <p4lib/forwarding.p4>
#include <p4lib/parsers.p4>

struct metadata_t {
    bit<16> nexthop;
}

struct headers_t {
    ethernet_t ethernet;
    arp_t      arp;
    ipv4_t     ipv4;
}

#include <p4lib/v1model_ipv4.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        ParseEthernetArpIpv4.apply(packet, hdr.ethernet, hdr.arp, hdr.ipv4);
        transition accept;
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
        ipv4_forward(hdr.ethernet, hdr.ipv4, srcAddr, dstAddr);
    }

    table nexthop {
        key = { meta.nexthop: exact; }
        actions = { send; no_route; }
        default_action = no_route();
        size = 65536;
    }

    // Answers a request for one of the router's own addresses with the port's MAC address.
    action arp_answer(bit<48> mac) {
        arp_answer(hdr.ethernet, hdr.arp, mac);
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

V1Switch(MyParser(), VerifyIpv4Checksum(), MyIngress(), EmptyEgress(), UpdateIpv4Checksum(), EmitHeaders()) main;
