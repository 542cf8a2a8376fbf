#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> a;
    bit<16> b;
}

control C(inout h_t h, inout bit<8> x) {
    action set(bit<8> value) {
        x = value;
    }
    action copy(in bit<8> from) {
        x = from;
    }
    action none() {}
    table no_actions { // ERROR E0510
        key = { h.a: exact; }
    }
    table t {
        key = {
            h.a: exact;
            h.b: lpm;
            h: ternary; // ERROR E0512
            3: exact; // ERROR E0512
        }
        actions = {
            set;
            set; // ERROR E0557
            copy; // ERROR E0404
            h; // ERROR E0511
        }
        default_action = none; // ERROR E0559
        size = true; // ERROR E0401
    }
    table u {
        key = { h.a: exact; h.b: lpm; }
        actions = { set; copy(h.a); @defaultonly none; }
        default_action = set; // ERROR E0404
        size = 8;
        const entries = {
            (1, 0x1200 &&& 0xff00): set(3);
            (1 &&& 1, _): set(3); // ERROR E0513
            (1, 0x1200 &&& 0x00ff): set(3); // ERROR E0565
            (1, 1 .. 2): set(3); // ERROR E0513
            1: set(3); // ERROR E0564
            (1, 2): set(); // ERROR E0404
            (1, 2): set(x); // ERROR E0501
            (1, 2): none; // ERROR E0562
            (1, true): set(1); // ERROR E0401
        }
        size = 9; // ERROR E0556
    }
    table keyless { // ERROR E0568
        actions = { none; }
        const entries = { 1: none; }
    }
    @name("twice") table one { actions = { none; } }
    apply {
        t.apply(1); // ERROR E0404
        switch (u.apply().action_run) {
            set: {}
            set: {} // ERROR E0468
            keyless: {} // ERROR E0470
            default: {}
        }
        switch (x) {
            1: {}
            1: {} // ERROR E0468
            h.a: {} // ERROR E0501
        }
        bool hit = u.apply().hits; // ERROR E0305
        u.aply(); // ERROR E0309
    }
}

control Wrong(inout h_t h) {
    action a() {
        t2.apply(); // ERROR E0301
    }
    table t2 {
        actions = { a; }
    }
    action b() {
        t2.apply(); // ERROR E0417
        mark_to_drop(); // WARN W0302
    }
    apply {
        verify(true, error.NoError); // ERROR E0417
        return 1; // ERROR E0411
    }
}

parser P(packet_in packet, out h_t h, out h_t[2] stack) {
    bit<8> y = 1;
    state start {
        packet.extract(y); // ERROR E0421
        packet.extract(h, 32); // ERROR E0421
        packet.extract(stack.next);
        transition select(h.a, h.b) {
            (1, 2, 3): accept; // ERROR E0465
            (true, 2): accept; // ERROR E0401
            (_, _): accept;
        }
    }
}

control Stack(inout h_t[2] stack, inout bit<8> x) {
    apply {
        stack.next.a = 1; // ERROR E0463
        stack[2].a = 1; // ERROR E0413
        stack.push_front(x); // ERROR E0501
        x = stack.last.a; // ERROR E0463
    }
}
