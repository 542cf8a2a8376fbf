control c(inout bit<8> x) {
    apply { mark_to_drop(x); }
}
parser p(packet_in packet) { state start { transition accept; } }
