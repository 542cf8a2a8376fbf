// Meters of one rate, by their annotations, and a table whose default entry has a counter and a meter.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> key;
    bit<8> index;
}

header colours_t {
    bit<8> three;
    bit<8> two;
    bit<8> missed;
}

struct headers_t {
    ask_t     ask;
    colours_t colours;
}

struct meta_t {
    bit<2> three;
    bit<2> two;
    bit<2> missed;
}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @single_rate_three_color meter(4, MeterType.packets) of_three;
    @single_rate_two_color meter(4, MeterType.packets) of_two;
    @single_rate_two_color direct_meter<bit<2>>(MeterType.bytes) at_entry;
    direct_counter(CounterType.packets_and_bytes) hits;

    action known() { at_entry.read(meta.missed); }
    action unknown() { at_entry.read(meta.missed); }

    table stations {
        key = { hdr.ask.key : exact; }
        actions = { known; unknown; }
        default_action = unknown();
        counters = hits;
        meters = at_entry;
    }

    apply {
        stations.apply();
        of_three.execute_meter((bit<32>)hdr.ask.index, meta.three);
        of_two.execute_meter((bit<32>)hdr.ask.index, meta.two);
        hdr.colours.setValid();
        hdr.colours.three = (bit<8>)meta.three;
        hdr.colours.two = (bit<8>)meta.two;
        hdr.colours.missed = (bit<8>)meta.missed;
        hdr.ask.setInvalid();
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }
control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }
control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
