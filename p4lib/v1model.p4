// What a program for v1model has to have and often does not need: controls that do nothing, and the usual deparser.
//
// They are of the program's own types, so this is included behind them; these are called `headers_t` and `metadata_t`:
//
//     V1Switch(MyParser(), EmptyVerifyChecksum(), MyIngress(), EmptyEgress(), EmptyComputeChecksum(), EmitHeaders()) main;

#ifndef P4LIB_V1MODEL_P4
#define P4LIB_V1MODEL_P4

control EmptyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control EmptyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

// For switches that flood: drops the copy for the port that the frame came from.
control NotBackEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == std.ingress_port) {
            mark_to_drop(std);
        }
    }
}

control EmptyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Sends the valid headers, in the order of the struct.
control EmitHeaders(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

#endif
