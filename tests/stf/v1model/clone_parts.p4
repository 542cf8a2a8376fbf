// What belongs to the headers and is in no header's wire form goes with an egress clone too: a header that cannot be emitted
// and a stack with what was pushed.

#include <core.p4>
#include <v1model.p4>

header ask_t { bit<8> what; }

// Seven bits: it is never on the wire.
header note_t { bit<4> a; bit<3> b; }

struct headers_t {
    ask_t    ask;
    ask_t[3] items;
    note_t   note;
    ask_t    result;
}

struct meta_t { note_t note; bit<8> lost; }

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        pkt.extract(hdr.items.next);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.note = { 5, 3 };
        meta.note = { 6, 1 };
        meta.lost = 9;
        hdr.items.push_front(1);
        hdr.items[0] = { 0x77 };
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (std.instance_type == 0) {
            hdr.note.b = 7;
            clone(CloneType.E2E, 1);
        }
        hdr.items.push_front(1);
        hdr.items[0].setValid();
        // Of the headers all is there; of the metadata, which the clone's list does not keep, nothing.
        hdr.items[0].what = (bit<8>) (hdr.note.a ++ hdr.note.b);
        hdr.result.setValid();
        hdr.result.what = (bit<8>) (meta.note.a ++ meta.note.b) + meta.lost + (meta.note.isValid() ? 8w0x80 : 0);
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.ask);
        pkt.emit(hdr.items);
        pkt.emit(hdr.result);
    }
}

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
