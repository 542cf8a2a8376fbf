// The protocols of OpenFlow and of Open vSwitch: what can be matched and written, how frames are parsed and written back.
//
// Names, numbers and prerequisites: OpenFlow 1.5.1, 7.2.3; ovs-fields(7). What the annotations say: openflow_model.p4.
//
// A field that several headers have is in `flow_t`, and so is what is no header's. The deparser writes such fields back, so a
// header's own copy is not kept between parser and deparser.

#include <openflow_model.p4>

const bit<16> VLAN = 0x8100;
const bit<16> VLAN_AD = 0x88a8;
const bit<16> IPV4 = 0x0800;
const bit<16> IPV6 = 0x86dd;
const bit<16> MPLS = 0x8847;
const bit<16> MPLS_MULTICAST = 0x8848;
const bit<16> ETHERTYPE_MIN = 0x0600;   // less is a length (IEEE 802.3)
const bit<16> NO_ETHERTYPE = 0x05ff;    // what OpenFlow calls a frame without one

header ethernet_t {
    @oxm("eth_dst", 3) @nxm(0, 1) bit<48> dst;
    @oxm("eth_src", 4) @nxm(0, 2) bit<48> src;
}

// The outermost tag. An EtherType belongs to what follows it, so tags stand before that of the frame.
header vlan_t {
    bit<16> tpid;
    @oxm("vlan_pcp", 7) @exact @prereq_mask("vlan_vid", 0x1000, 0x1000) bit<3> pcp;
    bit<1>  dei;
    @oxm("vlan_vid", 6) @present
    @nxm("vlan_tci", 0, 4) @parts("vlan_pcp", "vlan_vid") bit<12> vid;
}
header tag_t { bit<32> tag; }           // a tag below it: TPID and TCI
header snap_t { bit<64> length_snap; }  // IEEE 802.3 length, LLC and SNAP before the EtherType
header ethertype_t { bit<16> type; }

header mpls_t {
    @oxm("mpls_label", 34) @pad(12) @exact @prereq("eth_type", 0x8847, 0x8848) bit<20> label;
    @oxm("mpls_tc", 35) @exact @prereq("eth_type", 0x8847, 0x8848) bit<3> tc;
    @oxm("mpls_bos", 36) @exact @readonly @prereq("eth_type", 0x8847, 0x8848) bit<1> bos;
    @nxm("mpls_ttl", 1, 30) @exact @prereq("eth_type", 0x8847, 0x8848) bit<8> ttl;
}
header label_t { bit<32> entry; }       // a label below it

header arp_t {
    bit<48> format;                     // hardware and protocol, and their addresses' lengths
    @oxm("arp_op", 21) @nxm(0, 15) @exact @prereq("eth_type", 0x0806, 0x8035) bit<16> op;
    @oxm("arp_sha", 24) @nxm(1, 17) @prereq("eth_type", 0x0806, 0x8035) bit<48> sha;
    @oxm("arp_spa", 22) @nxm(0, 16) @prereq("eth_type", 0x0806, 0x8035) bit<32> spa;
    @oxm("arp_tha", 25) @nxm(1, 18) @prereq("eth_type", 0x0806, 0x8035) bit<48> tha;
    @oxm("arp_tpa", 23) @nxm(0, 17) @prereq("eth_type", 0x0806, 0x8035) bit<32> tpa;
}

header ipv4_t {
    bit<8>  version_ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<32> length_id;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    @oxm("ipv4_src", 11) @nxm(0, 7) @prereq("eth_type", 0x0800) bit<32> src;
    @oxm("ipv4_dst", 12) @nxm(0, 8) @prereq("eth_type", 0x0800) bit<32> dst;
}

header ipv6_t {
    bit<4>  version;
    bit<6>  dscp;
    bit<2>  ecn;
    @oxm("ipv6_flabel", 28) @nxm(1, 27) @pad(12) @prereq("eth_type", 0x86dd) bit<20> label;
    bit<24> length_next;
    bit<8>  hop_limit;
    @oxm("ipv6_src", 26) @nxm(1, 19) @prereq("eth_type", 0x86dd) bit<128> src;
    @oxm("ipv6_dst", 27) @nxm(1, 20) @prereq("eth_type", 0x86dd) bit<128> dst;
}
header options_t { varbit<320> bytes; } // IPv4 options, or an extension header of IPv6

