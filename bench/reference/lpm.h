// IPv4 routes as DIR-24-8 (Gupta, Lin, McKeown: "Routing Lookups in Hardware at Memory Access Speeds", INFOCOM 1998): one
// array for the first 24 bits, and blocks of 256 for prefixes that are longer. Cells have 16 bits, so that the big array
// takes 32 MB: 0 is no route, one with the highest bit set the number of a block; what else a cell means is the caller's.
#pragma once

#include "memory.h"

enum { LPM_BLOCK = 0x8000, LPM_CELL_MAX = LPM_BLOCK - 1 };
struct lpm {
    uint16_t *first;
    uint16_t *blocks;
    uint32_t block_count;
};

INLINE uint32_t lpm_lookup(const struct lpm *t, uint32_t address) {
    uint32_t cell = t->first[address >> 8];
    if (UNLIKELY(cell & LPM_BLOCK)) cell = t->blocks[(cell & ~(uint32_t)LPM_BLOCK) * 256 + (address & 255)];
    return cell;
}

static int lpm_by_length(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return (x->prefix_len > y->prefix_len) - (x->prefix_len < y->prefix_len);
}

// Shorter prefixes first, so that longer ones write over them. `value` says what cell an entry becomes; negative is refused.
static int lpm_build(struct lpm *t, struct list *routes, int (*value)(const struct entry *)) {
    t->first = table_memory((size_t)(1 << 24) * sizeof *t->first);
    t->blocks = table_memory((size_t)LPM_BLOCK * 256 * sizeof *t->blocks);
    if (!t->first || !t->blocks) return -1;
    qsort(routes->items, routes->count, sizeof *routes->items, lpm_by_length);
    for (size_t i = 0; i < routes->count; i++) {
        const struct entry *e = &routes->items[i];
        uint32_t address = (uint32_t)e->key[0];
        int v = value(e);
        if (v < 0) return -1;
        if (e->prefix_len <= 24) {
            size_t n = (size_t)1 << (24 - e->prefix_len), at = address >> 8;
            for (size_t k = 0; k < n; k++) t->first[at + k] = (uint16_t)v;
            continue;
        }
        uint16_t *cell = &t->first[address >> 8];
        if (!(*cell & LPM_BLOCK)) {
            if (t->block_count == LPM_BLOCK) return -1;
            uint16_t *block = &t->blocks[t->block_count * 256];
            for (int k = 0; k < 256; k++) block[k] = *cell;
            *cell = (uint16_t)(LPM_BLOCK | t->block_count++);
        }
        uint16_t *block = &t->blocks[(*cell & ~LPM_BLOCK) * 256];
        size_t n = (size_t)1 << (32 - e->prefix_len), at = address & 255;
        for (size_t k = 0; k < n; k++) block[at + k] = (uint16_t)v;
    }
    return 0;
}

static void lpm_free(struct lpm *t) {
    free(t->first);
    free(t->blocks);
}
