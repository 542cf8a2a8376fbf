// examples/l2l3acl by hand.
#include "acl.h"
#include "lpm.h"
#include "vlan.h"

enum kind { K_ASSIGN, K_ADMIT, K_SEEN, K_ROUTABLE, K_ROUTE, K_ROUTE_DROP, K_REWRITE, K_FORWARD, K_SWITCH_DROP, K_PERMIT, K_DENY,
            K_TAGGED, K_UNTAGGED, KINDS };
static const char *const kinds[] = {
    "vlan_ingress.assign_vlan", "vlan_ingress.admit", "mac_learning.seen", "routable.NoAction", "routing.set_next_hop",
    "routing.drop", "next_hop.rewrite", "switching.forward", "switching.drop", "acl.permit", "acl.drop", "vlan_egress.tagged",
    "vlan_egress.untagged", NULL};
enum { NEXT_HOPS = 1 << 15, PORT_NONE = 0xffff, PORT_DROP = 0x1ff };
enum { ACTION_PERMIT = 1, ACTION_DENY = 2 };
// Cells of `routing`: a route that drops, or from `ROUTE_FIRST` on a next hop.
enum { ROUTE_DROP = 1, ROUTE_FIRST = 2 };

struct next_hop {
    // Destination and source as they lie in a frame.
    uint64_t macs;
    uint32_t macs4;
    uint16_t vid;
    // `PORT_NONE`: there is no such next hop.
    uint16_t port;
};

struct state {
    uint16_t *vlan_ingress;
    uint8_t *vlan_egress;
    struct hash_table mac_learning, routable, switching;
    struct lpm routing;
    struct next_hop *next_hops;
    struct acl acl;
    struct learn_ring ring;
    struct list stations, own, switched, routes, rules;
};

static void *create(void) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->vlan_ingress = table_memory(sizeof(uint16_t) * PORTS * VLANS);
    s->vlan_egress = table_memory(PORTS * VLANS);
    s->next_hops = table_memory(sizeof(struct next_hop) * NEXT_HOPS);
    if (!s->vlan_ingress || !s->vlan_egress || !s->next_hops) return NULL;
    for (int i = 0; i < NEXT_HOPS; i++) s->next_hops[i].port = PORT_NONE;
    return s;
}

static int insert(void *state, const struct entry *e) {
    struct state *s = state;
    switch ((enum kind)e->kind) {
    case K_ASSIGN: s->vlan_ingress[port_vlan((uint32_t)e->key[0], (uint32_t)e->key[1])] = VLAN_ASSIGN | (uint16_t)e->args[0]; return 0;
    case K_ADMIT: s->vlan_ingress[port_vlan((uint32_t)e->key[0], (uint32_t)e->key[1])] = VLAN_ADMIT; return 0;
    case K_SEEN: return list_add(&s->stations, e);
    case K_ROUTABLE: return list_add(&s->own, e);
    case K_ROUTE:
    case K_ROUTE_DROP: return list_add(&s->routes, e);
    case K_REWRITE: {
        if (e->key[0] > LPM_CELL_MAX - ROUTE_FIRST) return -1;
        uint64_t dst = raw_mac(e->args[3]), src = raw_mac(e->args[2]);
        s->next_hops[e->key[0]] = (struct next_hop){dst | src << 48, (uint32_t)(src >> 16), (uint16_t)e->args[0], (uint16_t)e->args[1]};
        return 0;
    }
    case K_FORWARD:
    case K_SWITCH_DROP: return list_add(&s->switched, e);
    case K_PERMIT:
    case K_DENY: return list_add(&s->rules, e);
    case K_TAGGED: s->vlan_egress[port_vlan((uint32_t)e->key[0], (uint32_t)e->key[1])] = 1; return 0;
    case K_UNTAGGED: return 0;
    case KINDS: break;
    }
    return -1;
}

static uint16_t port_of(const struct entry *e) { return e->kind == K_SWITCH_DROP ? PORT_DROP : (uint16_t)e->args[0]; }
static uint16_t nothing(const struct entry *e) { return (void)e, 0; }
static uint32_t verdict(const struct entry *e) { return e->kind == K_DENY ? ACTION_DENY : ACTION_PERMIT; }
static int route(const struct entry *e) {
    if (e->kind == K_ROUTE_DROP) return ROUTE_DROP;
    return e->args[0] <= LPM_CELL_MAX - ROUTE_FIRST ? (int)e->args[0] + ROUTE_FIRST : -1;
}