header ports_t {
    @oxm("tcp_src", 13) @nxm(0, 9) @prereq("ip_proto", 6)
    @oxm("udp_src", 15) @nxm(0, 11) @prereq("ip_proto", 17)
    @oxm("sctp_src", 17) @readonly @prereq("ip_proto", 132) bit<16> src;
    @oxm("tcp_dst", 14) @nxm(0, 10) @prereq("ip_proto", 6)
    @oxm("udp_dst", 16) @nxm(0, 12) @prereq("ip_proto", 17)
    @oxm("sctp_dst", 18) @readonly @prereq("ip_proto", 132) bit<16> dst;
}
header tcp_t {
    bit<64> sequence;                   // and acknowledgement
    bit<4>  offset;
    @oxm("tcp_flags", 42) @oxm(0xffff, 42, 0x4f4e4600) @nxm(1, 34) @readonly @prereq("ip_proto", 6) bit<12> flags;
    bit<16> window;
    bit<16> checksum;
}
header udp_t {
    bit<16> length;
    bit<16> checksum;
}

header icmp_t {
    @oxm("icmpv4_type", 19) @nxm(0, 13) @exact @prereq("eth_type", 0x0800) @prereq("ip_proto", 1)
    @oxm("icmpv6_type", 29) @nxm(1, 21) @exact @prereq("eth_type", 0x86dd) @prereq("ip_proto", 58) bit<8> type;
    @oxm("icmpv4_code", 20) @nxm(0, 14) @exact @prereq("eth_type", 0x0800) @prereq("ip_proto", 1)
    @oxm("icmpv6_code", 30) @nxm(1, 22) @exact @prereq("eth_type", 0x86dd) @prereq("ip_proto", 58) bit<8> code;
    bit<16> checksum;
}
header nd_t {
    @oxm("nd_reserved", 0xffff, 1, 0xd494) @exact @prereq("icmpv6_type", 135, 136) @prereq("icmpv6_code", 0) bit<32> reserved;
    @oxm("nd_target", 31) @nxm(1, 23) @prereq("icmpv6_type", 135, 136) @prereq("icmpv6_code", 0) bit<128> target;
}
header nd_other_t { bit<64> option; }   // an option of eight bytes before that with the address
header nd_address_t {
    @oxm("nd_options_type", 0xffff, 2, 0xd494) @exact @prereq("icmpv6_type", 135, 136) @prereq("icmpv6_code", 0) bit<8> type;
    bit<8>  length;
    @oxm("nd_sll", 32) @nxm(1, 24) @prereq("icmpv6_type", 135) @prereq("icmpv6_code", 0)
    @oxm("nd_tll", 33) @nxm(1, 25) @prereq("icmpv6_type", 136) @prereq("icmpv6_code", 0) bit<48> address;
}

struct headers_t {
    ethernet_t   ethernet;
    vlan_t       vlan;
    tag_t        tag2;
    tag_t        tag3;                  // only pushed, as label3
    snap_t       snap;
    ethertype_t  ethertype;
    mpls_t       mpls;
    label_t      label2;
    label_t      label3;
    arp_t        arp;
    ipv4_t       ipv4;
    ipv6_t       ipv6;
    options_t    options;
    options_t    options2;
    ports_t      ports;
    tcp_t        tcp;
    udp_t        udp;
    icmp_t       icmp;
    nd_t         nd;
    nd_other_t   nd_other;
    nd_address_t nd_address;
}

