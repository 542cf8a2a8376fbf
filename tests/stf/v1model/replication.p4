// What becomes of a packet that asks for several things at the end of ingress or egress, and what its copies know.

#include <core.p4>
#include <v1model.p4>

// Bits of `at_ingress` and `at_egress`: what to ask for there, in this order.
const bit<8> DROP = 0x01;           // mark_to_drop
const bit<8> MULTICAST = 0x02;      // mcast_grp = group (ingress only)
const bit<8> CLONE = 0x04;          // clone_preserving_field_list, field list 1
const bit<8> AGAIN = 0x08;          // ingress: resubmit, egress: recirculate; field list 2
const bit<8> PORT = 0x10;           // egress_spec = port
const bit<8> SESSION_TWO = 0x20;    // a second clone, with session + 1 and without a field list
const bit<8> WRITE_PORT = 0x40;     // egress_port = 9 (egress only: has no effect)
const bit<8> LATE_DROP = 0x80;      // mark_to_drop again, behind everything else (ingress only)

header ask_t {
    bit<8>  at_ingress;
    bit<8>  at_egress;
    bit<16> port;
    bit<16> group;
    bit<16> session;
}

// What the packet saw, oldest first: one is added in front of the payload by each ingress and each egress.
header seen_t {
    bit<8>  where;          // 1 ingress, 2 egress
    bit<8>  instance_type;
    bit<16> ingress_port;
    bit<16> egress_port;
    bit<16> rid;
    bit<8>  one;            // meta.one, of field list 1
    bit<8>  both;           // of lists 1 and 2
    bit<8>  none;           // of no list
    bit<8>  left;           // packets left in the queue
    bit<8>  more;           // whether another follows
}

struct headers_t {
    ask_t     ask;
    seen_t[8] seen;
}

struct meta_t {
    @field_list(1)
    bit<8> one;
    @field_list(1, 2)
    bit<8> both;
    bit<8> none;
}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition next;
    }
    state next {
        pkt.extract(hdr.seen.next);
        transition select(hdr.seen.last.more) {
            0: accept;
            _: next;
        }
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control Note(inout headers_t hdr, in meta_t meta, in standard_metadata_t std, in bit<8> where) {
    apply {
        hdr.seen.push_front(1);
        hdr.seen[0].setValid();
        hdr.seen[0].where = where;
        hdr.seen[0].instance_type = (bit<8>) std.instance_type;
        hdr.seen[0].ingress_port = (bit<16>) std.ingress_port;
        hdr.seen[0].egress_port = (bit<16>) std.egress_port;
        hdr.seen[0].rid = std.egress_rid;
        hdr.seen[0].one = meta.one;
        hdr.seen[0].both = meta.both;
        hdr.seen[0].none = meta.none;
        hdr.seen[0].left = (bit<8>) std.deq_qdepth;
        hdr.seen[0].more = 1;
    }
}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Note() note;
    apply {
        note.apply(hdr, meta, std, 1);
        bit<8> todo = hdr.ask.at_ingress;
        // A packet that comes again is sent on.
        if (std.instance_type != 0) { todo = PORT; }
        if (todo & CLONE != 0) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>) hdr.ask.session, 1);
        }
        if (todo & SESSION_TWO != 0) { clone(CloneType.I2E, (bit<32>) hdr.ask.session + 1); }
        if (todo & AGAIN != 0) { resubmit_preserving_field_list(2); }
        if (todo & PORT != 0) { std.egress_spec = (bit<9>) hdr.ask.port; }
        if (todo & DROP != 0) { mark_to_drop(std); }
        if (todo & MULTICAST != 0) { std.mcast_grp = hdr.ask.group; }
        if (todo & LATE_DROP != 0) { mark_to_drop(std); }
        // Field lists keep the values that the fields have at the end.
        meta.one = 0x11;
        meta.both = 0x22;
        meta.none = 0x33;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Note() note;
    apply {
        note.apply(hdr, meta, std, 2);
        bit<8> todo = hdr.ask.at_egress;
        // Copies made at egress, and packets that went round, are left alone.
        if (std.instance_type == 2 || hdr.seen[2].isValid() && hdr.seen[2].where == 2) { todo = 0; }
        if (todo & CLONE != 0) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>) hdr.ask.session, 1);
        }
        if (todo & SESSION_TWO != 0) { clone(CloneType.E2E, (bit<32>) hdr.ask.session + 1); }
        if (todo & AGAIN != 0) { recirculate_preserving_field_list(2); }
        if (todo & DROP != 0) { mark_to_drop(std); }
        if (todo & PORT != 0) { std.egress_spec = (bit<9>) hdr.ask.port; }
        if (todo & WRITE_PORT != 0) { std.egress_port = 9; }
        meta.one = 0x44;
        meta.both = 0x55;
        meta.none = 0x66;
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.ask);
        pkt.emit(hdr.seen);
    }
}

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