static int commit(void *state) {
    struct state *s = state;
    int failed = station_table(&s->mac_learning, &s->stations, port_of) || station_table(&s->routable, &s->own, nothing) ||
                 station_table(&s->switching, &s->switched, port_of) || lpm_build(&s->routing, &s->routes, route) ||
                 acl_build(&s->acl, &s->rules, verdict);
    struct list *lists[] = {&s->stations, &s->own, &s->switched, &s->routes, &s->rules};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) list_free(lists[i]);
    return failed;
}

static void destroy(void *state) {
    struct state *s = state;
    free(s->vlan_ingress);
    free(s->vlan_egress);
    free(s->next_hops);
    free(s->mac_learning.buckets);
    free(s->routable.buckets);
    free(s->switching.buckets);
    lpm_free(&s->routing);
    acl_free(&s->acl);
    free(s);
}

// What is known of a frame.
struct frame {
    uint32_t vid;
    // Bytes before the IPv4 header, or 0 for other frames.
    uint32_t l3;
    bool tagged, routed;
    uint64_t station, target;
    struct tuple_key tuple;
};

// Whether the frame is as long as its headers.
INLINE bool parse(const struct packet *p, struct frame *f) {
    const uint8_t *d = p->data;
    if (UNLIKELY(p->len < 14)) return false;
    uint32_t type = get16(d + 12), at = 14;
    f->vid = 0;
    f->tagged = type == 0x0081;
    if (f->tagged) {
        if (UNLIKELY(p->len < 18)) return false;
        f->vid = be16(d + 14) & 0xfff;
        type = get16(d + 16);
        at = 18;
    }
    f->l3 = 0;
    if (LIKELY(type == 0x0008)) {
        if (UNLIKELY(p->len < at + 20)) return false;
        const uint8_t *ip = d + at;
        f->l3 = at;
        uint32_t protocol = ip[9], ports = 0;
        // TCP or UDP behind a header without options, first fragment.
        if (LIKELY((ip[0] & 15) == 5 && (get16(ip + 6) & 0xff1f) == 0 && (protocol == 6 || protocol == 17))) {
            if (UNLIKELY(p->len < at + 24)) return false;
            ports = be32(ip + 20);
        }
        f->tuple = (struct tuple_key){(uint64_t)be32(ip + 12) << 32 | be32(ip + 16), (uint64_t)protocol << 32 | ports};
    }
    return true;
}

// The VLAN; false if the port does not take the frame.
INLINE bool admit(const struct state *s, uint32_t port, struct frame *f) {
    uint32_t cell = s->vlan_ingress[port_vlan(port, f->vid)];
    if (cell & VLAN_ASSIGN) f->vid = cell & 0xfff;
    return LIKELY(cell != 0);
}

INLINE bool may_be_routed(const uint8_t *ip) { return (ip[0] & 15) == 5 && ip[8] > 1 && ipv4_checksum_right(ip); }

// The last steps: the decided port and VLAN, the frame as it leaves.
INLINE void leave(const struct state *s, struct packet *p, const struct frame *f, uint32_t port, uint32_t vid, uint64_t macs, uint32_t macs4) {
    bool tagged_out = s->vlan_egress[port_vlan(port, vid)];
    send_to(p, port);
    write_l2(p, macs, macs4, f->tagged, tagged_out, vid);
}

INLINE void route_out(const struct state *s, struct packet *p, const struct frame *f, const struct next_hop *hop) {
    decrement_ttl(p->data + f->l3);
    leave(s, p, f, hop->port, hop->vid, hop->macs, hop->macs4);
}

INLINE void switch_out(const struct state *s, struct packet *p, const struct frame *f, uint32_t port) {
    if (UNLIKELY(port == HASH_MISS)) {
        p->fate = FATE_REPLICATE;
        p->fate_arg = f->vid;
    } else if (UNLIKELY(port == PORT_DROP || port == p->ingress_port)) {
        drop(p);
    } else {
        leave(s, p, f, port, f->vid, get64(p->data), get32(p->data + 8));
    }
}

