// Constructs at places where the grammar does not have them.
bit<8> variable = 3; // ERROR E0206
table t { } // ERROR E0206
error { A = 1 } // ERROR E0206
enum bit<8> e_t { A = 1, B } // ERROR E0201
parser p(in bit<8> x) {
    state start {
        return; // ERROR E0206
        switch (x) { } // ERROR E0206
        transition accept;
        x = 1; // ERROR E0206
    }
    state bad { select (x) { } } // ERROR E0206
    bit<8> late; // ERROR E0206
}
control c(inout bit<8> x) {
    if (x == 1) { } // ERROR E0206
    apply { action a() { } } // ERROR E0206
    bit<8> late; // ERROR E0206
    apply { } // ERROR E0206
}
control no_apply() {
    action a() { }
} // ERROR E0209
extern E {
    method(in bit<8> x); // ERROR E0206
    abstract E(); // ERROR E0206
    void m() { } // ERROR E0206
}
bit<8> no_body(in bit<8> x); // ERROR E0201
const bit<8> no_value; // ERROR E0201
