#include <core.p4>
control c(inout bit<8> x) {
    action set(inout bit<8> y, bit<8> data) { y = data; }
    table t { actions = { set; NoAction; } }
    apply { t.apply(); }
}
