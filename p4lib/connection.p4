// The two ends of a TCP connection, from the side of one of them: both directions have the same value, to be hashed or looked
// up.

#ifndef P4LIB_CONNECTION_P4
#define P4LIB_CONNECTION_P4

#include <p4lib/headers.p4>

struct connection_t {
    bit<32> local_ip;
    bit<32> remote_ip;
    bit<16> local_port;
    bit<16> remote_port;
}

// `outbound`: the packet comes from the local end.
connection_t connection_of(in ipv4_t ipv4, in tcp_t tcp, in bool outbound) {
    connection_t ends;
    ends.local_ip = outbound ? ipv4.srcAddr : ipv4.dstAddr;
    ends.remote_ip = outbound ? ipv4.dstAddr : ipv4.srcAddr;
    ends.local_port = outbound ? tcp.srcPort : tcp.dstPort;
    ends.remote_port = outbound ? tcp.dstPort : tcp.srcPort;
    return ends;
}

#endif
