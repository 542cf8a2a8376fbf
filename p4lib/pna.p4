// What a program for the Portable NIC Architecture has to have and often does not need: a pre control that does nothing, and
// the usual deparser.
//
// They are of the program's own types, so this is included behind them; these are called `headers_t` and `metadata_t`:
//
//     PNA_NIC(MyParser(), EmptyPre(), MyMain(), EmitHeaders()) main;

#ifndef P4LIB_PNA_P4
#define P4LIB_PNA_P4

control EmptyPre(in headers_t hdr, inout metadata_t meta, in pna_pre_input_metadata_t std,
                 inout pna_pre_output_metadata_t ostd) {
    apply { }
}

// Sends the valid headers, in the order of the struct.
control EmitHeaders(packet_out packet, in headers_t hdr, in metadata_t meta, in pna_main_output_metadata_t ostd) {
    apply {
        packet.emit(hdr);
    }
}

#endif
