// A rate limiter, after the one measured in section V of "P4rt-OVS" (CNSM 2020).
//
// `customer` knows senders by the longest prefix; each has a meter (RFC 2698) with the rates that the controller has set. What
// is above the peak rate is dropped, what is above the committed one is marked for those behind to drop first (DSCP CS1, RFC
// 8622 has the idea); the header's checksum is adjusted for that. Unknown senders are not limited.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/checksum.p4>
#include <p4lib/parsers.p4>

const bit<2> GREEN = 0;
const bit<2> YELLOW = 1;
const bit<2> RED = 2;

const bit<6> CS1 = 8;

struct metadata_t {
    bit<2> colour;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

#include <p4lib/v1model.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        ParseEthernetIpv4.apply(packet, hdr.ethernet, hdr.ipv4);
        transition accept;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_meter<bit<2>>(MeterType.bytes) rates;
    counter(3, CounterType.packets_and_bytes) colours;

    action drop() {
        mark_to_drop(std);
    }

    action limit() {
        rates.read(meta.colour);
    }

    table customer {
        key = { hdr.ipv4.srcAddr: lpm; }
        actions = { limit; NoAction; }
        default_action = NoAction();
        meters = rates;
        size = 65536;
    }

    action to_port(bit<9> port) {
        std.egress_spec = port;
    }

    // Where a port's frames go.
    table uplink {
        key = { std.ingress_port: exact; }
        actions = { to_port; drop; }
        default_action = drop();
        size = 512;
    }

    apply {
        uplink.apply();
        if (hdr.ipv4.isValid()) {
            customer.apply();
            colours.count((bit<32>)meta.colour);
            if (meta.colour == RED) {
                drop();
            } else if (meta.colour == YELLOW) {
                ipv4_set_dscp(hdr.ipv4, CS1);
            }
        }
    }
}

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;
