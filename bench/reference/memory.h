// Memory for tables: zeroed, on huge pages where the system gives them (as every packet processor asks for).
#pragma once

#include "reference.h"
#include <sys/mman.h>

enum { HUGE_PAGE = 1 << 21 };

INLINE size_t huge_size(size_t bytes) { return (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1); }

static void *table_memory(size_t bytes) {
    // Small tables share no huge page; the allocator's memory is as good for them.
    if (bytes < HUGE_PAGE / 2) {
        size_t size = (bytes + 63) & ~(size_t)63;
        void *memory = aligned_alloc(64, size ? size : 64);
        if (memory) memset(memory, 0, size);
        return memory;
    }
    void *memory = aligned_alloc(HUGE_PAGE, huge_size(bytes));
    if (!memory) return NULL;
    madvise(memory, huge_size(bytes), MADV_HUGEPAGE);
    memset(memory, 0, huge_size(bytes));
    return memory;
}

// A list that grows, for what is collected before `commit`.
struct list {
    struct entry *items;
    size_t count, room;
};

static int list_add(struct list *list, const struct entry *entry) {
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        struct entry *items = realloc(list->items, room * sizeof *items);
        if (!items) return -1;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = *entry;
    return 0;
}

static void list_free(struct list *list) {
    free(list->items);
    *list = (struct list){0};
}
