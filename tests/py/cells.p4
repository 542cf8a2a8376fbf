// For test_cells.py: what a packet has of a stack and a union goes into a register and a digest; a counter and a meter see it.
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_out") header pout_t { bit<8> kind; }
header h_t { bit<8> a; bit<8> b; }
header g_t { bit<16> c; }
header_union u_t { h_t h; g_t g; }
enum colour_t { red, green, blue }
struct cell_t { bit<8> n; bool seen; colour_t colour; h_t[2] s; u_t u; }
struct headers_t { pout_t pout; h_t[2] s; u_t u; }
struct meta_t { cell_t cell; }
struct learn_t { bit<8> kind; h_t[2] s; u_t u; }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.pout);
        p.extract(h.s.next);
        transition select(h.pout.kind) { 0: accept; 1: g; default: two; }
    }
    state g { p.extract(h.u.g); transition accept; }
    state two { p.extract(h.s.next); p.extract(h.u.h); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    register<cell_t>(4) cells;
    counter(8, CounterType.packets_and_bytes) seen;
    meter(8, MeterType.packets) police;
    apply {
        digest<learn_t>(1, { h.pout.kind, h.s, h.u });
        cells.read(m.cell, (bit<32>) h.pout.kind);
        m.cell.n = m.cell.n + 1;
        m.cell.seen = true;
        m.cell.s = h.s;
        m.cell.u = h.u;
        cells.write((bit<32>) h.pout.kind, m.cell);
        seen.count((bit<32>) h.pout.kind);
        bit<2> colour;
        police.execute_meter((bit<32>) h.pout.kind, colour);
        mark_to_drop(s);
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.s); p.emit(h.u); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
