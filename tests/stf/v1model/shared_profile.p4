// Tables that share an action profile list its actions in other orders, and one lists an action that the other does not.
#include <core.p4>
#include <v1model.p4>

header Frame { bit<8> first; bit<8> second; bit<8> a; bit<8> b; bit<8> ran; }
struct Headers { Frame f; }
struct Nothing {}

parser P(packet_in b, out Headers h, inout Nothing m, inout standard_metadata_t s) {
    state start { b.extract(h.f); transition accept; }
}

control V(inout Headers h, inout Nothing m) { apply {} }

control I(inout Headers h, inout Nothing m, inout standard_metadata_t s) {
    action_profile(16) profile;
    action set_a(bit<8> value) { h.f.a = value; }
    action set_b(bit<8> value, bit<8> also) { h.f.b = value; h.f.a = also; }
    action alone(bit<8> value) { h.f.ran = value; }

    table one {
        key = { h.f.first: exact; }
        actions = { alone; set_a; set_b; }
        default_action = alone(0x77);
        implementation = profile;
    }
    table two {
        key = { h.f.second: exact; }
        actions = { set_b; set_a; NoAction; }
        default_action = set_b(0x55, 0x66);
        implementation = profile;
    }

    apply {
        one.apply();
        switch (two.apply().action_run) {
            set_a: { h.f.ran = 0xaa; }
            set_b: { h.f.ran = h.f.ran | 1; }
        }
        s.egress_spec = 1;
    }
}

control E(inout Headers h, inout Nothing m, inout standard_metadata_t s) { apply {} }
control U(inout Headers h, inout Nothing m) { apply {} }
control D(packet_out b, in Headers h) { apply { b.emit(h); } }

V1Switch(P(), V(), I(), E(), U(), D()) main;
