// What may be declared, instantiated and named where.
#include <core.p4>

extern E {
    E();
    void itself(E other); // ERROR E0336
    int number(); // ERROR E0453
}
extern Holder<T> {
    Holder();
    void put(in T value);
}
extern Plain {
    Plain();
}
package Pack();

Holder<Holder<bit<8>>>() nested; // ERROR E0455
Plain() unexpected = { // ERROR E0309
    bit<8> f() {
        return 1;
    }
};

control Inner() {
    apply {}
}
parser P(packet_in packet) {
    Inner() inner; // ERROR E0552
    value_set<int>(4) numbers; // ERROR E0450
    state start {
        Plain() late; // ERROR E0552
        transition accept;
    }
}
control WithPackage()(Pack pack) { // ERROR E0454
    apply {}
}

struct S {
    bit<8> a;
    bit<8> b;
}
extern void any<T>(in T value);
extern bit<8> one();
extern bit<8> two();
enum bit<4> Small { a = 1 }

control C(inout bit<8> t, inout S s, in Small small) {
    P() parsing; // ERROR E0552
    action act(in S given) {}
    action hit(in bit<8> given) {}
    table first {
        actions = {
            act({ a = one(), b = two() });
        }
        default_action = act({ b = one(), a = two() }); // ERROR E0561
    }
    table early {
        default_action = NoAction; // ERROR E0569
        actions = {
            NoAction;
        }
    }
    table t {
        key = {
            t: exact; // ERROR E0304
        }
        actions = {}
    }
    table complex {
        key = {
            s.a + s.b: exact; // ERROR E0570
            s.a + s.b: exact @name("sum");
            s.a & 0xf: exact;
            s.a[3:0]: exact;
        }
        actions = {
            hit(complex.apply().hit ? 8w1 : 2); // ERROR E0417
        }
    }
    table own {
        key = {
            own.apply().hit: exact @name("own"); // ERROR E0417
        }
        actions = {}
    }
    table other {
        actions = {
            hit(early.apply().hit ? 8w1 : 2); // ERROR E0417
        }
    }
    apply {
        Inner() inner; // ERROR E0552
        bool b = { a = 1, b = 2 } == { a = 1, b = 2 }; // ERROR E0448
        b = (...) && b; // ERROR E0448
        b = s == { a = 1, b = 2 };
        any({ a = one(), b = two() }); // ERROR E0448
        any((S){ a = one(), b = two() });
        s.a = (8w1).minSizeInBits<int>(); // ERROR E0406
        switch (small) { // ERROR E0401
            1: {}
        }
    }
}

parser Cases(packet_in packet, in bit<16> key, in bit<8> other)(Pack pack) { // ERROR E0454
    state start {
        transition select(key) { // ERROR E0401
            8w1: next;
            8w2: next;
            default: accept;
        }
    }
    state next {
        transition select(key, other) { // ERROR E0465
            (1, 2, 3): accept;
        }
    }
}
parser SomeCases(packet_in packet, in bit<16> key) {
    state start {
        transition select(key) {
            8w1: accept; // ERROR E0401
            2: reject;
            8w1 &&& 16w3: reject; // ERROR E0402
            4 .. 5: reject;
            8w4 .. 4w5: reject; // ERROR E0402
        }
    }
}

header TwoVarbits {
    varbit<32> first; // ERROR E0421
    varbit<32> second;
}
parser Extracting(packet_in packet, out TwoVarbits h) {
    state start {
        packet.extract(h, 32w8);
        transition accept;
    }
}
