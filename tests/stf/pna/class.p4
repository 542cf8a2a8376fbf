// A program that chooses a class of service: frames wait in the queues of their ports as they were deparsed. Where a port has
// none, as here, they leave at once, in order; copies, recirculation and drops are those of any other program.

#include <pna.p4>

header h_t {
    bit<8> what;
    bit<8> port;
    bit<8> class;
    bit<8> seen;
}
header added_t { bit<16> more; }
struct headers_t { added_t added; h_t h; }
struct meta_t { bit<8> rounds; }

parser mp(packet_in pkt, out headers_t hdr, inout meta_t meta, in pna_main_parser_input_metadata_t istd) {
    state start { pkt.extract(hdr.h); transition accept; }
}

control pre(in headers_t hdr, inout meta_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {
    apply { }
}

control mc(inout headers_t hdr, inout meta_t meta, in pna_main_input_metadata_t istd,
           inout pna_main_output_metadata_t ostd) {
    apply {
        hdr.h.seen = meta.rounds;
        ostd.class_of_service = (ClassOfService_t) (ClassOfServiceUint_t) hdr.h.class;
        PortId_t port = (PortId_t) (PortIdUint_t) hdr.h.port;
        if (hdr.h.what[0:0] == 1) {
            hdr.added.setValid();
            hdr.added.more = 0xabcd;
        }
        if (hdr.h.what[1:1] == 1) {
            mirror_packet((MirrorSlotId_t) 1, (MirrorSessionId_t) 7);
        }
        if (hdr.h.what[2:2] == 1) {
            mirror_packet((MirrorSlotId_t) 3, (MirrorSessionId_t) 8);
        }
        if (hdr.h.what[3:3] == 1 && meta.rounds < 2) {
            meta.rounds = meta.rounds + 1;
            recirculate();
        } else if (hdr.h.what[4:4] == 0) {
            send_to_port(port);
        }
    }
}

control md(packet_out pkt, in headers_t hdr, in meta_t meta, in pna_main_output_metadata_t ostd) {
    apply {
        pkt.emit(hdr.added);
        pkt.emit(hdr.h);
    }
}

PNA_NIC(mp(), pre(), mc(), md()) main;
