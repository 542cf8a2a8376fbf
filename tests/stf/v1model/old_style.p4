// The forms that v1model keeps for old programs: clone3, resubmit and recirculate with a list of values, which name the
// variables to keep.

#include <core.p4>
#include <v1model.p4>

header ask_t { bit<8> what; }

header result_t {
    bit<8> instance_type;
    bit<8> first;
    bit<8> second;
    bit<8> third;
}

struct headers_t {
    ask_t    ask;
    result_t result;
}

struct inner_t { bit<8> second; bit<8> third; }

struct meta_t {
    bit<8>  first;
    inner_t inner;
}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition select(std.instance_type) {
            4: again;
            default: accept;
        }
    }
    state again {
        pkt.extract(hdr.result);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (std.instance_type == 0) {
            meta.first = 1;
            meta.inner.second = 2;
            meta.inner.third = 3;
            if (hdr.ask.what == 1) { clone3(CloneType.I2E, 5, { meta.first, meta.inner.third }); }
            if (hdr.ask.what == 2) { resubmit(meta.inner); }
            if (hdr.ask.what == 3) { resubmit<tuple<>>({}); }
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.ask.what == 4 && !hdr.result.isValid()) { recirculate(meta); }
        if (hdr.ask.what == 5 && std.instance_type == 0) { clone3<bit<8>>(CloneType.E2E, 5, meta.first); }
        hdr.result.setValid();
        hdr.result.instance_type = (bit<8>) std.instance_type;
        hdr.result.first = meta.first;
        hdr.result.second = meta.inner.second;
        hdr.result.third = meta.inner.third;
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
