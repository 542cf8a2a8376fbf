// A table whose entries a controller may change, but for one: only that is `const`.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8> key;
    bit<8> answer;
}

struct headers_t {
    ask_t ask;
}

struct meta_t {}

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets) hits;
    action answer(bit<8> value) { hdr.ask.answer = value; }

    table first {
        key = { hdr.ask.key : exact; }
        actions = { answer; }
        default_action = answer(0);
        entries = {
            1 : answer(10);
            const 2 : answer(20);
            3 : answer(30);
        }
        counters = hits;
        size = 8;
    }

    apply { first.apply(); }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }
control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }
control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
