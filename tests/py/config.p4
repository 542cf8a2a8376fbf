// For test_config.py: what a file of entities must be able to say and `everything.p4` has not: strings for numbers, entries that
// the program begins with, names that have to be quoted.
#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("", string)
type bit<10> vrf_t;

header eth_t { bit<48> dst; bit<48> src; bit<16> kind; }
struct headers_t { eth_t eth; }
struct meta_t { vrf_t vrf; }
struct seen_t { bit<48> src; bit<9> port; }

parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    value_set<bit<16>>(4) tags;
    state start {
        p.extract(h.eth);
        transition select(h.eth.kind) {
            tags: accept;
            default: accept;
        }
    }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    register<bit<32>>(16) cells;
    action send(bit<9> port) { s.egress_spec = port; }
    action in_vrf(vrf_t vrf) { m.vrf = vrf; }
    action drop() { mark_to_drop(s); }
    table vrfs {
        key = { s.ingress_port: exact; }
        actions = { in_vrf; drop; }
        default_action = drop();
        size = 1024;
    }
    table routes {
        key = { m.vrf: exact @name("vrf"); h.eth.dst[47:40]: ternary; }
        actions = { send; drop; }
        default_action = drop();
        size = 1024;
    }
    table stations {
        key = { h.eth.dst: exact @name("dst"); }
        actions = { send; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 200000;
    }
    table kinds {
        key = { h.eth.kind: exact @name("ether type"); }
        actions = { send; drop; NoAction; }
        default_action = NoAction();
        entries = {
            0x0800: send(1);
            0x0806: send(2);
        }
        size = 16;
    }
    apply {
        vrfs.apply();
        routes.apply();
        kinds.apply();
        stations.apply();
        bit<32> n;
        cells.read(n, (bit<32>)s.ingress_port);
        cells.write((bit<32>)s.ingress_port, n + 1);
        digest<seen_t>(1, { h.eth.src, s.ingress_port });
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.eth); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
