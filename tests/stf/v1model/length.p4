// packet_length in egress: as received, with the headers that ingress added and without those it removed.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> option_length;
    bit<8> change;          // 1 adds `tag` in ingress, 2 removes `option`, 4 multicasts, 8 clones at egress, 16 adds `tag` there
}

header option_t { varbit<64> bytes; }

header tag_t { bit<32> ingress; bit<32> egress; }

struct headers_t {
    tag_t    tag;
    tag_t    more;
    ask_t    ask;
    option_t option;
    tag_t    result;
}

struct meta_t { @field_list(1) bit<32> ingress; }

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        pkt.extract(hdr.option, (bit<32>) hdr.ask.option_length * 8);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.ask.change & 1 != 0) { hdr.tag.setValid(); }
        if (hdr.ask.change & 2 != 0) { hdr.option.setInvalid(); }
        if (hdr.ask.change & 4 != 0) { std.mcast_grp = 1; }
        if (hdr.ask.change & 32 != 0) { clone(CloneType.I2E, 1); }
        // In ingress it is the length that the packet had when it was received.
        meta.ingress = std.packet_length;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.ask.change & 8 != 0 && std.instance_type != 2) { clone_preserving_field_list(CloneType.E2E, 1, 1); }
        if (hdr.ask.change & 16 != 0 && std.instance_type != 2) { hdr.more.setValid(); }
        hdr.result.setValid();
        hdr.result.ingress = meta.ingress;
        hdr.result.egress = std.packet_length;
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
