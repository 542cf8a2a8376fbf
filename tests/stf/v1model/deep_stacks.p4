// A stack of many elements of which packets have a few: it is parsed, popped, pushed and emitted by what packets have.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header tag_t { bit<3> pcp; bit<1> dei; bit<12> vid; bit<16> type; }
header label_t { bit<20> label; bit<3> tc; bit<1> bottom; bit<8> ttl; }

struct headers { ethernet_t ethernet; tag_t[3] tags; label_t[100] labels; }
struct metadata { bit<8> depth; }

parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start { packet.extract(hdr.ethernet); transition select(hdr.ethernet.type) { 0x8100: tag; 0x8847: label; default: accept; } }
    state tag {
        packet.extract(hdr.tags.next);
        transition select(hdr.tags.last.type) { 0x8100: tag; 0x8847: label; default: accept; }
    }
    state label {
        packet.extract(hdr.labels.next);
        meta.depth = meta.depth + 1;
        transition select(hdr.labels.last.bottom) { 0: label; default: accept; }
    }
}

control V(inout headers hdr, inout metadata meta) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }

// The last byte of the destination says what is done; the source's becomes the number of labels that were parsed.
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 2;
        hdr.ethernet.src[7:0] = meta.depth;
        if (hdr.ethernet.dst[7:0] == 1) {
            hdr.labels.pop_front(1);
        } else if (hdr.ethernet.dst[7:0] == 2) {
            hdr.labels.pop_front(3);
            hdr.tags.pop_front(1);
        } else if (hdr.ethernet.dst[7:0] == 3) {
            hdr.labels.push_front(2);
            hdr.labels[0] = { 1, 2, 0, 3 };
            hdr.labels[1].setValid();
            hdr.labels[1].ttl = 9;
        } else if (hdr.ethernet.dst[7:0] == 4) {
            hdr.labels[1].setInvalid();
            hdr.labels[0].ttl = hdr.labels[0].ttl |-| 1;
        } else if (hdr.ethernet.dst[7:0] == 5 && hdr.labels[2].isValid()) {
            hdr.labels[2].label = hdr.labels[0].label;
            hdr.labels.pop_front(1);
            hdr.labels.push_front(1);
        } else if (std.parser_error != error.NoError) {
            mark_to_drop(std);
        }
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }
control D(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
