// For test_varbits.py: a header with options of any length goes into a register and a digest, and comes back out of the register.
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_out") header pout_t { bit<8> cell; bit<8> options; }
@controller_header("packet_in") header pin_t { bit<8> cell; }
header opt_t { bit<8> kind; varbit<64> bytes; }
struct cell_t { bit<8> n; opt_t opt; }
struct headers_t { pin_t pin; pout_t pout; opt_t opt; }
struct meta_t { cell_t cell; }
struct learn_t { bit<8> cell; opt_t opt; }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.pout);
        transition select(h.pout.options) { 0xff: accept; default: options; }
    }
    state options { p.extract(h.opt, (bit<32>) h.pout.options << 3); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    register<cell_t>(4) cells;
    apply {
        s.egress_spec = 0x1fe;
        h.pin.setValid();
        h.pin.cell = h.pout.cell;
        if (h.opt.isValid()) {
            digest<learn_t>(1, { h.pout.cell, h.opt });
            cells.read(m.cell, (bit<32>) h.pout.cell);
            m.cell.n = m.cell.n + 1;
            m.cell.opt = h.opt;
            cells.write((bit<32>) h.pout.cell, m.cell);
        } else {
            // Without options the packet gets those of the cell.
            cells.read(m.cell, (bit<32>) h.pout.cell);
            h.opt = m.cell.opt;
        }
        h.pout.setInvalid();
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.pin); p.emit(h.opt); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
