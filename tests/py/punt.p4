// For test_p4runtime.py: a packet from the controller goes back to it, two added to its port number; every packet
// is reported in a digest.
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_in") header pin_t { bit<9> ingress_port; bit<7> pad; }
@controller_header("packet_out") header pout_t { bit<9> egress_port; bit<7> pad; }
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { pin_t pin; pout_t pout; eth_t eth; }
struct meta_t { }
struct learn_t { bit<48> mac; bit<9> port; }
parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { transition select(sm.ingress_port) { 510: cpu; default: eth; } }
    state cpu { p.extract(hdr.pout); transition eth; }
    state eth { p.extract(hdr.eth); transition accept; }
}
control vc(inout headers_t hdr, inout meta_t meta) { apply { } }
control cc(inout headers_t hdr, inout meta_t meta) { apply { } }
control ig(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        digest<learn_t>(1, { hdr.eth.src, sm.ingress_port });
        if (hdr.pout.isValid()) { hdr.pin.setValid(); hdr.pin.ingress_port = hdr.pout.egress_port + 9w2; hdr.pin.pad = 0; hdr.pout.setInvalid(); sm.egress_spec = 510; }
    }
}
control eg(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control dep(packet_out p, in headers_t hdr) { apply { p.emit(hdr.pin); p.emit(hdr.eth); } }
V1Switch(prs(), vc(), ig(), eg(), cc(), dep()) main;
