// Keywords with a typo.
contrl c(inout bit<8> x) { // ERROR E0205
    acton a() { } // ERROR E0205
    tabel t { // ERROR E0205
        keys = { x : exact; } // ERROR E0205
    }
    apply {
        exti; // ERROR E0201
        x = 1;
    }
}
strct s_t { bit<8> x; } // ERROR E0205
parser p(in bit<8> x) {
    sate start { } // ERROR E0205
    state next { trasition accept; } // ERROR E0205
}
