// A syntax error in one declaration; the errors of types in others are told, what may come of the syntax error is not.
#include <core.p4>

struct broken_t {
    bit<8> a
    bit<16> b;
    bit<8> c d;
}

const bit<8> fine = 16w3;

bool compares(in bit<8> x, in bit<4> y) {
    return x == y;
}

bit<8> uses_what_is_missing(in broken_t s) {
    return s.d + unknown(s.a);
}

action has_both(inout bit<8> x) {
    x = true
    x = 16w1;
}
