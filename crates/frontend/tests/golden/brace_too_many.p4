// A brace too many ends the control: what follows is not within it any more, and its names are not known there.
#include <core.p4>

control c(inout bit<8> x, in bit<8> y) {
    apply {
        if (x == 1) { x = 2; } }
        bit<8> z = y;
        x = z;
    }
}
control d(inout bit<8> x) { apply { x = y; } }
