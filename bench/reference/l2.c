// examples/l2 by hand.
#include "vlan.h"

enum kind { K_ASSIGN, K_ADMIT, K_REFUSE, K_SEEN, K_FORWARD, K_SWITCH_DROP, K_TAGGED, K_UNTAGGED, KINDS };
static const char *const kinds[] = {
    "vlan_ingress.assign_vlan", "vlan_ingress.admit", "vlan_ingress.drop", "mac_learning.seen", "switching.forward",
    "switching.drop", "vlan_egress.tagged", "vlan_egress.untagged", NULL};
enum { PORT_DROP = 0x1ff };
// A cell of `vlan_ingress` that refuses, beside those of vlan.h; 0 is what nobody has set: VLAN 1 for untagged frames.
enum { VLAN_REFUSE = 0x2000, DEFAULT_VLAN = 1 };

struct state {
    uint16_t *vlan_ingress;
    uint8_t *vlan_egress;
    struct hash_table mac_learning, switching;
    struct learn_ring ring;
    struct list stations, switched;
};

static void *create(void) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->vlan_ingress = table_memory(sizeof(uint16_t) * PORTS * VLANS);
    s->vlan_egress = table_memory(PORTS * VLANS);
    return s->vlan_ingress && s->vlan_egress ? s : NULL;
}

static int insert(void *state, const struct entry *e) {
    struct state *s = state;
    size_t cell = port_vlan((uint32_t)e->key[0], (uint32_t)e->key[1]);
    switch ((enum kind)e->kind) {
    case K_ASSIGN: s->vlan_ingress[cell] = VLAN_ASSIGN | (uint16_t)e->args[0]; return 0;
    case K_ADMIT: s->vlan_ingress[cell] = VLAN_ADMIT; return 0;
    case K_REFUSE: s->vlan_ingress[cell] = VLAN_REFUSE; return 0;
    case K_SEEN: return list_add(&s->stations, e);
    case K_FORWARD:
    case K_SWITCH_DROP: return list_add(&s->switched, e);
    case K_TAGGED: s->vlan_egress[cell] = 1; return 0;
    case K_UNTAGGED: return 0;
    case KINDS: break;
    }
    return -1;
}

static uint16_t port_of(const struct entry *e) { return e->kind == K_SWITCH_DROP ? PORT_DROP : (uint16_t)e->args[0]; }

static int commit(void *state) {
    struct state *s = state;
    int failed = station_table(&s->mac_learning, &s->stations, port_of) || station_table(&s->switching, &s->switched, port_of);
    list_free(&s->stations);
    list_free(&s->switched);
    return failed;
}

static void destroy(void *state) {
    struct state *s = state;
    free(s->vlan_ingress);
    free(s->vlan_egress);
    free(s->mac_learning.buckets);
    free(s->switching.buckets);
    free(s);
}

// Whether the frame is as long as its headers and the port takes it; its VLAN and whether it has a tag.
INLINE bool admit(const struct state *s, const struct packet *p, uint32_t *vid, bool *tagged) {
    if (UNLIKELY(p->len < 14)) return false;
    *tagged = get16(p->data + 12) == 0x0081;
    uint32_t tag = 0;
    if (*tagged) {
        if (UNLIKELY(p->len < 18)) return false;
        tag = be16(p->data + 14) & 0xfff;
    }
    uint32_t cell = s->vlan_ingress[port_vlan(p->ingress_port, tag)];
    *vid = cell & VLAN_ASSIGN ? cell & 0xfff : cell == 0 ? DEFAULT_VLAN : tag;
    return LIKELY(cell ? cell != VLAN_REFUSE : tag == 0);
}

INLINE void out(const struct state *s, struct packet *p, uint32_t port, uint32_t vid, bool tagged) {
    if (UNLIKELY(port == HASH_MISS)) {
        p->fate = FATE_REPLICATE;
        p->fate_arg = vid;
    } else if (UNLIKELY(port == PORT_DROP || port == p->ingress_port)) {
        drop(p);
    } else {
        send_to(p, port);
        write_l2(p, get64(p->data), get32(p->data + 8), tagged, s->vlan_egress[port_vlan(port, vid)], vid);
    }
}

static void plain(void *state, struct batch *batch) {
    struct state *s = state;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct packet *p = &batch->packets[i];
        uint32_t vid;
        bool tagged;
        if (UNLIKELY(!admit(s, p, &vid, &tagged))) {
            drop(p);
            continue;
        }
        uint64_t station = station_key(vid, raw_mac_src(p->data)), target = station_key(vid, raw_mac_dst(p->data));
        if (UNLIKELY(hash_lookup(&s->mac_learning, station) != p->ingress_port)) learn(&s->ring, station, p->ingress_port);
        out(s, p, hash_lookup(&s->switching, target), vid, tagged);
    }
}

static void batched(void *state, struct batch *batch) {
    struct state *s = state;
    struct {
        uint64_t station, target;
        const struct hash_bucket *from, *to;
        uint32_t index, vid;
        bool tagged;
    } work[BATCH_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct packet *p = &batch->packets[i];
        __typeof__(*work) *w = &work[count];
        if (UNLIKELY(!admit(s, p, &w->vid, &w->tagged))) {
            drop(p);
            continue;
        }
        w->index = i;
        w->station = station_key(w->vid, raw_mac_src(p->data));
        w->target = station_key(w->vid, raw_mac_dst(p->data));
        PREFETCH(w->from = hash_find(&s->mac_learning, w->station));
        PREFETCH(w->to = hash_find(&s->switching, w->target));
        count++;
    }
    for (uint32_t k = 0; k < count; k++) {
        __typeof__(*work) *w = &work[k];
        struct packet *p = &batch->packets[w->index];
        if (UNLIKELY(hash_probe(w->from, w->station) != p->ingress_port)) learn(&s->ring, w->station, p->ingress_port);
        out(s, p, hash_probe(w->to, w->target), w->vid, w->tagged);
    }
}

const struct reference reference_l2 = {"l2", kinds, create, insert, commit, plain, batched, destroy};
