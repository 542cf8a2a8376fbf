// Sends what comes by port 0 to port 1. The UDP destination port less 5000 is the class in which it waits there.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> diffserv; bit<16> len; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header udp_t { bit<16> sport; bit<16> dport; bit<16> len; bit<16> checksum; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; }
struct meta_t { }

parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.ethernet);
        transition select(h.ethernet.type) { 0x800: ip; default: accept; }
    }
    state ip {
        p.extract(h.ipv4);
        transition select(h.ipv4.protocol) { 17: udp; default: accept; }
    }
    state udp { p.extract(h.udp); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        if (s.ingress_port == 0 && h.udp.isValid()) {
            s.egress_spec = 1;
            s.priority = (bit<3>)(h.udp.dport - 5000);
        } else {
            mark_to_drop(s);
        }
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.ethernet); p.emit(h.ipv4); p.emit(h.udp); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
