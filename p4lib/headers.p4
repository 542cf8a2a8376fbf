// Headers of common protocols, with their EtherTypes, protocol numbers and ports.
//
// Fields stand in the order of the wire and have the names that most P4 programs give them. What a header is followed by
// only at times (options, extensions) is a header of its own. The file needs core.p4 only.

#ifndef P4LIB_HEADERS_P4
#define P4LIB_HEADERS_P4

typedef bit<48>  mac_addr_t;
typedef bit<32>  ipv4_addr_t;
typedef bit<128> ipv6_addr_t;
typedef bit<16>  l4_port_t;

// IEEE 802 numbers.
const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_TRANSPARENT_BRIDGING = 0x6558;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<16> ETHERTYPE_MPLS = 0x8847;
const bit<16> ETHERTYPE_PPPOE_DISCOVERY = 0x8863;
const bit<16> ETHERTYPE_PPPOE_SESSION = 0x8864;
const bit<16> ETHERTYPE_QINQ = 0x88a8;

// IANA's protocol numbers: of an IPv4 packet and of an IPv6 next header.
const bit<8> IP_PROTO_HOP_BY_HOP = 0;
const bit<8> IP_PROTO_ICMP = 1;
const bit<8> IP_PROTO_IPV4 = 4;
const bit<8> IP_PROTO_TCP = 6;
const bit<8> IP_PROTO_UDP = 17;
const bit<8> IP_PROTO_IPV6 = 41;
const bit<8> IP_PROTO_ROUTING = 43;
const bit<8> IP_PROTO_FRAGMENT = 44;
const bit<8> IP_PROTO_GRE = 47;
const bit<8> IP_PROTO_ESP = 50;
const bit<8> IP_PROTO_AH = 51;
const bit<8> IP_PROTO_ICMPV6 = 58;
const bit<8> IP_PROTO_NONE = 59;
const bit<8> IP_PROTO_DESTINATION = 60;
const bit<8> IP_PROTO_SCTP = 132;

// UDP ports of tunnels.
const bit<16> UDP_PORT_GTPU = 2152;
const bit<16> UDP_PORT_VXLAN = 4789;
const bit<16> UDP_PORT_GENEVE = 6081;

// Flags of TCP, RFC 9293, section 3.1.
const bit<8> TCP_FIN = 0x01;
const bit<8> TCP_SYN = 0x02;
const bit<8> TCP_RST = 0x04;
const bit<8> TCP_PSH = 0x08;
const bit<8> TCP_ACK = 0x10;
const bit<8> TCP_URG = 0x20;
const bit<8> TCP_ECE = 0x40;
const bit<8> TCP_CWR = 0x80;

// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443, RFC 4861).
const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_UNREACHABLE = 3;
const bit<8> ICMP_REDIRECT = 5;
const bit<8> ICMP_ECHO_REQUEST = 8;
const bit<8> ICMP_TIME_EXCEEDED = 11;
const bit<8> ICMP_PARAMETER_PROBLEM = 12;
const bit<8> ICMPV6_UNREACHABLE = 1;
const bit<8> ICMPV6_PACKET_TOO_BIG = 2;
const bit<8> ICMPV6_TIME_EXCEEDED = 3;
const bit<8> ICMPV6_PARAMETER_PROBLEM = 4;
const bit<8> ICMPV6_ECHO_REQUEST = 128;
const bit<8> ICMPV6_ECHO_REPLY = 129;
const bit<8> ICMPV6_NEIGHBOR_SOLICITATION = 135;
const bit<8> ICMPV6_NEIGHBOR_ADVERTISEMENT = 136;

// PPP protocol numbers.
const bit<16> PPP_IPV4 = 0x0021;
const bit<16> PPP_IPV6 = 0x0057;
const bit<16> PPP_IPCP = 0x8021;
const bit<16> PPP_IPV6CP = 0x8057;
const bit<16> PPP_LCP = 0xc021;

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

// IEEE 802.1Q, of a customer's and a provider's tag.
header vlan_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> etherType;
}

// RFC 3032.
header mpls_t {
    bit<20> label;
    bit<3>  tc;
    bit<1>  bos;
    bit<8>  ttl;
}

// RFC 826, for IPv4 over Ethernet.
header arp_t {
    bit<16> htype;
    bit<16> ptype;
    bit<8>  hlen;
    bit<8>  plen;
    bit<16> oper;
    bit<48> senderHw;
    bit<32> senderIp;
    bit<48> targetHw;
    bit<32> targetIp;
}

// RFC 791, without options.
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

// For `packet.extract(hdr.options, 32 * ((bit<32>)hdr.ipv4.ihl - 5))`, once ihl is known to be 5 or more.
header ipv4_options_t {
    varbit<320> options;
}

