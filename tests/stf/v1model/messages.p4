// What leaves the switch besides packets: digests, lines of the log, failed assertions.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    bit<8>  what;
    bit<16> value;
}

header small_t { bit<8> a; bit<8> b; }

struct headers_t { ask_t ask; small_t small; }

struct meta_t {}

struct pair_t { bit<16> value; bit<9> port; }

@name("learn.mac")
struct named_t { bit<8> what; pair_t inner; }

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.ask.what == 1) {
            pair_t pair = { hdr.ask.value, std.ingress_port };
            digest<pair_t>(1, pair);
            // The values are those of the call.
            hdr.ask.value = 0;
        }
        if (hdr.ask.what == 2) {
            digest<named_t>(2, { hdr.ask.what, { hdr.ask.value, 7 } });
            digest<pair_t>(3, { 1, 2 });
            mark_to_drop(std);
        }
        if (hdr.ask.what == 3) {
            log_msg("a packet");
            log_msg("value {} from port {}", { hdr.ask.value, std.ingress_port });
        }
        if (hdr.ask.what == 4) {
            assert(hdr.ask.value == 1);
            assume(hdr.ask.value == 1);
            log_msg("still here");
        }
        if (hdr.ask.what == 5) {
            assume(hdr.ask.value > 1);
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }

control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }

control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
