// Packets that would never end.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> what;            // 1 resubmit, 2 multicast and recirculate, 3 clone at egress, 4 recirculate until the count is 0
    bit<8> count;
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
    apply {
        if (hdr.ask.what == 1) { resubmit_preserving_field_list(0); }
        if (hdr.ask.what == 2) { std.mcast_grp = 1; }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.ask.what == 2) { recirculate_preserving_field_list(0); }
        if (hdr.ask.what == 3) { clone(CloneType.E2E, 1); }
        if (hdr.ask.what == 4 && hdr.ask.count != 0) {
            hdr.ask.count = hdr.ask.count - 1;
            recirculate_preserving_field_list(0);
        }
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
