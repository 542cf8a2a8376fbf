#include <core.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> dstAddr; // ERROR E0303
    Bit16 kind; // ERROR E0302
}
struct headers_t {
    ethernet_t ethernet;
}
enum Color { Red, Green, Red } // ERROR E0303
const bit<8> LIMIT = 3;
const bit<8> LIMIT = 4; // ERROR E0303
const Color c = Color.Blue; // ERROR E0334
const error e = error.NoSuch; // ERROR E0334
extern Thing {
    Thing();
    void doit(in bit<8> value);
}
extern void f(in bit<8> a, in bit<8> b);

control C(inout headers_t hdr, inout bit<8> x) {
    Thing() thing;
    Thnig() other; // ERROR E0302
    action a() {
        x = LIMTI; // ERROR E0301
    }
    table t {
        key = { x: exakt; hdr.ethernet.dst: exact; } // ERROR E0307 E0305
        actions = { a; b; } // ERROR E0301
    }
    apply {
        hdr.ethernet.dstAdr = 1; // ERROR E0305
        thing.dot(x); // ERROR E0309
        other.doit(1);
        f(a = 1, c = 2); // ERROR E0308
        x = thing; // ERROR E0401
        x = t; // ERROR E0304
        headers_t = hdr; // ERROR E0304
        x(); // ERROR E0408
        t(); // ERROR E0408
        bit<8> x = 1; // ERROR E0330
        {
            bit<8> inner = 1;
            bool inner = true; // ERROR E0303
        }
        inner = 3; // ERROR E0301
    }
}

parser P(packet_in packet) {
    state start {
        transition select(8w1) {
            1: nxt; // ERROR E0306
            default: next;
        }
    }
    state next {
        transition accept;
    }
    state next { // ERROR E0303
        transition reject;
    }
    state accept { // ERROR E0566
        transition reject;
    }
}

parser Q(packet_in packet) { // ERROR E0520
    state begin {
        transition accept;
    }
}

parser Endless(packet_in packet) { // ERROR E0521
    state start {
        transition again;
    }
    state again {
        transition start;
    }
}
