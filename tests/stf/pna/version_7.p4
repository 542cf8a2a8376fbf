// Version 0.7: no pre control, `recirculated`, and ports of hosts that the program says.

#define PNA_VERSION 7
#define PNA_HOST_PORT port == 1 || port >= 100
#include <pna.p4>

header h_t { bit<8> what; bit<32> value; }
struct headers_t { h_t h; }
struct meta_t {}

parser mp(packet_in pkt, out headers_t hdr, inout meta_t meta, in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.h);
        transition accept;
    }
}

control mc(inout headers_t hdr, inout meta_t meta, in pna_main_input_metadata_t istd,
           inout pna_main_output_metadata_t ostd) {
    Hash<bit<32>>(PNA_HashAlgorithm_t.TOEPLITZ) rss;
    Hash<bit<32>>(PNA_HashAlgorithm_t.TARGET_DEFAULT) crc;
    Counter<bit<64>, bit<8>>(4, PNA_CounterType_t.PACKETS) counted;

    apply {
        send_to_port(istd.input_port);
        counted.count(hdr.h.what);
        if (hdr.h.what == 0) {
            hdr.h.value = SelectByDirection<bit<32>>(is_net_port(istd.input_port), 1, 2);
        } else if (hdr.h.what == 1) {
            // The addresses of the first test vector of Microsoft's specification.
            hdr.h.value = rss.get_hash({ 32w0x420995bb, 32w0xa18e6450 });
        } else if (hdr.h.what == 2) {
            hdr.h.value = rss.get_hash(32w100, { 32w0x420995bb, 32w0xa18e6450 }, 32w10);
        } else if (hdr.h.what == 3) {
            hdr.h.value = (bit<32>) (FlowIdUint_t) allocate_flow_id();
        } else if (hdr.h.what == 4) {
            if (istd.recirculated) {
                hdr.h.value = 5;
            } else {
                recirculate();
            }
        } else {
            hdr.h.value = crc.get_hash({ hdr.h.what });
        }
    }
}

control md(packet_out pkt, inout headers_t hdr, in meta_t meta, in pna_main_output_metadata_t ostd) {
    apply {
        pkt.emit(hdr.h);
    }
}

PNA_NIC(mp(), mc(), md()) main;
