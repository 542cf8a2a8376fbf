// Every field of standard_metadata, as ingress and egress of a unicast packet see it.

#include <core.p4>
#include <v1model.p4>

// The packet says which port to go to and by what priority.
header ask_t {
    bit<16> port;
    bit<8>  priority;
}

header seen_t {
    bit<16> ingress_port;
    bit<16> egress_spec;
    bit<16> egress_port;
    bit<32> instance_type;
    bit<32> packet_length;
    bit<32> enq_timestamp;
    bit<24> enq_qdepth;
    bit<32> deq_timedelta;
    bit<24> deq_qdepth;
    bit<48> ingress_global_timestamp;
    bit<48> egress_global_timestamp;
    bit<16> mcast_grp;
    bit<16> egress_rid;
    bit<8>  checksum_error;
    bit<8>  parser_error;
    bit<8>  priority;
}

struct headers_t {
    ask_t  ask;
    seen_t ingress;
    seen_t egress;
}

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control Note(inout seen_t seen, in standard_metadata_t std) {
    apply {
        seen.setValid();
        seen.ingress_port = (bit<16>) std.ingress_port;
        seen.egress_spec = (bit<16>) std.egress_spec;
        seen.egress_port = (bit<16>) std.egress_port;
        seen.instance_type = std.instance_type;
        seen.packet_length = std.packet_length;
        seen.enq_timestamp = std.enq_timestamp;
        seen.enq_qdepth = (bit<24>) std.enq_qdepth;
        seen.deq_timedelta = std.deq_timedelta;
        seen.deq_qdepth = (bit<24>) std.deq_qdepth;
        seen.ingress_global_timestamp = std.ingress_global_timestamp;
        seen.egress_global_timestamp = std.egress_global_timestamp;
        seen.mcast_grp = std.mcast_grp;
        seen.egress_rid = std.egress_rid;
        seen.checksum_error = (bit<8>) std.checksum_error;
        seen.parser_error = std.parser_error == error.NoError ? 8w0 : 8w1;
        seen.priority = (bit<8>) std.priority;
    }
}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Note() note;
    apply {
        note.apply(hdr.ingress, std);
        if (hdr.ask.port != 0) {
            std.egress_spec = (bit<9>) hdr.ask.port;
        }
        std.priority = (bit<3>) hdr.ask.priority;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Note() note;
    apply { note.apply(hdr.egress, std); }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.ask);
        pkt.emit(hdr.ingress);
        pkt.emit(hdr.egress);
    }
}

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
