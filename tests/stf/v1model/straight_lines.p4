// Blocks so long that what they write is kept in memory: nothing of one packet, or of a run ahead of it, is left for another.
#include <core.p4>
#include <v1model.p4>

#define TWICE(X) X X
#define SIXTEEN(X) TWICE(TWICE(TWICE(TWICE(X))))

header number_t { bit<32> a; bit<32> b; bit<32> c; }
header part_t { bit<8> f; bit<8> g; }
struct headers { number_t number; }
struct metadata { bit<32> a; bit<32> b; }

parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start { packet.extract(hdr.number); transition accept; }
}

control V(inout headers hdr, inout metadata meta) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }

control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    register<bit<32>>(65536) seen;
    apply {
        std.egress_spec = 2;
        if (hdr.number.a == 1) {
            meta.a = 5;
            meta.b = hdr.number.b;
        }
        bit<32> count;
        seen.read(count, hdr.number.b);
        seen.write(hdr.number.b, count + 1);
        SIXTEEN(SIXTEEN(meta.a = meta.a + hdr.number.b; meta.b = meta.b ^ (meta.a << 1); meta.a = meta.a + count;))
        hdr.number.c = meta.b;
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }

control D(packet_out packet, in headers hdr) {
    part_t part;
    apply {
        packet.emit(hdr.number);
        SIXTEEN(TWICE(TWICE(TWICE(
            part.setValid(); part.f = hdr.number.a[7:0]; part.g = hdr.number.b[7:0]; packet.emit(part); part.setInvalid();
        ))))
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
