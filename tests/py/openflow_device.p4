// For test_openflow.py: sends each frame back by the port by which it came, with a source address that says so.
#include <core.p4>
#include <v1model.p4>
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { eth_t eth; }
struct meta_t { }
parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { p.extract(hdr.eth); transition accept; }
}
control vc(inout headers_t hdr, inout meta_t meta) { apply { } }
control cc(inout headers_t hdr, inout meta_t meta) { apply { } }
control ig(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply { hdr.eth.src = 0x02cc00000002; sm.egress_spec = sm.ingress_port; }
}
control eg(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control dep(packet_out p, in headers_t hdr) { apply { p.emit(hdr.eth); } }
V1Switch(prs(), vc(), ig(), eg(), cc(), dep()) main;
