// Tokens that fit nowhere.
header 3 { } // ERROR E0201
header table { } // ERROR E0207
struct s_t { bit<8> transition; } // ERROR E0207
const bit<8> a = ; // ERROR E0201
const bit<8> b = 1 + * 2; // ERROR E0201
typedef list<bit<8>, bit<8>> l_t; // ERROR E0201
struct t_t {
    _ x; // ERROR E0201
    void y; // ERROR E0201
    tuple<_, void> z;
}
control c(inout bit<8> x) {
    apply {
        void v; // ERROR E0201
        x; // ERROR E0201
        x + 1; // ERROR E0201
        else x = 1; // ERROR E0201
        x = bit<8>; // ERROR E0201
        x = 1;
        switch (x) { { }: { } } // ERROR E0206
        if x == 1 { } // ERROR E0201
        for (bit<8> i = 0; i < 3) { } // ERROR E0202
        x 3; // ERROR E0201
    }
}
control d(inout bit<8> x) {
    table t {
        key = { x; } // ERROR E0201
        size 3; // ERROR E0201
        const actions = { } // ERROR E0206
        entries = { priority = x : 1 : a; } // ERROR E0201
    }
    apply { }
}
parser p() { state s { transition 3; } } // ERROR E0201
control e() // ERROR E0201
const bit<8> after = 1;
