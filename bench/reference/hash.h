// An exact-match table from 64-bit keys to 16-bit values: buckets of one cache line with six slots, values beside the keys,
// built once.
//
// Keys must not be zero. Buckets are filled to half on average; a key that finds its bucket full goes to the next one, and
// `more` says that there is one to look at.
#pragma once

#include "memory.h"
#include <immintrin.h>

enum { HASH_SLOTS = 6 };
struct hash_bucket {
    uint64_t keys[HASH_SLOTS];
    uint16_t values[HASH_SLOTS];
    uint32_t more;
};
_Static_assert(sizeof(struct hash_bucket) == 64, "a bucket is a cache line");

struct hash_table {
    struct hash_bucket *buckets;
    uint32_t count;
};

static const uint32_t HASH_MISS = UINT32_MAX;

INLINE uint32_t hash64(uint64_t key) { return (uint32_t)_mm_crc32_u64(0x5bd1e995, key); }

// The bucket where a key begins: the hash as a fraction of the number of buckets, which need not be a power of two.
INLINE const struct hash_bucket *hash_find(const struct hash_table *t, uint64_t key) {
    return &t->buckets[((uint64_t)hash64(key) * t->count) >> 32];
}

INLINE uint32_t hash_match(const struct hash_bucket *b, uint64_t key) {
#if defined(__AVX512F__)
    return _mm512_mask_cmpeq_epi64_mask(0x3f, _mm512_load_si512(b), _mm512_set1_epi64((long long)key));
#else
    uint32_t mask = 0;
    for (int i = 0; i < HASH_SLOTS; i++) mask |= (uint32_t)(b->keys[i] == key) << i;
    return mask;
#endif
}

INLINE uint32_t hash_probe(const struct hash_bucket *b, uint64_t key) {
    for (;;) {
        uint32_t mask = hash_match(b, key);
        if (LIKELY(mask)) return b->values[__builtin_ctz(mask)];
        if (LIKELY(!b->more)) return HASH_MISS;
        b++;
    }
}

INLINE uint32_t hash_lookup(const struct hash_table *t, uint64_t key) { return hash_probe(hash_find(t, key), key); }

static int hash_create(struct hash_table *t, size_t entries) {
    t->count = (uint32_t)(entries / (HASH_SLOTS / 2) + 1);
    // Keys may run over the end: as many buckets behind it as a run can ever be long here.
    t->buckets = table_memory((t->count + 64) * sizeof *t->buckets);
    return t->buckets ? 0 : -1;
}

static int hash_insert(struct hash_table *t, uint64_t key, uint16_t value) {
    struct hash_bucket *b = (struct hash_bucket *)hash_find(t, key);
    for (; b < t->buckets + t->count + 63; b++) {
        for (int i = 0; i < HASH_SLOTS; i++) {
            if (b->keys[i] == 0) {
                b->keys[i] = key;
                b->values[i] = value;
                return 0;
            }
        }
        b->more = 1;
    }
    return -1;
}