// RFC 8200.
header ipv6_t {
    bit<4>   version;
    bit<8>   trafficClass;
    bit<20>  flowLabel;
    bit<16>  payloadLen;
    bit<8>   nextHdr;
    bit<8>   hopLimit;
    bit<128> srcAddr;
    bit<128> dstAddr;
}

header ipv6_fragment_t {
    bit<8>  nextHdr;
    bit<8>  reserved;
    bit<13> fragOffset;
    bit<2>  reserved2;
    bit<1>  more;
    bit<32> identification;
}

// The first eight bytes of hop-by-hop, routing and destination options, which are all of them where hdrExtLen is 0.
header ipv6_extension_t {
    bit<8>  nextHdr;
    bit<8>  hdrExtLen;
    bit<48> data;
}

// The first four bytes of TCP, UDP and SCTP.
header ports_t {
    bit<16> srcPort;
    bit<16> dstPort;
}

// RFC 9293, without options.
header tcp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> seq;
    bit<32> ack;
    bit<4>  dataOffset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<16> length;
    bit<16> checksum;
}

// RFC 9260.
header sctp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> verificationTag;
    bit<32> checksum;
}

// Echoes have an identifier and a sequence number; other types have 32 bits there that are unused, an MTU or a pointer.
header icmp_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
    bit<16> id;
    bit<16> seq;
}

// As ICMP's, with other types.
header icmpv6_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
    bit<16> id;
    bit<16> seq;
}

// RFC 4861: what follows icmpv6_t in a neighbor solicitation or advertisement, and the option with a link-layer address.
header nd_t {
    bit<128> targetAddr;
}

header nd_option_t {
    bit<8>  type;
    bit<8>  length;
    bit<48> hwAddr;
}

// RFC 2784 and RFC 2890: the checksum, the key and the sequence number follow in this order, where their bits say so.
header gre_t {
    bit<1>  checksumPresent;
    bit<1>  reserved;
    bit<1>  keyPresent;
    bit<1>  sequencePresent;
    bit<9>  reserved2;
    bit<3>  version;
    bit<16> protocol;
}

header gre_checksum_t {
    bit<16> checksum;
    bit<16> reserved;
}

header gre_key_t {
    bit<32> key;
}

header gre_sequence_t {
    bit<32> sequence;
}

// RFC 7348. Bit 3 of the flags (0x08) is set.
header vxlan_t {
    bit<8>  flags;
    bit<24> reserved;
    bit<24> vni;
    bit<8>  reserved2;
}

// RFC 8926. optLen counts words of four bytes.
header geneve_t {
    bit<2>  version;
    bit<6>  optLen;
    bit<1>  oam;
    bit<1>  critical;
    bit<6>  reserved;
    bit<16> protocol;
    bit<24> vni;
    bit<8>  reserved2;
}

header geneve_options_t {
    varbit<2016> options;
}

// 3GPP TS 29.281, section 5.1. The options are there if one of ex, seq and pn is set.
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

// An extension header of four bytes; `length` counts words of four bytes.
header gtpu_extension_t {
    bit<8>  length;
    bit<16> content;
    bit<8>  nextExtension;
}

// The extension of type 0x85, 3GPP TS 38.415, section 5.5.2, in its shortest form. pduType is 0 downlink, 1 uplink; the two
// bits before the QFI are PPP and RQI downlink.
header gtpu_pdu_session_t {
    bit<8>  length;
    bit<4>  pduType;
    bit<4>  flags;
    bit<1>  ppp;
    bit<1>  rqi;
    bit<6>  qfi;
    bit<8>  nextExtension;
}

// Message types, and the type of the PDU session container.
const bit<8> GTPU_ECHO_REQUEST = 1;
const bit<8> GTPU_ECHO_RESPONSE = 2;
const bit<8> GTPU_ERROR_INDICATION = 26;
const bit<8> GTPU_END_MARKER = 254;
const bit<8> GTPU_G_PDU = 255;
const bit<8> GTPU_PDU_SESSION = 0x85;

// RFC 2516. `length` counts what follows, PPP's protocol included.
header pppoe_t {
    bit<4>  version;
    bit<4>  type;
    bit<8>  code;
    bit<16> sessionId;
    bit<16> length;
}

header ppp_t {
    bit<16> protocol;
}

// In-band network telemetry, version 2.1 (P4.org, 2020), INT-MD: the shim after TCP or UDP, and the header of instructions.
// `next` is a port, a protocol or a DSCP, as `npt` says; `length` counts words of four bytes without the shim.
header int_shim_t {
    bit<4>  type;
    bit<2>  npt;
    bit<2>  reserved;
    bit<8>  length;
    bit<16> next;
}

header int_md_t {
    bit<4>  version;
    bit<1>  discard;
    bit<1>  exceeded;
    bit<1>  mtuExceeded;
    bit<12> reserved;
    bit<5>  hopLength;
    bit<8>  remainingHops;
    bit<16> instructions;
    bit<16> domainId;
    bit<16> domainInstructions;
    bit<16> domainFlags;
}

#endif
