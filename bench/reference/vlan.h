// What l2 and l2l3acl share: VLANs of ports, stations, and the tag of a frame that leaves.
#pragma once

#include "hash.h"

enum { PORTS = 512, VLANS = 4096 };
// Cells of `vlan_ingress`: 0 is not admitted.
enum { VLAN_ADMIT = 0x4000, VLAN_ASSIGN = 0x8000 };

INLINE uint64_t station_key(uint32_t vid, uint64_t raw_mac) { return (uint64_t)vid << 48 | raw_mac; }
// Entries have numbers in host order; a station of zeros in VLAN 0 cannot be held.
INLINE uint64_t station_of(const struct entry *e) { return station_key((uint32_t)e->key[0], raw_mac(e->key[1])); }
INLINE size_t port_vlan(uint32_t port, uint32_t vid) { return (size_t)(port & (PORTS - 1)) * VLANS + vid; }

static int station_table(struct hash_table *t, const struct list *entries, uint16_t (*value)(const struct entry *)) {
    if (hash_create(t, entries->count)) return -1;
    for (size_t i = 0; i < entries->count; i++) {
        uint64_t key = station_of(&entries->items[i]);
        if (key == 0 || hash_insert(t, key, value(&entries->items[i]))) return -1;
    }
    return 0;
}

// Messages to the controller about stations that are not where they were: a ring that it empties; what comes while it is
// full is lost.
enum { LEARN_MAX = 1024 };
struct learn {
    uint64_t station;
    uint32_t port;
};
struct learn_ring {
    struct learn items[LEARN_MAX];
    uint32_t count;
};
static __attribute__((noinline, cold)) void learn(struct learn_ring *ring, uint64_t station, uint32_t port) {
    if (ring->count < LEARN_MAX) ring->items[ring->count++] = (struct learn){station, port};
}

// Gives the frame its addresses and the tag it leaves with. `macs` are the first 12 bytes, destination and source, in two
// words: 8 and 4.
INLINE void write_l2(struct packet *p, uint64_t macs, uint32_t macs4, bool tagged_in, bool tagged_out, uint32_t vid) {
    if (tagged_out != tagged_in) {
        if (tagged_out && UNLIKELY(p->headroom < 4)) {
            p->fate = FATE_NO_ROOM;
            return;
        }
        move_head(p, tagged_out ? -4 : 4);
        if (tagged_out) put32(p->data + 12, 0x81 | (uint32_t)__builtin_bswap16((uint16_t)vid) << 16);
    } else if (tagged_out) {
        put_be16(p->data + 14, (uint16_t)((be16(p->data + 14) & 0xf000) | vid));
    }
    put64(p->data, macs);
    put32(p->data + 8, macs4);
}
