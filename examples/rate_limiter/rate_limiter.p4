// A rate limiter, after the one measured in section V of "P4rt-OVS" (CNSM 2020).
//
// `customer` knows senders by the longest prefix; each has a meter (RFC 2698) with the rates that the controller has set. What
// is above the peak rate is dropped, what is above the committed one is marked for those behind to drop first (DSCP CS1, RFC
// 8622 has the idea); the header's checksum is adjusted for that. Unknown senders are not limited.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
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

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
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
                // RFC 1624: the word with version, length, DSCP and ECN; only the second byte changes.
                bit<32> sum = (bit<32>)(~hdr.ipv4.hdrChecksum) + (bit<32>)(~(8w0 ++ hdr.ipv4.dscp ++ 2w0)) +
                    (bit<32>)(8w0 ++ CS1 ++ 2w0);
                sum = (sum & 0xffff) + (sum >> 16);
                sum = (sum & 0xffff) + (sum >> 16);
                hdr.ipv4.hdrChecksum = ~sum[15:0];
                hdr.ipv4.dscp = CS1;
            }
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
