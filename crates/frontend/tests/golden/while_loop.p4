control c(inout bit<8> x) {
    apply { while (x > 1) { x = x - 1; } }
}
