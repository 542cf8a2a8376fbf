// Packets are cut as they are deparsed. A header that the cut goes through keeps the bytes that it came with.

#include <ubpf_model.p4>

header length_t { bit<32> bytes; }
header h_t { bit<16> value; }
struct headers_t {
    length_t length;
    h_t      a;
    h_t      b;
    h_t      added;
}
struct meta_t {}

parser prs(packet_in packet, out headers_t headers, inout meta_t meta, inout standard_metadata std) {
    state start {
        packet.extract(headers.length);
        packet.extract(headers.a);
        packet.extract(headers.b);
        transition accept;
    }
}

control pipe(inout headers_t headers, inout meta_t meta, inout standard_metadata std) {
    apply {
        if (headers.a.value == 0xffff) {
            truncate(1);
        }
        truncate(headers.length.bytes);
        headers.length.setInvalid();
        headers.a.value = 0xa1a2;
        headers.b.value = 0xb1b2;
        if (headers.a.value[0:0] == headers.b.value[0:0]) {
            headers.added.setValid();
            headers.added.value = 0xc1c2;
        }
    }
}

control dprs(packet_out packet, in headers_t headers) {
    apply {
        packet.emit(headers.length);
        packet.emit(headers.a);
        packet.emit(headers.b);
        packet.emit(headers.added);
    }
}

ubpf(prs(), pipe(), dprs()) main;
