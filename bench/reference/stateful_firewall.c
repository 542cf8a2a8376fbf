// examples/stateful_firewall by hand: the same cells, found by the same hash.
#include "crc.h"
#include "memory.h"

enum kind { K_INSIDE, K_OUTSIDE, K_ZONE_DROP, KINDS };
static const char *const kinds[] = {"zone.inside", "zone.outside", "zone.drop", NULL};
enum { PORTS = 512, CELLS = 1 << 20, TUPLE = 12 };
enum zone { ZONE_NONE, ZONE_INSIDE, ZONE_OUTSIDE };
enum { CLOSED, SYN_SENT, OPEN, CLOSING };
enum { FIN = 0x01, SYN = 0x02, RST = 0x04, ACK = 0x10 };

struct state {
    struct {
        uint16_t zone, port;
    } ports[PORTS];
    uint32_t *cells;
    uint32_t crc[TUPLE][256];
};

static void *create(void) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->cells = table_memory(sizeof(uint32_t) * CELLS);
    crc_tables32(s->crc, TUPLE);
    return s->cells ? s : NULL;
}

static int insert(void *state, const struct entry *e) {
    struct state *s = state;
    static const uint16_t zones[] = {ZONE_INSIDE, ZONE_OUTSIDE, ZONE_NONE};
    if (e->kind >= KINDS) return -1;
    s->ports[e->key[0] & (PORTS - 1)].zone = zones[e->kind];
    s->ports[e->key[0] & (PORTS - 1)].port = (uint16_t)e->args[0];
    return 0;
}

static int commit(void *state) { return (void)state, 0; }

static void destroy(void *state) {
    struct state *s = state;
    free(s->cells);
    free(s);
}

struct connection {
    uint32_t at, mark;
    uint8_t flags;
    bool inside;
};

// False when the packet's fate is decided without the connection.
INLINE bool begin(const struct state *s, struct packet *p, struct connection *c) {
    const uint8_t *d = p->data, *ip = d + 14;
    uint32_t zone = s->ports[p->ingress_port & (PORTS - 1)].zone;
    bool is_ip = p->len >= 34 && get16(d + 12) == 0x0008;
    bool tcp = is_ip && (ip[0] & 15) == 5 && (get16(ip + 6) & 0xff1f) == 0 && ip[9] == 6 && p->len >= 54;
    if (UNLIKELY(zone == ZONE_NONE || (!tcp && zone == ZONE_OUTSIDE))) return drop(p), false;
    send_to(p, s->ports[p->ingress_port & (PORTS - 1)].port);
    if (UNLIKELY(!tcp)) return false;
    c->inside = zone == ZONE_INSIDE;
    c->flags = ip[33];
    // In the frame: source, destination, source port, destination port. From outside the other way round.
    uint64_t addresses = get64(ip + 12);
    uint32_t ports = get32(ip + 20);
    if (!c->inside) {
        addresses = addresses << 32 | addresses >> 32;
        ports = ports << 16 | ports >> 16;
    }
    uint32_t hash = UINT32_MAX;
    uint64_t first = addresses ^ UINT32_MAX;
    for (int i = 0; i < 8; i++) hash ^= s->crc[i][first >> 8 * i & 255];
    for (int i = 0; i < 4; i++) hash ^= s->crc[8 + i][ports >> 8 * i & 255];
    uint32_t local = __builtin_bswap32((uint32_t)addresses), remote = __builtin_bswap32((uint32_t)(addresses >> 32));
    uint32_t both = __builtin_bswap32(ports);
    c->at = hash & (CELLS - 1);
    c->mark = hash >> 20 << 18 | ((local ^ remote ^ both >> 16 << 2 ^ (both & 0xffff)) & 0x3ffff);
    return true;
}

INLINE void follow(struct state *s, struct packet *p, const struct connection *c) {
    uint32_t cell = s->cells[c->at];
    uint32_t now = cell >> 2 == c->mark ? cell & 3 : CLOSED, next = now;
    uint32_t opening = c->flags & (SYN | ACK);
    if (c->flags & RST) next = CLOSED;
    else if (c->inside && opening == SYN) next = SYN_SENT;
    else if (!c->inside && now == SYN_SENT && opening == (SYN | ACK)) next = OPEN;
    else if (now == OPEN && (c->flags & FIN)) next = CLOSING;
    if (!c->inside) {
        bool fits = now == SYN_SENT ? next != SYN_SENT : now == OPEN ? opening != SYN : (c->flags & SYN) == 0;
        if (UNLIKELY(now == CLOSED || !fits)) return drop(p);
    }
    if (UNLIKELY(next != now)) s->cells[c->at] = c->mark << 2 | next;
}

static void plain(void *state, struct batch *batch) {
    struct state *s = state;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct connection c;
        if (LIKELY(begin(s, &batch->packets[i], &c))) follow(s, &batch->packets[i], &c);
    }
}

static void batched(void *state, struct batch *batch) {
    struct state *s = state;
    struct connection connections[BATCH_MAX];
    uint32_t live[BATCH_MAX], count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (UNLIKELY(!begin(s, &batch->packets[i], &connections[count]))) continue;
        PREFETCH(&s->cells[connections[count].at]);
        live[count++] = i;
    }
    for (uint32_t k = 0; k < count; k++) follow(s, &batch->packets[live[k]], &connections[k]);
}

const struct reference reference_stateful_firewall = {"stateful_firewall", kinds, create, insert, commit, plain, batched, destroy};