struct flow_t {
    @oxm(5) @nxm(0, 3) @exact @readonly bit<16> eth_type;
    @oxm(10) @nxm(0, 6) @exact @readonly @prereq("eth_type", 0x0800, 0x86dd) bit<8> ip_proto;
    @oxm(8) @exact @prereq("eth_type", 0x0800, 0x86dd)
    @nxm("nw_tos", 0, 5) @parts("ip_dscp", 2) @exact @prereq("eth_type", 0x0800, 0x86dd) bit<6> ip_dscp;
    @oxm(9) @nxm(1, 28) @exact @prereq("eth_type", 0x0800, 0x86dd) bit<2> ip_ecn;
    @nxm(1, 29) @exact @prereq("eth_type", 0x0800, 0x86dd) bit<8> nw_ttl;
    @nxm(1, 26) @readonly @prereq("eth_type", 0x0800, 0x86dd) bit<8> ip_frag;   // 1: a fragment; 2: not the first

    // Sums of what checksums cover and actions may change, as received.
    bit<16> ip_sum;
    bit<16> transport_sum;

    @oxm(2) @metadata bit<64> metadata;
    @oxm(38) @nxm(1, 16) @metadata bit<64> tun_id;
    @nxm(1, 31) @metadata bit<32> tun_src;
    @nxm(1, 32) @metadata bit<32> tun_dst;
    @nxm(1, 109) @metadata bit<128> tun_ipv6_src;
    @nxm(1, 110) @metadata bit<128> tun_ipv6_dst;
    @nxm(1, 38) @metadata bit<16> tun_gbp_id;
    @nxm(1, 39) @metadata bit<8> tun_gbp_flags;
    @nxm(1, 33) @metadata bit<32> pkt_mark;
    @oxm(43) @oxm(0xffff, 43, 0x4f4e4600) @exact @readonly @metadata bit<32> actset_output;
    @oxm(44) @exact @readonly @metadata bit<32> packet_type;
    @nxm(1, 37) @exact @readonly @metadata bit<32> conj_id;

    // Registers, four in one.
    @nxm(1, 111) @metadata
    @oxm("xreg0", 0x8001, 0) @bits(127, 64) @metadata @oxm("xreg1", 0x8001, 1) @bits(63, 0) @metadata
    @nxm("reg0", 1, 0) @bits(127, 96) @metadata @nxm("reg1", 1, 1) @bits(95, 64) @metadata
    @nxm("reg2", 1, 2) @bits(63, 32) @metadata @nxm("reg3", 1, 3) @bits(31, 0) @metadata bit<128> xxreg0;
    @nxm(1, 112) @metadata
    @oxm("xreg2", 0x8001, 2) @bits(127, 64) @metadata @oxm("xreg3", 0x8001, 3) @bits(63, 0) @metadata
    @nxm("reg4", 1, 4) @bits(127, 96) @metadata @nxm("reg5", 1, 5) @bits(95, 64) @metadata
    @nxm("reg6", 1, 6) @bits(63, 32) @metadata @nxm("reg7", 1, 7) @bits(31, 0) @metadata bit<128> xxreg1;
    @nxm(1, 113) @metadata
    @oxm("xreg4", 0x8001, 4) @bits(127, 64) @metadata @oxm("xreg5", 0x8001, 5) @bits(63, 0) @metadata
    @nxm("reg8", 1, 8) @bits(127, 96) @metadata @nxm("reg9", 1, 9) @bits(95, 64) @metadata
    @nxm("reg10", 1, 10) @bits(63, 32) @metadata @nxm("reg11", 1, 11) @bits(31, 0) @metadata bit<128> xxreg2;
    @nxm(1, 114) @metadata
    @oxm("xreg6", 0x8001, 6) @bits(127, 64) @metadata @oxm("xreg7", 0x8001, 7) @bits(63, 0) @metadata
    @nxm("reg12", 1, 12) @bits(127, 96) @metadata @nxm("reg13", 1, 13) @bits(95, 64) @metadata
    @nxm("reg14", 1, 14) @bits(63, 32) @metadata @nxm("reg15", 1, 15) @bits(31, 0) @metadata bit<128> xxreg3;
}

