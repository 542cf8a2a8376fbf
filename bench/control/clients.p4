// For clients.py: what comes in by port 1 goes to controllers, and there is a large table to write and to read.
#include <core.p4>
#include <v1model.p4>
@controller_header("packet_in") header pin_t { bit<9> ingress_port; bit<7> pad; }
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { pin_t pin; eth_t eth; }
struct meta_t { }
parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { p.extract(hdr.eth); transition accept; }
}
control vc(inout headers_t hdr, inout meta_t meta) { apply { } }
control cc(inout headers_t hdr, inout meta_t meta) { apply { } }
control ig(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action send(bit<9> port) { sm.egress_spec = port; }
    action punt() { hdr.pin.setValid(); hdr.pin.ingress_port = sm.ingress_port; hdr.pin.pad = 0; sm.egress_spec = 510; }
    table switching {
        key = { hdr.eth.dst: exact; }
        actions = { send; punt; }
        default_action = punt();
        size = 1048576;
    }
    apply { switching.apply(); }
}
control eg(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control dep(packet_out p, in headers_t hdr) { apply { p.emit(hdr.pin); p.emit(hdr.eth); } }
V1Switch(prs(), vc(), ig(), eg(), cc(), dep()) main;
