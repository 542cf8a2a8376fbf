// Meters of packets and of bytes, by index and beside entries. The colour is what leaves.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> key;
    bit<8> index;
}

header colours_t {
    bit<8> of_packets;
    bit<8> of_bytes;
    bit<8> of_entry;
    bit<8> of_other;
}

struct headers_t {
    ask_t     ask;
    colours_t colours;
}

struct meta_t {
    bit<2> of_packets;
    bit<8> of_bytes;
    bit<3> of_entry;
    bit<2> of_other;
}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        // Nobody has been asked yet.
        meta.of_packets = 3;
        meta.of_entry = 7;
        meta.of_other = 3;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    meter(4, MeterType.packets) of_packets;
    meter(4, MeterType.bytes) of_bytes;
    direct_meter<bit<3>>(MeterType.packets) at_entry;
    direct_meter<bit<2>>(MeterType.bytes) at_other;

    action asks() { at_entry.read(meta.of_entry); }
    action asks_twice() {
        at_entry.read(meta.of_entry);
        at_entry.read(meta.of_entry);
    }
    // As if it asked too.
    action is_silent() {}

    table metered {
        key = { hdr.ask.key : exact; }
        actions = { asks; asks_twice; is_silent; }
        default_action = is_silent();
        meters = at_entry;
    }

    action overwrites() {
        at_other.read(meta.of_other);
        meta.of_other = meta.of_other | 2;
    }

    table metered_too {
        key = { hdr.ask.key : lpm; }
        actions = { overwrites; NoAction; }
        default_action = NoAction();
        meters = at_other;
    }

    apply {
        of_packets.execute_meter((bit<32>) hdr.ask.index, meta.of_packets);
        of_bytes.execute_meter((bit<32>) hdr.ask.index, meta.of_bytes);
        metered.apply();
        metered_too.apply();
        hdr.colours.setValid();
        hdr.colours.of_packets = (bit<8>) meta.of_packets;
        hdr.colours.of_bytes = meta.of_bytes;
        hdr.colours.of_entry = (bit<8>) meta.of_entry;
        hdr.colours.of_other = (bit<8>) meta.of_other;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.colours); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
