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
//   @nxm(CLASS, N)          a number of the field; without class that of OpenFlow, 0x8000. The first is the preferred one.
//   @oxm("name", …)         names it; else it is called as the P4 field is. A further name declares a further match field.
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

// What a header action says besides changing headers.
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
control HeaderActions<H, F>(inout H hdr, inout F flow, out result_t result);

// Writes fields of `flow` and checksums into the headers, and emits them.
@deparser
control FlowDeparser<H, F>(packet_out packet, inout H hdr, in F flow, in packet_t std);

package OpenFlowBridge<H, F>(FlowParser<H, F> prs, HeaderActions<H, F> actions, FlowDeparser<H, F> dprs);

#endif
