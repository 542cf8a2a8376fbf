// A NIC that learns stations by itself: entries that packets add, expire times, and both directions in one table.

#include <pna.p4>

header h_t { bit<8> dst; bit<8> src; bit<8> added; }
struct headers_t { h_t h; }
struct meta_t { bit<8> key; }
struct station_t { PortId_t port; bit<8> by; }

parser mp(packet_in pkt, out headers_t hdr, inout meta_t meta, in pna_main_parser_input_metadata_t istd) {
    state start {
        pkt.extract(hdr.h);
        transition accept;
    }
}

control pre(in headers_t hdr, inout meta_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {
    apply {}
}

control mc(inout headers_t hdr, inout meta_t meta, in pna_main_input_metadata_t istd,
           inout pna_main_output_metadata_t ostd) {
    bool adds = false;

    action at_port(PortId_t port, bit<8> by) {
        restart_expire_timer();
        if (!adds) {
            send_to_port(port);
            hdr.h.added = by;
        }
    }
    action unknown() {
        if (adds) {
            station_t station = { istd.input_port, SelectByDirection<bit<8>>(istd.direction, 0x4e, 0x48) };
            bool done = add_entry("at_port", station, (ExpireTimeProfileId_t) 1);
            hdr.h.added = done ? 8w1 : 0;
        } else {
            drop_packet();
        }
    }
    @expire_time_ms(1000, 5000)
    table stations {
        key = { meta.key: exact; }
        actions = { @tableonly at_port; @defaultonly unknown; }
        const default_action = unknown();
        add_on_miss = true;
        pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;
        size = 16;
    }

    apply {
        if (hdr.h.src != 0) {
            adds = true;
            meta.key = hdr.h.src;
            stations.apply();
            send_to_port(istd.input_port);
        } else {
            meta.key = hdr.h.dst;
            stations.apply();
        }
    }
}

control md(packet_out pkt, in headers_t hdr, in meta_t meta, in pna_main_output_metadata_t ostd) {
    apply {
        pkt.emit(hdr.h);
    }
}

PNA_NIC(mp(), pre(), mc(), md()) main;
