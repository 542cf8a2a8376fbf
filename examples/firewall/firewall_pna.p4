// `firewall.p4` for the Portable NIC Architecture: a stateful firewall by a Bloom filter of two registers.

#include <core.p4>
#include <pna.p4>

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

header tcp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> seq;
    bit<32> ack;
    bit<4>  dataOffset;
    bit<3>  reserved;
    bit<9>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

const bit<32> FILTER_BITS = 4096;

struct empty_t {
}

struct flow_t {
    bit<32> local_ip;
    bit<32> remote_ip;
    bit<16> local_port;
    bit<16> remote_port;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
}

parser MyParser(packet_in packet, out headers_t hdr, inout empty_t meta, in pna_main_parser_input_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            6: tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control MyPre(in headers_t hdr, inout empty_t meta, in pna_pre_input_metadata_t std,
              inout pna_pre_output_metadata_t ostd) {
    apply { }
}

control MyMain(inout headers_t hdr, inout empty_t meta, in pna_main_input_metadata_t std,
               inout pna_main_output_metadata_t ostd) {
    Register<bit<1>, bit<32>>(FILTER_BITS) filter_1;
    Register<bit<1>, bit<32>>(FILTER_BITS) filter_2;
    Hash<bit<32>>(PNA_HashAlgorithm_t.CRC16) hash_1;
    Hash<bit<32>>(PNA_HashAlgorithm_t.CRC32) hash_2;

    apply {
        bool inside = std.input_port == (PortId_t)1;
        send_to_port(inside ? (PortId_t)2 : (PortId_t)1);
        if (hdr.tcp.isValid()) {
            flow_t flow;
            flow.local_ip = inside ? hdr.ipv4.srcAddr : hdr.ipv4.dstAddr;
            flow.remote_ip = inside ? hdr.ipv4.dstAddr : hdr.ipv4.srcAddr;
            flow.local_port = inside ? hdr.tcp.srcPort : hdr.tcp.dstPort;
            flow.remote_port = inside ? hdr.tcp.dstPort : hdr.tcp.srcPort;
            bit<32> at_1 = hash_1.get_hash(32w0, flow, FILTER_BITS);
            bit<32> at_2 = hash_2.get_hash(32w0, flow, FILTER_BITS);
            if (inside) {
                if (hdr.tcp.flags & 0x002 != 0) {
                    filter_1.write(at_1, 1);
                    filter_2.write(at_2, 1);
                }
            } else if (filter_1.read(at_1) & filter_2.read(at_2) == 0) {
                drop_packet();
            }
        }
    }
}

control MyDeparser(packet_out packet, in headers_t hdr, in empty_t meta, in pna_main_output_metadata_t ostd) {
    apply {
        packet.emit(hdr);
    }
}

PNA_NIC(MyParser(), MyPre(), MyMain(), MyDeparser()) main;
