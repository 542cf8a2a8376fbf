// A wire between each two ports with a filter in it: PASS_PORT says by which port accepted packets leave.

#define PASS_PORT port ^ 1
#include <ebpf_model.p4>

struct headers_t {}

parser prs(packet_in packet, out headers_t headers) {
    state start {
        transition select(packet.length()) {
            0..4: reject;
            default: accept;
        }
    }
}

control filt(inout headers_t headers, out bool accept) {
    apply {
        accept = true;
    }
}

ebpfFilter(prs(), filt()) main;
