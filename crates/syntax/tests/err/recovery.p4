// One error per mistake, and what follows is still checked.
control a(inout bit<8> x) {
    action one() { x = = 1; } // ERROR E0201
    action two() { x = 1; y = ); } // ERROR E0201
    table t {
        key = { x exact; x : lpm; } // ERROR E0201
        actions = { one two; } // ERROR E0202
        size = ; // ERROR E0201
    }
    apply {
        if (x = 1) { x = 2; } // ERROR E0203
        x = f(1,, 2); // ERROR E0201
        t.apply(;  // ERROR E0201
        x = 3;
    }
}
parser p(in bit<8> x) {
    state start {
        transition select(x) {
            1 accept; // ERROR E0201
            2: ; // ERROR E0201
            3: accept;
        }
    }
    state next { transition accept } // ERROR E0202
}
struct s_t {
    bit<8>; // ERROR E0201
    bit<> x; // ERROR E0201
    bit<8> y;
}
const int last = ; // ERROR E0201
