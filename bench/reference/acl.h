// Ternary rules over an IPv4 5-tuple: a few are compared one after the other; many by tuple space search (Srinivasan, Suri,
// Varghese: "Packet Classification using Tuple Space Search", SIGCOMM 1999), a hash table per mask, the masks with the highest
// priority first.
#pragma once

#include "memory.h"
#include <immintrin.h>

enum { ACL_LINEAR_MAX = 16, ACL_TUPLES_MAX = 64, ACL_NONE = 0 };

// Addresses in one word; protocol and ports in the other.
struct tuple_key {
    uint64_t a, b;
};

struct acl_rule {
    struct tuple_key key, mask;
    int32_t priority;
    uint32_t action;
};

// Two rules in a cache line. An `action` of 0 is a free slot; `more` says that the next bucket is to be looked at too.
struct acl_bucket {
    struct tuple_key keys[2];
    int32_t priority[2];
    uint16_t action[2];
    uint32_t more;
    uint64_t unused[2];
};
_Static_assert(sizeof(struct acl_bucket) == 64, "a bucket is a cache line");

struct acl_tuple {
    struct tuple_key mask;
    struct acl_bucket *buckets;
    uint32_t count;
    int32_t priority_max;
};

struct acl {
    struct acl_rule *rules;
    size_t rule_count;
    struct acl_tuple tuples[ACL_TUPLES_MAX];
    uint32_t tuple_count;
};

INLINE struct tuple_key tuple_key(uint32_t src, uint32_t dst, uint8_t protocol, uint16_t sport, uint16_t dport) {
    return (struct tuple_key){(uint64_t)src << 32 | dst, (uint64_t)protocol << 32 | (uint32_t)sport << 16 | dport};
}
INLINE struct tuple_key tuple_and(struct tuple_key x, struct tuple_key y) {
    return (struct tuple_key){x.a & y.a, x.b & y.b};
}
INLINE bool tuple_same(struct tuple_key x, struct tuple_key y) { return ((x.a ^ y.a) | (x.b ^ y.b)) == 0; }

INLINE const struct acl_bucket *acl_find(const struct acl_tuple *t, struct tuple_key masked) {
    uint32_t hash = (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0x2545f491, masked.a), masked.b);
    return &t->buckets[((uint64_t)hash * t->count) >> 32];
}

// Takes the better of what was found and what a bucket holds.
INLINE void acl_probe(const struct acl_bucket *b, struct tuple_key masked, int32_t *priority, uint32_t *action) {
    for (;; b++) {
        for (int i = 0; i < 2; i++) {
            if (UNLIKELY(tuple_same(b->keys[i], masked) && b->action[i] && b->priority[i] > *priority)) {
                *priority = b->priority[i];
                *action = b->action[i];
            }
        }
        if (LIKELY(!b->more)) return;
    }
}

INLINE uint32_t acl_linear(const struct acl *t, struct tuple_key key) {
    for (size_t i = 0; i < t->rule_count; i++) {
        if (tuple_same(tuple_and(key, t->rules[i].mask), t->rules[i].key)) return t->rules[i].action;
    }
    return ACL_NONE;
}

// The action of the rule that wins, or `ACL_NONE`.
INLINE uint32_t acl_lookup(const struct acl *t, struct tuple_key key) {
    if (t->tuple_count == 0) return acl_linear(t, key);
    int32_t priority = INT32_MIN;
    uint32_t action = ACL_NONE;
    for (uint32_t i = 0; i < t->tuple_count; i++) {
        const struct acl_tuple *tuple = &t->tuples[i];
        if (priority >= tuple->priority_max) break;
        struct tuple_key masked = tuple_and(key, tuple->mask);
        acl_probe(acl_find(tuple, masked), masked, &priority, &action);
    }
    return action;
}

static int acl_by_priority(const void *a, const void *b) {
    const struct acl_rule *x = a, *y = b;
    return (x->priority < y->priority) - (x->priority > y->priority);
}

static struct acl_tuple *acl_tuple_of(struct acl *t, struct tuple_key mask) {
    for (uint32_t i = 0; i < t->tuple_count; i++) {
        if (tuple_same(t->tuples[i].mask, mask)) return &t->tuples[i];
    }
    if (t->tuple_count == ACL_TUPLES_MAX) return NULL;
    struct acl_tuple *tuple = &t->tuples[t->tuple_count++];
    *tuple = (struct acl_tuple){.mask = mask, .priority_max = INT32_MIN};
    return tuple;
}

// `action` says what an entry becomes: not zero.
static int acl_build(struct acl *t, const struct list *entries, uint32_t (*action)(const struct entry *)) {
    t->rules = calloc(entries->count ? entries->count : 1, sizeof *t->rules);
    if (!t->rules) return -1;
    t->rule_count = entries->count;
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *e = &entries->items[i];
        const uint64_t *m = e->mask, *k = e->key;
        struct tuple_key mask = tuple_key((uint32_t)m[0], (uint32_t)m[1], (uint8_t)m[2], (uint16_t)m[3], (uint16_t)m[4]);
        struct tuple_key key = tuple_key((uint32_t)k[0], (uint32_t)k[1], (uint8_t)k[2], (uint16_t)k[3], (uint16_t)k[4]);
        t->rules[i] = (struct acl_rule){tuple_and(key, mask), mask, e->priority, action(e)};
    }
    qsort(t->rules, t->rule_count, sizeof *t->rules, acl_by_priority);
    if (t->rule_count <= ACL_LINEAR_MAX) return 0;
    // Rules come with falling priority: so do the tuples, and the first of equal keys is the one that wins.
    for (size_t i = 0; i < t->rule_count; i++) {
        struct acl_tuple *tuple = acl_tuple_of(t, t->rules[i].mask);
        if (!tuple) return -1;
        if (tuple->count++ == 0) tuple->priority_max = t->rules[i].priority;
    }
    for (uint32_t i = 0; i < t->tuple_count; i++) {
        t->tuples[i].count += 1;
        t->tuples[i].buckets = table_memory((t->tuples[i].count + 64) * sizeof(struct acl_bucket));
        if (!t->tuples[i].buckets) return -1;
    }
    for (size_t i = 0; i < t->rule_count; i++) {
        const struct acl_rule *rule = &t->rules[i];
        struct acl_tuple *tuple = acl_tuple_of(t, rule->mask);
        struct acl_bucket *b = (struct acl_bucket *)acl_find(tuple, rule->key);
        for (int slot = -1; slot < 0; b++) {
            if (b >= tuple->buckets + tuple->count + 63) return -1;
            for (int k = 0; k < 2 && slot < 0; k++) {
                bool same = b->action[k] && tuple_same(b->keys[k], rule->key);
                if (same || !b->action[k]) slot = k;
                if (same || b->action[k]) continue;
                b->keys[k] = rule->key;
                b->priority[k] = rule->priority;
                b->action[k] = (uint16_t)rule->action;
            }
            if (slot < 0) b->more = 1;
        }
    }
    return 0;
}

static void acl_free(struct acl *t) {
    for (uint32_t i = 0; i < t->tuple_count; i++) free(t->tuples[i].buckets);
    free(t->rules);
}
