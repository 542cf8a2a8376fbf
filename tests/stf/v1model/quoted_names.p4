// Scripts as the reference compiler's test generator writes them: names in quotes with any character, keys named after their fields'
// annotations, optional keys that accept anything, counters by handles, and clone session 0.

#include <core.p4>
#include <v1model.p4>

header ask_t {
    @name("the key") bit<8> key;
    @name(".global") bit<8> more;
    bit<8> last;
}

struct headers_t { ask_t ask; ask_t[2] asks; }
struct meta_t { @name("m.x") bit<16> x; }

parser Parse(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        pkt.extract(hdr.ask);
        meta.x = hdr.ask.key ++ hdr.ask.more;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout meta_t meta) { apply {} }

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets) c;
    action act(@name("to (port)") bit<9> p, bit<8> q) {
        std.egress_spec = p;
        hdr.ask.last = q;
    }
    @name("copy it") action copy() {
        clone(CloneType.I2E, 0);
        std.egress_spec = 1;
    }
    @name("my table [0]") table t {
        key = {
            hdr.ask.key : optional;
            hdr.ask.more : optional;
            hdr.ask.key[7:4] : ternary;
            meta.x : range;
            hdr.asks[1].isValid() : exact;
        }
        actions = { act; copy; NoAction; }
        default_action = NoAction();
        counters = c;
    }
    apply { t.apply(); }
}

control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {} }
control Compute(inout headers_t hdr, inout meta_t meta) { apply {} }
control Deparse(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.ask); } }

V1Switch(Parse(), Verify(), I(), E(), Compute(), Deparse()) main;
