// Action profiles and selectors: members, groups, weights, what the hash is made of, and the default action.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  key;
    bit<8>  flow;
    bit<16> result;
}

struct headers_t { ask_t ask; }

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action set(bit<16> value) { hdr.ask.result = value; }
    action none() { hdr.ask.result = 0xeeee; }

    @name("shared")
    action_profile(8) profile;
    action_selector(HashAlgorithm.identity, 8, 8) by_flow;
    action_selector(HashAlgorithm.crc16, 8, 10) by_both;

    table indirect {
        key = { hdr.ask.key : exact; }
        actions = { set; none; }
        default_action = none();
        implementation = profile;
    }
    table indirect_too {
        key = { hdr.ask.key : ternary; }
        actions = { set; none; }
        default_action = none();
        implementation = profile;
    }
    table selected {
        key = { hdr.ask.key : exact; hdr.ask.flow : selector; }
        actions = { set; none; }
        default_action = none();
        implementation = by_flow;
    }
    table selected_too {
        key = { hdr.ask.key : lpm; hdr.ask.key : selector; hdr.ask.flow : selector; }
        actions = { set; none; }
        default_action = none();
        implementation = by_both;
    }

    apply {
        // The upper half of the key says which tables to ask.
        if (hdr.ask.key[7:4] == 1) { indirect.apply(); }
        if (hdr.ask.key[7:4] == 2) { indirect_too.apply(); }
        if (hdr.ask.key[7:4] == 3 && !selected.apply().hit) { std.egress_spec = 1; }
        if (hdr.ask.key[7:4] == 4) { selected_too.apply(); }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
