// Counters of packets, of bytes and of both, by index and beside entries.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  key;
    bit<8>  index;
}

struct headers_t { ask_t ask; }

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(4, CounterType.packets) of_packets;
    counter(4, CounterType.bytes) of_bytes;
    @name("both.of.them")
    counter(4, CounterType.packets_and_bytes) of_both;
    direct_counter(CounterType.packets_and_bytes) at_entry;
    direct_counter(CounterType.packets_and_bytes) at_other;

    // Counts twice and not at all: the entry's counter counts each hit once, whatever the action does.
    action twice() {
        at_entry.count();
        at_entry.count();
        std.egress_spec = 1;
    }
    action never() { std.egress_spec = 2; }
    action missed() {
        at_entry.count();
        std.egress_spec = 3;
    }

    table counted {
        key = { hdr.ask.key : exact; }
        actions = { twice; never; missed; }
        default_action = missed();
        counters = at_entry;
    }

    table counted_too {
        key = { hdr.ask.key : ternary; }
        actions = { NoAction; }
        default_action = NoAction();
        counters = at_other;
    }

    apply {
        of_packets.count((bit<32>) hdr.ask.index);
        of_bytes.count((bit<32>) hdr.ask.index);
        of_both.count((bit<32>) hdr.ask.index);
        counted.apply();
        counted_too.apply();
    }
}

// What egress adds to the packet is not counted: a counter counts the packet as it was received.
control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(1, CounterType.bytes) leaving;
    apply {
        hdr.ask.setInvalid();
        leaving.count(0);
    }
}

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
