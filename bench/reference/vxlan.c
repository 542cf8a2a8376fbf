// examples/vxlan by hand. VNIs have small numbers of their own, so that a station is one word; local and remote stations share a
// table; a tunnel's outer headers are a template, with the sum of its constant words.
#include "crc.h"
#include "hash.h"

enum kind { K_OWN, K_TENANT, K_DELIVER, K_TUNNEL, KINDS };
static const char *const kinds[] = {"own_address.decap", "tenant_port.tenant", "local.deliver", "encap.tunnel_to", NULL};
enum { UNDERLAY = 9, PORTS = 512, VNIS_MAX = 1 << 15, TUNNELS_MAX = 1 << 15 };
enum { LOCAL = 0x8000, OUTER = 50, VNI_NONE = 0xffff, KEY = 14 };

struct tunnel {
    // Ethernet, IPv4, UDP and VXLAN but for lengths, checksum, source port and VNI.
    uint8_t outer[OUTER];
    uint16_t port;
    uint32_t sum;
    uint64_t unused;
};
_Static_assert(sizeof(struct tunnel) == 64, "a tunnel is a cache line");

struct state {
    uint16_t crc[KEY][256];
    // The VNI's number by port; the VNIs.
    uint16_t tenants[PORTS];
    uint32_t vnis[VNIS_MAX];
    uint32_t vni_count, tunnel_count;
    struct hash_table own, vni_numbers, stations;
    struct tunnel *tunnels;
    struct list entries;
};

static void *create(void) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    crc_tables16(s->crc, KEY);
    memset(s->tenants, 0xff, sizeof s->tenants);
    s->tunnels = table_memory(sizeof(struct tunnel) * TUNNELS_MAX);
    return s->tunnels ? s : NULL;
}

static int insert(void *state, const struct entry *e) { return list_add(&((struct state *)state)->entries, e); }

// Keys are never 0.
INLINE uint64_t vni_key(uint32_t vni) { return 1ull << 32 | vni; }
INLINE uint64_t station_key(uint32_t number, uint64_t raw_mac) { return (uint64_t)(number + 1) << 48 | raw_mac; }

static int vni_number(struct state *s, uint32_t vni) {
    uint32_t found = hash_lookup(&s->vni_numbers, vni_key(vni));
    if (found != HASH_MISS) return (int)found;
    if (s->vni_count == VNIS_MAX || hash_insert(&s->vni_numbers, vni_key(vni), (uint16_t)s->vni_count)) return -1;
    s->vnis[s->vni_count] = vni;
    return (int)s->vni_count++;
}

static int tunnel_number(struct state *s, const uint64_t *args) {
    struct tunnel t = {.port = (uint16_t)args[4]};
    uint8_t *o = t.outer, *ip = o + 14, *udp = o + 34;
    put64(o, raw_mac(args[2]) | raw_mac(args[3]) << 48);
    put32(o + 8, (uint32_t)(raw_mac(args[3]) >> 16));
    put16(o + 12, 0x0008);
    put16(ip, 0x0045);
    put16(ip + 6, 0x0040);
    ip[8] = 64;
    ip[9] = 17;
    put_be32(ip + 12, (uint32_t)args[1]);
    put_be32(ip + 16, (uint32_t)args[0]);
    put_be16(udp + 2, 4789);
    o[42] = 8;
    t.sum = fold(ipv4_sum(ip));
    // Those made last are asked for next, mostly; all are looked at, but only when entries come.
    for (uint32_t i = s->tunnel_count; i-- > 0;) {
        if (memcmp(&s->tunnels[i], &t, sizeof t) == 0) return (int)i;
    }
    if (s->tunnel_count == TUNNELS_MAX) return -1;
    s->tunnels[s->tunnel_count] = t;
    return (int)s->tunnel_count++;
}

static int add_station(struct state *s, const struct entry *e, uint32_t value) {
    int number = vni_number(s, (uint32_t)e->key[0]);
    if (number < 0) return -1;
    uint64_t key = station_key((uint32_t)number, raw_mac(e->key[1]));
    // Local ones come first and win.
    return hash_lookup(&s->stations, key) == HASH_MISS && hash_insert(&s->stations, key, (uint16_t)value);
}

static int commit(void *state) {
    struct state *s = state;
    size_t counts[KINDS] = {0};
    for (size_t i = 0; i < s->entries.count; i++) counts[s->entries.items[i].kind]++;
    if (hash_create(&s->own, counts[K_OWN]) || hash_create(&s->vni_numbers, VNIS_MAX) ||
        hash_create(&s->stations, counts[K_DELIVER] + counts[K_TUNNEL]))
        return -1;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < s->entries.count; i++) {
            const struct entry *e = &s->entries.items[i];
            if (e->kind != kind) continue;
            int number = 0;
            switch (kind) {
            case K_OWN: number = hash_insert(&s->own, vni_key(__builtin_bswap32((uint32_t)e->key[0])), 0); break;
            case K_TENANT:
                number = vni_number(s, (uint32_t)e->args[0]);
                s->tenants[e->key[0] & (PORTS - 1)] = (uint16_t)number;
                break;
            case K_DELIVER: number = -add_station(s, e, LOCAL | (uint32_t)e->args[0]); break;
            case K_TUNNEL:
                number = tunnel_number(s, e->args);
                if (number >= 0) number = -add_station(s, e, (uint32_t)number);
                break;
            case KINDS: break;
            }
            if (number < 0) return -1;
        }
    }
    list_free(&s->entries);
    return 0;
}

