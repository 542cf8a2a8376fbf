// For test_devices.py: a packet from the controller leaves by the port that it says; any other goes where a table says by its
// destination, or to the controller.
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_in") header pin_t { bit<9> ingress_port; bit<7> pad; }
@controller_header("packet_out") header pout_t { bit<9> egress_port; bit<7> pad; }
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { pin_t pin; pout_t pout; eth_t eth; }
struct meta_t { }
parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { transition select(sm.ingress_port) { 510: cpu; default: eth; } }
    state cpu { p.extract(hdr.pout); transition eth; }
    state eth { p.extract(hdr.eth); transition accept; }
}
control vc(inout headers_t hdr, inout meta_t meta) { apply { } }
control cc(inout headers_t hdr, inout meta_t meta) { apply { } }
control ig(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action send(bit<9> port) { sm.egress_spec = port; }
    action punt() { hdr.pin = { sm.ingress_port, 0 }; sm.egress_spec = 510; }
    table dst { key = { hdr.eth.dst: exact; } actions = { send; punt; } default_action = punt(); size = 64; }
    apply {
        if (hdr.pout.isValid()) { sm.egress_spec = hdr.pout.egress_port; hdr.pout.setInvalid(); }
        else { dst.apply(); }
    }
}
control eg(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control dep(packet_out p, in headers_t hdr) { apply { p.emit(hdr.pin); p.emit(hdr.eth); } }
V1Switch(prs(), vc(), ig(), eg(), cc(), dep()) main;
