// Per-flow counters and meters.
//
// A flow (source, destination) is counted and metered beside its table entry (direct counter, direct meter); each class of
// service has an indirect counter and meter. Red packets are dropped, yellow ones lose their class.

#include <core.p4>
#include <v1model.p4>
#include <p4lib/parsers.p4>

struct metadata_t {
    bit<2> flow_colour;
    bit<2> class_colour;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

#include <p4lib/v1model_ipv4.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        ParseEthernetIpv4.apply(packet, hdr.ethernet, hdr.ipv4);
        transition accept;
    }
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

V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), UpdateIpv4Checksum(), EmitHeaders()) main;
