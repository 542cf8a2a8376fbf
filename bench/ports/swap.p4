// For swaps.py: a switch with an access list whose packets say which program they met. Ingress writes VERSION into the first
// byte of the payload and egress into the second, so a packet that saw half of each of two programs has two different bytes.
// With VERSION 2 the access list has an action more: its entries are copied in a swap, all else is kept.
#include <core.p4>
#include <v1model.p4>

#ifndef VERSION
#define VERSION 1
#endif

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<8> version_ihl; bit<8> tos; bit<16> length; bit<16> id; bit<16> fragment;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header udp_t { bit<16> sport; bit<16> dport; bit<16> length; bit<16> checksum; }
header mark_t { bit<8> ingress; bit<8> egress; }
struct headers { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; mark_t mark; }
struct meta_t { bit<16> class; }

parser P(packet_in b, out headers hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x0800: ipv4; default: accept; }
    }
    state ipv4 {
        b.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) { 17: udp; default: accept; }
    }
    state udp { b.extract(hdr.udp); b.extract(hdr.mark); transition accept; }
}

control V(inout headers hdr, inout meta_t meta) { apply { } }
control C(inout headers hdr, inout meta_t meta) { apply { } }

control I(inout headers hdr, inout meta_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) stations;
    counter(16, CounterType.packets) classes;
    action drop() { mark_to_drop(std); }
    action forward(bit<9> port) { std.egress_spec = port; stations.count(); }
    action set_class(bit<16> class) { meta.class = class; }
    action permit() { }
#if VERSION == 2
    action reclass(bit<16> class) { meta.class = class; }
#endif
    table dmac {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; }
        default_action = drop();
        counters = stations;
        size = 1024;
    }
    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { set_class; permit; }
        default_action = permit();
        size = 65536;
    }
    table acl {
        key = { hdr.ipv4.src: ternary; hdr.ipv4.dst: ternary; hdr.udp.dport: ternary; }
#if VERSION == 2
        actions = { permit; drop; reclass; }
#else
        actions = { permit; drop; }
#endif
        default_action = permit();
        size = 1024;
    }
    apply {
        dmac.apply();
        if (hdr.ipv4.isValid() && hdr.udp.isValid()) {
            hdr.mark.ingress = VERSION;
            routes.apply();
            acl.apply();
        }
        classes.count((bit<32>) meta.class);
    }
}

control E(inout headers hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply { if (hdr.mark.isValid()) { hdr.mark.egress = VERSION; } }
}

control D(packet_out b, in headers hdr) {
    apply { b.emit(hdr.ethernet); b.emit(hdr.ipv4); b.emit(hdr.udp); b.emit(hdr.mark); }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
