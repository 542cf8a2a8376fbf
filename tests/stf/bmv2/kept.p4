// Fields of invalid headers keep their values in bmv2. `op` chooses what is done; `value` and `valid` tell what came of it.

#include <core.p4>
#include <v1model.p4>

header op_t {
    bit<8> op;
    bit<8> value;
    bit<8> valid;
}

header two_t {
    bit<8> x;
    bit<8> y;
}

struct headers_t {
    op_t     op;
    two_t    a;
    two_t    b;
    two_t[2] s;
}

struct meta_t {}

parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.op);
        packet.extract(hdr.a);
        transition accept;
    }
}

control Check(inout headers_t hdr, inout meta_t meta) {
    apply {}
}

control Sum(inout headers_t hdr, inout meta_t meta) {
    apply {}
}

control In(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    two_t mine;

    action keep_in_table_action() {
        hdr.a.setInvalid();
        hdr.op.value = hdr.a.y;
    }

    table acts {
        key = { hdr.op.op: exact; }
        actions = { keep_in_table_action; NoAction; }
        const entries = { 0xe: keep_in_table_action(); }
        default_action = NoAction();
    }

    apply {
        standard.egress_spec = standard.ingress_port;
        if (hdr.op.op == 0) {
            hdr.op.value = hdr.a.x;
        } else if (hdr.op.op == 1) {
            hdr.a.setInvalid();
            hdr.op.value = hdr.a.x;
        } else if (hdr.op.op == 2) {
            hdr.a.setInvalid();
            hdr.a.setValid();
            hdr.op.value = hdr.a.x;
        } else if (hdr.op.op == 3) {
            hdr.a.setInvalid();
            hdr.a.x = 0x77;
            hdr.op.value = hdr.a.x;
        } else if (hdr.op.op == 4) {
            hdr.b.x = 5;
            hdr.op.value = hdr.b.x;
        } else if (hdr.op.op == 5) {
            hdr.b.y = 5;
            hdr.a = hdr.b;
            hdr.op.value = hdr.a.y;
        } else if (hdr.op.op == 6) {
            hdr.b.setValid();
            hdr.b.x = 9;
            hdr.b.y = 8;
            hdr.a = hdr.b;
            hdr.op.value = hdr.a.x;
        } else if (hdr.op.op == 7) {
            hdr.a.setInvalid();
            hdr.op.value = hdr.a == hdr.b ? 8w1 : 0;
        } else if (hdr.op.op == 8) {
            hdr.b.setValid();
            hdr.b.x = hdr.a.x;
            hdr.b.y = hdr.a.y;
            hdr.a.setInvalid();
            hdr.op.value = hdr.a == hdr.b ? 8w1 : 0;
        } else if (hdr.op.op == 9) {
            hdr.s[0].setValid();
            hdr.s[0].x = 1;
            hdr.s[0].y = 2;
            hdr.s.push_front(1);
            hdr.op.value = hdr.s[0].x;
        } else if (hdr.op.op == 0xa) {
            mine.setValid();
            mine.x = 6;
            mine.setInvalid();
            hdr.a = mine;
            hdr.op.value = mine.x;
        } else if (hdr.op.op == 0xb) {
            hdr.a.setValid();
            hdr.op.value = hdr.a.x;
        } else if (hdr.op.op == 0xc) {
            hdr.a.setInvalid();
        } else if (hdr.op.op == 0xd) {
            hdr.a.setInvalid();
            hdr.a = { 3, 4 };
            hdr.op.value = hdr.a.x;
        } else {
            acts.apply();
        }
    }
}

control Eg(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.op.op == 0xc) {
            hdr.op.value = hdr.a.y;
        }
        hdr.op.valid = (hdr.a.isValid() ? 8w1 : 0) + (hdr.b.isValid() ? 8w2 : 0) + (hdr.s[0].isValid() ? 8w4 : 0)
            + (hdr.s[1].isValid() ? 8w8 : 0);
    }
}

control Out(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.op);
        packet.emit(hdr.a);
        packet.emit(hdr.b);
        packet.emit(hdr.s);
    }
}

V1Switch(P(), Check(), In(), Eg(), Sum(), Out()) main;