// An extension header of at most 40 bytes (RFC 8200, 4).
parser Extension(packet_in packet, inout flow_t flow, out options_t bytes) {
    bit<32> first;
    bit<32> bits;
    state start {
        first = packet.lookahead<bit<32>>();
        bits = (bit<32>)first[23:16] << 6;
        transition select(flow.ip_proto) {
            44: fragment;
            51: authentication;         // counts words of four bytes, the first two not among them (RFC 4302)
            default: other;
        }
    }
    state fragment {
        flow.ip_frag = first[15:3] != 0 ? 8w3 : (first[0:0] == 1 ? 8w1 : 8w0);
        packet.extract(bytes, 64);
        // Of what is not the first fragment OpenFlow sees no further protocol.
        transition select(flow.ip_frag) {
            3: accept;
            default: next;
        }
    }
    state authentication {
        packet.extract(bytes, (bits >> 1) + 64);
        transition next;
    }
    state other {
        packet.extract(bytes, bits + 64);
        transition next;
    }
    state next {
        flow.ip_proto = first[31:24];
        transition accept;
    }
}

parser Frame(packet_in packet, out headers_t hdr, inout flow_t flow, in packet_t std) {
    bit<16> addresses;                  // the sum of the pseudo-header's
    state start {
        packet.extract(hdr.ethernet);
        transition select(packet.lookahead<bit<16>>()) {
            VLAN: vlan;
            VLAN_AD: vlan;
            default: ethertype;
        }
    }
    state vlan {
        packet.extract(hdr.vlan);
        transition select(packet.lookahead<bit<16>>()) {
            VLAN: vlan2;
            VLAN_AD: vlan2;
            default: ethertype;
        }
    }
    state vlan2 {
        packet.extract(hdr.tag2);
        transition ethertype;
    }
    state ethertype {
        flow.eth_type = NO_ETHERTYPE;
        bit<16> type = packet.lookahead<bit<16>>();
        transition select(type) {
            0 .. ETHERTYPE_MIN - 1: length;
            default: typed;
        }
    }
    state length {
        transition select(packet.lookahead<bit<64>>()) {
            0xaaaa03000000 &&& 0xffffffffffff: snap;
            default: accept;
        }
    }
    state snap {
        packet.extract(hdr.snap);
        transition select(packet.lookahead<bit<16>>()) {
            0 .. ETHERTYPE_MIN - 1: accept;
            default: typed;
        }
    }
    state typed {
        packet.extract(hdr.ethertype);
        flow.eth_type = hdr.ethertype.type;
        transition select(hdr.ethertype.type) {
            IPV4: ipv4;
            IPV6: ipv6;
            0x0806: arp;
            0x8035: arp;
            MPLS: mpls;
            MPLS_MULTICAST: mpls;
            default: accept;
        }
    }
    state mpls {
        packet.extract(hdr.mpls);
        transition select(hdr.mpls.bos) {
            1: below;
            default: label2;
        }
    }
    state label2 {
        packet.extract(hdr.label2);
        transition select(hdr.label2.entry[8:8]) {
            1: below;
            default: accept;
        }
    }
    // What is below the last label is not said; TTLs are copied from and to IP, and its headers are ready for pop_mpls.
    state below {
        transition select(packet.lookahead<bit<4>>()) {
            4: ipv4;
            6: ipv6;
            default: accept;
        }
    }
    state arp {
        packet.extract(hdr.arp);
        transition accept;
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        flow.ip_dscp = hdr.ipv4.dscp;
        flow.ip_ecn = hdr.ipv4.ecn;
        flow.nw_ttl = hdr.ipv4.ttl;
        flow.ip_proto = hdr.ipv4.protocol;
        flow.ip_frag = hdr.ipv4.offset != 0 ? 8w3 : (hdr.ipv4.flags[0:0] == 1 ? 8w1 : 8w0);
        addresses = internet_sum({ hdr.ipv4.src, hdr.ipv4.dst });
        flow.ip_sum = internet_sum({ addresses, 8w0, flow.ip_dscp, flow.ip_ecn, flow.nw_ttl, 8w0 });
        transition select(hdr.ipv4.version_ihl[3:0]) {
            0 .. 4: accept;
            5: transport;
            default: options;
        }
    }
    state options {
        packet.extract(hdr.options, ((bit<32>)hdr.ipv4.version_ihl[3:0] - 5) << 5);
        transition transport;
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        flow.ip_dscp = hdr.ipv6.dscp;
        flow.ip_ecn = hdr.ipv6.ecn;
        flow.nw_ttl = hdr.ipv6.hop_limit;
        flow.ip_proto = hdr.ipv6.length_next[7:0];
        addresses = internet_sum({ hdr.ipv6.src, hdr.ipv6.dst });
        transition select(flow.ip_proto) {
            0: extension;
            43: extension;
            44: extension;
            51: extension;
            60: extension;
            default: transport;
        }
    }
    state extension {
        Extension.apply(packet, flow, hdr.options);
        transition select(flow.ip_proto, flow.ip_frag) {
            (0, _): extension2;
            (43, _): extension2;
            (44, 0 .. 1): extension2;
            (51, _): extension2;
            (60, _): extension2;
            default: transport;
        }
    }
    state extension2 {
        Extension.apply(packet, flow, hdr.options2);
        transition transport;
    }
    state transport {
        transition select(flow.ip_frag, flow.ip_proto) {
            (3, _): accept;
            (_, 6): tcp;
            (_, 17): udp;
            (_, 132): sctp;
            (_, 1): icmp;
            (_, 58): icmpv6;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.ports);
        packet.extract(hdr.tcp);
        flow.transport_sum = internet_sum({ addresses, hdr.ports.src, hdr.ports.dst });
        transition accept;
    }
    state udp {
        packet.extract(hdr.ports);
        packet.extract(hdr.udp);
        flow.transport_sum = internet_sum({ addresses, hdr.ports.src, hdr.ports.dst });
        transition accept;
    }
    state sctp {
        packet.extract(hdr.ports);
        transition accept;
    }
    state icmp {
        packet.extract(hdr.icmp);
        flow.transport_sum = hdr.icmp.type ++ hdr.icmp.code;
        transition accept;
    }
    state icmpv6 {
        packet.extract(hdr.icmp);
        flow.transport_sum = internet_sum({ addresses, hdr.icmp.type, hdr.icmp.code });
        transition select(hdr.icmp.type, hdr.icmp.code) {
            (135 .. 136, 0): nd;
            default: accept;
        }
    }
    state nd {
        packet.extract(hdr.nd);
        flow.transport_sum = internet_sum({ flow.transport_sum, hdr.nd.reserved, hdr.nd.target });
        transition nd_option;
    }
    // The source's address in a solicitation, the target's in an advertisement; another option of 8 bytes may stand before it.
    state nd_option {
        transition select(hdr.icmp.type, packet.lookahead<bit<16>>()) {
            (135, 0x0101): nd_address;
            (136, 0x0201): nd_address;
            (_, 1 &&& 0xff): nd_other;
            default: accept;
        }
    }
    state nd_other {
        packet.extract(hdr.nd_other);
        transition select(hdr.icmp.type, packet.lookahead<bit<16>>()) {
            (135, 0x0101): nd_address;
            (136, 0x0201): nd_address;
            default: accept;
        }
    }
    state nd_address {
        packet.extract(hdr.nd_address);
        flow.transport_sum = internet_sum({ flow.transport_sum, hdr.nd_address.type, 8w0, hdr.nd_address.address });
        transition accept;
    }
}

