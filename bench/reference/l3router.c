// examples/l3router by hand. Routes lead to adjacencies, which hold what the other two tables say of a next hop and a port:
// they are resolved when entries come, not when packets do.
#include "hash.h"
#include "lpm.h"

enum kind { K_ROUTE, K_ROUTE_DROP, K_DST, K_SRC, KINDS };
static const char *const kinds[] = {"ipv4_match.route", "ipv4_match.drop", "rewrite_dst.set_dst", "rewrite_src.set_src", NULL};
enum { ROUTE_DROP = 1, ROUTE_FIRST = 2, PORTS = 512, PORT_NONE = 0xffff };

struct adjacency {
    // Destination and source as they lie in a frame.
    uint64_t macs;
    uint32_t macs4;
    uint32_t port;
};

struct state {
    struct lpm routing;
    struct adjacency *adjacencies;
    struct list routes, next_hops;
    // By port: the address in the low 48 bits, and one bit above.
    uint64_t sources[PORTS];
};

static void *create(void) { return calloc(1, sizeof(struct state)); }

static int insert(void *state, const struct entry *e) {
    struct state *s = state;
    switch ((enum kind)e->kind) {
    case K_ROUTE:
    case K_ROUTE_DROP: return list_add(&s->routes, e);
    case K_DST: return list_add(&s->next_hops, e);
    case K_SRC: s->sources[e->key[0] & (PORTS - 1)] = 1ull << 48 | e->args[0]; return 0;
    case KINDS: break;
    }
    return -1;
}

static int by_address(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return (x->key[0] > y->key[0]) - (x->key[0] < y->key[0]);
}
static int by_adjacency(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    uint64_t p = x->args[0] << 16 | x->args[1], q = y->args[0] << 16 | y->args[1];
    return (p > q) - (p < q);
}
// The cell was put into the last argument.
static int cell(const struct entry *e) { return (int)e->args[FIELDS_MAX - 1]; }

static int commit(void *state) {
    struct state *s = state;
    s->adjacencies = table_memory(sizeof(struct adjacency) * LPM_BLOCK);
    if (!s->adjacencies) return -1;
    if (s->next_hops.count) qsort(s->next_hops.items, s->next_hops.count, sizeof *s->next_hops.items, by_address);
    if (s->routes.count) qsort(s->routes.items, s->routes.count, sizeof *s->routes.items, by_adjacency);
    uint32_t count = 0;
    for (size_t i = 0; i < s->routes.count; i++) {
        struct entry *e = &s->routes.items[i];
        if (e->kind == K_ROUTE_DROP) {
            e->args[FIELDS_MAX - 1] = ROUTE_DROP;
            continue;
        }
        bool same = i > 0 && e[-1].kind == K_ROUTE && by_adjacency(e, e - 1) == 0;
        if (!same) {
            if (ROUTE_FIRST + count > LPM_CELL_MAX) return -1;
            struct entry wanted = {.key = {e->args[0]}};
            struct entry *hop = bsearch(&wanted, s->next_hops.items, s->next_hops.count, sizeof wanted, by_address);
            uint64_t source = s->sources[e->args[1] & (PORTS - 1)];
            struct adjacency *a = &s->adjacencies[count++];
            if (hop && source) {
                uint64_t dst = raw_mac(hop->args[0]), src = raw_mac(source & 0xffffffffffff);
                *a = (struct adjacency){dst | src << 48, (uint32_t)(src >> 16), (uint32_t)e->args[1]};
            } else {
                a->port = PORT_NONE;
            }
        }
        e->args[FIELDS_MAX - 1] = ROUTE_FIRST + count - 1;
    }
    int failed = lpm_build(&s->routing, &s->routes, cell);
    list_free(&s->routes);
    list_free(&s->next_hops);
    return failed;
}

static void destroy(void *state) {
    struct state *s = state;
    lpm_free(&s->routing);
    free(s->adjacencies);
    free(s);
}

// Whether it is IPv4 that may be routed.
INLINE bool accept(const struct packet *p) {
    const uint8_t *ip = p->data + 14;
    return LIKELY(p->len >= 34 && get16(p->data + 12) == 0x0008 && (ip[0] & 15) == 5 && ip[8] > 1 && ipv4_checksum_right(ip));
}

INLINE void out(struct packet *p, const struct adjacency *a) {
    decrement_ttl(p->data + 14);
    put64(p->data, a->macs);
    put32(p->data + 8, a->macs4);
    send_to(p, a->port);
}

static void plain(void *state, struct batch *batch) {
    const struct state *s = state;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct packet *p = &batch->packets[i];
        uint32_t route = accept(p) ? lpm_lookup(&s->routing, be32(p->data + 30)) : 0;
        if (UNLIKELY(route < ROUTE_FIRST || s->adjacencies[route - ROUTE_FIRST].port == PORT_NONE)) drop(p);
        else out(p, &s->adjacencies[route - ROUTE_FIRST]);
    }
}

static void batched(void *state, struct batch *batch) {
    const struct state *s = state;
    uint32_t addresses[BATCH_MAX], live[BATCH_MAX], count = 0;
    const struct adjacency *to[BATCH_MAX];
    for (uint32_t i = 0; i < batch->count; i++) {
        struct packet *p = &batch->packets[i];
        if (UNLIKELY(!accept(p))) {
            drop(p);
            continue;
        }
        live[count] = i;
        addresses[count] = be32(p->data + 30);
        PREFETCH(&s->routing.first[addresses[count++] >> 8]);
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t route = lpm_lookup(&s->routing, addresses[k]);
        to[k] = route < ROUTE_FIRST ? NULL : &s->adjacencies[route - ROUTE_FIRST];
        PREFETCH(to[k]);
    }
    for (uint32_t k = 0; k < count; k++) {
        struct packet *p = &batch->packets[live[k]];
        if (UNLIKELY(!to[k] || to[k]->port == PORT_NONE)) drop(p);
        else out(p, to[k]);
    }
}

const struct reference reference_l3router = {"l3router", kinds, create, insert, commit, plain, batched, destroy};
