// `firewall.p4` for the Portable Switch Architecture: a stateful firewall by a Bloom filter of two registers.

#include <core.p4>
#include <psa.p4>
#include <p4lib/connection.p4>

const bit<32> FILTER_BITS = 4096;

struct metadata_t { }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
}

#include <p4lib/psa.p4>

parser MyIngressParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                       in psa_ingress_parser_input_metadata_t std, in empty_t resubmitted, in empty_t recirculated) {
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

control MyIngress(inout headers_t hdr, inout metadata_t meta, in psa_ingress_input_metadata_t std,
                  inout psa_ingress_output_metadata_t ostd) {
    Register<bit<1>, bit<32>>(FILTER_BITS) filter_1;
    Register<bit<1>, bit<32>>(FILTER_BITS) filter_2;
    Hash<bit<32>>(PSA_HashAlgorithm_t.CRC16) hash_1;
    Hash<bit<32>>(PSA_HashAlgorithm_t.CRC32) hash_2;

    apply {
        bool inside = std.ingress_port == (PortId_t)1;
        send_to_port(ostd, inside ? (PortId_t)2 : (PortId_t)1);
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
                ingress_drop(ostd);
            }
        }
    }
}

PSA_Switch(IngressPipeline(MyIngressParser(), MyIngress(), EmitHeaders()), PacketReplicationEngine(),
           EgressPipeline(EmptyEgressParser(), EmptyEgress(), EmptyEgressDeparser()), BufferingQueueingEngine()) main;
