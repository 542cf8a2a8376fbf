// A clone at egress goes through egress again with the headers as they were at its end. Each pass makes the next header
// valid, the last of them on the sixth. On the seventh it is read after `setInvalid`: its fields keep their values.

#include <core.p4>
#include <v1model.p4>

header op_t {
    bit<8> pass;
    bit<8> value;
}

header note_t { bit<8> x; }

struct headers_t {
    op_t   op;
    note_t a;
    note_t b;
    note_t c;
    note_t d;
    note_t e;
    note_t f;
}

struct meta_t {}

parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.op);
        transition accept;
    }
}

control Check(inout headers_t hdr, inout meta_t meta) { apply {} }

control Sum(inout headers_t hdr, inout meta_t meta) { apply {} }

control In(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    apply { standard.egress_spec = 1; }
}

control Out(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.f.isValid()) {
            hdr.f.setInvalid();
            hdr.op.value = hdr.f.x;
        }
        if (hdr.e.isValid()) {
            hdr.f.setValid();
            hdr.f.x = 0x55;
        }
        if (hdr.d.isValid()) {
            hdr.e.setValid();
        }
        if (hdr.c.isValid()) {
            hdr.d.setValid();
        }
        if (hdr.b.isValid()) {
            hdr.c.setValid();
        }
        if (hdr.a.isValid()) {
            hdr.b.setValid();
        }
        hdr.a.setValid();
        hdr.op.pass = hdr.op.pass + 1;
        if (hdr.op.pass < 7) {
            clone(CloneType.E2E, 1);
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.op); }
}

V1Switch(P(), Check(), In(), Out(), Sum(), Deparse()) main;
