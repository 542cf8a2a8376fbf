control c(inout bit<8> x) {
    bit<8> twice(in bit<8> y) { return y + y; }
    apply { x = 1; }
}
