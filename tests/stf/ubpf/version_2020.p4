// The model before it had standard_metadata: packets pass or are dropped.

#define UBPF_MODEL_VERSION 20200304
#include <ubpf_model.p4>

header h_t { bit<8> drop; }
struct headers_t { h_t h; }
struct meta_t {}

parser prs(packet_in packet, out headers_t headers, inout meta_t meta) {
    state start {
        packet.extract(headers.h);
        transition accept;
    }
}

control pipe(inout headers_t headers, inout meta_t meta) {
    apply {
        if (headers.h.drop == 1) {
            mark_to_drop();
        }
    }
}

control dprs(packet_out packet, in headers_t headers) {
    apply {}
}

ubpf(prs(), pipe(), dprs()) main;
