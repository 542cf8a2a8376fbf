#include <core.p4>

const bit<8> A = 5 / 0; // ERROR E0502
const int B = -7 / 2; // ERROR E0502
const bit<8> C = 1 << -1; // ERROR E0502
const bit<8> D = 256; // WARN W0503
const bool E = static_assert(1 > 2, "one is less"); // ERROR E0505
const bool F = static_assert(true);
const bit<A2> G = 1; // ERROR E0301
typedef bit<(4 - 8)> Negative; // ERROR E0503
typedef bit<true> Boolean; // ERROR E0401
extern bit<8> runtime();
const bit<8> H = runtime(); // ERROR E0501

control X(inout bit<8> x)(bit<8> width) {
    bit<width> y; // ERROR E0501
    const bit<8> twice = width * 2;
    const bit<8> wrong = x; // ERROR E0501
    apply {
        x = twice;
    }
}
control Y(inout bit<8> x) {
    X(x) first; // ERROR E0501
    X(3) second;
    X() third; // ERROR E0404
    Y() self; // ERROR E0504
    NoAction() fourth; // ERROR E0332
    bit<8>(3) fifth; // ERROR E0506
    apply {
        second.apply(x);
        second.apply(3); // ERROR E0405
        second.run(); // ERROR E0309
    }
}
X(3) top; // ERROR E0552
control Z(inout bit<8> x, int n) {
    apply {
        x = (bit<8>)((int)x + 1); // ERROR E0501
    }
}
