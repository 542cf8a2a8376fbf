/* What BPF programs for Sluice need: the context, the results, helpers and map definitions.
 *
 * Names and numbers are those of linux/bpf.h and libbpf's bpf_helpers.h, so programs for XDP compile with either. Of
 * what those files declare, this is what the switch supports. Compile with
 *
 *     clang -target bpf -O2 -g -I crates/bpf/include -c program.c -o program.o
 */
#ifndef SLUICE_BPF_H
#define SLUICE_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

/* Members of map definitions in section ".maps". */
#define __uint(name, number) int (*name)[number]
#define __type(name, type_) type_ *name

enum bpf_map_type {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_LPM_TRIE = 11,
};

/* Flags of map definitions. */
enum {
    BPF_F_NO_PREALLOC = 1 << 0,
    BPF_F_RDONLY_PROG = 1 << 7,
};

/* Flags of bpf_map_update_elem. */
enum {
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
    BPF_EXIST = 2,
};

/* Results of programs. */
enum xdp_action {
    XDP_ABORTED = 0, /* drop: the program failed */
    XDP_DROP = 1,
    XDP_PASS = 2,     /* go on with the next action */
    XDP_TX = 3,       /* send out of the port the packet came from */
    XDP_REDIRECT = 4, /* send out of the port given to bpf_redirect */
};

/* The context. The first six members are struct xdp_md of linux/bpf.h; `argument` is the action's. */
struct xdp_md {
    __u32 data;
    __u32 data_end;
    __u32 data_meta;
    __u32 ingress_ifindex;
    __u32 rx_queue_index;
    __u32 egress_ifindex;
    __u64 argument;
};

/* Legacy map definitions, in section "maps". */
struct bpf_map_def {
    __u32 type;
    __u32 key_size;
    __u32 value_size;
    __u32 max_entries;
    __u32 map_flags;
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_trace_printk)(const char *format, __u32 size, ...) = (void *)6;
static __u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static long (*const bpf_redirect)(__u32 port, __u64 flags) = (void *)23;
static __s64 (*const bpf_csum_diff)(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size, __u32 seed) = (void *)28;
static long (*const bpf_xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;

#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#define bpf_ntohl(x) __builtin_bswap32(x)

#endif
