// The protocols of OpenFlow and Open vSwitch: what is matched and written, how frames are parsed and written back.
//
// Names, numbers, prerequisites: OpenFlow 1.5.1, 7.2.3; ovs-fields(7). Annotations: openflow_model.p4.
//
// A field that several headers have is in `flow_t`. The deparser writes it back, so headers' own copies are not kept.
#include <openflow_model.p4>

const bit<16> VLAN = 0x8100; const bit<16> VLAN_AD = 0x88a8;
const bit<16> IPV4 = 0x0800; const bit<16> IPV6 = 0x86dd;

#define IS_MPLS @prereq("eth_type", 0x8847, 0x8848)
#define IS_ARP @prereq("eth_type", 0x0806, 0x8035)
#define IS_IP @prereq("eth_type", 0x0800, 0x86dd)
#define IS_IPV4 @prereq("eth_type", 0x0800)
#define IS_IPV6 @prereq("eth_type", 0x86dd)
#define IS_TCP @prereq("ip_proto", 6)
#define IS_UDP @prereq("ip_proto", 17)
#define IS_SCTP @prereq("ip_proto", 132)
#define IS_ICMP IS_IPV4 @prereq("ip_proto", 1)
#define IS_ICMPV6 IS_IPV6 @prereq("ip_proto", 58)
#define IS_ND @prereq("icmpv6_type", 135, 136)  // zeros where the code is not 0
#define IS_ND_KIND(TYPE) @prereq("icmpv6_type", TYPE)

