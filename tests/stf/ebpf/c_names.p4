// Names in scripts as p4c's C code has them.

#include <ebpf_model.p4>

header h_t { bit<32> a; bit<16> b; }
struct headers_t { h_t h; }

parser prs(packet_in packet, out headers_t headers) {
    state start {
        packet.extract(headers.h);
        transition accept;
    }
}

control inner(in bit<16> b, inout bool accept) {
    action decide(bool yes) { accept = yes; }
    table other {
        key = { b: exact; }
        actions = { decide; NoAction; }
        implementation = hash_table(8);
        default_action = NoAction;
    }
    apply { other.apply(); }
}

control filt(inout headers_t headers, out bool accept) {
    inner() in_1;
    action decide(bool yes, bit<8> ignored) { accept = yes; }
    table by_prefix {
        key = { headers.h.a: lpm; }
        actions = { decide; NoAction; }
        implementation = hash_table(8);
        default_action = NoAction;
    }
    table both {
        key = { headers.h.b: exact; headers.h.a: exact; }
        actions = { decide; NoAction; }
        implementation = hash_table(8);
        default_action = NoAction;
    }
    apply {
        accept = true;
        by_prefix.apply();
        both.apply();
        in_1.apply(headers.h.b, accept);
    }
}

ebpfFilter(prs(), filt()) main;
