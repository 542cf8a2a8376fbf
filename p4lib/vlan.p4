// Pushing and popping an IEEE 802.1Q tag.
#ifndef P4LIB_VLAN_P4
#define P4LIB_VLAN_P4

#include <p4lib/headers.p4>

// Gives a frame a tag, or the tag that it has another VLAN.
void vlan_push(inout ethernet_t ethernet, inout vlan_t vlan, in bit<12> vid) {
    if (!vlan.isValid()) {
        vlan.setValid();
        vlan.pcp = 0;
        vlan.dei = 0;
        vlan.etherType = ethernet.etherType;
        ethernet.etherType = ETHERTYPE_VLAN;
    }
    vlan.vid = vid;
}

// Takes a frame's tag off, if it has one.
void vlan_pop(inout ethernet_t ethernet, inout vlan_t vlan) {
    if (vlan.isValid()) {
        ethernet.etherType = vlan.etherType;
        vlan.setInvalid();
    }
}

#endif