header ethernet_t {
    @oxm("eth_dst", 3) @nxm(0, 1) bit<48> dst;
    @oxm("eth_src", 4) @nxm(0, 2) bit<48> src;
}
// The outermost tag. An EtherType belongs to what follows it, so tags stand before that of the frame.
header vlan_t {
    bit<16> tpid;
    @oxm("vlan_pcp", 7) @exact @prereq_mask("vlan_vid", 0x1000, 0x1000) bit<3> pcp; bit<1> dei;
    @oxm("vlan_vid", 6) @present @nxm("vlan_tci", 0, 4) @parts("vlan_pcp", "vlan_vid") bit<12> vid;
}
header tag_t { bit<32> tag; }           // TPID and TCI of a tag below it
header snap_t { bit<64> length_snap; }  // IEEE 802.3 length, LLC and SNAP
header ethertype_t { bit<16> type; }
header mpls_t {
    @oxm("mpls_label", 34) @exact IS_MPLS bit<20> label;
    @oxm("mpls_tc", 35) @exact IS_MPLS bit<3> tc;
    @oxm("mpls_bos", 36) @exact @readonly IS_MPLS bit<1> bos;
    @nxm("mpls_ttl", 1, 30) @exact IS_MPLS bit<8> ttl;
}
header label_t { bit<32> entry; }       // of the MPLS stack, below the outermost one
header arp_t {
    bit<48> format;                     // kinds and lengths of the addresses
    @oxm("arp_op", 21) @nxm(0, 15) @exact IS_ARP bit<16> op;
    @oxm("arp_sha", 24) @nxm(1, 17) IS_ARP bit<48> sha;
    @oxm("arp_spa", 22) @nxm(0, 16) IS_ARP bit<32> spa;
    @oxm("arp_tha", 25) @nxm(1, 18) IS_ARP bit<48> tha;
    @oxm("arp_tpa", 23) @nxm(0, 17) IS_ARP bit<32> tpa;
}
header ipv4_t {
    bit<8>  version_ihl; bit<6> dscp; bit<2> ecn;
    bit<32> length_id; bit<16> fragment;
    bit<8>  ttl; bit<8> protocol; bit<16> checksum;
    @oxm("ipv4_src", 11) @nxm(0, 7) IS_IPV4 bit<32> src;
    @oxm("ipv4_dst", 12) @nxm(0, 8) IS_IPV4 bit<32> dst;
}
header ipv6_t {
    bit<4>  version; bit<6> dscp; bit<2> ecn;
    @oxm("ipv6_flabel", 28) @nxm(1, 27) IS_IPV6 bit<20> label;
    bit<24> length_next; bit<8> hop_limit;
    @oxm("ipv6_src", 26) @nxm(1, 19) IS_IPV6 bit<128> src;
    @oxm("ipv6_dst", 27) @nxm(1, 20) IS_IPV6 bit<128> dst;
}
header options_t { varbit<320> bytes; } // IPv4 options, or an extension header of IPv6
header ports_t {
    @oxm("tcp_src", 13) @nxm(0, 9) IS_TCP @oxm("udp_src", 15) @nxm(0, 11) IS_UDP
    @oxm("sctp_src", 17) @readonly IS_SCTP bit<16> src;     // read-only: a CRC-32c covers the whole packet
    @oxm("tcp_dst", 14) @nxm(0, 10) IS_TCP @oxm("udp_dst", 16) @nxm(0, 12) IS_UDP
    @oxm("sctp_dst", 18) @readonly IS_SCTP bit<16> dst;
}
header tcp_t {
    bit<64> sequence_acknowledgement; bit<4> offset;
    @oxm("tcp_flags", 42) @oxm(0xffff, 42, 0x4f4e4600) @nxm(1, 34) @readonly IS_TCP bit<12> flags;
    bit<16> window; bit<16> checksum;
}
header udp_t { bit<16> length; bit<16> checksum; }
header icmp_t {
    @oxm("icmpv4_type", 19) @nxm(0, 13) @exact IS_ICMP @oxm("icmpv6_type", 29) @nxm(1, 21) @exact IS_ICMPV6 bit<8> type;
    @oxm("icmpv4_code", 20) @nxm(0, 14) @exact IS_ICMP @oxm("icmpv6_code", 30) @nxm(1, 22) @exact IS_ICMPV6 bit<8> code;
    bit<16> checksum;
}
header nd_t {
    @oxm("nd_reserved", 0x1000, 1) @exact IS_ND bit<32> reserved;
    @oxm("nd_target", 31) @nxm(1, 23) IS_ND bit<128> target;
}
header nd_other_t { bit<64> option; }   // an option of eight bytes before that with the address
header nd_address_t {
    @oxm("nd_options_type", 0x1000, 2) @exact IS_ND bit<8> type;
    bit<8>  length;
    @oxm("nd_sll", 32) @nxm(1, 24) IS_ND_KIND(135) @oxm("nd_tll", 33) @nxm(1, 25) IS_ND_KIND(136) bit<48> address;
}

struct headers_t {
    ethernet_t ethernet; vlan_t vlan; tag_t tag2; tag_t tag3; snap_t snap; ethertype_t ethertype;
    mpls_t mpls; label_t label2; label_t label3;            // tag3 and label3 are pushed only
    arp_t arp; ipv4_t ipv4; ipv6_t ipv6; options_t options; options_t options2;
    ports_t ports; tcp_t tcp; udp_t udp; icmp_t icmp; nd_t nd; nd_other_t nd_other; nd_address_t nd_address;
}

struct flow_t {
    pipeline_t pipeline;
    @oxm(5) @nxm(0, 3) @exact @readonly bit<16> eth_type;
    @oxm(10) @nxm(0, 6) @exact @readonly IS_IP bit<8> ip_proto;
    @oxm(8) @exact IS_IP @nxm("nw_tos", 0, 5) @parts("ip_dscp", 2) @exact IS_IP bit<6> ip_dscp;
    @oxm(9) @nxm(1, 28) @exact IS_IP bit<2> ip_ecn;
    @nxm(1, 29) @exact IS_IP bit<8> nw_ttl;
    @nxm(1, 26) @readonly IS_IP bit<2> ip_frag;     // 1: the first fragment, 3: another one
    bit<16> ip_sum; bit<16> transport_sum;          // as received, of what checksums cover and actions may change
}

