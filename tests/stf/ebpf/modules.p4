// Functions that the reference compiler's repository has as C modules.

#include <ebpf_model.p4>

header ethernet_t { bit<8> wanted; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> diffserv; bit<16> totalLen; bit<16> identification; bit<3> flags;
    bit<13> fragOffset; bit<8> ttl; bit<8> protocol; bit<16> hdrChecksum; bit<32> srcAddr; bit<32> dstAddr;
}
header tcp_t {
    bit<16> srcPort; bit<16> dstPort;
    bit<5> rest; bit<1> ack; bit<1> syn; bit<1> fin;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    tcp_t      tcp;
}

extern bool verify_ipv4_checksum(in ipv4_t iphdr);
extern bool tcp_conntrack(in headers_t headers);

parser prs(packet_in packet, out headers_t headers) {
    state start {
        packet.extract(headers.ethernet);
        packet.extract(headers.ipv4);
        transition select(headers.ethernet.wanted) {
            0: accept;
            default: tcp;
        }
    }
    state tcp {
        packet.extract(headers.tcp);
        transition accept;
    }
}

control filt(inout headers_t headers, out bool accept) {
    apply {
        if (headers.tcp.isValid()) {
            accept = tcp_conntrack(headers);
        } else {
            accept = verify_ipv4_checksum(headers.ipv4);
        }
    }
}

ebpfFilter(prs(), filt()) main;
