// `firewall.p4` for the Portable NIC Architecture: a stateful firewall by a Bloom filter of two registers.

#include <core.p4>
#include <pna.p4>
#include <p4lib/connection.p4>

const bit<32> FILTER_BITS = 4096;

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
}

#include <p4lib/pna.p4>

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, in pna_main_parser_input_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            IP_PROTO_TCP: tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control MyMain(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t std,
               inout pna_main_output_metadata_t ostd) {
    Register<bit<1>, bit<32>>(FILTER_BITS) filter_1;
    Register<bit<1>, bit<32>>(FILTER_BITS) filter_2;
    Hash<bit<32>>(PNA_HashAlgorithm_t.CRC16) hash_1;
    Hash<bit<32>>(PNA_HashAlgorithm_t.CRC32) hash_2;

    apply {
        bool inside = std.input_port == (PortId_t)1;
        send_to_port(inside ? (PortId_t)2 : (PortId_t)1);
        if (hdr.tcp.isValid()) {
            connection_t flow = connection_of(hdr.ipv4, hdr.tcp, inside);
            bit<32> at_1 = hash_1.get_hash(32w0, flow, FILTER_BITS);
            bit<32> at_2 = hash_2.get_hash(32w0, flow, FILTER_BITS);
            if (inside) {
                if (hdr.tcp.flags & TCP_SYN != 0) {
                    filter_1.write(at_1, 1);
                    filter_2.write(at_2, 1);
                }
            } else if (filter_1.read(at_1) & filter_2.read(at_2) == 0) {
                drop_packet();
            }
        }
    }
}

PNA_NIC(MyParser(), EmptyPre(), MyMain(), EmitHeaders()) main;