bit<2> fragment(in bit<16> offset, in bit<16> more) { return offset != 0 ? 2w3 : (more != 0 ? 2w1 : 0); }
bit<16> network_sum(in bit<16> addresses, in flow_t flow) {
    return internet_sum({ addresses, 8w0, flow.ip_dscp, flow.ip_ecn, flow.nw_ttl, 8w0 });
}

// An extension header of at most 40 bytes (RFC 8200, 4). Of fragments but the first no further protocol is seen.
parser Extension(packet_in packet, inout flow_t flow, out options_t option) {
    bit<32> first; bit<32> size;
    state start {
        first = packet.lookahead<bit<32>>(); size = (bit<32>)first[23:16] << 6;
        transition select(flow.ip_proto) { 44: fragments; 51: authentication; default: other; }
    }
    state fragments {
        flow.ip_frag = fragment(first[15:0] & 0xfff8, first[15:0]); packet.extract(option, 64);
        transition select(flow.ip_frag) { 3: accept; default: next; }
    }
    state authentication { packet.extract(option, (size >> 1) + 64); transition next; }     // RFC 4302, 2.2
    state other { packet.extract(option, size + 64); transition next; }
    state next { flow.ip_proto = first[31:24]; transition accept; }
}

parser Frame(packet_in packet, out headers_t hdr, inout flow_t flow, in packet_t std) {
    bit<16> addresses;                  // the sum of the pseudo-header's
    state start {
        packet.extract(hdr.ethernet);
        transition select(packet.lookahead<bit<16>>()) { VLAN: vlan; VLAN_AD: vlan; default: ethertype; }
    }
    state vlan {
        packet.extract(hdr.vlan);
        transition select(packet.lookahead<bit<16>>()) { VLAN: vlan2; VLAN_AD: vlan2; default: ethertype; }
    }
    state vlan2 { packet.extract(hdr.tag2); transition ethertype; }
    state ethertype {
        flow.eth_type = 0x05ff;         // OpenFlow's for frames without one, in which a length stands there
        transition select(packet.lookahead<bit<16>>()) { 0 .. 0x05ff: length; default: typed; }
    }
    state length {
        transition select(packet.lookahead<bit<64>>()) { 0xaaaa03000000 &&& 0xffffffffffff: snap; default: accept; }
    }
    state snap {
        packet.extract(hdr.snap);
        transition select(packet.lookahead<bit<16>>()) { 0 .. 0x05ff: accept; default: typed; }
    }
    state typed {
        packet.extract(hdr.ethertype);
        flow.eth_type = hdr.ethertype.type;
        transition select(hdr.ethertype.type) {
            IPV4: ipv4; IPV6: ipv6; 0x0806: arp; 0x8035: arp; 0x8847: mpls; 0x8848: mpls; default: accept;
        }
    }
    state arp { packet.extract(hdr.arp); transition accept; }
    state mpls { packet.extract(hdr.mpls); transition select(hdr.mpls.bos) { 1: below; default: label2; } }
    state label2 { packet.extract(hdr.label2); transition select(hdr.label2.entry[8:8]) { 1: below; default: accept; } }
    // What is below the last label is not said. IP there is what TTLs are copied from and what pop_mpls uncovers.
    state below { transition select(packet.lookahead<bit<4>>()) { 4: ipv4; 6: ipv6; default: accept; } }
    state ipv4 {
        packet.extract(hdr.ipv4);
        flow.ip_dscp = hdr.ipv4.dscp; flow.ip_ecn = hdr.ipv4.ecn;
        flow.nw_ttl = hdr.ipv4.ttl; flow.ip_proto = hdr.ipv4.protocol;
        flow.ip_frag = fragment(hdr.ipv4.fragment & 0x1fff, hdr.ipv4.fragment & 0x2000);
        addresses = internet_sum({ hdr.ipv4.src, hdr.ipv4.dst }); flow.ip_sum = network_sum(addresses, flow);
        transition select(hdr.ipv4.version_ihl[3:0]) { 0 .. 4: accept; 5: transport; default: options; }
    }
    state options { packet.extract(hdr.options, ((bit<32>)hdr.ipv4.version_ihl[3:0] - 5) << 5); transition transport; }
    state ipv6 {
        packet.extract(hdr.ipv6);
        flow.ip_dscp = hdr.ipv6.dscp; flow.ip_ecn = hdr.ipv6.ecn;
        flow.nw_ttl = hdr.ipv6.hop_limit; flow.ip_proto = hdr.ipv6.length_next[7:0];
        addresses = internet_sum({ hdr.ipv6.src, hdr.ipv6.dst });
        transition select(flow.ip_proto) {
            0: extension; 43: extension; 44: extension; 51: extension; 60: extension; default: transport;
        }
    }
    state extension {
        Extension.apply(packet, flow, hdr.options);
        transition select(flow.ip_proto, flow.ip_frag) {
            (_, 3): accept;
            (0, _): extension2; (43, _): extension2; (44, _): extension2; (51, _): extension2; (60, _): extension2;
            default: transport;
        }
    }
    state extension2 { Extension.apply(packet, flow, hdr.options2); transition transport; }
    state transport {
        transition select(flow.ip_frag, flow.ip_proto) {
            (3, _): accept;
            (_, 6): tcp; (_, 17): udp; (_, 132): sctp; (_, 1): icmp; (_, 58): icmpv6; default: accept;
        }
    }
    state tcp { packet.extract(hdr.ports); packet.extract(hdr.tcp); transition ports; }
    state udp { packet.extract(hdr.ports); packet.extract(hdr.udp); transition ports; }
    state sctp { packet.extract(hdr.ports); transition accept; }
    state ports { flow.transport_sum = internet_sum({ addresses, hdr.ports.src, hdr.ports.dst }); transition accept; }
    state icmp { packet.extract(hdr.icmp); flow.transport_sum = hdr.icmp.type ++ hdr.icmp.code; transition accept; }
    state icmpv6 {
        packet.extract(hdr.icmp);
        flow.transport_sum = internet_sum({ addresses, hdr.icmp.type, hdr.icmp.code });
        transition select(hdr.icmp.type, hdr.icmp.code) { (135 .. 136, 0): nd; default: accept; }
    }
    state nd {
        packet.extract(hdr.nd);
        flow.transport_sum = internet_sum({ flow.transport_sum, hdr.nd.reserved, hdr.nd.target });
        transition select(hdr.icmp.type, packet.lookahead<bit<16>>()) {
            (135, 0x0101): nd_address; (136, 0x0201): nd_address; (_, 1 &&& 0xff): nd_other; default: accept;
        }
    }
    state nd_other {
        packet.extract(hdr.nd_other);
        transition select(hdr.icmp.type, packet.lookahead<bit<16>>()) {
            (135, 0x0101): nd_address; (136, 0x0201): nd_address; default: accept;
        }
    }
    state nd_address {
        packet.extract(hdr.nd_address);
        flow.transport_sum = internet_sum({ flow.transport_sum, hdr.nd_address.type, 8w0, hdr.nd_address.address });
        transition accept;
    }
}

