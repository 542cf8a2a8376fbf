// What a program for the Portable Switch Architecture has to have and often does not need: an egress that does nothing, and the
// usual ingress deparser. No metadata goes to such an egress: what is handed on, cloned and resubmitted is `empty_t`.
//
// The deparser is of the program's own types, so this is included behind them; these are called `headers_t` and `metadata_t`:
//
//     PSA_Switch(IngressPipeline(MyParser(), MyIngress(), EmitHeaders()), PacketReplicationEngine(),
//                EgressPipeline(EmptyEgressParser(), EmptyEgress(), EmptyEgressDeparser()), BufferingQueueingEngine()) main;

#ifndef P4LIB_PSA_P4
#define P4LIB_PSA_P4

struct empty_t {
}

// Sends the valid headers, in the order of the struct.
control EmitHeaders(packet_out packet, out empty_t cloned, out empty_t resubmitted, out empty_t normal, inout headers_t hdr,
                    in metadata_t meta, in psa_ingress_output_metadata_t ostd) {
    apply {
        packet.emit(hdr);
    }
}

parser EmptyEgressParser(packet_in packet, out empty_t hdr, inout empty_t meta, in psa_egress_parser_input_metadata_t std,
                         in empty_t normal, in empty_t cloned, in empty_t cloned_again) {
    state start {
        transition accept;
    }
}

control EmptyEgress(inout empty_t hdr, inout empty_t meta, in psa_egress_input_metadata_t std,
                    inout psa_egress_output_metadata_t ostd) {
    apply { }
}

control EmptyEgressDeparser(packet_out packet, out empty_t cloned, out empty_t recirculated, inout empty_t hdr,
                            in empty_t meta, in psa_egress_output_metadata_t ostd,
                            in psa_egress_deparser_input_metadata_t std) {
    apply { }
}

#endif
