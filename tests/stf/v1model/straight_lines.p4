// Blocks so long that what they write is kept in memory: nothing of one packet, or of a run ahead of it, is left for another.
#include <core.p4>
#include <v1model.p4>

header number_t { bit<32> a; bit<32> b; bit<32> c; bit<8> d; bit<8> e; }
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
    bit<32> count;
    action step() {
        meta.a = meta.a + hdr.number.b;
        meta.b = meta.b ^ (meta.a << 1);
        meta.a = meta.a + count;
    }
    apply {
        std.egress_spec = 2;
        if (hdr.number.a == 1) {
            meta.a = 5;
            meta.b = hdr.number.b;
        }
        seen.read(count, hdr.number.b);
        seen.write(hdr.number.b, count + 1);
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step(); step();
        step(); step(); step(); step();
        hdr.number.c = meta.b;
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }

control D(packet_out packet, in headers hdr) {
    part_t part;
    apply {
        packet.emit(hdr.number);
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
        part.setValid(); part.f = hdr.number.d; part.g = hdr.number.e; packet.emit(part); part.setInvalid();
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