control Actions(inout headers_t hdr, inout flow_t flow, inout result_t result) {
    action push_vlan(bit<16> ethertype) {
        result.reparse = hdr.tag2.isValid() ? 1w1 : 0;      // the parser sees two tags
        if (hdr.vlan.isValid()) { hdr.tag3 = hdr.tag2; }    // not behind a load that has removed the first one
        if (hdr.vlan.isValid()) { hdr.tag2 = { hdr.vlan.tpid ++ hdr.vlan.pcp ++ hdr.vlan.dei ++ hdr.vlan.vid }; }
        hdr.vlan = { ethertype, 0, 0, 0 };
    }
    action pop_vlan() {
        result.reparse = flow.eth_type == VLAN || flow.eth_type == VLAN_AD ? 1w1 : 0;
        if (hdr.vlan.isValid() && hdr.tag2.isValid()) {
            bit<32> tag = hdr.tag2.tag;
            hdr.vlan = { tag[31:16], tag[15:13], tag[12:12], tag[11:0] };
        } else { hdr.vlan.setInvalid(); }
        hdr.tag2 = hdr.tag3; hdr.tag3.setInvalid();
    }
    action set_vlan_vid(bit<12> vid) { if (!hdr.vlan.isValid()) { push_vlan(VLAN); } hdr.vlan.vid = vid; }
    action set_vlan_pcp(bit<3> pcp) { if (!hdr.vlan.isValid()) { push_vlan(VLAN); } hdr.vlan.pcp = pcp; }
    action push_mpls(bit<16> ethertype) {
        hdr.label3 = hdr.label2;
        result.reparse = hdr.label2.isValid() ? 1w1 : 0;    // the parser sees two labels
        bit<20> null = flow.eth_type == IPV6 ? 20w2 : 0;    // the explicit null label (RFC 3032, 2.1)
        if (hdr.mpls.isValid()) {
            hdr.label2 = { hdr.mpls.label ++ hdr.mpls.tc ++ hdr.mpls.bos ++ hdr.mpls.ttl }; hdr.mpls.bos = 0;
        } else { hdr.mpls = { null, flow.ip_dscp[2:0], 1, flow.nw_ttl != 0 ? flow.nw_ttl : 64 }; }
        flow.eth_type = ethertype;
    }
    action pop_mpls(bit<16> ethertype) {
        bool is_parsed = ethertype == IPV4 && hdr.ipv4.isValid() || ethertype == IPV6 && hdr.ipv6.isValid();
        if (hdr.mpls.isValid()) { flow.eth_type = ethertype; }
        if (hdr.label2.isValid()) {     // below two labels the parser does not look
            bit<32> entry = hdr.label2.entry;
            result.reparse = hdr.label3.isValid() ? 1w0 : ~entry[8:8];
            hdr.mpls = { entry[31:12], entry[11:9], entry[8:8], entry[7:0] };
        } else if (hdr.mpls.isValid()) {
            result.reparse = is_parsed ? 1w0 : 1;
            hdr.mpls.setInvalid();
        }
        hdr.label2 = hdr.label3; hdr.label3.setInvalid();
    }
    action set_mpls_ttl(bit<8> ttl) { if (hdr.mpls.isValid()) { hdr.mpls.ttl = ttl; } }
    action dec_mpls_ttl() {
        if (hdr.mpls.isValid() && hdr.mpls.ttl > 1) { hdr.mpls.ttl = hdr.mpls.ttl - 1; }
        else if (hdr.mpls.isValid()) { result.ttl_exceeded = 1; }
    }
    action set_nw_ttl(bit<8> ttl) { flow.nw_ttl = ttl; }
    action dec_nw_ttl() {
        if (flow.eth_type == IPV4 || flow.eth_type == IPV6) {
            if (flow.nw_ttl > 1) { flow.nw_ttl = flow.nw_ttl - 1; } else { result.ttl_exceeded = 1; }
        }
    }
    action copy_ttl_out() {
        bool is_ip = hdr.ipv4.isValid() || hdr.ipv6.isValid();
        bit<8> inner = is_ip ? flow.nw_ttl : hdr.mpls.ttl;
        if (hdr.mpls.isValid()) { hdr.mpls.ttl = hdr.label2.isValid() ? hdr.label2.entry[7:0] : inner; }
    }
    action copy_ttl_in() {
        if (hdr.label2.isValid()) { hdr.label2.entry[7:0] = hdr.mpls.ttl; }
        else if (hdr.mpls.isValid()) { flow.nw_ttl = hdr.mpls.ttl; }
    }
    table actions {
        actions = {
            push_vlan; pop_vlan; set_vlan_vid; set_vlan_pcp; push_mpls; pop_mpls; set_mpls_ttl; dec_mpls_ttl;
            set_nw_ttl; dec_nw_ttl; copy_ttl_out; copy_ttl_in; @defaultonly NoAction;
        }
    }
    apply { actions.apply(); }
}

