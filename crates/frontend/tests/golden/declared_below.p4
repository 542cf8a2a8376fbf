#include <core.p4>
control c(inout bit<8> x) {
    action a() { b(); }
    action b() { x = 1; }
    apply { a(); later(); }
}
action later() { }
