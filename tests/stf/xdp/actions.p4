// What becomes of a packet by each action of XDP, and the functions of xdp_model.

#include <xdp_model.p4>

header h_t { bit<8> what; bit<8> port; bit<16> sum; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> diffserv; bit<16> totalLen; bit<16> identification; bit<3> flags;
    bit<13> fragOffset; bit<8> ttl; bit<8> protocol; bit<16> hdrChecksum; bit<32> srcAddr; bit<32> dstAddr;
}
struct headers_t {
    h_t    h;
    ipv4_t ipv4;
}

parser p(packet_in packet, out headers_t headers) {
    state start {
        packet.extract(headers.h);
        transition select(headers.h.what) {
            0x0f: ipv4;
            0xff: reject;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(headers.ipv4);
        transition accept;
    }
}

control s(inout headers_t headers, in xdp_input imd, out xdp_output omd) {
    apply {
        omd.output_port = (bit<32>) headers.h.port;
        headers.h.port = (bit<8>) imd.input_port;
        if (headers.h.what == 1) {
            omd.output_action = xdp_action.XDP_DROP;
        } else if (headers.h.what == 2) {
            omd.output_action = xdp_action.XDP_PASS;
        } else if (headers.h.what == 3) {
            omd.output_action = xdp_action.XDP_TX;
        } else if (headers.h.what == 4) {
            omd.output_action = xdp_action.XDP_REDIRECT;
        } else if (headers.h.what == 5) {
            omd.output_action = xdp_action.XDP_TX;
            headers.h.sum = csum_replace2(headers.h.sum, 0x1234, 0x4321);
        } else if (headers.h.what == 6) {
            omd.output_action = xdp_action.XDP_TX;
            headers.h.sum = csum_replace4(headers.h.sum, 0x0a000001, 0xc0a80101);
        } else if (headers.h.what == 7) {
            omd.output_action = xdp_action.XDP_TX;
            headers.h.sum = (bit<16>) (BPF_KTIME_GET_NS() >> 10);
        } else if (headers.ipv4.isValid()) {
            omd.output_action = xdp_action.XDP_TX;
            headers.ipv4.hdrChecksum = ebpf_ipv4_checksum(
                headers.ipv4.version, headers.ipv4.ihl, headers.ipv4.diffserv, headers.ipv4.totalLen,
                headers.ipv4.identification, headers.ipv4.flags, headers.ipv4.fragOffset, headers.ipv4.ttl,
                headers.ipv4.protocol, headers.ipv4.srcAddr, headers.ipv4.dstAddr);
            headers.h.setInvalid();
        }
    }
}

control d(in headers_t headers, packet_out packet) {
    apply {
        packet.emit(headers.h);
        packet.emit(headers.ipv4);
    }
}

xdp(p(), s(), d()) main;
