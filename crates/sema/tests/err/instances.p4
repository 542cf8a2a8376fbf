#include <core.p4>

extern Box<T> {
    Box(bit<32> size);
    T get();
    abstract void on(in T value);
}
extern Plain {
    Plain(int n);
}
control Proto<H>(inout H h);
package Top<H>(Proto<H> a, Proto<H> b);
header one_t { bit<8> a; }
header two_t { bit<8> a; }

control NoTable() {
    apply {}
}
control One(inout one_t h) {
    Box<bit<8>>(4) silent; // ERROR E0508
    Box<bit<8>>(4) speaks = {
        void on(in bit<8> value) {}
    };
    Box<bit<8>>(4) wrong = {
        void on(in bit<16> value) {} // ERROR E0555
    };
    Box<bit<8>>(4) other = {
        void on(in bit<8> value) {}
        void off(in bit<8> value) {} // ERROR E0309
    };
    Plain(1, 2) many; // ERROR E0404
    Plain[4](1) array;
    NoTable[4]() blocks; // ERROR E0506
    apply {
        Plain(1); // ERROR E0554
        h.a = speaks.get();
    }
}
control Two(inout two_t h) {
    apply {}
}
control Generic<T>(inout T x)(T y) {
    apply {
        x = 5; // ERROR E0401
    }
}
control Other<T>(inout T x) {
    apply {}
}
control Uses() {
    Other() unknown; // ERROR E0407
    apply {}
}
control Twice<T>(inout bit<8> T) { // ERROR E0303
    apply {}
}
control TwiceInside<T>(inout bit<8> x)(bit<8> T) { // ERROR E0303
    apply {}
}
control Takes<H>(inout H h);
control Any<H>(inout H h) {
    apply {}
}
package Open<H>(Takes<H> takes = Any<H>());
Open() nobody; // ERROR E0407
package Wrong<H>(Takes<H> takes = Any(3)); // ERROR E0404
action bad() {
    Plain(1) inside; // ERROR E0552
}
Top(One(), Two()) main; // ERROR E0401
