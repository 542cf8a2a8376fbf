#include <core.p4>
#include <psa.p4>
control c(inout bit<8> x) {
    apply {
        mark_to_drop(x);
        no_such_thing(x);
    }
}
