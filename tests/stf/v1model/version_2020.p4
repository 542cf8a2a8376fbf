// V1MODEL_VERSION 20200408: counters, meters and registers with an index type of their own, and PortId_t.

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  index;
    bit<16> value;
    bit<32> version;
}

struct headers_t { ask_t ask; }

struct meta_t { PortId_t port; }

type bit<4> Slot_t;

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter<bit<8>>(4, CounterType.packets) narrow;
    counter<bit<72>>(4, CounterType.packets) wide;
    register<bit<16>, bit<4>>(4) cells;
    register<bit<16>, Slot_t>(4) slots;
    meter<bit<8>>(4, MeterType.packets) rates;
    apply {
        narrow.count(hdr.ask.index);
        // Above 64 bits only 0 is in the array.
        wide.count((bit<72>) hdr.ask.index << 64);
        bit<16> old;
        cells.read(old, hdr.ask.index[3:0]);
        cells.write(hdr.ask.index[3:0], hdr.ask.value);
        slots.write((Slot_t) hdr.ask.index[3:0], hdr.ask.value + 1);
        hdr.ask.value = old;
        bit<8> colour;
        rates.execute_meter<bit<8>>(hdr.ask.index, colour);
        meta.port = (PortId_t) colour + 1;
        std.egress_spec = meta.port;
        hdr.ask.version = __v1model_version;
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
