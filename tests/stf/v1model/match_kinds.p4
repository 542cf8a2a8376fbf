// Each match kind with entries of the program: which one wins.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> key;
    bit<8> more;
}

header result_t {
    bit<8> of_range;
    bit<8> of_ternary;
    bit<8> of_optional;
    bit<8> of_lpm;
    bit<8> of_exact;
    bit<8> of_mixed;
}

struct headers_t {
    ask_t    ask;
    result_t result;
}

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    bit<8> found;
    action is(bit<8> number) { found = number; }
    action none() { found = 0; }

    // The first one that matches.
    table of_range {
        key = { hdr.ask.key : range; }
        actions = { is; none; }
        default_action = none();
        const entries = {
            10 .. 20   : is(1);
            15 .. 200  : is(2);
            30         : is(3);     // hidden by the one before
            250 .. 255 : is(4);
        }
    }
    table of_ternary {
        key = { hdr.ask.key : ternary; }
        actions = { is; none; }
        default_action = none();
        const entries = {
            0x04 &&& 0xfc : is(1);
            0x40 &&& 0x72 : is(2);
            0x50 &&& 0xf0 : is(3);
            0x07          : is(4);  // hidden by the first
            _             : is(5);
        }
    }
    table of_optional {
        key = { hdr.ask.key : optional; hdr.ask.more : optional; }
        actions = { is; none; }
        default_action = none();
        const entries = {
            (7, 8) : is(1);
            (_, 8) : is(2);
            (7, _) : is(3);
            (9, 9) : is(4);
        }
    }
    // The longest prefix, wherever it stands.
    table of_lpm {
        key = { hdr.ask.key : lpm; }
        actions = { is; none; }
        default_action = none();
        const entries = {
            0x40 &&& 0xc0 : is(1);
            0x48 &&& 0xf8 : is(2);
            0x4a          : is(3);
            0x40 &&& 0xf0 : is(4);
        }
    }
    table of_exact {
        key = { hdr.ask.key : exact; hdr.ask.more : exact; }
        actions = { is; none; }
        default_action = none();
        const entries = {
            (7, 8) : is(1);
            (8, 7) : is(2);
        }
    }
    // With a ternary field beside it, the length of a prefix does not count: the priority does, larger ones first.
    table of_mixed {
        key = { hdr.ask.key : lpm; hdr.ask.more : ternary; }
        actions = { is; none; }
        default_action = none();
    }

    apply {
        hdr.result.setValid();
        of_range.apply();
        hdr.result.of_range = found;
        of_ternary.apply();
        hdr.result.of_ternary = found;
        of_optional.apply();
        hdr.result.of_optional = found;
        of_lpm.apply();
        hdr.result.of_lpm = found;
        of_exact.apply();
        hdr.result.of_exact = found;
        of_mixed.apply();
        hdr.result.of_mixed = found;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.result); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
