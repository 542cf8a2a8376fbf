// Actions with one name for controllers, as in programs that were translated from P4_14: `set` of ingress and of egress take the same
// parameter and do different things, and `nop` is in both controls.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

struct metadata_t {
}

struct headers_t {
    ethernet_t ethernet;
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control MyVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @name(".nop") action nop() { }
    @name(".set") action set_port(@name("value") bit<9> port) { std.egress_spec = port; }
    table ports {
        key = { hdr.ethernet.dstAddr & 0xff0000000000: exact; }
        actions = { nop; set_port; }
        const default_action = nop();
    }
    apply {
        std.egress_spec = 1;
        ports.apply();
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @name(".nop") action nop() { }
    @name(".set") action set_type(@name("value") bit<9> port) { hdr.ethernet.etherType = (bit<16>)port; }
    table types {
        key = { std.egress_port: exact; }
        actions = { nop; set_type; }
        const default_action = nop();
    }
    apply { types.apply(); }
}

control MyCompute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); }
}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
