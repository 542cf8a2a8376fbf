// What v1model's externs do in bmv2 where a program asks for what is not there.

#include <core.p4>
#include <v1model.p4>

header op_t {
    bit<8>  op;
    bit<16> value;
}

header two_t {
    bit<8>  x;
    bit<8>  y;
    bit<16> sum;
}

struct headers_t {
    op_t  op;
    two_t a;
    two_t b;
}

struct told_t {
    bit<8>  op;
    bit<16> value;
}

struct other_t {
    bit<8> op;
}

struct meta_t {
    told_t told;
}

parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.op);
        packet.extract(hdr.a);
        transition select(hdr.op.op) {
            8 &&& 8: parse_b;
            default: accept;
        }
    }
    state parse_b {
        packet.extract(hdr.b);
        transition accept;
    }
}

control Check(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.op.op & 0xf7 == 5, { hdr.a.x, hdr.a.y }, hdr.b.sum, HashAlgorithm.csum16);
    }
}

control Sum(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.op.op & 0xf7 == 6, { hdr.a.x, hdr.a.y }, hdr.b.sum, HashAlgorithm.csum16);
    }
}

control In(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    register<bit<16>>(2) cells;

    apply {
        standard.egress_spec = standard.ingress_port;
        bit<8> op = hdr.op.op & 0xf7;
        if (op == 1) {
            cells.write(0, 0x1234);
            cells.read(hdr.op.value, (bit<32>) hdr.a.x);
        } else if (op == 2) {
            random(hdr.op.value, (bit<16>) hdr.a.x, (bit<16>) hdr.a.y);
        } else if (op == 3) {
            hash(hdr.op.value, HashAlgorithm.identity, 16w0, { hdr.a.x, hdr.b.x, hdr.a.y }, 32w65536);
        } else if (op == 4) {
            hash(hdr.op.value, HashAlgorithm.csum16, 16w0, { hdr.a.x, hdr.a.y, hdr.b.x, hdr.b.y }, 32w65536);
        } else if (op == 5) {
            hdr.op.value = (bit<16>) standard.checksum_error;
        } else if (op == 7) {
            meta.told = { hdr.op.op, 1 };
            digest<other_t>(1, { hdr.op.op });
            digest<told_t>(1, meta.told);
            meta.told.value = 2;
        }
    }
}

control Eg(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.op.op & 0xf7 == 6) {
            hdr.op.value = hdr.b.sum;
        }
    }
}

control Out(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(P(), Check(), In(), Eg(), Sum(), Out()) main;
