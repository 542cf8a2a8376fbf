control c(inout bit<8> x) {
    bit<8> counted = 0;
    apply { x = counted; }
}
control d(inout bit<8> x) {
    apply { x = counted; }
}
