// Ways to end: exit, drop, the drop port, truncation, and what is left of the packet.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  ingress;
    bit<8>  egress;
    bit<16> number;
    bit<8>  trail;          // a bit for each place that was reached
}

struct headers_t { ask_t ask; }

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        // Also the parser may say where to.
        std.egress_spec = 1;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control Inner(inout headers_t hdr) {
    apply {
        hdr.ask.trail = hdr.ask.trail | 1;
        if (hdr.ask.ingress == 2) { exit; }
        if (hdr.ask.ingress == 3) { return; }
        hdr.ask.trail = hdr.ask.trail | 2;
    }
}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Inner() inner;
    action drop() { mark_to_drop(std); }
    action drop_and_stop() { mark_to_drop(std); exit; }
    action old_drop() { mark_to_drop(); }
    action undo() { mark_to_drop(std); std.egress_spec = 2; }
    action drop_port() { std.egress_spec = 511; }
    action cut() { truncate((bit<32>) hdr.ask.number); }
    action cut_twice() { truncate((bit<32>) hdr.ask.number); truncate(100); }
    table end {
        key = { hdr.ask.ingress : exact; }
        actions = { drop; drop_and_stop; old_drop; undo; drop_port; cut; cut_twice; NoAction; }
        default_action = NoAction();
        const entries = {
            4 : drop();
            5 : drop_and_stop();
            6 : old_drop();
            7 : undo();
            8 : drop_port();
            9 : cut();
            10 : cut_twice();
        }
    }
    apply {
        if (hdr.ask.ingress == 1) { exit; }
        inner.apply(hdr);
        end.apply();
        hdr.ask.trail = hdr.ask.trail | 4;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.ask.trail = hdr.ask.trail | 0x10;
        if (hdr.ask.egress == 1) { exit; }
        if (hdr.ask.egress == 2) { mark_to_drop(std); }
        if (hdr.ask.egress == 3) { mark_to_drop(std); std.egress_spec = 3; }
        if (hdr.ask.egress == 4) { std.egress_spec = 511; exit; }
        if (hdr.ask.egress == 5) { std.egress_port = 5; }
        if (hdr.ask.egress == 6) { std.egress_spec = 6; }
        if (hdr.ask.egress == 7) { truncate((bit<32>) hdr.ask.number); }
        if (hdr.ask.egress == 8) { hdr.ask.setInvalid(); }
        hdr.ask.trail = hdr.ask.trail | 0x20;
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) {
    apply {
        // Runs behind an exit too.
        update_checksum(hdr.ask.egress == 1, { hdr.ask.trail }, hdr.ask.number, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
