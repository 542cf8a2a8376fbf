// Per-flow counters and meters.
//
// A flow (source, destination) is counted and metered beside its table entry (direct counter, direct meter); each class of
// service has an indirect counter and meter. Red packets are dropped, yellow ones lose their class.

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
    bit<2> flow_colour;
    bit<2> class_colour;
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
    direct_counter(CounterType.packets_and_bytes) flow_counter;
    direct_meter<bit<2>>(MeterType.bytes) flow_meter;
    counter(64, CounterType.packets_and_bytes) class_counter;
    meter(64, MeterType.packets) class_meter;

    action drop() {
        mark_to_drop(std);
    }

    action police(bit<9> port) {
        flow_meter.read(meta.flow_colour);
        std.egress_spec = port;
    }

    table flow {
        key = {
            hdr.ipv4.srcAddr: exact;
            hdr.ipv4.dstAddr: exact;
        }
        actions = { police; drop; }
        default_action = drop();
        counters = flow_counter;
        meters = flow_meter;
        size = 65536;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            bit<32> traffic_class = (bit<32>)hdr.ipv4.diffserv[7:2];
            class_counter.count(traffic_class);
            class_meter.execute_meter(traffic_class, meta.class_colour);
            if (flow.apply().hit) {
                if (meta.flow_colour == 2 || meta.class_colour == 2) {
                    drop();
                } else if (meta.flow_colour == 1 || meta.class_colour == 1) {
                    hdr.ipv4.diffserv[7:2] = 0;
                }
            }
        } else {
            drop();
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
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
