parser p(inout bit<8> x) {
    action a() { x = 1; }
    state start { transition accept; }
}