control Write(packet_out packet, inout headers_t hdr, in flow_t flow, in packet_t std) {
    bit<16> addresses = 0; bit<16> sum = 0;
    apply {
        packet.emit(hdr.ethernet);
        if (hdr.vlan.isValid()) {       // a tag that is there because its presence was written says no protocol
            hdr.vlan.tpid = hdr.vlan.tpid != 0 ? hdr.vlan.tpid : VLAN;
            packet.emit(hdr.vlan);
        }
        packet.emit(hdr.tag2); packet.emit(hdr.tag3); packet.emit(hdr.snap);
        if (hdr.ethertype.isValid()) { hdr.ethertype.type = flow.eth_type; packet.emit(hdr.ethertype); }
        packet.emit(hdr.mpls); packet.emit(hdr.label2); packet.emit(hdr.label3); packet.emit(hdr.arp);
        if (hdr.ipv4.isValid()) {
            addresses = internet_sum({ hdr.ipv4.src, hdr.ipv4.dst });
            hdr.ipv4.checksum = checksum_update(hdr.ipv4.checksum, flow.ip_sum, network_sum(addresses, flow));
            hdr.ipv4.dscp = flow.ip_dscp; hdr.ipv4.ecn = flow.ip_ecn; hdr.ipv4.ttl = flow.nw_ttl;
            hdr.ipv4.protocol = flow.ip_proto; packet.emit(hdr.ipv4);
        }
        if (hdr.ipv6.isValid()) {
            addresses = internet_sum({ hdr.ipv6.src, hdr.ipv6.dst });
            hdr.ipv6.dscp = flow.ip_dscp; hdr.ipv6.ecn = flow.ip_ecn; hdr.ipv6.hop_limit = flow.nw_ttl;
            packet.emit(hdr.ipv6);
        }
        packet.emit(hdr.options); packet.emit(hdr.options2); packet.emit(hdr.ports);
        if (hdr.ports.isValid()) { sum = internet_sum({ addresses, hdr.ports.src, hdr.ports.dst }); }
        if (hdr.tcp.isValid()) { hdr.tcp.checksum = checksum_update(hdr.tcp.checksum, flow.transport_sum, sum); }
        packet.emit(hdr.tcp);
        if (hdr.udp.isValid() && hdr.udp.checksum != 0) { // 0: none, and what is 0 is sent as ones (RFC 768)
            sum = checksum_update(hdr.udp.checksum, flow.transport_sum, sum);
            hdr.udp.checksum = sum == 0 ? 0xffff : sum;
        }
        packet.emit(hdr.udp);
        if (hdr.icmp.isValid()) {
            sum = hdr.icmp.type ++ hdr.icmp.code;
            if (flow.ip_proto == 58) { sum = internet_sum({ addresses, sum }); }
            if (hdr.nd.isValid()) { sum = internet_sum({ sum, hdr.nd.reserved, hdr.nd.target }); }
            if (hdr.nd_address.isValid()) { sum = internet_sum({ sum, hdr.nd_address.type, 8w0, hdr.nd_address.address }); }
            hdr.icmp.checksum = checksum_update(hdr.icmp.checksum, flow.transport_sum, sum);
            packet.emit(hdr.icmp); packet.emit(hdr.nd); packet.emit(hdr.nd_other); packet.emit(hdr.nd_address);
        }
    }
}

OpenFlowBridge(Frame(), Actions(), Write()) main;
