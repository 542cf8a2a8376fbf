// More headers than a compiled deparser keeps places of: which of them are added is known at run time.
#include <core.p4>
#include <v1model.p4>

header choice_t { bit<8> without; }
header number_t { bit<8> value; }
struct headers_t { number_t[70] numbers; choice_t choice; }
struct meta_t { }

parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.choice);
        transition accept;
    }
}

control V(inout headers_t hdr, inout meta_t meta) { apply { } }

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        for (bit<8> i = 0; i < 70; i = i + 1) {
            if ((i & hdr.choice.without) == 0) {
                hdr.numbers[i].setValid();
                hdr.numbers[i].value = i;
            }
        }
    }
}

control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.numbers);
        packet.emit(hdr.choice);
    }
}

V1Switch(P(), V(), I(), E(), V(), D()) main;