INLINE void one(struct state *s, struct packet *p) {
    struct frame f;
    if (UNLIKELY(!parse(p, &f)) || UNLIKELY(!admit(s, p->ingress_port, &f))) return drop(p);
    uint64_t station = station_key(f.vid, raw_mac_src(p->data)), target = station_key(f.vid, raw_mac_dst(p->data));
    uint32_t known = hash_lookup(&s->mac_learning, station);
    if (UNLIKELY(known != p->ingress_port)) learn(&s->ring, station, p->ingress_port);
    if (LIKELY(f.l3 && hash_lookup(&s->routable, target) != HASH_MISS)) {
        if (UNLIKELY(!may_be_routed(p->data + f.l3))) return drop(p);
        uint32_t cell = lpm_lookup(&s->routing, (uint32_t)f.tuple.a);
        if (UNLIKELY(cell < ROUTE_FIRST)) return drop(p);
        const struct next_hop *hop = &s->next_hops[cell - ROUTE_FIRST];
        if (UNLIKELY(hop->port == PORT_NONE || acl_lookup(&s->acl, f.tuple) == ACTION_DENY)) return drop(p);
        return route_out(s, p, &f, hop);
    }
    uint32_t port = hash_lookup(&s->switching, target);
    if (UNLIKELY(f.l3 && acl_lookup(&s->acl, f.tuple) == ACTION_DENY)) return drop(p);
    switch_out(s, p, &f, port);
}

static void plain(void *state, struct batch *batch) {
    struct state *s = state;
    for (uint32_t i = 0; i < batch->count; i++) one(s, &batch->packets[i]);
}

// Tuples whose buckets are asked for ahead; the others are looked up in the last step.
enum { TUPLES_AHEAD = 8 };

static void batched(void *state, struct batch *batch) {
    struct state *s = state;
    struct frame frames[BATCH_MAX];
    const struct hash_bucket *stations[BATCH_MAX], *targets[BATCH_MAX];
    const struct next_hop *hops[BATCH_MAX];
    uint32_t live[BATCH_MAX], count = 0;
    uint32_t ahead = s->acl.tuple_count < TUPLES_AHEAD ? s->acl.tuple_count : TUPLES_AHEAD;
    // 1: headers, VLAN, keys; ask for everything that depends on the frame alone.
    for (uint32_t i = 0; i < batch->count; i++) {
        struct packet *p = &batch->packets[i];
        struct frame *f = &frames[i];
        if (UNLIKELY(!parse(p, f)) || UNLIKELY(!admit(s, p->ingress_port, f))) {
            drop(p);
            continue;
        }
        live[count++] = i;
        f->station = station_key(f->vid, raw_mac_src(p->data));
        f->target = station_key(f->vid, raw_mac_dst(p->data));
        PREFETCH(stations[i] = hash_find(&s->mac_learning, f->station));
        if (f->l3) {
            PREFETCH(&s->routing.first[(uint32_t)f->tuple.a >> 8]);
            for (uint32_t k = 0; k < ahead; k++) PREFETCH(acl_find(&s->acl.tuples[k], tuple_and(f->tuple, s->acl.tuples[k].mask)));
        }
    }
    // 2: whether it is routed; ask for what decides about it then.
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = live[k];
        struct frame *f = &frames[i];
        f->routed = f->l3 && hash_lookup(&s->routable, f->target) != HASH_MISS;
        if (LIKELY(f->routed)) {
            uint32_t cell = s->routing.first[(uint32_t)f->tuple.a >> 8];
            if (cell & LPM_BLOCK) PREFETCH(&s->routing.blocks[(cell & ~(uint32_t)LPM_BLOCK) * 256 + ((uint32_t)f->tuple.a & 255)]);
        } else {
            PREFETCH(targets[i] = hash_find(&s->switching, f->target));
        }
    }
    // 3: MAC learning, the route; ask for the next hop.
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = live[k];
        struct frame *f = &frames[i];
        uint32_t port = batch->packets[i].ingress_port;
        if (UNLIKELY(hash_probe(stations[i], f->station) != port)) learn(&s->ring, f->station, port);
        if (UNLIKELY(!f->routed)) continue;
        uint32_t cell = lpm_lookup(&s->routing, (uint32_t)f->tuple.a);
        hops[i] = cell < ROUTE_FIRST ? NULL : &s->next_hops[cell - ROUTE_FIRST];
        PREFETCH(hops[i]);
    }
    // 4: the access list, and out.
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = live[k];
        struct packet *p = &batch->packets[i];
        const struct frame *f = &frames[i];
        bool denied = f->l3 && UNLIKELY(acl_lookup(&s->acl, f->tuple) == ACTION_DENY);
        if (LIKELY(f->routed)) {
            if (denied || UNLIKELY(!hops[i] || hops[i]->port == PORT_NONE || !may_be_routed(p->data + f->l3))) drop(p);
            else route_out(s, p, f, hops[i]);
        } else {
            uint32_t port = hash_probe(targets[i], f->target);
            if (denied) drop(p);
            else switch_out(s, p, f, port);
        }
    }
}

const struct reference reference_l2l3acl = {"l2l3acl", kinds, create, insert, commit, plain, batched, destroy};
