// One object of every kind that P4Runtime knows, and a way to see each in packets: a controller sends a packet that names
// what to look at, and the answer comes back to it with the result in its header.

#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

enum bit<8> look_t { EXACT = 1, LPM = 2, ACL = 3, ECMP = 4, VALUE_SET = 5, REGISTER = 6, METER = 7, DIGEST = 8, MULTICAST = 9, CLONE = 10, COUNTER = 11 }

@controller_header("packet_out")
header packet_out_t {
    look_t look;
}

@controller_header("packet_in")
header packet_in_t {
    bit<16> result;
    bit<16> instance;
}

header probe_t {
    bit<32> a;
    bit<32> b;
    bit<16> c;
    bit<16> d;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    probe_t      probe;
}

struct metadata_t {
    @field_list(1) look_t look;
    bit<16> result;
    bit<1>  in_set;
    bit<2>  colour;
}

struct seen_t {
    bit<32> a;
    bit<16> c;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<16>>(4) wanted;

    state start {
        packet.extract(hdr.packet_out);
        packet.extract(hdr.probe);
        transition select(hdr.probe.c) {
            wanted: in_set;
            default: accept;
        }
    }
    state in_set {
        meta.in_set = 1;
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(8, CounterType.packets_and_bytes) seen;
    meter(8, MeterType.packets) police;
    register<bit<32>>(8) cells;
    direct_counter(CounterType.packets_and_bytes) routed;
    direct_meter<bit<2>>(MeterType.packets) route_colour;
    action_selector(HashAlgorithm.crc16, 64, 16) selector;

    action answer(bit<16> result) {
        meta.result = result;
    }

    action route(bit<16> result) {
        meta.result = result;
        routed.count();
        route_colour.read(meta.colour);
    }

    table exact_table {
        key = { hdr.probe.a: exact @name("a"); }
        actions = { answer; NoAction; }
        default_action = answer(9);
        size = 64;
    }

    table lpm_table {
        key = { hdr.probe.a: lpm @name("a"); }
        actions = { route; NoAction; }
        default_action = NoAction;
        counters = routed;
        meters = route_colour;
        support_timeout = true;
        size = 64;
    }

    table acl_table {
        key = {
            hdr.probe.b: ternary @name("b");
            hdr.probe.c: range @name("c");
            hdr.probe.d: optional @name("d");
        }
        actions = { answer; NoAction; }
        size = 64;
    }

    table ecmp_table {
        key = {
            hdr.probe.a: exact @name("a");
            hdr.probe.d: selector;
        }
        actions = { answer; NoAction; }
        implementation = selector;
        size = 64;
    }

    table const_table {
        key = { hdr.probe.c: exact @name("c"); }
        actions = { answer; NoAction; }
        const entries = {
            7: answer(70);
        }
    }

    apply {
        meta.look = hdr.packet_out.look;
        std.egress_spec = CPU_PORT;
        bit<32> index = (bit<32>)hdr.probe.c;
        if (meta.look == look_t.EXACT) {
            exact_table.apply();
        } else if (meta.look == look_t.LPM) {
            lpm_table.apply();
        } else if (meta.look == look_t.ACL) {
            acl_table.apply();
        } else if (meta.look == look_t.ECMP) {
            ecmp_table.apply();
        } else if (meta.look == look_t.VALUE_SET) {
            meta.result = (bit<16>)meta.in_set;
        } else if (meta.look == look_t.REGISTER) {
            bit<32> value;
            cells.read(value, index);
            meta.result = value[15:0];
            cells.write(index, value + 1);
        } else if (meta.look == look_t.METER) {
            bit<2> colour;
            police.execute_meter(index, colour);
            meta.result = (bit<16>)colour;
        } else if (meta.look == look_t.DIGEST) {
            digest<seen_t>(1, { hdr.probe.a, hdr.probe.c });
        } else if (meta.look == look_t.MULTICAST) {
            std.mcast_grp = hdr.probe.c;
        } else if (meta.look == look_t.CLONE) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.probe.c, 1);
            mark_to_drop(std);
        } else if (meta.look == look_t.COUNTER) {
            seen.count(index);
        }
        const_table.apply();
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        hdr.packet_out.setInvalid();
        hdr.packet_in.setValid();
        hdr.packet_in.result = meta.result;
        hdr.packet_in.instance = std.egress_rid;
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.probe);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
