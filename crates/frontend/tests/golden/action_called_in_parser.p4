action a() { }
parser p(in bit<8> x) {
    state start { a(); transition accept; }
}
