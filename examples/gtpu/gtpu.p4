// GTP-U decapsulation: the user plane of a mobile core towards the Internet (3GPP TS 29.281).
//
// Tunnels end here by TEID; the inner IPv4 packet is forwarded by its destination. The GTP-U header's optional part (sequence
// number, N-PDU number, next extension) is skipped when one of its flags is set; extension headers are not followed.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> totalLen;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragOffset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

header udp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<16> length;
    bit<16> checksum;
}

header gtpu_t {
    bit<3>  version;
    bit<1>  pt;
    bit<1>  spare;
    bit<1>  ex;
    bit<1>  seq;
    bit<1>  pn;
    bit<8>  messageType;
    bit<16> length;
    bit<32> teid;
}

header gtpu_options_t {
    bit<16> sequence;
    bit<8>  npdu;
    bit<8>  nextExtension;
}

struct metadata_t {
}

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         outer_ipv4;
    udp_t          udp;
    gtpu_t         gtpu;
    gtpu_options_t gtpu_options;
    ipv4_t         ipv4;
}

error {
    GtpExtension
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x0800: outer_ipv4;
            default: accept;
        }
    }
    state outer_ipv4 {
        packet.extract(hdr.outer_ipv4);
        transition select(hdr.outer_ipv4.ihl, hdr.outer_ipv4.protocol) {
            (5, 17): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dstPort) {
            2152: gtpu;
            default: accept;
        }
    }
    state gtpu {
        packet.extract(hdr.gtpu);
        transition select(hdr.gtpu.messageType, hdr.gtpu.ex ++ hdr.gtpu.seq ++ hdr.gtpu.pn) {
            (255, 0): inner;
            (255, _): options;
            default: accept;
        }
    }
    state options {
        packet.extract(hdr.gtpu_options);
        verify(hdr.gtpu_options.nextExtension == 0, error.GtpExtension);
        transition inner;
    }
    state inner {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(65536, CounterType.packets_and_bytes) usage;

    action drop() {
        mark_to_drop(std);
    }

    action terminate(bit<32> subscriber) {
        usage.count(subscriber);
        hdr.outer_ipv4.setInvalid();
        hdr.udp.setInvalid();
        hdr.gtpu.setInvalid();
        hdr.gtpu_options.setInvalid();
    }

    table tunnel {
        key = {
            hdr.outer_ipv4.dstAddr: exact;
            hdr.gtpu.teid: exact;
        }
        actions = { terminate; drop; }
        default_action = drop();
        size = 65536;
    }

    action send(bit<9> port, bit<48> srcAddr, bit<48> dstAddr) {
        std.egress_spec = port;
        hdr.ethernet.srcAddr = srcAddr;
        hdr.ethernet.dstAddr = dstAddr;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    table route {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { send; drop; }
        default_action = drop();
        size = 65536;
    }

    apply {
        if (std.parser_error == error.NoError && hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            if (tunnel.apply().hit) {
                route.apply();
            }
        } else {
            drop();
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr },
            hdr.ipv4.hdrChecksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