control Actions(inout headers_t hdr, inout flow_t flow, out result_t result) {
    action push_vlan(bit<16> ethertype) {
        if (hdr.tag2.isValid()) {
            // The parser sees two tags.
            hdr.tag3 = hdr.tag2;
            result.reparse = 1;
        }
        if (hdr.vlan.isValid()) {
            hdr.tag2.setValid();
            hdr.tag2.tag = hdr.vlan.tpid ++ hdr.vlan.pcp ++ hdr.vlan.dei ++ hdr.vlan.vid;
        }
        hdr.vlan.setValid();
        hdr.vlan = { ethertype, 0, 0, 0 };
    }
    action pop_vlan() {
        if (hdr.tag2.isValid()) {
            hdr.vlan = { hdr.tag2.tag[31:16], hdr.tag2.tag[15:13], hdr.tag2.tag[12:12], hdr.tag2.tag[11:0] };
            hdr.tag2 = hdr.tag3;
            hdr.tag3.setInvalid();
            if (flow.eth_type == VLAN || flow.eth_type == VLAN_AD) {
                result.reparse = 1;
            }
        } else {
            hdr.vlan.setInvalid();
        }
    }
    action set_vlan_vid(bit<12> vid) {
        if (!hdr.vlan.isValid()) {
            push_vlan(VLAN);
        }
        hdr.vlan.vid = vid;
    }
    action set_vlan_pcp(bit<3> pcp) {
        if (!hdr.vlan.isValid()) {
            push_vlan(VLAN);
        }
        hdr.vlan.pcp = pcp;
    }
    action push_mpls(bit<16> ethertype) {
        if (hdr.label2.isValid()) {
            hdr.label3 = hdr.label2;
            result.reparse = 1;
        }
        if (hdr.mpls.isValid()) {
            hdr.label2.setValid();
            hdr.label2.entry = hdr.mpls.label ++ hdr.mpls.tc ++ hdr.mpls.bos ++ hdr.mpls.ttl;
            hdr.mpls.bos = 0;
        } else {
            // An explicit null label (RFC 3032, 2.1) with what IP says.
            hdr.mpls.setValid();
            hdr.mpls = { flow.eth_type == IPV6 ? 20w2 : 0, flow.ip_dscp[2:0], 1, flow.nw_ttl != 0 ? flow.nw_ttl : 64 };
        }
        flow.eth_type = ethertype;
    }
    action pop_mpls(bit<16> ethertype) {
        if (hdr.label2.isValid()) {
            bit<32> entry = hdr.label2.entry;
            hdr.mpls = { entry[31:12], entry[11:9], entry[8:8], entry[7:0] };
            hdr.label2 = hdr.label3;
            hdr.label3.setInvalid();
            result.reparse = hdr.label2.isValid() ? 1w0 : ~entry[8:8];
        } else if (hdr.mpls.isValid()) {
            hdr.mpls.setInvalid();
            bool is_parsed = ethertype == IPV4 && hdr.ipv4.isValid() || ethertype == IPV6 && hdr.ipv6.isValid();
            result.reparse = is_parsed ? 1w0 : 1;
        }
        flow.eth_type = ethertype;
    }
    action set_mpls_ttl(bit<8> ttl) {
        if (hdr.mpls.isValid()) {
            hdr.mpls.ttl = ttl;
        }
    }
    action dec_mpls_ttl() {
        if (hdr.mpls.isValid()) {
            result.ttl_exceeded = hdr.mpls.ttl > 1 ? 1w0 : 1;
            hdr.mpls.ttl = hdr.mpls.ttl > 1 ? hdr.mpls.ttl - 1 : hdr.mpls.ttl;
        }
    }
    action set_nw_ttl(bit<8> ttl) {
        flow.nw_ttl = ttl;
    }
    action dec_nw_ttl() {
        if (flow.eth_type == IPV4 || flow.eth_type == IPV6) {
            result.ttl_exceeded = flow.nw_ttl > 1 ? 1w0 : 1;
            flow.nw_ttl = flow.nw_ttl > 1 ? flow.nw_ttl - 1 : flow.nw_ttl;
        }
    }
    action copy_ttl_out() {
        if (hdr.label2.isValid()) {
            hdr.mpls.ttl = hdr.label2.entry[7:0];
        } else if (hdr.mpls.isValid() && (hdr.ipv4.isValid() || hdr.ipv6.isValid())) {
            hdr.mpls.ttl = flow.nw_ttl;
        }
    }
    action copy_ttl_in() {
        if (hdr.label2.isValid()) {
            hdr.label2.entry[7:0] = hdr.mpls.ttl;
        } else if (hdr.mpls.isValid()) {
            flow.nw_ttl = hdr.mpls.ttl;
        }
    }
    table actions {
        actions = {
            push_vlan; pop_vlan; set_vlan_vid; set_vlan_pcp; push_mpls; pop_mpls; set_mpls_ttl; dec_mpls_ttl; set_nw_ttl;
            dec_nw_ttl; copy_ttl_out; copy_ttl_in; NoAction;
        }
        default_action = NoAction();
    }
    apply {
        actions.apply();
    }
}

