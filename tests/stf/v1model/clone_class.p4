// Clones have the class of service of their session, whether ingress or egress asks for them.
#include <core.p4>
#include <v1model.p4>

header frame_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { frame_t frame; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { packet.extract(hdr.frame); transition accept; }
}
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 2;
        if (hdr.frame.type == 0x0801) { clone(CloneType.I2E, 7); }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.instance_type == 0 && hdr.frame.type == 0x0802) { clone(CloneType.E2E, 7); }
        hdr.frame.src = 45w0 ++ std.priority;
    }
}
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.frame); } }
V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
