// What a hand-written C version of a program is to the benchmark, and the packet buffers that it shares with compiled
// programs (crates/abi/src/packet.rs).
//
// A reference is loaded with the same entries as the P4 program: `insert` for each, then `commit`, which builds the
// structures that packets use. `plain` and `batched` do the same to every packet: `plain` runs each to completion, `batched`
// works in steps over the batch, so that memory is asked for (prefetched) some time before it is needed.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 64 };
enum fate { FATE_PENDING, FATE_DROP, FATE_SEND, FATE_REPLICATE, FATE_NO_ROOM };

struct packet {
    uint8_t *data;
    uint32_t len, headroom, tailroom;
    uint32_t ingress_port, egress_port;
    uint32_t fate, fate_arg;
    uint32_t consumed;
    uint64_t *record;
    uint64_t timestamp_us;
};

struct batch {
    uint32_t count, flags;
    uint64_t now_us;
    struct packet packets[BATCH_MAX];
};
_Static_assert(sizeof(struct packet) == 56 && sizeof(struct batch) == 16 + BATCH_MAX * 56, "as in crates/abi");

// An entry of a table. Values are numbers in host order, one per key field or parameter in the program's order.
enum { FIELDS_MAX = 8 };
struct entry {
    // Position in the reference's `kinds`: which action of which table.
    uint32_t kind;
    int32_t priority;
    // Of the key's LPM field, if it has one.
    uint32_t prefix_len;
    uint32_t reserved;
    uint64_t key[FIELDS_MAX];
    // Of ternary fields; all ones for others.
    uint64_t mask[FIELDS_MAX];
    uint64_t args[FIELDS_MAX];
};

struct reference {
    const char *name;
    // What entries may be, "table.action", up to a null pointer.
    const char *const *kinds;
    void *(*create)(void);
    // 0, or not if the entry is one that this version cannot hold.
    int (*insert)(void *state, const struct entry *entry);
    int (*commit)(void *state);
    void (*plain)(void *state, struct batch *batch);
    void (*batched)(void *state, struct batch *batch);
    void (*destroy)(void *state);
};

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PREFETCH(p) __builtin_prefetch(p)

INLINE uint16_t get16(const void *p) { uint16_t v; memcpy(&v, p, 2); return v; }
INLINE uint32_t get32(const void *p) { uint32_t v; memcpy(&v, p, 4); return v; }
INLINE uint64_t get64(const void *p) { uint64_t v; memcpy(&v, p, 8); return v; }
INLINE void put16(void *p, uint16_t v) { memcpy(p, &v, 2); }
INLINE void put32(void *p, uint32_t v) { memcpy(p, &v, 4); }
INLINE void put64(void *p, uint64_t v) { memcpy(p, &v, 8); }
// Numbers in network order; the machine is little-endian.
INLINE uint16_t be16(const void *p) { return __builtin_bswap16(get16(p)); }
INLINE uint32_t be32(const void *p) { return __builtin_bswap32(get32(p)); }
INLINE void put_be16(void *p, uint16_t v) { put16(p, __builtin_bswap16(v)); }
INLINE void put_be32(void *p, uint32_t v) { put32(p, __builtin_bswap32(v)); }
// An Ethernet address as it lies in the frame, in the low 48 bits. Reads two bytes more or fewer: `dst` those behind it,
// `src` those before it.
INLINE uint64_t raw_mac_dst(const uint8_t *ethernet) { return get64(ethernet) & 0xffffffffffff; }
INLINE uint64_t raw_mac_src(const uint8_t *ethernet) { return get64(ethernet + 4) >> 16; }
// The same of a number in host order.
INLINE uint64_t raw_mac(uint64_t mac) { return __builtin_bswap64(mac << 16); }

INLINE void drop(struct packet *p) { p->fate = FATE_DROP; }
INLINE void send_to(struct packet *p, uint32_t port) {
    p->fate = FATE_SEND;
    p->egress_port = port;
}
// Moves the frame's first byte: negative for more bytes. The caller has checked the headroom.
INLINE void move_head(struct packet *p, int by) {
    p->data += by;
    p->len -= (uint32_t)by;
    p->headroom += (uint32_t)by;
}

// The sum of the 16-bit words of an IPv4 header without options, but for its checksum field; as they lie in memory, which
// one's complement sums do not mind (RFC 1071). Not folded.
INLINE uint64_t ipv4_sum(const uint8_t *ip) {
    return (uint64_t)get32(ip) + get32(ip + 4) + get16(ip + 8) + get32(ip + 12) + get32(ip + 16);
}
INLINE uint16_t fold(uint64_t sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}
INLINE bool ipv4_checksum_right(const uint8_t *ip) { return (uint16_t)~fold(ipv4_sum(ip)) == get16(ip + 10); }
// One hop less, and the checksum with it (RFC 1624, as the first byte of its word grows by one in the complement).
INLINE void decrement_ttl(uint8_t *ip) {
    uint32_t check = get16(ip + 10) + 1u;
    put16(ip + 10, (uint16_t)(check + (check >= 0xffff)));
    ip[8] -= 1;
}
