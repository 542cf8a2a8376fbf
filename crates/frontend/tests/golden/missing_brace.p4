header h_t {
    bit<8> a;

control c(inout h_t h) {
    apply {
        if (h.a == 1) {
            h.a = 2;
    }
}