control Write(packet_out packet, inout headers_t hdr, in flow_t flow, in packet_t std) {
    bit<16> addresses;
    bit<16> sum;
    apply {
        packet.emit(hdr.ethernet);
        if (hdr.vlan.isValid()) {
            // A tag that a write of its presence has made says no protocol.
            hdr.vlan.tpid = hdr.vlan.tpid != 0 ? hdr.vlan.tpid : VLAN;
            packet.emit(hdr.vlan);
        }
        packet.emit(hdr.tag2);
        packet.emit(hdr.tag3);
        packet.emit(hdr.snap);
        if (hdr.ethertype.isValid()) {
            hdr.ethertype.type = flow.eth_type;
            packet.emit(hdr.ethertype);
        }
        packet.emit(hdr.mpls);
        packet.emit(hdr.label2);
        packet.emit(hdr.label3);
        packet.emit(hdr.arp);
        if (hdr.ipv4.isValid()) {
            addresses = internet_sum({ hdr.ipv4.src, hdr.ipv4.dst });
            sum = internet_sum({ addresses, 8w0, flow.ip_dscp, flow.ip_ecn, flow.nw_ttl, 8w0 });
            hdr.ipv4.checksum = checksum_update(hdr.ipv4.checksum, flow.ip_sum, sum);
            hdr.ipv4.dscp = flow.ip_dscp;
            hdr.ipv4.ecn = flow.ip_ecn;
            hdr.ipv4.ttl = flow.nw_ttl;
            hdr.ipv4.protocol = flow.ip_proto;
            packet.emit(hdr.ipv4);
        }
        if (hdr.ipv6.isValid()) {
            addresses = internet_sum({ hdr.ipv6.src, hdr.ipv6.dst });
            hdr.ipv6.dscp = flow.ip_dscp;
            hdr.ipv6.ecn = flow.ip_ecn;
            hdr.ipv6.hop_limit = flow.nw_ttl;
            packet.emit(hdr.ipv6);
        }
        packet.emit(hdr.options);
        packet.emit(hdr.options2);
        packet.emit(hdr.ports);
        sum = internet_sum({ addresses, hdr.ports.src, hdr.ports.dst });
        if (hdr.tcp.isValid()) {
            hdr.tcp.checksum = checksum_update(hdr.tcp.checksum, flow.transport_sum, sum);
            packet.emit(hdr.tcp);
        }
        if (hdr.udp.isValid()) {
            // 0 is no checksum, and one that is 0 is sent as ones (RFC 768).
            if (hdr.udp.checksum != 0) {
                hdr.udp.checksum = checksum_update(hdr.udp.checksum, flow.transport_sum, sum);
                hdr.udp.checksum = hdr.udp.checksum != 0 ? hdr.udp.checksum : 0xffff;
            }
            packet.emit(hdr.udp);
        }
        if (hdr.icmp.isValid()) {
            sum = hdr.icmp.type ++ hdr.icmp.code;
            if (hdr.ipv6.isValid()) {
                sum = internet_sum({ addresses, hdr.icmp.type, hdr.icmp.code });
            }
            if (hdr.nd.isValid()) {
                sum = internet_sum({ sum, hdr.nd.reserved, hdr.nd.target });
            }
            if (hdr.nd_address.isValid()) {
                sum = internet_sum({ sum, hdr.nd_address.type, 8w0, hdr.nd_address.address });
            }
            hdr.icmp.checksum = checksum_update(hdr.icmp.checksum, flow.transport_sum, sum);
            packet.emit(hdr.icmp);
            packet.emit(hdr.nd);
            packet.emit(hdr.nd_other);
            packet.emit(hdr.nd_address);
        }
    }
}

OpenFlowBridge(Frame(), Actions(), Write()) main;
