// Externs with state in the main control, and checksums; byte 0 of a packet says what is done.

#include <pna.p4>

header h_t { bit<8> op; bit<8> a; bit<16> b; bit<32> c; }
struct headers_t { h_t h; }
struct meta_t { bit<8> unused; }
struct learned_t { bit<8> a; bit<16> b; }

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
    Counter<bit<32>, bit<8>>(4, PNA_CounterType_t.PACKETS_AND_BYTES) seen;
    DirectCounter<bit<32>>(PNA_CounterType_t.PACKETS) matched;
    DirectMeter(PNA_MeterType_t.PACKETS) metered;
    Meter<bit<8>>(4, PNA_MeterType_t.PACKETS) rate;
    Register<bit<32>, bit<8>>(4, 0x11223344) cells;
    Hash<bit<16>>(PNA_HashAlgorithm_t.CRC16) crc;
    Random<bit<8>>(10, 10) random;
    ActionProfile(8) profile;
    ActionSelector(PNA_HashAlgorithm_t.CRC16, 8, 16) selector;
    InternetChecksum() sum;

    action set_b(bit<16> b) { hdr.h.b = b; }
    action counted(bit<16> b) { hdr.h.b = b; matched.count(); }
    action coloured() {
        PNA_MeterColor_t colour = metered.execute();
        if (colour == PNA_MeterColor_t.GREEN) { hdr.h.b = 1; }
        if (colour == PNA_MeterColor_t.YELLOW) { hdr.h.b = 2; }
        if (colour == PNA_MeterColor_t.RED) { hdr.h.b = 3; }
    }
    table count_some {
        key = { hdr.h.a: exact; }
        actions = { set_b; counted; }
        default_action = set_b(0);
        pna_direct_counter = matched;
    }
    table measure {
        key = { hdr.h.a: exact; }
        actions = { coloured; set_b; }
        default_action = set_b(0);
        pna_direct_meter = metered;
    }
    table members {
        key = { hdr.h.a: exact; }
        actions = { set_b; }
        pna_implementation = profile;
    }
    table groups {
        key = { hdr.h.a: exact; hdr.h.c: selector; }
        actions = { set_b; }
        pna_implementation = selector;
    }
    apply {
        if (hdr.h.op == 0) { seen.count(hdr.h.a); }
        if (hdr.h.op == 1) { count_some.apply(); }
        if (hdr.h.op == 2) { measure.apply(); }
        if (hdr.h.op == 3) {
            PNA_MeterColor_t colour = rate.execute(hdr.h.a);
            if (colour == PNA_MeterColor_t.RED) { hdr.h.b = 3; }
        }
        if (hdr.h.op == 4) {
            hdr.h.c = cells.read(hdr.h.a);
            cells.write(hdr.h.a, 32w0xcafe0000 + (bit<32>) hdr.h.b);
        }
        if (hdr.h.op == 5) { hdr.h.b = crc.get_hash({ hdr.h.c }); }
        if (hdr.h.op == 6) { hdr.h.a = random.read(); }
        if (hdr.h.op == 7) { members.apply(); }
        if (hdr.h.op == 8) { groups.apply(); }
        if (hdr.h.op == 9) {
            sum.clear();
            sum.add({ hdr.h.op, hdr.h.a, hdr.h.c });
            hdr.h.b = sum.get();
        }
        send_to_port((PortId_t) 1);
    }
}

control md(packet_out pkt, in headers_t hdr, in meta_t meta, in pna_main_output_metadata_t ostd) {
    Digest<learned_t>() learned;
    apply {
        if (hdr.h.op == 10) { learned.pack({ hdr.h.a, hdr.h.b }); }
        pkt.emit(hdr.h);
    }
}

PNA_NIC(mp(), pre(), mc(), md()) main;
