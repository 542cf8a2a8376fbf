// For test_group_action.py: an action set whose group action marks the packet, whichever member forwards it.
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_out") header pout_t { bit<8> key; bit<8> flow; }
@controller_header("packet_in") header pin_t { bit<8> mark; bit<8> hop; bit<8> how; }
struct headers_t { pin_t pin; pout_t pout; }
struct meta_t { bit<8> mark; bit<8> hop; bit<8> how; }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.pout); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    action mark(bit<8> by) { m.mark = by; m.hop = by; }
    action via(bit<8> hop) { m.hop = hop; }
    // Sees what the group action did.
    action after(bit<8> more) { m.hop = m.mark + more; }
    action none() { m.how = 1; }
    table routes {
        key = { h.pout.key: exact; h.pout.flow: selector; }
        actions = { via; @groupaction mark; after; @defaultonly none; }
        default_action = none();
        implementation = action_selector(HashAlgorithm.crc16, 64, 16);
        size = 16;
    }
    apply {
        switch (routes.apply().action_run) {
            via: { m.how = 2; }
            after: { m.how = 3; }
            mark: { m.how = 4; }
        }
        s.egress_spec = 0x1fe;
        h.pin = { m.mark, m.hop, m.how };
        h.pin.setValid();
        h.pout.setInvalid();
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.pin); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
