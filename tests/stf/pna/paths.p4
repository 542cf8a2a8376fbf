// Where packets go in PNA: the last forwarding call counts, packets without one are dropped, copies leave by the ports of
// their sessions, and recirculated packets come in again with their metadata.

#include <pna.p4>

header h_t {
    bit<8> what;
    bit<8> port;
    bit<8> seen;        // direction, pass, looped back, host port
    bit<8> kept;
}
struct headers_t { h_t h; }
struct meta_t {
    bit<8>          kept;
    PNA_Direction_t pre_direction;
}

parser mp(packet_in pkt, out headers_t hdr, inout meta_t meta, in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.h);
        transition select(hdr.h.what) {
            0xff: reject;
            default: accept;
        }
    }
}

control pre(in headers_t hdr, inout meta_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {
    apply {
        meta.pre_direction = istd.direction;
    }
}

control mc(inout headers_t hdr, inout meta_t meta, in pna_main_input_metadata_t istd,
           inout pna_main_output_metadata_t ostd) {
    action mirror(bit<8> slot, bit<16> session) {
        mirror_packet((MirrorSlotId_t) slot, (MirrorSessionId_t) session);
    }
    table mirrors {
        key = { hdr.h.what: exact; }
        actions = { mirror; NoAction; }
    }
    apply {
        bit<1> is_n2h = SelectByDirection<bit<1>>(istd.direction, 1, 0);
        hdr.h.seen = is_n2h ++ (bit<3>) (PassNumberUint_t) istd.pass ++ (istd.loopedback ? 1w1 : 0)
            ++ (is_host_port(istd.input_port) ? 1w1 : 0) ++ (is_net_port(istd.input_port) ? 1w1 : 0)
            ++ (meta.pre_direction == istd.direction ? 1w1 : 0);
        hdr.h.kept = meta.kept;
        PortId_t port = (PortId_t) (PortIdUint_t) hdr.h.port;
        if (hdr.h.what == 1) {
            send_to_port(port);
        } else if (hdr.h.what == 2) {
            send_to_port(port);
            drop_packet();
        } else if (hdr.h.what == 3) {
            drop_packet();
            send_to_port(port);
            send_to_port((PortId_t) (PortIdUint_t) (hdr.h.port + 1));
        } else if (hdr.h.what == 4) {
            send_to_port(port);
            mirror_packet((MirrorSlotId_t) 1, (MirrorSessionId_t) 7);
            mirror_packet((MirrorSlotId_t) 3, (MirrorSessionId_t) 9);
            mirror_packet((MirrorSlotId_t) 3, (MirrorSessionId_t) 8);
        } else if (hdr.h.what == 5) {
            mirror_packet((MirrorSlotId_t) 0, (MirrorSessionId_t) 7);
            drop_packet();
        } else if (hdr.h.what == 6) {
            meta.kept = meta.kept + 1;
            drop_packet();
            if (meta.kept < 10) {
                recirculate();
            } else {
                send_to_port(port);
            }
        } else if (hdr.h.what == 0xff) {
            send_to_port(port);
            hdr.h.kept = istd.parser_error == error.NoError ? 8w1 : 2;
        } else {
            mirrors.apply();
            send_to_port(port);
        }
    }
}

control md(packet_out pkt, in headers_t hdr, in meta_t meta, in pna_main_output_metadata_t ostd) {
    apply {
        pkt.emit(hdr);
    }
}

PNA_NIC(mp(), pre(), mc(), md()) main;
