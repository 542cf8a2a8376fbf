// The OpenFlow model: a program declares protocols, OpenFlow's tables decide.
//
//     received frame ─ FlowParser ─▶ headers, flow ─ OpenFlow tables ─▶ FlowDeparser ─▶ sent frame
//                                         ▲ HeaderActions
//
// Match fields are declared by annotations of fields of structs and headers:
//
//     @oxm(3) @nxm(0, 1)  bit<48> eth_dst;
//
//   @oxm(N)  @oxm(CLASS, N)  @oxm(0xffff, N, EXPERIMENTER)
//   @nxm(CLASS, N)          a number of the field, without class in OpenFlow's, 0x8000; the first is the preferred one
//   @oxm("name", …)         names it; else it is called as the P4 field is. A further name declares another match field
//
// What follows says more about the match field before it:
//
//   @bits(HI, LO)           it is these bits of the P4 field, not all of it
//   @parts("a", 2, "b")     it is composed of other match fields and, where there is a number, so many zero bits
//   @pad(N)                 N zero bits stand before it
//   @present                the header's validity stands before it, as a bit
//   @exact  @readonly       a match may not mask it; actions may not write it
//   @metadata               it is not of the packet's bytes: kept when the frame is parsed anew, sent in packet-ins
//   @prereq("f", V, …)      it is there only where match field f has one of these values, and what f needs holds, too
//   @prereq_mask("f", MASK, V, …)   the same for the bits of f under MASK
//
// A field is at most 128 bits wide, and in one place: not in a stack, nor in a header that there is several times.

#ifndef _OPENFLOW_MODEL_P4_
#define _OPENFLOW_MODEL_P4_

#include <core.p4>

// The packet on its way through the switch.
struct packet_t {
    @oxm("in_port_oxm", 0) @exact @metadata
    @nxm("in_port", 0, 0) @bits(15, 0) @exact @metadata
    bit<32> in_port;        // it came by this port
    bit<32> length;         // bytes, as received
    bit<32> egress_port;    // it leaves by this port; for the deparser
}

// What OpenFlow and Open vSwitch keep for a packet beside its bytes; to be a member of a program's flow struct.
struct pipeline_t {
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

    // Registers, four in one, so that records are short.
    @nxm(1, 111) @metadata
    @oxm("xreg0", 0x8001, 0) @bits(127, 64) @metadata @oxm("xreg1", 0x8001, 1) @bits(63, 0) @metadata
    @nxm("reg0", 1, 0) @bits(127, 96) @metadata @nxm("reg1", 1, 1) @bits(95, 64) @metadata
    @nxm("reg2", 1, 2) @bits(63, 32) @metadata @nxm("reg3", 1, 3) @bits(31, 0) @metadata
    bit<128> xxreg0;
    @nxm(1, 112) @metadata
    @oxm("xreg2", 0x8001, 2) @bits(127, 64) @metadata @oxm("xreg3", 0x8001, 3) @bits(63, 0) @metadata
    @nxm("reg4", 1, 4) @bits(127, 96) @metadata @nxm("reg5", 1, 5) @bits(95, 64) @metadata
    @nxm("reg6", 1, 6) @bits(63, 32) @metadata @nxm("reg7", 1, 7) @bits(31, 0) @metadata
    bit<128> xxreg1;
    @nxm(1, 113) @metadata
    @oxm("xreg4", 0x8001, 4) @bits(127, 64) @metadata @oxm("xreg5", 0x8001, 5) @bits(63, 0) @metadata
    @nxm("reg8", 1, 8) @bits(127, 96) @metadata @nxm("reg9", 1, 9) @bits(95, 64) @metadata
    @nxm("reg10", 1, 10) @bits(63, 32) @metadata @nxm("reg11", 1, 11) @bits(31, 0) @metadata
    bit<128> xxreg2;
    @nxm(1, 114) @metadata
    @oxm("xreg6", 0x8001, 6) @bits(127, 64) @metadata @oxm("xreg7", 0x8001, 7) @bits(63, 0) @metadata
    @nxm("reg12", 1, 12) @bits(127, 96) @metadata @nxm("reg13", 1, 13) @bits(95, 64) @metadata
    @nxm("reg14", 1, 14) @bits(63, 32) @metadata @nxm("reg15", 1, 15) @bits(31, 0) @metadata
    bit<128> xxreg3;
}

// What a header action says besides changing headers; zero when it begins.
struct result_t {
    bit<1> reparse;         // the frame must be parsed anew before other fields are matched or written
    bit<1> ttl_exceeded;    // a TTL is over: the packet goes no further
}

// The one's complement sum of 16-bit words (RFC 1071); data that fill no word are padded with zeros behind them.
extern bit<16> internet_sum<D>(in D data);

// A checksum after the sum of what it covers has changed (RFC 1624); the same if it has not.
extern bit<16> checksum_update(in bit<16> checksum, in bit<16> old_sum, in bit<16> new_sum);

// Headers start invalid and `flow` as zeros. Where the parser stops, whatever for, the packet goes on with what it has.
parser FlowParser<H, F>(packet_in packet, out H hdr, inout F flow, in packet_t std);

// Applies one table; its actions are OpenFlow's header actions, by name: push_vlan(bit<16> ethertype), pop_vlan(),
// set_vlan_vid(bit<12>), set_vlan_pcp(bit<3>), push_mpls(bit<16> ethertype), pop_mpls(bit<16> ethertype),
// set_mpls_ttl(bit<8>), dec_mpls_ttl(), set_nw_ttl(bit<8>), dec_nw_ttl(), copy_ttl_out(), copy_ttl_in(),
// push_pbb(bit<16> ethertype), pop_pbb(). Flows with actions that are not there are refused.
control HeaderActions<H, F>(inout H hdr, inout F flow, inout result_t result);

// Writes fields of `flow` and checksums into the headers, and emits them.
@deparser
control FlowDeparser<H, F>(packet_out packet, inout H hdr, in F flow, in packet_t std);

package OpenFlowBridge<H, F>(FlowParser<H, F> prs, HeaderActions<H, F> actions, FlowDeparser<H, F> dprs);

#endif
