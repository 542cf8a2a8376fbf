// ARP (RFC 826).

#ifndef P4LIB_ARP_P4
#define P4LIB_ARP_P4

#include <p4lib/headers.p4>

const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;

// Turns a request into the answer that what it asks for is at `mac`. It goes out where the request came from.
void arp_answer(inout ethernet_t ethernet, inout arp_t arp, in bit<48> mac) {
    bit<32> asked = arp.targetIp;
    ethernet.dstAddr = ethernet.srcAddr;
    ethernet.srcAddr = mac;
    arp.oper = ARP_REPLY;
    arp.targetHw = arp.senderHw;
    arp.targetIp = arp.senderIp;
    arp.senderHw = mac;
    arp.senderIp = asked;
}

#endif
