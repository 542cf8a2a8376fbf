#include <core.p4>
bit<8> f(in bit<8> x) { return f(x); }
control c(inout bit<8> x) {
    action a() { a(); }
    apply { a(); }
}
