control c(inout bit<8> x) {
    value_set<bit<8>>(4) s;
    apply { x = 1; }
}
