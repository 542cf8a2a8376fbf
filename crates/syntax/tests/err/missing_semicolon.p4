// A missing semicolon is reported behind the previous token, and the rest is still read.
const bit<8> a = 3 // ERROR E0202
header h_t {
    bit<8> x // ERROR E0202
    bit<8> y;
}
control c(inout h_t h) {
    bit<8> v = 1 // ERROR E0202
    apply {
        h.x = 1 // ERROR E0202
        h.y = 2;
        return // ERROR E0202
    }
}
struct after_t { no_semicolon x } // ERROR E0202