static void destroy(void *state) {
    struct state *s = state;
    free(s->own.buckets);
    free(s->vni_numbers.buckets);
    free(s->stations.buckets);
    free(s->tunnels);
    list_free(&s->entries);
    free(s);
}

// Finds the station that the frame is for; false if nobody takes the frame.
INLINE bool begin(const struct state *s, const struct packet *p, bool *tunnelled, uint32_t *number, uint64_t *key) {
    const uint8_t *d = p->data;
    *tunnelled = false;
    if (UNLIKELY(p->len < 14)) return false;
    if (p->ingress_port == UNDERLAY) {
        // Version and length of the header, fragmentation, protocol, port, and the I flag.
        *tunnelled = p->len >= OUTER + 14 && get16(d + 12) == 0x0008 && d[14] == 0x45 && !(get16(d + 20) & 0xff3f) &&
            d[23] == 17 && get16(d + 36) == 0xb512 && (d[42] & 8);
    }
    if (*tunnelled) {
        if (UNLIKELY(!ipv4_checksum_right(d + 14))) return false;
        if (UNLIKELY(hash_lookup(&s->own, vni_key(get32(d + 30))) == HASH_MISS)) return false;
        uint32_t found = hash_lookup(&s->vni_numbers, vni_key(be32(d + 46) >> 8));
        if (UNLIKELY(found == HASH_MISS)) return false;
        *number = found;
        d += OUTER;
    } else {
        *number = s->tenants[p->ingress_port & (PORTS - 1)];
        if (UNLIKELY(*number == VNI_NONE)) return false;
    }
    *key = station_key(*number, raw_mac_dst(d));
    return true;
}

INLINE void out(const struct state *s, struct packet *p, bool tunnelled, uint32_t number, uint32_t station) {
    if (UNLIKELY(station == HASH_MISS)) return drop(p);
    if (station & LOCAL) {
        if (tunnelled) move_head(p, OUTER);
        return send_to(p, station & (PORTS - 1));
    }
    // What came through a tunnel does not go into one.
    if (UNLIKELY(tunnelled)) return drop(p);
    if (UNLIKELY(p->headroom < OUTER)) {
        p->fate = FATE_NO_ROOM;
        return;
    }
    const struct tunnel *t = &s->tunnels[station];
    uint64_t macs = get64(p->data), rest = get64(p->data + 6);
    uint32_t hash = 0;
    for (int i = 0; i < 6; i++) hash ^= s->crc[i][macs >> 8 * i & 255];
    for (int i = 0; i < 8; i++) hash ^= s->crc[6 + i][rest >> 8 * i & 255];
    uint32_t len = p->len;
    move_head(p, -OUTER);
    uint8_t *o = p->data;
    memcpy(o, t->outer, OUTER);
    uint16_t total = __builtin_bswap16((uint16_t)(len + 36));
    put16(o + 16, total);
    put16(o + 24, (uint16_t)~fold((uint64_t)t->sum + total));
    put_be16(o + 34, (uint16_t)(49152 + hash % 16384));
    put_be16(o + 38, (uint16_t)(len + 16));
    put_be32(o + 46, s->vnis[number] << 8);
    send_to(p, t->port);
}

static void plain(void *state, struct batch *batch) {
    const struct state *s = state;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct packet *p = &batch->packets[i];
        bool tunnelled;
        uint32_t number;
        uint64_t key;
        if (UNLIKELY(!begin(s, p, &tunnelled, &number, &key))) drop(p);
        else out(s, p, tunnelled, number, hash_lookup(&s->stations, key));
    }
}

static void batched(void *state, struct batch *batch) {
    const struct state *s = state;
    struct {
        const struct hash_bucket *bucket;
        uint64_t key;
        uint32_t index, number, station;
        bool tunnelled;
    } work[BATCH_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct packet *p = &batch->packets[i];
        __typeof__(*work) *w = &work[count];
        if (UNLIKELY(!begin(s, p, &w->tunnelled, &w->number, &w->key))) {
            drop(p);
            continue;
        }
        PREFETCH(w->bucket = hash_find(&s->stations, w->key));
        w->index = i;
        count++;
    }
    for (uint32_t k = 0; k < count; k++) {
        work[k].station = hash_probe(work[k].bucket, work[k].key);
        if (!(work[k].station & LOCAL)) PREFETCH(&s->tunnels[work[k].station]);
    }
    for (uint32_t k = 0; k < count; k++) out(s, &batch->packets[work[k].index], work[k].tunnelled, work[k].number, work[k].station);
}

const struct reference reference_vxlan = {"vxlan", kinds, create, insert, commit, plain, batched, destroy};
